#ifndef TRUCE_BASE_SHA256_H
#define TRUCE_BASE_SHA256_H

/*
 * SHA-256 (FIPS 180-4). It serves hash chains that reveal tampering, which the fingerprints of
 * fingerprint.h would not.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32

struct sha256 {
    uint32_t state[8];
    /* The number of bytes that were hashed so far. */
    uint64_t length;
    uint8_t block[64];
    /* Whether the processor has instructions for SHA-256. */
    bool fast;
};

void truce__sha256_begin(struct sha256 *sha);
void truce__sha256_add(struct sha256 *sha, const void *bytes, size_t size);
void truce__sha256_end(struct sha256 *sha, uint8_t digest[SHA256_BYTES]);

/* Computes the digest of bytes in one call. */
void truce__sha256(const void *bytes, size_t size, uint8_t digest[SHA256_BYTES]);

#endif
