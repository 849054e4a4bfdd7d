/* Jobs that wait for others, workflows and batches: every call, by every mechanism, on every
 * store. */
#include <string.h>

#include "base/field.h"
#include "tests/support/queue_rig.h"

/* ---- the common part of the tests ------------------------------------------------------------ */

static bson_oid_t add_after(truce_queue *queue, const bson_oid_t *after, size_t count,
                            truce_job_failure failure)
{
    truce_job_options options = {.after = after, .after_count = count, .failure = failure};

    return rig_add(queue, "{'n': 1}", &options);
}

static void refused(truce_queue *queue, truce_status expected, const truce_job_options *options,
                    const char *word)
{
    bson_t *payload = test_bson("{}");
    bson_error_t error = {0};

    CHECK_STATUS(expected, truce_queue_add(queue, NULL, payload, options, NULL, &error), error);
    CHECK(strstr(error.message, word));
    bson_destroy(payload);
}

/* Claims one, which has to be this job, and ends it. */
static void end_next(truce_queue *queue, const bson_oid_t *id, const char *result)
{
    bson_t *kept = result ? test_bson(result) : NULL;
    truce_job *job = rig_claim(queue);
    bson_error_t error;

    REQUIRE(job);
    CHECK(!id || bson_oid_equal(id, truce_job_id(job)));
    if (result)
        CHECK_OK(truce_job_done(job, NULL, kept, &error), error);
    else
        CHECK_OK(truce_job_fail(job, NULL, "no", 0, &error), error);
    truce_job_free(job);
    if (kept)
        bson_destroy(kept);
}

static void kill_next(truce_queue *queue, const bson_oid_t *id)
{
    for (int i = 0; i < 2; i++)
        end_next(queue, id, NULL);
}

static truce_queue *mail(truce_store *store, const struct setting *setting)
{
    truce_queue_options options = {.queue = "mail",
                                   .lease_ms = 600000,
                                   .attempts_max = 2,
                                   .mechanism = setting ? setting->mechanism : 0};

    return truce_queue_new(store, &options);
}

static int findings(truce_store *store, bool repair)
{
    truce_check_options options = {.repair = repair};
    truce_check_report report;
    bson_error_t error;
    struct rig_findings found = {"job", 0};

    CHECK_OK(truce_check(store, &options, rig_count_finding, &found, &report, &error), error);
    return found.count;
}

/* ---- jobs after others ---- */

/* The results of the two that the job waited for. A cursor that stays open would end the program
 * with its store. */
static void check_sums(truce_store *store, const bson_oid_t *id, int64_t first, int64_t second)
{
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    bson_error_t error;

    if (!CHECK_OK(truce_queue_results(store, id, &cursor, &error), error))
        return;
    for (int i = 0; i < 2; i++)
        if (CHECK_OK(truce_cursor_next(cursor, &found, &error), error) && CHECK(found != NULL))
            CHECK_INT(rig_number(found, "result.sum"), ==, i ? second : first);
    CHECK_OK(truce_cursor_next(cursor, &found, &error), error);
    CHECK(!found);
    truce_cursor_close(cursor);
}

static void in_order(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting), *other = rig_queue(store, setting, "other");
    bson_oid_t before[3] = {rig_add(queue, "{'n': 1}", NULL), rig_add(other, "{'n': 2}", NULL)},
               last, none;

    before[2] = before[0]; /* twice is once */
    last = add_after(queue, before, 3, 0);
    CHECK_STATE("blocked", queue, &last);
    CHECK_INT(count_json(store, "truce_queue", "{'after.left': 2}"), ==, 1);
    CHECK_INT(findings(store, false), ==, 0);
    end_next(queue, &before[0], "{'sum': 5}");
    CHECK_STATE("blocked", queue, &last);
    rig_no_job(queue);
    end_next(other, &before[1], "{'sum': 7}");
    CHECK_STATE("ready", queue, &last);
    check_sums(store, &last, 5, 7);
    end_next(queue, &last, "{}");
    none = add_after(queue, before, 2, 0); /* they have ended */
    CHECK_STATE("ready", queue, &none);
    check_sums(store, &none, 5, 7);
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(a_job_runs_after_those_that_it_waits_for)
{
    rig_everywhere(in_order);
}

