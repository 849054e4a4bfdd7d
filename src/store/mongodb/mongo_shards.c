/*
 * Shard keys of a sharded cluster: what it requires of writes, and what it cannot promise.
 *
 * The shard key of each collection is in config.collections. It is read on first use, when the
 * cluster refuses a message that lacks the key, and after FRESH_MS. A collection may be sharded, or
 * get another key, while it is in use.
 *
 *  MH1  mongos refuses a find-and-modify without the values of the shard key. If the filter lacks
 *       them, the document that it would match is read, and its _id and these values are added to
 *       the filter. If that filter matches nothing, the document is read again. NOT_FOUND is the
 *       result of a read of all shards.
 *  MH2  Documents of commits and revisions have unique _ids. If a collection is sharded by another
 *       key, two shards may each accept a document with the same _id. So the first write of such a
 *       document is refused there. An ObjectId is allowed, because it is generated for one document
 *       only.
 *  MH3  truce's own collections are refused with a shard key that does not keep them whole
 *       (reserved_names.h).
 *
 * If the user may not read config.collections, none of these checks is made. The cluster's own
 * refusals remain.
 */
#include "store/mongodb/mongo_shards.h"

#include <string.h>

#include "base/clock.h"
#include "bson/dotted_path.h"
#include "bson/value.h"

/* The milliseconds after which a shard key is read again. */
#define FRESH_MS 60000

struct layout {
    struct layout *next;
    char *name;
    /* The shard key, which is empty if the collection is not sharded or the key is unknown. */
    bson_t key;
    /* The monotonic time at which the key was read. */
    int64_t read_ns;
};

struct mongo_shards {
    /* Guards the list. */
    pthread_mutex_t mutex;
    /* The collections whose shard keys were read. Owned. */
    struct layout *layouts;
};

struct mongo_shards *truce__mongo_shards_new(void)
{
    struct mongo_shards *shards = bson_malloc0(sizeof *shards);

    pthread_mutex_init(&shards->mutex, NULL);
    return shards;
}

void truce__mongo_shards_free(struct mongo_shards *shards)
{
    if (!shards)
        return;
    while (shards->layouts) {
        struct layout *gone = shards->layouts;

        shards->layouts = gone->next;
        bson_destroy(&gone->key);
        bson_free(gone->name);
        bson_free(gone);
    }
    pthread_mutex_destroy(&shards->mutex);
    bson_free(shards);
}

/* ---- shard keys ----------------------------------------------------------------------------- */

/* Finds what is known about a collection. Returns NULL if nothing is. Called under the mutex. */
static struct layout *layout_of(struct mongo_shards *shards, const char *collection)
{
    struct layout *layout = shards->layouts;

    while (layout && strcmp(layout->name, collection) != 0)
        layout = layout->next;
    return layout;
}

static bool shards_recall(struct mongo_shards *shards, const char *collection, bson_t *key)
{
    const struct layout *layout;
    bool known;

    pthread_mutex_lock(&shards->mutex);
    layout = layout_of(shards, collection);
    known = layout && truce__clock_monotonic_ns() - layout->read_ns < INT64_C(1000000) * FRESH_MS;
    if (known)
        bson_copy_to(&layout->key, key);
    pthread_mutex_unlock(&shards->mutex);
    return known;
}

/* Records the shard key of a collection, or replaces the recorded one. */
static void shards_remember(struct mongo_shards *shards, const char *collection, const bson_t *key)
{
    struct layout *layout;

    pthread_mutex_lock(&shards->mutex);
    layout = layout_of(shards, collection);
    if (!layout) {
        layout = bson_malloc0(sizeof *layout);
        layout->name = bson_strdup(collection);
        layout->next = shards->layouts;
        shards->layouts = layout;
    } else {
        bson_destroy(&layout->key);
    }
    bson_copy_to(key, &layout->key);
    layout->read_ns = truce__clock_monotonic_ns();
    pthread_mutex_unlock(&shards->mutex);
}

void truce__mongo_shards_forget(struct mongo_store *store, const char *collection)
{
    struct layout *layout;

    if (!store->shards)
        return;
    pthread_mutex_lock(&store->shards->mutex);
    layout = layout_of(store->shards, collection);
    if (layout)
        layout->read_ns = INT64_MIN / 2;
    pthread_mutex_unlock(&store->shards->mutex);
}

/* Reads the shard key of a collection from the config database. The key is empty if the collection
 * is not sharded, or the user may not read it. */
