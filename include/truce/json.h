#ifndef TRUCE_JSON_H
#define TRUCE_JSON_H

/*
 * MongoDB's Extended JSON (version 2), in and out, as the program truce reads and writes it.
 *
 * Reading is strict JSON (RFC 8259); canonical and relaxed forms may be mixed, and what is not ambiguous of
 * version 1 is taken, too. A document that only looks like a wrapper is a document: {"$type": 2} and
 * {"$regex": "x"} are query operators.
 */
#include "truce/status.h"

TRUCE_BEGIN_DECLS

typedef enum truce_json_input {
    TRUCE_JSON_STRICT = 0,
    TRUCE_JSON_TYPED, /* by a person, as in mongosh: {a: 1, 'b.c': {$gt: 2}} */
} truce_json_input;

/* Reads the document, or the array, that text[0..size) is but for white space. `document` is always
 * initialised, and the caller destroys it. `is_array` NULL: an array is refused. INVALID: the sentence
 * names the column (bytes, from 1) and the field: "column 14, field a.b: a value is missing". LIMIT: it
 * is too large, or nested too deep. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_json_read(const char *text, size_t size,
                                                         truce_json_input input, bson_t *document,
                                                         bool *is_array, bson_error_t *error);

typedef enum truce_json_form {
    TRUCE_JSON_RELAXED = 0, /* numbers and dates as people write them */
    TRUCE_JSON_CANONICAL,   /* every type is kept when it is read again */
} truce_json_form;

/* One line, without a newline: {"a": 1, "b": [true, null]}. The caller frees it by bson_free. */
TRUCE_EXPORT char *truce_json_write(const bson_t *document, bool is_array, truce_json_form form);

TRUCE_END_DECLS

#endif
