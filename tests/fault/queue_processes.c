/*
 * The job queue among processes: 16 workers on one file, one killed with -9 every 100 ms, and among
 * the jobs one that kills its worker. Further tests stop a worker past its lease, or set the clocks
 * of workers hours apart.
 *
 * Each job counts up a document of its own in truce_job_commit: that is its effect, and its count
 * is 1 in the end.
 *
 * TRUCE_QUEUE_MS: how long they are killed (2000).
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "tests/support/command.h"
#include "tests/support/queue_rig.h"
#include "truce/sweep.h"

#define WORKERS  16
#define EVERY_MS 100
#define JOB_MS   60
#define LEASE_MS 300
#define BOUND_MS 120000 /* the limit of a wait; a slow machine waits longer */

static char path[300], uri[320];

/* No process has the file open while processes begin. */
static truce_store *open_file(void)
{
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    return store;
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/jobs.truce", test_directory());
    snprintf(uri, sizeof uri, "file:%s", path);
}

static truce_queue *queue_of(truce_store *store, uint32_t lease_ms)
{
    truce_queue_options options = {
        .queue = "mail", .lease_ms = lease_ms, .backoff_ms = 1, .backoff_max_ms = 1};

    return truce_queue_new(store, &options);
}

/* Adds {n: i}, and the document that it counts up. */
static void add_jobs(truce_queue *queue, int count, const truce_job_options *options)
{
    for (int i = 0; i < count; i++) {
        char text[40];

        snprintf(text, sizeof text, "{'n': %d}", i);
        (void)rig_add(queue, text, options);
        snprintf(text, sizeof text, "{'_id': 'e%d', 'n': 0}", i);
        insert_json(queue->store, "effects", text);
    }
}

static truce_status count_up(truce_commit *commit, void *arg, bson_error_t *error)
{
    char id[20];

    snprintf(id, sizeof id, "e%d",
             (int)truce__field_number(truce_job_payload((truce_job *)arg), "n"));
    return add_update(commit, "effects", id, NULL, "{'$inc': {'n': 1}}", error);
}

static int64_t count(truce_store *store, const char *collection, const char *filter)
{
    bson_t *document = test_bson(filter);
    bson_error_t error = {0};
    int64_t found = -1;

    CHECK_OK(truce_count(store, collection, document, NULL, &found, &error), error);
    bson_destroy(document);
    return found;
}

/* ---- killed all the time ---- */

/* Works until it is killed, or signalled to end. */
static _Noreturn void work_on(void)
{
    bson_error_t error;
    truce_store *store = NULL;
    truce_queue *queue;

    if (truce_store_open(uri, NULL, &store, &error))
        _exit(1);
    queue = queue_of(store, LEASE_MS);
    for (;;) {
        truce_job *job = NULL;

        if (truce_queue_claim_wait(queue, 1000, &job, &error))
            continue;
        if (bson_has_field(truce_job_payload(job), "poison"))
            kill(getpid(), SIGKILL);
        truce__clock_sleep_ms(JOB_MS / 2);
        if (truce_job_commit(job, count_up, job, NULL, &error) == TRUCE_OK)
            truce__clock_sleep_ms(JOB_MS / 2);
        truce_job_free(job);
    }
}

static void keep_alive(pid_t workers[WORKERS])
{
    for (int i = 0; i < WORKERS; i++) {
        if (workers[i] > 0 && waitpid(workers[i], NULL, WNOHANG) != workers[i])
            continue;
        workers[i] = fork();
        if (!workers[i])
            work_on();
    }
}

/* Checks in a process of its own: 0, no job is live any more; 1, some are; 2, an error. */
static int look(void)
{
    pid_t child = fork();
    int state = 0;

    if (!child) {
        truce_store *store = open_file();

        _exit(!store ? 2 : count(store, "truce_queue", "{'undone': {'$exists': true}}") ? 1 : 0);
    }
    return waitpid(child, &state, 0) == child && WIFEXITED(state) ? WEXITSTATUS(state) : 2;
}

static void fill(int jobs)
{
    truce_job_options lasting = {.attempts_max = 100000},
                      deadly = {.attempts_max = 3, .priority = 1000};
    truce_store *store = open_file();
    truce_queue *queue = queue_of(store, LEASE_MS);

    (void)rig_add(queue, "{'poison': 1}", &deadly);
    add_jobs(queue, jobs, &lasting);
    truce_queue_free(queue);
    truce_store_close(store);
}

static void check_all(int jobs)
{
    truce_store *store = open_file();
    truce_check_report report = {0};
    bson_error_t error = {0};

    CHECK_INT(jobs, ==, count(store, "truce_queue", "{'state': 'done'}"));
    CHECK_INT(1, ==,
              count(store, "truce_queue", "{'state': 'dead', 'payload.poison': 1, 'attempt': 3}"));
    CHECK_INT(jobs, ==, count(store, "effects", "{'n': 1}"));
    CHECK_OK(truce_check(store, NULL, NULL, NULL, &report, &error), error);
    CHECK_INT(0, ==, report.findings);
    truce_store_close(store);
}

