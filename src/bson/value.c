/*
 * Reads scalars from values, makes scalars in an arena, and appends values to documents.
 * value_compare.c has the order of values, value_check.c checks documents from outside, and
 * value_show.c formats values for messages.
 *
 * A value borrows its payload, which may have any alignment, so memcpy reads it. BSON is
 * little-endian, and so are all machines that truce supports.
 */
#include "bson/value.h"

#include "base/assert.h"
#include "bson/decimal.h"
#include "bson/number.h"

_Static_assert(BSON_BYTE_ORDER == BSON_LITTLE_ENDIAN, "payloads are read without swapping bytes");

const struct value_form truce__value_forms[256] = {
    [BSON_TYPE_DOUBLE] = {8},       [BSON_TYPE_DATE_TIME] = {8},
    [BSON_TYPE_TIMESTAMP] = {8},    [BSON_TYPE_INT64] = {8},
    [BSON_TYPE_INT32] = {4},        [BSON_TYPE_BOOL] = {1},
    [BSON_TYPE_OID] = {12},         [BSON_TYPE_DECIMAL128] = {16},
    [BSON_TYPE_UTF8] = {4, true},   [BSON_TYPE_CODE] = {4, true},
    [BSON_TYPE_SYMBOL] = {4, true}, [BSON_TYPE_DOCUMENT] = {0, true},
    [BSON_TYPE_ARRAY] = {0, true},  [BSON_TYPE_CODEWSCOPE] = {0, true},
    [BSON_TYPE_BINARY] = {5, true}, [BSON_TYPE_DBPOINTER] = {16, true},
};

/* Returns the length of a name in a document that ends at `end`. Most names fit into one word. */
static inline size_t name_length(const uint8_t *name, const uint8_t *end)
{
    const uint64_t ones = UINT64_C(0x0101010101010101), highs = UINT64_C(0x8080808080808080);
    uint64_t word, zeros;

    if (end - name < (ptrdiff_t)sizeof word)
        return strlen((const char *)name);
    memcpy(&word, name, sizeof word);
    /* The lowest bit is correct: the first zero byte. Bits above it may be wrong. */
    zeros = (word - ones) & ~word & highs;
    return zeros ? (size_t)__builtin_ctzll(zeros) / 8 : 8 + strlen((const char *)name + 8);
}

struct value truce__value_field(struct value document, const char *key, size_t key_length)
{
    const uint8_t *at = document.data + 4, *end;
    uint32_t bytes;

    memcpy(&bytes, document.data, sizeof bytes);
    end = document.data + bytes;
    while (*at) {
        uint8_t type = *at;
        size_t length = name_length(at + 1, end);
        const uint8_t *data = at + 1 + length + 1;
        uint32_t size = truce__value_size(type, data);

        if (length == key_length && !memcmp(at + 1, key, length))
            return (struct value){data, size, type};
        at = data + size;
    }
    return truce__value_missing();
}

int32_t truce__value_int32(struct value value)
{
    int32_t number;

    truce_assert(value.type == BSON_TYPE_INT32);
    memcpy(&number, value.data, sizeof number);
    return number;
}

int64_t truce__value_int64(struct value value)
{
    int64_t number;

    truce_assert(value.type == BSON_TYPE_INT64 || value.type == BSON_TYPE_DATE_TIME ||
                 value.type == BSON_TYPE_TIMESTAMP);
    memcpy(&number, value.data, sizeof number);
    return number;
}

double truce__value_double(struct value value)
{
    double number;

    truce_assert(value.type == BSON_TYPE_DOUBLE);
    memcpy(&number, value.data, sizeof number);
    return number;
}

bool truce__value_bool(struct value value)
{
    truce_assert(value.type == BSON_TYPE_BOOL);
    return *value.data != 0;
}

bson_decimal128_t truce__value_decimal(struct value value)
{
    bson_decimal128_t number;

    truce_assert(value.type == BSON_TYPE_DECIMAL128);
    memcpy(&number.low, value.data, 8);
    memcpy(&number.high, value.data + 8, 8);
    return number;
}

