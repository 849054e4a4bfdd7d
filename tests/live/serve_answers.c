/* The answers of the server's commands, field by field, for the fields that clients read. */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/limits.h"
#include "engine/documents/open_documents.h"
#include "server/call/call_error.h"
#include "server/call/shared_state.h"
#include "server/net/compress.h"
#include "server/net/wire_protocol.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(void)
{
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void check_text(const bson_t *reply, const char *path, const char *wanted)
{
    bson_iter_t iter, found;

    if (CHECK(bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found) &&
              BSON_ITER_HOLDS_UTF8(&found)))
        CHECK_TEXT(wanted, bson_iter_utf8(&found, NULL));
}

TEST(reports_a_duplicate_key_in_the_fields_that_clients_read)
{
    bson_t *reply;

    begin();
    bson_destroy(ask("{'createIndexes': 'c', 'indexes': [{'key': {'a': 1, 'b.c': -1}, 'name': 'i',"
                     " 'unique': true}], '$db': 'school'}"));
    bson_destroy(ask("{'insert': 'c', 'documents': [{'_id': 1, 'a': 'x', 'b': {'c': 2.5}}, {'_id': "
                     "2}], '$db': 'school'}"));
    reply = ask("{'insert': 'c', 'documents': [{'a': 'x', 'b': {'c': 2.5}}], '$db': 'school'}");
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 11000);
    CHECK_INT(reply_number(reply, "writeErrors.0.keyPattern.a"), ==, 1);
    check_text(reply, "writeErrors.0.keyValue.a", "x");
    check_text(reply, "writeErrors.0.errmsg",
               "E11000 duplicate key error collection: school.c index: i dup key: "
               "{ a: \"x\", b.c: 2.5 }");
    bson_destroy(reply);
    reply = ask("{'findAndModify': 'c', 'query': {'_id': 2}, 'update': {'$set': {'a': 'x', 'b.c': "
                "2.5}}, '$db': 'school'}");
    CHECK_INT(reply_number(reply, "code"), ==, 11000);
    check_text(reply, "keyValue.a", "x");
    bson_destroy(reply);
    bson_destroy(ask("{'insert': 'c', 'documents': [{'_id': 7}], '$db': 'test'}"));
    reply = ask("{'insert': 'c', 'documents': [{'_id': 7}], '$db': 'test'}");
    check_text(reply, "writeErrors.0.errmsg",
               "E11000 duplicate key error collection: test.c index: _id_ dup key: { _id: 7 }");
    CHECK_INT(reply_number(reply, "writeErrors.0.keyValue._id"), ==, 7);
    bson_destroy(reply);
    end();
}

TEST(sentences_of_another_form_are_left_as_they_are)
{
    static const char *const others[] = {
        "",
        "duplicate key ",
        "duplicate key {\"a\": 1}",
        "duplicate key {\"a\": 1} in the unique index \"i\"",
        "duplicate key {\"a\": 1} in the unique index \"i\" {\"a\": 1}",
        "the key {\"a\": 1} in the unique index \"i\" {\"a\": 1} of c"};
    bson_t reply = BSON_INITIALIZER;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        CHECK(!call_append_duplicate_key(others[i], "test", &reply));
    CHECK(bson_empty(&reply));
    bson_destroy(&reply);
}

TEST(formats_values_in_messages_as_mongodb_does)
{
    bson_t reply = BSON_INITIALIZER;

    CHECK(call_append_duplicate_key(
        "duplicate key {\"_id\": {\"$oid\": \"65f0c0ffee65f0c0ffee65f0\"}, \"at\": "
        "{\"$date\": \"1970-01-01T00:00:01Z\"}, \"of\": {\"x\": [1, 2.0, null], "
        "\"y\": {}, \"z\": []}} in the unique index \"i\" {\"_id\": 1} of @b.c",
        "a", &reply));
    check_text(
        &reply, "errmsg",
        "E11000 duplicate key error collection: b.c index: i dup key: { _id: "
        "ObjectId('65f0c0ffee65f0c0ffee65f0'), at: new Date(1000), of: { x: [ 1, 2.0, null ], "
        "y: {}, z: [] } }");
    bson_destroy(&reply);
}

TEST(a_key_that_was_too_long_to_show_has_no_value)
{
    bson_t reply = BSON_INITIALIZER;

    CHECK(call_append_duplicate_key(
        "duplicate key {\"a\": \"xxx... in the unique index \"i\" {\"a\": 1} of c", "test",
        &reply));
    CHECK_INT(reply_number(&reply, "keyPattern.a"), ==, 1);
    CHECK(!bson_has_field(&reply, "keyValue"));
    check_text(&reply, "errmsg",
               "E11000 duplicate key error collection: test.c index: i dup key: {\"a\": \"xxx...");
    bson_destroy(&reply);
}

