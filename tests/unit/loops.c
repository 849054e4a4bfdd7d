/*
 * Loops over one array by its numbers and values, and groups that merge documents. Twice the
 * elements take about twice the steps of the budget, which do not depend on a clock.
 */
#include "query/aggregate/aggregate.h"
#include "query/expression/expression.h"
#include "tests/support/pipeline.h"
#include "tests/support/steps.h"
#include "tests/support/test.h"

#define MANY 4000

/* ---- one array ------------------------------------------------------------------------------ */

/* $map over `count` numbers, with them as $$r. */
static uint64_t mapped(int count, const char *body)
{
    char json[600];
    struct work work;

    begin(&work);
    snprintf(json, sizeof json,
             "{'e': {'$let': {'vars': {'r': {'$range': [0, {'$multiply': ['$_id', %d]}]}}, 'in': "
             "{'$map': {'input': '$$r', 'in': %s}}}}}",
             count, body);
    CHECK_INT(evaluate(json, &work).type, ==, BSON_TYPE_ARRAY);
    return end(&work);
}

static void check_grows(const char *body, int steps)
{
    CHECK_INT((intmax_t)mapped(MANY, body), <=, (intmax_t)steps * MANY);
    CHECK_INT((intmax_t)mapped(2 * MANY, body), <=, (intmax_t)4 * steps * MANY);
}

/* Each search counts some steps for the bytes of the array, so the second bound is four times as
 * large. */
TEST(a_loop_over_an_array_takes_a_few_steps_for_each_element)
{
    check_grows("{'$indexOfArray': ['$$r', '$$this']}", 60);
    check_grows("{'$slice': ['$$r', '$$this', 1]}", 60);
    check_grows("{'$slice': ['$$r', {'$subtract': [-1, '$$this']}, 1]}", 60);
    check_grows("{'$arrayElemAt': ['$$r', '$$this']}", 60);
}

/* Each with each, these would take some minutes. */
TEST(a_loop_over_a_very_long_array_ends)
{
    enum { VERY_MANY = 100000 };

    (void)mapped(VERY_MANY, "{'$indexOfArray': ['$$r', '$$this']}");
    (void)mapped(VERY_MANY, "{'$slice': ['$$r', '$$this', 1]}");
}

static void check_same(const char *array, const char *body)
{
    char json[900];
    struct value each, once;
    struct work work;

    begin(&work);
    snprintf(json, sizeof json,
             "{'e': {'$let': {'vars': {'r': %s}, 'in': {'$map': {'input': {'$range': [0, 80]}, "
             "'in': %s}}}}}",
             array, body);
    each = evaluate(json, &work);
    /* a new array each time is walked each time */
    snprintf(json, sizeof json,
             "{'e': {'$map': {'input': {'$range': [0, 80]}, 'in': {'$let': {'vars': {'r': "
             "{'$concatArrays': [%s, {'$slice': [['$$this'], 0]}]}}, 'in': %s}}}}}",
             array, body);
    once = evaluate(json, &work);
    if (!truce__value_identical(each, once))
        test_fail(__FILE__, __LINE__, "%s of %s", body, array);
    end(&work);
}

