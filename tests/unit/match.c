/*
 * Properties of filters that the recorded answers of a MongoDB server do not cover: the shape of
 * the tree, positions, conditions on values, limits. tests/vectors runs the recorded answers.
 */
#include "query/match/match.h"

#include "base/clock.h"
#include "base/limits.h"
#include "tests/support/test.h"

static struct match *compile(const char *filter)
{
    bson_t *document = test_bson(filter);
    struct match *match = NULL;
    bson_error_t error;

    CHECK_OK(truce__match_new(document, &match, &error), error);
    bson_destroy(document);
    return match;
}

static struct match_result test_one(const char *filter, const char *json)
{
    struct match *match = compile(filter);
    bson_t *document = test_bson(json);
    struct match_result result = {0};
    bson_error_t error;

    CHECK_OK(truce__match_test(match, truce__value_document(document), NULL, &result, &error),
             error);
    bson_destroy(document);
    truce__match_free(match);
    return result;
}

static bool matches(const char *filter, const char *json)
{
    return test_one(filter, json).matched;
}

static const char *const kind_names[] = {
    "AND", "OR",     "NOR",  "NOT",   "TRUE", "FALSE", "EQ",   "LT",   "LTE",    "GT",   "GTE",
    "IN",  "EXISTS", "TYPE", "REGEX", "MOD",  "SIZE",  "BITS", "ELEM", "VALUES", "EXPR", "SCHEMA",
};

static void draw(const struct match_node *node, char *text, size_t size)
{
    size_t used = strlen(text);

    used += (size_t)snprintf(text + used, size - used, "%s", kind_names[node->kind]);
    if (node->path.count)
        used += (size_t)snprintf(text + used, size - used, " %s", node->path.text);
    if (node->operands_count)
        used += (size_t)snprintf(text + used, size - used, " *%u", node->operands_count);
    if (!node->children_count)
        return;
    snprintf(text + used, size - used, "(");
    for (uint32_t i = 0; i < node->children_count; i++) {
        if (i)
            snprintf(text + strlen(text), size - strlen(text), ", ");
        draw(node->children[i], text, size);
    }
    snprintf(text + strlen(text), size - strlen(text), ")");
}

static void check_tree(const char *filter, const char *expected)
{
    struct match *match = compile(filter);
    char text[1000] = "";

    draw(truce__match_root(match), text, sizeof text);
    CHECK_TEXT(expected, text);
    truce__match_free(match);
}

TEST(flattens_the_tree_without_changing_its_meaning)
{
    check_tree("{}", "TRUE");
    check_tree("{'a': 1}", "EQ a");
    check_tree("{'a': 1, 'b.c': {'$gt': 5, '$ne': 7}}", "AND(EQ a, GT b.c, NOT(EQ b.c))");
    check_tree("{'$and': [{'a': 1}, {'$and': [{'b': 1}, {'c': 1}]}]}", "AND(EQ a, EQ b, EQ c)");
    check_tree("{'$or': [{'a': 1}, {'b': 1}], 'c': 1}", "AND(OR(EQ a, EQ b), EQ c)");
    check_tree("{'$or': [{'a': 1}]}", "EQ a");
    check_tree("{'$nor': [{'a': 1}]}", "NOR(EQ a)");
    check_tree("{'a': {'$in': [3, 1, 1.0, 2]}}", "IN a *3");
    check_tree("{'a': {'$in': [3, {'$regularExpression': {'pattern': 'x', 'options': ''}}]}}",
               "IN a *1(REGEX a)");
    check_tree("{'a': {'$in': [1, {'$numberLong': '1'}]}}", "EQ a");
    check_tree("{'a': {'$nin': [1, 2]}}", "NOT(IN a *2)");
    check_tree("{'a': {'$in': []}}", "IN a");
    check_tree("{'a': {'$all': [1, 2]}}", "AND(EQ a, EQ a)");
    check_tree("{'a': {'$all': []}}", "FALSE");
    check_tree("{'a': {'$exists': false}}", "NOT(EXISTS a)");
    check_tree("{'a': {'$not': {'$gt': 1, '$lt': 5}}}", "NOT(AND(GT a, LT a))");
    check_tree("{'a': {'$elemMatch': {'x': 1, 'y': 2}}}", "ELEM a(AND(EQ x, EQ y))");
    check_tree("{'a': {'$elemMatch': {'$gt': 1, '$lt': 5}}}", "VALUES a(AND(GT , LT ))");
    check_tree("{'$comment': 'why', 'a': 1}", "EQ a");
    check_tree("{'$expr': true, '$jsonSchema': {}}", "AND(EXPR, SCHEMA)");
}

