/*
 * Encodes values as keys that memcmp orders as MongoDB orders the values.
 *
 * A key is a type class, followed by a body that orders the values of the class:
 *
 *     "ab"            40 | 'a' 'b' 00 00
 *     1, 1.0          30 | 03 | 3f f0 00 00
 *     {x: [null]}     48 | 50 'x' 00 | 20 | 00 | 00
 *                     ^ class of the document
 *                          ^ class of the field's value, the field's name, the value's body: the
 *                            order in which MongoDB compares two fields
 *                                          ^ end of the array ^ end of the document
 *
 * Invariants:
 *   1. memcmp orders two encodings as truce__value_compare orders their values. Equal values have
 *      equal bytes, across all types of a class.
 *   2. No encoding is a proper prefix of another: each body has a fixed size or an end mark. A
 *      compound key is therefore the concatenation of its fields' encodings. Inverting the bytes of
 *      a field makes it descending.
 *   3. A class byte is neither 00 nor ff, and no two class bytes are neighbors. The byte 00 ends a
 *      document, and a byte between two classes bounds a scan.
 *
 * Strings may contain any byte: 00 becomes 00 ff, and 00 00 ends the string.
 *
 * Numbers. A positive number x is encoded as the greatest double that does not exceed x. If x is
 * not equal to that double, x follows as a decimal of 34 digits:
 *
 *     double, big endian, without trailing zero bytes, escaped like text | 00 00        exact
 *     ...                                            | 00 01 | exponent 2 | digits 15   above it
 *
 * A number between two neighboring doubles is an int64 (19 digits) or a decimal128 (34 digits), so
 * 34 digits are exact. The bits of positive doubles order as the doubles do. A double is less than
 * every number between it and the next double. Decimals beyond the range of doubles follow the
 * greatest double, or zero. A negative number has the inverted bytes of its absolute value. One
 * byte at the beginning distinguishes NaN, negative numbers, zero, and positive numbers.
 *
 * Deliberately not done: decoding. Keys are only compared; the document has the value. The
 * exceptions are whole numbers and ObjectIds: truce__key_split splits their keys into a run and a
 * step, from which engine/id_row_cache.c predicts the row of a document.
 */
#include "bson/key_encoding.h"

#include <math.h>

#include "base/assert.h"
#include "bson/decimal.h"

enum {
    CLASS_END = 0x00,
    CLASS_MIN = 0x10,
    CLASS_UNDEFINED = 0x18,
    CLASS_NULL = 0x20,
    CLASS_NUMBER = 0x30,
    CLASS_TEXT = 0x40,
    CLASS_DOCUMENT = 0x48,
    CLASS_ARRAY = 0x50,
    CLASS_BINARY = 0x58,
    CLASS_OID = 0x60,
    CLASS_BOOL = 0x68,
    CLASS_DATE = 0x70,
    CLASS_TIMESTAMP = 0x78,
    CLASS_REGEX = 0x80,
    CLASS_DBPOINTER = 0x88,
    CLASS_CODE = 0x90,
    CLASS_CODE_SCOPE = 0x98,
    CLASS_MAX = 0xf0,
};

enum { NUMBER_NAN = 0x00, NUMBER_NEGATIVE = 0x01, NUMBER_ZERO = 0x02, NUMBER_POSITIVE = 0x03 };

#define DECIMAL_BIAS 6176

/* Returns the class byte of a type. */
static uint8_t keys_class_of(uint8_t type)
{
    switch (type) {
    case BSON_TYPE_MINKEY:
        return CLASS_MIN;
    case VALUE_MISSING:
    case BSON_TYPE_UNDEFINED:
        return CLASS_UNDEFINED;
    case BSON_TYPE_NULL:
        return CLASS_NULL;
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DECIMAL128:
        return CLASS_NUMBER;
    case BSON_TYPE_UTF8:
    case BSON_TYPE_SYMBOL:
        return CLASS_TEXT;
    case BSON_TYPE_DOCUMENT:
        return CLASS_DOCUMENT;
    case BSON_TYPE_ARRAY:
        return CLASS_ARRAY;
    case BSON_TYPE_BINARY:
        return CLASS_BINARY;
    case BSON_TYPE_OID:
        return CLASS_OID;
    case BSON_TYPE_BOOL:
        return CLASS_BOOL;
    case BSON_TYPE_DATE_TIME:
        return CLASS_DATE;
    case BSON_TYPE_TIMESTAMP:
        return CLASS_TIMESTAMP;
    case BSON_TYPE_REGEX:
        return CLASS_REGEX;
    case BSON_TYPE_DBPOINTER:
        return CLASS_DBPOINTER;
    case BSON_TYPE_CODE:
        return CLASS_CODE;
    case BSON_TYPE_CODEWSCOPE:
        return CLASS_CODE_SCOPE;
    default:
        truce_assert(type == BSON_TYPE_MAXKEY);
        return CLASS_MAX;
    }
}