const char *truce__value_text(struct value value, uint32_t *length)
{
    truce_assert(value.type == BSON_TYPE_UTF8 || value.type == BSON_TYPE_SYMBOL ||
                 value.type == BSON_TYPE_CODE);
    truce_assert(value.size >= 5);
    *length = value.size - 5;
    return (const char *)value.data + 4;
}

void truce__value_bson(struct value value, bson_t *borrowed)
{
    truce_assert(truce__value_is_container(value));
    if (!bson_init_static(borrowed, value.data, value.size))
        truce_assert(!"a checked document has a valid length and end");
}

bool truce__value_subdocument(const bson_t *document, const char *name, bson_t *borrowed)
{
    struct value value = truce__value_field(truce__value_document(document), name, strlen(name));

    if (value.type != BSON_TYPE_DOCUMENT)
        return false;
    truce__value_bson(value, borrowed);
    return true;
}

static struct value in_arena(struct arena *arena, uint8_t type, const void *bytes, uint32_t size)
{
    return (struct value){truce__arena_copy(arena, bytes, size), size, type};
}

struct value truce__value_from_int32(struct arena *arena, int32_t number)
{
    return in_arena(arena, BSON_TYPE_INT32, &number, sizeof number);
}

struct value truce__value_from_int64(struct arena *arena, int64_t number)
{
    return in_arena(arena, BSON_TYPE_INT64, &number, sizeof number);
}

struct value truce__value_from_double(struct arena *arena, double number)
{
    return in_arena(arena, BSON_TYPE_DOUBLE, &number, sizeof number);
}

struct value truce__value_from_decimal(struct arena *arena, bson_decimal128_t number)
{
    uint64_t halves[2] = {number.low, number.high};

    return in_arena(arena, BSON_TYPE_DECIMAL128, halves, sizeof halves);
}

struct value truce__value_from_bool(bool truth)
{
    static const uint8_t bytes[2] = {0, 1};

    return (struct value){bytes + truth, 1, BSON_TYPE_BOOL};
}

struct value truce__value_from_date(struct arena *arena, int64_t milliseconds)
{
    return in_arena(arena, BSON_TYPE_DATE_TIME, &milliseconds, sizeof milliseconds);
}

struct value truce__value_from_text(struct arena *arena, const char *text, size_t length)
{
    int32_t prefix;
    uint8_t *data;

    truce_assert(length < INT32_MAX - 5);
    prefix = (int32_t)length + 1;
    data = truce__arena_take(arena, length + 5);
    memcpy(data, &prefix, 4);
    if (length)
        memcpy(data + 4, text, length);
    data[4 + length] = 0;
    return (struct value){data, (uint32_t)length + 5, BSON_TYPE_UTF8};
}

struct value truce__value_null(void)
{
    static const uint8_t nothing[1];

    return (struct value){nothing, 0, BSON_TYPE_NULL};
}

struct value truce__value_copy(struct arena *arena, struct value value)
{
    if (!value.size)
        return value.type == VALUE_MISSING
                   ? truce__value_missing()
                   : (struct value){truce__value_null().data, 0, value.type};
    return in_arena(arena, value.type, value.data, value.size);
}

struct value truce__value_from_bson(struct arena *arena, const bson_t *document, bool is_array)
{
    uint8_t type = is_array ? BSON_TYPE_ARRAY : BSON_TYPE_DOCUMENT;

    return in_arena(arena, type, bson_get_data(document), document->len);
}

/* Appends a type that libbson's append functions would change: they sort the options of a regex
 * and cut code at a NUL. The value is written as a document of one field, which is then
 * concatenated. */
