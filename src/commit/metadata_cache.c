#include "commit/metadata_cache.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/forks.h"
#include "base/limits.h"
#include "bson/array.h"
#include "commit/journal.h"
#include "commit/lease_watch.h"
#include "commit/per_key_lock.h"
#include "store/decorators/database_view.h"
#include "store/snapshot_view.h"
#include "store/store.h"

/* Each store points to its cache of index definitions and validators (sys/store.h). One mutex
 * protects all caches; a commit locks it several times for each document, and only briefly. Index
 * definitions are read again after a few seconds, because another process may create an index. A
 * commit that began earlier may still use the old list. This is why the manual says to create
 * unique indexes before commits use the collection, and why truce_unique_declare waits. */

/* The time for which a list of indexes, and a validator, may be used after they were read. */
#define INDEXES_FRESH_NS (INT64_C(1000000) * COMMIT_INDEXES_FRESH_MS)

/* The cached facts of one collection. */
struct collection {
    struct collection *next;
    char *name;
    /* The index on `_intent` exists. */
    bool intents;
    /* A string constant that names the part of truce whose needs the collection meets, or NULL. */
    const char *of;
    /* One of the indexes is the unique one on `_keys`. */
    bool keyed;
    /* The definitions of the indexes, and the validator, as read at `indexes_at_ns`. NULL before
     * the first read. Owned. */
    bson_t *indexes, *validator;
    /* An array of the _ids of documents in this collection on which cached facts depend. */
    bson_t relied;
    int64_t indexes_at_ns;
};

/* The cache of one open store. The mutex `lock` protects it. */
struct metadata_cache {
    struct truce_store_cache base;
    struct watches watches;
    /* The list of collections. Owned. */
    struct collection *collections;
    /* The per-key locks of the store. Owned. */
    struct key_locks *locks;
    /* The commit collection and its indexes exist. */
    bool commits;
    /* The structure number of the store when the collections were read. */
    uint64_t structure;
    /* When the documents on which cached facts depend were last counted, by the monotonic clock,
     * and how often some were missing. */
    int64_t checked_ns;
    uint64_t removals;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void metadata_forked(void)
{
    pthread_mutex_init(&lock, NULL);
}

/* Makes the mutex usable in a forked child. The child opens its own stores, whose caches are
 * empty. */
__attribute__((constructor)) static void metadata_watch_forks(void)
{
    truce__forks_watch(NULL, NULL, metadata_forked);
}

static void metadata_check_relied(truce_store *store);

/* Locks the mutex. The structure number, and the documents on which facts depend, may need a reply
 * of a server. So both are read before the lock, and no other thread waits for them. */
static void metadata_lock(truce_store *store)
{
    (void)truce__store_structure(store);
    metadata_check_relied(store);
    pthread_mutex_lock(&lock);
}

/* Frees a cache with all that it owns, when its store is closed. */
static void metadata_free(struct truce_store_cache *base)
{
    struct metadata_cache *cache = (struct metadata_cache *)base;

    while (cache->collections) {
        struct collection *gone = cache->collections;

        cache->collections = gone->next;
        bson_destroy(gone->indexes);
        bson_destroy(gone->validator);
        bson_destroy(&gone->relied);
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
    uint64_t structure = truce__store_structure(store) + (cache ? cache->removals : 0);

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
        bson_init(&collection->relied);
        collection->next = cache->collections;
        cache->collections = collection;
    }
    return collection;
}

/* ---- documents that cached facts depend on --------------------------------------------------- */

/* A server does not report that another client emptied a collection. So the documents on which
 * cached facts depend are counted once in this time. */
#define CHECK_MS 1000
/* The maximum number of these documents in one collection. Further ones are not watched. */
#define RELIED_MAX 1000

/* Returns whether one of the documents is missing. Returns false if the store fails. */
static bool metadata_misses(truce_store *store, const char *collection, const bson_t *ids)
{
    bson_t *filter = BCON_NEW("_id", "{", "$in", BCON_ARRAY(ids), "}");
    bson_error_t ignored;
    truce_count_options options = {.deadline_ms = CHECK_MS};
    int64_t count;
    truce_status status = truce_count(store, collection, filter, &options, &count, &ignored);

    bson_destroy(filter);
    return !status && count < bson_count_keys(ids);
}

/* Returns the documents to count, {collection: [_id, ...]}, if it is time; otherwise {}. */
static void metadata_take_relied(const truce_store *store, bson_t *relied)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    struct metadata_cache *cache;

