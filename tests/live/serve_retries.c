/* Writes that clients send again: their answers, the retained results, and the stored data after
 * the server was killed. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "maintenance/session_sweep.h"
#include "store/reserved_names.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"
#include "truce/sys/store.h"

#define A "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"

static char path[600];

static void open_server(void)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    open_server();
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'config'}", 0);
}

/* Restarts the server, so that only the data of the file remains. */
static void restart(void)
{
    end();
    open_server();
}

static char *numbered(const char *command, const char *session, int number)
{
    static char text[3000];

    snprintf(text, sizeof text,
             "{%s, 'lsid': %s, 'txnNumber': {'$numberLong': '%d'}, '$db': 'test'}", command,
             session, number);
    return text;
}

static int64_t count_of(const char *filter)
{
    char text[300];
    bson_t *reply;
    int64_t n;

    snprintf(text, sizeof text, "{'count': 'c', 'query': %s, '$db': 'test'}", filter);
    reply = ask(text);
    n = reply_number(reply, "n");
    bson_destroy(reply);
    return n;
}

static int64_t v_of(int id)
{
    char text[200];
    bson_t *reply;
    int64_t v;

    snprintf(text, sizeof text, "{'find': 'c', 'filter': {'_id': %d}, '$db': 'test'}", id);
    reply = ask(text);
    v = reply_number(reply, "cursor.firstBatch.0.v");
    bson_destroy(reply);
    return v;
}

/* Copies the reply without the fields that mark a retry and its time. Frees the reply. */
static bson_t *bare_of(bson_t *reply)
{
    bson_t *bare = bson_new();

    if (reply)
        bson_copy_to_excluding_noinit(reply, bare, "retriedStmtIds", "retriedStmtId",
                                      "operationTime", "$clusterTime", NULL);
    bson_destroy(reply);
    return bare;
}

/* Sends the command, sends it again, and again after a restart. The answers are equal, except for
 * the fields that mark a retry. */
static bson_t *ask_thrice(const char *command)
{
    bson_t *first = bare_of(ask(command)), *later = NULL, *bare;

    for (int i = 0; i < 2; i++) {
        if (i)
            restart();
        bson_destroy(later);
        later = ask(command);
        bare = bare_of(bson_copy(later));
        if (!CHECK(bson_equal(first, bare)))
            fprintf(stderr, "    %s\n    %s\n", bson_as_json(first, NULL),
                    bson_as_json(bare, NULL));
        bson_destroy(bare);
        CHECK_INT(reply_number(later, "retriedStmtIds.0") >= 0 ||
                      reply_number(later, "retriedStmtId") >= 0,
                  ==, true);
    }
    bson_destroy(first);
    return later;
}

TEST(returns_the_first_reply_for_a_repeated_statement)
{
    bson_t *reply;

    begin();
    reply =
        ask_thrice(numbered("'insert': 'c', 'documents': [{'_id': 1, 'v': 1}, {'_id': 2, 'v': 1}, "
                            "{'_id': 3, 'v': 1}]",
                            A, 1));
    CHECK_INT(3, ==, reply_number(reply, "n"));
    CHECK_INT(2, ==, reply_number(reply, "retriedStmtIds.2"));
    bson_destroy(reply);
    reply = ask_thrice(
        numbered("'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}, "
                 "{'q': {'_id': 9}, 'u': {'$inc': {'v': 5}}, 'upsert': true}, "
                 "{'q': {'_id': 2}, 'u': {'$inc': {'v': 1}}}]",
                 A, 2));
    CHECK_INT(3, ==, reply_number(reply, "n"));
    CHECK_INT(2, ==, reply_number(reply, "nModified"));
    CHECK_INT(9, ==, reply_number(reply, "upserted.0._id"));
    CHECK_INT(1, ==, reply_number(reply, "upserted.0.index"));
    bson_destroy(reply);
    CHECK_INT(v_of(1), ==, 2);
    CHECK_INT(v_of(2), ==, 2);
    CHECK_INT(v_of(9), ==, 5);
    reply = ask_thrice(numbered("'delete': 'c', 'deletes': [{'q': {'v': 2}, 'limit': 1}]", A, 3));
    CHECK_INT(1, ==, reply_number(reply, "n"));
    bson_destroy(reply);
    CHECK_INT(count_of("{'v': 2}"), ==, 1);
    end();
}

