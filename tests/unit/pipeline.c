#include "query/aggregate/aggregate.h"

#include "tests/support/pipeline.h"
#include "tests/support/random_bson.h"
#include "tests/support/test.h"

/* All in JSON, as {"v": [...]} */
#define THREE                                                                                      \
    "{'v': [{'_id': 1, 'k': 'a', 'n': 5}, {'_id': 2, 'k': 'b', 'n': 7}, {'_id': 3, 'k': 'a', 'n': 1}]}"

/* ---- errors ---------------------------------------------------------------------------------- */

TEST(stages_that_this_store_has_not_are_refused_by_name)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check_refused(&world, "{'v': [{'$geoNear': {}}]}", CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(&world, "{'v': [{'$setWindowFields': {}}]}", CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(&world, "{'v': [{'$collStats': {}}]}", CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(&world, "{'v': [{'$search': {}}]}", CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(&world, "{'v': [{'$group ': {}}]}", 40324);
    pipeline_world_release(&world);
}

TEST(allows_writing_stages_only_at_the_end_of_the_outermost_pipeline)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check_refused(&world, "{'v': [{'$out': 'x'}, {'$limit': 1}]}", 40601);
    pipeline_check_refused(&world, "{'v': [{'$merge': 'x'}, {'$limit': 1}]}", 40601);
    pipeline_check_refused(&world, "{'v': [{'$facet': {'a': [{'$merge': 'x'}]}}]}", 40600);
    pipeline_check_refused(
        &world, "{'v': [{'$lookup': {'from': 'o', 'as': 'r', 'pipeline': [{'$out': 'x'}]}}]}",
        51047);
    pipeline_check_refused(
        &world, "{'v': [{'$unionWith': {'coll': 'o', 'pipeline': [{'$merge': 'x'}]}}]}", 31441);
    world.read_only = true;
    pipeline_check_refused(&world, "{'v': [{'$out': 'x'}]}", CODE_ILLEGAL_OPERATION);
    pipeline_check_refused(&world, "{'v': [{'$merge': 'x'}]}", CODE_ILLEGAL_OPERATION);
    pipeline_world_release(&world);
}

TEST(options_of_out_and_merge_are_checked_before_anything_runs)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check_refused(&world, "{'v': [{'$out': 5}]}", 16990);
    pipeline_check_refused(&world, "{'v': [{'$out': ''}]}", CODE_INVALID_NAMESPACE);
    pipeline_check_refused(&world, "{'v': [{'$out': {'db': 'd', 'coll': 'c'}}]}",
                           CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(&world, "{'v': [{'$out': {'bd': 'd', 'coll': 'c'}}]}", 40415);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': {'coll': 'c', 'x': 1}}}]}", 40415);
    pipeline_check_refused(&world, "{'v': [{'$merge': 5}]}", 51182);
    pipeline_check_refused(&world, "{'v': [{'$merge': {}}]}", 40414);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 'x', 'nope': 1}}]}", 40415);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 5}}]}", 51178);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 'x', 'on': 5}}]}", 51186);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 'x', 'whenMatched': 'nope'}}]}",
                           CODE_BAD_VALUE);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 'x', 'whenMatched': 5}}]}", 51191);
    pipeline_check_refused(
        &world, "{'v': [{'$merge': {'into': 'x', 'whenNotMatched': 'replace'}}]}", CODE_BAD_VALUE);
    pipeline_check_refused(&world, "{'v': [{'$merge': {'into': 'x', 'let': {'a': 1}}}]}", 51199);
    CHECK_INT(world.pulled, ==, 0);
    pipeline_world_release(&world);
}

TEST(errors_name_the_refused_value_and_the_valid_words)
{
    static const struct {
        const char *stage, *message;
    } cases[] = {
        {"{'v': [5]}", "each stage of a pipeline must be a document, not 5"},
        {"{'v': [{'$bucket': {'groupBy': '$n', 'boundaries': [1, 5, 3]}}]}",
         "$bucket's boundaries must ascend, but 5 is followed by 3"},
        {"{'v': [{'$bucket': {'groupBy': '$n', 'boundaries': [1, 'a']}}]}",
         "$bucket's boundaries must be of one type, and are int and string"},
        {"{'v': [{'$bucket': {'groupBy': '$n'}}]}",
         "$bucket needs groupBy and boundaries, and has no boundaries"},
        {"{'v': [{'$merge': {'into': 'x', 'whenNotMatched': 'replace'}}]}",
         "$merge's whenNotMatched must be insert, discard, or fail, not 'replace'"},
        {"{'v': [{'$replaceRoot': {'root': 1}}]}",
         "$replaceRoot has no option 'root': expected newRoot"},
        {"{'v': [{'$sort': {'n': 2}}]}",
         "sort 'n' must be 1 (ascending) or -1 (descending), not 2"},
        {"{'v': [{'$group': {'_id': null, 'n': 1}}]}",
         "the field 'n' must be an accumulator, for example {$sum: 1}, not 1"},
        {"{'v': [{'$set': {'x': {'$slice': [[1], 1, 0]}}}]}",
         "the third operand of $slice must be positive, not 0"},
        {"{'v': [{'$set': {'x': {'$let': {'var': {}, 'in': 1}}}}]}",
         "$let does not take the argument \"var\": expected vars, in"},
        {"{'v': [{'$set': {'x': {'$trim': {'text': 'a'}}}}]}",
         "$trim does not take the argument \"text\": expected input, chars"},
    };
    struct pipeline_world world;
    bson_t *documents = test_array("{'v': []}");

    pipeline_world_init(&world);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t *stages = test_array(cases[i].stage), result;
        bson_error_t error = {0};

        CHECK(pipeline_run(&world, stages, documents, &result, &error) == TRUCE_INVALID);
        CHECK_TEXT(cases[i].message, error.message);
        bson_destroy(&result);
        bson_destroy(stages);
    }
    bson_destroy(documents);
    pipeline_world_release(&world);
}

