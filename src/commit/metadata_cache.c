#include "commit/metadata_cache.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "commit/journal.h"
#include "commit/lease_watch.h"
#include "commit/per_key_lock.h"
#include "store/decorators/database.h"
#include "store/store.h"

/* The store itself refers to its cache (sys/store.h). One mutex protects all caches; a commit takes
 * it once or twice. Index definitions are read again after a few seconds, because another process
 * may create an index. A commit that began earlier may still use the old list. This is why the
 * manual says to create unique indexes before commits use the collection, and why
 * truce_unique_declare waits. */

#define INDEXES_FRESH_NS (INT64_C(1000000) * COMMIT_INDEXES_FRESH_MS)

struct collection {
    struct collection *next;
    char *name;
    bool intents; /* Its index on _intent exists. */
    /* A constant that names a user of the cache whose needs the collection meets; NULL: none. */
    const char *of;
    bool keyed;                  /* One of its indexes is the unique one on `_keys`. */
    bson_t *indexes, *validator; /* As read at `read_ns`. */
    int64_t indexes_at_ns;
};

struct metadata_cache {
    struct truce_store_cache base;
    struct watches watches;
    struct collection *collections;
    struct key_locks *locks;
    bool commits; /* The commit collection is ready. */
    /* The structure number of the store when the collections were read. */
    uint64_t structure;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void metadata_free(struct truce_store_cache *base)
{
    struct metadata_cache *cache = (struct metadata_cache *)base;

    while (cache->collections) {
        struct collection *gone = cache->collections;

        cache->collections = gone->next;
        bson_destroy(gone->indexes);
        bson_destroy(gone->validator);
        bson_free(gone->name);
        bson_free(gone);
    }
    truce__key_locks_free(cache->locks);
    truce__watches_free(&cache->watches);
    bson_free(cache);
}

static void forget_collections(struct metadata_cache *cache)
{
    cache->commits = false;
    for (struct collection *at = cache->collections; at; at = at->next) {
        at->intents = false;
        at->of = NULL;
        bson_destroy(at->indexes);
        at->indexes = NULL;
    }
}

/* Returns the cache of the store. The mutex must be held. */
static struct metadata_cache *metadata_of(truce_store *store)
{
    struct metadata_cache *cache = (struct metadata_cache *)store->cache;
    uint64_t structure = truce__store_structure(store);

    if (!cache) {
        cache = bson_malloc0(sizeof *cache);
        cache->base.free = metadata_free;
        cache->structure = structure;
        store->cache = &cache->base;
    }
    if (cache->structure != structure)
        forget_collections(cache);
    cache->structure = structure;
    return cache;
}

/* Returns the cached collection. The mutex must be held. */
static struct collection *metadata_collection_of(truce_store *store, const char *name)
{
    struct metadata_cache *cache = metadata_of(store);
    struct collection *collection = cache->collections;

