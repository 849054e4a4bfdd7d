/* The check of documents from outside: it accepts valid documents, and detects all damage. */
#include "base/limits.h"
#include "base/random.h"
#include "bson/value.h"
#include "tests/support/test.h"

static truce_status check_bytes(const uint8_t *bytes, size_t size, bson_error_t *error)
{
    bson_t document;

    /* libbson itself refuses some damage when it wraps the bytes */
    if (!bson_init_static(&document, bytes, size))
        return TRUCE_INVALID;
    return truce__document_check(&document, "document", error);
}

static bson_t *all_types(void)
{
    return test_bson(
        "{'double': 1.5, 'string': 'caf\\u00e9 \\ud83d\\ude00', 'document': {'a': {'b': 1}}, "
        "'array': [1, [2], {'c': 3}], 'binary': {'$binary': {'base64': 'AQID', 'subType': '00'}}, "
        "'old': {'$binary': {'base64': 'AQID', 'subType': '02'}}, "
        "'undefined': {'$undefined': true}, 'id': {'$oid': '5f0000000000000000000000'}, "
        "'yes': true, 'no': false, 'date': {'$date': {'$numberLong': '1'}}, 'null': null, "
        "'regex': {'$regularExpression': {'pattern': 'a', 'options': 'i'}}, "
        "'pointer': {'$dbPointer': {'$ref': 'c', '$id': {'$oid': '5f0000000000000000000000'}}}, "
        "'code': {'$code': 'x'}, 'symbol': {'$symbol': 's'}, "
        "'scope': {'$code': 'x', '$scope': {'y': 1}}, 'int': 1, "
        "'timestamp': {'$timestamp': {'t': 1, 'i': 2}}, 'long': {'$numberLong': '1'}, "
        "'decimal': {'$numberDecimal': '1'}, 'min': {'$minKey': 1}, 'max': {'$maxKey': 1}}");
}

TEST(a_document_of_all_types_passes)
{
    bson_t *document = all_types();
    bson_error_t error;

    CHECK_OK(truce__document_check(document, "document", &error), error);
    bson_destroy(document);
}

/* walks everything that passed, as the rest of query/ does */
static uint32_t walk(struct value value)
{
    uint32_t sum = value.size;
    struct fields fields;

    if (!truce__value_is_container(value))
        return sum + (value.size ? value.data[value.size - 1] : 0);
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        truce_status inside = fields.value.data + fields.value.size < value.data + value.size
                                  ? TRUCE_OK
                                  : TRUCE_CORRUPT;

        CHECK_INT(inside, ==, TRUCE_OK);
        sum += walk(fields.value);
    }
    CHECK(fields.at + 1 == value.data + value.size);
    return sum;
}

TEST(refuses_a_damaged_byte_or_leaves_a_valid_document)
{
    bson_t *document = all_types();
    size_t size = document->len;
    uint8_t *bytes = bson_malloc(size);
    int refused = 0;

    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            bson_error_t error;
            bson_t damaged;

            memcpy(bytes, bson_get_data(document), size);
            bytes[at] ^= (uint8_t)(1 << bit);
            if (check_bytes(bytes, size, &error) != TRUCE_OK) {
                refused++;
                continue;
            }
            REQUIRE(bson_init_static(&damaged, bytes, size));
            walk(truce__value_document(&damaged));
        }
    }
    CHECK_INT(refused, >, 500);
    bson_free(bytes);
    bson_destroy(document);
}

TEST(refuses_random_damage_or_leaves_a_valid_document)
{
    bson_t *document = all_types();
    size_t size = document->len;
    uint8_t *bytes = bson_malloc(size);
    struct random random;

    truce__random_seed(&random, test_seed());
    for (int round = 0; round < 20000; round++) {
        bson_error_t error;
        bson_t damaged;

        memcpy(bytes, bson_get_data(document), size);
        for (uint64_t left = 1 + truce__random_below(&random, 4); left; left--)
            bytes[truce__random_below(&random, size)] = (uint8_t)truce__random_next(&random);
        if (check_bytes(bytes, size, &error) != TRUCE_OK)
            continue;
        REQUIRE(bson_init_static(&damaged, bytes, size));
        walk(truce__value_document(&damaged));
    }
    bson_free(bytes);
    bson_destroy(document);
}

static void check_text(const char *text, size_t length, bool valid)
{
    bson_t value = BSON_INITIALIZER, key = BSON_INITIALIZER;
    bson_error_t error;

    bson_append_utf8(&value, "a", 1, text, (int)length);
    CHECK_STATUS(valid ? TRUCE_OK : TRUCE_INVALID,
                 truce__document_check(&value, "document", &error), error);
    bson_append_null(&key, text, (int)length);
    CHECK_STATUS(valid ? TRUCE_OK : TRUCE_INVALID, truce__document_check(&key, "document", &error),
                 error);
    bson_destroy(&value);
    bson_destroy(&key);
}

