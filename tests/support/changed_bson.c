#include "tests/support/changed_bson.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

/* ---- replacement values ---------------------------------------------------------------------- */

static void append_regex(bson_t *out, const char *key, uint32_t length)
{
    bson_append_regex(out, key, (int)length, "(a*)*(", "x");
}

/* Appends a string that is longer than the maximum of any name. */
static void append_long(bson_t *out, const char *key, uint32_t length)
{
    char word[2000];

    memset(word, 'w', sizeof word);
    bson_append_utf8(out, key, (int)length, word, sizeof word);
}

static void append_many(bson_t *out, const char *key, uint32_t length)
{
    bson_t many;

    bson_append_array_begin(out, key, (int)length, &many);
    for (int i = 0; i < 600; i++) {
        char index[16];
        const char *at;
        size_t size = bson_uint32_to_string((uint32_t)i, &at, index, sizeof index);

        bson_append_int32(&many, at, (int)size, i % 7);
    }
    bson_append_array_end(out, &many);
}

static void append_deep(bson_t *out, const char *key, uint32_t length)
{
    bson_t deep = BSON_INITIALIZER;

    for (int i = 0; i < 120; i++) {
        bson_t outer = BSON_INITIALIZER;

        BSON_APPEND_DOCUMENT(&outer, "$and", &deep);
        bson_destroy(&deep);
        bson_steal(&deep, &outer);
    }
    bson_append_document(out, key, (int)length, &deep);
    bson_destroy(&deep);
}

static void append_date(bson_t *out, const char *key, uint32_t length)
{
    bson_append_date_time(out, key, (int)length, INT64_MIN);
}

static void append_stamp(bson_t *out, const char *key, uint32_t length)
{
    bson_append_timestamp(out, key, (int)length, UINT32_MAX, 0);
}

static void append_oid(bson_t *out, const char *key, uint32_t length)
{
    bson_append_oid(out, key, (int)length, &(bson_oid_t){{0}});
}

static void append_binary(bson_t *out, const char *key, uint32_t length)
{
    bson_append_binary(out, key, (int)length, BSON_SUBTYPE_UUID, (const uint8_t *)"", 0);
}

static void append_decimal(bson_t *out, const char *key, uint32_t length)
{
    bson_append_decimal128(out, key, (int)length, &(bson_decimal128_t){.high = 0x7c00000000000000});
}

static void append_code(bson_t *out, const char *key, uint32_t length)
{
    bson_append_code(out, key, (int)length, "while (1);");
}

static void append_reference(bson_t *out, const char *key, uint32_t length)
{
    bson_append_dbpointer(out, key, (int)length, "c", &(bson_oid_t){{0}});
}

static void append_least(bson_t *out, const char *key, uint32_t length)
{
    bson_append_minkey(out, key, (int)length);
}

static void append_undefined(bson_t *out, const char *key, uint32_t length)
{
    bson_append_undefined(out, key, (int)length);
}

static void append_null(bson_t *out, const char *key, uint32_t length)
{
    bson_append_null(out, key, (int)length);
}

static void append_true(bson_t *out, const char *key, uint32_t length)
{
    bson_append_bool(out, key, (int)length, true);
}

static void (*const others[])(bson_t *out, const char *key, uint32_t length) = {
    append_regex,     append_long,  append_many,      append_deep,    append_date,
    append_stamp,     append_oid,   append_binary,    append_decimal, append_code,
    append_reference, append_least, append_undefined, append_null,    append_true,
};

static const int64_t numbers[] = {0, 1, -1, 5000, INT32_MAX, INT64_MAX, INT64_MIN};
static const double doubles[] = {NAN, -INFINITY, 0.5, 1e300};

/* Strings with explicit lengths, because they contain a zero byte, or bytes that are not UTF-8. */
#define WORD(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }
static const struct {
    const char *text;
    int length;
} words[] = {
    WORD(""),      WORD("\0hidden"), WORD("a\0b"),        WORD("\xff\xfe"), WORD("$x"),
    WORD("$$x.y"), WORD("a..b"),     WORD("."),           WORD("@a.b"),     WORD("truce_commits"),
    WORD("admin"), WORD("-5"),       WORD("system.views")};