static void check_position(const char *filter, const char *document, int64_t expected)
{
    struct match_result result = test_one(filter, document);

    CHECK(result.matched);
    CHECK_INT(result.array_index, ==, expected);
}

TEST(the_position_is_that_of_the_outermost_array)
{
    check_position("{'a': 2}", "{'a': [1, 2, 2]}", 1);
    check_position("{'a': [1, 2]}", "{'a': [1, 2]}", -1);
    check_position("{'a.b': 2}", "{'a': [{'b': [1]}, {'b': [0, 0, 2]}]}", 1);
    check_position("{'a.b': 2}", "{'a': {'b': [1, 2]}}", 1);
    check_position("{'a': {'$elemMatch': {'b': 2}}}", "{'a': [{'b': 1}, {'b': [0, 0, 2]}]}", 1);
    check_position("{'a': {'$elemMatch': {'$gt': 1}}}", "{'a': [0, 1, 2]}", 2);
    check_position("{'a.b': {'$elemMatch': {'$gt': 1}}}", "{'a': [{'b': [0]}, {'b': [0, 0, 2]}]}",
                   1);
    /* a number in the path counts for no array */
    check_position("{'a.1': 5}", "{'a': [7, 5]}", -1);
    check_position("{'a.0.b': 5}", "{'a': [{'b': [1, 2, 5]}]}", 2);
    check_position("{'a': {'$in': [8, 9]}}", "{'a': [7, 9]}", 1);
    check_position("{'b': 1}", "{'a': [1], 'b': 1}", -1);
}

TEST(uses_the_last_position_but_none_of_or_nor_and_not)
{
    check_position("{'a': 2, 'b': 1}", "{'a': [1, 2], 'b': [1]}", 0);
    check_position("{'a': 2, '$or': [{'b': 9}, {'b': 0}]}", "{'a': [1, 2], 'b': [1, 3, 0]}", 1);
    check_position("{'a': {'$ne': 5}}", "{'a': [1, 2]}", -1);
    check_position("{'a': 2, '$nor': [{'b': 5}]}", "{'a': [1, 2], 'b': [1, 2, 3]}", 1);
}

TEST(finds_the_position_of_an_element_that_meets_all_conditions)
{
    check_position("{'$and': [{'a': {'$gt': 1}}, {'a': {'$lt': 3}}]}", "{'a': [1, 2, 3]}", 1);
    check_position("{'$and': [{'a': {'$lt': 3}}, {'a': {'$gt': 1}}]}", "{'a': [3, 2, 1]}", 1);
    check_position("{'a': {'$gte': 2, '$lte': 4, '$mod': [2, 0]}}", "{'a': [5, 3, 6, 4, 2]}", 3);
    check_position("{'$and': [{'$and': [{'a': {'$gt': 1}}]}, {'a': {'$lt': 3}}, {'b': 1}]}",
                   "{'a': [9, 0, 2], 'b': 1}", 2);
    check_position("{'a.b': 1, 'a.c': 2}", "{'a': [{'b': 1}, {'c': 2}, {'b': 1, 'c': 2}]}", 2);
    check_position("{'a': {'$elemMatch': {'b': 1}}, 'a.c': 2}",
                   "{'a': [{'b': 1}, {'b': 1, 'c': 2}, {'c': 2}]}", 1);
    check_position("{'a': {'$gt': 1, '$ne': 9}}", "{'a': [1, 2, 3]}", 1);
    /* no element satisfies both: MongoDB tests $lt before $gt */
    check_position("{'a': {'$gt': 3, '$lt': 3}}", "{'a': [1, 5]}", 1);
    check_position("{'b': 1, 'a': 2}", "{'a': [1, 2], 'b': [1]}", 0);
}

