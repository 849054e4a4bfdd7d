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

static void begin_file(void)
{
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/operations.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'school'}", 0);
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

#define STATS(more) "{'collStats': 'c', '$db': 'school'" more "}"

static int64_t number_of(const char *command, const char *path)
{
    bson_t *reply = ask(command);
    int64_t number = reply_number(reply, path);

    bson_destroy(reply);
    return number;
}

static void insert_many(void)
{
    bson_t *document = bson_new();
    bson_error_t error;
    char text[401];

    memset(text, 'x', 400);
    text[400] = 0;
    for (int i = 0; i < 2000; i++) {
        bson_reinit(document);
        BSON_APPEND_INT32(document, "_id", i);
        BSON_APPEND_UTF8(document, "text", text);
        BSON_APPEND_INT32(document, "n", i % 7);
        REQUIRE(!truce_insert(store, "@school.c", document, &(truce_write_options){.relaxed = true},
                              &error));
    }
    bson_destroy(document);
}

TEST(reports_the_sizes_of_the_pages_of_the_file)
{
    int64_t bytes, storage, index, total;

    begin_file();
    insert_many();
    bytes = number_of(STATS(""), "size");
    storage = number_of(STATS(""), "storageSize");
    index = number_of(STATS(""), "totalIndexSize");
    CHECK_INT(bytes, >, 2000 * 400);
    CHECK_INT(storage, >, bytes);
    CHECK_INT(storage, <, 2 * bytes);
    CHECK_INT(storage % 4096, ==, 0);
    CHECK_INT(index, >=, 2000 * 4);
    CHECK_INT(index, <, storage / 2);
    CHECK_INT(number_of(STATS(""), "indexSizes._id_"), ==, index);
    CHECK_INT(number_of(STATS(""), "totalSize"), ==, storage + index);
    CHECK_INT(number_of(STATS(""), "freeStorageSize"), >, 0);
    CHECK_INT(number_of(STATS(""), "freeStorageSize"), <, storage);
    expect_code("{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n'}], '$db': "
                "'school'}",
                0);
    total = number_of(STATS(""), "totalIndexSize");
    CHECK_INT(number_of(STATS(""), "indexSizes.n"), ==, total - index);
    CHECK_INT(total - index, >=, 2000 * 4);
    CHECK_INT(number_of("{'dbStats': 1, '$db': 'school'}", "storageSize"), ==, storage);
    CHECK_INT(number_of("{'dbStats': 1, '$db': 'school'}", "indexSize"), ==, total);
    CHECK_INT(number_of("{'dbStats': 1, '$db': 'school'}", "totalSize"), ==, storage + total);
    CHECK_INT(number_of("{'dbStats': 1, '$db': 'school'}", "freeStorageSize"), ==, -1);
    CHECK_INT(number_of("{'dbStats': 1, 'freeStorage': 1, '$db': 'school'}", "freeStorageSize"), ==,
              number_of(STATS(""), "freeStorageSize"));
    CHECK_INT(number_of("{'listDatabases': 1, 'filter': {'name': 'school'}, '$db': 'admin'}",
                        "databases.0.sizeOnDisk"),
              ==, storage + total);
    /* removed documents leave free pages, which no longer belong to the collection */
    expect_code("{'delete': 'c', 'deletes': [{'q': {}, 'limit': 0}], '$db': 'school'}", 0);
    CHECK_INT(number_of(STATS(""), "storageSize"), <, storage / 10);
    end();
}

TEST(scales_sizes)
{
    int64_t storage, bytes;

    begin_file();
    insert_many();
    storage = number_of(STATS(""), "storageSize");
    bytes = number_of(STATS(""), "size");
    CHECK_INT(number_of(STATS(""), "scaleFactor"), ==, 1);
    CHECK_INT(number_of(STATS(", 'scale': 1024"), "storageSize"), ==, storage / 1024);
    CHECK_INT(number_of(STATS(", 'scale': 1024"), "size"), ==, bytes / 1024);
    CHECK_INT(number_of(STATS(", 'scale': 1024"), "avgObjSize"), ==, bytes / 2000);
    CHECK_INT(number_of(STATS(", 'scale': 1024.0"), "scaleFactor"), ==, 1024);
    check_number(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {'storageStats': {'scale': 1024}}}],"
        " 'cursor': {}, '$db': 'school'}",
        "cursor.firstBatch.0.storageStats.storageSize", storage / 1024);
    CHECK_INT(number_of("{'dbStats': 1, 'scale': 1024, '$db': 'school'}", "storageSize"), ==,
              storage / 1024);
    expect_code(STATS(", 'scale': 0"), 51024);
    expect_code(STATS(", 'scale': -3"), 51024);
    expect_code(STATS(", 'scale': 'x'"), 14);
    expect_code("{'dbStats': 1, 'scale': 0, '$db': 'school'}", 51024);
    expect_code(STATS(", 'wrong': 1"), 40415);
    end();
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
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {'latencyStats': {}, 'count': {}}}],"
        " 'cursor': {}, '$db': 'school'}",
        0);
    expect_code("{'aggregate': 'c', 'pipeline': [{'$collStats': {'storageStat': {}}}],"
                " 'cursor': {}, '$db': 'school'}",
                40415);
    expect_code(
        "{'aggregate': 1, 'pipeline': [{'$currentOp': {'allUsers': true, 'localOps': true}}],"
        " 'cursor': {}, '$db': 'admin'}",
        0);
    expect_code("{'aggregate': 1, 'pipeline': [{'$currentOp': {'allUser': true}}], 'cursor': {},"
                " '$db': 'admin'}",
                9);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$collStats': {}}, {'$lookup': {'from': 'd', 'as':"
        " 'd', 'localField': 'a', 'foreignField': 'b'}}], 'cursor': {}, '$db': 'school'}",
        115);
    expect_code(
        "{'aggregate': 'c', 'pipeline': [{'$currentOp': {}}], 'cursor': {}, '$db': 'admin'}", 73);
    end();
}

TEST(validate_counts_documents_and_reports_no_fault)
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

/* Runs forever: the triple product of the documents. */
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

/* Waits until the command runs. Returns its operation number, or -1 if the command has ended. */
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

TEST(ends_a_killed_call_and_continues_the_others)
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
