/* The options of a write statement, next to its filter and its update. */
#include <string.h>

#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A     "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"
#define WRITE A ", 'txnNumber': {'$numberLong': '1'}, '$db': 'test'"
#define IN                                                                                         \
    ", 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAg==', 'subType': '04'}}}, "     \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false"

static void begin(void)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/statements.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'config'}", 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 3}, {'_id': 2, 'v': 9}, {'_id': 3, "
                "'v': 6}], '$db': 'test'}",
                0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void expect_number(const char *json, const char *path, int64_t number)
{
    bson_t *reply = ask(json);

    if (reply_number(reply, path) != number) {
        char *text = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, __LINE__, "%s is not %lld: %s", path, (long long)number, text);
        bson_free(text);
    }
    bson_destroy(reply);
}

static void expect_count(const char *filter, int64_t n)
{
    char text[300];

    snprintf(text, sizeof text, "{'count': 'c', 'query': %s, '$db': 'test'}", filter);
    expect_number(text, "n", n);
}

#define UPDATE(statement) "{'update': 'c', 'updates': [" statement "], '$db': 'test'}"

TEST(an_update_with_a_sort_changes_the_first_in_its_order)
{
    begin();
    expect_number(UPDATE("{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': {'v': -1}}"), "nModified", 1);
    expect_count("{'_id': 2, 'w': 1}", 1);
    expect_number(UPDATE("{'q': {'v': {'$gt': 3}}, 'u': {'v': 0}, 'sort': {'v': 1}}"), "nModified",
                  1);
    expect_count("{'_id': 3, 'v': 0}", 1);
    expect_number(
        UPDATE("{'q': {'v': 77}, 'u': {'$set': {'w': 1}}, 'sort': {'v': 1}, 'upsert': true}"),
        "upserted.0.index", 0);
    expect_number(
        "{'bulkWrite': 1, 'ops': [{'update': 0, 'filter': {}, 'updateMods': {'$set': {'x': 1}}, "
        "'sort': {'v': -1}}], 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'}",
        "nModified", 1);
    expect_count("{'v': 77, 'x': 1}", 1);
    end();
}

TEST(refuses_a_sort_with_multi_and_an_invalid_sort)
{
    begin();
    expect_number(UPDATE("{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': {'v': 1}, 'multi': true}"),
                  "writeErrors.0.code", 9);
    expect_number(UPDATE("{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': {'v': 5}}"),
                  "writeErrors.0.code", 15975);
    expect_code(UPDATE("{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': 'v'}"), 14);
    expect_number(
        "{'bulkWrite': 1, 'ops': [{'update': 0, 'filter': {}, 'updateMods': {'$set': {'x': 1}}, "
        "'sort': {'v': -1}, 'multi': true}], 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'}",
        "cursor.firstBatch.0.code", 9);
    expect_count("{'w': 1}", 0);
    expect_number(UPDATE("{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': {}, 'multi': true}"),
                  "nModified", 3);
    end();
}

TEST(a_sorted_update_is_done_once_and_within_transactions)
{
    begin();
    for (int i = 0; i < 2; i++)
        expect_number(
            "{'update': 'c', 'updates': [{'q': {}, 'u': {'$inc': {'v': 100}}, 'sort': {'v': "
            "1}}], " WRITE "}",
            "nModified", 1);
    expect_count("{'v': {'$gt': 100}}", 1);
    expect_count("{'_id': 1, 'v': 103}", 1);
    expect_number(
        "{'update': 'c', 'updates': [{'q': {}, 'u': {'$set': {'w': 1}}, 'sort': {'v': 1}}, "
        "{'q': {'w': {'$exists': false}}, 'u': {'$set': {'w': 2}}, 'sort': {'v': 1}}], "
        "'startTransaction': true, '$db': 'test'" IN "}",
        "nModified", 2);
    expect_code("{'commitTransaction': 1, '$db': 'admin'" IN "}", 0);
    expect_count("{'_id': 3, 'w': 1}", 1);
    expect_count("{'_id': 2, 'w': 2}", 1);
    expect_count("{'w': {'$exists': true}}", 2);
    end();
}

#define PAST ", 'bypassDocumentValidation': true"
#define POUR(stage, more)                                                                          \
    "{'aggregate': 'c', 'pipeline': [" stage "], 'cursor': {}" more ", '$db': 'test'}"

TEST(bypasses_a_validator_in_a_pipeline_on_request)
{
    begin();
    expect_code("{'create': 'strict', 'validator': {'w': {'$exists': true}}, '$db': 'test'}", 0);
    expect_code(POUR("{'$out': 'strict'}", ""), 121);
    expect_code(POUR("{'$merge': 'strict'}", ""), 121);
    expect_number("{'count': 'strict', '$db': 'test'}", "n", 0);
    expect_code(POUR("{'$out': 'strict'}", PAST), 0);
    expect_number("{'count': 'strict', '$db': 'test'}", "n", 3);
    expect_code(POUR("{'$set': {'x': 1}}, {'$merge': 'strict'}", PAST), 0);
    expect_number("{'count': 'strict', 'query': {'x': 1}, '$db': 'test'}", "n", 3);
    expect_code("{'insert': 'strict', 'documents': [{}], '$db': 'test'}", 0);
    expect_number("{'count': 'strict', '$db': 'test'}", "n", 3);
    end();
}