TEST(agrees_with_a_walk_for_a_list_and_a_set_of_an_array)
{
    static const char *const bodies[] = {
        "{'$indexOfArray': ['$$r', '$$this']}",
        "{'$indexOfArray': ['$$r', {'$toLong': '$$this'}]}",
        "{'$indexOfArray': ['$$r', {'$toString': '$$this'}]}",
        "{'$indexOfArray': ['$$r', '$missing']}",
        "{'$indexOfArray': ['$$r', '$$this', 30]}",
        "{'$indexOfArray': ['$$r', '$$this', '$$this']}",
        "{'$indexOfArray': ['$$r', '$$this', {'$add': ['$$this', 1]}]}",
        "{'$indexOfArray': ['$$r', '$$this', 0, '$$this']}",
        "{'$indexOfArray': ['$$r', '$$this', 0, {'$add': ['$$this', 1]}]}",
        "{'$indexOfArray': ['$$r', '$$this', 10, 70]}",
        "{'$slice': ['$$r', '$$this']}",
        "{'$slice': ['$$r', {'$subtract': [0, '$$this']}]}",
        "{'$slice': ['$$r', {'$multiply': [-2, '$$this']}]}",
        "{'$slice': ['$$r', {'$multiply': [2, '$$this']}, 3]}",
        "{'$slice': ['$$r', {'$multiply': [-2, '$$this']}, 3]}",
        "{'$slice': ['$$r', {'$subtract': [0, '$$this']}, 100]}",
    };

    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        check_same("{'$range': [0, 75]}", bodies[i]);
        check_same("{'$concatArrays': [{'$range': [5, 45]}, ['7', null], {'$range': [0, 60]}]}",
                   bodies[i]);
        check_same("[3, 4]", bodies[i]);
    }
}

static void check_value(const char *expected, const char *json)
{
    bson_t *wanted = test_bson(expected);
    struct work work;

    begin(&work);
    if (!truce__value_equal(truce__value_field(truce__value_document(wanted), "e", 1),
                            evaluate(json, &work)))
        test_fail(__FILE__, __LINE__, "%s: not %s", json, expected);
    end(&work);
    bson_destroy(wanted);
}

TEST(a_slice_that_begins_before_the_beginning_begins_there)
{
    check_value("{'e': [1, 2]}", "{'e': {'$slice': [[1, 2, 3], -5, 2]}}");
    check_value("{'e': [2]}", "{'e': {'$slice': [[1, 2, 3], -2, 1]}}");
    check_value("{'e': [1, 2, 3]}", "{'e': {'$slice': [[1, 2, 3], -5]}}");
    check_value("{'e': []}", "{'e': {'$slice': [[1, 2, 3], 5, 2]}}");
    check_value(
        "{'e': [[0, 1], [0, 1]]}",
        "{'e': {'$let': {'vars': {'r': {'$range': [0, {'$multiply': ['$_id', 100]}]}}, 'in': "
        "{'$map': {'input': [-200, -100], 'in': {'$slice': ['$$r', '$$this', 2]}}}}}}");
}

/* The memory of all iterations together exceeds the limit of an expression. */
TEST(frees_the_memory_of_each_iteration)
{
    struct work work;

    begin(&work);
    (void)evaluate("{'e': {'$reduce': {'input': {'$range': [0, {'$multiply': ['$_id', 700]}]}, "
                   "'initialValue': 0, 'in': {'$add': ['$$value', {'$size': {'$range': [0, "
                   "{'$add': [20000, {'$mod': ['$$this', 2]}]}]}}, '$$this']}}}}",
                   &work);
    CHECK_INT((intmax_t)end(&work), >, 0);
}

/* ---- merging -------------------------------------------------------------------------------- */

/* {_id: number, w: {f<first>: number, ...}} */
static void append_wide(bson_t *documents, int number, int first, int count)
{
    bson_t document, fields;
    char key[16];

    snprintf(key, sizeof key, "%d", number);
    BSON_APPEND_DOCUMENT_BEGIN(documents, key, &document);
    BSON_APPEND_INT32(&document, "_id", number);
    BSON_APPEND_DOCUMENT_BEGIN(&document, "w", &fields);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "f%d", first + i);
        BSON_APPEND_INT32(&fields, key, number);
    }
    bson_append_document_end(&document, &fields);
    bson_append_document_end(documents, &document);
}

