/* Documents that feed a $group: from the first batch, then directly from the file. */
#include "engine/documents/query.h"

#include <sched.h>
#include <stdio.h>

#include "base/status.h"
#include "engine/storage/kv_connection.h"
#include "tests/support/pipeline.h"
#include "tests/support/processor.h"
#include "tests/support/test.h"

#define DOCUMENTS 9000 /* of more snapshots than one */

static char path[400];
static truce_store *store;

/* {_id: i, n: count - i, m: i % 10, text} */
static bool fill(int count, const char *text, bson_error_t *error)
{
    truce_write *writes = bson_malloc0((size_t)count * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0((size_t)count * sizeof *outcomes);
    bool filled;

    for (int i = 0; i < count; i++)
        writes[i] =
            (truce_write){.kind = TRUCE_WRITE_INSERT,
                          .collection = "c",
                          .document = BCON_NEW("_id", BCON_INT32(i), "n", BCON_INT32(count - i),
                                               "m", BCON_INT32(i % 10), "text", BCON_UTF8(text))};
    filled = CHECK_OK(truce_bulk(store, writes, (size_t)count, NULL, outcomes, error), *error);
    for (int i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy((bson_t *)writes[i].document);
    }
    bson_free(writes);
    bson_free(outcomes);
    return filled;
}

/* with an index on n */
static bool open_filled(void)
{
    bson_t *index = test_bson("{'key': {'n': 1}}");
    bson_error_t error;
    bool opened;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    opened = CHECK_OK(truce_store_open(path, NULL, &store, &error), error) &&
             CHECK_OK(truce_index_create(store, "c", index, &error), error) &&
             fill(DOCUMENTS, "", &error);
    bson_destroy(index);
    return opened;
}

/* `pipeline` as {"v": [...]}; `result` is the only document. */
static truce_status report(const char *pipeline, const truce_aggregate_options *options,
                           bson_t *result, bson_error_t *error)
{
    bson_t *stages = test_array(pipeline);
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_aggregate(store, "c", stages, options, &cursor, error);

    bson_init(result);
    if (!status)
        status = truce_cursor_next(cursor, &document, error);
    if (!status && document) {
        bson_copy_to(document, result);
        CHECK_OK(truce_cursor_next(cursor, &document, error), *error);
        CHECK(!document);
    }
    truce_cursor_close(cursor);
    bson_destroy(stages);
    return status;
}

static void check_report(const char *pipeline, const char *expected)
{
    bson_t *wanted = test_bson(expected), result;
    bson_error_t error;

    CHECK_OK(report(pipeline, NULL, &result, &error), error);
    if (!CHECK_BSON(wanted, &result))
        test_fail(__FILE__, __LINE__, "of %s", pipeline);
    bson_destroy(wanted);
    bson_destroy(&result);
}

#define COUNT                                                                                      \
    "{'$group': {'_id': null, 'n': {'$sum': 1}, 'first': {'$first': '$_id'},"                      \
    " 'last': {'$last': '$_id'}, 'sum': {'$sum': '$_id'}}}"

TEST(a_report_has_each_document_once_in_their_order)
{
    REQUIRE(open_filled());
    check_report("{'v': [" COUNT "]}",
                 "{'_id': null, 'n': 9000, 'first': 0, 'last': 8999, 'sum': 40495500}");
    check_report("{'v': [{'$match': {'m': 3}}, " COUNT "]}",
                 "{'_id': null, 'n': 900, 'first': 3, 'last': 8993, 'sum': 4048200}");
    check_report("{'v': [{'$match': {'_id': 7}}, " COUNT "]}",
                 "{'_id': null, 'n': 1, 'first': 7, 'last': 7, 'sum': 7}");
    check_report("{'v': [{'$match': {'m': 10}}, " COUNT "]}", "{}");
    truce_store_close(store);
}

TEST(a_report_of_a_limit_has_so_many_documents)
{
    REQUIRE(open_filled());
    check_report("{'v': [{'$limit': 5}, " COUNT "]}",
                 "{'_id': null, 'n': 5, 'first': 0, 'last': 4, 'sum': 10}");
    check_report("{'v': [{'$sort': {'_id': -1}}, {'$limit': 100}, " COUNT "]}",
                 "{'_id': null, 'n': 100, 'first': 8999, 'last': 8900, 'sum': 894950}");
    check_report("{'v': [{'$sort': {'_id': 1}}, {'$limit': 6000}, " COUNT "]}",
                 "{'_id': null, 'n': 6000, 'first': 0, 'last': 5999, 'sum': 17997000}");
    truce_store_close(store);
}

TEST(sorts_a_report_without_an_index)
{
    REQUIRE(open_filled());
    check_report("{'v': [{'$match': {'n': {'$gt': 1000}}}, {'$sort': {'_id': -1}},"
                 " {'$limit': 3}, " COUNT "]}",
                 "{'_id': null, 'n': 3, 'first': 7999, 'last': 7997, 'sum': 23994}");
    check_report("{'v': [{'$sort': {'m': -1, '_id': 1}}, {'$limit': 901}, " COUNT "]}",
                 "{'_id': null, 'n': 901, 'first': 9, 'last': 8, 'sum': 4053608}");
    truce_store_close(store);
}

TEST(ends_a_report_at_the_first_document_that_fails)
{
    bson_error_t error = {0};
    bson_t result;

    REQUIRE(open_filled());
    /* in the first batch; after it; in the last snapshot */
    for (int wrong = 3; wrong < DOCUMENTS; wrong += 4400) {
        char *pipeline =
            bson_strdup_printf("{'v': [{'$group': {'_id': null, 's': {'$sum': {'$divide': [1,"
                               " {'$subtract': ['$_id', %d]}]}}}}]}",
                               wrong);

        error.code = 0;
        CHECK(report(pipeline, NULL, &result, &error) != TRUCE_OK);
        CHECK_INT(error.code, ==, CODE_BAD_VALUE);
        CHECK(strstr(error.message, "zero"));
        bson_destroy(&result);
        bson_free(pipeline);
    }
    truce_store_close(store);
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static bool take_one(const struct found *found, void *arg)
{
    ++*(int *)arg;
    return true;
}

TEST(a_find_that_fails_before_it_reads_leaves_no_snapshot_open)
{
    bson_t *wrong = test_bson("{'a': {'$nothing': 1}}");
    truce_find_options options = {.projection = wrong};
    truce_cursor *cursor;
    bson_error_t error;

    REQUIRE(open_filled());
    CHECK(truce_find(store, "c", NULL, &options, &cursor, &error) != TRUCE_OK);
    truce_store_close(store); /* asserts that all are closed */
    bson_destroy(wrong);
}

/* A checkpoint waits for the snapshots that are open. */
TEST(no_snapshot_is_open_for_more_than_some_thousand_documents)
{
    static const truce_find_options all = {0};
    static const bson_t everything = BSON_INITIALIZER;
    truce_store_options options = {0};
    struct engine *engine;
    struct query query;
    bson_error_t error;
    int taken = 0, runs = 0;

    REQUIRE(open_filled());
    truce_store_close(store);
    REQUIRE(CHECK_OK(truce__engine_open(path, &options, &engine, &error), error));
    CHECK_OK(truce__query_init(&query, engine, "c", &everything, &all, PLAN_DOCUMENTS, &error),
             error);
    for (; !query.done && runs < 10; runs++) {
        int before = taken;

        CHECK_OK(truce__query_run(&query, take_one, &taken, &error), error);
        CHECK_INT(taken - before, <=, 4096);
    }
    CHECK_INT(runs, ==, 3);
    CHECK_INT(taken, ==, DOCUMENTS);
    truce__query_release(&query);
    truce__engine_close(engine);
}

/* ---- pages kept by readers ------------------------------------------------------------------- */

#define TEXTS      3000 /* of three kilobytes each, so one on a page */
#define TEXT_BYTES 3000
#define FEW_BYTES  (2 << 20)

static void *read_all(void *engine)
{
    bson_t *filter = test_bson("{'nothing': null}");
    static const truce_find_options all = {0};
    bson_error_t error;
    int64_t count;

    CHECK_OK(truce__engine_count(engine, "c", filter, &all, &count, &error), error);
    CHECK_INT(count, ==, TEXTS);
    bson_destroy(filter);
    return NULL;
}

static int cache_of(struct reader *reader)
{
    int bytes = 0, ignored;

    if (reader->kv)
        CHECK(!sqlite3_db_status(reader->kv->db, SQLITE_DBSTATUS_CACHE_USED, &bytes, &ignored, 0));
    return bytes;
}

TEST(a_report_leaves_few_pages_with_its_reader)
{
    enum { TAKEN = 5 };
    struct reader *taken[TAKEN];
    truce_store_options options = {0};
    cpu_set_t before;
    struct engine *engine;
    bson_error_t error;
    char text[TEXT_BYTES + 1];
    int opened = 0;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    memset(text, 'x', TEXT_BYTES);
    text[TEXT_BYTES] = 0;
    REQUIRE(CHECK_OK(truce_store_open(path, NULL, &store, &error), error));
    fill(TEXTS, text, &error);
    truce_store_close(store);
    CHECK(!sched_getaffinity(0, sizeof before, &before));
    processor_stay();
    REQUIRE(CHECK_OK(truce__engine_open(path, &options, &engine, &error), error));
    for (int i = 0; i < TAKEN; i++) {
        read_all(engine);
        REQUIRE(CHECK_OK(truce__readers_begin(&engine->readers, false, &taken[i], &error), error));
    }
    for (int i = 0; i < TAKEN; i++)
        truce__readers_end(&engine->readers, taken[i]);
    CHECK(!sched_setaffinity(0, sizeof before, &before));
    for (int i = 0; i < READERS_MAX; i++) {
        opened += engine->readers.all[i].kv != NULL;
        CHECK_INT(cache_of(&engine->readers.all[i]), <, FEW_BYTES);
    }
    CHECK_INT(opened, >=, TAKEN);
    truce__engine_close(engine);
}
