#include "base/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The multipliers of the hash function. */
#define C1 UINT64_C(0x87c37b91114253d5)
#define C2 UINT64_C(0x4cf5ad432745937f)

static uint64_t fingerprint_rotate(uint64_t word, int bits)
{
    return word << bits | word >> (64 - bits);
}

static uint64_t fingerprint_finish(uint64_t word)
{
    word = (word ^ word >> 33) * UINT64_C(0xff51afd7ed558ccd);
    word = (word ^ word >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return word ^ word >> 33;
}

/* Reads `size` bytes, at most 8, as a little-endian number on any machine. */
static uint64_t fingerprint_word_of(const uint8_t *bytes, size_t size)
{
    uint64_t word = 0;

    while (size-- > 0)
        word = word << 8 | bytes[size];
    return word;
}

/* Computes MurmurHash3_x64_128 with seed 0. */
static struct fingerprint fingerprint_hash(const uint8_t *bytes, size_t size)
{
    struct fingerprint h = {0};
    size_t left = size;

    for (; left >= 16; bytes += 16, left -= 16) {
        h.high ^= fingerprint_rotate(fingerprint_word_of(bytes, 8) * C1, 31) * C2;
        h.high = (fingerprint_rotate(h.high, 27) + h.low) * 5 + 0x52dce729;
        h.low ^= fingerprint_rotate(fingerprint_word_of(bytes + 8, 8) * C2, 33) * C1;
        h.low = (fingerprint_rotate(h.low, 31) + h.high) * 5 + 0x38495ab5;
    }
    if (left > 8)
        h.low ^= fingerprint_rotate(fingerprint_word_of(bytes + 8, left - 8) * C2, 33) * C1;
    if (left > 0)
        h.high ^= fingerprint_rotate(fingerprint_word_of(bytes, left < 8 ? left : 8) * C1, 31) * C2;
    h.high ^= size;
    h.low ^= size;
    h.high += h.low;
    h.low += h.high;
    h.high = fingerprint_finish(h.high);
    h.low = fingerprint_finish(h.low);
    h.high += h.low;
    h.low += h.high;
    return h;
}

void truce__fingerprint_add(struct fingerprint *sum, const void *bytes, size_t size)
{
    struct fingerprint one = fingerprint_hash(bytes, size);
    uint64_t low = sum->low + one.low;

    sum->high += one.high + (low < sum->low);
    sum->low = low;
}

void truce__fingerprint_text(const struct fingerprint *sum, char text[FINGERPRINT_TEXT])
{
    snprintf(text, FINGERPRINT_TEXT, "%016" PRIx64 "%016" PRIx64, sum->high, sum->low);
}

bool truce__fingerprint_read(struct fingerprint *sum, const char *text)
{
    *sum = (struct fingerprint){0};
    if (strlen(text) == FINGERPRINT_TEXT - 1 &&
        sscanf(text, "%16" SCNx64 "%16" SCNx64, &sum->high, &sum->low) == 2)
        return true;
    *sum = (struct fingerprint){0};
    return false;
}