/* The document that is the one group; bson_destroy it. */
static bson_t *merged(bson_t *documents)
{
    bson_t *stages =
        test_array("{'v': [{'$group': {'_id': null, 'm': {'$mergeObjects': '$w'}, 'n': "
                   "{'$sum': 1}}}, {'$replaceRoot': {'newRoot': '$m'}}]}");
    struct pipeline_world world;
    bson_t result, *copy = NULL;
    bson_error_t error;
    bson_iter_t iter;

    pipeline_world_init(&world);
    CHECK_OK(pipeline_run(&world, stages, documents, &result, &error), error);
    if (CHECK(bson_iter_init_find(&iter, &result, "0"))) {
        struct value value = truce__value_of_iter(&iter);
        bson_t document;

        truce__value_bson(value, &document);
        copy = bson_copy(&document);
    }
    pipeline_world_release(&world);
    bson_destroy(&result);
    bson_destroy(stages);
    bson_destroy(documents);
    return copy ? copy : bson_new();
}

/* Searching each field among all others would take some 10^11 comparisons. */
TEST(documents_of_very_many_fields_are_merged)
{
    enum { FIELDS = 300000 };
    bson_t *documents = bson_new(), *whole;

    append_wide(documents, 0, 0, FIELDS);
    append_wide(documents, 1, FIELDS / 2, FIELDS);
    whole = merged(documents);
    CHECK_INT(bson_count_keys(whole), ==, FIELDS + FIELDS / 2);
    bson_destroy(whole);
}

/* Copied at each turn, 150 GB. */
TEST(very_many_documents_are_merged)
{
    enum { DOCUMENTS = 150000 };
    bson_t *documents = bson_new(), *whole;

    for (int i = 0; i < DOCUMENTS; i++)
        append_wide(documents, i, i, 1);
    whole = merged(documents);
    CHECK_INT(bson_count_keys(whole), ==, DOCUMENTS);
    bson_destroy(whole);
}

static void check_merged(int documents_count, int width)
{
    bson_t *documents = bson_new(), *whole;
    bson_iter_t iter;
    int at = 0;

    for (int i = 0; i < documents_count; i++)
        append_wide(documents, i, i, width);
    whole = merged(documents);
    CHECK(bson_iter_init(&iter, whole));
    for (; bson_iter_next(&iter); at++) {
        char key[16];

        snprintf(key, sizeof key, "f%d", at);
        CHECK_TEXT(key, bson_iter_key(&iter));
        CHECK_INT(bson_iter_int32(&iter), ==, at < documents_count ? at : documents_count - 1);
    }
    CHECK_INT(at, ==, documents_count + width - 1);
    bson_destroy(whole);
}

TEST(later_fields_win_in_the_places_of_those_before)
{
    check_merged(1, 3);
    check_merged(2, 3);
    check_merged(5, 4);
    check_merged(100, 7);
    check_merged(1000, 30);
}

/* Interleaved groups that grow: their values spill and are read again. */
static void run_groups(size_t memory_max, bson_t *result, struct pipeline_world *world)
{
    bson_t *stages = test_array(
        "{'v': [{'$group': {'_id': {'$mod': ['$_id', 40]}, 'm': {'$mergeObjects': '$w'}, 'p': "
        "{'$push': '$w'}}}, {'$project': {'m': 1}}, {'$sort': {'_id': 1}}]}");
    bson_t documents = BSON_INITIALIZER;
    bson_error_t error;

    for (int i = 0; i < 1200; i++)
        append_wide(&documents, i, i / 40, 6);
    pipeline_world_init(world);
    world->spills = memory_max > 0;
    world->memory_max = memory_max;
    CHECK_OK(pipeline_run(world, stages, &documents, result, &error), error);
    pipeline_world_release(world);
    bson_destroy(&documents);
    bson_destroy(stages);
}

TEST(groups_that_are_put_away_merge_the_same)
{
    struct pipeline_world world;
    bson_t whole, spilled;

    run_groups(0, &whole, &world);
    run_groups(30000, &spilled, &world);
    CHECK_INT(world.spill.opened, >, 0);
    CHECK_INT(bson_count_keys(&whole), ==, 40);
    CHECK(bson_equal(&whole, &spilled));
    bson_destroy(&whole);
    bson_destroy(&spilled);
}
