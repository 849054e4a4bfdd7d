/*
 * A server in this process, and clients that do not keep to the protocol: raw sockets, one message
 * at a time. The tests of tests/servers are for well-behaved clients; `truce serve` is one of their
 * servers.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "server/net/wire_protocol.h"
#include "server/server.h"
#include "server/session/cursor_registry.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(int connections_max)
{
    struct server_options options = {.connections_max = connections_max};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

TEST(commands_that_cannot_be_are_refused_by_their_codes)
{
    static const struct {
        const char *command;
        int code;
    } cases[] = {
        {"{'ping': 1, '$db': 'test'}", 0},
        {"{'ping': 1}", 40571},
        {"{'ping': 1, '$db': 'a.b'}", 73},
        {"{'ping': 1, '$db': ''}", 73},
        {"{'ping': 1, '$db': 7}", 14},
        {"{}", 59},
        {"{'nothing': 1, '$db': 'test'}", 59},
        {"{'find': 'c', '$db': 'test', 'nothing': 1}", 40415},
        {"{'find': 'c', '$db': 'test', 'filter': 1}", 14},
        {"{'find': 'c', '$db': 'test', 'batchSize': -1}", 51024},
        {"{'find': 'c', '$db': 'test', 'limit': 'x'}", 14},
        {"{'find': 'c', '$db': 'test', 'limit': null}", 0},
        {"{'find': 'c', '$db': 'test', 'collation': {'locale': 'de'}}", 115},
        {"{'find': 'c', '$db': 'test', 'collation': {'locale': 'simple'}}", 0},
        {"{'find': 'c', '$db': 'test', 'tailable': true}", 115},
        {"{'find': 'c', '$db': 'test', 'tailable': false}", 0},
        {"{'find': 'c', '$db': 'test', 'maxTimeMS': -1}", 2},
        {"{'find': 'c', '$db': 'test', 'filter': {'$nope': 1}}", 2},
        {"{'find': '', '$db': 'test'}", 73},
        {"{'find': '@x.y', '$db': 'test'}", 73},
        {"{'find': 'a$b', '$db': 'test'}", 73},
        {"{'find': 1, '$db': 'test'}", 73},
        {"{'getMore': {'$numberLong': '5'}, 'collection': 'c', '$db': 'test'}", 43},
        {"{'getMore': 'x', 'collection': 'c', '$db': 'test'}", 14},
        {"{'insert': 'c', '$db': 'test'}", 16},
        {"{'insert': 'c', 'documents': [], '$db': 'test'}", 16},
        {"{'insert': 'c', 'documents': [1], '$db': 'test'}", 14},
        {"{'update': 'c', 'updates': [{'q': {}}], '$db': 'test'}", 40414},
        {"{'delete': 'c', 'deletes': [{'q': {}, 'limit': 2}], '$db': 'test'}", 9},
        {"{'delete': 'c', 'deletes': [{'q': {}}], '$db': 'test'}", 9},
        {"{'findAndModify': 'c', '$db': 'test'}", 9},
        {"{'findAndModify': 'c', 'remove': true, 'new': true, '$db': 'test'}", 9},
        {"{'aggregate': 'c', 'pipeline': [], '$db': 'test'}", 9},
        {"{'aggregate': 'c', 'pipeline': [{'$nope': 1}], 'cursor': {}, '$db': 'test'}", 40324},
        {"{'insert': 'c', 'documents': [{}], 'txnNumber': {'$numberLong': '1'}, '$db': 'test'}",
         72},
        {"{'create': 'v', 'capped': true, 'size': 5, '$db': 'test'}", 115},
        {"{'listIndexes': 'none', '$db': 'test'}", 26},
        {"{'drop': 'none', '$db': 'test'}", 0},
        {"{'dropIndexes': 'none', 'index': '*', '$db': 'test'}", 26},
        {"{'renameCollection': 'x', 'to': 'test.y', '$db': 'admin'}", 73},
        {"{'renameCollection': 'test.none', 'to': 'test.y', '$db': 'admin'}", 26},
        {"{'replSetGetStatus': 1, '$db': 'admin'}", 76},
        {"{'explain': {'update': 'c'}, '$db': 'test'}", 16},
        {"{'explain': 1, '$db': 'test'}", 14},
    };

    begin(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_code(cases[i].command, cases[i].code);
    end();
}

TEST(refuses_fields_that_a_command_does_not_have)
{
    static const struct {
        const char *command;
        int code;
    } cases[] = {
        {"{'drop': 'c', 'collectionUuid': 1, '$db': 'test'}", 40415},
        {"{'dropDatabase': 1, 'dryRun': true, '$db': 'test'}", 40415},
        {"{'getLog': 'global', 'lines': 5, '$db': 'admin'}", 40415},
        {"{'startSession': 1, 'x': 1, '$db': 'admin'}", 40415},
        {"{'endSessions': [], 'x': 1, '$db': 'admin'}", 40415},
        {"{'endSessions': [{'x': 1}], '$db': 'admin'}", 40415},
        {"{'endSessions': [{}], '$db': 'admin'}", 40414},
        {"{'endSessions': [1], '$db': 'admin'}", 14},
        {"{'refreshSessions': [1], '$db': 'admin'}", 14},
        {"{'refreshSessions': 1, '$db': 'admin'}", 14},
        {"{'killSessions': [{'id': 1}], '$db': 'admin'}", 14},
        {"{'killAllSessions': 1, '$db': 'admin'}", 14},
        {"{'killAllSessions': [1], '$db': 'admin'}", 14},
        {"{'killAllSessions': [{'user': 'ada'}], '$db': 'admin'}", 40414},
        {"{'killAllSessions': [{'user': 'ada', 'bd': 'admin'}], '$db': 'admin'}", 40415},
        {"{'find': 'c', 'readConcern': {'lvel': 'majority'}, '$db': 'test'}", 40415},
        {"{'find': 'c', 'readConcern': {'level': 'local', 'x': 1}, '$db': 'test'}", 40415},
        {"{'drop': 'c', 'writeConcern': {'w': 1, 'jj': true}, '$db': 'test'}", 40415},
        {"{'drop': 'c', 'writeConcern': {'W': 1}, '$db': 'test'}", 40415},
        {"{'count': 'c', '$db': 'test'}", 0},
    };
    bson_t *reply;

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{}], '$db': 'test'}", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_code(cases[i].command, cases[i].code);
    reply = ask("{'count': 'c', '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    bson_destroy(reply);
    end();
}

TEST(statements_fail_one_by_one)
{
    bson_t *reply;

    begin(0);
    reply =
        ask("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 1}, {'_id': 2}], '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    CHECK_INT(reply_number(reply, "writeErrors.0.index"), ==, 1);
    CHECK_INT(reply_number(reply, "writeErrors.0.code"), ==, 11000);
    bson_destroy(reply);
    reply = ask(
        "{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 3}], 'ordered': false, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    CHECK_INT(reply_number(reply, "writeErrors.0.index"), ==, 0);
    bson_destroy(reply);
    reply = ask(
        "{'update': 'c', 'updates': [{'q': {'_id': 9}, 'u': {'$set': {'a': 1}}, 'upsert': true},"
        " {'q': {}, 'u': {'$inc': {'n': 1}}, 'multi': true}], '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 4);
    CHECK_INT(reply_number(reply, "nModified"), ==, 3);
    CHECK_INT(reply_number(reply, "upserted.0._id"), ==, 9);
    bson_destroy(reply);
    reply = ask(
        "{'delete': 'c', 'deletes': [{'q': {}, 'limit': 1}, {'q': {}, 'limit': 0}], '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 3);
    bson_destroy(reply);
    end();
}

TEST(separates_databases_in_one_store)
{
    bson_error_t error = {0};
    bson_t *reply, list;
    int64_t n;

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}", 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}], '$db': 'school'}", 0);
    CHECK_OK(truce_count(store, "@school.c", NULL, NULL, &n, &error), error);
    CHECK_INT(n, ==, 2);
    reply = ask("{'listDatabases': 1, '$db': 'admin'}");
    CHECK_INT(reply_number(reply, "databases.1.sizeOnDisk"), >, 0);
    CHECK_INT(reply_number(reply, "databases.2.sizeOnDisk"), ==, -1);
    bson_destroy(reply);
    reply = ask(
        "{'aggregate': 'c', 'pipeline': [{'$facet': {'f': [{'$lookup': {'from': 'c', 'pipeline': "
        "[{'$unionWith': 'c'}], 'as': 'l'}}]}}], 'cursor': {}, '$db': 'school'}");
    CHECK_INT(reply_number(reply, "cursor.firstBatch.0.f.1.l.3._id"), ==, 2);
    bson_destroy(reply);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$out': {'db': 'other', 'coll': 'd'}}], 'cursor': {},"
        " '$db': 'school'}",
        0);
    CHECK_OK(truce_count(store, "@other.d", NULL, NULL, &n, &error), error);
    CHECK_INT(n, ==, 2);
    expect_code("{'renameCollection': 'other.d', 'to': 'test.d', '$db': 'admin'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'school'}", 0);
    CHECK_OK(truce_collection_list(store, NULL, &list, &error), error);
    CHECK_INT(bson_count_keys(&list), ==, 2);
    bson_destroy(&list);
    end();
}

TEST(refuses_to_rename_or_replace_a_collection_of_a_pattern)
{
    static const struct {
        const char *from, *to;
        int64_t code;
    } renames[] = {
        {"school.truce_ledgers", "school.x", 73},
        {"school.c", "school.truce_queue", 73},
        {"school.bank", "school.x", 20},
        {"school.c", "school.bank", 20},
        {"school.bank", "test.x", 20},
        {"test.bank", "school.bank", 20},
        {"test.bank", "test.x", 0}, /* the ledger is in the other database */
    };
    char text[300];

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'school'}", 0);
    expect_code("{'insert': 'bank', 'documents': [{'_id': 1}], '$db': 'test'}", 0);
    expect_code("{'truceLedgerOpen': 'bank', 'currency': 'EUR', 'digits': 2, 'account': 'cash',"
                " '$db': 'school'}",
                0);
    for (size_t i = 0; i < sizeof renames / sizeof *renames; i++) {
        snprintf(text, sizeof text,
                 "{'renameCollection': '%s', 'to': '%s', 'dropTarget': true, '$db': 'admin'}",
                 renames[i].from, renames[i].to);
        expect_code(text, renames[i].code);
    }
    end();
}

