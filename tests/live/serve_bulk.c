/* bulkWrite: writes of several collections in one message, and the result of each. */
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A   "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"
#define TWO "'nsInfo': [{'ns': 'test.c'}, {'ns': 'school.d'}]"

static void begin(void)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/bulk.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'school'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'config'}", 0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* Returns a bulkWrite on the namespaces 0: test.c, and 1: school.d. */
static const char *bulk(const char *ops, const char *more)
{
    static char text[3000];

    snprintf(text, sizeof text, "{'bulkWrite': 1, 'ops': [%s], " TWO "%s, '$db': 'admin'}", ops,
             more);
    return text;
}

static void expect(const bson_t *reply, const char *path, int64_t number)
{
    if (reply_number(reply, path) != number) {
        char *text = reply ? bson_as_relaxed_extended_json(reply, NULL) : bson_strdup("nothing");

        test_fail(__FILE__, __LINE__, "%s is not %lld: %s", path, (long long)number, text);
        bson_free(text);
    }
}

static void expect_text(const bson_t *reply, const char *path, const char *part)
{
    bson_iter_t iter, found;
    const char *text = bson_iter_init(&iter, reply) &&
                               bson_iter_find_descendant(&iter, path, &found) &&
                               BSON_ITER_HOLDS_UTF8(&found)
                           ? bson_iter_utf8(&found, NULL)
                           : "";

    if (!strstr(text, part))
        test_fail(__FILE__, __LINE__, "%s has no \"%s\": \"%s\"", path, part, text);
}

static void expect_count(const char *database, const char *collection, int64_t n)
{
    char text[200];
    bson_t *reply;

    snprintf(text, sizeof text, "{'count': '%s', '$db': '%s'}", collection, database);
    reply = ask(text);
    expect(reply, "n", n);
    bson_destroy(reply);
}

#define ALL                                                                                        \
    "{'insert': 0, 'document': {'_id': 1, 'v': 1}}, {'insert': 1, 'document': {'_id': 1, 'v': "    \
    "1}}, {'insert': 1, 'document': {'_id': 2, 'v': 1}}, {'update': 1, 'filter': {'v': 1}, "       \
    "'updateMods': {'$inc': {'v': 1}}, 'multi': true}, {'update': 0, 'filter': {'_id': 9}, "       \
    "'updateMods': [{'$set': {'v': 9}}], 'upsert': true}, {'delete': 1, 'filter': {}, 'multi': "   \
    "false}, {'update': 0, 'filter': {'_id': 1}, 'updateMods': {'_id': 1, 'v': 1}}"

TEST(writes_of_all_kinds_are_done_in_all_their_collections)
{
    bson_t *reply;

    begin();
    reply = ask(bulk(ALL, ""));
    expect(reply, "ok", 1);
    expect(reply, "nErrors", 0);
    expect(reply, "nInserted", 3);
    expect(reply, "nMatched", 3);
    expect(reply, "nModified", 2);
    expect(reply, "nUpserted", 1);
    expect(reply, "nDeleted", 1);
    expect(reply, "cursor.id", 0);
    expect_text(reply, "cursor.ns", "admin.$cmd.bulkWrite");
    expect(reply, "cursor.firstBatch.0.ok", 1);
    expect(reply, "cursor.firstBatch.2.idx", 2);
    expect(reply, "cursor.firstBatch.2.n", 1);
    expect(reply, "cursor.firstBatch.2.nModified", -1);
    expect(reply, "cursor.firstBatch.3.n", 2);
    expect(reply, "cursor.firstBatch.3.nModified", 2);
    expect(reply, "cursor.firstBatch.4.n", 1);
    expect(reply, "cursor.firstBatch.4.upserted._id", 9);
    expect(reply, "cursor.firstBatch.5.n", 1);
    expect(reply, "cursor.firstBatch.6.n", 1);
    expect(reply, "cursor.firstBatch.6.nModified", 0);
    bson_destroy(reply);
    expect_count("test", "c", 2);
    expect_count("school", "d", 1);
    reply = ask(bulk("{'delete': 0, 'filter': {'$expr': {'$gt': ['$v', '$$least']}}, 'multi': "
                     "true}",
                     ", 'let': {'least': 0}, 'errorsOnly': true, 'comment': 'x'"));
    expect(reply, "nDeleted", 2);
    CHECK(!bson_has_field(reply, "cursor.firstBatch.0"));
    bson_destroy(reply);
    end();
}

