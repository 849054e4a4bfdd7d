/*
 * Reads Extended JSON into BSON, in one pass over the text.
 *
 * The reader writes BSON directly into a buffer. An element consists of its type byte, its key, and
 * its payload. The type is known only after the value was read, so the reader patches the type byte
 * afterwards. It does the same with the lengths of strings and documents:
 *
 *     {"a": {"$numberLong": "5"}}
 *
 *     LL LL LL LL | ?? 'a' 00 | LL LL LL LL | 02 "$numberLong" 00  02 00 00 00 '5' 00 | 00
 *                   ^ patched   ^ payload of a: first read as the document that it looks like,
 *                                 then seen to be a wrapper and replaced by 8 bytes
 *
 * Wrappers ($oid, $date, ...) are therefore recognized in BSON, with their fields in any order. A
 * wrapper may contain another one: {"$date": {"$numberLong": "0"}}.
 *
 * Invariants:
 *  1. The buffer has the complete elements of all open documents, and then the element in progress.
 *  2. For any text, the buffer never exceeds SLACK times the maximum size of a document.
 *  3. The depth of a document is at most TRUCE_DOCUMENT_DEPTH_MAX. The text may be WRAPPER_DEPTH
 *     deeper. The recursion is therefore bounded.
 *
 * With `typed`, names may lack quotes and strings may have single quotes, as in JavaScript. Files
 * are read without it.
 *
 * Deliberately not done: comments, trailing commas, and other extensions of JSON.
 */
#include "bson/json_read.h"
#include "bson/binary_text.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <bson/bson.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/json.h"

/* ---- dates ----------------------------------------------------------------------------------- */

/* Returns the days since 1970-01-01 in the proleptic Gregorian calendar (Howard Hinnant,
 * "chrono-compatible low-level date algorithms"). */
static int64_t days_of(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;

    return era * 146097 + doe - 719468;
}

static bool date_take_number(const char **at, int digits, int *number)
{
    *number = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *number = *number * 10 + (**at - '0');
    }
    return true;
}

static bool date_take(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

/* Reads the minutes east of UTC from the rest of the text: "Z", "+01:00", "+0100", or "+01". */
static bool take_zone(const char **at, int *minutes)
{
    int hours = 0, rest = 0;
    char sign = **at;

    *minutes = 0;
    if (date_take(at, 'Z'))
        return **at == '\0';
    if (sign != '+' && sign != '-')
        return false;
    (*at)++;
    if (!date_take_number(at, 2, &hours))
        return false;
    if (**at) {
        (void)date_take(at, ':');
        if (!date_take_number(at, 2, &rest))
            return false;
    }
    *minutes = (hours * 60 + rest) * (sign == '-' ? -1 : 1);
    return **at == '\0' && hours < 24 && rest < 60;
}

static bool take_fraction(const char **at, int *ms)
{
    int scale = 100;

    *ms = 0;
    if (!date_take(at, '.'))
        return true;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, scale /= 10)
        *ms += (**at - '0') * scale;
    return true;
}

/* Reads ISO 8601: 2024-02-29T12:30:00[.250](Z or +01:00). */
static bool truce__json_date(const char *at, int64_t *ms)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, hour, minute, second = 0, fraction = 0, zone;

    if (!date_take_number(&at, 4, &year) || !date_take(&at, '-') ||
        !date_take_number(&at, 2, &month) || !date_take(&at, '-') ||
        !date_take_number(&at, 2, &day) || !date_take(&at, 'T') ||
        !date_take_number(&at, 2, &hour) || !date_take(&at, ':') ||
        !date_take_number(&at, 2, &minute))
        return false;
    if (date_take(&at, ':') &&
        (!date_take_number(&at, 2, &second) || !take_fraction(&at, &fraction)))
        return false;
    if (!take_zone(&at, &zone) || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 ||
        second > 59)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > days[month - 1] + (month == 2 && leap))
        return false;
    *ms = ((days_of(year, month, day) * 24 + hour) * 60 + minute - zone) * 60000 + second * 1000 +
          fraction;
    return true;
}

/* ---- wrappers -------------------------------------------------------------------------------- */

/*
 * Each wrapper has a converter: {"$oid": "..."}, {"$date": ...}, and the others.
 *
 * The reader first reads a wrapper as a BSON document. The converter then writes the payload of the
 * value. A document with fields that the wrapper does not have stays a document, because query
 * operators look similar. A document with exactly the fields of a wrapper and invalid content is an
 * error.
 *
 * A stored document may look like a wrapper: a driver can store {"$numberInt": "5"}. It is written
 * as {"$document": {"$numberInt": "5"}}, and the reader does not unwrap the inner document.
 */

