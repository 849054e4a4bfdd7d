/* The position of a $match: as early as possible, with the same results. */
#include "query/aggregate/aggregate.h"

#include <stdlib.h>

#include "tests/support/pipeline.h"
#include "tests/support/test.h"

/* ---- its position ---------------------------------------------------------------------------- */

/* The pipeline as it runs: numbers of stages as given, and filters. */
static bson_t *parts_of(const bson_t *stages)
{
    struct pipeline *pipeline = NULL;
    struct pipeline_part part;
    bson_error_t error;
    bson_t *parts = bson_new();
    char key[16];

    CHECK_OK(truce__pipeline_new(stages, &pipeline, &error), error);
    for (uint32_t i = 0; truce__pipeline_part(pipeline, i, &part); i++) {
        snprintf(key, sizeof key, "%u", i);
        if (part.filter)
            BSON_APPEND_DOCUMENT(parts, key, part.filter);
        else
            BSON_APPEND_INT32(parts, key, (int32_t)(10 * part.from + part.to));
    }
    truce__pipeline_free(pipeline);
    return parts;
}

static void check_parts(const char *stages, const char *wanted, int line)
{
    char text[600];
    bson_t *given, *expected, *parts;

    snprintf(text, sizeof text, "{'v': [%s]}", stages);
    given = test_array(text);
    snprintf(text, sizeof text, "{'v': [%s]}", wanted);
    expected = test_array(text);
    parts = parts_of(given);
    if (!CHECK_BSON(expected, parts))
        test_fail(__FILE__, line, "of %s", stages);
    bson_destroy(given);
    bson_destroy(expected);
    bson_destroy(parts);
}

#define RUNS(stages, wanted) check_parts(stages, wanted, __LINE__)

TEST(a_filter_goes_in_front_of_a_projection_that_keeps_its_fields)
{
    RUNS("{'$project': {'a': 1}}, {'$match': {'_id': 5}}", "{'_id': 5}, 0");
    RUNS("{'$project': {'a': 1}}, {'$match': {'a.b': 5}}", "{'a.b': 5}, 0");
    RUNS("{'$project': {'a': true, 'n': '$b'}}, {'$match': {'a': {'$gt': 1}}}",
         "{'a': {'$gt': 1}}, 0");
    RUNS("{'$project': {'a': 0}}, {'$match': {'b': 5, '_id': 1}}", "{'b': 5, '_id': 1}, 0");
    RUNS("{'$unset': 'a'}, {'$match': {'ab': 5}}", "{'ab': 5}, 0");
    RUNS("{'$set': {'a': 1}}, {'$match': {'b': 5}}", "{'b': 5}, 0");
    RUNS("{'$addFields': {'a.b': 1}}, {'$match': {'': 5}}", "{'': 5}, 0");
}

TEST(keeps_a_filter_after_stages_that_change_its_fields)
{
    RUNS("{'$project': {'a': 1}}, {'$match': {'b': 5}}", "0, {'b': 5}");
    RUNS("{'$project': {'_id': 0, 'a': 1}}, {'$match': {'_id': 5}}", "0, {'_id': 5}");
    RUNS("{'$project': {'_id': '$a'}}, {'$match': {'_id': 5}}", "0, {'_id': 5}");
    RUNS("{'$project': {'a.b': 1}}, {'$match': {'a.b': 5}}", "0, {'a.b': 5}");
    RUNS("{'$project': {'a.b': 0}}, {'$match': {'a.c': 5}}", "0, {'a.c': 5}");
    RUNS("{'$project': {'a': {'b': 1}}}, {'$match': {'a': 5}}", "0, {'a': 5}");
    RUNS("{'$set': {'a.b': 1}}, {'$match': {'a.c': 5}}", "0, {'a.c': 5}");
    RUNS("{'$unset': ['a.b']}, {'$match': {'a': 5}}", "0, {'a': 5}");
    RUNS("{'$unset': 'a'}, {'$set': {'b': 1}}, {'$match': {'a': 5}}", "1, {'a': 5}");
    RUNS("{'$unset': 'a'}, {'$set': {'b': 1}}, {'$match': {'b': 5}}", "1, {'b': 5}");
    RUNS("{'$unset': 'a'}, {'$set': {'b': 1}}, {'$match': {'c': 5}}", "{'c': 5}, 1");
    RUNS("{'$unset': 'a'}, {'$match': {'c': 5}}, {'$set': {'a': 1}}", "{'c': 5}, 0, 22");
    RUNS("{'$limit': 2}, {'$match': {'a': 5}}", "0, {'a': 5}");
    RUNS("{'$replaceWith': '$$ROOT'}, {'$match': {'a': 5}}", "0, {'a': 5}");
}

