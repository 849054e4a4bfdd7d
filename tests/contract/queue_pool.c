/* A pool of threads: every job ends once, and a stop reports the outcome of each. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/field.h"
#include "tests/support/queue_rig.h"
#include "truce/pool.h"

#define BOUND_MS 120000 /* the limit of a wait; a slow machine waits longer */

static int64_t figure(truce_pool *pool, const char *path)
{
    bson_t figures;
    int64_t number;

    truce_pool_figures(pool, &figures);
    number = rig_number(&figures, path);
    bson_destroy(&figures);
    return number;
}

static bool comes_to(truce_pool *pool, const char *path, int64_t number, int line)
{
    for (int i = 0; i < BOUND_MS / 5; i++) {
        if (figure(pool, path) >= number)
            return true;
        truce__clock_sleep_ms(5);
    }
    return test_fail(__FILE__, line, "%s never came to %lld", path, (long long)number);
}
#define COMES_TO(number, path) comes_to(pool, path, number, __LINE__)
#define FIGURE(number, path)   CHECK_INT(number, ==, figure(pool, path))

static truce_pool *start(truce_queue *queue, truce_pool_function *function, void *arg,
                         uint32_t threads, uint32_t ahead)
{
    truce_pool_options options = {
        .function = function, .arg = arg, .threads = threads, .ahead = ahead};
    truce_pool *pool = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_pool_start(queue, &options, &pool, &error), error);
    return pool;
}

static void stop(truce_pool *pool)
{
    bson_error_t error = {0};
    bson_t left;

    CHECK_OK(truce_pool_stop(pool, BOUND_MS, &left, &error), error);
    CHECK_INT(0, ==, bson_count_keys(&left));
    bson_destroy(&left);
}

/* ---- ends ---- */

static truce_status count_once(truce_job *job, void *arg, bson_error_t *error)
{
    return truce_job_commit(job, rig_effect, NULL, NULL, error);
}

static void once(truce_store *store, const struct setting *setting)
{
    enum { JOBS = 60 };
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_pool *pool = start(queue, count_once, NULL, 4, 3);

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    for (int i = 0; i < JOBS; i++)
        (void)rig_add(queue, "{}", NULL);
    COMES_TO(JOBS, "done");
    stop(pool);
    FIGURE(JOBS, "begun");
    FIGURE(JOBS, "done");
    FIGURE(JOBS, "ran.count");
    FIGURE(JOBS, "waited.count");
    FIGURE(0, "busy");
    FIGURE(0, "failed");
    FIGURE(0, "lost");
    CHECK_INT(JOBS, ==, rig_effects(store));
    truce_pool_free(pool);
    truce_queue_free(queue);
}
TEST(each_job_is_done_once_by_many_threads)
{
    on_every_setting(once);
}

#define TOGETHER 8

struct together {
    truce_queue *queue;
    pthread_barrier_t barrier;
};

/* All of them end at once. */
static truce_status end_at_once(truce_job *job, void *arg, bson_error_t *error)
{
    struct together *together = arg;
    int64_t n = rig_number(truce_job_payload(job), "n");
    bson_t result = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    BSON_APPEND_INT64(&result, "n", n);
    if (n == 1)
        bson_append_utf8(&result, "text", -1, "\xff", 1);
    truce_job_result(job, &result);
    bson_destroy(&result);
    if (n == 0)
        status = truce_queue_cancel(together->queue, NULL, truce_job_id(job), error);
    pthread_barrier_wait(&together->barrier);
    return status;
}

static void ends_at_once(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    struct together together = {.queue = queue};
    const truce_job_options options = {.attempts_max = 1};
    bson_oid_t ids[TOGETHER];
    truce_pool *pool;

    pthread_barrier_init(&together.barrier, NULL, TOGETHER);
    for (int i = 0; i < TOGETHER; i++) {
        char payload[20];

        snprintf(payload, sizeof payload, "{'n': %d}", i);
        ids[i] = rig_add(queue, payload, &options);
    }
    pool = start(queue, end_at_once, &together, TOGETHER, 0);
    COMES_TO(TOGETHER, "ran.count");
    stop(pool);
    FIGURE(TOGETHER - 2, "done");
    FIGURE(1, "failed");
    FIGURE(1, "lost");
    FIGURE(0, "busy");
    CHECK_STATE("cancelled", queue, &ids[0]);
    CHECK_STATE("dead", queue, &ids[1]);
    for (int i = 2; i < TOGETHER; i++) {
        bson_error_t error;
        bson_t job;

        CHECK_OK(truce_queue_get(queue, NULL, &ids[i], &job, &error), error);
        CHECK_TEXT("done", truce__job_state(&job));
        CHECK_INT(rig_number(&job, "result.n"), ==, i);
        bson_destroy(&job);
    }
    truce_pool_free(pool);
    pthread_barrier_destroy(&together.barrier);
    truce_queue_free(queue);
}
TEST(ends_each_of_many_concurrent_jobs_in_its_own_state)
{
    on_every_setting(ends_at_once);
}

