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

/*
 * One list per store, hung into the store itself (sys/store.h), under one lock for all: it is
 * looked at once or twice a commit. Index definitions are asked for again after a while, because
 * another process may make an index; a commit that began before may then still see the old list,
 * which is why the manual says to make unique indexes before documents are committed under them, and
 * why truce_unique_declare waits.
 */

#define INDEXES_FRESH_NS (INT64_C(1000000) * COMMIT_INDEXES_FRESH_MS)

struct collection {
    struct collection *next;
    char *name;
    bool intents;   /* its index on _intent is there */
    const char *of; /* a constant: what needs something of it that is there; NULL: none */
    bool keyed;     /* among its indexes is the unique one on `_keys` */
    bson_t *indexes, *validator; /* as read at: */
    int64_t indexes_at_ns;
};

struct memo {
    struct truce_memo base;
    struct watches watches;
    struct collection *collections;
    struct turns *turns;
    bool commits;       /* the commit collection is ready */
    uint64_t structure; /* of the store, when what is known of collections was found */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void free_memo(struct truce_memo *base)
{
    struct memo *memo = (struct memo *)base;

    while (memo->collections) {
        struct collection *gone = memo->collections;

        memo->collections = gone->next;
        bson_destroy(gone->indexes);
        bson_destroy(gone->validator);
        bson_free(gone->name);
        bson_free(gone);
    }
    truce__turns_free(memo->turns);
    truce__watches_free(&memo->watches);
    bson_free(memo);
}

static void forget_collections(struct memo *memo)
{
    memo->commits = false;
    for (struct collection *at = memo->collections; at; at = at->next) {
        at->intents = false;
        at->of = NULL;
        bson_destroy(at->indexes);
        at->indexes = NULL;
    }
}

/* with the lock held */
static struct memo *memo_of(truce_store *store)
{
    struct memo *memo = (struct memo *)store->memo;
    uint64_t structure = truce__store_structure(store);

    if (!memo) {
        memo = bson_malloc0(sizeof *memo);
        memo->base.free = free_memo;
        memo->structure = structure;
        store->memo = &memo->base;
    }
    if (memo->structure != structure)
        forget_collections(memo);
    memo->structure = structure;
    return memo;
}

/* with the lock held */
static struct collection *memo_collection_of(truce_store *store, const char *name)
{
    struct memo *memo = memo_of(store);
    struct collection *collection = memo->collections;

