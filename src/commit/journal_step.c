#include "commit/journal_step.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "commit/counters.h"
#include "commit/shadow.h"
#include "commit/validated.h"
#include "store/store.h"
#include "truce/sys/store.h"

/*
 * The single steps of the journal that anybody may do, the owner of a commit or whoever meets what it left:
 * each is one guarded write that can be repeated at any time. The invariants are in journal.c and help.c.
 */

/* ---- filters and options -------------------------------------------------------------------- */

static void filter_state(const bson_oid_t *commit, const char *state, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_OID(filter, "_id", commit);
    BSON_APPEND_UTF8(filter, "state", state);
}

void truce__filter_intent(const bson_value_t *id, const bson_oid_t *commit, bson_t *filter)
{
    truce__filter_id(id, filter);
    BSON_APPEND_OID(filter, "_intent.c", commit);
}

static truce_write_options write_options(const struct worker *worker)
{
    return (truce_write_options){.relaxed = worker->relaxed};
}

/* J9 */
static truce_write_options step_options(const struct worker *worker)
{
    return (truce_write_options){.relaxed = truce__worker_relaxed_step(worker)};
}

/* ---- one write ------------------------------------------------------------------------------ */

void truce__step_write_init(struct step_write *made, truce_write_kind kind, const char *collection)
{
    bson_init(&made->filter);
    bson_init(&made->document);
    bson_init(&made->exact);
    made->write = (truce_write){.kind = kind,
                                .collection = collection,
                                .filter = &made->filter,
                                .document = &made->document};
}

