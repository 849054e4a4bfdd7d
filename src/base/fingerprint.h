#ifndef TRUCE_BASE_FINGERPRINT_H
#define TRUCE_BASE_FINGERPRINT_H

/*
 * A fingerprint of many pieces of bytes in whatever order: the sum of their hashes, 128 bits wide
 * (MurmurHash3_x64_128 of A. Appleby, in the public domain). Equal collections have equal
 * fingerprints; by accident others have so once in 2^128. It is no defence against somebody who
 * looks for a collision.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fingerprint {
    uint64_t high, low; /* zero: of nothing */
};

#define FINGERPRINT_TEXT 33 /* 32 hexadecimal digits and a NUL */

void truce__fingerprint_add(struct fingerprint *sum, const void *bytes, size_t size);
void truce__fingerprint_text(const struct fingerprint *sum, char text[FINGERPRINT_TEXT]);
/* Back again; false, and the fingerprint of nothing, if that is no such text. */
bool truce__fingerprint_read(struct fingerprint *sum, const char *text);

#endif
