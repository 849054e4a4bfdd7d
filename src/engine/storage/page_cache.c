#include "engine/storage/page_cache.h"

#include <bson/bson.h>
#include <pthread.h>
#include <string.h>

#include "engine/storage/checksum_vfs.h"

/* The number of pages in each set. */
#define WAYS 8
/* The number of mutexes, each of which guards many sets. */
#define MUTEXES 64

/* The types of inner pages in SQLite's file format: of an index, and of a table. */
#define TYPE_INNER_INDEX 0x02
#define TYPE_INNER_TABLE 0x05
/* The first byte of page 1. */
#define TYPE_FIRST 'S'

struct page_slot {
    /* The name of the page. Its number is 0 if the slot is empty. */
    struct page_name name;
    /* A lookup has found the page since `next` last passed the slot. */
    bool used;
};

struct page_set {
    struct page_slot slots[WAYS];
    /* The pages that were read last but not inserted, each by the hash of its number, or 0. */
    uint32_t missed[WAYS];
    /* The next slot that may be replaced (the CLOCK algorithm), and the next element of `missed` to
     * overwrite. */
    uint8_t next, next_missed;
};

struct page_cache {
    /* The number of sets minus one. The number of sets is a power of two. */
    uint64_t mask;
    /* A mutex guards the sets whose numbers have the same remainder modulo MUTEXES. */
    pthread_mutex_t mutexes[MUTEXES];
    /* The bytes of the pages: WAYS pages for each set. */
    uint8_t *pages;
    struct page_set sets[];
};

struct page_cache *truce__page_cache_new(uint64_t bytes)
{
    struct page_cache *cache;
    uint64_t sets = 1;

    while (2 * sets * WAYS * KV_PAGE_BYTES <= bytes)
        sets *= 2;
    cache = bson_malloc0(sizeof *cache + sets * sizeof *cache->sets);
    cache->mask = sets - 1;
    cache->pages = bson_malloc0(sets * WAYS * KV_PAGE_BYTES);
    for (int i = 0; i < MUTEXES; i++)
        pthread_mutex_init(&cache->mutexes[i], NULL);
    return cache;
}

void truce__page_cache_free(struct page_cache *cache)
{
    if (!cache)
        return;
    for (int i = 0; i < MUTEXES; i++)
        pthread_mutex_destroy(&cache->mutexes[i]);
    bson_free(cache->pages);
    bson_free(cache);
}

static uint64_t page_hash(const struct page_name *name)
{
    uint64_t hash =
        ((uint64_t)name->number << 1 | (name->moved == PAGE_IN_LOG)) * UINT64_C(0x9e3779b97f4a7c15);

    return hash ^ hash >> 32;
}

/* Returns the set of the page, locked. */
static struct page_set *page_lock_set(struct page_cache *cache, const struct page_name *name)
{
    uint64_t number = page_hash(name) & cache->mask;

    pthread_mutex_lock(&cache->mutexes[number % MUTEXES]);
    return &cache->sets[number];
}

static void page_unlock_set(struct page_cache *cache, const struct page_set *set)
{
    pthread_mutex_unlock(&cache->mutexes[(size_t)(set - cache->sets) % MUTEXES]);
}

static uint8_t *page_bytes(struct page_cache *cache, const struct page_set *set, int way)
{
    return cache->pages + ((size_t)(set - cache->sets) * WAYS + (size_t)way) * KV_PAGE_BYTES;
}

static bool page_name_same(const struct page_name *a, const struct page_name *b)
{
    /* Invariant 1. */
    return a->number == b->number && a->moved == b->moved && a->salts == b->salts;
}

/* Returns the slot of the page, or -1 if the set does not have it. */
static int page_find(const struct page_set *set, const struct page_name *name)
{
    for (int i = 0; i < WAYS; i++) {
        if (page_name_same(&set->slots[i].name, name))
            return i;
    }
    return -1;
}

bool truce__page_cache_get(struct page_cache *cache, const struct page_name *name, uint8_t *page)
{
    struct page_set *set = page_lock_set(cache, name);
    int way;

    way = page_find(set, name);
    if (way >= 0) {
        set->slots[way].used = true;
        memcpy(page, page_bytes(cache, set, way), KV_PAGE_BYTES);
    }
    page_unlock_set(cache, set);
    return way >= 0;
}

/* Returns whether the page, in any version, was missed a short time ago. Otherwise records that it
 * is missed now. */
static bool page_missed(struct page_set *set, uint32_t hash)
{
    for (int i = 0; i < WAYS; i++) {
        if (set->missed[i] == hash)
            return true;
    }
    set->missed[set->next_missed++ % WAYS] = hash;
    return false;
}

bool truce__page_cache_wants(struct page_cache *cache, const struct page_name *name,
                             const uint8_t *page)
{
    struct page_set *set;
    bool wants;

    if (*page == TYPE_INNER_TABLE || *page == TYPE_INNER_INDEX || *page == TYPE_FIRST)
        return true;
    set = page_lock_set(cache, name);
    wants = page_missed(set, (uint32_t)(page_hash(name) >> 32) | 1);
    page_unlock_set(cache, set);
    return wants;
}

/* Chooses the slot for a page: the slot of another version of it, an empty slot, or one that was
 * not used. */
static int page_choose(struct page_set *set, const struct page_name *name)
{
    for (int i = 0; i < WAYS; i++) {
        const struct page_name *old = &set->slots[i].name;

        if (!old->number || (old->number == name->number &&
                             (old->moved == PAGE_IN_LOG) == (name->moved == PAGE_IN_LOG)))
            return i;
    }
    while (set->slots[set->next % WAYS].used)
        set->slots[set->next++ % WAYS].used = false;
    return set->next++ % WAYS;
}

void truce__page_cache_put(struct page_cache *cache, const struct page_name *name,
                           const uint8_t *page)
{
    struct page_set *set = page_lock_set(cache, name);
    int way;

    if (page_find(set, name) < 0) {
        way = page_choose(set, name);
        set->slots[way] = (struct page_slot){.name = *name};
        memcpy(page_bytes(cache, set, way), page, KV_PAGE_BYTES);
    }
    page_unlock_set(cache, set);
}
