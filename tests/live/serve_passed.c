/*
 * Transactions and change streams of clients that a server passes on to MongoDB: here, to another
 * server of this process that presents itself as a replica set. The client is a raw socket;
 * tests/clients/run sidecar tests drivers.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/streams.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A       "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"
#define B       "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAg==', 'subType': '04'}}}"

#define HOUR_MS INT64_C(3600000)

static char path[600];
static int port; /* of the upstream server */
static truce_store *upstream_store;
static struct server *upstream;

static void open_upstream(void)
{
    const struct server_feed feed = {HOUR_MS, 0};
    const struct server_options options = {
        .replica_set = "rs", .feed = &feed, .port = port, .test_commands = true};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(path, NULL, &upstream_store, &error));
    REQUIRE(!server_start(upstream_store, &options, &upstream, &error));
    port = server_port(upstream);
}

static void close_upstream(void)
{
    server_stop(upstream, 0);
    truce_store_close(upstream_store);
}

/* The deadline of the store, for tests without an upstream server. 0: the default. */
static uint32_t deadline_ms;

static void open_front(const char *options, int64_t transaction_ms)
{
    const truce_store_options how = {.deadline_ms = deadline_ms};
    bson_error_t error = {0};
    char uri[200];

    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/test%s", port, options);
    if (truce_store_open(uri, &how, &store, &error)) /* A slow machine needs more time. */
        REQUIRE(!truce_store_open(uri, NULL, &store, &error));
    REQUIRE(!server_start(
        store, &(struct server_options){.transaction_ms = transaction_ms, .database = "test"},
        &server, &error));
}

