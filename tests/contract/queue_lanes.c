/* Lanes: every call, by every mechanism, on every store. */
#include <pthread.h>
#include <string.h>

#include "tests/support/queue_rig.h"

static bson_oid_t add(truce_queue *queue, const char *lane, uint32_t width, int n)
{
    truce_job_options options = {.lane = lane, .lane_width = width, .attempts_max = 2};
    bson_t *payload = BCON_NEW("n", BCON_INT32(n));
    truce_job_added added = {0};
    bson_error_t error = {0};

    CHECK_OK(truce_queue_add(queue, NULL, payload, &options, &added, &error), error);
    bson_destroy(payload);
    return added.id;
}

static truce_job *claim(truce_queue *queue, int n)
{
    truce_job *job = rig_claim(queue);

    if (job)
        CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, n);
    return job;
}

/* ---- order within a lane ---- */

/* Whatever the end of a job is, the next one starts; and no end starts two. */
static void in_turn(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options high = {.priority = 9};
    bson_error_t error;
    bson_oid_t ids[8];
    truce_job *job;

    for (int i = 0; i < 8; i++)
        ids[i] = add(queue, "ada", 0, i);
    rig_add(queue, "{'n': 50}", &high);
    CHECK_STATE("ready", queue, &ids[0]);
    CHECK_STATE("waiting", queue, &ids[1]);
    truce_job_free(claim(queue, 50)); /* a job without a lane waits for no other job */
    job = claim(queue, 0);
    REQUIRE(job);
    rig_no_job(queue);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_STATE("waiting", queue, &ids[2]);
    job = claim(queue, 1);
    REQUIRE(job);
    CHECK_OK(truce_job_snooze(job, NULL, 3600000, &error), error); /* it keeps its place */
    truce_job_free(job);
    rig_no_job(queue);
    CHECK_OK(truce_queue_retry(queue, NULL, &ids[1], &error), error);
    job = claim(queue, 1);
    REQUIRE(job);
    CHECK_OK(truce_job_fail(job, NULL, "no", 3600000, &error), error);
    truce_job_free(job);
    rig_no_job(queue);
    CHECK_OK(truce_queue_retry(queue, NULL, &ids[1], &error), error);
    for (int i = 0; i < 2; i++) { /* dead: the next job may start */
        job = claim(queue, 1);
        REQUIRE(job);
        CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
        truce_job_free(job);
    }
    CHECK_STATE("dead", queue, &ids[1]);
    CHECK_OK(truce_queue_cancel(queue, NULL, &ids[3], &error), error); /* one that waits */
    CHECK_OK(truce_queue_retry(queue, NULL, &ids[1], &error), error);  /* it is the last one now */
    CHECK_STATE("waiting", queue, &ids[1]);
    job = claim(queue, 2);
    REQUIRE(job);
    CHECK_OK(truce_queue_cancel(queue, NULL, &ids[2], &error), error); /* while it runs */
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    job = claim(queue, 4);
    REQUIRE(job);
    CHECK_OK(truce_job_discard(job, NULL, "no", &error), error);
    truce_job_free(job);
    CHECK_OK(truce_queue_discard(queue, NULL, &ids[5], &error), error); /* ready, not running */
    job = claim(queue, 6);
    REQUIRE(job);
    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    CHECK_OK(truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    truce_job_free(job);
    job = claim(queue, 7);
    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    job = claim(queue, 1);
    REQUIRE(job);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==, 1);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==,
              0); /* an empty lane leaves nothing */
    truce_queue_free(queue);
}

TEST(the_jobs_of_a_lane_run_one_after_the_other)
{
    rig_everywhere(in_turn);
}

static void gone(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_error_t error;
    truce_job *job;

    add(queue, "ada", 0, 0);
    add(queue, "ada", 0, 1);
    truce_job_free(claim(queue, 0));
    /* its worker is gone: the next attempt starts, and then the next job */
    for (int i = 0; i < 2; i++) {
        job = rig_claim_later(queue);
        REQUIRE(job);
        CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, i);
        if (!i)
            CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
        truce_job_free(job);
    }
    truce_queue_free(queue);
}

TEST(a_dead_worker_does_not_block_its_lane)
{
    rig_everywhere(gone);
}

