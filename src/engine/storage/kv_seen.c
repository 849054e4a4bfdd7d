#include "engine/storage/kv_seen.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "base/random.h"

#define CHUNK 512             /* bytes that one set of keys covers */
#define KEYS  (CHUNK / 8 + 4) /* and for the last pair, and for mixing */

__extension__ typedef unsigned __int128 wide;

static uint64_t keys[KEYS];

static void choose_keys(void)
{
    struct random random;

    truce__random_seed(&random, truce__random_entropy());
    for (size_t i = 0; i < KEYS; i++)
        keys[i] = truce__random_next(&random);
}

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word;

    memcpy(&word, at, sizeof word);
    return word;
}

static wide product(uint64_t a, uint64_t b)
{
    return (wide)a * b;
}

static uint64_t folded(wide sum)
{
    return (uint64_t)sum ^ (uint64_t)(sum >> 64);
}

/* Products of pairs of words, each with keys of its place: they do not wait for each other. The last pair
 * ends where the bytes end, over some of what was before. At least 16 bytes, at most CHUNK. */
static inline uint64_t chunk_print(const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size - 16;
    const uint64_t *key = keys;
    wide even, odd = 0;

    for (; at + 16 < end; at += 32, key += 4) {
        odd += product(word_at(at) + key[0], word_at(at + 8) + key[1]);
        odd += product(word_at(at + 16) + key[2], word_at(at + 24) + key[3]);
    }
    if (at < end)
        odd += product(word_at(at) + key[0], word_at(at + 8) + key[1]);
    even = product(word_at(end) + keys[KEYS - 2], word_at(end + 8) + keys[KEYS - 1]);
    return folded(odd + even);
}

static uint64_t print_of_few(const uint8_t *body, size_t size)
{
    uint8_t padded[16] = {0};

    memcpy(padded, body, size);
    return chunk_print(padded, sizeof padded);
}

/* Each part is mixed with all before it. What is left at the end is taken together with the part before
 * it, so that none is shorter than 16 bytes. */
static uint64_t print_of_many(const uint8_t *body, size_t size)
{
    uint64_t print = 0;

    for (; size > CHUNK; body += CHUNK / 2, size -= CHUNK / 2)
        print = folded(product(print ^ chunk_print(body, CHUNK / 2), keys[KEYS - 3] | 1));
    return print ^ chunk_print(body, size);
}

uint32_t truce__seen_print(const uint8_t *body, size_t size)
{
    uint64_t print;

    if (size < 16)
        print = print_of_few(body, size);
    else
        print = size <= CHUNK ? chunk_print(body, size) : print_of_many(body, size);
    print = folded(product(print ^ size, keys[KEYS - 4] | 1));
    return (uint32_t)print ? (uint32_t)print : 1;
}

void truce__seen_add(struct seen *seen, int64_t table, int64_t row, const uint8_t *body,
                     size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int64_t number = (int64_t)((uint64_t)row / SEEN_ROWS);
    struct seen_block **block = &seen->blocks[truce__seen_slot(table, number)];

    pthread_once(&once, choose_keys);
    if (!*block)
        *block = bson_malloc0(sizeof **block);
    else if ((*block)->table != table || (*block)->number != number)
        memset(*block, 0, sizeof **block);
    (*block)->table = table;
    (*block)->number = number;
    (*block)->prints[(uint64_t)row % SEEN_ROWS] = truce__seen_print(body, size);
}

void truce__seen_forget(struct seen *seen)
{
    for (int i = 0; i < SEEN_BLOCKS; i++)
        bson_free(seen->blocks[i]);
    memset(seen, 0, sizeof *seen);
}