TEST(reports_a_failed_statement_and_ends_an_ordered_bulk)
{
    static const char *const ops =
        "{'insert': 1, 'document': {'_id': 1, 'e': 'x'}}, {'insert': 1, 'document': {'_id': 2, "
        "'e': 'x'}}, {'update': 0, 'filter': {}, 'updateMods': {'$wrong': 1}}, {'insert': 0, "
        "'document': {'_id': 1}}";
    bson_t *reply;

    begin();
    expect_code("{'createIndexes': 'd', 'indexes': [{'key': {'e': 1}, 'name': 'e', 'unique': "
                "true}], '$db': 'school'}",
                0);
    reply = ask(bulk(ops, ""));
    expect(reply, "ok", 1);
    expect(reply, "nErrors", 1);
    expect(reply, "nInserted", 1);
    expect(reply, "cursor.firstBatch.1.ok", 0);
    expect(reply, "cursor.firstBatch.1.idx", 1);
    expect(reply, "cursor.firstBatch.1.n", 0);
    expect(reply, "cursor.firstBatch.1.code", 11000);
    expect(reply, "cursor.firstBatch.1.keyPattern.e", 1);
    expect_text(reply, "cursor.firstBatch.1.errmsg", "collection: school.d index: e");
    CHECK(!bson_has_field(reply, "cursor.firstBatch.2")); /* not reached */
    bson_destroy(reply);
    expect_code("{'delete': 'd', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'school'}", 0);
    reply = ask(bulk(ops, ", 'ordered': false, 'errorsOnly': true"));
    expect(reply, "nErrors", 2);
    expect(reply, "nInserted", 2);
    expect(reply, "cursor.firstBatch.0.idx", 1);
    expect(reply, "cursor.firstBatch.1.idx", 2);
    expect(reply, "cursor.firstBatch.1.nModified", 0);
    CHECK(!bson_has_field(reply, "cursor.firstBatch.2"));
    bson_destroy(reply);
    expect_count("test", "c", 1);
    expect_code("{'create': 'strict', 'validator': {'v': 1}, '$db': 'school'}", 0);
    reply = ask("{'bulkWrite': 1, 'nsInfo': [{'ns': 'school.strict'}], 'ops': [{'insert': 0, "
                "'document': {'_id': 5}}], '$db': 'admin'}");
    expect(reply, "cursor.firstBatch.0.code", 121);
    expect(reply, "cursor.firstBatch.0.errInfo.failingDocumentId", 5);
    bson_destroy(reply);
    reply = ask("{'bulkWrite': 1, 'nsInfo': [{'ns': 'school.strict'}], 'ops': [{'insert': 0, "
                "'document': {'_id': 5}}], 'bypassDocumentValidation': true, '$db': 'admin'}");
    expect(reply, "nInserted", 1);
    bson_destroy(reply);
    end();
}

static void expect_refused(const char *ops, const char *more, int64_t code)
{
    expect_code(bulk(ops, more), code);
}

#define FIRST "{'insert': 0, 'document': {'_id': 1}}"

TEST(refuses_an_invalid_bulk_and_executes_nothing)
{
    begin();
    expect_code("{'bulkWrite': 1, 'ops': [" FIRST "], 'nsInfo': [{'ns': 'test.c'}], '$db': 'test'}",
                13);
    expect_code("{'bulkWrite': 1, 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'}", 16);
    expect_code("{'bulkWrite': 1, 'ops': [" FIRST "], '$db': 'admin'}", 16);
    expect_code("{'bulkWrite': 1, 'ops': [" FIRST "], 'nsInfo': [{'ns': 'c'}], '$db': 'admin'}",
                73);
    expect_code("{'bulkWrite': 1, 'ops': [" FIRST "], 'nsInfo': [{}], '$db': 'admin'}", 40414);
    expect_code("{'bulkWrite': 1, 'ops': [" FIRST "], 'nsInfo': [{'ns': 'test.c', 'x': 1}], '$db': "
                "'admin'}",
                40415);
    expect_refused(FIRST ", {}", "", 9);
    expect_refused(FIRST ", {'upsert': 0}", "", 40415);
    expect_refused(FIRST ", {'insert': 2, 'document': {}}", "", 2);
    expect_refused(FIRST ", {'insert': -1, 'document': {}}", "", 2);
    expect_refused(FIRST ", {'insert': 0}", "", 40414);
    expect_refused(FIRST ", {'insert': 0, 'document': 1}", "", 14);
    expect_refused(FIRST ", {'insert': 0, 'document': {}, 'filter': {}}", "", 40415);
    expect_refused(FIRST ", {'update': 0, 'filter': {}}", "", 40414);
    expect_refused(FIRST ", {'update': 0, 'updateMods': {}}", "", 40414);
    expect_refused(FIRST ", {'update': 0, 'filter': {}, 'updateMods': {}, 'sort': 1}", "", 14);
    expect_refused(FIRST ", {'delete': 0}", "", 40414);
    expect_refused(FIRST, ", 'wrong': 1", 40415);
    expect_refused(FIRST, ", 'cursor': {'batchSize': -1}", 51024);
    expect_count("test", "c", 0);
    end();
}

