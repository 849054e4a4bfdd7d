#include "maintenance/maintenance_registry.h"

#include "commit/commit_maintenance.h"
#include "engine/documents/change_feed.h"
#include "maintenance/session_sweep.h"
#include "patterns/ledger/ledger_maintenance.h"
#include "patterns/queue/queue_maintenance.h"
#include "patterns/sync/sync_maintenance.h"
#include "patterns/transfer/transfer_maintenance.h"
#include "patterns/tree/tree_maintenance.h"
#include "store/file/file.h"

/* ---- the feed of changes --------------------------------------------------------------------- */

/* Removes entries of the change feed that are too old or too many, up to a batch. */
static truce_status feed_sweep(struct sweep *sweep, bson_error_t *error)
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

/* ---- registry ---------------------------------------------------------------------------- */

/* The parts that concern the whole store (`true`) come first in a sweep and in a check. The others
 * then follow for each database in this order: commits first, because their documents block the
 * other parts. */
const struct maintenance_part truce__maintenance_parts[] = {
    {"store", true, NULL, truce__store_check},
    {"commits", false, truce__commit_sweep, truce__commit_check},
    {"queues", false, truce__queue_sweep, truce__queue_check},
    {"ledgers", false, truce__ledger_sweep, truce__ledger_check},
    {"transfers", false, truce__transfer_sweep, truce__transfer_check},
    {"sessions", true, truce__session_sweep_step, NULL},
    {"changes", true, feed_sweep, NULL},
    {"denormalized copies", false, truce__sync_sweep, truce__sync_check},
    {"trees", false, truce__tree_sweep, truce__tree_check},
};

const uint32_t truce__maintenance_parts_count =
    sizeof truce__maintenance_parts / sizeof *truce__maintenance_parts;