TEST(moves_a_filter_before_sorts_joins_and_unwinds)
{
    RUNS("{'$sort': {'a': 1}}, {'$match': {'a': 5}}", "{'a': 5}, 0");
    RUNS("{'$unwind': '$a.x'}, {'$match': {'b': 5}}", "{'b': 5}, 0");
    RUNS("{'$unwind': '$a.x'}, {'$match': {'a.y': 5}}", "0, {'a.y': 5}");
    RUNS("{'$unwind': {'path': '$a', 'includeArrayIndex': 'i.j'}}, {'$match': {'c': 5}}",
         "{'c': 5}, 0");
    RUNS("{'$unwind': {'path': '$a', 'includeArrayIndex': 'i.j'}}, {'$match': {'i': 5}}",
         "0, {'i': 5}");
    RUNS("{'$lookup': {'from': 'o', 'localField': 'a', 'foreignField': 'b', 'as': 'c.d'}}, "
         "{'$match': {'a': 5}}",
         "{'a': 5}, 0");
    RUNS("{'$lookup': {'from': 'o', 'localField': 'a', 'foreignField': 'b', 'as': 'c.d'}}, "
         "{'$match': {'c.e': 5}}",
         "0, {'c.e': 5}");
}

TEST(moves_a_filter_on_the_group_key_before_the_group)
{
    RUNS("{'$group': {'_id': '$a', 'n': {'$sum': 1}}}, {'$match': {'_id': 5, 'n': 2}}",
         "{'a': 5}, 0, {'n': 2}");
    RUNS("{'$group': {'_id': '$a'}}, {'$match': {'_id.x.y': {'$gte': 1, '$lt': 9}}}",
         "{'a.x.y': {'$gte': 1, '$lt': 9}}, 0");
    RUNS("{'$group': {'_id': {'x': '$a', 'y': '$b.c'}}}, {'$match': {'_id.x.0': null, '_id.y': 1}}",
         "{'a.0': null}, 0, {'_id.y': 1}");
    RUNS("{'$group': {'_id': '$a'}}, {'$match': {'$or': [{'_id': {'$in': [1, null]}}, {'$and': "
         "[{'_id': {'$ne': 's'}}]}]}}",
         "{'$or': [{'a': {'$in': [1, null]}}, {'$and': [{'a': {'$ne': 's'}}]}]}, 0");
    RUNS("{'$sortByCount': '$a'}, {'$match': {'_id': 5}}", "{'a': 5}, 0, 0");
    RUNS("{'$match': {'b': 1}}, {'$group': {'_id': '$a'}}, {'$match': {'_id': 5}}",
         "{'$and': [{'b': 1}, {'a': 5}]}, 11");
    RUNS("{'$set': {'a': 1}}, {'$group': {'_id': '$a'}}, {'$match': {'_id': 5}}",
         "0, {'a': 5}, 11");
}