TEST(pipelines_have_a_maximum_of_stages_and_of_depth)
{
    struct pipeline_world world;
    bson_t stages = BSON_INITIALIZER, stage = BSON_INITIALIZER, result;
    bson_error_t error = {0};
    bson_t *documents = test_array("{'v': []}"), *nested;
    bson_string_t *deep;
    uint32_t count = 0;

    pipeline_world_init(&world);
    BSON_APPEND_INT32(&stage, "$skip", 0);
    for (int i = 0; i < 1000; i++)
        truce__value_append_element(&stages, &count, truce__value_document(&stage));
    CHECK_OK(pipeline_run(&world, &stages, documents, &result, &error), error);
    bson_destroy(&result);
    truce__value_append_element(&stages, &count, truce__value_document(&stage));
    CHECK(pipeline_run(&world, &stages, documents, &result, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, 7749501);
    bson_destroy(&result);
    bson_destroy(&stages);

    deep = bson_string_new("{'v': ");
    for (int i = 0; i < 21; i++)
        bson_string_append(deep, "[{'$unionWith': {'coll': 'o', 'pipeline': ");
    bson_string_append(deep, "[]");
    for (int i = 0; i < 21; i++)
        bson_string_append(deep, "}}]");
    bson_string_append(deep, "}");
    nested = test_array(deep->str);
    CHECK(pipeline_run(&world, nested, documents, &result, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, 232);
    bson_destroy(&result);
    bson_destroy(nested);
    bson_string_free(deep, true);
    bson_destroy(&stage);
    bson_destroy(documents);
    pipeline_world_release(&world);
}

/* ---- writing and joining -------------------------------------------------------------------- */

TEST(writes_every_document_of_out_and_then_its_end)
{
    struct pipeline_world world;
    bson_t *expected = test_array("{'v': [{'_id': 1}, {'_id': 3}, 'target']}");

    pipeline_world_init(&world);
    pipeline_check(&world,
                   "{'v': [{'$match': {'k': 'a'}}, {'$project': {'_id': 1}}, {'$out': 'target'}]}",
                   THREE, "{'v': []}");
    CHECK_BSON(expected, &world.out);
    bson_destroy(expected);
    pipeline_world_release(&world);

    pipeline_world_init(&world);
    expected = test_array("{'v': ['empty']}");
    pipeline_check(&world, "{'v': [{'$match': {'k': 'nope'}}, {'$out': {'coll': 'empty'}}]}", THREE,
                   "{'v': []}");
    CHECK_BSON(expected, &world.out);
    bson_destroy(expected);
    pipeline_world_release(&world);
}

TEST(merge_hands_over_each_document_with_the_options_as_a_document)
{
    struct pipeline_world world;
    bson_t *expected = test_array("{'v': [{'stage': {'into': 'm'}, 'document': {'n': 5}}]}");

    pipeline_world_init(&world);
    pipeline_check(&world,
                   "{'v': [{'$limit': 1}, {'$project': {'n': 1, '_id': 0}}, {'$merge': 'm'}]}",
                   THREE, "{'v': []}");
    CHECK_BSON(expected, &world.merged);
    bson_destroy(expected);
    pipeline_world_release(&world);

    pipeline_world_init(&world);
    expected = test_array(
        "{'v': [{'stage': {'into': {'coll': 'm'}, 'on': 'k', 'let': {'x': '$n'}, 'whenMatched': [], "
        "'whenNotMatched': 'discard'}, 'document': {'_id': 1, 'k': 'a', 'n': 5}}]}");
    pipeline_check(
        &world,
        "{'v': [{'$limit': 1}, {'$merge': {'into': {'coll': 'm'}, 'on': 'k', 'let': {'x': '$n'}, "
        "'whenMatched': [], 'whenNotMatched': 'discard'}}]}",
        THREE, "{'v': []}");
    CHECK_BSON(expected, &world.merged);
    bson_destroy(expected);
    pipeline_world_release(&world);
}

TEST(union_with_appends_the_other_collection_to_the_input)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "other",
                       test_array("{'v': [{'_id': 7, 'k': 'a'}, {'_id': 8, 'k': 'c'}]}"));
    pipeline_check(&world, "{'v': [{'$project': {'k': 1}}, {'$unionWith': 'other'}, {'$skip': 2}]}",
                   THREE,
                   "{'v': [{'_id': 3, 'k': 'a'}, {'_id': 7, 'k': 'a'}, {'_id': 8, 'k': 'c'}]}");
    pipeline_check(
        &world,
        "{'v': [{'$limit': 1}, {'$unionWith': {'coll': 'other', 'pipeline': [{'$match': {'k': 'c'}}, "
        "{'$set': {'z': 1}}]}}]}",
        THREE, "{'v': [{'_id': 1, 'k': 'a', 'n': 5}, {'_id': 8, 'k': 'c', 'z': 1}]}");
    pipeline_check(&world, "{'v': [{'$unionWith': 'nosuch'}, {'$count': 'n'}]}", THREE,
                   "{'v': [{'n': 3}]}");
    pipeline_check_refused(&world, "{'v': [{'$unionWith': 5}]}", CODE_FAILED_TO_PARSE);
    pipeline_check_refused(&world, "{'v': [{'$unionWith': {'coll': 'o', 'x': 1}}]}", 40415);
    pipeline_check_refused(&world, "{'v': [{'$unionWith': {'coll': 'o', 'pipeline': 5}}]}",
                           CODE_TYPE_MISMATCH);
    pipeline_world_release(&world);
}