TEST(finds_the_position_among_many_equalities)
{
    bson_t *filter = bson_new(), all, operands;
    char name[16];

    BSON_APPEND_DOCUMENT_BEGIN(filter, "a", &all);
    BSON_APPEND_ARRAY_BEGIN(&all, "$all", &operands);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "%d", i);
        BSON_APPEND_INT32(&operands, name, 7);
    }
    bson_append_array_end(&all, &operands);
    BSON_APPEND_INT32(&all, "$gt", 3);
    bson_append_document_end(filter, &all);
    {
        char *text = bson_as_relaxed_extended_json(filter, NULL);

        check_position(text, "{'a': [5, 1, 7]}", 2);
        bson_free(text);
    }
    bson_destroy(filter);
}

static bool bits_match(const char *operator, const char * number)
{
    char filter[80], document[120];

    snprintf(filter, sizeof filter, "{'a': {'%s': [0]}}", operator);
    snprintf(document, sizeof document, "{'a': {'$number%s'}}", number);
    return matches(filter, document);
}

TEST(numbers_without_a_64_bit_value_have_no_bits)
{
    static const char *const operators[] = {"$bitsAllClear", "$bitsAnyClear", "$bitsAllSet",
                                            "$bitsAnySet"};
    static const char *const numbers[] = {
        "Decimal': 'NaN",
        "Decimal': 'Infinity",
        "Decimal': '-Infinity",
        "Decimal': '9.999999999999999999999999999999999E+6144",
        "Decimal': '9223372036854775808",
        "Decimal': '-9223372036854775809",
        "Double': 'NaN",
        "Double': 'Infinity",
        "Double': '-Infinity",
        "Double': '9223372036854775808",
        "Double': '0.5",
    };

    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
            CHECK(!bits_match(operators[i], numbers[j]));
    }
    CHECK(bits_match("$bitsAllSet", "Decimal': '9223372036854775807"));
    CHECK(bits_match("$bitsAllClear", "Decimal': '-9223372036854775808"));
    CHECK(bits_match("$bitsAllClear", "Double': '-9223372036854775808"));
    CHECK(bits_match("$bitsAllClear", "Decimal': '2"));
}

TEST(equality_is_by_value_not_by_bytes)
{
    CHECK(matches("{'a': 0.0}", "{'a': {'$numberDouble': '-0.0'}}"));
    CHECK(matches("{'a': {'$numberDecimal': '1.0'}}", "{'a': {'$numberDecimal': '1.00'}}"));
    CHECK(matches("{'a': {'$numberLong': '3'}}", "{'a': 3}"));
    CHECK(matches("{'a': {'$symbol': 's'}}", "{'a': 's'}"));
    CHECK(matches("{'a': {'x': 1.0}}", "{'a': {'x': 1}}"));
    CHECK(!matches("{'a': {'$numberLong': '9007199254740993'}}", "{'a': 9007199254740992.0}"));
    CHECK(!matches("{'a': true}", "{'a': 1}"));
}

static bool value_matches(const char *condition, const char *json)
{
    bson_t *holder = test_bson(condition), *document = test_bson(json);
    struct match *match;
    struct match_result result = {0};
    bson_error_t error;

    CHECK_OK(truce__match_value_new(truce__value_field(truce__value_document(holder), "c", 1),
                                    &match, &error),
             error);
    CHECK_OK(truce__match_test(match, truce__value_field(truce__value_document(document), "v", 1),
                               NULL, &result, &error),
             error);
    truce__match_free(match);
    bson_destroy(holder);
    bson_destroy(document);
    return result.matched;
}

