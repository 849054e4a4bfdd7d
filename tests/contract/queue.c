/* The job queue: every call, by every mechanism, on every store. */
#include "tests/support/queue_rig.h"

/* A multiple of all periods. */
#define PAST_MS INT64_C(1600000000000)

/* ---- from ready to done ---- */

static void from_ready_to_done(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "people");
    bson_t *result = test_bson("{'sent': true}"), *payload;
    bson_error_t error;
    bson_oid_t id = rig_add(queue, "{'command': 'ADD_FRIEND', 'users': [1, 2]}", NULL);
    truce_job *job;
    bson_t kept;

    CHECK_STATE("ready", queue, &id);
    job = rig_claim(queue);
    REQUIRE(job);
    payload = test_bson("{'command': 'ADD_FRIEND', 'users': [1, 2]}");
    CHECK_BSON(payload, truce_job_payload(job));
    CHECK(bson_oid_equal(&id, truce_job_id(job)));
    CHECK_INT(truce_job_attempt(job), ==, 1);
    CHECK_INT(truce_job_epoch(job), ==, 1);
    CHECK_STATE("running", queue, &id);
    rig_no_job(queue);
    CHECK(!truce_job_cancelled(job));
    CHECK_OK(truce_job_extend(job, &error), error);
    CHECK_OK(truce_job_progress(job, result, &error), error);
    CHECK_OK(truce_job_done(job, NULL, result, &error), error);
    CHECK_OK(truce_job_done(job, NULL, result, &error), error); /* the same again */
    CHECK_OK(truce_queue_get(queue, NULL, &id, &kept, &error), error);
    CHECK_TEXT("done", truce__job_state(&kept));
    CHECK(!bson_has_field(&kept, "undone"));
    CHECK(bson_has_field(&kept, "expires") && bson_has_field(&kept, "ended"));
    CHECK_INT(rig_number(&kept, "result.sent"), ==, 1);
    CHECK_INT(rig_number(&kept, "progress.sent"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue", "{'undone.at': {'$exists': true}}"), ==, 0);
    rig_no_job(queue);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_fail(job, NULL, "too late", -1, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_extend(job, &error), error);
    bson_destroy(&kept);
    bson_destroy(payload);
    bson_destroy(result);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_job_goes_from_ready_to_done)
{
    rig_everywhere(from_ready_to_done);
}

static void order_of_claims(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_queue *other = rig_queue(store, setting, "other");
    truce_job_options early = {.run_at_ms = PAST_MS + 1000}, late = {.run_at_ms = PAST_MS + 2000},
                      high = {.priority = 5, .run_at_ms = PAST_MS + 3000}, low = {.priority = -5};
    static const int expected[] = {3, 1, 2, 4};

    rig_add(queue, "{'n': 4}", &low);
    rig_add(queue, "{'n': 2}", &late);
    rig_add(queue, "{'n': 1}", &early);
    rig_add(queue, "{'n': 3}", &high);
    rig_add(other, "{'n': 9}", NULL);
    for (int i = 0; i < 4; i++) {
        truce_job *job = rig_claim(queue);

        REQUIRE(job);
        CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, expected[i]);
        truce_job_free(job);
    }
    rig_no_job(queue);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(the_highest_priority_is_claimed_first_then_the_oldest)
{
    rig_everywhere(order_of_claims);
}

static void delayed(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.delay_ms = 3600000, .priority = 7};
    bson_oid_t id = rig_add(queue, "{'n': 1}", &options);
    bson_t *past = test_bson("{'$set': {'undone.at': {'$date': 1000}}}"), *filter;
    bson_error_t error;
    truce_job *job;

    CHECK_STATE("delayed", queue, &id);
    rig_no_job(queue);
    filter = BCON_NEW("_id", BCON_OID(&id));
    CHECK_OK(truce_update(store, "truce_queue", filter, past, NULL, NULL, &error), error);
    options.delay_ms = 0;
    options.priority = 6;
    rig_add(queue, "{'n': 2}", &options);
    truce__clock_sleep_ms(60);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, 1);
    CHECK_INT(rig_number(truce_job_document(job), "undone.rank"), ==, 0);
    truce_job_free(job);
    bson_destroy(filter);
    bson_destroy(past);
    truce_queue_free(queue);
}

TEST(a_delayed_job_is_claimed_when_its_time_has_come)
{
    rig_everywhere(delayed);
}

