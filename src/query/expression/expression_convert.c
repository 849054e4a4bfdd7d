#include <math.h>

#include "bson/binary_text.h"
#include "bson/date.h"
#include "bson/decimal.h"
#include "bson/json.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

/*
 * Conversions: $convert and its short forms, and $type. A table lists which type converts to which.
 * If a conversion fails (241), onError may give another result. Errors in the other arguments of
 * $convert have codes of their own, and onError does not apply.
 */

enum convert_format {
    FORMAT_NONE,
    FORMAT_AUTO,
    FORMAT_BASE64,
    FORMAT_BASE64URL,
    FORMAT_HEX,
    FORMAT_UTF8,
    FORMAT_UUID,
};

/* The arguments of $convert besides the type. */
struct convert_how {
    /* The base of a number in a string: 2, 8, 10, or 16, or 0 if the argument is absent. */
    int base;
    /* The format of a binary in a string. */
    enum convert_format format;
    /* The subtype of a binary result. */
    bson_subtype_t subtype;
    /* The most significant byte of a number in a binary comes first. */
    bool big_endian;
};

typedef truce_status convert_function(struct evaluation *run, struct value input,
                                      const struct convert_how *how, struct value *result);

static truce_status convert_cannot(struct evaluation *run, struct value input, const char *to)
{
    char shown[100];

    return truce__refuse(CODE_CONVERSION_FAILURE, run->error, "%s %s cannot be converted to %s",
                         truce__type_name(input.type),
                         truce__value_show(input, shown, sizeof shown), to);
}

/* ---- binaries ------------------------------------------------------------------------------- */

struct binary {
    const uint8_t *bytes;
    uint32_t size;
    bson_subtype_t subtype;
};

static struct binary convert_read_binary(struct value value)
{
    struct binary binary = {value.data + 5, value.size - 5, (bson_subtype_t)value.data[4]};

    /* This old form begins with a second length. */
    if (binary.subtype == BSON_SUBTYPE_BINARY_DEPRECATED && binary.size >= 4) {
        binary.bytes += 4;
        binary.size -= 4;
    }
    return binary;
}

/* Returns room for the `size` bytes of a binary, and its value; NULL if the memory is used up. */
static uint8_t *begin_binary(struct evaluation *run, uint32_t size, bson_subtype_t subtype,
                             struct value *value)
{
    uint32_t inner = subtype == BSON_SUBTYPE_BINARY_DEPRECATED ? 4 : 0;
    uint32_t length = BSON_UINT32_TO_LE(size + inner), length_inner = BSON_UINT32_TO_LE(size);
    uint8_t *data = truce__evaluation_take(run, (size_t)size + inner + 5);

    if (!data)
        return NULL;
    memcpy(data, &length, 4);
    data[4] = (uint8_t)subtype;
    memcpy(data + 5, &length_inner, inner);
    *value = (struct value){data, size + inner + 5, BSON_TYPE_BINARY};
    return data + 5 + inner;
}

static void copy_in_order(uint8_t *to, const uint8_t *from, uint32_t size, bool reversed)
{
    for (uint32_t i = 0; i < size; i++)
        to[i] = from[reversed ? size - 1 - i : i];
}

static bool is_swapped(const struct convert_how *how)
{
    return how->big_endian != (BSON_BYTE_ORDER == BSON_BIG_ENDIAN);
}

/* Reads an integer of 1, 2, 4, or 8 bytes, at most `size_max`. */
static bool read_binary_int64(struct value input, const struct convert_how *how, uint32_t size_max,
                              int64_t *number)
{
    struct binary binary = convert_read_binary(input);
    uint64_t bits = 0;

    if (!binary.size || (binary.size & (binary.size - 1)) || binary.size > size_max)
        return false;
    for (uint32_t i = 0; i < binary.size; i++)
        bits = bits << 8 | binary.bytes[how->big_endian ? i : binary.size - 1 - i];
    bits <<= 64 - 8 * binary.size;
    *number = (int64_t)bits >> (64 - 8 * binary.size);
    return true;
}

