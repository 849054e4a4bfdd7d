#ifndef TRUCE_OPERATIONS_REQUEST_FIELDS_H
#define TRUCE_OPERATIONS_REQUEST_FIELDS_H

/*
 * The fields of a command, or of a document within it, read into a struct.
 *
 * A table names each field, its type, and its offset in the struct. A field that is absent or null
 * leaves its member unchanged. All that is read is borrowed from the document, or from the arena of
 * the request.
 */
#include <stddef.h>

#include <bson/bson.h>

#include "base/arena.h"
#include "truce/status.h"

enum field_type {
    /* Read into a const char *. A string with a zero byte fails with BadValue (2). */
    FIELD_TEXT,
    /* Read into a const bson_t *, which is a document. */
    FIELD_DOCUMENT,
    /* Read into a const bson_t *, which is an array. */
    FIELD_ARRAY,
    /* Read into a struct document_or_array: a document or an array. */
    FIELD_EITHER,
    /* Read into a const bson_t *: a document, or a string in the form of truce_find_options. */
    FIELD_HINT,
    /* Read into an int64_t, and converted by truce__field_to_number. */
    FIELD_NUMBER,
    /* Read into an int64_t. A fraction and a number of more than 64 bits fail with BadValue (2). */
    FIELD_WHOLE,
    /* Read as FIELD_WHOLE, and checked as a time in milliseconds since 1970 (base/time_check.h). */
    FIELD_TIME,
    /* Read as FIELD_WHOLE, and checked as a duration in milliseconds. */
    FIELD_DURATION,
    /* Read into a bool, also from a number. */
    FIELD_FLAG,
    /* Read into a const bson_value_t * of any type. */
    FIELD_VALUE,
    /* Read into a const bson_oid_t *. */
    FIELD_OID,
    /* Not read. Any value other than null, false, 0, or empty fails, because truce does not support
     * the field. */
    FIELD_PLAIN,
    /* Not read. Any value is accepted. */
    FIELD_IGNORED,
};

struct document_or_array {
    const bson_t *document;
    bool is_array;
};

/* A table of fields ends with a name of NULL. It has at most 64 fields. */
struct field {
    const char *name;
    enum field_type type;
    size_t at;
    /* The field is not part of MongoDB's stable API. */
    bool unstable;
};

struct fields_reading {
    struct arena *arena;
    /* The command, for error messages. */
    const char *command;
    /* The document is a whole command: its first field and the fields that every command may
     * have are skipped. */
    bool whole;
    /* The command, whose apiStrict may allow only the fields of the stable API. NULL means all
     * fields are allowed. */
    const bson_t *request;
};

/* Reads the fields of `document` into `into`. `into` may be NULL only if all fields of the table
 * are FIELD_PLAIN or FIELD_IGNORED, which are not read.
 *
 *     TypeMismatch (14)   a field has another type
 *     40413               a field is given twice, even if one of them is null
 *     40415               a field is not in the table
 *     323                 an unstable field in a strict call */
truce_status truce__fields_read(const struct fields_reading *reading, const bson_t *document,
                                const struct field *fields, void *into, bson_error_t *error);

/* Returns whether every command may have the field. Such fields are read elsewhere, or have no
 * effect. */
bool truce__field_is_common(const char *name);
/* Returns whether the command allows only the stable API (apiStrict). */
bool truce__fields_strict(const bson_t *request);
/* Returns the error for a value of another type than wanted ("an array"). */
truce_status truce__field_wrong_type(const bson_iter_t *at, const char *wanted,
                                     bson_error_t *error);
/* Returns the error for an element of the array `array` that has another type than wanted. */
truce_status truce__element_wrong_type(const char *array, const bson_iter_t *at, const char *wanted,
                                       bson_error_t *error);
/* Returns whether the value is a number of any of BSON's four types. */
bool truce__field_is_number(const bson_iter_t *at);
/* Converts a number of any type as MongoDB does for the fields of commands. A fraction is cut
 * off, a number of more than 64 bits becomes the nearest one, and NaN becomes 0. Returns false
 * for other types. */
bool truce__field_to_number(const bson_iter_t *at, int64_t *number);
/* Reads a number that is exactly an int64. Returns false for any other number or type. */
bool truce__field_to_whole(const bson_iter_t *at, int64_t *number);
/* Reads an ObjectId. Clients of HTTP and programs that store ids as strings send 24 hexadecimal
 * digits. *id lives in the request or the arena. Returns false for any other value. */
bool truce__field_to_oid(struct arena *arena, const bson_iter_t *at, const bson_oid_t **id);
/* Returns false for false and for zero of any type. */
bool truce__field_truth(const bson_iter_t *at);

/* Returns a view of the document or array at `iter`, in the arena. */
const bson_t *truce__field_view(struct arena *arena, const bson_iter_t *iter);
/* Returns a view of these bytes in the arena; NULL if they are not a document. */
const bson_t *truce__bytes_view(struct arena *arena, const uint8_t *bytes, uint32_t size);

#endif