TEST(runs_an_independent_lookup_pipeline_once)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "other", test_array("{'v': [{'_id': 7}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$lookup': {'from': 'other', 'as': 'r', 'pipeline': []}}, {'$project': {'r': 1}}]}",
        THREE,
        "{'v': [{'_id': 1, 'r': [{'_id': 7}]}, {'_id': 2, 'r': [{'_id': 7}]}, {'_id': 3, 'r': [{'_id': 7}]}]}");
    CHECK_INT(world.opened, ==, 1);
    pipeline_check(
        &world,
        "{'v': [{'$lookup': {'from': 'other', 'as': 'r', 'let': {'n': '$n'}, 'pipeline': [{'$set': {'n': '$$n'}}]}}, "
        "{'$project': {'r.n': 1}}]}",
        THREE,
        "{'v': [{'_id': 1, 'r': [{'n': 5}]}, {'_id': 2, 'r': [{'n': 7}]}, {'_id': 3, 'r': [{'n': 1}]}]}");
    CHECK_INT(world.opened, ==, 4);
    pipeline_check(
        &world,
        "{'v': [{'$lookup': {'from': 'other', 'as': 'r', 'pipeline': [{'$sample': {'size': 1}}]}}, {'$count': 'n'}]}",
        THREE, "{'v': [{'n': 3}]}");
    CHECK_INT(world.opened, ==, 7);
    pipeline_world_release(&world);
}

TEST(a_pipeline_within_a_stage_may_have_its_own_documents)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$lookup': {'as': 'r', 'let': {'n': '$n'}, 'pipeline': [{'$documents': [{'x': '$$n'}, {'x': 7}]}, "
        "{'$match': {'$expr': {'$gt': ['$x', 5]}}}]}}, {'$project': {'r': 1}}]}",
        THREE,
        "{'v': [{'_id': 1, 'r': [{'x': 7}]}, {'_id': 2, 'r': [{'x': 7}, {'x': 7}]}, {'_id': 3, 'r': [{'x': 7}]}]}");
    pipeline_check(
        &world,
        "{'v': [{'$limit': 1}, {'$unionWith': {'pipeline': [{'$documents': [{'x': 1}, {'x': 2}]}, {'$skip': 1}]}}]}",
        "{'v': [{'_id': 1}]}", "{'v': [{'_id': 1}, {'x': 2}]}");
    pipeline_check_refused(
        &world, "{'v': [{'$lookup': {'from': 'o', 'as': 'r', 'pipeline': [{'$documents': []}]}}]}",
        73);
    pipeline_check_refused(
        &world,
        "{'v': [{'$lookup': {'as': 'r', 'pipeline': [{'$match': {}}, {'$documents': []}]}}]}", 9);
    pipeline_check_refused(
        &world,
        "{'v': [{'$lookup': {'from': 'o', 'as': 'r', 'pipeline': [{'$match': {}}, {'$documents': []}]}}]}",
        40602);
    pipeline_check_refused(&world, "{'v': [{'$lookup': {'as': 'r', 'pipeline': []}}]}", 9);
    pipeline_check_refused(
        &world,
        "{'v': [{'$lookup': {'as': 'r', 'localField': 'a', 'foreignField': 'b', 'pipeline': [{'$documents': []}]}}]}",
        CODE_COMMAND_NOT_SUPPORTED);
    pipeline_check_refused(
        &world, "{'v': [{'$lookup': {'as': 'r', 'pipeline': [{'$documents': 1}]}}]}", 5858203);
    pipeline_check_refused(
        &world, "{'v': [{'$unionWith': {'coll': 'o', 'pipeline': [{'$documents': []}]}}]}", 73);
    pipeline_check_refused(&world, "{'v': [{'$unionWith': {'pipeline': []}}]}", 9);
    pipeline_world_release(&world);
}

TEST(lookups_within_lookups_see_the_variables_of_all_around_them)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "other",
                       test_array("{'v': [{'_id': 7, 'x': 2}, {'_id': 8, 'x': 3}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$match': {'_id': 2}}, {'$lookup': {'from': 'other', 'as': 'r', 'let': {'n': '$n'}, 'pipeline': [{'$lookup': {'from': "
        "'other', 'as': 's', 'let': {'x': '$x'}, 'pipeline': [{'$match': {'$expr': {'$eq': [{'$add': ['$x', '$$x', '$$n']}, 12]}}}, "
        "{'$project': {'sum': {'$add': ['$x', '$$x', '$$n']}}}]}}, {'$project': {'s': 1}}]}}]}",
        THREE,
        "{'v': [{'_id': 2, 'k': 'b', 'n': 7, 'r': [{'_id': 7, 's': [{'_id': 8, 'sum': 12}]}, {'_id': 8, 's': [{'_id': 7, 'sum': "
        "12}]}]}]}");
    pipeline_world_release(&world);
}

/* Joins by a path. Returns how often the other collection was opened. */
static int join(const char *foreign, bool indexed, size_t memory_max, bson_t *result)
{
    char stages[300];
    struct pipeline_world world;
    bson_t *list, *input;
    bson_error_t error;
    int opened;

    pipeline_world_init(&world);
    pipeline_world_add(
        &world, "other",
        test_array("{'v': [{'_id': 0, 'k': 1}, {'_id': 1, 'k': [2, {'$numberDouble': '1.0'}, 2]}, "
                   "{'_id': 2}, {'_id': 3, 'k': null}, {'_id': 4, 'k': []}, {'_id': 5, 'k': [[]]}, "
                   "{'_id': 6, 'k': [[1, 2]]}, {'_id': 7, 'k': [1, 2]}, {'_id': 8, 'k': {'x': 1}}, "
                   "{'_id': 9, 'k': [{'x': 1}, {'x': 2}]}, {'_id': 10, 'k': 'a'}, "
                   "{'_id': 11, 'k': {'$undefined': true}}, {'_id': 12, 'k': [{'1': 2}]}, "
                   "{'_id': 13, 'k': {'$regularExpression': {'pattern': 'a', 'options': ''}}}]}"));
    world.indexed = indexed;
    world.memory_max = memory_max;
    snprintf(stages, sizeof stages,
             "{'v': [{'$lookup': {'from': 'other', 'localField': 'k', 'foreignField': '%s', "
             "'as': 'r'}}, {'$project': {'r._id': 1}}]}",
             foreign);
    list = test_array(stages);
    input = test_array(
        "{'v': [{'_id': 0}, {'_id': 1, 'k': 'z'}, {'_id': 2, 'k': 1}, {'_id': 3, 'k': null}, "
        "{'_id': 4, 'k': [1, 2]}, {'_id': 5, 'k': []}, {'_id': 6, 'k': [[1, 2]]}, "
        "{'_id': 7, 'k': [[]]}, {'_id': 8, 'k': {'x': 1}}, {'_id': 9, 'k': ['a', null]}, "
        "{'_id': 10, 'k': [{'$regularExpression': {'pattern': 'a', 'options': ''}}, 2]}]}");
    CHECK_OK(pipeline_run(&world, list, input, result, &error), error);
    opened = world.opened;
    bson_destroy(list);
    bson_destroy(input);
    pipeline_world_release(&world);
    return opened;
}