static void wide(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_sweep_report report;
    bson_error_t error;
    truce_job *jobs[4];
    size_t count;

    for (int i = 0; i < 4; i++)
        add(queue, "ada", 2, i);
    add(queue, "bob", 2, 10);
    CHECK_OK(truce_queue_claim_many(queue, 4, jobs, &count, &error), error);
    CHECK_INT(count, ==, 3);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    rig_no_job(queue);
    add(queue, "ada", 3, 4); /* the lane is wider after this; the recovery pass continues */
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    truce_job_free(claim(queue, 2));
    rig_no_job(queue);
    truce_queue_free(queue);
}

TEST(a_lane_may_be_wider)
{
    rig_everywhere(wide);
}

/* ---- many that were cancelled ---- */

static void cancelled(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_sweep_report report;
    bson_error_t error;
    bson_oid_t ids[122];
    truce_job *job;

    for (int i = 0; i < 122; i++)
        ids[i] = add(queue, "ada", 0, i);
    for (int i = 1; i < 121; i++)
        CHECK_OK(truce_queue_cancel(queue, NULL, &ids[i], &error), error);
    job = claim(queue, 0);
    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{'stalled': true}"), ==, 1);
    rig_no_job(queue);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    job = claim(queue, 121);
    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==, 0);
    truce_queue_free(queue);
}

TEST(skips_many_jobs_that_were_cancelled_while_they_waited)
{
    truce_store *store;

    if (server_under_test()) {
        test_skip("some hundred commits are too slow there");
        return;
    }
    store = server_or_memory();
    cancelled(store, NULL);
    truce_store_close(store);
}

/* ---- unique jobs, and delayed ones ---- */

static void replaced(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {
        .lane = "ada", .unique = "k", .on_conflict = TRUCE_ON_CONFLICT_REPLACE};
    truce_job_options later = {.lane = "ada", .delay_ms = 3600000};
    bson_error_t error;
    bson_oid_t first = add(queue, "ada", 0, 0), id = rig_add(queue, "{'n': 1}", &options), delayed;
    truce_job *job;

    CHECK_STATE("waiting", queue, &id);
    rig_add(queue, "{'n': 2}", &options); /* it keeps its place */
    CHECK_STATE("waiting", queue, &id);
    delayed = rig_add(queue, "{'n': 3}", &later);
    job = claim(queue, 0);
    REQUIRE(job);
    CHECK(bson_oid_equal(truce_job_id(job), &first));
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    job = claim(queue, 2);
    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_STATE("delayed", queue, &delayed); /* its place, and not its time */
    truce_queue_free(queue);
}

TEST(replaces_a_waiting_job_at_its_position)
{
    rig_everywhere(replaced);
}

/* ---- many at once ---- */

#define THREADS 4
#define LANES   3
#define EACH    8

struct crowd {
    truce_store *store;
    const struct setting *setting;
    atomic_int added, done, running[LANES], last[LANES], faults;
};

static int lane_of(const truce_job *job)
{
    return (int)rig_number(truce_job_payload(job), "n") / 1000;
}

static void *work(void *arg)
{
    struct crowd *crowd = arg;
    truce_queue *queue = rig_queue(crowd->store, crowd->setting, "mail");

    for (int i = 0; i < 20000 && atomic_load(&crowd->done) < LANES * EACH; i++) {
        static const char *const names[] = {"a", "b", "c"};
        bson_error_t error = {0};
        truce_job *job;
        truce_status status;
        int lane, n, next = atomic_fetch_add(&crowd->added, 1);

        if (next < LANES) /* one thread adds for each lane, so that there is an order */
            for (int k = 1; k <= EACH; k++)
                add(queue, names[next], 0, next * 1000 + k);
        status = truce_queue_claim(queue, &job, &error);
        if (status) {
            CHECK_STATUS(TRUCE_NOT_FOUND, status, error);
            truce__clock_sleep_ms(1);
            continue;
        }
        lane = lane_of(job);
        n = (int)rig_number(truce_job_payload(job), "n") % 1000;
        atomic_fetch_add(&crowd->faults, atomic_fetch_add(&crowd->running[lane], 1) != 0);
        atomic_fetch_add(&crowd->faults, atomic_exchange(&crowd->last[lane], n) != n - 1);
        truce__clock_sleep_ms(1);
        atomic_fetch_sub(&crowd->running[lane], 1);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        atomic_fetch_add(&crowd->done, 1);
        truce_job_free(job);
    }
    truce_queue_free(queue);
    return NULL;
}