TEST(find_and_modify_gives_the_same_document_again)
{
    bson_t *reply;

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}], '$db': 'test'}", 0);
    reply = ask_thrice(
        numbered("'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'$inc': {'v': 1}}", A, 1));
    CHECK_INT(1, ==, reply_number(reply, "value.v"));
    bson_destroy(reply);
    reply = ask_thrice(
        numbered("'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'$inc': {'v': 1}}, "
                 "'new': true, 'fields': {'v': 1, '_id': 0}",
                 A, 2));
    CHECK_INT(3, ==, reply_number(reply, "value.v"));
    CHECK_INT(-1, ==, reply_number(reply, "value._id"));
    bson_destroy(reply);
    reply = ask_thrice(
        numbered("'findAndModify': 'c', 'query': {'_id': 7}, 'update': {'$inc': {'v': 1}}, "
                 "'upsert': true",
                 A, 3));
    CHECK_INT(7, ==, reply_number(reply, "lastErrorObject.upserted"));
    bson_destroy(reply);
    CHECK_INT(v_of(7), ==, 1);
    reply = ask_thrice(
        numbered("'findAndModify': 'c', 'query': {}, 'sort': {'_id': 1}, 'remove': true", A, 4));
    CHECK_INT(1, ==, reply_number(reply, "value._id"));
    bson_destroy(reply);
    CHECK_INT(count_of("{}"), ==, 1);
    CHECK_INT(v_of(7), ==, 1);
    end();
}

TEST(refuses_impossible_retryable_writes)
{
    bson_t *reply;

    begin();
    expect_code(
        "{'insert': 'c', 'documents': [{}], 'txnNumber': {'$numberLong': '1'}, '$db': 'test'}", 72);
    expect_code(numbered("'find': 'c'", A, 1), 50768);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}], 'stmtId': 'x'", A, 1), 14);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}], 'stmtId': -2", A, 1), 14);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}], 'stmtIds': 1", A, 1), 14);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}], 'stmtIds': ['x']", A, 1), 14);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}]", A, 5), 0);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 2}]", A, 4), 225);
    restart();
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 2}]", A, 4), 225);
    expect_code(numbered("'findAndModify': 'c', 'remove': true", A, 5), 217); /* another command */
    expect_code(numbered("'delete': 'c', 'deletes': [{'q': {}, 'limit': 1}]", A, 5), 217);
    reply = ask(numbered("'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'v': 1}}}, "
                         "{'q': {}, 'u': {'$set': {'v': 2}}, 'multi': true}, "
                         "{'q': {'_id': 1}, 'u': {'$set': {'v': 3}}}]",
                         A, 6));
    CHECK_INT(1, ==, reply_number(reply, "n"));
    CHECK_INT(1, ==, reply_number(reply, "writeErrors.0.index"));
    CHECK_INT(72, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    CHECK_INT(v_of(1), ==, 1);
    reply = ask(numbered("'delete': 'c', 'ordered': false, 'deletes': [{'q': {}, 'limit': 0}, "
                         "{'q': {'_id': 1}, 'limit': 1}]",
                         A, 7));
    CHECK_INT(1, ==, reply_number(reply, "n"));
    CHECK_INT(72, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    /* a transaction's number is no writes' number, and the other way round */
    expect_code(numbered("'find': 'c', 'startTransaction': true, 'autocommit': false", A, 8), 0);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 3}]", A, 8), 72);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 3}]", A, 9), 0);
    expect_code(numbered("'find': 'c', 'startTransaction': true, 'autocommit': false", A, 9), 117);
    expect_code(numbered("'find': 'c', 'autocommit': false", A, 8), 225);
    end();
}

TEST(writes_with_the_next_number_after_a_commit_of_the_session)
{
    begin();
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1, 'v': 0}]", A, 1), 0);
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 2}], 'startTransaction': true, "
                         "'autocommit': false",
                         A, 2),
                0);
    expect_code("{'commitTransaction': 1, 'lsid': " A
                ", 'txnNumber': {'$numberLong': '2'}, 'autocommit': false, '$db': 'admin'}",
                0);
    expect_code(
        numbered("'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]", A, 2),
        72);
    expect_code(
        numbered("'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]", A, 3),
        0);
    restart();
    expect_code(
        numbered("'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]", A, 3),
        0);
    CHECK_INT(v_of(1), ==, 1);
    end();
}

