/* Reads of views, also by stages, in transactions and in one snapshot. */
#include <stdio.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/see.h"

/* ---- reading -------------------------------------------------------------------------------- */

TEST(reads_a_view_as_its_stages_over_its_collection)
{
    begin();
    BATCH("{'find': 'adults', " SCHOOL, "[{'_id': 1, 'n': 'ada', 'age': 36, 'of': 'a'}, "
                                        "{'_id': 3, 'n': 'eve', 'age': 40, 'of': 'b'}]");
    BATCH("{'find': 'names', 'filter': {'n': {'$gt': 'b'}}, " SCHOOL, "[{'_id': 3, 'n': 'eve'}]");
    BATCH("{'find': 'names', 'sort': {'_id': -1}, 'skip': 1, 'limit': 1, 'projection': {'_id': 0}, "
          "'hint': {'_id': 1}, " SCHOOL,
          "[{'n': 'ada'}]");
    BATCH("{'find': 'names', 'sort': {'$natural': -1}, " SCHOOL,
          "[{'_id': 3, 'n': 'eve'}, {'_id': 1, 'n': 'ada'}]");
    SEE("{'find': 'names', 'filter': {'_id': 1}, 'singleBatch': true, " SCHOOL, "cursor.ns",
        "'school.names'");
    SEE("{'count': 'adults', " SCHOOL, "n", "2");
    SEE("{'count': 'names', 'query': {'age': {'$exists': true}}, " SCHOOL, "n", "0");
    SEE("{'count': 'adults', 'skip': 1, 'limit': 5, " SCHOOL, "n", "1");
    SEE("{'count': 'adults', 'limit': -1, " SCHOOL, "n", "1");
    SEE("{'distinct': 'adults', 'key': 'of', 'query': {'age': {'$lt': 40}}, " SCHOOL, "values",
        "['a']");
    BATCH("{'aggregate': 'names', 'pipeline': [{'$sort': {'n': -1}}, {'$limit': 1}], 'cursor': {}, "
          "'let': {'x': 1}, " SCHOOL,
          "[{'_id': 3, 'n': 'eve'}]");
    end();
}

TEST(returns_an_error_and_no_partial_result_of_a_failing_view)
{
    begin();
    OK("{'create': 'half', 'viewOn': 'people', 'pipeline': [{'$set': {'q': {'$divide': [1, "
       "{'$subtract': ['$age', 12]}]}}}], " SCHOOL);
    SEE("{'distinct': 'half', 'key': 'q', 'query': {'_id': 1}, " SCHOOL, "ok", "1.0");
    REFUSED("{'distinct': 'half', 'key': 'q', " SCHOOL, 2);
    REFUSED("{'find': 'half', " SCHOOL, 2);
    end();
}

TEST(continues_a_cursor_of_a_view_under_the_name_of_the_view)
{
    bson_t *reply;
    char more[300];

    begin();
    reply = ask("{'find': 'adults', 'batchSize': 1, " SCHOOL);
    snprintf(more, sizeof more,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'adults', " SCHOOL,
             (long long)reply_number(reply, "cursor.id"));
    see_on(-1, more, "cursor.nextBatch", "[{'_id': 3, 'n': 'eve', 'age': 40, 'of': 'b'}]",
           __LINE__);
    bson_destroy(reply);
    end();
}

TEST(shows_a_view_on_a_missing_collection_as_empty_until_it_exists)
{
    begin();
    OK("{'create': 'later', 'viewOn': 'nothing', " SCHOOL);
    BATCH("{'find': 'later', " SCHOOL, "[]");
    SEE("{'count': 'later', " SCHOOL, "n", "0");
    OK("{'insert': 'nothing', 'documents': [{'_id': 1}], " SCHOOL);
    BATCH("{'find': 'later', " SCHOOL, "[{'_id': 1}]");
    end();
}

