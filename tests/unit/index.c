#include "query/index/index.h"

#include "base/limits.h"
#include "tests/support/test.h"

static void check_refused(const char *json, uint32_t code)
{
    bson_t *specification = test_bson(json);
    struct index_spec spec;
    bson_error_t error = {0};
    truce_status status = truce__index_spec_parse(specification, &spec, &error);

    if (status == TRUCE_OK || error.code != code)
        test_fail(__FILE__, __LINE__, "%s: %d, code %u instead of %u", json, status, error.code,
                  code);
    truce__index_spec_release(&spec);
    bson_destroy(specification);
}

static void parse(const char *json, struct index_spec *spec)
{
    bson_t *specification = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce__index_spec_parse(specification, spec, &error), error);
    bson_destroy(specification);
}

static void check_name(const char *json, const char *name)
{
    struct index_spec spec;

    parse(json, &spec);
    CHECK_TEXT(name, spec.name);
    truce__index_spec_release(&spec);
}

/* `expected` is an array of the keys, each an array of the fields' values (for a wildcard: the path
 * and the value); order does not matter. */
static void check_keys(const char *specification, const char *json, const char *expected)
{
    bson_t *document = test_bson(json), *wanted = test_bson(expected);
    struct value list = truce__value_field(truce__value_document(wanted), "v", 1);
    struct fields each = truce__fields(list);
    struct field_keys keys = {0};
    struct index_spec spec;
    struct buffer key = {0};
    bson_error_t error;
    uint32_t count = 0;

    parse(specification, &spec);
    CHECK_OK(truce__index_keys(&spec, truce__value_document(document), &keys, &error), error);
    for (; truce__fields_next(&each); count++) {
        struct fields values = truce__fields(each.value);
        bool found = false;
        uint32_t i = 0;

        key.size = 0;
        for (; truce__fields_next(&values); i++) {
            uint32_t length;

            if (spec.fields[0].wildcard && i == 0) {
                const char *path = truce__value_text(values.value, &length);
                truce__key_append_path(&key, path, length);
            } else {
                truce__key_append(&key, values.value, spec.fields[i % spec.count].descending);
            }
        }
        for (uint32_t k = 0; k < keys.count; k++) {
            uint32_t start = k ? keys.ends[k - 1] : 0;
            found = found || (keys.ends[k] - start == key.size &&
                              !memcmp(keys.bytes.bytes + start, key.bytes, key.size));
        }
        if (!found)
            test_fail(__FILE__, __LINE__, "%s of %s has not key number %u", specification, json,
                      count);
    }
    if (keys.count != count)
        test_fail(__FILE__, __LINE__, "%s of %s has %u keys instead of %u", specification, json,
                  keys.count, count);
    truce__buffer_release(&key);
    truce__field_keys_release(&keys);
    truce__index_spec_release(&spec);
    bson_destroy(document);
    bson_destroy(wanted);
}

static void check_keys_refused(const char *specification, const char *json, uint32_t code)
{
    bson_t *document = test_bson(json);
    struct field_keys keys = {0};
    struct index_spec spec;
    bson_error_t error = {0};

    parse(specification, &spec);
    CHECK(truce__index_keys(&spec, truce__value_document(document), &keys, &error) != TRUCE_OK);
    CHECK_INT(error.code, ==, code);
    truce__field_keys_release(&keys);
    truce__index_spec_release(&spec);
    bson_destroy(document);
}

TEST(names_are_made_of_fields_and_directions)
{
    check_name("{'key': {'a': 1, 'b.c': -1}}", "a_1_b.c_-1");
    check_name("{'key': {'a': 1.0}}", "a_1");
    check_name("{'key': {'a': 1.5}}", "a_1.5");
    check_name("{'key': {'$**': 1}}", "$**_1");
    check_name("{'key': {'a': 1}, 'name': 'mine'}", "mine");
    check_name("{'key': {'_id': 1}, 'name': 'other'}", "_id_");
}

TEST(kinds_of_indexes_that_this_store_has_not_are_refused)
{
    check_refused("{'key': {'a': 'text'}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': '2dsphere'}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 'hashed'}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 1}, 'collation': {'locale': 'de'}}", CODE_COMMAND_NOT_SUPPORTED);
    check_refused("{'key': {'$**': 1}, 'wildcardProjection': {'a': 1}}",
                  CODE_COMMAND_NOT_SUPPORTED);
    check_refused("{'key': {'a': 1}, 'nope': 1}", 197);
    check_refused("{'name': 'a'}", CODE_FAILED_TO_PARSE);
}