/* ---- compressed ----------------------------------------------------------------------------- */

/* Sends the command compressed. Returns the decompressed answer. */
static bool ask_compressed(int end_, const char *json, int compressor, struct buffer *opened)
{
    bson_t *command = test_bson(json);
    struct buffer message, raw = {0};
    bson_error_t error;
    bool came;
    int by = 0;

    message = message_of(command, 0);
    compress_close(&message, compressor);
    CHECK(compress_is(message.bytes, message.size));
    came = send_all(end_, message.bytes, message.size) && receive_message(end_, &raw);
    if (came && CHECK(compress_is(raw.bytes, raw.size)))
        CHECK(compress_open(raw.bytes, raw.size, TRUCE_MESSAGE_BYTES_MAX, opened, &by, &error) &&
              by == compressor);
    truce__buffer_release(&message);
    truce__buffer_release(&raw);
    bson_destroy(command);
    return came;
}

#define LETTERS(text) text text text text text text text text text text
#define MANY          LETTERS(LETTERS(LETTERS("x")))

TEST(compresses_the_reply_to_a_compressed_message)
{
    bson_t *reply;

    begin();
    reply =
        ask("{'hello': 1, 'compression': ['frob', 'zstd', 7, 'snappy', 'zlib'], '$db': 'admin'}");
    check_text(reply, "compression.0", "zstd");
    check_text(reply, "compression.1", "snappy");
    check_text(reply, "compression.2", "zlib");
    bson_destroy(reply);
    reply = ask("{'hello': 1, 'compression': ['frob'], '$db': 'admin'}");
    CHECK(!bson_has_field(reply, "compression"));
    bson_destroy(reply);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'a': '" MANY "'}], '$db': 'test'}", 0);
    for (int compressor = 1; compressor <= 3; compressor++) {
        struct buffer opened = {0};
        int end_ = dial();
        bson_t answer;

        CHECK(ask_compressed(end_, "{'find': 'c', 'filter': {'a': '" MANY "'}, '$db': 'test'}",
                             compressor, &opened));
        REQUIRE(
            opened.size > WIRE_HEAD + 5 &&
            bson_init_static(&answer, opened.bytes + WIRE_HEAD + 5, opened.size - WIRE_HEAD - 5));
        CHECK_INT(reply_number(&answer, "cursor.firstBatch.0._id"), ==, 1);
        /* the next, plain, is answered plain */
        reply = ask_on(end_, "{'find': 'c', '$db': 'test'}", 0);
        CHECK_INT(reply_number(reply, "cursor.firstBatch.0._id"), ==, 1);
        bson_destroy(reply);
        truce__buffer_release(&opened);
        close(end_);
    }
    end();
}

TEST(ends_only_the_connection_of_a_compressed_message_with_a_wrong_size)
{
    static const uint32_t lies[] = {0, 1, 1 << 20, TRUCE_MESSAGE_BYTES_MAX, 0x7fffffff, 0xffffffff};
    bson_t *command = test_bson("{'ping': 1, 'comment': '" MANY "', '$db': 'test'}"), *reply;
    int other;

    begin();
    other = dial();
    for (int compressor = 1; compressor <= 3; compressor++)
        for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
            struct buffer message = message_of(command, 0), raw = {0};
            uint32_t lie = BSON_UINT32_TO_LE(lies[i]);
            int end_ = dial();

            compress_close(&message, compressor);
            memcpy(message.bytes + 20, &lie, 4);
            CHECK(!send_all(end_, message.bytes, message.size) || !receive_message(end_, &raw));
            truce__buffer_release(&message);
            truce__buffer_release(&raw);
            close(end_);
        }
    reply = ask_on(other, "{'ping': 1, '$db': 'admin'}", 0);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    bson_destroy(command);
    close(other);
    end();
}

