/* explain: the plan of each command, its expected scans, and that it writes nothing. */
#include <string.h>

#include "tests/support/talk.h"
#include "tests/support/test.h"

static void begin(void)
{
    bson_error_t error = {0};
    char path[600];

    snprintf(path, sizeof path, "%s/explain.truce", test_directory());
    REQUIRE(!truce_store_open(path, NULL, &store, &error));
    REQUIRE(!server_start(store, NULL, &server, &error));
    expect_code("{'dropDatabase': 1, '$db': 'school'}", 0);
    expect_code("{'createIndexes': 'c', 'indexes': [{'key': {'a': 1}, 'name': 'a'}], '$db': "
                "'school'}",
                0);
    expect_code("{'insert': 'c', 'documents': [{'_id': 1, 'a': 1, 'b': 1}, {'_id': 2, 'a': 1, 'b': "
                "2}, {'_id': 3, 'a': 2, 'b': 1}, {'_id': 4, 'a': 1, 'b': 3}], '$db': 'school'}",
                0);
}

static void end(void)
{
    server_stop(server, 5000);
    truce_store_close(store);
}

static bson_t *explain(const char *command, const char *verbosity)
{
    char text[1000];

    snprintf(text, sizeof text, "{'explain': {%s}, 'verbosity': '%s', '$db': 'school'}", command,
             verbosity);
    return ask(text);
}

static const char *text_at(const bson_t *reply, const char *path)
{
    bson_iter_t iter, found;

    return bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found) &&
                   BSON_ITER_HOLDS_UTF8(&found)
               ? bson_iter_utf8(&found, NULL)
               : "";
}

#define PLAN  "queryPlanner.winningPlan."
#define STATS "executionStats."

/* The stages from the outermost, "FETCH IXSCAN", and the sums of executionStats. */
static bson_t *expect_plan(int line, const char *command, const char *stages, int64_t returned,
                           int64_t keys, int64_t documents)
{
    bson_t *reply = explain(command, "executionStats");
    char found[200] = "", path[200] = PLAN "stage", *at = path + strlen(PLAN);

    for (; *text_at(reply, path); at += strlen("inputStage.")) {
        snprintf(found + strlen(found), sizeof found - strlen(found), "%s%s", *found ? " " : "",
                 text_at(reply, path));
        snprintf(at, sizeof path - (size_t)(at - path), "inputStage.stage");
    }
    if (strcmp(found, stages) != 0 || reply_number(reply, STATS "nReturned") != returned ||
        reply_number(reply, STATS "totalKeysExamined") != keys ||
        reply_number(reply, STATS "totalDocsExamined") != documents) {
        char *json = bson_as_relaxed_extended_json(reply, NULL);

        test_fail(__FILE__, line, "%s: %s: %s", command, found, json);
        bson_free(json);
    }
    return reply;
}

#define EXPECT_PLAN(...) expect_plan(__LINE__, __VA_ARGS__)