TEST(a_condition_on_a_value_tests_the_value_or_its_fields)
{
    CHECK(value_matches("{'c': {'$gte': 5}}", "{'v': 5}"));
    CHECK(!value_matches("{'c': {'$gte': 5}}", "{'v': 4}"));
    CHECK(value_matches("{'c': {'$gte': 5}}", "{'v': [1, 7]}"));
    CHECK(value_matches("{'c': {'$not': {'$gte': 5}}}", "{'v': 4}"));
    CHECK(value_matches("{'c': {'$elemMatch': {'x': 1}}}", "{'v': [{'x': 1}]}"));
    CHECK(value_matches("{'c': {'x': 1}}", "{'v': {'x': 1, 'y': 2}}"));
    CHECK(value_matches("{'c': {'x.y': 1}}", "{'v': {'x': [{'y': 1}]}}"));
    CHECK(!value_matches("{'c': {'x': 1}}", "{'v': 1}"));
    CHECK(!value_matches("{'c': {'x': null}}", "{'v': 1}"));
    CHECK(value_matches("{'c': {'$or': [{'x': 1}, {'x': 2}]}}", "{'v': {'x': 2}}"));
    CHECK(value_matches("{'c': {'$regularExpression': {'pattern': '^x', 'options': ''}}}",
                        "{'v': 'xy'}"));
    CHECK(value_matches("{'c': 5}", "{'v': 5.0}"));
    CHECK(!value_matches("{'c': 5}", "{'v': [5]}"));
    CHECK(value_matches("{'c': [5]}", "{'v': [5]}"));
    CHECK(!value_matches("{'c': [5]}", "{'v': [[5]]}"));
    CHECK(value_matches("{'c': {}}", "{'v': {'any': 1}}"));
}

static void check_element(const char *filter, const char *value, bool expected)
{
    bson_t *source = test_bson(filter), *document = test_bson(value);
    struct match_result result = {0};
    struct match *match;
    const char *identifier;
    bson_error_t error;

    CHECK_OK(truce__match_elements_new(source, &match, &identifier, &error), error);
    CHECK_TEXT("i", identifier);
    CHECK_OK(truce__match_test(match, truce__value_field(truce__value_document(document), "v", 1),
                               NULL, &result, &error),
             error);
    CHECK_INT(result.matched, ==, expected);
    truce__match_free(match);
    bson_destroy(source);
    bson_destroy(document);
}

TEST(binds_the_identifier_of_an_array_filter_to_the_value)
{
    check_element("{'i': 5}", "{'v': 5}", true);
    check_element("{'i': 5}", "{'v': [1, 5]}", true);
    check_element("{'i.x': 1, 'i.y': {'$gt': 2}}", "{'v': {'x': 1, 'y': 3}}", true);
    check_element("{'i.x': 1, 'i.y': {'$gt': 2}}", "{'v': {'x': 1, 'y': 2}}", false);
    check_element("{'i.x': null}", "{'v': 5}", true);
    check_element("{'$or': [{'i': 1}, {'i.x': 1}]}", "{'v': {'x': [0, 1]}}", true);
    check_element("{'i': {'$ne': 1}}", "{'v': 2}", true);
}

static void check_filter_refused(const char *filter, uint32_t code)
{
    bson_t *source = test_bson(filter);
    struct match *match;
    const char *identifier;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce__match_elements_new(source, &match, &identifier, &error),
                 error);
    CHECK_INT(error.code, ==, code);
    CHECK(!match && !identifier);
    bson_destroy(source);
}

