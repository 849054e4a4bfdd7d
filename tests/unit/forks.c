/*
 * Forks while another thread holds a lock of the process. The child has only the thread that
 * forked, so it must not wait for the other one.
 *
 * This program takes the place of pthread_mutex_lock. In round n, a new process forks. When its
 * fork begins, another thread starts to work in stores. It stops while it holds the n-th mutex that
 * is not on the heap, which is a mutex of the process and not of a store. Then the fork continues,
 * and the child does the same work in stores of its own. If the fork waits for the thread, the
 * thread continues. The rounds end when the work has no further mutex.
 *
 * The thread starts within the fork because a handler of forks that it registers then is not called
 * for this fork. Each round has a new process because some mutexes and handlers belong to the first
 * call.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "bson/timezone.h"
#include "tests/support/json_command.h"
#include "tests/support/test.h"
#include "truce/truce.h"

#define ROUNDS_MAX 200
#define SEEN_MAX   400
#define CHILD_S    60 /* then the child waits forever */

enum { PASSED, FAILED, ENDED };

/* ---- the thread that stops ------------------------------------------------------------------- */

static int round_number;
/* The thread holds this mutex, and waits for `go`. */
static _Atomic(pthread_mutex_t *) held;
/* `start` begins the work. `stopped` is posted when the thread stops, or ends. */
static sem_t start, stopped, go;
static __thread bool works, forks;

static void let_go(void)
{
    if (atomic_exchange(&held, NULL))
        sem_post(&go);
}

#if !TEST_THREAD_SANITIZED
/* The mutexes that the work took so far. */
static pthread_mutex_t *seen[SEEN_MAX];
static int seen_count;

static void hold(pthread_mutex_t *mutex)
{
    Dl_info object;

    for (int i = 0; i < seen_count; i++) {
        if (seen[i] == mutex)
            return;
    }
    if (seen_count == SEEN_MAX || !dladdr(mutex, &object))
        return;
    seen[seen_count++] = mutex;
    if (seen_count != round_number)
        return;
    atomic_store(&held, mutex);
    sem_post(&stopped);
    while (sem_wait(&go))
        ;
}

__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*lock)(pthread_mutex_t *);
    int failed;

    if (!lock)
        *(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (forks && mutex == atomic_load(&held))
        let_go();
    failed = lock(mutex);
    if (works && !failed)
        hold(mutex);
    return failed;
}

/* A fork sleeps if it cannot have a mutex. */
__attribute__((visibility("default"))) int nanosleep(const struct timespec *time,
                                                     struct timespec *left)
{
    if (forks)
        let_go();
    return clock_nanosleep(CLOCK_REALTIME, 0, time, left);
}
#endif

/* ---- the work -------------------------------------------------------------------------------- */

static truce_status insert_one(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t document = BSON_INITIALIZER;
    truce_status status = truce_commit_insert(commit, "c", &document, error);

    (void)arg;
    bson_destroy(&document);
    return status;
}

static truce_status work_in(truce_store *store, bson_error_t *error)
{
    bson_t reply = BSON_INITIALIZER;
    truce_status status = truce_transact(store, insert_one, NULL, NULL, error);

    if (!status) {
        bson_destroy(&reply);
        status =
            run_json_command(store, "shop", "{insert: 'c', documents: [{n: 1.5}]}", &reply, error);
    }
    bson_destroy(&reply);
    return status;
}

static truce_status work_at(const char *uri, bson_error_t *error)
{
    truce_store *store = NULL;
    truce_status status = truce_store_open(uri, NULL, &store, error);

    if (!status)
        status = work_in(store, error);
    truce_store_close(store);
    return status;
}

/* Returns false, and prints why. */
static bool work(const char *place)
{
    const struct time_zone *zone;
    bson_error_t error;
    char path[300];
    truce_status status = truce__time_zone_find("Europe/Berlin", 13, &zone, &error);

    snprintf(path, sizeof path, "file:%s/%s%d.truce", test_directory(), place, round_number);
    if (!status)
        status = work_at("memory:", &error);
    if (!status)
        status = work_at(path, &error);
    if (status == TRUCE_INVALID && strstr(error.message, "was inside a store"))
        return true; /* the disk was slow, and the fork waited for 2 seconds */
    if (status)
        fprintf(stderr, "%s: %s\n", place, error.message);
    return !status;
}

static void *work_and_stop(void *arg)
{
    while (sem_wait(&start))
        ;
    works = true;
    *(bool *)arg = work("thread");
    works = false;
    sem_post(&stopped);
    return NULL;
}

