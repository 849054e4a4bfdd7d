/* Values: the order and the hash over all types, appending, truth, and the text for messages. */
#include "bson/value.h"

#include "base/random.h"
#include "bson/number.h"
#include "tests/support/test.h"

static struct value first_of(const bson_t *document)
{
    struct fields fields = truce__fields(truce__value_document(document));

    return truce__fields_next(&fields) ? fields.value : truce__value_missing();
}

/* one class a line, each line less than the next; equal values separated by '|' */
static const char *const ascending[] = {
    "{'a': {'$minKey': 1}}",
    "{'a': {'$undefined': true}}",
    "{'a': null}",
    "{'a': {'$numberDouble': 'NaN'}}|{'a': {'$numberDecimal': 'NaN'}}",
    "{'a': {'$numberDouble': '-Infinity'}}|{'a': {'$numberDecimal': '-Infinity'}}",
    "{'a': {'$numberDecimal': '-1E+400'}}",
    "{'a': {'$numberDouble': '-1e300'}}",
    "{'a': {'$numberLong': '-9223372036854775808'}}|{'a': {'$numberDouble': "
    "'-9223372036854775808'}}",
    "{'a': {'$numberLong': '-9223372036854775807'}}",
    "{'a': -1}|{'a': {'$numberDouble': '-1.0'}}|{'a': {'$numberDecimal': '-1.00'}}",
    "{'a': {'$numberDecimal': '-1E-6000'}}",
    "{'a': 0}|{'a': {'$numberDouble': '-0.0'}}|{'a': {'$numberDecimal': '-0E+10'}}|{'a': "
    "{'$numberLong': '0'}}",
    "{'a': {'$numberDouble': '4.9e-324'}}",
    "{'a': {'$numberDecimal': '0.1'}}",
    "{'a': {'$numberDecimal': '0.1000000000000000055511151231257827'}}",
    "{'a': {'$numberDouble': '0.1'}}",
    "{'a': {'$numberDecimal': '0.1000000000000000055511151231257828'}}",
    "{'a': {'$numberDouble': '0.5'}}|{'a': {'$numberDecimal': '0.50'}}",
    "{'a': 1}|{'a': {'$numberLong': '1'}}|{'a': {'$numberDouble': '1.0'}}|{'a': "
    "{'$numberDecimal': '1.000'}}",
    "{'a': {'$numberDouble': '1.5'}}",
    "{'a': 2}",
    "{'a': {'$numberLong': '9007199254740992'}}|{'a': {'$numberDouble': '9007199254740992'}}",
    "{'a': {'$numberLong': '9007199254740993'}}|{'a': {'$numberDecimal': '9007199254740993'}}",
    "{'a': {'$numberDouble': '9007199254740994'}}",
    "{'a': {'$numberLong': '9223372036854775807'}}|{'a': {'$numberDecimal': "
    "'9223372036854775807'}}",
    "{'a': {'$numberDouble': '9223372036854775808'}}|{'a': {'$numberDecimal': "
    "'9223372036854775808'}}",
    "{'a': {'$numberDouble': 'Infinity'}}|{'a': {'$numberDecimal': 'Infinity'}}",
    "{'a': ''}|{'a': {'$symbol': ''}}",
    "{'a': '\\u0000'}",
    "{'a': 'a'}",
    "{'a': 'a\\u0000'}",
    "{'a': 'ab'}|{'a': {'$symbol': 'ab'}}",
    "{'a': 'b'}",
    "{'a': '\\u00e9'}",
    "{'a': {}}",
    "{'a': {'a': 1}}|{'a': {'a': {'$numberDouble': '1.0'}}}",
    "{'a': {'a': 1, 'b': 0}}",
    "{'a': {'a': 2}}",
    "{'a': {'b': 0}}",
    "{'a': {'a': 'x'}}",
    "{'a': []}",
    "{'a': [1]}|{'a': [{'$numberLong': '1'}]}",
    "{'a': [1, 2]}",
    "{'a': [2]}",
    "{'a': ['x']}",
    "{'a': {'$binary': {'base64': '', 'subType': '00'}}}",
    "{'a': {'$binary': {'base64': '', 'subType': '05'}}}",
    "{'a': {'$binary': {'base64': 'AAE=', 'subType': '00'}}}",
    "{'a': {'$binary': {'base64': 'AAE=', 'subType': '05'}}}",
    "{'a': {'$oid': '5f0000000000000000000000'}}",
    "{'a': {'$oid': 'ff0000000000000000000000'}}",
    "{'a': false}",
    "{'a': true}",
    "{'a': {'$date': {'$numberLong': '-1'}}}",
    "{'a': {'$date': {'$numberLong': '1'}}}",
    "{'a': {'$timestamp': {'t': 1, 'i': 4294967295}}}",
    "{'a': {'$timestamp': {'t': 4294967295, 'i': 0}}}",
    "{'a': {'$regularExpression': {'pattern': 'a', 'options': ''}}}",
    "{'a': {'$regularExpression': {'pattern': 'a', 'options': 'i'}}}",
    "{'a': {'$regularExpression': {'pattern': 'b', 'options': ''}}}",
    "{'a': {'$dbPointer': {'$ref': 'c', '$id': {'$oid': '5f0000000000000000000000'}}}}",
    "{'a': {'$code': 'x'}}",
    "{'a': {'$code': 'x', '$scope': {'y': 1}}}|{'a': {'$code': 'x', '$scope': {'y': "
    "{'$numberLong': '1'}}}}",
    "{'a': {'$code': 'x', '$scope': {'y': 2}}}",
    "{'a': {'$maxKey': 1}}",
};