/* getMore reads the other results, and then the cursor ends. */
TEST(continues_a_long_reply_by_a_cursor)
{
    char more[300];
    bson_t *reply;
    int64_t id;

    begin();
    reply = ask(bulk(ALL, ", 'cursor': {'batchSize': 3}"));
    expect(reply, "cursor.firstBatch.2.idx", 2);
    CHECK(!bson_has_field(reply, "cursor.firstBatch.3"));
    id = reply_number(reply, "cursor.id");
    CHECK(id > 0);
    expect(reply, "nUpserted", 1);
    bson_destroy(reply);
    snprintf(more, sizeof more,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': '$cmd.bulkWrite', 'batchSize': 2, "
             "'$db': 'admin'}",
             (long long)id);
    reply = ask(more);
    expect(reply, "cursor.nextBatch.0.idx", 3);
    expect(reply, "cursor.nextBatch.1.upserted._id", 9);
    expect(reply, "cursor.id", id);
    bson_destroy(reply);
    reply = ask(more);
    expect(reply, "cursor.nextBatch.1.idx", 6);
    expect(reply, "cursor.id", 0); /* no cursor remains without more results */
    bson_destroy(reply);
    expect_code(more, 43);
    reply = ask(bulk(ALL, ", 'ordered': false, 'cursor': {'batchSize': 7}"));
    expect(reply, "cursor.id", 0); /* it has all of them */
    expect(reply, "cursor.firstBatch.6.idx", 6);
    bson_destroy(reply);
    reply = ask(bulk(ALL, ", 'ordered': false, 'cursor': {'batchSize': 0}"));
    CHECK(reply_number(reply, "cursor.id") > 0); /* and is closed with the server */
    bson_destroy(reply);
    end();
}

/* Appends one section of kind 1 after the command: documents, one after the other. */
static void put_section(struct buffer *message, const char *name, const char *const *documents)
{
    size_t at;

    truce__buffer_append(message, "\1", 1);
    at = message->size;
    put_uint32(message, 0);
    truce__buffer_append(message, name, strlen(name) + 1);
    for (; *documents; documents++) {
        bson_t *document = test_bson(*documents);

        truce__buffer_append(message, bson_get_data(document), document->len);
        bson_destroy(document);
    }
    for (int i = 0; i < 4; i++)
        message->bytes[at + (size_t)i] = (uint8_t)((message->size - at) >> 8 * i);
}

TEST(reads_operations_and_namespaces_from_sections)
{
    static const char *const ops[] = {"{'insert': 1, 'document': {'_id': 1}}",
                                      "{'insert': 0, 'document': {'_id': 2}}",
                                      "{'delete': 1, 'filter': {'_id': 1}}", NULL};
    static const char *const infos[] = {"{'ns': 'test.c'}", "{'ns': 'school.d'}", NULL};
    bson_t *command = test_bson("{'bulkWrite': 1, '$db': 'admin'}"), *reply;
    struct buffer message;
    int end_;

    begin();
    message = message_of(command, 0);
    put_section(&message, "ops", ops);
    put_section(&message, "nsInfo", infos);
    for (int i = 0; i < 4; i++)
        message.bytes[i] = (uint8_t)(message.size >> 8 * i);
    end_ = dial();
    REQUIRE(send_all(end_, message.bytes, message.size));
    reply = receive_reply(end_);
    expect(reply, "nInserted", 2);
    expect(reply, "nDeleted", 1);
    expect(reply, "cursor.firstBatch.2.n", 1);
    expect_count("test", "c", 1);
    expect_count("school", "d", 0);
    bson_destroy(reply);
    bson_destroy(command);
    truce__buffer_release(&message);
    close(end_);
    end();
}