/* The end is that of truce_job_commit; a delay begins after it, and a lane keeps its order. */
static void with_others(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t first = rig_add(queue, "{'n': 1}", NULL), later, turn, behind;
    truce_job_options delayed = {.after = &first, .after_count = 1, .delay_ms = 3600000},
                      lane = {.after = &first, .after_count = 1, .lane = "ada"};
    bson_error_t error;
    truce_job *job;

    insert_json(store, "effects", "{'_id': 'effect', 'n': 0}");
    later = rig_add(queue, "{}", &delayed);
    turn = rig_add(queue, "{}", &lane);
    behind = rig_add(queue, "{}", &lane);
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==, 0);
    job = rig_claim(queue);
    REQUIRE(job);
    CHECK_OK(truce_job_commit(job, rig_effect, NULL, NULL, &error), error);
    truce_job_free(job);
    CHECK_STATE("delayed", queue, &later);
    CHECK_STATE("ready", queue, &turn);
    CHECK_STATE("waiting", queue, &behind);
    end_next(queue, &turn, "{}");
    end_next(queue, &behind, "{}");
    CHECK_INT(count_json(store, "truce_queue_lanes", "{}"), ==, 0);
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(queue);
}

TEST(waits_for_other_jobs_before_its_time_and_its_lane_position)
{
    rig_everywhere(with_others);
}

/* A job that runs after a dead one reads the reason: the error of the last attempt. */
static void check_reason(truce_store *store, const bson_oid_t *id)
{
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    bson_error_t error;
    bson_iter_t at, text;

    if (!CHECK_OK(truce_queue_results(store, id, &cursor, &error), error))
        return;
    if (CHECK_OK(truce_cursor_next(cursor, &found, &error), error) && CHECK(found != NULL)) {
        CHECK_TEXT("dead", truce__field_text(found, "state"));
        CHECK_INT(rig_number(found, "errors.0.attempt"), ==, 2);
        CHECK(bson_iter_init(&at, found) &&
              bson_iter_find_descendant(&at, "errors.0.text", &text) &&
              !strcmp(bson_iter_utf8(&text, NULL), "no"));
        CHECK_INT(rig_number(found, "errors.1.attempt"), ==, -1);
    }
    truce_cursor_close(cursor);
}

static void failures(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t first = rig_add(queue, "{}", NULL), cancelled, goes, waits, chain;
    truce_job_options options = {.after = &first, .after_count = 1};
    bson_error_t error;
    uint32_t count;

    cancelled = add_after(queue, &first, 1, TRUCE_FAILURE_CANCEL);
    chain = add_after(queue, &cancelled, 1, TRUCE_FAILURE_CANCEL);
    goes = add_after(queue, &first, 1, TRUCE_FAILURE_GO_ON);
    waits = add_after(queue, &first, 1, TRUCE_FAILURE_WAIT);
    kill_next(queue, &first);
    CHECK_STATE("dead", queue, &first);
    CHECK_STATE("cancelled", queue, &cancelled);
    CHECK_STATE("cancelled", queue, &chain);
    CHECK_STATE("ready", queue, &goes);
    CHECK_STATE("blocked", queue, &waits);
    CHECK_INT(count_json(store, "truce_queue", "{'errors.0.text': {'$regex': 'is dead$'}}"), ==, 1);
    CHECK_INT(findings(store, false), ==, 0);
    check_reason(store, &goes);
    end_next(queue, &goes, "{}");
    refused(queue, TRUCE_INVALID, &options, "is dead");
    CHECK_OK(truce_queue_redrive(queue, 0, &count, &error), error);
    end_next(queue, &first, "{}"); /* its second life */
    CHECK_STATE("ready", queue, &waits);
    CHECK_STATE("ready", queue, &cancelled);
    CHECK_STATE("blocked", queue, &chain);
    for (int i = 0; i < 3; i++)
        end_next(queue, NULL, "{}");
    CHECK_STATE("done", queue, &chain);
    rig_no_job(queue);
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(queue);
}

TEST(cancels_continues_or_blocks_jobs_after_a_failed_one)
{
    rig_everywhere(failures);
}