struct ranked {
    bson_t *document;
    struct value value;
    size_t rank;
};

static size_t load(struct ranked *values, size_t room)
{
    size_t count = 0;

    for (size_t rank = 0; rank < sizeof ascending / sizeof *ascending; rank++) {
        char line[512], *rest = line, *piece;

        snprintf(line, sizeof line, "%s", ascending[rank]);
        while ((piece = strsep(&rest, "|")) && count < room) {
            values[count].document = test_bson(piece);
            values[count].value = first_of(values[count].document);
            values[count++].rank = rank;
        }
    }
    return count;
}

static int sign(int number)
{
    return (number > 0) - (number < 0);
}

TEST(orders_values_of_all_types_and_hashes_equals_equally)
{
    struct ranked values[128];
    size_t count = load(values, 128);
    char a[200], b[200];

    REQUIRE(count > 80);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            int expected = (values[i].rank > values[j].rank) - (values[i].rank < values[j].rank);
            int order = sign(truce__value_compare(values[i].value, values[j].value));
            bool same = truce__value_hash(values[i].value) == truce__value_hash(values[j].value);

            if (order != expected || (expected == 0) != same)
                test_fail(__FILE__, __LINE__, "%s against %s: order %d, equal hash %d",
                          truce__value_show(values[i].value, a, sizeof a),
                          truce__value_show(values[j].value, b, sizeof b), order, same);
        }
    }
    for (size_t i = 0; i < count; i++)
        bson_destroy(values[i].document);
}