static void put_big_endian(uint8_t *at, uint64_t number, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0; number >>= 8)
        at[i] = (uint8_t)number;
}

static void append_big_endian(struct buffer *key, uint64_t number, unsigned bytes)
{
    truce__buffer_reserve(key, bytes);
    put_big_endian(key->bytes + key->size, number, bytes);
    key->size += bytes;
}

/* Appends the bytes, escaped, without the end mark. */
static void keys_append_escaped(struct buffer *key, const uint8_t *text, size_t size)
{
    uint8_t *to;

    truce__buffer_reserve(key, 2 * size);
    to = key->bytes + key->size;
    for (size_t i = 0; i < size; i++) {
        *to++ = text[i];
        if (text[i] == 0)
            *to++ = 0xff;
    }
    key->size = (size_t)(to - key->bytes);
}

static void keys_append_text(struct buffer *key, const void *text, size_t size)
{
    keys_append_escaped(key, text, size);
    append_big_endian(key, 0x0000, 2);
}

static void key_invert_bytes(struct buffer *key, size_t from)
{
    for (size_t i = from; i < key->size; i++)
        key->bytes[i] = (uint8_t)~key->bytes[i];
}

/* ---- numbers -------------------------------------------------------------------------------- */

typedef unsigned __int128 digits;

/* The absolute value of a number. `below` is the greatest double that does not exceed it. A number
 * that is not equal to `below` is coefficient * 10^exponent. */
struct magnitude {
    double below;
    bool exact;
    digits coefficient;
    int exponent;
};

static digits power_of_ten(int exponent)
{
    digits power = 1;

    while (exponent-- > 0)
        power *= 10;
    return power;
}

static struct magnitude magnitude_of_int64(uint64_t number)
{
    uint64_t kept = number;

    if (number >> 53) {
        int excess = 64 - __builtin_clzll(number) - 53;
        kept = number >> excess << excess;
    }
    return (struct magnitude){(double)kept, kept == number, number, 0};
}

/* Returns the magnitude of a finite, non-negative decimal. */
static struct magnitude magnitude_of_decimal(bson_decimal128_t number)
{
    unsigned flags = 0;
    double below = bid128_to_binary64(truce__decimal_of_bson(number), BID_ROUNDING_TO_ZERO, &flags);
    digits high = number.high & 0x1ffffffffffffULL;

    return (struct magnitude){below, !(flags & BID_INEXACT_EXCEPTION), high << 64 | number.low,
                              (int)(number.high >> 49 & 0x3fff) - DECIMAL_BIAS};
}

/* Appends 34 digits, the first of which is not zero, so that equal values have equal bytes. */
static void append_remainder(struct buffer *key, struct magnitude number)
{
    static const int exponent_bias = DECIMAL_BIAS + 34;

    truce_assert(number.coefficient > 0 && number.coefficient < power_of_ten(34));
    while (number.coefficient < power_of_ten(33)) {
        number.coefficient *= 10;
        number.exponent--;
    }
    append_big_endian(key, (uint64_t)(number.exponent + exponent_bias), 2);
    append_big_endian(key, (uint64_t)(number.coefficient >> 64), 7);
    append_big_endian(key, (uint64_t)number.coefficient, 8);
}

/* Appends the double without its trailing zero bytes and, if the number is greater than the double,
 * the decimal. */
static void append_magnitude(struct buffer *key, struct magnitude number)
{
    uint8_t bytes[8];
    size_t size = sizeof bytes;
    uint64_t bits;

    memcpy(&bits, &number.below, sizeof bits);
    put_big_endian(bytes, bits, 8);
    while (size && bytes[size - 1] == 0)
        size--;
    keys_append_escaped(key, bytes, size);
    append_big_endian(key, number.exact ? 0x0000 : 0x0001, 2);
    if (!number.exact)
        append_remainder(key, number);
}

