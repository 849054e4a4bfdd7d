/*
 * A mixed load of all patterns, by two writers, while the process of the writers or the archiver is
 * killed. Each restore to a random time equals an independent replay, in memory, of the steps that
 * were acknowledged by then.
 *
 * TRUCE_ARCHIVE_KILLS: how many kills.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/random.h"
#include "tests/support/archive_load.h"
#include "tests/support/test.h"
#include "truce/sweep.h"

#define WRITERS 2
#define STEPS   100000
/* The kills of one store. */
#define KILLS 25

/* Shared with the processes that are killed. */
static struct trial {
    struct {
        /* The last step that was acknowledged. */
        atomic_int done;
        /* When each step began first, and when it was acknowledged; 0: not yet. */
        int64_t began_ms[STEPS], ended_ms[STEPS];
    } writers[WRITERS];
    atomic_int failures;
} * trial;

static const char *const databases[WRITERS] = {"one", "two"};

static char path[300], archive[320], restored[320];
static uint8_t store_id[SEGMENT_STORE_BYTES];
static atomic_int archiver_stop;

/* ---- the processes -------------------------------------------------------------------------- */

static truce_store *writer_store;

static void *writer_run_steps(void *arg)
{
    int w = (int)(intptr_t)arg;
    bson_error_t error;

    for (int step = atomic_load(&trial->writers[w].done) + 1; step < STEPS; step++) {
        bool again = trial->writers[w].began_ms[step] != 0;

        if (!again)
            trial->writers[w].began_ms[step] = truce__clock_wall_ms();
        if (load_step(writer_store, databases[w], step, again, &error)) {
            fprintf(stderr, "step %d of %s: %s\n", step, databases[w], error.message);
            atomic_fetch_add(&trial->failures, 1);
            break;
        }
        trial->writers[w].ended_ms[step] = truce__clock_wall_ms();
        atomic_store(&trial->writers[w].done, step);
    }
    return NULL;
}

static pid_t writers_start(void)
{
    pthread_t threads[WRITERS];
    bson_error_t error;
    pid_t child = fork();

    if (child)
        return child;
    if (truce_store_open(path, NULL, &writer_store, &error)) {
        fprintf(stderr, "%s\n", error.message);
        atomic_fetch_add(&trial->failures, 1);
        _exit(1);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, writer_run_steps, (void *)(intptr_t)i);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    _exit(1);
}

static void archiver_interrupt(int number)
{
    (void)number;
    atomic_store(&archiver_stop, 1);
}

static pid_t trial_archiver_start(void)
{
    const struct archive_options options = {
        .interval_ms = 10, .log_limit = 1 << 30, .stop = &archiver_stop};
    struct target *target;
    bson_error_t error;
    pid_t child = fork();

    if (child)
        return child;
    signal(SIGTERM, archiver_interrupt);
    if (truce__target_directory(archive, true, &target, &error) ||
        truce__archive_run(path, store_id, target, &options, &error)) {
        fprintf(stderr, "the archiver: %s\n", error.message);
        atomic_fetch_add(&trial->failures, 1);
        _exit(1);
    }
    _exit(0);
}