#define NUMBER(n) ", 'lsid': " A ", 'txnNumber': {'$numberLong': '" n "'}"

TEST(executes_a_repeated_bulk_once_and_returns_its_first_reply)
{
    static const char *const ops =
        "{'update': 0, 'filter': {'_id': 1}, 'updateMods': {'$inc': {'v': 1}}, 'upsert': true}, "
        "{'update': 1, 'filter': {'_id': 1}, 'updateMods': {'$inc': {'v': 1}}, 'upsert': true}, "
        "{'insert': 1, 'document': {}}, {'delete': 0, 'filter': {'_id': 1}}";
    bson_t *reply;

    begin();
    for (int i = 0; i < 2; i++) {
        reply = ask(bulk(ops, NUMBER("1")));
        expect(reply, "nErrors", 0);
        expect(reply, "nUpserted", 2);
        expect(reply, "nInserted", 1);
        expect(reply, "nDeleted", 1);
        expect(reply, "cursor.firstBatch.1.upserted._id", 1);
        expect(reply, "retriedStmtIds.3", i ? 3 : -1);
        bson_destroy(reply);
        expect_count("test", "c", 0);
        expect_count("school", "d", 2);
    }
    reply = ask(bulk("{'insert': 0, 'document': {'_id': 1}}, {'delete': 0, 'filter': {}, 'multi': "
                     "true}",
                     NUMBER("2")));
    expect(reply, "nInserted", 1);
    expect(reply, "cursor.firstBatch.1.code", 72);
    bson_destroy(reply);
    expect_count("test", "c", 1);
    end();
}

TEST(a_bulk_is_a_part_of_a_transaction)
{
    bson_t *reply;

    begin();
    reply = ask(bulk(ALL, NUMBER("1") ", 'autocommit': false, 'startTransaction': true"));
    expect(reply, "nInserted", 3);
    expect(reply, "nUpserted", 1);
    bson_destroy(reply);
    expect_count("test", "c", 0);
    expect_code("{'commitTransaction': 1" NUMBER("1") ", 'autocommit': false, '$db': 'admin'}", 0);
    expect_count("test", "c", 2);
    expect_count("school", "d", 1);
    /* a refused statement ends it */
    reply = ask(bulk("{'delete': 0, 'filter': {}, 'multi': true}, {'insert': 1, 'document': {'_id':"
                     " 2}}, {'insert': 1, 'document': {'_id': 2}}",
                     NUMBER("2") ", 'autocommit': false, 'startTransaction': true"));
    expect(reply, "nDeleted", 2);
    expect(reply, "nErrors", 1);
    bson_destroy(reply);
    expect_code("{'commitTransaction': 1" NUMBER("2") ", 'autocommit': false, '$db': 'admin'}",
                251);
    expect_count("test", "c", 2);
    end();
}

/* ---- many, and large ------------------------------------------------------------------------- */

static bson_t *send_command(const bson_t *command)
{
    struct buffer message = message_of(command, 0);
    int end_ = dial();
    bson_t *reply = send_all(end_, message.bytes, message.size) ? receive_reply(end_) : NULL;

    truce__buffer_release(&message);
    close(end_);
    return reply;
}

static void put_element(bson_t *array, int i, bson_t *element)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((uint32_t)i, &key, buffer, sizeof buffer);
    bson_append_document_begin(array, key, -1, element);
}

/* The maximum number of inserts of one _id, unordered: all except the first fail. */
static bson_t *insert_one_id(bool bulk)
{
    bson_t command = BSON_INITIALIZER, array, element, *reply;

    if (bulk)
        BCON_APPEND(&command, "bulkWrite", BCON_INT32(1), "nsInfo", "[", "{", "ns",
                    BCON_UTF8("test.c"), "}", "]");
    else
        BSON_APPEND_UTF8(&command, "insert", "c");
    BCON_APPEND(&command, "ordered", BCON_BOOL(false), "$db", BCON_UTF8(bulk ? "admin" : "test"));
    BSON_APPEND_ARRAY_BEGIN(&command, bulk ? "ops" : "documents", &array);
    for (int i = 0; i < TRUCE_BULK_MAX; i++) {
        put_element(&array, i, &element);
        if (bulk)
            BCON_APPEND(&element, "insert", BCON_INT32(0), "document", "{", "_id", BCON_INT32(1),
                        "}");
        else
            BSON_APPEND_INT32(&element, "_id", 1);
        bson_append_document_end(&array, &element);
    }
    bson_append_array_end(&command, &array);
    reply = send_command(&command);
    bson_destroy(&command);
    return reply;
}

