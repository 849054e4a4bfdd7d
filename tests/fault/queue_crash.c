/*
 * A worker dies at every one of its store calls, before or after the call's effect, and again in
 * its second life. In further runs every single answer is lost. The jobs are added under keys, so
 * adding them again is harmless. Each has one effect in its commit, and one in a step before it. At
 * the end each job is done, and each effect is there once.
 */
#include "tests/support/queue_rig.h"
#include "tests/support/trouble.h"

#define JOBS      2
#define ROUNDS    3000
#define DOOMED_MS 15 /* a worker that will die need not wait for long */

struct rig {
    truce_store *inner, *store;
    truce_mechanism mechanism;
    bool usual;   /* the wrong way */
    bool limited; /* one lane, and one job at once */
    bool linked;  /* the last job waits for the others */
    int early;    /* it began before them */
};

static void rig_open(struct rig *rig, truce_mechanism mechanism)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();

    insert_json(memory, "effects", "{'_id': 'effect', 'n': 0}");
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->mechanism = mechanism;
    rig->usual = false;
    rig->limited = false;
    rig->linked = false;
    rig->early = 0;
}

static truce_status add_jobs(struct rig *rig, truce_queue *queue, bson_error_t *error)
{
    truce_job_added added[JOBS] = {0};
    bson_oid_t before[JOBS];
    truce_status status = TRUCE_OK;

    for (int i = 0; i < JOBS && !status; i++) {
        bson_t *payload = BCON_NEW("n", BCON_INT32(i));
        truce_job_options options = {.unique_payload = true,
                                     .unique_scope = TRUCE_UNIQUE_KEPT,
                                     .attempts_max = 1000,
                                     .lane = rig->limited ? "lane" : NULL,
                                     .after = before,
                                     .after_count = rig->linked ? (size_t)i : 0};

        status = truce_queue_add(queue, NULL, payload, &options, &added[i], error);
        before[i] = added[i].id;
        bson_destroy(payload);
    }
    return status;
}

static truce_status step(truce_commit *commit, void *arg, bson_t *result, bson_error_t *error)
{
    BSON_APPEND_INT32(result, "run", ++*(int *)arg);
    return rig_effect(commit, NULL, error);
}

