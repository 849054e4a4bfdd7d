/* find over the wire: parts of an index, by min and max; keys and records; invalid combinations. */
#include <string.h>

#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(bool memory)
{
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/find.truce", test_directory());
    REQUIRE(!truce_store_open(memory ? "memory:" : path, NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    done("{'createIndexes': 'c', 'indexes': [{'key': {'a': 1, 'b': -1}, 'name': 'ab'}, {'key': "
         "{'t': 1}, 'name': 't'}], '$db': 'test'}");
    done("{'insert': 'c', 'documents': [{'_id': 1, 'a': 2, 'b': 1, 't': [1, 9]}, {'_id': 2, 'a': "
         "1, 'b': 1, 't': 5}, {'_id': 3, 'a': 1, 'b': 2}, {'_id': 4, 'a': 3, 'b': 0, 't': 7}], "
         "'$db': 'test'}");
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

#define SESSION                                                                                    \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "       \
    "'txnNumber': {'$numberLong': '1'}, 'autocommit': false"

/* Returns the result of {find: c, ...}. */
static void expect_found(const char *more, const char *json)
{
    bson_t *wanted = test_bson(json), found;
    bson_iter_t at, batch;
    char text[900];
    bson_t *reply;

    snprintf(text, sizeof text, "{'find': 'c', %s, '$db': 'test'}", more);
    reply = ask(text);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    if (CHECK(bson_iter_init(&at, reply) &&
              bson_iter_find_descendant(&at, "cursor.firstBatch", &batch))) {
        bson_init_static(&found, bson_iter_value(&batch)->value.v_doc.data,
                         bson_iter_value(&batch)->value.v_doc.data_len);
        CHECK_BSON(wanted, &found);
    }
    bson_destroy(reply);
    bson_destroy(wanted);
}

static void expect_refused(const char *more, int64_t code)
{
    char text[900];

    snprintf(text, sizeof text, "{'find': 'c', %s, '$db': 'test'}", more);
    expect_code(text, code);
}

static void find_parts(bool memory)
{
    begin(memory);
    expect_found("'hint': 'ab', 'min': {'a': 1, 'b': 1}, 'max': {'a': 3, 'b': 0}, 'projection': "
                 "{'a': 1}",
                 "[{'_id': 2, 'a': 1}, {'_id': 1, 'a': 2}]");
    expect_found("'hint': {'a': 1, 'b': -1}, 'max': {'a': 1, 'b': 0}, 'returnKey': true",
                 "[{'a': 1, 'b': 2}, {'a': 1, 'b': 1}]");
    expect_found("'hint': 't', 'min': {'t': 2}, 'filter': {'a': {'$gt': 1}}, 'skip': 1, 'limit': "
                 "1, 'projection': {'a': 1}",
                 "[{'_id': 1, 'a': 2}]");
    expect_found("'filter': {'_id': 3}, 'showRecordId': true, 'projection': {'a': 1}",
                 "[{'_id': 3, 'a': 1, '$recordId': {'$numberLong': '3'}}]");
    expect_found("'filter': {'_id': 2}, 'showRecordId': true",
                 "[{'_id': 2, 'a': 1, 'b': 1, 't': 5, '$recordId': {'$numberLong': '2'}}]");
    expect_found("'hint': 't', 'returnKey': true, 'showRecordId': true, 'sort': {'_id': -1}, "
                 "'filter': {'_id': {'$gt': 1}}",
                 "[{'t': 7}, {'t': null}, {'t': 5}]");
    expect_found("'filter': {'_id': 3}, 'returnKey': true", memory ? "[{}]" : "[{'_id': 3}]");
    expect_found("'sort': {'_id': 1}, 'limit': 2, 'returnKey': true, 'showRecordId': true",
                 memory ? "[{}, {}]" : "[{'_id': 1}, {'_id': 2}]");
    expect_found("'filter': {'x': null}, 'limit': 1, 'returnKey': true", "[{}]");
    end();
}

TEST(find_keeps_to_a_part_of_an_index_and_shows_keys_and_records)
{
    find_parts(false);
    find_parts(true);
}

TEST(refuses_invalid_min_and_max_with_mongodbs_codes)
{
    begin(false);
    expect_refused("'min': {'a': 1}", 51173);
    expect_refused("'hint': 'ab', 'min': {'a': 1}", 51174);
    expect_refused("'hint': 'ab', 'min': {'a': 1, 'b': 1}, 'max': {'a': 1, 'b': 1}", 51175);
    expect_refused("'hint': 'ab', 'min': {'a': 1, 'b': 1}, 'max': {'b': 1}", 51176);
    expect_refused("'hint': 'none', 'min': {'a': 1}", 2);
    expect_refused("'hint': {'$natural': 1}, 'min': {'a': 1}", 291);
    expect_refused("'hint': 't', 'sort': {'$natural': 1}, 'min': {'t': 1}", 291);
    expect_refused("'hint': 'ab', 'min': 1", 14);
    expect_refused("'hint': 'ab', 'min': {'a': 1, 'b': 1}, 'apiVersion': '1', 'apiStrict': true",
                   323);
    done("{'create': 'v', 'viewOn': 'c', '$db': 'test'}");
    expect_code("{'find': 'v', 'hint': 't', 'min': {'t': 1}, '$db': 'test'}", 168);
    expect_code("{'find': 'v', 'hint': 't', 'max': {'t': 1}, '$db': 'test'}", 168);
    expect_code("{'find': 'v', 'returnKey': true, '$db': 'test'}", 168);
    expect_code("{'find': 'v', 'showRecordId': true, '$db': 'test'}", 168);
    expect_code("{'find': 'v', 'returnKey': false, 'showRecordId': false, '$db': 'test'}", 0);
    end();
}

TEST(finds_its_own_writes_of_a_transaction_in_the_order_of_the_index)
{
    begin(false);
    done("{'insert': 'c', 'documents': [{'_id': 5, 't': 6}], 'startTransaction': true, " SESSION
         ", '$db': 'test'}");
    done("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'t': [8, 2]}}}], " SESSION
         ", '$db': 'test'}");
    done("{'delete': 'c', 'deletes': [{'q': {'_id': 4}, 'limit': 1}], " SESSION ", '$db': 'test'}");
    expect_found("'hint': 't', 'min': {'t': 3}, 'returnKey': true, " SESSION,
                 "[{'t': 5}, {'t': 6}, {'t': 8}]");
    expect_found("'hint': 't', 'min': {'t': 1}, 'max': {'t': 6}, 'projection': {'t': 1}, " SESSION,
                 "[{'_id': 1, 't': [8, 2]}, {'_id': 2, 't': 5}]");
    expect_found("'hint': 't', 'min': {'t': 3}, 'returnKey': true",
                 "[{'t': 5}, {'t': 7}, {'t': 9}]");
    expect_refused("'showRecordId': true, " SESSION, 263);
    end();
}

static int64_t plan_has(const char *more, const char *word)
{
    char text[900];
    bson_t *reply;
    char *json;
    int64_t found;

    snprintf(text, sizeof text, "{'explain': {'find': 'c', %s}, '$db': 'test'}", more);
    reply = ask(text);
    json = bson_as_relaxed_extended_json(reply, NULL);
    found = strstr(json, word) != NULL;
    if (!found)
        printf("    %s\n", json);
    bson_free(json);
    bson_destroy(reply);
    return found;
}

TEST(explains_the_scanned_part_of_the_index)
{
    bson_t *reply;

    begin(false);
    reply = ask("{'explain': {'find': 'c', 'hint': 'ab', 'min': {'a': 2, 'b': 1}}, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "executionStats.totalKeysExamined"), ==, 2);
    CHECK_INT(reply_number(reply, "executionStats.nReturned"), ==, 2);
    bson_destroy(reply);
    CHECK(plan_has("'hint': 'ab', 'min': {'a': 2, 'b': 1}, 'returnKey': true", "RETURN_KEY"));
    CHECK(plan_has("'hint': '_id_', 'min': {'_id': 2}, 'filter': {'_id': 3}", "IXSCAN"));
    CHECK(plan_has("'filter': {'_id': 3}", "IDHACK"));
    end();
}