/* ---- a round --------------------------------------------------------------------------------- */

static bool ends;

/* Lets the thread work until it stops. */
static void within_fork(void)
{
    sem_post(&start);
    while (sem_wait(&stopped))
        ;
    ends = !atomic_load(&held);
    forks = true;
}

static bool work_in_child(void)
{
    int state = 0;
    pid_t child = fork();

    if (!child) {
        alarm(CHILD_S);
        forks = false;
        _exit(!work("child"));
    }
    forks = false;
    let_go();
    if (child < 0 || waitpid(child, &state, 0) != child)
        return false;
    if (WIFSIGNALED(state) && WTERMSIG(state) == SIGALRM)
        fprintf(stderr, "a forked child waits for a thread of its parent\n");
    return !state;
}

static int run_round(void)
{
    pthread_t thread;
    bool done, good;

    truce_assert(!sem_init(&start, 0, 0) && !sem_init(&stopped, 0, 0) && !sem_init(&go, 0, 0));
    truce_assert(!pthread_atfork(within_fork, NULL, NULL));
    truce_assert(!pthread_create(&thread, NULL, work_and_stop, &done));
    good = work_in_child();
    truce_assert(!pthread_join(thread, NULL));
    return !good || !done ? FAILED : ends ? ENDED : PASSED;
}

TEST(a_child_waits_for_no_thread_of_its_parent)
{
    int state = PASSED, rounds = 0;

    if (TEST_SANITIZED) {
        test_skip("sanitizers have locks of their own, which a child inherits");
        return;
    }
    (void)test_directory();
    fflush(NULL);
    while (state == PASSED && rounds < ROUNDS_MAX) {
        pid_t process;

        round_number = ++rounds;
        process = fork();
        if (!process)
            _exit(run_round());
        REQUIRE(process > 0 && waitpid(process, &state, 0) == process && WIFEXITED(state));
        state = WEXITSTATUS(state);
    }
    CHECK_INT(state, ==, ENDED);
    if (state != ENDED)
        test_fail(__FILE__, __LINE__, "this was in round %d", rounds);
    CHECK_INT(rounds, >, 8); /* it found the mutexes */
}

/* ---- openings -------------------------------------------------------------------------------- */

/* Opens a file for SQLite, as open(2) does. Waits at the index of the log, which the thread maps
 * next, until a fork has begun. */
static int open_and_wait(const char *name, int flags, int mode)
{
    const struct timespec fork_begins = {0, 100000000};
    const char *end = strrchr(name, '-');

    if (works && end && !strcmp(end, "-shm")) {
        sem_post(&stopped);
        nanosleep(&fork_begins, NULL);
    }
    return open(name, flags, mode);
}

/* The stores of the thread and of the child. */
static char opened_path[300], forked_path[300];

static void *open_one(void *arg)
{
    bson_error_t error;

    works = true;
    *(bool *)arg = !work_at(opened_path, &error);
    works = false;
    return NULL;
}

static int fork_while_opening(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find("unix");
    bson_error_t error = {0};
    pthread_t thread;
    bool opened = false;
    int state = 1;
    pid_t child;

    truce_assert(!sem_init(&stopped, 0, 0));
    vfs->xSetSystemCall(vfs, "open", (sqlite3_syscall_ptr)open_and_wait);
    truce_assert(!pthread_create(&thread, NULL, open_one, &opened));
    while (sem_wait(&stopped))
        ;
    child = fork();
    if (!child) {
        alarm(CHILD_S);
        state = work_at(forked_path, &error);
        if (state)
            fprintf(stderr, "the child: %s\n", error.message);
        _exit(state != 0);
    }
    truce_assert(child > 0 && waitpid(child, &state, 0) == child);
    truce_assert(!pthread_join(thread, NULL));
    return state || !opened;
}

/* A fork waits until an opening has ended. In the meantime, it must not hold a lock that the opening
 * needs: it would wait in vain, and the child could open no store. */
TEST(a_fork_lets_an_opening_end)
{
    const char *directory;
    int state;
    pid_t process;

    if (TEST_SANITIZED) {
        test_skip("sanitizers have locks of their own, which a child inherits");
        return;
    }
    directory = test_directory();
    snprintf(opened_path, sizeof opened_path, "file:%s/opened.truce", directory);
    snprintf(forked_path, sizeof forked_path, "file:%s/forked.truce", directory);
    fflush(NULL);
    process = fork();
    if (!process)
        _exit(fork_while_opening());
    REQUIRE(process > 0 && waitpid(process, &state, 0) == process);
    CHECK_INT(state, ==, 0);
}