static void close_front(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void begin_with(const char *options, int64_t transaction_ms)
{
    port = 0;
    snprintf(path, sizeof path, "%s/upstream.truce", test_directory());
    open_upstream();
    open_front(options, transaction_ms);
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code(
        "{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}, {'_id': 2, 'v': 1}], '$db': 'test'}", 0);
}

static void begin(void)
{
    begin_with("", 0);
}

static void end(void)
{
    close_front();
    close_upstream();
}

/* Asks the upstream server. */
static bson_t *ask_upstream(const char *json)
{
    int end_ = dial_port(port);
    bson_t *reply = ask_on(end_, json, 0);

    close(end_);
    return reply;
}

/* A command within a transaction; `start`: its first. */
static char *within(const char *command, const char *session, int number, bool start)
{
    static char text[2000];

    snprintf(
        text, sizeof text,
        "{%s, 'lsid': %s, 'txnNumber': {'$numberLong': '%d'}%s, 'autocommit': false, '$db': '%s'}",
        command, session, number, start ? ", 'startTransaction': true" : "",
        strstr(command, "Transaction") ? "admin" : "test");
    return text;
}

#define FIRST(session, number, command) within(command, session, number, true)
#define NEXT(session, number, command)  within(command, session, number, false)
#define COMMIT(session, number)         within("'commitTransaction': 1", session, number, false)
#define ABORT(session, number)          within("'abortTransaction': 1", session, number, false)
#define READ                            "'find': 'c'"
#define SET_1                           "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]"
#define SET_2                           "'update': 'c', 'updates': [{'q': {'_id': 2}, 'u': {'$inc': {'v': 1}}}]"

static int64_t value_of(int id)
{
    char text[100];
    bson_t *reply;
    int64_t value;

    snprintf(text, sizeof text, "{'find': 'c', 'filter': {'_id': %d}, '$db': 'test'}", id);
    reply = ask_upstream(text);
    value = reply_number(reply, "cursor.firstBatch.0.v");
    bson_destroy(reply);
    return value;
}

static void expect_label(const char *command, int64_t code, const char *label)
{
    bson_t *reply = ask(command);

    CHECK_INT(code, ==, reply_number(reply, "code"));
    CHECK_TEXT(label, text_of(reply, "errorLabels.0"));
    bson_destroy(reply);
}

static void expect_number(const char *command, const char *field, int64_t number)
{
    bson_t *reply = ask(command);

    if (!CHECK_INT(number, ==, reply_number(reply, field)))
        fprintf(stderr, "    %s\n", text_of(reply, "errmsg"));
    bson_destroy(reply);
}

/* ---- pipelines without a collection ---------------------------------------------------------- */

TEST(replies_to_a_pipeline_without_a_collection)
{
    begin();
    for (int i = 0; i < 2; i++) {
        char text[300];

        snprintf(text, sizeof text,
                 "{'aggregate': 1, 'pipeline': [{'$documents': [{'a': 1}, {'a': 2}]}, {'$match': "
                 "{'a': 2}}], 'cursor': {}, '$db': '%s'}",
                 i ? "admin" : "test");
        expect_number(text, "cursor.firstBatch.0.a", 2);
    }
    expect_number("{'aggregate': 1, 'pipeline': [{'$documents': [{'v': 1}]}, {'$lookup': {'from': "
                  "'c', 'localField': 'v', 'foreignField': '_id', 'as': 'found'}}], 'cursor': {}, "
                  "'$db': 'test'}",
                  "cursor.firstBatch.0.found.0._id", 1);
    expect_code("{'aggregate': 1, 'pipeline': [{'$currentOp': {}}], 'cursor': {}, '$db': 'admin'}",
                0);
    expect_code("{'aggregate': 1, 'pipeline': [{'$listLocalSessions': {}}], 'cursor': {}, "
                "'lsid': " A ", '$db': 'admin'}",
                0);
    end();
}

/* ---- transactions ---------------------------------------------------------------------------- */

TEST(a_transaction_takes_effect_upstream_when_it_is_committed)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_number(NEXT(A, 1, "'find': 'c', 'filter': {'v': 2}"), "cursor.firstBatch.0._id", 1);
    expect_number(NEXT(A, 1, "'aggregate': 'c', 'pipeline': [{'$match': {'v': 2}}], 'cursor': {}"),
                  "cursor.firstBatch.0._id", 1);
    expect_number(NEXT(A, 1, "'count': 'c', 'query': {'v': 2}"), "n", 1);
    expect_number(NEXT(A, 1, "'distinct': 'c', 'key': 'v', 'query': {'v': {'$gt': 1}}"), "values.0",
                  2);
    expect_number(
        NEXT(
            A, 1,
            "'findAndModify': 'c', 'query': {'_id': 2}, 'update': {'$inc': {'v': 4}}, 'new': true"),
        "value.v", 5);
    expect_code(NEXT(A, 1, "'insert': 'c', 'documents': [{'_id': 3}, {'_id': 4}]"), 0);
    expect_number(NEXT(A, 1, "'delete': 'c', 'deletes': [{'q': {'_id': 3}, 'limit': 1}]"), "n", 1);
    CHECK_INT(1, ==, value_of(1));
    expect_code(COMMIT(A, 1), 0);
    CHECK_INT(2, ==, value_of(1));
    CHECK_INT(5, ==, value_of(2));
    expect_code(COMMIT(A, 1), 0);
    expect_code(ABORT(A, 1), 256);
    expect_code(NEXT(A, 1, READ), 256);
    end();
}

TEST(leaves_nothing_of_an_aborted_transaction)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_code(ABORT(A, 1), 0);
    expect_label(COMMIT(A, 1), 251, "TransientTransactionError");
    expect_code(FIRST(A, 2, SET_1), 0);
    expect_code("{'endSessions': [" A "], '$db': 'admin'}", 0);
    expect_label(COMMIT(A, 2), 251, "TransientTransactionError");
    CHECK_INT(1, ==, value_of(1));
    expect_code("{" SET_1 ", '$db': 'test'}", 0);
    CHECK_INT(2, ==, value_of(1));
    end();
}

TEST(reports_a_transient_error_to_the_later_transaction)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_code(FIRST(B, 1, SET_1), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_label(COMMIT(B, 1), 112, "TransientTransactionError");
    expect_label(COMMIT(B, 1), 251, "TransientTransactionError");
    expect_code(FIRST(A, 2, READ), 0);
    expect_code("{" SET_1 ", '$db': 'test'}", 0);
    expect_label(NEXT(A, 2, SET_1), 112, "TransientTransactionError");
    expect_label(COMMIT(A, 2), 251, "TransientTransactionError");
    CHECK_INT(3, ==, value_of(1));
    end();
}

