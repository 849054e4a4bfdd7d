/*
 * The structure number: it changes when a collection was dropped, renamed, or emptied, so that
 * handles read again what they remember of collections, such as indexes and definitions.
 *
 * This store counts its own changes, and its listener counts those that the server reports to it.
 * A server reports no change of another client to a store that does not listen. Therefore the
 * number also compares the UUIDs of collections: of truce's own, and of those whose indexes this
 * store has ensured. The first operation, and at most once a second a later one, reads the list.
 * If a collection of the last list, or one whose indexes were ensured, is missing or has another
 * UUID, the number changes before the operation continues.
 *
 * A server could also compare a UUID within each write (collectionUUID). This needs MongoDB 6.0, is
 * not possible for findAndModify, and makes a write fail that has no way to begin again.
 *
 * The list does not show that a collection was emptied: the patterns look for the documents that
 * they rely on (commit/metadata_cache.h). Some servers have no UUIDs. So the number changes once a
 * minute, too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "bson/array.h"
#include "bson/value.h"
#include "store/mongodb/mongo.h"

/* The minimum nanoseconds between two requests for the list of collections. */
#define LIST_INTERVAL_NS INT64_C(1000000000)
/* The structure number changes at least once in this many nanoseconds. */
#define STRUCTURE_NS (60 * INT64_C(1000000000))
/* The milliseconds for the reply with the list. */
#define LIST_WAIT_MS 1000
/* A value of `listed_ns`: the list is not requested any more. */
#define LIST_NEVER INT64_MAX
/* The maximum number of collections whose UUIDs are compared. */
#define COLLECTIONS_MAX 1000
/* The size of the first batch, so that one reply has the whole list. */
#define BATCH_MAX  100000
#define UUID_BYTES 16

struct uuid {
    char *name;
    uint8_t bytes[UUID_BYTES];
};

/* A list of collections, sorted by name. */
struct uuid_list {
    struct uuid *items;
    size_t count;
    /* Whether the list has collections without UUIDs. */
    bool without;
};

struct mongo_structure {
    /* Guards `watched` and `last`. */
    pthread_mutex_t mutex;
    /* The names of the collections whose indexes were ensured, and the last list. */
    bson_t watched;
    struct uuid_list last;
    /* The monotonic time at which the list was last requested. 0 means that the next operation
     * requests it. LIST_NEVER means that the server refuses the list, has no UUIDs, or has too many
     * collections. */
    _Atomic int64_t listed_ns;
    /* The time at which the store was opened, for the change once a minute. */
    int64_t opened_ns;
};

static void uuid_list_free(struct uuid_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        bson_free(list->items[i].name);
    bson_free(list->items);
    *list = (struct uuid_list){0};
}

struct mongo_structure *truce__mongo_structure_new(void)
{
    struct mongo_structure *structure = bson_malloc0(sizeof *structure);

    pthread_mutex_init(&structure->mutex, NULL);
    bson_init(&structure->watched);
    structure->opened_ns = truce__clock_monotonic_ns();
    return structure;
}

void truce__mongo_structure_free(struct mongo_structure *structure)
{
    if (!structure)
        return;
    uuid_list_free(&structure->last);
    bson_destroy(&structure->watched);
    pthread_mutex_destroy(&structure->mutex);
    bson_free(structure);
}

void truce__mongo_structure_watch(struct mongo_structure *structure, const char *collection)
{
    int64_t listed_ns = atomic_load(&structure->listed_ns);

    pthread_mutex_lock(&structure->mutex);
    if (listed_ns != LIST_NEVER && bson_count_keys(&structure->watched) < COLLECTIONS_MAX &&
        !bson_has_field(&structure->watched, collection)) {
        BSON_APPEND_NULL(&structure->watched, collection);
        atomic_compare_exchange_strong(&structure->listed_ns, &listed_ns, 0);
    }
    pthread_mutex_unlock(&structure->mutex);
}

/* ---- the list -------------------------------------------------------------------------------- */

/* Builds {listCollections: 1, filter: ...} for the reserved and the watched collections. */
static void structure_make_list_command(struct mongo_structure *structure, bson_t *body)
{
    bson_t filter, either, own, others;
    struct array names;
    bson_iter_t at;

    bson_init(body);
    BSON_APPEND_INT32(body, "listCollections", 1);
    BSON_APPEND_DOCUMENT_BEGIN(body, "filter", &filter);
    BSON_APPEND_ARRAY_BEGIN(&filter, "$or", &either);
    BSON_APPEND_DOCUMENT_BEGIN(&either, "0", &own);
    BSON_APPEND_REGEX(&own, "name", "^(@[^.]*\\.)?truce_", "");
    bson_append_document_end(&either, &own);
    BSON_APPEND_DOCUMENT_BEGIN(&either, "1", &others);
    BSON_APPEND_DOCUMENT_BEGIN(&others, "name", &own);
    truce__array_begin(&names, &own, "$in");
    pthread_mutex_lock(&structure->mutex);
    (void)bson_iter_init(&at, &structure->watched);
    while (bson_iter_next(&at))
        truce__array_add_text(&names, bson_iter_key(&at));
    pthread_mutex_unlock(&structure->mutex);
    truce__array_end(&names, &own);
    bson_append_document_end(&others, &own);
    bson_append_document_end(&either, &others);
    bson_append_array_end(&filter, &either);
    bson_append_document_end(body, &filter);
}