/* Reads a double of 4 or 8 bytes. */
static bool read_binary_double(struct value input, const struct convert_how *how, double *number)
{
    struct binary binary = convert_read_binary(input);
    uint8_t bytes[8];
    float single;

    if (binary.size != sizeof single && binary.size != sizeof *number)
        return false;
    copy_in_order(bytes, binary.bytes, binary.size, is_swapped(how));
    if (binary.size == sizeof *number) {
        memcpy(number, bytes, sizeof *number);
        return true;
    }
    memcpy(&single, bytes, sizeof single);
    *number = (double)single;
    return true;
}

static truce_status number_to_binary(struct evaluation *run, struct value input,
                                     const struct convert_how *how, struct value *result)
{
    uint8_t *to = begin_binary(run, input.size, how->subtype, result);

    if (!to)
        return TRUCE_LIMIT;
    copy_in_order(to, input.data, input.size,
                  how->big_endian); /* The result in BSON is little-endian. */
    return TRUCE_OK;
}

/* Reads a string in a format into bytes. Returns false if it does not have the format. */
static bool read_text(const char *text, uint32_t length, enum convert_format format, uint8_t *bytes,
                      size_t *size)
{
    switch (format) {
    case FORMAT_BASE64:
    case FORMAT_BASE64URL:
        return truce__base64_read(text, length, format == FORMAT_BASE64URL, bytes, size);
    case FORMAT_HEX:
        *size = length / 2;
        return truce__hex_read(text, length, bytes);
    case FORMAT_UTF8:
        *size = length;
        memcpy(bytes, text, length);
        return truce__utf8_check(text, length) == length;
    case FORMAT_UUID:
        *size = UUID_BYTES;
        return length >= UUID_BYTES && truce__uuid_read(text, length, bytes);
    default:
        return false;
    }
}

/* Converts a string to a binary. The format uuid and the subtype for UUIDs belong together. */
static truce_status text_to_binary(struct evaluation *run, struct value input,
                                   const struct convert_how *how, struct value *result)
{
    uint32_t length;
    const char *text = truce__value_text(input, &length);
    uint8_t *bytes = truce__evaluation_take(run, (size_t)length + 1), *to;
    size_t size = 0;

    if (!bytes)
        return TRUCE_LIMIT;
    if ((how->format == FORMAT_UUID) != (how->subtype == BSON_SUBTYPE_UUID) ||
        !read_text(text, length, how->format, bytes, &size))
        return convert_cannot(run, input, "binData in this format and of this subtype");
    to = begin_binary(run, (uint32_t)size, how->subtype, result);
    if (!to)
        return TRUCE_LIMIT;
    memcpy(to, bytes, size);
    return TRUCE_OK;
}

/* Converts to a binary of the subtype in `how`. */
static truce_status to_binary(struct evaluation *run, struct value input,
                              const struct convert_how *how, struct value *result)
{
    switch (input.type) {
    case BSON_TYPE_BINARY:
        if (convert_read_binary(input).subtype != how->subtype)
            return convert_cannot(run, input, "binData of another subtype");
        *result = input;
        return TRUCE_OK;
    case BSON_TYPE_UTF8:
        return text_to_binary(run, input, how, result);
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DOUBLE:
        return number_to_binary(run, input, how, result);
    default:
        return convert_cannot(run, input, "binData");
    }
}