TEST(a_refused_statement_ends_a_transaction_upstream)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_number(NEXT(A, 1, "'insert': 'c', 'documents': [{'_id': 2}]"), "writeErrors.0.code",
                  11000);
    expect_label(NEXT(A, 1, READ), 251, "TransientTransactionError");
    expect_code(FIRST(A, 2, "'find': 'c', 'filter': {'$nothing': 1}"), 2);
    expect_label(COMMIT(A, 2), 251, "TransientTransactionError");
    CHECK_INT(1, ==, value_of(1));
    end();
}

TEST(ends_transactions_that_are_too_old)
{
    bool ended = false;

    begin_with("", 1);
    expect_code(FIRST(A, 1, SET_1), 0);
    for (int i = 0; i < 1000 && !ended; i++) {
        bson_t *reply = ask(NEXT(A, 1, READ));

        ended = reply_number(reply, "code") == 251;
        bson_destroy(reply);
        truce__clock_sleep_ms(20);
    }
    CHECK(ended);
    CHECK_INT(1, ==, value_of(1));
    end();
}

TEST(transactions_and_streams_leave_connections_for_other_calls)
{
    bson_t *reply;

    begin_with("?maxPoolSize=2", 0);
    expect_code(FIRST(A, 1, SET_1), 0);
    reply = ask(FIRST(B, 1, SET_2));
    CHECK(strstr(text_of(reply, "errmsg"), "maxPoolSize (2)"));
    bson_destroy(reply);
    reply = ask("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                "'$db': 'test'}");
    CHECK(strstr(text_of(reply, "errmsg"), "maxPoolSize (2)"));
    bson_destroy(reply);
    expect_number("{'count': 'c', '$db': 'test'}", "n", 2);
    expect_code(ABORT(A, 1), 0);
    expect_code(FIRST(B, 2, SET_2), 0);
    expect_code(COMMIT(B, 2), 0);
    CHECK_INT(2, ==, value_of(2));
    end();
}

/* ---- commits whose outcome is unknown -------------------------------------------------------- */

TEST(a_restarted_server_knows_what_was_committed)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_code(FIRST(B, 1, SET_1), 0);
    close_front();
    open_front("", 0);
    expect_code(COMMIT(A, 1), 0);
    expect_label(COMMIT(B, 1), 251, "TransientTransactionError");
    expect_code(FIRST(B, 2, SET_1), 0);
    expect_code(COMMIT(B, 2), 0);
    CHECK_INT(3, ==, value_of(1));
    end();
}

TEST(reports_unknown_for_a_commit_without_an_upstream_server)
{
    deadline_ms = 700;
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    close_upstream();
    expect_label(COMMIT(A, 1), 112, "TransientTransactionError"); /* It was not sent. */
    expect_label(FIRST(B, 1, SET_1), 6, "TransientTransactionError");
    expect_label(COMMIT(A, 2), 8, "UnknownTransactionCommitResult"); /* It may be another's. */
    open_upstream();
    expect_label(COMMIT(A, 2), 251, "TransientTransactionError");
    CHECK_INT(1, ==, value_of(1));
    expect_code(FIRST(A, 3, SET_1), 0);
    expect_code(COMMIT(A, 3), 0);
    CHECK_INT(2, ==, value_of(1));
    end();
    deadline_ms = 0;
}

/* Two servers in front: one of them has an open transaction, whose commit the other rules out. */
TEST(a_commit_that_was_ruled_out_takes_no_effect)
{
    struct server *first;
    truce_store *first_store;

    begin();
    first = server;
    first_store = store;
    expect_code(FIRST(A, 1, SET_1), 0);
    open_front("", 0);
    expect_label(COMMIT(A, 1), 251, "TransientTransactionError");
    close_front();
    server = first;
    store = first_store;
    expect_label(COMMIT(A, 1), 112, "TransientTransactionError");
    CHECK_INT(1, ==, value_of(1));
    end();
}

/* ---- operations ------------------------------------------------------------------------------ */

