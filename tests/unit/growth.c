/*
 * A value that a $reduce extends in each iteration. It equals the result of building it again in
 * each iteration. Its steps and memory are linear in its length.
 */
#include "base/budget.h"
#include "base/limits.h"
#include "base/status.h"
#include "query/expression/expression.h"
#include "tests/support/test.h"

static struct arena arena;
static struct budget budget;

static truce_status evaluate(const char *json, struct value *result, bson_error_t *error)
{
    bson_t *source = test_bson(json), *document = test_bson("{'_id': 1, 'n': 40}");
    struct query_context context = {.arena = &arena, .budget = &budget};
    struct value whole = truce__value_document(source);
    struct expression *expression = NULL;
    truce_status status;

    truce__arena_reset(&arena);
    truce__budget_init(&budget, 0, NULL);
    status = truce__expression_new(truce__value_field(whole, "e", 1), NULL, &expression, error);
    if (!status)
        status = truce__expression_evaluate(expression, truce__value_document(document), NULL,
                                            &context, result, error);
    if (!status)
        *result = truce__value_copy(&arena, *result);
    truce__expression_free(expression);
    bson_destroy(source);
    bson_destroy(document);
    return status;
}

static char *reduce(const char *input, const char *initial, const char *body)
{
    return bson_strdup_printf("{'e': {'$reduce': {'input': %s, 'initialValue': %s, 'in': %s}}}",
                              input, initial, body);
}

static void check_gives(const char *input, const char *initial, const char *body,
                        const char *expected)
{
    char *json = reduce(input, initial, body);
    bson_t *wanted = test_bson(expected);
    struct value result = truce__value_missing();
    bson_error_t error;

    if (CHECK_OK(evaluate(json, &result, &error), error) &&
        !truce__value_identical(truce__value_field(truce__value_document(wanted), "e", 1), result))
        test_fail(__FILE__, __LINE__, "%s: not %s", json, expected);
    bson_destroy(wanted);
    bson_free(json);
}

static void check_fails(const char *input, const char *initial, const char *body, uint32_t code)
{
    char *json = reduce(input, initial, body);
    struct value result;
    bson_error_t error;

    CHECK(evaluate(json, &result, &error) != TRUCE_OK);
    if (!CHECK_INT(error.code, ==, code))
        fprintf(stderr, "%s: %s\n", json, error.message);
    bson_free(json);
}

static uint64_t steps_of(int count, const char *initial, const char *body)
{
    char *input = bson_strdup_printf("{'$range': [0, {'$multiply': ['$_id', %d]}]}", count);
    char *json = reduce(input, initial, body);
    struct value result;
    bson_error_t error;

    CHECK_OK(evaluate(json, &result, &error), error);
    bson_free(json);
    bson_free(input);
    return truce__budget_spent(&budget);
}

/* Checks that twice the iterations take about twice the steps, and that an iteration takes few
 * steps. */
static void check_linear(const char *initial, const char *body)
{
    enum { TURNS = 20000, STEPS_OF_TURN = 40 };
    uint64_t once = steps_of(TURNS, initial, body), twice = steps_of(2 * TURNS, initial, body);

    CHECK_INT((intmax_t)once, <, STEPS_OF_TURN * TURNS);
    CHECK_INT((intmax_t)twice, <, 3 * (intmax_t)once);
}

/* {name: number}; the name comes from the iteration */
#define FIELD                                                                                      \
    "{'$arrayToObject': [[[{'$concat': ['a field with a name ', {'$toString': '$$this'}]}, "       \
    "'$$this']]]}"

TEST(takes_steps_linear_in_the_length)
{
    check_linear("''", "{'$concat': ['$$value', {'$toString': '$$this'}, ', ']}");
    check_linear("{}", "{'$mergeObjects': ['$$value', " FIELD "]}");
    check_linear("null", "{'$cond': [{'$mod': ['$$this', 2]}, {'$mergeObjects': ['$$value', " FIELD
                         ", {'last': '$$this'}]}, '$$value']}");
}

/* A copy in each iteration would take tens of gigabytes. */
TEST(very_long_texts_and_documents_grow)
{
    CHECK_INT((intmax_t)steps_of(300000, "''", "{'$concat': ['$$value', {'$toString': '$$this'}]}"),
              >, 300000);
    CHECK_INT((intmax_t)steps_of(100000, "{}", "{'$mergeObjects': ['$$value', " FIELD "]}"), >,
              100000);
}

