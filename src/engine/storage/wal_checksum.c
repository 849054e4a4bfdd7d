/*
 * The checksum of SQLite's log. Its two sums are the last two numbers of a sequence that continues
 * with each word:
 *
 *     x(k) = x(k - 1) + x(k - 2) + word(k)
 *
 * Each number depends on the one before it, so a processor adds one word after the other. Without
 * the words, this is the sequence of Fibonacci, F(0) = 0, F(1) = 1. The sequence is linear, so n
 * words have these sums, modulo 2^32, from which several words at once can be added:
 *
 *     x(n - 2) = x(-2) F(n - 1) + x(-1) F(n)     + the sum of word(k) F(n - k - 1)
 *     x(n - 1) = x(-2) F(n)     + x(-1) F(n + 1) + the sum of word(k) F(n - k)
 */
#include "engine/storage/wal_checksum.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "engine/storage/checksum_vfs.h"

/* Adds bytes to the checksum of the log, as SQLite computes it, without special instructions of the
 * processor. */
static void checksum_add_plain(uint32_t sum[2], bool big, const uint8_t *bytes, size_t size)
{
    uint32_t first = sum[0], second = sum[1];

    for (size_t i = 0; i < size; i += 8) {
        uint32_t words[2];

        memcpy(words, bytes + i, sizeof words);
        first += big ? BSON_UINT32_FROM_BE(words[0]) : BSON_UINT32_FROM_LE(words[0]);
        first += second;
        second += big ? BSON_UINT32_FROM_BE(words[1]) : BSON_UINT32_FROM_LE(words[1]);
        second += first;
    }
    sum[0] = first;
    sum[1] = second;
}

#if defined(__x86_64__)
#define WORDS (KV_PAGE_BYTES / 4)

typedef uint32_t checksum_words __attribute__((vector_size(32)));

/* factors[i] is F(WORDS - i). */
static uint32_t factors[WORDS + 1];

static void make_factors(void)
{
    factors[WORDS] = 0;
    factors[WORDS - 1] = 1;
    for (int i = WORDS - 1; i--;)
        factors[i] = factors[i + 1] + factors[i + 2];
}

/* Adds a page of WORDS words by the two sums of the essay. Multiplies eight words at once, each
 * with its number of Fibonacci. `first` is the sum of word(k) F(n - k - 1), and `second` that of
 * word(k) F(n - k). */
__attribute__((target("avx2"))) static void checksum_add_page(uint32_t sum[2], const uint8_t *page)
{
    checksum_words words, with, first = {0}, second = {0};
    uint32_t begin[2] = {sum[0], sum[1]};

    for (int i = 0; i < WORDS; i += 8) {
        memcpy(&words, page + 4 * i, sizeof words);
        memcpy(&with, factors + i + 1, sizeof with);
        first += words * with;
        memcpy(&with, factors + i, sizeof with);
        second += words * with;
    }
    sum[0] = begin[0] * factors[1] + begin[1] * factors[0];
    sum[1] = begin[0] * factors[0] + begin[1] * (factors[0] + factors[1]);
    for (int i = 0; i < 8; i++) {
        sum[0] += first[i];
        sum[1] += second[i];
    }
}

/* Adds a page by vector instructions. Returns false if the processor does not have them. */
static bool checksum_add_fast(uint32_t sum[2], const uint8_t *page)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    if (!__builtin_cpu_supports("avx2"))
        return false;
    pthread_once(&once, make_factors);
    checksum_add_page(sum, page);
    return true;
}
#else
static bool checksum_add_fast(uint32_t sum[2], const uint8_t *page)
{
    (void)sum, (void)page;
    return false;
}
#endif

void truce__wal_checksum_add(uint32_t sum[2], bool big, const uint8_t *bytes, size_t size)
{
    if (big || size != KV_PAGE_BYTES || !checksum_add_fast(sum, bytes))
        checksum_add_plain(sum, big, bytes, size);
}