static void append_signed(struct buffer *key, bool negative, struct magnitude number)
{
    size_t start;

    truce__buffer_append_byte(key, negative ? NUMBER_NEGATIVE : NUMBER_POSITIVE);
    start = key->size;
    append_magnitude(key, number);
    if (negative)
        key_invert_bytes(key, start);
}

static void append_double(struct buffer *key, double number)
{
    if (isnan(number))
        truce__buffer_append_byte(key, NUMBER_NAN);
    else if (number == 0)
        truce__buffer_append_byte(key, NUMBER_ZERO);
    else
        append_signed(key, number < 0, (struct magnitude){fabs(number), true, 0, 0});
}

static void append_int64(struct buffer *key, int64_t number)
{
    if (number == 0)
        truce__buffer_append_byte(key, NUMBER_ZERO);
    else
        append_signed(key, number < 0,
                      magnitude_of_int64(number < 0 ? -(uint64_t)number : (uint64_t)number));
}

/* Returns whether a decimal is zero. A coefficient beyond 34 digits means zero (IEEE 754-2008,
 * 3.5.2). */
static bool decimal_is_zero(bson_decimal128_t number)
{
    digits coefficient = (digits)(number.high & 0x1ffffffffffffULL) << 64 | number.low;

    return (number.high >> 61 & 3) == 3 || coefficient == 0 || coefficient >= power_of_ten(34);
}

/* Appends a decimal. NaN, infinity, and zero have the same bytes as those of doubles. */
static void keys_append_decimal(struct buffer *key, bson_decimal128_t number)
{
    bool negative = number.high >> 63;

    if ((number.high >> 58 & 0x1f) == 0x1f) {
        truce__buffer_append_byte(key, NUMBER_NAN);
    } else if ((number.high >> 58 & 0x1f) == 0x1e) {
        append_double(key, negative ? -INFINITY : INFINITY);
    } else if (decimal_is_zero(number)) {
        truce__buffer_append_byte(key, NUMBER_ZERO);
    } else {
        number.high &= ~(1ULL << 63);
        append_signed(key, negative, magnitude_of_decimal(number));
    }
}

/* Appends the body of a number of any type. */
static void keys_append_number(struct buffer *key, struct value value)
{
    switch (value.type) {
    case BSON_TYPE_INT32:
        append_int64(key, truce__value_int32(value));
        break;
    case BSON_TYPE_INT64:
        append_int64(key, truce__value_int64(value));
        break;
    case BSON_TYPE_DOUBLE:
        append_double(key, truce__value_double(value));
        break;
    default:
        truce_assert(value.type == BSON_TYPE_DECIMAL128);
        keys_append_decimal(key, truce__value_decimal(value));
        break;
    }
}

/* ---- the other types ------------------------------------------------------------------------ */

static void append_body(struct buffer *key, struct value value);

static void keys_append_container(struct buffer *key, struct value value)
{
    struct fields fields = truce__fields(value);

    while (truce__fields_next(&fields)) {
        truce__buffer_append_byte(key, keys_class_of(fields.value.type));
        if (value.type == BSON_TYPE_DOCUMENT)
            truce__buffer_append(key, fields.key, fields.key_length + 1);
        append_body(key, fields.value);
    }
    truce__buffer_append_byte(key, CLASS_END);
}

/* Appends a binary, which is ordered by length, then subtype, then bytes. */
static void keys_append_binary(struct buffer *key, struct value value)
{
    append_big_endian(key, value.size - 5, 4);
    truce__buffer_append(key, value.data + 4, value.size - 4);
}

static void append_code_with_scope(struct buffer *key, struct value value)
{
    int32_t length;
    struct value scope = {.type = BSON_TYPE_DOCUMENT};

    memcpy(&length, value.data + 4, 4);
    keys_append_text(key, value.data + 8, (size_t)length - 1);
    scope.data = value.data + 8 + length;
    scope.size = value.size - 8 - (uint32_t)length;
    keys_append_container(key, scope);
}

static void append_string(struct buffer *key, struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);

    keys_append_text(key, text, length);
}

