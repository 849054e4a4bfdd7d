#ifndef TRUCE_BSON_VALUE_H
#define TRUCE_BSON_VALUE_H

/*
 * A value: one BSON element's type and payload, borrowed from the document (or arena) it stands in.
 * Everything in query/ works on these views, so that matching a document allocates nothing.
 *
 *     { "a": "xy" }   0d 00 00 00 | 02 'a' 00 | 03 00 00 00 'x' 'y' 00 | 00
 *                                   ^ type      ^ data, size 7
 *
 * Documents that reach these functions have been checked (truce__document_check): the inline
 * functions below trust lengths and do not look twice.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <bson/bson.h>

#include "base/arena.h"
#include "base/status.h"

struct value {
    const uint8_t *data; /* the payload as it stands in BSON, length prefixes included */
    uint32_t size;       /* of the payload, bytes */
    uint8_t type;        /* a bson_type_t; VALUE_MISSING: there is no such field */
};

#define VALUE_MISSING 0

/* Walks the fields of a document or the elements of an array. */
struct fields {
    const uint8_t *at;   /* the next element */
    const char *key;     /* of the current element */
    uint32_t key_length; /* bytes, without the NUL */
    struct value value;  /* the current element */
};

/* The whole of a document from outside: structure, lengths, UTF-8, depth, size; once, on entry.
 * `what` names it in the error ("filter", "document"). */
truce_status truce__document_check(const bson_t *document, const char *what, bson_error_t *error);
/* The same of a document that is to stand so many levels inside of another. */
truce_status truce__document_check_inside(const bson_t *document, uint32_t levels, const char *what,
                                          bson_error_t *error);
/* The same of a command in a message, which may be larger and deeper: documents stand in it. */
truce_status truce__message_check(const bson_t *message, bson_error_t *error);
/* The same of bytes that were read from a file, which are that document and nothing else. */
bool truce__document_sound(const uint8_t *bytes, size_t size);
/* ... and borrows them, if so. */
bool truce__document_borrow(const uint8_t *bytes, size_t size, bson_t *document);
/* The same of a row of the file, which may be larger. */
bool truce__row_sound(const uint8_t *bytes, size_t size);
/* Its size alone, of a document that is made of checked parts. */
truce_status truce__document_check_size(const bson_t *document, const char *what,
                                        bson_error_t *error);

/* How long the payload of a type is: `more` bytes, and if it begins with a length as many as that
 * says. A table and no switch: walks go over one element after the other, of all types. */
struct value_form {
    uint8_t more;
    bool counted;
};

extern const struct value_form truce__value_forms[256];

/* payload size of an element of this type at `data`; the document has been checked */
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

/* It stands for just one whole number: some languages have no others. */
static inline bool truce__double_is_whole(double value)
{
    return value >= -9007199254740991.0 && value <= 9007199254740991.0 &&
           value == (double)(int64_t)value;
}

/* `container` is a document or an array */
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

/* The field of that name, the first if there are several; VALUE_MISSING if there is none. */
struct value truce__value_field(struct value document, const char *key, size_t key_length);

/* scalars out; the type must be the right one */
static inline int64_t truce__value_integer(struct value value) /* of an int32 or an int64 */
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
int64_t truce__value_int64(struct value value); /* also of DATE_TIME and TIMESTAMP (raw) */

/* Timestamp(0, 0): at the top of a document, but not as `_id`, it stands for the current time. */
static inline bool truce__value_is_empty_timestamp(struct value value)
{
    return value.type == BSON_TYPE_TIMESTAMP && truce__value_int64(value) == 0;
}
double truce__value_double(struct value value);
bool truce__value_bool(struct value value);
bson_decimal128_t truce__value_decimal(struct value value);
/* UTF8, SYMBOL, CODE: the text (not always NUL-free inside) and its length in bytes */
const char *truce__value_text(struct value value, uint32_t *length);
/* as a bson_t that borrows the bytes; the value is a document or an array */
void truce__value_bson(struct value value, bson_t *borrowed);
/* the document that stands in a field of a document; false: none does */
bool truce__value_subdocument(const bson_t *document, const char *name, bson_t *borrowed);

/* scalars in, in the arena */
struct value truce__value_from_int32(struct arena *arena, int32_t number);
struct value truce__value_from_int64(struct arena *arena, int64_t number);
struct value truce__value_from_double(struct arena *arena, double number);
struct value truce__value_from_decimal(struct arena *arena, bson_decimal128_t number);
struct value truce__value_from_bool(bool truth); /* static storage */
struct value truce__value_from_date(struct arena *arena, int64_t milliseconds);
struct value truce__value_from_text(struct arena *arena, const char *text, size_t length);
struct value truce__value_null(void);
struct value truce__value_copy(struct arena *arena, struct value value);
struct value truce__value_from_bson(struct arena *arena, const bson_t *document, bool is_array);

/* Appends to a document under construction. Appending a missing value does nothing. A document
 * beyond BSON's own maximum aborts: callers check sizes (TRUCE_DOCUMENT_BYTES_MAX) before. */
void truce__value_append(bson_t *document, const char *key, size_t key_length, struct value value);
/* Appends to `to` the fields of the document but for those with one of the names, which end with NULL: as
 * bson_copy_to_excluding_noinit, by runs of bytes and not field by field. The document was checked. */
void truce__document_append_without(const bson_t *document, const char *const names[], bson_t *to);
/* the next element of an array under construction; counts `index` up */
void truce__value_append_element(bson_t *array, uint32_t *index, struct value value);

/* MongoDB's truth: missing, null, undefined, false and zero of any type are false. */
bool truce__value_truth(struct value value);

/* Can it tell one thing from all others (an element of a set, an item of an array)? Texts, numbers but
 * NaN, ObjectIds, dates, bools and binaries can; equal ones compare equal. */
bool truce__value_identifies(struct value value);

/* "string", "int", "missing" ...: MongoDB's alias of a type, for messages and $type */
const char *truce__type_name(uint8_t type);

/*
 * MongoDB's total order over all values: MinKey, missing and undefined, null, numbers, strings and
 * symbols, documents, arrays, binary, ObjectId, bool, date, timestamp, regex, DBPointer, code, code
 * with scope, MaxKey. Numbers compare by value across their types, exactly; NaN is the least
 * number. Documents compare field by field: type class, then name, then value. Returns < 0, 0, > 0.
 * Missing is less than null; where MongoDB takes a missing field for null (sorts, index keys, the
 * filter {a: null}) the caller does so first.
 */
int truce__value_compare(struct value a, struct value b);

/* Rank of the type in that order (numbers share one, strings and symbols share one). */
int truce__type_class(uint8_t type);

/* 0 exactly when truce__value_compare says so; equal values have equal hashes. */
static inline bool truce__value_equal(struct value a, struct value b)
{
    return truce__value_compare(a, b) == 0;
}
uint64_t truce__value_hash(struct value value);

/* The same bytes and type: what "nothing was modified" means. */
static inline bool truce__value_identical(struct value a, struct value b)
{
    return a.type == b.type && a.size == b.size && (!a.size || !memcmp(a.data, b.data, a.size));
}

/* For messages: relaxed Extended JSON, cut off with "..." to fit `size` (at least 8); returns
 * `text`. */
const char *truce__value_show(struct value value, char *text, size_t size);

#endif