static void by_hand(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t both[2] = {rig_add(queue, "{}", NULL), rig_add(queue, "{}", NULL)}, last, waits;
    bson_error_t error;

    last = add_after(queue, both, 2, 0);
    CHECK_OK(truce_queue_cancel(queue, NULL, &last, &error), error);
    end_next(queue, &both[0], "{}");
    CHECK_STATE("cancelled", queue, &last);
    CHECK_OK(truce_queue_retry(queue, NULL, &last, &error), error);
    CHECK_STATE("blocked", queue, &last); /* it still waits for the other one */
    waits = add_after(queue, &both[1], 1, TRUCE_FAILURE_WAIT);
    CHECK_OK(truce_queue_cancel(queue, NULL, &both[1], &error), error);
    CHECK_STATE("cancelled", queue, &last);
    CHECK_STATE("cancelled", queue, &waits); /* cancellation is final */
    CHECK_INT(findings(store, false), ==, 0);
    both[0] = rig_add(queue, "{}", NULL);
    last = add_after(queue, both, 1, 0);
    CHECK_OK(truce_queue_cancel(queue, NULL, &last, &error), error);
    end_next(queue, &both[0], "{}");
    CHECK_STATE("cancelled", queue, &last); /* it stays so, though it waits for no job */
    rig_no_job(queue);
    both[0] = rig_add(queue, "{}", NULL);
    waits = add_after(queue, both, 1, TRUCE_FAILURE_WAIT);
    kill_next(queue, both);
    CHECK_STATE("blocked", queue, &waits);
    CHECK_OK(truce_queue_discard(queue, NULL, &both[0], &error), error);
    CHECK_STATE("cancelled", queue, &waits); /* a dead letter that is discarded */
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(queue);
}

/* a, x -> b -> c; b -> d, cancelled by hand; x -> e; k: the key of c has another job. */
static void again(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    truce_job_options options = {.after_count = 1, .unique = "k"},
                      key = {.unique = "k", .priority = 9}, one = {.attempts_max = 1},
                      high = {.attempts_max = 1, .priority = 5};
    bson_oid_t a[2] = {rig_add(queue, "{'n': 1}", &high), rig_add(queue, "{'n': 2}", &one)}, b, c,
               d, e, k, keyed;
    struct rig_findings found = {"job", 0};
    truce_check_report report;
    bson_error_t error;

    b = add_after(queue, a, 2, TRUCE_FAILURE_CANCEL);
    c = add_after(queue, &b, 1, TRUCE_FAILURE_CANCEL);
    d = add_after(queue, &b, 1, TRUCE_FAILURE_CANCEL);
    e = add_after(queue, &a[1], 1, TRUCE_FAILURE_CANCEL);
    options.after = &b;
    keyed = rig_add(queue, "{'n': 3}", &options);
    CHECK_OK(truce_queue_cancel(queue, NULL, &d, &error), error);
    end_next(queue, &a[0], NULL);
    CHECK_STATE("cancelled", queue, &b);
    CHECK_STATE("cancelled", queue, &c);
    CHECK_STATE("cancelled", queue, &keyed);
    CHECK_STATE("blocked", queue, &e);
    end_next(queue, &a[1], NULL);
    CHECK_STATE("cancelled", queue, &e);
    k = rig_add(queue, "{'n': 4}", &key);
    CHECK_OK(truce_queue_retry(queue, NULL, &a[0], &error), error);
    CHECK_STATE("cancelled", queue, &b); /* the other one is still dead */
    end_next(queue, &k, "{}");
    end_next(queue, &a[0], "{}");
    CHECK_STATE("cancelled", queue, &b);
    k = rig_add(queue, "{'n': 4}", &key);
    CHECK_OK(truce_queue_retry(queue, NULL, &a[1], &error), error);
    CHECK_STATE("blocked", queue, &b);
    CHECK_STATE("blocked", queue, &c);
    CHECK_STATE("blocked", queue, &e);
    CHECK_STATE("cancelled", queue, &d);
    CHECK_STATE("cancelled", queue, &keyed);
    end_next(queue, &k, "{}");
    end_next(queue, &a[1], NULL); /* once more, and with the same result */
    CHECK_STATE("cancelled", queue, &c);
    CHECK_STATE("cancelled", queue, &e);
    CHECK_OK(truce_queue_discard(queue, NULL, &e, &error), error);
    CHECK_OK(truce_queue_retry(queue, NULL, &c, &error), error); /* by hand: it waits for no job */
    end_next(queue, &c, "{}");
    CHECK_OK(truce_queue_retry(queue, NULL, &a[1], &error), error);
    end_next(queue, &a[1], "{}");
    CHECK_STATE("discarded", queue, &e);
    end_next(queue, &b, "{}");
    CHECK_STATE("done", queue, &c);
    end_next(queue, &keyed, "{}"); /* its key was free by then */
    rig_no_job(queue);
    CHECK_OK(truce_check(store, NULL, rig_count_finding, &found, &report, &error), error);
    CHECK_INT(found.count, ==, 0);
    CHECK_INT(
        count_json(store, "truce_queue", "{'state': 'done', 'after.failed': {'$exists': true}}"),
        ==, 0);
    truce_queue_free(queue);
}

