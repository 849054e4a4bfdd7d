/* Keys of unique jobs: which jobs count, and which job has a key. How long ended jobs are kept. */
#include "tests/support/queue_rig.h"

/* A multiple of all periods. */
#define PAST_MS INT64_C(1600000000000)

static truce_added add(truce_queue *queue, const char *payload, const truce_job_options *options,
                       bson_oid_t *id)
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

static void do_next(truce_queue *queue)
{
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
}

/* ---- which jobs count ---- */

static void periods(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {
        .unique = "p", .unique_period_ms = 1000000, .run_at_ms = PAST_MS + 5500000, .keep_ms = 1};
    bson_oid_t first, met;
    bson_error_t error;
    bson_t job;

    CHECK_INT(add(queue, "{'n': 1}", &options, &first), ==, TRUCE_ADDED_NEW);
    do_next(queue);
    options.run_at_ms = PAST_MS + 5900000;
    CHECK_INT(add(queue, "{'n': 2}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&first, &met));
    CHECK_OK(truce_queue_get(queue, NULL, &first, &job, &error), error);
    CHECK_INT(rig_number(&job, "keep_ms"), ==, 1000000);
    options.run_at_ms = PAST_MS + 6000000;
    CHECK_INT(add(queue, "{'n': 3}", &options, NULL), ==, TRUCE_ADDED_NEW);
    bson_destroy(&job);
    truce_queue_free(queue);
}

TEST(enqueues_one_job_in_a_period_even_if_it_has_ended)
{
    rig_everywhere(periods);
}

/* A request that arrives while a job runs is done once more, whatever becomes of the running
 * one. */
static void unclaimed(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique = "k", .unique_scope = TRUCE_UNIQUE_UNCLAIMED};
    bson_oid_t first, second, met;
    bson_error_t error;
    truce_job *job;

    CHECK_INT(add(queue, "{'n': 1}", &options, &first), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add(queue, "{'n': 2}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&first, &met));
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_INT(add(queue, "{'n': 3}", &options, &second), ==, TRUCE_ADDED_NEW);
    CHECK_INT(add(queue, "{'n': 4}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&second, &met));
    CHECK_OK(truce_job_fail(job, NULL, "no", 3600000, &error), error);
    truce_job_free(job);
    CHECK_INT(add(queue, "{'n': 5}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&second, &met));
    CHECK_INT(count_json(store, "truce_queue", "{'key': 'k'}"), ==, 1);
    do_next(queue);
    CHECK_STATE("done", queue, &second);
    CHECK_STATE("delayed", queue, &first);
    CHECK_INT(add(queue, "{'n': 6}", &options, NULL), ==, TRUCE_ADDED_NEW);
    truce_queue_free(queue);
}

TEST(releases_the_key_of_a_running_job_to_a_later_one)
{
    rig_everywhere(unclaimed);
}

static void payloads(truce_store *store, const struct setting *setting)
{
    static const char *const same[] = {
        "{'a': 1, 'b': {'x': [1, {'p': 1, 'q': 2}], 'y': 'z'}}",
        "{'b': {'y': 'z', 'x': [1, {'q': 2, 'p': 1}]}, 'a': 1}",
        "{'a': 1.0, 'b': {'x': [{'$numberLong': '1'}, {'p': 1, 'q': 2}], 'y': 'z'}}",
    };
    static const char *const others[] = {
        "{'a': 1, 'b': {'x': [{'p': 1, 'q': 2}, 1], 'y': 'z'}}",
        "{'a': 1, 'b': {'x': [1, {'p': 2, 'q': 1}], 'y': 'z'}}",
        "{'a': 1}",
        "{'a': '1'}",
        "{'a': []}",
        "{'a': {}}",
        "{'a': [1]}",
        "{'a': {'0': 1}}",
        "{'a': 1, 'b': 2}",
        "{'ab': 12}",
        "{'a': {'b': 1}, 'c': 2}",
        "{'a': {'b': 1, 'c': 2}}",
        "{}",
        "{'a': null}",
    };
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique_payload = true};

    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        CHECK_INT(add(queue, same[i], &options, NULL), ==,
                  i ? TRUCE_ADDED_EXISTING : TRUCE_ADDED_NEW);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK_INT(add(queue, others[i], &options, NULL), ==, TRUCE_ADDED_NEW);
    truce_queue_free(queue);
}

TEST(equal_payloads_match_in_any_order_of_their_fields)
{
    rig_everywhere(payloads);
}

/* ---- lives after the first ---- */

static void retried(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique = "k"};
    uint32_t count;
    bson_oid_t first, second, met;
    bson_error_t error;
    truce_job *job;

    CHECK_INT(add(queue, "{'n': 1}", &options, &first), ==, TRUCE_ADDED_NEW);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_job_discard(job, NULL, "no", &error), error);
    truce_job_free(job);
    CHECK_INT(add(queue, "{'n': 2}", &options, &second), ==, TRUCE_ADDED_NEW);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_retry(queue, NULL, &first, &error), error);
    CHECK(strstr(error.message, "\"k\""));
    CHECK_STATE("discarded", queue, &first);
    CHECK_OK(truce_queue_redrive(queue, 0, &count, &error), error);
    CHECK_OK(truce_queue_cancel(queue, NULL, &second, &error), error);
    CHECK_OK(truce_queue_retry(queue, NULL, &first, &error), error); /* the key is free again */
    CHECK_INT(add(queue, "{'n': 3}", &options, &met), ==, TRUCE_ADDED_EXISTING);
    CHECK(bson_oid_equal(&first, &met));
    CHECK_STATUS(TRUCE_INVALID, truce_queue_retry(queue, NULL, &second, &error), error);
    truce_queue_free(queue);
}

TEST(does_not_retry_a_job_next_to_a_live_one_of_its_key)
{
    rig_everywhere(retried);
}

/* ---- retention ------------------------------------------------------------------------------- */

static int64_t kept_for(truce_queue *queue, const bson_oid_t *id)
{
    bson_error_t error;
    int64_t ended_ms, expires_ms;
    bool expires;
    bson_t job;

    CHECK_OK(truce_queue_get(queue, NULL, id, &job, &error), error);
    CHECK(truce__job_date(&job, "ended", &ended_ms));
    expires = truce__job_date(&job, "expires", &expires_ms);
    bson_destroy(&job);
    return expires ? expires_ms - ended_ms : -1;
}

static void kept(truce_store *store, const struct setting *setting)
{
    truce_queue_options given = {.queue = "mail",
                                 .lease_ms = 600000,
                                 .attempts_max = 1,
                                 .keep_ms = 1000,
                                 .keep_cancelled_ms = 2000,
                                 .keep_dead_ms = 4000,
                                 .mechanism = setting->mechanism};
    truce_queue *queue = truce_queue_new(store, &given), *plain;
    truce_job_options own = {.keep_ms = -1, .keep_discarded_ms = 5000, .keep_dead_ms = -1};
    bson_oid_t ids[6];
    bson_error_t error;

    given = (truce_queue_options){.queue = "mail", .mechanism = setting->mechanism};
    plain = truce_queue_new(store, &given); /* the handle holds how long a job is kept */
    for (int i = 0; i < 6; i++)
        ids[i] = rig_add(queue, "{'n': 1}", i < 4 ? NULL : &own);
    CHECK_OK(truce_queue_cancel(plain, NULL, &ids[1], &error), error);
    CHECK_OK(truce_queue_discard(plain, NULL, &ids[2], &error), error);
    CHECK_OK(truce_queue_discard(plain, NULL, &ids[4], &error), error);
    do_next(plain);
    for (int i = 0; i < 2; i++) {
        truce_job *job = rig_claim(plain);

        REQUIRE(job);
        CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
        truce_job_free(job);
    }
    CHECK_INT(kept_for(plain, &ids[0]), ==, 1000);
    CHECK_INT(kept_for(plain, &ids[1]), ==, 2000);
    CHECK_INT(kept_for(plain, &ids[2]), ==, 1000);
    CHECK_STATE("dead", plain, &ids[3]);
    CHECK_INT(kept_for(plain, &ids[3]), ==, 4000);
    CHECK_INT(kept_for(plain, &ids[4]), ==, 5000);
    CHECK_INT(kept_for(plain, &ids[5]), ==, -1);
    CHECK_OK(truce_queue_retry(plain, NULL, &ids[3], &error), error);
    CHECK_OK(truce_queue_cancel(plain, NULL, &ids[3], &error), error);
    given.attempts_max = 1;
    truce_queue_free(queue);
    queue = truce_queue_new(store, &given); /* it does not mention dead letters */
    ids[0] = rig_add(queue, "{'n': 1}", NULL);
    {
        truce_job *job = rig_claim(queue);

        REQUIRE(job);
        CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
        truce_job_free(job);
    }
    CHECK_STATE("dead", queue, &ids[0]);
    CHECK_INT(kept_for(queue, &ids[0]), ==, -1);
    CHECK_INT(count_json(store, "truce_queue",
                         "{'undone': {'$exists': true}, 'expires': {'$exists': true}}"),
              ==, 0);
    truce_queue_free(plain);
    truce_queue_free(queue);
}

TEST(each_state_has_its_own_time_for_which_a_job_is_kept)
{
    rig_everywhere(kept);
}

/* No caller waits for a job that is gone. */
static void waited_for(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options short_lived = {.keep_dead_ms = 1, .keep_discarded_ms = 1, .attempts_max = 1},
                      waits = {.after_count = 1, .failure = TRUCE_FAILURE_WAIT};
    bson_oid_t first = rig_add(queue, "{'n': 1}", &short_lived), second;
    truce_job *job = rig_claim(queue);
    truce_sweep_report report;
    bson_error_t error;

    REQUIRE(job);
    waits.after = &first;
    second = rig_add(queue, "{'n': 2}", &waits);
    CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
    truce_job_free(job);
    CHECK_STATE("blocked", queue, &second);
    for (int i = 0; i < 6000 && count_json(store, "truce_queue", "{'attempts_max': 1}"); i++) {
        truce__clock_sleep_ms(5);
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        CHECK_INT(report.failed, ==, 0);
    }
    CHECK_INT(count_json(store, "truce_queue", "{'attempts_max': 1}"), ==, 0);
    CHECK_STATE("cancelled", queue, &second);
    truce_queue_free(queue);
}

TEST(an_expired_dead_letter_is_discarded_before_it_is_removed)
{
    rig_everywhere(waited_for);
}

/* ---- replacing ---- */

static truce_status add_with(truce_queue *queue, const truce_job_options *options,
                             bson_error_t *error)
{
    bson_t *payload = test_bson("{'n': 1}");
    truce_status status = truce_queue_add(queue, NULL, payload, options, NULL, error);

    bson_destroy(payload);
    return status;
}

/* A replacement gives the job all of its options. An option that it lacks has its default again. */
static void replaced(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {.unique = "k",
                                 .name = "first",
                                 .keep_dead_ms = 9,
                                 .on_conflict = TRUCE_ON_CONFLICT_REPLACE};
    bson_error_t error;

    CHECK_OK(add_with(queue, &options, &error), error);
    options.name = "second";
    options.attempts_max = 3;
    options.timeout_ms = 777;
    options.keep_ms = 5;
    options.keep_dead_ms = 0;
    CHECK_OK(add_with(queue, &options, &error), error);
    CHECK_INT(count_json(store, "truce_queue",
                         "{'name': 'second', 'attempts_max': 3, 'timeout_ms': 777, 'keep_ms': 5, "
                         "'keep': {'$exists': false}}"),
              ==, 1);
    options.name = NULL;
    options.timeout_ms = 0;
    options.keep_dead_ms = 9;
    CHECK_OK(add_with(queue, &options, &error), error);
    CHECK_INT(count_json(store, "truce_queue",
                         "{'name': {'$exists': false}, 'timeout_ms': {'$exists': false}, "
                         "'keep.dead': 9}"),
              ==, 1);
    /* The job is in no lane. */
    options.lane = "ada";
    CHECK_STATUS(TRUCE_INVALID, add_with(queue, &options, &error), error);
    CHECK(strstr(error.message, "is in no lane: a replaced job keeps its lane") != NULL);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 1);
    truce_queue_free(queue);
}

TEST(replaces_all_options_of_a_job)
{
    rig_everywhere(replaced);
}

/* A replacement stays in the lane of the job, and sets the width of the lane. */
static void replaced_in_a_lane(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = rig_queue(store, setting, "mail");
    truce_job_options options = {
        .unique = "k", .lane = "ada", .on_conflict = TRUCE_ON_CONFLICT_REPLACE};
    bson_error_t error;

    CHECK_OK(add_with(queue, &options, &error), error);
    options.lane_width = 4;
    CHECK_OK(add_with(queue, &options, &error), error);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{'width': 4}"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue", "{'lane.width': 4}"), ==, 1);
    options.lane = "bob";
    CHECK_STATUS(TRUCE_INVALID, add_with(queue, &options, &error), error);
    CHECK(strstr(error.message, "is in the lane \"ada\": a replaced job keeps its lane") != NULL);
    options.lane = NULL;
    options.lane_width = 0;
    CHECK_OK(add_with(queue, &options, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'lane.name': 'ada', 'lane.width': 4}"), ==, 1);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{'width': 4}"), ==, 1);
    truce_queue_free(queue);
}