TEST(a_path_below_a_variable_is_not_one_of_the_document)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "o", test_array("{'v': [{'_id': 1, 'a': 6}]}"));
    pipeline_check(&world,
                   "{'v': [{'$lookup': {'from': 'o', 'as': 'r', 'let': {'v': '$p'},"
                   " 'pipeline': [{'$group': {'_id': '$$v.a', 'own': {'$sum': '$a'}}}]}}]}",
                   "{'v': [{'_id': 1, 'p': {'a': 5}}]}",
                   "{'v': [{'_id': 1, 'p': {'a': 5}, 'r': [{'_id': 5, 'own': 6}]}]}");
    pipeline_world_release(&world);
}

TEST(reads_the_collection_once_for_a_lookup_without_an_index)
{
    static const struct {
        const char *foreign;
        size_t memory_max;
        /* two finds, then the whole; or that, and as many finds as there are documents */
        int opened;
    } cases[] = {{"k", 0, 3}, {"k.x", 0, 3}, {"_id", 0, 3}, {"k.1", 0, 11}, {"k", 200, 12}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t with, without;

        CHECK_INT(join(cases[i].foreign, true, 0, &without), ==, 11);
        CHECK_INT(join(cases[i].foreign, false, cases[i].memory_max, &with), ==, cases[i].opened);
        CHECK_BSON(&without, &with);
        bson_destroy(&with);
        bson_destroy(&without);
    }
}

TEST(lookup_joins_by_fields_and_a_pipeline_together)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_world_add(
        &world, "other",
        test_array("{'v': [{'_id': 7, 'k': 'a'}, {'_id': 8, 'k': 'a'}, {'_id': 9, 'k': 'b'}]}"));
    pipeline_check(
        &world,
        "{'v': [{'$match': {'k': 'a'}}, {'$lookup': {'from': 'other', 'localField': 'k', 'foreignField': 'k', 'as': 'r', "
        "'pipeline': [{'$sort': {'_id': -1}}, {'$limit': 1}, {'$project': {'_id': 1}}]}}]}",
        THREE,
        "{'v': [{'_id': 1, 'k': 'a', 'n': 5, 'r': [{'_id': 8}]}, {'_id': 3, 'k': 'a', 'n': 1, 'r': [{'_id': 8}]}]}");
    pipeline_world_release(&world);
}

TEST(a_collection_that_fails_ends_the_pipeline_with_its_status)
{
    struct pipeline_world world;
    bson_t *documents = test_array(THREE), result;
    bson_t *stages = test_array(
        "{'v': [{'$lookup': {'from': 'o', 'localField': 'k', 'foreignField': 'k', 'as': 'r'}}]}");
    bson_error_t error;

    pipeline_world_init(&world);
    world.fail_open = 2;
    CHECK_STATUS(TRUCE_IO, pipeline_run(&world, stages, documents, &result, &error), error);
    bson_destroy(&result);
    bson_destroy(stages);
    bson_destroy(documents);
    pipeline_world_release(&world);
}

/* ---- streaming ------------------------------------------------------------------------------ */

TEST(a_limit_pulls_no_more_than_it_needs)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(&world, "{'v': [{'$set': {'z': 1}}, {'$limit': 1}, {'$project': {'z': 1}}]}",
                   THREE, "{'v': [{'_id': 1, 'z': 1}]}");
    CHECK_INT(world.pulled, ==, 1);
    pipeline_world_release(&world);
}

TEST(keeps_the_position_of_a_field_that_is_unset_and_set_again)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$unset': ['a', 'c']}, {'$set': {'z': 1, 'a': {'$ifNull': ['$a', 'none']}}}]}",
        "{'v': [{'_id': 1, 'a': 5, 'b': 6, 'c': 7}]}",
        "{'v': [{'_id': 1, 'a': 'none', 'b': 6, 'z': 1}]}");
    pipeline_check(&world, "{'v': [{'$unset': 'a'}, {'$set': {'a.x': '$b'}}]}",
                   "{'v': [{'_id': 1, 'a': {'y': 1}, 'b': 6}]}",
                   "{'v': [{'_id': 1, 'a': {'x': 6}, 'b': 6}]}");
    pipeline_world_release(&world);
}

TEST(keeps_enough_documents_in_a_sort_for_later_stages)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(&world,
                   "{'v': [{'$sort': {'n': 1}}, {'$skip': 1}, {'$set': {'z': 1}}, {'$limit': 1}, "
                   "{'$project': {'n': 1}}]}",
                   THREE, "{'v': [{'_id': 1, 'n': 5}]}");
    pipeline_check(
        &world,
        "{'v': [{'$sort': {'n': 1}}, {'$redact': {'$cond': [{'$eq': ['$k', 'b']}, '$$KEEP', "
        "'$$PRUNE']}}, {'$limit': 1}, {'$project': {'n': 1}}]}",
        THREE, "{'v': [{'_id': 2, 'n': 7}]}");
    pipeline_check(
        &world,
        "{'v': [{'$sort': {'n': 1}}, {'$match': {'k': 'b'}}, {'$limit': 1}, {'$project': "
        "{'n': 1}}]}",
        THREE, "{'v': [{'_id': 2, 'n': 7}]}");
    pipeline_world_release(&world);
}