TEST(explains_the_plan_and_the_scans_of_reads)
{
    bson_t *reply;

    begin();
    bson_destroy(
        EXPECT_PLAN("'find': 'c', 'filter': {'a': 1, 'b': {'$gt': 1}}", "FETCH IXSCAN", 2, 3, 3));
    bson_destroy(EXPECT_PLAN("'find': 'c', 'filter': {'b': 1}", "COLLSCAN", 2, 0, 4));
    bson_destroy(EXPECT_PLAN("'find': 'c', 'filter': {'_id': 3}", "IDHACK", 1, 1, 1));
    bson_destroy(
        EXPECT_PLAN("'find': 'c', 'filter': {'_id': {'$gt': 2}}", "FETCH IXSCAN", 2, 2, 2));
    bson_destroy(EXPECT_PLAN("'find': 'c', 'filter': {'b': {'$gt': 0}}, 'sort': {'b': 1}, 'skip': "
                             "1, 'limit': 2",
                             "SKIP SORT COLLSCAN", 2, 0, 4));
    bson_destroy(EXPECT_PLAN("'find': 'none', 'filter': {'b': 1}", "EOF", 0, 0, 0));
    bson_destroy(
        EXPECT_PLAN("'distinct': 'c', 'key': 'b', 'query': {'a': 1}", "FETCH IXSCAN", 3, 3, 3));
    bson_destroy(EXPECT_PLAN("'find': 'c', 'filter': {'$expr': {'$eq': ['$b', '$$x']}}, 'let': "
                             "{'x': 1}",
                             "COLLSCAN", 2, 0, 4));
    reply = EXPECT_PLAN("'count': 'c', 'query': {'b': 1}", "COUNT COLLSCAN", 0, 0, 4);
    CHECK_INT(reply_number(reply, STATS "executionStages.nCounted"), ==, 2);
    bson_destroy(reply);
    reply =
        EXPECT_PLAN("'find': 'c', 'filter': {'a': 2}, '$db': 'school'", "FETCH IXSCAN", 1, 1, 1);
    CHECK(!strcmp(text_at(reply, "queryPlanner.namespace"), "school.c"));
    CHECK_INT(reply_number(reply, "queryPlanner.parsedQuery.a"), ==, 2);
    CHECK(bson_has_field(reply, "queryPlanner.rejectedPlans"));
    CHECK(!strcmp(text_at(reply, PLAN "inputStage.indexName"), "a"));
    CHECK(!strcmp(text_at(reply, STATS "executionStages.stage"), "FETCH"));
    CHECK_INT(reply_number(reply, STATS "executionStages.nReturned"), ==, 1);
    CHECK_INT(reply_number(reply, STATS "executionSuccess"), ==, 1);
    CHECK(!strcmp(text_at(reply, "explainVersion"), "1"));
    CHECK(!strcmp(text_at(reply, "command.find"), "c"));
    CHECK(!strcmp(text_at(reply, "command.$db"), "school"));
    CHECK(*text_at(reply, "serverInfo.version"));
    CHECK_INT(reply_number(reply, "serverInfo.port"), ==, server_port(server));
    bson_destroy(reply);
    end();
}

/* A collection that could not be read through is not read. */
TEST(reads_no_document_to_explain_a_plan)
{
    bson_t *reply;

    begin();
    reply = explain("'find': 'c', 'filter': {'$expr': {'$divide': [1, {'$subtract': ['$a', '$a']}]}"
                    "}",
                    "queryPlanner");
    CHECK(!strcmp(text_at(reply, PLAN "stage"), "COLLSCAN"));
    CHECK(!bson_has_field(reply, "executionStats"));
    bson_destroy(reply);
    expect_code("{'explain': {'find': 'c', 'filter': {'$expr': {'$divide': [1, {'$subtract': "
                "['$a', '$a']}]}}}, '$db': 'school'}",
                2);
    reply = explain("'count': 'c', 'query': {'a': 1}", "queryPlanner");
    CHECK(!strcmp(text_at(reply, PLAN "inputStage.stage"), "COUNT_SCAN"));
    CHECK(!bson_has_field(reply, "executionStats"));
    bson_destroy(reply);
    reply = explain("'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'b': 0}}}]",
                    "queryPlanner");
    CHECK(!strcmp(text_at(reply, PLAN "inputStage.stage"), "FETCH"));
    CHECK(!bson_has_field(reply, "executionStats"));
    bson_destroy(reply);
    end();
}

TEST(refuses_to_explain_a_command_of_another_database)
{
    begin();
    expect_code("{'explain': {'find': 'c', '$db': 'other'}, '$db': 'school'}", 73);
    expect_code("{'explain': {'find': 'c', '$db': 1}, '$db': 'school'}", 13111);
    expect_code("{'explain': {'wrong': 'c', '$db': 'other'}, '$db': 'school'}", 73);
    expect_code("{'explain': {'find': 'c', '$db': 'school'}, '$db': 'school'}", 0);
    end();
}

static void expect_numbers(bson_t *reply, const char *const *paths, const int64_t *numbers)
{
    for (int i = 0; paths[i]; i++)
        if (reply_number(reply, paths[i]) != numbers[i])
            test_fail(__FILE__, __LINE__, "%s: %lld, not %lld", paths[i],
                      (long long)reply_number(reply, paths[i]), (long long)numbers[i]);
    bson_destroy(reply);
}

#define EXPECT_UPDATE(reply, matched, modify, upsert)                                              \
    expect_numbers(reply,                                                                          \
                   (const char *const[]){STATS "executionStages.nMatched",                         \
                                         STATS "executionStages.nWouldModify",                     \
                                         STATS "executionStages.nWouldUpsert", NULL},              \
                   (const int64_t[]){matched, modify, upsert})