TEST(shows_a_growing_string_as_it_is)
{
    static const char join[] = "{'$concat': ['$$value', {'$cond': [{'$eq': ['$$value', '']}, '', "
                               "', ']}, '$$this']}";
    static const char joined[] = "{'$cond': [{'$eq': ['$$value', '']}, {'$concat': ['$$value', "
                                 "'$$this']}, {'$concat': ['$$value', ', ', '$$this']}]}";

    check_gives("['a', 'bc', 'd']", "''", join, "{'e': 'a, bc, d'}");
    check_gives("['a', 'bc', 'd']", "''", joined, "{'e': 'a, bc, d'}");
    check_gives("[]", "'x'", joined, "{'e': 'x'}");
    check_gives("['', '']", "'x'", "{'$concat': ['$$value', '$$this']}", "{'e': 'x'}");
    check_gives("['a', 'b']", "'x'", "{'$concat': ['$$this', '$$value']}", "{'e': 'bax'}");
    check_gives("['a', 'b']", "'x'", "{'$concat': ['$$value', '$$value']}", "{'e': 'xxxx'}");
    check_gives("['a', null, 'b']", "'x'", "{'$concat': ['$$value', '$$this']}", "{'e': null}");
    check_gives("['a', 'b']", "null", "{'$concat': ['$$value', '$$this']}", "{'e': null}");
    check_gives("['ab', 'a', 'abc', 'a']", "''",
                "{'$cond': [{'$gt': [{'$indexOfBytes': ['$$value', '$$this']}, -1]}, '$$value', "
                "{'$concat': ['$$value', '$$this']}]}",
                "{'e': 'ababc'}");
    check_fails("['a', 1]", "''", "{'$concat': ['$$value', '$$this']}", 16702);
    check_fails("['a']", "1", "{'$concat': ['$$value', '$$this']}", 16702);
    /* one in another, of the outer's value */
    check_gives("[['a', 'b'], ['c']]", "'-'",
                "{'$reduce': {'input': '$$this', 'initialValue': '$$value', 'in': {'$concat': "
                "['$$value', '$$this']}}}",
                "{'e': '-abc'}");
}

TEST(equals_a_document_that_is_built_again)
{
    static const char plain[] = "{'$mergeObjects': ['$$value', '$$this']}";

    check_gives("[{'a': 1, 'b': 2}, null, {'b': 'three', 'c': {'d': []}}, {'a': 4}]", "{'z': 0}",
                plain, "{'e': {'z': 0, 'a': 4, 'b': 'three', 'c': {'d': []}}}");
    check_gives("[{'a': 1}]", "null", plain, "{'e': {'a': 1}}");
    check_gives("[null, null]", "null", plain, "{'e': {}}");
    check_gives("[]", "null", plain, "{'e': null}");
    check_gives("[{'a': 1}, {'b': 2}]", "{'x': 1}",
                "{'$cond': ['$$this.a', '$$value', {'$mergeObjects': ['$$value', '$$this', {'c': "
                "'$$this.b'}]}]}",
                "{'e': {'x': 1, 'b': 2, 'c': 2}}");
    /* the value is also read in the same iteration */
    check_gives("[1, 2, 3]", "{'n': 0}",
                "{'$mergeObjects': ['$$value', {'n': {'$add': ['$$value.n', '$$this']}}]}",
                "{'e': {'n': 6}}");
    check_gives("[1, 2, 3]", "{'n': 0}",
                "{'$cond': [{'$eq': ['$$value.n', 1]}, '$$value', {'$mergeObjects': ['$$value', "
                "{'n': '$$this'}]}]}",
                "{'e': {'n': 1}}");
    check_gives("[[{'a': 1}, {'b': 2}]]", "{}", "{'$mergeObjects': '$$this'}",
                "{'e': {'a': 1, 'b': 2}}");
    check_fails("[{'a': 1}, 2]", "{}", plain, 40400);
    check_fails("[{'a': 1}]", "[]", plain, 40400);
    check_gives(
        "[[{'a': 1}, {'b': 2}], [{'a': 3}]]", "{'z': 0}",
        "{'$reduce': {'input': '$$this', 'initialValue': '$$value', 'in': {'$mergeObjects': "
        "['$$value', '$$this']}}}",
        "{'e': {'z': 0, 'a': 3, 'b': 2}}");
}

/* 2,000 times a text of 100,000 bytes in the place of the one before. */
TEST(frees_overwritten_values)
{
    static const char text[] =
        "{'$reduce': {'input': {'$range': [0, 1000]}, 'initialValue': '', "
        "'in': {'$concat': ['$$value', '0123456789012345678901234567890123456"
        "789012345678901234567890123456789012345678901234567890123456789']}}}";
    char *body =
        bson_strdup_printf("{'$let': {'vars': {'t': %s}, 'in': {'$reduce': {'input': "
                           "{'$range': [0, 2000]}, 'initialValue': {}, 'in': "
                           "{'$mergeObjects': ['$$value', {'a': '$$t', 'n': '$$this'}]}}}}}",
                           text);
    char *json = bson_strdup_printf("{'e': {'$getField': {'field': 'n', 'input': %s}}}", body);
    struct value result;
    bson_error_t error;

    if (CHECK_OK(evaluate(json, &result, &error), error))
        CHECK_INT(truce__value_int32(result), ==, 1999);
    bson_free(body);
    bson_free(json);
}

/* A text of a million bytes, 120 times: nothing but the result is large. */
TEST(limits_growing_values)
{
    static const char text[] = "{'$reduce': {'input': {'$range': [0, 17]}, 'initialValue': "
                               "'0123456789', 'in': {'$concat': ['$$value', '$$value']}}}";
    char *json = bson_strdup_printf(
        "{'e': {'$let': {'vars': {'t': %s}, 'in': {'$strLenBytes': {'$reduce': {'input': {'$range': "
        "[0, 120]}, 'initialValue': '', 'in': {'$concat': ['$$value', '$$t']}}}}}}}",
        text);
    struct value result;
    bson_error_t error;

    CHECK(evaluate(json, &result, &error) != TRUCE_OK);
    CHECK_INT(error.code, ==, CODE_EXCEEDED_MEMORY_LIMIT);
    /* when it is too long, and not when it is copied at its end: it would be in memory by then */
    CHECK_INT(strstr(error.message, "result takes more") != NULL, ==, 1);
    bson_free(json);
    truce__arena_release(&arena);
}
