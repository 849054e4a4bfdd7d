#include "commit/journal_step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "commit/shadow.h"
#include "query/update/update.h"
#include "truce/sys/store.h"

/*
 * The release of one document of a decided commit: its changes go in, the intent goes out. Anybody may do it,
 * at any time and again.
 */

static void set_changes(const bson_t *post, const bson_oid_t *commit, bson_t *update)
{
    bson_t set, unset;
    bson_iter_t iter, change;

    bson_init(update);
    bson_init(&set);
    bson_init(&unset);
    truce_assert(bson_iter_init_find(&iter, post, "changes") && bson_iter_recurse(&iter, &change));
    while (bson_iter_next(&change)) {
        bson_iter_t path, value;

        truce_assert(bson_iter_recurse(&change, &path) && bson_iter_find(&path, "p"));
        if (bson_iter_recurse(&change, &value) && bson_iter_find(&value, "v"))
            bson_append_iter(&set, bson_iter_utf8(&path, NULL), -1, &value);
        else
            BSON_APPEND_UTF8(&unset, bson_iter_utf8(&path, NULL), "");
    }
    BSON_APPEND_OID(&set, "_rev", commit);
    BSON_APPEND_UTF8(&unset, "_intent", "");
    BSON_APPEND_DOCUMENT(update, "$set", &set);
    BSON_APPEND_DOCUMENT(update, "$unset", &unset);
    bson_destroy(&set);
    bson_destroy(&unset);
}

static void whole_document(const bson_t *post, const bson_oid_t *commit, bson_t *document)
{
    const uint8_t *bytes;
    uint32_t length;
    bson_iter_t iter;
    bson_t content;

    truce_assert(bson_iter_init_find(&iter, post, "document"));
    bson_iter_document(&iter, &length, &bytes);
    truce_assert(bson_init_static(&content, bytes, length));
    bson_copy_to(&content, document);
    BSON_APPEND_OID(document, "_rev", commit);
}

int64_t truce__journal_hash(const bson_t *document, bool reserved)
{
    struct fields fields = truce__fields(truce__value_document(document));
    bson_t plain = BSON_INITIALIZER;
    int64_t hash;

    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "_intent") != 0 && (!reserved || strcmp(fields.key, "_keys") != 0))
            truce__value_append(&plain, fields.key, fields.key_length, fields.value);
    }
    hash = (int64_t)truce__value_hash(truce__value_document(&plain));
    bson_destroy(&plain);
    return hash;
}

static bool was_overwritten(const bson_t *post, const bson_t *before)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, post, "was") && BSON_ITER_HOLDS_INT64(&iter) &&
           bson_iter_int64(&iter) !=
               truce__journal_hash(before, truce__shadow_reserved(before) >= 0);
}

truce_status truce__journal_after(const bson_oid_t *commit, const bson_t *post,
                                  const bson_t *document, bson_t *after, bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_options options = {0};
    struct update_result result;
    struct update *update = NULL;
    const char *op = truce__field_text(post, "op");
    truce_status status;
    bson_t changes;

    bson_init(after);
    if (!strcmp(op, "whole") || !strcmp(op, "insert")) {
        bson_destroy(after);
        whole_document(post, commit, after);
    }
    if (strcmp(op, "set") != 0)
        return TRUCE_OK;
    set_changes(post, commit, &changes);
    status = truce__update_new(&changes, &options, &update, error);
    if (!status) {
        bson_destroy(after);
        status = truce__update_apply(update, document, NULL, &context, after, &result, error);
    }
    if (status) { /* as the release will do it then */
        bson_t lost = BSON_INITIALIZER;

        bson_destroy(after);
        truce__journal_forced(commit, post, document, after, &lost);
        bson_destroy(&lost);
        status = TRUCE_OK;
    }
    truce__update_free(update);
    truce__arena_release(&arena);
    bson_destroy(&changes);
    return status;
}

static truce_status blocked(const bson_oid_t *commit, const char *collection, bson_error_t *error)
{
    char hex[25];

    bson_oid_to_string(commit, hex);
    return truce__fail(TRUCE_LOCKED, error,
                       "commit %s is decided, but a plain write took a unique value that it had "
                       "reserved in \"%s\": `truce check` tells which",
                       hex, collection);
}

/* The release went over a plain write: that is told, at once and by whoever released, because anybody may
 * mark the commit done. One who dies before tells nobody. */
static truce_status note_overwritten(struct worker *worker, const bson_oid_t *commit,
                                     const char *collection, const bson_value_t *id,
                                     bson_error_t *error)
{
    truce_write_options options = {.relaxed = worker->relaxed};
    bson_t filter = BSON_INITIALIZER, note = BSON_INITIALIZER, push, one;
    truce_status status;

    BSON_APPEND_OID(&filter, "_id", commit);
    bson_append_document_begin(&note, "$addToSet", 9, &push);
    bson_append_document_begin(&push, "overwritten", 11, &one);
    BSON_APPEND_UTF8(&one, "ns", collection);
    BSON_APPEND_VALUE(&one, "id", id);
    bson_append_document_end(&push, &one);
    bson_append_document_end(&note, &push);
    status = truce_update(worker->store, COMMITS, &filter, &note, &options, NULL, error);
    bson_destroy(&note);
    bson_destroy(&filter);
    return status;
}

truce_status truce__journal_release(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *post, bson_error_t *error)
{
    truce_modify_options options = {.relaxed = truce__worker_relaxed_step(worker)};
    const char *op = truce__field_text(post, "op"), *collection;
    bson_t filter, update = BSON_INITIALIZER, before;
    bool overwritten = false;
    bson_error_t reason;
    bson_value_t id;
    truce_status status;

    if (!truce__journal_target(post, &collection, &id))
        return truce__fail(TRUCE_CORRUPT, error, "an entry of a commit has no target");
    truce__filter_intent(&id, commit, &filter);
    if (!strcmp(op, "set")) {
        bson_destroy(&update);
        set_changes(post, commit, &update);
    } else if (!strcmp(op, "whole") || !strcmp(op, "insert")) {
        bson_destroy(&update);
        whole_document(post, commit, &update);
    } else if (!strcmp(op, "hold")) {
        BCON_APPEND(&update, "$unset", "{", "_intent", BCON_UTF8(""), "}");
    } else {
        options.remove = true;
    }
    status =
        truce_find_and_modify(worker->store, collection, &filter, options.remove ? NULL : &update,
                              &options, &before, NULL, &reason);
    if (status && error)
        *error = reason;
    worker->did += !status;
    if (!status)
        overwritten = was_overwritten(post, &before);
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (status == TRUCE_DUPLICATE)
        status = blocked(commit, collection, error);
    if (!strcmp(op, "set") && (status == TRUCE_INVALID || status == TRUCE_LIMIT)) {
        status = truce__journal_force(worker, commit, post, &reason, &overwritten, error);
    }
    if (!status && overwritten)
        status = note_overwritten(worker, commit, collection, &id, error);
    bson_destroy(&before);
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}