TEST(each_effect_is_there_once_whichever_process_is_killed)
{
    long ms = test_scale("TRUCE_QUEUE_MS", 2000);
    int jobs = (int)(ms * WORKERS / JOB_MS / 3), left = 1;
    int64_t begun_ns = truce__clock_monotonic_ns(), ran_ms = 0;
    pid_t workers[WORKERS] = {0};

    begin();
    fill(jobs);
    for (long round = 0; left && ran_ms < ms + BOUND_MS; round++) {
        keep_alive(workers);
        truce__clock_sleep_ms(EVERY_MS);
        ran_ms = (truce__clock_monotonic_ns() - begun_ns) / 1000000;
        if (ran_ms < ms)
            kill(workers[round % WORKERS], SIGKILL);
        else
            left = look();
    }
    CHECK_INT(0, ==, left);
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
    check_all(jobs);
}

/* ---- stopped past its lease ---- */

static truce_status count_and_stop(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = count_up(commit, arg, error);

    raise(SIGSTOP);
    return status;
}

/* Exits with the status of its commit. */
static _Noreturn void work_stopped(void)
{
    truce_store *store = open_file();
    truce_queue *queue = queue_of(store, 50);
    truce_job *job = rig_claim_later(queue);
    bson_error_t error;

    _exit(job ? (int)truce_job_commit(job, count_and_stop, job, NULL, &error) : 99);
}

TEST(the_effects_of_a_worker_that_was_stopped_are_refused)
{
    truce_store *store;
    truce_queue *queue;
    truce_job *job;
    bson_error_t error = {0};
    pid_t stopped;
    int state = 0;

    begin();
    store = open_file();
    queue = queue_of(store, 50);
    add_jobs(queue, 1, NULL);
    truce_queue_free(queue);
    truce_store_close(store);
    stopped = fork();
    if (!stopped)
        work_stopped();
    REQUIRE(waitpid(stopped, &state, WUNTRACED) == stopped && WIFSTOPPED(state));
    store = open_file();
    queue = queue_of(store, 600000);
    job = rig_claim_later(queue); /* its lease ends */
    REQUIRE(job);
    CHECK_INT(2, ==, truce_job_epoch(job));
    CHECK_OK(truce_job_commit(job, count_up, job, NULL, &error), error);
    kill(stopped, SIGCONT);
    REQUIRE(waitpid(stopped, &state, 0) == stopped && WIFEXITED(state));
    CHECK_INT(TRUCE_EXPIRED, ==, WEXITSTATUS(state));
    CHECK_INT(1, ==, count(store, "effects", "{'n': 1}"));
    truce_job_free(job);
    truce_queue_free(queue);
    truce_store_close(store);
}

/* ---- clocks that are hours away ---- */

#define FAKETIME "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"

/* A worker whose clock is ahead by so much; its commands count up, and are slow. */
static pid_t start_at(const char *offset)
{
    pid_t child = fork();

    if (!child) {
        if (!freopen("/dev/null", "w", stdout))
            _exit(126);
        setenv("TRUCE_STORE", path, 1);
        setenv("LD_PRELOAD", FAKETIME, 1);
        setenv("FAKETIME", offset, 1);
        setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
        setenv("NO_FAKE_STAT", "1", 1); /* the times of files are the file system's */
        execl(TRUCE_CLI, TRUCE_CLI, "work", "--queue", "mail", "--lease", "10m", "--commit",
              "--quiet", "--exec", "sh", "--", "-c",
              "unset LD_PRELOAD; n=$(tr -dc 0-9); sleep 0.05; "
              "echo \"[{update: 'effects', id: 'e$n', with: {\\$inc: {n: 1}}}]\"",
              NULL);
        _exit(127);
    }
    return child;
}

TEST(clocks_that_are_hours_away_change_nothing)
{
    static const char *const offsets[] = {"+0", "+6h", "-6h"};
    enum { CLOCKS = 3, JOBS = 30 };
    pid_t workers[CLOCKS];
    truce_store *store;
    truce_queue *queue;

    if (access(FAKETIME, R_OK) || TEST_SANITIZED) {
        test_skip("%s", TEST_SANITIZED ? "sanitizers and a preloaded library do not go together"
                                       : "there is no libfaketime");
        return;
    }
    begin();
    store = open_file();
    queue = queue_of(store, 2000);
    add_jobs(queue, JOBS, NULL);
    truce_queue_free(queue);
    truce_store_close(store);
    for (int i = 0; i < CLOCKS; i++)
        workers[i] = start_at(offsets[i]);
    for (int i = 0; i < BOUND_MS / 50 && look(); i++)
        truce__clock_sleep_ms(50);
    for (int i = 0; i < CLOCKS; i++) {
        kill(workers[i], SIGTERM);
        waitpid(workers[i], NULL, 0);
    }
    store = open_file();
    CHECK_INT(JOBS, ==, count(store, "truce_queue", "{'state': 'done'}"));
    /* no job was taken from its worker */
    CHECK_INT(JOBS, ==, count(store, "truce_queue", "{'epoch': 1}"));
    CHECK_INT(JOBS, ==, count(store, "effects", "{'n': 1}"));
    truce_store_close(store);
}