TEST(refuses_a_target_of_a_stage_with_a_misspelled_database)
{
    static const char *const targets[] = {"{'bd': 'other', 'coll': 'c'}", "{'db': 1, 'coll': 'c'}",
                                          "{'db': 'other', 'coll': 'c', 'timeseries': {}}",
                                          "{'db': 'other', 'collection': 'c'}"};
    static const char *const stages[] = {
        "{'$out': %s}", "{'$merge': {'into': %s}}",
        "{'$lookup': {'from': %s, 'pipeline': [], 'as': 'a'}}",
        "{'$facet': {'f': [{'$lookup': {'from': %s, 'pipeline': [], 'as': 'a'}}]}}"};
    bson_t *reply;

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}], '$db': 'test'}", 0);
    expect_code("{'insert': 'd', 'documents': [{'_id': 2}, {'_id': 3}], '$db': 'test'}", 0);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        for (size_t j = 0; j < sizeof stages / sizeof *stages; j++) {
            char stage[200], text[400];

            snprintf(stage, sizeof stage, stages[j], targets[i]);
            snprintf(text, sizeof text,
                     "{'aggregate': 'd', 'pipeline': [%s], 'cursor': {}, '$db': 'test'}", stage);
            expect_code(text, i == 1 ? 14 : 40415);
        }
    reply = ask("{'count': 'c', '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    bson_destroy(reply);
    end();
}

