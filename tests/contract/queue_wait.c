/* Sleeping, and waiting for events, between the steps of a job: every call, by every mechanism,
 * on every store. */
#include <string.h>

#include "tests/support/queue_rig.h"
#include "truce/cron.h"
#include "truce/sys/decorate.h"

static void set_past(truce_store *store, const char *path)
{
    bson_t *all = bson_new(), *update = BCON_NEW("$set", "{", path, BCON_DATE_TIME(1000),
                                                 "undone.at", BCON_DATE_TIME(1000), "}");
    bson_error_t error;

    CHECK_OK(truce_update(store, "truce_queue", all, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(all);
}

static truce_status step(truce_commit *commit, void *arg, bson_t *result, bson_error_t *error)
{
    (void)result, (void)arg;
    return rig_effect(commit, NULL, error);
}

static truce_status wait(truce_job *job, int64_t timeout_ms, int64_t *sum, bool *came,
                         bson_error_t *error)
{
    bson_t event;
    truce_status status = truce_job_wait(job, "paid", timeout_ms, &event, came, error);

    *sum = rig_number(&event, "sum");
    bson_destroy(&event);
    return status;
}

/* ---- sleeping ---- */

static void sleeping(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;
    int64_t at_ms;
    bson_t kept;

    REQUIRE(job);
    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    CHECK_OK(truce_job_step(job, "first", step, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_job_sleep(job, "pause", 3600000, &error), error);
    CHECK_STATE("delayed", queue, &id);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    rig_no_job(queue);
    /* too early: it continues to sleep */
    CHECK_OK(truce_queue_retry(queue, NULL, &id, &error), error);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_job_sleep(job, "pause", 1, &error), error);
    truce_job_free(job);
    CHECK_OK(truce_queue_get(queue, NULL, &id, &kept, &error), error);
    CHECK(truce__job_date(&kept, "undone.at", &at_ms) &&
          at_ms > truce__clock_wall_ms() + 600000); /* as long as the first call said */
    bson_destroy(&kept);
    set_past(store, "sleeps.pause.until");
    job = rig_claim_later(queue);
    REQUIRE(job);
    CHECK_INT(truce_job_attempt(job), ==, 1);
    CHECK_OK(truce_job_step(job, "first", step, NULL, NULL, &error), error);
    CHECK_OK(truce_job_sleep(job, "pause", 3600000, &error), error);
    CHECK_OK(truce_job_sleep(job, "none", 0, &error), error);
    /* Skipping the second sleep of a name, as in a loop, would continue at once. */
    CHECK_STATUS(TRUCE_INVALID, truce_job_sleep(job, "none", 1, &error), error);
    CHECK(strstr(error.message, "the sleep \"none\": give each sleep its own name"));
    CHECK_STATUS(TRUCE_INVALID, truce_job_sleep(job, "first", 1, &error), error);
    CHECK(strstr(error.message, "the step \"first\": give each sleep its own name"));
    CHECK_STATUS(TRUCE_INVALID, truce_job_step(job, "none", step, NULL, NULL, &error), error);
    CHECK(strstr(error.message, "the sleep \"none\": give each step its own name"));
    CHECK_STATUS(TRUCE_INVALID, truce_job_sleep(job, "again", -1, &error), error);
    CHECK_OK(truce_job_sleep(job, "again", 0, &error),
             error); /* a call that failed may be repeated */
    CHECK_STATUS(TRUCE_INVALID, truce_job_sleep(job, "a.b", 0, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_job_sleep(job, "a", -1, &error), error);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_job_that_waits_between_its_steps_occupies_no_worker)
{
    rig_everywhere(sleeping);
}

/* ---- waiting ---- */

static void waiting(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options high = {.priority = 7};
    bson_t *event = test_bson("{'sum': 5}"), *other = test_bson("{'sum': 9}");
    bson_oid_t id = rig_add(queue, "{}", &high);
    truce_job *job = rig_claim(queue);
    bson_error_t error;
    int64_t sum;
    bool came;

    REQUIRE(job);
    CHECK_STATUS(TRUCE_NOT_FOUND, wait(job, -1, &sum, &came, &error), error);
    CHECK(!came);
    CHECK_STATE("delayed", queue, &id);
    truce_job_free(job);
    CHECK_OK(truce_queue_signal(queue, NULL, &id, "else", NULL, &error), error);
    CHECK_STATE("delayed", queue, &id);
    CHECK_OK(truce_queue_signal(queue, NULL, &id, "paid", event, &error), error);
    CHECK_OK(truce_queue_signal(queue, NULL, &id, "paid", other, &error), error);
    CHECK_INT(count_json(store, "truce_queue",
                         "{'state': 'ready', 'undone.rank': -7, 'awaits': {'$exists': false}}"),
              ==, 1);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(truce_job_attempt(job), ==, 1);
    CHECK_STATUS(TRUCE_INVALID, wait(job, -2, &sum, &came, &error), error);
    CHECK_OK(wait(job, 1, &sum, &came, &error), error);
    CHECK(came);
    CHECK_INT(sum, ==, 5); /* the first one counts */
    /* A second wait of a name, as in a loop, would return the same event. */
    CHECK_STATUS(TRUCE_INVALID, wait(job, 1, &sum, &came, &error), error);
    CHECK(!came);
    CHECK(strstr(error.message, "the wait \"paid\": give each wait its own name"));
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_signal(queue, NULL, &id, "more", event, &error), error);
    truce_job_free(job);
    bson_destroy(other);
    bson_destroy(event);
    truce_queue_free(queue);
}

TEST(an_event_wakes_the_job_that_waits_for_it)
{
    rig_everywhere(waiting);
}

/* Before the job runs, and while it runs. */
static void signaled_before(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_t *event = test_bson("{'sum': 5}");
    bson_oid_t id = rig_add(queue, "{}", NULL);
    bson_error_t error;
    truce_job *job;
    int64_t sum;
    bool came;

    for (int i = 0; i < 2; i++) {
        if (!i)
            CHECK_OK(truce_queue_signal(queue, NULL, &id, "paid", event, &error), error);
        job = rig_claim(queue);
        REQUIRE(job);
        if (i)
            CHECK_OK(truce_queue_signal(queue, NULL, &id, "paid", event, &error), error);
        CHECK_STATE("running", queue, &id);
        CHECK_OK(wait(job, -1, &sum, &came, &error), error);
        CHECK(came);
        CHECK_INT(sum, ==, 5);
        CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
        id = rig_add(queue, "{}", NULL);
    }
    bson_destroy(event);
    truce_queue_free(queue);
}

TEST(an_event_that_came_before_is_not_missed)
{
    rig_everywhere(signaled_before);
}

static void timed_out(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;
    int64_t sum;
    bool came;

    REQUIRE(job);
    CHECK_STATUS(TRUCE_NOT_FOUND, wait(job, 3600000, &sum, &came, &error), error);
    truce_job_free(job);
    set_past(store, "waits.paid.until");
    for (int i = 0; i < 2; i++) { /* once expired, it stays so, though the event comes */
        job = rig_claim_later(queue);
        REQUIRE(job);
        CHECK_OK(wait(job, 3600000, &sum, &came, &error), error);
        CHECK(!came);
        CHECK_OK(truce_queue_signal(queue, NULL, &id, "paid", NULL, &error), error);
        bson_reinit(&job->awaited); /* as a second request of the same attempt */
        CHECK_OK(wait(job, 3600000, &sum, &came, &error), error);
        CHECK(!came);
        CHECK_OK(truce_job_snooze(job, NULL, 0, &error), error);
        truce_job_free(job);
    }
    CHECK_INT(count_json(store, "truce_queue", "{'awaits': {'$exists': true}}"), ==, 0);
    truce_queue_free(queue);
}

TEST(keeps_the_result_of_a_wait_that_timed_out)
{
    rig_everywhere(timed_out);
}

/* A lane's place is kept; a place under a limit is released. */
static void held(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options lane = {.lane = "ada"};
    truce_queue_limits limits = {.running = 1};
    bson_oid_t id = rig_add(queue, "{'n': 1}", &lane), behind = rig_add(queue, "{'n': 2}", &lane);
    bson_error_t error;
    truce_job *job;
    int64_t sum;
    bool came;

    CHECK_OK(truce_queue_limit(queue, &limits, &error), error);
    rig_add(queue, "{'n': 3}", NULL);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_STATUS(TRUCE_NOT_FOUND, wait(job, -1, &sum, &came, &error), error);
    truce_job_free(job);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, 3);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_STATE("waiting", queue, &behind);
    CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
    CHECK_STATE("ready", queue, &behind);
    truce_queue_free(queue);
}

TEST(keeps_the_position_of_a_waiting_job_in_its_lane)
{
    rig_everywhere(held);
}

static void wrong(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail"),
                *hasty = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{}", NULL), nobody;
    bson_t much = BSON_INITIALIZER;
    char *text = bson_malloc0(JOB_METADATA_BYTES_MAX + 1), name[16];
    truce_job *job = rig_claim(hasty), *next;
    bson_error_t error;
    int64_t sum;
    bool came;

    memset(text, 'a', JOB_METADATA_BYTES_MAX);
    BSON_APPEND_UTF8(&much, "text", text);
    bson_oid_init_from_string(&nobody, "000000000000000000000000");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_signal(queue, NULL, &nobody, "a", NULL, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_signal(queue, NULL, &id, "a$", NULL, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, truce_queue_signal(queue, NULL, &id, "a", &much, &error), error);
    REQUIRE(job);
    CHECK_STATUS(TRUCE_INVALID, wait(job, -2, &sum, &came, &error), error);
    next = rig_claim_later(hasty); /* the lease of the first is over */
    REQUIRE(next);
    CHECK_STATUS(TRUCE_EXPIRED, wait(job, -1, &sum, &came, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_sleep(job, "pause", 5000, &error), error);
    if (!setting->mechanism) {
        for (int i = 0; i < JOB_EVENTS_MAX; i++) {
            bson_snprintf(name, sizeof name, "e%d", i);
            CHECK_OK(truce_queue_signal(queue, NULL, &id, name, NULL, &error), error);
        }
        CHECK_OK(truce_queue_signal(queue, NULL, &id, "e0", NULL, &error), error);
        CHECK_STATUS(TRUCE_LIMIT, truce_queue_signal(queue, NULL, &id, "more", NULL, &error),
                     error);
    }
    truce_job_free(job);
    truce_job_free(next);
    bson_destroy(&much);
    bson_free(text);
    truce_queue_free(hasty);
    truce_queue_free(queue);
}

TEST(refuses_invalid_events_and_waits)
{
    rig_everywhere(wrong);
}

/* ---- waiting workers ------------------------------------------------------------------------- */

/* If the store belongs to this process, a worker that waits takes no lock from the writers. */
TEST(a_queue_without_jobs_is_read_and_not_written)
{
    static const struct setting memory = {.name = "memory", .uri = "memory:"};
    const truce_fault_options writes = {.writes_only = true};
    truce_store *store = truce_fault_wrap(open_setting(&memory), &writes);
    truce_queue *queue = rig_queue(store, &memory, "mail");
    truce_job *job;

    rig_no_job(queue);
    truce_fault_arm(store, &writes);
    for (int i = 0; i < 5; i++)
        rig_no_job(queue);
    CHECK_INT(truce_fault_calls(store), ==, 0);
    rig_add(queue, "{'n': 1}", NULL);
    job = rig_claim(queue);
    truce_job_free(job);
    truce_queue_free(queue);
    truce_store_close(store);
}

/* No write wakes a caller that waits for a time. */
TEST(a_waiting_worker_claims_again_when_a_job_is_due)
{
    static const struct setting memory = {.name = "memory", .uri = "memory:"};
    truce_store *store = open_setting(&memory);
    truce_queue *queue = rig_queue(store, &memory, "mail");
    bson_t *payload = test_bson("{'n': 1}"), job;
    bson_error_t error;
    bson_oid_t id;
    int64_t at_ms = 0;

    CHECK_INT(truce__queue_pause_ms(queue), ==, 1000); /* it does not know the time */
    id = rig_add(queue, "{'n': 1}", &(truce_job_options){.delay_ms = 7200000});
    rig_no_job(queue);
    CHECK_OK(truce_queue_get(queue, NULL, &id, &job, &error), error);
    CHECK(truce__job_date(&job, "undone.at", &at_ms));
    bson_destroy(&job);
    CHECK_INT(atomic_load(&queue->due_ms), ==, at_ms);
    CHECK_INT(truce__queue_pause_ms(queue), ==, 1000);
    CHECK_OK(truce_cron_set(queue, "pulse", "@every 1h", payload, NULL, &error), error);
    rig_no_job(queue);
    CHECK_INT(atomic_load(&queue->due_ms), <, at_ms);
    atomic_store(&queue->due_ms, 1);
    CHECK_INT(truce__queue_pause_ms(queue), ==, 20);
    atomic_store(&queue->limited, true);
    CHECK_INT(truce__queue_pause_ms(queue), ==, 250); /* the time of a rate */
    bson_destroy(payload);
    truce_queue_free(queue);
    truce_store_close(store);
}
