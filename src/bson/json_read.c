/*
 * Extended JSON to BSON, in one pass over the text.
 *
 * Values are written straight into a buffer as BSON. An element is its type byte, its key and its
 * payload; the type is not known before the value was read, so its byte is patched afterwards, and
 * so are the lengths in front of strings and documents:
 *
 *     {"a": {"$numberLong": "5"}}
 *
 *     LL LL LL LL | ?? 'a' 00 | LL LL LL LL | 02 "$numberLong" 00  02 00 00 00 '5' 00 | 00
 *                   ^ patched   ^ payload of a: first read as the document that it looks like,
 *                                 then seen to be a wrapper and replaced by 8 bytes
 *
 * So wrappers ($oid, $date ...) are recognised on BSON, in whatever order their fields came, and a
 * wrapper may stand inside another ({"$date": {"$numberLong": "0"}}).
 *
 * Invariants:
 *  1. The buffer holds whole elements of every open document, then the part that is being written.
 *  2. It never grows beyond SLACK times the maximum of a document, whatever the text says.
 *  3. The depth of the document is at most TRUCE_DOCUMENT_DEPTH_MAX, and that of the text a little
 *     more, so the recursion is bounded too.
 *
 * What people type may have names without quotes and texts in single quotes, as in JavaScript, where
 * the reader is told so (`typed`); files may not.
 *
 * Not done: comments, commas at the end, and what else is not JSON.
 */
#include "bson/json.h"

#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/json_wrapper.h"

#define NUMBER_TEXT_MAX 400 /* characters of one number */
#define SLACK           2   /* a wrapper is longer than what it stands for, */
#define WRAPPER_DEPTH   3   /* and deeper: {"$dbPointer": {"$id": {"$oid": ...}}} */
#define READ_DEPTH_MAX  (TRUCE_DOCUMENT_DEPTH_MAX + WRAPPER_DEPTH)

/* What is being read: for the field's name in an error. */
struct frame {
    size_t key;   /* where in the buffer the key of the current element stands */
    size_t start; /* where the document itself stands */
    bool literal; /* it is the document in a JSON_ESCAPE: no wrapper, whatever it looks like */
};

struct reading {
    const uint8_t *start, *at, *end;
    struct buffer *out;
    bool typed; /* names without quotes, texts in single quotes */
    uint32_t depth;
    struct frame frames[READ_DEPTH_MAX + 1];
    bson_error_t *error;
};

static truce_status json_read_read_value(struct reading *r, uint8_t *type);

/* ---- errors -------------------------------------------------------------------------------- */

/* "a.b.0" of the elements that are open; a name too long for the message is cut */
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

/* the four digits behind \u */
static bool read_hex4(struct reading *r, uint32_t *code)
{
    *code = 0;
    if (r->end - r->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int digit = truce__hex_digit(r->at[i]);
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    r->at += 4;
    return true;
}

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

/* a code point, or a pair of surrogates, behind \u */
static truce_status read_unicode(struct reading *r, bool key)
{
    const uint8_t *where = r->at;
    uint32_t code, low;
    uint8_t bytes[4];

    if (!read_hex4(r, &code))
        return fail_at(r, where, "\\u needs four hexadecimal digits");
    if (code >= 0xdc00 && code <= 0xdfff)
        return fail_at(r, where, "\\u names the second half of a pair without the first");
    if (code >= 0xd800 && code <= 0xdbff) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail_at(r, where, "\\u names the first half of a pair without the second");
        r->at += 2;
        if (!read_hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
            return fail_at(r, where, "\\u names the first half of a pair without the second");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code == 0 && key)
        return fail_at(r, where, "a field name cannot contain \\u0000");
    return json_read_put(r, bytes, utf8_encode(code, bytes));
}

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
        return fail_here(r, "unknown escape after \\ in a string");
    r->at++;
    return put_byte(r, (uint8_t)to[found - from]);
}

/* The characters of a string up to and with the closing quote, without any terminator; the opening one
 * was read. */
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
            return fail_here(r, "control characters in a string are written as \\u00XX");
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

static truce_status json_read_read_string(struct reading *r)
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