TEST(array_filters_have_one_plain_identifier)
{
    check_filter_refused("{}", CODE_FAILED_TO_PARSE);
    check_filter_refused("{'i': 1, 'j': 1}", CODE_FAILED_TO_PARSE);
    check_filter_refused("{'$or': [{'i.x': 1}, {'ii.x': 1}]}", CODE_FAILED_TO_PARSE);
    check_filter_refused("{'I': 1}", CODE_BAD_VALUE);
    check_filter_refused("{'i-j': 1}", CODE_BAD_VALUE);
    check_filter_refused("{'$expr': true}", CODE_QUERY_FEATURE_NOT_ALLOWED);
    check_filter_refused("{'i': {'$nope': true}}", CODE_BAD_VALUE);
}

static void check_refused(const char *filter, uint32_t code, const char *message)
{
    bson_t *source = test_bson(filter);
    struct match *match;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce__match_new(source, &match, &error), error);
    CHECK_INT(error.code, ==, code);
    CHECK_TEXT(message, error.message);
    CHECK(!match);
    bson_destroy(source);
}

TEST(refuses_unsupported_operators_by_name)
{
    check_refused("{'$where': 'true'}", CODE_BAD_VALUE,
                  "$where is not supported: there is no JavaScript; use $expr");
    check_refused("{'$text': {'$search': 'x'}}", CODE_INDEX_NOT_FOUND,
                  "$text is not supported: there are no text indexes; use $regex");
    check_refused("{'a': {'$near': [1, 2]}}", CODE_NO_QUERY_EXECUTION_PLANS,
                  "'a': $near is not supported: there are no geospatial queries");
    check_refused("{'a': {'$geoWithin': {}}}", CODE_COMMAND_NOT_SUPPORTED,
                  "'a': $geoWithin is not supported: there are no geospatial queries");
    check_refused("{'a.b': {'$size': -1}}", CODE_BAD_VALUE,
                  "'a.b': $size takes a whole number from 0 to 2147483647, not -1");
    check_refused("{'a': {'$mod': [4]}}", CODE_BAD_VALUE,
                  "'a': $mod takes [divisor, remainder], 64-bit integers, the divisor not 0, "
                  "not [4]");
}

TEST(computes_mod_on_64_bits_and_only_on_integers)
{
    CHECK(matches("{'a': {'$mod': [{'$numberLong': '5000000000'}, 1]}}",
                  "{'a': {'$numberLong': '5000000001'}}"));
    CHECK(matches("{'a': {'$mod': [4, -1]}}", "{'a': -5.9}"));
    CHECK(matches("{'a': {'$mod': [-1, 0]}}", "{'a': {'$numberLong': '-9223372036854775808'}}"));
    CHECK(matches("{'a': {'$mod': [4, 1]}}", "{'a': {'$numberDecimal': '5.99'}}"));
    CHECK(!matches("{'a': {'$mod': [1, 0]}}", "{'a': {'$numberDouble': 'NaN'}}"));
    CHECK(!matches("{'a': {'$mod': [1, 0]}}", "{'a': {'$numberDouble': '-Infinity'}}"));
    CHECK(!matches("{'a': {'$mod': [1, 0]}}", "{'a': 1e300}"));
    CHECK(!matches("{'a': {'$mod': [1, 0]}}", "{'a': {'$numberDecimal': '1E+100'}}"));
    check_refused("{'a': {'$mod': [4, 0, 0]}}", CODE_BAD_VALUE,
                  "'a': $mod takes [divisor, remainder], 64-bit integers, the divisor not 0, "
                  "not [4, 0, 0]");
}

TEST(accepts_options_in_one_place_only)
{
    bson_t source = BSON_INITIALIZER, child;
    struct match *match;
    bson_error_t error;

    BSON_APPEND_DOCUMENT_BEGIN(&source, "a", &child);
    BSON_APPEND_REGEX(&child, "$regex", "x", "i");
    BSON_APPEND_UTF8(&child, "$options", "m");
    bson_append_document_end(&source, &child);
    CHECK_STATUS(TRUCE_INVALID, truce__match_new(&source, &match, &error), error);
    CHECK_INT(error.code, ==, 51075);
    bson_destroy(&source);
}