TEST(operations_take_part_in_a_transaction)
{
    begin();
    for (int number = 1; number <= 4; number += 2) {
        expect_code(FIRST(A, number, "'truceEnqueue': 'mail', 'payload': {'to': 'ada'}"), 0);
        expect_code(NEXT(A, number, SET_1), 0);
        expect_code(NEXT(A, number,
                         "'truceCommit': [{'update': 'c', 'id': 2, 'with': {'$inc': {'v': 1}}}]"),
                    0);
        expect_number(NEXT(A, number, "'count': 'truce_queue'"), "n", 1);
        expect_code(number == 1 ? ABORT(A, 1) : COMMIT(A, number), 0);
        CHECK_INT(number == 1 ? 1 : 2, ==, value_of(1));
        CHECK_INT(number == 1 ? 1 : 2, ==, value_of(2));
        expect_number("{'count': 'truce_queue', '$db': 'test'}", "n", number / 2);
    }
    end();
}

TEST(a_guard_that_does_not_match_is_no_conflict)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_number(NEXT(A, 1,
                       "'truceCommit': [{'update': 'c', 'id': 2, 'with': {'$inc': {'v': 1}}}, "
                       "{'update': 'c', 'id': 99, 'with': {'$inc': {'v': 1}}}]"),
                  "code", 125);
    expect_label(COMMIT(A, 1), 251, "TransientTransactionError");
    expect_number(FIRST(A, 2,
                        "'truceCommit': [{'update': 'c', 'id': 2, 'if': {'v': 7}, 'with': {'$inc': "
                        "{'v': 1}}}]"),
                  "code", 20);
    expect_number(FIRST(A, 3, "'truceCommit': [{'insert': 'c', 'with': {'_id': 2}}]"), "code",
                  11000);
    CHECK_INT(1, ==, value_of(1));
    CHECK_INT(1, ==, value_of(2));
    end();
}

/* ---- collections that another client drops --------------------------------------------------- */

#define ADD_MATH                                                                                   \
    "{'truceSet': 'students', 'key': {'student_id': 1}, 'field': 'classes', 'name': 'name', "      \
    "'add': {'name': 'math'}, 'seq': 5, '$db': 'test'}"

static bool students_have_an_index(void)
{
    bson_t *reply = ask_upstream("{'listIndexes': 'students', '$db': 'test'}");
    bool have = text_of(reply, "cursor.firstBatch.1.name")[0] != '\0';

    bson_destroy(reply);
    return have;
}

TEST(notices_a_dropped_collection_while_it_waits_for_changes)
{
    begin();
    expect_code(ADD_MATH, 0);
    CHECK(students_have_an_index());
    for (int i = 0; i < 3; i++) /* The first wait begins to listen. */
        bson_destroy(ask("{'truceClaim': 'mail', 'waitMS': 200, '$db': 'test'}"));
    bson_destroy(ask_upstream("{'drop': 'students', '$db': 'test'}"));
    for (int i = 0; i < 500 && !students_have_an_index(); i++) {
        truce__clock_sleep_ms(20);
        expect_code(ADD_MATH, 0);
    }
    CHECK(students_have_an_index());
    end();
}

/* ---- change streams -------------------------------------------------------------------------- */

static void insert(int id)
{
    char text[200];

    snprintf(text, sizeof text, "{'insert': 'c', 'documents': [{'_id': %d}], '$db': 'test'}", id);
    done(text);
}

static void expect_insert(struct stream_of *stream, int id)
{
    char text[300];

    snprintf(text, sizeof text,
             "{'operationType': 'insert', 'fullDocument': {'_id': %d}, 'ns': {'db': 'test', "
             "'coll': 'c'}, 'documentKey': {'_id': %d}}",
             id, id);
    expect_event(stream, text);
}

#define STREAM(options)                                                                            \
    "{'aggregate': 'c', 'pipeline': [{'$changeStream': {" options "}}], 'cursor': {}, "            \
    "'$db': 'test'}"

TEST(passes_on_events_and_tokens_unchanged)
{
    struct stream_of front, direct;
    char options[300];

    begin();
    front = watch_c("", "");
    direct = open_stream_at(port, STREAM());
    insert(11);
    expect_insert(&front, 11);
    expect_insert(&direct, 11);
    CHECK_TEXT(text_of(direct.reply, "cursor.nextBatch.0._id._data"),
               text_of(front.reply, "cursor.nextBatch.0._id._data"));
    CHECK_TEXT(direct.token, front.token);
    insert(12);
    close_stream(&front);
    snprintf(options, sizeof options, "'resumeAfter': {'_data': '%s'}", direct.token);
    front = watch_c(options, ", {'$match': {'documentKey._id': {'$gt': 12}}}");
    insert(13);
    expect_insert(&front, 13);
    expect_nothing(&front);
    close_stream(&front);
    snprintf(options, sizeof options, "'startAfter': {'_data': '%s'}", direct.token);
    front = watch_c(options, "");
    expect_insert(&front, 12);
    expect_insert(&front, 13);
    close_stream(&front);
    close_stream(&direct);
    end();
}

