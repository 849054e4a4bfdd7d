/*
 * Checks documents that come from outside. This is the only code that does not trust their bytes.
 * The inline functions of value.h read a document that has passed without further checks.
 *
 * The check is one pass over the bytes. It recurses into containers, and the end of the innermost
 * container bounds every read:
 *
 *     length                                                    end
 *     | 4 bytes | type name 00 payload | type name 00 payload | 00
 *
 * Invariants after a document has passed:
 *  1. Every length is the exact size of the bytes that follow it.
 *  2. Names, patterns, and options end with a NUL inside their container. A string ends with a NUL
 *     at its length.
 *  3. All names and strings are valid UTF-8, without overlong forms and surrogates.
 *  4. A bool is 0 or 1, and the two lengths of a binary of the old subtype 2 agree. Values with the
 *     same meaning therefore have the same bytes.
 *  5. The document has at most TRUCE_DOCUMENT_BYTES_MAX bytes. Containers, including the document,
 *     are nested at most TRUCE_DOCUMENT_DEPTH_MAX deep.
 *
 * Deliberately not checked, as in MongoDB: names may repeat, and the names of array elements need
 * not count from "0".
 */
#include "base/limits.h"
#include "bson/value.h"

enum fault {
    SOUND,
    BAD_LENGTH,
    BAD_END,
    BAD_TYPE,
    BAD_NAME,
    BAD_UTF8,
    BAD_BOOL,
    BAD_BINARY,
    TOO_DEEP,
};

static const char *const fault_texts[] = {
    [BAD_LENGTH] = "has a length that does not fit",
    [BAD_END] = "is not closed where its length says",
    [BAD_TYPE] = "has an unknown type",
    [BAD_NAME] = "has a string without an end",
    [BAD_UTF8] = "is not valid UTF-8",
    [BAD_BOOL] = "is a bool that is neither 0 nor 1",
    [BAD_BINARY] = "is a binary of subtype 2 whose inner length is wrong",
};

struct scan {
    /* The current depth, and the number of levels that are allowed beyond
     * TRUCE_DOCUMENT_DEPTH_MAX. */
    uint32_t depth, extra;
    /* The levels that will enclose the document. */
    uint32_t around;
    /* The name of the invalid field, or NULL if the document itself is invalid. */
    const char *name;
};

static bool has_high_bit(uint64_t word)
{
    return word & 0x8080808080808080u;
}

/* Returns the length of the UTF-8 sequence at `at`, or 0 if it is not valid. */
static uint32_t utf8_sequence(const uint8_t *at, const uint8_t *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t length = *at < 0xc0 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf8 ? 4 : 0;
    uint32_t point;

    if (*at < 0x80)
        return 1;
    if (!length || (size_t)(end - at) < length)
        return 0;
    point = *at & (0xffu >> (length + 1));
    for (uint32_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[i] & 0x3f);
    }
    if (point < least[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return 0;
    return length;
}

/* Returns whether the bytes are valid UTF-8. Skips ASCII by words. */
static bool is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint64_t word;
        uint32_t length;

        if (end - at >= 8) {
            memcpy(&word, at, 8);
            if (!has_high_bit(word)) {
                at += 8;
                continue;
            }
        }
        length = utf8_sequence(at, end);
        if (!length)
            return false;
        at += length;
    }
    return true;
}

/* Skips a NUL-terminated string. */
static enum fault skip_cstring(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *nul = memchr(*at, 0, (size_t)(end - *at));

    if (!nul)
        return BAD_NAME;
    if (!is_utf8(*at, nul))
        return BAD_UTF8;
    *at = nul + 1;
    return SOUND;
}

static enum fault skip_bytes(const uint8_t **at, const uint8_t *end, int64_t count)
{
    if (count > end - *at)
        return BAD_LENGTH;
    *at += count;
    return SOUND;
}

static enum fault read_length(const uint8_t *at, const uint8_t *end, int32_t *length)
{
    if (end - at < 4)
        return BAD_LENGTH;
    memcpy(length, at, 4);
    return SOUND;
}

