/*
 * The wrappers of Extended JSON: {"$oid": "..."}, {"$date": ...} and the others, one function each.
 *
 * A wrapper arrives as the BSON document that its text looks like; its function writes the payload
 * of the value that it stands for. What has other fields than a wrapper's stays a document, because
 * query operators look alike; what has exactly a wrapper's fields but a wrong content is an error.
 *
 * A stored document may look like a wrapper: a driver can store {"$numberInt": "5"}. It is written as
 * {"$document": {"$numberInt": "5"}}, and the reader takes the document in it as it is.
 */
#include "bson/json_wrapper.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <bson/bson.h>

int truce__hex_digit(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static const uint8_t *wrapper_skip_digits(const uint8_t *at, const uint8_t *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

/* Where the number that starts at `at` ends by JSON's grammar; NULL: it is not one. */
const uint8_t *truce__json_number_end(const uint8_t *at, const uint8_t *end, bool *integer)
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

/* A document of BSON that looks like a wrapper, with its fields picked out. */
struct wrapper {
    const char *key; /* of the first field */
    bson_iter_t first, second;
    uint32_t count;
};

/* A converter writes the payload and says the type; the result is NULL, or what is wrong. */
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

/* the text is all there is: no NUL inside */
static const char *plain_text_of(const bson_iter_t *iter)
{
    uint32_t length;
    const char *text = wrapper_text_of(iter, &length);

    return text && strlen(text) == length ? text : NULL;
}

static const char *convert_int(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    const char *text = plain_text_of(&w->first);
    char *end = NULL;
    bool small = !strcmp(w->key, "$numberInt");
    long long number;

    errno = 0;
    number = text ? strtoll(text, &end, 10) : 0;
    if (!text || !*text || *end || errno || text[0] == ' ' || text[0] == '+')
        return small ? "$numberInt needs an integer in quotes"
                     : "$numberLong needs an integer in quotes";
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
        if (truce__json_number_end((const uint8_t *)text, end, &integer) != end)
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

/* The document has the two fields, each once, and no other. */
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

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648, padding required, unused bits zero */
static bool base64_decode(const char *text, struct buffer *bytes)
{
    size_t length = strlen(text), padding = 0;

    if (length % 4)
        return false;
    while (length && padding < 2 && text[length - 1] == '=') {
        length--;
        padding++;
    }
    uint32_t bits = 0, held = 0;
    for (size_t i = 0; i < length; i++) {
        int digit = base64_digit(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            truce__buffer_append_byte(bytes, (uint8_t)(bits >> held));
        }
    }
    return (bits & ((1u << held) - 1)) == 0;
}

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
        if (truce__hex_digit((uint8_t)text[i]) < 0)
            return false;
        value = value * 16 + truce__hex_digit((uint8_t)text[i]);
    }
    *subtype = (uint8_t)value;
    return true;
}

static void payload_binary(struct buffer *payload, uint8_t subtype, const struct buffer *bytes)
{
    bool old = subtype == BSON_SUBTYPE_BINARY_DEPRECATED; /* has its length a second time */
    uint32_t inner = BSON_UINT32_TO_LE((uint32_t)bytes->size);
    uint32_t outer = BSON_UINT32_TO_LE((uint32_t)bytes->size + (old ? 4 : 0));

    truce__buffer_append(payload, &outer, 4);
    truce__buffer_append_byte(payload, subtype);
    if (old)
        truce__buffer_append(payload, &inner, 4);
    truce__buffer_append(payload, bytes->bytes, bytes->size);
}

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
    if (!text || !subtype_of(&kind, &subtype) || !base64_decode(text, &bytes)) {
        truce__buffer_release(&bytes);
        return wrong;
    }
    payload_binary(payload, subtype, &bytes);
    truce__buffer_release(&bytes);
    *type = BSON_TYPE_BINARY;
    return CONVERTED;
}

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
        good =
            truce__hex_digit((uint8_t)text[i]) >= 0 && truce__hex_digit((uint8_t)text[i + 1]) >= 0;
        if (good)
            truce__buffer_append_byte(&bytes, (uint8_t)(truce__hex_digit((uint8_t)text[i]) * 16 +
                                                        truce__hex_digit((uint8_t)text[i + 1])));
        i++;
    }
    if (good)
        payload_binary(payload, BSON_SUBTYPE_UUID, &bytes);
    truce__buffer_release(&bytes);
    *type = BSON_TYPE_BINARY;
    return good ? CONVERTED : "$uuid needs the form 00112233-4455-6677-8899-aabbccddeeff";
}

/* Options are sorted, as MongoDB does; bytes of what is no option at all stay in their order, or they
 * would not be UTF-8 any more. */
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

static const char *convert_regex(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    bson_iter_t pattern, options;
    const char *text, *flags;
    char sorted[16];

    if (!holds_both(&w->first, "pattern", "options", &pattern, &options))
        return "$regularExpression needs {\"pattern\": \"...\", \"options\": \"...\"}, and no other "
               "field";
    text = plain_text_of(&pattern);
    flags = plain_text_of(&options);
    if (!text || !flags || strlen(flags) >= sizeof sorted)
        return "$regularExpression needs texts without \\u0000";
    memcpy(sorted, flags, strlen(flags) + 1);
    if (are_letters(sorted))
        qsort(sorted, strlen(sorted), 1, character_order);
    truce__buffer_append(payload, text, strlen(text) + 1);
    truce__buffer_append(payload, sorted, strlen(sorted) + 1);
    *type = BSON_TYPE_REGEX;
    return CONVERTED;
}

static const char *convert_code(const struct wrapper *w, struct buffer *payload, uint8_t *type)
{
    uint32_t length;
    const char *text = wrapper_text_of(&w->first, &length);

    if (!text)
        return "$code needs a text";
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
        return "$symbol needs a text";
    payload_text(payload, text, length);
    *type = BSON_TYPE_SYMBOL;
    return CONVERTED;
}

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

/* {"$document": {...}} is the document in it, whatever that looks like. */
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
    const char *key, *second; /* `second`: the other field that may be there */
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

/* Fills `w` if the document has exactly the fields that this kind of wrapper has. */
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

/* The converter of the wrapper that the document looks like; NULL: none. */
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

bool truce__json_looks_wrapped(const bson_t *document)
{
    struct wrapper w;
    bson_iter_t iter;

    if (!bson_iter_init(&iter, document) || !bson_iter_next(&iter) || *bson_iter_key(&iter) != '$')
        return false;
    /* the value of that field is read as it stands, so even {"$document": 5} needs the escape */
    return !strcmp(bson_iter_key(&iter), JSON_ESCAPE) || converter_of(document, &w);
}

bool truce__json_unwrap(const uint8_t *bytes, size_t size, struct buffer *payload, uint8_t *type,
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
