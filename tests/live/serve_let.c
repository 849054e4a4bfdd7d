/* Properties of a whole command: its variables (`let`), and documents in a separate section of its
 * message. */
#include <string.h>
#include <unistd.h>

#include "tests/support/talk.h"
#include "tests/support/test.h"

#define A "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}"

static void begin(void)
{
    const struct server_options options = {.replica_set = "rs"};
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/let.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, &options, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'test'}", 0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'v': 1}, {'_id': 2, 'v': 2}, "
                "{'_id': 3, 'v': 3}], '$db': 'test'}",
                0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

/* The number at the path of its answer. */
static void expect_number(const char *json, const char *path, int64_t number)
{
    bson_t *reply = ask(json);

    if (reply_number(reply, path) != number) {
        char *text = bson_as_relaxed_extended_json(reply, NULL);

        printf("    %s\n", text);
        bson_free(text);
    }
    CHECK_INT(reply_number(reply, path), ==, number);
    bson_destroy(reply);
}

TEST(variables_of_a_command_are_values_in_its_expressions)
{
    begin();
    expect_number("{'find': 'c', 'filter': {'$expr': {'$gt': ['$v', '$$least']}}, 'projection': "
                  "{'v': '$$tag.n'}, 'let': {'one': 1, 'least': {'$add': ['$$one', 1]}, "
                  "'tag': {'n': {'$literal': 7}}}, '$db': 'test'}",
                  "cursor.firstBatch.0.v", 7);
    expect_number("{'aggregate': 'c', 'cursor': {}, 'pipeline': [{'$match': {'$expr': {'$eq': "
                  "['$_id', '$$id']}}}, {'$lookup': {'from': 'c', 'as': 'a', 'pipeline': [{"
                  "'$match': {'$expr': {'$lt': ['$_id', '$$id']}}}]}}, {'$project': {'n': {"
                  "'$size': '$a'}}}], 'let': {'id': 3}, '$db': 'test'}",
                  "cursor.firstBatch.0.n", 2);
    /* a variable of the expression itself is meant first */
    expect_number("{'find': 'c', 'filter': {'_id': 1}, 'projection': {'x': {'$let': {'vars': {'a': "
                  "5}, 'in': '$$a'}}}, 'let': {'a': 1}, '$db': 'test'}",
                  "cursor.firstBatch.0.x", 5);
    /* with $literal it is a text, and no path */
    expect_number("{'find': 'c', 'filter': {'$expr': {'$eq': ['$$text', {'$literal': '$v'}]}}, "
                  "'let': {'text': {'$literal': '$v'}}, 'limit': 1, '$db': 'test'}",
                  "cursor.firstBatch.0._id", 1);
    expect_number("{'update': 'c', 'updates': [{'q': {'$expr': {'$eq': ['$_id', '$$id']}}, 'u': "
                  "[{'$set': {'v': '$$v'}}]}], 'let': {'id': 2, 'v': 40}, '$db': 'test'}",
                  "nModified", 1);
    expect_number("{'findAndModify': 'c', 'query': {'$expr': {'$eq': ['$v', '$$v']}}, 'update': "
                  "[{'$set': {'w': '$$v'}}], 'new': true, 'let': {'v': 40}, '$db': 'test'}",
                  "value.w", 40);
    expect_number("{'delete': 'c', 'deletes': [{'q': {'$expr': {'$eq': ['$_id', '$$id']}}, "
                  "'limit': 1}], 'let': {'id': 2}, '$db': 'test'}",
                  "n", 1);
    expect_number("{'find': 'c', 'filter': {'$expr': {'$lt': ['$$r', 1]}}, 'let': {'r': {'$rand': "
                  "{}}}, 'limit': 1, '$db': 'test'}",
                  "cursor.firstBatch.0._id", 1);
    end();
}

