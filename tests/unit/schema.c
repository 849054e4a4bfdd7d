/* JSON Schemas: corners that the recorded answers of a MongoDB server do not reach. */
#include "query/schema/schema.h"

#include "base/clock.h"
#include "tests/support/test.h"

static bool is_valid(const char *schema_json, const char *json)
{
    bson_t *source = test_bson(schema_json), *document = test_bson(json);
    struct schema *schema = NULL;
    bson_error_t error;
    bool valid = false;

    CHECK_OK(truce__schema_new(truce__value_document(source), &schema, &error), error);
    CHECK_OK(truce__schema_test(schema, truce__value_document(document), NULL, &valid, &error),
             error);
    truce__schema_free(schema);
    bson_destroy(source);
    bson_destroy(document);
    return valid;
}

TEST(lengths_are_counted_in_characters)
{
    CHECK(is_valid("{'properties': {'a': {'maxLength': 2}}}", "{'a': '\\u00e9\\u20ac'}"));
    CHECK(!is_valid("{'properties': {'a': {'minLength': 3}}}", "{'a': '\\u00e9\\u20ac'}"));
    CHECK(is_valid("{'properties': {'a': {'minLength': 1, 'maxLength': 1}}}",
                   "{'a': '\\ud83d\\ude00'}"));
}

TEST(additional_fields_are_those_that_nothing_names)
{
    const char *schema =
        "{'properties': {'a': {}}, 'patternProperties': {'^x': {'type': 'number'}},"
        " 'additionalProperties': {'type': 'string'}}";

    CHECK(is_valid(schema, "{'a': 1, 'x1': 1, 'b': 's'}"));
    CHECK(!is_valid(schema, "{'a': 1, 'x1': 's'}"));
    CHECK(!is_valid(schema, "{'b': 1}"));
    CHECK(is_valid("{'properties': {'a': {}}, 'additionalProperties': false}", "{'a': 1}"));
    CHECK(!is_valid("{'properties': {'a': {}}, 'additionalProperties': false}", "{'b': 1}"));
    CHECK(is_valid("{'additionalProperties': true}", "{'b': 1}"));
}

TEST(exactly_one_schema_of_one_of_holds)
{
    const char *schema = "{'properties': {'a': {'oneOf': [{'minimum': 5}, {'multipleOf': 2}]}}}";

    CHECK(is_valid(schema, "{'a': 7}"));
    CHECK(is_valid(schema, "{'a': 2}"));
    CHECK(!is_valid(schema, "{'a': 6}"));
    CHECK(!is_valid(schema, "{'a': 3}"));
}

TEST(compares_values_without_the_order_of_fields)
{
    CHECK(is_valid("{'properties': {'a': {'enum': [{'x': 1, 'y': [{'p': 1, 'q': 2}]}]}}}",
                   "{'a': {'y': [{'q': 2, 'p': 1.0}], 'x': 1}}"));
    CHECK(!is_valid("{'properties': {'a': {'enum': [[1, 2]]}}}", "{'a': [2, 1]}"));
    CHECK(!is_valid("{'properties': {'a': {'uniqueItems': true}}}",
                    "{'a': [{'x': 1, 'y': 2}, 5, {'y': 2, 'x': {'$numberLong': '1'}}]}"));
    CHECK(is_valid("{'properties': {'a': {'uniqueItems': true}}}",
                   "{'a': [{'x': 1, 'y': 2}, {'x': 2, 'y': 1}, {'x': 1}, [1], [[1]], 1]}"));
    CHECK(is_valid("{'properties': {'a': {'uniqueItems': false}}}", "{'a': [1, 1]}"));
}

