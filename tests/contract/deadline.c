/*
 * Calls that have no deadline in their options end at that of the thread, and when they are
 * interrupted. The work of each would take seconds. The tests check that it ends, and the state
 * that it leaves.
 *
 * TRUCE_DEADLINE_ELEMENTS: how many numbers a document has.
 */
#include <pthread.h>

#include "base/budget.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/status.h"
#include "tests/support/no_sleep.h"
#include "tests/support/test.h"
#include "truce/copy.h"
#include "truce/cron.h"
#include "truce/queue.h"
#include "truce/set.h"
#include "truce/snapshot.h"
#include "truce/sweep.h"
#include "truce/sys/store.h"

#define DOCUMENTS 12

static truce_store *store;
static char path[300]; /* of it */

/* Documents {_id, a: [so many different numbers]}. */
static bson_t *long_document(int number)
{
    int elements = (int)test_scale("TRUCE_DEADLINE_ELEMENTS", 60000);
    bson_t *document = bson_new(), array;
    char key[16];

    BSON_APPEND_INT32(document, "_id", number);
    BSON_APPEND_ARRAY_BEGIN(document, "a", &array);
    for (int i = 0; i < elements; i++) {
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT32(&array, key, number * elements + i);
    }
    bson_append_array_end(document, &array);
    return document;
}

static bool open_filled(const char *uri)
{
    bson_error_t error;

    snprintf(path, sizeof path, strcmp(uri, "file:") ? "%s" : "%s%s/deadline.truce", uri,
             test_directory());
    if (!CHECK_OK(truce_store_open(path, NULL, &store, &error), error))
        return false;
    (void)!truce_collection_drop(store, "c", NULL);
    for (int i = 0; i < DOCUMENTS; i++) {
        bson_t *document = long_document(i);

        CHECK_OK(
            truce_insert(store, "c", document, &(truce_write_options){.relaxed = true}, &error),
            error);
        bson_destroy(document);
    }
    return true;
}

static int count_indexes(void)
{
    bson_error_t error;
    bson_t indexes;
    int count;

    CHECK_OK(truce_index_list(store, "c", &indexes, &error), error);
    count = bson_count_keys(&indexes);
    bson_destroy(&indexes);
    return count;
}

/* ---- the calls ------------------------------------------------------------------------------ */

static truce_status build(bool unique, bson_error_t *error)
{
    bson_t *index = test_bson(unique ? "{'key': {'a': 1}, 'unique': true}" : "{'key': {'a': 1}}");
    truce_status status = truce_index_create(store, "c", index, error);

    bson_destroy(index);
    return status;
}

static truce_status build_plain(bson_error_t *error)
{
    return build(false, error);
}

static truce_status build_unique(bson_error_t *error)
{
    return build(true, error);
}

static truce_status distinct(bson_error_t *error)
{
    bson_t values;
    truce_status status = truce_distinct(store, "c", "a", NULL, &values, error);

    bson_destroy(&values);
    return status;
}

static truce_status check(bson_error_t *error)
{
    truce_check_report report;

    return truce_check(store, NULL, NULL, NULL, &report, error);
}

typedef truce_status long_call(bson_error_t *error);

static void *interrupt_soon(void *arg)
{
    truce__clock_sleep_ms(5);
    truce_interrupt(arg);
    return NULL;
}