TEST(ends_a_facet_after_all_its_pipelines_have_ended)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$facet': {'first': [{'$limit': 1}], 'sum': [{'$group': {'_id': null, 'n': {'$sum': '$n'}}}], "
        "'sorted': [{'$sort': {'n': 1}}, {'$skip': 1}, {'$project': {'n': 1}}], 'none': [{'$match': {'k': 'c'}}], 'all': []}}]}",
        "{'v': [{'_id': 1, 'n': 5}, {'_id': 2, 'n': 1}]}",
        "{'v': [{'first': [{'_id': 1, 'n': 5}], 'sum': [{'_id': null, 'n': 6}], 'sorted': [{'_id': 1, 'n': 5}], 'none': [], "
        "'all': [{'_id': 1, 'n': 5}, {'_id': 2, 'n': 1}]}]}");
    pipeline_world_release(&world);
}

TEST(a_facet_takes_its_input_in_batches)
{
    struct pipeline_world world;
    bson_t documents = BSON_INITIALIZER, result;
    bson_t *stages = test_array(
        "{'v': [{'$facet': {'a': [{'$unwind': '$l'}, {'$group': {'_id': '$l', 'n': {'$sum': 1}}}, {'$sort': {'_id': 1}}],"
        "'b': [{'$bucketAuto': {'groupBy': '$_id', 'buckets': 2}}], 'c': [{'$sort': {'_id': -1}}, {'$limit': 1}, {'$project': {'_id': 1}}],"
        "'d': [{'$unionWith': 'nosuch'}, {'$count': 'n'}]}}]}");
    bson_t *expected = test_array(
        "{'v': [{'a': [{'_id': 0, 'n': 3000}, {'_id': 1, 'n': 3000}], 'b': [{'_id': {'min': 0, 'max': 1500}, 'count': "
        "1500}, {'_id': {'min': 1500, 'max': 2999}, 'count': 1500}], 'c': [{'_id': 2999}], 'd': [{'n': 3000}]}]}");
    bson_error_t error;
    uint32_t count = 0;
    char text[501];

    memset(text, 'x', 500);
    text[500] = '\0';
    for (int i = 0; i < 3000; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "l", "[", BCON_INT32(0), BCON_INT32(1),
                                    "]", "t", BCON_UTF8(text));
        truce__value_append_element(&documents, &count, truce__value_document(document));
        bson_destroy(document);
    }
    pipeline_world_init(&world);
    CHECK_OK(pipeline_run(&world, stages, &documents, &result, &error), error);
    CHECK_BSON(expected, &result);
    bson_destroy(&result);
    bson_destroy(&documents);
    bson_destroy(expected);
    bson_destroy(stages);
    pipeline_world_release(&world);
}

/* ---- accumulators that the recorded answers have not ---------------------------------------- */

TEST(n_accumulators_keep_the_n_first_last_least_greatest_and_best)
{
    struct pipeline_world world;
    static const char *const documents =
        "{'v': [{'n': 5, 'k': 'a'}, {'n': 1, 'k': 'b'}, {'n': 9, 'k': 'c'}, {'n': null, 'k': 'd'}, {'n': 7, 'k': 'e'}, {'n': 3, 'k': 'f'}, {'k': 'g'}]}";

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$group': {'_id': null, 'f': {'$firstN': {'input': '$n', 'n': 2}}, 'l': {'$lastN': {'input': '$n', 'n': 3}}, "
        "'min': {'$minN': {'input': '$n', 'n': 3}}, 'max': {'$maxN': {'n': 2, 'input': '$n'}}, 'c': {'$count': {}}}}]}",
        documents,
        "{'v': [{'_id': null, 'f': [5, 1], 'l': [7, 3, null], 'min': [1, 3, 5], 'max': [9, 7], 'c': 7}]}");
    pipeline_check(
        &world,
        "{'v': [{'$match': {'n': {'$gt': 0}}}, {'$group': {'_id': null, 't': {'$top': {'sortBy': {'n': -1}, 'output': '$k'}}, 'b': "
        "{'$bottom': {'sortBy': {'n': -1}, 'output': '$k'}}, 'tn': {'$topN': {'n': 2, 'sortBy': {'n': 1}, 'output': ['$n', '$k']}}, "
        "'bn': {'$bottomN': {'n': 2, 'sortBy': {'n': 1}, 'output': '$nope'}}}}]}",
        documents,
        "{'v': [{'_id': null, 't': 'c', 'b': 'b', 'tn': [[1, 'b'], [3, 'f']], 'bn': [null, null]}]}");
    pipeline_check(
        &world,
        "{'v': [{'$group': {'_id': {'k': '$k'}, 'f': {'$firstN': {'input': '$n', 'n': {'$cond': [{'$eq': ['$k', 'a']}, 1, 2]}}}}}, "
        "{'$sort': {'_id': 1}}, {'$limit': 2}]}",
        "{'v': [{'n': 5, 'k': 'a'}, {'n': 1, 'k': 'a'}, {'n': 9, 'k': 'b'}, {'n': 3, 'k': 'b'}]}",
        "{'v': [{'_id': {'k': 'a'}, 'f': [5]}, {'_id': {'k': 'b'}, 'f': [9, 3]}]}");
    pipeline_world_release(&world);
}

TEST(concatenates_and_unites_arrays_of_a_group)
{
    struct pipeline_world world;
    static const char *const documents =
        "{'v': [{'a': [1, [2]]}, {}, {'a': []}, {'a': [[2], 1, 3, 1.0]}, {'a': [null]}]}";

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$group': {'_id': null, 'c': {'$concatArrays': '$a'}, 'u': {'$setUnion': '$a'}, "
        "'n': {'$concatArrays': '$nope'}}}]}",
        documents,
        "{'v': [{'_id': null, 'c': [1, [2], [2], 1, 3, 1.0, null], 'u': [1, [2], 3, null], 'n': []}]}");
    pipeline_check(
        &world,
        "{'v': [{'$bucket': {'groupBy': '$k', 'boundaries': [0, 2, 4], 'output': {'c': {'$concatArrays': '$a'}}}}]}",
        "{'v': [{'k': 0, 'a': [1]}, {'k': 1, 'a': [1]}, {'k': 2, 'a': [3]}]}",
        "{'v': [{'_id': 0, 'c': [1, 1]}, {'_id': 2, 'c': [3]}]}");
    pipeline_world_release(&world);
}