/* Filters that distinguish a missing field from null, or 1 from 1.0. */
TEST(does_not_move_a_filter_that_is_not_a_comparison_before_a_group)
{
    static const char *const filters[] = {"'_id': {'$exists': true}",
                                          "'_id': {'$type': 'int'}",
                                          "'_id': {'$gte': {'$minKey': 1}}",
                                          "'_id': {'$lt': {'$maxKey': 1}}",
                                          "'_id': {'$not': {'$gt': 1}}",
                                          "'_id': {'$in': [1, {'$minKey': 1}]}",
                                          "'_id': {'$gt': 1, '$exists': true}",
                                          "'_ids': 5",
                                          "'n': 5",
                                          "'$or': [{'_id': 1}, {'n': 1}]",
                                          "'$expr': {'$eq': ['$_id', 1]}"};
    char stages[400], wanted[200];

    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        snprintf(stages, sizeof stages,
                 "{'$group': {'_id': '$a', 'n': {'$sum': 1}}}, {'$match': {%s}}", filters[i]);
        snprintf(wanted, sizeof wanted, "0, {%s}", filters[i]);
        RUNS(stages, wanted);
    }
    RUNS("{'$group': {'_id': '$a.b'}}, {'$match': {'_id': 5}}", "0, {'_id': 5}");
    RUNS("{'$group': {'_id': {'$add': ['$a', 1]}}}, {'$match': {'_id': 5}}", "0, {'_id': 5}");
    RUNS("{'$group': {'_id': '$$ROOT'}}, {'$match': {'_id': 5}}", "0, {'_id': 5}");
    RUNS("{'$group': {'_id': {'x': '$a'}}}, {'$match': {'_id': {'x': 5}, '_id.xy': 1}}",
         "0, {'_id': {'x': 5}, '_id.xy': 1}");
    RUNS("{'$group': {'_id': null}}, {'$match': {'_id': null}}", "0, {'_id': null}");
}

/* Checks the results of both collections, and how many documents of the other were read. */
static void check_union(const char *stages, const char *wanted, int reads, int line)
{
    bson_t *input = test_array("{'v': [{'_id': 1, 'a': 1}, {'_id': 2, 'a': 2}]}"),
           *given = test_array(stages), *expected = test_array(wanted), result;
    struct pipeline_world world;
    bson_error_t error;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "o",
                       test_array("{'v': [{'_id': 3, 'a': 1}, {'_id': 4, 'a': 2}, {'_id': 5}]}"));
    CHECK_OK(pipeline_run(&world, given, input, &result, &error), error);
    if (!CHECK_BSON(expected, &result) || world.given != reads)
        test_fail(__FILE__, line, "%d were read: %s", world.given, stages);
    pipeline_world_release(&world);
    bson_destroy(&result);
    bson_destroy(expected);
    bson_destroy(given);
    bson_destroy(input);
}

#define UNITES(stages, wanted, reads) check_union(stages, wanted, reads, __LINE__)

TEST(a_filter_goes_in_front_of_a_union_and_into_it)
{
    RUNS("{'$unionWith': 'o'}, {'$match': {'a': 5, '$expr': {'$eq': ['$b', 1]}}}",
         "{'a': 5, '$expr': {'$eq': ['$b', 1]}}, 0");
    UNITES("{'v': [{'$unionWith': 'o'}, {'$match': {'a': 1}}]}",
           "{'v': [{'_id': 1, 'a': 1}, {'_id': 3, 'a': 1}]}", 1);
    UNITES("{'v': [{'$unionWith': 'o'}, {'$match': {'a': 1}}, {'$match': {'_id': {'$lt': 3}}}]}",
           "{'v': [{'_id': 1, 'a': 1}]}", 0);
    UNITES(
        "{'v': [{'$unionWith': {'coll': 'o', 'pipeline': [{'$set': {'a': 1}}]}}, {'$match': {'a': "
        "1, '_id': {'$lt': 4}}}]}",
        "{'v': [{'_id': 1, 'a': 1}, {'_id': 3, 'a': 1}]}", 1);
    UNITES("{'v': [{'$unionWith': {'coll': 'o', 'pipeline': [{'$match': {'_id': {'$lt': 5}}}, "
           "{'$limit': 1}]}}, {'$match': {'a': 2}}]}",
           "{'v': [{'_id': 2, 'a': 2}]}", 1);
    UNITES("{'v': [{'$unionWith': {'coll': 'o', 'pipeline': [{'$unionWith': 'o'}]}}, {'$match': "
           "{'a': null}}]}",
           "{'v': [{'_id': 5}, {'_id': 5}]}", 2);
    UNITES(
        "{'v': [{'$unionWith': {'pipeline': [{'$documents': [{'_id': 9, 'a': 1}, {'_id': 8}]}]}}, "
        "{'$match': {'a': 1}}]}",
        "{'v': [{'_id': 1, 'a': 1}, {'_id': 9, 'a': 1}]}", 0);
}

