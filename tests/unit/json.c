/* Extended JSON in and out: every type, every wrapper, and the error messages. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/random.h"
#include "bson/json.h"
#include "tests/support/test.h"
#include "truce/json.h"

/* reads `in`, writes it canonically and relaxed */
static void check_forms(int line, const char *in, const char *canonical, const char *relaxed)
{
    struct json_reader reader = {0};
    struct buffer out = {0};
    bson_error_t error = {0};
    bson_t document;
    int status = truce__json_read(&reader, in, strlen(in), &document, NULL, &error);

    if (!test_check_status(TRUCE_OK, status, &error, in, __FILE__, line))
        goto out;
    if (!bson_validate(&document, BSON_VALIDATE_UTF8 | BSON_VALIDATE_UTF8_ALLOW_NULL, NULL))
        test_fail(__FILE__, line, "not valid BSON: %s", in);
    truce__json_write(&out, &document, false, JSON_CANONICAL);
    truce__buffer_append_byte(&out, 0);
    test_check_text(canonical, (const char *)out.bytes, __FILE__, line);
    out.size = 0;
    truce__json_write(&out, &document, false, JSON_RELAXED);
    truce__buffer_append_byte(&out, 0);
    test_check_text(relaxed, (const char *)out.bytes, __FILE__, line);
out:
    truce__json_reader_release(&reader);
    truce__buffer_release(&out);
}
#define FORMS(in, canonical, relaxed) check_forms(__LINE__, in, canonical, relaxed)
#define SAME(in)                      check_forms(__LINE__, in, in, in)

static void check_refused(int line, const char *in, size_t size, const char *sentence)
{
    struct json_reader reader = {0};
    bson_error_t error = {0};
    bson_t document;
    int status = truce__json_read(&reader, in, size, &document, NULL, &error);

    if (!status)
        test_fail(__FILE__, line, "accepted: %s", in);
    else
        test_check_text(sentence, error.message, __FILE__, line);
    if (!bson_empty(&document))
        test_fail(__FILE__, line, "a refused document is not empty: %s", in);
    truce__json_reader_release(&reader);
}
#define REFUSED(in, sentence) check_refused(__LINE__, in, strlen(in), sentence)

TEST(numbers_take_the_smallest_type_that_holds_them)
{
    FORMS("{\"a\":1}", "{\"a\": {\"$numberInt\": \"1\"}}", "{\"a\": 1}");
    FORMS("{\"a\":-2147483648}", "{\"a\": {\"$numberInt\": \"-2147483648\"}}",
          "{\"a\": -2147483648}");
    FORMS("{\"a\":2147483648}", "{\"a\": {\"$numberLong\": \"2147483648\"}}",
          "{\"a\": 2147483648}");
    FORMS("{\"a\":-9223372036854775808}", "{\"a\": {\"$numberLong\": \"-9223372036854775808\"}}",
          "{\"a\": -9223372036854775808}");
    FORMS("{\"a\":9223372036854775808}", "{\"a\": {\"$numberDouble\": \"9.223372036854776e+18\"}}",
          "{\"a\": 9.223372036854776e+18}");
    FORMS("{\"a\":0.1}", "{\"a\": {\"$numberDouble\": \"0.1\"}}", "{\"a\": 0.1}");
    FORMS("{\"a\":1.0}", "{\"a\": {\"$numberDouble\": \"1.0\"}}", "{\"a\": 1.0}");
    FORMS("{\"a\":-0.0}", "{\"a\": {\"$numberDouble\": \"-0.0\"}}", "{\"a\": -0.0}");
    FORMS("{\"a\":1e2}", "{\"a\": {\"$numberDouble\": \"100.0\"}}", "{\"a\": 100.0}");
    FORMS("{\"a\":5e-324}", "{\"a\": {\"$numberDouble\": \"4.94065645841247e-324\"}}",
          "{\"a\": 4.94065645841247e-324}");
}

TEST(a_byte_order_mark_is_named)
{
    REFUSED("\xef\xbb\xbf{}",
            "column 1: the text begins with a byte order mark; save it as UTF-8 without one");
}

