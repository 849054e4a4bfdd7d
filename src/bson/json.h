#ifndef TRUCE_BSON_JSON_H
#define TRUCE_BSON_JSON_H

/*
 * Reads and writes MongoDB Extended JSON, version 2 (see MongoDB's repository "specifications").
 *
 * A wrapper is a JSON object that means a BSON value, such as {"$oid": "..."}. The reader accepts
 * strict JSON (RFC 8259), in which canonical and relaxed wrappers may be mixed. It also accepts the
 * wrappers of version 1 that are unambiguous: {"$binary": "...", "$type": "00"} and {"$date":
 * number}. A document that only resembles a wrapper is a document: {"$type": 2} and {"$regex": "x"}
 * are query operators.
 *
 * A stored document that looks like a wrapper is written as {"$document": {...}}, and the reader
 * unwraps it. Every document is therefore read back unchanged. MongoDB's tools have no form for
 * such a document.
 *
 * Input that a person types may be looser, as in mongosh: {a: 1, 'b.c': {$gt: 2}} (`typed`).
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/status.h"

/* Reads documents one after the other into the same memory. The caller zeroes the struct, and
 * releases it. */
struct json_reader {
    /* The document that was read last. */
    struct buffer bytes;
    /* Allows names without quotes (letters, digits, _, and $) and strings in single quotes. */
    bool typed;
    /* Refuses a whole number beyond 64 bits, which otherwise becomes a double. */
    bool exact;
};

/* Reads one document, which is the whole text except white space. If `is_array` is not NULL, the
 * text may also be an array. `document` borrows from the reader until the next read; after a
 * failure, it is empty. Returns INVALID or LIMIT. The message has the column (in bytes, from 1)
 * and, inside a document, the field: "column 14, field a.b: a value is expected after the
 * comma". */
truce_status truce__json_read(struct json_reader *reader, const char *text, size_t size,
                              bson_t *document, bool *is_array, bson_error_t *error);
void truce__json_reader_release(struct json_reader *reader);

enum json_form {
    /* Plain numbers and dates. They do not distinguish int64 from int32. */
    JSON_RELAXED,
    /* Preserves every type. */
    JSON_CANONICAL,
};

/* Appends the document on one line, without a newline: {"a": 1, "b": [true, null]}. Doubles have 15
 * digits, or 16 or 17 if these are needed to read back the same double. */
void truce__json_write(struct buffer *out, const bson_t *document, bool is_array,
                       enum json_form form);
/* Appends the current value of the iterator. */
void truce__json_write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form);
/* Appends a quoted JSON string. The text is UTF-8. */
void truce__json_write_text(struct buffer *out, const char *text, size_t size);

/* Returns the position of the first byte that is not valid UTF-8, or `size`. Surrogates and
 * overlong forms are not valid. */
size_t truce__utf8_check(const char *text, size_t size);

#endif
