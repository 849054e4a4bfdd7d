#ifndef TRUCE_BSON_KEYS_H
#define TRUCE_BSON_KEYS_H

/*
 * Index keys: values encoded so that memcmp of two encodings is truce__value_compare of the values
 * (the opposite for a descending field). Numbers are encoded by value, so 1, 1.0 and
 * NumberDecimal("1") are one key. No encoding is a proper prefix of another, so compound keys are
 * concatenations.
 */
#include "base/buffer.h"
#include "bson/path.h"
#include "bson/value.h"

void truce__key_append(struct buffer *key, struct value value, bool descending);

/*
 * For the bounds of a scan. A prefix of a key stands before everything that begins with it, its
 * successor behind all of that:
 *
 *     a == 5 of (a, b)    from key(5), to, but without, successor(key(5))
 *     a > 5               from successor(key(5)), to, but without, successor(class(number))
 *     a < 5               from class(number), to, but without, key(5)
 *
 * For a descending field the ends change places.
 */
void truce__key_append_class(struct buffer *key, uint8_t type, bool descending);
/* The path of a key in a wildcard index; the value's key follows. */
void truce__key_append_path(struct buffer *key, const char *path, size_t length);
/* Makes `key` the least string of bytes above all that begin with it; false: there is none. */
bool truce__key_successor(struct buffer *key);

#endif