TEST(numbers_that_json_does_not_have_are_refused)
{
    REFUSED("{\"a\":01}", "column 6, field a: this is not a JSON number");
    REFUSED("{\"a\":-}", "column 6, field a: this is not a JSON number");
    REFUSED("{\"a\":1.}", "column 6, field a: this is not a JSON number");
    REFUSED("{\"a\":1e}", "column 6, field a: this is not a JSON number");
    REFUSED("{\"a\":1e400}", "column 6, field a: the number is too large for a double");
    REFUSED(
        "{\"a\":+1}",
        "column 6, field a: a value is expected: \"text\", a number, {, [, true, false or null");
}

TEST(every_wrapper_is_read_and_written)
{
    SAME("{\"a\": {\"$oid\": \"0123456789abcdef01234567\"}}");
    SAME("{\"a\": {\"$timestamp\": {\"t\": 4294967295, \"i\": 2}}}");
    SAME("{\"a\": {\"$binary\": {\"base64\": \"aGVsbG8=\", \"subType\": \"80\"}}}");
    SAME("{\"a\": {\"$binary\": {\"base64\": \"\", \"subType\": \"00\"}}}");
    SAME("{\"a\": {\"$binary\": {\"base64\": \"AAEC\", \"subType\": \"02\"}}}");
    SAME("{\"a\": {\"$regularExpression\": {\"pattern\": \"^x\", \"options\": \"im\"}}}");
    SAME("{\"a\": {\"$regularExpression\": {\"pattern\": \"^x\", \"options\": \"\xd3\x92i\"}}}");
    SAME("{\"a\": {\"$code\": \"x\"}}");
    SAME("{\"a\": {\"$symbol\": \"x\"}}");
    SAME("{\"a\": {\"$dbPointer\": {\"$ref\": \"c\", \"$id\": {\"$oid\": "
         "\"0123456789abcdef01234567\"}}}}");
    SAME("{\"a\": {\"$undefined\": true}}");
    SAME("{\"a\": {\"$minKey\": 1}, \"b\": {\"$maxKey\": 1}}");
    SAME("{\"a\": {\"$numberDecimal\": \"1.10\"}}");
    SAME("{\"a\": {\"$numberDouble\": \"NaN\"}, \"b\": {\"$numberDouble\": \"-Infinity\"}}");
    FORMS("{\"a\":{\"$code\":\"x\",\"$scope\":{\"y\":1}}}",
          "{\"a\": {\"$code\": \"x\", \"$scope\": {\"y\": {\"$numberInt\": \"1\"}}}}",
          "{\"a\": {\"$code\": \"x\", \"$scope\": {\"y\": 1}}}");
    FORMS(
        "{\"a\":{\"$uuid\":\"00112233-4455-6677-8899-aabbccddeeff\"}}",
        "{\"a\": {\"$binary\": {\"base64\": \"ABEiM0RVZneImaq7zN3u/w==\", \"subType\": \"04\"}}}",
        "{\"a\": {\"$binary\": {\"base64\": \"ABEiM0RVZneImaq7zN3u/w==\", \"subType\": \"04\"}}}");
    FORMS("{\"a\":{\"$type\":\"05\",\"$binary\":\"AA==\"}}",
          "{\"a\": {\"$binary\": {\"base64\": \"AA==\", \"subType\": \"05\"}}}",
          "{\"a\": {\"$binary\": {\"base64\": \"AA==\", \"subType\": \"05\"}}}");
}

TEST(dates_are_read_in_every_form_and_written_by_year)
{
    FORMS("{\"a\":{\"$date\":\"2024-02-29T12:30:00Z\"}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"1709209800000\"}}}",
          "{\"a\": {\"$date\": \"2024-02-29T12:30:00Z\"}}");
    FORMS("{\"a\":{\"$date\":\"2024-02-29T14:30:00.25+02:00\"}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"1709209800250\"}}}",
          "{\"a\": {\"$date\": \"2024-02-29T12:30:00.250Z\"}}");
    FORMS("{\"a\":{\"$date\":{\"$numberLong\":\"-1\"}}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"-1\"}}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"-1\"}}}");
    FORMS("{\"a\":{\"$date\":\"9999-12-31T23:59:59.999Z\"}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"253402300799999\"}}}",
          "{\"a\": {\"$date\": \"9999-12-31T23:59:59.999Z\"}}");
    FORMS("{\"a\":{\"$date\":253402300800000}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"253402300800000\"}}}",
          "{\"a\": {\"$date\": {\"$numberLong\": \"253402300800000\"}}}");
    REFUSED("{\"a\":{\"$date\":\"2023-02-29T12:30:00Z\"}}",
            "column 6, field a: $date needs a date such as 2024-02-29T12:30:00Z");
    REFUSED("{\"a\":{\"$date\":\"2024-02-29T12:30:00\"}}",
            "column 6, field a: $date needs a date such as 2024-02-29T12:30:00Z");
}