static bool append_raw(bson_t *document, const char *key, size_t key_length, struct value value)
{
    uint8_t small[256];
    size_t size = 4 + 1 + key_length + 1 + value.size + 1;
    uint8_t *bytes = size <= sizeof small ? small : bson_malloc(size);
    uint8_t *at = bytes + 4;
    int32_t length = (int32_t)size;
    bson_t one;
    bool fits;

    memcpy(bytes, &length, 4);
    *at++ = value.type;
    if (key_length)
        memcpy(at, key, key_length);
    at[key_length] = 0;
    at += key_length + 1;
    memcpy(at, value.data, value.size);
    at[value.size] = 0;
    fits = bson_init_static(&one, bytes, size) && bson_concat(document, &one);
    if (bytes != small)
        bson_free(bytes);
    return fits;
}

static bool value_append_text(bson_t *document, const char *key, int key_length, struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);

    return value.type == BSON_TYPE_UTF8
               ? bson_append_utf8(document, key, key_length, text, (int)length)
               : bson_append_symbol(document, key, key_length, text, (int)length);
}

static bool append_timestamp(bson_t *document, const char *key, int key_length, struct value value)
{
    uint64_t number = (uint64_t)truce__value_int64(value);

    return bson_append_timestamp(document, key, key_length, (uint32_t)(number >> 32),
                                 (uint32_t)number);
}

/* Appends an array as a document and then sets its type. libbson would write a warning to standard
 * error if the keys are not 0, 1, 2, ..., which happens in documents from outside. */
static bool value_append_container(bson_t *document, const char *key, int key_length,
                                   struct value value)
{
    uint32_t at = document->len - 1;
    bson_t borrowed;

    truce__value_bson(value, &borrowed);
    if (!bson_append_document(document, key, key_length, &borrowed))
        return false;
    ((uint8_t *)bson_get_data(document))[at] = value.type;
    return true;
}

static bool value_append_oid(bson_t *document, const char *key, int key_length, struct value value)
{
    bson_oid_t id;

    memcpy(id.bytes, value.data, sizeof id.bytes);
    return bson_append_oid(document, key, key_length, &id);
}

static bool value_append_decimal(bson_t *document, const char *key, int key_length,
                                 struct value value)
{
    bson_decimal128_t number = truce__value_decimal(value);

    return bson_append_decimal128(document, key, key_length, &number);
}

/* Appends a value to a document, with its type. */
static bool value_append(bson_t *document, const char *key, int length, struct value value)
{
    switch (value.type) {
    case BSON_TYPE_DOUBLE:
        return bson_append_double(document, key, length, truce__value_double(value));
    case BSON_TYPE_UTF8:
    case BSON_TYPE_SYMBOL:
        return value_append_text(document, key, length, value);
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        return value_append_container(document, key, length, value);
    case BSON_TYPE_UNDEFINED:
        return bson_append_undefined(document, key, length);
    case BSON_TYPE_OID:
        return value_append_oid(document, key, length, value);
    case BSON_TYPE_BOOL:
        return bson_append_bool(document, key, length, truce__value_bool(value));
    case BSON_TYPE_DATE_TIME:
        return bson_append_date_time(document, key, length, truce__value_int64(value));
    case BSON_TYPE_NULL:
        return bson_append_null(document, key, length);
    case BSON_TYPE_INT32:
        return bson_append_int32(document, key, length, truce__value_int32(value));
    case BSON_TYPE_TIMESTAMP:
        return append_timestamp(document, key, length, value);
    case BSON_TYPE_INT64:
        return bson_append_int64(document, key, length, truce__value_int64(value));
    case BSON_TYPE_DECIMAL128:
        return value_append_decimal(document, key, length, value);
    case BSON_TYPE_MAXKEY:
        return bson_append_maxkey(document, key, length);
    case BSON_TYPE_MINKEY:
        return bson_append_minkey(document, key, length);
    default: /* The types binary, regex, code, code with scope, and DBPointer. */
        return append_raw(document, key, (size_t)length, value);
    }
}

void truce__value_append(bson_t *document, const char *key, size_t key_length, struct value value)
{
    if (value.type == VALUE_MISSING)
        return;
    truce_assert(key_length < INT32_MAX);
    if (!value_append(document, key, (int)key_length, value))
        truce_assert(!"the document is within BSON's maximum");
}