static void check_prefix(const char *pattern, const char *options, const char *expected,
                         bool expected_whole)
{
    bson_t source = BSON_INITIALIZER;
    struct match *match;
    const char *prefix = "";
    size_t length = 0;
    bool whole = false;
    bson_error_t error;

    BSON_APPEND_REGEX(&source, "a", pattern, options);
    CHECK_OK(truce__match_new(&source, &match, &error), error);
    CHECK_INT(truce__match_regex_prefix(truce__match_root(match), &prefix, &length, &whole), ==,
              *expected != 0);
    CHECK_INT(length, ==, strlen(expected));
    CHECK(!memcmp(prefix, expected, strlen(expected)));
    CHECK_INT(whole, ==, expected_whole);
    truce__match_free(match);
    bson_destroy(&source);
}

TEST(derives_the_prefix_of_a_regex)
{
    check_prefix("^abc", "", "abc", true);
    check_prefix("^abc.*", "", "abc", true);
    check_prefix("^abc.*d", "", "abc", false);
    check_prefix("^abc*", "", "ab", false);
    check_prefix("^ab\303\251?x", "", "ab", false);
    check_prefix("^ab{2}", "", "a", false);
    check_prefix("^ab$", "", "ab", false);
    check_prefix("^a(b|c)", "", "", false);
    check_prefix("^ab|c", "", "", false);
    check_prefix("^abc", "i", "", false);
    check_prefix("^abc", "m", "", false);
    check_prefix("abc", "", "", false);
    check_prefix("^a*", "", "", false);
}

TEST(a_regex_that_runs_into_its_limit_is_an_error)
{
    struct match *match =
        compile("{'$or': [{'a': {'$regex': '(a+)+$'}}, {'a': {'$not': {'$regex': '(a+)+$'}}}]}");
    bson_t document = BSON_INITIALIZER;
    struct match_result result;
    char text[64];
    bson_error_t error;

    memset(text, 'a', sizeof text);
    text[63] = '!';
    bson_append_utf8(&document, "a", 1, text, sizeof text);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__match_test(match, truce__value_document(&document), NULL, &result, &error),
                 error);
    CHECK(!result.matched);
    bson_destroy(&document);
    truce__match_free(match);
}

static bson_t *nested_and(uint32_t depth)
{
    bson_t *filter = BCON_NEW("a", BCON_INT32(1));

    for (uint32_t i = 1; i < depth; i += 2) {
        bson_t *outer = BCON_NEW("$and", "[", BCON_DOCUMENT(filter), "]");

        bson_destroy(filter);
        filter = outer;
    }
    return filter;
}

TEST(a_filter_may_be_nested_to_the_limit_of_documents)
{
    bson_t *filter = nested_and(TRUCE_DOCUMENT_DEPTH_MAX - 1), *document = test_bson("{'a': [1]}");
    struct match_result result = {0};
    struct match *match;
    bson_error_t error;

    CHECK_OK(truce__document_check(filter, "filter", &error), error);
    CHECK_OK(truce__match_new(filter, &match, &error), error);
    CHECK_OK(truce__match_test(match, truce__value_document(document), NULL, &result, &error),
             error);
    CHECK(result.matched);
    truce__match_free(match);
    bson_destroy(filter);
    bson_destroy(document);
}

