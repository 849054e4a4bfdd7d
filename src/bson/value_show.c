/*
 * Formats values for messages, cut off with "..." at the end of the caller's buffer. The form
 * resembles relaxed Extended JSON, but it is shorter: a binary has hexadecimal digits, a regular
 * expression is /pattern/options, and the scope of code is left out. It allocates nothing and reads
 * only the part of the value that is shown. Refusing a document of 16 MB is therefore cheap.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/assert.h"
#include "bson/date.h"
#include "bson/value.h"

struct writer {
    char *text;
    /* The bytes that may be written, without the dots and the NUL, and the bytes that were
     * written. */
    size_t room, used;
    bool full;
};

static void write_bytes(struct writer *writer, const char *bytes, size_t size)
{
    if (size > writer->room - writer->used) {
        size = writer->room - writer->used;
        writer->full = true;
    }
    memcpy(writer->text + writer->used, bytes, size);
    writer->used += size;
}

static void write_format(struct writer *writer, const char *format, ...) TRUCE_PRINTF(2, 3);

static void write_format(struct writer *writer, const char *format, ...)
{
    char piece[128];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    truce_assert(length >= 0 && (size_t)length < sizeof piece);
    write_bytes(writer, piece, (size_t)length);
}

/* Writes a string in quotes, with escapes. */
static void value_show_write_quoted(struct writer *writer, const char *text, size_t length)
{
    write_bytes(writer, "\"", 1);
    for (size_t i = 0; i < length && !writer->full; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c == '"' || c == '\\')
            write_format(writer, "\\%c", c);
        else if (c < 0x20)
            write_format(writer, "\\u%04x", c);
        else
            write_bytes(writer, text + i, 1);
    }
    write_bytes(writer, "\"", 1);
}

/* Writes the shortest digits that read back as the same number. */
static void value_show_write_double(struct writer *writer, double number)
{
    char digits[40];

    if (!isfinite(number)) {
        write_format(writer, "{\"$numberDouble\": \"%s\"}",
                     isnan(number) ? "NaN"
                     : number > 0  ? "Infinity"
                                   : "-Infinity");
        return;
    }
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    write_format(writer, "%s%s", digits, strpbrk(digits, ".e") ? "" : ".0");
}

static void value_show_write_decimal(struct writer *writer, struct value value)
{
    char digits[BSON_DECIMAL128_STRING];
    bson_decimal128_t number = truce__value_decimal(value);

    bson_decimal128_to_string(&number, digits);
    write_format(writer, "{\"$numberDecimal\": \"%s\"}", digits);
}

static void value_show_write_date(struct writer *writer, int64_t milliseconds)
{
    char text[DATE_TEXT_MAX];

    if (milliseconds < DATE_YEAR_0_MS || milliseconds >= DATE_YEAR_10000_MS)
        write_format(writer, "{\"$date\": {\"$numberLong\": \"%" PRId64 "\"}}", milliseconds);
    else
        write_format(writer, "{\"$date\": \"%s\"}", truce__date_show(milliseconds, text));
}

static void write_hex(struct writer *writer, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size && !writer->full; i++)
        write_format(writer, "%02x", bytes[i]);
}

static void value_show_write_binary(struct writer *writer, struct value value)
{
    write_format(writer, "{\"$binary\": {\"hex\": \"");
    write_hex(writer, value.data + 5, value.size - 5);
    write_format(writer, "\", \"subType\": \"%02x\"}}", value.data[4]);
}

static void value_show_write_oid(struct writer *writer, const uint8_t *bytes)
{
    write_format(writer, "{\"$oid\": \"");
    write_hex(writer, bytes, 12);
    write_format(writer, "\"}");
}

static void value_show_write_regex(struct writer *writer, struct value value)
{
    const char *pattern = (const char *)value.data;
    const char *options = pattern + strlen(pattern) + 1;

    write_bytes(writer, "/", 1);
    write_bytes(writer, pattern, strlen(pattern));
    write_bytes(writer, "/", 1);
    write_bytes(writer, options, strlen(options));
}

static void value_show_write_code(struct writer *writer, const char *name, struct value code)
{
    uint32_t length;
    const char *text = truce__value_text(code, &length);

    write_format(writer, "{\"%s\": ", name);
    value_show_write_quoted(writer, text, length);
    write_bytes(writer, "}", 1);
}

