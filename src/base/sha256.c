#include "base/sha256.h"

#include <stdatomic.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t sha256_rotate_right(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t sha256_word_at(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void sha256_spread(const uint8_t block[64], uint32_t words[64])
{
    for (int i = 0; i < 16; i++)
        words[i] = sha256_word_at(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t a = words[i - 15], b = words[i - 2];

        words[i] =
            words[i - 16] + (sha256_rotate_right(a, 7) ^ sha256_rotate_right(a, 18) ^ a >> 3) +
            words[i - 7] + (sha256_rotate_right(b, 17) ^ sha256_rotate_right(b, 19) ^ b >> 10);
    }
}

/* Hashes a block without special instructions (FIPS 180-4, 6.2.2). */
static void take_block_plain(uint32_t state[8], const uint8_t block[64])
{
    uint32_t words[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4],
                        f = state[5], g = state[6], h = state[7];

    sha256_spread(block, words);
    for (int i = 0; i < 64; i++) {
        uint32_t first =
            h +
            (sha256_rotate_right(e, 6) ^ sha256_rotate_right(e, 11) ^ sha256_rotate_right(e, 25)) +
            ((e & f) ^ (~e & g)) + constants[i] + words[i];
        uint32_t second =
            (sha256_rotate_right(a, 2) ^ sha256_rotate_right(a, 13) ^ sha256_rotate_right(a, 22)) +
            ((a & b) ^ (a & c) ^ (b & c));

        h = g;
        g = f;
        f = e;
        e = d + first;
        d = c;
        c = b;
        b = a;
        a = first + second;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

#if defined(__x86_64__)
/* Hashes a block by instructions of the processor: four rounds at a time, with the state in the
 * order ABEF and CDGH. */
__attribute__((target("sha,sse4.1"))) static void take_block_fast(uint32_t state[8],
                                                                  const uint8_t block[64])
{
    const __m128i order = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const void *)state),
            high = _mm_loadu_si128((const void *)(state + 4)), words[4], abef, cdgh, begun[2];

    low = _mm_shuffle_epi32(low, 0xb1);
    high = _mm_shuffle_epi32(high, 0x1b);
    abef = _mm_alignr_epi8(low, high, 8);
    cdgh = _mm_blend_epi16(high, low, 0xf0);
    begun[0] = abef;
    begun[1] = cdgh;
    for (int i = 0; i < 4; i++)
        words[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(block + 16 * i)), order);
    for (int i = 0; i < 16; i++) {
        __m128i now = words[i % 4], sum;

        sum = _mm_add_epi32(now, _mm_loadu_si128((const void *)(constants + 4 * i)));
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        /* Computes the words of round i + 4 from those of rounds i to i + 3. */
        sum = _mm_add_epi32(_mm_sha256msg1_epu32(now, words[(i + 1) % 4]),
                            _mm_alignr_epi8(words[(i + 3) % 4], words[(i + 2) % 4], 4));
        words[i % 4] = _mm_sha256msg2_epu32(sum, words[(i + 3) % 4]);
    }
    abef = _mm_add_epi32(abef, begun[0]);
    cdgh = _mm_add_epi32(cdgh, begun[1]);
    low = _mm_shuffle_epi32(abef, 0x1b);
    high = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((void *)state, _mm_blend_epi16(low, high, 0xf0));
    _mm_storeu_si128((void *)(state + 4), _mm_alignr_epi8(high, low, 8));
}

static bool has_instructions(void)
{
    unsigned a, b, c, d;

    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3) &&
           __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#else
#define take_block_fast take_block_plain

static bool has_instructions(void)
{
    return false;
}
#endif

/* Determines once whether the processor has the instructions, because cpuid is slow. */
static bool is_fast(void)
{
    /* 1 if the processor has the instructions, -1 if not, and 0 before this is known. */
    static atomic_int known;
    int now = atomic_load_explicit(&known, memory_order_relaxed);

    if (!now) {
        now = has_instructions() ? 1 : -1;
        atomic_store_explicit(&known, now, memory_order_relaxed);
    }
    return now > 0;
}

static void take_block(struct sha256 *sha, const uint8_t block[64])
{
    if (sha->fast)
        take_block_fast(sha->state, block);
    else
        take_block_plain(sha->state, block);
}

void truce__sha256_begin(struct sha256 *sha)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memset(sha, 0, sizeof *sha);
    sha->fast = is_fast();
    memcpy(sha->state, start, sizeof start);
}

void truce__sha256_add(struct sha256 *sha, const void *bytes, size_t size)
{
    const uint8_t *at = bytes;

    while (size > 0) {
        size_t used = sha->length % 64, more = 64 - used < size ? 64 - used : size;

        if (used == 0 && size >= 64) {
            take_block(sha, at);
            more = 64;
        } else {
            memcpy(sha->block + used, at, more);
            if (used + more == 64)
                take_block(sha, sha->block);
        }
        sha->length += more;
        at += more;
        size -= more;
    }
}

void truce__sha256_end(struct sha256 *sha, uint8_t digest[SHA256_BYTES])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = sha->length * 8;
    uint8_t end[8];

    for (int i = 0; i < 8; i++)
        end[i] = (uint8_t)(bits >> (56 - 8 * i));
    truce__sha256_add(sha, padding, 1 + (119 - sha->length % 64) % 64);
    truce__sha256_add(sha, end, sizeof end);
    for (int i = 0; i < SHA256_BYTES; i++)
        digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

void truce__sha256(const void *bytes, size_t size, uint8_t digest[SHA256_BYTES])
{
    struct sha256 sha;

    truce__sha256_begin(&sha);
    truce__sha256_add(&sha, bytes, size);
    truce__sha256_end(&sha, digest);
}
