#include "truce/snapshot.h"

#include <pthread.h>
#include <string.h>

#include "base/null.h"
#include "commit/journal.h"
#include "store/decorators/database_view.h"
#include "store/decorators/decorator.h"
#include "store/overlay/transaction_overlay.h"
#include "store/snapshot_view.h"

/*
 * Snapshots show every commit wholly or not at all. A backend's snapshot has the documents as
 * stored, some with the intent of a commit that is undecided, or decided but not released. Reads of
 * such a collection go through an overlay, which shows these documents according to the state of
 * their commit in the snapshot (complete_commit.c):
 *
 *     find, count, distinct, aggregate   ->  overlay  ->  snapshot of the backend
 *                                              |
 *                                              scratch: the few documents that had an intent
 *
 *  CV1  Before the first read of a collection, all of its documents with an intent are found by the
 *       index on `_intent`. This index is made before the first intent (journal.c), so a collection
 *       without it has no intents.
 *  CV2  A collection without intents is read without the overlay.
 *  CV3  A pipeline runs on the overlay if a collection that it may name has documents with an
 *       intent.
 *  CV4  The commit of a document is looked up in the document's own database. A server takes its
 *       snapshots of the store with all databases. So a collection name may belong to another
 *       database (namespace_map.h).
 *
 * A document whose intent was not written by truce is shown as stored.
 */

/* A collection that the snapshot has searched for intents. */
struct searched {
    struct searched *next;
    char *collection;
    /* Some documents of the collection have an intent in the snapshot. */
    bool held;
};

/* A store that shows a snapshot without the changes of undecided commits. */
struct snapshot {
    /* Must be the first field. */
    struct decorator base;
    /* Shows the documents that had an intent in the state that their commits have in the snapshot.
     * It is opened over the inner store, and the snapshot owns it. */
    truce_store *overlay;
    /* Protects `searched` and the overlay. Cursors of the overlay are read without the mutex. */
    pthread_mutex_t mutex;
    struct searched *searched;
};

/* ---- CV1 ------------------------------------------------------------------------------------- */

static bool is_of_intents(struct value index)
{
    struct fields key = truce__fields(truce__value_field(index, "key", 3));

    return truce__fields_next(&key) && !strcmp(key.key, "_intent");
}