static enum fault skip_string(const uint8_t **at, const uint8_t *end)
{
    int32_t length;
    const uint8_t *text;

    if (read_length(*at, end, &length) || length < 1 || length > end - *at - 4)
        return BAD_LENGTH;
    text = *at + 4;
    *at = text + length;
    if ((*at)[-1])
        return BAD_END;
    return is_utf8(text, *at - 1) ? SOUND : BAD_UTF8;
}

static enum fault skip_bool(const uint8_t **at, const uint8_t *end)
{
    if (end > *at && (*at)[0] > 1)
        return BAD_BOOL;
    return skip_bytes(at, end, 1);
}

/* Skips a binary, and checks the inner length of the old subtype. */
static enum fault skip_binary(const uint8_t **at, const uint8_t *end)
{
    int32_t length, inner;

    if (read_length(*at, end, &length) || length < 0 || length > end - *at - 5)
        return BAD_LENGTH;
    if ((*at)[4] == BSON_SUBTYPE_BINARY_DEPRECATED) {
        if (length < 4)
            return BAD_BINARY;
        memcpy(&inner, *at + 5, 4);
        if (inner != length - 4)
            return BAD_BINARY;
    }
    *at += 5 + length;
    return SOUND;
}

static enum fault skip_container(struct scan *scan, const uint8_t **at, const uint8_t *end);

/* Skips code with a scope. The string and the document must fill its length exactly. */
static enum fault skip_code_with_scope(struct scan *scan, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *inside_end;
    enum fault fault;
    int32_t length;

    if (read_length(*at, end, &length) || length < 14 || length > end - *at)
        return BAD_LENGTH;
    inside_end = *at + length;
    *at += 4;
    fault = skip_string(at, inside_end);
    if (!fault)
        fault = skip_container(scan, at, inside_end);
    if (!fault && *at != inside_end)
        fault = BAD_LENGTH;
    return fault;
}

static enum fault skip_pair(enum fault first, const uint8_t **at, const uint8_t *end, int64_t count)
{
    return first ? first : skip_bytes(at, end, count);
}

/* Checks the payload of an element and moves `*at` after it. */
static enum fault skip_payload(struct scan *scan, uint8_t type, const uint8_t **at,
                               const uint8_t *end)
{
    enum fault fault;

    switch (type) {
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_TIMESTAMP:
    case BSON_TYPE_INT64:
        return skip_bytes(at, end, 8);
    case BSON_TYPE_INT32:
        return skip_bytes(at, end, 4);
    case BSON_TYPE_OID:
        return skip_bytes(at, end, 12);
    case BSON_TYPE_DECIMAL128:
        return skip_bytes(at, end, 16);
    case BSON_TYPE_BOOL:
        return skip_bool(at, end);
    case BSON_TYPE_UTF8:
    case BSON_TYPE_CODE:
    case BSON_TYPE_SYMBOL:
        return skip_string(at, end);
    case BSON_TYPE_DBPOINTER:
        return skip_pair(skip_string(at, end), at, end, 12);
    case BSON_TYPE_BINARY:
        return skip_binary(at, end);
    case BSON_TYPE_REGEX:
        fault = skip_cstring(at, end);
        return fault ? fault : skip_cstring(at, end);
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        return skip_container(scan, at, end);
    case BSON_TYPE_CODEWSCOPE:
        return skip_code_with_scope(scan, at, end);
    case BSON_TYPE_NULL:
    case BSON_TYPE_UNDEFINED:
    case BSON_TYPE_MINKEY:
    case BSON_TYPE_MAXKEY:
        return SOUND;
    default:
        return BAD_TYPE;
    }
}

/* Checks the elements of a container. `last` is the container's closing NUL, which no element may
 * reach. */