TEST(variables_hold_in_a_transaction_and_in_further_batches)
{
    bson_t *reply;
    char text[200];
    int64_t id;

    begin();
    expect_number("{'update': 'c', 'updates': [{'q': {'$expr': {'$eq': ['$_id', '$$id']}}, 'u': "
                  "[{'$set': {'v': '$$v'}}]}], 'let': {'id': 2, 'v': 40}, " A
                  ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false, 'startTransaction': "
                  "true, '$db': 'test'}",
                  "nModified", 1);
    expect_number("{'find': 'c', 'filter': {'$expr': {'$eq': ['$v', '$$v']}}, 'let': {'v': 40}, " A
                  ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false, '$db': 'test'}",
                  "cursor.firstBatch.0._id", 2);
    expect_code("{'commitTransaction': 1, " A
                ", 'txnNumber': {'$numberLong': '1'}, 'autocommit': false, '$db': 'admin'}",
                0);
    reply = ask("{'aggregate': 'c', 'cursor': {'batchSize': 1}, 'pipeline': [{'$lookup': {'from': "
                "'c', 'as': 'a', 'pipeline': [{'$match': {'$expr': {'$gt': ['$v', '$$v']}}}]}}, "
                "{'$project': {'n': {'$size': '$a'}}}], 'let': {'v': 2}, '$db': 'test'}");
    CHECK_INT(reply_number(reply, "cursor.firstBatch.0.n"), ==, 2);
    id = reply_number(reply, "cursor.id");
    bson_destroy(reply);
    snprintf(text, sizeof text,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'c', '$db': 'test'}",
             (long long)id);
    expect_number(text, "cursor.nextBatch.1.n", 2);
    end();
}

TEST(refuses_invalid_variables_and_ends_them_with_their_command)
{
    int connection;
    bson_t *reply;

    begin();
    expect_code("{'find': 'c', 'let': {'a': '$v'}, '$db': 'test'}", 4890500);
    expect_code("{'find': 'c', 'let': {'a': '$$ROOT'}, '$db': 'test'}", 4890500);
    expect_code("{'find': 'c', 'let': {'a': '$$CURRENT.v'}, '$db': 'test'}", 4890500);
    expect_code("{'find': 'c', 'let': {'a': '$$b', 'b': 1}, '$db': 'test'}", 17276);
    expect_code("{'find': 'c', 'let': {'A': 1}, '$db': 'test'}", 16867);
    expect_code("{'find': 'c', 'let': {'': 1}, '$db': 'test'}", 16866);
    expect_code("{'find': 'c', 'let': {'a': {'$no': 1}}, '$db': 'test'}", 168);
    expect_code("{'find': 'c', 'let': 1, '$db': 'test'}", 14);
    expect_code("{'find': 'c', 'let': {}, '$db': 'test'}", 0);
    expect_code("{'find': 'c', 'filter': {'$expr': '$$a'}, '$db': 'test'}", 17276);
    connection = dial(); /* the same thread of the server */
    for (int i = 0; i < 2; i++) {
        reply = ask_on(connection,
                       i ? "{'find': 'c', 'filter': {'$expr': '$$a'}, '$db': 'test'}"
                         : "{'find': 'c', 'filter': {'$expr': '$$a'}, 'let': {'a': true}, '$db': "
                           "'test'}",
                       0);
        CHECK_INT(reply_number(reply, "code"), ==, i ? 17276 : -1);
        bson_destroy(reply);
    }
    CHECK(!close(connection));
    end();
}

TEST(a_pipeline_may_bring_its_own_documents)
{
    begin();
    expect_number("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$documents': [{'x': 1}, {'x': 5}, "
                  "{'x': 3}]}, {'$sort': {'x': -1}}, {'$limit': 2}], '$db': 'test'}",
                  "cursor.firstBatch.1.x", 3);
    expect_number("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$documents': {'$map': {'input': "
                  "'$$all', 'in': {'x': '$$this'}}}}, {'$lookup': {'from': 'c', 'as': 'c', "
                  "'localField': 'x', 'foreignField': '_id'}}, {'$unwind': '$c'}], 'let': {'all': "
                  "[7, 2]}, '$db': 'test'}",
                  "cursor.firstBatch.0.c.v", 2);
    expect_code("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$documents': [{'_id': 9, 'v': 9}, "
                "{'_id': 1, 'v': 10}]}, {'$merge': {'into': 'c'}}], '$db': 'test'}",
                0);
    expect_number("{'count': 'c', 'query': {'v': {'$gt': 8}}, '$db': 'test'}", "n", 2);
    expect_code("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$documents': [{'_id': 9}]}, "
                "{'$merge': {'into': 'c', 'whenMatched': 'fail'}}], '$db': 'test'}",
                11000);
    end();
}