TEST(jobs_that_were_cancelled_with_another_wait_for_its_retry)
{
    rig_everywhere(again);
}

/* Jobs that were not notified before the retry continue to wait, too. */
static void again_many(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t first = rig_add(queue, "{'n': 1}", NULL);
    bson_error_t error;

    for (int i = 0; i < 120; i++)
        add_after(queue, &first, 1, TRUCE_FAILURE_CANCEL);
    kill_next(queue, &first);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'cancelled'}"), ==, 100);
    CHECK_OK(truce_queue_retry(queue, NULL, &first, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'blocked', 'after.left': 1}"), ==, 120);
    end_next(queue, &first, "{}");
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'ready'}"), ==, 100);
    truce_queue_free(queue);
}

TEST(a_retry_also_revokes_jobs_that_one_commit_could_not_notify)
{
    truce_store *store;

    if (server_under_test()) {
        test_skip("some hundred commits are too slow there");
        return;
    }
    store = open_setting(&settings[0]);
    again_many(store, &settings[0]);
    truce_store_close(store);
}

TEST(jobs_that_wait_are_cancelled_and_retried_by_hand)
{
    rig_everywhere(by_hand);
}

/* ---- more notifications than one commit holds ------------------------------------------------ */

#define MANY 250

static void many(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t first = rig_add(queue, "{}", NULL), chain = first;
    truce_job_options options = {.after = &first, .after_count = 1};
    const char *blocked = "{'state': 'blocked'}";
    truce_sweep_report report;
    bson_error_t error;

    for (int i = 0; i < MANY; i++) {
        rig_add(queue, "{}", &options);
        chain = add_after(queue, &chain, 1, 0);
    }
    CHECK_OK(truce_queue_cancel(queue, NULL, &first, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'stalled': true}"), >, 0);
    CHECK_INT(findings(store, false), ==, 0);
    for (int i = 0; i < 6000 && count_json(store, "truce_queue", blocked) > 2 * MANY - 150; i++) {
        rig_no_job(queue); /* the next claim continues the work */
        truce__clock_sleep_ms(10);
    }
    CHECK_INT(count_json(store, "truce_queue", blocked), <=, 2 * MANY - 150);
    for (int i = 0; i < 10; i++)
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{'stalled': true}"), ==, 0);
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'cancelled'}"), ==, 2 * MANY + 1);
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(queue);
}

TEST(notifies_many_waiting_jobs_in_consecutive_commits)
{
    truce_store *store;

    if (server_under_test()) {
        test_skip("some hundred commits are too slow there");
        return;
    }
    store = server_or_memory();
    many(store, NULL);
    truce_store_close(store);
}

/* ---- workflows ---- */

static truce_status add_flow(truce_queue *queue, const char *const edges[][4], size_t count,
                             bson_oid_t *ids, bson_error_t *error)
{
    truce_flow_job jobs[8] = {0};
    bson_t *payload = test_bson("{}");
    truce_status status;

    for (size_t i = 0; i < count; i++)
        jobs[i] = (truce_flow_job){
            .name = edges[i][0], .queue = queue, .payload = payload, .after = &edges[i][1]};
    status = truce_queue_add_flow(jobs, count, NULL, ids, error);
    bson_destroy(payload);
    return status;
}