/* Commits that wait for their release, perhaps by a newer version, store these hashes. */
TEST(the_hash_of_a_value_is_the_one_that_stored_commits_have)
{
    static const struct {
        const char *values;
        uint64_t hash;
    } stored[] = {
        {"{'a': {'$minKey': 1}}", 0x6bb7cb89768d256c},
        {"{'a': {'$undefined': true}}", 0xf4e8f03408ca7e91},
        {"{'a': null}", 0x050fb4eab1114eac},
        {"{'a': {'$numberDouble': 'NaN'}}|{'a': {'$numberDecimal': 'NaN'}}", 0x2b76f826e7872c3f},
        {"{'a': 0}|{'a': {'$numberDouble': '-0.0'}}|{'a': {'$numberDecimal': '-0E+10'}}",
         0x6beaa637bc4cd740},
        {"{'a': 7}|{'a': {'$numberLong': '7'}}|{'a': {'$numberDouble': '7.0'}}|{'a': "
         "{'$numberDecimal': '7.00'}}",
         0x492d64cbc6bef1f8},
        {"{'a': {'$numberLong': '-9223372036854775808'}}|{'a': {'$numberDecimal': "
         "'-9223372036854775808'}}",
         0xa7f95ebff3293f74},
        {"{'a': {'$numberDouble': '0.5'}}|{'a': {'$numberDecimal': '0.50'}}", 0x44e36b82369c3386},
        {"{'a': {'$numberDouble': '-Infinity'}}|{'a': {'$numberDecimal': '-Infinity'}}",
         0xbc29985b7decffeb},
        {"{'a': {'$numberDecimal': '-1.10'}}|{'a': {'$numberDecimal': '-1.1'}}",
         0xc04c7f7e8733dc9c},
        {"{'a': {'$numberDecimal': '9.999999999999999999999999999999999E+6144'}}",
         0x880a0d4998225937},
        {"{'a': ''}", 0x2c4fbb2936953dcc},
        {"{'a': 'seven b'}|{'a': {'$symbol': 'seven b'}}", 0x8d0ace333b4a8531},
        {"{'a': 'more than eight bytes \\u00e9'}", 0xff89d04142927a4a},
        {"{'a': {}}", 0x9dc3afbed8e95774},
        {"{'a': {'x': 1, 'name of nine': {'y': 'z'}}}|{'a': {'x': {'$numberDouble': '1.0'}, "
         "'name of nine': {'y': {'$symbol': 'z'}}}}",
         0x8c77aa446c8e2dbb},
        {"{'a': []}", 0x143ff9e0b46dd1d1},
        {"{'a': [1, [null, 'x']]}", 0x657b5b4320557d8c},
        {"{'a': {'$binary': {'base64': 'AAE=', 'subType': '05'}}}", 0xc0a24d4457bbe008},
        {"{'a': {'$oid': '5f0000000000000000000001'}}", 0x0852d39793f53083},
        {"{'a': false}", 0xf72f40713fc0721c},
        {"{'a': true}", 0x5674497dd7e456b2},
        {"{'a': {'$date': {'$numberLong': '-1'}}}", 0x3d49a82e16f38aae},
        {"{'a': {'$timestamp': {'t': 4294967295, 'i': 1}}}", 0x820d39f1aeab26c1},
        {"{'a': {'$regularExpression': {'pattern': 'a.b', 'options': 'im'}}}", 0x82f3d20d55257b57},
        {"{'a': {'$dbPointer': {'$ref': 'c', '$id': {'$oid': '5f0000000000000000000001'}}}}",
         0x4f2942e241cf69f4},
        {"{'a': {'$code': 'f()'}}", 0xce5d547a0da4ac93},
        {"{'a': {'$code': 'f()', '$scope': {'y': 1}}}", 0xdc3f36cea52d6988},
        {"{'a': {'$maxKey': 1}}", 0x9d01cd284b917b24},
    };

    for (size_t i = 0; i < sizeof stored / sizeof *stored; i++) {
        char line[512], *rest = line, *piece;

        snprintf(line, sizeof line, "%s", stored[i].values);
        while ((piece = strsep(&rest, "|"))) {
            bson_t *document = test_bson(piece);
            uint64_t hash = truce__value_hash(first_of(document));

            if (hash != stored[i].hash)
                test_fail(__FILE__, __LINE__, "%s: 0x%016llx", piece, (unsigned long long)hash);
            bson_destroy(document);
        }
    }
}

/* ---- fields by name ------------------------------------------------------------------------- */

/* {<before>: null, <name>: 7} in a piece of memory of its size: the address sanitizer sees the
 * end */