TEST(refuses_fractions_where_a_whole_number_decides)
{
    static const struct {
        const char *command;
        int code;
    } cases[] = {
        {"{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0.5}], '$db': 'test'}", 9},
        {"{'delete': 'c', 'deletes': [{'q': {}, 'limit': 1.5}], '$db': 'test'}", 9},
        {"{'delete': 'c', 'deletes': [{'q': {}, 'limit': {'$numberDecimal': '0.5'}}],"
         " '$db': 'test'}",
         9},
        {"{'delete': 'c', 'deletes': [{'q': {}, 'limit': {'$numberDouble': 'NaN'}}],"
         " '$db': 'test'}",
         9},
        {"{'explain': {'delete': 'c', 'deletes': [{'q': {}, 'limit': 0.5}]}, '$db': 'test'}", 9},
        {"{'find': 'c', 'maxTimeMS': 1.5, '$db': 'test'}", 2},
        {"{'find': 'c', 'maxTimeMS': {'$numberDouble': 'NaN'}, '$db': 'test'}", 2},
        {"{'find': 'c', 'maxTimeMS': {'$numberDecimal': '0.5'}, '$db': 'test'}", 2},
        {"{'find': 'c', 'maxTimeMS': 5000.0, '$db': 'test'}", 0},
        {"{'bulkWrite': 1, 'ops': [{'delete': 0.5, 'filter': {}, 'multi': true}],"
         " 'nsInfo': [{'ns': 'test.c'}], '$db': 'admin'}",
         2},
    };
    bson_t *reply;

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}], '$db': 'test'}", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_code(cases[i].command, cases[i].code);
    reply = ask("{'count': 'c', '$db': 'test'}");
    CHECK_INT(reply_number(reply, "n"), ==, 2);
    bson_destroy(reply);
    end();
}

