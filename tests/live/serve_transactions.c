/* Transactions of clients: the answers of each command, discarded transactions, and the stored data
 * after a crash. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "tests/support/cursor_use.h"
#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"
#define B "{'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAg==', 'subType': '04'}}}"

static char path[600];

static void begin_with(const struct server_options *options)
{
    bson_error_t error = {0};

    snprintf(path, sizeof path, "%s/served.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, options, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code("{'dropDatabase': 1, '$db': 'config'}", 0);
    expect_code(
        "{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}, {'_id': 2, 'v': 1}], '$db': 'test'}", 0);
}

static void begin(void)
{
    begin_with(NULL);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
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

static int64_t value_of_1(void)
{
    bson_t *reply = ask("{'find': 'c', 'filter': {'_id': 1}, '$db': 'test'}");
    int64_t value = reply_number(reply, "cursor.firstBatch.0.v");

    bson_destroy(reply);
    return value;
}

static void expect_label(const char *command, int64_t code, const char *label)
{
    bson_t *reply = ask(command);
    bson_iter_t iter, found;

    CHECK_INT(code, ==, reply_number(reply, "code"));
    if (CHECK(reply && bson_iter_init(&iter, reply) &&
              bson_iter_find_descendant(&iter, "errorLabels.0", &found)))
        CHECK_TEXT(label, bson_iter_utf8(&found, NULL));
    bson_destroy(reply);
}

TEST(shows_a_transaction_once_committed_and_repeats_its_commit)
{
    bson_t *reply;

    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    reply = ask(NEXT(A, 1, "'find': 'c', 'filter': {'v': 2}"));
    CHECK_INT(1, ==, reply_number(reply, "cursor.firstBatch.0._id"));
    bson_destroy(reply);
    CHECK_INT(1, ==, value_of_1());
    expect_code(COMMIT(A, 1), 0);
    CHECK_INT(2, ==, value_of_1());
    expect_code(COMMIT(A, 1), 0);
    expect_code(ABORT(A, 1), 256);
    expect_code(NEXT(A, 1, READ), 256);
    CHECK_INT(2, ==, value_of_1());
    end();
}

TEST(refuses_impossible_commands_in_a_transaction)
{
    begin();
    expect_code(NEXT(A, 1, READ), 251);
    expect_label(COMMIT(A, 1), 251, "TransientTransactionError");
    expect_code(FIRST(A, 3, READ), 0);
    expect_code(FIRST(A, 3, READ), 117);
    expect_code(FIRST(A, 2, READ), 225);
    expect_code(NEXT(A, 2, READ), 225);
    expect_code(NEXT(A, 4, READ), 251);
    expect_code(NEXT(A, 3, "'drop': 'c'"), 263);
    expect_code(NEXT(A, 3, "'collMod': 'c', 'validator': {}"), 263);
    expect_code(NEXT(A, 3, "'dropIndexes': 'c', 'index': '*'"), 263);
    expect_code(NEXT(A, 3, "'renameCollection': 'test.c', 'to': 'test.d'"), 263);
    expect_code(NEXT(A, 3, "'listCollections': 1"), 263);
    expect_code(NEXT(A, 3, "'ping': 1"), 263);
    expect_code(NEXT(A, 3, "'aggregate': 'c', 'pipeline': [{'$out': 'd'}], 'cursor': {}"), 263);
    expect_code(NEXT(A, 3, READ), 251); /* the failed statement has aborted it */
    expect_code("{'commitTransaction': 1, '$db': 'admin'}", 125);
    expect_code("{'find': 'c', 'autocommit': false, '$db': 'test'}", 72);
    expect_code("{'find': 'c', 'startTransaction': true, '$db': 'test'}", 72);
    expect_code("{'find': 'c', 'lsid': " A
                ", 'txnNumber': {'$numberLong': '5'}, 'autocommit': true, "
                "'$db': 'test'}",
                72);
    end();
}