TEST(resumes_a_bulk_where_it_stopped)
{
    const char *insert = "'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}, {'_id': 3}]";
    bson_t *reply;

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 2}], '$db': 'test'}", 0);
    reply = ask(numbered(insert, A, 1));
    CHECK_INT(1, ==, reply_number(reply, "n"));
    CHECK_INT(1, ==, reply_number(reply, "writeErrors.0.index"));
    CHECK_INT(-1, ==, reply_number(reply, "retriedStmtIds.0"));
    bson_destroy(reply);
    expect_code("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'test'}", 0);
    reply = ask(numbered(insert, A, 1));
    CHECK_INT(3, ==, reply_number(reply, "n"));
    CHECK_INT(0, ==, reply_number(reply, "retriedStmtIds.0"));
    CHECK_INT(-1, ==, reply_number(reply, "retriedStmtIds.1"));
    bson_destroy(reply);
    CHECK_INT(count_of("{}"), ==, 2); /* the first was done once */
    reply = ask(numbered(insert, A, 1));
    CHECK_INT(3, ==, reply_number(reply, "n"));
    CHECK_INT(2, ==, reply_number(reply, "retriedStmtIds.2"));
    bson_destroy(reply);
    end();
}

/* Statement 1 is known, statement 0 fails: the statements after it do not run. */
TEST(statements_have_the_numbers_that_the_client_gives_them)
{
    bson_t *reply;

    begin();
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 7}], 'stmtId': 1", A, 1), 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 6}], '$db': 'test'}", 0);
    reply = ask(numbered("'insert': 'c', 'documents': [{'_id': 6}, {'_id': 7}]", A, 1));
    CHECK_INT(0, ==, reply_number(reply, "n"));
    CHECK_INT(0, ==, reply_number(reply, "writeErrors.0.index"));
    bson_destroy(reply);
    reply = ask(
        numbered("'insert': 'c', 'documents': [{'_id': 6}, {'_id': 7}], 'ordered': false", A, 1));
    CHECK_INT(1, ==, reply_number(reply, "n"));
    bson_destroy(reply);
    expect_code(
        numbered("'insert': 'c', 'documents': [{'_id': 8}, {'_id': 9}], 'stmtIds': [30, 20]", A, 1),
        0);
    reply = ask(numbered("'insert': 'c', 'documents': [{'_id': 9}, {'_id': 7}, {'_id': 8}], "
                         "'stmtIds': [20, 1, 30]",
                         A, 1));
    CHECK_INT(3, ==, reply_number(reply, "n"));
    CHECK_INT(30, ==, reply_number(reply, "retriedStmtIds.2"));
    bson_destroy(reply);
    for (int i = 0; i < 2; i++) /* -1 is not kept */
        expect_code(
            numbered("'update': 'c', 'updates': [{'q': {'_id': 9}, 'u': {'$inc': {'v': 1}}}], "
                     "'stmtId': -1",
                     A, 2),
            0);
    CHECK_INT(v_of(9), ==, 2);
    end();
}

TEST(does_not_retain_writes_without_changes)
{
    const char *update = "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]";
    bson_t *reply;
    int64_t n;
    bson_error_t error = {0};

    begin();
    reply = ask(numbered(update, A, 1));
    CHECK_INT(0, ==, reply_number(reply, "n"));
    bson_destroy(reply);
    CHECK_OK(truce_count(store, SESSION_RECORDS, NULL, NULL, &n, &error), error);
    CHECK_INT(n, ==, 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 0}], '$db': 'test'}", 0);
    expect_code(numbered(update, A, 1), 0);
    expect_code(numbered(update, A, 1), 0);
    CHECK_INT(v_of(1), ==, 1);
    end();
}

TEST(two_servers_of_one_store_do_a_statement_once)
{
    const char *update = "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]";
    const struct server_options options = {.replica_set = "rs"};
    struct server *first, *second;
    bson_error_t error = {0};

    begin();
    first = server;
    REQUIRE(!server_start(store, &options, &second, &error));
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 0}], '$db': 'test'}", 0);
    for (int number = 1; number < 6; number++)
        for (int i = 0; i < 4; i++) {
            server = (i + number) % 2 ? first : second;
            expect_code(numbered(update, A, number), 0);
            CHECK_INT(v_of(1), ==, number);
        }
    server = first;
    expect_code(numbered(update, A, 9), 0);
    server = second; /* it has not heard of 9 */
    expect_code(numbered(update, A, 8), 225);
    CHECK_INT(v_of(1), ==, 6);
    server = first;
    server_stop(second, 5000);
    end();
}

