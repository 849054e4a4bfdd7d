#ifndef TRUCE_BSON_JSON_WRAPPER_H
#define TRUCE_BSON_JSON_WRAPPER_H

/* What the parts of the Extended JSON reader share: json_read.c, json_wrapper.c and json_date.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/buffer.h"

/* If the BSON document is a wrapper such as {"$oid": "..."}: true, and the payload and type of the
 * value that it stands for. Otherwise false, and `*wrong` is NULL (it is a document) or a sentence
 * (it means to be a wrapper, and is none). */
bool truce__json_unwrap(const uint8_t *bytes, size_t size, struct buffer *payload, uint8_t *type,
                        const char **wrong);

/* The wrapper of a document that looks like a wrapper. */
#define JSON_ESCAPE "$document"
/* Whether the reader would take the document for a wrapper, or refuse it as a wrong one. */
bool truce__json_looks_wrapped(const bson_t *document);

/* 0 to 15, or -1 */
int truce__hex_digit(uint8_t c);

/* Where the number that starts at `at` ends by JSON's grammar; NULL: it is not one. */
const uint8_t *truce__json_number_end(const uint8_t *at, const uint8_t *end, bool *integer);

/* ISO 8601: 2024-02-29T12:30:00[.250](Z or +01:00), as milliseconds since 1970 */
bool truce__json_date(const char *at, int64_t *ms);

#endif
