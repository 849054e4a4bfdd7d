/* $graphLookup: the documents that are reachable in a collection, step by step. */
#include "base/status.h"
#include "query/aggregate/aggregate.h"
#include "tests/support/pipeline.h"
#include "tests/support/test.h"

/* employees and their bosses; 7 and 8 form a cycle; 9 has no boss, the boss of 10 is null */
#define STAFF                                                                                      \
    "{'v': [{'_id': 1, 'name': 'Dev'}, {'_id': 2, 'name': 'Eliot', 'boss': 'Dev'}, "               \
    "{'_id': 3, 'name': 'Ron', 'boss': 'Eliot'}, {'_id': 4, 'name': 'Andrew', 'boss': 'Eliot'}, "  \
    "{'_id': 5, 'name': 'Asya', 'boss': 'Ron'}, {'_id': 6, 'name': 'Dan', 'boss': 'Andrew'}, "     \
    "{'_id': 7, 'name': 'Ping', 'boss': 'Pong'}, {'_id': 8, 'name': 'Pong', 'boss': 'Ping'}, "     \
    "{'_id': 10, 'name': 'Nil', 'boss': null}]}"

static void begin(struct pipeline_world *world)
{
    pipeline_world_init(world);
    pipeline_world_add(world, "staff", test_array(STAFF));
}

#define BOSSES                                                                                     \
    "'from': 'staff', 'startWith': '$boss', 'connectFromField': 'boss', 'connectToField': "        \
    "'name', 'as': 'r'"
#define IDS "{'$project': {'r': '$r._id'}}"

TEST(continues_a_search_until_no_new_document_is_found)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_check(
        &world, "{'v': [{'$graphLookup': {" BOSSES "}}, " IDS "]}",
        "{'v': [{'_id': 5, 'boss': 'Ron'}, {'_id': 1}, {'_id': 6, 'boss': ['Andrew', 'Ron']}, "
        "{'_id': 0, 'boss': 'nobody'}]}",
        "{'v': [{'_id': 5, 'r': [3, 2, 1]}, {'_id': 1, 'r': []}, {'_id': 6, 'r': [3, 4, 2, 1]}, "
        "{'_id': 0, 'r': []}]}");
    pipeline_world_release(&world);
}

TEST(visits_each_document_of_a_cycle_once)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_check(&world, "{'v': [{'$graphLookup': {" BOSSES "}}, " IDS "]}",
                   "{'v': [{'_id': 7, 'boss': 'Pong'}]}", "{'v': [{'_id': 7, 'r': [8, 7]}]}");
    pipeline_world_release(&world);
}

/* More than a document without an allocation can contain; a sanitizer detects leaks. */
TEST(many_values_are_asked_for_at_once)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_check(
        &world, "{'v': [{'$graphLookup': {" BOSSES "}}, " IDS "]}",
        "{'v': [{'_id': 0, 'boss': ['Ron', 'Andrew', 'Asya', 'Dan', 'a person with a long name', "
        "'and another person with a name as long', 'and one more', 'and another one']}]}",
        "{'v': [{'_id': 0, 'r': [3, 4, 5, 6, 2, 1]}]}");
    pipeline_world_release(&world);
}

TEST(a_document_that_has_several_names_is_found_once)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_world_add(
        &world, "names",
        test_array("{'v': [{'_id': 1, 'is': ['a', 'b'], 'to': 'b'}, {'_id': 2, 'is': 'b'}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$graphLookup': {'from': 'names', 'startWith': 'a', 'connectFromField': 'to', "
        "'connectToField': 'is', 'as': 'r'}}, " IDS "]}",
        "{'v': [{'_id': 0}]}", "{'v': [{'_id': 0, 'r': [1, 2]}]}");
    pipeline_world_release(&world);
}