TEST(keeps_documents_that_look_like_wrappers)
{
    SAME("{\"a\": {\"$type\": \"string\"}}");
    SAME("{\"a\": {\"$regex\": \"x\", \"$options\": \"i\"}}");
    SAME("{\"a\": {\"$in\": []}, \"$or\": []}");
    SAME("{\"a\": {\"$oid\": \"x\", \"b\": \"y\"}}");
    SAME("{\"$oid\": \"x\"}");
    FORMS("{\"a\":{\"$type\":2}}", "{\"a\": {\"$type\": {\"$numberInt\": \"2\"}}}",
          "{\"a\": {\"$type\": 2}}");
}

TEST(wrappers_with_a_wrong_content_are_refused)
{
    REFUSED("{\"a\":{\"$oid\":\"x\"}}", "column 6, field a: $oid needs 24 hexadecimal digits");
    REFUSED("{\"a\":{\"$numberInt\":\"2147483648\"}}",
            "column 6, field a: $numberInt is out of range");
    REFUSED(
        "{\"a\":{\"$numberLong\":\" 5\"}}",
        "column 6, field a: $numberLong needs an integer from -9223372036854775808 to 9223372036854775807 in quotes");
    REFUSED("{\"a\":{\"$numberDouble\":\"1.5x\"}}",
            "column 6, field a: $numberDouble needs a number in quotes");
    REFUSED("{\"a\":{\"$binary\":{\"base64\":\"a\",\"subType\":\"00\"}}}",
            "column 6, field a: $binary needs {\"base64\": \"...\", \"subType\": \"00\"}, "
            "and no other field");
}

/* A field too many, or one twice, would be lost. */
TEST(a_wrapper_with_another_field_in_it_is_refused)
{
    static const char *const wrong[] = {
        "{\"a\":{\"$regularExpression\":{\"pattern\":\"a\",\"options\":\"\",\"x\":true}}}",
        "{\"a\":{\"$regularExpression\":{\"x\":1,\"pattern\":\"a\",\"options\":\"\"}}}",
        "{\"a\":{\"$regularExpression\":{\"pattern\":\"a\",\"pattern\":\"b\",\"options\":\"\"}}}",
        "{\"a\":{\"$binary\":{\"base64\":\"AAAA\",\"subType\":\"00\",\"x\":null}}}",
        "{\"a\":{\"$binary\":{\"base64\":\"AAAA\",\"subType\":\"00\",\"subType\":\"01\"}}}",
        "{\"a\":{\"$timestamp\":{\"t\":1,\"i\":2,\"x\":3}}}",
        "{\"a\":{\"$timestamp\":{\"t\":1,\"i\":2,\"i\":3}}}",
        "{\"a\":{\"$dbPointer\":{\"$ref\":\"b\",\"$id\":{\"$oid\":\"56e1fc72e0c917e9c4714161\"},"
        "\"x\":1}}}",
        "{\"a\":{\"$dbPointer\":{\"$ref\":\"b\",\"$id\":{\"$oid\":\"56e1fc72e0c917e9c4714161\"},"
        "\"$db\":\"c\"}}}",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct json_reader reader = {0};
        bson_error_t error = {0};
        bson_t document;

        CHECK_STATUS(TRUCE_INVALID,
                     truce__json_read(&reader, wrong[i], strlen(wrong[i]), &document, NULL, &error),
                     error);
        if (!strstr(error.message, "no other field"))
            test_fail(__FILE__, __LINE__, "%s: %s", wrong[i], error.message);
        truce__json_reader_release(&reader);
    }
}

static const char *const names[] = {"$numberInt",    "$numberLong",
                                    "$numberDouble", "$numberDecimal",
                                    "$oid",          "$date",
                                    "$timestamp",    "$binary",
                                    "$uuid",         "$regularExpression",
                                    "$code",         "$symbol",
                                    "$dbPointer",    "$undefined",
                                    "$minKey",       "$maxKey",
                                    "$document",     "$scope",
                                    "$type",         "$ref",
                                    "$id",           "a"};

