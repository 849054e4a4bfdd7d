/*
 * One round of the sweep: the step of each part in turn, each bounded by the batch.
 *
 *   W1  Every step is safe at any time, in any number of processes, and may be cut off anywhere: what
 *       it left, the next round does.
 *   W2  A step that fails stops no other one. The round tells the first failure, when all were tried.
 *   W3  Documents expire last, and none that a commit holds.
 */
#include "truce/sweep.h"

#include <string.h>

#include "base/clock.h"
#include "base/room.h"
#include "care/parts.h"

#define RETENTION_MS INT64_C(604800000) /* 7 days */
#define BATCH        1000

static truce_status expire(struct sweep *sweep, bson_error_t *error)
{
    bson_t guard = BSON_INITIALIZER, absent;
    int64_t limit = INT64_C(10) * sweep->batch, removed = 0;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&guard, "_intent", &absent);
    BSON_APPEND_BOOL(&absent, "$exists", false);
    bson_append_document_end(&guard, &absent);
    status = truce_store_expire(sweep->store, &guard, limit, &removed, error);
    sweep->report->expired += removed;
    if (removed == limit)
        sweep->report->more = true;
    bson_destroy(&guard);
    return status;
}

truce_status truce_sweep(truce_store *store, const truce_sweep_options *options,
                         truce_sweep_report *report, bson_error_t *error)
{
    static const truce_sweep_options defaults;
    struct sweep sweep = {.store = store,
                          .options = options ? options : &defaults,
                          .report = report,
                          .batch = options && options->batch ? options->batch : BATCH,
                          .cutoff_ms = INT64_MIN};
    int64_t retention_ms = sweep.options->retention_ms ? sweep.options->retention_ms : RETENTION_MS;
    truce_status first = TRUCE_OK, status = ROOM_CHECK(options, "truce_sweep_options", error);
    bson_error_t reason;

    memset(report, 0, sizeof *report);
    if (status)
        return status;
    if (retention_ms >= 0)
        sweep.cutoff_ms = truce__clock_wall_ms() - retention_ms;
    for (uint32_t i = 0; i <= truce__care_parts_count; i++) {
        sweep_step *step = i < truce__care_parts_count ? truce__care_parts[i].sweep : expire;

        status = step ? step(&sweep, &reason) : TRUCE_OK;
        if (status && !first) {
            first = status;
            if (error)
                *error = reason;
        }
    }
    return first;
}