/* Returns whether the message of the error is this one. */
static bool reply_says(const bson_t *reply, const char *message)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, reply, "errmsg") && !strcmp(bson_iter_utf8(&at, NULL), message);
}

TEST(continues_a_cursor_on_another_connection_and_ends_it_once)
{
    char more[200];
    bson_t *reply;
    int64_t id;

    begin(0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}, {'_id': 3}], '$db': 'test'}",
                0);
    reply = ask("{'find': 'c', 'batchSize': 2, '$db': 'test'}");
    id = reply_number(reply, "cursor.id");
    CHECK_INT(id, >, 0);
    bson_destroy(reply);
    snprintf(more, sizeof more,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': '%s', '$db': 'test'}",
             (long long)id, "another");
    reply = ask(more);
    CHECK_INT(reply_number(reply, "code"), ==, 13);
    CHECK(reply_says(reply,
                     "Requested getMore on namespace 'test.another', but cursor belongs to a "
                     "different namespace test.c"));
    bson_destroy(reply);
    snprintf(more, sizeof more,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': '%s', '$db': 'test'}",
             (long long)id, "c");
    reply = ask(more);
    CHECK_INT(reply_number(reply, "cursor.nextBatch.0._id"), ==, 3);
    CHECK_INT(reply_number(reply, "cursor.id"), ==, 0);
    bson_destroy(reply);
    expect_code(more, 43);
    end();
}

static struct cursor_entry *new_entry(void)
{
    struct cursor_entry *entry = bson_malloc0(sizeof *entry);

    entry->ns = bson_strdup("test.c");
    entry->user = bson_strdup("");
    entry->array = bson_new();
    CHECK(bson_iter_init(&entry->at, entry->array));
    return entry;
}

TEST(new_cursors_take_no_place_of_a_cursor_in_use)
{
    struct cursor_registry *cursors = cursors_new(1);
    struct cursor_entry *entry = new_entry();
    bson_error_t error = {0};
    int64_t id;

    CHECK_OK(cursors_add(cursors, entry, &error), error);
    id = entry->id;
    entry = cursors_take(cursors, id, "test.c", 0, "");
    REQUIRE(entry);
    CHECK_OK(cursors_add(cursors, new_entry(), &error), error);
    CHECK_STATUS(TRUCE_LIMIT, cursors_add(cursors, new_entry(), &error), error);
    CHECK_OK(cursors_add(cursors, entry, &error), error);
    CHECK_INT(cursors_count(cursors), ==, 2);
    CHECK(cursors_take(cursors, id, "test.c", 0, "") == entry);
    CHECK_OK(cursors_add(cursors, entry, &error), error);
    cursors_free(cursors);
}