TEST(a_document_is_found_at_its_least_depth)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_world_add(&world, "ways",
                       test_array("{'v': [{'_id': 1, 'to': [2, 3]}, {'_id': 2, 'to': [3]}, "
                                  "{'_id': 3, 'to': [4]}, {'_id': 4, 'to': []}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$graphLookup': {'from': 'ways', 'startWith': 1, 'connectFromField': 'to', "
        "'connectToField': '_id', 'as': 'r', 'depthField': 'at.depth'}}, "
        "{'$project': {'r': {'$map': {'input': '$r', 'in': ['$$this._id', '$$this.at.depth']}}}}]}",
        "{'v': [{'_id': 0}]}",
        "{'v': [{'_id': 0, 'r': [[1, {'$numberLong': '0'}], [2, {'$numberLong': '1'}], "
        "[3, {'$numberLong': '1'}], [4, {'$numberLong': '2'}]]}]}");
    for (int depth = 0; depth < 3; depth++) {
        static const char *const wanted[] = {"[3]", "[3, 2]", "[3, 2, 1]"};
        char stages[400], result[100];

        snprintf(stages, sizeof stages,
                 "{'v': [{'$graphLookup': {" BOSSES ", 'maxDepth': %d}}, " IDS "]}", depth);
        snprintf(result, sizeof result, "{'v': [{'_id': 5, 'r': %s}]}", wanted[depth]);
        pipeline_check(&world, stages, "{'v': [{'_id': 5, 'boss': 'Ron'}]}", result);
    }
    pipeline_world_release(&world);
}

TEST(queries_each_value_once)
{
    struct pipeline_world world;

    begin(&world);
    world.indexed = true;
    pipeline_check(&world,
                   "{'v': [{'$graphLookup': {" BOSSES "}}, {'$project': {'n': {'$size': '$r'}}}]}",
                   "{'v': [{'_id': 7, 'boss': ['Pong', 'Pong']}]}", "{'v': [{'_id': 7, 'n': 2}]}");
    CHECK_INT(world.opened, ==, 2); /* Pong; Ping; and Pong no more */
    pipeline_check(&world,
                   "{'v': [{'$graphLookup': {" BOSSES "}}, {'$project': {'n': {'$size': '$r'}}}]}",
                   "{'v': [{'_id': 5, 'boss': 'Ron'}, {'_id': 6, 'boss': 'Ron'}]}",
                   "{'v': [{'_id': 5, 'n': 3}, {'_id': 6, 'n': 3}]}");
    CHECK_INT(world.opened, ==, 8);
    world.indexed = false; /* two questions, and all of it read once */
    pipeline_check(&world,
                   "{'v': [{'$graphLookup': {" BOSSES "}}, {'$project': {'n': {'$size': '$r'}}}]}",
                   "{'v': [{'_id': 5, 'boss': 'Ron'}, {'_id': 6, 'boss': 'Ron'}]}",
                   "{'v': [{'_id': 5, 'n': 3}, {'_id': 6, 'n': 3}]}");
    CHECK_INT(world.opened, ==, 11);
    pipeline_world_release(&world);
}

TEST(finds_null_and_not_a_missing_field)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_check(
        &world,
        "{'v': [{'$graphLookup': {'from': 'staff', 'startWith': '$a', 'connectFromField': 'x', "
        "'connectToField': 'boss', 'as': 'r'}}, " IDS "]}",
        "{'v': [{'_id': 1, 'a': null}, {'_id': 2}, {'_id': 3, 'a': [null, 'Ron']}]}",
        "{'v': [{'_id': 1, 'r': [10]}, {'_id': 2, 'r': []}, {'_id': 3, 'r': [5, 10]}]}");
    pipeline_world_release(&world);
}

TEST(restricts_the_searched_documents)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_check(&world,
                   "{'v': [{'$graphLookup': {" BOSSES
                   ", 'restrictSearchWithMatch': {'_id': {'$ne': 2}}}}, " IDS "]}",
                   "{'v': [{'_id': 5, 'boss': 'Ron'}]}", "{'v': [{'_id': 5, 'r': [3]}]}");
    pipeline_check(&world,
                   "{'v': [{'$graphLookup': {" BOSSES
                   ", 'restrictSearchWithMatch': {'$expr': {'$lt': ['$_id', 3]}}}}, " IDS "]}",
                   "{'v': [{'_id': 3, 'boss': 'Eliot'}]}", "{'v': [{'_id': 3, 'r': [2, 1]}]}");
    pipeline_world_release(&world);
}