TEST(refuses_find_options_on_a_view_that_no_pipeline_has)
{
    begin();
    REFUSED("{'find': 'adults', 'noCursorTimeout': true, " SCHOOL, 168);
    REFUSED("{'find': 'adults', 'allowPartialResults': true, " SCHOOL, 168);
    OK("{'find': 'people', 'noCursorTimeout': true, 'allowPartialResults': true, " SCHOOL);
    SEE("{'find': 'adults', 'filter': {'of': 'a'}, 'projection': {'of.$': 1}, " SCHOOL, "ok",
        "0.0");
    end();
}

static void join_views(const char *uri)
{
    begin_at(uri);
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$lookup': {'from': 'names', 'localField': '_id', "
          "'foreignField': 'n', 'as': 'all'}}, {'$project': {'n': {'$size': '$all'}}}], 'cursor': "
          "{}, " SCHOOL,
          "[{'_id': 'a', 'n': 0}, {'_id': 'b', 'n': 0}, {'_id': 'c', 'n': 0}]");
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$lookup': {'from': 'adults', 'localField': "
          "'_id', 'foreignField': 'of', 'as': 'all'}}], 'cursor': {}, " SCHOOL,
          "[{'_id': 'a', 'all': [{'_id': 1, 'n': 'ada', 'age': 36, 'of': 'a'}]}, {'_id': 'b', "
          "'all': [{'_id': 3, 'n': 'eve', 'age': 40, 'of': 'b'}]}, {'_id': 'c', 'all': []}]");
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$match': {'_id': 'a'}}, {'$lookup': {'from': "
          "'names', 'let': {'o': '$_id'}, 'pipeline': [{'$match': {'$expr': {'$ne': ['$n', "
          "'$$o']}}}, {'$match': {'_id': 3}}], 'as': 'all'}}], 'cursor': {}, " SCHOOL,
          "[{'_id': 'a', 'all': [{'_id': 3, 'n': 'eve'}]}]");
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$unionWith': 'names'}, {'$unionWith': {'coll': "
          "'adults', 'pipeline': [{'$match': {'of': 'b'}}, {'$project': {'_id': 1}}]}}], 'cursor': "
          "{}, " SCHOOL,
          "[{'_id': 'a'}, {'_id': 'b'}, {'_id': 'c'}, {'_id': 1, 'n': 'ada'}, {'_id': 3, 'n': "
          "'eve'}, {'_id': 3}]");
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$limit': 1}, {'$facet': {'x': [{'$unionWith': "
          "'names'}, {'$count': 'n'}]}}], 'cursor': {}, " SCHOOL,
          "[{'x': [{'n': 3}]}]");
}

TEST(stages_that_read_other_collections_read_views_too)
{
    join_views("memory:");
    end();
    join_views(file("joined"));
    end();
}

TEST(searches_a_graph_of_a_view_in_one_snapshot)
{
    begin_at(file("graph"));
    OK("{'insert': 'parts', 'documents': [{'_id': 'car', 'of': ['wheel', 'door']}, {'_id': 'wheel', "
       "'of': ['tyre']}, {'_id': 'door', 'of': []}, {'_id': 'tyre', 'gone': true}], " SCHOOL);
    OK("{'create': 'kept', 'viewOn': 'parts', 'pipeline': [{'$match': {'gone': {'$ne': true}}}], " SCHOOL);
    BATCH(
        "{'aggregate': 'parts', 'pipeline': [{'$match': {'_id': 'car'}}, {'$graphLookup': {'from': "
        "'parts', 'startWith': '$of', 'connectFromField': 'of', 'connectToField': '_id', 'as': 'all'}}, "
        "{'$project': {'all': '$all._id'}}], 'cursor': {}, " SCHOOL,
        "[{'_id': 'car', 'all': ['door', 'wheel', 'tyre']}]");
    BATCH(
        "{'aggregate': 'parts', 'pipeline': [{'$match': {'_id': 'car'}}, {'$graphLookup': {'from': "
        "'kept', 'startWith': '$of', 'connectFromField': 'of', 'connectToField': '_id', 'as': 'all'}}, "
        "{'$project': {'all': '$all._id'}}], 'cursor': {}, " SCHOOL,
        "[{'_id': 'car', 'all': ['door', 'wheel']}]");
    OK("{'create': 'whole', 'viewOn': 'parts', 'pipeline': [{'$graphLookup': {'from': 'kept', "
       "'startWith': '$of', 'connectFromField': 'of', 'connectToField': '_id', 'as': 'all'}}, "
       "{'$project': {'n': {'$size': '$all'}}}], " SCHOOL);
    BATCH("{'find': 'whole', 'filter': {'n': {'$gt': 0}}, " SCHOOL, "[{'_id': 'car', 'n': 2}]");
    end();
}

