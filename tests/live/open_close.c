/*
 * Concurrent opening and closing of stores:
 *
 *   - by two handles of one process,
 *   - by programs that were started while a store was open,
 *   - by processes that create a new file at the same time,
 *   - by children of a process whose threads read.
 *
 * TRUCE_OPENING_ROUNDS: how often each race is run.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/support/command.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define OPENERS 5

static char directory[300], path[400];

static void new_path(void)
{
    snprintf(directory, sizeof directory, "%s", test_directory());
    snprintf(path, sizeof path, "%s/s.truce", directory);
    fflush(NULL);
}

static truce_status try_insert(truce_store *store, int id, bson_error_t *error)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    truce_status status = truce_insert(store, "c", document, NULL, error);

    bson_destroy(document);
    return status;
}

static void insert(truce_store *store, int from, int to)
{
    bson_error_t error;

    for (int id = from; id < to; id++) {
        if (!CHECK_OK(try_insert(store, id, &error), error))
            return;
    }
}

static truce_store *open_it(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    return store;
}

static void check_count(truce_store *store, int64_t expected)
{
    const bson_t all = BSON_INITIALIZER;
    bson_error_t error;
    int64_t number = -1;

    CHECK_OK(truce_count(store, "c", &all, NULL, &number, &error), error);
    CHECK_INT(number, ==, expected);
}

static void check_has(int64_t expected)
{
    truce_store *store = open_it();

    if (!store)
        return;
    check_count(store, expected);
    truce_store_close(store);
}

/* Another program opens the store, inserts one document, and closes it. */
static void run_other(int id)
{
    const struct command *other;
    char document[60];

    snprintf(document, sizeof document, "{\"_id\": %d}", id);
    other = command_run(TRUCE_CLI, path, NULL, "insert", "c", document, NULL);
    CHECK_INT(other->code, ==, 0);
    if (other->code)
        fprintf(stderr, "%s\n", other->err);
}

/* Opens and closes a file as a library may do: the kernel drops every POSIX lock of this process on
 * it. */
static void drop_locks_of_the_process(void)
{
    int file = open(path, O_RDONLY);

    CHECK(file >= 0);
    close(file);
}

/* ---- two handles ----------------------------------------------------------------------------- */

static _Noreturn void use_two_handles_and_die(void)
{
    truce_store *first = open_it(), *second;

    insert(first, 0, 50);
    second = open_it();
    run_other(1000);
    drop_locks_of_the_process();
    run_other(1001);
    insert(first, 50, 100);
    truce_store_close(second);
    run_other(1002);
    drop_locks_of_the_process();
    run_other(1003);
    insert(first, 100, 150);
    check_count(first, 154);
    if (test_failures())
        _exit(1);
    kill(getpid(), SIGKILL);
    _exit(1);
}

TEST(a_second_handle_takes_nothing_from_the_first)
{
    int state;
    pid_t child;

    new_path();
    child = fork();
    if (!child)
        use_two_handles_and_die();
    CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state));
    check_has(154);
}

TEST(two_handles_and_others_that_close_in_order_keep_everything)
{
    truce_store *first, *second;

    new_path();
    first = open_it();
    insert(first, 0, 300);
    second = open_it();
    run_other(1000);
    insert(first, 300, 600);
    insert(second, 600, 700);
    drop_locks_of_the_process();
    run_other(1001);
    insert(second, 700, 800);
    truce_store_close(second);
    check_count(first, 802);
    truce_store_close(first);
    check_has(802);
}

/* ---- programs and children ------------------------------------------------------------------- */

TEST(opens_a_store_in_a_program_that_its_parent_has_open)
{
    truce_store *store;

    new_path();
    store = open_it();
    insert(store, 0, 10);
    for (int i = 0; i < 5; i++) {
        run_other(1000 + i);
        check_count(store, 11 + i);
    }
    insert(store, 10, 20);
    truce_store_close(store);
    check_has(25);
}

static truce_store *read_store;
static atomic_bool reading;

static void *read_on(void *arg)
{
    const bson_t all = BSON_INITIALIZER;
    bson_error_t error;
    int64_t number;

    (void)arg;
    while (atomic_load(&reading))
        CHECK_OK(truce_count(read_store, "c", &all, NULL, &number, &error), error);
    return NULL;
}

/* The child has one thread, and a mutex may be locked forever by a thread that does not exist
 * there. A call fails or succeeds, and does not hang. */
static _Noreturn void open_in_child(void)
{
    truce_store *store = NULL;
    bson_error_t error;
    truce_status status = truce_store_open(path, NULL, &store, &error);

    CHECK(status == TRUCE_INVALID && strstr(error.message, "forked"));
    strcat(path, ".own");
    status = truce_store_open(path, NULL, &store, &error);
    if (!status) {
        insert(store, (int)getpid(), (int)getpid() + 1);
        truce_store_close(store);
    } else
        CHECK(status == TRUCE_INVALID && strstr(error.message, "forked"));
    test_child_exit();
}

TEST(children_of_a_process_whose_threads_read_never_hang)
{
    long rounds = test_scale("TRUCE_OPENING_ROUNDS", 6);
    pthread_t threads[3];

    if (TEST_ADDRESS_SANITIZED) {
        test_skip("a lock of the sanitizer's malloc may be held forever in a child");
        return;
    }
    new_path();
    read_store = open_it();
    insert(read_store, 0, 20);
    atomic_store(&reading, true);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, read_on, NULL);
    for (long i = 0; i < rounds; i++) {
        int state = 0;
        pid_t child;

        fflush(NULL);
        child = fork();
        if (!child)
            open_in_child();
        CHECK(waitpid(child, &state, 0) == child && state == 0);
    }
    atomic_store(&reading, false);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    check_count(read_store, 20);
    truce_store_close(read_store);
}

/* ---- a new file ------------------------------------------------------------------------------ */

static pid_t start_opener(int id)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child) {
        truce_store *store = open_it();

        if (store) {
            insert(store, id, id + 1);
            truce_store_close(store);
        }
        test_child_exit();
    }
    return child;
}

/* Runs a race. With `kills`, two processes die at random times, and the acknowledged writes of the
 * others are there. */
static void race(struct random *random, int kills)
{
    pid_t children[OPENERS];
    int64_t number = 0, least = 0;
    const bson_t all = BSON_INITIALIZER;
    truce_store *store;
    bson_error_t error;

    new_path();
    for (int i = 0; i < OPENERS; i++)
        children[i] = start_opener(i);
    if (kills)
        truce__clock_sleep_ms((int64_t)truce__random_below(random, 20));
    for (int i = 0; i < kills; i++)
        kill(children[i], SIGKILL);
    for (int i = 0; i < OPENERS; i++) {
        int state = 0;

        CHECK(waitpid(children[i], &state, 0) == children[i]);
        CHECK(state == 0 || (i < kills && WIFSIGNALED(state)));
        least += state == 0;
    }
    store = open_it();
    if (!store)
        return;
    CHECK_OK(truce_count(store, "c", &all, NULL, &number, &error), error);
    CHECK_INT(number, >=, least);
    truce_store_close(store);
}

TEST(processes_that_open_a_new_file_at_once_all_have_one_store)
{
    long rounds = test_scale("TRUCE_OPENING_ROUNDS", 6);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < rounds && !test_failures(); i++)
        race(&random, 0);
}

TEST(leaves_a_file_that_opens_if_its_creator_dies)
{
    long rounds = test_scale("TRUCE_OPENING_ROUNDS", 6);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < rounds && !test_failures(); i++)
        race(&random, 2);
}