/* Appends a document whose fields have the names of wrappers, with valid and invalid contents. */
static void append_random(struct random *random, bson_t *to, const char *name, int depth)
{
    bson_t inner = BSON_INITIALIZER;
    int fields = depth ? (int)truce__random_below(random, 3) : 0;

    switch (truce__random_below(random, depth ? 9 : 5)) {
    case 0:
        BSON_APPEND_UTF8(to, name, "5");
        break;
    case 1:
        BSON_APPEND_INT32(to, name, 1);
        break;
    case 2:
        BSON_APPEND_BOOL(to, name, true);
        break;
    case 3:
        BSON_APPEND_UTF8(to, name, "56e1fc72e0c917e9c4714161");
        break;
    case 4:
        BSON_APPEND_INT64(to, name, 5);
        break;
    case 5:
        append_random(random, &inner, "0", depth - 1);
        append_random(random, &inner, "1", depth - 1);
        BSON_APPEND_ARRAY(to, name, &inner);
        break;
    case 6:
        append_random(random, &inner,
                      names[truce__random_below(random, sizeof names / sizeof *names)], depth - 1);
        BSON_APPEND_CODE_WITH_SCOPE(to, name, "x", &inner);
        break;
    default:
        for (int i = 0; i <= fields; i++)
            append_random(random, &inner,
                          names[truce__random_below(random, sizeof names / sizeof *names)],
                          depth - 1);
        BSON_APPEND_DOCUMENT(to, name, &inner);
        break;
    }
    bson_destroy(&inner);
}

static void check_read_back(const bson_t *document)
{
    struct json_reader reader = {0};
    struct buffer text = {0};
    bson_error_t error = {0};
    bson_t read;

    truce__json_write(&text, document, false, JSON_CANONICAL);
    CHECK_OK(truce__json_read(&reader, (const char *)text.bytes, text.size, &read, NULL, &error),
             error);
    if (!bson_equal(document, &read))
        test_fail(__FILE__, __LINE__, "%.*s is read as another document", (int)text.size,
                  (const char *)text.bytes);
    truce__json_reader_release(&reader);
    truce__buffer_release(&text);
}

TEST(documents_with_the_names_of_wrappers_are_read_back_as_they_were)
{
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000; i++) {
        bson_t document = BSON_INITIALIZER;

        append_random(&random, &document,
                      names[truce__random_below(&random, sizeof names / sizeof *names)], 5);
        check_read_back(&document);
        bson_destroy(&document);
    }
}

TEST(text_keeps_every_character)
{
    SAME("{\"a\": \"\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\"}");
    SAME("{\"a\": \"h\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\"}");
    FORMS("{\"a\":\"\\u00e9\\ud83d\\ude00\\/\"}", "{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80/\"}",
          "{\"a\": \"\xc3\xa9\xf0\x9f\x98\x80/\"}");
    REFUSED("{\"a\":\"\\ud83d\"}",
            "column 9, field a: \\u gives the first half of a surrogate pair without the second");
    REFUSED("{\"a\":\"\\ude00\"}",
            "column 9, field a: \\u gives the second half of a surrogate pair without the first");
    REFUSED(
        "{\"a\":\"\\x\"}",
        "column 8, field a: unknown escape after \\ in a string: expected \" \\ / b f n r t or u");
    REFUSED("{\"a\":\"\n\"}",
            "column 7, field a: a control character in a string must be written as \\u00XX");
    REFUSED("{\"\\u0000\":1}", "column 5: a field name cannot contain \\u0000");
}

TEST(bytes_that_are_not_utf8_are_found)
{
    static const char *const bad[] = {"\xff",         "\xc0\x80",         "\xc1\xbf",
                                      "\xe0\x9f\xbf", "\xed\xa0\x80",     "\xf0\x8f\xbf\xbf",
                                      "\x80",         "\xf4\x90\x80\x80", "\xe2\x82"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[40];

        CHECK_INT(truce__utf8_check(bad[i], strlen(bad[i])), ==, 0);
        snprintf(text, sizeof text, "{\"a\":\"ok%s\"}", bad[i]);
        REFUSED(text, "column 9, field a: the string is not valid UTF-8");
    }
    CHECK_INT(truce__utf8_check("a\xc3\xa9\xed\x9f\xbf\xf4\x8f\xbf\xbf", 10), ==, 10);
}