TEST(keys_options_and_their_combinations_are_checked)
{
    check_refused("{'key': {'a..b': 1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a.': 1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a.$b': 1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'': 1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'$**': -1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'$**': 1, 'a': 1}}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'$**': 1}, 'unique': true}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'$**': 1}, 'sparse': true}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'$**': 1}, 'expireAfterSeconds': 1}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 1, 'b': 1}, 'expireAfterSeconds': 1}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 1}, 'expireAfterSeconds': 1e12}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 1}, 'expireAfterSeconds': 'x'}", CODE_TYPE_MISMATCH);
    check_refused("{'key': {'a': 1}, 'unique': 'x'}", CODE_TYPE_MISMATCH);
    check_refused("{'key': {'a': 1}, 'name': 5}", CODE_TYPE_MISMATCH);
    check_refused("{'key': {'a': 1}, 'name': '_id_'}", CODE_BAD_VALUE);
    check_refused("{'key': {'a': 1}, 'v': 3}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'_id': 1}, 'sparse': true}", 197);
    check_refused("{'key': {'_id': 1}, 'unique': true}", 197);
    check_refused("{'key': {'_id': 1}, 'background': true}", 197);
    check_refused("{'key': {'_id': 1}, 'hidden': false}", 197);
    check_refused("{'key': {'_id': 1}, 'expireAfterSeconds': 1}", 197);
    check_refused("{'key': {'_id': 1}, 'v': 9}", CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'_id': -1}}", CODE_BAD_VALUE);
    check_refused("{'key': {'_id': 1.5}}", CODE_BAD_VALUE);
    check_refused("{'key': {'_id': 2}, 'name': '_id_'}", CODE_BAD_VALUE);
    check_name("{'key': {'_id': 2}}", "_id_2");
    check_refused("{'key': {'a': 1}, 'partialFilterExpression': {'a': {'$regex': 'x'}}}",
                  CODE_CANNOT_CREATE_INDEX);
    check_refused("{'key': {'a': 1}, 'partialFilterExpression': {'$or': [{'a': {'$size': 1}}]}}",
                  CODE_CANNOT_CREATE_INDEX);
}

