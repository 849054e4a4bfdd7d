#include "maintenance/session_sweep.h"

#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "store/decorators/database_view.h"
#include "store/mongodb/mongo_session.h"
#include "store/reserved_names.h"

const char *truce__session_records(const truce_store *store)
{
    return truce__mongo_is(store) ? PASSED_RECORDS : SESSION_RECORDS;
}

static void sweep_advance(struct session_sweep *sweep, const bson_t *record)
{
    bson_value_t id = truce__document_id(record);

    if (sweep->after.value_type)
        bson_value_destroy(&sweep->after);
    bson_value_copy(&id, &sweep->after);
}

static bool is_old(const bson_t *record, int64_t cutoff_ms)
{
    bson_iter_t date;

    return bson_iter_init_find(&date, record, "lastWriteDate") &&
           BSON_ITER_HOLDS_DATE_TIME(&date) && bson_iter_date_time(&date) < cutoff_ms;
}

/* Removes the record, unless it was written in the meantime. */
static truce_status remove_old(truce_store *store, const bson_t *record, int64_t cutoff_ms,
                               int64_t *removed, bson_error_t *error)
{
    const truce_write_options relaxed = {.relaxed = true};
    const bson_value_t id = truce__document_id(record);
    bson_t filter = BSON_INITIALIZER;
    truce_write_result result;
    truce_status status;

    BSON_APPEND_VALUE(&filter, "_id", &id);
    BCON_APPEND(&filter, "lastWriteDate", "{", "$lt", BCON_DATE_TIME(cutoff_ms), "}");
    status = truce_remove(store, truce__session_records(store), &filter, &relaxed, &result, error);
    *removed += result.removed;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

/* Opens the next records after the last one that was examined. */
static truce_status open_step(truce_store *store, const struct session_sweep *sweep, uint32_t batch,
                              truce_cursor **cursor, bson_error_t *error)
{
    bson_t *order = BCON_NEW("_id", BCON_INT32(1));
    bson_t *shown = BCON_NEW("lastWriteDate", BCON_INT32(1));
    const truce_find_options options = {.sort = order, .projection = shown, .limit = batch};
    bson_t filter = BSON_INITIALIZER, behind;
    truce_status status;

    if (sweep->after.value_type) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &behind);
        BSON_APPEND_VALUE(&behind, "$gt", &sweep->after);
        bson_append_document_end(&filter, &behind);
    }
    status = truce_find(store, truce__session_records(store), &filter, &options, cursor, error);
    bson_destroy(&filter);
    bson_destroy(shown);
    bson_destroy(order);
    return status;
}

truce_status truce__session_sweep(truce_store *store, struct session_sweep *sweep, uint32_t batch,
                                  int64_t cutoff_ms, int64_t *removed, bson_error_t *error)
{
    const bson_t *record;
    truce_cursor *cursor;
    uint32_t seen = 0;
    truce_status status = open_step(store, sweep, batch, &cursor, error);

    *removed = 0;
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &record, error);
        if (status || !record)
            break;
        seen++;
        sweep_advance(sweep, record);
        if (is_old(record, cutoff_ms))
            status = remove_old(store, record, cutoff_ms, removed, error);
    } while (!status);
    truce_cursor_close(cursor);
    sweep->more = seen == batch;
    if (!sweep->more || status)
        truce__session_sweep_end(sweep);
    return status;
}

truce_status truce__session_sweep_step(struct sweep *sweep, bson_error_t *error)
{
    int64_t cutoff_ms = truce__clock_wall_ms() - TRUCE_SERVER_SESSION_MS, removed;
    struct session_sweep session_sweep = {0};
    truce_status status;

    /* A view of one database has no sessions, and a server sweeps its own sessions. */
    if (truce__database_holder(sweep->store) != sweep->store || truce__mongo_is(sweep->store))
        return TRUCE_OK;
    do {
        status = truce__session_sweep(sweep->store, &session_sweep, sweep->batch, cutoff_ms,
                                      &removed, error);
        sweep->report->purged += removed;
    } while (!status && session_sweep.more && removed < sweep->batch);
    sweep->report->more = sweep->report->more || session_sweep.more;
    truce__session_sweep_end(&session_sweep);
    return status;
}