TEST(errors_name_the_column_and_the_field)
{
    REFUSED("", "column 1: there is no document, only white space");
    REFUSED("[1]", "column 1: a document is expected: {");
    REFUSED("{\"a\":1} x", "column 9: unexpected text after the end of the document");
    REFUSED("{\"a\":1}{\"b\":2}", "column 8: unexpected text after the end of the document");
    REFUSED("{\"a\":{\"b\":[1,{\"c\":}]}}", "column 19, field a.b.1.c: a value is expected: "
                                            "\"text\", a number, {, [, true, false or null");
    REFUSED("{\"a\":1,}", "column 8, field a: a value is expected after the comma");
    REFUSED("{\"a\":[1 2]}", "column 9, field a.0: a , or ] is expected");
    REFUSED("{a:1}", "column 2: a field name in double quotes is expected");
    REFUSED("{\"a\" 1}", "column 6, field a: a : is expected after the field name");
    REFUSED("{\"a\":{\"b\":1", "column 12, field a.b: the text ends in the middle of a document");
}

/* typed syntax: the same document in strict JSON */
static void check_typed(int line, const char *in, const char *strict)
{
    struct json_reader reader = {.typed = true};
    struct buffer out = {0};
    bson_error_t error = {0};
    bson_t document;
    bool array;
    int status = truce__json_read(&reader, in, strlen(in), &document, &array, &error);

    if (status) {
        test_check_text(strict, error.message, __FILE__, line);
    } else {
        truce__json_write(&out, &document, array, JSON_RELAXED);
        truce__buffer_append_byte(&out, 0);
        test_check_text(strict, (const char *)out.bytes, __FILE__, line);
    }
    truce__json_reader_release(&reader);
    truce__buffer_release(&out);
}
#define TYPED(in, strict) check_typed(__LINE__, in, strict)

TEST(accepts_the_syntax_of_mongosh)
{
    TYPED("{a: 1, 'b.c': 2}", "{\"a\": 1, \"b.c\": 2}");
    TYPED("[{$match: {_id: {$gte: 2}}}]", "[{\"$match\": {\"_id\": {\"$gte\": 2}}}]");
    TYPED("{\"a\": 'x', b: \"it's\", 'it\\'s': 'a \"b\"'}",
          "{\"a\": \"x\", \"b\": \"it's\", \"it's\": \"a \\\"b\\\"\"}");
    TYPED("{at: {$date: '1970-01-01T00:00:00Z'}, n: {$numberLong: '5'}}",
          "{\"at\": {\"$date\": \"1970-01-01T00:00:00Z\"}, \"n\": 5}");
    TYPED("{h\xc3\xb6he: 1, 1: 2, $where_1: 3}", "{\"h\xc3\xb6he\": 1, \"1\": 2, \"$where_1\": 3}");
    TYPED("{a: }",
          "column 5, field a: a value is expected: \"text\", a number, {, [, true, false or "
          "null");
    TYPED("{a.b: 1}", "column 3: a field name with a . or a - in it needs quotes: 'a.b'");
    TYPED("{: 1}", "column 2: a field name is expected");
    TYPED("{a: 'b}", "column 8, field a: the text ends in the middle of a document");
    TYPED("{\xff: 1}", "column 2: the field name is not valid UTF-8");
    TYPED("{a: x}",
          "column 5, field a: a value is expected: \"text\", a number, {, [, true, false or "
          "null");
    REFUSED("{\"a\": 'x'}",
            "column 7, field a: a value is expected: \"text\", a number, {, [, true, "
            "false or null");
    REFUSED("{\"a\\'\": 1}",
            "column 5: unknown escape after \\ in a string: expected \" \\ / b f n r t or u");
}

TEST(reads_arrays_where_they_are_allowed)
{
    struct json_reader reader = {0};
    bson_error_t error;
    bson_t document;
    bool is_array;
    bson_t *expected = test_bson("{'0': {'a': 1}, '1': 2}");

    CHECK_OK(truce__json_read(&reader, "[{\"a\":1},2]", 11, &document, &is_array, &error), error);
    CHECK(is_array);
    CHECK_BSON(expected, &document);
    CHECK_OK(truce__json_read(&reader, " {} ", 4, &document, &is_array, &error), error);
    CHECK(!is_array);
    bson_destroy(expected);
    truce__json_reader_release(&reader);
}