TEST(moves_only_the_movable_parts_of_a_filter)
{
    RUNS("{'$project': {'n': '$b'}}, {'$match': {'_id': 5, 'n': 2}}", "{'_id': 5}, 0, {'n': 2}");
    RUNS("{'$set': {'n': 1}}, {'$match': {'$and': [{'a': 1}, {'n': 2}, {'b': 3, 'n': 4}]}}",
         "{'$and': [{'a': 1}]}, 0, {'$and': [{'n': 2}, {'b': 3, 'n': 4}]}");
    RUNS("{'$set': {'n': 1}}, {'$match': {'$or': [{'a': 1}, {'n': 2}]}}",
         "0, {'$or': [{'a': 1}, {'n': 2}]}");
    RUNS("{'$set': {'n': 1}}, {'$match': {'$nor': [{'a': 1}, {'$or': [{'b': 2}]}]}}",
         "{'$nor': [{'a': 1}, {'$or': [{'b': 2}]}]}, 0");
    RUNS("{'$set': {'n': 1}}, {'$match': {'$expr': {'$eq': ['$a', 1]}, 'a': 1}}",
         "{'a': 1}, 0, {'$expr': {'$eq': ['$a', 1]}}");
    RUNS("{'$set': {'n': 1}}, {'$match': {'$jsonSchema': {'required': ['a']}}}",
         "0, {'$jsonSchema': {'required': ['a']}}");
    RUNS("{'$set': {'n': 1}}, {'$set': {'m': 1}}, {'$match': {'a': 1, 'n': 2, 'm': 3}}",
         "{'a': 1}, 0, {'n': 2}, 11, {'m': 3}");
}

TEST(joins_adjacent_filters_in_their_order)
{
    RUNS("{'$match': {'a': 1}}, {'$match': {'a': 2}}, {'$match': {'b': 3}}",
         "{'$and': [{'a': 1}, {'a': 2}, {'b': 3}]}");
    RUNS("{'$match': {'a': 1}}, {'$project': {'n': '$b'}}, {'$match': {'n': 1}}, {'$match': "
         "{'_id': 2}}",
         "{'$and': [{'a': 1}, {'_id': 2}]}, 11, {'n': 1}");
    RUNS("{'$match': {'a': 1}}, {'$match': {'b': 2, '$expr': true}}",
         "{'$and': [{'a': 1}, {'b': 2, '$expr': true}]}");
    RUNS("{'$match': {'a': 1}}, {'$skip': 0}, {'$match': {'a': 2}}", "{'a': 1}, 11, {'a': 2}");
    RUNS("{'$sort': {'a': 1}}, {'$match': {}}", "{}, 0");
}

TEST(a_filter_passes_so_many_stages_and_no_more)
{
    char text[65 * 24 + 100] = "{'v': [";
    bson_t *stages, *parts;
    bson_iter_t at;

    for (int i = 0; i < 65; i++)
        strcat(text, "{'$sort': {'a': 1}}, ");
    strcat(text, "{'$match': {'b': 1}}]}");
    stages = test_array(text);
    parts = parts_of(stages);
    CHECK(bson_iter_init_find(&at, parts, "1") && BSON_ITER_HOLDS_DOCUMENT(&at));
    bson_destroy(parts);
    bson_destroy(stages);
}

TEST(moves_the_other_filters_to_the_collection_past_one_with_variables)
{
    static const char *const inner[] = {
        "{'$match': {'b': 1}}, {'$match': {'$expr': {'$eq': ['$c', '$$v']}}}",
        "{'$match': {'$expr': {'$eq': ['$c', '$$v']}}}, {'$match': {'b': 1}}",
        "{'$match': {'b': 1}}, {'$match': {'b': {'$gt': 0}, '$expr': {'$eq': ['$c', '$$v']}}}",
        "{'$set': {'n': 1}}, {'$match': {'b': 1, '$expr': {'$eq': ['$c', '$$v']}}}, {'$unset': "
        "'n'}"};
    bson_t *input = test_array("{'v': [{'_id': 1, 'c': 7}]}"), *stages, *expected, result;
    bson_error_t error;
    char text[400];

    expected = test_array("{'v': [{'_id': 1, 'c': 7, 'r': [{'_id': 2, 'b': 1, 'c': 7}]}]}");
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        struct pipeline_world world;

        pipeline_world_init(&world);
        pipeline_world_add(&world, "o",
                           test_array("{'v': [{'_id': 1, 'b': 1, 'c': 6}, {'_id': 2, 'b': 1, 'c': "
                                      "7}, {'_id': 3, 'b': 2, 'c': 7}]}"));
        snprintf(text, sizeof text,
                 "{'v': [{'$lookup': {'from': 'o', 'let': {'v': '$c'}, 'as': 'r', 'pipeline': "
                 "[%s]}}]}",
                 inner[i]);
        stages = test_array(text);
        CHECK_OK(pipeline_run(&world, stages, input, &result, &error), error);
        CHECK_BSON(expected, &result);
        CHECK_INT(world.filtered, ==, 1);
        pipeline_world_release(&world);
        bson_destroy(stages);
        bson_destroy(&result);
    }
    bson_destroy(input);
    bson_destroy(expected);
}