static void failures(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    bson_error_t error;
    uint32_t count;
    bson_t kept;

    for (int i = 1; i <= 3; i++) {
        truce_job *job = rig_claim_later(queue);

        REQUIRE(job);
        CHECK_INT(truce_job_attempt(job), ==, i);
        CHECK_OK(
            truce_job_fail(job, NULL, i == 1 ? "one\xff" : "no answer", i == 2 ? 0 : -1, &error),
            error);
        truce_job_free(job);
    }
    CHECK_OK(truce_queue_get(queue, NULL, &id, &kept, &error), error);
    CHECK_TEXT("dead", truce__job_state(&kept));
    CHECK(!bson_has_field(&kept, "expires") && !bson_has_field(&kept, "undone"));
    CHECK_INT(rig_number(&kept, "errors.0.attempt"), ==, 1);
    CHECK_INT(rig_number(&kept, "errors.2.epoch"), ==, 3);
    bson_destroy(&kept);
    CHECK_INT(
        count_json(store, "truce_queue", "{'errors.0.text': 'one?', 'errors.0.worker': 'hasty'}"),
        ==, 1);
    rig_no_job(queue);
    CHECK_OK(truce_queue_redrive(queue, 0, &count, &error), error);
    CHECK_INT(count, ==, 1);
    CHECK_STATE("ready", queue, &id);
    CHECK_OK(truce_queue_redrive(queue, 0, &count, &error), error);
    CHECK_INT(count, ==, 0);
    truce_queue_free(queue);
}

TEST(retries_a_failing_job_until_it_is_dead)
{
    rig_everywhere(failures);
}

static void snoozed(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    CHECK_OK(truce_job_snooze(job, NULL, 0, &error), error);
    CHECK_STATE("ready", queue, &id);
    truce_job_free(job);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(truce_job_attempt(job), ==, 1);
    CHECK_INT(truce_job_epoch(job), ==, 2);
    CHECK_OK(truce_job_snooze(job, NULL, 3600000, &error), error);
    CHECK_STATE("delayed", queue, &id);
    truce_job_free(job);
    CHECK_OK(truce_queue_retry(queue, NULL, &id, &error), error);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_job_discard(job, NULL, "not wanted", &error), error);
    CHECK_STATE("discarded", queue, &id);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_job_can_be_snoozed_retried_and_discarded)
{
    rig_everywhere(snoozed);
}

/* ---- effects ---- */

