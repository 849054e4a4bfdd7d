#ifndef TRUCE_BSON_JSON_READ_H
#define TRUCE_BSON_JSON_READ_H

/* What the parts of the Extended JSON reader share: json_read.c. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/buffer.h"

/* The wrapper of a document that looks like a wrapper. */
#define JSON_ESCAPE "$document"
/* Whether the reader would take the document for a wrapper, or refuse it as a wrong one. */
bool truce__json_looks_wrapped(const bson_t *document);

#endif