static int child_end(pid_t child, int number)
{
    int status = 0;

    kill(child, number);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- a life --------------------------------------------------------------------------------- */

static bool trial_prepare(void)
{
    const char *directory = test_directory();
    truce_store *store;
    bson_error_t error;
    bool fine;

    memset(trial, 0, sizeof *trial);
    snprintf(path, sizeof path, "%s/s.truce", directory);
    snprintf(archive, sizeof archive, "%s/archive", directory);
    snprintf(restored, sizeof restored, "%s/restored.truce", directory);
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    fine = CHECK_OK(truce__archive_store_id(store, store_id, &error), error);
    for (int w = 0; w < WRITERS && fine; w++)
        fine = load_prepare(store, databases[w]);
    truce_store_close(store);
    return fine;
}

/* Waits until the archive has a complete base. */
static bool base_is_complete(void)
{
    struct verify_report report = {0};
    struct target *target;
    bson_error_t error;

    for (int i = 0; i < 1000 && !report.bases; i++) {
        truce__clock_sleep_ms(10);
        if (truce__target_directory(archive, false, &target, &error))
            continue;
        (void)truce__archive_verify(target, NULL, NULL, &report, &error);
        truce__target_close(target);
    }
    return CHECK(report.bases > 0);
}

static int steps_done(void)
{
    int done = 0;

    for (int w = 0; w < WRITERS; w++)
        done += atomic_load(&trial->writers[w].done);
    return done;
}

/* Waits for a random number of steps, or for a short time that may end while a process starts. */
static void let_live(struct random *random)
{
    int until = steps_done() + (int)truce__random_below(random, 60);

    if (truce__random_below(random, 4)) {
        for (int i = 0; i < 3000 && steps_done() < until; i++)
            truce__clock_sleep_ms(1);
    } else {
        truce__clock_sleep_ms((int)truce__random_below(random, 30));
    }
}

static void kill_some(long kills, struct random *random)
{
    pid_t archiver = trial_archiver_start(), writers;

    if (!base_is_complete()) {
        child_end(archiver, SIGKILL);
        return;
    }
    writers = writers_start();
    for (long i = 0; i < kills; i++) {
        uint64_t victim = truce__random_below(random, 3);

        let_live(random);
        if (victim != 0) {
            child_end(archiver, SIGKILL);
            archiver = trial_archiver_start();
        }
        if (victim != 1) {
            child_end(writers, SIGKILL);
            writers = writers_start();
        }
    }
    truce__clock_sleep_ms(50);
    child_end(writers, SIGKILL);
    CHECK_INT(child_end(archiver, SIGTERM), ==, 0);
    CHECK_INT(atomic_load(&trial->failures), ==, 0);
}

/* ---- restores and the replay ---------------------------------------------------------------- */

struct replay {
    truce_store *store;
    int step[WRITERS];
};

static bool replay_open(struct replay *replay)
{
    bson_error_t error;
    bool fine = CHECK_OK(truce_store_open("memory:", NULL, &replay->store, &error), error);

    for (int w = 0; w < WRITERS && fine; w++) {
        replay->step[w] = 0;
        fine = load_prepare(replay->store, databases[w]);
    }
    return fine;
}

static bool replay_to(struct replay *replay, int w, int step)
{
    bson_error_t error;

    while (replay->step[w] < step) {
        if (!CHECK_OK(load_step(replay->store, databases[w], replay->step[w] + 1, false, &error),
                      error))
            return false;
        replay->step[w]++;
    }
    return true;
}

static bool replay_equals(struct replay *replay, int w, const char *text)
{
    char *own = load_read(replay->store, databases[w]);
    bool same = own && !strcmp(own, text);

    bson_free(own);
    return same;
}

/* Shows the first line that differs. */
static void replay_differs(struct replay *replay, int w, const char *text)
{
    char *own = load_read(replay->store, databases[w]);
    size_t at = 0;

    while (own && own[at] && own[at] == text[at])
        at++;
    while (at && text[at - 1] != '\n')
        at--;
    test_fail(__FILE__, __LINE__,
              "after step %d of %s, the restored store has\n%.600s\nand not\n%.600s",
              replay->step[w], databases[w], text + at, own ? own + at : "");
    bson_free(own);
}

/* Compares one writer's part of the restored store with the steps up to the time. */
static void compare_writer(struct replay *replay, truce_store *store, int w, int64_t at_ms)
{
    int least = 0, most = 0;
    char *text = load_read(store, databases[w]);

    while (trial->writers[w].ended_ms[least + 1] && trial->writers[w].ended_ms[least + 1] <= at_ms)
        least++;
    while (trial->writers[w].began_ms[most + 1] && trial->writers[w].began_ms[most + 1] <= at_ms)
        most++;
    /* An earlier restore may have had the step that was running. */
    if (text && replay_to(replay, w, least) && !replay_equals(replay, w, text)) {
        if (replay->step[w] >= most || !replay_to(replay, w, replay->step[w] + 1) ||
            !replay_equals(replay, w, text))
            replay_differs(replay, w, text);
    }
    bson_free(text);
}

/* Returns false if the time is in a gap, or a check has failed. */
static bool restore_and_compare(struct replay *replay, struct target *target, int64_t at_ms)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    const struct restore_options options = {.at_ms = at_ms};
    const truce_check_options all = {0};
    truce_check_report found;
    struct restore_report report;
    truce_store *store;
    bson_error_t error;
    truce_status status;
    char name[340];

    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", restored, suffixes[i]);
        unlink(name);
    }
    status = truce__archive_restore(target, restored, &options, &report, &error);
    if (status == TRUCE_NOT_FOUND && strstr(error.message, "has a gap"))
        return false;
    if (!CHECK_OK(status, error) ||
        !CHECK_OK(truce_store_open(restored, NULL, &store, &error), error))
        return false;
    CHECK_OK(truce_check(store, &all, NULL, NULL, &found, &error), error);
    CHECK_INT(found.findings, ==, 0);
    for (int w = 0; w < WRITERS && !test_failures(); w++)
        compare_writer(replay, store, w, at_ms);
    truce_store_close(store);
    return true;
}

static int compare_times(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;

    return one < other ? -1 : one > other;
}

/* Restores to as many random times as there were kills, and to the last commit. */
static long compare_some(long count, struct random *random)
{
    int64_t times[KILLS + 1], now_ms = truce__clock_wall_ms();
    struct verify_report report;
    struct replay replay = {0};
    struct target *target;
    bson_error_t error;
    long compared = 0;

    if (!CHECK_OK(truce__target_directory(archive, false, &target, &error), error))
        return 0;
    if (CHECK_OK(truce__archive_verify(target, NULL, NULL, &report, &error), error) &&
        CHECK_INT(report.faults, ==, 0) && replay_open(&replay)) {
        uint64_t range = (uint64_t)(now_ms - report.first_ms);

        for (long i = 0; i < count; i++)
            times[i] = report.first_ms + (int64_t)truce__random_below(random, range);
        times[count] = INT64_MAX;
        qsort(times, (size_t)count + 1, sizeof *times, compare_times);
        for (long i = 0; i <= count && !test_failures(); i++)
            compared += restore_and_compare(&replay, target, times[i]);
        CHECK_INT(compared * 2, >, count);
    }
    truce_store_close(replay.store);
    truce__target_close(target);
    return compared;
}

TEST(restores_equal_a_replay_of_what_was_acknowledged)
{
    long kills = test_scale("TRUCE_ARCHIVE_KILLS", 6), steps = 0, compared = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    trial = mmap(NULL, sizeof *trial, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(trial != MAP_FAILED);
    for (long left = kills; left > 0 && !test_failures(); left -= KILLS) {
        long some = left < KILLS ? left : KILLS;

        if (!trial_prepare())
            break;
        kill_some(some, &random);
        if (!test_failures())
            compared += compare_some(some, &random);
        for (int w = 0; w < WRITERS; w++)
            steps += atomic_load(&trial->writers[w].done);
        if (kills > KILLS)
            printf("%ld kills, %ld steps, %ld restores compared\n", kills - left + some, steps,
                   compared);
    }
    CHECK_INT(steps, >, kills);
    munmap(trial, sizeof *trial);
}