TEST(returns_a_transient_error_to_the_second_of_two_transactions)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_code(FIRST(B, 1, SET_1), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_label(COMMIT(B, 1), 112, "TransientTransactionError");
    expect_label(COMMIT(B, 1), 251, "TransientTransactionError");
    expect_code(FIRST(A, 2, READ), 0);
    expect_code(
        "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'v': 9}}}], '$db': 'test'}",
        0);
    expect_label(NEXT(A, 2, SET_1), 112, "TransientTransactionError");
    CHECK_INT(9, ==, value_of_1());
    end();
}

TEST(write_skew_is_refused_unless_snapshot_isolation_is_asked_for)
{
    for (int snapshot = 0; snapshot < 2; snapshot++) {
        begin_with(&(struct server_options){.snapshot_isolation = snapshot});
        expect_code(FIRST(A, 1, READ), 0);
        expect_code(FIRST(B, 1, READ), 0);
        expect_code(NEXT(A, 1, SET_1), 0);
        expect_code(NEXT(B, 1, SET_2), 0);
        expect_code(COMMIT(A, 1), 0);
        expect_code(COMMIT(B, 1), snapshot ? 0 : 112);
        end();
    }
}

/* The transaction is not running, and the message begins with `why`. */
static void expect_cause(const char *command, const char *why)
{
    bson_t *reply = ask(command);

    CHECK_INT(251, ==, reply_number(reply, "code"));
    CHECK_INT(0, ==, strncmp(why, truce__field_text(reply, "errmsg"), strlen(why)));
    bson_destroy(reply);
}