static const uint8_t *wrapper_skip_digits(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Returns the end of the JSON number at `at`, or NULL if there is no valid number. */
static const uint8_t *json_number_end(const uint8_t *at, const uint8_t *end, bool *integer)
{
    const uint8_t *from;

    *integer = true;
    if (at < end && *at == '-')
        at++;
    from = at;
    at = wrapper_skip_digits(at, end);
    if (at == from || (*from == '0' && at - from > 1))
        return NULL;
    if (at < end && *at == '.') {
        *integer = false;
        from = ++at;
        at = wrapper_skip_digits(at, end);
        if (at == from)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        *integer = false;
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        from = at;
        at = wrapper_skip_digits(at, end);
        if (at == from)
            return NULL;
    }
    return at;
}

/* A BSON document with the fields of a wrapper. */
struct wrapper {
    const char *key; /* The key of the first field. */
    bson_iter_t first, second;
    uint32_t count;
};

/* Writes the payload and sets the type. Returns CONVERTED, or an error message. */
typedef const char *converter(const struct wrapper *w, struct buffer *payload, uint8_t *type);
#define CONVERTED NULL

static void payload_int64(struct buffer *payload, int64_t number)
{
    number = (int64_t)BSON_UINT64_TO_LE((uint64_t)number);
    truce__buffer_append(payload, &number, 8);
}

static void payload_text(struct buffer *payload, const char *text, uint32_t length)
{
    uint32_t prefix = BSON_UINT32_TO_LE(length + 1);

    truce__buffer_append(payload, &prefix, 4);
    truce__buffer_append(payload, text, length);
    truce__buffer_append_byte(payload, 0);
}

static const char *wrapper_text_of(const bson_iter_t *iter, uint32_t *length)
{
    *length = 0;
    return BSON_ITER_HOLDS_UTF8(iter) ? bson_iter_utf8(iter, length) : NULL;
}

/* Returns the string of the value, or NULL if it contains a NUL. */
static const char *plain_text_of(const bson_iter_t *iter)
{
    uint32_t length;
    const char *text = wrapper_text_of(iter, &length);

    return text && strlen(text) == length ? text : NULL;
}

/* Converts $numberInt and $numberLong. */
static const char *convert_int(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    char *end = NULL;
    bool small = !strcmp(w->key, "$numberInt");
    long long number;

    errno = 0;
    number = text ? strtoll(text, &end, 10) : 0;
    if (!text || !*text || *end || errno || text[0] == ' ' || text[0] == '+')
        return small ? "$numberInt needs an integer from -2147483648 to 2147483647 in quotes"
                     : "$numberLong needs an integer from -9223372036854775808 to "
                       "9223372036854775807 in quotes";
    if (!small) {
        *type = BSON_TYPE_INT64;
        payload_int64(payload, number);
        return CONVERTED;
    }
    if (number < INT32_MIN || number > INT32_MAX)
        return "$numberInt is out of range";
    uint32_t value = BSON_UINT32_TO_LE((uint32_t)(int32_t)number);
    *type = BSON_TYPE_INT32;
    truce__buffer_append(payload, &value, 4);
    return CONVERTED;
}

/* Converts $numberDouble: a JSON number, Infinity, -Infinity, or NaN. */
static const char *convert_double(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    double number;
    bool integer;

    if (!text)
        return "$numberDouble needs a number in quotes";
    if (!strcmp(text, "Infinity"))
        number = INFINITY;
    else if (!strcmp(text, "-Infinity"))
        number = -INFINITY;
    else if (!strcmp(text, "NaN"))
        number = NAN;
    else {
        const uint8_t *end = (const uint8_t *)text + strlen(text);
        if (json_number_end((const uint8_t *)text, end, &integer) != end)
            return "$numberDouble needs a number in quotes";
        number = strtod(text, NULL);
        if (isinf(number))
            return "$numberDouble is too large for a double";
    }
    number = BSON_DOUBLE_TO_LE(number);
    truce__buffer_append(payload, &number, 8);
    *type = BSON_TYPE_DOUBLE;
    return CONVERTED;
}

static const char *convert_decimal(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    bson_decimal128_t decimal;

    if (!text || !bson_decimal128_from_string(text, &decimal))
        return "$numberDecimal needs a decimal number in quotes";
    payload_int64(payload, (int64_t)decimal.low);
    payload_int64(payload, (int64_t)decimal.high);
    *type = BSON_TYPE_DECIMAL128;
    return CONVERTED;
}

static const char *convert_oid(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    bson_oid_t oid;

    if (!text || !bson_oid_is_valid(text, strlen(text)) || strlen(text) != 24)
        return "$oid needs 24 hexadecimal digits";
    bson_oid_init_from_string(&oid, text);
    truce__buffer_append(payload, oid.bytes, 12);
    *type = BSON_TYPE_OID;
    return CONVERTED;
}

/* Converts $date: ISO 8601, or milliseconds since 1970. */
static const char *convert_date(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    int64_t ms;

    if (text) {
        if (!truce__json_date(text, &ms))
            return "$date needs a date such as 2024-02-29T12:30:00Z";
    } else if (BSON_ITER_HOLDS_INT32(&w->first) || BSON_ITER_HOLDS_INT64(&w->first)) {
        ms = bson_iter_as_int64(&w->first);
    } else {
        return "$date needs a date such as 2024-02-29T12:30:00Z, or milliseconds";
    }
    payload_int64(payload, ms);
    *type = BSON_TYPE_DATE_TIME;
    return CONVERTED;
}

static bool uint32_of(const bson_iter_t *iter, uint32_t *number)
{
    int64_t value = bson_iter_as_int64(iter);

    *number = (uint32_t)value;
    return (BSON_ITER_HOLDS_INT32(iter) || BSON_ITER_HOLDS_INT64(iter)) && value >= 0 &&
           value <= UINT32_MAX;
}

/* Returns whether the document has exactly the two fields, each once. */
static bool holds_both(const bson_iter_t *iter, const char *one, const char *other,
                       bson_iter_t *first, bson_iter_t *second)
{
    bson_iter_t inner;
    int count = 0, ones = 0, others = 0;

    if (!BSON_ITER_HOLDS_DOCUMENT(iter) || !bson_iter_recurse(iter, &inner))
        return false;
    for (; bson_iter_next(&inner); count++) {
        if (!strcmp(bson_iter_key(&inner), one)) {
            *first = inner;
            ones++;
        } else if (!strcmp(bson_iter_key(&inner), other)) {
            *second = inner;
            others++;
        }
    }
    return count == 2 && ones == 1 && others == 1;
}

static const char *convert_timestamp(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    bson_iter_t t, i;
    uint32_t seconds, ordinal;

    if (!holds_both(&w->first, "t", "i", &t, &i) || !uint32_of(&t, &seconds) ||
        !uint32_of(&i, &ordinal))
        return "$timestamp needs {\"t\": seconds, \"i\": ordinal}, and no other field";
    payload_int64(payload, (int64_t)((uint64_t)seconds << 32 | ordinal));
    *type = BSON_TYPE_TIMESTAMP;
    return CONVERTED;
}

static bool json_read_base64(const char *text, struct buffer *bytes)
{
    size_t length = strlen(text);

    truce__buffer_reserve(bytes, length);
    return truce__base64_read(text, length, false, bytes->bytes, &bytes->size);
}

/* Reads the subtype of a binary: one or two hexadecimal digits, or a number from 0 to 255. */
static bool subtype_of(const bson_iter_t *iter, uint8_t *subtype)
{
    const char *text = plain_text_of(iter);
    size_t length = text ? strlen(text) : 0;
    int value = 0;

    if (BSON_ITER_HOLDS_INT32(iter) && bson_iter_int32(iter) >= 0 && bson_iter_int32(iter) < 256) {
        *subtype = (uint8_t)bson_iter_int32(iter);
        return true;
    }
    if (length < 1 || length > 2)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (truce__hex_digit(text[i]) < 0)
            return false;
        value = value * 16 + truce__hex_digit(text[i]);
    }
    *subtype = (uint8_t)value;
    return true;
}