TEST(refuses_unsupported_fields_of_the_frame)
{
    begin();
    expect_code("{'find': 'c', 'readConcern': {'level': 'snapshot'}, '$db': 'test'}", 123);
    expect_code("{'find': 'c', 'readConcern': {'level': 'majority'}, '$db': 'test'}", 0);
    expect_code("{'ping': 1, 'apiVersion': '1', 'apiStrict': true, '$db': 'test'}", 0);
    expect_code("{'ping': 1, 'apiVersion': '2', '$db': 'test'}", 322);
    expect_code("{'ping': 1, 'apiVersion': 1, '$db': 'test'}", 14);
    expect_code("{'ping': 1, 'apiStrict': true, '$db': 'test'}", 322);
    expect_code("{'ping': 1, 'apiDeprecationErrors': true, '$db': 'test'}", 322);
    expect_code("{'distinct': 'c', 'key': 'a', 'apiVersion': '1', '$db': 'test'}", 0);
    expect_code("{'distinct': 'c', 'key': 'a', 'apiVersion': '1', 'apiStrict': false, "
                "'$db': 'test'}",
                0);
    expect_code("{'distinct': 'c', 'key': 'a', 'apiVersion': '1', 'apiStrict': true, "
                "'$db': 'test'}",
                323);
    expect_code("{'find': 'c', 'allowPartialResults': true, 'tailable': null, 'apiVersion': '1', "
                "'apiStrict': true, '$db': 'test'}",
                0);
    end();
}

/* Ignores their values. */
TEST(options_that_mongodb_refuses_are_refused)
{
    static const char *const levels[] = {"local", "available", "majority", "linearizable"};
    char text[200];

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}", 0);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        snprintf(text, sizeof text, "{'find': 'c', 'readConcern': {'level': '%s'}, '$db': 'test'}",
                 levels[i]);
        expect_code(text, 0);
    }
    expect_code("{'find': 'c', 'readConcern': {}, '$db': 'test'}", 0);
    expect_code("{'find': 'c', 'readConcern': {'level': 'unknown'}, '$db': 'test'}", 2);
    expect_code("{'find': 'c', 'readConcern': {'level': 1}, '$db': 'test'}", 14);
    expect_code("{'find': 'c', 'readConcern': 'local', '$db': 'test'}", 14);
    expect_code("{'validate': 'c', 'full': true, '$db': 'test'}", 0);
    expect_code("{'validate': 'c', 'background': true, '$db': 'test'}", 0);
    expect_code("{'validate': 'c', 'full': true, 'background': true, '$db': 'test'}", 72);
    end();
}

TEST(refuses_unknown_fields_in_strict_api_mode)
{
    static const char *const fields[] = {"'tailable': false",    "'awaitData': false",
                                         "'oplogReplay': false", "'noCursorTimeout': true",
                                         "'min': {'a': 1}",      "'max': {'a': 1}",
                                         "'returnKey': false",   "'showRecordId': false"};
    static const char *const options[] = {"'showExpandedEvents': false",
                                          "'showRawUpdateDescription': false",
                                          "'showSystemEvents': true"};
    char text[300];

    begin();
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        snprintf(text, sizeof text,
                 "{'find': 'c', %s, 'apiVersion': '1', 'apiStrict': true, '$db': 'test'}",
                 fields[i]);
        expect_code(text, 323);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        snprintf(text, sizeof text,
                 "{'aggregate': 'c', 'pipeline': [{'$changeStream': {%s}}], 'cursor': {}, "
                 "'apiVersion': '1', 'apiStrict': true, '$db': 'test'}",
                 options[i]);
        expect_code(text, 323);
    }
    expect_code("{'find': 'c', 'noCursorTimeout': true, 'apiVersion': '1', 'apiStrict': false, "
                "'$db': 'test'}",
                0);
    end();
}

TEST(a_document_that_a_validator_refuses_is_named)
{
    bson_t *reply;

    begin();
    expect_code("{'create': 'c', 'validator': {'a': {'$gt': 0}}, '$db': 'test'}", 0);
    reply = ask("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 0}], "
                "'$db': 'test'}");
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 121);
    CHECK_INT(reply_number(reply, "writeErrors.0.errInfo.failingDocumentId"), ==, 2);
    CHECK(reply && bson_has_field(reply, "writeErrors.0.errInfo.details.reason"));
    bson_destroy(reply);
    reply = ask("{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'a': 0}}}], "
                "'$db': 'test'}");
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 121);
    CHECK(reply && bson_has_field(reply, "writeErrors.0.errInfo.details.reason"));
    CHECK_INT(reply_number(reply, "writeErrors.0.errInfo.failingDocumentId"), ==, 1);
    bson_destroy(reply);
    reply = ask("{'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'$set': {'a': 0}}, "
                "'$db': 'test'}");
    CHECK_INT(reply_number(reply, "code"), ==, 121);
    CHECK(reply && bson_has_field(reply, "errInfo.details.reason"));
    CHECK_INT(reply_number(reply, "errInfo.failingDocumentId"), ==, 1);
    check_text(reply, "errmsg",
               "Document failed validation: the document {\"_id\": 1} does not match the validator "
               "of c");
    bson_destroy(reply);
    end();
}