/* Makes both effects, and then ends the job. */
static truce_status do_usual(struct rig *rig, truce_job *job, bson_error_t *error)
{
    bson_t *filter = test_bson("{'_id': 'effect'}"), *update = test_bson("{'$inc': {'n': 2}}");
    truce_status status = truce_update(rig->store, "effects", filter, update, NULL, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status ? status : truce_job_done(job, NULL, NULL, error);
}

/* The others are not done yet. */
static bool is_early(struct rig *rig)
{
    bson_t *done = test_bson("{'state': 'done'}");
    int64_t count = 0;
    truce_status status = truce_count(rig->store, "truce_queue", done, NULL, &count, NULL);

    bson_destroy(done);
    return !status && count < JOBS - 1;
}

static truce_status do_job(struct rig *rig, truce_job *job, bson_error_t *error)
{
    int runs = 0;
    truce_status status;

    if (rig->usual)
        return do_usual(rig, job, error);
    if (rig->linked && rig_number(truce_job_payload(job), "n") == JOBS - 1)
        rig->early += is_early(rig);
    status = truce_job_step(job, "first", step, &runs, NULL, error);

    if (!status && truce_job_attempt(job) == 1)
        return truce_job_fail(job, NULL, "once for every job", 0, error);
    return status ? status : truce_job_commit(job, rig_effect, NULL, NULL, error);
}

static bool all_done(truce_store *store, truce_status *status, bson_error_t *error)
{
    bson_t *done = test_bson("{'state': 'done'}");
    int64_t count = 0;

    *status = truce_count(store, "truce_queue", done, NULL, &count, error);
    bson_destroy(done);
    return !*status && count == JOBS;
}

/* Works until all jobs are done, or a call fails. */
static truce_status work(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_queue_options options = {.queue = "mail",
                                   .lease_ms = 4,
                                   .backoff_ms = 1,
                                   .backoff_max_ms = 1,
                                   .deadline_ms = deadline_ms,
                                   .mechanism = rig->mechanism};
    truce_queue *queue = truce_queue_new(rig->store, &options);
    truce_queue_limits one = {.running = 1};
    truce_status status = add_jobs(rig, queue, error);

    if (!status && rig->limited)
        status = truce_queue_limit(queue, &one, error);
    for (int i = 0; i < ROUNDS && !status && !all_done(rig->store, &status, error); i++) {
        truce_job *job;

        if (status)
            break;
        status = truce_queue_claim(queue, &job, error);
        if (!status)
            status = do_job(rig, job, error);
        else
            truce__clock_sleep_ms(1);
        truce_job_free(job);
        if (status == TRUCE_NOT_FOUND || status == TRUCE_EXPIRED)
            status = TRUCE_OK;
    }
    truce_queue_free(queue);
    return status;
}

/* The remains of a dead worker's commits belong to the commits, whose own rules find them. */
static void check(struct rig *rig, const char *what, uint64_t at)
{
    truce_sweep_report swept;
    truce_check_report checked;
    bson_error_t error;
    int64_t effects;
    struct rig_findings found = {"job", 0};

    CHECK_OK(truce_sweep(rig->store, NULL, &swept, &error), error);
    CHECK_OK(truce_check(rig->store, NULL, rig_count_finding, &found, &checked, &error), error);
    CHECK_INT(found.count, ==, 0);
    effects = rig_effects(rig->store);
    if (!CHECK_INT(effects, ==, 2 * JOBS))
        fprintf(stderr, "    %s %d\n", what, (int)at);
    if (!CHECK_INT(count_json(rig->store, "truce_queue", "{'queue': 'mail'}"), ==, JOBS))
        fprintf(stderr, "    %s %d\n", what, (int)at);
    CHECK_INT(count_json(rig->store, "truce_queue_lanes", "{}"), ==, 0);
    CHECK_INT(count_json(rig->store, "truce_queue_limiters", "{'running': 0}"), ==, rig->limited);
}

static void finish(struct rig *rig)
{
    bson_error_t error;
    truce_status status = TRUCE_UNKNOWN;

    trouble_arm(rig->inner, rig->store, NONE, 0);
    for (int i = 0; i < 4 && status; i++)
        status = work(rig, 20000, &error);
    CHECK_OK(status, error);
}

enum shape { PLAIN, LANE, FLOW };

/* True: the fault happened. */
static bool suffer(truce_mechanism mechanism, enum shape shape, enum trouble first, uint64_t at,
                   enum trouble second, uint64_t then)
{
    struct rig rig;
    bson_error_t error;
    bool hit;

    rig_open(&rig, mechanism);
    rig.limited = shape == LANE;
    rig.linked = shape == FLOW;
    trouble_arm(rig.inner, rig.store, first, at);
    (void)!work(&rig, DOOMED_MS, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        trouble_arm(rig.inner, rig.store, second, then);
        (void)!work(&rig, DOOMED_MS, &error);
    }
    finish(&rig);
    check(&rig, first == LOSE ? "lost" : "died", at);
    CHECK_INT(rig.early, ==, 0);
    truce_store_close(rig.store);
    return hit;
}

static void suffer_everywhere(truce_mechanism mechanism, enum shape shape)
{
    int step = server_under_test() ? (shape ? 199 : 61) : shape == LANE ? 3 : 1;
    uint64_t at, stride = (uint64_t)test_scale("TRUCE_QUEUE_CRASH_STEP", step);

    for (at = 1; suffer(mechanism, shape, DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 600;
         at += stride) {
        suffer(mechanism, shape, DIE_AFTER, at, NONE, 0);
        suffer(mechanism, shape, LOSE, at, NONE, 0);
        suffer(mechanism, shape, DIE_AFTER, at, DIE_AFTER, 1 + at % 7);
    }
    CHECK_INT(at, >, 40);
}

TEST(completes_jobs_after_a_crash_at_any_call_by_the_journal)
{
    suffer_everywhere(TRUCE_MECHANISM_JOURNAL, PLAIN);
}

TEST(continues_lanes_and_counts_limits_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_JOURNAL, LANE);
}

TEST(starts_no_job_early_or_never_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_JOURNAL, FLOW);
}