static void crowded(truce_store *store, const struct setting *setting)
{
    struct crowd crowd = {.store = store, .setting = setting};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, work, &crowd), ==, 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(atomic_load(&crowd.done), ==, LANES * EACH);
    CHECK_INT(atomic_load(&crowd.faults), ==, 0);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==, 0);
}

TEST(an_order_holds_however_many_workers_there_are)
{
    rig_everywhere(crowded);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static int check(truce_store *store, bool repair)
{
    truce_check_options options = {.repair = repair};
    truce_check_report report;
    bson_error_t error;
    struct rig_findings found = {"job-lane", 0};

    CHECK_OK(truce_check(store, &options, rig_count_finding, &found, &report, &error), error);
    return found.count;
}

static void broken(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t ids[4];
    bson_t *filter, *lanes = bson_new();
    bson_error_t error;

    for (int i = 0; i < 4; i++)
        ids[i] = add(queue, "ada", 0, i);
    CHECK_INT(check(store, false), ==, 0);
    filter = BCON_NEW("_id", BCON_OID(&ids[0])); /* another program removes the job that runs */
    CHECK_OK(truce_remove(store, "truce_queue", filter, NULL, NULL, &error), error);
    rig_no_job(queue);
    CHECK_INT(check(store, false), ==, 1);
    CHECK_INT(check(store, true), ==, 1);
    CHECK_INT(check(store, false), ==, 0);
    CHECK_STATE("ready", queue, &ids[1]);
    CHECK_STATE("waiting", queue, &ids[2]);
    CHECK_OK(truce_remove(store, "truce_queue_lanes", lanes, &(truce_write_options){.multi = true},
                          NULL, &error),
             error);
    truce_job_free(claim(queue, 1));
    CHECK_INT(check(store, false), ==, 2);
    CHECK_INT(check(store, true), >, 0);
    CHECK_INT(check(store, true), ==, 1); /* a job from before is out, too: it counts */
    CHECK_INT(check(store, false), ==, 0);
    bson_destroy(lanes);
    bson_destroy(filter);
    truce_queue_free(queue);
}

TEST(a_damaged_lane_is_found_and_repaired)
{
    rig_everywhere(broken);
}

static void bad(truce_store *store, const struct setting *setting)
{
    char much[300] = {0};
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options lane = {.lane = "a"};
    bson_t *payload = test_bson("{'n': 1}");
    const bson_t *payloads[] = {payload};
    bson_error_t error;

    memset(much, 'a', sizeof much - 1);
    for (int i = 0; i < 4; i++) {
        truce_job_options options = {.lane = i == 0   ? ""
                                             : i == 1 ? "\xff"
                                             : i == 2 ? much
                                                      : NULL,
                                     .lane_width = i == 3};

        CHECK_STATUS(TRUCE_INVALID, truce_queue_add(queue, NULL, payload, &options, NULL, &error),
                     error);
    }
    CHECK_STATUS(TRUCE_INVALID, truce_queue_add_many(queue, payloads, 1, &lane, NULL, &error),
                 error);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 0);
    bson_destroy(payload);
    truce_queue_free(queue);
}

TEST(refuses_invalid_lanes)
{
    rig_everywhere(bad);
}

/* A known fault of other queues: jobs that cannot run yet fill the batch that a worker reads,
 * and those after them never run. */
static void starves_nobody(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options laned = {.lane = "one", .priority = 1000},
                      late = {.delay_ms = 3600000, .priority = 1000};
    truce_job *first, *other;
    bson_oid_t id;

    for (int i = 0; i < 120; i++) { /* more than one pass reads */
        (void)rig_add(queue, "{}", &laned);
        (void)rig_add(queue, "{}", &late);
    }
    id = rig_add(queue, "{}", NULL);
    first = rig_claim(queue);
    other = rig_claim(queue);
    REQUIRE(first && other);
    CHECK(bson_oid_equal(truce_job_id(other), &id));
    rig_no_job(queue);
    truce_job_free(first);
    truce_job_free(other);
    truce_queue_free(queue);
}

