#ifndef TRUCE_BSON_JSON_H
#define TRUCE_BSON_JSON_H

/*
 * MongoDB Extended JSON (version 2, the specification in MongoDB's repository "specifications"), in
 * and out.
 *
 * Reading is strict JSON (RFC 8259) and takes canonical and relaxed forms mixed, and of version 1
 * what is not ambiguous ({"$binary": "...", "$type": "00"}, {"$date": number}). A document that
 * only looks like a wrapper is a document: {"$type": 2} and {"$regex": "x"} are query operators.
 *
 * A stored document that looks like a wrapper is written as {"$document": {...}} and read as what is in it, so that
 * every document is read back as it was. MongoDB's tools have no form for such a document.
 *
 * What a person types may be looser, as in mongosh: {a: 1, 'b.c': {$gt: 2}} (`typed`).
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "base/status.h"

/* Reads document after document into memory that it keeps. Zero-initialise; release frees. */
struct json_reader {
    struct buffer bytes; /* the document that was read last */
    bool typed;          /* names may stand without quotes (letters, digits, _ and $), and single
                            quotes are as good as double ones */
};

/* Reads one document (or array: `is_array`, which may be NULL if arrays are refused) that is the
 * whole of text[0..size) but for white space. `document` borrows from the reader until the next
 * read; on failure it is an empty document. INVALID or LIMIT; the sentence names the column
 * (bytes, from 1) and, inside a document, the field: "column 14, field a.b: a value is missing". */
truce_status truce__json_read(struct json_reader *reader, const char *text, size_t size,
                              bson_t *document, bool *is_array, bson_error_t *error);
void truce__json_reader_release(struct json_reader *reader);

enum json_form {
    JSON_RELAXED,   /* numbers and dates as people write them; int64 and int32 look the same */
    JSON_CANONICAL, /* every type is kept when it is read again */
};

/* Appends the document on one line, without a newline: {"a": 1, "b": [true, null]}. Doubles have
 * 15 digits, or the 16 or 17 that it takes to read back the same double. */
void truce__json_write(struct buffer *out, const bson_t *document, bool is_array,
                       enum json_form form);
/* The value that the iterator stands on. */
void truce__json_write_value(struct buffer *out, const bson_iter_t *iter, enum json_form form);
/* A quoted JSON string; the text is UTF-8. */
void truce__json_write_text(struct buffer *out, const char *text, size_t size);

/* Where the first byte stands that is not UTF-8 (surrogates and overlong forms are not); `size` if
 * there is none. */
size_t truce__utf8_check(const char *text, size_t size);

#endif