TEST(completes_jobs_after_a_crash_at_any_call_by_native_commits)
{
    truce_store *store = server_or_memory();
    bool has = store->capabilities & TRUCE_CAN_ATOMIC_BULK;

    truce_store_close(store);
    if (has)
        suffer_everywhere(TRUCE_MECHANISM_NATIVE, PLAIN);
    else
        test_skip("this store has no commits of its own");
}

/* ---- single answers ---- */

static void lose_write(struct rig *rig, uint64_t at)
{
    truce_fault_options lose = {.kind = TRUCE_FAULT_LOSE, .at = at, .writes_only = true};

    truce_fault_arm(rig->inner, &lose);
}

static truce_queue *begin_queue(struct rig *rig)
{
    truce_queue *queue = truce_queue_new(
        rig->store, &(truce_queue_options){.queue = "mail", .mechanism = rig->mechanism});

    rig_no_job(queue); /* the indexes are made */
    rig_add(queue, "{'n': 1}", NULL);
    return queue;
}

TEST(finds_a_claim_whose_reply_was_lost)
{
    struct rig rig;
    truce_queue *queue;
    truce_job *job;

    rig_open(&rig, TRUCE_MECHANISM_AUTO);
    queue = begin_queue(&rig);
    lose_write(&rig, 1);
    job = rig_claim(queue);
    CHECK_INT(truce_fault_hits(rig.inner), ==, 1);
    REQUIRE(job);
    CHECK_INT(truce_job_attempt(job), ==, 1);
    truce_job_free(job);
    truce_queue_free(queue);
    truce_store_close(rig.store);
}

/* True: an answer was lost. */
static bool lose_in_step(truce_mechanism mechanism, uint64_t at)
{
    bson_error_t error;
    truce_queue *queue;
    truce_status status;
    truce_job *job;
    struct rig rig;
    bool hit;
    int runs = 0;

    rig_open(&rig, mechanism);
    queue = begin_queue(&rig);
    job = rig_claim(queue);
    lose_write(&rig, at);
    status = truce_job_step(job, "first", step, &runs, NULL, &error);
    hit = truce_fault_hits(rig.inner) > 0;
    if (status == TRUCE_UNKNOWN)
        status = truce_job_step(job, "first", step, &runs, NULL, &error);
    CHECK_OK(status, error);
    CHECK_INT(rig_effects(rig.store), ==, 1);
    truce_job_free(job);
    truce_queue_free(queue);
    truce_store_close(rig.store);
    return hit;
}

TEST(repeats_no_step_whose_reply_was_lost)
{
    uint64_t at = 1;

    while (at < 30 && lose_in_step(TRUCE_MECHANISM_JOURNAL, at))
        at++;
    CHECK_INT(at, >, 4);
    (void)lose_in_step(TRUCE_MECHANISM_AUTO, 1);
}

/* The answer of a step is lost, and the worker asks for it again. */
TEST(a_step_that_an_earlier_call_did_is_found_in_the_job)
{
    bson_error_t error;
    truce_queue *queue;
    truce_job *job;
    struct rig rig;
    int runs = 0;

    rig_open(&rig, TRUCE_MECHANISM_AUTO);
    queue = begin_queue(&rig);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_job_step(job, "first", step, &runs, NULL, &error), error);
    bson_reinit(&job->steps); /* as if this worker had not received it */
    bson_reinit(&job->called);
    CHECK_OK(truce_job_step(job, "first", step, &runs, NULL, &error), error);
    CHECK_INT(runs, ==, 1);
    CHECK_INT(rig_effects(rig.store), ==, 1);
    truce_job_free(job);
    truce_queue_free(queue);
    truce_store_close(rig.store);
}

/* The canary: effects that are written before the job is done, not with it. */
TEST(effects_outside_of_the_commit_are_caught)
{
    int caught = 0;

    if (server_under_test()) {
        test_skip("once is enough");
        return;
    }
    for (uint64_t at = 1; at < 60 && !caught; at++) {
        struct rig rig;
        bson_error_t error;

        rig_open(&rig, TRUCE_MECHANISM_JOURNAL);
        rig.usual = true;
        trouble_arm(rig.inner, rig.store, DIE_AFTER, at);
        (void)!work(&rig, DOOMED_MS, &error);
        finish(&rig);
        caught += rig_effects(rig.store) != 2 * JOBS;
        truce_store_close(rig.store);
    }
    CHECK_INT(caught, >, 0);
}