TEST(replaces_a_job_within_its_lane)
{
    rig_everywhere(replaced_in_a_lane);
}

TEST(refuses_a_replacement_that_waits_for_jobs)
{
    const bson_oid_t id = {{1}};
    const truce_job_options bad[] = {
        {.unique = "k", .on_conflict = TRUCE_ON_CONFLICT_REPLACE, .open = true},
        {.unique = "k", .on_conflict = TRUCE_ON_CONFLICT_REPLACE, .batch = &id},
        {.unique = "k", .on_conflict = TRUCE_ON_CONFLICT_REPLACE, .after = &id, .after_count = 1}};
    truce_store *store = server_or_memory();
    truce_queue *queue = rig_queue(store, NULL, "mail");
    bson_error_t error;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(TRUCE_INVALID, add_with(queue, &bad[i], &error), error);
        CHECK(strstr(error.message, "a job that replaces another one cannot wait") != NULL);
    }
    truce_queue_free(queue);
    truce_store_close(store);
}

/* ---- bad input ---- */

TEST(refuses_options_of_a_key_without_one)
{
    const truce_job_options bad[] = {{.unique_scope = TRUCE_UNIQUE_KEPT},
                                     {.unique_scope = TRUCE_UNIQUE_UNCLAIMED},
                                     {.on_conflict = TRUCE_ON_CONFLICT_REPLACE},
                                     {.unique_period_ms = 5},
                                     {.unique = "k", .unique_scope = (truce_unique_scope)3},
                                     {.unique = "k", .on_conflict = (truce_conflict_policy)4},
                                     {.keep_dead_ms = -2},
                                     {.keep_cancelled_ms = -2},
                                     {.keep_discarded_ms = -2},
                                     {.lane_rate = 1, .lane_per_ms = 1},
                                     {.lane = "a", .lane_rate = 1},
                                     {.lane = "a", .lane_per_ms = 1}};
    truce_store *store = server_or_memory();
    truce_queue *queue = rig_queue(store, NULL, "mail");
    bson_t *payload = test_bson("{'n': 1}");
    bson_error_t error;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(TRUCE_INVALID, truce_queue_add(queue, NULL, payload, &bad[i], NULL, &error),
                     error);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 0);
    bson_destroy(payload);
    truce_queue_free(queue);
    truce_store_close(store);
}