TEST(reads_nested_views_in_batches_and_from_other_stages)
{
    bson_t *reply;
    char more[300];

    begin_at(file("inside"));
    OK("{'create': 'full', 'viewOn': 'groups', 'pipeline': [{'$lookup': {'from': 'adults', "
       "'localField': '_id', 'foreignField': 'of', 'as': 'all'}}, {'$project': {'n': {'$size': "
       "'$all'}}}], " SCHOOL);
    BATCH("{'find': 'full', " SCHOOL,
          "[{'_id': 'a', 'n': 1}, {'_id': 'b', 'n': 1}, {'_id': 'c', 'n': 0}]");
    BATCH("{'aggregate': 'groups', 'pipeline': [{'$match': {'_id': 'b'}}, {'$unionWith': 'full'}], "
          "'cursor': {}, " SCHOOL,
          "[{'_id': 'b'}, {'_id': 'a', 'n': 1}, {'_id': 'b', 'n': 1}, {'_id': 'c', 'n': 0}]");
    reply = ask("{'aggregate': 'groups', 'pipeline': [{'$unionWith': 'full'}], 'cursor': "
                "{'batchSize': 1}, " SCHOOL);
    snprintf(more, sizeof more,
             "{'getMore': {'$numberLong': '%lld'}, 'collection': 'groups', " SCHOOL,
             (long long)reply_number(reply, "cursor.id"));
    see_on(-1, more, "cursor.nextBatch",
           "[{'_id': 'b'}, {'_id': 'c'}, {'_id': 'a', 'n': 1}, {'_id': 'b', 'n': 1}, {'_id': 'c', "
           "'n': 0}]",
           __LINE__);
    bson_destroy(reply);
    end();
}

TEST(reads_views_again_for_each_command_of_a_connection)
{
    int end_of_one;

    begin();
    end_of_one = dial();
    see_on(end_of_one,
           "{'aggregate': 'groups', 'pipeline': [{'$unionWith': 'adults'}], 'cursor': "
           "{'batchSize': 0}, " SCHOOL,
           "cursor.firstBatch", "[]", __LINE__); /* and is kept by its cursor */
    see_on(end_of_one, "{'drop': 'adults', " SCHOOL, "ok", "1.0", __LINE__);
    see_on(end_of_one, "{'insert': 'adults', 'documents': [{'_id': 9}], " SCHOOL, "n", "1",
           __LINE__);
    see_on(end_of_one,
           "{'aggregate': 'groups', 'pipeline': [{'$match': {'_id': 'a'}}, {'$unionWith': "
           "'adults'}], 'cursor': {}, " SCHOOL,
           "cursor.firstBatch", "[{'_id': 'a'}, {'_id': 9}]", __LINE__);
    close(end_of_one);
    end();
}

TEST(serves_filters_of_nested_views_by_an_index)
{
    begin_at(file("indexed"));
    OK("{'createIndexes': 'people', 'indexes': [{'key': {'of': 1}, 'name': 'of_1'}], " SCHOOL);
    SEE("{'explain': {'find': 'adults', 'filter': {'of': 'b'}}, 'verbosity': 'executionStats', " SCHOOL,
        "executionStats.totalDocsExamined", "2");
    SEE("{'explain': {'find': 'adults', 'filter': {'_id': 3}}, 'verbosity': 'executionStats', " SCHOOL,
        "executionStats.totalDocsExamined", "1");
    SEE("{'explain': {'find': 'adults', 'filter': {'age': 36}}, 'verbosity': 'queryPlanner', " SCHOOL,
        "queryPlanner.parsedQuery", "{'$and': [{'age': {'$gte': 18}}, {'age': 36}]}");
    BATCH("{'find': 'adults', 'filter': {'age': 12}, " SCHOOL, "[]");
    end();
}