static truce_status as_it_says(truce_job *job, void *arg, bson_error_t *error)
{
    const char *what = truce__field_text(truce_job_payload(job), "do");
    bson_t *result = test_bson("{'n': 7}");
    truce_status status = TRUCE_OK;

    truce_job_result(job, result);
    bson_destroy(result);
    if (!strcmp(what, "fail"))
        status = truce__fail(TRUCE_REFUSED, error, "oh dear");
    else if (!strcmp(what, "snooze"))
        status = truce_job_snooze(job, NULL, 3600000, error);
    else if (!strcmp(what, "sleep"))
        status = truce_job_sleep(job, "pause", 3600000, error);
    else if (!strcmp(what, "discard"))
        status = truce_job_discard(job, NULL, "no", error);
    else if (!strcmp(what, "fail itself"))
        status = truce_job_fail(job, NULL, "by itself", -1, error);
    return status;
}

static void ends(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *payload, *state;
    } jobs[] = {
        {"{'do': 'nothing'}", "done"},      {"{'do': 'fail'}", "dead"},
        {"{'do': 'snooze'}", "delayed"},    {"{'do': 'sleep'}", "delayed"},
        {"{'do': 'discard'}", "discarded"}, {"{'do': 'fail itself'}", "dead"},
    };
    enum { JOBS = sizeof jobs / sizeof *jobs };
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.attempts_max = 1};
    truce_pool *pool = start(queue, as_it_says, NULL, 2, 0);
    bson_oid_t ids[JOBS];
    bson_error_t error = {0};
    char *text;
    bson_t job;

    for (int i = 0; i < JOBS; i++)
        ids[i] = rig_add(queue, jobs[i].payload, &options);
    COMES_TO(JOBS, "ran.count");
    stop(pool);
    for (int i = 0; i < JOBS; i++)
        CHECK_STATE(jobs[i].state, queue, &ids[i]);
    FIGURE(1, "done");
    FIGURE(2, "failed");
    FIGURE(2, "snoozed");
    FIGURE(1, "discarded");
    CHECK_OK(truce_queue_get(queue, NULL, &ids[0], &job, &error), error);
    CHECK_INT(7, ==, rig_number(&job, "result.n"));
    bson_destroy(&job);
    CHECK_OK(truce_queue_get(queue, NULL, &ids[1], &job, &error), error);
    text = bson_as_relaxed_extended_json(&job, NULL);
    CHECK(strstr(text, "oh dear"));
    bson_free(text);
    bson_destroy(&job);
    truce_pool_free(pool);
    truce_queue_free(queue);
}
TEST(ends_a_job_as_its_function_returns)
{
    on_every_setting(ends);
}

/* ---- stopping ---- */

struct gate {
    atomic_int inside;
    atomic_bool open;
};

static truce_status wait_at_gate(truce_job *job, void *arg, bson_error_t *error)
{
    struct gate *gate = arg;

    atomic_fetch_add(&gate->inside, 1);
    for (int i = 0; i < BOUND_MS && !atomic_load(&gate->open); i++)
        truce__clock_sleep_ms(1);
    return TRUCE_OK;
}

static void stopping(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    struct gate gate = {0};
    bson_oid_t ids[3];
    bson_error_t error = {0};
    truce_pool *pool;
    bson_t left;

    for (int i = 0; i < 3; i++)
        ids[i] = rig_add(queue, "{}", NULL);
    pool = start(queue, wait_at_gate, &gate, 1, 5);
    COMES_TO(1, "busy");
    COMES_TO(2, "ready");
    CHECK_STATE("running", queue, &ids[2]);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_pool_stop(pool, 0, &left, &error), error);
    CHECK_INT(1, ==, bson_count_keys(&left));
    CHECK_INT(1, ==, rig_number(&left, "0.epoch"));
    CHECK_INT(1, ==, rig_number(&left, "0.begun"));
    bson_destroy(&left);
    CHECK_STATE("running", queue, &ids[0]);
    CHECK_STATE("ready", queue, &ids[1]);
    CHECK_STATE("ready", queue, &ids[2]);
    FIGURE(2, "returned");
    atomic_store(&gate.open, true);
    stop(pool);
    CHECK_INT(1, ==, atomic_load(&gate.inside));
    CHECK_STATE("done", queue, &ids[0]);
    FIGURE(1, "done");
    truce_pool_free(pool);
    truce_queue_free(queue);
}
TEST(a_stop_names_the_running_jobs_and_requeues_the_rest)
{
    on_every_setting(stopping);
}

static truce_status until_cancelled(truce_job *job, void *arg, bson_error_t *error)
{
    for (int i = 0; i < BOUND_MS && !truce_job_cancelled(job); i++)
        truce__clock_sleep_ms(1);
    atomic_fetch_add((atomic_int *)arg, truce_job_cancelled(job));
    return TRUCE_OK;
}

