#include "maintenance/feed_maintenance.h"

#include "engine/documents/feed.h"
#include "store/file/file.h"

truce_status truce__feed_sweep(struct sweep *sweep, bson_error_t *error)
{
    struct engine *engine = truce__file_engine_or_null(sweep->store);
    struct feed_state state;
    int64_t removed, sum = 0;
    bool more;
    truce_status status;

    if (!engine)
        return TRUCE_OK;
    status = truce__engine_feed_state(engine, &state, error);
    more = !status && state.bytes;
    while (more && !status && sum < sweep->batch) {
        status = truce__engine_feed_prune(engine, &removed, &more, error);
        sum += removed;
    }
    sweep->report->pruned += sum;
    if (more && !status)
        sweep->report->more = true;
    return status;
}