static void value_show_write_value(struct writer *writer, struct value value);

/* Writes a document or array, up to the end of the buffer. */
static void value_show_write_container(struct writer *writer, struct value value)
{
    bool is_array = value.type == BSON_TYPE_ARRAY, first = true;
    struct fields fields = truce__fields(value);

    write_bytes(writer, is_array ? "[" : "{", 1);
    while (!writer->full && truce__fields_next(&fields)) {
        if (!first)
            write_bytes(writer, ", ", 2);
        first = false;
        if (!is_array) {
            value_show_write_quoted(writer, fields.key, fields.key_length);
            write_bytes(writer, ": ", 2);
        }
        value_show_write_value(writer, fields.value);
    }
    write_bytes(writer, is_array ? "]" : "}", 1);
}

static void write_code_with_scope(struct writer *writer, struct value value)
{
    const uint8_t *code = value.data + 4;

    value_show_write_code(
        writer, "$code",
        (struct value){code, truce__value_size(BSON_TYPE_CODE, code), BSON_TYPE_CODE});
}

static void write_timestamp(struct writer *writer, struct value value)
{
    uint64_t number = (uint64_t)truce__value_int64(value);

    write_format(writer, "{\"$timestamp\": {\"t\": %" PRIu64 ", \"i\": %" PRIu64 "}}", number >> 32,
                 number & 0xffffffff);
}

static void value_show_write_text(struct writer *writer, struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);

    value_show_write_quoted(writer, text, length);
}

/* Writes a value for an error message. */
static void value_show_write_value(struct writer *writer, struct value value)
{
    switch (value.type) {
    case BSON_TYPE_DOUBLE:
        value_show_write_double(writer, truce__value_double(value));
        return;
    case BSON_TYPE_UTF8:
        value_show_write_text(writer, value);
        return;
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        value_show_write_container(writer, value);
        return;
    case BSON_TYPE_BINARY:
        value_show_write_binary(writer, value);
        return;
    case BSON_TYPE_OID:
        value_show_write_oid(writer, value.data);
        return;
    case BSON_TYPE_BOOL:
        write_format(writer, "%s", truce__value_bool(value) ? "true" : "false");
        return;
    case BSON_TYPE_DATE_TIME:
        value_show_write_date(writer, truce__value_int64(value));
        return;
    case BSON_TYPE_NULL:
        write_format(writer, "null");
        return;
    case BSON_TYPE_REGEX:
        value_show_write_regex(writer, value);
        return;
    case BSON_TYPE_DBPOINTER:
        value_show_write_oid(writer, value.data + value.size - 12);
        return;
    case BSON_TYPE_CODE:
        value_show_write_code(writer, "$code", value);
        return;
    case BSON_TYPE_SYMBOL:
        value_show_write_code(writer, "$symbol",
                              (struct value){value.data, value.size, BSON_TYPE_CODE});
        return;
    case BSON_TYPE_CODEWSCOPE:
        write_code_with_scope(writer, value);
        return;
    case BSON_TYPE_INT32:
        write_format(writer, "%" PRId32, truce__value_int32(value));
        return;
    case BSON_TYPE_TIMESTAMP:
        write_timestamp(writer, value);
        return;
    case BSON_TYPE_INT64:
        write_format(writer, "%" PRId64, truce__value_int64(value));
        return;
    case BSON_TYPE_DECIMAL128:
        value_show_write_decimal(writer, value);
        return;
    default:
        write_format(writer, "%s", truce__type_name(value.type));
        return;
    }
}

/* Returns the length without a UTF-8 sequence that the end of the buffer has cut. */
static size_t value_show_whole_characters(const char *text, size_t used)
{
    size_t start = used, length;
    unsigned char lead;

    while (start > 0 && used - start < 4 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (!start || !((unsigned char)text[start - 1] & 0x80))
        return used;
    lead = (unsigned char)text[start - 1];
    length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    return used - (start - 1) >= length ? used : start - 1;
}

const char *truce__value_show(struct value value, char *text, size_t size)
{
    struct writer writer = {.text = text, .room = size - 4};

    truce_assert(size >= 8);
    value_show_write_value(&writer, value);
    if (writer.full) {
        writer.used = value_show_whole_characters(text, writer.used);
        memcpy(text + writer.used, "...", 3);
        writer.used += 3;
    }
    text[writer.used] = 0;
    return text;
}
