#include "query/expression/expression.h"

#include <pthread.h>

#include "tests/support/expression.h"
#include "tests/support/test.h"

/* The skeleton of expressions: paths, variables, folding, limits. The recorded vectors and
 * expression_*.c, next to this file, test the operators' results. */

TEST(returns_arrays_without_missing_values_for_a_path_through_arrays)
{
    EXPRESSION_GIVES("'$a.b'", "{'a': [{'b': 1}, 5, {'c': 2}, {'b': [3]}]}", "[1, [3]]");
    EXPRESSION_GIVES("'$a.b.c'", "{'a': [{'b': [{'c': 1}, {'c': 2}]}, {'b': {'c': 3}}]}",
                     "[[1, 2], 3]");
    EXPRESSION_GIVES("'$a.b'", "{'a': [[{'b': 1}]]}", "[]");
    EXPRESSION_GIVES("'$a.0'", "{'a': [1]}", "[]");
    EXPRESSION_GIVES("'$a.0'", "{'a': {'0': 7}}", "7");
    EXPRESSION_GIVES("'$a.b'", "{'a': 1}", "missing");
}

TEST(a_missing_field_is_left_out_of_objects_and_null_in_arrays)
{
    EXPRESSION_GIVES("{'x': '$no', 'y': 1}", "{}", "{'y': 1}");
    EXPRESSION_GIVES("['$no', 1]", "{}", "[null, 1]");
}

TEST(inner_variables_hide_outer_ones_and_let_does_not_see_its_own)
{
    EXPRESSION_GIVES("{'$let': {'vars': {'x': 1}, 'in': {'$let': {'vars': {'x': 2, 'y': '$$x'}, "
                     "'in': ['$$x', '$$y']}}}}",
                     "{}", "[2, 1]");
    EXPRESSION_GIVES("{'$let': {'vars': {'CURRENT': '$a'}, 'in': ['$b', '$$ROOT.b']}}",
                     "{'a': {'b': 1}, 'b': 2}", "[1, 2]");
    EXPRESSION_FAILS("{'$let': {'vars': {'x': 1, 'y': '$$x'}, 'in': 1}}", "{}", 17276);
}

TEST(the_system_variables_are_there)
{
    EXPRESSION_GIVES("'$$NOW'", "{}", "{'$date': {'$numberLong': '1700000000123'}}");
    EXPRESSION_GIVES("'$$NOW.a'", "{}", "missing");
    EXPRESSION_GIVES("'$$REMOVE'", "{}", "missing");
    EXPRESSION_GIVES("'$$ROOT'", "{'a': 1}", "{'a': 1}");
    EXPRESSION_FAILS("'$$CLUSTER_TIME'", "{}", 10071200);
    EXPRESSION_FAILS("'$$CLUSTERTIME'", "{}", 17276);
}

TEST(constants_are_folded_and_then_fail_while_compiling)
{
    struct expression *expression;
    struct value value;
    bson_error_t error;
    bson_t *source = test_bson("{'good': {'$add': [1, {'$multiply': [2, 3]}]}, "
                               "'bad': {'$divide': [1, 0]}, 'open': {'$add': ['$a', 1]}}");
    struct value all = truce__value_document(source);

    REQUIRE(!truce__expression_new(truce__value_field(all, "good", 4), NULL, &expression, &error));
    CHECK(truce__expression_constant_value(expression, &value));
    CHECK_INT(truce__value_int32(value), ==, 7);
    truce__expression_free(expression);
    REQUIRE(!truce__expression_new(truce__value_field(all, "open", 4), NULL, &expression, &error));
    CHECK(!truce__expression_constant_value(expression, &value));
    truce__expression_free(expression);
    CHECK_STATUS(
        TRUCE_INVALID,
        truce__expression_new(truce__value_field(all, "bad", 3), NULL, &expression, &error), error);
    CHECK(expression == NULL);
    bson_destroy(source);
}

TEST(requires_a_known_operator_alone)
{
    EXPRESSION_FAILS("{'$add': [1], '$size': 2}", "{}", 15983);
    EXPRESSION_FAILS("{'$add': [1], 'x': 2}", "{}", 15983);
    EXPRESSION_FAILS("{'x': 2, '$add': [1]}", "{}", 16410);
    EXPRESSION_FAILS("{'$nothing': 1}", "{}", 168);
    EXPRESSION_FAILS("[{'a.b': 1}]", "{}", 16412);
    EXPRESSION_FAILS("[{'a': 1, 'b': 1, 'a': 1}]", "{}", 16406);
}