TEST(a_refused_statement_ends_the_transaction)
{
    bson_t *reply;

    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    reply = ask(NEXT(A, 1, "'insert': 'c', 'documents': [{'_id': 2}]"));
    CHECK_INT(11000, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    expect_cause(NEXT(A, 1, READ), "transaction 1 of the session was aborted by: E11000 duplicate");
    expect_code(FIRST(A, 2, "'find': 'c', 'filter': {'$nothing': 1}"), 2);
    expect_cause(COMMIT(A, 2), "transaction 2 of the session was aborted by: unknown operator");
    /* the cause is that of its transaction only */
    expect_cause(COMMIT(A, 3), "transaction 3 of the session is not active");
    expect_code(FIRST(A, 4, READ), 0);
    expect_code(ABORT(A, 4), 0);
    expect_cause(COMMIT(A, 4), "transaction 4 of the session is not active");
    CHECK_INT(1, ==, value_of_1());
    end();
}

#define CREATE "'create': 'n', 'validator': {'v': {'$type': 'number'}}"
#define INDEX  "'createIndexes': 'n', 'indexes': [{'key': {'v': 1}, 'name': 'v', 'unique': true}]"
#define PAST   ", 'bypassDocumentValidation': true"
#define PUT(v) "'insert': 'n', 'documents': [{'v': " v "}]"

/* Returns -1 if the collection does not exist. */
static int64_t indexes_of_n(void)
{
    bson_t *reply = ask("{'listIndexes': 'n', '$db': 'test'}");
    bool none = reply_number(reply, "code") == 26;
    int64_t count = none ? -1 : 1 + (reply_number(reply, "cursor.firstBatch.1.unique") == 1);

    CHECK(none || reply_number(reply, "ok") == 1);
    bson_destroy(reply);
    return count;
}

TEST(collections_and_indexes_are_made_by_a_transaction_or_not_at_all)
{
    bson_t *reply;

    begin();
    for (int number = 1; number <= 2; number++) {
        expect_code(FIRST(A, number, CREATE), 0);
        reply = ask(NEXT(A, number, INDEX));
        CHECK_INT(1, ==, reply_number(reply, "numIndexesBefore"));
        CHECK_INT(2, ==, reply_number(reply, "numIndexesAfter"));
        CHECK_INT(0, ==, reply_number(reply, "createdCollectionAutomatically"));
        bson_destroy(reply);
        expect_code(NEXT(A, number, PUT("1")), 0);
        reply = ask(NEXT(A, number, "'find': 'n', 'filter': {'v': 1}, 'hint': 'v'"));
        CHECK_INT(1, ==, reply_number(reply, "cursor.firstBatch.0.v"));
        bson_destroy(reply);
        reply = ask(NEXT(A, number, INDEX));
        CHECK_INT(2, ==, reply_number(reply, "numIndexesBefore"));
        CHECK_INT(2, ==, reply_number(reply, "numIndexesAfter"));
        bson_destroy(reply);
        CHECK_INT(-1, ==, indexes_of_n());
        expect_code(number == 1 ? ABORT(A, 1) : COMMIT(A, 2), 0);
        CHECK_INT(number == 1 ? -1 : 2, ==, indexes_of_n());
    }
    reply = ask("{" PUT("1") ", '$db': 'test'}");
    CHECK_INT(11000, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    reply = ask("{" PUT("'text'") ", '$db': 'test'}");
    CHECK_INT(121, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    expect_code(FIRST(A, 3, CREATE), 48);
    expect_code(NEXT(A, 3, READ), 251);
    expect_code(FIRST(A, 4, "'createIndexes': 'c', 'indexes': [{'key': {'v': 1}, 'name': 'v'}]"),
                263);
    expect_code(FIRST(A, 5, INDEX), 0);
    expect_code(COMMIT(A, 5), 0);
    end();
}

TEST(commits_writes_of_a_transaction_that_bypass_a_validator)
{
    bson_t *reply;

    begin();
    expect_code("{'collMod': 'c', 'validator': {'v': {'$type': 'number'}}, '$db': 'test'}", 0);
    reply = ask(FIRST(A, 1, "'insert': 'c', 'documents': [{'_id': 3, 'v': 'text'}]"));
    CHECK_INT(121, ==, reply_number(reply, "writeErrors.0.code"));
    bson_destroy(reply);
    expect_code(FIRST(A, 2, "'insert': 'c', 'documents': [{'_id': 3, 'v': 'text'}]" PAST), 0);
    expect_code(
        NEXT(A, 2,
             "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': [{'$set': {'v': 'text'}}]}]" PAST),
        0);
    expect_code(
        NEXT(
            A, 2,
            "'findAndModify': 'c', 'query': {'_id': 4}, 'upsert': true, 'update': {'v': 'text'}" PAST),
        0);
    expect_code(COMMIT(A, 2), 0);
    reply = ask("{'count': 'c', 'query': {'v': 'text'}, '$db': 'test'}");
    CHECK_INT(3, ==, reply_number(reply, "n"));
    bson_destroy(reply);
    end();
}

TEST(reports_a_transient_conflict_of_two_equal_creations)
{
    bson_t *reply;

    begin();
    reply = ask(FIRST(A, 1, INDEX));
    CHECK_INT(1, ==, reply_number(reply, "createdCollectionAutomatically"));
    bson_destroy(reply);
    expect_code(FIRST(B, 1, CREATE), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_label(COMMIT(B, 1), 112, "TransientTransactionError");
    CHECK_INT(2, ==, indexes_of_n());
    end();
}

TEST(a_session_that_ends_takes_its_transaction_along)
{
    static const char *const ends[] = {"{'endSessions': [" A "], '$db': 'admin'}",
                                       "{'killSessions': [" A "], '$db': 'admin'}",
                                       "{'killAllSessions': [], '$db': 'admin'}"};

    begin();
    for (int i = 0; i < 3; i++) {
        expect_code(FIRST(A, i + 1, SET_1), 0);
        expect_code(ends[i], 0);
        expect_code(COMMIT(A, i + 1), 251);
    }
    expect_code(FIRST(A, 7, SET_1), 0);
    expect_code(FIRST(A, 8, READ), 0); /* a newer one, too */
    expect_code(COMMIT(A, 8), 0);
    CHECK_INT(1, ==, value_of_1());
    end();
}

TEST(a_commit_and_an_abort_refuse_unknown_fields_and_end_nothing)
{
    begin();
    expect_code(FIRST(A, 1, SET_1), 0);
    expect_code(NEXT(A, 1, "'commitTransaction': 1, 'x': 1"), 40415);
    expect_code(NEXT(A, 1, "'abortTransaction': 1, 'x': 1"), 40415);
    expect_code(NEXT(A, 1, "'commitTransaction': 1, 'recoveryToken': {}"), 0);
    end();
}

static int64_t open_cursors(void)
{
    bson_t *reply = ask("{'serverStatus': 1, '$db': 'admin'}");
    int64_t open = reply_number(reply, "metrics.cursor.open.total");

    bson_destroy(reply);
    return open;
}

TEST(cursors_of_a_transaction_are_its_own)
{
    char command[200];
    bson_t *reply;
    int64_t id;

    begin();
    reply = ask(FIRST(A, 1, "'find': 'c', 'batchSize': 1"));
    id = reply_number(reply, "cursor.id");
    bson_destroy(reply);
    CHECK(id > 0);
    snprintf(command, sizeof command,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', '$db': 'test'}",
             (long long)id);
    expect_code(command, 43);
    snprintf(command, sizeof command,
             "'getMore': {'$numberLong': '%lld'}, 'collection': 'c', 'batchSize': 1",
             (long long)id);
    reply = ask(NEXT(A, 1, command));
    CHECK_INT(2, ==, reply_number(reply, "cursor.nextBatch.0._id"));
    bson_destroy(reply);
    CHECK_INT(1, ==, open_cursors());
    expect_code(ABORT(A, 1), 0);
    CHECK_INT(0, ==, open_cursors());
    expect_code(FIRST(A, 2, READ), 0);
    expect_code(NEXT(A, 2, command), 43);
    end();
}

/* Reads a document of a cursor. Returns the code of the error, or -1. */
static int64_t read_one(int64_t id)
{
    char command[200];
    int64_t code;
    bson_t *reply;

    snprintf(
        command, sizeof command,
        "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', 'batchSize': 1, '$db': 'test'}",
        (long long)id);
    reply = ask(command);
    code = reply_number(reply, "code");
    bson_destroy(reply);
    return code;
}

/* Opens a cursor and reads a document. Returns its id, or the code of the error. */
static int64_t open_one(void)
{
    bson_t *reply = ask("{'find': 'c', 'batchSize': 1, '$db': 'test'}");
    int64_t id = reply_number(reply, "cursor.id"), code = reply_number(reply, "code");

    bson_destroy(reply);
    return code > 0 ? code : id;
}

TEST(other_clients_cursors_end_no_read_and_no_transaction)
{
    int64_t report;

    cursor_use_least();
    begin();
    for (int i = 0; i < 20; i++) {
        char *text = bson_malloc(20000), *at = text;

        at += sprintf(at, "{'insert': 'c', '$db': 'test', 'documents': [");
        for (int j = 0; j < 100; j++)
            at += sprintf(at, "%s{'_id': %d, 'text': 'a text of some bytes'}", j ? ", " : "",
                          100 + i * 100 + j);
        sprintf(at, "]}");
        expect_code(text, 0);
        bson_free(text);
    }
    report = open_one();
    expect_code(FIRST(A, 1, READ ", 'filter': {'_id': 1}"), 0);
    for (int i = 1; i < TRUCE_CURSORS_LEAST; i++) {
        CHECK_INT(open_one(), >, 1000);
        cursor_use_set(store, -1, 3600); /* however slow this machine is */
    }
    for (int i = 0; i < 10; i++) {
        CHECK_INT(open_one(), ==, 146);
        CHECK_INT(read_one(report), ==, -1);
        cursor_use_set(store, -1, 3600);
    }
    expect_code(FIRST(B, 1, READ ", 'filter': {'_id': 2}"), 0);
    expect_code(NEXT(A, 1, "'aggregate': 'c', 'pipeline': [{'$count': 'n'}], 'cursor': {}"), 0);
    expect_code(
        NEXT(A, 1, "'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$inc': {'v': 1}}}]"), 0);
    expect_code(COMMIT(A, 1), 0);
    expect_code(COMMIT(B, 1), 0);
    end();
}

TEST(ends_old_transactions_and_blocks_no_others)
{
    bool ended = false;

    begin_with(&(struct server_options){.transaction_ms = 1});
    expect_code(FIRST(A, 1, SET_1), 0);
    for (int i = 0; i < 1000 && !ended; i++) {
        bson_t *reply = ask(NEXT(A, 1, READ));

        ended = reply_number(reply, "code") == 251;
        bson_destroy(reply);
        truce__clock_sleep_ms(20);
    }
    CHECK(ended);
    expect_code(
        "{'update': 'c', 'updates': [{'q': {'_id': 1}, 'u': {'$set': {'v': 9}}}], '$db': 'test'}",
        0);
    CHECK_INT(9, ==, value_of_1());
    end();
}

TEST(accepts_a_transaction_of_the_maximum_size_and_none_larger)
{
    char *text = bson_malloc(11001000), *at;

    begin();
    expect_code(FIRST(A, 1, READ), 0);
    for (int i = 0; i < 7; i++) {
        bson_t *reply;

        at = text + sprintf(text, "{'insert': 'c', 'documents': [{'_id': %d, 't': '", 100 + i);
        memset(at, 'x', 11000000);
        sprintf(at + 11000000,
                "'}], 'lsid': %s, 'txnNumber': {'$numberLong': '1'}, 'autocommit': false, "
                "'$db': 'test'}",
                A);
        reply = ask(text);
        CHECK_INT(i < 6 ? -1 : 257, ==, reply_number(reply, "code"));
        bson_destroy(reply);
    }
    expect_code(COMMIT(A, 1), 251);
    bson_free(text);
    end();
}

/* ---- a server that is killed ---------------------------------------------------------------- */

/* Adds one to two documents in each transaction, until the server is gone. */
static int move_until_dead(int port, int number)
{
    int end_ = dial_port(port);

    for (bool alive = true; alive; number++) {
        char *const commands[] = {strdup(FIRST(A, number, SET_1)), strdup(NEXT(A, number, SET_2)),
                                  strdup(COMMIT(A, number))};

        for (int i = 0; i < 3; i++) {
            bson_t *reply = alive ? ask_on(end_, commands[i], 0) : NULL;

            alive = reply != NULL;
            if (alive)
                CHECK_INT(1, ==, reply_number(reply, "ok"));
            bson_destroy(reply);
            free(commands[i]);
        }
    }
    close(end_);
    return number - 1;
}

static int64_t v_of(truce_store *file, int id)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), document;
    bson_error_t error;
    int64_t value;

    CHECK_OK(truce_find_one(file, "c", filter, NULL, &document, &error), error);
    value = reply_number(&document, "v");
    bson_destroy(&document);
    bson_destroy(filter);
    return value;
}

TEST(leaves_no_partial_commit_and_knows_its_commits_after_a_kill)
{
    int rounds = (int)test_scale("TRUCE_TRANSACTION_KILLS", 4), number = 1;
    bson_error_t error;

    begin();
    end();
    for (int round = 0; round < rounds; round++) {
        struct killing killing = {.after_ms = 30 + 37 * (uint32_t)round % 200};
        pthread_t killer;
        int port, last, status;
        int64_t before, after, committed;

        REQUIRE(!truce_store_open(path, NULL, &store, &error));
        before = v_of(store, 1);
        truce_store_close(store);
        killing.child = serve_child(path, &port);
        REQUIRE(port > 0 && !pthread_create(&killer, NULL, kill_served, &killing));
        last = move_until_dead(port, number);
        pthread_join(killer, NULL);
        waitpid(killing.child, &status, 0);
        REQUIRE(!truce_store_open(path, NULL, &store, &error));
        after = v_of(store, 1);
        CHECK_INT(after, ==, v_of(store, 2));
        committed = after - before;
        CHECK(committed == last - number || committed == last - number + 1);
        /* the client sends its commit again, and gets the true outcome */
        REQUIRE(!server_start(store, NULL, &server, &error));
        if (last > number || committed)
            expect_code(COMMIT(A, last), committed == last - number + 1 ? 0 : 251);
        server_stop(server, 5000);
        truce_store_close(store);
        number = last + 1;
    }
}