    while (collection && strcmp(collection->name, name) != 0)
        collection = collection->next;
    if (!collection) {
        collection = bson_malloc0(sizeof *collection);
        collection->name = bson_strdup(name);
        collection->next = cache->collections;
        cache->collections = collection;
    }
    return collection;
}

/* Tries of a repeatable call that was not answered. */
#define TRIES 5

static truce_status metadata_make_index(truce_store *store, const char *collection,
                                        const char *field, bool unique, bson_error_t *error)
{
    bson_t *index = BCON_NEW("key", "{", field, BCON_INT32(1), "}", "sparse", BCON_BOOL(true));
    truce_status status = TRUCE_UNKNOWN;

    if (unique)
        BSON_APPEND_BOOL(index, "unique", true);
    for (int i = 0; i < TRIES && status == TRUCE_UNKNOWN; i++)
        status = truce__index_ensure(store, collection, index, error);
    bson_destroy(index);
    return status;
}

truce_status truce__metadata_ensure_intents(truce_store *store, const char *collection,
                                            bson_error_t *error)
{
    uint64_t structure;
    truce_status status;
    bool ready;

    pthread_mutex_lock(&lock);
    ready = metadata_collection_of(store, collection)->intents;
    structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    if (ready)
        return TRUCE_OK;
    status = metadata_make_index(store, collection, "_intent", false, error);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    metadata_collection_of(store, collection)->intents = metadata_of(store)->structure == structure;
    pthread_mutex_unlock(&lock);
    return TRUCE_OK;
}

static truce_status make_horizon(truce_store *store, bson_error_t *error)
{
    bson_t *horizon = BCON_NEW("_id", BCON_UTF8("horizon"), "time", BCON_INT64(INT64_MIN));
    truce_status status = TRUCE_UNKNOWN;

    for (int i = 0; i < TRIES && status == TRUCE_UNKNOWN; i++)
        status = truce_insert(store, COMMITS, horizon, NULL, error);
    bson_destroy(horizon);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

truce_status truce__metadata_ensure_commits(truce_store *store, bson_error_t *error)
{
    uint64_t structure;
    truce_status status;
    bool ready;

    pthread_mutex_lock(&lock);
    ready = metadata_of(store)->commits;
    structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    if (ready)
        return TRUCE_OK;
    status = metadata_make_index(store, COMMITS, "key", true, error);
    if (!status)
        status = make_horizon(store, error);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    metadata_of(store)->commits = metadata_of(store)->structure == structure;
    pthread_mutex_unlock(&lock);
    return TRUCE_OK;
}

/* ---- index lists ---------------------------------------------------------------------------- */

/* The mutex must be held. */
static bool is_fresh(const struct collection *collection)
{
    return collection->indexes &&
           truce__clock_monotonic_ns() - collection->indexes_at_ns < INDEXES_FRESH_NS;
}

/* Returns whether a unique index is over `_keys` alone. */
static bool is_keyed(const bson_t *indexes)
{
    bson_iter_t iter, index, key;

    if (!bson_iter_init(&iter, indexes))
        return false;
    while (bson_iter_next(&iter)) {
        if (bson_iter_recurse(&iter, &index) && bson_iter_find(&index, "unique") &&
            bson_iter_as_bool(&index) && bson_iter_recurse(&iter, &index) &&
            bson_iter_find(&index, "key") && bson_iter_recurse(&index, &key) &&
            bson_iter_next(&key) && !strcmp(bson_iter_key(&key), "_keys") && !bson_iter_next(&key))
            return true;
    }
    return false;
}

/* Reads the validator; {} if the store cannot return it. Writes are validated in any case. */
static truce_status ask_validator(truce_store *store, const char *name, bson_t *validator,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    bson_init(validator);
    for (int i = 0; store->ops->validator && i < TRIES && status == TRUCE_UNKNOWN; i++) {
        bson_destroy(validator);
        status = store->ops->validator(store, name, validator, error);
    }
    return truce__unanswered(status) && store->ops->validator ? status : TRUCE_OK;
}

static truce_status metadata_load(truce_store *store, const char *name, bson_error_t *error)
{
    struct collection *collection;
    truce_status status = TRUCE_UNKNOWN;
    bson_t indexes = BSON_INITIALIZER, validator = BSON_INITIALIZER;

    for (int i = 0; i < TRIES && status == TRUCE_UNKNOWN; i++) {
        bson_destroy(&indexes);
        status = truce_index_list(store, name, &indexes, error);
    }
    if (status == TRUCE_NOT_FOUND) /* No collection, so no indexes. */
        status = TRUCE_OK;
    if (!status && !(store->capabilities & TRUCE_CAN_COMPARE))
        status = ask_validator(store, name, &validator, error);
    if (!status) {
        pthread_mutex_lock(&lock);
        collection = metadata_collection_of(store, name);
        bson_destroy(collection->indexes);
        bson_destroy(collection->validator);
        collection->indexes = bson_copy(&indexes);
        collection->validator = bson_copy(&validator);
        collection->keyed = is_keyed(&indexes);
        collection->indexes_at_ns = truce__clock_monotonic_ns();
        pthread_mutex_unlock(&lock);
    }
    bson_destroy(&validator);
    bson_destroy(&indexes);
    return status;
}

/* Reads from the cache. *fresh: the cache was recent enough, and *keyed, the list, and the
 * validator were set (the latter two unless NULL). */
static void metadata_recall(truce_store *store, const char *name, bool *fresh, bool *keyed,
                            bson_t *indexes, bson_t *validator)
{
    struct collection *collection;

    pthread_mutex_lock(&lock);
    collection = metadata_collection_of(store, name);
    *fresh = is_fresh(collection);
    *keyed = collection->keyed;
    if (*fresh && indexes)
        bson_copy_to(collection->indexes, indexes);
    if (*fresh && validator)
        bson_copy_to(collection->validator, validator);
    pthread_mutex_unlock(&lock);
}

truce_status truce__metadata_indexes(truce_store *store, const char *name, bson_t *indexes,
                                     bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh, keyed;

    for (;;) { /* Repeats only if the list expires between two lines. */
        metadata_recall(store, name, &fresh, &keyed, indexes, NULL);
        if (fresh)
            return TRUCE_OK;
        status = metadata_load(store, name, error);
        if (status)
            break;
    }
    bson_init(indexes);
    return status;
}

truce_status truce__metadata_keyed(truce_store *store, const char *name, bool *keyed,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh;

    metadata_recall(store, name, &fresh, keyed, NULL, NULL);
    if (fresh)
        return TRUCE_OK;
    status = metadata_load(store, name, error);
    metadata_recall(store, name, &fresh, keyed, NULL, NULL);
    return status;
}

truce_status truce__metadata_validator(truce_store *store, const char *name, bson_t *validator,
                                       bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh, keyed;

    /* The store is in this process; a read is cheap. */
    if (store->capabilities & TRUCE_CAN_COMPARE)
        return ask_validator(store, name, validator, error);
    for (;;) {
        metadata_recall(store, name, &fresh, &keyed, NULL, validator);
        if (fresh)
            return TRUCE_OK;
        status = metadata_load(store, name, error);
        if (status)
            break;
    }
    bson_init(validator);
    return status;
}

bool truce__metadata_known(truce_store *store, const char *of, const char *collection,
                           uint64_t *structure)
{
    const char *known;

    pthread_mutex_lock(&lock);
    known = metadata_collection_of(store, collection)->of;
    *structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    return known && !strcmp(known, of);
}

void truce__metadata_learn(truce_store *store, const char *of, const char *collection,
                           uint64_t structure)
{
    pthread_mutex_lock(&lock);
    if (metadata_of(store)->structure == structure)
        metadata_collection_of(store, collection)->of = of;
    pthread_mutex_unlock(&lock);
}

void truce__metadata_forget(truce_store *store, const char *name)
{
    struct collection *collection;

    pthread_mutex_lock(&lock);
    collection = metadata_collection_of(store, name);
    bson_destroy(collection->indexes);
    collection->indexes = NULL;
    pthread_mutex_unlock(&lock);
}

struct key_locks *truce__metadata_key_locks(truce_store *store)
{
    struct metadata_cache *cache;

    pthread_mutex_lock(&lock);
    cache = metadata_of(store);
    if (!cache->locks)
        cache->locks = truce__key_locks_new();
    pthread_mutex_unlock(&lock);
    return cache->locks;
}

/* ---- watches of leases ----------------------------------------------------------------------- */

int64_t truce__metadata_watch(truce_store *store, const char *kind, const void *id, size_t size,
                              uint64_t state)
{
    int64_t now_ns = truce__clock_monotonic_ns(), since_ns;
    uint64_t thing = truce__watch_hash(truce__watch_hash(0, kind, strlen(kind)), id, size);

    pthread_mutex_lock(&lock);
    since_ns = truce__watches_see(&metadata_of(truce__database_holder(store))->watches, thing,
                                  state, now_ns);
    pthread_mutex_unlock(&lock);
    return since_ns;
}