static void check_ends(long_call *call)
{
    bson_error_t error = {0};
    int64_t before = truce_deadline_begin(1);
    pthread_t thread;

    CHECK_STATUS(TRUCE_TIMEOUT, call(&error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    truce_deadline_end(before);
    pthread_create(&thread, NULL, interrupt_soon, store);
    CHECK_STATUS(TRUCE_TIMEOUT, call(&error), error);
    CHECK_INT(error.code, ==, CODE_INTERRUPTED);
    pthread_join(thread, NULL);
    truce_resume(store);
}

TEST(an_interrupted_index_build_leaves_no_index)
{
    REQUIRE(open_filled("file:"));
    check_ends(build_plain);
    CHECK_INT(count_indexes(), ==, 1);
    check_ends(build_unique);
    CHECK_INT(count_indexes(), ==, 1);
    truce_store_close(store);
    REQUIRE(open_filled("memory:"));
    check_ends(build_plain);
    check_ends(build_unique);
    CHECK_INT(count_indexes(), ==, 1);
    truce_store_close(store);
}

static truce_status drop_collection(bson_error_t *error)
{
    return truce_collection_drop(store, "c", error);
}

static truce_status drop_index(bson_error_t *error)
{
    return truce_index_drop(store, "c", "a_1", error);
}

/* Reopens the store, so that documents are in no cache and must be read from the file. */
static void reopen(void)
{
    bson_error_t error;

    truce_store_close(store);
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static void check_drop(long_call *call)
{
    bson_error_t error = {0};
    int64_t before;

    reopen();
    before = truce_deadline_begin(1);
    CHECK_STATUS(TRUCE_TIMEOUT, call(&error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    truce_deadline_end(before);
}

TEST(a_drop_ends_and_drops_nothing)
{
    bson_error_t error;
    int64_t count;

    REQUIRE(open_filled("file:"));
    CHECK_OK(build_plain(&error), error);
    check_drop(drop_index);
    CHECK_INT(count_indexes(), ==, 2);
    check_drop(drop_collection);
    CHECK_OK(truce_count(store, "c", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, DOCUMENTS);
    check_ends(check); /* the writer continues, and so do others */
    CHECK_OK(check(&error), error);
    CHECK_OK(drop_index(&error), error);
    CHECK_OK(drop_collection(&error), error);
    truce_store_close(store);
}

/* Ignores the rows. */
TEST(a_find_that_skips_all_ends)
{
    enum { ROWS = 40000 };
    truce_find_options skips = {.skip = 2 * ROWS};
    truce_write *writes = bson_malloc0(ROWS * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(ROWS * sizeof *outcomes);
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    bson_error_t error = {0};
    int64_t before;
    truce_status status;

    REQUIRE(open_filled("file:"));
    for (int i = 0; i < ROWS; i++)
        writes[i] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                  .collection = "rows",
                                  .document = BCON_NEW("_id", BCON_INT32(i))};
    CHECK_OK(truce_bulk(store, writes, ROWS, NULL, outcomes, &error), error);
    before = truce_deadline_begin(1);
    status = truce_find(store, "rows", NULL, &skips, &cursor, &error);
    if (!status)
        status = truce_cursor_next(cursor, &found, &error);
    CHECK_STATUS(TRUCE_TIMEOUT, status, error);
    truce_deadline_end(before);
    truce_cursor_close(cursor);
    for (int i = 0; i < ROWS; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy((bson_t *)writes[i].document);
    }
    bson_free(outcomes);
    bson_free(writes);
    truce_store_close(store);
}

TEST(ends_a_check_at_its_deadline)
{
    bson_error_t error;

    REQUIRE(open_filled("file:"));
    CHECK_OK(build_plain(&error), error);
    check_ends(check);
    CHECK_OK(check(&error), error);
    truce_store_close(store);
}

TEST(ends_a_check_of_one_snapshot_at_its_deadline)
{
    truce_store *view, *file;
    bson_error_t error;

    REQUIRE(open_filled("file:"));
    CHECK_OK(build_plain(&error), error);
    file = store;
    CHECK_OK(truce_snapshot(file, NULL, &view, &error), error);
    store = view;
    check_ends(check);
    CHECK_OK(check(&error), error);
    truce_store_close(view);
    truce_store_close(file);
}

/* The target makes the index again. */
TEST(ends_a_copy_at_its_deadline)
{
    truce_copy_report report;
    truce_store *target = NULL;
    bson_error_t error = {0};
    int64_t before;

    REQUIRE(open_filled("file:"));
    CHECK_OK(build_plain(&error), error);
    CHECK_OK(truce_store_open("memory:", NULL, &target, &error), error);
    before = truce_deadline_begin(1);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_copy(store, target, NULL, &report, &error), error);
    CHECK_INT(error.code, ==, CODE_MAX_TIME_MS_EXPIRED);
    truce_deadline_end(before);
    truce_store_close(target);
    truce_store_close(store);
}

TEST(ends_distinct_at_its_deadline)
{
    REQUIRE(open_filled("file:"));
    check_ends(distinct);
    truce_store_close(store);
    REQUIRE(open_filled("memory:"));
    check_ends(distinct);
    truce_store_close(store);
}

/* ---- the deadline of the thread -------------------------------------------------------------- */

TEST(the_earlier_deadline_counts)
{
    static const bson_t all = BSON_INITIALIZER;
    truce_count_options long_time = {.deadline_ms = 3600000};
    bson_t *filter =
        test_bson("{'$expr': {'$lt': [{'$size': {'$filter': {'input': {'$range': [0, "
                  "1000000]}, 'as': 'x', 'cond': {'$lt': ['$$x', {'$size': '$a'}]}}}}, "
                  "0]}}");
    int64_t outer, inner, now, count = 0;
    bson_error_t error;

    REQUIRE(open_filled("memory:"));
    outer = truce_deadline_begin(1);
    CHECK_INT(outer, ==, 0);
    inner = truce_deadline_begin(3600000);
    CHECK_INT(inner, ==, truce__deadline());
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "c", filter, &long_time, &count, &error), error);
    truce_deadline_end(inner);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "c", filter, &long_time, &count, &error), error);
    truce_deadline_end(outer);
    CHECK_INT(truce__deadline(), ==, 0);
    now = truce__clock_monotonic_ns();
    outer = truce_deadline_begin(7200000);
    CHECK_INT(truce__deadline(), >, now);
    inner = truce_deadline_begin(3600000);
    CHECK_INT(inner, >, truce__deadline());
    CHECK_INT(truce_deadline_begin(0), ==, truce__deadline());
    truce_deadline_end(inner);
    CHECK_INT(truce__deadline(), ==, inner);
    truce_deadline_end(outer);
    CHECK_OK(truce_count(store, "c", &all, &long_time, &count, &error), error);
    CHECK_INT(count, ==, DOCUMENTS);
    bson_destroy(filter);
    truce_store_close(store);
}

/* ---- ordered sets ---------------------------------------------------------------------------- */

static truce_store_ops watched;
static const truce_store_ops *below;
static int calls, without;

static void note(void)
{
    calls++;
    without += !truce__deadline();
}

static truce_status watched_bulk(truce_store *inner, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error)
{
    note();
    return below->bulk(inner, writes, count, options, outcomes, error);
}

static truce_status watched_find(truce_store *inner, const char *collection, const bson_t *filter,
                                 const truce_find_options *options, truce_cursor **cursor,
                                 bson_error_t *error)
{
    note();
    return below->find(inner, collection, filter, options, cursor, error);
}

TEST(every_call_of_an_ordered_set_has_its_deadline)
{
    truce_set_options options = {.collection = "students",
                                 .key = "student_id",
                                 .field = "classes",
                                 .name = "name",
                                 .form = TRUCE_SET_FORM_CLASSIC,
                                 .deadline_ms = 600000};
    bson_t *key = test_bson("{'student_id': 1}"), *element = test_bson("{'name': 'CS 101'}");
    truce_set_operation operation = {
        .verb = TRUCE_SET_ADD, .key = key, .element = element, .seq = 2};
    truce_set_converted converted;
    truce_set_collected collected;
    truce_set_result result;
    bson_t document;
    bson_error_t error;
    truce_set *set;
    int64_t number;

    REQUIRE(open_filled("memory:"));
    below = store->ops;
    watched = *below;
    watched.bulk = watched_bulk;
    watched.find = watched_find;
    store->ops = &watched;
    calls = without = 0;
    set = truce_set_new(store, &options);
    CHECK_OK(truce_set_add(set, NULL, key, element, 1, NULL, &error), error);
    CHECK_OK(truce_set_remove(set, NULL, key, element, 3, NULL, &error), error);
    CHECK_OK(truce_set_apply(set, NULL, &operation, 1, &result, &error), error);
    CHECK_OK(truce_set_show(set, key, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_set_members(set, key, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_set_record(set, "one", &operation, 1, &error), error);
    CHECK_OK(truce_set_consume(set, "one", &operation, 1, &result, &error), error);
    CHECK_OK(truce_set_source_start(set, "web", &number, &error), error);
    CHECK_OK(truce_set_source_idle(set, "web", 5, &error), error);
    CHECK_OK(truce_set_void(set, "web", 7, 8, &error), error);
    CHECK_OK(truce_set_watermark(set, &number, NULL, &error), error);
    CHECK_OK(truce_set_collect(set, &collected, &error), error);
    CHECK_OK(truce_set_convert(set, &converted, &error), error);
    CHECK_OK(truce_set_forget(set, true, &error), error);
    truce_set_free(set);
    CHECK_INT(calls, >, 10);
    CHECK_INT(without, ==, 0);
    CHECK_INT(truce__deadline(), ==, 0);
    store->ops = below;
    truce_store_close(store);
    bson_destroy(key);
    bson_destroy(element);
}

/* ---- queues ---------------------------------------------------------------------------------- */

static truce_status watched_modify(truce_store *inner, const char *collection, const bson_t *filter,
                                   const bson_t *update, const truce_modify_options *options,
                                   bson_t *document, truce_write_result *result,
                                   bson_error_t *error)
{
    note();
    return below->find_and_modify(inner, collection, filter, update, options, document, result,
                                  error);
}

static truce_status watched_count(truce_store *inner, const char *collection, const bson_t *filter,
                                  const truce_count_options *options, int64_t *count,
                                  bson_error_t *error)
{
    note();
    return below->count(inner, collection, filter, options, count, error);
}

TEST(every_call_of_a_claim_has_a_deadline_by_default)
{
    truce_queue *queue;
    bson_error_t error;
    bson_t *payload = test_bson("{'to': 'ada'}");
    truce_job *job = NULL;

    REQUIRE(open_filled("memory:"));
    below = store->ops;
    watched = *below;
    watched.bulk = watched_bulk;
    watched.find = watched_find;
    watched.find_and_modify = watched_modify;
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail"});
    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, NULL, &error), error);
    store->ops = &watched;
    calls = without = 0;
    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    truce_job_free(job);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_queue_claim_wait(queue, 1, &job, &error), error);
    CHECK_INT(calls, >, 4);
    CHECK_INT(without, ==, 0);
    CHECK_INT(truce__deadline(), ==, 0);
    store->ops = below;
    truce_queue_free(queue);
    truce_store_close(store);
    bson_destroy(payload);
}