TEST(accumulators_of_arrays_refuse_other_values)
{
    static const char *const values[] = {"1", "'a'", "{'a': 1}", "null"};
    static const char *const names[] = {"$concatArrays", "$setUnion"};

    for (size_t i = 0; i < 8; i++) {
        char *stages = bson_strdup_printf("{'v': [{'$group': {'_id': null, 'r': {'%s': '$a'}}}]}",
                                          names[i % 2]);
        char *documents = bson_strdup_printf("{'v': [{'a': [1]}, {'a': %s}]}", values[i / 2]);
        bson_t *pipeline = test_array(stages), *given = test_array(documents), result;
        struct pipeline_world world;
        bson_error_t error = {0};

        pipeline_world_init(&world);
        CHECK_STATUS(TRUCE_INVALID, pipeline_run(&world, pipeline, given, &result, &error), error);
        CHECK_INT(error.code, ==, CODE_TYPE_MISMATCH);
        bson_destroy(&result);
        bson_destroy(pipeline);
        bson_destroy(given);
        bson_free(stages);
        bson_free(documents);
        pipeline_world_release(&world);
    }
}

TEST(equal_sort_keys_of_top_and_bottom_keep_the_order_of_arrival)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$group': {'_id': null, 't': {'$topN': {'n': 2, 'sortBy': {'s': 1}, 'output': '$k'}}, 'b': {'$bottomN': {'n': 3, "
        "'sortBy': {'s': 1}, 'output': '$k'}}}}]}",
        "{'v': [{'s': 1, 'k': 'a'}, {'s': 1, 'k': 'b'}, {'s': 1, 'k': 'c'}, {'s': 1, 'k': 'd'}]}",
        "{'v': [{'_id': null, 't': ['a', 'b'], 'b': ['b', 'c', 'd']}]}");
    pipeline_world_release(&world);
}

TEST(wrong_arguments_of_n_accumulators_are_refused)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$firstN': 5}}}]}", 5787900);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$firstN': {'input': 1, 'n': 1, 'x': 1}}}}]}",
        5787901);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$firstN': {'input': 1}}}}]}", 5787906);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$firstN': {'n': 1}}}}]}",
                           5787907);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$maxN': {'input': 1, 'n': 'x'}}}}]}", 5787902);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$maxN': {'input': 1, 'n': 1.5}}}}]}", 5787903);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$maxN': {'input': 1, 'n': 0}}}}]}", 5787908);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$top': 5}}}]}", 5788001);
    pipeline_check_refused(
        &world,
        "{'v': [{'$group': {'_id': 1, 'r': {'$top': {'output': 1, 'n': 1, 'sortBy': {'a': 1}}}}}]}",
        5788002);
    pipeline_check_refused(
        &world,
        "{'v': [{'$group': {'_id': 1, 'r': {'$topN': {'output': 1, 'sortBy': {'a': 1}}}}}]}",
        5788003);
    pipeline_check_refused(
        &world, "{'v': [{'$group': {'_id': 1, 'r': {'$top': {'sortBy': {'a': 1}}}}}]}", 5788004);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$top': {'output': 1}}}}]}",
                           5788005);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$nope': 1}}}]}", 15952);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, 'r': {'$count': 1}}}]}",
                           CODE_TYPE_MISMATCH);
    pipeline_check_refused(&world, "{'v': [{'$group': {'_id': 1, '_id': 2}}]}", 15948);
    pipeline_world_release(&world);
}

/* Buckets of decades end at the least and the greatest numbers. */
TEST(bucket_auto_rounds_the_least_and_the_greatest_numbers)
{
    static const char *const series[] = {"1-2-5", "R5",  "R10", "R20", "R40",  "R80",      "E6",
                                         "E12",   "E24", "E48", "E96", "E192", "POWERSOF2"};
    struct pipeline_world world;

    pipeline_world_init(&world);
    for (size_t i = 0; i < sizeof series / sizeof *series; i++) {
        char stages[200];

        snprintf(stages, sizeof stages,
                 "{'v': [{'$bucketAuto': {'groupBy': '$n', 'buckets': 1, 'granularity': '%s'}}, "
                 "{'$project': {'_id': 0}}]}",
                 series[i]);
        pipeline_check(&world, stages,
                       "{'v': [{'n': 4.9406564584124654e-324}, {'n': 1.7976931348623157e308}]}",
                       "{'v': [{'count': 2}]}");
        pipeline_check(&world, stages, "{'v': [{'n': 4.9406564584124654e-324}]}",
                       "{'v': [{'count': 1}]}");
        pipeline_check(&world, stages, "{'v': [{'n': 3e-323}]}", "{'v': [{'count': 1}]}");
    }
    pipeline_world_release(&world);
}

TEST(bucket_auto_rounds_its_bounds_to_a_series)
{
    struct pipeline_world world;
    static const char *const documents =
        "{'v': [{'n': 0.7}, {'n': 2}, {'n': 9}, {'n': 30}, {'n': 99}, {'n': 101}]}";

    pipeline_world_init(&world);
    pipeline_check(
        &world, "{'v': [{'$bucketAuto': {'groupBy': '$n', 'buckets': 3, 'granularity': '1-2-5'}}]}",
        documents,
        "{'v': [{'_id': {'min': 0.5, 'max': 5.0}, 'count': 2}, {'_id': {'min': 5.0, 'max': 50.0}, 'count': 2}, "
        "{'_id': {'min': 50.0, 'max': 200.0}, 'count': 2}]}");
    pipeline_check(
        &world,
        "{'v': [{'$bucketAuto': {'groupBy': '$n', 'buckets': 2, 'granularity': 'POWERSOF2', 'output': {'l': {'$push': '$n'}}}}]}",
        documents,
        "{'v': [{'_id': {'min': 0.5, 'max': 16.0}, 'l': [0.7, 2, 9]}, {'_id': {'min': 16.0, 'max': 128.0}, 'l': [30, 99, 101]}]}");
    pipeline_check_refused(
        &world, "{'v': [{'$bucketAuto': {'groupBy': '$a', 'buckets': 2, 'granularity': 'R5'}}]}",
        40258);
    pipeline_check_refused(
        &world,
        "{'v': [{'$bucketAuto': {'groupBy': {'$literal': -1}, 'buckets': 2, 'granularity': 'R5'}}]}",
        40260);
    pipeline_check_refused(
        &world, "{'v': [{'$bucketAuto': {'groupBy': '$a', 'buckets': 2, 'granularity': 5}}]}",
        40261);
    pipeline_world_release(&world);
}

