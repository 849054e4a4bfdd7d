#include "sim/edn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "bson/json.h"

/* The maximum length of a name or a number in bytes. */
#define TOKEN_MAX 1000

/* The target of a value: its document or array, and its name there. */
struct edn_target {
    bson_t *parent;
    const char *key;
    int key_length;
    int depth;
};

static truce_status edn_value(struct edn_reader *reader, const struct edn_target *target,
                              bson_error_t *error);

/* ---- characters ----------------------------------------------------------------------------- */

static truce_status edn_bad(const struct edn_reader *reader, const char *what, bson_error_t *error)
{
    return truce__fail(TRUCE_INVALID, error, "line %lld: invalid EDN: %s", (long long)reader->line,
                       what);
}

/* Returns the current character, or 0 at the end. The text contains no NUL. */
static char edn_peek(const struct edn_reader *reader)
{
    return reader->at < reader->size ? reader->text[reader->at] : 0;
}

static char edn_take(struct edn_reader *reader)
{
    char c = edn_peek(reader);

    reader->line += c == '\n';
    reader->at += reader->at < reader->size;
    return c;
}

static bool edn_blank(char c)
{
    return c == ' ' || c == ',' || (c >= '\t' && c <= '\r');
}

/* Returns true for a character that ends a number, a keyword, or a symbol. */
static bool edn_ends(char c)
{
    return !c || edn_blank(c) || strchr("()[]{}\";", c);
}

/* Skips blanks and comments. */
static char edn_skip(struct edn_reader *reader)
{
    for (char c; (c = edn_peek(reader));) {
        if (c == ';') {
            while (edn_peek(reader) && edn_peek(reader) != '\n')
                edn_take(reader);
        } else if (edn_blank(c)) {
            edn_take(reader);
        } else {
            break;
        }
    }
    return edn_peek(reader);
}

/* ---- values without parts ------------------------------------------------------------------- */

static truce_status edn_append_text(struct edn_reader *reader, const struct edn_target *target,
                                    const char *text, size_t length, bson_error_t *error)
{
    if (truce__utf8_check(text, length) != length)
        return edn_bad(reader, "a string is not UTF-8", error);
    bson_append_utf8(target->parent, target->key, target->key_length, text, (int)length);
    return TRUCE_OK;
}

/* Reads the rest of an escape in a string, and appends the character as UTF-8. */
static truce_status edn_escape(struct edn_reader *reader, struct buffer *out, bson_error_t *error)
{
    static const char names[] = "ntrbf\"\\/", values[] = "\n\t\r\b\f\"\\/";
    char c = edn_take(reader);
    const char *found = c ? strchr(names, c) : NULL;
    char digits[5] = "";
    unsigned code;

    if (found) {
        truce__buffer_append_byte(out, (uint8_t)values[found - names]);
        return TRUCE_OK;
    }
    if (c != 'u')
        return edn_bad(reader,
                       "an unknown escape in a string; known are \\n \\t \\r \\b \\f \\\" "
                       "\\\\ \\/ \\uXXXX",
                       error);
    for (int i = 0; i < 4; i++)
        digits[i] = edn_take(reader);
    if (strspn(digits, "0123456789abcdefABCDEF") != 4)
        return edn_bad(reader, "\\u needs four hexadecimal digits", error);
    code = (unsigned)strtoul(digits, NULL, 16);
    if (!code || (code >= 0xd800 && code < 0xe000))
        /* A NUL would end a string of BSON, and half of a surrogate pair is not a character. */
        code = '?';
    if (code >= 0x800)
        truce__buffer_append_byte(out, (uint8_t)(0xe0 | code >> 12));
    if (code >= 0x80) {
        unsigned first = code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6;

        truce__buffer_append_byte(out, (uint8_t)first);
        code = 0x80 | (code & 0x3f);
    }
    truce__buffer_append_byte(out, (uint8_t)code);
    return TRUCE_OK;
}