    bson_init(relied);
    pthread_mutex_lock(&lock);
    cache = (struct metadata_cache *)store->cache;
    if (cache && now_ns - cache->checked_ns >= CHECK_MS * INT64_C(1000000)) {
        cache->checked_ns = now_ns;
        for (const struct collection *at = cache->collections; at; at = at->next)
            if (!bson_empty(&at->relied))
                BSON_APPEND_ARRAY(relied, at->name, &at->relied);
    }
    pthread_mutex_unlock(&lock);
}

/* Returns whether the store does not report what other processes do. A store that can compare
 * reports it, and a view does not change. */
static bool metadata_is_silent(const truce_store *store)
{
    return !(store->capabilities & TRUCE_CAN_COMPARE) && !truce__is_view(store);
}

/* Reads the documents again on which caches rely, on stores that do not report changes by other
 * processes. Counts a removal if one of them is gone. */
static void metadata_check_relied(truce_store *store)
{
    bson_t relied, ids;
    bson_iter_t at;

    if (!metadata_is_silent(store))
        return;
    metadata_take_relied(store, &relied);
    (void)bson_iter_init(&at, &relied);
    while (bson_iter_next(&at)) {
        truce__value_bson(truce__value_of_iter(&at), &ids);
        if (!metadata_misses(store, bson_iter_key(&at), &ids))
            continue;
        pthread_mutex_lock(&lock);
        metadata_of(store)->removals++;
        /* The list starts again: a document is added to it when it is read again. */
        bson_reinit(&metadata_collection_of(store, bson_iter_key(&at))->relied);
        pthread_mutex_unlock(&lock);
    }
    bson_destroy(&relied);
}

uint64_t truce__metadata_structure(truce_store *store)
{
    uint64_t structure;

    if (!metadata_is_silent(store))
        return truce__store_structure(store);
    metadata_lock(store);
    structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    return structure;
}

static bool metadata_relies(const bson_t *ids, struct value id)
{
    bson_iter_t at;

    (void)bson_iter_init(&at, ids);
    while (bson_iter_next(&at))
        if (!truce__value_compare(truce__value_of_iter(&at), id))
            return true;
    return false;
}

void truce__metadata_rely(truce_store *store, const char *collection, const bson_t *document)
{
    struct array ids;
    bson_iter_t id;

    if (!metadata_is_silent(store) || !bson_iter_init_find(&id, document, "_id"))
        return;
    metadata_lock(store);
    truce__array_resume(&ids, &metadata_collection_of(store, collection)->relied);
    if (ids.count < RELIED_MAX && !metadata_relies(ids.to, truce__value_of_iter(&id)))
        truce__array_add(&ids, truce__value_of_iter(&id));
    pthread_mutex_unlock(&lock);
}

/* How often a call that may be repeated is sent if it gets no reply. */
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

    metadata_lock(store);
    ready = metadata_collection_of(store, collection)->intents;
    structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    if (ready)
        return TRUCE_OK;
    status = metadata_make_index(store, collection, "_intent", false, error);
    if (status)
        return status;
    metadata_lock(store);
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
    status = status == TRUCE_DUPLICATE ? TRUCE_OK : status;
    if (!status)
        truce__metadata_rely(store, COMMITS, horizon);
    bson_destroy(horizon);
    return status;
}

truce_status truce__metadata_ensure_commits(truce_store *store, bson_error_t *error)
{
    uint64_t structure;
    truce_status status;
    bool ready;

    metadata_lock(store);
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
    metadata_lock(store);
    metadata_of(store)->commits = metadata_of(store)->structure == structure;
    pthread_mutex_unlock(&lock);
    return TRUCE_OK;
}