static truce_status may_have_intents(truce_store *view, const char *collection, bool *may,
                                     bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(view, collection, &indexes, error);
    struct fields fields = truce__fields(truce__value_document(&indexes));

    *may = false;
    while (!status && !*may && truce__fields_next(&fields))
        *may = is_of_intents(fields.value);
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Shows a document by its commit in the document's own database (CV4). */
static truce_status see_in_database(struct snapshot *snapshot, const char *collection, bson_t *seen,
                                    bson_error_t *error)
{
    char database[DATABASE_NAME_MAX + 1];
    truce_store *view;
    truce_status status;

    truce__stored_name_database("", collection, database);
    if (!*database)
        return truce__intent_see(snapshot->base.inner, collection, seen, error);
    view = truce__database_open(snapshot->base.inner, "", database);
    status =
        truce__intent_see(view, truce__stored_name_plain("", database, collection), seen, error);
    truce_store_close(view);
    return status;
}

/* Writes the visible state of a held document into the overlay of the snapshot. */
static truce_status show_one(struct snapshot *snapshot, const char *collection,
                             const bson_t *document, bson_error_t *error)
{
    truce_status status;
    bson_oid_t id;
    bson_t seen;

    if (!truce__intent_commit(document, &id))
        return TRUCE_OK;
    bson_copy_to(document, &seen);
    status = see_in_database(snapshot, collection, &seen, error);
    if (!status || status == TRUCE_NOT_FOUND)
        status = truce__overlay_show(snapshot->overlay, collection, document, status ? NULL : &seen,
                                     error);
    bson_destroy(&seen);
    return status;
}

/* Shows the visible states of all held documents of a collection, and notes whether any exists. */
static truce_status show_held(struct snapshot *snapshot, struct searched *searched,
                              bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}");
    const bson_t *document;
    truce_cursor *cursor = NULL;
    truce_status status =
        truce_find(snapshot->base.inner, searched->collection, filter, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        searched->held = true;
        status = show_one(snapshot, searched->collection, document, error);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return status;
}

/* Finds the held documents of a collection. Sets *held if there are any; otherwise leaves it. */
static truce_status snapshot_find_held(struct snapshot *snapshot, const char *collection,
                                       bool *held, bson_error_t *error)
{
    struct searched **at = &snapshot->searched, *made;
    truce_status status;
    bool may = false;

    while (*at && strcmp((*at)->collection, collection) != 0)
        at = &(*at)->next;
    if (*at) {
        *held = *held || (*at)->held;
        return TRUCE_OK;
    }
    made = bson_malloc0(sizeof *made);
    made->collection = bson_strdup(collection);
    status = may_have_intents(snapshot->base.inner, collection, &may, error);
    if (!status && may)
        status = show_held(snapshot, made, error);
    *held = *held || made->held;
    /* The collection is recorded even after a failure, because documents that were shown must not
     * be shown twice. */
    *at = made;
    return status;
}

/* Finds the held documents of collections that the pipeline names (CV3). */
static truce_status snapshot_find_named(struct snapshot *snapshot, struct value value, bool *held,
                                        bson_error_t *error)
{
    struct fields fields = truce__fields(value);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        bool names = !strcmp(fields.key, "from") || !strcmp(fields.key, "coll") ||
                     !strcmp(fields.key, "$unionWith");

        if (fields.value.type == BSON_TYPE_DOCUMENT || fields.value.type == BSON_TYPE_ARRAY) {
            status = snapshot_find_named(snapshot, fields.value, held, error);
        } else if (names && fields.value.type == BSON_TYPE_UTF8) {
            uint32_t length;
            const char *text = truce__value_text(fields.value, &length);
            char *name = bson_strndup(text, length);

            status = snapshot_find_held(snapshot, name, held, error);
            bson_free(name);
        }
    }
    return status;
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* Runs a read (find, count, distinct, or aggregate) on the overlay. The caller's wrapper has
 * checked the call, and holds the view, which keeps the overlay open, for the cursor. So the
 * overlay's own functions are called for cursors: its wrapper would hold the overlay forever. */
static truce_status run_on_overlay(const struct snapshot *snapshot,
                                   const struct decorated_call *call, bson_error_t *error)
{
    truce_store *overlay = snapshot->overlay;

    switch (call->verb) {
    case VERB_FIND:
        return overlay->ops->find(overlay, call->collection, call->filter, call->how.find,
                                  call->cursor, error);
    case VERB_COUNT:
        return truce_count(overlay, call->collection, call->filter, call->how.count, call->count,
                           error);
    case VERB_DISTINCT:
        return truce_distinct(overlay, call->collection, call->text, call->filter, call->answer,
                              error);
    default:
        return overlay->ops->aggregate(overlay, call->collection, call->document,
                                       call->how.aggregate, call->cursor, error);
    }
}

static bool is_of_commits(const char *collection)
{
    char database[DATABASE_NAME_MAX + 1];

    truce__stored_name_database("", collection, database);
    return !strcmp(*database ? truce__stored_name_plain("", database, collection) : collection,
                   COMMITS);
}

static bool snapshot_is_read(const struct decorated_call *call)
{
    return call->verb == VERB_FIND || call->verb == VERB_COUNT || call->verb == VERB_DISTINCT ||
           call->verb == VERB_AGGREGATE;
}

/* Runs a read on the overlay if its collections have held documents, and on the store itself
 * otherwise. */
static truce_status snapshot_on_call(struct decorator *decorator, const struct decorated_call *call,
                                     bson_error_t *error)
{
    struct snapshot *snapshot = (struct snapshot *)decorator;
    truce_status status;
    bool held = false;

    if (!snapshot_is_read(call) || is_of_commits(call->collection))
        return truce__decorated_run(decorator, call, error);
    pthread_mutex_lock(&snapshot->mutex);
    status = snapshot_find_held(snapshot, call->collection, &held, error);
    if (!status && call->verb == VERB_AGGREGATE)
        status = snapshot_find_named(snapshot, truce__value_document(call->document), &held, error);
    if (!status && held)
        status = run_on_overlay(snapshot, call, error);
    pthread_mutex_unlock(&snapshot->mutex);
    return status || held ? status : truce__decorated_run(decorator, call, error);
}

static void snapshot_release(struct decorator *decorator)
{
    struct snapshot *snapshot = (struct snapshot *)decorator;

    while (snapshot->searched) {
        struct searched *next = snapshot->searched->next;

        bson_free(snapshot->searched->collection);
        bson_free(snapshot->searched);
        snapshot->searched = next;
    }
    truce_store_close(snapshot->overlay);
    pthread_mutex_destroy(&snapshot->mutex);
}

static const struct decorator_kind snapshot_kind = {.call = snapshot_on_call,
                                                    .release = snapshot_release};

truce_status truce_snapshot(truce_store *store, const truce_snapshot_options *options,
                            truce_store **view, bson_error_t *error)
{
    RETURN_IF_NULL(view, error);

    struct snapshot *made;
    truce_store *inner;
    struct overlay_options over = {.snapshot = true};
    truce_status status = truce__store_snapshot(store, options, &inner, error);

    *view = NULL;
    if (status)
        return status;
    made = bson_malloc0(sizeof *made);
    over.view = inner;
    status = truce__overlay_open(store, &over, &made->overlay, error);
    if (status) {
        truce_store_close(inner);
        bson_free(made);
        return status;
    }
    pthread_mutex_init(&made->mutex, NULL);
    truce__decorator_init(&made->base, &snapshot_kind, inner);
    made->base.base.above = inner->above;
    *view = &made->base.base;
    return TRUCE_OK;
}