TEST(an_index_has_at_most_32_fields_and_a_name_of_limited_length)
{
    bson_t specification = BSON_INITIALIZER, key;
    struct index_spec spec;
    bson_error_t error = {0};
    char name[TRUCE_INDEX_NAME_MAX + 2];

    BSON_APPEND_DOCUMENT_BEGIN(&specification, "key", &key);
    for (int i = 0; i < 33; i++) {
        char field[20];
        snprintf(field, sizeof field, "f%d", i);
        BSON_APPEND_INT32(&key, field, 1);
    }
    bson_append_document_end(&specification, &key);
    CHECK(truce__index_spec_parse(&specification, &spec, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, 13103);
    bson_destroy(&specification);

    memset(name, 'n', sizeof name);
    name[TRUCE_INDEX_NAME_MAX + 1] = '\0';
    bson_init(&specification);
    BSON_APPEND_DOCUMENT_BEGIN(&specification, "key", &key);
    BSON_APPEND_INT32(&key, "a", 1);
    bson_append_document_end(&specification, &key);
    BSON_APPEND_UTF8(&specification, "name", name);
    CHECK(truce__index_spec_parse(&specification, &spec, &error) == TRUCE_INVALID);
    CHECK_INT(error.code, ==, CODE_CANNOT_CREATE_INDEX);
    bson_destroy(&specification);
}

TEST(gives_an_array_a_key_per_element_and_an_empty_one_undefined)
{
    check_keys("{'key': {'a': 1}}", "{'a': [1, 2, 1.0, [3]]}", "{'v': [[1], [2], [[3]]]}");
    check_keys("{'key': {'a': -1}}", "{'a': []}", "{'v': [[{'$undefined': true}]]}");
    check_keys("{'key': {'a': 1}}", "{'b': 1}", "{'v': [[null]]}");
    check_keys("{'key': {'a': 1}}", "{'a': null}", "{'v': [[null]]}");
    check_keys("{'key': {'a.b': 1}}", "{'a': [{'b': 1}, {'b': [2, 3]}, {}, 7]}",
               "{'v': [[1], [2], [3], [null]]}");
    check_keys("{'key': {'a.b': 1}}", "{'a': []}", "{'v': [[null]]}");
    check_keys("{'key': {'a.b': 1}}", "{'a': [[{'b': 1}]]}", "{'v': [[null]]}");
}

TEST(several_fields_may_go_through_one_array_but_not_through_two)
{
    check_keys("{'key': {'a.b': 1, 'a.c': -1}}", "{'a': [{'b': 1, 'c': 2}, {'b': 3}]}",
               "{'v': [[1, 2], [3, null]]}");
    check_keys("{'key': {'a': 1, 'a.b': 1}}", "{'a': [{'b': 1}, 2]}",
               "{'v': [[{'b': 1}, 1], [2, null]]}");
    check_keys_refused("{'key': {'a': 1, 'b': 1}}", "{'a': [1], 'b': [2]}",
                       CODE_CANNOT_INDEX_PARALLEL_ARRAYS);
    check_keys_refused("{'key': {'a.b': 1, 'a.c': 1}}", "{'a': [{'b': [1], 'c': [2]}]}",
                       CODE_CANNOT_INDEX_PARALLEL_ARRAYS);
}

TEST(numbers_in_paths_name_elements_of_arrays)
{
    check_keys("{'key': {'a.1': 1}}", "{'a': [5, 6]}", "{'v': [[6]]}");
    check_keys("{'key': {'a.1': 1}}", "{'a': {'1': 7}}", "{'v': [[7]]}");
    check_keys("{'key': {'a.1': 1}}", "{'a': [{'1': 7}]}", "{'v': [[7]]}");
    check_keys("{'key': {'a.0.b': 1}}", "{'a': [{'b': 1}, {'b': 2}]}", "{'v': [[1]]}");
    check_keys("{'key': {'a.0': 1}}", "{'a': [[1, 2], 3]}", "{'v': [[[1, 2]]]}");
    check_keys_refused("{'key': {'a.0': 1}}", "{'a': [{'0': 1}]}", 16746);
}

TEST(a_sparse_index_holds_documents_that_have_one_of_its_fields)
{
    check_keys("{'key': {'a': 1, 'b': 1}, 'sparse': true}", "{'c': 1}", "{'v': []}");
    check_keys("{'key': {'a': 1, 'b': 1}, 'sparse': true}", "{'b': 1}", "{'v': [[null, 1]]}");
    check_keys("{'key': {'a': 1}, 'sparse': true}", "{'a': null}", "{'v': [[null]]}");
    check_keys("{'key': {'a.b': 1}, 'sparse': true}", "{'a': [{'c': 1}, {'b': 2}]}",
               "{'v': [[2]]}");
}

TEST(a_partial_index_holds_documents_that_match)
{
    static const char *const spec =
        "{'key': {'a': 1}, 'partialFilterExpression': {'$or': [{'s': 'on'}, {'n': {'$in': [1, 2]}}]}}";

    check_keys(spec, "{'a': 1, 's': 'on'}", "{'v': [[1]]}");
    check_keys(spec, "{'a': 1, 'n': 2}", "{'v': [[1]]}");
    check_keys(spec, "{'a': 1, 's': 'off'}", "{'v': []}");
}

TEST(a_wildcard_index_has_each_leaf_with_its_path)
{
    check_keys(
        "{'key': {'$**': 1}}",
        "{'_id': 1, 'a': {'b': [1, {'c': 2}, [3]]}, 'd': {}, 'e': [], 'f.g': 1}",
        "{'v': [['a.b', 1], ['a.b.c', 2], ['a.b', [3]], ['d', {}], ['e', {'$undefined': true}]]}");
    check_keys("{'key': {'a.$**': 1}}", "{'a': {'x': 1, '_id': 2}, 'b': 2}",
               "{'v': [['a.x', 1], ['a._id', 2]]}");
    check_keys("{'key': {'a.$**': 1}}", "{'a': 5}", "{'v': [['a', 5]]}");
    check_keys("{'key': {'a.b.$**': 1}}", "{'a': [{'b': {'c': 1}}, {'b': 2}, {'d': 3}]}",
               "{'v': [['a.b.c', 1], ['a.b', 2]]}");
    check_keys("{'key': {'a.$**': 1}}", "{'b': 1}", "{'v': []}");
}

TEST(limits_the_keys_of_a_document_in_an_index_not_in_a_sort)
{
    bson_t document = BSON_INITIALIZER, list;
    struct field_keys keys = {0}, unbounded = {0};
    struct index_spec spec;
    bson_error_t error;

    BSON_APPEND_ARRAY_BEGIN(&document, "a", &list);
    for (uint32_t i = 0; i <= TRUCE_INDEX_KEYS_MAX; i++) {
        char digits[16];
        const char *key;
        bson_uint32_to_string(i, &key, digits, sizeof digits);
        BSON_APPEND_INT32(&list, key, (int32_t)i);
    }
    bson_append_array_end(&document, &list);
    parse("{'key': {'a': 1}}", &spec);
    CHECK_STATUS(TRUCE_LIMIT,
                 truce__index_keys(&spec, truce__value_document(&document), &keys, &error), error);
    CHECK_OK(truce__field_keys(spec.fields, 1, false, truce__value_document(&document), &unbounded,
                               &error),
             error);
    CHECK_INT(unbounded.count, ==, TRUCE_INDEX_KEYS_MAX + 1);
    CHECK(unbounded.multikey && unbounded.multikey_fields == 1);
    truce__field_keys_release(&keys);
    truce__field_keys_release(&unbounded);
    truce__index_spec_release(&spec);
    bson_destroy(&document);
}

TEST(sorts_keys_and_marks_fields_that_went_through_arrays)
{
    bson_t *document = test_bson("{'a': 1, 'b': [3, 1, 2, 1]}");
    struct field_keys keys = {0};
    struct index_spec spec;
    bson_error_t error;

    parse("{'key': {'a': 1, 'b': -1}}", &spec);
    CHECK_OK(truce__index_keys(&spec, truce__value_document(document), &keys, &error), error);
    CHECK_INT(keys.count, ==, 3);
    CHECK(keys.multikey && keys.multikey_fields == 2);
    for (uint32_t i = 1; i < keys.count; i++) {
        uint32_t before = i > 1 ? keys.ends[i - 2] : 0;
        CHECK(memcmp(keys.bytes.bytes + before, keys.bytes.bytes + keys.ends[i - 1],
                     keys.ends[i] - keys.ends[i - 1]) < 0);
    }
    truce__field_keys_release(&keys);
    truce__index_spec_release(&spec);
    bson_destroy(document);
}