TEST(omits_messages_after_a_megabyte_of_statement_errors)
{
    bson_t *reply;

    begin();
    reply = insert_one_id(true);
    REQUIRE(reply);
    CHECK_INT(reply->len, <, TRUCE_DOCUMENT_BYTES_MAX);
    expect(reply, "nErrors", TRUCE_BULK_MAX - 1);
    expect(reply, "cursor.id", 0);
    expect_text(reply, "cursor.firstBatch.1.errmsg", "E11000");
    expect(reply, "cursor.firstBatch.99999.code", 11000);
    expect_text(reply, "cursor.firstBatch.99999.errmsg", "");
    CHECK(!bson_has_field(reply, "cursor.firstBatch.99999.keyPattern"));
    bson_destroy(reply);
    reply = insert_one_id(false);
    REQUIRE(reply);
    CHECK_INT(reply->len, <, TRUCE_DOCUMENT_BYTES_MAX);
    expect_text(reply, "writeErrors.0.errmsg", "E11000");
    expect(reply, "writeErrors.99999.index", 99999);
    expect(reply, "writeErrors.99999.code", 11000);
    CHECK(!bson_has_field(reply, "writeErrors.99999.keyPattern"));
    bson_destroy(reply);
    end();
}

#define LARGE (1 << 20)

/* 40 upserts, each of a new _id of a megabyte. */
static bson_t *upsert_large(int number, int batch)
{
    bson_t command = BSON_INITIALIZER, array, element, *reply;
    char *id = bson_malloc0(LARGE + 1);

    BCON_APPEND(&command, "bulkWrite", BCON_INT32(1), "nsInfo", "[", "{", "ns", BCON_UTF8("test.c"),
                "}", "]", "$db", BCON_UTF8("admin"), "cursor", "{", "batchSize", BCON_INT32(batch),
                "}");
    memset(id, 'x', LARGE);
    BSON_APPEND_ARRAY_BEGIN(&command, "ops", &array);
    for (int i = 0; i < 40; i++) {
        snprintf(id, 20, "%d", number + i);
        id[strlen(id)] = ' ';
        put_element(&array, i, &element);
        BCON_APPEND(&element, "update", BCON_INT32(0), "filter", "{", "_id", BCON_UTF8(id), "}",
                    "updateMods", "{", "$set", "{", "v", BCON_INT32(1), "}", "}", "upsert",
                    BCON_BOOL(true));
        bson_append_document_end(&array, &element);
    }
    bson_append_array_end(&command, &array);
    reply = send_command(&command);
    bson_destroy(&command);
    bson_free(id);
    return reply;
}

TEST(returns_a_large_reply_in_batches_and_limits_unread_ones)
{
    char text[200];
    bson_t *reply;
    int64_t cursor;

    begin();
    reply = upsert_large(100, 1000);
    REQUIRE(reply);
    CHECK_INT(reply->len, <, TRUCE_DOCUMENT_BYTES_MAX + 16384);
    expect(reply, "nUpserted", 40);
    CHECK(bson_has_field(reply, "cursor.firstBatch.14"));
    CHECK(!bson_has_field(reply, "cursor.firstBatch.16"));
    cursor = reply_number(reply, "cursor.id");
    CHECK(cursor > 0);
    bson_destroy(reply);
    reply = upsert_large(200, 0); /* 40 MB are kept: there is room */
    expect(reply, "nUpserted", 40);
    bson_destroy(reply);
    reply = upsert_large(300, 0); /* 80 MB are */
    expect(reply, "code", 146);
    bson_destroy(reply);
    expect_count("test", "c", 80);
    snprintf(text, sizeof text,
             "{'killCursors': '$cmd.bulkWrite', 'cursors': [{'$numberLong': '%lld'}], '$db': "
             "'admin'}",
             (long long)cursor);
    expect_code(text, 0);
    reply = upsert_large(300, 1000);
    expect(reply, "nUpserted", 40);
    bson_destroy(reply);
    end();
}