static void payload_binary(struct buffer *payload, uint8_t subtype, const struct buffer *bytes)
{
    /* The payload of the old subtype repeats the length. */
    bool old = subtype == BSON_SUBTYPE_BINARY_DEPRECATED;
    uint32_t inner = BSON_UINT32_TO_LE((uint32_t)bytes->size);
    uint32_t outer = BSON_UINT32_TO_LE((uint32_t)bytes->size + (old ? 4 : 0));

    truce__buffer_append(payload, &outer, 4);
    truce__buffer_append_byte(payload, subtype);
    if (old)
        truce__buffer_append(payload, &inner, 4);
    truce__buffer_append(payload, bytes->bytes, bytes->size);
}

/* Converts $binary: {base64, subType}, or the older form {$binary: base64, $type: subtype}. */
static const char *convert_binary(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    static const char wrong[] =
        "$binary needs {\"base64\": \"...\", \"subType\": \"00\"}, and no other field";
    bson_iter_t content = w->first, kind = w->second;
    struct buffer bytes = {0};
    uint8_t subtype;
    const char *text;

    if (BSON_ITER_HOLDS_DOCUMENT(&w->first)) {
        if (w->count != 1 || !holds_both(&w->first, "base64", "subType", &content, &kind))
            return wrong;
    } else if (w->count != 2) {
        return wrong;
    }
    text = plain_text_of(&content);
    if (!text || !subtype_of(&kind, &subtype) || !json_read_base64(text, &bytes)) {
        truce__buffer_release(&bytes);
        return wrong;
    }
    payload_binary(payload, subtype, &bytes);
    truce__buffer_release(&bytes);
    *type = BSON_TYPE_BINARY;
    return CONVERTED;
}

/* Converts $uuid to a binary of the subtype for UUIDs. */
static const char *convert_uuid(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    struct buffer bytes = {0};
    bool good = text && strlen(text) == 36;

    for (size_t i = 0; good && i < 36; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            good = text[i] == '-';
            continue;
        }
        good = truce__hex_digit(text[i]) >= 0 && truce__hex_digit(text[i + 1]) >= 0;
        if (good)
            truce__buffer_append_byte(
                &bytes, (uint8_t)(truce__hex_digit(text[i]) * 16 + truce__hex_digit(text[i + 1])));
        i++;
    }
    if (good)
        payload_binary(payload, BSON_SUBTYPE_UUID, &bytes);
    truce__buffer_release(&bytes);
    *type = BSON_TYPE_BINARY;
    return good ? CONVERTED : "$uuid needs the form 00112233-4455-6677-8899-aabbccddeeff";
}

/* Returns whether all characters are ASCII. Only then are the options sorted, as in MongoDB:
 * sorting the bytes of other characters would break the UTF-8. */
static bool are_letters(const char *flags)
{
    while (*flags && !((unsigned char)*flags & 0x80))
        flags++;
    return !*flags;
}

static int character_order(const void *a, const void *b)
{
    return *(const char *)a - *(const char *)b;
}