static void effects_together(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_t *result = test_bson("{'ok': 1}");
    bson_error_t error;
    bson_oid_t id;
    truce_job *job;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    id = rig_add(queue, "{'n': 1}", NULL);
    job = rig_claim(queue);
    REQUIRE(job);
    truce_job_result(job, result);
    CHECK_OK(truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    CHECK_STATE("done", queue, &id);
    CHECK_INT(rig_effects(store), ==, 1);
    CHECK_OK(truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    truce_job_free(job);
    rig_add(queue, "{'n': 2}", NULL);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    truce_job_free(job);
    bson_destroy(result);
    truce_queue_free(queue);
}

TEST(the_effects_and_the_acknowledgement_are_one)
{
    rig_everywhere(effects_together);
}

static void lost_lease(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    bson_error_t error;
    truce_job *slow, *next;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    slow = rig_claim(queue);
    next = rig_claim_later(queue);
    REQUIRE(slow && next);
    CHECK_INT(truce_job_epoch(next), ==, 2);
    CHECK_INT(truce_job_attempt(next), ==, 2);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_commit(slow, rig_effect, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_done(slow, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_fail(slow, NULL, "x", -1, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_extend(slow, &error), error);
    CHECK_INT(rig_effects(store), ==, 0);
    CHECK_STATE("running", queue, &id);
    CHECK_OK(truce_job_commit(next, rig_effect, NULL, NULL, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    CHECK_INT(
        count_json(store, "truce_queue", "{'errors.0.epoch': 1, 'errors.1': {'$exists': false}}"),
        ==, 1);
    CHECK_STATE("done", queue, &id);
    truce_job_free(slow);
    truce_job_free(next);
    truce_queue_free(queue);
}

TEST(a_worker_that_lost_its_lease_changes_nothing)
{
    rig_everywhere(lost_lease);
}

/* ---- commits that hold a job ---- */

static void hold(truce_store *store, const bson_oid_t *id, bool on)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(id)),
           *update = BCON_NEW(on ? "$set" : "$unset", "{", "_intent.c", BCON_OID(id), "}");
    bson_error_t error;

    CHECK_OK(truce_update(store, "truce_queue", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    update = BCON_NEW("$unset", "{", "_intent", BCON_UTF8(""), "}");
    if (!on)
        CHECK_OK(truce_update(store, "truce_queue", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

static void held_jobs(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *jobs[4];
    bson_error_t error;
    size_t count;

    hold(store, &id, true);
    rig_no_job(queue);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim_many(queue, 4, jobs, &count, &error), error);
    hold(store, &id, false);
    CHECK_OK(truce_queue_claim_many(queue, 4, jobs, &count, &error), error);
    CHECK_INT(count, ==, 1);
    if (count)
        truce_job_free(jobs[0]);
    truce_queue_free(queue);
}

TEST(a_job_that_a_commit_holds_is_not_claimed)
{
    rig_everywhere(held_jobs);
}

/* ---- clocks ---- */

static void set_end(truce_store *store, const bson_oid_t *id, int64_t at_ms)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(id)),
           *update = BCON_NEW("$set", "{", "undone.at", BCON_DATE_TIME(at_ms), "}");
    bson_error_t error;

    CHECK_OK(truce_update(store, "truce_queue", filter, update, NULL, NULL, &error), error);
    bson_destroy(update);
    bson_destroy(filter);
}

/* The worker's clock is hours behind, or ours ahead: its lease looks as if it had ended long
 * ago. */
static void wrong_clock(truce_store *store, const struct setting *setting)
{
    truce_queue_options options = {
        .queue = "mail", .lease_ms = 600000, .mechanism = setting->mechanism};
    truce_queue *queue = truce_queue_new(store, &options);
    truce_queue *hasty = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    set_end(store, &id, truce__clock_wall_ms() - 5 * 3600000);
    for (int i = 0; i < 5; i++) {
        rig_no_job(hasty);
        truce__clock_sleep_ms(10);
    }
    CHECK_STATE("running", queue, &id);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    truce_queue_free(hasty);
    truce_queue_free(queue);
}

TEST(takes_no_job_from_a_worker_because_a_clock_is_wrong)
{
    rig_everywhere(wrong_clock);
}

/* The state of a job that was seen when its lease was watched is compared when the job is
 * returned. */
static void stale_rescue(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue), *next;
    bson_error_t error;
    int64_t at_ms;
    bool rescued;
    bson_t seen;

    REQUIRE(job);
    CHECK_OK(truce_queue_get(queue, NULL, &id, &seen, &error), error);
    CHECK(truce__job_date(&seen, "undone.at", &at_ms));
    CHECK_OK(truce__queue_rescue(queue, &seen, &rescued, &error), error); /* the watch begins */
    CHECK(!rescued);
    truce__clock_sleep_ms(2 * RIG_LEASE_MS);
    CHECK_OK(truce_job_extend(job, &error), error);
    CHECK_OK(truce__queue_rescue(queue, &seen, &rescued, &error), error);
    CHECK(!rescued); /* it was extended */
    CHECK_OK(truce_job_snooze(job, NULL, 0, &error), error);
    next = rig_claim(queue);
    REQUIRE(next);
    set_end(store, &id, at_ms);
    CHECK_OK(truce__queue_rescue(queue, &seen, &rescued, &error), error);
    CHECK(!rescued); /* it belongs to another claim */
    CHECK_OK(truce_job_done(next, NULL, NULL, &error), error);
    truce_job_free(next);
    truce_job_free(job);
    bson_destroy(&seen);
    truce_queue_free(queue);
}

TEST(requeues_only_the_claim_that_was_observed)
{
    rig_everywhere(stale_rescue);
}

/* In the function of the slow worker's commit its lease ends, and another worker claims the job. */
struct overtaken {
    truce_queue *queue;
    truce_job *next;
    int runs;
};

static truce_status overtake(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct overtaken *overtaken = arg;

    if (!overtaken->runs++)
        overtaken->next = rig_claim_later(overtaken->queue);
    return rig_effect(commit, NULL, error);
}

static void lease_lost_inside(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    struct overtaken overtaken = {.queue = queue};
    bson_error_t error;
    truce_job *slow;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    rig_add(queue, "{'n': 1}", NULL);
    slow = rig_claim(queue);
    REQUIRE(slow);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_commit(slow, overtake, &overtaken, NULL, &error), error);
    CHECK_INT(overtaken.runs, ==, 1);
    CHECK_INT(rig_effects(store), ==, 0);
    REQUIRE(overtaken.next);
    CHECK_OK(truce_job_commit(overtaken.next, rig_effect, NULL, NULL, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    truce_job_free(slow);
    truce_job_free(overtaken.next);
    truce_queue_free(queue);
}

TEST(stops_effects_when_their_lease_expires)
{
    rig_everywhere(lease_lost_inside);
}

static void cancelled(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    bson_error_t error;
    truce_job *job;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
    CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    CHECK(strstr(error.message, "cancelled"));
    CHECK(truce_job_cancelled(job));
    CHECK_INT(rig_effects(store), ==, 0);
    CHECK_STATE("cancelled", queue, &id);
    CHECK_OK(truce_queue_retry(queue, NULL, &id, &error), error);
    CHECK_STATE("ready", queue, &id);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    truce_job_free(job);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_queue_cancel(queue, NULL, &id, &error), error);
    for (int i = 0; i < 6000 && !truce_job_cancelled(job); i++)
        truce__clock_sleep_ms(10);
    CHECK(truce_job_cancelled(job));
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_job_is_cancelled_while_it_runs)
{
    rig_everywhere(cancelled);
}

/* ---- steps ---- */

static truce_status count_step(truce_commit *commit, void *arg, bson_t *result, bson_error_t *error)
{
    int *runs = arg;

    ++*runs;
    BSON_APPEND_INT32(result, "run", *runs);
    return rig_effect(commit, NULL, error);
}

static void steps(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_error_t error;
    int runs = 0;
    bson_t result;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    rig_add(queue, "{'n': 1}", NULL);
    for (int i = 0; i < 2; i++) {
        truce_job *job = rig_claim_later(queue);

        REQUIRE(job);
        CHECK_OK(truce_job_step(job, "reserve", count_step, &runs, &result, &error), error);
        CHECK_INT(rig_number(&result, "run"), ==, 1);
        bson_destroy(&result);
        /* Skipping the second step of a name, as in a loop, would lose its changes. */
        CHECK_STATUS(TRUCE_INVALID,
                     truce_job_step(job, "reserve", count_step, &runs, &result, &error), error);
        CHECK(strstr(error.message, "\"reserve\": give each step its own name"));
        bson_destroy(&result);
        CHECK_STATUS(TRUCE_INVALID, truce_job_step(job, "a.b", count_step, &runs, NULL, &error),
                     error);
        CHECK_OK(truce_job_fail(job, NULL, "later", -1, &error), error);
        CHECK_STATUS(TRUCE_EXPIRED, truce_job_step(job, "next", count_step, &runs, NULL, &error),
                     error);
        truce_job_free(job);
    }
    CHECK_INT(rig_effects(store), ==, 1);
    CHECK_INT(runs, ==, 1);
    truce_queue_free(queue);
}

TEST(a_step_is_done_once_however_often_its_job_is_tried)
{
    rig_everywhere(steps);
}

/* ---- unique jobs ---- */

static truce_added add_unique(truce_queue *queue, const char *payload,
                              const truce_job_options *options, bson_oid_t *id)
{
    bson_t *document = test_bson(payload);
    truce_job_added added = {0};
    bson_error_t error;

    CHECK_OK(truce_queue_add(queue, NULL, document, options, &added, &error), error);
    if (id)
        bson_oid_copy(&added.id, id);
    bson_destroy(document);
    return added.added;
}

static void unique(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique = "k"},
                      kept = {.unique = "k2", .unique_scope = TRUCE_UNIQUE_KEPT};
    bson_t *payload = test_bson("{'n': 9}");
    bson_oid_t first, met;
    bson_error_t error;
    truce_job *job;

    CHECK_INT(add_unique(queue, "{'n': 1}", &options, &first), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add_unique(queue, "{'n': 2}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&first, &met));
    options.on_conflict = TRUCE_ON_CONFLICT_REFUSE;
    CHECK_STATUS(TRUCE_DUPLICATE, truce_queue_add(queue, NULL, payload, &options, NULL, &error),
                 error);
    options.on_conflict = TRUCE_ON_CONFLICT_RESCHEDULE;
    options.delay_ms = 3600000;
    CHECK_INT(add_unique(queue, "{'n': 3}", &options, &met), ==, TRUCE_ADDED_RESCHEDULED);
    CHECK_STATE("delayed", queue, &first);
    options.on_conflict = TRUCE_ON_CONFLICT_REPLACE;
    options.delay_ms = 0;
    CHECK_INT(add_unique(queue, "{'n': 4}", &options, &met), ==, TRUCE_ADDED_REPLACED);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 1);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(rig_number(truce_job_payload(job), "n"), ==, 4);
    CHECK_INT(add_unique(queue, "{'n': 5}", &options, &met), ==,
              TRUCE_ADDED_EXISTING); /* it runs */
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_INT(add_unique(queue, "{'n': 6}", &options, &met), ==, TRUCE_ADDED_NEW);
    CHECK(!bson_oid_equal(&first, &met));

    CHECK_INT(add_unique(queue, "{'n': 7}", &kept, &first), ==, TRUCE_ADDED_NEW);
    CHECK_OK(truce_queue_cancel(queue, NULL, &first, &error), error);
    CHECK_INT(add_unique(queue, "{'n': 7}", &kept, &met), ==, TRUCE_ADDED_EXISTING);
    bson_destroy(payload);
    truce_queue_free(queue);
}

TEST(a_unique_job_encounters_the_one_of_its_key)
{
    rig_everywhere(unique);
}

static void unique_by_content(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail"), *other = rig_queue(store, setting, "b");
    truce_job_options options = {.unique_payload = true}, period = {.unique = "p",
                                                                    .unique_period_ms = 1000,
                                                                    .run_at_ms = PAST_MS + 5500};

    CHECK_INT(add_unique(queue, "{'n': 1}", &options, NULL), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add_unique(queue, "{'n': 1}", &options, NULL), ==, TRUCE_ADDED_EXISTING);
    CHECK_INT(add_unique(queue, "{'n': 2}", &options, NULL), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add_unique(other, "{'n': 1}", &options, NULL), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add_unique(queue, "{'n': 1}", &period, NULL), ==, TRUCE_ADDED_NEW);
    period.run_at_ms = PAST_MS + 5900;
    CHECK_INT(add_unique(queue, "{'n': 1}", &period, NULL), ==, TRUCE_ADDED_EXISTING);
    period.run_at_ms = PAST_MS + 6000;
    CHECK_INT(add_unique(queue, "{'n': 1}", &period, NULL), ==, TRUCE_ADDED_NEW);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(a_key_may_be_the_payload_or_a_period)
{
    rig_everywhere(unique_by_content);
}

/* ---- in a commit ---- */

struct both {
    truce_queue *queue;
    bool refuses;
};

static truce_status write_both(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct both *both = arg;
    truce_job_options options = {.unique = "both"};
    bson_t *payload = test_bson("{'n': 1}");
    truce_status status = truce_queue_add(both->queue, commit, payload, &options, NULL, error);

    bson_destroy(payload);
    if (!status)
        status = rig_effect(commit, NULL, error);
    return status || !both->refuses ? status : TRUCE_REFUSED;
}

static void in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_commit_options options = {.mechanism = setting->mechanism};
    struct both both = {queue, true};
    bson_error_t error;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, write_both, &both, &options, &error), error);
    rig_no_job(queue);
    CHECK_INT(rig_effects(store), ==, 0);
    both.refuses = false;
    CHECK_OK(truce_transact(store, write_both, &both, &options, &error), error);
    CHECK_INT(rig_effects(store), ==, 1);
    truce_job_free(rig_claim(queue));
    CHECK_OK(truce_transact(store, write_both, &both, &options, &error), error);
    CHECK_INT(rig_effects(store), ==, 2);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 1);
    truce_queue_free(queue);
}

TEST(a_job_is_added_with_other_changes_or_not_at_all)
{
    rig_everywhere(in_a_commit);
}

/* ---- many ---- */

static void many(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    const bson_t *payloads[20];
    bson_oid_t ids[20];
    truce_job *jobs[12];
    bool seen[20] = {false};
    bson_error_t error;
    size_t count, total = 0;

    for (int i = 0; i < 20; i++)
        payloads[i] = BCON_NEW("n", BCON_INT32(i));
    CHECK_OK(truce_queue_add_many(queue, payloads, 20, NULL, ids, &error), error);
    CHECK_OK(truce_queue_add_many(queue, payloads, 0, NULL, NULL, &error), error);
    for (int round = 0; round < 2; round++) {
        CHECK_OK(truce_queue_claim_many(queue, 12, jobs, &count, &error), error);
        CHECK_INT(count, ==, round ? 8 : 12);
        total += count;
        for (size_t i = 0; i < count; i++) {
            int64_t n = rig_number(truce_job_payload(jobs[i]), "n");

            CHECK(n >= 0 && n < 20 && !seen[n]);
            seen[n >= 0 && n < 20 ? n : 0] = true;
            CHECK(bson_oid_equal(truce_job_id(jobs[i]), &ids[n]));
            CHECK_OK(truce_job_done(jobs[i], NULL, NULL, &error), error);
            truce_job_free(jobs[i]);
        }
    }
    CHECK_INT(total, ==, 20);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim_many(queue, 12, jobs, &count, &error), error);
    CHECK_INT(count, ==, 0);
    for (int i = 0; i < 20; i++)
        bson_destroy((bson_t *)payloads[i]);
    truce_queue_free(queue);
}

TEST(many_jobs_are_added_and_claimed_at_once)
{
    rig_everywhere(many);
}

/* ---- threads ---- */

struct crowd {
    truce_queue *queue;
    atomic_int done, failed;
};

/* Many threads claim with one handle until no job is left. */
static void *do_jobs(void *arg)
{
    struct crowd *crowd = arg;
    bson_error_t error;
    truce_job *job;

    while (truce_queue_claim(crowd->queue, &job, &error) == TRUCE_OK) {
        if (truce_job_commit(job, rig_effect, NULL, NULL, &error) == TRUCE_OK)
            atomic_fetch_add(&crowd->done, 1);
        else
            atomic_fetch_add(&crowd->failed, 1);
        truce_job_free(job);
    }
    return NULL;
}

static void crowded(truce_store *store, const struct setting *setting)
{
    struct crowd crowd = {.queue = rig_queue(store, setting, "mail")};
    pthread_t threads[4];

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    for (int i = 0; i < 16; i++)
        rig_add(crowd.queue, "{'n': 1}", NULL);
    for (int i = 0; i < 4; i++)
        REQUIRE(!pthread_create(&threads[i], NULL, do_jobs, &crowd));
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    CHECK_INT(atomic_load(&crowd.done), ==, 16);
    CHECK_INT(atomic_load(&crowd.failed), ==, 0);
    CHECK_INT(rig_effects(store), ==, 16);
    truce_queue_free(crowd.queue);
}

TEST(threads_share_a_queue)
{
    rig_everywhere(crowded);
}

/* ---- looking after ---- */

static void pauses(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_queue *elsewhere = rig_queue(store, setting, "mail");
    bson_error_t error;
    truce_job *job;
    bson_t stats;

    rig_add(queue, "{'n': 1}", NULL);
    CHECK_OK(truce_queue_pause(queue, &error), error);
    rig_no_job(queue);
    rig_no_job(elsewhere);
    CHECK_OK(truce_queue_stats(store, &stats, &error), error);
    CHECK_INT(rig_number(&stats, "0.ready"), ==, 1);
    CHECK_INT(rig_number(&stats, "0.paused"), ==, 1);
    bson_destroy(&stats);
    CHECK_OK(truce_queue_resume(queue, &error), error);
    job = rig_claim_later(elsewhere);
    REQUIRE(job);
    CHECK_OK(truce_queue_stats(store, &stats, &error), error);
    CHECK_INT(rig_number(&stats, "0.ready"), ==, 0);
    CHECK_INT(rig_number(&stats, "0.running"), ==, 1);
    CHECK_INT(rig_number(&stats, "0.paused"), ==, 0);
    bson_destroy(&stats);
    truce_job_free(job);
    truce_queue_free(elsewhere);
    truce_queue_free(queue);
}

TEST(claims_no_job_of_a_paused_queue)
{
    rig_everywhere(pauses);
}

/* {n} of priority `priority`, ready for so long. */
static void add_old(truce_queue *queue, int32_t priority, int64_t old_ms)
{
    truce_job_options options = {
        .priority = priority, .run_at_ms = truce__clock_wall_ms() - old_ms, .attempts_max = 1};

    rig_add(queue, "{'n': 1}", &options);
}

static void figures(truce_store *store, const struct setting *setting)
{
    truce_queue *mail = rig_queue(store, setting, "mail"), *b = rig_queue(store, setting, "b"),
                *letters = rig_queue(store, setting, "letters");
    truce_job_options later = {.delay_ms = 3600000}, lane = {.lane = "l"};
    bson_error_t error;
    truce_job *job;
    bson_t stats;

    add_old(mail, 9, 3600000);
    add_old(mail, -9, 7200000); /* the oldest, and the last in the index */
    add_old(mail, 0, 60000);
    add_old(letters, 0, 0);
    rig_add(b, "{'n': 1}", &later);
    rig_add(b, "{'n': 1}", &lane);
    rig_add(b, "{'n': 1}", &lane);
    job = rig_claim(letters);
    REQUIRE(job);
    CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
    truce_job_free(job);
    CHECK_OK(truce_queue_stats(store, &stats, &error), error);
    CHECK_INT(bson_count_keys(&stats), ==, 3);
    CHECK_INT(rig_number(&stats, "0.delayed"), ==, 1);
    CHECK_INT(rig_number(&stats, "0.ready"), ==, 1);
    CHECK_INT(rig_number(&stats, "0.waiting"), ==, 1);
    CHECK_INT(rig_number(&stats, "1.dead"), ==, 1);
    CHECK_INT(rig_number(&stats, "1.oldest_ms"), ==, 0);
    CHECK_INT(rig_number(&stats, "2.ready"), ==, 3);
    CHECK_INT(rig_number(&stats, "2.oldest_ms"), >=, 7200000);
    CHECK_INT(rig_number(&stats, "2.dead"), ==, 0);
    bson_destroy(&stats);
    truce_queue_free(letters);
    truce_queue_free(b);
    truce_queue_free(mail);
}

TEST(counts_each_queue_and_the_oldest_job_of_all_priorities)
{
    rig_everywhere(figures);
}

static void refused_states(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail"), *other = rig_queue(store, setting, "b");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    bson_error_t error;
    truce_job *job;
    bson_t kept;

    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_get(other, NULL, &id, &kept, &error), error);
    bson_destroy(&kept);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_cancel(other, NULL, &id, &error), error);
    CHECK_OK(truce_queue_retry(queue, NULL, &id, &error), error); /* it is ready */
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_retry(queue, NULL, &id, &error), error);
    CHECK(strstr(error.message, "running, so it cannot be retried; if its worker was killed, "));
    CHECK_STATUS(TRUCE_INVALID, truce_queue_discard(queue, NULL, &id, &error), error);
    CHECK(strstr(error.message, "running, so it cannot be discarded") &&
          !strchr(error.message, ';'));
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_retry(queue, NULL, &id, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_cancel(queue, NULL, &id, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_discard(queue, NULL, &id, &error), error);
    CHECK_STATE("done", queue, &id);
    truce_job_free(job);
    id = rig_add(queue, "{'n': 1}", NULL);
    CHECK_OK(truce_queue_discard(queue, NULL, &id, &error), error);
    CHECK_STATE("discarded", queue, &id);
    CHECK_OK(truce_queue_discard(queue, NULL, &id, &error), error);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(refuses_calls_that_a_state_does_not_allow)
{
    rig_everywhere(refused_states);
}

static void swept(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique = "k", .unique_scope = TRUCE_UNIQUE_KEPT, .keep_ms = 1},
                      forever = {.keep_ms = -1}, later = {.delay_ms = 3600000};
    bson_t *past = test_bson("{'$set': {'undone.at': {'$date': 1000}}}"), *filter;
    truce_sweep_report report;
    bson_oid_t ids[2], waits;
    bson_error_t error;

    ids[0] = rig_add(queue, "{'n': 1}", &options);
    ids[1] = rig_add(queue, "{'n': 2}", &forever);
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_queue_cancel(queue, NULL, &ids[i], &error), error);
    waits = rig_add(queue, "{'n': 3}", &later);
    filter = BCON_NEW("_id", BCON_OID(&waits));
    CHECK_OK(truce_update(store, "truce_queue", filter, past, NULL, NULL, &error), error);
    truce__clock_sleep_ms(5);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.expired, ==, 1);
    CHECK_INT(report.failed, ==, 0);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'cancelled'}"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue_keys", "{}"), ==, 0);
    CHECK_STATE("ready", queue, &waits);
    CHECK_INT(add_unique(queue, "{'n': 1}", &options, NULL), ==, TRUCE_ADDED_NEW);
    bson_destroy(filter);
    bson_destroy(past);
    truce_queue_free(queue);
}