static void check_found(const char *before, const char *name)
{
    bson_t made = BSON_INITIALIZER;
    struct value document, found;
    uint8_t *exact;

    BSON_APPEND_NULL(&made, before);
    BSON_APPEND_INT32(&made, name, 7);
    exact = bson_malloc(made.len);
    memcpy(exact, bson_get_data(&made), made.len);
    document = (struct value){exact, made.len, BSON_TYPE_DOCUMENT};
    found = truce__value_field(document, name, strlen(name));
    CHECK(found.type == BSON_TYPE_INT32 && truce__value_int32(found) == 7);
    CHECK(truce__value_field(document, before, strlen(before)).type == BSON_TYPE_NULL);
    CHECK(!truce__value_field(document, name, strlen(name) - 1).type);
    CHECK(!truce__value_field(document, "nothing", 7).type);
    bson_free(exact);
    bson_destroy(&made);
}

TEST(a_field_is_found_by_its_whole_name_whatever_its_length)
{
    char before[40], name[40];

    for (int i = 1; i < 36; i++) {
        for (int k = 1; k < 20; k++) {
            memset(before, '\x01', (size_t)k);
            before[k] = 0;
            memset(name, 'x', (size_t)i);
            name[i] = 0;
            check_found(before, name);
        }
    }
    check_found("\x80", "\xc3\xa9\x01\x80\x80\x80\x80\x80\x80");
}

TEST(finds_a_field_after_values_of_all_types)
{
    bson_t *document = test_bson(
        "{'01': 1.5, '02': 'text', '03': {'x': 1}, '04': [1, {'y': 2}],"
        " '05': {'$binary': {'base64': 'AAECAw==', 'subType': '00'}}, '06': {'$undefined': true},"
        " '07': {'$oid': '000102030405060708090a0b'}, '08': true,"
        " '09': {'$date': {'$numberLong': '-5'}}, '10': null,"
        " '11': {'$regularExpression': {'pattern': 'a.b', 'options': 'im'}},"
        " '12': {'$dbPointer': {'$ref': 'c', '$id': {'$oid': '000102030405060708090a0b'}}},"
        " '13': {'$code': 'f()'}, '14': {'$symbol': 's'},"
        " '15': {'$code': 'f()', '$scope': {'a': 1}}, '16': 5,"
        " '17': {'$timestamp': {'t': 1, 'i': 2}}, '18': {'$numberLong': '9'},"
        " '19': {'$numberDecimal': '1.5'}, '20': {'$maxKey': 1}, '21': {'$minKey': 1},"
        " 'last': 77}");
    struct value found = truce__value_field(truce__value_document(document), "last", 4);

    CHECK(found.type == BSON_TYPE_INT32 && truce__value_int32(found) == 77);
    CHECK_INT(bson_count_keys(document), ==, 22);
    bson_destroy(document);
}

/* ---- order ---------------------------------------------------------------------------------- */

TEST(missing_equals_undefined_and_is_less_than_null)
{
    bson_t *document = test_bson("{'a': {'$undefined': true}, 'b': null}");
    struct value missing = truce__value_missing();
    struct value undefined = truce__value_field(truce__value_document(document), "a", 1);
    struct value null = truce__value_field(truce__value_document(document), "b", 1);

    CHECK(truce__value_equal(missing, undefined));
    CHECK_INT(truce__value_hash(missing), ==, truce__value_hash(undefined));
    CHECK_INT(truce__value_compare(missing, null), <, 0);
    bson_destroy(document);
}

TEST(array_names_do_not_matter_for_the_order)
{
    uint8_t one[] = {0x0c, 0, 0, 0, 0x10, '0', 0, 7, 0, 0, 0, 0};
    uint8_t other[] = {0x0c, 0, 0, 0, 0x10, 'x', 0, 7, 0, 0, 0, 0};
    struct value a = {one, sizeof one, BSON_TYPE_ARRAY}, b = {other, sizeof other, BSON_TYPE_ARRAY};

    CHECK(truce__value_equal(a, b));
    CHECK_INT(truce__value_hash(a), ==, truce__value_hash(b));
    a.type = b.type = BSON_TYPE_DOCUMENT;
    CHECK(!truce__value_equal(a, b));
}

