#ifndef TRUCE_TESTS_SUPPORT_RANDOM_BSON_H
#define TRUCE_TESTS_SUPPORT_RANDOM_BSON_H

/*
 * Random BSON of every type. Values come from small pools (equal values occur often, also across
 * number types) and from the edges of their types.
 */
#include <bson/bson.h>

#include "base/random.h"

/* Appends one element of a random type; at most `depth` levels of containers. */
void random_append(struct random *random, bson_t *document, const char *key, unsigned depth);

/* Returns a document of up to four fields named a, b, c, d or 0, 1. The caller destroys it. */
bson_t *random_document(struct random *random, unsigned depth);

#endif