TEST(a_sample_has_its_size_and_no_document_twice)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world, "{'v': [{'$sample': {'size': 2}}, {'$group': {'_id': '$_id'}}, {'$count': 'n'}]}",
        THREE, "{'v': [{'n': 2}]}");
    pipeline_check(
        &world,
        "{'v': [{'$sample': {'size': 9}}, {'$sort': {'_id': 1}}, {'$project': {'_id': 1}}]}", THREE,
        "{'v': [{'_id': 1}, {'_id': 2}, {'_id': 3}]}");
    pipeline_check_refused(&world, "{'v': [{'$sample': {'size': 0}}]}", 28747);
    pipeline_check_refused(&world, "{'v': [{'$sample': {'size': 'x'}}]}", 28746);
    pipeline_check_refused(&world, "{'v': [{'$sample': {'x': 1}}]}", 28748);
    pipeline_world_release(&world);
}

TEST(redact_sees_the_whole_document_as_root_at_every_level)
{
    struct pipeline_world world;

    pipeline_world_init(&world);
    pipeline_check(
        &world,
        "{'v': [{'$redact': {'$cond': [{'$lte': [{'$ifNull': ['$level', 0]}, '$$ROOT.max']}, '$$DESCEND', '$$PRUNE']}}]}",
        "{'v': [{'max': 2, 'a': {'level': 1, 'x': {'level': 3}}, 'l': [{'level': 5}, [{'level': 2}], 7]}, {'max': 0, 'level': 1}]}",
        "{'v': [{'max': 2, 'a': {'level': 1}, 'l': [[{'level': 2}], 7]}]}");
    pipeline_world_release(&world);
}

/* ---- memory --------------------------------------------------------------------------------- */

static bson_t *many_documents(uint64_t seed, int count, unsigned groups)
{
    bson_t *documents = bson_new();
    struct random random;
    uint32_t index = 0;

    truce__random_seed(&random, seed);
    for (int i = 0; i < count; i++) {
        bson_t document = BSON_INITIALIZER;

        BSON_APPEND_INT32(&document, "_id", i);
        BSON_APPEND_INT32(&document, "g", (int32_t)truce__random_below(&random, groups));
        BSON_APPEND_INT32(&document, "n", (int32_t)truce__random_below(&random, 1000));
        random_append(&random, &document, "v", 1);
        truce__value_append_element(documents, &index, truce__value_document(&document));
        bson_destroy(&document);
    }
    return documents;
}

#define EVERY_ACCUMULATOR                                                                                                                                                                                                                                \
    "{'$group': {'_id': {'g': '$g', 'h': {'$mod': ['$n', 2]}}, 'sum': {'$sum': '$n'}, 'avg': {'$avg': '$v'}, 'count': {'$count': {}}, "                                                                                                                  \
    "'dev': {'$stdDevPop': '$n'}, 'devs': {'$stdDevSamp': '$n'}, 'first': {'$first': '$v'}, 'last': {'$last': '$v'}, 'min': {'$min': '$v'}, "                                                                                                            \
    "'max': {'$max': '$v'}, 'merged': {'$mergeObjects': {'a': '$n', 'b': '$v'}}, 'push': {'$push': '$n'}, 'set': {'$addToSet': '$n'}, 'concat': {'$concatArrays': {'$concatArrays': [['$n', '$v']]}}, 'union': {'$setUnion': {'$setUnion': [['$n']]}}, " \
    "'firstN': {'$firstN': {'n': 3, 'input': '$n'}}, 'lastN': {'$lastN': {'n': 3, 'input': '$v'}}, 'minN': {'$minN': {'n': 3, 'input': '$n'}}, "                                                                                                         \
    "'maxN': {'$maxN': {'n': 2, 'input': '$v'}}, 'top': {'$top': {'sortBy': {'n': 1}, 'output': '$_id'}}, 'bottom': {'$bottom': {'sortBy': {'v': -1}, "                                                                                                  \
    "'output': '$_id'}}, 'topN': {'$topN': {'n': 4, 'sortBy': {'n': -1}, 'output': '$_id'}}, 'bottomN': {'$bottomN': {'n': 4, 'sortBy': {'n': 1}, "                                                                                                      \
    "'output': '$_id'}}}}"

static void check_spilled_group(uint64_t seed, int count, unsigned groups, size_t memory_max)
{
    bson_t *documents = many_documents(seed, count, groups), expected, actual;
    bson_t *stages =
        test_array("{'v': [" EVERY_ACCUMULATOR ", {'$sort': {'_id.g': 1, '_id.h': 1}}]}");
    struct pipeline_world world;
    bson_error_t error;

    pipeline_world_init(&world);
    CHECK_OK(pipeline_run(&world, stages, documents, &expected, &error), error);
    CHECK_INT(world.spill.opened, ==, 0);
    world.memory_max = memory_max;
    world.spills = true;
    CHECK_OK(pipeline_run(&world, stages, documents, &actual, &error), error);
    CHECK_INT(world.spill.opened, >, 0);
    CHECK_INT(bson_count_keys(&expected), >, 0);
    CHECK_BSON(&expected, &actual);
    bson_destroy(&expected);
    bson_destroy(&actual);
    bson_destroy(documents);
    bson_destroy(stages);
    pipeline_world_release(&world);
}