TEST(a_graph_within_a_lookup_has_the_variables_of_the_lookup)
{
    struct pipeline_world world;

    begin(&world);
    pipeline_world_add(&world, "one", test_array("{'v': [{'_id': 0}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$lookup': {'from': 'one', 'as': 'o', 'let': {'b': '$boss', 'not': '$not'}, "
        "'pipeline': [{'$graphLookup': {'from': 'staff', 'startWith': '$$b', 'connectFromField': "
        "'boss', 'connectToField': 'name', 'as': 'r', 'restrictSearchWithMatch': {'$expr': {'$ne': "
        "['$_id', '$$not']}}}}, " IDS "]}}, {'$project': {'o': '$o.r'}}]}",
        "{'v': [{'_id': 5, 'boss': 'Ron', 'not': 1}, {'_id': 6, 'boss': 'Andrew', 'not': 2}]}",
        "{'v': [{'_id': 5, 'o': [[3, 2]]}, {'_id': 6, 'o': [[4]]}]}");
    pipeline_world_release(&world);
}

/* Seven documents of 15 MB, each of which leads to the next one. */
TEST(limits_the_documents_reached_from_one)
{
    struct pipeline_world world;
    bson_t *documents = bson_new();
    char *text = bson_malloc(15000000), key[4];

    memset(text, 'x', 15000000);
    for (int i = 0; i < 7; i++) {
        bson_t one;

        snprintf(key, sizeof key, "%d", i);
        bson_append_document_begin(documents, key, -1, &one);
        BSON_APPEND_INT32(&one, "_id", i);
        BSON_APPEND_INT32(&one, "to", i + 1);
        bson_append_utf8(&one, "text", -1, text, 15000000);
        bson_append_document_end(documents, &one);
    }
    bson_free(text);
    begin(&world);
    world.indexed = true; /* and so not in a table, which has a maximum of its own */
    pipeline_world_add(&world, "large", documents);
    pipeline_check_refused(
        &world,
        "{'v': [{'$graphLookup': {'from': 'large', 'startWith': 0, 'connectFromField': "
        "'to', 'connectToField': '_id', 'as': 'r'}}]}",
        40099);
    pipeline_world_release(&world);
}

TEST(refuses_invalid_graph_stages)
{
    struct pipeline_world world;
    static const struct {
        const char *options;
        uint32_t code;
    } cases[] = {
        {"4", CODE_FAILED_TO_PARSE},
        {"{}", CODE_FAILED_TO_PARSE},
        {"{'from': 1, 'startWith': 1, 'connectFromField': 'a', 'connectToField': 'b', 'as': 'c'}",
         CODE_FAILED_TO_PARSE},
        {"{'from': '', 'startWith': 1, 'connectFromField': 'a', 'connectToField': 'b', 'as': 'c'}",
         CODE_INVALID_NAMESPACE},
        {"{'from': 'staff', 'connectFromField': 'a', 'connectToField': 'b', 'as': 'c'}", 40105},
        {"{'from': 'staff', 'startWith': 1, 'connectToField': 'b', 'as': 'c'}", 40105},
        {"{'from': 'staff', 'startWith': 1, 'connectFromField': 'a', 'as': 'c'}", 40105},
        {"{'from': 'staff', 'startWith': 1, 'connectFromField': 'a', 'connectToField': 'b'}",
         40105},
        {"{'from': 'staff', 'startWith': 1, 'connectFromField': 0, 'connectToField': 'b', 'as': 'c'}",
         40103},
        {"{'from': 'staff', 'startWith': 1, 'connectFromField': '$a', 'connectToField': 'b', 'as': 'c'}",
         16410},
        {"{" BOSSES ", 'depthField': 0}", 40103},
        {"{" BOSSES ", 'depthField': '$d'}", 16410},
        {"{" BOSSES ", 'maxDepth': 'x'}", 40100},
        {"{" BOSSES ", 'maxDepth': -1}", 40101},
        {"{" BOSSES ", 'maxDepth': 2.3}", 40102},
        {"{" BOSSES ", 'restrictSearchWithMatch': 'x'}", 40185},
        {"{" BOSSES ", 'restrictSearchWithMatch': {'$not': {'a': 1}}}", CODE_BAD_VALUE},
        {"{" BOSSES ", 'other': 1}", 40104},
    };

    begin(&world);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char stages[500];

        snprintf(stages, sizeof stages, "{'v': [{'$graphLookup': %s}]}", cases[i].options);
        pipeline_check_refused(&world, stages, cases[i].code);
    }
    pipeline_world_add(&world, "nameless", test_array("{'v': [{'a': 1}]}"));
    pipeline_check_refused(
        &world,
        "{'v': [{'$graphLookup': {'from': 'nameless', 'startWith': 1, 'connectFromField': 'a', "
        "'connectToField': 'a', 'as': 'r'}}]}",
        40271);
    world.fail_open = world.opened + 2; /* the second depth cannot be read: 9 */
    pipeline_check_refused(
        &world,
        "{'v': [{'$graphLookup': {'from': 'staff', 'startWith': 'Ron', 'connectFromField': 'boss', "
        "'connectToField': 'name', 'as': 'r'}}]}",
        CODE_FAILED_TO_PARSE);
    pipeline_world_release(&world);
}