TEST(explains_writes_without_executing_them)
{
    bson_t *reply;

    begin();
    EXPECT_UPDATE(EXPECT_PLAN("'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'b': 1}}, "
                              "'multi': true, 'upsert': true}]",
                              "UPDATE FETCH IXSCAN", 0, 3, 3),
                  3, 2, 0);
    EXPECT_UPDATE(EXPECT_PLAN("'update': 'c', 'updates': [{'q': {'a': 1}, 'u': [{'$set': {'b': "
                              "9}}]}]",
                              "UPDATE FETCH IXSCAN", 0, 1, 1),
                  1, 1, 0);
    EXPECT_UPDATE(EXPECT_PLAN("'update': 'c', 'updates': [{'q': {'_id': 9}, 'u': {'$set': {'b': "
                              "1}}, 'upsert': true}]",
                              "UPDATE IDHACK", 0, 0, 0),
                  0, 0, 1);
    reply = EXPECT_PLAN("'delete': 'c', 'deletes': [{'q': {'b': 1}, 'limit': 0}]",
                        "DELETE COLLSCAN", 0, 0, 4);
    CHECK_INT(reply_number(reply, STATS "executionStages.nWouldDelete"), ==, 2);
    CHECK_INT(reply_number(reply, STATS "executionStages.nMatched"), ==, -1);
    bson_destroy(reply);
    EXPECT_UPDATE(EXPECT_PLAN("'findAndModify': 'c', 'query': {'a': 1}, 'sort': {'b': -1}, "
                              "'update': {'$inc': {'b': 1}}",
                              "UPDATE SORT FETCH IXSCAN", 1, 3, 3),
                  1, 1, 0);
    EXPECT_UPDATE(EXPECT_PLAN("'update': 'c', 'updates': [{'q': {'a': 1}, 'u': {'$set': {'b': 3}}, "
                              "'sort': {'b': -1}}]",
                              "UPDATE SORT FETCH IXSCAN", 0, 3, 3),
                  1, 0, 0);
    bson_destroy(EXPECT_PLAN("'findAndModify': 'c', 'remove': true", "DELETE COLLSCAN", 1, 0, 1));
    reply = ask("{'count': 'c', 'query': {'b': {'$in': [0, 9]}}, '$db': 'school'}");
    CHECK_INT(reply_number(reply, "n"), ==, 0);
    bson_destroy(reply);
    reply = ask("{'count': 'c', '$db': 'school'}");
    CHECK_INT(reply_number(reply, "n"), ==, 4);
    bson_destroy(reply);
    /* explain returns the error that the update would return */
    expect_code("{'explain': {'update': 'c', 'updates': [{'q': {}, 'u': {'$inc': {'_id': 1}}}]}, "
                "'$db': 'school'}",
                66);
    expect_code("{'explain': {'update': 'c', 'updates': [{'q': {}, 'u': {'$set': {'b': 1}}, "
                "'sort': {'b': 1}, 'multi': true}]}, '$db': 'school'}",
                9);
    expect_code("{'explain': {'update': 'c', 'updates': [{'q': {}, 'u': {'$wrong': 1}}]}, "
                "'verbosity': 'queryPlanner', '$db': 'school'}",
                9);
    end();
}

TEST(explains_the_first_and_the_other_stages_of_a_pipeline)
{
    static const char *const cursor = "stages.0.$cursor.";
    char path[100];
    bson_t *reply;

    begin();
    bson_destroy(EXPECT_PLAN("'aggregate': 'c', 'pipeline': [{'$match': {'a': 1}}, {'$limit': 2}], "
                             "'cursor': {}",
                             "LIMIT FETCH IXSCAN", 2, 2, 2));
    reply = explain("'aggregate': 'c', 'pipeline': [{'$match': {'a': 1}}, {'$group': {'_id': "
                    "'$b'}}, {'$out': 'd'}], 'cursor': {}",
                    "executionStats");
    snprintf(path, sizeof path, "%s" PLAN "stage", cursor);
    CHECK(!strcmp(text_at(reply, path), "FETCH"));
    snprintf(path, sizeof path, "%s" STATS "nReturned", cursor);
    CHECK_INT(reply_number(reply, path), ==, 3);
    CHECK(!strcmp(text_at(reply, "stages.1.$group._id"), "$b"));
    CHECK(!strcmp(text_at(reply, "stages.2.$out"), "d"));
    CHECK(!bson_has_field(reply, "stages.3"));
    CHECK(!bson_has_field(reply, "queryPlanner"));
    bson_destroy(reply);
    reply = ask("{'count': 'd', '$db': 'school'}");
    CHECK_INT(reply_number(reply, "n"), ==, 0);
    bson_destroy(reply);
    /* a sort that an index serves is the store's, another is the pipeline's */
    reply = explain("'aggregate': 'c', 'pipeline': [{'$sort': {'a': -1}}], 'cursor': {}",
                    "queryPlanner");
    snprintf(path, sizeof path, "%s" PLAN "inputStage.stage", cursor);
    CHECK(!strcmp(text_at(reply, path), "IXSCAN"));
    CHECK_INT(reply_number(reply, "stages.1.$sort.a"), ==, -1);
    bson_destroy(reply);
    reply = explain("'aggregate': 'c', 'pipeline': [{'$sort': {'b': -1}}], 'cursor': {}",
                    "queryPlanner");
    snprintf(path, sizeof path, "%s" PLAN "stage", cursor);
    CHECK(!strcmp(text_at(reply, path), "COLLSCAN"));
    bson_destroy(reply);
    reply = ask("{'aggregate': 'c', 'pipeline': [{'$match': {'a': 1}}], 'explain': true, '$db': "
                "'school'}");
    CHECK(!strcmp(text_at(reply, PLAN "stage"), "FETCH"));
    CHECK(!bson_has_field(reply, "executionStats"));
    bson_destroy(reply);
    end();
}