TEST(distinguishes_a_removed_record_from_one_that_never_existed)
{
    const char *update = "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]";

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 0}], '$db': 'test'}", 0);
    expect_code(numbered(update, A, 1), 0);
    expect_code("{'dropDatabase': 1, '$db': 'config'}", 0);
    expect_code(
        numbered(
            "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}], 'stmtId': 1",
            A, 1),
        217);
    expect_code(numbered(update, A, 1), 217);
    CHECK_INT(v_of(1), ==, 1);
    expect_code(numbered(update, A, 2), 0);
    CHECK_INT(v_of(1), ==, 2);
    end();
}

/* A document that does not fit into the record, and one that just does. */
TEST(executes_once_a_write_whose_result_is_too_large_to_retain)
{
    static const uint32_t sizes[] = {TRUCE_DOCUMENT_BYTES_MAX - 200000,
                                     TRUCE_DOCUMENT_BYTES_MAX - 2000};
    bson_error_t error = {0};

    begin();
    for (int i = 0; i < 2; i++) {
        bson_t document = BSON_INITIALIZER, *reply;
        char *text = bson_malloc0(sizes[i] + 1), command[300];

        memset(text, 'x', sizes[i] - 100);
        BSON_APPEND_INT32(&document, "_id", i);
        BSON_APPEND_UTF8(&document, "t", text);
        BSON_APPEND_INT32(&document, "v", 0);
        CHECK_OK(truce_insert(store, "c", &document, NULL, &error), error);
        snprintf(command, sizeof command,
                 "'findAndModify': 'c', 'query': {'_id': %d}, 'update': {'$inc': {'v': 1}}", i);
        reply = ask(numbered(command, A, i + 1));
        CHECK_INT(i, ==, reply_number(reply, "value._id"));
        bson_destroy(reply);
        reply = ask(numbered(command, A, i + 1));
        CHECK_INT(i ? 217 : -1, ==, reply_number(reply, "code"));
        CHECK_INT(i ? -1 : 0, ==, reply_number(reply, "value.v"));
        bson_destroy(reply);
        bson_destroy(&document);
        bson_free(text);
    }
    CHECK_INT(count_of("{'v': 1}"), ==, 2);
    end();
}

TEST(stores_many_statements_in_one_record)
{
    enum { MANY = 3000 };
    bson_t *command = test_bson(numbered("'update': 'c', 'ordered': false", A, 1)), statements;
    bson_t *reply = NULL;
    struct buffer message;

    begin();
    BSON_APPEND_ARRAY_BEGIN(command, "updates", &statements);
    for (int i = 0; i < MANY; i++) {
        char key[16];
        bson_t *statement = BCON_NEW("q", "{", "_id", BCON_INT32(i), "}", "u", "{", "$inc", "{",
                                     "v", BCON_INT32(1), "}", "}", "upsert", BCON_BOOL(i % 3 == 0));

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT(&statements, key, statement);
        bson_destroy(statement);
    }
    bson_append_array_end(command, &statements);
    message = message_of(command, 0);
    for (int i = 0; i < 3; i++) {
        int end_;

        if (i == 1)
            restart();
        end_ = dial();
        bson_destroy(reply);
        reply = send_all(end_, message.bytes, message.size) ? receive_reply(end_) : NULL;
        close(end_);
        CHECK_INT(MANY / 3, ==, reply_number(reply, "n"));
        CHECK_INT(i ? MANY - 3 : -1, ==, reply_number(reply, "retriedStmtIds.999"));
    }
    CHECK_INT(count_of("{'v': 1}"), ==, MANY / 3);
    truce__buffer_release(&message);
    bson_destroy(reply);
    bson_destroy(command);
    end();
}

/* A repeated statement would be executed again. */
TEST(refuses_to_rename_the_records_of_statements)
{
    begin();
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}]", A, 1), 0);
    expect_code("{'renameCollection': 'config.transactions', 'to': 'config.old', '$db': 'admin'}",
                73);
    expect_code("{'renameCollection': 'test.c', 'to': 'config.transactions', 'dropTarget': true, "
                "'$db': 'admin'}",
                73);
    end();
}

