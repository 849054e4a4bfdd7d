#ifndef TRUCE_BSON_VALUE_H
#define TRUCE_BSON_VALUE_H

/*
 * A value is the type and the payload of one BSON element, borrowed from its document or arena. All
 * of query/ works on these views, so matching a document allocates nothing.
 *
 *     { "a": "xy" }   0d 00 00 00 | 02 'a' 00 | 03 00 00 00 'x' 'y' 00 | 00
 *                                   ^ type      ^ data, size 7
 *
 * Documents that reach these functions have passed truce__document_check. The inline functions
 * below trust the lengths in them.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <bson/bson.h>

#include "base/arena.h"
#include "base/status.h"

struct value {
    /* The payload in BSON, including its length prefix. */
    const uint8_t *data;
    /* The size of the payload in bytes. */
    uint32_t size;
    /* A bson_type_t, or VALUE_MISSING if there is no such field. */
    uint8_t type;
};

#define VALUE_MISSING 0

/* An iterator over the fields of a document or the elements of an array. */
struct fields {
    /* The position of the next element. */
    const uint8_t *at;
    /* The key of the current element, and its length without the NUL. */
    const char *key;
    uint32_t key_length;
    /* The current element. */
    struct value value;
};

/* Checks a document from outside when it enters: structure, lengths, UTF-8, depth, and size. `what`
 * names it in the error ("filter", "document"). */
truce_status truce__document_check(const bson_t *document, const char *what, bson_error_t *error);
/* Does the same for a document that will be nested so many levels deep in another one. */
truce_status truce__document_check_inside(const bson_t *document, uint32_t levels, const char *what,
                                          bson_error_t *error);
/* Does the same for a command in a message, which contains documents and may be larger and
 * deeper. */
truce_status truce__message_check(const bson_t *message, bson_error_t *error);
/* Returns whether bytes from a file are exactly one valid document of the permitted size. */
bool truce__document_valid(const uint8_t *bytes, size_t size);
/* Does the same as truce__document_valid. If the bytes are valid, `document` borrows them. */
bool truce__document_borrow(const uint8_t *bytes, size_t size, bson_t *document);
/* Does the same as truce__document_valid for a row of the file, which may be larger. */
bool truce__row_valid(const uint8_t *bytes, size_t size);
/* Checks only the size of a document, whose parts have been checked. */
truce_status truce__document_check_size(const bson_t *document, const char *what,
                                        bson_error_t *error);

/* The size of a type's payload: `more` bytes and, if it is counted, as many as the length at its
 * beginning says. A table is faster here than a switch, because a walk visits values of all
 * types. */
struct value_form {
    uint8_t more;
    bool counted;
};

extern const struct value_form truce__value_forms[256];

/* Returns the size of the payload at `data`. The document has been checked. */
static inline uint32_t truce__value_size(uint8_t type, const uint8_t *data)
{
    struct value_form form = truce__value_forms[type];
    uint32_t length = 0;
    size_t pattern;

    if (type == BSON_TYPE_REGEX) {
        pattern = strlen((const char *)data) + 1;
        return (uint32_t)(pattern + strlen((const char *)data + pattern) + 1);
    }
    if (form.counted)
        memcpy(&length, data, sizeof length);
    return length + form.more;
}

static inline struct value truce__value_missing(void)
{
    return (struct value){NULL, 0, VALUE_MISSING};
}

static inline struct value truce__value_document(const bson_t *document)
{
    return (struct value){bson_get_data(document), document->len, BSON_TYPE_DOCUMENT};
}

static inline struct value truce__value_array(const bson_t *array)
{
    return (struct value){bson_get_data(array), array->len, BSON_TYPE_ARRAY};
}

static inline struct value truce__value_of_iter(const bson_iter_t *iter)
{
    uint8_t type = (uint8_t)bson_iter_type(iter);
    const uint8_t *data = iter->raw + iter->d1;

    return (struct value){data, truce__value_size(type, data), type};
}

static inline bool truce__value_is_container(struct value value)
{
    return value.type == BSON_TYPE_DOCUMENT || value.type == BSON_TYPE_ARRAY;
}

static inline bool truce__value_is_integer(struct value value)
{
    return value.type == BSON_TYPE_INT32 || value.type == BSON_TYPE_INT64;
}

static inline bool truce__value_is_number(struct value value)
{
    return value.type == BSON_TYPE_DOUBLE || value.type == BSON_TYPE_INT32 ||
           value.type == BSON_TYPE_INT64 || value.type == BSON_TYPE_DECIMAL128;
}

/* Returns whether the double represents exactly one integer. Some languages have only doubles. */
static inline bool truce__double_is_whole(double value)
{
    return value >= -9007199254740991.0 && value <= 9007199254740991.0 &&
           value == (double)(int64_t)value;
}

/* Begins an iteration. `container` is a document or an array. */
static inline struct fields truce__fields(struct value container)
{
    return (struct fields){.at = container.data + 4};
}