/* Appends bytes after the last field, without the end mark. */
static void value_append_run(bson_t *to, const uint8_t *start, const uint8_t *end)
{
    uint32_t before = to->len, size = (uint32_t)(end - start);
    uint8_t *bytes = bson_reserve_buffer(to, before + size);

    truce_assert(bytes);
    memcpy(bytes + before - 1, start, size);
}

static bool value_is_one_of(const char *key, const char *const names[])
{
    while (*names && strcmp(*names, key) != 0)
        names++;
    return *names;
}

void truce__document_append_without(const bson_t *document, const char *const names[], bson_t *to)
{
    struct fields fields = truce__fields(truce__value_document(document));
    const uint8_t *run = fields.at, *at = run;
    uint32_t length;
    uint8_t *bytes;

    for (; truce__fields_next(&fields); at = fields.at) {
        if (!value_is_one_of(fields.key, names))
            continue;
        value_append_run(to, run, at);
        run = fields.at;
    }
    value_append_run(to, run, at);
    bytes = bson_reserve_buffer(to, to->len);
    length = BSON_UINT32_TO_LE(to->len);
    memcpy(bytes, &length, sizeof length);
    bytes[to->len - 1] = 0;
}

void truce__value_append_element(bson_t *array, uint32_t *index, struct value value)
{
    char digits[16];
    const char *key;
    size_t length;

    if (value.type == VALUE_MISSING)
        return;
    length = bson_uint32_to_string(*index, &key, digits, sizeof digits);
    truce__value_append(array, key, length, value);
    ++*index;
}

bool truce__value_identifies(struct value value)
{
    switch (value.type) {
    case BSON_TYPE_UTF8:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_OID:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_BOOL:
    case BSON_TYPE_BINARY:
        return true;
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_DECIMAL128:
        return !truce__number_is_nan(value);
    default:
        return false;
    }
}

bool truce__value_truth(struct value value)
{
    switch (value.type) {
    case VALUE_MISSING:
    case BSON_TYPE_UNDEFINED:
    case BSON_TYPE_NULL:
        return false;
    case BSON_TYPE_BOOL:
        return truce__value_bool(value);
    case BSON_TYPE_INT32:
        return truce__value_int32(value) != 0;
    case BSON_TYPE_INT64:
        return truce__value_int64(value) != 0;
    case BSON_TYPE_DOUBLE:
        return truce__value_double(value) != 0;
    case BSON_TYPE_DECIMAL128:
        return !bid128_isZero(truce__decimal_of_bson(truce__value_decimal(value)));
    default:
        return true;
    }
}

const char *truce__type_name(uint8_t type)
{
    static const char *const names[] = {
        [VALUE_MISSING] = "missing",         [BSON_TYPE_DOUBLE] = "double",
        [BSON_TYPE_UTF8] = "string",         [BSON_TYPE_DOCUMENT] = "object",
        [BSON_TYPE_ARRAY] = "array",         [BSON_TYPE_BINARY] = "binData",
        [BSON_TYPE_UNDEFINED] = "undefined", [BSON_TYPE_OID] = "objectId",
        [BSON_TYPE_BOOL] = "bool",           [BSON_TYPE_DATE_TIME] = "date",
        [BSON_TYPE_NULL] = "null",           [BSON_TYPE_REGEX] = "regex",
        [BSON_TYPE_DBPOINTER] = "dbPointer", [BSON_TYPE_CODE] = "javascript",
        [BSON_TYPE_SYMBOL] = "symbol",       [BSON_TYPE_CODEWSCOPE] = "javascriptWithScope",
        [BSON_TYPE_INT32] = "int",           [BSON_TYPE_TIMESTAMP] = "timestamp",
        [BSON_TYPE_INT64] = "long",          [BSON_TYPE_DECIMAL128] = "decimal",
    };

    if (type == BSON_TYPE_MINKEY)
        return "minKey";
    if (type == BSON_TYPE_MAXKEY)
        return "maxKey";
    return type < sizeof names / sizeof *names ? names[type] : "unknown";
}