/* Converts a binary to a string. The format auto means uuid for UUIDs, and otherwise base64. */
static truce_status binary_to_text(struct evaluation *run, struct value input,
                                   const struct convert_how *how, struct value *result)
{
    struct binary binary = convert_read_binary(input);
    bool is_uuid = binary.subtype == BSON_SUBTYPE_UUID && binary.size == UUID_BYTES;
    enum convert_format format = how->format;
    size_t length = 2 * (size_t)binary.size + UUID_TEXT;
    char *text = (char *)truce__evaluation_take(run, length);

    if (!text)
        return TRUCE_LIMIT;
    if (format == FORMAT_AUTO)
        format = is_uuid ? FORMAT_UUID : FORMAT_BASE64;
    if (format == FORMAT_UUID) {
        if (!is_uuid)
            return convert_cannot(run, input, "a string in the format uuid");
        truce__uuid_write(binary.bytes, text);
        length = UUID_TEXT;
    } else if (format == FORMAT_HEX) {
        truce__hex_write(binary.bytes, binary.size, text);
        length = 2 * (size_t)binary.size;
    } else if (format == FORMAT_UTF8) {
        if (truce__utf8_check((const char *)binary.bytes, binary.size) != binary.size)
            return convert_cannot(run, input, "a string in the format utf8");
        memcpy(text, binary.bytes, binary.size);
        length = binary.size;
    } else {
        length = truce__base64_write(binary.bytes, binary.size, format == FORMAT_BASE64URL, text);
    }
    *result = truce__value_from_text(run->arena, text, length);
    return TRUCE_OK;
}

/* ---- numbers in a base ---------------------------------------------------------------------- */

static int base_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* Reads an integer in a base. Returns false if it is invalid or beyond 64 bits. */
static bool read_in_base(struct value input, int base, int64_t *number)
{
    uint32_t length, i = 0;
    const char *text = truce__value_text(input, &length);
    bool negative = length && text[0] == '-';

    i += length && (text[0] == '-' || text[0] == '+');
    if (i == length)
        return false;
    for (*number = 0; i < length; i++) {
        int digit = base_digit(text[i]);

        if (digit >= base || __builtin_mul_overflow(*number, (int64_t)base, number) ||
            __builtin_add_overflow(*number, negative ? -digit : digit, number))
            return false;
    }
    return true;
}

/* Writes an integer in a base. Negative ones have a minus sign. */
static truce_status number_in_base(struct evaluation *run, struct value input, int base,
                                   struct value *result)
{
    char text[70], *at = text + sizeof text;
    uint64_t left;
    int64_t number;

    if (!truce__number_to_int64(input, &number))
        return convert_cannot(run, input, "a string in a base: it is not a 64-bit integer");
    left = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--at = "0123456789ABCDEF"[left % (unsigned)base];
    while (left /= (unsigned)base);
    if (number < 0)
        *--at = '-';
    *result = truce__value_from_text(run->arena, at, (size_t)(text + sizeof text - at));
    return TRUCE_OK;
}

/* ---- the conversions ------------------------------------------------------------------------ */

/* Reads as an int64: an integer, date, or bool; a double or decimal without its fraction; a string
 * with an integer; a binary of at most `size_max` bytes. */