/* ---- results --------------------------------------------------------------------------------- */

/* One of the words, which are divided by |. */
static const char *pick(struct random *random, const char *words)
{
    static char picked[8][120];
    static int turn;
    uint64_t count = 1, number;

    for (const char *at = words; (at = strchr(at, '|')); at++)
        count++;
    number = truce__random_below(random, count);
    while (number--)
        words = strchr(words, '|') + 1;
    turn = (turn + 1) % 8;
    snprintf(picked[turn], sizeof picked[turn], "%.*s", (int)strcspn(words, "|"), words);
    return picked[turn];
}

#define FIELDS "_id|a|b|c"
#define PATHS  FIELDS "|a.x|a.y|b.x|a.0|c.x.y|n|_id|_id.x|_id.y"
#define VALUES                                                                                     \
    "0|1|2|null|'s'|[]|[0, 1]|[{'x': 1}, 2]|{'x': 1}|{'x': [1, 2], 'y': 0}|{'x': {'y': 1}}|[[1]]|" \
    "{'$numberDouble': '1.0'}|{'x': {'$numberDouble': '1.0'}}"
#define FOUND VALUES "|{'$minKey': 1}"

static void add_document(struct random *random, int id, bson_string_t *out)
{
    static const char *const names[] = {"a", "b", "c"};

    bson_string_append_printf(out, "%s{'_id': %d", id ? ", " : "", id);
    for (int i = 0; i < 3; i++)
        if (truce__random_below(random, 4))
            bson_string_append_printf(out, ", '%s': %s", names[i], pick(random, FOUND));
    bson_string_append(out, "}");
}

static void add_condition(struct random *random, int depth, bson_string_t *out)
{
    uint64_t kind = truce__random_below(random, depth ? 9 : 6);

    if (kind < 3) {
        bson_string_append_printf(out, "'%s': %s", pick(random, PATHS), pick(random, VALUES));
    } else if (kind < 5) {
        bson_string_append_printf(out, "'%s': {'%s': %s}", pick(random, PATHS),
                                  pick(random, "$gt|$gte|$lt|$ne|$eq"), pick(random, VALUES));
    } else if (kind == 5) {
        bson_string_append_printf(
            out, "'%s': %s", pick(random, PATHS),
            pick(
                random,
                "{'$exists': true}|{'$exists': false}|{'$in': [1, null]}|{'$size': 2}|"
                "{'$elemMatch': {'x': 1}}|{'$elemMatch': {'$gt': 0}}|{'$type': 'object'}|"
                "{'$type': 'int'}|{'$nin': [1, 's']}|{'$gte': {'$minKey': 1}}|{'$not': {'$gt': 1}}"));
    } else if (kind == 6) {
        bson_string_append_printf(out, "'$expr': {'$eq': ['$%s', %s]}", pick(random, PATHS),
                                  pick(random, "0|1|null"));
    } else {
        bson_string_append_printf(out, "'%s': [{", pick(random, "$and|$and|$or|$nor"));
        add_condition(random, depth - 1, out);
        bson_string_append(out, "}, {");
        add_condition(random, depth - 1, out);
        bson_string_append(out, "}]");
    }
}

static void add_match(struct random *random, bson_string_t *out)
{
    bson_string_append(out, "{'$match': {");
    add_condition(random, 2, out);
    if (truce__random_below(random, 2)) {
        bson_string_append(out, ", ");
        add_condition(random, 2, out);
    }
    bson_string_append(out, "}}");
}

