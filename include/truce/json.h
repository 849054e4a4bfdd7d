#ifndef TRUCE_JSON_H
#define TRUCE_JSON_H

/*
 * Extended JSON, read and written.
 *
 * The format is MongoDB's Extended JSON, version 2. The program truce uses the same format.
 *
 * The reader accepts strict JSON (RFC 8259). Canonical and relaxed forms may be mixed. The reader
 * also accepts the unambiguous forms of version 1. A document that only resembles a type wrapper is
 * a document: {"$type": 2} and {"$regex": "x"} are query operators.
 */
#include "truce/status.h"

TRUCE_BEGIN_DECLS

typedef enum truce_json_input {
    /* JSON as RFC 8259 defines it. */
    TRUCE_JSON_STRICT = 0,
    /* The relaxed syntax that people type in mongosh: {a: 1, 'b.c': {$gt: 2}}. */
    TRUCE_JSON_TYPED,
} truce_json_input;

/*
 * Parses the single document or array in text[0..size); only white space may surround it.
 * `document` is always initialized, and the caller destroys it. If `is_array` is NULL, an array is
 * refused.
 *
 * If the text is malformed, the call fails with TRUCE_INVALID. The message names the column (in
 * bytes, from 1) and the field: "column 14, field a.b: a value is missing". If the text is too
 * large or nested too deeply, the call fails with TRUCE_LIMIT.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_json_read(const char *text, size_t size,
                                                         truce_json_input input, bson_t *document,
                                                         bool *is_array, bson_error_t *error);

typedef enum truce_json_form {
    /* Numbers and dates in the form that people write. */
    TRUCE_JSON_RELAXED = 0,
    /* Every type survives when the output is read again. */
    TRUCE_JSON_CANONICAL,
} truce_json_form;

/* Returns the document as one line without a newline: {"a": 1, "b": [true, null]}. The caller frees
 * it with bson_free. If `document` is NULL, the result is NULL. */
TRUCE_EXPORT char *truce_json_write(const bson_t *document, bool is_array, truce_json_form form);

TRUCE_END_DECLS

#endif
