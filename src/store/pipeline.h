#ifndef TRUCE_STORE_PIPELINE_H
#define TRUCE_STORE_PIPELINE_H

/* Aggregation over a store: turns a compiled pipeline and a backend's documents into a cursor. */
#include "query/aggregate/aggregate.h"
#include "query/evaluation_context.h"
#include "store/store.h"

/* Opens a cursor over the stages of `pipeline` from number `first` on, which read `input`. Always
 * takes over pipeline, input, and `reads`. The stages use the store's public functions. $lookup and
 * $unionWith read from `reads`, a view with the snapshot of the input, or from the store itself if
 * `reads` is NULL. $out writes a new collection and renames it at the end; $merge updates. With
 * options->allow_disk_use, large sorts and groups spill to unnamed temporary files. The backend
 * holds no lock while the cursor is open. */
truce_status truce__store_pipeline_cursor(truce_store *store, truce_store *reads,
                                          struct pipeline *pipeline, uint32_t first,
                                          struct source *input,
                                          const truce_aggregate_options *options,
                                          truce_cursor **cursor, bson_error_t *error);

/* Opens an unnamed temporary file (below TMPDIR). `spill->free` closes it. */
truce_status truce__store_spill(struct spill **spill, bson_error_t *error);

#endif
