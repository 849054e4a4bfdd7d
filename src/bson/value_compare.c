/*
 * The total order of values, and the hash that agrees with it.
 *
 * The class of the type decides first; numbers are one class, and strings and symbols another.
 * Within a class, the value decides:
 *
 *     MinKey < missing, undefined < null < numbers < strings < documents < arrays < binary
 *            < ObjectId < bool < date < timestamp < regex < DBPointer < code < code with scope
 *            < MaxKey
 *
 * Documents compare as sequences of (class, name, value), and arrays as sequences of (class,
 * value). A prefix is less than the longer sequence. Strings compare by their bytes, and binaries
 * by length, then subtype, then bytes.
 *
 * The hash depends only on what the order compares: not on the process, and not on the types and
 * bytes of equal values. Unequal values have equal hashes only by chance. The hash is part of the
 * stored format. A commit document has hashes of the documents and of the old values (`was` and
 * `h`), from which a release sees whether a plain writer changed them. Another version may do the
 * release. With another hash, it would store untouched values in truce_displaced as changed ones.
 */
#include "base/assert.h"
#include "bson/decimal.h"
#include "bson/number.h"
#include "bson/value.h"

int truce__type_class(uint8_t type)
{
    switch (type) {
    case BSON_TYPE_MINKEY:
        return -1;
    case VALUE_MISSING:
    case BSON_TYPE_UNDEFINED:
        return 0;
    case BSON_TYPE_NULL:
        return 5;
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DECIMAL128:
        return 10;
    case BSON_TYPE_UTF8:
    case BSON_TYPE_SYMBOL:
        return 15;
    case BSON_TYPE_DOCUMENT:
        return 20;
    case BSON_TYPE_ARRAY:
        return 25;
    case BSON_TYPE_BINARY:
        return 30;
    case BSON_TYPE_OID:
        return 35;
    case BSON_TYPE_BOOL:
        return 40;
    case BSON_TYPE_DATE_TIME:
        return 45;
    case BSON_TYPE_TIMESTAMP:
        return 47;
    case BSON_TYPE_REGEX:
        return 50;
    case BSON_TYPE_DBPOINTER:
        return 55;
    case BSON_TYPE_CODE:
        return 60;
    case BSON_TYPE_CODEWSCOPE:
        return 65;
    case BSON_TYPE_MAXKEY:
        return 127;
    default:
        truce_assert(!"a checked document has known types only");
        return 0;
    }
}

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

/* Compares two strings by their bytes. A prefix is less than the longer string. */
static int value_compare_bytes(const void *a, size_t a_size, const void *b, size_t b_size)
{
    size_t common = a_size < b_size ? a_size : b_size;
    int order = common ? memcmp(a, b, common) : 0;

    return order ? order : ORDER(a_size, b_size);
}

static int compare_text(struct value a, struct value b)
{
    uint32_t a_length, b_length;
    const char *a_text = truce__value_text(a, &a_length);
    const char *b_text = truce__value_text(b, &b_length);

    return value_compare_bytes(a_text, a_length, b_text, b_length);
}

/* Compares two documents or arrays, element by element: by class, then by name if `names`, then by
 * value. */
static int compare_containers(struct value a, struct value b, bool names)
{
    struct fields af = truce__fields(a), bf = truce__fields(b);
    bool a_more, b_more;

    if (a.size == b.size && !memcmp(a.data, b.data, a.size))
        return 0;
    for (;;) {
        int order;

        a_more = truce__fields_next(&af);
        b_more = truce__fields_next(&bf);
        if (!a_more || !b_more)
            return (int)a_more - (int)b_more;
        order = truce__type_class(af.value.type) - truce__type_class(bf.value.type);
        if (!order && names)
            order = value_compare_bytes(af.key, af.key_length, bf.key, bf.key_length);
        if (!order)
            order = truce__value_compare(af.value, bf.value);
        if (order)
            return order;
    }
}

/* Compares the lengths, then the subtypes and the bytes. */
static int compare_sized(struct value a, struct value b, uint32_t skip)
{
    if (a.size != b.size)
        return ORDER(a.size, b.size);
    return memcmp(a.data + skip, b.data + skip, a.size - skip);
}

static int compare_regexes(struct value a, struct value b)
{
    const char *a_pattern = (const char *)a.data, *b_pattern = (const char *)b.data;
    int order = strcmp(a_pattern, b_pattern);

    if (order)
        return order;
    return strcmp(a_pattern + strlen(a_pattern) + 1, b_pattern + strlen(b_pattern) + 1);
}

/* Splits a code with scope into its two parts. */
static void split_code(struct value value, struct value *code, struct value *scope)
{
    code->type = BSON_TYPE_CODE;
    code->data = value.data + 4;
    code->size = truce__value_size(BSON_TYPE_CODE, code->data);
    scope->type = BSON_TYPE_DOCUMENT;
    scope->data = code->data + code->size;
    scope->size = value.size - 4 - code->size;
}

static int compare_code_with_scope(struct value a, struct value b)
{
    struct value a_code, a_scope, b_code, b_scope;
    int order;

    split_code(a, &a_code, &a_scope);
    split_code(b, &b_code, &b_scope);
    order = compare_text(a_code, b_code);
    return order ? order : compare_containers(a_scope, b_scope, true);
}