/* Converts $regularExpression, and sorts its options. */
static const char *convert_regex(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    bson_iter_t pattern, options;
    const char *text, *flags;
    char sorted[16];

    if (!holds_both(&w->first, "pattern", "options", &pattern, &options))
        return "$regularExpression needs {\"pattern\": \"...\", \"options\": \"...\"}, and no "
               "other field";
    text = plain_text_of(&pattern);
    flags = plain_text_of(&options);
    if (!text || !flags || strlen(flags) >= sizeof sorted)
        return "$regularExpression needs strings without \\u0000";
    memcpy(sorted, flags, strlen(flags) + 1);
    if (are_letters(sorted))
        qsort(sorted, strlen(sorted), 1, character_order);
    truce__buffer_append(payload, text, strlen(text) + 1);
    truce__buffer_append(payload, sorted, strlen(sorted) + 1);
    *type = BSON_TYPE_REGEX;
    return CONVERTED;
}

/* Converts $code, with or without $scope. */
static const char *convert_code(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    uint32_t length;
    const char *text = wrapper_text_of(&w->first, &length);

    if (!text)
        return "$code needs a string";
    if (w->count == 1) {
        payload_text(payload, text, length);
        *type = BSON_TYPE_CODE;
        return CONVERTED;
    }
    const uint8_t *scope;
    uint32_t scope_size, total;
    if (!BSON_ITER_HOLDS_DOCUMENT(&w->second))
        return "$scope needs a document";
    bson_iter_document(&w->second, &scope_size, &scope);
    total = BSON_UINT32_TO_LE(4 + 4 + length + 1 + scope_size);
    truce__buffer_append(payload, &total, 4);
    payload_text(payload, text, length);
    truce__buffer_append(payload, scope, scope_size);
    *type = BSON_TYPE_CODEWSCOPE;
    return CONVERTED;
}

static const char *convert_symbol(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    uint32_t length;
    const char *text = wrapper_text_of(&w->first, &length);

    if (!text)
        return "$symbol needs a string";
    payload_text(payload, text, length);
    *type = BSON_TYPE_SYMBOL;
    return CONVERTED;
}

/* Converts $dbPointer. */
static const char *convert_pointer(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    bson_iter_t name, id;
    const char *text;

    if (!holds_both(&w->first, "$ref", "$id", &name, &id) || !BSON_ITER_HOLDS_OID(&id))
        return "$dbPointer needs {\"$ref\": \"...\", \"$id\": {\"$oid\": \"...\"}}, and no other "
               "field";
    text = plain_text_of(&name);
    if (!text)
        return "$dbPointer needs a $ref without \\u0000";
    payload_text(payload, text, (uint32_t)strlen(text));
    truce__buffer_append(payload, bson_iter_oid(&id)->bytes, 12);
    *type = BSON_TYPE_DBPOINTER;
    return CONVERTED;
}

/* Converts {"$document": {...}}, which means the inner document, even if that looks like a
 * wrapper. */
static const char *wrapper_convert_document(const struct wrapper *w, struct buffer *payload,
                                            uint8_t *type)
{
    const uint8_t *bytes;
    uint32_t size;

    bson_iter_document(&w->first, &size, &bytes);
    truce__buffer_append(payload, bytes, size);
    *type = BSON_TYPE_DOCUMENT;
    return CONVERTED;
}

static const char *convert_constant(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    bool one = BSON_ITER_HOLDS_INT32(&w->first) && bson_iter_int32(&w->first) == 1;
    bool truth = BSON_ITER_HOLDS_BOOL(&w->first) && bson_iter_bool(&w->first);

    if (w->key[1] == 'u') {
        *type = BSON_TYPE_UNDEFINED;
        return truth ? CONVERTED : "$undefined needs true";
    }
    *type = w->key[2] == 'i' ? BSON_TYPE_MINKEY : BSON_TYPE_MAXKEY;
    return one ? CONVERTED : "$minKey and $maxKey need 1";
}

static const struct {
    /* The fields of the wrapper. `second` is optional. */
    const char *key, *second;
    converter *convert;
} wrappers[] = {
    {"$numberInt", NULL, convert_int},
    {"$numberLong", NULL, convert_int},
    {"$numberDouble", NULL, convert_double},
    {"$numberDecimal", NULL, convert_decimal},
    {"$oid", NULL, convert_oid},
    {"$date", NULL, convert_date},
    {"$timestamp", NULL, convert_timestamp},
    {"$binary", "$type", convert_binary},
    {"$uuid", NULL, convert_uuid},
    {"$regularExpression", NULL, convert_regex},
    {"$code", "$scope", convert_code},
    {"$symbol", NULL, convert_symbol},
    {"$dbPointer", NULL, convert_pointer},
    {"$undefined", NULL, convert_constant},
    {"$minKey", NULL, convert_constant},
    {"$maxKey", NULL, convert_constant},
    {JSON_ESCAPE, NULL, wrapper_convert_document},
};

/* Fills `w` if the document has exactly the fields of this wrapper. */
static bool has_fields(const bson_t *document, const char *key, const char *second,
                       struct wrapper *w)
{
    bson_iter_t iter;
    bool found = false;

    w->count = 0;
    w->key = key;
    if (!bson_iter_init(&iter, document))
        return false;
    while (bson_iter_next(&iter)) {
        if (!strcmp(bson_iter_key(&iter), key) && !found) {
            w->first = iter;
            found = true;
        } else if (second && !strcmp(bson_iter_key(&iter), second)) {
            w->second = iter;
        } else {
            return false;
        }
        if (++w->count > 2)
            return false;
    }
    return found;
}

