#ifndef TRUCE_BSON_KEY_ENCODING_H
#define TRUCE_BSON_KEY_ENCODING_H

/*
 * Encodes values as index keys. memcmp orders two encodings as truce__value_compare orders the
 * values, and the opposite way for a descending field. Numbers are encoded by value: 1, 1.0, and
 * NumberDecimal("1") are one key. No encoding is a proper prefix of another, so a compound key is
 * the concatenation of its fields.
 */
#include "base/buffer.h"
#include "bson/dotted_path.h"
#include "bson/value.h"

void truce__key_append(struct buffer *key, struct value value, bool descending);

/* The size of the run of a key in bytes. */
#define KEY_RUN_BYTES 12

/* Splits the key of a whole number from 0 to 2^53, or of an ObjectId. `*step` is the last byte of
 * the value. `run` identifies the 256 values with the same other bytes. `*whole` is the number, or
 * -1 for an ObjectId. Returns false for every other key. */
bool truce__key_split(const uint8_t *key, size_t size, uint8_t run[KEY_RUN_BYTES], uint8_t *step,
                      int64_t *whole);

/*
 * Functions for the bounds of a scan. A prefix is less than all keys that begin with it; its
 * successor is greater than all of them:
 *
 *     a == 5 of (a, b)    from key(5) until successor(key(5))
 *     a > 5               from successor(key(5)) until successor(class(number))
 *     a < 5               from class(number) until key(5)
 *
 * The end of a range is excluded. For a descending field, the two ends are exchanged.
 */
void truce__key_append_class(struct buffer *key, uint8_t type, bool descending);
/* Appends the path of a key in a wildcard index; the key of the value follows. */
void truce__key_append_path(struct buffer *key, const char *path, size_t length);
/* Replaces `key` by the least byte string that is greater than all strings that begin with `key`.
 * Returns false if no such string exists. */
bool truce__key_successor(struct buffer *key);

#endif