TEST(a_stream_of_the_database_shows_that_database_only)
{
    struct stream_of stream;

    begin();
    stream = open_stream("{'aggregate': 1, 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                         "'$db': 'test'}");
    bson_destroy(ask_upstream("{'insert': 'c', 'documents': [{'_id': 8}], '$db': 'elsewhere'}"));
    insert(9);
    expect_insert(&stream, 9);
    close_stream(&stream);
    expect_code("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}, "
                "'$db': 'elsewhere'}",
                72);
    expect_code("{'aggregate': 1, 'pipeline': [{'$changeStream': {'allChangesForCluster': true}}], "
                "'cursor': {}, '$db': 'admin'}",
                72);
    end();
}

TEST(returns_the_refusals_of_the_upstream_server)
{
    begin();
    expect_code(STREAM("'resumeAfter': {'_data': '00'}"), 260);
    expect_code(STREAM("'fullDocument': 'sometimes'"), 2);
    expect_code("{'aggregate': 'c', 'pipeline': [{'$changeStream': {}}, {'$group': {'_id': 1}}], "
                "'cursor': {}, '$db': 'test'}",
                20);
    expect_code(FIRST(A, 1, "'aggregate': 'c', 'pipeline': [{'$changeStream': {}}], 'cursor': {}"),
                263);
    end();
}

/* Counts the open cursors of the upstream server. */
static int64_t cursors_upstream(void)
{
    bson_t *reply = ask_upstream("{'serverStatus': 1, '$db': 'admin'}");
    int64_t open = reply_number(reply, "metrics.cursor.open.total");

    bson_destroy(reply);
    return open;
}

TEST(closes_a_stream_upstream_when_its_client_is_gone)
{
    struct stream_of stream;
    char text[300];
    bson_t *reply;

    begin();
    CHECK_INT(0, ==, cursors_upstream());
    stream = watch_c("", "");
    CHECK_INT(1, ==, cursors_upstream());
    snprintf(text, sizeof text,
             "{'killCursors': 'c', 'cursors': [{'$numberLong': '%lld'}], '$db': 'test'}",
             (long long)stream.id);
    reply = ask(text);
    CHECK_INT(stream.id, ==, reply_number(reply, "cursorsKilled.0"));
    bson_destroy(reply);
    CHECK_INT(0, ==, cursors_upstream());
    close_stream(&stream);
    stream = watch_c("", "");
    snprintf(text, sizeof text,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', 'maxTimeMS': 60000, "
             "'$db': 'test'}",
             (long long)stream.id);
    {
        bson_t *command = test_bson(text);
        struct buffer message = message_of(command, 0);

        CHECK(send_all(stream.end, message.bytes, message.size));
        truce__buffer_release(&message);
        bson_destroy(command);
    }
    close_stream(&stream); /* While the server waits for an event. */
    for (int i = 0; i < 500 && cursors_upstream(); i++)
        truce__clock_sleep_ms(20);
    CHECK_INT(0, ==, cursors_upstream());
    end();
}

TEST(a_stream_whose_server_is_lost_may_be_resumed)
{
    struct stream_of stream;
    char options[300];

    deadline_ms = 2000;
    begin();
    stream = watch_c("", "");
    insert(21);
    expect_insert(&stream, 21);
    snprintf(options, sizeof options, "'resumeAfter': {'_data': '%s'}", stream.token);
    close_upstream();
    ask_more(&stream, 10, 1000);
    CHECK_INT(6, ==, reply_number(stream.reply, "code"));
    CHECK_TEXT("ResumableChangeStreamError", text_of(stream.reply, "errorLabels.0"));
    close_stream(&stream);
    open_upstream();
    insert(22);
    stream = watch_c(options, "");
    expect_insert(&stream, 22);
    close_stream(&stream);
    end();
    deadline_ms = 0;
}