TEST(the_sweep_removes_jobs_after_their_retention)
{
    rig_everywhere(swept);
}

/* The recovery pass requeues a job, too, once it has seen its lease for long enough. */
static void swept_leases(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_hasty(store, setting, "mail");
    bson_oid_t id = rig_add(queue, "{'n': 1}", NULL);
    truce_job *job = rig_claim(queue);
    bson_t *running = test_bson("{'state': 'running'}");
    truce_sweep_report report;
    bson_error_t error;
    int64_t left = 1, released = 0;

    REQUIRE(job);
    for (int i = 0; i < 6000 && left; i++) {
        truce__clock_sleep_ms(10);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        released += report.released;
        CHECK_OK(truce_count(store, "truce_queue", running, NULL, &left, &error), error);
    }
    CHECK_INT(left, ==, 0);
    CHECK_INT(released, ==, 1);
    CHECK_STATUS(TRUCE_EXPIRED, truce_job_done(job, NULL, NULL, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'errors.0.worker': 'hasty'}"), ==, 1);
    CHECK(!bson_oid_equal(&id, &(bson_oid_t){{0}}));
    bson_destroy(running);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(the_sweep_requeues_the_jobs_of_a_dead_worker)
{
    rig_everywhere(swept_leases);
}

static void checked(truce_store *store, const struct setting *setting)
{
    static const char *const broken[] = {
        "{'$unset': {'undone': 1}}",
        "{'$set': {'undone.state': 'delayed'}}",
        "{'$set': {'undone.queue': 'b'}}",
        "{'$unset': {'undone.at': 1}}",
        "{'$set': {'state': 'running', 'undone.state': 'running'}}",
        "{'$set': {'state': 'done'}}",
        "{'$set': {'dead': {'queue': 'mail'}}}",
        "{'$set': {'state': 'dead'}}",
    };
    truce_queue *queue = rig_queue(store, setting, "mail");
    size_t count = sizeof broken / sizeof *broken;
    truce_job_options options = {.unique = "k"};
    truce_check_report report;
    bson_error_t error;
    bson_oid_t id;
    struct rig_findings found = {"job", 0};

    for (size_t i = 0; i < count; i++) {
        bson_t *update = test_bson(broken[i]), *filter;

        id = rig_add(queue, "{'n': 1}", NULL);
        filter = BCON_NEW("_id", BCON_OID(&id));
        CHECK_OK(truce_update(store, "truce_queue", filter, update, NULL, NULL, &error), error);
        bson_destroy(update);
        bson_destroy(filter);
    }
    id = rig_add(queue, "{'n': 1}", &options);
    {
        bson_t *filter = BCON_NEW("_id", BCON_OID(&id));

        CHECK_OK(truce_remove(store, "truce_queue", filter, NULL, NULL, &error), error);
        bson_destroy(filter);
    }
    for (int round = 0; round < 3; round++) {
        truce_check_options repair = {.repair = round == 1};

        found.count = 0;
        CHECK_OK(truce_check(store, &repair, rig_count_finding, &found, &report, &error), error);
        CHECK_INT(found.count, ==, round < 2 ? (int)count + 1 : 0);
        CHECK_INT(report.repaired, ==, round == 1 ? (int)count + 1 : 0);
    }
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'ready', 'undone.state': 'ready'}"), ==,
              6);
    truce_queue_free(queue);
}