static truce_status shards_read_key(struct mongo_store *store, mongoc_client_t *client,
                                    const char *collection, bson_t *key, bson_error_t *error)
{
    char *namespace = bson_strdup_printf("%s.%s", store->database, collection);
    bson_t *body = BCON_NEW("find", "collections", "filter", "{", "_id", BCON_UTF8(namespace), "}",
                            "limit", BCON_INT32(1), "singleBatch", BCON_BOOL(true));
    struct mongo_command command = {.what = "read the shard key",
                                    .body = body,
                                    .database = "config",
                                    .wait_ms = store->deadline_ms,
                                    .read_concern = true,
                                    .outside = true};
    bson_iter_t iter, found;
    bson_t reply;
    truce_status status = client ? truce__mongo_run(store, client, &command, &reply, error)
                                 : truce__mongo_run_alone(store, &command, &reply, error);

    bson_init(key);
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch.0.dropped", &found) &&
        bson_iter_as_bool(&found))
        /* Servers before 5.0 have another form. */
        status = TRUCE_NOT_FOUND;
    if (!status && bson_iter_init(&iter, &reply) &&
        bson_iter_find_descendant(&iter, "cursor.firstBatch.0.key", &found) &&
        BSON_ITER_HOLDS_DOCUMENT(&found)) {
        const uint8_t *bytes;
        uint32_t size;
        bson_t view;

        bson_iter_document(&found, &size, &bytes);
        if (bson_init_static(&view, bytes, size))
            bson_concat(key, &view);
    }
    bson_destroy(&reply);
    bson_destroy(body);
    bson_free(namespace);
    return status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ? TRUCE_OK : status;
}

/* Reads the shard key, which is empty if the collection is not sharded or the key is not readable.
 * `key` is always initialized. */
static truce_status shard_key(struct mongo_store *store, mongoc_client_t *client,
                              const char *collection, bson_t *key, bson_error_t *error)
{
    truce_status status;

    if (!store->shards) {
        bson_init(key);
        return TRUCE_OK;
    }
    if (shards_recall(store->shards, collection, key))
        return TRUCE_OK;
    status = shards_read_key(store, client, collection, key, error);
    if (!status)
        shards_remember(store->shards, collection, key);
    return status;
}

static bool mongo_shards_is_id_alone(const bson_t *key)
{
    return bson_has_field(key, "_id") && bson_count_keys(key) == 1;
}

/* ---- MH1 ------------------------------------------------------------------------------------- */

static bool names_value(const bson_t *filter, const char *path)
{
    struct value value =
        truce__value_field(truce__value_document(filter), path, (uint32_t)strlen(path));
    struct fields fields;

    if (value.type == VALUE_MISSING || value.type == BSON_TYPE_REGEX)
        return false;
    if (value.type != BSON_TYPE_DOCUMENT)
        return true;
    fields = truce__fields(value);
    return !truce__fields_next(&fields) || fields.key[0] != '$' || !strcmp(fields.key, "$eq");
}

static bool names_all(const bson_t *filter, const bson_t *key)
{
    bson_iter_t iter;

    bson_iter_init(&iter, key);
    while (bson_iter_next(&iter))
        if (!names_value(filter, bson_iter_key(&iter)))
            return false;
    return true;
}

/* Appends {path: {$eq: VALUE}} with the value of the document, or null if the field is missing. */
static void shards_append_value(bson_t *filter, const bson_t *document, const char *path)
{
    bson_iter_t iter, found;
    bson_t equal;

    bson_append_document_begin(filter, path, -1, &equal);
    if (bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, path, &found))
        BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&found));
    else
        BSON_APPEND_NULL(&equal, "$eq");
    bson_append_document_end(filter, &equal);
}

/* Builds the filter with the values that the document has for _id and the shard key. */
static void aim_at(const bson_t *filter, const bson_t *document, const bson_t *key, bson_t *aimed)
{
    bson_t values = BSON_INITIALIZER;
    bson_iter_t iter;
    /* Whether `filter` and `values` have a field in common. */
    bool both = false;

    if (!truce__mongo_names_id(filter, NULL) && !bson_has_field(key, "_id"))
        shards_append_value(&values, document, "_id");
    bson_iter_init(&iter, key);
    while (bson_iter_next(&iter))
        if (!names_value(filter, bson_iter_key(&iter)))
            shards_append_value(&values, document, bson_iter_key(&iter));
    bson_iter_init(&iter, &values);
    while (bson_iter_next(&iter))
        both = both || truce__value_field(truce__value_document(filter), bson_iter_key(&iter),
                                          bson_iter_key_len(&iter))
                               .type != VALUE_MISSING;
    if (both) {
        BCON_APPEND(aimed, "$and", "[", BCON_DOCUMENT(filter), BCON_DOCUMENT(&values), "]");
    } else {
        bson_concat(aimed, filter);
        bson_concat(aimed, &values);
    }
    bson_destroy(&values);
}

/* Reads the _id and the values of the shard key of the document that a find-and-modify would
 * change. */
