/*
 * kill -9. Writer processes work on one file and die at random times, repeatedly. Each records its
 * acknowledged writes in memory shared with the parent.
 *
 * TRUCE_KILL_CYCLES: how many kills.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#include "base/clock.h"
#include "base/random.h"
#include "engine/documents/open_documents.h"
#include "tests/support/school.h"
#include "tests/support/test.h"
#include "truce/compact.h"

#define PROCESSES 2
#define THREADS   2

static struct school_notes *notes;
static truce_store *store;
static uint32_t pad;
static bool compacts;       /* each process, next to its work */
static atomic_llong *given; /* bytes that were returned to the file system, shared */

static void *work(void *arg)
{
    bson_error_t error;

    while (!school_round(store, notes, (int)(intptr_t)arg, pad, false, &error))
        continue;
    fprintf(stderr, "worker: %s\n", error.message);
    return NULL;
}

static void *give_back(void *arg)
{
    const truce_compact_options options = {.deadline_ms = 10000};
    truce_compact_report report;
    bson_error_t error;

    for (;;) {
        truce_status status = truce_compact(store, &options, &report, &error);

        if (status && status != TRUCE_TIMEOUT && status != TRUCE_LOCKED)
            break;
        if (report.bytes_before > report.bytes_after)
            atomic_fetch_add(given, report.bytes_before - report.bytes_after);
    }
    fprintf(stderr, "giver: %s\n", error.message);
    _exit(1);
    return arg;
}

/* A child: works until it is killed. */
static _Noreturn void live(const char *path, int process)
{
    pthread_t threads[THREADS], giver;
    bson_error_t error;

    if (truce_store_open(path, NULL, &store, &error) || school_open(store, &error)) {
        fprintf(stderr, "child: %s\n", error.message);
        _exit(1);
    }
    if (compacts)
        pthread_create(&giver, NULL, give_back, NULL);
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)(process * THREADS + i));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    _exit(1);
}

static pid_t start(const char *path, int process)
{
    pid_t child;

    fflush(NULL);
    child = fork();
    if (!child)
        live(path, process);
    return child;
}

/* A child that ended by itself found something wrong. */
static bool kill_one(pid_t child)
{
    int state;

    kill(child, SIGKILL);
    return waitpid(child, &state, 0) == child && WIFSIGNALED(state);
}

static int64_t acknowledged(void)
{
    int64_t sum = 0;

    for (int i = 0; i < PROCESSES * THREADS; i++)
        sum += atomic_load(&notes->counted[i]);
    return sum;
}

/* Until something more is acknowledged, however slow the machine is. */
static void wait_for_more(int64_t than)
{
    for (int i = 0; i < 60000 && acknowledged() <= than; i++)
        truce__clock_sleep_ms(1);
    CHECK_INT(acknowledged(), >, than);
}

/* Every other kill follows some acknowledged work. The kills between come at any time, also during
 * the open of the store. */
static void kill_many(long cycles, uint32_t big)
{
    pid_t children[PROCESSES];
    struct random random;
    char path[400];

    truce__random_seed(&random, test_seed());
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(notes != MAP_FAILED);
    pad = big;
    for (int i = 0; i < PROCESSES; i++)
        children[i] = start(path, i);
    for (long i = 0; i < cycles && !test_failures(); i++) {
        int victim = (int)truce__random_below(&random, PROCESSES);

        if (i % 2)
            wait_for_more(acknowledged());
        truce__clock_sleep_ms((int64_t)truce__random_below(&random, 60));
        CHECK(kill_one(children[victim]));
        children[victim] = start(path, victim);
        if (i % 50 == 49)
            CHECK(!school_check(path, notes, 0, true, true));
    }
    for (int i = 0; i < 60000 && compacts && !atomic_load(given); i++)
        truce__clock_sleep_ms(1);
    for (int i = 0; i < PROCESSES; i++)
        CHECK(kill_one(children[i]));
    CHECK(!school_check(path, notes, PROCESSES * THREADS, true, true));
    munmap(notes, sizeof *notes);
}

TEST(keeps_acknowledged_writes_if_writers_die_at_any_time)
{
    kill_many(test_scale("TRUCE_KILL_CYCLES", 300), 0);
}

TEST(keeps_acknowledged_writes_if_writers_die_at_checkpoints)
{
    kill_many(test_scale("TRUCE_KILL_CYCLES", 300) / 3, 300000);
}

TEST(keeps_acknowledged_writes_if_writers_die_in_compaction)
{
    given = mmap(NULL, sizeof *given, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(given != MAP_FAILED);
    compacts = true;
    kill_many(test_scale("TRUCE_KILL_CYCLES", 300) / 5, 200000);
    compacts = false;
    CHECK_INT(atomic_load(given), >, 0);
    munmap(given, sizeof *given);
}