TEST(many_blocked_jobs_do_not_delay_other_jobs)
{
    truce_store *store;

    if (server_under_test()) {
        test_skip("some hundred commits are too slow there");
        return;
    }
    store = open_setting(&settings[0]);
    starves_nobody(store, &settings[0]);
    truce_store_close(store);
}

/* ---- rates ---- */

static int64_t time_of(truce_queue *queue, const bson_oid_t *id, const char *path)
{
    bson_error_t error;
    bson_t job;
    int64_t ms;

    CHECK_OK(truce_queue_get(queue, NULL, id, &job, &error), error);
    CHECK(truce__job_date(&job, path, &ms));
    bson_destroy(&job);
    return ms;
}

/* Two may begin in an hour: the others follow, one in half an hour, and keep their order in the
 * meantime. The lane counts by a clock of its own, which may differ from the wall clock by some
 * ms. */
static void rated(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {
        .lane = "ada", .lane_width = 4, .lane_rate = 2, .lane_per_ms = 3600000};
    truce_check_report report;
    bson_error_t error;
    bson_oid_t ids[6];
    struct rig_findings found = {"job", 0};

    for (int i = 0; i < 5; i++)
        ids[i] = rig_add(queue, "{'n': 1}", &options);
    CHECK_STATE("ready", queue, &ids[0]);
    CHECK_STATE("ready", queue, &ids[1]);
    CHECK_STATE("delayed", queue, &ids[2]);
    CHECK_STATE("delayed", queue, &ids[3]);
    CHECK_STATE("waiting", queue, &ids[4]);
    CHECK_INT(time_of(queue, &ids[2], "undone.at") - time_of(queue, &ids[0], "created"), >=,
              1799990);
    CHECK_INT(time_of(queue, &ids[3], "undone.at") - time_of(queue, &ids[2], "undone.at"), >=,
              1799990);
    for (int i = 0; i < 2; i++) {
        truce_job *job = rig_claim(queue);

        REQUIRE(job);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
    }
    CHECK_STATE("delayed", queue, &ids[4]);
    CHECK_INT(time_of(queue, &ids[4], "undone.at") - time_of(queue, &ids[3], "undone.at"), >=,
              1799990);
    rig_no_job(queue);
    CHECK_OK(truce_check(store, NULL, rig_count_finding, &found, &report, &error), error);
    CHECK_INT(found.count, ==, 0);
    truce_queue_free(queue);
}

TEST(a_lane_with_a_rate_releases_its_jobs_by_the_clock)
{
    rig_everywhere(rated);
}

/* A job that has begun counts although no job is in the lane any more. When it no longer counts,
 * nothing of it is left. */
static void empty_rated(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options slow = {.lane = "ada", .lane_rate = 1, .lane_per_ms = 3600000},
                      fast = {.lane = "bob", .lane_rate = 1, .lane_per_ms = 1},
                      replaces = {.lane = "ada",
                                  .lane_rate = 1,
                                  .lane_per_ms = 3600000,
                                  .unique = "k",
                                  .on_conflict = TRUCE_ON_CONFLICT_REPLACE};
    truce_sweep_report report;
    bson_error_t error;
    bson_oid_t second;

    rig_add(queue, "{'n': 1}", &slow);
    rig_add(queue, "{'n': 2}", &fast);
    for (int i = 0; i < 2; i++) {
        truce_job *job = rig_claim_later(queue);

        REQUIRE(job);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
    }
    second = rig_add(queue, "{'n': 3}", &replaces);
    CHECK_STATE("delayed", queue, &second);
    CHECK(bson_oid_equal(&second, &(bson_oid_t){{0}}) == false);
    /* it finds the delayed job, and makes it no earlier */
    rig_add(queue, "{'n': 4}", &replaces);
    CHECK_STATE("delayed", queue, &second);
    for (int i = 0; i < 6000 && count_json(store, "truce_queue_lanes", "{'_id.lane': 'bob'}");
         i++) {
        truce__clock_sleep_ms(2);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        CHECK_INT(report.failed, ==, 0);
    }
    CHECK_INT(count_json(store, "truce_queue_lanes", "{'_id.lane': 'bob'}"), ==, 0);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{'_id.lane': 'ada'}"), ==, 1);
    truce_queue_free(queue);
}

TEST(an_empty_lane_counts_its_jobs_until_their_window_ends)
{
    rig_everywhere(empty_rated);
}