/* Returns the converter of the wrapper that the document looks like, or NULL. */
static converter *converter_of(const bson_t *document, struct wrapper *w)
{
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++) {
        if (has_fields(document, wrappers[i].key, wrappers[i].second, w) &&
            (wrappers[i].convert != wrapper_convert_document ||
             BSON_ITER_HOLDS_DOCUMENT(&w->first)))
            return wrappers[i].convert;
    }
    return NULL;
}

bool truce__json_is_wrapper(const bson_t *document)
{
    struct wrapper w;
    bson_iter_t iter;

    if (!bson_iter_init(&iter, document) || !bson_iter_next(&iter) || *bson_iter_key(&iter) != '$')
        return false;
    /* The reader takes every document with this field for an escape, so even {"$document": 5} needs
     * one. */
    return !strcmp(bson_iter_key(&iter), JSON_ESCAPE) || converter_of(document, &w);
}

/* Converts a wrapper such as {"$oid": "..."} to the payload and the type of its value, and returns
 * true. Otherwise returns false; `*wrong` is NULL for a plain document and a message for an invalid
 * wrapper. */
static bool json_unwrap(const uint8_t *bytes, size_t size, struct buffer *payload, uint8_t *type,
                        const char **wrong)
{
    struct wrapper w;
    bson_t document;
    converter *convert;

    *wrong = NULL;
    if (!bson_init_static(&document, bytes, size))
        return false;
    convert = converter_of(&document, &w);
    if (convert)
        *wrong = convert(&w, payload, type);
    return convert && !*wrong;
}

/* ---- the reader ------------------------------------------------------------------------------ */

/* The maximum number of characters of a number. */
#define NUMBER_TEXT_MAX 400
/* The buffer may exceed the maximum size of a document by this factor, because a wrapper is larger
 * than its value until it is replaced. */
#define SLACK 2
/* A wrapper is deeper than its value: {"$dbPointer": {"$id": {"$oid": ...}}}. */
#define WRAPPER_DEPTH  3
#define READ_DEPTH_MAX (TRUCE_DOCUMENT_DEPTH_MAX + WRAPPER_DEPTH)

/* A document that is being read. */
struct frame {
    /* The position of the current element's key in the buffer, for errors. */
    size_t key;
    /* The position of the document in the buffer. */
    size_t start;
    /* The document is inside a JSON_ESCAPE and is not unwrapped. */
    bool literal;
};

struct reading {
    const uint8_t *start, *at, *end;
    struct buffer *out;
    /* Accept names without quotes, and strings in single quotes. */
    bool typed;
    /* Refuse whole numbers that would become doubles. */
    bool exact;
    uint32_t depth;
    struct frame frames[READ_DEPTH_MAX + 1];
    bson_error_t *error;
};

static truce_status json_read_value(struct reading *r, uint8_t *type);

/* ---- errors -------------------------------------------------------------------------------- */

/* Writes the path of the current element, such as "a.b.0". A long name is cut off. */
static void field_name(const struct reading *r, char *name, size_t room)
{
    size_t used = 0;

    name[0] = '\0';
    for (uint32_t i = 1; i <= r->depth && used + 1 < room; i++) {
        if (!r->frames[i].key)
            break;
        int n = snprintf(name + used, room - used, "%s%s", used ? "." : "",
                         (const char *)r->out->bytes + r->frames[i].key);
        if (n < 0 || (size_t)n >= room - used)
            break;
        used += (size_t)n;
    }
}

static truce_status fail_at(struct reading *r, const uint8_t *where, const char *what)
{
    char name[200];
    size_t column = (size_t)(where - r->start) + 1;

    field_name(r, name, sizeof name);
    if (name[0])
        return truce__fail(TRUCE_INVALID, r->error, "column %zu, field %s: %s", column, name, what);
    return truce__fail(TRUCE_INVALID, r->error, "column %zu: %s", column, what);
}

static truce_status fail_here(struct reading *r, const char *what)
{
    return fail_at(r, r->at, r->at == r->end ? "the text ends in the middle of a document" : what);
}

/* ---- bytes out ----------------------------------------------------------------------------- */

static truce_status json_read_put(struct reading *r, const void *bytes, size_t size)
{
    if (r->out->size + size > (size_t)SLACK * TRUCE_DOCUMENT_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, r->error, "the document is larger than %d bytes",
                           TRUCE_DOCUMENT_BYTES_MAX);
    truce__buffer_append(r->out, bytes, size);
    return TRUCE_OK;
}

static truce_status put_byte(struct reading *r, uint8_t byte)
{
    return json_read_put(r, &byte, 1);
}

static void patch_length(struct reading *r, size_t where, size_t length)
{
    uint32_t value = BSON_UINT32_TO_LE((uint32_t)length);

    truce_assert(where + 4 <= r->out->size);
    memcpy(r->out->bytes + where, &value, 4);
}

static truce_status put_int64(struct reading *r, int64_t number)
{
    number = (int64_t)BSON_UINT64_TO_LE((uint64_t)number);
    return json_read_put(r, &number, 8);
}

/* ---- text in ------------------------------------------------------------------------------- */