TEST(a_large_in_is_quick_on_a_large_array)
{
    bson_t filter = BSON_INITIALIZER, condition, list, document = BSON_INITIALIZER, array;
    struct match_result result;
    struct match *match;
    bson_error_t error;
    int64_t start = truce__clock_monotonic_ns();
    char key[16];

    bson_append_document_begin(&filter, "a", 1, &condition);
    bson_append_array_begin(&condition, "$in", 3, &list);
    bson_append_array_begin(&document, "a", 1, &array);
    for (int i = 0; i < 300000; i++) {
        int length = snprintf(key, sizeof key, "%d", i);

        bson_append_int32(&list, key, length, 2 * i);
        bson_append_int32(&array, key, length, 2 * i + 1);
    }
    bson_append_array_end(&document, &array);
    bson_append_array_end(&condition, &list);
    bson_append_document_end(&filter, &condition);
    CHECK_OK(truce__match_new(&filter, &match, &error), error);
    CHECK_OK(truce__match_test(match, truce__value_document(&document), NULL, &result, &error),
             error);
    CHECK(!result.matched);
    CHECK_INT((truce__clock_monotonic_ns() - start) / 1000000, <, 20000);
    truce__match_free(match);
    bson_destroy(&filter);
    bson_destroy(&document);
}

/* {"0": [{"0": [{"0": ...}]}]} */
static bson_t *nested_numbers(uint32_t levels)
{
    bson_t *document = bson_new();

    for (uint32_t i = 0; i < levels; i++) {
        bson_t *outer = BCON_NEW("0", "[", BCON_DOCUMENT(document), "]");

        bson_destroy(document);
        document = outer;
    }
    return document;
}

TEST(ends_a_path_of_numbers_with_an_error_in_bounded_time)
{
    bson_t *document = nested_numbers(TRUCE_DOCUMENT_DEPTH_MAX / 2 - 1), filter = BSON_INITIALIZER;
    char path[161] = "0";
    struct match_result result;
    struct match *match;
    bson_error_t error;

    for (int i = 0; i < 75; i++)
        strcat(path, ".0");
    BSON_APPEND_INT32(&filter, path, 7);
    CHECK_OK(truce__match_new(&filter, &match, &error), error);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__match_test(match, truce__value_document(document), NULL, &result, &error),
                 error);
    CHECK(!result.matched);
    truce__match_free(match);
    bson_destroy(&filter);
    bson_destroy(document);
}

/* a string of 16 MB: found, not found, and a pattern that would run forever */
TEST(a_document_of_the_maximum_size_is_tested)
{
    struct match *match = compile("{'a': {'$regex': 'b$'}}");
    struct match *slow = compile("{'a': {'$regex': '(a+)+c'}}");
    size_t size = TRUCE_DOCUMENT_BYTES_MAX - (4 + 1 + 2 + 4 + 1 + 1);
    char *text = bson_malloc(size);
    bson_t document = BSON_INITIALIZER;
    struct match_result result;
    bson_error_t error;

    memset(text, 'a', size);
    text[size - 1] = 'b';
    bson_append_utf8(&document, "a", 1, text, (int)size);
    CHECK_INT(document.len, ==, TRUCE_DOCUMENT_BYTES_MAX);
    CHECK_OK(truce__match_test(match, truce__value_document(&document), NULL, &result, &error),
             error);
    CHECK(result.matched);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__match_test(slow, truce__value_document(&document), NULL, &result, &error),
                 error);
    bson_destroy(&document);
    bson_free(text);
    truce__match_free(match);
    truce__match_free(slow);
}

static bool collect(const struct path *path, struct value value, void *arg)
{
    char *text = arg;

    snprintf(text + strlen(text), 100 - strlen(text), "%s ", path->text);
    return strlen(text) < 10;
}

TEST(equalities_are_those_that_must_hold)
{
    struct match *match = compile("{'a': 1, '$and': [{'b.c': {'$eq': 2, '$gt': 0}}, "
                                  "{'$or': [{'x': 1}, {'y': 1}]}], 'd': {'$in': [4]}, "
                                  "'e': {'$ne': 1}, 'f': {'$gt': 1}, 'g': 1}");
    char text[100] = "";

    truce__match_equalities(match, collect, text);
    CHECK_TEXT("a b.c d g ", text);
    truce__match_free(match);
}