TEST(text_and_names_must_be_utf8)
{
    check_text("plain ascii of more than eight bytes", 36, true);
    check_text("\xc3\xa9", 2, true);
    check_text("\xe2\x82\xac", 3, true);
    check_text("\xf0\x9f\x98\x80", 4, true);
    check_text("\xf4\x8f\xbf\xbf", 4, true);
    check_text("\xed\x9f\xbf", 3, true);
    check_text("12345678\xff", 9, false);
    check_text("\x80", 1, false);
    check_text("\xc0\x80", 2, false);
    check_text("\xc1\xbf", 2, false);
    check_text("\xe0\x9f\xbf", 3, false);
    check_text("\xed\xa0\x80", 3, false);
    check_text("\xed\xbf\xbf", 3, false);
    check_text("\xf0\x8f\xbf\xbf", 4, false);
    check_text("\xf4\x90\x80\x80", 4, false);
    check_text("\xf8\x88\x80\x80\x80", 5, false);
    check_text("abc\xe2\x82", 5, false);
    check_text("abc\xc3", 4, false);
}

static bson_t *nested(uint32_t depth, bool arrays)
{
    bson_t *inner = bson_new();

    for (uint32_t i = 1; i < depth; i++) {
        bson_t *outer = bson_new();

        if (arrays)
            bson_append_array(outer, "0", 1, inner);
        else
            bson_append_document(outer, "a", 1, inner);
        bson_destroy(inner);
        inner = outer;
    }
    return inner;
}

TEST(nesting_is_allowed_to_the_limit_and_refused_beyond)
{
    for (int arrays = 0; arrays < 2; arrays++) {
        bson_t *deepest = nested(TRUCE_DOCUMENT_DEPTH_MAX, arrays);
        bson_t *deeper = nested(TRUCE_DOCUMENT_DEPTH_MAX + 1, arrays);
        bson_t *far = nested(5000, arrays);
        bson_error_t error;

        CHECK_OK(truce__document_check(deepest, "document", &error), error);
        CHECK_STATUS(TRUCE_LIMIT, truce__document_check(deeper, "document", &error), error);
        CHECK_INT(error.code, ==, CODE_OVERFLOW);
        CHECK_STATUS(TRUCE_LIMIT, truce__document_check(far, "document", &error), error);
        bson_destroy(deepest);
        bson_destroy(deeper);
        bson_destroy(far);
    }
}

TEST(counts_open_containers_as_the_depth)
{
    bson_t document = BSON_INITIALIZER, inner = BSON_INITIALIZER;
    bson_error_t error;

    for (int i = 0; i < 3 * TRUCE_DOCUMENT_DEPTH_MAX; i++)
        bson_append_document(&document, "a", 1, &inner);
    CHECK_OK(truce__document_check(&document, "document", &error), error);
    bson_destroy(&document);
}

TEST(sixteen_megabytes_are_allowed_and_one_byte_more_is_not)
{
    size_t size = TRUCE_DOCUMENT_BYTES_MAX - (4 + 1 + 2 + 4 + 1 + 1);
    char *text = bson_malloc(size + 2);
    bson_t fits = BSON_INITIALIZER, over = BSON_INITIALIZER;
    bson_error_t error;

    memset(text, 'x', size + 2);
    bson_append_utf8(&fits, "a", 1, text, (int)size);
    CHECK_INT(fits.len, ==, TRUCE_DOCUMENT_BYTES_MAX);
    CHECK_OK(truce__document_check(&fits, "document", &error), error);
    bson_append_utf8(&over, "a", 1, text, (int)size + 1);
    CHECK_STATUS(TRUCE_LIMIT, truce__document_check(&over, "document", &error), error);
    CHECK_INT(error.code, ==, CODE_BSON_OBJECT_TOO_LARGE);
    bson_destroy(&fits);
    bson_destroy(&over);
    bson_free(text);
}

TEST(text_ends_in_a_nul_where_its_length_says)
{
    uint8_t bytes[] = {0x0f, 0, 0, 0, 0x02, 'a', 0, 3, 0, 0, 0, 'b', 'c', 0, 0};
    bson_error_t error;

    CHECK_OK(check_bytes(bytes, sizeof bytes, &error), error);
    bytes[13] = 'd';
    CHECK_STATUS(TRUCE_INVALID, check_bytes(bytes, sizeof bytes, &error), error);
    bytes[13] = 0;
    bytes[7] = 2;
    CHECK_STATUS(TRUCE_INVALID, check_bytes(bytes, sizeof bytes, &error), error);
}

TEST(the_refusal_names_document_and_field)
{
    uint8_t bytes[] = {0x11, 0, 0, 0, 0x03, 'o', 0, 0x09, 0, 0, 0, 0x08, 'b', 0, 7, 0, 0};
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, check_bytes(bytes, sizeof bytes, &error), error);
    CHECK_TEXT("the document is malformed: field 'b' is a bool that is neither 0 nor 1",
               error.message);
    CHECK_INT(error.code, ==, CODE_INVALID_BSON);
}