TEST(the_check_finds_inconsistent_jobs)
{
    rig_everywhere(checked);
}

/* ---- bad input ---- */

static truce_status try_add(truce_queue *queue, const truce_job_options *options,
                            bson_error_t *error)
{
    bson_t *payload = test_bson("{'n': 1}");
    truce_status status = truce_queue_add(queue, NULL, payload, options, NULL, error);

    bson_destroy(payload);
    return status;
}

TEST(refuses_an_invalid_job_and_adds_nothing)
{
    bson_t *numbers = test_bson("{'0': 1}"), large = BSON_INITIALIZER;
    char *text = bson_malloc0(9 * 1024 * 1024);
    const truce_job_options bad[] = {{.priority = 1001},
                                     {.priority = -1001},
                                     {.delay_ms = -1},
                                     {.delay_ms = 1, .run_at_ms = 1},
                                     {.unique = ""},
                                     {.tags = numbers},
                                     {.keep_ms = -2},
                                     {.unique_period_ms = 5},
                                     {.unique = "\xff"},
                                     {.run_at_ms = INT64_MAX},
                                     {.run_at_ms = 1767225600},
                                     {.run_at_ms = 9999999999},
                                     {.delay_ms = 1767225600000},
                                     {.unique = "p", .unique_period_ms = 1767225600000}};
    truce_store *store = server_or_memory();
    truce_queue *queue = rig_queue(store, NULL, "mail");
    truce_queue *nameless = truce_queue_new(store, NULL);
    bson_error_t error;
    truce_job *jobs[2];
    size_t count;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(TRUCE_INVALID, try_add(queue, &bad[i], &error), error);
    CHECK_STATUS(TRUCE_INVALID, try_add(nameless, NULL, &error), error);
    CHECK(strstr(error.message, "\"queue\""));
    memset(text, 'x', 9 * 1024 * 1024 - 1);
    BSON_APPEND_UTF8(&large, "text", text);
    CHECK_STATUS(TRUCE_LIMIT, truce_queue_add(queue, NULL, &large, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_add(queue, NULL, NULL, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_many(queue, 0, jobs, &count, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_claim_many(queue, 1001, jobs, &count, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 0);
    bson_free(text);
    bson_destroy(&large);
    bson_destroy(numbers);
    truce_queue_free(nameless);
    truce_queue_free(queue);
    truce_store_close(store);
}

/* ---- waiting ---- */

static void waits_for_a_job(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    bson_error_t error;
    truce_job *job;

    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim_wait(queue, 20, &job, &error), error);
    CHECK(!job);
    rig_add(queue, "{'n': 1}", NULL);
    CHECK_OK(truce_queue_claim_wait(queue, 60000, &job, &error), error);
    CHECK(job);
    truce_job_free(job);
    truce_queue_free(queue);
}

TEST(a_worker_can_wait_for_a_job)
{
    rig_everywhere(waits_for_a_job);
}