static uint64_t time_of(const bson_t *reply, const char *path)
{
    uint32_t seconds = 0, rest = 0;
    bson_iter_t iter, found;

    if (reply && bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found) &&
        BSON_ITER_HOLDS_TIMESTAMP(&found))
        bson_iter_timestamp(&found, &seconds, &rest);
    return (uint64_t)seconds << 32 | rest;
}

#define EMPTY "{'$timestamp': {'t': 0, 'i': 0}}"

/* Is the document's z empty? */
static void expect_empty(int64_t id, bool empty)
{
    char text[100];
    bson_t *reply;

    snprintf(text, sizeof text, "{'find': 'c', 'filter': {'_id': %lld}, '$db': 'test'}",
             (long long)id);
    reply = ask(text);
    CHECK(bson_has_field(reply, "cursor.firstBatch.0.z"));
    CHECK_INT(time_of(reply, "cursor.firstBatch.0.z") == 0, ==, empty);
    bson_destroy(reply);
}

TEST(refuses_an_empty_timestamp_where_it_cannot_stay_empty)
{
    static const char *const refused[] = {
        "'insert': 'c', 'documents': [{'_id': 2}, {'_id': 3, 'z': " EMPTY "}], '$db': 'test'",
        "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'z': " EMPTY "}}], '$db': 'test'",
        "'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'z': " EMPTY "}, '$db': 'test'",
        "'bulkWrite': 1, 'ops': [{'insert': 0, 'document': {'z': " EMPTY
        "}}], 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'",
        "'bulkWrite': 1, 'ops': [{'update': 0, 'filter': {'_id': 1}, 'updateMods': {'z': " EMPTY
        "}}], 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'"};
    static const char *const done[] = {
        "'insert': 'c', 'documents': [{'_id': " EMPTY ", 'd': {'z': " EMPTY "}}], '$db': 'test'",
        "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'z': " EMPTY
        "}}}, {'q': {'_id': 1}, 'u': [{'$set': {'y': 1}}]}], '$db': 'test'",
        "'findAndModify': 'c', 'query': {'_id': 9}, 'remove': true, '$db': 'test'",
        ("'bulkWrite': 1, 'ops': [{'delete': 0, 'filter': {'_id': 9}}], 'nsInfo': [{'ns': "
         "'test.c'}], '$db': 'admin'")};
    char text[400];
    bson_t *reply;

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'z': " EMPTY
                "}], 'bypassEmptyTsReplacement': false, '$db': 'test'}",
                0);
    expect_empty(1, false);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(text, sizeof text, "{%s, 'bypassEmptyTsReplacement': true}", refused[i]);
        expect_code(text, 115);
    }
    expect_empty(1, false);
    reply = ask("{'count': 'c', '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 1); /* nothing of it was executed */
    bson_destroy(reply);
    for (size_t i = 0; i < sizeof done / sizeof *done; i++) {
        snprintf(text, sizeof text, "{%s, 'bypassEmptyTsReplacement': true}", done[i]);
        expect_code(text, 0);
    }
    expect_empty(1, true);
    end();
}

TEST(reports_a_monotonic_time_of_a_replica_set)
{
    const struct server_options options = {.replica_set = "rs"};
    uint64_t last = 0, now;
    bson_error_t error = {0};
    char path[600];
    bson_t *reply;

    begin();
    reply = ask("{'ping': 1, '$db': 'test'}");
    CHECK(!bson_has_field(reply, "operationTime") && !bson_has_field(reply, "$clusterTime"));
    bson_destroy(reply);
    end();
    snprintf(path, sizeof path, "%s/time.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    for (int i = 0; i < 20; i++) {
        reply = ask(i % 2 ? "{'no': 1, '$db': 'test'}"
                          : "{'insert': 'c', 'documents': [{}], '$db': 'test'}");
        now = time_of(reply, "operationTime");
        CHECK(now >= last && now > 1);
        CHECK(now == time_of(reply, "$clusterTime.clusterTime"));
        last = now;
        bson_destroy(reply);
        if (i == 10) { /* the clock of the machine is set back by a minute */
            last += 60ull << 32;
            truce__feed_pass(&truce__file_engine_or_null(store)->writer,
                             truce__feed_position((int64_t)(last >> 32), (uint32_t)last));
        }
    }
    end();
}
