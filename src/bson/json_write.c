/* Writes BSON as Extended JSON (json.h describes the forms), and checks UTF-8. */
#include "base/terminal_escape.h"
#include "bson/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/binary_text.h"
#include "bson/json_read.h"

TRUCE_PRINTF(2, 3) static void put_format(struct buffer *out, const char *format, ...)
{
    char text[160];
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    truce_assert(length >= 0 && (size_t)length < sizeof text);
    truce__buffer_append(out, text, (size_t)length);
}

/* Returns the escape of a character that JSON does not allow or a terminal would obey, or NULL
 * if the character needs none. `*size` is the number of its bytes. */
static const char *escape_of(const char *text, size_t left, size_t *size, char hex[8])
{
    unsigned char c = (unsigned char)*text;

    *size = 1;
    if (c > '\\' && c < 0x7f)
        return NULL;
    switch (c) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\b':
        return "\\b";
    case '\f':
        return "\\f";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    default:
        *size = truce__text_control(text, left);
        if (!*size)
            return NULL;
        snprintf(hex, 8, "\\u%04x", truce__text_control_code(text, *size));
        return hex;
    }
}

void truce__json_write_text(struct buffer *out, const char *text, size_t size)
{
    size_t from = 0;
    char hex[8];

    truce__buffer_append_byte(out, '"');
    for (size_t i = 0, taken; i < size; i++) {
        const char *escape = escape_of(text + i, size - i, &taken, hex);

        if (!escape)
            continue;
        truce__buffer_append(out, text + from, i - from);
        truce__buffer_append_text(out, escape);
        from = i + taken;
        i = from - 1;
    }
    truce__buffer_append(out, text + from, size - from);
    truce__buffer_append_byte(out, '"');
}