TEST(appended_values_are_the_same_bytes)
{
    struct ranked values[128];
    size_t count = load(values, 128);
    struct arena arena = ARENA_INIT;

    for (size_t i = 0; i < count; i++) {
        bson_t copy = BSON_INITIALIZER;

        truce__value_append(&copy, "a", 1, truce__value_copy(&arena, values[i].value));
        CHECK_BSON(values[i].document, &copy);
        bson_destroy(&copy);
        bson_destroy(values[i].document);
    }
    truce__arena_release(&arena);
}

/* libbson's own append functions would change these values */
TEST(appending_keeps_regex_options_embedded_nuls_and_empty_scopes)
{
    uint8_t bytes[] = {54,   0,   0, 0, 0x0b, 'r', 0,   'p', 0,    'x', 'q',  'i', 0, 0x0d,
                       'c',  0,   4, 0, 0,    0,   'a', 0,   'b',  0,   0x0f, 's', 0, 15,
                       0,    0,   0, 2, 0,    0,   0,   'z', 0,    5,   0,    0,   0, 0,
                       0x0d, 'd', 0, 1, 0,    0,   0,   0,   0x0a, 'n', 0,    0};
    bson_t document, copy = BSON_INITIALIZER;
    struct fields fields;
    bson_error_t error;

    REQUIRE(bson_init_static(&document, bytes, sizeof bytes));
    CHECK_OK(truce__document_check(&document, "document", &error), error);
    fields = truce__fields(truce__value_document(&document));
    while (truce__fields_next(&fields))
        truce__value_append(&copy, fields.key, fields.key_length, fields.value);
    CHECK_BSON(&document, &copy);
    bson_destroy(&copy);
}

static void check_without(const char *document, const char *wanted)
{
    static const char *const names[] = {"_rev", "b", NULL};
    bson_t *given = test_bson(document), *expected = test_bson(wanted);
    bson_t whole = BSON_INITIALIZER, behind = BSON_INITIALIZER, both = BSON_INITIALIZER;

    truce__document_append_without(given, names, &whole);
    CHECK_BSON(expected, &whole);
    CHECK(bson_validate(&whole, BSON_VALIDATE_UTF8, NULL));
    BSON_APPEND_INT32(&whole, "more", 1); /* it is a document as any other */
    BSON_APPEND_INT32(&behind, "first", 1);
    BSON_APPEND_INT32(&both, "first", 1);
    truce__document_append_without(given, names, &behind);
    bson_concat(&both, expected);
    CHECK_BSON(&both, &behind);
    bson_destroy(&whole);
    bson_destroy(&behind);
    bson_destroy(&both);
    bson_destroy(given);
    bson_destroy(expected);
}

TEST(a_document_is_copied_without_some_of_its_fields)
{
    char long_one[500], longer[520];

    check_without("{}", "{}");
    check_without("{'a': 1}", "{'a': 1}");
    check_without("{'b': 1}", "{}");
    check_without("{'b': 1, 'a': 1}", "{'a': 1}");
    check_without("{'a': 1, '_rev': {'b': 2}}", "{'a': 1}");
    check_without("{'a': {'b': 1}, 'b': 1, '_rev': 2, 'c': [1, 'b'], 'bb': 1, '_re': null}",
                  "{'a': {'b': 1}, 'c': [1, 'b'], 'bb': 1, '_re': null}");
    snprintf(long_one, sizeof long_one, "{'a': '%0300d', 'c': {'d': 1}}", 7);
    snprintf(longer, sizeof longer, "{'b': 1, 'a': '%0300d', '_rev': 3, 'c': {'d': 1}}", 7);
    check_without(longer, long_one);
}

