/*
 * One pass of the sweep: the steps of all parts, one after the other. The batch bounds each step.
 *
 * MW1  Every step is safe at any time and in any number of processes. If it is interrupted
 *   anywhere, the next pass continues.
 * MW2  A step that fails does not stop the others. The pass returns the first failure after it has
 *   tried all steps. If a lock is not released, only one step waits for it (base/wait_limit.h).
 * MW3  Documents expire after the other steps of their database, and never while a commit holds
 *   them.
 * MW4  Each database of the store is swept separately; a part that concerns the whole store
 *   (struct maintenance_part, `whole`) is swept once.
 */
#include "truce/sweep.h"

#include <string.h>

#include "base/clock.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/wait_limit.h"
#include "maintenance/maintenance_registry.h"
#include "store/decorators/database_view.h"

/* 7 days. */
#define RETENTION_MS INT64_C(604800000)
/* The default number of documents in a batch. */
#define BATCH 1000

/* Removes documents that expire by an index, unless a commit holds them (MW3). */
static truce_status sweep_expired_documents(struct sweep *sweep, bson_error_t *error)
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

/* ---- databases ------------------------------------------------------------------------------ */

struct round {
    struct sweep sweep;
    /* The first failure, with its error. */
    truce_status first;
    bson_error_t why;
};

static void note_failure(struct round *round, truce_status status, const bson_error_t *why)
{
    if (!status || round->first)
        return;
    round->first = status;
    round->why = *why;
}

static void run_steps(struct round *round, struct sweep *sweep, bool whole)
{
    bson_error_t why = {0};

    for (uint32_t i = 0; i < truce__maintenance_parts_count; i++)
        if (truce__maintenance_parts[i].sweep && truce__maintenance_parts[i].whole == whole)
            note_failure(round, truce__maintenance_parts[i].sweep(sweep, &why), &why);
}

/* Runs the steps for one database. A failure is recorded, and the next database is swept. */
static truce_status sweep_database(void *arg, truce_store *view, const char *name,
                                   bson_error_t *error)
{
    struct round *round = arg;
    struct maintenance_reporter reporter = {round->sweep.options->function,
                                            round->sweep.options->arg, name, "ns"};
    truce_sweep_options options = *round->sweep.options;
    struct sweep sweep = round->sweep;
    bson_error_t why = {0};

    (void)error;
    options.function = options.function ? truce__maintenance_report : NULL;
    options.arg = &reporter;
    sweep.store = view;
    sweep.options = &options;
    run_steps(round, &sweep, false);
    note_failure(round, sweep_expired_documents(&sweep, &why), &why);
    return TRUCE_OK;
}

truce_status truce_sweep(truce_store *store, const truce_sweep_options *options,
                         truce_sweep_report *report, bson_error_t *error)
{
    RETURN_IF_NULL(report, error);

    static const truce_sweep_options defaults;
    struct round round = {.sweep = {.store = store,
                                    .options = options ? options : &defaults,
                                    .report = report,
                                    .batch = options && options->batch ? options->batch : BATCH,
                                    .cutoff_ms = INT64_MIN}};
    WAIT_LIMIT_SCOPE();
    int64_t retention_ms = round.sweep.options->retention_ms;
    truce_status status = ROOM_CHECK(options, "truce_sweep_options", error);
    bson_error_t why = {0};

    memset(report, 0, sizeof *report);
    if (status)
        return status;
    retention_ms = retention_ms ? retention_ms : RETENTION_MS;
    if (retention_ms >= 0)
        round.sweep.cutoff_ms = truce__clock_wall_ms() - retention_ms;
    run_steps(&round, &round.sweep, true);
    note_failure(&round, truce__each_database(store, sweep_database, &round, &why), &why);
    if (round.first && error)
        *error = round.why;
    return round.first;
}