/* An integer is an int32 if it fits, else an int64, else a double, as MongoDB's tools have it. */
static truce_status put_integer(struct reading *r, const char *text, uint8_t *type)
{
    errno = 0;
    long long number = strtoll(text, NULL, 10);

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

static truce_status json_read_read_number(struct reading *r, uint8_t *type)
{
    char text[NUMBER_TEXT_MAX + 1];
    bool integer;
    const uint8_t *from = r->at, *end = truce__json_number_end(r->at, r->end, &integer);
    double number;

    if (!end)
        return fail_here(r, "this is not a JSON number");
    if (end - from > NUMBER_TEXT_MAX)
        return fail_here(r, "the number has too many digits");
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

/* Letters, digits, _ and $, as JavaScript's names; bytes above ASCII are letters. */
static bool is_in_name(uint8_t byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= '0' && byte <= '9') || byte == '_' || byte == '$' || byte >= 0x80;
}

/* A name without quotes. A path ('a.b') needs them, as in JavaScript. */
static truce_status json_read_read_name(struct reading *r)
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

static truce_status json_read_read_key(struct reading *r, uint32_t index, bool array)
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
        status = json_read_read_name(r);
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

static truce_status json_read_read_element(struct reading *r, uint32_t index, bool array)
{
    size_t type_at = r->out->size;
    uint8_t type = 0;
    truce_status status;

    r->frames[r->depth].key = 0;
    status = put_byte(r, 0);
    if (!status)
        status = json_read_read_key(r, index, array);
    if (!status)
        r->frames[r->depth].key = type_at + 1;
    if (!status && !array)
        status = read_colon(r);
    if (!status)
        status = json_read_read_value(r, &type);
    if (!status)
        r->out->bytes[type_at] = type;
    return status;
}

/* The elements up to and with the closing bracket; the opening one was read. */
static truce_status json_read_read_elements(struct reading *r, bool array)
{
    const uint8_t close = array ? ']' : '}';
    truce_status status;
    uint32_t count = 0;

    for (;;) {
        json_read_skip_space(r);
        if (r->at < r->end && *r->at == close && !count)
            break;
        status = json_read_read_element(r, count++, array);
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

/* Whether the value that comes is that of the first field of a document, and the name of the field is JSON_ESCAPE. */
static bool is_escaped(const struct reading *r)
{
    const struct frame *frame = &r->frames[r->depth];

    return r->depth && frame->key == frame->start + 5 && !frame->literal &&
           !strcmp((const char *)r->out->bytes + frame->key, JSON_ESCAPE);
}

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
        status = json_read_read_elements(r, array);
    if (!status)
        status = put_byte(r, 0);
    if (status)
        return status; /* the depth stays, so that the error could name the field */
    r->depth--;
    patch_length(r, length_at, r->out->size - length_at);
    return TRUCE_OK;
}

/* The document at `where` in the buffer is replaced by what it stands for, if it is a wrapper. */
static truce_status json_read_unwrap(struct reading *r, size_t where, const uint8_t *text,
                                     uint8_t *type)
{
    struct buffer payload = {0};
    const char *wrong = NULL;
    truce_status status = TRUCE_OK;

    if (truce__json_unwrap(r->out->bytes + where, r->out->size - where, &payload, type, &wrong)) {
        r->out->size = where;
        status = json_read_put(r, payload.bytes, payload.size);
    } else if (wrong) {
        status = fail_at(r, text, wrong);
    }
    truce__buffer_release(&payload);
    return status;
}

static truce_status json_read_read_value(struct reading *r, uint8_t *type)
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
        /* an empty document is 5 bytes; a wrapper's first field starts with $ or is its second */
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
        return json_read_read_string(r);
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
        return json_read_read_number(r, type);
    default:
        return read_word(r, type);
    }
    if (!status && r->depth >= TRUCE_DOCUMENT_DEPTH_MAX &&
        (*type == BSON_TYPE_DOCUMENT || *type == BSON_TYPE_ARRAY))
        status = json_read_too_deep(r, text);
    return status;
}

static truce_status json_read_read_all(struct reading *r, bool *is_array)
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
    status = read_container(r, array, true); /* the whole is never a wrapper */
    if (status)
        return status;
    json_read_skip_space(r);
    if (r->at != r->end)
        return fail_here(r, "there is something after the end of the document");
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
                        .error = error};
    truce_status status;

    bson_init(document);
    reader->bytes.size = 0;
    status = json_read_read_all(&r, is_array);
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