static truce_status shards_find_target(struct mongo_store *store, const char *collection,
                                       const bson_t *filter, const truce_modify_options *options,
                                       const bson_t *key, bson_t *document, bson_error_t *error)
{
    bson_t projection = BSON_INITIALIZER;
    truce_find_options find = {.sort = options->sort, .limit = 1, .projection = &projection};
    truce_status status;
    bson_iter_t iter;

    BSON_APPEND_INT32(&projection, "_id", 1);
    bson_iter_init(&iter, key);
    while (bson_iter_next(&iter))
        if (strcmp(bson_iter_key(&iter), "_id") != 0)
            BSON_APPEND_INT32(&projection, bson_iter_key(&iter), 1);
    status = truce_find_one(&store->base, collection, filter, &find, document, error);
    bson_destroy(&projection);
    return status;
}

truce_status truce__mongo_aim(struct mongo_store *store, const char *collection,
                              const bson_t *filter, const truce_modify_options *options,
                              bson_t *aimed, bool *changed, bson_error_t *error)
{
    bson_t key, document;
    truce_status status = shard_key(store, NULL, collection, &key, error);

    bson_init(aimed);
    *changed = !status && !bson_empty(&key) && !options->upsert && !names_all(filter, &key);
    if (*changed) {
        status = shards_find_target(store, collection, filter, options, &key, &document, error);
        if (!status)
            aim_at(filter, &document, &key, aimed);
        bson_destroy(&document);
    } else {
        bson_concat(aimed, filter);
    }
    bson_destroy(&key);
    return status;
}

/* ---- MH2, MH3 -------------------------------------------------------------------------------- */

static truce_status shards_refuse(const char *collection, const bson_t *key, const char *why,
                                  bson_error_t *error)
{
    char *shown = bson_as_relaxed_extended_json(key, NULL);

    truce__fail(TRUCE_INVALID, error, "the collection \"%s\" is sharded by %s: %s", collection,
                shown ? shown : "{}", why);
    bson_free(shown);
    return TRUCE_INVALID;
}

/* Returns whether the write's document must be the only one with its _id: it takes part in commits
 * (_rev, _intent), and its _id is not an ObjectId, which is unique by itself. */
static bool is_one_of_its_id(const truce_write *write)
{
    bson_iter_t iter;

    return write->kind == TRUCE_WRITE_INSERT &&
           (bson_has_field(write->document, "_rev") ||
            bson_has_field(write->document, "_intent")) &&
           bson_iter_init_find(&iter, write->document, "_id") && !BSON_ITER_HOLDS_OID(&iter);
}

static bool shards_may_insert(const truce_write *write)
{
    return write->kind == TRUCE_WRITE_INSERT || write->options.upsert;
}

/* Checks that commits can guard the documents of a sharded collection. Fails with the sharding that
 * the collection needs. */
static truce_status shards_check(const truce_write *write, const bson_t *key, bson_error_t *error)
{
    if (bson_empty(key) || mongo_shards_is_id_alone(key))
        return bson_empty(key) || truce__reserved_shards(write->collection) != SHARD_NEVER
                   ? TRUCE_OK
                   : shards_refuse(write->collection, key, "leave it unsharded (docs/mongodb.md)",
                                   error);
    switch (truce__reserved_shards(write->collection)) {
    case SHARD_NEVER:
        return shards_refuse(write->collection, key, "leave it unsharded (docs/mongodb.md)", error);
    case SHARD_BY_ID:
        return shards_refuse(
            write->collection, key,
            "shard it by {_id: \"hashed\"}, or leave it unsharded (docs/mongodb.md)", error);
    case SHARD_FREE:
        break;
    }
    return is_one_of_its_id(write)
               ? shards_refuse(
                     write->collection, key,
                     "an insert could create a second document with the same _id on another shard: "
                     "shard the collection by _id, or use ObjectIds",
                     error)
               : TRUCE_OK;
}

truce_status truce__mongo_shards_check(struct mongo_store *store, mongoc_client_t *client,
                                       const truce_write *writes, size_t count, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    const char *last = NULL;
    bson_t key = BSON_INITIALIZER;

    for (size_t i = 0; store->shards && i < count && !status; i++) {
        if (!shards_may_insert(&writes[i]) ||
            (!is_one_of_its_id(&writes[i]) &&
             truce__reserved_shards(writes[i].collection) == SHARD_FREE))
            continue;
        if (!last || strcmp(last, writes[i].collection) != 0) {
            bson_destroy(&key);
            status = shard_key(store, client, writes[i].collection, &key, error);
            last = writes[i].collection;
        }
        if (!status)
            status = shards_check(&writes[i], &key, error);
    }
    bson_destroy(&key);
    return status;
}