/* A list by a cursor: two of three, and the rest. */
static void expect_in_batches(const char *command, const char *collection)
{
    char text[300];
    bson_t *reply;
    int64_t id;

    snprintf(text, sizeof text, "{%s, 'cursor': {'batchSize': 2}, '$db': 'test'}", command);
    reply = ask(text);
    CHECK(bson_has_field(reply, "cursor.firstBatch.1"));
    CHECK(!bson_has_field(reply, "cursor.firstBatch.2"));
    id = reply_number(reply, "cursor.id");
    CHECK_INT(id, >, 0);
    bson_destroy(reply);
    snprintf(text, sizeof text,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': '%s', '$db': 'test'}",
             (long long)id, collection);
    reply = ask(text);
    CHECK(bson_has_field(reply, "cursor.nextBatch.0.name"));
    CHECK(!bson_has_field(reply, "cursor.nextBatch.1"));
    CHECK_INT(reply_number(reply, "cursor.id"), ==, 0);
    bson_destroy(reply);
    expect_code(text, 43);
    for (int size = 0; size < 5; size++) { /* an answer with all documents leaves no cursor */
        snprintf(text, sizeof text, "{%s, 'cursor': {'batchSize': %d}, '$db': 'test'}", command,
                 size);
        reply = ask(text);
        CHECK_INT(reply_number(reply, "cursor.id") > 0, ==, size < 3);
        bson_destroy(reply);
    }
    snprintf(text, sizeof text, "{%s, 'cursor': {'batchSize': -1}, '$db': 'test'}", command);
    expect_code(text, 51024);
    snprintf(text, sizeof text, "{%s, 'cursor': {'size': 2}, '$db': 'test'}", command);
    expect_code(text, 40415);
}

TEST(returns_lists_in_batches_of_the_requested_size)
{
    begin(0);
    for (char name = 'a'; name < 'd'; name++) {
        char text[100];

        snprintf(text, sizeof text, "{'create': '%c', '$db': 'test'}", name);
        expect_code(text, 0);
    }
    expect_code("{'createIndexes': 'a', 'indexes': [{'key': {'x': 1}, 'name': 'x'}, {'key': {'y': "
                "1}, 'name': 'y'}], '$db': 'test'}",
                0);
    expect_in_batches("'listCollections': 1", "$cmd.listCollections");
    expect_in_batches("'listIndexes': 'a'", "a");
    expect_code("{'listIndexes': 'a', 'no': 1, '$db': 'test'}", 40415);
    end();
}

/* Appends a message of the kind that drivers used before OP_MSG. */
static void put_old(struct buffer *old, const char *namespace, const bson_t *command)
{
    size_t size = strlen(namespace) + 1;

    put_uint32(old, (uint32_t)(WIRE_HEAD + 4 + size + 8 + command->len));
    put_uint32(old, 1);
    put_uint32(old, 0);
    put_uint32(old, OP_QUERY);
    put_uint32(old, 4);
    truce__buffer_append(old, namespace, size);
    put_uint32(old, 0);
    put_uint32(old, 0xffffffffu);
    truce__buffer_append(old, bson_get_data(command), command->len);
}