TEST(nesting_is_limited)
{
    struct json_reader reader = {0};
    bson_error_t error;
    bson_t document;
    char text[8 * (TRUCE_DOCUMENT_DEPTH_MAX + 2)];

    for (int depth = TRUCE_DOCUMENT_DEPTH_MAX; depth <= TRUCE_DOCUMENT_DEPTH_MAX + 1; depth++) {
        size_t used = 0;

        for (int i = 0; i < depth - 1; i++)
            used += (size_t)snprintf(text + used, sizeof text - used, "{\"a\":");
        used += (size_t)snprintf(text + used, sizeof text - used, "{}");
        memset(text + used, '}', (size_t)depth - 1);
        used += (size_t)depth - 1;
        CHECK_STATUS(depth > TRUCE_DOCUMENT_DEPTH_MAX ? TRUCE_INVALID : TRUCE_OK,
                     truce__json_read(&reader, text, used, &document, NULL, &error), error);
    }
    truce__json_reader_release(&reader);
}

TEST(a_document_over_the_maximum_is_refused)
{
    size_t size = TRUCE_DOCUMENT_BYTES_MAX + 100;
    char *text = malloc(size);
    struct json_reader reader = {0};
    bson_error_t error;
    bson_t document;

    memset(text, 'x', size);
    memcpy(text, "{\"a\":\"", 6);
    memcpy(text + size - 2, "\"}", 2);
    CHECK_STATUS(TRUCE_LIMIT, truce__json_read(&reader, text, size, &document, NULL, &error),
                 error);
    truce__json_reader_release(&reader);
    free(text);
}

TEST(doubles_read_back_as_they_were_written)
{
    struct random random;
    struct buffer out = {0};

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = truce__random_next(&random);
        bson_t document = BSON_INITIALIZER;
        double number;

        memcpy(&number, &bits, 8);
        if (isnan(number) || isinf(number))
            continue;
        BSON_APPEND_DOUBLE(&document, "", number);
        out.size = 0;
        truce__json_write(&out, &document, false, JSON_RELAXED);
        truce__buffer_append_byte(&out, 0);
        if (strtod((const char *)out.bytes + strlen("{\"\": "), NULL) != number)
            test_fail(__FILE__, __LINE__, "%a is written as %s", number, (const char *)out.bytes);
        bson_destroy(&document);
    }
    truce__buffer_release(&out);
}

/* The string exactly fills its buffer, so that a sanitizer detects an overrun. */
TEST(a_text_of_any_length_ends_where_it_says)
{
    char value[201] = "";

    for (size_t i = 0; i < sizeof value - 1; i++) {
        bson_t document = BSON_INITIALIZER;
        char *text;

        value[i] = 'x';
        BSON_APPEND_UTF8(&document, "a", value);
        text = truce_json_write(&document, false, TRUCE_JSON_RELAXED);
        CHECK_INT(strlen(text), ==, strlen("{\"a\": \"\"}") + i + 1);
        bson_free(text);
        bson_destroy(&document);
    }
}

TEST(an_exact_reader_refuses_whole_numbers_beyond_64_bits)
{
    static const struct {
        const char *text;
        bool fits;
    } cases[] = {
        {"{\"n\": 9223372036854775807}", true},
        {"{\"n\": -9223372036854775808}", true},
        {"{\"n\": 9223372036854775808}", false},
        {"{\"a\": [{\"n\": -9223372036854775809}]}", false},
        {"[18446744073709551616]", false},
        {"{\"n\": 1e30, \"m\": 9223372036854775808.5}", true},
        {"{\"n\": \"9223372036854775808\"}", true},
        {"{\"n\": {\"$numberDecimal\": \"9223372036854775808\"}}", true},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int exact = 0; exact < 2; exact++) {
            struct json_reader reader = {.exact = exact};
            bson_error_t error = {0};
            bool is_array;
            bson_t document;
            truce_status status = truce__json_read(&reader, cases[i].text, strlen(cases[i].text),
                                                   &document, &is_array, &error);

            CHECK_INT(status, ==, exact && !cases[i].fits ? TRUCE_INVALID : TRUCE_OK);
            if (status && !strstr(error.message, "is beyond 64 bits"))
                test_fail(__FILE__, __LINE__, "%s: %s", cases[i].text, error.message);
            truce__json_reader_release(&reader);
        }
}