/* A sparse index omits documents, so the result shows which index was read. */
TEST(distinct_reads_by_the_index_that_is_named)
{
    static const char *const hints[] = {"", ", 'hint': 'n'", ", 'hint': {'n': 1}"};
    bson_t *reply;

    begin();
    expect_code("{'insert': 'c', 'documents': [{'_id': 8, 'n': 1, 'b': [2, 7]}], '$db': 'school'}",
                0);
    expect_code("{'createIndexes': 'c', 'indexes': [{'key': {'n': 1}, 'name': 'n', 'sparse': true}"
                "], '$db': 'school'}",
                0);
    for (int i = 0; i < 3; i++) {
        char text[300];

        snprintf(text, sizeof text, "{'distinct': 'c', 'key': 'b'%s, '$db': 'school'}", hints[i]);
        reply = ask(text);
        CHECK_INT(reply_number(reply, "values.0"), ==, i ? 2 : 1);
        CHECK_INT(reply_number(reply, "values.1"), ==, i ? 7 : 2);
        CHECK_INT(reply_number(reply, "values.2"), ==, i ? -1 : 3);
        bson_destroy(reply);
    }
    bson_destroy(EXPECT_PLAN("'distinct': 'c', 'key': 'b', 'hint': 'n'", "FETCH IXSCAN", 1, 1, 1));
    expect_code("{'distinct': 'c', 'key': 'b', 'hint': 'none', '$db': 'school'}", 2);
    expect_code("{'distinct': 'c', 'key': 'b', 'query': {'$expr': {'$divide': [1, 0]}}, 'hint': "
                "{'$natural': 1}, '$db': 'school'}",
                2);
    end();
}

TEST(refuses_to_explain_other_commands)
{
    begin();
    expect_code("{'explain': {'insert': 'c', 'documents': [{}]}, '$db': 'school'}", 115);
    expect_code("{'explain': {'nothing': 'c'}, '$db': 'school'}", 115);
    expect_code("{'explain': {}, '$db': 'school'}", 14);
    expect_code("{'explain': 1, '$db': 'school'}", 14);
    expect_code("{'explain': {'find': 1}, '$db': 'school'}", 73);
    expect_code("{'explain': {'find': 'c', 'wrong': 1}, '$db': 'school'}", 40415);
    expect_code("{'explain': {'find': 'c'}, 'verbosity': 'wrong', '$db': 'school'}", 2);
    expect_code("{'explain': {'find': 'c'}, 'wrong': 1, '$db': 'school'}", 40415);
    expect_code("{'explain': {'delete': 'c', 'deletes': [{'q': {}, 'limit': 1}, {'q': {}, "
                "'limit': 1}]}, '$db': 'school'}",
                16);
    expect_code("{'explain': {'aggregate': 'c', 'pipeline': [{'$collStats': {}}], 'cursor': {}}, "
                "'$db': 'school'}",
                115);
    expect_code("{'explain': {'aggregate': 'c', 'pipeline': [{'$wrong': 1}], 'cursor': {}}, '$db': "
                "'school'}",
                40324);
    end();
}