    while (collection && strcmp(collection->name, name) != 0)
        collection = collection->next;
    if (!collection) {
        collection = bson_malloc0(sizeof *collection);
        collection->name = bson_strdup(name);
        collection->next = memo->collections;
        memo->collections = collection;
    }
    return collection;
}

#define TRIES 5 /* of what may be repeated freely, when it is not answered */

static truce_status memo_make_index(truce_store *store, const char *collection, const char *field,
                                    bool unique, bson_error_t *error)
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

truce_status truce__memo_intents(truce_store *store, const char *collection, bson_error_t *error)
{
    uint64_t structure;
    truce_status status;
    bool ready;

    pthread_mutex_lock(&lock);
    ready = memo_collection_of(store, collection)->intents;
    structure = memo_of(store)->structure;
    pthread_mutex_unlock(&lock);
    if (ready)
        return TRUCE_OK;
    status = memo_make_index(store, collection, "_intent", false, error);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    memo_collection_of(store, collection)->intents = memo_of(store)->structure == structure;
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

truce_status truce__memo_commits(truce_store *store, bson_error_t *error)
{
    uint64_t structure;
    truce_status status;
    bool ready;

    pthread_mutex_lock(&lock);
    ready = memo_of(store)->commits;
    structure = memo_of(store)->structure;
    pthread_mutex_unlock(&lock);
    if (ready)
        return TRUCE_OK;
    status = memo_make_index(store, COMMITS, "key", true, error);
    if (!status)
        status = make_horizon(store, error);
    if (status)
        return status;
    pthread_mutex_lock(&lock);
    memo_of(store)->commits = memo_of(store)->structure == structure;
    pthread_mutex_unlock(&lock);
    return TRUCE_OK;
}

/* ---- index lists ---------------------------------------------------------------------------- */

/* with the lock held */
static bool is_fresh(const struct collection *collection)
{
    return collection->indexes &&
           truce__clock_monotonic_ns() - collection->indexes_at_ns < INDEXES_FRESH_NS;
}

/* Unique, and over `_keys` alone. */
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

/* {} if the store does not tell: the validator is then what the writes meet. */
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

static truce_status memo_load(truce_store *store, const char *name, bson_error_t *error)
{
    struct collection *collection;
    truce_status status = TRUCE_UNKNOWN;
    bson_t indexes = BSON_INITIALIZER, validator = BSON_INITIALIZER;

    for (int i = 0; i < TRIES && status == TRUCE_UNKNOWN; i++) {
        bson_destroy(&indexes);
        status = truce_index_list(store, name, &indexes, error);
    }
    if (status == TRUCE_NOT_FOUND) /* no collection: no indexes */
        status = TRUCE_OK;
    if (!status && !(store->capabilities & TRUCE_CAN_COMPARE))
        status = ask_validator(store, name, &validator, error);
    if (!status) {
        pthread_mutex_lock(&lock);
        collection = memo_collection_of(store, name);
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

/* *fresh: then it was taken over from what is known: *keyed, and the list and the validator unless NULL. */
static void memo_recall(truce_store *store, const char *name, bool *fresh, bool *keyed,
                        bson_t *indexes, bson_t *validator)
{
    struct collection *collection;

    pthread_mutex_lock(&lock);
    collection = memo_collection_of(store, name);
    *fresh = is_fresh(collection);
    *keyed = collection->keyed;
    if (*fresh && indexes)
        bson_copy_to(collection->indexes, indexes);
    if (*fresh && validator)
        bson_copy_to(collection->validator, validator);
    pthread_mutex_unlock(&lock);
}

truce_status truce__memo_indexes(truce_store *store, const char *name, bson_t *indexes,
                                 bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh, keyed;

    for (;;) { /* again only if the list gets old between two lines */
        memo_recall(store, name, &fresh, &keyed, indexes, NULL);
        if (fresh)
            return TRUCE_OK;
        status = memo_load(store, name, error);
        if (status)
            break;
    }
    bson_init(indexes);
    return status;
}

truce_status truce__memo_keyed(truce_store *store, const char *name, bool *keyed,
                               bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh;

    memo_recall(store, name, &fresh, keyed, NULL, NULL);
    if (fresh)
        return TRUCE_OK;
    status = memo_load(store, name, error);
    memo_recall(store, name, &fresh, keyed, NULL, NULL);
    return status;
}

truce_status truce__memo_validator(truce_store *store, const char *name, bson_t *validator,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bool fresh, keyed;

    if (store->capabilities & TRUCE_CAN_COMPARE) /* in this process: a look is cheap */
        return ask_validator(store, name, validator, error);
    for (;;) {
        memo_recall(store, name, &fresh, &keyed, NULL, validator);
        if (fresh)
            return TRUCE_OK;
        status = memo_load(store, name, error);
        if (status)
            break;
    }
    bson_init(validator);
    return status;
}

bool truce__memo_known(truce_store *store, const char *of, const char *collection,
                       uint64_t *structure)
{
    const char *known;

    pthread_mutex_lock(&lock);
    known = memo_collection_of(store, collection)->of;
    *structure = memo_of(store)->structure;
    pthread_mutex_unlock(&lock);
    return known && !strcmp(known, of);
}

void truce__memo_learn(truce_store *store, const char *of, const char *collection,
                       uint64_t structure)
{
    pthread_mutex_lock(&lock);
    if (memo_of(store)->structure == structure)
        memo_collection_of(store, collection)->of = of;
    pthread_mutex_unlock(&lock);
}

void truce__memo_forget(truce_store *store, const char *name)
{
    struct collection *collection;

    pthread_mutex_lock(&lock);
    collection = memo_collection_of(store, name);
    bson_destroy(collection->indexes);
    collection->indexes = NULL;
    pthread_mutex_unlock(&lock);
}

struct turns *truce__memo_turns(truce_store *store)
{
    struct memo *memo;

    pthread_mutex_lock(&lock);
    memo = memo_of(store);
    if (!memo->turns)
        memo->turns = truce__turns_new();
    pthread_mutex_unlock(&lock);
    return memo->turns;
}

/* ---- leases under watch ----------------------------------------------------------------------- */

int64_t truce__memo_watch(truce_store *store, const char *kind, const void *id, size_t size,
                          uint64_t state)
{
    int64_t now_ns = truce__clock_monotonic_ns(), since_ns;
    uint64_t thing = truce__watch_hash(truce__watch_hash(0, kind, strlen(kind)), id, size);

    pthread_mutex_lock(&lock);
    since_ns =
        truce__watches_see(&memo_of(truce__database_holder(store))->watches, thing, state, now_ns);
    pthread_mutex_unlock(&lock);
    return since_ns;
}
