/* currentOp and killOp, validate, and the stages of a pipeline that the server answers itself. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
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

static void check_number(const char *command, const char *path, int64_t wanted)
{
    bson_t *reply = ask(command);

    CHECK_INT(reply_number(reply, path), ==, wanted);
    bson_destroy(reply);
}

TEST(collection_stats_are_a_stage)
{
    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}], '$db': 'school'}", 0);
    check_number(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {'storageStats': {}, 'count': {}}}],"
        " 'cursor': {}, '$db': 'school'}",
        "cursor.firstBatch.0.count", 2);
    check_number(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {'count': {}}}, {'$group': {'_id': 1,"
        " 'n': {'$sum': '$count'}}}], 'cursor': {}, '$db': 'school'}",
        "cursor.firstBatch.0.n", 2);
    check_number("{'aggregate': 'none', 'pipeline': [{'$collStats': {'storageStats': {}}}],"
                 " 'cursor': {}, '$db': 'school'}",
                 "cursor.firstBatch.0.storageStats.count", 0);
    expect_code("{'aggregate': 'none', 'pipeline': [{'$collStats': {'count': {}}}], 'cursor': {},"
                " '$db': 'school'}",
                26);
    expect_code("{'aggregate': 1, 'pipeline': [{'$collStats': {}}], 'cursor': {}, '$db': 'school'}",
                73);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': 1}], 'cursor': {}, '$db': 'school'}", 9);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {}}, {'$lookup': {'from': 'd', 'as':"
        " 'd', 'localField': 'a', 'foreignField': 'b'}}], 'cursor': {}, '$db': 'school'}",
        115);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$currentOp': {}}], 'cursor': {}, '$db': 'admin'}", 73);
    end();
}

TEST(validate_counts_and_finds_nothing_wrong)
{
    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 1}, {'_id': 2}], '$db': 'school'}", 0);
    check_number("{'validate': 'c', '$db': 'school'}", "nrecords", 2);
    check_number("{'validate': 'c', 'full': true, '$db': 'school'}", "valid", 1);
    expect_code("{'validate': 'none', '$db': 'school'}", 26);
    expect_code("{'validate': 'c', 'repair': true, '$db': 'school'}", 115);
    expect_code("{'validate': 'c', 'nothing': true, '$db': 'school'}", 40415);
    end();
}

TEST(current_operations_are_listed_and_picked_by_their_fields)
{
    int idle;

    begin();
    idle = dial();
    bson_destroy(ask_on(idle, "{'ping': 1, '$db': 'admin'}", 0));
    check_number("{'currentOp': 1, '$db': 'admin'}", "inprog.0.active", 1);
    check_number("{'currentOp': 1, 'active': false, '$db': 'admin'}", "inprog.0.active", -1);
    check_number(
        "{'currentOp': 1, '$all': true, 'active': false, 'connectionId': 1, '$db': 'admin'}",
        "inprog.0.connectionId", 1);
    check_number("{'currentOp': 1, 'op': 'query', '$db': 'admin'}", "inprog.0.opid", -1);
    check_number(
        "{'aggregate': 1, 'pipeline': [{'$currentOp': {'idleConnections': true}}, {'$match':"
        " {'active': false, 'connectionId': 1}}, {'$count': 'n'}], 'cursor': {}, '$db': 'admin'}",
        "cursor.firstBatch.0.n", 1);
    expect_code("{'currentOp': 1, 'a': {'$nothing': 1}, '$db': 'admin'}", 2);
    close(idle);
    end();
}

/* ---- ended ---------------------------------------------------------------------------------- */

struct asker {
    int64_t code;
    int over;
};

/* Takes for ever: each of the documents beside each beside each. */
static void *ask_for_ever(void *arg)
{
    struct asker *asker = arg;
    bson_t *reply = ask(
        "{'aggregate': 'c', 'pipeline': [{'$lookup': {'from': 'c', 'as': 'a', 'let': {'i': '$_id'},"
        " 'pipeline': [{'$lookup': {'from': 'c', 'as': 'b', 'let': {'j': '$_id'}, 'pipeline': [{'$match':"
        " {'$expr': {'$lt': [{'$add': ['$_id', '$$i', '$$j']}, -1]}}}]}}, {'$match': {'b': {'$size':"
        " 1}}}]}}, {'$match': {'a': {'$size': 1}}}], 'cursor': {}, '$db': 'test'}");

    asker->code = reply_number(reply, "code");
    bson_destroy(reply);
    __atomic_store_n(&asker->over, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* The number of what runs; waits until it does. -1: it is over. */
static int64_t running(const struct asker *asker)
{
    int64_t number = -1;

    while (number < 0 && !__atomic_load_n(&asker->over, __ATOMIC_ACQUIRE)) {
        bson_t *reply = ask("{'currentOp': 1, 'ns': 'test.c', '$db': 'admin'}");

        number = reply_number(reply, "inprog.0.opid");
        bson_destroy(reply);
        if (number < 0)
            truce__clock_sleep_ms(5);
    }
    return number;
}

TEST(a_call_that_is_killed_ends_and_the_others_go_on)
{
    bson_t document = BSON_INITIALIZER, *reply;
    struct asker asker = {0};
    int64_t number;
    bson_error_t error;
    pthread_t thread;
    char command[100];

    begin();
    for (int i = 0; i < 3000; i++) {
        bson_reinit(&document);
        BSON_APPEND_INT32(&document, "_id", i);
        REQUIRE(!truce_insert(store, "c", &document, NULL, &error));
    }
    bson_destroy(&document);
    pthread_create(&thread, NULL, ask_for_ever, &asker);
    number = running(&asker);
    expect_code("{'killOp': 1, 'op': -5, '$db': 'admin'}", 0);
    expect_code("{'killOp': 1, '$db': 'admin'}", 14);
    expect_code("{'count': 'c', '$db': 'test'}", 0);
    CHECK_INT(running(&asker), ==, number);
    snprintf(command, sizeof command, "{'killOp': 1, 'op': %lld, '$db': 'admin'}",
             (long long)number);
    reply = ask(command);
    CHECK_INT(reply_number(reply, "ok"), ==, 1);
    bson_destroy(reply);
    pthread_join(thread, NULL);
    CHECK_INT(asker.code, ==, 11601);
    expect_code("{'find': 'c', '$db': 'test'}", 0);
    end();
}
