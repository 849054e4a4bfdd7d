/*
 * Meeting an intent where nobody helps and nobody waits. What the commit took whose function this thread runs is what it
 * was before (journal_take.c, T8). A view (truce/snapshot.h) has the document and its commit as they were in one moment,
 * so what the document is in that moment is a matter of looking:
 *
 *     committed or done                   what the release leaves
 *     pending, aborted or missing         what was there before; a stub: nothing
 *
 * A commit that is pending in the moment may be decided later. In the moment it had not taken effect anywhere.
 */
#include <string.h>

#include "base/field.h"
#include "commit/journal.h"
#include "commit/shadow.h"
#include "store/view.h"

static bool is_decided(const bson_t *commit)
{
    const char *state = truce__commit_state(commit);

    return state && (!strcmp(state, "committed") || !strcmp(state, "done"));
}

/* What the decided commit leaves; NOT_FOUND: nothing. */
static truce_status see_after(const bson_oid_t *id, const bson_t *post, const bson_t *document,
                              bson_t *seen)
{
    const char *op = truce__field_text(post, "op");

    if (!strcmp(op, "hold")) {
        bson_destroy(seen);
        truce__shadow_restore(document, seen);
        return TRUCE_OK;
    }
    if (!strcmp(op, "remove") || !strcmp(op, "free"))
        return TRUCE_NOT_FOUND;
    bson_destroy(seen);
    truce__journal_after(id, post, document, seen);
    return bson_empty(seen) ? TRUCE_NOT_FOUND : TRUCE_OK;
}

static truce_status see_before(const bson_t *document, bson_t *seen)
{
    bson_iter_t iter, found;

    if (bson_iter_init(&iter, document) && bson_iter_find_descendant(&iter, "_intent.new", &found))
        return TRUCE_NOT_FOUND;
    bson_destroy(seen);
    truce__shadow_restore(document, seen);
    return TRUCE_OK;
}

static truce_status seen_look(truce_store *store, const char *collection, const bson_t *document,
                              bson_t *seen, bson_error_t *error)
{
    bson_t commit, post;
    truce_status status;
    bson_oid_t id;

    if (!truce__intent_commit(document, &id))
        return truce__intent_foreign(collection, error);
    if (truce__journal_at_work(document))
        return see_before(document, seen);
    status = truce__commit_find(store, &id, &commit, error);
    if (!status && is_decided(&commit) &&
        truce__journal_post(&commit, collection, document, &post)) {
        status = truce__journal_post_check(&id, &post, error);
        if (!status)
            status = see_after(&id, &post, document, seen);
    } else if (!status || status == TRUCE_NOT_FOUND) {
        status = see_before(document, seen);
    }
    bson_destroy(&commit);
    return status;
}

truce_status truce__intent_see(truce_store *store, const char *collection, bson_t *document,
                               bson_error_t *error)
{
    bson_t seen = BSON_INITIALIZER;
    truce_status status = seen_look(store, collection, document, &seen, error);

    bson_destroy(document);
    if (status)
        bson_init(document);
    else
        bson_copy_to(&seen, document);
    bson_destroy(&seen);
    return status;
}
