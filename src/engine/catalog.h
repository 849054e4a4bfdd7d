#ifndef TRUCE_ENGINE_CATALOG_H
#define TRUCE_ENGINE_CATALOG_H

/*
 * The catalog: which collections there are, in which tables their documents and index entries
 * stand.
 *
 * A loaded catalog never changes; it belongs to one version of the file (engine/storage/kv.h) and is shared
 * by reference count. Whoever has begun a snapshot or a write transaction compares versions and
 * loads again if they differ, so a catalog in use is never stale, whoever changed it.
 */
#include <stdatomic.h>

#include "engine/storage/kv.h"
#include "query/index/index.h"
#include "query/match/match.h"

enum index_state {
    INDEX_BUILDING = 1, /* writers keep it up to date for their documents; it has not got all */
    INDEX_CHECKING = 2, /* it has all documents; unique: older repeats are still being looked for */
    INDEX_READY = 3,    /* queries use it */
};

struct index {
    int64_t id; /* of its key table */
    enum index_state state;
    uint32_t multikey_fields; /* bit i: field i of some document went through an array */
    struct index_spec spec;
};

struct collection {
    int64_t id; /* of its row table */
    char *name;
    uint32_t indexes_count;
    struct index *indexes;   /* that of _id first */
    struct match *validator; /* NULL: none */
    bool images; /* the feed keeps its documents as they were before and after a change */
};

/* The feed of changes (feed.h). */
struct feed_spec {
    int64_t table; /* its row table; 0: there is no feed */
    bson_oid_t id; /* of this feed, and of no other */
    int64_t keep_ms, keep_bytes;
};

struct catalog {
    atomic_int references;
    uint32_t version;
    /* Of this file, and of its copies byte for byte; of its feed, as long as no server has given the file one. */
    bson_oid_t id;
    bool has_id;
    struct feed_spec feed;
    uint32_t count;
    struct collection *collections; /* in the order of names */
};

#define UUID_BYTES 16
/* Of a collection of the file with that id, for as long as it is there. */
void truce__catalog_uuid(const bson_oid_t *file, int64_t number, uint8_t uuid[UUID_BYTES]);

/* From the snapshot or transaction that `kv` is in; one reference is the caller's. */
truce_status truce__catalog_load(struct kv *kv, uint32_t version, struct catalog **catalog,
                                 bson_error_t *error);
struct catalog *truce__catalog_hold(struct catalog *catalog);
void truce__catalog_release(struct catalog *catalog); /* NULL is allowed */

const struct collection *truce__catalog_find(const struct catalog *catalog, const char *name);
const struct collection *truce__catalog_find_id(const struct catalog *catalog, int64_t id);
const struct index *truce__collection_index(const struct collection *collection, const char *name);
const struct index *truce__collection_index_id(const struct collection *collection, int64_t id);

/* "the documents of students", for a message; nothing where it does not know. `catalog` may be NULL. */
void truce__catalog_name_table(const struct catalog *catalog, int64_t table, char *name,
                               size_t size);

/* ---- changes, in a write transaction; the caller loads the catalog again afterwards --------- */

truce_status truce__catalog_add_collection(struct kv *kv, const char *name, bson_error_t *error);
truce_status truce__catalog_drop_collection(struct kv *kv, const struct collection *collection,
                                            bson_error_t *error);
truce_status truce__catalog_rename_collection(struct kv *kv, const struct collection *collection,
                                              const char *name, bson_error_t *error);
/* `validator`: NULL, or {} : none. INVALID: it is no filter. */
truce_status truce__catalog_change_validator(struct kv *kv, const struct collection *collection,
                                             const bson_t *validator, bson_error_t *error);
/* Does the feed keep its documents as they were? */
truce_status truce__catalog_change_images(struct kv *kv, const struct collection *collection,
                                          bool images, bson_error_t *error);
/* `*id`: of the new index, whose table is made and empty */
truce_status truce__catalog_add_index(struct kv *kv, const struct collection *collection,
                                      const struct index_spec *spec, enum index_state state,
                                      int64_t *id, bson_error_t *error);
truce_status truce__catalog_drop_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, bson_error_t *error);
/* What it is but for its keys, which stay; `index` is as it is to be, with its id. */
truce_status truce__catalog_change_index(struct kv *kv, const struct collection *collection,
                                         const struct index *index, bson_error_t *error);
/* Gives the file an id, if it has none. */
truce_status truce__catalog_identify(struct kv *kv, const bson_oid_t *id, bson_error_t *error);
/* Makes its table, which is empty, and gives it its number. */
truce_status truce__catalog_add_feed(struct kv *kv, struct feed_spec *feed, bson_error_t *error);
/* What is kept; its table and id stay. */
truce_status truce__catalog_change_feed(struct kv *kv, const struct feed_spec *feed,
                                        bson_error_t *error);
truce_status truce__catalog_drop_feed(struct kv *kv, const struct feed_spec *feed,
                                      bson_error_t *error);
/* A new, empty table for an index; the old one is left, and nothing names it any more. */
truce_status truce__catalog_move_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, int64_t *moved, bson_error_t *error);

#endif