TEST(checks_items_after_the_positional_ones_by_additional_items)
{
    const char *schema = "{'properties': {'a': {'items': [{'type': 'number'}, {'type': 'string'}], "
                         "'additionalItems': {'type': 'boolean'}}}}";

    CHECK(is_valid(schema, "{'a': []}"));
    CHECK(is_valid(schema, "{'a': [1, 's', true, false]}"));
    CHECK(!is_valid(schema, "{'a': ['s', 1]}"));
    CHECK(!is_valid(schema, "{'a': [1, 's', 5]}"));
    CHECK(
        !is_valid("{'properties': {'a': {'items': [], 'additionalItems': false}}}", "{'a': [1]}"));
    CHECK(is_valid("{'properties': {'a': {'items': {}, 'additionalItems': false}}}", "{'a': [1]}"));
}

TEST(dependencies_are_names_or_schemas)
{
    CHECK(!is_valid("{'dependencies': {'a': ['b', 'c']}}", "{'a': 1, 'b': 1}"));
    CHECK(is_valid("{'dependencies': {'a': ['b', 'c']}}", "{'a': 1, 'b': 1, 'c': 1}"));
    CHECK(is_valid("{'dependencies': {'a': ['b', 'c']}}", "{'x': 1}"));
    CHECK(!is_valid("{'dependencies': {'a': {'maxProperties': 1}}}", "{'a': 1, 'b': 1}"));
}

TEST(numbers_compare_exactly_and_nan_is_within_no_limits)
{
    CHECK(!is_valid("{'properties': {'a': {'minimum': {'$numberLong': '9007199254740993'}}}}",
                    "{'a': {'$numberDouble': '9007199254740992'}}"));
    CHECK(is_valid("{'properties': {'a': {'minimum': 5}}}", "{'a': 5.0}"));
    CHECK(
        !is_valid("{'properties': {'a': {'minimum': 5, 'exclusiveMinimum': true}}}", "{'a': 5.0}"));
    CHECK(!is_valid("{'properties': {'a': {'maximum': 5, 'exclusiveMaximum': true}}}", "{'a': 5}"));
    CHECK(!is_valid("{'properties': {'a': {'minimum': 5}}}", "{'a': {'$numberDouble': 'NaN'}}"));
    CHECK(is_valid("{'properties': {'a': {'multipleOf': 0.1}}}", "{'a': 0.3}"));
    CHECK(is_valid("{'properties': {'a': {'minimum': 5}}}", "{'a': 'text'}"));
}

TEST(a_large_array_of_unlike_items_is_quick)
{
    bson_t *source = test_bson("{'properties': {'a': {'uniqueItems': true}}}");
    bson_t document = BSON_INITIALIZER, array;
    struct schema *schema;
    bson_error_t error;
    int64_t start = truce__clock_monotonic_ns();
    char key[16];
    bool valid;

    bson_append_array_begin(&document, "a", 1, &array);
    for (int i = 0; i < 100000; i++)
        bson_append_int32(&array, key, snprintf(key, sizeof key, "%d", i), i);
    bson_append_array_end(&document, &array);
    CHECK_OK(truce__schema_new(truce__value_document(source), &schema, &error), error);
    CHECK_OK(truce__schema_test(schema, truce__value_document(&document), NULL, &valid, &error),
             error);
    CHECK(valid);
    CHECK_INT((truce__clock_monotonic_ns() - start) / 1000000, <, 20000);
    truce__schema_free(schema);
    bson_destroy(source);
    bson_destroy(&document);
}

TEST(a_pattern_that_runs_into_its_limit_is_an_error)
{
    bson_t *source = test_bson("{'properties': {'a': {'pattern': '(a+)+$'}}}");
    bson_t document = BSON_INITIALIZER;
    struct schema *schema;
    bson_error_t error;
    char text[64];
    bool valid;

    memset(text, 'a', sizeof text);
    text[63] = '!';
    bson_append_utf8(&document, "a", 1, text, sizeof text);
    CHECK_OK(truce__schema_new(truce__value_document(source), &schema, &error), error);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__schema_test(schema, truce__value_document(&document), NULL, &valid, &error),
                 error);
    CHECK(!valid);
    truce__schema_free(schema);
    bson_destroy(source);
    bson_destroy(&document);
}
