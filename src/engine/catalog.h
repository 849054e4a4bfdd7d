#ifndef TRUCE_ENGINE_CATALOG_H
#define TRUCE_ENGINE_CATALOG_H

/*
 * The catalog: the collections, and the tables that contain their documents and index entries.
 *
 * A loaded catalog never changes. It belongs to one version of the file (engine/storage/kv.h) and
 * is shared by reference count. After a snapshot or a write transaction has begun, its version is
 * compared with that of the catalog, and the catalog is loaded again if they differ. A catalog in
 * use is therefore never stale, regardless of which process changed it.
 */
#include <stdatomic.h>

#include "engine/storage/kv.h"
#include "query/index/index.h"
#include "query/match/match.h"

enum index_state {
    /* Writers add the documents that they change. Existing documents may be missing from the
     * index. */
    INDEX_BUILDING = 1,
    /* The index contains all documents. For a unique index, the search for existing duplicates has
     * not finished. */
    INDEX_CHECKING = 2,
    /* Queries use the index. */
    INDEX_READY = 3,
};

struct index {
    /* The number of the key table of the index. */
    int64_t id;
    enum index_state state;
    /* If bit i is set, the path of field i passed through an array in some document. */
    uint32_t multikey_fields;
    struct index_spec spec;
};

struct collection {
    /* The number of the row table of the collection. */
    int64_t id;
    char *name;
    uint32_t indexes_count;
    /* `indexes[0]` is the index of _id. */
    struct index *indexes;
    /* The validator, or NULL if every document is valid. */
    struct match *validator;
    /* Whether the feed stores each document before and after a change. */
    bool images;
};

/* The feed of changes (change_feed.h). */
struct feed_spec {
    /* The row table of the feed, or 0 if the file has no feed. */
    int64_t table;
    /* The id of this feed, which its resume tokens contain (change_feed.h). */
    bson_oid_t id;
    int64_t keep_ms, keep_bytes;
};

struct catalog {
    atomic_int references;
    uint32_t version;
    /* Identifies this file and its byte-for-byte copies. If the file has no id (`has_id`), this is
     * the id of its feed. */
    bson_oid_t id;
    bool has_id;
    struct feed_spec feed;
    uint32_t count;
    /* The collections, sorted by name. */
    struct collection *collections;
};

#define UUID_BYTES 16
/* Computes the UUID of a collection of the file with that id. The UUID is valid while the
 * collection exists. */
void truce__catalog_uuid(const bson_oid_t *file, int64_t number, uint8_t uuid[UUID_BYTES]);

/* Loads the catalog from the snapshot or transaction of `kv`. The caller gets one reference. */
truce_status truce__catalog_load(struct kv *kv, uint32_t version, struct catalog **catalog,
                                 bson_error_t *error);
/* Adds a reference, which the caller releases. */
struct catalog *truce__catalog_hold(struct catalog *catalog);
/* Releases one reference; the last one frees the catalog. NULL is allowed. */
void truce__catalog_release(struct catalog *catalog);

/* Find a collection or an index by its name or its number. Return NULL if it does not exist. The
 * result is valid while the caller has a reference to the catalog. */
const struct collection *truce__catalog_find(const struct catalog *catalog, const char *name);
const struct collection *truce__catalog_find_id(const struct catalog *catalog, int64_t id);
const struct index *truce__collection_index(const struct collection *collection, const char *name);
const struct index *truce__collection_index_id(const struct collection *collection, int64_t id);

/* Writes a name for messages, such as "the documents of students", or nothing if the table is
 * unknown. `catalog` may be NULL. */
void truce__catalog_name_table(const struct catalog *catalog, int64_t table, char *name,
                               size_t size);

/* ---- changes, in a write transaction; the caller loads the catalog again afterwards --------- */

truce_status truce__catalog_add_collection(struct kv *kv, const char *name, bson_error_t *error);
truce_status truce__catalog_drop_collection(struct kv *kv, const struct collection *collection,
                                            bson_error_t *error);
truce_status truce__catalog_rename_collection(struct kv *kv, const struct collection *collection,
                                              const char *name, bson_error_t *error);
/* Changes the validator of a collection. A `validator` that is NULL or {} removes it. Fails with
 * INVALID if it is not a filter. */
truce_status truce__catalog_change_validator(struct kv *kv, const struct collection *collection,
                                             const bson_t *validator, bson_error_t *error);
/* Sets whether the feed stores the documents before and after a change. */
truce_status truce__catalog_change_images(struct kv *kv, const struct collection *collection,
                                          bool images, bson_error_t *error);
/* Adds an index. `*id` is the number of the new index, whose table is created empty. */
truce_status truce__catalog_add_index(struct kv *kv, const struct collection *collection,
                                      const struct index_spec *spec, enum index_state state,
                                      int64_t *id, bson_error_t *error);
truce_status truce__catalog_drop_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, bson_error_t *error);
/* Changes every property of an index except its keys. `index` has the new values and the existing
 * id. */
truce_status truce__catalog_change_index(struct kv *kv, const struct collection *collection,
                                         const struct index *index, bson_error_t *error);
/* Gives the file an id if it has none. */
truce_status truce__catalog_identify(struct kv *kv, const bson_oid_t *id, bson_error_t *error);
/* Adds the feed to the catalog. Creates an empty row table and stores its number in
 * `feed->table`. */
truce_status truce__catalog_add_feed(struct kv *kv, struct feed_spec *feed, bson_error_t *error);
/* Changes how long the feed keeps entries. The table and the id of the feed do not change. */
truce_status truce__catalog_change_feed(struct kv *kv, const struct feed_spec *feed,
                                        bson_error_t *error);
truce_status truce__catalog_drop_feed(struct kv *kv, const struct feed_spec *feed,
                                      bson_error_t *error);
/* Creates a new, empty table for an index. The old table remains, but the catalog no longer names
 * it. */
truce_status truce__catalog_move_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, int64_t *moved, bson_error_t *error);

#endif