TEST(notifies_a_function_that_its_pool_was_stopped)
{
    truce_store *store = open_setting(&settings[0]);
    truce_queue *queue = rig_queue(store, &settings[0], "mail");
    atomic_int heard = 0;
    truce_pool *pool = start(queue, until_cancelled, &heard, 2, 0);
    bson_error_t error;

    (void)rig_add(queue, "{}", NULL);
    COMES_TO(1, "busy");
    CHECK_STATUS(TRUCE_TIMEOUT, truce_pool_stop(pool, 0, NULL, &error), error);
    truce_pool_free(pool);
    CHECK_INT(1, ==, atomic_load(&heard));
    truce_queue_free(queue);
    truce_store_close(store);
}

/* The mechanism of their commits does not matter. */
static void on_one_setting(setting_function *function)
{
    truce_store *store = open_setting(&settings[0]);

    function(store, &settings[0]);
    truce_store_close(store);
}

static void cancelled(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    atomic_int heard = 0;
    truce_pool *pool = start(queue, until_cancelled, &heard, 2, 0);
    bson_oid_t id = rig_add(queue, "{}", NULL);
    bson_error_t error = {0};

    COMES_TO(1, "busy");
    CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
    COMES_TO(1, "lost");
    CHECK_INT(1, ==, atomic_load(&heard));
    CHECK_STATE("cancelled", queue, &id);
    stop(pool);
    truce_pool_free(pool);
    truce_queue_free(queue);
}
TEST(reports_a_cancelled_job_as_lost_to_its_pool)
{
    on_one_setting(cancelled);
}

/* ---- leases ---- */

static int64_t end_of_lease(truce_queue *queue, const bson_oid_t *id)
{
    int64_t at_ms = 0;
    bson_error_t error = {0};
    bson_t job;

    CHECK_OK(truce_queue_get(queue, NULL, id, &job, &error), error);
    (void)truce__job_date(&job, "undone.at", &at_ms);
    bson_destroy(&job);
    return at_ms;
}

static void kept(truce_store *store, const struct setting *setting)
{
    truce_queue_options options = {
        .queue = "mail", .lease_ms = 300, .mechanism = setting->mechanism};
    truce_queue *queue = truce_queue_new(store, &options);
    struct gate gate = {0};
    truce_pool *pool = start(queue, wait_at_gate, &gate, 1, 1);
    bson_oid_t ids[] = {rig_add(queue, "{}", NULL), rig_add(queue, "{}", NULL)};

    COMES_TO(1, "busy");
    COMES_TO(1, "ready");
    for (int i = 0; i < 2; i++) { /* the running job, and the waiting one */
        int64_t first_ms = end_of_lease(queue, &ids[i]), ms = first_ms;

        for (int k = 0; k < BOUND_MS / 20 && ms <= first_ms; k++) {
            truce__clock_sleep_ms(20);
            ms = end_of_lease(queue, &ids[i]);
        }
        CHECK(ms > first_ms);
    }
    atomic_store(&gate.open, true);
    stop(pool);
    truce_pool_free(pool);
    truce_queue_free(queue);
}
TEST(leases_are_extended_while_jobs_run_or_wait)
{
    on_one_setting(kept);
}

/* ---- trouble ---- */

static truce_status nothing(truce_job *job, void *arg, bson_error_t *error)
{
    return TRUCE_OK;
}

TEST(a_pool_continues_after_failures_of_its_store)
{
    truce_store *store = open_setting(&settings[0]);
    truce_queue *queue = rig_queue(store, &settings[0], "mail");
    truce_pool *pool = start(queue, nothing, NULL, 0, 0);
    bool reported = false;

    FIGURE(4, "threads");
    truce_interrupt(store);
    for (int i = 0; i < BOUND_MS / 5 && !reported; i++) {
        bson_t figures;

        truce_pool_figures(pool, &figures);
        reported = strstr(truce__field_text(&figures, "trouble"), "interrupted") != NULL;
        bson_destroy(&figures);
        truce__clock_sleep_ms(5);
    }
    CHECK(reported);
    truce_resume(store);
    (void)rig_add(queue, "{}", NULL);
    COMES_TO(1, "done");
    stop(pool);
    FIGURE(-1, "trouble");
    truce_pool_free(pool);
    truce_queue_free(queue);
    truce_store_close(store);
}

TEST(wrong_options_start_nothing)
{
    truce_store *store = open_setting(&settings[0]);
    truce_queue *queue = rig_queue(store, &settings[0], "mail");
    truce_queue *nameless = truce_queue_new(store, NULL);
    truce_pool_options options = {.threads = 1};
    truce_pool *pool = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_pool_start(queue, &options, &pool, &error), error);
    options.function = nothing;
    options.threads = 257;
    CHECK_STATUS(TRUCE_INVALID, truce_pool_start(queue, &options, &pool, &error), error);
    options.threads = 1;
    options.ahead = 1001;
    CHECK_STATUS(TRUCE_INVALID, truce_pool_start(queue, &options, &pool, &error), error);
    options.ahead = 0;
    CHECK_STATUS(TRUCE_INVALID, truce_pool_start(nameless, &options, &pool, &error), error);
    CHECK(!pool);
    truce_pool_free(NULL);
    truce_queue_free(nameless);
    truce_queue_free(queue);
    truce_store_close(store);
}