/* Writes a double with as few digits as read back to the same number, at least 15. */
static void json_write_double(struct buffer *out, double number, enum json_form form)
{
    char text[40];

    if (isnan(number) || isinf(number)) {
        put_format(out, "{\"$numberDouble\": \"%s\"}",
                   isnan(number)  ? "NaN"
                   : number > 0.0 ? "Infinity"
                                  : "-Infinity");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    if (!strpbrk(text, ".e"))
        strcat(text, ".0");
    put_format(out, form == JSON_CANONICAL ? "{\"$numberDouble\": \"%s\"}" : "%s", text);
}

/* Converts days since 1970-01-01 to year, month, and day (Howard Hinnant, as in json_read.c). */
static void civil_of(int64_t days, int64_t *year, int *month, int *day)
{
    int64_t z = days + 719468;
    int64_t era = (z >= 0 ? z : z - 146096) / 146097;
    int64_t doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153;

    *day = (int)(doy - (153 * mp + 2) / 5 + 1);
    *month = (int)(mp < 10 ? mp + 3 : mp - 9);
    *year = yoe + era * 400 + (*month <= 2);
}

/* Writes a date. The relaxed form is ISO 8601 for the years 1970 to 9999, as the specification
 * demands. */
static void json_write_date(struct buffer *out, int64_t ms, enum json_form form)
{
    const int64_t year_10000 = 253402300800000;
    int64_t year, in_day = ms % 86400000;
    int month, day;

    if (form == JSON_CANONICAL || ms < 0 || ms >= year_10000) {
        put_format(out, "{\"$date\": {\"$numberLong\": \"%" PRId64 "\"}}", ms);
        return;
    }
    civil_of(ms / 86400000, &year, &month, &day);
    put_format(out, "{\"$date\": \"%04d-%02d-%02dT%02d:%02d:%02d", (int)year, month, day,
               (int)(in_day / 3600000), (int)(in_day / 60000 % 60), (int)(in_day / 1000 % 60));
    if (ms % 1000)
        put_format(out, ".%03d", (int)(ms % 1000));
    truce__buffer_append_text(out, "Z\"}");
}

static void write_base64(struct buffer *out, const uint8_t *bytes, uint32_t size)
{
    truce__buffer_reserve(out, BASE64_ROOM((size_t)size));
    out->size += truce__base64_write(bytes, size, false, (char *)out->bytes + out->size);
}

static void json_write_binary(struct buffer *out, const bson_iter_t *iter)
{
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t size;

    bson_iter_binary(iter, &subtype, &size, &bytes);
    truce__buffer_append_text(out, "{\"$binary\": {\"base64\": \"");
    write_base64(out, bytes, size);
    put_format(out, "\", \"subType\": \"%02x\"}}", (unsigned)subtype);
}

static void json_write_oid(struct buffer *out, const bson_oid_t *oid)
{
    char text[25];

    bson_oid_to_string(oid, text);
    put_format(out, "{\"$oid\": \"%s\"}", text);
}

static void json_write_regex(struct buffer *out, const bson_iter_t *iter)
{
    const char *options, *pattern = bson_iter_regex(iter, &options);

    truce__buffer_append_text(out, "{\"$regularExpression\": {\"pattern\": ");
    truce__json_write_text(out, pattern, strlen(pattern));
    truce__buffer_append_text(out, ", \"options\": ");
    truce__json_write_text(out, options, strlen(options));
    truce__buffer_append_text(out, "}}");
}

static void write_wrapped_text(struct buffer *out, const char *key, const char *text, size_t size)
{
    put_format(out, "{\"%s\": ", key);
    truce__json_write_text(out, text, size);
}

/* Writes a document inside another one, with the escape if it looks like a wrapper. */
static void write_nested(struct buffer *out, const uint8_t *bytes, uint32_t size, bool array,
                         enum json_form form)
{
    bson_t document;
    bool escaped;

    if (!bson_init_static(&document, bytes, size)) {
        truce__buffer_append_text(out, array ? "[]" : "{}");
        return;
    }
    escaped = !array && truce__json_is_wrapper(&document);
    if (escaped)
        truce__buffer_append_text(out, "{\"" JSON_ESCAPE "\": ");
    truce__json_write(out, &document, array, form);
    if (escaped)
        truce__buffer_append_byte(out, '}');
}

static void json_write_container(struct buffer *out, const bson_iter_t *iter, enum json_form form)
{
    bool array = bson_iter_type(iter) == BSON_TYPE_ARRAY;
    const uint8_t *bytes;
    uint32_t size;

    if (array)
        bson_iter_array(iter, &size, &bytes);
    else
        bson_iter_document(iter, &size, &bytes);
    write_nested(out, bytes, size, array, form);
}

/* Writes JavaScript code, with its scope if it has one. */
static void json_write_code(struct buffer *out, const bson_iter_t *iter, enum json_form form)
{
    uint32_t length, scope_size;
    const uint8_t *scope;

    if (bson_iter_type(iter) == BSON_TYPE_CODE) {
        const char *text = bson_iter_code(iter, &length);
        write_wrapped_text(out, "$code", text, length);
        truce__buffer_append_byte(out, '}');
        return;
    }
    const char *text = bson_iter_codewscope(iter, &length, &scope_size, &scope);
    write_wrapped_text(out, "$code", text, length);
    truce__buffer_append_text(out, ", \"$scope\": ");
    write_nested(out, scope, scope_size, false, form);
    truce__buffer_append_byte(out, '}');
}

static void write_pointer(struct buffer *out, const bson_iter_t *iter)
{
    const bson_oid_t *oid;
    const char *name;
    uint32_t length;

    bson_iter_dbpointer(iter, &length, &name, &oid);
    truce__buffer_append_text(out, "{\"$dbPointer\": {\"$ref\": ");
    truce__json_write_text(out, name, length);
    truce__buffer_append_text(out, ", \"$id\": ");
    json_write_oid(out, oid);
    truce__buffer_append_text(out, "}}");
}

static void json_write_decimal(struct buffer *out, const bson_iter_t *iter)
{
    char text[BSON_DECIMAL128_STRING];
    bson_decimal128_t decimal;

    bson_iter_decimal128(iter, &decimal);
    bson_decimal128_to_string(&decimal, text);
    put_format(out, "{\"$numberDecimal\": \"%s\"}", text);
}

/* Writes a number. The canonical form and decimals have wrappers. */
static void write_number(struct buffer *out, const bson_iter_t *iter, enum json_form form)
{
    switch (bson_iter_type(iter)) {
    case BSON_TYPE_DOUBLE:
        json_write_double(out, bson_iter_double(iter), form);
        return;
    case BSON_TYPE_INT32:
        put_format(out, form == JSON_CANONICAL ? "{\"$numberInt\": \"%d\"}" : "%d",
                   (int)bson_iter_int32(iter));
        return;
    case BSON_TYPE_INT64:
        put_format(out, form == JSON_CANONICAL ? "{\"$numberLong\": \"%" PRId64 "\"}" : "%" PRId64,
                   bson_iter_int64(iter));
        return;
    default:
        json_write_decimal(out, iter);
        return;
    }
}

/* Writes the types that JSON does not have, except those that contain documents. */
static void write_special(struct buffer *out, const bson_iter_t *iter, enum json_form form)
{
    uint32_t length, seconds, ordinal;
    const char *text;

    switch (bson_iter_type(iter)) {
    case BSON_TYPE_OID:
        json_write_oid(out, bson_iter_oid(iter));
        return;
    case BSON_TYPE_DATE_TIME:
        json_write_date(out, bson_iter_date_time(iter), form);
        return;
    case BSON_TYPE_TIMESTAMP:
        bson_iter_timestamp(iter, &seconds, &ordinal);
        put_format(out, "{\"$timestamp\": {\"t\": %" PRIu32 ", \"i\": %" PRIu32 "}}", seconds,
                   ordinal);
        return;
    case BSON_TYPE_SYMBOL:
        text = bson_iter_symbol(iter, &length);
        write_wrapped_text(out, "$symbol", text, length);
        truce__buffer_append_byte(out, '}');
        return;
    case BSON_TYPE_BINARY:
        json_write_binary(out, iter);
        return;
    case BSON_TYPE_REGEX:
        json_write_regex(out, iter);
        return;
    case BSON_TYPE_DBPOINTER:
        write_pointer(out, iter);
        return;
    case BSON_TYPE_CODE:
    case BSON_TYPE_CODEWSCOPE:
        json_write_code(out, iter, form);
        return;
    case BSON_TYPE_UNDEFINED:
        truce__buffer_append_text(out, "{\"$undefined\": true}");
        return;
    case BSON_TYPE_MINKEY:
        truce__buffer_append_text(out, "{\"$minKey\": 1}");
        return;
    default:
        truce_assert(bson_iter_type(iter) == BSON_TYPE_MAXKEY);
        truce__buffer_append_text(out, "{\"$maxKey\": 1}");
        return;
    }
}

void truce__json_write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form)
{
    const char *text;
    uint32_t length;

    switch (bson_iter_type(iter)) {
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_DECIMAL128:
        write_number(out, iter, form);
        return;
    case BSON_TYPE_UTF8:
        text = bson_iter_utf8(iter, &length);
        truce__json_write_text(out, text, length);
        return;
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        json_write_container(out, iter, form);
        return;
    case BSON_TYPE_BOOL:
        truce__buffer_append_text(out, bson_iter_bool(iter) ? "true" : "false");
        return;
    case BSON_TYPE_NULL:
        truce__buffer_append_text(out, "null");
        return;
    default:
        write_special(out, iter, form);
        return;
    }
}