static inline bool truce__fields_next(struct fields *fields)
{
    uint8_t type = *fields->at;

    if (type == 0)
        return false;
    fields->key = (const char *)fields->at + 1;
    fields->key_length = (uint32_t)strlen(fields->key);
    fields->value.type = type;
    fields->value.data = fields->at + 1 + fields->key_length + 1;
    fields->value.size = truce__value_size(type, fields->value.data);
    fields->at = fields->value.data + fields->value.size;
    return true;
}

/* Returns the first field with that name, or VALUE_MISSING. */
struct value truce__value_field(struct value document, const char *key, size_t key_length);

/* The next functions read scalars; the value must have the right type. This one reads an int32
 * or an int64. */
static inline int64_t truce__value_integer(struct value value)
{
    int64_t wide = 0;
    int32_t narrow = 0;

    if (value.type == BSON_TYPE_INT64)
        memcpy(&wide, value.data, sizeof wide);
    else
        memcpy(&narrow, value.data, sizeof narrow);
    return wide + narrow;
}
int32_t truce__value_int32(struct value value);
/* Reads an int64, a date, or the raw bits of a timestamp. */
int64_t truce__value_int64(struct value value);

/* Returns whether the value is Timestamp(0, 0), which a top-level field other than `_id`
 * replaces by the current time. */
static inline bool truce__value_is_empty_timestamp(struct value value)
{
    return value.type == BSON_TYPE_TIMESTAMP && truce__value_int64(value) == 0;
}
double truce__value_double(struct value value);
bool truce__value_bool(struct value value);
bson_decimal128_t truce__value_decimal(struct value value);
/* Returns the text of a string, symbol, or code, and its length. It may contain NULs. */
const char *truce__value_text(struct value value, uint32_t *length);
/* Makes a bson_t that borrows the bytes of a document or an array. */
void truce__value_bson(struct value value, bson_t *borrowed);
/* Borrows a document that is a field of a document. Returns false if there is no such document. */
bool truce__value_subdocument(const bson_t *document, const char *name, bson_t *borrowed);

/* The next functions make values in an arena. */
struct value truce__value_from_int32(struct arena *arena, int32_t number);
struct value truce__value_from_int64(struct arena *arena, int64_t number);
struct value truce__value_from_double(struct arena *arena, double number);
struct value truce__value_from_decimal(struct arena *arena, bson_decimal128_t number);
/* Makes a boolean value. The payload is static. */
struct value truce__value_from_bool(bool truth);
struct value truce__value_from_date(struct arena *arena, int64_t milliseconds);
struct value truce__value_from_text(struct arena *arena, const char *text, size_t length);
struct value truce__value_null(void);
struct value truce__value_copy(struct arena *arena, struct value value);
struct value truce__value_from_bson(struct arena *arena, const bson_t *document, bool is_array);

/* Appends a field. A missing value appends nothing. A document beyond BSON's own maximum aborts the
 * process; callers check TRUCE_DOCUMENT_BYTES_MAX before. */
void truce__value_append(bson_t *document, const char *key, size_t key_length, struct value value);
/* Appends the fields of a checked document, except those with one of the names (a list that ends
 * with NULL). It works as bson_copy_to_excluding_noinit, but copies runs of bytes instead of
 * fields. */
void truce__document_append_without(const bson_t *document, const char *const names[], bson_t *to);
/* Appends an element to an array and increments `index`. See bson/array.h. */
void truce__value_append_element(bson_t *array, uint32_t *index, struct value value);

/* Converts a value to a bool as MongoDB does: missing, null, undefined, false, and zero of any type
 * are false. */
bool truce__value_truth(struct value value);

/* Returns whether the value can identify an element of a set or an item of an array. Strings,
 * numbers except NaN, ObjectIds, dates, bools, and binaries can. */
bool truce__value_identifies(struct value value);

/* Returns MongoDB's alias of a type ("string", "int", "missing", ...), for messages and $type. */
const char *truce__type_name(uint8_t type);

/*
 * Compares by MongoDB's total order (value_compare.c). Returns < 0, 0, or > 0. Numbers compare
 * exactly by value across their types; NaN is the least number. Documents compare field by field:
 * by type class, then name, then value. Missing is less than null. Where MongoDB treats a missing
 * field as null (sorts, index keys, the filter {a: null}), the caller converts it first.
 */
int truce__value_compare(struct value a, struct value b);

/* Returns the rank of the type in that order. All numbers have one rank, and so have strings and
 * symbols. */
int truce__type_class(uint8_t type);

/* Returns whether truce__value_compare returns 0. Equal values have equal hashes. */
static inline bool truce__value_equal(struct value a, struct value b)
{
    return truce__value_compare(a, b) == 0;
}
/* Returns a hash of the value, not of its type or its bytes. Commit documents store it, so it must
 * not change (value_compare.c). */
uint64_t truce__value_hash(struct value value);

/* Returns whether type and bytes are the same. An update that keeps a value identical modifies
 * nothing. */
static inline bool truce__value_identical(struct value a, struct value b)
{
    return a.type == b.type && a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

/* Formats a value for messages as relaxed Extended JSON, cut off with "..." to fit `size`, which
 * is at least 8. Returns `text`. */
const char *truce__value_show(struct value value, char *text, size_t size);

#endif