TEST(elements_are_appended_under_counted_names)
{
    bson_t *expected = test_bson("{'0': 'x', '1': true, '2': null}");
    bson_t array = BSON_INITIALIZER;
    struct arena arena = ARENA_INIT;
    uint32_t index = 0;

    truce__value_append_element(&array, &index, truce__value_from_text(&arena, "x", 1));
    truce__value_append_element(&array, &index, truce__value_missing());
    truce__value_append_element(&array, &index, truce__value_from_bool(true));
    truce__value_append_element(&array, &index, truce__value_null());
    CHECK_INT(index, ==, 3);
    CHECK_BSON(expected, &array);
    bson_destroy(&array);
    bson_destroy(expected);
    truce__arena_release(&arena);
}

TEST(only_zero_false_null_undefined_and_missing_are_untrue)
{
    bson_t *no = test_bson("{'a': 0, 'b': {'$numberLong': '0'}, 'c': {'$numberDouble': '-0.0'}, "
                           "'d': {'$numberDecimal': '0.00'}, 'e': false, 'f': null, "
                           "'g': {'$undefined': true}}");
    bson_t *yes = test_bson("{'a': 1, 'b': '', 'c': [], 'd': {}, 'e': true, "
                            "'f': {'$numberDouble': 'NaN'}, 'g': {'$numberDecimal': 'NaN'}, "
                            "'h': {'$minKey': 1}, 'i': {'$numberDouble': '1e-320'}}");
    struct fields fields = truce__fields(truce__value_document(no));

    while (truce__fields_next(&fields))
        CHECK(!truce__value_truth(fields.value));
    CHECK(!truce__value_truth(truce__value_missing()));
    fields = truce__fields(truce__value_document(yes));
    while (truce__fields_next(&fields))
        CHECK(truce__value_truth(fields.value));
    bson_destroy(no);
    bson_destroy(yes);
}

static void check_shown(const char *json, const char *expected)
{
    bson_t *document = test_bson(json);
    char text[400];

    CHECK_TEXT(expected, truce__value_show(truce__value_document(document), text, sizeof text));
    bson_destroy(document);
}

TEST(values_are_shown_as_relaxed_extended_json)
{
    check_shown("{'a': 1, 'b': {'$numberLong': '2'}, 'c': 1.5, 'd': 3.0, 'e': 'x\\\"y\\n'}",
                "{\"a\": 1, \"b\": 2, \"c\": 1.5, \"d\": 3.0, \"e\": \"x\\\"y\\u000a\"}");
    check_shown("{'a': 0.1, 'b': 1e100, 'c': {'$numberDouble': 'NaN'}}",
                "{\"a\": 0.1, \"b\": 1e+100, \"c\": {\"$numberDouble\": \"NaN\"}}");
    check_shown("{'a': [true, null, {'$oid': '5f0000000000000000000001'}]}",
                "{\"a\": [true, null, {\"$oid\": \"5f0000000000000000000001\"}]}");
    check_shown("{'a': {'$date': {'$numberLong': '-1'}}, 'b': {'$date': '2024-02-29T12:00:00Z'}}",
                "{\"a\": {\"$date\": \"1969-12-31T23:59:59.999Z\"}, "
                "\"b\": {\"$date\": \"2024-02-29T12:00:00.000Z\"}}");
    check_shown("{'a': {'$regularExpression': {'pattern': '^x', 'options': 'i'}}}",
                "{\"a\": /^x/i}");
    check_shown("{'a': {'$numberDecimal': '1.50'}, 'b': {'$minKey': 1}}",
                "{\"a\": {\"$numberDecimal\": \"1.50\"}, \"b\": minKey}");
}

TEST(a_shown_value_is_cut_between_characters)
{
    bson_t *document = test_bson("{'a': '\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9\\u00e9'}");
    char text[32];

    for (size_t size = 8; size < sizeof text; size++) {
        truce__value_show(first_of(document), text, size);
        CHECK_INT(strlen(text), <, size);
        CHECK(bson_utf8_validate(text, strlen(text), false));
    }
    CHECK_TEXT("\"\303\251\303\251...", truce__value_show(first_of(document), text, 10));
    bson_destroy(document);
}