static bool read_int64(struct value input, const struct convert_how *how, uint32_t size_max,
                       int64_t *number)
{
    _IDEC_flags flags = 0;
    uint32_t length;
    const char *text;

    switch (input.type) {
    case BSON_TYPE_DOUBLE: {
        double real = truce__value_double(input);
        if (!(real >= -0x1p63 && real < 0x1p63))
            return false;
        *number = (int64_t)real;
        return true;
    }
    case BSON_TYPE_DECIMAL128:
        *number = bid128_to_int64_int(truce__decimal_of_bson(truce__value_decimal(input)), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    case BSON_TYPE_BOOL:
        *number = truce__value_bool(input);
        return true;
    case BSON_TYPE_DATE_TIME:
        *number = truce__value_int64(input);
        return true;
    case BSON_TYPE_UTF8:
        if (how->base)
            return read_in_base(input, how->base, number);
        text = truce__value_text(input, &length);
        return truce__int64_read(text, length, number);
    case BSON_TYPE_BINARY:
        return read_binary_int64(input, how, size_max, number);
    default:
        return truce__value_is_number(input) && truce__number_to_int64(input, number);
    }
}

static truce_status to_int(struct evaluation *run, struct value input,
                           const struct convert_how *how, struct value *result)
{
    int64_t number;

    if (input.type == BSON_TYPE_DATE_TIME || !read_int64(input, how, 4, &number) ||
        number < INT32_MIN || number > INT32_MAX)
        return convert_cannot(run, input, "int");
    *result = truce__value_from_int32(run->arena, (int32_t)number);
    return TRUCE_OK;
}

static truce_status to_long(struct evaluation *run, struct value input,
                            const struct convert_how *how, struct value *result)
{
    int64_t number;

    if (!read_int64(input, how, 8, &number))
        return convert_cannot(run, input, "long");
    *result = truce__value_from_int64(run->arena, number);
    return TRUCE_OK;
}

/* Returns false if the decimal is too large for a double, or so small that digits are lost. */
static bool is_in_range_of_double(struct value number)
{
    _IDEC_flags flags = 0;

    (void)bid128_to_binary64(truce__decimal_of_bson(truce__value_decimal(number)),
                             BID_ROUNDING_TO_NEAREST, &flags);
    return !(flags & (BID_INVALID_EXCEPTION | BID_OVERFLOW_EXCEPTION | BID_UNDERFLOW_EXCEPTION));
}

/* Converts to a double. Fails if a decimal is out of range. */
static truce_status to_double(struct evaluation *run, struct value input,
                              const struct convert_how *how, struct value *result)
{
    double number = 0;
    bool possible = true;
    uint32_t length;
    const char *text;
    int64_t whole;

    if (input.type == BSON_TYPE_UTF8 && how->base) {
        possible = read_in_base(input, how->base, &whole);
        number = possible ? (double)whole : 0;
    } else if (input.type == BSON_TYPE_UTF8) {
        text = truce__value_text(input, &length);
        possible = truce__double_read(text, length, &number);
    } else if (input.type == BSON_TYPE_BINARY) {
        possible = read_binary_double(input, how, &number);
    } else if (truce__value_is_number(input)) {
        number = truce__number_to_double(input);
        possible = input.type != BSON_TYPE_DECIMAL128 || is_in_range_of_double(input);
    } else if (input.type == BSON_TYPE_BOOL) {
        number = truce__value_bool(input);
    } else if (input.type == BSON_TYPE_DATE_TIME) {
        number = (double)truce__value_int64(input);
    } else {
        possible = false;
    }
    if (!possible)
        return convert_cannot(run, input, "double");
    *result = truce__value_from_double(run->arena, number);
    return TRUCE_OK;
}

/* Converts to a decimal. */
static truce_status to_decimal(struct evaluation *run, struct value input,
                               const struct convert_how *how, struct value *result)
{
    bson_decimal128_t number;
    uint32_t length;
    const char *text;
    int64_t whole;

    if (truce__value_is_number(input)) {
        number = truce__number_to_decimal(input);
    } else if (input.type == BSON_TYPE_UTF8 && !how->base) {
        text = truce__value_text(input, &length);
        if (!truce__decimal_read(text, length, &number))
            return convert_cannot(run, input, "decimal");
    } else if (input.type != BSON_TYPE_BINARY && read_int64(input, how, 0, &whole)) {
        number = truce__decimal_to_bson(bid128_from_int64(whole));
    } else {
        return convert_cannot(run, input, "decimal");
    }
    *result = truce__value_from_decimal(run->arena, number);
    return TRUCE_OK;
}

static truce_status to_bool(struct evaluation *run, struct value input,
                            const struct convert_how *how, struct value *result)
{
    *result = truce__value_from_bool(truce__value_truth(input));
    return TRUCE_OK;
}

/* Converts to a string. */
static truce_status to_text(struct evaluation *run, struct value input,
                            const struct convert_how *how, struct value *result)
{
    char shown[NUMBER_TEXT_MAX];
    const char *text = shown;
    bson_oid_t oid;

    if (input.type == BSON_TYPE_UTF8) {
        *result = input;
        return TRUCE_OK;
    }
    if (input.type == BSON_TYPE_BINARY)
        return binary_to_text(run, input, how, result);
    if (truce__value_is_number(input) && how->base)
        return number_in_base(run, input, how->base, result);
    if (truce__value_is_number(input)) {
        truce__number_show(input, shown);
    } else if (input.type == BSON_TYPE_BOOL) {
        text = truce__value_bool(input) ? "true" : "false";
    } else if (input.type == BSON_TYPE_DATE_TIME) {
        truce__date_show(truce__value_int64(input), shown);
    } else if (input.type == BSON_TYPE_OID) {
        memcpy(oid.bytes, input.data, 12);
        bson_oid_to_string(&oid, shown);
    } else {
        return convert_cannot(run, input, "string");
    }
    *result = truce__value_from_text(run->arena, text, strlen(text));
    return TRUCE_OK;
}

/* Converts a string of 24 hexadecimal digits to an ObjectId. */
static truce_status to_oid(struct evaluation *run, struct value input,
                           const struct convert_how *how, struct value *result)
{
    uint32_t length;
    const char *text;
    bson_oid_t oid;

    if (input.type == BSON_TYPE_OID) {
        *result = input;
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_UTF8)
        return convert_cannot(run, input, "objectId");
    text = truce__value_text(input, &length);
    if (!bson_oid_is_valid(text, length) || length != 24)
        return convert_cannot(run, input, "objectId");
    bson_oid_init_from_string(&oid, text);
    *result = (struct value){truce__arena_copy(run->arena, oid.bytes, 12), 12, BSON_TYPE_OID};
    return TRUCE_OK;
}

/* Converts to a date: strings, timestamps, ObjectIds, and numbers of milliseconds except int32. */
static truce_status to_date(struct evaluation *run, struct value input,
                            const struct convert_how *how, struct value *result)
{
    uint32_t length;
    const char *text;
    int64_t date;
    truce_status status;

    if (input.type == BSON_TYPE_UTF8) {
        text = truce__value_text(input, &length);
        status = truce__date_parse(text, length, NULL, &date, run->error);
        if (status)
            return status;
    } else if (input.type == BSON_TYPE_INT32 || input.type == BSON_TYPE_BOOL ||
               input.type == BSON_TYPE_BINARY ||
               (!truce__value_to_date(input, &date) && !read_int64(input, how, 0, &date))) {
        return convert_cannot(run, input, "date");
    }
    *result = truce__value_from_date(run->arena, date);
    return TRUCE_OK;
}

static truce_status to_nothing(struct evaluation *run, struct value input,
                               const struct convert_how *how, struct value *result)
{
    return convert_cannot(run, input, "that type");
}

/* -- the target ------------------------------------------------------------------------------- */

struct target {
    const char *name;
    /* The BSON type. */
    int number;
    convert_function *convert;
};

static const struct target targets[] = {
    {"double", BSON_TYPE_DOUBLE, to_double},
    {"string", BSON_TYPE_UTF8, to_text},
    {"objectId", BSON_TYPE_OID, to_oid},
    {"bool", BSON_TYPE_BOOL, to_bool},
    {"date", BSON_TYPE_DATE_TIME, to_date},
    {"int", BSON_TYPE_INT32, to_int},
    {"long", BSON_TYPE_INT64, to_long},
    {"decimal", BSON_TYPE_DECIMAL128, to_decimal},
    {"missing", 0, to_nothing},
    {"object", BSON_TYPE_DOCUMENT, to_nothing},
    {"array", BSON_TYPE_ARRAY, to_nothing},
    {"binData", BSON_TYPE_BINARY, to_binary},
    {"undefined", BSON_TYPE_UNDEFINED, to_nothing},
    {"null", BSON_TYPE_NULL, to_nothing},
    {"regex", BSON_TYPE_REGEX, to_nothing},
    {"dbPointer", BSON_TYPE_DBPOINTER, to_nothing},
    {"javascript", BSON_TYPE_CODE, to_nothing},
    {"symbol", BSON_TYPE_SYMBOL, to_nothing},
    {"javascriptWithScope", BSON_TYPE_CODEWSCOPE, to_nothing},
    {"timestamp", BSON_TYPE_TIMESTAMP, to_nothing},
    {"minKey", -1, to_nothing},
    {"maxKey", 127, to_nothing},
};

#define TARGETS_COUNT (sizeof targets / sizeof *targets)

static truce_status find_target_name(struct evaluation *run, struct value to,
                                     const struct target **target)
{
    uint32_t length;
    const char *name = truce__value_text(to, &length);

    for (size_t i = 0; i < TARGETS_COUNT; i++) {
        if (strlen(targets[i].name) == length && !memcmp(targets[i].name, name, length)) {
            *target = &targets[i];
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_BAD_VALUE, run->error, "\"to\" of $convert: unknown type \"%.*s\"",
                         (int)BSON_MIN(length, 100), name);
}

/* Finds the target type by its name or its number. */
static truce_status find_target(struct evaluation *run, struct value to,
                                const struct target **target)
{
    int32_t number;

    if (to.type == BSON_TYPE_UTF8)
        return find_target_name(run, to, target);
    if (!truce__value_is_number(to))
        return truce__refuse_value(CODE_FAILED_TO_PARSE, to, run->error,
                                   "\"to\" of $convert must be a string or a number");
    if (!truce__value_to_int32(to, &number))
        return truce__refuse_value(CODE_FAILED_TO_PARSE, to, run->error,
                                   "\"to\" of $convert must be an integer");
    for (size_t i = 0; i < TARGETS_COUNT; i++) {
        if (targets[i].number == number) {
            *target = &targets[i];
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_FAILED_TO_PARSE, run->error,
                         "\"to\" of $convert: unknown type number %d", number);
}

/* -- the other arguments ---------------------------------------------------------------------- */

/* Reads the subtype of a binary. The numbers from 10 to 127 are not assigned. */
static truce_status read_subtype(struct evaluation *run, struct value value,
                                 bson_subtype_t *subtype)
{
    int32_t number;

    if (!truce__value_is_number(value))
        return truce__refuse(4341108, run->error,
                             "\"subtype\" of $convert must be a number, not %s",
                             truce__type_name(value.type));
    if (!truce__value_to_int32(value, &number))
        return truce__refuse_value(4341106, value, run->error,
                                   "\"subtype\" of $convert must be an integer");
    if (number < 0 || number > 255 || (number > 9 && number < 128))
        return truce__refuse(4341107, run->error,
                             "\"subtype\" of $convert must be 0 to 9 or 128 to 255, not %d",
                             number);
    *subtype = (bson_subtype_t)number;
    return TRUCE_OK;
}

static truce_status convert_read_base(struct evaluation *run, struct value value, int *base)
{
    int32_t number;

    if (truce__value_is_nullish(value))
        return TRUCE_OK;
    if (!truce__value_is_number(value) || !truce__value_to_int32(value, &number))
        return truce__refuse_value(3501300, value, run->error,
                                   "\"base\" of $convert must be 2, 8, 10, or 16");
    if (number != 2 && number != 8 && number != 10 && number != 16)
        return truce__refuse(3501301, run->error,
                             "\"base\" of $convert must be 2, 8, 10, or 16, not %d", number);
    *base = number;
    return TRUCE_OK;
}

/* Sets `*number` to the index of the string in `names`, which ends with NULL. Null and missing
 * leave it as it is. */
static truce_status read_name(struct evaluation *run, struct value value, const char *argument,
                              const char *const *names, const uint32_t codes[2], int *number)
{
    const char *text;
    uint32_t length;

    if (truce__value_is_nullish(value))
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(codes[0], run->error, "\"%s\" of $convert must be a string, not %s",
                             argument, truce__type_name(value.type));
    text = truce__value_text(value, &length);
    for (*number = 0; names[*number]; ++*number) {
        if (strlen(names[*number]) == length && !memcmp(names[*number], text, length))
            return TRUCE_OK;
    }
    return truce__refuse(codes[1], run->error, "\"%s\" of $convert cannot be \"%.*s\"", argument,
                         (int)BSON_MIN(length, 100), text);
}

enum {
    CONVERT_INPUT,
    CONVERT_TO,
    CONVERT_BASE,
    CONVERT_FORMAT,
    CONVERT_BYTE_ORDER,
    CONVERT_ON_ERROR,
    CONVERT_ON_NULL
};

/* Evaluates the arguments; an argument that is not given is missing. */
static truce_status run_arguments(const struct expression_node *node, struct evaluation *run,
                                  struct value *values)
{
    truce_status status = TRUCE_OK;

    for (int i = 0; i < CONVERT_ON_ERROR && !status; i++) {
        values[i] = truce__value_missing();
        if (node->operands[i])
            status = truce__expression_run(node->operands[i], run, &values[i]);
    }
    return status;
}

/* Reads the target of a $convert. `to` is a type, or {type, subtype}. If the type is null, *target
 * stays NULL. */
static truce_status read_to(struct evaluation *run, struct value to, const struct target **target,
                            struct value *subtype)
{
    *subtype = truce__value_missing();
    if (to.type == BSON_TYPE_DOCUMENT) {
        *subtype = truce__value_field(to, "subtype", 7);
        to = truce__value_field(to, "type", 4);
        if (to.type == VALUE_MISSING)
            return truce__refuse(CODE_FAILED_TO_PARSE, run->error,
                                 "\"to\" of $convert needs the field \"type\"");
    }
    return truce__value_is_nullish(to) ? TRUCE_OK : find_target(run, to, target);
}

/* Reads the arguments besides the type. A conversion between strings and binaries needs a
 * format. */
static truce_status read_how(struct evaluation *run, const struct value *values,
                             const struct target *target, struct value subtype,
                             struct convert_how *how)
{
    static const char *const formats[] = {"auto", "base64", "base64url", "hex",
                                          "utf8", "uuid",   NULL};
    static const char *const orders[] = {"little", "big", NULL};
    static const uint32_t format_codes[] = {4341114, 4341125}, order_codes[] = {9130001, 9130002};
    bool makes_binary = target->convert == to_binary;
    uint8_t from = values[CONVERT_INPUT].type;
    int format = -1, order = 0;
    truce_status status = convert_read_base(run, values[CONVERT_BASE], &how->base);

    if (!status)
        status = read_name(run, values[CONVERT_FORMAT], "format", formats, format_codes, &format);
    if (!status)
        status =
            read_name(run, values[CONVERT_BYTE_ORDER], "byteOrder", orders, order_codes, &order);
    if (!status && makes_binary && subtype.type != VALUE_MISSING)
        status = read_subtype(run, subtype, &how->subtype);
    if (status)
        return status;
    how->format = (enum convert_format)(format + 1);
    how->big_endian = order;
    if (format < 0 && ((makes_binary && from == BSON_TYPE_UTF8) ||
                       (from == BSON_TYPE_BINARY && target->convert == to_text)))
        return truce__refuse(4341115, run->error,
                             "$convert from %s to %s needs the argument \"format\"",
                             truce__type_name(from), target->name);
    return TRUCE_OK;
}

/* -- $convert --------------------------------------------------------------------------------- */

/* Converts. If the conversion fails and onError is given, evaluates onError instead, except after
 * LIMIT. */
static truce_status convert_or_else(const struct expression_node *node, struct evaluation *run,
                                    const struct target *target, struct value input,
                                    const struct convert_how *how, struct value *result)
{
    bson_error_t *error;
    truce_status status;

    if (!node->operands[CONVERT_ON_ERROR])
        return target->convert(run, input, how, result);
    error = truce__evaluation_hush(run);
    status = target->convert(run, input, how, result);
    run->error = error;
    if (status == TRUCE_LIMIT)
        /* The conversion runs again, to set its error. */
        return target->convert(run, input, how, result);
    return status ? truce__expression_run(node->operands[CONVERT_ON_ERROR], run, result) : status;
}

/* Evaluates $convert. If the input is null, the result is onNull, or null without it. */
static truce_status evaluate_convert(const struct expression_node *node, struct evaluation *run,
                                     struct value *result)
{
    struct value values[CONVERT_ON_ERROR], subtype;
    const struct target *target = NULL;
    struct convert_how how = {0};
    truce_status status = run_arguments(node, run, values);

    if (!status)
        status = read_to(run, values[CONVERT_TO], &target, &subtype);
    if (status)
        return status;
    if (truce__value_is_nullish(values[CONVERT_INPUT]) && node->operands[CONVERT_ON_NULL])
        return truce__expression_run(node->operands[CONVERT_ON_NULL], run, result);
    if (truce__value_is_nullish(values[CONVERT_INPUT]) || !target)
        return truce__evaluation_null(result);
    status = read_how(run, values, target, subtype, &how);
    return status ? status
                  : convert_or_else(node, run, target, values[CONVERT_INPUT], &how, result);
}

static const struct expression_arguments convert_arguments = {CODE_FAILED_TO_PARSE,
                                                              CODE_FAILED_TO_PARSE,
                                                              {{"input", CODE_FAILED_TO_PARSE},
                                                               {"to", CODE_FAILED_TO_PARSE},
                                                               {"base", 0},
                                                               {"format", 0},
                                                               {"byteOrder", 0},
                                                               {"onError", 0},
                                                               {"onNull", 0}}};

/* -- $toInt and its kin: `extra` is the target ------------------------------------------------- */

static const struct target to_uuid = {"binData", BSON_TYPE_BINARY, to_binary};

static truce_status evaluate_short(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    static const struct convert_how usual = {.format = FORMAT_AUTO},
                                    uuid = {.format = FORMAT_UUID, .subtype = BSON_SUBTYPE_UUID};
    const struct target *target = node->extra;
    struct value input;
    truce_status status = truce__expression_run(node->operands[0], run, &input);

    if (status)
        return status;
    if (truce__value_is_nullish(input))
        return truce__evaluation_null(result);
    return target->convert(run, input, target == &to_uuid ? &uuid : &usual, result);
}

/* Compiles a short form, such as $toInt, which has one operand. */
static truce_status compile_short(struct expression_compiler *compiler,
                                  const struct expression_operator *operator, struct value argument,
                                  struct expression_node **node)
{
    truce_status status;

    if (argument.type == BSON_TYPE_ARRAY) {
        if (truce__array_count(argument) != 1)
            return truce__refuse(50723, compiler->error,
                                 "%s takes one operand, not %u", operator->name,
                                 truce__array_count(argument));
        argument = truce__value_field(argument, "0", 1);
    }
    *node = truce__expression_node(compiler, operator, 1);
    status = truce__expression_compile(compiler, argument, &(*node)->operands[0]);
    return status ? status : truce__expression_fold(compiler, node);
}

/* -- $type, $isNumber ------------------------------------------------------------------------- */

static truce_status apply_type(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    const char *name = truce__type_name(operands[0].type);

    *result = truce__value_from_text(run->arena, name, strlen(name));
    return TRUCE_OK;
}

static truce_status apply_is_number(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    *result = truce__value_from_bool(truce__value_is_number(operands[0]));
    return TRUCE_OK;
}

#define SHORT(name, target)                                                                        \
    {                                                                                              \
        name, .evaluate = evaluate_short, .compile = compile_short, .extra = target                \
    }

const struct expression_operator truce__expressions_convert[] = {
    {"$convert", .evaluate = evaluate_convert, .arguments = &convert_arguments},
    SHORT("$toDouble", &targets[0]),
    SHORT("$toString", &targets[1]),
    SHORT("$toObjectId", &targets[2]),
    SHORT("$toBool", &targets[3]),
    SHORT("$toDate", &targets[4]),
    SHORT("$toInt", &targets[5]),
    SHORT("$toLong", &targets[6]),
    SHORT("$toDecimal", &targets[7]),
    SHORT("$toUUID", &to_uuid),
    {"$type", 1, 1, .apply = apply_type},
    {"$isNumber", 1, 1, .apply = apply_is_number},
    {NULL},
};