void truce__step_write_free(struct step_write *made)
{
    bson_destroy(&made->filter);
    bson_destroy(&made->document);
    bson_destroy(&made->exact);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* of a pending commit. *changed: it was pending. */
static truce_status change_pending(struct worker *worker, const bson_oid_t *commit,
                                   const bson_t *update, bool *changed, bson_error_t *error)
{
    truce_write_options options = step_options(worker);
    truce_write_result result = {0};
    truce_status status;
    bson_t filter;

    filter_state(commit, "pending", &filter);
    status = truce_update(worker->store, COMMITS, &filter, update, &options, &result, error);
    *changed = !status && result.matched > 0;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

truce_status truce__journal_abort(struct worker *worker, const bson_oid_t *commit, const char *why,
                                  bool *changed, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$set", "{", "state", BCON_UTF8("aborted"), "why", BCON_UTF8(why),
                              "}", "$unset", "{", "key", BCON_UTF8(""), "}");
    truce_status status = change_pending(worker, commit, update, changed, error);

    if (*changed)
        COUNT(aborted);
    bson_destroy(update);
    return status;
}

truce_status truce__journal_renew(struct worker *worker, const bson_oid_t *commit,
                                  uint32_t lease_ms, bool *pending, bson_error_t *error)
{
    bson_t *update =
        BCON_NEW("$set", "{", "lease.until", BCON_INT64(truce__clock_wall_ms() + lease_ms), "}");
    truce_status status = change_pending(worker, commit, update, pending, error);

    bson_destroy(update);
    return status;
}

/* All but the first `keys` elements of `_keys` (U3). An intent does not change while it stands, so the number is
 * right whenever it was read. */
static void append_strip(int32_t keys, bson_t *update)
{
    bson_t unset;

    bson_append_document_begin(update, "$unset", 6, &unset);
    BSON_APPEND_UTF8(&unset, "_intent", "");
    if (keys == 0)
        BSON_APPEND_UTF8(&unset, "_keys", "");
    bson_append_document_end(update, &unset);
    if (keys > 0)
        BCON_APPEND(update, "$push", "{", "_keys", "{", "$each", "[", "]", "$slice",
                    BCON_INT32(keys), "}", "}");
}

void truce__journal_strip_write(const char *collection, const bson_value_t *id,
                                const bson_oid_t *commit, int32_t keys, struct step_write *made)
{
    truce__step_write_init(made, TRUCE_WRITE_UPDATE, collection);
    bson_destroy(&made->filter);
    truce__filter_intent(id, commit, &made->filter);
    BCON_APPEND(&made->filter, "_intent.new", "{", "$exists", BCON_BOOL(false), "}");
    append_strip(keys, &made->document);
}

void truce__journal_strip_stub_write(const char *collection, const bson_value_t *id,
                                     const bson_oid_t *commit, struct step_write *made)
{
    truce__step_write_init(made, TRUCE_WRITE_REMOVE, collection);
    bson_destroy(&made->filter);
    truce__filter_intent(id, commit, &made->filter);
    BSON_APPEND_BOOL(&made->filter, "_intent.new", true);
}

static truce_status strip_intent(struct worker *worker, const char *collection,
                                 const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                 bool *matched, bson_error_t *error)
{
    truce_bulk_options options = {.relaxed = truce__worker_relaxed_step(worker)};
    struct step_write made;
    truce_write_outcome outcome;
    truce_status status;

    truce__journal_strip_write(collection, id, commit, keys, &made);
    status = truce__validator_pass(worker->store, &made.write, &options, &outcome, error);
    *matched = !status && outcome.result.matched > 0;
    worker->did += *matched;
    truce_write_result_release(&outcome.result);
    truce__step_write_free(&made);
    return status;
}

truce_status truce__journal_strip_stub(struct worker *worker, const char *collection,
                                       const bson_value_t *id, const bson_oid_t *commit,
                                       bson_error_t *error)
{
    truce_write_options options = step_options(worker);
    truce_write_result result = {0};
    struct step_write made;
    truce_status status;

    truce__journal_strip_stub_write(collection, id, commit, &made);
    status = truce_remove(worker->store, collection, &made.filter, &options, &result, error);
    worker->did += !status && result.removed > 0;
    truce_write_result_release(&result);
    truce__step_write_free(&made);
    return status;
}

truce_status truce__journal_strip(struct worker *worker, const char *collection,
                                  const bson_value_t *id, const bson_oid_t *commit, int32_t keys,
                                  bson_error_t *error)
{
    bool matched = false;
    truce_status status = strip_intent(worker, collection, id, commit, keys, &matched, error);

    if (keys >= 0 && status && !truce__unanswered(status)) /* `_keys` is no array any more */
        status = strip_intent(worker, collection, id, commit, -1, &matched, error);
    if (!status && !matched)
        status = truce__journal_strip_stub(worker, collection, id, commit, error);
    return status;
}

/* ---- whole commits -------------------------------------------------------------------------- */

truce_status truce__journal_done(struct worker *worker, const bson_oid_t *commit,
                                 bson_error_t *error)
{
    truce_write_options options = write_options(worker);
    truce_write_result result = {0};
    truce_status status;
    bson_t filter, update, set;

    filter_state(commit, "committed", &filter);
    bson_init(&update);
    bson_append_document_begin(&update, "$set", 4, &set);
    BSON_APPEND_UTF8(&set, "state", "done");
    bson_append_document_end(&update, &set);
    status = truce_update(worker->store, COMMITS, &filter, &update, &options, &result, error);
    worker->ended += !status && result.matched > 0;
    truce_write_result_release(&result);
    bson_destroy(&update);
    bson_destroy(&filter);
    return status;
}

typedef truce_status element_function(struct worker *worker, const bson_oid_t *commit,
                                      const bson_t *element, bson_error_t *error);

static truce_status each_element(struct worker *worker, const bson_t *commit, const char *list,
                                 element_function *function, bson_error_t *error)
{
    truce_status first = TRUCE_OK;
    bson_iter_t iter, element;

    if (!bson_iter_init_find(&iter, commit, "_id") || !BSON_ITER_HOLDS_OID(&iter))
        return TRUCE_OK;
    const bson_oid_t *id = bson_iter_oid(&iter);
    if (!bson_iter_init_find(&iter, commit, list) || !BSON_ITER_HOLDS_ARRAY(&iter) ||
        !bson_iter_recurse(&iter, &element))
        return TRUCE_OK;
    while (bson_iter_next(&element)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t document;
        truce_status status;

        if (!BSON_ITER_HOLDS_DOCUMENT(&element))
            continue;
        bson_iter_document(&element, &length, &bytes);
        truce_assert(bson_init_static(&document, bytes, length));
        status = function(worker, id, &document, first ? NULL : error);
        first = first ? first : status;
    }
    return first;
}

static truce_status strip_element(struct worker *worker, const bson_oid_t *commit,
                                  const bson_t *element, bson_error_t *error)
{
    const char *collection;
    truce_status status;
    bson_iter_t keyed;
    bson_value_t id;
    int32_t keys = -1;
    bson_t filter, document;

    if (!truce__journal_target(element, &collection, &id))
        return TRUCE_OK;
    if (bson_iter_init_find(&keyed, element, "keyed")) { /* how many keys are to stay? */
        truce__filter_intent(&id, commit, &filter);
        /* latest: without the intent, reserved keys would stay behind */
        status = truce_find_one(worker->store, collection, &filter, &truce__find_latest, &document,
                                error);
        keys = status ? -1 : truce__shadow_reserved(&document);
        bson_destroy(&document);
        bson_destroy(&filter);
        if (status)
            return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    return truce__journal_strip(worker, collection, &id, commit, keys, error);
}

static truce_status release_element(struct worker *worker, const bson_oid_t *commit,
                                    const bson_t *element, bson_error_t *error)
{
    return truce__journal_release(worker, commit, element, NULL, error);
}

truce_status truce__journal_finish(struct worker *worker, const bson_t *commit, bson_error_t *error)
{
    truce_status status = each_element(worker, commit, "post", release_element, error);
    bson_iter_t iter;

    if (!status && bson_iter_init_find(&iter, commit, "_id") && BSON_ITER_HOLDS_OID(&iter))
        status = truce__journal_done(worker, bson_iter_oid(&iter), error);
    return status;
}

truce_status truce__journal_clean(struct worker *worker, const bson_t *commit, bson_error_t *error)
{
    return each_element(worker, commit, "writes", strip_element, error);
}