static void add_other(struct random *random, bson_string_t *out)
{
    const char *path = pick(random, PATHS), *other = pick(random, "a|b|c|n|a.x|b.x");

    switch (truce__random_below(random, 13)) {
    case 0:
        bson_string_append_printf(out, "{'$project': {'%s': 1}}", path);
        break;
    case 1:
        bson_string_append_printf(out, "{'$project': {'%s': 0}}", path);
        break;
    case 2:
        bson_string_append_printf(out, "{'$project': {'_id': %s, '%s': 1, 'm': '$%s'}}",
                                  pick(random, "0|1|'$a'"), other, path);
        break;
    case 3:
    case 4:
        bson_string_append_printf(out, "{'$set': {'%s': %s}}", other,
                                  pick(random, "1|'$_id'|'$c'|[1, 2]"));
        break;
    case 5:
        bson_string_append_printf(out, "{'$unset': '%s'}", path);
        break;
    case 6:
        bson_string_append_printf(out, "{'$sort': {'%s': 1}}", pick(random, FIELDS));
        break;
    case 7:
        bson_string_append_printf(out,
                                  "{'$unwind': {'path': '$%s', 'includeArrayIndex': 'i', "
                                  "'preserveNullAndEmptyArrays': %s}}",
                                  other, pick(random, "true|false"));
        break;
    case 8:
        bson_string_append_printf(
            out,
            "{'$lookup': {'from': 'others', 'localField': '%s', 'foreignField': 'a', 'as': "
            "'%s'}}",
            pick(random, FIELDS), other);
        break;
    case 9:
        bson_string_append_printf(
            out, "{'$group': {'_id': %s, 'n': {'$sum': 1}, 'c': {'$first': '$c'}}}",
            pick(random,
                 "'$a'|'$b'|'$_id'|'$a.x'|{'x': '$a'}|{'x': '$a', 'y': '$b'}|{'y': '$c.x'}|1"));
        break;
    case 10:
        bson_string_append_printf(out, "{'$sortByCount': '$%s'}", pick(random, FIELDS));
        break;
    case 11:
        bson_string_append(out, "{'$unionWith': {'coll': 'others', 'pipeline': [");
        if (truce__random_below(random, 2))
            add_match(random, out);
        if (out->str[out->len - 1] != '[')
            bson_string_append(out, ", ");
        bson_string_append_printf(out, "{'$set': {'%s': %s}}]}}", pick(random, "a|b|c|n|a.x|b.x"),
                                  pick(random, "1|'$_id'|'$c'"));
        break;
    default:
        bson_string_append(out, pick(random, "{'$limit': 7}|{'$skip': 1}|{'$replaceWith': "
                                             "{'$mergeObjects': ['$$ROOT', {'n': 2}]}}"));
    }
}

/* Appends the pipeline to `given`; in `held`, a stage that no filter passes precedes each stage. */
static void make_pipeline(struct random *random, bson_string_t *given, bson_string_t *held)
{
    uint64_t count = 1 + truce__random_below(random, 6);

    for (uint64_t i = 0; i < count; i++) {
        bson_string_t *stage = bson_string_new(NULL);
        bool filters = truce__random_below(random, 2);

        if (filters)
            add_match(random, stage);
        else
            add_other(random, stage);
        bson_string_append_printf(given, "%s%s", i ? ", " : "{'v': [", stage->str);
        bson_string_append_printf(held, "%s%s%s", i ? ", " : "{'v': [",
                                  filters ? "{'$skip': 0}, " : "", stage->str);
        bson_string_free(stage, true);
    }
    bson_string_append(given, "]}");
    bson_string_append(held, "]}");
}

static bson_t *make_documents(struct random *random, int count)
{
    bson_string_t *text = bson_string_new("{'v': [");
    bson_t *documents;

    for (int i = 0; i < count; i++)
        add_document(random, i, text);
    bson_string_append(text, "]}");
    documents = test_array(text->str);
    bson_string_free(text, true);
    return documents;
}

