#include "engine/storage/body_fingerprints.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "base/random.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* The number of bytes that one set of keys covers. */
#define CHUNK 512
/* The number of bytes that one multiplication takes: four words of 32 bits, for two products. */
#define PAIR 16
/* The number of keys: one for each word of a chunk, and four for the last bytes. */
#define KEYS (CHUNK / 4 + 4)
/* The number of factors in `mixes`. */
#define MIXES 2

__extension__ typedef unsigned __int128 wide;

static _Alignas(16) uint32_t keys[KEYS];
/* The random odd factors that mix the chunks of a fingerprint, and the size. */
static uint64_t mixes[MIXES];

static void choose_keys(void)
{
    struct random random;

    truce__random_seed(&random, truce__random_entropy());
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = (uint32_t)(truce__random_next(&random) >> 32);
    for (size_t i = 0; i < MIXES; i++)
        mixes[i] = truce__random_next(&random) | 1;
}

static uint64_t print_mix(uint64_t print, uint64_t by)
{
    wide product = (wide)print * by;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* One or two 64-bit sums of products: two with SSE2. Each product has two neighboring words as
 * factors, to which the keys of their positions were added. */
#if defined(__SSE2__)

typedef __m128i sums;

static inline sums sums_multiply(const uint8_t *at, const uint32_t *key)
{
    __m128i words = _mm_add_epi32(_mm_loadu_si128((const __m128i *)(const void *)at),
                                  _mm_load_si128((const __m128i *)(const void *)key));

    return _mm_mul_epu32(words, _mm_srli_epi64(words, 32));
}

static inline sums sums_add(sums a, sums b)
{
    return _mm_add_epi64(a, b);
}

static inline uint64_t sums_total(sums both)
{
    uint64_t two[2];

    memcpy(two, &both, sizeof two);
    return two[0] + two[1];
}

#else

typedef uint64_t sums;

static uint32_t seen_word_at(const uint8_t *at)
{
    uint32_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

static inline sums sums_multiply(const uint8_t *at, const uint32_t *key)
{
    return (uint64_t)(seen_word_at(at) + key[0]) * (seen_word_at(at + 4) + key[1]) +
           (uint64_t)(seen_word_at(at + 8) + key[2]) * (seen_word_at(at + 12) + key[3]);
}

static inline sums sums_add(sums a, sums b)
{
    return a + b;
}

static inline uint64_t sums_total(sums both)
{
    return both;
}

#endif

/* Computes the fingerprint of a chunk. The last bytes are taken with keys of their own and overlap
 * the bytes before them. `size` is from PAIR to CHUNK. */
static inline uint64_t chunk_print(const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size - PAIR;
    sums even = sums_multiply(end, keys + KEYS - 4), odd = sums_multiply(at, keys);
    const uint32_t *key = keys + 4;

    for (at += PAIR; at + 3 * PAIR < end; at += 4 * PAIR, key += 16) {
        even = sums_add(even, sums_multiply(at, key));
        odd = sums_add(odd, sums_multiply(at + PAIR, key + 4));
        even = sums_add(even, sums_multiply(at + 2 * PAIR, key + 8));
        odd = sums_add(odd, sums_multiply(at + 3 * PAIR, key + 12));
    }
    for (; at < end; at += PAIR, key += 4)
        even = sums_add(even, sums_multiply(at, key));
    return sums_total(sums_add(even, odd));
}

/* Computes the fingerprint of a body of less than 16 bytes. It is a separate function, so that the
 * path for most bodies is short. */
__attribute__((noinline)) static uint64_t print_of_few(const uint8_t *body, size_t size)
{
    uint8_t padded[16] = {0};

    memcpy(padded, body, size);
    return chunk_print(padded, sizeof padded);
}

/* Computes the fingerprint of a body of more than CHUNK bytes. Each part is mixed with all parts
 * before it. The last part has between CHUNK / 2 and CHUNK bytes, so no part is short. */
__attribute__((noinline)) static uint64_t print_of_many(const uint8_t *body, size_t size)
{
    uint64_t print = 0;

    for (; size > CHUNK; body += CHUNK / 2, size -= CHUNK / 2)
        print = print_mix(print ^ chunk_print(body, CHUNK / 2), mixes[0]);
    return print ^ chunk_print(body, size);
}

uint32_t truce__seen_print(const uint8_t *body, size_t size)
{
    uint64_t print;

    if (size < 16)
        print = print_of_few(body, size);
    else
        print = size <= CHUNK ? chunk_print(body, size) : print_of_many(body, size);
    print = print_mix(print ^ size, mixes[1]);
    return (uint32_t)print ? (uint32_t)print : 1;
}

struct seen *truce__seen_new(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, choose_keys);
    return bson_malloc0(sizeof(struct seen));
}

void truce__seen_free(struct seen *seen)
{
    bson_free(seen);
}

void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size)
{
    atomic_store_explicit(&seen->prints[truce__seen_slot(table, row)],
                          truce__seen_print(body, size), memory_order_relaxed);
}

static size_t walk_slot(int64_t table, int64_t after)
{
    return (size_t)(print_mix((uint64_t)after ^ 0x9e3779b97f4a7c15u,
                              (uint64_t)table ^ 0xe7037ed1a0b428dbu) %
                    SEEN_WALKS);
}

int64_t truce__seen_walked(const struct seen_walks *walks, uint32_t version, int64_t table,
                           int64_t after)
{
    const struct seen_walk *walk = &walks->all[walk_slot(table, after)];
    bool known = walk->version == version && walk->table == table && walk->after == after;

    return known && walk->upto > after ? walk->upto : after;
}

void truce__seen_walk(struct seen_walks *walks, uint32_t version, int64_t table, int64_t after,
                      int64_t upto)
{
    if (upto > truce__seen_walked(walks, version, table, after))
        walks->all[walk_slot(table, after)] = (struct seen_walk){table, after, upto, version};
}