static void json_read_skip_space(struct reading *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

/* Reads the four digits after \u. */
static bool read_hex4(struct reading *r, uint32_t *code)
{
    *code = 0;
    if (r->end - r->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int digit = truce__hex_digit((char)r->at[i]);
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    r->at += 4;
    return true;
}

/* Encodes a character as UTF-8 and returns the number of bytes. */
static size_t utf8_encode(uint32_t code, uint8_t bytes[4])
{
    if (code < 0x80) {
        bytes[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        bytes[0] = (uint8_t)(0xc0 | code >> 6);
        bytes[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        bytes[0] = (uint8_t)(0xe0 | code >> 12);
        bytes[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        bytes[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    bytes[0] = (uint8_t)(0xf0 | code >> 18);
    bytes[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    bytes[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    bytes[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* Reads a code point, or a pair of surrogates, after \u. */
static truce_status read_unicode(struct reading *r, bool key)
{
    const uint8_t *where = r->at;
    uint32_t code, low;
    uint8_t bytes[4];

    if (!read_hex4(r, &code))
        return fail_at(r, where, "\\u needs four hexadecimal digits");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail_at(r, where, "\\u gives the second half of a surrogate pair without the first");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail_at(r, where,
                           "\\u gives the first half of a surrogate pair without the second");
        r->at += 2;
        if (!read_hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return fail_at(r, where,
                           "\\u gives the first half of a surrogate pair without the second");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0 && key)
        return fail_at(r, where, "a field name cannot contain \\u0000");
    return json_read_put(r, bytes, utf8_encode(code, bytes));
}

/* Reads the rest of an escape after the backslash, and writes its character. */
static truce_status read_escape(struct reading *r, bool key, uint8_t quote)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    if (r->at == r->end)
        return fail_here(r, "");
    if (*r->at == 'u') {
        r->at++;
        return read_unicode(r, key);
    }
    if (*r->at == quote) {
        r->at++;
        return put_byte(r, quote);
    }
    found = *r->at ? strchr(from, *r->at) : NULL;
    if (!found)
        return fail_here(r, "unknown escape after \\ in a string: expected \" \\ / b f n r t or u");
    r->at++;
    return put_byte(r, (uint8_t)to[found - from]);
}

/* Reads the characters of a string up to and including the closing quote; the opening one was read.
 * Writes no terminator. */
static truce_status read_characters(struct reading *r, bool key, uint8_t quote)
{
    truce_status status;

    for (;;) {
        const uint8_t *from = r->at;

        while (r->at < r->end && *r->at != quote && *r->at != '\\' && *r->at >= 0x20)
            r->at++;
        size_t good = truce__utf8_check((const char *)from, (size_t)(r->at - from));
        if (good != (size_t)(r->at - from))
            return fail_at(r, from + good, "the string is not valid UTF-8");
        status = json_read_put(r, from, (size_t)(r->at - from));
        if (status)
            return status;
        if (r->at == r->end)
            return fail_here(r, "");
        if (*r->at == quote) {
            r->at++;
            return TRUCE_OK;
        }
        if (*r->at != '\\')
            return fail_here(r, "a control character in a string must be written as \\u00XX");
        r->at++;
        status = read_escape(r, key, quote);
        if (status)
            return status;
    }
}

static bool is_quote(const struct reading *r)
{
    return r->at < r->end && (*r->at == '"' || (r->typed && *r->at == '\''));
}

static truce_status json_read_string(struct reading *r)
{
    size_t length_at = r->out->size;
    uint8_t quote = *r->at++;
    truce_status status = json_read_put(r, "\0\0\0\0", 4);

    if (!status)
        status = read_characters(r, false, quote);
    if (!status)
        status = put_byte(r, 0);
    if (!status)
        patch_length(r, length_at, r->out->size - length_at - 4);
    return status;
}

static truce_status put_double(struct reading *r, double number, uint8_t *type)
{
    *type = BSON_TYPE_DOUBLE;
    number = BSON_DOUBLE_TO_LE(number);
    return json_read_put(r, &number, 8);
}

static truce_status fail_wide(struct reading *r, const char *text)
{
    char what[160];

    snprintf(what, sizeof what,
             "the number %.40s is beyond 64 bits: write it as a string, or as "
             "{\"$numberDecimal\": \"...\"}",
             text);
    return fail_at(r, r->at - strlen(text), what);
}

/* Appends an integer. It becomes an int32, an int64, or a double: the first that fits, as in
 * MongoDB's tools. */
static truce_status put_integer(struct reading *r, const char *text, uint8_t *type)
{
    errno = 0;
    long long number = strtoll(text, NULL, 10);

    if (errno == ERANGE && r->exact)
        return fail_wide(r, text);
    if (errno == ERANGE)
        return put_double(r, strtod(text, NULL), type);
    if (number >= INT32_MIN && number <= INT32_MAX) {
        uint32_t small = BSON_UINT32_TO_LE((uint32_t)(int32_t)number);
        *type = BSON_TYPE_INT32;
        return json_read_put(r, &small, 4);
    }
    *type = BSON_TYPE_INT64;
    return put_int64(r, number);
}

static truce_status json_refuse_length(struct reading *r)
{
    char what[80];

    snprintf(what, sizeof what, "the number is too long: the maximum is %d characters",
             NUMBER_TEXT_MAX);
    return fail_here(r, what);
}

/* Reads a number. It becomes an integer if it has neither a fraction nor an exponent (put_integer),
 * and otherwise a double. */
static truce_status json_read_number(struct reading *r, uint8_t *type)
{
    char text[NUMBER_TEXT_MAX + 1];
    bool integer;
    const uint8_t *from = r->at, *end = json_number_end(r->at, r->end, &integer);
    double number;

    if (!end)
        return fail_here(r, "this is not a JSON number");
    if (end - from > NUMBER_TEXT_MAX)
        return json_refuse_length(r);
    memcpy(text, from, (size_t)(end - from));
    text[end - from] = '\0';
    r->at = end;
    if (integer)
        return put_integer(r, text, type);
    number = strtod(text, NULL);
    if (isinf(number))
        return fail_at(r, from, "the number is too large for a double");
    return put_double(r, number, type);
}

/* Reads true, false, or null. Anything else is an error, because no value begins with it. */
static truce_status read_word(struct reading *r, uint8_t *type)
{
    size_t left = (size_t)(r->end - r->at);

    if (left >= 4 && !memcmp(r->at, "true", 4)) {
        r->at += 4;
        *type = BSON_TYPE_BOOL;
        return put_byte(r, 1);
    }
    if (left >= 5 && !memcmp(r->at, "false", 5)) {
        r->at += 5;
        *type = BSON_TYPE_BOOL;
        return put_byte(r, 0);
    }
    if (left >= 4 && !memcmp(r->at, "null", 4)) {
        r->at += 4;
        *type = BSON_TYPE_NULL;
        return TRUCE_OK;
    }
    return fail_here(r, "a value is expected: \"text\", a number, {, [, true, false or null");
}

/* ---- documents and arrays ------------------------------------------------------------------ */

/* Accepts letters, digits, _, and $, as names in JavaScript. Bytes above ASCII count as letters. */
static bool is_in_name(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '_' || byte == '$' || byte >= 0x80;
}

/* Reads a name without quotes. A path ('a.b') needs quotes, as in JavaScript. */
static truce_status json_read_name(struct reading *r)
{
    const uint8_t *from = r->at;
    size_t good;

    while (r->at < r->end && is_in_name(*r->at))
        r->at++;
    if (r->at == from)
        return fail_here(r, "a field name is expected");
    if (r->at < r->end && (*r->at == '.' || *r->at == '-'))
        return fail_here(r, "a field name with a . or a - in it needs quotes: 'a.b'");
    good = truce__utf8_check((const char *)from, (size_t)(r->at - from));
    if (good != (size_t)(r->at - from))
        return fail_at(r, from + good, "the field name is not valid UTF-8");
    return json_read_put(r, from, (size_t)(r->at - from));
}

/* Writes the key of an element: the index in an array, or else the name that it reads. */
static truce_status json_read_key(struct reading *r, uint32_t index, bool array)
{
    truce_status status = TRUCE_OK;

    if (array) {
        char digits[16];
        int length = snprintf(digits, sizeof digits, "%u", index);
        status = json_read_put(r, digits, (size_t)length);
    } else if (is_quote(r)) {
        uint8_t quote = *r->at++;
        status = read_characters(r, true, quote);
    } else if (r->typed) {
        status = json_read_name(r);
    } else {
        return fail_here(r, "a field name in double quotes is expected");
    }
    return status ? status : put_byte(r, 0);
}

static truce_status read_colon(struct reading *r)
{
    json_read_skip_space(r);
    if (r->at == r->end || *r->at != ':')
        return fail_here(r, "a : is expected after the field name");
    r->at++;
    json_read_skip_space(r);
    return TRUCE_OK;
}

/* Reads an element, and writes its type when the value has been read. */
static truce_status json_read_element(struct reading *r, uint32_t index, bool array)
{
    size_t type_at = r->out->size;
    uint8_t type = 0;
    truce_status status;

    r->frames[r->depth].key = 0;
    status = put_byte(r, 0);
    if (!status)
        status = json_read_key(r, index, array);
    if (!status)
        r->frames[r->depth].key = type_at + 1;
    if (!status && !array)
        status = read_colon(r);
    if (!status)
        status = json_read_value(r, &type);
    if (!status)
        r->out->bytes[type_at] = type;
    return status;
}

/* Reads the elements up to and including the closing bracket; the opening one was read. */
static truce_status json_read_elements(struct reading *r, bool array)
{
    const uint8_t close = array ? ']' : '}';
    truce_status status;
    uint32_t count = 0;

    for (;;) {
        json_read_skip_space(r);
        if (r->at < r->end && *r->at == close && !count)
            break;
        status = json_read_element(r, count++, array);
        if (status)
            return status;
        json_read_skip_space(r);
        if (r->at < r->end && *r->at == close)
            break;
        if (r->at == r->end || *r->at != ',')
            return fail_here(r, array ? "a , or ] is expected" : "a , or } is expected");
        r->at++;
        json_read_skip_space(r);
        if (r->at < r->end && *r->at == close)
            return fail_here(r, "a value is expected after the comma");
    }
    r->at++;
    return TRUCE_OK;
}

static truce_status json_read_too_deep(struct reading *r, const uint8_t *where)
{
    char what[80];

    snprintf(what, sizeof what, "documents nest deeper than %d levels", TRUCE_DOCUMENT_DEPTH_MAX);
    return fail_at(r, where, what);
}

/* Returns whether the next value belongs to the first field of a document, and that field is
 * JSON_ESCAPE. */
static bool is_escaped(const struct reading *r)
{
    const struct frame *frame = &r->frames[r->depth];

    return r->depth && frame->key == frame->start + 5 && !frame->literal &&
           !strcmp((const char *)r->out->bytes + frame->key, JSON_ESCAPE);
}

/* Reads a document or an array, from its opening bracket on. `literal` means that it stays a
 * document even if it looks like a wrapper. */
static truce_status read_container(struct reading *r, bool array, bool literal)
{
    size_t length_at = r->out->size;
    truce_status status;

    if (r->depth == READ_DEPTH_MAX)
        return json_read_too_deep(r, r->at);
    r->at++;
    r->depth++;
    r->frames[r->depth] = (struct frame){.start = length_at, .literal = literal};
    status = json_read_put(r, "\0\0\0\0", 4);
    if (!status)
        status = json_read_elements(r, array);
    if (!status)
        status = put_byte(r, 0);
    /* On failure, the depth stays unchanged: the error names the field by it. */
    if (status)
        return status;
    r->depth--;
    patch_length(r, length_at, r->out->size - length_at);
    return TRUCE_OK;
}

/* Replaces the document at `where` in the buffer by its value if it is a wrapper. */
static truce_status json_read_unwrap(struct reading *r, size_t where, const uint8_t *text,
                                     uint8_t *type)
{
    struct buffer payload = {0};
    const char *wrong = NULL;
    truce_status status = TRUCE_OK;

    if (json_unwrap(r->out->bytes + where, r->out->size - where, &payload, type, &wrong)) {
        r->out->size = where;
        status = json_read_put(r, payload.bytes, payload.size);
    } else if (wrong) {
        status = fail_at(r, text, wrong);
    }
    truce__buffer_release(&payload);
    return status;
}

/* Reads a value and appends its payload. */
static truce_status json_read_value(struct reading *r, uint8_t *type)
{
    const uint8_t *text = r->at;
    size_t where = r->out->size;
    truce_status status;
    bool escaped;

    if (r->at == r->end)
        return fail_here(r, "");
    switch (*r->at) {
    case '{':
        *type = BSON_TYPE_DOCUMENT;
        escaped = is_escaped(r);
        status = read_container(r, false, escaped);
        /* An empty document has 5 bytes. A wrapper begins with a $ field or with its second
         * field. */
        if (!status && !escaped && r->out->size > where + 6 && r->out->bytes[where + 5] == '$')
            status = json_read_unwrap(r, where, text, type);
        break;
    case '[':
        *type = BSON_TYPE_ARRAY;
        status = read_container(r, true, false);
        break;
    case '\'':
        if (!r->typed)
            return read_word(r, type);
        /* fall through */
    case '"':
        *type = BSON_TYPE_UTF8;
        return json_read_string(r);
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9':
        return json_read_number(r, type);
    default:
        return read_word(r, type);
    }
    if (!status && r->depth >= TRUCE_DOCUMENT_DEPTH_MAX &&
        (*type == BSON_TYPE_DOCUMENT || *type == BSON_TYPE_ARRAY))
        status = json_read_too_deep(r, text);
    return status;
}

/* Reads the whole text: one document, or an array if `is_array` is not NULL. */
static truce_status json_read_all(struct reading *r, bool *is_array)
{
    truce_status status;
    bool array;

    if (r->end - r->at >= 3 && !memcmp(r->at, "\xef\xbb\xbf", 3))
        return fail_at(r, r->at,
                       "the text begins with a byte order mark; save it as UTF-8 without one");
    json_read_skip_space(r);
    if (r->at == r->end)
        return fail_at(r, r->at, "there is no document, only white space");
    array = *r->at == '[';
    if (*r->at != '{' && !(array && is_array))
        return fail_here(r, is_array ? "a document or an array is expected: { or ["
                                     : "a document is expected: {");
    status = read_container(r, array, true); /* The document as a whole is never a wrapper. */
    if (status)
        return status;
    json_read_skip_space(r);
    if (r->at != r->end)
        return fail_here(r, "unexpected text after the end of the document");
    if (r->out->size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__fail(TRUCE_LIMIT, r->error, "the document is larger than %d bytes",
                           TRUCE_DOCUMENT_BYTES_MAX);
    if (is_array)
        *is_array = array;
    return TRUCE_OK;
}

truce_status truce__json_read(struct json_reader *reader, const char *text, size_t size,
                              bson_t *document, bool *is_array, bson_error_t *error)
{
    struct reading r = {.start = (const uint8_t *)text,
                        .at = (const uint8_t *)text,
                        .end = (const uint8_t *)text + size,
                        .out = &reader->bytes,
                        .typed = reader->typed,
                        .exact = reader->exact,
                        .error = error};
    truce_status status;

    bson_init(document);
    reader->bytes.size = 0;
    status = json_read_all(&r, is_array);
    if (status)
        return status;
    bool whole = bson_init_static(document, reader->bytes.bytes, reader->bytes.size);
    truce_assert(whole);
    return TRUCE_OK;
}

void truce__json_reader_release(struct json_reader *reader)
{
    truce__buffer_release(&reader->bytes);
}