TEST(refuses_invalid_or_misplaced_document_sections)
{
    static const struct {
        const char *stages;
        int64_t code;
    } wrong[] = {
        {"{'$documents': {'a': 1}}", 5858203},
        {"{'$documents': [1]}", 40228},
        {"{'$documents': '$a'}", 4890500},
        {"{'$documents': ['$$ROOT']}", 4890500},
        {"{'$match': {}}, {'$documents': []}", 40602},
        {"{'$documents': []}, {'$unionWith': {'coll': 'c', 'pipeline': [{'$documents': []}]}}", 73},
        {"{'$documents': []}, {'$facet': {'a': [{'$documents': []}]}}", 40600},
    };
    char text[400];

    begin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text,
                 "{'aggregate': 1, 'cursor': {}, 'pipeline': [%s], '$db': 'test'}",
                 wrong[i].stages);
        expect_code(text, wrong[i].code);
    }
    expect_code("{'aggregate': 'c', 'cursor': {}, 'pipeline': [{'$documents': []}], '$db': 'test'}",
                73);
    expect_number(
        "{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$documents': [{'n': 3}]}, {'$lookup': "
        "{'as': 'r', 'let': {'n': '$n'}, 'pipeline': [{'$documents': [{'x': '$$n'}]}]}}], "
        "'$db': 'test'}",
        "cursor.firstBatch.0.r.0.x", 3);
    end();
}

TEST(sessions_are_listed_as_documents)
{
    begin();
    expect_number("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': {}}, "
                  "{'$count': 'n'}], " A ", '$db': 'test'}",
                  "cursor.firstBatch.0.n", 1);
    for (int i = 0; i < 2; i++) /* another, which writes; the first one only reads */
        expect_code("{'insert': 'c', 'documents': [{'_id': 50}], 'txnNumber': {'$numberLong': "
                    "'1'}, 'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAg==', "
                    "'subType': '04'}}}, '$db': 'test'}",
                    0);
    expect_number("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': {}}, "
                  "{'$match': {'lastUse': {'$exists': true}, '_id.id': {'$binary': {'base64': "
                  "'AAAAAAAAAAAAAAAAAAAAAg==', 'subType': '04'}}}}, {'$count': 'n'}], " A
                  ", '$db': 'test'}",
                  "cursor.firstBatch.0.n", 1);
    expect_code("{'insert': 'c', 'documents': [{'_id': 51}], 'txnNumber': {'$numberLong': '1'}, " A
                ", '$db': 'test'}",
                0);
    expect_number("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': {}}, "
                  "{'$count': 'n'}], " A ", '$db': 'test'}",
                  "cursor.firstBatch.0.n", 2);
    expect_code("{'aggregate': 'c', 'cursor': {}, 'pipeline': [{'$listLocalSessions': {}}], "
                "'$db': 'test'}",
                73);
    expect_code("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': {}}], "
                "'apiVersion': '1', 'apiStrict': true, '$db': 'test'}",
                323);
    expect_code("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': 1}], '$db': "
                "'test'}",
                14);
    expect_code("{'aggregate': 1, 'cursor': {}, 'pipeline': [{'$listLocalSessions': {'x': 1}}], "
                "'$db': 'test'}",
                40415);
    end();
}

TEST(the_cluster_time_is_a_variable_of_a_replica_set)
{
    begin();
    expect_number("{'find': 'c', 'filter': {'_id': 1}, 'projection': {'t': {'$eq': [{'$type': "
                  "'$$CLUSTER_TIME'}, 'timestamp']}}, '$db': 'test'}",
                  "cursor.firstBatch.0.t", 1);
    expect_number("{'aggregate': 'c', 'cursor': {}, 'pipeline': [{'$match': {'$expr': {'$gt': "
                  "['$$CLUSTER_TIME', '$$before']}}}, {'$count': 'n'}], 'let': {'before': "
                  "{'$timestamp': {'t': 1, 'i': 1}}}, '$db': 'test'}",
                  "cursor.firstBatch.0.n", 3);
    expect_number("{'update': 'c', 'updates': [{'q': {}, 'u': [{'$set': {'at': "
                  "'$$CLUSTER_TIME'}}], 'multi': true}], '$db': 'test'}",
                  "nModified", 3);
    expect_number("{'count': 'c', 'query': {'at': {'$type': 'timestamp'}}, '$db': 'test'}", "n", 3);
    end();
}