static void flow(truce_store *store, const struct setting *setting)
{
    static const char *const edges[][4] = {
        {"join", "left", "right"}, {"left", "first"}, {"right", "first"}, {"first"}};
    truce_queue *queue = mail(store, setting);
    bson_oid_t ids[4];
    bson_error_t error;
    bson_t graph;

    CHECK_OK(add_flow(queue, edges, 4, ids, &error), error);
    CHECK_OK(truce_queue_graph(store, &ids[1], &graph, &error), error);
    CHECK_INT(bson_count_keys(&graph), ==, 4);
    CHECK_INT(rig_number(&graph, "0.level"), ==, 0);
    CHECK_INT(rig_number(&graph, "1.level"), ==, 1);
    CHECK_INT(rig_number(&graph, "3.level"), ==, 2);
    bson_destroy(&graph);
    end_next(queue, &ids[3], "{}");
    end_next(queue, NULL, "{}");
    CHECK_STATE("blocked", queue, &ids[0]);
    end_next(queue, NULL, "{}");
    end_next(queue, &ids[0], "{}");
    CHECK_INT(count_json(store, "truce_queue", "{'state': 'done', 'name': 'join'}"), ==, 1);
    CHECK_OK(truce_queue_graph(store, &ids[1], &graph, &error), error); /* they are still known */
    CHECK_INT(bson_count_keys(&graph), ==, 4);
    CHECK_INT(rig_number(&graph, "3.level"), ==, 2);
    bson_destroy(&graph);
    bson_oid_init_from_string(&ids[0], "000000000000000000000000");
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_graph(store, &ids[0], &graph, &error), error);
    bson_destroy(&graph);
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(queue);
}

TEST(a_workflow_fans_out_and_in)
{
    rig_everywhere(flow);
}

static void bad_flows(truce_store *store, const struct setting *setting)
{
    static const struct {
        const char *word, *edges[4][4];
        size_t count;
    } bad[] = {
        {"in a cycle: b after c after d after b",
         {{"a"}, {"b", "a", "c"}, {"c", "d"}, {"d", "b"}},
         4},
        {"in a cycle: a after a", {{"a", "a"}}, 1},
        {"\"a\" waits for \"x\", which the workflow does not contain", {{"a", "x"}}, 1},
        {"two jobs of the workflow have the name \"a\"", {{"a"}, {"a"}}, 2},
        {"job 2 of the workflow has no name", {{"a"}, {NULL}}, 2},
    };
    truce_queue *queue = mail(store, setting);
    truce_job_options unique = {.unique = "k"};
    bson_t *payload = test_bson("{}");
    truce_flow_job one = {.name = "a", .queue = queue, .payload = payload, .options = &unique};
    bson_error_t error = {0};
    bson_oid_t ids[4];

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_STATUS(TRUCE_INVALID, add_flow(queue, bad[i].edges, bad[i].count, ids, &error),
                     error);
        CHECK(strstr(error.message, bad[i].word));
    }
    CHECK_STATUS(TRUCE_INVALID, truce_queue_add_flow(&one, 1, NULL, ids, &error), error);
    one.options = NULL;
    one.queue = NULL;
    CHECK_STATUS(TRUCE_INVALID, truce_queue_add_flow(&one, 1, NULL, ids, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, truce_queue_add_flow(&one, FLOW_JOBS_MAX + 1, NULL, ids, &error),
                 error);
    CHECK_OK(truce_queue_add_flow(&one, 0, NULL, ids, &error), error);
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 0);
    bson_destroy(payload);
    truce_queue_free(queue);
}

TEST(refuses_invalid_workflows)
{
    rig_everywhere(bad_flows);
}

/* ---- batches ---- */