/* Appends the body of a key, after its class. */
static void append_body(struct buffer *key, struct value value)
{
    switch (keys_class_of(value.type)) {
    case CLASS_NUMBER:
        keys_append_number(key, value);
        break;
    case CLASS_TEXT:
    case CLASS_CODE:
        append_string(key, value);
        break;
    case CLASS_DOCUMENT:
    case CLASS_ARRAY:
        keys_append_container(key, value);
        break;
    case CLASS_BINARY:
        keys_append_binary(key, value);
        break;
    case CLASS_DATE:
        append_big_endian(key, (uint64_t)truce__value_int64(value) ^ 1ULL << 63, 8);
        break;
    case CLASS_TIMESTAMP:
        append_big_endian(key, (uint64_t)truce__value_int64(value), 8);
        break;
    case CLASS_OID:
    case CLASS_BOOL:
    case CLASS_REGEX: /* A regex consists of two strings, each of which ends in a NUL. */
        truce__buffer_append(key, value.data, value.size);
        break;
    case CLASS_DBPOINTER: /* A DBPointer is ordered by length, then bytes. */
        append_big_endian(key, value.size, 4);
        truce__buffer_append(key, value.data, value.size);
        break;
    case CLASS_CODE_SCOPE:
        append_code_with_scope(key, value);
        break;
    default: /* MinKey, undefined, null, and MaxKey have only a class. */
        break;
    }
}

void truce__key_append(struct buffer *key, struct value value, bool descending)
{
    size_t start = key->size;

    truce__buffer_append_byte(key, keys_class_of(value.type));
    append_body(key, value);
    if (descending)
        key_invert_bytes(key, start);
}

void truce__key_append_path(struct buffer *key, const char *path, size_t length)
{
    keys_append_text(key, path, length);
}

void truce__key_append_class(struct buffer *key, uint8_t type, bool descending)
{
    uint8_t class = keys_class_of(type);

    truce__buffer_append_byte(key, descending ? (uint8_t) ~class : class);
}

bool truce__key_successor(struct buffer *key)
{
    while (key->size && key->bytes[key->size - 1] == 0xff)
        key->size--;
    if (!key->size)
        return false;
    key->bytes[key->size - 1]++;
    return true;
}

/* ---- runs ----------------------------------------------------------------------------------- */

/* Decodes an exact positive number, after its class and sign. Returns false if the bytes are
 * something else. */
static bool keys_double_of(const uint8_t *key, size_t size, double *number)
{
    uint8_t bytes[8] = {0};
    size_t at = 0, count = 0;
    uint64_t bits = 0;

    while (at + 1 < size && (key[at] || key[at + 1])) {
        if (count == sizeof bytes || (!key[at] && key[at + 1] != 0xff))
            return false;
        bytes[count++] = key[at];
        at += key[at] ? 1 : 2;
    }
    if (at + 2 != size)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        bits = bits << 8 | bytes[i];
    memcpy(number, &bits, sizeof bits);
    return true;
}

static bool keys_whole_of(const uint8_t *key, size_t size, uint64_t *whole)
{
    double number = 0;
    bool zero = size == 2 && key[1] == NUMBER_ZERO;

    if (!zero &&
        (size < 2 || key[1] != NUMBER_POSITIVE || !keys_double_of(key + 2, size - 2, &number)))
        return false;
    *whole = number >= 0 && number < 0x1p53 ? (uint64_t)number : 0;
    return (double)*whole == number;
}

bool truce__key_split(const uint8_t *key, size_t size, uint8_t run[KEY_RUN_BYTES], uint8_t *step,
                      int64_t *whole)
{
    uint64_t number;

    *whole = -1;
    if (size == KEY_RUN_BYTES + 1 && key[0] == CLASS_OID) {
        memcpy(run, key, KEY_RUN_BYTES);
        *step = key[KEY_RUN_BYTES];
        return true;
    }
    if (!size || key[0] != CLASS_NUMBER || !keys_whole_of(key, size, &number))
        return false;
    memset(run, 0, KEY_RUN_BYTES);
    run[0] = CLASS_NUMBER;
    put_big_endian(run + 1, number >> 8, 8);
    *step = (uint8_t)number;
    *whole = (int64_t)number;
    return true;
}