static enum fault skip_elements(struct scan *scan, const uint8_t *at, const uint8_t *last)
{
    while (at < last) {
        uint8_t type = *at++;
        const char *name = (const char *)at;
        enum fault fault;

        if (!type)
            return BAD_END;
        fault = skip_cstring(&at, last);
        if (fault)
            return fault;
        fault = skip_payload(scan, type, &at, last);
        if (fault) {
            if (!scan->name)
                scan->name = name;
            return fault;
        }
    }
    return SOUND;
}

/* Checks a document or array and moves `*at` after it. */
static enum fault skip_container(struct scan *scan, const uint8_t **at, const uint8_t *end)
{
    int32_t length;
    const uint8_t *start = *at;
    enum fault fault;

    if (read_length(start, end, &length) || length < 5 || length > end - start)
        return BAD_LENGTH;
    if (start[length - 1])
        return BAD_END;
    if (++scan->depth > TRUCE_DOCUMENT_DEPTH_MAX + scan->extra - scan->around)
        return TOO_DEEP;
    fault = skip_elements(scan, start + 4, start + length - 1);
    scan->depth--;
    *at = start + length;
    return fault;
}

static truce_status refuse_fault(enum fault fault, const struct scan *scan, const char *what,
                                 bson_error_t *error)
{
    if (fault == TOO_DEEP) {
        (void)truce__refuse(CODE_OVERFLOW, error, "the %s is nested more than %u levels deep", what,
                            TRUCE_DOCUMENT_DEPTH_MAX - scan->around);
        return TRUCE_LIMIT;
    }
    if (scan->name)
        return truce__refuse(CODE_INVALID_BSON, error, "the %s is malformed: field '%.80s' %s",
                             what, scan->name, fault_texts[fault]);
    return truce__refuse(CODE_INVALID_BSON, error, "the %s is malformed: it %s", what,
                         fault_texts[fault]);
}

truce_status truce__document_check_size(const bson_t *document, const char *what,
                                        bson_error_t *error)
{
    if (document->len <= TRUCE_DOCUMENT_BYTES_MAX)
        return TRUCE_OK;
    return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                         "the %s has %u bytes, more than the maximum of %d", what, document->len,
                         TRUCE_DOCUMENT_BYTES_MAX);
}

static truce_status check_scan(struct scan *scan, const bson_t *document, const char *what,
                               bson_error_t *error)
{
    const uint8_t *at = bson_get_data(document);
    const uint8_t *end = at + document->len;
    enum fault fault = skip_container(scan, &at, end);

    if (!fault && at != end)
        fault = BAD_LENGTH;
    return fault ? refuse_fault(fault, scan, what, error) : TRUCE_OK;
}

truce_status truce__document_check_inside(const bson_t *document, uint32_t levels, const char *what,
                                          bson_error_t *error)
{
    truce_status status = truce__document_check_size(document, what, error);

    return status ? status : check_scan(&(struct scan){.around = levels}, document, what, error);
}

truce_status truce__document_check(const bson_t *document, const char *what, bson_error_t *error)
{
    return truce__document_check_inside(document, 0, what, error);
}

truce_status truce__message_check(const bson_t *message, bson_error_t *error)
{
    return check_scan(&(struct scan){.extra = TRUCE_MESSAGE_DEPTH_EXTRA}, message, "command",
                      error);
}

static bool check_is_valid(const uint8_t *bytes, size_t size, size_t most)
{
    struct scan scan = {0};
    const uint8_t *at = bytes, *end;

    if (size > most)
        return false;
    end = bytes + size;
    return !skip_container(&scan, &at, end) && at == end;
}

bool truce__document_valid(const uint8_t *bytes, size_t size)
{
    return check_is_valid(bytes, size, TRUCE_DOCUMENT_BYTES_MAX);
}

bool truce__document_borrow(const uint8_t *bytes, size_t size, bson_t *document)
{
    return truce__document_valid(bytes, size) && bson_init_static(document, bytes, size);
}

bool truce__row_valid(const uint8_t *bytes, size_t size)
{
    return check_is_valid(bytes, size, TRUCE_ROW_BYTES_MAX);
}
