#ifndef TRUCE_ENGINE_STORAGE_KV_TABLE_H
#define TRUCE_ENGINE_STORAGE_KV_TABLE_H

/* The space that tables take in the file, from SQLite's dbstat table: a walk through all of their
 * pages. */
#include "engine/storage/kv.h"

struct kv_size {
    /* The bytes of all pages of the table. */
    int64_t bytes;
    /* The number of unused bytes in these pages. */
    int64_t unused;
};

/* Returns whether SQLite was built with dbstat. Debian's SQLite is. */
bool truce__kv_reports_sizes(void);
/* Measures a table. Called in a snapshot. `keys` means that the table is a key table. */
truce_status truce__kv_size(struct kv *kv, bool keys, int64_t table, struct kv_size *size,
                            bson_error_t *error);

#endif