void truce__metadata_forget_commits(truce_store *store)
{
    metadata_lock(store);
    metadata_of(store)->commits = false;
    pthread_mutex_unlock(&lock);
}

/* ---- index lists ---------------------------------------------------------------------------- */

/* Returns whether the cached indexes of the collection may still be used. The mutex must be
 * held. */
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
static truce_status read_validator(truce_store *store, const char *name, bson_t *validator,
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

/* Reads the indexes and the validator of a collection into the cache. */
static truce_status metadata_load(truce_store *store, const char *name, bson_error_t *error)
{
    struct collection *collection;
    truce_status status = TRUCE_UNKNOWN;
    bson_t indexes = BSON_INITIALIZER, validator = BSON_INITIALIZER;

    for (int i = 0; i < TRIES && status == TRUCE_UNKNOWN; i++) {
        bson_destroy(&indexes);
        status = truce_index_list(store, name, &indexes, error);
    }
    if (status == TRUCE_NOT_FOUND) /* The collection does not exist, so it has no indexes. */
        status = TRUCE_OK;
    if (!status && !(store->capabilities & TRUCE_CAN_COMPARE))
        status = read_validator(store, name, &validator, error);
    if (!status) {
        metadata_lock(store);
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

/* Copies what the cache knows of a collection. Sets *fresh if the cache is recent enough. Only then
 * are *keyed, `indexes`, and `validator` valid; the last two may be NULL. */
static void metadata_recall(truce_store *store, const char *name, bool *fresh, bool *keyed,
                            bson_t *indexes, bson_t *validator)
{
    struct collection *collection;

    metadata_lock(store);
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

    for (;;) { /* Repeats only if the cached list expires between the load and the copy. */
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

    /* The store is in this process, so a read is cheap. It waits for the disk only if a validator
     * exists. */
    if (store->capabilities & TRUCE_CAN_COMPARE)
        return read_validator(store, name, validator, error);
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

    metadata_lock(store);
    known = metadata_collection_of(store, collection)->of;
    *structure = metadata_of(store)->structure;
    pthread_mutex_unlock(&lock);
    return known && !strcmp(known, of);
}

void truce__metadata_learn(truce_store *store, const char *of, const char *collection,
                           uint64_t structure)
{
    metadata_lock(store);
    if (metadata_of(store)->structure == structure)
        metadata_collection_of(store, collection)->of = of;
    pthread_mutex_unlock(&lock);
}

void truce__metadata_forget(truce_store *store, const char *name)
{
    struct collection *collection;

    metadata_lock(store);
    collection = metadata_collection_of(store, name);
    bson_destroy(collection->indexes);
    collection->indexes = NULL;
    pthread_mutex_unlock(&lock);
}

struct key_locks *truce__metadata_key_locks(truce_store *store)
{
    struct metadata_cache *cache;

    metadata_lock(store);
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
    truce_store *holder = truce__database_holder(store);
    int64_t now_ns = truce__clock_monotonic_ns(), since_ns;
    uint64_t thing = truce__watch_hash(truce__watch_hash(0, kind, strlen(kind)), id, size);

    metadata_lock(holder);
    since_ns = truce__watches_see(&metadata_of(holder)->watches, thing, state, now_ns);
    pthread_mutex_unlock(&lock);
    return since_ns;
}

bool truce__metadata_lease_over(truce_store *store, const struct watched_lease *lease)
{
    int64_t since_ns =
                truce__metadata_watch(store, lease->kind, lease->id, lease->size, lease->state),
            seen_ns;

    if (lease->fields && truce__lease_seen(lease->fields, lease->end, &seen_ns) &&
        seen_ns < since_ns)
        since_ns = seen_ns;
    /* Invariant CW4 of lease_watch.h. */
    return truce__clock_monotonic_ns() - since_ns >= lease->length_ms * 1000000;
}