TEST(filters_a_view_by_an_index_of_its_collection)
{
    begin_at(file("kept"));
    OK("{'createIndexes': 'people', 'indexes': [{'key': {'of': 1}, 'name': 'of_1'}], " SCHOOL);
    OK("{'create': 'shaped', 'viewOn': 'people', 'pipeline': [{'$lookup': {'from': 'groups', "
       "'localField': 'of', 'foreignField': '_id', 'as': 'g'}}, {'$project': {'of': 1, 'old': "
       "{'$gt': ['$age', 30]}}}, {'$sort': {'_id': 1}}], " SCHOOL);
    SEE("{'explain': {'find': 'shaped', 'filter': {'_id': 3}}, 'verbosity': 'executionStats', " SCHOOL,
        "stages.0.$cursor.executionStats.totalDocsExamined", "1");
    SEE("{'explain': {'find': 'shaped', 'filter': {'of': 'b', 'old': true}}, 'verbosity': "
        "'executionStats', " SCHOOL,
        "stages.0.$cursor.executionStats.totalDocsExamined", "2");
    SEE("{'explain': {'find': 'shaped', 'filter': {'of': 'b', 'old': true}}, 'verbosity': "
        "'queryPlanner', " SCHOOL,
        "stages.3", "{'$match': {'old': true}}");
    SEE("{'explain': {'find': 'shaped', 'filter': {'of': 'b', 'old': true}}, 'verbosity': "
        "'queryPlanner', " SCHOOL,
        "stages.5", "");
    BATCH("{'find': 'shaped', 'filter': {'of': 'b', 'old': true}, " SCHOOL,
          "[{'_id': 3, 'of': 'b', 'old': true}]");
    end();
}

TEST(a_read_of_a_view_is_explained_as_the_pipeline_that_it_is)
{
    begin();
    SEE("{'explain': {'find': 'names', 'filter': {'n': 'ada'}}, 'verbosity': 'queryPlanner', " SCHOOL,
        "stages.1", "{'$project': {'n': 1}}");
    SEE("{'explain': {'find': 'names'}, 'verbosity': 'queryPlanner', " SCHOOL,
        "stages.0.$cursor.queryPlanner.namespace", "'school.people'");
    SEE("{'explain': {'count': 'adults'}, 'verbosity': 'queryPlanner', " SCHOOL, "stages.1",
        "{'$count': 'n'}");
    SEE("{'explain': {'count': 'adults'}, 'verbosity': 'queryPlanner', " SCHOOL, "stages.2", "");
    SEE("{'explain': {'distinct': 'adults', 'key': 'n'}, 'verbosity': 'queryPlanner', " SCHOOL,
        "queryPlanner.parsedQuery", "{'age': {'$gte': 18}}");
    SEE("{'explain': {'aggregate': 'names', 'pipeline': [{'$limit': 1}], 'cursor': {}}, " SCHOOL,
        "stages.2", "{'$limit': 1}");
    REFUSED(
        "{'explain': {'update': 'adults', 'updates': [{'q': {}, 'u': {'$set': {'a': 1}}}]}, " SCHOOL,
        166);
    REFUSED("{'explain': {'findAndModify': 'adults', 'remove': true}, " SCHOOL, 166);
    end();
}

#ifdef TRUCE_CLI
/* A collection that does not exist is noted, and a view without documents is not. */
TEST(the_program_distinguishes_a_view_from_a_missing_collection)
{
    char uri[100];

    begin();
    snprintf(uri, sizeof uri, "mongodb://127.0.0.1:%d/school", server_port(server));
    command_check(command_run(TRUCE_CLI, uri, NULL, "find", "zz", NULL), 0, "",
                  "truce: the store has no collection \"zz\"\n", __FILE__, __LINE__);
    command_check(command_run(TRUCE_CLI, uri, NULL, "find", "adlts", NULL), 0, "",
                  "truce: the store has no collection \"adlts\"", __FILE__, __LINE__);
    command_check(command_run(TRUCE_CLI, uri, NULL, "find", "adults", "{n: 'x'}", NULL), 0, "",
                  NULL, __FILE__, __LINE__);
    end();
}
#endif