/* Reads a string after its opening quote. */
static truce_status edn_string(struct edn_reader *reader, struct buffer *out, bson_error_t *error)
{
    for (char c; (c = edn_take(reader)) != '"';) {
        truce_status status = TRUCE_OK;

        if (!c)
            return edn_bad(reader, "a string without its end", error);
        if (c == '\\')
            status = edn_escape(reader, out, error);
        else
            truce__buffer_append_byte(out, (uint8_t)c);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Reads a number, a keyword, a symbol, or a character. The token is borrowed from the text. */
static size_t edn_token(struct edn_reader *reader, const char **token)
{
    size_t from = reader->at;

    *token = reader->text + from;
    while (!edn_ends(edn_peek(reader)))
        edn_take(reader);
    return reader->at - from;
}

/* Appends a number. Returns false if the token is not a number. */
static bool edn_number(const struct edn_target *target, const char *token)
{
    char *end;
    long long whole;
    double real;
    const char *digits = token + strspn(token, "+-");

    if (digits - token > 1 || *digits < '0' || *digits > '9')
        return false;
    errno = 0;
    whole = strtoll(token, &end, 10);
    if (!errno && (!*end || !strcmp(end, "N"))) {
        bson_append_int64(target->parent, target->key, target->key_length, whole);
        return true;
    }
    real = strtod(token, &end);
    if (*end && strcmp(end, "N") && strcmp(end, "M"))
        return false;
    bson_append_double(target->parent, target->key, target->key_length, real);
    return true;
}

/* Reads a value without parts: a character, a keyword, nil, true, false, a number, or a symbol. */
static truce_status edn_plain(struct edn_reader *reader, const struct edn_target *target,
                              bson_error_t *error)
{
    const char *token;
    char text[TOKEN_MAX + 1];
    size_t length = edn_token(reader, &token);

    if (length > TOKEN_MAX)
        return edn_bad(reader, "a name or a number of more than 1,000 bytes", error);
    memcpy(text, token, length);
    text[length] = 0;
    /* The token is only a backslash, because the character after it is a bracket, a comma, or a
     * quote, which ends tokens. */
    if (*text == '\\' && length == 1) {
        text[0] = edn_take(reader);
        return text[0] ? edn_append_text(reader, target, text, 1, error)
                       : edn_bad(reader, "a character is missing after \\", error);
    }
    if (*text == ':' || *text == '\\')
        return length > 1 ? edn_append_text(reader, target, text + 1, length - 1, error)
                          : edn_bad(reader, "a keyword without a name", error);
    if (!strcmp(text, "nil"))
        bson_append_null(target->parent, target->key, target->key_length);
    else if (!strcmp(text, "true") || !strcmp(text, "false"))
        bson_append_bool(target->parent, target->key, target->key_length, *text == 't');
    else if (!edn_number(target, text))
        return edn_append_text(reader, target, text, length, error);
    return TRUCE_OK;
}

/* ---- values with parts ---------------------------------------------------------------------- */

/* Reads a value and drops it. */
static truce_status edn_drop(struct edn_reader *reader, int depth, bson_error_t *error)
{
    bson_t dropped = BSON_INITIALIZER;
    struct edn_target target = {&dropped, "", 0, depth};
    truce_status status = edn_value(reader, &target, error);

    bson_destroy(&dropped);
    return status;
}

/* Reads the name of a field: any value without parts. A name with parts becomes empty. */
static truce_status edn_name(struct edn_reader *reader, int depth, char name[TOKEN_MAX + 1],
                             bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER;
    struct edn_target target = {&holder, "", 0, depth};
    truce_status status = edn_value(reader, &target, error);
    bson_iter_t iter;

    *name = 0;
    if (!status && bson_iter_init(&iter, &holder) && bson_iter_next(&iter)) {
        if (BSON_ITER_HOLDS_UTF8(&iter))
            snprintf(name, TOKEN_MAX + 1, "%s", bson_iter_utf8(&iter, NULL));
        else if (BSON_ITER_HOLDS_INT64(&iter))
            snprintf(name, TOKEN_MAX + 1, "%lld", (long long)bson_iter_int64(&iter));
    }
    bson_destroy(&holder);
    /* The cut may be in the middle of a character, whose remains are removed. */
    name[truce__utf8_check(name, strlen(name))] = 0;
    return status;
}

/* Reads the parts of a map or an array until `closing`. */
static truce_status edn_parts(struct edn_reader *reader, bson_t *parent, bool is_map, char closing,
                              int depth, bson_error_t *error)
{
    char name[TOKEN_MAX + 1], index[16];
    const char *key = name;
    uint32_t count = 0;
    truce_status status = TRUCE_OK;
    size_t from = reader->at;

    while (!status && edn_skip(reader) != closing) {
        if (!edn_peek(reader))
            return edn_bad(reader, "a bracket is not closed before the end", error);
        if (reader->at - from > EDN_OPERATION_MAX)
            return truce__fail(TRUCE_LIMIT, error,
                               "line %lld: an operation has more than %d bytes of text",
                               (long long)reader->line, EDN_OPERATION_MAX);
        if (reader->text[reader->at] == '#' && reader->at + 1 < reader->size &&
            reader->text[reader->at + 1] == '_') { /* The value after #_ is a comment. */
            reader->at += 2;
            status = edn_drop(reader, depth, error);
            continue;
        }
        if (is_map)
            status = edn_name(reader, depth, name, error);
        else
            bson_uint32_to_string(count++, &key, index, sizeof index);
        if (!status && is_map && edn_skip(reader) == closing)
            return edn_bad(reader, "a map has a key without a value", error);
        if (!status) {
            struct edn_target target = {parent, key, (int)strlen(key), depth};

            status = edn_value(reader, &target, error);
        }
    }
    if (!status)
        edn_take(reader);
    return status;
}

static truce_status edn_map(struct edn_reader *reader, const struct edn_target *target,
                            bson_error_t *error)
{
    bson_t child;
    truce_status status;

    edn_take(reader);
    bson_append_document_begin(target->parent, target->key, target->key_length, &child);
    status = edn_parts(reader, &child, true, '}', target->depth + 1, error);
    bson_append_document_end(target->parent, &child);
    return status;
}

static truce_status edn_array(struct edn_reader *reader, const struct edn_target *target,
                              char closing, bson_error_t *error)
{
    bson_t child;
    truce_status status;

    edn_take(reader);
    bson_append_array_begin(target->parent, target->key, target->key_length, &child);
    status = edn_parts(reader, &child, false, closing, target->depth + 1, error);
    bson_append_array_end(target->parent, &child);
    return status;
}

static truce_status edn_quoted(struct edn_reader *reader, const struct edn_target *target,
                               bson_error_t *error)
{
    struct buffer text = {0};
    truce_status status;

    edn_take(reader);
    status = edn_string(reader, &text, error);
    if (!status)
        status = edn_append_text(reader, target, text.bytes ? (const char *)text.bytes : "",
                                 text.size, error);
    truce__buffer_release(&text);
    return status;
}

/* Skips metadata, tags, and dropped values before a value. */
static truce_status edn_prefixes(struct edn_reader *reader, int depth, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (char c; !status && ((c = edn_skip(reader)) == '#' || c == '^');) {
        char next = reader->at + 1 < reader->size ? reader->text[reader->at + 1] : 0;
        const char *token;

        if (c == '#' && (next == '{' || next == '"' || next == '#'))
            /* The characters begin a set, a regular expression, or a number such as ##NaN. */
            break;
        edn_take(reader);
        if (c == '#' && next != '_') {
            if (edn_token(reader, &token) == 0)
                return edn_bad(reader, "# without the name of a tag", error);
            continue;
        }
        if (c == '#')
            edn_take(reader);
        status = edn_drop(reader, depth + 1, error);
    }
    return status;
}

/* Reads one value into the target. A discarded value or a tag before it is skipped
 * (edn_prefixes). */
static truce_status edn_value(struct edn_reader *reader, const struct edn_target *target,
                              bson_error_t *error)
{
    truce_status status;

    if (target->depth > EDN_DEPTH_MAX)
        return truce__fail(TRUCE_LIMIT, error, "line %lld: values in more than %d values",
                           (long long)reader->line, EDN_DEPTH_MAX);
    status = edn_prefixes(reader, target->depth, error);
    if (status)
        return status;
    if (edn_peek(reader) == '#' && reader->text[reader->at + 1] != '#') {
        edn_take(reader);
        return edn_peek(reader) == '{' ? edn_array(reader, target, '}', error)
                                       : edn_quoted(reader, target, error);
    }
    switch (edn_peek(reader)) {
    case 0:
        return edn_bad(reader, "a value is missing at the end", error);
    case '{':
        return edn_map(reader, target, error);
    case '[':
        return edn_array(reader, target, ']', error);
    case '(':
        return edn_array(reader, target, ')', error);
    case ')':
    case ']':
    case '}':
        return edn_bad(reader, "a bracket closes nothing", error);
    case '"':
        return edn_quoted(reader, target, error);
    default:
        return edn_plain(reader, target, error);
    }
}

/* ---- the sequence of operations ------------------------------------------------------------- */

/* Returns true if there is another operation. */
static bool edn_more(struct edn_reader *reader)
{
    char c = edn_skip(reader);

    if (!reader->started && (c == '[' || c == '(')) {
        reader->closing = c == '[' ? ']' : ')';
        edn_take(reader);
        c = edn_skip(reader);
    }
    reader->started = true;
    return c && c != reader->closing;
}

static truce_status edn_end(struct edn_reader *reader, bson_error_t *error)
{
    if (!reader->closing)
        return TRUCE_OK;
    if (edn_take(reader) != reader->closing)
        return edn_bad(reader, "the list of operations is not closed before the end", error);
    reader->closing = 0;
    return edn_skip(reader) ? edn_bad(reader, "text after the list of operations", error)
                            : TRUCE_OK;
}

truce_status truce__edn_next(struct edn_reader *reader, bson_t *operation, bson_error_t *error)
{
    bson_t holder = BSON_INITIALIZER, inside;
    struct edn_target target = {&holder, "", 0, 1};
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t iter;
    truce_status status;

    reader->found = edn_more(reader);
    if (!reader->found) {
        bson_destroy(&holder);
        return edn_end(reader, error);
    }
    status = edn_value(reader, &target, error);
    if (!status && bson_iter_init(&iter, &holder) && bson_iter_next(&iter) &&
        BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        bson_iter_document(&iter, &length, &bytes);
        if (!bson_init_static(&inside, bytes, length))
            status = edn_bad(reader, "an operation is not valid", error);
        else
            bson_copy_to(&inside, operation);
    } else if (!status) {
        status = edn_bad(reader,
                         "an operation is a map: {:process 0, :type :invoke, :f :txn, :value "
                         "[[:append 1 2]]}",
                         error);
    }
    bson_destroy(&holder);
    return status;
}
