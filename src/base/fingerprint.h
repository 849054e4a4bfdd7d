#ifndef TRUCE_BASE_FINGERPRINT_H
#define TRUCE_BASE_FINGERPRINT_H

/*
 * A 128-bit fingerprint of a set of byte strings in any order: the sum of their hashes
 * (MurmurHash3_x64_128 by A. Appleby, public domain). Equal collections have equal fingerprints.
 * Different collections have the same fingerprint with a probability of 2^-128. A fingerprint does
 * not resist an attacker who searches for a collision; sha256.h does.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fingerprint {
    /* The sum of the hashes, which is 0 for the empty set. */
    uint64_t high, low;
};

/* The bytes of a fingerprint as text: 32 hexadecimal digits and a NUL. */
#define FINGERPRINT_TEXT 33

void truce__fingerprint_add(struct fingerprint *sum, const void *bytes, size_t size);
void truce__fingerprint_text(const struct fingerprint *sum, char text[FINGERPRINT_TEXT]);
/* Reads a string that truce__fingerprint_text wrote. Returns false, and zeroes `sum`, if the string
 * is not a fingerprint. */
bool truce__fingerprint_read(struct fingerprint *sum, const char *text);

#endif