/* ---- sessions ------------------------------------------------------------------------------- */

#define IN                                                                                         \
    "'lsid': {'id': {'$binary': {'base64': 'AAAAAAAAAAAAAAAAAAAAAQ==', 'subType': '04'}}}, "       \
    "'autocommit': false, "
#define FIRST  IN "'startTransaction': true, "
#define TXN(n) "'txnNumber': {'$numberLong': '" #n "'}, "

TEST(
    a_transaction_reads_views_of_its_moment_and_with_its_own_writes_and_is_checked_for_what_it_read)
{
    begin_at(file("transaction"));
    BATCH("{'find': 'names', " FIRST TXN(1) SCHOOL,
          "[{'_id': 1, 'n': 'ada'}, {'_id': 3, 'n': 'eve'}]");
    OK("{'insert': 'people', 'documents': [{'_id': 4, 'n': 'own', 'age': 50}], " IN TXN(1) SCHOOL);
    SEE("{'count': 'names', " IN TXN(1) SCHOOL, "n", "3");
    BATCH(
        "{'aggregate': 'groups', 'pipeline': [{'$match': {'_id': 'a'}}, {'$unionWith': 'names'}], "
        "'cursor': {}, " IN TXN(1) SCHOOL,
        "[{'_id': 'a'}, {'_id': 1, 'n': 'ada'}, {'_id': 3, 'n': 'eve'}, {'_id': 4, 'n': "
        "'own'}]");
    OK("{'insert': 'people', 'documents': [{'_id': 5, 'n': 'new', 'age': 60}], " SCHOOL);
    SEE("{'count': 'names', " IN TXN(1) SCHOOL, "n", "3");
    REFUSED("{'commitTransaction': 1, " IN TXN(1) "'$db': 'admin'}", 112);
    end();
}

TEST(refuses_to_create_or_write_views_in_a_transaction)
{
    begin_at(file("ended"));
    REFUSED("{'create': 'v', 'viewOn': 'people', " FIRST TXN(1) SCHOOL, 263);
    SEE("{'insert': 'adults', 'documents': [{'_id': 9}], " FIRST TXN(2) SCHOOL,
        "writeErrors.0.code", "166");
    REFUSED("{'find': 'adults', " IN TXN(2) SCHOOL, 251);
    REFUSED("{'findAndModify': 'adults', 'remove': true, " FIRST TXN(3) SCHOOL, 166);
    REFUSED("{'find': 'adults', " IN TXN(3) SCHOOL, 251);
    REFUSED("{'create': 'adults', " FIRST TXN(4) SCHOOL, 48);
    end();
}

TEST(reads_a_view_at_a_historical_snapshot)
{
    bson_t *reply;
    char text[400];
    bson_iter_t iter, at;
    uint32_t seconds = 0, number = 0;

    begin_at(file("moment"));
    reply = ask("{'find': 'names', 'readConcern': {'level': 'snapshot'}, " SCHOOL);
    REQUIRE(bson_iter_init(&iter, reply) &&
            bson_iter_find_descendant(&iter, "cursor.atClusterTime", &at));
    bson_iter_timestamp(&at, &seconds, &number);
    bson_destroy(reply);
    OK("{'insert': 'people', 'documents': [{'_id': 5, 'n': 'new', 'age': 60}], " SCHOOL);
    snprintf(text, sizeof text,
             "{'distinct': 'names', 'key': 'n', 'readConcern': {'level': 'snapshot', "
             "'atClusterTime': {'$timestamp': {'t': %u, 'i': %u}}}, " SCHOOL,
             seconds, number);
    SEE(text, "values", "['ada', 'eve']");
    SEE("{'count': 'names', " SCHOOL, "n", "3");
    end();
}