/* The operands of the branches that were counted have room for these only. */
TEST(refuses_a_second_list_of_branches)
{
    EXPRESSION_FAILS("{'$switch': {'branches': [{'case': true, 'then': 1}], 'branches': ["
                     "{'case': false, 'then': 1}, {'case': false, 'then': 2}, "
                     "{'case': false, 'then': 3}, {'case': true, 'then': 4}]}}",
                     "{}", 40067);
    EXPRESSION_FAILS("{'$switch': {'branches': [{'case': true, 'then': 1}], 'branches': 5}}", "{}",
                     40067);
    EXPRESSION_FAILS("{'$switch': {'branches': [], 'branches': [{'case': true, 'then': 1}]}}", "{}",
                     40067);
}

TEST(a_long_reduction_needs_memory_for_its_value_only)
{
    /* 200,000 iterations over a value of a kilobyte: 200 MB if no memory were freed */
    EXPRESSION_GIVES("{'$size': {'$reduce': {'input': {'$range': [0, 200000]}, "
                     "'initialValue': {'$range': [0, 100]}, "
                     "'in': {'$concatArrays': ['$$value', []]}}}}",
                     "{}", "100");
}

TEST(a_result_that_doubles_is_stopped)
{
    EXPRESSION_FAILS("{'$reduce': {'input': {'$range': [0, 64]}, 'initialValue': ['$a'], "
                     "'in': {'$concatArrays': ['$$value', '$$value']}}}",
                     "{'a': 'some text'}", 146);
    EXPRESSION_FAILS("{'$map': {'input': {'$range': [0, 100000]}, 'in': {'$range': [0, 100000]}}}",
                     "{}", 146);
    EXPRESSION_FAILS("{'$range': [-2147483648, 2147483647]}", "{}", 146);
}

TEST(stops_a_value_that_nests_deeper_with_each_iteration)
{
    EXPRESSION_FAILS("{'$reduce': {'input': {'$range': [0, 100000]}, 'initialValue': '$a', "
                     "'in': ['$$value']}}",
                     "{'a': 1}", 15);
}

TEST(the_callers_variables_are_read_by_position)
{
    static const char *const names[] = {"first", "second", NULL};
    bson_t *source = test_bson("{'e': ['$$second', '$$first.x']}");
    bson_t *values = test_bson("{'a': {'x': 1}, 'b': 2}"), *expected = test_bson("{'r': [2, 1]}");
    struct value all = truce__value_document(values), result;
    struct value given[] = {truce__value_field(all, "a", 1), truce__value_field(all, "b", 1)};
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct expression *expression;
    bson_error_t error;
    bson_t got = BSON_INITIALIZER;

    REQUIRE(!truce__expression_new(truce__value_field(truce__value_document(source), "e", 1), names,
                                   &expression, &error));
    CHECK_OK(truce__expression_evaluate(expression, all, given, &context, &result, &error), error);
    truce__value_append(&got, "r", 1, result);
    CHECK_BSON(expected, &got);
    truce__expression_free(expression);
    truce__arena_release(&arena);
    bson_destroy(&got);
    bson_destroy(expected);
    bson_destroy(values);
    bson_destroy(source);
}

TEST(each_element_by_number_takes_time_in_proportion)
{
    /* 200,000 elements: 20,000,000,000 steps if each were walked to */
    EXPRESSION_GIVES("{'$let': {'vars': {'big': {'$map': {'input': {'$range': [0, 200000]}, 'in': "
                     "{'$add': ['$$this', '$zero']}}}}, 'in': {'$sum': {'$map': {'input': "
                     "{'$range': [-200000, 200000]}, 'in': {'$arrayElemAt': ['$$big', "
                     "'$$this']}}}}}}",
                     "{'zero': 0}", "{'$numberLong': '39999800000'}");
    EXPRESSION_GIVES("{'$map': {'input': {'$range': [-3, 4]}, 'in': {'$arrayElemAt': ['$a', "
                     "'$$this']}}}",
                     "{'a': [1, 2]}", "[null, 1, 2, 1, 2, null, null]");
    /* an array created again in each iteration, by a reduction that moves from arena to arena */
    EXPRESSION_GIVES("{'$reduce': {'input': {'$range': [0, 3000]}, 'initialValue': 0, 'in': "
                     "{'$let': {'vars': {'made': {'$concatArrays': [['$$value'], {'$range': [0, "
                     "200]}]}}, 'in': {'$add': [{'$arrayElemAt': ['$$made', 0]}, {'$subtract': "
                     "[{'$arrayElemAt': ['$$made', 3]}, {'$arrayElemAt': ['$$made', 2]}]}]}}}}}",
                     "{}", "3000");
}

