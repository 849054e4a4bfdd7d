/* The transaction of a group, and what its operations use in it. */
#include "engine/writer_group.h"

#include <string.h>

#include "base/clock.h"
#include "engine/storage/change_notify.h"
#include "engine/storage/log_identity.h"
#include "engine/storage/snapshot_pins.h"

/* ---- what operations use -------------------------------------------------------------------- */

truce_status truce__writer_collection(struct writer *writer, const char *name,
                                      const struct collection **collection, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t version;

    *collection = NULL;
    if (!writer->catalog) {
        status = truce__kv_version(writer->kv, &version, error);
        if (!status)
            status = truce__catalog_load(writer->kv, version, &writer->catalog, error);
    }
    if (!status)
        *collection = truce__catalog_find(writer->catalog, name);
    return status;
}

void truce__writer_catalog_changed(struct writer *writer)
{
    truce__catalog_release(writer->catalog);
    writer->catalog = NULL;
}

truce_status truce__writer_undo(struct writer *writer, bson_error_t *error)
{
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
    truce__cache_doubt(writer->cache);
    return truce__kv_savepoint_rollback(writer->kv, error);
}

truce_status truce__writer_look_up(struct writer *writer, const struct collection *collection,
                                   struct bytes key, int64_t *row, struct bytes *body,
                                   bson_error_t *error)
{
    writer->body.size = 0;
    if (truce__cache_peek(writer->cache, collection->name, key, row, &writer->body)) {
        *body = (struct bytes){writer->body.bytes, writer->body.size};
        return TRUCE_OK;
    }
    return truce__kv_key_lookup(writer->kv, collection->indexes[0].id, collection->id, key, row,
                                body, error);
}

void truce__writer_changed(struct writer *writer, const struct collection *collection, int64_t row,
                           const bson_t *before, const bson_t *after)
{
    const bson_t *document = before ? before : after;
    struct bytes key, body = {0};

    writer->key.size = 0;
    truce__key_append(&writer->key, truce__value_field(truce__value_document(document), "_id", 3),
                      false);
    key = (struct bytes){writer->key.bytes, writer->key.size};
    if (after)
        body = kv_body(after);
    if (before)
        truce__cache_change(writer->cache, collection->name, key, row, body);
    else
        truce__cache_insert(writer->cache, collection->name, key);
}

static void touch_slot(struct writer *writer, uint32_t slot)
{
    writer->touched[slot / 64] |= (uint64_t)1 << slot % 64;
}

void truce__writer_touch(struct writer *writer, const char *collection)
{
    touch_slot(writer, truce__wake_slot(collection));
}

void truce__writer_touch_structure(struct writer *writer)
{
    touch_slot(writer, WAKE_STRUCTURE);
}

/* ---- one transaction ------------------------------------------------------------------------ */

static truce_status group_begin(struct writer *writer, bson_error_t *error)
{
    uint32_t version;
    truce_status status = truce__kv_write_begin(writer->kv, &version, error);

    if (status)
        return status;
    truce__cache_begin(writer->cache, truce__kv_foreign(writer->kv));
    writer->feed.known = writer->feed.known && !truce__kv_foreign(writer->kv);
    truce__kv_accept(writer->kv);
    memset(writer->touched, 0, sizeof writer->touched);
    if (writer->catalog && writer->catalog->version != version)
        truce__writer_catalog_changed(writer);
    return TRUCE_OK;
}

static bool touched_any(const struct writer *writer)
{
    uint64_t all = 0;

    for (size_t i = 0; i < WAKE_SLOTS / 64; i++)
        all |= writer->touched[i];
    return all;
}

static truce_status commit_told(struct writer *writer, bool relaxed, bson_error_t *error)
{
    bool changed = touched_any(writer), wrote;
    uint64_t promised = 0;
    truce_status status;

    if (!relaxed && truce__kv_changed(writer->kv))
        promised = truce__durable_promise(writer->durable);
    if (changed) {
        truce__wake_begin(writer->lock);
        truce__cache_commit(writer->cache, promised);
    }
    wrote = truce__kv_changed(writer->kv);
    status = truce__kv_write_commit(writer->kv, error);
    if (!status && wrote) {
        truce__pins_note_log(writer->lock, truce__kv_wal_pages(writer->kv));
        truce__log_identity_note(writer->lock, writer->kv);
    }
    truce__durable_written(writer->durable);
    if (changed)
        truce__wake_announce(writer->lock, writer->touched);
    return status;
}