static int compare_timestamps(struct value a, struct value b)
{
    uint64_t a_number = (uint64_t)truce__value_int64(a), b_number = (uint64_t)truce__value_int64(b);

    return ORDER(a_number, b_number);
}

/* Compares two values of one class. */
static int compare_within(struct value a, struct value b)
{
    switch (a.type) {
    case BSON_TYPE_UTF8:
    case BSON_TYPE_SYMBOL:
    case BSON_TYPE_CODE:
        return compare_text(a, b);
    case BSON_TYPE_DOCUMENT:
        return compare_containers(a, b, true);
    case BSON_TYPE_ARRAY:
        return compare_containers(a, b, false);
    case BSON_TYPE_BINARY:
        return compare_sized(a, b, 4);
    case BSON_TYPE_DBPOINTER:
        return compare_sized(a, b, 0);
    case BSON_TYPE_OID:
    case BSON_TYPE_BOOL:
        return memcmp(a.data, b.data, a.size);
    case BSON_TYPE_DATE_TIME:
        return ORDER(truce__value_int64(a), truce__value_int64(b));
    case BSON_TYPE_TIMESTAMP:
        return compare_timestamps(a, b);
    case BSON_TYPE_REGEX:
        return compare_regexes(a, b);
    case BSON_TYPE_CODEWSCOPE:
        return compare_code_with_scope(a, b);
    default: /* The other classes have only one value. */
        return 0;
    }
}

int truce__value_compare(struct value a, struct value b)
{
    int a_class = truce__type_class(a.type), b_class = truce__type_class(b.type);

    if (a_class != b_class)
        return ORDER(a_class, b_class);
    return truce__value_is_number(a) ? truce__number_compare(a, b) : compare_within(a, b);
}

static uint64_t compare_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 32;
}

static uint64_t compare_hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t word;

    for (size_t left = size; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        hash = compare_mix(hash, word);
    }
    word = 0;
    if (size & 7)
        memcpy(&word, at, size & 7);
    return compare_mix(compare_mix(hash, word), size);
}

/* Adds a decimal that equals no double, so it is finite and not zero. Equal decimals have one form
 * here: the digits without zeros at the end. */
static uint64_t hash_decimal(uint64_t hash, bson_decimal128_t number)
{
    unsigned __int128 digits =
        (unsigned __int128)(number.high & 0x1ffffffffffffu) << 64 | number.low;
    uint64_t exponent = number.high >> 49 & 0x3fff;

    truce_assert(digits != 0);
    for (; digits % 10 == 0; digits /= 10)
        exponent++;
    hash = compare_mix(compare_mix(hash, 2), (uint64_t)digits);
    hash = compare_mix(hash, (uint64_t)(digits >> 64));
    return compare_mix(hash, exponent << 1 | number.high >> 63);
}

/* Adds a number to the hash. Equal numbers have one form here: the int64 if one is equal, else the
 * double if one is equal, else the decimal. */
static uint64_t hash_number(uint64_t hash, struct value number)
{
    int64_t integer;
    double real;
    struct value nearest = {(const uint8_t *)&real, sizeof real, BSON_TYPE_DOUBLE};
    uint64_t bits;

    if (truce__number_to_int64(number, &integer))
        return compare_mix(hash, (uint64_t)integer);
    if (truce__number_is_nan(number))
        return compare_mix(compare_mix(hash, 1), 0x7ff8000000000000u);
    real = truce__number_to_double(number);
    if (number.type == BSON_TYPE_DECIMAL128 && truce__number_compare(number, nearest) != 0)
        return hash_decimal(hash, truce__value_decimal(number));
    memcpy(&bits, &real, sizeof bits);
    return compare_mix(compare_mix(hash, 1), bits);
}

static uint64_t hash_value(uint64_t hash, struct value value);

static uint64_t hash_container(uint64_t hash, struct value value, bool names)
{
    struct fields fields = truce__fields(value);

    while (truce__fields_next(&fields)) {
        if (names)
            hash = compare_hash_bytes(hash, fields.key, fields.key_length);
        hash = hash_value(hash, fields.value);
    }
    return compare_mix(hash, 0xff);
}

/* Adds a value to the hash. Equal values have equal hashes. */
static uint64_t hash_value(uint64_t hash, struct value value)
{
    hash = compare_mix(hash, (uint64_t)truce__type_class(value.type));
    switch (value.type) {
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DECIMAL128:
        return hash_number(hash, value);
    case BSON_TYPE_DOCUMENT:
        return hash_container(hash, value, true);
    case BSON_TYPE_ARRAY:
        return hash_container(hash, value, false);
    case BSON_TYPE_CODEWSCOPE: {
        struct value code, scope;

        split_code(value, &code, &scope);
        return hash_container(compare_hash_bytes(hash, code.data, code.size), scope, true);
    }
    default: /* For the other types, equal values have equal bytes. */
        return compare_hash_bytes(hash, value.data, value.size);
    }
}

uint64_t truce__value_hash(struct value value)
{
    uint64_t hash = hash_value(0x243f6a8885a308d3u, value);

    return compare_mix(hash, hash >> 29);
}