TEST(a_group_that_spills_gives_the_same_as_one_in_memory)
{
    uint64_t seed = test_seed();

    check_spilled_group(seed, 2000, 50, 40000);
    check_spilled_group(seed + 1, 2000, 50, 100000);
    check_spilled_group(seed + 2, 1000, 500, 30000);
    check_spilled_group(seed + 3, 3000, 4, 60000);
}

TEST(without_disk_a_group_beyond_its_memory_is_refused)
{
    bson_t *documents = many_documents(1, 1000, 1000), result;
    bson_t *stages = test_array("{'v': [{'$group': {'_id': '$g', 'l': {'$push': '$v'}}}]}");
    struct pipeline_world world;
    bson_error_t error = {0};

    pipeline_world_init(&world);
    world.memory_max = 10000;
    CHECK_STATUS(TRUCE_LIMIT, pipeline_run(&world, stages, documents, &result, &error), error);
    CHECK_INT(error.code, ==, CODE_NO_DISK_USE_ALLOWED);
    bson_destroy(&result);
    bson_destroy(documents);
    bson_destroy(stages);
    pipeline_world_release(&world);
}

TEST(one_group_that_does_not_fit_is_refused_even_with_disk)
{
    bson_t *documents = many_documents(1, 5000, 1), result;
    bson_t *stages = test_array("{'v': [{'$group': {'_id': '$g', 'l': {'$push': '$_id'}}}]}");
    struct pipeline_world world;
    bson_error_t error = {0};

    pipeline_world_init(&world);
    world.memory_max = 20000;
    world.spills = true;
    CHECK_STATUS(TRUCE_LIMIT, pipeline_run(&world, stages, documents, &result, &error), error);
    CHECK_INT(error.code, ==, CODE_EXCEEDED_MEMORY_LIMIT);
    bson_destroy(&result);
    bson_destroy(documents);
    bson_destroy(stages);
    pipeline_world_release(&world);
}

TEST(every_failure_of_the_disk_ends_a_group_and_frees_everything)
{
    bson_t *documents = many_documents(3, 400, 100), result;
    bson_t *stages = test_array("{'v': [{'$group': {'_id': '$g', 'l': {'$push': '$v'}}}]}");
    bool failed = true;

    for (int fail_at = 1; failed; fail_at += 3) {
        struct pipeline_world world;
        bson_error_t error;
        truce_status status;

        pipeline_world_init(&world);
        world.memory_max = 5000;
        world.spills = true;
        world.spill.fail_at = fail_at;
        status = pipeline_run(&world, stages, documents, &result, &error);
        failed = status != TRUCE_OK;
        CHECK(!failed || status == TRUCE_IO);
        bson_destroy(&result);
        pipeline_world_release(&world);
    }
    bson_destroy(documents);
    bson_destroy(stages);
}

/* ---- the other entrances -------------------------------------------------------------------- */

TEST(takes_the_first_filter_sort_and_limit_as_the_pipelines_head)
{
    static const struct {
        const char *stages;
        bool filter, sort, same;
        int limit;
        uint32_t taken;
    } cases[] = {
        {"{'v': []}", false, false, false, 0, 0},
        {"{'v': [{'$match': {'a': 1}}]}", true, false, false, 0, 1},
        {"{'v': [{'$match': {'a': 1}}, {'$sort': {'_id': 1}}, {'$limit': 3}, {'$limit': 2}]}", true,
         true, true, 3, 3},
        {"{'v': [{'$match': {'a': 1}}, {'$sort': {'a': 1}}, {'$limit': 3}]}", true, true, false, 0,
         1},
        {"{'v': [{'$sort': {'_id': -1}}, {'$match': {'a': 1}}]}", true, true, true, 0, 2},
        {"{'v': [{'$limit': 7}, {'$match': {'a': 1}}]}", false, false, false, 7, 1},
        {"{'v': [{'$skip': 7}, {'$match': {'a': 1}}]}", false, false, false, 0, 0},
        {"{'v': [{'$match': {'a': 1}}, {'$limit': 7}]}", true, false, false, 7, 2},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t *stages = test_array(cases[i].stages);
        struct pipeline *pipeline;
        struct pipeline_head head;
        bson_error_t error;

        CHECK_OK(truce__pipeline_new(stages, &pipeline, &error), error);
        truce__pipeline_head(pipeline, &head);
        CHECK((head.filter != NULL) == cases[i].filter);
        CHECK((head.sort != NULL) == cases[i].sort);
        CHECK(head.same_sort == cases[i].same);
        CHECK_INT(head.limit, ==, cases[i].limit);
        CHECK_INT(head.stages_taken, ==, cases[i].taken);
        truce__pipeline_free(pipeline);
        bson_destroy(stages);
    }
}

TEST(an_update_pipeline_applies_its_stages_one_after_another)
{
    bson_t *stages = test_array(
        "{'v': [{'$set': {'b': '$a'}}, {'$unset': 'a'}, {'$replaceWith': {'c': '$b', 'a': '$a'}}, {'$project': {'_id': 0}}]}");
    bson_t *before = test_bson("{'_id': 1, 'a': 5}"), *expected = test_bson("{'c': 5}"), after;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct pipeline *pipeline;
    bson_error_t error;

    CHECK_OK(truce__pipeline_new_update(stages, &pipeline, &error), error);
    CHECK_OK(
        truce__pipeline_apply(pipeline, truce__value_document(before), &context, &after, &error),
        error);
    CHECK_BSON(expected, &after);
    bson_destroy(&after);
    truce__pipeline_free(pipeline);
    bson_destroy(stages);
    stages = test_array("{'v': [{'$set': {'b': 1}}, {'$lookup': {}}]}");
    CHECK(truce__pipeline_new_update(stages, &pipeline, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, CODE_INVALID_OPTIONS);
    truce__arena_release(&arena);
    bson_destroy(stages);
    bson_destroy(before);
    bson_destroy(expected);
}