static const char *const documents[] = {"{}",
                                        "[]",
                                        "[[]]",
                                        "[{}]",
                                        "{\"\": 1}",
                                        "{\"$x\": 1}",
                                        "{\"a.b\": {\"$c\": [1]}}",
                                        "{\"a\": 1, \"a\": 2}",
                                        "[{\"$set\": {\"a\": \"$a\"}}]",
                                        "{\"$gt\": {\"$numberLong\": \"0\"}}",
                                        "{\"_id\": [1, 2]}"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* LONGER_FIRST and LONGER_LAST add a longer field of the same name: code that takes a size from one
 * of them must not read the other. NULL_FIRST adds a null of this name. */
enum { LEAVE_OUT, TWICE, LONGER_FIRST, LONGER_LAST, NULL_FIRST, VALUES };

#define CHANGES                                                                                    \
    (VALUES + COUNT(others) + COUNT(numbers) + COUNT(doubles) + COUNT(words) + COUNT(documents))
const uint32_t bson_changes = CHANGES;

static void append_json(bson_t *out, const char *key, uint32_t length, const char *json)
{
    bson_t *value = bson_new_from_json((const uint8_t *)json, -1, NULL);

    truce_assert(value);
    if (*json == '[')
        bson_append_array(out, key, (int)length, value);
    else
        bson_append_document(out, key, (int)length, value);
    bson_destroy(value);
}

/* Appends the value of this number from the tables of values that no correct peer sends. */
static void append_other(bson_t *out, const char *key, uint32_t length, uint32_t number)
{
    if (number < COUNT(others)) {
        others[number](out, key, length);
        return;
    }
    number -= COUNT(others);
    if (number < COUNT(numbers)) {
        bson_append_int64(out, key, (int)length, numbers[number]);
        return;
    }
    number -= COUNT(numbers);
    if (number < COUNT(doubles)) {
        bson_append_double(out, key, (int)length, doubles[number]);
        return;
    }
    number -= COUNT(doubles);
    if (number < COUNT(words)) {
        bson_append_utf8(out, key, (int)length, words[number].text, words[number].length);
        return;
    }
    number -= COUNT(words);
    append_json(out, key, length, documents[number]);
}

/* ---- where ----------------------------------------------------------------------------------- */

static bool within(const bson_iter_t *iter, bson_t *inner)
{
    const uint8_t *bytes;
    uint32_t length;

    if (BSON_ITER_HOLDS_DOCUMENT(iter))
        bson_iter_document(iter, &length, &bytes);
    else if (BSON_ITER_HOLDS_ARRAY(iter))
        bson_iter_array(iter, &length, &bytes);
    else
        return false;
    return bson_init_static(inner, bytes, length);
}

uint32_t bson_places(const bson_t *document)
{
    uint32_t places = 0;
    bson_iter_t iter;
    bson_t inner;

    if (!bson_iter_init(&iter, document))
        return 0;
    while (bson_iter_next(&iter)) {
        places++;
        if (within(&iter, &inner))
            places += bson_places(&inner);
    }
    return places;
}

/* A change by its number, or a value that replaces the old one. */
struct change {
    uint32_t number;
    /* NULL means that `number` applies. */
    const bson_value_t *value;
};

/* The number of values of a longer field. */
#define LONGER 300

/* Appends the elements of an array, or the fields of a document, again and again. */
static void append_again(const bson_iter_t *iter, bool is_array, bson_t *out)
{
    bson_iter_t at;
    bson_t inner;
    char index[16];
    const char *key;
    uint32_t i = 0;

    truce_assert(within(iter, &inner));
    while (i < LONGER && bson_iter_init(&at, &inner) && !bson_empty(&inner)) {
        while (i < LONGER && bson_iter_next(&at)) {
            bson_uint32_to_string(i++, &key, index, sizeof index);
            bson_append_value(out, is_array ? key : bson_iter_key(&at), -1, bson_iter_value(&at));
        }
    }
}

/* Appends a field of the same name and type, but longer. A value that is neither a document nor an
 * array becomes a long string. */
static void append_longer(const bson_iter_t *iter, bson_t *out)
{
    const char *key = bson_iter_key(iter);
    int length = (int)bson_iter_key_len(iter);
    bson_t longer;

    if (BSON_ITER_HOLDS_DOCUMENT(iter)) {
        bson_append_document_begin(out, key, length, &longer);
        append_again(iter, false, &longer);
        bson_append_document_end(out, &longer);
    } else if (BSON_ITER_HOLDS_ARRAY(iter)) {
        bson_append_array_begin(out, key, length, &longer);
        append_again(iter, true, &longer);
        bson_append_array_end(out, &longer);
    } else {
        append_long(out, key, (uint32_t)length);
    }
}

static void append_change(const struct change *change, const bson_iter_t *iter, bson_t *out)
{
    const bson_value_t *value = bson_iter_value((bson_iter_t *)iter);
    const char *key = bson_iter_key(iter);
    uint32_t length = bson_iter_key_len(iter);

    if (change->value) {
        bson_append_value(out, key, (int)length, change->value);
        return;
    }
    if (change->number >= VALUES) {
        append_other(out, key, length, change->number - VALUES);
        return;
    }
    if (change->number == LONGER_FIRST)
        append_longer(iter, out);
    if (change->number == NULL_FIRST)
        bson_append_null(out, key, (int)length);
    if (change->number != LEAVE_OUT)
        bson_append_value(out, key, (int)length, value);
    if (change->number == TWICE)
        bson_append_value(out, key, (int)length, value);
    if (change->number == LONGER_LAST)
        append_longer(iter, out);
}

static void copy_changed(const bson_t *document, uint32_t *place, const struct change *change,
                         bson_t *out);

/* Copies a field. *place counts down to 0 at the field that is changed. */
static void copy_field(const bson_iter_t *iter, uint32_t *place, const struct change *change,
                       bson_t *out)
{
    const char *key = bson_iter_key(iter);
    uint32_t length = bson_iter_key_len(iter);
    bson_t inner, copy;

    if ((*place)-- == 0) {
        append_change(change, iter, out);
    } else if (!within(iter, &inner)) {
        bson_append_value(out, key, (int)length, bson_iter_value((bson_iter_t *)iter));
    } else if (BSON_ITER_HOLDS_ARRAY(iter)) {
        bson_append_array_begin(out, key, (int)length, &copy);
        copy_changed(&inner, place, change, &copy);
        bson_append_array_end(out, &copy);
    } else {
        bson_append_document_begin(out, key, (int)length, &copy);
        copy_changed(&inner, place, change, &copy);
        bson_append_document_end(out, &copy);
    }
}

static void copy_changed(const bson_t *document, uint32_t *place, const struct change *change,
                         bson_t *out)
{
    bson_iter_t iter;

    if (bson_iter_init(&iter, document))
        while (bson_iter_next(&iter))
            copy_field(&iter, place, change, out);
}

bson_t *bson_changed(const bson_t *document, uint32_t place, uint32_t change)
{
    bson_t *out = bson_new();

    copy_changed(document, &place, &(struct change){.number = change}, out);
    return out;
}

bson_t *bson_replaced(const bson_t *document, uint32_t place, const bson_value_t *value)
{
    bson_t *out = bson_new();

    copy_changed(document, &place, &(struct change){.value = value}, out);
    return out;
}