static void watch_add(truce_queue *queue, truce_job_added *added)
{
    bson_t *payload = test_bson("{'to': 'ada'}");
    bson_error_t error;

    CHECK_OK(truce_queue_add(queue, NULL, payload, NULL, added, &error), error);
    bson_destroy(payload);
}

static void watch_end(truce_queue *queue, int how)
{
    truce_job_added added;
    truce_job *job = NULL;
    bson_error_t error;
    bson_t *progress = test_bson("{'n': 1}");

    watch_add(queue, &added);
    CHECK_OK(truce_queue_claim(queue, &job, &error), error);
    CHECK_OK(truce_job_extend(job, &error), error);
    CHECK_OK(truce_job_progress(job, progress, &error), error);
    CHECK_OK(how == 0   ? truce_job_done(job, NULL, NULL, &error)
             : how == 1 ? truce_job_fail(job, NULL, "no", 600000, &error)
             : how == 2 ? truce_job_snooze(job, NULL, 600000, &error)
                        : truce_job_discard(job, NULL, "bad", &error),
             error);
    truce_job_free(job);
    bson_destroy(progress);
}

TEST(every_call_of_a_queue_has_a_deadline_by_default)
{
    bson_t *payload = test_bson("{'to': 'ada'}"), document;
    const bson_t *payloads[] = {payload, payload};
    const truce_queue_limits limits = {.running = 1000};
    truce_job_added added;
    truce_queue *queue;
    bson_error_t error;
    uint32_t count;

    REQUIRE(open_filled("memory:"));
    below = store->ops;
    watched = *below;
    watched.bulk = watched_bulk;
    watched.find = watched_find;
    watched.count = watched_count;
    watched.find_and_modify = watched_modify;
    store->ops = &watched;
    calls = without = 0;
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail", .attempts_max = 1});
    for (int how = 0; how < 4; how++)
        watch_end(queue, how);
    CHECK_OK(truce_queue_redrive(queue, 0, &count, &error), error);
    CHECK_OK(truce_queue_add_many(queue, payloads, 2, NULL, NULL, &error), error);
    watch_add(queue, &added);
    CHECK_OK(truce_queue_get(queue, NULL, &added.id, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_queue_signal(queue, NULL, &added.id, "paid", NULL, &error), error);
    CHECK_OK(truce_queue_cancel(queue, NULL, &added.id, &error), error);
    CHECK_OK(truce_queue_retry(queue, NULL, &added.id, &error), error);
    CHECK_OK(truce_queue_discard(queue, NULL, &added.id, &error), error);
    CHECK_OK(truce_queue_pause(queue, &error), error);
    CHECK_OK(truce_queue_resume(queue, &error), error);
    CHECK_OK(truce_queue_limit(queue, &limits, &error), error);
    CHECK_OK(truce_cron_set(queue, "nightly", "0 3 * * *", payload, NULL, &error), error);
    CHECK_OK(truce_cron_pause(store, "nightly", &error), error);
    CHECK_OK(truce_cron_remove(store, "nightly", &error), error);
    CHECK_OK(truce_queue_stats(store, &document, &error), error);
    bson_destroy(&document);
    CHECK_OK(truce_queue_graph(store, &added.id, &document, &error), error);
    bson_destroy(&document);
    CHECK_INT(count, ==, 1);
    CHECK_INT(calls, >, 40);
    CHECK_INT(without, ==, 0);
    CHECK_INT(truce__deadline(), ==, 0);
    store->ops = below;
    truce_queue_free(queue);
    truce_store_close(store);
    bson_destroy(payload);
}

/* Answers nothing until the deadline. */
static truce_status silent_bulk(truce_store *inner, const truce_write *writes, size_t count,
                                const truce_bulk_options *options, truce_write_outcome *outcomes,
                                bson_error_t *error)
{
    int64_t left_ms = (truce__deadline() - truce__clock_monotonic_ns()) / 1000000;

    (void)inner, (void)writes, (void)options;
    note();
    memset(outcomes, 0, count * sizeof *outcomes);
    truce__clock_sleep_ms(left_ms > 0 ? left_ms + 1 : 1);
    return truce__fail(TRUCE_UNKNOWN, error, "no reply");
}

TEST(waits_once_for_a_silent_server_when_it_ends_many_jobs)
{
    enum { JOBS = 20 };
    truce_status statuses[JOBS];
    truce_job *jobs[JOBS];
    bson_error_t error;
    truce_queue *queue;
    int64_t begun_ns;
    size_t count;

    no_sleep_begin();
    REQUIRE(open_filled("memory:"));
    store->capabilities &= ~(uint64_t)TRUCE_CAN_REWRITE;
    queue = truce_queue_new(store, &(truce_queue_options){.queue = "mail"});
    for (int i = 0; i < JOBS; i++)
        watch_add(queue, NULL);
    CHECK_OK(truce_queue_claim_many(queue, JOBS, jobs, &count, &error), error);
    REQUIRE(count == JOBS);
    below = store->ops;
    watched = *below;
    watched.bulk = silent_bulk;
    store->ops = &watched;
    calls = without = 0;
    begun_ns = truce__clock_monotonic_ns();
    CHECK_STATUS(TRUCE_UNKNOWN, truce_queue_done_many(queue, jobs, count, NULL, statuses, &error),
                 error);
    CHECK_INT((truce__clock_monotonic_ns() - begun_ns) / 1000000, <, 45000);
    CHECK_INT(calls, >=, JOBS);
    CHECK_INT(without, ==, 0);
    store->ops = below;
    for (int i = 0; i < JOBS; i++) {
        CHECK(statuses[i] != TRUCE_OK);
        truce_job_free(jobs[i]);
    }
    truce_queue_free(queue);
    truce_store_close(store);
    truce__environment_use(NULL);
}

/* ---- constants and patterns ------------------------------------------------------------------ */

static truce_status run(const char *json, uint32_t deadline_ms, bson_error_t *error)
{
    bson_t *pipeline = test_bson(json);
    truce_aggregate_options options = {.deadline_ms = deadline_ms};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status = truce_aggregate(store, "c", pipeline, &options, &cursor, error);

    if (!status)
        status = truce_cursor_next(cursor, &document, error);
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    return status;
}

#define SIZE  "{'$size': [{'$setUnion': [{'$range': [0, 100000]}, {'$range': [100000, 200000]}]}]}"
#define SIZES SIZE ", " SIZE ", " SIZE ", " SIZE
#define SUM   "[{'$project': {'x': {'$add': [" SIZES "]}, 'y': {'$add': [" SIZES "]}}}]"

TEST(constants_that_take_long_are_computed_in_the_time_of_the_call)
{
    bson_error_t error;

    REQUIRE(open_filled("memory:"));
    CHECK_STATUS(TRUCE_TIMEOUT, run(SUM, 1, &error), error);
    CHECK_STATUS(TRUCE_INVALID, run("[{'$project': {'x': {'$divide': [1, 0]}}}]", 0, &error),
                 error);
    CHECK_OK(run("[{'$project': {'x': " SIZE "}}]", 0, &error), error);
    truce_store_close(store);
}

/* Half a megabyte, in which each return point has half a million others after it. */
TEST(a_pattern_with_many_gaps_ends_at_its_maximum_and_at_the_deadline)
{
    enum { BYTES = 512 * 1024 };
    char *text = bson_malloc(BYTES + 1);
    bson_t *filter = test_bson("{'t': {'$regex': 'a.*b.*c.*d.*e'}}");
    truce_count_options soon = {.deadline_ms = 1};
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    int64_t count;

    for (int i = 0; i < BYTES; i++)
        text[i] = "abcd"[i % 4];
    text[BYTES] = 0;
    REQUIRE(open_filled("memory:"));
    BSON_APPEND_UTF8(&document, "t", text);
    CHECK_OK(truce_insert(store, "t", &document, NULL, &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "t", filter, &soon, &count, &error), error);
    CHECK(truce_count(store, "t", filter, NULL, &count, &error) != TRUCE_OK);
    CHECK_STATUS(TRUCE_LIMIT, truce_count(store, "t", filter, NULL, &count, &error), error);
    truce_store_close(store);
    bson_destroy(&document);
    bson_destroy(filter);
    bson_free(text);
}