/* Adds a collection to the list. Does nothing if the list is full. */
static void structure_take(const bson_t *listed, struct uuid_list *list)
{
    const uint8_t *bytes = NULL;
    bson_iter_t name, at, uuid;
    bson_subtype_t subtype;
    uint32_t size = 0;

    if (list->count == COLLECTIONS_MAX || !bson_iter_init_find(&name, listed, "name") ||
        !bson_iter_init(&at, listed) || !BSON_ITER_HOLDS_UTF8(&name))
        return;
    if (bson_iter_find_descendant(&at, "info.uuid", &uuid) && BSON_ITER_HOLDS_BINARY(&uuid))
        bson_iter_binary(&uuid, &subtype, &size, &bytes);
    if (size != UUID_BYTES) {
        list->without = true;
        return;
    }
    if (!list->items)
        list->items = bson_malloc(COLLECTIONS_MAX * sizeof *list->items);
    list->items[list->count].name = bson_strdup(bson_iter_utf8(&name, NULL));
    memcpy(list->items[list->count++].bytes, bytes, UUID_BYTES);
}

static int uuid_compare(const void *a, const void *b)
{
    return strcmp(((const struct uuid *)a)->name, ((const struct uuid *)b)->name);
}

/* Reads the list. The first batch has all collections, because its maximum is larger than the
 * number of collections of any server. */
static truce_status structure_read(struct mongo_store *store, struct uuid_list *list)
{
    struct mongo_command command = {
        .what = "list the collections", .wait_ms = LIST_WAIT_MS, .outside = true};
    bson_iter_t at, batch;
    bson_error_t ignored;
    truce_status status;
    bson_t body, reply;

    structure_make_list_command(store->structure, &body);
    BCON_APPEND(&body, "cursor", "{", "batchSize", BCON_INT32(BATCH_MAX), "}");
    command.body = &body;
    status = truce__mongo_run_alone(store, &command, &reply, &ignored);
    if (!status && bson_iter_init(&at, &reply) &&
        bson_iter_find_descendant(&at, "cursor.firstBatch", &batch) &&
        BSON_ITER_HOLDS_ARRAY(&batch) && bson_iter_recurse(&batch, &at)) {
        while (bson_iter_next(&at)) {
            bson_t listed;

            if (!BSON_ITER_HOLDS_DOCUMENT(&at))
                continue;
            truce__value_bson(truce__value_of_iter(&at), &listed);
            structure_take(&listed, list);
        }
        if (list->count)
            qsort(list->items, list->count, sizeof *list->items, uuid_compare);
    }
    bson_destroy(&reply);
    bson_destroy(&body);
    return status;
}

/* ---- the comparison -------------------------------------------------------------------------- */

static const struct uuid *uuid_of(const struct uuid_list *list, const char *name)
{
    struct uuid wanted = {.name = (char *)name};

    return list->count ? bsearch(&wanted, list->items, list->count, sizeof wanted, uuid_compare)
                       : NULL;
}

/* Returns whether a collection of the last list was replaced. */
static bool structure_differs(const struct uuid_list *last, const struct uuid_list *list)
{
    for (size_t i = 0; i < last->count; i++) {
        const struct uuid *now = uuid_of(list, last->items[i].name);

        if (!now || memcmp(now->bytes, last->items[i].bytes, UUID_BYTES) != 0)
            return true;
    }
    return false;
}

/* Forgets the watched collections that are missing. They are watched again when their indexes are
 * ensured again. Returns whether any is missing. */
static bool structure_forget_missing(struct mongo_structure *structure,
                                     const struct uuid_list *list)
{
    bson_t left = BSON_INITIALIZER;
    bool missing = false;
    bson_iter_t at;

    (void)bson_iter_init(&at, &structure->watched);
    while (bson_iter_next(&at)) {
        if (uuid_of(list, bson_iter_key(&at)))
            BSON_APPEND_NULL(&left, bson_iter_key(&at));
        else
            missing = true;
    }
    bson_destroy(&structure->watched);
    bson_steal(&structure->watched, &left);
    return missing;
}

/* Reads the list, and changes the structure number if a collection is missing or was replaced. If
 * the list cannot be read for now, keeps the last one. */
static void structure_refresh(struct mongo_store *store)
{
    struct mongo_structure *structure = store->structure;
    struct uuid_list list = {0}, last;
    truce_status status = structure_read(store, &list);
    bool missing;

    if (status == TRUCE_INVALID || list.count == COLLECTIONS_MAX || (list.without && !list.count))
        atomic_store(&structure->listed_ns, LIST_NEVER);
    if (status || atomic_load(&structure->listed_ns) == LIST_NEVER) {
        uuid_list_free(&list);
        return;
    }
    pthread_mutex_lock(&structure->mutex);
    missing = structure_forget_missing(structure, &list);
    if (missing || structure_differs(&structure->last, &list))
        atomic_fetch_add(&store->changes, 1);
    last = structure->last;
    structure->last = list;
    pthread_mutex_unlock(&structure->mutex);
    uuid_list_free(&last);
}

uint64_t truce__mongo_structure_number(truce_store *base)
{
    struct mongo_store *store = (struct mongo_store *)base;
    struct mongo_structure *structure = store->structure;
    int64_t now_ns = truce__clock_monotonic_ns(), listed_ns = atomic_load(&structure->listed_ns);

    if (listed_ns != LIST_NEVER && now_ns - listed_ns >= LIST_INTERVAL_NS &&
        atomic_compare_exchange_strong(&structure->listed_ns, &listed_ns, now_ns)) {
        structure_refresh(store);
        /* The time is that of the reply, so that the next calls, which may hold a mutex, do not
         * wait for a slow server again. */
        atomic_compare_exchange_strong(&structure->listed_ns, &now_ns, truce__clock_monotonic_ns());
    }
    return 1 + atomic_load(&store->changes) +
           (uint64_t)((now_ns - structure->opened_ns) / STRUCTURE_NS);
}