static truce_status group_commit(struct writer *writer, bool relaxed, bson_error_t *error)
{
    truce_status status = commit_told(writer, relaxed, error);

    truce__cache_end(writer->cache, !status);
    if (status)
        truce__writer_catalog_changed(writer);
    writer->feed.known = writer->feed.known && !status;
    return status;
}

static truce_status run_each(struct writer *writer, struct write_op *first, struct write_op *last,
                             bool *relaxed, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *relaxed = true;
    for (struct write_op *op = first; op != last && !status; op = op->next) {
        truce__arena_reset(&writer->arena);
        *relaxed = *relaxed && op->relaxed;
        if (op->reset)
            op->reset(op);
        status = op->run(op, writer, error);
    }
    return status;
}

static void group_roll_back(struct writer *writer)
{
    truce__kv_write_rollback(writer->kv);
    truce__cache_end(writer->cache, false);
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
}

/* Runs the operations from `first` up to, but without, `last` in one transaction, and, if it `serves`, those of other
 * processes behind them. The status is the transaction's. */
static truce_status group_transact(struct writer *writer, struct write_op *first,
                                   struct write_op *last, bool serves, bson_error_t *error)
{
    struct combine *combine = &writer->combine;
    truce_status status = group_begin(writer, error);
    bool relaxed;

    truce__combine_forget(combine);
    if (status)
        return status;
    status = run_each(writer, first, last, &relaxed, error);
    if (!status && serves && truce__clock_monotonic_ns() < writer->serves_until_ns)
        status = truce__combine_run(combine, writer, &relaxed, error);
    if (status) {
        group_roll_back(writer);
        truce__combine_failed(combine);
        return status;
    }
    status = group_commit(writer, relaxed, error);
    if (status)
        truce__combine_failed(combine);
    else
        truce__combine_committed(combine, truce__durable_promised(writer->durable));
    return status;
}

/* Whatever happens, nothing of it stays. */
static void group_rehearse(struct writer *writer, struct write_op *first)
{
    bson_error_t ignored;
    bool relaxed;

    if (group_begin(writer, &ignored))
        return;
    (void)run_each(writer, first, NULL, &relaxed, &ignored);
    group_roll_back(writer);
}

bool truce__writer_keeps_company(const struct writer *writer)
{
    return writer->combine.carries && !writer->names;
}

/* Each operation by itself, after a group has failed; but where the file is locked by another
 * program it fails for all at once, or they would wait one after the other. What fails with the operations of other
 * processes is first tried without. */
void truce__writer_run_group(struct writer *writer, struct write_op *first)
{
    truce_status status;
    bool together;

    if (writer->rehearses)
        group_rehearse(writer, first);
    status =
        group_transact(writer, first, NULL, truce__writer_keeps_company(writer), &first->error);
    if (status && writer->combine.served)
        status = group_transact(writer, first, NULL, false, &first->error);
    together = !status || status == TRUCE_LOCKED || !first->next ||
               truce__durable_usable(writer->durable, NULL);
    for (struct write_op *op = first->next; op; op = op->next) {
        op->status = status;
        op->error = first->error;
    }
    first->status = status;
    for (struct write_op *op = first; op && !together; op = op->next)
        op->status = group_transact(writer, op, op->next, false, &op->error);
}

truce_status truce__writer_settle_orphans(struct writer *writer, bson_error_t *error)
{
    struct records *records = &writer->combine.records;
    uint64_t lost;
    truce_status status;

    if (!truce__writer_keeps_company(writer) || !truce__records_orphaned(records))
        return TRUCE_OK;
    status = group_begin(writer, error);
    if (status)
        return status;
    status = truce__records_adopt(records, writer->kv, truce__durable_promised(writer->durable),
                                  &lost, error);
    if (status || !lost) {
        group_roll_back(writer);
        return status;
    }
    status = group_commit(writer, false, error);
    if (!status)
        truce__records_return_all(records, lost, 0);
    return status;
}
