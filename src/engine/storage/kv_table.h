#ifndef TRUCE_ENGINE_STORAGE_KV_TABLE_H
#define TRUCE_ENGINE_STORAGE_KV_TABLE_H

/* What tables take of the file, by SQLite's table of pages, dbstat: a walk through all of their pages. */
#include "engine/storage/kv.h"

struct kv_size {
    int64_t bytes;  /* of the pages that it stands on */
    int64_t unused; /* of these, where nothing is */
};

/* Was SQLite built with it? Debian's is. */
bool truce__kv_tells_sizes(void);
/* In a snapshot. `keys`: of a key table, else of one of rows. */
truce_status truce__kv_size(struct kv *kv, bool keys, int64_t table, struct kv_size *size,
                            bson_error_t *error);

#endif