TEST(checks_the_database_of_an_old_message)
{
    static const char *const wrong[] = {
        "a b.$cmd", "a/b.$cmd",
        "a$.$cmd",  "\xff.$cmd",
        "a$cmd",    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.$cmd"};
    bson_t *insert = test_bson("{'insert': 'c', 'documents': [{}]}");

    begin(0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct buffer old = {0};
        int end_ = dial();
        bson_t *reply;

        put_old(&old, wrong[i], insert);
        CHECK(send_all(end_, old.bytes, old.size));
        reply = receive_reply(end_);
        CHECK_INT(reply_number(reply, "code"), ==, strchr(wrong[i], '.') ? 73 : 40571);
        bson_destroy(reply);
        truce__buffer_release(&old);
        close(end_);
    }
    bson_destroy(insert);
    end();
}

TEST(replies_to_old_handshakes_and_refuses_a_wrong_checksum)
{
    bson_t *hello = test_bson("{'isMaster': 1}"), *ping = test_bson("{'ping': 1, '$db': 'admin'}");
    struct buffer old = {0}, summed = message_of(ping, 1), wrong = message_of(ping, 1);
    int end_;
    bson_t *reply;

    begin(0);
    put_old(&old, "admin.$cmd", hello);
    end_ = dial();
    CHECK(send_all(end_, old.bytes, old.size));
    reply = receive_reply(end_);
    CHECK_INT(reply_number(reply, "maxWireVersion"), ==, 25);
    bson_destroy(reply);
    CHECK(send_all(end_, summed.bytes, summed.size));
    reply = receive_reply(end_);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    close(end_);
    end_ = dial();
    wrong.bytes[wrong.size - 1] ^= 1;
    CHECK(send_all(end_, wrong.bytes, wrong.size));
    CHECK(receive_reply(end_) == NULL);
    close(end_);
    truce__buffer_release(&old);
    truce__buffer_release(&summed);
    truce__buffer_release(&wrong);
    bson_destroy(hello);
    bson_destroy(ping);
    end();
}

TEST(sends_no_reply_to_an_unacknowledged_message)
{
    bson_t *insert = test_bson(
        "{'insert': 'c', 'documents': [{'_id': 1}], 'writeConcern': {'w': 0}, '$db': 'test'}");
    struct buffer message = message_of(insert, 2);
    int end_;
    bson_t *reply;

    begin(0);
    end_ = dial();
    CHECK(send_all(end_, message.bytes, message.size));
    reply =
        ask_on(end_, "{'count': 'c', '$db': 'test'}", 0); /* the next answer is that of the next */
    CHECK_INT(reply_number(reply, "n"), ==, 1);
    bson_destroy(reply);
    close(end_);
    truce__buffer_release(&message);
    bson_destroy(insert);
    end();
}

/* Each part of the stream ends within a message, or has several of them. */
TEST(replies_to_messages_that_arrive_together_or_in_pieces)
{
    bson_t *ping = test_bson("{'ping': 1, '$db': 'admin'}"), insert = BSON_INITIALIZER;
    char text[9000] = {0};
    struct buffer stream = {0}, message;
    int end_;

    memset(text, 'x', sizeof text - 1);
    BCON_APPEND(&insert, "insert", "c", "documents", "[", "{", "text", BCON_UTF8(text), "}", "]",
                "$db", "test");
    begin(0);
    for (int i = 0; i < 20; i++) {
        message = message_of(i % 7 == 3 ? &insert : ping, 0);
        truce__buffer_append(&stream, message.bytes, message.size);
        truce__buffer_release(&message);
    }
    for (size_t part = 7; part <= stream.size; part *= 17) {
        end_ = dial();
        for (size_t at = 0; at < stream.size; at += part)
            CHECK(send_all(end_, stream.bytes + at,
                           stream.size - at < part ? stream.size - at : part));
        for (int i = 0; i < 20; i++) {
            bson_t *reply = receive_reply(end_);

            CHECK_INT(reply_number(reply, "ok"), ==, 1);
            CHECK(bson_has_field(reply, "n") == (i % 7 == 3));
            bson_destroy(reply);
        }
        close(end_);
    }
    truce__buffer_release(&stream);
    bson_destroy(&insert);
    bson_destroy(ping);
    end();
}

/* Sends a message with some bytes corrupted, cut off, or with another length. */
static void send_garbage(struct random *random, const struct buffer *message)
{
    uint8_t *bytes = bson_malloc(message->size);
    size_t size = message->size;
    int end_ = dial();
    bson_t *reply = NULL;

    memcpy(bytes, message->bytes, message->size);
    for (uint64_t i = truce__random_below(random, 4); i > 0; i--)
        bytes[truce__random_below(random, size)] = (uint8_t)truce__random_next(random);
    if (truce__random_below(random, 3) == 0)
        size = truce__random_below(random, size) + 1;
    CHECK(send_all(end_, bytes, size));
    /* so that the server does not wait for the bytes that a wrong length announced */
    shutdown(end_, SHUT_WR);
    reply = receive_reply(end_);
    if (reply)
        CHECK(bson_has_field(reply, "ok"));
    bson_destroy(reply);
    close(end_);
    bson_free(bytes);
}

TEST(garbage_ends_its_own_connection_at_most)
{
    long rounds = test_scale("TRUCE_SERVE_GARBAGE", 1500);
    bson_t *command = test_bson(
        "{'aggregate': 'c', 'pipeline': [{'$match': {'a': [1, 'x', {'b': null}]}}, {'$sort': {'a': 1}}],"
        " 'cursor': {'batchSize': 5}, 'hint': {'_id': 1}, 'lsid': {'id': 1}, '$db': 'test'}");
    struct buffer message = message_of(command, 0);
    struct random random;
    int other;
    bson_t *reply;

    begin(0);
    other = dial();
    truce__random_seed(&random, test_seed());
    for (long i = 0; i < rounds && test_failures() < 10; i++)
        send_garbage(&random, &message);
    reply = ask_on(other, "{'ping': 1, '$db': 'admin'}", 0);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    close(other);
    truce__buffer_release(&message);
    bson_destroy(command);
    end();
}

TEST(closes_connections_beyond_the_maximum_only)
{
    int ends[6];
    int answered = 0;

    begin(5);
    for (int i = 0; i < 6; i++) {
        bson_t *reply;

        ends[i] = dial();
        reply = ask_on(ends[i], "{'ping': 1, '$db': 'admin'}", 0);
        answered += reply != NULL;
        bson_destroy(reply);
    }
    CHECK_INT(answered, ==, 5);
    for (int i = 0; i < 6; i++)
        close(ends[i]);
    end();
}

static int reader;

static void *long_read(void *arg)
{
    *(bson_t **)arg = ask_on(
        reader,
        "{'aggregate': 'c', 'pipeline': [{'$lookup': {'from': 'c', 'let': {'a': '$_id'}, 'pipeline':"
        " [{'$lookup': {'from': 'c', 'let': {'b': '$_id'}, 'pipeline': [{'$match': {'$expr': {'$gt':"
        " [{'$add': ['$$a', '$$b']}, '$_id']}}}, {'$count': 'n'}], 'as': 'y'}}, {'$unset': 'y'}],"
        " 'as': 'x'}}, {'$group': {'_id': null, 'n': {'$sum': {'$size': '$x'}}}}],"
        " 'cursor': {}, '$db': 'test'}",
        0);
    return NULL;
}

/* Idle connections end at once. A running command is interrupted after the grace period, and its
 * client gets an error. */
TEST(waits_for_running_commands_at_a_stop_but_not_for_ever)
{
    bson_t *reply = NULL;
    pthread_t thread;
    int idle;

    begin(0);
    for (int i = 0; i < 400; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i));
        bson_error_t error = {0};

        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
        bson_destroy(document);
    }
    idle = dial();
    reader = dial();
    pthread_create(&thread, NULL, long_read, &reply);
    truce__clock_sleep_ms(100);
    server_stop(server, 100);
    pthread_join(thread, NULL);
    CHECK(receive_reply(idle) == NULL);
    CHECK(reply && reply_number(reply, "code") == 11600);
    bson_destroy(reply);
    close(idle);
    close(reader);
    truce_store_close(store);
}

TEST(listens_on_the_loopback_only_and_logs_the_reason)
{
    struct server_options everywhere = {.address = "0.0.0.0"}, text = {.address = "localhost"},
                          name = {.database = "a.b"};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    CHECK_STATUS(TRUCE_INVALID, server_start(store, &everywhere, &server, &error), error);
    CHECK(strstr(error.message, "--auth") != NULL);
    CHECK_STATUS(TRUCE_INVALID, server_start(store, &text, &server, &error), error);
    CHECK_STATUS(TRUCE_INVALID, server_start(store, &name, &server, &error), error);
    truce_store_close(store);
}