static void batch(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting), *other = rig_queue(store, setting, "other");
    truce_job_options open = {.open = true, .failure = TRUCE_FAILURE_GO_ON};
    bson_oid_t closing = rig_add(queue, "{}", &open), third, last, plain, empty;
    truce_job_options member = {.batch = &closing},
                      both = {.batch = &closing, .after = &closing, .after_count = 1};
    bson_error_t error;

    for (int i = 0; i < 2; i++)
        rig_add(queue, "{}", &member);
    end_next(queue, NULL, "{}");
    end_next(queue, NULL, "{}");
    CHECK_STATE("blocked", queue, &closing); /* it is open */
    third = rig_add(queue, "{}", &member);
    CHECK_INT(findings(store, false), ==, 0);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_close(other, NULL, &closing, &error), error);
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_queue_close(queue, NULL, &closing, &error), error);
    CHECK_STATE("blocked", queue, &closing);
    last = rig_add(queue, "{}", &member); /* one is still running: it may add others */
    CHECK_OK(truce_queue_discard(queue, NULL, &third, &error), error);
    CHECK_STATE("blocked", queue, &closing);
    end_next(queue, &last, "{}");
    CHECK_STATE("ready", queue, &closing);
    refused(queue, TRUCE_INVALID, &member, "does not close an open batch");
    refused(queue, TRUCE_INVALID, &both, "cannot wait for others");
    end_next(queue, &closing, "{}");
    plain = rig_add(queue, "{}", NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_queue_close(queue, NULL, &plain, &error), error);
    end_next(queue, &plain, "{}");
    empty = rig_add(queue, "{}", &open);
    CHECK_OK(truce_queue_close(queue, NULL, &empty, &error), error);
    end_next(queue, &empty, "{}");
    CHECK_INT(findings(store, false), ==, 0);
    truce_queue_free(other);
    truce_queue_free(queue);
}

TEST(the_closing_job_of_a_batch_waits_for_all_of_it)
{
    rig_everywhere(batch);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void wrong(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    char much[300] = {0};
    bson_oid_t nobody;
    truce_job_options options = {.after = &nobody, .after_count = 1};

    bson_oid_init_from_string(&nobody, "000000000000000000000000");
    refused(queue, TRUCE_INVALID, &options, "cannot wait for job 000000000000000000000000");
    options.after_count = JOB_AFTER_MAX + 1;
    refused(queue, TRUCE_LIMIT, &options, "cannot wait for");
    options = (truce_job_options){.batch = &nobody};
    refused(queue, TRUCE_INVALID, &options, "does not close an open batch");
    options = (truce_job_options){.failure = 3};
    refused(queue, TRUCE_INVALID, &options, "`failure`: expected TRUCE_FAILURE_CANCEL");
    memset(much, 'a', sizeof much - 1);
    options = (truce_job_options){.name = much};
    refused(queue, TRUCE_INVALID, &options, "name");
    CHECK_INT(count_json(store, "truce_queue", "{}"), ==, 0);
    truce_queue_free(queue);
}

TEST(refuses_invalid_dependencies_of_jobs)
{
    rig_everywhere(wrong);
}

static void run(truce_store *store, const char *filter, const char *update)
{
    bson_t *which = test_bson(filter), *what = test_bson(update);
    bson_error_t error;

    CHECK_OK(truce_update(store, "truce_queue", which, what, NULL, NULL, &error), error);
    bson_destroy(what);
    bson_destroy(which);
}

static void broken(truce_store *store, const struct setting *setting)
{
    truce_queue *queue = mail(store, setting);
    bson_oid_t first = rig_add(queue, "{'n': 5}", NULL), second = rig_add(queue, "{}", NULL),
               both[2] = {first, second}, last = add_after(queue, both, 2, 0);
    bson_t *filter = BCON_NEW("_id", BCON_OID(&first));
    truce_sweep_report report;
    bson_error_t error;

    CHECK_OK(truce_remove(store, "truce_queue", filter, NULL, NULL, &error), error);
    CHECK_INT(findings(store, true), ==, 1);
    CHECK_INT(findings(store, false), ==, 0);
    CHECK_STATE("blocked", queue, &last);
    run(store, "{'state': 'ready'}", /* ended by a program that knows nothing of the others */
        "{'$set': {'state': 'done'}, '$unset': {'undone': 1}}");
    CHECK_INT(findings(store, true), ==, 1);
    CHECK_INT(findings(store, false), ==, 0);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_STATE("ready", queue, &last);
    bson_destroy(filter);
    truce_queue_free(queue);
}

TEST(a_damaged_workflow_is_found_and_repaired)
{
    rig_everywhere(broken);
}