void truce__json_write(struct buffer *out, const bson_t *document, bool is_array,
                       enum json_form form)
{
    bson_iter_t iter;
    bool first = true;

    truce__buffer_append_byte(out, is_array ? '[' : '{');
    if (bson_iter_init(&iter, document)) {
        while (bson_iter_next(&iter)) {
            if (!first)
                truce__buffer_append_text(out, ", ");
            first = false;
            if (!is_array) {
                truce__json_write_text(out, bson_iter_key(&iter), strlen(bson_iter_key(&iter)));
                truce__buffer_append_text(out, ": ");
            }
            truce__json_write_value(out, &iter, form);
        }
    }
    truce__buffer_append_byte(out, is_array ? ']' : '}');
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

/* Returns the bytes of the sequence that starts here, by the table of RFC 3629; 0 if it is
 * invalid. */
static size_t json_write_sequence(const uint8_t *at, size_t left)
{
    uint8_t low = 0x80, high = 0xbf;
    size_t size;

    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    size = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] == 0xe0)
        low = 0xa0;
    else if (at[0] == 0xed)
        high = 0x9f;
    else if (at[0] == 0xf0)
        low = 0x90;
    else if (at[0] == 0xf4)
        high = 0x8f;
    if (left < size || at[1] < low || at[1] > high)
        return 0;
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    return size;
}

size_t truce__utf8_check(const char *text, size_t size)
{
    const uint8_t *bytes = (const uint8_t *)text;

    for (size_t i = 0; i < size;) {
        size_t step = json_write_sequence(bytes + i, size - i);

        if (!step)
            return i;
        i += step;
    }
    return size;
}