/* -- threads ---------------------------------------------------------------------------------- */

struct task {
    const struct expression *expression;
    const bson_t *document, *expected;
    int wrong;
};

static void *evaluate_often(void *arg)
{
    struct task *task = arg;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};

    for (int i = 0; i < 300; i++) {
        bson_t got = BSON_INITIALIZER;
        struct value result;
        bson_error_t error;
        if (truce__expression_evaluate(task->expression, truce__value_document(task->document),
                                       NULL, &context, &result, &error))
            task->wrong++;
        else
            truce__value_append(&got, "r", 1, result);
        task->wrong += !bson_equal(&got, task->expected);
        bson_destroy(&got);
        truce__arena_reset(&arena);
    }
    truce__arena_release(&arena);
    return NULL;
}

TEST(one_expression_is_evaluated_by_several_threads_at_once)
{
    bson_t *source = test_bson(
        "{'e': {'$map': {'input': '$a', 'as': 'x', 'in': {'$let': {'vars': {'y': {'$add': ['$$x', "
        "1]}}, 'in': [{'$regexFind': {'input': {'$toString': '$$y'}, 'regex': '(.)(z)?'}}, "
        "{'$dateToString': {'date': {'$toDate': {'$toLong': '$$y'}}, 'timezone': 'Asia/Tokyo', "
        "'format': '%H'}}]}}}}}");
    bson_t *document = test_bson("{'a': [1, 25]}");
    bson_t *expected =
        test_bson("{'r': [[{'match': '2', 'idx': 0, 'captures': ['2', null]}, '09'], "
                  "[{'match': '2', 'idx': 0, 'captures': ['2', null]}, '09']]}");
    struct expression *expression;
    struct task tasks[4];
    pthread_t threads[4];
    bson_error_t error;

    REQUIRE(!truce__expression_new(truce__value_field(truce__value_document(source), "e", 1), NULL,
                                   &expression, &error));
    for (int i = 0; i < 4; i++) {
        tasks[i] = (struct task){expression, document, expected, 0};
        REQUIRE(!pthread_create(&threads[i], NULL, evaluate_often, &tasks[i]));
    }
    for (int i = 0; i < 4; i++) {
        REQUIRE(!pthread_join(threads[i], NULL));
        CHECK_INT(tasks[i].wrong, ==, 0);
    }
    truce__expression_free(expression);
    bson_destroy(expected);
    bson_destroy(document);
    bson_destroy(source);
}

TEST(finds_and_trims_characters_of_any_length)
{
    EXPRESSION_GIVES("{'$indexOfCP': ['\u00e4\u00e4b\u20acb', 'b']}", "{}", "2");
    EXPRESSION_GIVES("{'$indexOfCP': ['\u00e4\u00e4b\u20acb', 'b', 3]}", "{}", "4");
    EXPRESSION_GIVES("{'$indexOfCP': ['\u00e4\u00e4b\u20acb', 'b', 3, 4]}", "{}", "-1");
    EXPRESSION_GIVES("{'$indexOfCP': ['\u00e4\u00e4b\u20acb', '', 2]}", "{}", "2");
    EXPRESSION_GIVES("{'$indexOfCP': ['\u00e4\u00e4b\u20acb', '', 5]}", "{}", "-1");
    EXPRESSION_GIVES("{'$indexOfCP': ['', '']}", "{}", "0");
    EXPRESSION_GIVES(
        "{'$trim': {'input': '\u00e4x\u20ac-\u00e4y', 'chars': "
        "'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm\u00e4\u20ac'}}",
        "{}", "'-'");
    EXPRESSION_GIVES(
        "{'$rtrim': {'input': '\u00e4-\u00a4', 'chars': "
        "'abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklm\u00e4\u20ac'}}",
        "{}", "'\u00e4-\u00a4'");
    EXPRESSION_GIVES(
        "{'$size': {'$filter': {'input': {'$range': [0, 300]}, 'as': 'x', 'cond': "
        "{'$in': ['$$x', '$a']}}}}",
        "{'a': [1, 2.0, 2, 'x', 400, {'$numberDecimal': '299'}, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,"
        "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,"
        "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,"
        "7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]}",
        "4");
}
