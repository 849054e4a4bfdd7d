#ifndef TRUCE_ENGINE_STORAGE_KV_DIRECT_H
#define TRUCE_ENGINE_STORAGE_KV_DIRECT_H

/*
 * Rows and keys that a reading connection finds in the pages itself, without a statement of SQLite.
 *
 * The connection is in a snapshot, so SQLite's read transaction keeps all pages of the snapshot
 * from being overwritten. Pages come through the VFS, which compares their checksums and shares
 * them. SQLite handles every other case: a missing row, a body on several pages, a page that is
 * damaged or cannot be read. It then finds the row or the error.
 */
#include <stdbool.h>
#include <stdint.h>

#include "engine/storage/kv.h"

struct kv_direct;

struct kv_direct *truce__kv_direct_new(void);
/* Frees the struct. NULL is allowed. */
void truce__kv_direct_free(struct kv_direct *direct);

/* Called when a snapshot has begun. The caller read `moved`, the number of frames that were moved
 * into the file, before it read the header of the snapshot for the second time. */
void truce__kv_direct_begin(struct kv *kv, uint32_t moved);

/* Finds a row. Its body is borrowed until the next call on the connection. Returns false if SQLite
 * must look for it. */
bool truce__kv_direct_row(struct kv *kv, int64_t table, int64_t row, struct bytes *body);

/* The end of a walk. */
enum kv_direct_end {
    /* The table has no more rows or entries. */
    KV_DIRECT_END,
    /* `take` has returned false, or the next entry was found. */
    KV_DIRECT_ENOUGH,
    /* The pages do not show the next row or entry, so SQLite must continue after the last one. */
    KV_DIRECT_UNKNOWN,
};

/* Passes the rows after row `after` to `take`, in the order of the pages. */
enum kv_direct_end truce__kv_direct_each(struct kv *kv, int64_t table, int64_t after,
                                         bool (*take)(struct kv *kv, int64_t row,
                                                      struct bytes body));

/* Finds the smallest row number of a key. Returns false if SQLite must look for the key. */
bool truce__kv_direct_key(struct kv *kv, int64_t table, struct bytes key, int64_t *row);

/* Begins a walk over the entries of a table of keys after (key, row). Returns false if SQLite must
 * make the walk, for example because the connection already has one. */
bool truce__kv_direct_walk(struct kv *kv, int64_t table, struct bytes key, int64_t row);
/* Moves to the next entry. Its key is borrowed until the next call for the walk. */
enum kv_direct_end truce__kv_direct_walk_next(struct kv *kv, struct bytes *key, int64_t *row);
void truce__kv_direct_walk_end(struct kv *kv);

#endif
