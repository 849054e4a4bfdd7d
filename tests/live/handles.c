/*
 * Several handles of one file in each of several processes, opened and closed at random while all
 * of them write; processes are killed with -9. All acknowledged writes are there, in one log:
 * presence in the lock file must survive the closing of any handle.
 *
 * TRUCE_HANDLE_STEPS: the steps of each process; TRUCE_HANDLE_KILLS: how many kills.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define PROCESSES 3
#define HANDLES   3
#define LIVES_MAX 200

/* The acknowledged inserts of each life: 1 .. n. */
static atomic_int *acknowledged;

static truce_store *open_handle(const char *path)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open(path, NULL, &store, &error)) {
        fprintf(stderr, "a handle: %s\n", error.message);
        _exit(1);
    }
    return store;
}

static void insert(truce_store *store, int life, int number)
{
    bson_t document = BSON_INITIALIZER, id;
    bson_error_t error;

    BSON_APPEND_DOCUMENT_BEGIN(&document, "_id", &id);
    BSON_APPEND_INT32(&id, "life", life);
    BSON_APPEND_INT32(&id, "n", number);
    bson_append_document_end(&document, &id);
    if (truce_insert(store, "c", &document, NULL, &error)) {
        fprintf(stderr, "life %d: %s\n", life, error.message);
        _exit(1);
    }
    bson_destroy(&document);
    atomic_store(&acknowledged[life], number);
}

static _Noreturn void live(const char *path, int life, long steps, uint64_t seed)
{
    truce_store *handles[HANDLES] = {NULL};
    struct random random;

    truce__random_seed(&random, seed);
    for (int number = 1; number <= steps; number++) {
        truce_store **handle = &handles[truce__random_below(&random, HANDLES)];

        if (*handle && !truce__random_below(&random, 4)) {
            truce_store_close(*handle);
            *handle = NULL;
        }
        if (!*handle)
            *handle = open_handle(path);
        insert(*handle, life, number);
    }
    for (int i = 0; i < HANDLES; i++)
        truce_store_close(handles[i]);
    _exit(0);
}

static pid_t start(const char *path, int life, long steps)
{
    uint64_t seed = test_seed();
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child)
        live(path, life, steps, seed);
    if (child < 0)
        abort();
    return child;
}

static void check_all(const char *path, int lives)
{
    truce_store *store = open_handle(path);
    bson_error_t error;

    for (int life = 0; life < lives; life++) {
        bson_t filter = BSON_INITIALIZER;
        int64_t count = 0;

        BSON_APPEND_INT32(&filter, "_id.life", life);
        CHECK_OK(truce_count(store, "c", &filter, NULL, &count, &error), error);
        CHECK_INT(count, >=, atomic_load(&acknowledged[life]));
        bson_destroy(&filter);
    }
    truce_store_close(store);
}

TEST(opening_and_closing_handles_in_many_processes_loses_nothing)
{
    long steps = test_scale("TRUCE_HANDLE_STEPS", 60), kills = test_scale("TRUCE_HANDLE_KILLS", 4);
    pid_t children[PROCESSES];
    struct random random;
    char path[400];
    int lives = 0;

    acknowledged = mmap(NULL, LIVES_MAX * sizeof *acknowledged, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(acknowledged != MAP_FAILED);
    truce__random_seed(&random, test_seed());
    snprintf(path, sizeof path, "%s/handles.truce", test_directory());
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start(path, lives++, steps);
    for (long i = 0; i < kills && lives < LIVES_MAX; i++) {
        int which = (int)truce__random_below(&random, PROCESSES);

        truce__clock_sleep_ms((int64_t)truce__random_below(&random, 150));
        kill(children[which], SIGKILL);
        waitpid(children[which], NULL, 0);
        children[which] = start(path, lives++, steps);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int state = 0;

        waitpid(children[i], &state, 0);
        CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    check_all(path, lives);
    munmap(acknowledged, LIVES_MAX * sizeof *acknowledged);
}