TEST(old_records_are_swept_in_steps)
{
    struct session_sweep sweep = {0};
    int64_t now_ms = truce__clock_wall_ms(), removed, all = 0, left;
    bson_error_t error = {0};
    truce_sweep_report report;
    int steps = 0;

    begin();
    for (int i = 0; i < 25; i++) {
        bson_t *record = BCON_NEW("_id", BCON_INT32(i), "lastWriteDate",
                                  BCON_DATE_TIME(i % 5 ? now_ms - 2000 : now_ms + 100000));

        CHECK_OK(truce_insert(store, SESSION_RECORDS, record, NULL, &error), error);
        bson_destroy(record);
    }
    do {
        CHECK_OK(truce__session_sweep(store, &sweep, 10, now_ms - 1000, &removed, &error), error);
        CHECK_INT(removed, <=, 10);
        all += removed;
        steps++;
    } while (sweep.more);
    CHECK_INT(steps, ==, 3);
    CHECK_INT(all, ==, 20);
    CHECK_OK(truce_count(store, SESSION_RECORDS, NULL, NULL, &left, &error), error);
    CHECK_INT(left, ==, 5);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error); /* none is half an hour old */
    CHECK_INT(report.purged, ==, 0);
    for (int i = 0; i < 5; i++) {
        bson_t *record = BCON_NEW("_id", BCON_INT32(100 + i), "lastWriteDate",
                                  BCON_DATE_TIME(now_ms - TRUCE_SERVER_SESSION_MS - 1000));

        CHECK_OK(truce_insert(store, SESSION_RECORDS, record, NULL, &error), error);
        bson_destroy(record);
    }
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(report.purged, ==, 5);
    end();
}

TEST(a_store_without_receipts_takes_no_numbers)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};

    REQUIRE(!truce_store_open("memory:", NULL, &store, &error));
    store->capabilities &= ~(uint32_t)TRUCE_CAN_RECEIPT;
    CHECK_INT(server_start(store, &options, &server, &error), ==, TRUCE_INVALID);
    CHECK(strstr(error.message, "retryable writes"));
    REQUIRE(!server_start(store, NULL, &server, &error));
    expect_code(numbered("'insert': 'c', 'documents': [{'_id': 1}]", A, 1), 20);
    end();
}

/* ---- a server that is killed ---------------------------------------------------------------- */

enum { CLIENTS = 3 };

/* Runs one client. It adds one to the counter with rising numbers. If the last has no answer, it is
 * sent again. */
struct client {
    pthread_t thread;
    int port, number;
    int64_t acknowledged;
    int name;
};

static char *add_one(const struct client *client, char *text, size_t size)
{
    static const char *const forms[] = {
        "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]",
        "'findAndModify': 'c', 'query': {'_id': 1}, 'update': {'$inc': {'v': 1}}",
    };

    snprintf(text, size,
             "{%s, 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAA%cA==', 'subType': "
             "'04'}}}, 'txnNumber': {'$numberLong': '%d'}, '$db': 'test'}",
             forms[client->number % 2], 'B' + client->name, client->number);
    return text;
}

static void *add_until_dead(void *arg)
{
    struct client *client = arg;
    int end_ = dial_port(client->port);
    bson_t *reply;
    char text[600];

    while ((reply = ask_on(end_, add_one(client, text, sizeof text), 0)) != NULL) {
        CHECK_INT(1, ==, reply_number(reply, "ok"));
        bson_destroy(reply);
        client->acknowledged++;
        client->number++;
    }
    close(end_);
    return NULL;
}

TEST(a_counter_is_right_however_often_the_server_is_killed)
{
    int rounds = (int)test_scale("TRUCE_SERVE_KILLS", 4);
    struct client clients[CLIENTS] = {0};
    int64_t wanted = 0;

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 0}], '$db': 'test'}", 0);
    end();
    for (int round = 0; round < rounds; round++) {
        struct killing killing = {.after_ms = 30 + 37 * (uint32_t)round % 200};
        pthread_t killer;
        int port, status;

        killing.child = serve_child(path, &port);
        REQUIRE(port > 0 && !pthread_create(&killer, NULL, kill_served, &killing));
        for (int i = 0; i < CLIENTS; i++) {
            clients[i].port = port;
            clients[i].name = i;
            REQUIRE(!pthread_create(&clients[i].thread, NULL, add_until_dead, &clients[i]));
        }
        for (int i = 0; i < CLIENTS; i++)
            pthread_join(clients[i].thread, NULL);
        pthread_join(killer, NULL);
        waitpid(killing.child, &status, 0);
        open_server();
        for (int i = 0; i < CLIENTS; i++) { /* the write without an answer, twice */
            char text[600];

            expect_code(add_one(&clients[i], text, sizeof text), 0);
            expect_code(text, 0);
            clients[i].number++;
            wanted += clients[i].acknowledged + 1;
            clients[i].acknowledged = 0;
        }
        CHECK_INT(v_of(1), ==, wanted);
        end();
    }
}
