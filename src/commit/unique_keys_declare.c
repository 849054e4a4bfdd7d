/*
 * Declaring keys makes the index on `_keys`, and then sets `_keys` in each document, each by a
 * commit of its own, concurrently with other writers. A document without `_keys` is safe already
 * (unique_keys.c, CU4), so the conversion may be interrupted anywhere and started again.
 *
 * Between the two steps lies a pause: a process that read the list of indexes before may write
 * documents without `_keys` until it reads the list again.
 */
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "commit/unique_keys.h"
#include "store/maintenance.h"
#include "store/settle_wait.h"
#include "store/store.h"

/* The default time for which a declaration waits: after it, no process uses a list of indexes from
 * before the declaration. */
#define SETTLE_MS (COMMIT_INDEXES_FRESH_MS + 1000)

/* ---- one document --------------------------------------------------------------------------- */

/* The argument of the commit that repairs the `_keys` of one document. */
struct shadow_repair {
    const char *collection;
    const bson_value_t *id;
    bool *changed;
};

/* Repairs `_keys` of one document. The update is empty, because the commit itself writes `_rev` and
 * `_keys`. */
static truce_status declare_repair(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct shadow_repair *repair = arg;
    bson_t document, keys, *nothing;
    truce_status status;

    *repair->changed = false;
    status = truce_commit_read(commit, repair->collection, repair->id, &document, error);
    if (!status) {
        status = truce__shadow_make(commit->store, repair->collection,
                                    truce__value_document(&document), &keys, error);
        *repair->changed = !status && !truce__shadow_right(&document, &keys);
        bson_destroy(&keys);
    }
    bson_destroy(&document);
    if (status == TRUCE_NOT_FOUND)
        return TRUCE_OK;
    if (status || !*repair->changed)
        return status;
    nothing = BCON_NEW("$set", "{", "}");
    status = truce_commit_update(commit, repair->collection, repair->id, NULL, nothing, error);
    bson_destroy(nothing);
    return status;
}

truce_status truce__shadow_repair(truce_store *store, const char *collection,
                                  const bson_value_t *id, bool *changed, bson_error_t *error)
{
    struct shadow_repair repair = {collection, id, changed};

    return truce_transact(store, declare_repair, &repair, NULL, error);
}

/* ---- the collection ------------------------------------------------------------------------- */

/* Creates the index on `_keys` if it does not exist, and then waits until other processes have read
 * the new list of indexes. */
static truce_status declare_make_index(truce_store *store, const char *collection,
                                       const truce_unique_options *options, bool *made,
                                       bson_error_t *error)
{
    uint32_t settle_ms = options && options->settle_ms ? options->settle_ms : SETTLE_MS;
    bson_t *index;
    truce_status status;
    uint32_t count = 0;
    bool keyed = false;

    truce__metadata_forget(store, collection);
    status = truce__unique_count(store, collection, &count, error);
    if (!status && !count)
        return truce__fail(
            TRUCE_INVALID, error,
            "the collection \"%s\" has no unique index except the one on _id, so there is nothing "
            "to declare",
            collection);
    if (!status)
        status = truce__metadata_keyed(store, collection, &keyed, error);
    if (!status && !keyed)
        status = truce__settle_check(settle_ms, error);
    if (status || keyed)
        return status;
    index = BCON_NEW("key", "{", "_keys", BCON_INT32(1), "}", "unique", BCON_BOOL(true), "sparse",
                     BCON_BOOL(true));
    status = truce__index_ensure(store, collection, index, error);
    bson_destroy(index);
    *made = !status;
    if (!status)
        status = truce__settle_wait(store, settle_ms, error);
    truce__metadata_forget(store, collection);
    return status;
}

/* Writes `_keys` of one document, if it is missing or wrong. */
static truce_status declare_convert(truce_store *store, const char *collection,
                                    const bson_t *document, truce_unique_report *report,
                                    bson_error_t *error)
{
    bool changed = false;
    truce_status status;
    bson_iter_t iter;
    bson_t keys;

    report->documents++;
    status = truce__document_need_id(collection, document, &iter, error);
    if (status)
        return status;
    status = truce__shadow_make(store, collection, truce__value_document(document), &keys, error);
    if (!status && !truce__shadow_right(document, &keys))
        status = truce__shadow_repair(store, collection, bson_iter_value(&iter), &changed, error);
    report->converted += changed;
    bson_destroy(&keys);
    return status;
}

truce_status truce_unique_declare(truce_store *store, const char *collection,
                                  const truce_unique_options *options, truce_unique_report *report,
                                  bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);
    RETURN_IF_NULL(report, error);

    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    *report = (truce_unique_report){0};
    status = ROOM_CHECK(options, "truce_unique_options", error);
    if (!status)
        status = declare_make_index(store, collection, options, &report->made, error);
    if (!status)
        status = truce_find(store, collection, NULL, NULL, &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = declare_convert(store, collection, document, report, error);
    }
    truce_cursor_close(cursor);
    return status;
}