static truce_status run(struct random *random, const char *text, const bson_t *documents,
                        bson_t *result)
{
    struct pipeline_world world;
    bson_t *stages = test_array(text);
    bson_error_t error;
    truce_status status;

    pipeline_world_init(&world);
    pipeline_world_add(&world, "others", bson_copy(documents));
    status = pipeline_run(&world, stages, documents, result, &error);
    pipeline_world_release(&world);
    bson_destroy(stages);
    return status;
}

/* Each comparison of the group key, with each kind of value. */
TEST(gives_equal_groups_for_a_filter_before_or_after)
{
    static const char *const comparisons[] = {"$eq", "$ne",  "$lt", "$lte",
                                              "$gt", "$gte", "$in", "$nin"};
    static const char *const operands[] = {
        "1",        "null",   "'s'",
        "[1]",      "[null]", "[]",
        "{'x': 1}", "true",   "{'$date': '2001-01-01T00:00:00Z'}"};
    bson_t *documents = test_array(
        "{'v': [{'_id': 0}, {'_id': 1, 'a': null}, {'_id': 2, 'a': {'$undefined': true}}, {'_id': 3, "
        "'a': 1}, {'_id': 4, 'a': {'$numberDouble': '1.0'}}, {'_id': 5, 'a': [1, null]}, {'_id': 6, "
        "'a': []}, {'_id': 7, 'a': {'$minKey': 1}}, {'_id': 8, 'a': 's'}, {'_id': 9, 'a': {'x': 1}}, "
        "{'_id': 10, 'a': [[1]]}, {'_id': 11, 'a': {'x': null}}, {'_id': 12, 'a': {'$maxKey': 1}}, "
        "{'_id': 13, 'a': {'$numberDouble': 'NaN'}}, {'_id': 14, 'a': false}, {'_id': 15, 'a': {}}, "
        "{'_id': 16, 'a': [{'x': 1}]}]}");
    static const char *const keys[] = {"'$a'", "{'x': '$a'}"};
    static const char *const paths[] = {"_id", "_id.x", "_id.x.x"};
    struct random random = {{1}};
    int seen = 0;

    for (size_t i = 0; i < 2 * 3 * 8 * 9; i++) {
        const char *comparison = comparisons[i % 8], *operand = operands[i / 8 % 9];
        bool lists = strstr(comparison, "in") != NULL;
        bson_t result, expected;
        char text[2][400];

        for (int j = 0; j < 2; j++)
            snprintf(text[j], sizeof text[j],
                     "{'v': [{'$group': {'_id': %s, 'n': {'$sum': 1}}}%s, {'$match': {'%s': {'%s': "
                     "%s%s%s}}}]}",
                     keys[i / 72 % 2], j ? ", {'$skip': 0}" : "", paths[i / 144], comparison,
                     lists ? "[2, " : "", operand, lists ? "]" : "");
        CHECK_INT(run(&random, text[0], documents, &result), ==, TRUCE_OK);
        CHECK_INT(run(&random, text[1], documents, &expected), ==, TRUCE_OK);
        if (!CHECK_BSON(&expected, &result))
            test_fail(__FILE__, __LINE__, "of %s", text[0]);
        seen += !bson_empty(&expected);
        bson_destroy(&result);
        bson_destroy(&expected);
    }
    CHECK_INT(seen, >, 200);
    bson_destroy(documents);
}

TEST(a_pipeline_gives_the_same_wherever_its_filters_run)
{
    int rounds = (int)test_scale("TRUCE_PIPELINES", 3000), shown = 0;
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < rounds; i++) {
        bson_string_t *given = bson_string_new(NULL), *held = bson_string_new(NULL);
        bson_t *documents = make_documents(&random, 12), result, expected;
        truce_status status, wanted;

        make_pipeline(&random, given, held);
        status = run(&random, given->str, documents, &result);
        wanted = run(&random, held->str, documents, &expected);
        if (status != wanted || !CHECK_BSON(&expected, &result))
            test_fail(__FILE__, __LINE__, "%d, not %d, of %s", status, wanted, given->str);
        shown += !status && !bson_empty(&result);
        bson_destroy(&result);
        bson_destroy(&expected);
        bson_destroy(documents);
        bson_string_free(given, true);
        bson_string_free(held, true);
    }
    CHECK_INT(shown, >, rounds / 8); /* otherwise the test would check nothing */
}
