#ifndef TRUCE_STORE_PIPELINE_H
#define TRUCE_STORE_PIPELINE_H

/* Aggregation over a store: what every backend needs to turn a compiled pipeline into a cursor. */
#include "query/aggregate/aggregate.h"
#include "query/context.h"
#include "store/store.h"

/* A cursor over the stages of `pipeline` from number `first` on, which read `input`. Takes over
 * pipeline, input and `reads` in any case. The world of the pipeline is the store itself, through its public
 * verbs: $lookup and $unionWith find in `reads`, a view of the store of the moment of the input (NULL: the store
 * itself), $out writes a new collection and renames it at the end, $merge updates. With options->allow_disk_use large sorts and groups spill to unnamed temporary
 * files. The backend holds no lock meanwhile. */
truce_status truce__store_pipeline_cursor(truce_store *store, truce_store *reads,
                                          struct pipeline *pipeline, uint32_t first,
                                          struct source *input,
                                          const truce_aggregate_options *options,
                                          truce_cursor **cursor, bson_error_t *error);

/* A place for bytes in an unnamed temporary file (below TMPDIR); `spill->free` closes it. */
truce_status truce__store_spill(struct spill **spill, bson_error_t *error);

#endif
