#ifndef TRUCE_BSON_JSON_READ_H
#define TRUCE_BSON_JSON_READ_H

/* Declarations for the reader and the writer of Extended JSON. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/buffer.h"

/* The wrapper of a document that looks like a wrapper. */
#define JSON_ESCAPE "$document"
/* Returns whether the reader would treat the document as a wrapper, or refuse it as an invalid
 * one. */
bool truce__json_is_wrapper(const bson_t *document);

#endif
