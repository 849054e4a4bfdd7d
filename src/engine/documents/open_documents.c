#include "engine/documents/open_documents.h"

#include "engine/documents/delegated_writes.h"
#include "engine/documents/index_build.h"

/* The milliseconds for which the removal of unfinished indexes waits for the write lock. */
#define SWEEP_MS 200

/* Removes unfinished indexes whose builders have died. If this fails, a later call removes them. */
static void sweep_index_builds(struct engine *engine)
{
    bson_error_t error;

    if (truce__index_build_sweep(engine, SWEEP_MS, &error))
        truce__log_emit(&engine->durable.log_hook, TRUCE_LOG_WARNING,
                        "cannot remove an unfinished index from \"%s\": %s; the next open of the "
                        "store tries again",
                        engine->path, error.message);
}

truce_status truce__engine_open(const char *path, const truce_store_options *options,
                                struct engine **engine, bson_error_t *error)
{
    truce_status status = truce__engine_start(path, options, truce__delegated_kinds, engine, error);

    if (!status && !(*engine)->read_only)
        sweep_index_builds(*engine);
    return status;
}
