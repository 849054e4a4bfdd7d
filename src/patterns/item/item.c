/*
 * Array items: the handle, the checks, the steps of a call, and the effect of a call on a document.
 *
 *     direct write, for the expected layout      matched: counted from the old document
 *          |  no match
 *     read the document                          none: NOT_FOUND; held by a commit: complete
 *                                                it or wait
 *          |
 *     compute the effect                         no change: the result is what this step counted
 *          |  change
 *     if the layout differs from the one tried: direct write for that layout
 *     otherwise: the compared write; if the items changed in the meantime: read again
 *
 * Invariants, for every concurrent reader:
 *
 * 1. An item that a call changes exists exactly once, before and after. No intermediate state is
 *    visible.
 * 2. The other items keep their order.
 * 3. An identity is added at most once, even by concurrent calls.
 *
 * A crash leaves the single write done or not done. If a write gets no reply, the call looks for
 * the `_rev` that the write would have set.
 *
 *     item_write_form.c  a call as one write
 *     item_convert.c     arrays to maps and back; indexes
 *
 * Deliberately not done: adding and replacing in arrays below arrays. To add a line to an order,
 * update the order: {$push: {lines: ...}}.
 */
#include "patterns/item/item.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/binary_text.h"
#include "bson/number.h"
#include "commit/journal.h"
#include "query/update/update.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- the handle ------------------------------------------------------------------------------ */

static bool item_identifies(struct value value);
static truce_status item_check(const struct item_call *call, truce_item_layout layout,
                               const bson_t *document, struct item_outcome *outcome,
                               bson_error_t *error);
static void item_outcome_release(struct item_outcome *outcome);

static void handle_refuse(truce_item *item, const char *what, const char *name,
                          const char *expected)
{
    if (item->refused)
        return;
    item->refused = true;
    (void)truce__fail(TRUCE_INVALID, &item->refusal, "invalid %s \"%.400s\": expected %s", what,
                      name, expected);
}

/* Accepts names separated by dots and, if `arrays`, also $[] as a whole name in the middle. */
static bool path_is_good(const char *path, bool arrays)
{
    if (strlen(path) > 400)
        return false;
    for (bool first = true;; first = false) {
        size_t length = strcspn(path, ".");
        bool through = length == 3 && !strncmp(path, "$[]", 3);

        if (!length || (path[0] == '$' && !(through && arrays && !first && path[length])))
            return false;
        if (!path[length])
            return true;
        path += length + 1;
    }
}

/* Returns whether a path is another path or lies below it: "a.b" is below "a". */
static bool handle_is_below(const char *path, const char *name)
{
    size_t length = strlen(name);

    return !strncmp(path, name, length) && (!path[length] || path[length] == '.');
}

/* Splits the field of the items: for "orders.$[].lines", `plain` is "orders.lines" and `owner` is
 * "orders". */
static void split_field(truce_item *item)
{
    bson_string_t *plain = bson_string_new(NULL);
    const char *through = strstr(item->field, ".$[]");

    for (const char *at = item->field; *at; at++) {
        if (!strncmp(at, ".$[]", 4))
            at += 3;
        else
            bson_string_append_c(plain, *at);
    }
    item->plain = bson_string_free(plain, false);
    item->nested = through != NULL;
    item->owner = through ? bson_strndup(item->field, (size_t)(through - item->field))
                          : bson_strdup(item->field);
}

static truce_item_form handle_form_for(const truce_store *store, truce_item_form wanted)
{
    if (wanted != TRUCE_ITEM_FORM_AUTO)
        return wanted;
    if (store->capabilities & TRUCE_CAN_ITEM_UPDATE)
        return TRUCE_ITEM_FORM_OPERATOR;
    return store->capabilities & TRUCE_CAN_ARRAY_FILTERS ? TRUCE_ITEM_FORM_FILTERS
                                                         : TRUCE_ITEM_FORM_POSITIONAL;
}

/* Returns the value of a required option. These names have no defaults, because a default could
 * write into another field of the user. */
static const char *handle_must(truce_item *item, const char *option, const char *given)
{
    if (given)
        return given;
    if (!item->refused)
        (void)truce__fail(TRUCE_INVALID, &item->refusal,
                          "the option \"%s\" of the items is missing (required: collection, field,"
                          " and identity)",
                          option);
    item->refused = true;
    return "?";
}

truce_item *truce_item_new(truce_store *store, const truce_item_options *options)
{
    static const truce_item_options defaults;
    truce_item *item = bson_malloc0(sizeof *item);

    truce_assert(store);
    if (!options)
        options = &defaults;
    item->store = store;
    item->refused = ROOM_CHECK(options, "truce_item_options", &item->refusal) != TRUCE_OK;
    item->collection = bson_strdup(handle_must(item, "collection", options->collection));
    item->field = bson_strdup(handle_must(item, "field", options->field));
    item->identity = bson_strdup(handle_must(item, "identity", options->identity));
    item->layout = options->layout;
    item->form = handle_form_for(store, options->form);
    item->version = options->version ? bson_strdup(options->version) : NULL;
    item->deadline_ms = options->deadline_ms;
    item->relaxed = options->relaxed;
    if (!path_is_good(item->field, true))
        handle_refuse(item, "path of the items", item->field,
                      "a path such as order.lines or orders.$[].lines, of up to 400 bytes");
    if (strchr(item->identity, '.') || !path_is_good(item->identity, false))
        handle_refuse(item, "field that identifies an item", item->identity,
                      "the name of a field, without \".\", and without \"$\" in front");
    split_field(item);
    if (!strcmp(item->owner, "_id") || !strcmp(item->owner, "_rev") ||
        !strcmp(item->owner, "_intent"))
        handle_refuse(item, "path of the items", item->field,
                      "a field other than _id, _rev, and _intent");
    if (item->version && (!path_is_good(item->version, false) || strchr(item->version, '.') ||
                          item->version[0] == '_' || handle_is_below(item->owner, item->version)))
        handle_refuse(item, "version field", item->version,
                      "the name of a field outside of the items, without \".\", and without \"$\" "
                      "or \"_\" in front");
    if (item->nested && item->layout == TRUCE_ITEM_MAP)
        handle_refuse(item, "path of items in a map", item->field,
                      "a path without $[]: maps below an array are not supported");
    if ((item->form == TRUCE_ITEM_FORM_OPERATOR &&
         !(store->capabilities & TRUCE_CAN_ITEM_UPDATE)) ||
        (item->form == TRUCE_ITEM_FORM_FILTERS && !(store->capabilities & TRUCE_CAN_ARRAY_FILTERS)))
        handle_refuse(item, "form of item updates",
                      item->form == TRUCE_ITEM_FORM_OPERATOR ? "operator" : "filters",
                      "a form that this store supports: TRUCE_ITEM_FORM_AUTO chooses one");
    return item;
}

void truce_item_free(truce_item *item)
{
    if (!item)
        return;
    bson_free(item->collection);
    bson_free(item->field);
    bson_free(item->identity);
    bson_free(item->plain);
    bson_free(item->owner);
    bson_free(item->version);
    bson_free(item);
}

/* ---- a call checked -------------------------------------------------------------------------- */

static truce_status item_check_document(const bson_t *document, const char *what,
                                        bson_error_t *error)
{
    if (!document)
        return truce__fail(TRUCE_INVALID, error, "the %s is NULL: expected a document", what);
    return truce__document_check(document, what, error);
}

/* Builds the query of a call that adds, replaces, or upserts: these find the item by its
 * identity. */
static truce_status query_of_item(struct item_call *call, const bson_t *query, bson_error_t *error)
{
    const truce_item *item = call->item;
    truce_status status = item_check_document(call->change, "item", error);
    struct value identity;
    bson_t all, one;

    if (status)
        return status;
    if (item->nested)
        return truce__fail(TRUCE_INVALID, error,
                           "an item of \"%s\" cannot be added or replaced: update the document "
                           "that contains its array",
                           item->field);
    identity = truce__value_field(truce__value_document(call->change), item->identity,
                                  strlen(item->identity));
    if (!item_identifies(identity))
        return truce__fail(TRUCE_INVALID, error,
                           "the item has no field \"%s\" that identifies it (%s)", item->identity,
                           truce__type_name(identity.type));
    truce__value_append(&call->query, item->identity, strlen(item->identity), identity);
    if (!query || bson_empty(query))
        return TRUCE_OK;
    status = item_check_document(query, "query", error);
    if (status)
        return status;
    bson_append_array_begin(&call->query, "$and", 4, &all);
    bson_append_document_begin(&all, "0", 1, &one);
    bson_concat(&one, query);
    bson_append_document_end(&all, &one);
    bson_append_array_end(&call->query, &all);
    return TRUCE_OK;
}

static truce_status item_read_query(struct item_call *call, const bson_t *query,
                                    bson_error_t *error)
{
    truce_status status;

    if (call->verb != ITEM_UPDATE && call->verb != ITEM_REMOVE)
        return query_of_item(call, query, error);
    status = item_check_document(query, "query", error);
    if (!status)
        bson_concat(&call->query, query);
    return status;
}

/* Checks a call and its query, and finds the identity that the query names, if it names only
 * one. */
static truce_status begin_call(struct item_call *call, const bson_t *query, bson_error_t *error)
{
    const truce_item *item = call->item;
    truce_status status = truce__handle_usable(item->store, item->refused, &item->refusal, error);

    bson_init(&call->query);
    if (!status)
        status = item_check_document(call->filter, "filter", error);
    if (!status && call->verb == ITEM_UPDATE)
        status = item_check_document(call->change, "update", error);
    if (!status)
        status = item_read_query(call, query, error);
    if (!status)
        status = truce__item_check(call, error);
    if (status)
        return status;
    call->identity = truce__value_field(truce__value_document(&call->query), item->identity,
                                        strlen(item->identity));
    if (!item_identifies(call->identity))
        call->identity = truce__value_missing();
    call->exact = call->identity.type && bson_count_keys(&call->query) == 1;
    call->key = truce__item_key_of(call->identity);
    return TRUCE_OK;
}

static void end_call(struct item_call *call)
{
    bson_destroy(&call->query);
    bson_free(call->key);
}

/* ---- alone ----------------------------------------------------------------------------------- */

/* The state of a running call. */
struct run {
    const struct item_call *call;
    struct worker worker;
    /* The layout that the next direct write expects: array or map. */
    truce_item_layout layout;
    truce_item_result result;
    bool settled;
};

/* Decides about a write without a reply by its `_rev`. */
static truce_status diagnose_unanswered(struct run *run, const bson_oid_t *rev, truce_status status,
                                        bson_error_t *error)
{
    const truce_item *item = run->call->item;
    bson_t *filter = BCON_NEW("$and", "[", BCON_DOCUMENT(run->call->filter), "{", "_rev",
                              BCON_OID(rev), "}", "]");
    bson_t found;

    if (truce_find_one(item->store, item->collection, filter, NULL, &found, NULL) == TRUCE_OK) {
        run->settled = true;
        run->result = (truce_item_result){.matched = -1, .modified = -1};
        status = TRUCE_OK;
    } else if (error && !error->message[0]) {
        (void)truce__fail(status, error,
                          "the outcome of a change in \"%s\" is unknown: the store did not reply",
                          item->collection);
    }
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* Sends the write and counts its effect from the document before it. */
static truce_status item_send(struct run *run, const struct item_write *write,
                              const bson_oid_t *rev, bson_error_t *error)
{
    const truce_item *item = run->call->item;
    bson_t *projection = BCON_NEW(item->owner, BCON_INT32(1));
    truce_modify_options options = {.projection = projection,
                                    .relaxed = item->relaxed,
                                    .deadline_ms = item->deadline_ms,
                                    .array_filters =
                                        write->has_filters ? &write->array_filters : NULL};
    struct item_outcome outcome;
    bson_t old;
    truce_status status = truce_find_and_modify(item->store, item->collection, &write->filter,
                                                &write->update, &options, &old, NULL, error);

    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
    } else if (truce__unanswered(status)) {
        status = diagnose_unanswered(run, rev, status, error);
    } else if (!status) {
        status = item_check(run->call, run->layout, &old, &outcome, error);
        run->result = outcome.result;
        run->settled = true;
        item_outcome_release(&outcome);
    }
    bson_destroy(&old);
    bson_destroy(projection);
    return status;
}

static truce_status send_direct(struct run *run, enum item_verb verb, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    struct item_write write;
    bson_oid_t rev;

    truce__id_new(&rev);
    if (truce__item_direct(run->call, verb, run->layout, &rev, &write))
        status = item_send(run, &write, &rev, error);
    truce__item_write_release(&write);
    return status;
}

static truce_status try_direct(struct run *run, bson_error_t *error)
{
    enum item_verb verb = run->call->verb;
    truce_status status = send_direct(run, verb == ITEM_UPSERT ? ITEM_REPLACE : verb, error);

    if (verb == ITEM_UPSERT && !status && !run->settled)
        status = send_direct(run, ITEM_ADD, error);
    return status;
}

static truce_status send_compared(struct run *run, const bson_t *document,
                                  const struct item_outcome *outcome, bson_error_t *error)
{
    struct item_write write;
    bson_oid_t rev;
    truce_status status;

    truce__id_new(&rev);
    truce__item_compared(run->call, document, outcome, &rev, &write);
    status = item_send(run, &write, &rev, error);
    truce__item_write_release(&write);
    return status;
}

/* Checks that no array lies above the owner of the field. */
static truce_status check_way(const truce_item *item, const bson_t *document, bson_error_t *error)
{
    for (const char *dot = strchr(item->owner, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *path = bson_strndup(item->owner, (size_t)(dot - item->owner));
        bool array = truce__item_at(document, path).type == BSON_TYPE_ARRAY;

        bson_free(path);
        if (array)
            return truce__fail(
                TRUCE_INVALID, error, "\"%.*s\" is an array: the items are at \"%.*s.$[]%s\"",
                (int)(dot - item->owner), item->owner, (int)(dot - item->owner), item->owner, dot);
    }
    return TRUCE_OK;
}

/* Decides about a call whose direct write matched nothing, from the document. */
static truce_status item_settle(struct run *run, const bson_t *document, bson_error_t *error)
{
    const truce_item *item = run->call->item;
    enum item_state state = truce__item_state(item, document);
    truce_item_layout layout = state == ITEM_NONE    ? item->layout
                               : state == ITEM_TABLE ? TRUCE_ITEM_MAP
                                                     : TRUCE_ITEM_ARRAY;
    struct item_outcome outcome;
    truce_status status = check_way(item, document, error);

    if (status)
        return status;
    status = item_check(run->call, item->layout, document, &outcome, error);
    if (!status && !outcome.changed) {
        run->result = outcome.result;
        run->settled = true;
    } else if (!status && layout == run->layout) {
        status = send_compared(run, document, &outcome, error);
    }
    run->layout = layout;
    item_outcome_release(&outcome);
    return status;
}

static truce_status check_rev(const bson_t *document, bson_error_t *error)
{
    struct token token;

    return truce__token_of(document, &token, error);
}

/* Reads the document after a direct write that matched nothing, and continues the call from it. If
 * a commit holds the document, completes or awaits that commit instead; the next attempt then reads
 * again. */
static truce_status item_read_document(struct run *run, bson_error_t *error)
{
    const truce_item *item = run->call->item;
    bson_t document;
    truce_status status =
        truce_find_one(item->store, item->collection, run->call->filter, NULL, &document, error);

    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(status, error, "no document of \"%s\" matches the filter",
                             item->collection);
    else if (!status && !truce__intent_absent(&document))
        status = truce__intent_complete_other(&run->worker, item->collection, &document, error);
    else if (!status)
        status = check_rev(&document, error);
    if (!status && truce__intent_absent(&document))
        status = item_settle(run, &document, error);
    bson_destroy(&document);
    return status;
}

/* Runs a call without a commit until it is settled. Waits before the third and each later attempt,
 * up to the deadline. */
static truce_status item_run_alone(const struct item_call *call, truce_item_result *result,
                                   bson_error_t *error)
{
    DEADLINE_SCOPE(call->item->deadline_ms ? call->item->deadline_ms : COMMIT_DEADLINE_MS);
    struct run run = {.call = call, .layout = call->item->layout};
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;

    truce__worker_init(&run.worker, call->item->store, call->item->deadline_ms);
    for (int attempt = 0; !status && !run.settled; attempt++) {
        if (attempt > 1)
            status = truce__worker_wait(&run.worker, "the document", &why);
        if (!status)
            status = try_direct(&run, &why);
        if (!status && !run.settled)
            status = item_read_document(&run, &why);
    }
    if (status && error)
        *error = why;
    *result = run.result;
    return status;
}

/* ---- in a commit ----------------------------------------------------------------------------- */

static truce_status no_document(const truce_item *item, bson_error_t *error)
{
    return truce__fail(TRUCE_NOT_FOUND, error, "no document of \"%s\" matches the filter",
                       item->collection);
}

/* Reads the document through the commit. A filter without an _id is first sent to the store;
 * reading the document that it finds through the commit guards it. */
static truce_status item_find_in(const struct item_call *call, truce_commit *commit,
                                 bson_t *document, bson_error_t *error)
{
    const truce_item *item = call->item;
    struct value id = truce__value_field(truce__value_document(call->filter), "_id", 3);
    bool by_id = id.type && !truce__value_is_container(id) && id.type != BSON_TYPE_REGEX;
    bson_t found = BSON_INITIALIZER;
    const bson_t *holder = call->filter;
    truce_status status = TRUCE_OK;
    bool matched = false;
    bson_iter_t iter;

    bson_init(document);
    if (!by_id) {
        status = truce_find_one(item->store, item->collection, call->filter, NULL, &found, error);
        if (status == TRUCE_NOT_FOUND)
            status = no_document(item, error);
        holder = &found;
    }
    if (!status)
        status = truce__document_need_id(item->collection, holder, &iter, error);
    if (!status) {
        bson_destroy(document);
        status =
            truce_commit_read(commit, item->collection, bson_iter_value(&iter), document, error);
    }
    if (!status)
        status = truce__guard_matches(call->filter, document, &matched, error);
    if (!status && !matched && by_id)
        status = no_document(item, error);
    else if (!status && !matched)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "a document of \"%s\" that matched the filter was changed "
                             "concurrently, and no longer matches",
                             item->collection);
    bson_destroy(&found);
    return status;
}

/* Runs a call in a commit: computes the new items and replaces all of them. */
static truce_status run_in(const struct item_call *call, truce_commit *commit,
                           truce_item_result *result, bson_error_t *error)
{
    struct item_outcome outcome = {.memory = BSON_INITIALIZER};
    bson_t document, update = BSON_INITIALIZER, set;
    truce_status status = item_find_in(call, commit, &document, error);
    bson_iter_t iter;

    if (!status)
        status = check_way(call->item, &document, error);
    if (!status)
        status = item_check(call, call->item->layout, &document, &outcome, error);
    if (!status && outcome.changed)
        status = truce__document_need_id(call->item->collection, &document, &iter, error);
    if (!status && outcome.changed) {
        bson_append_document_begin(&update, "$set", 4, &set);
        truce__value_append(&set, call->item->owner, strlen(call->item->owner), outcome.after);
        bson_append_document_end(&update, &set);
        truce__item_raise(call->item, &update);
        status = truce_commit_update(commit, call->item->collection, bson_iter_value(&iter), NULL,
                                     &update, error);
    }
    *result = outcome.result;
    item_outcome_release(&outcome);
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

/* ---- the public calls ------------------------------------------------------------------------ */

static truce_status item_run(truce_item *item, truce_commit *commit, struct item_call *call,
                             const bson_t *query, truce_item_result *result, bson_error_t *error)
{
    truce_item_result counted = {0};
    truce_status status;

    call->item = item;
    status = begin_call(call, query, error);
    if (!status)
        status =
            commit ? run_in(call, commit, &counted, error) : item_run_alone(call, &counted, error);
    end_call(call);
    if (result)
        *result = status ? (truce_item_result){0} : counted;
    return status;
}

truce_status truce_item_update(truce_item *item, truce_commit *commit, const bson_t *filter,
                               const bson_t *query, const bson_t *update, truce_item_result *result,
                               bson_error_t *error)
{
    return item_run(item, commit,
                    &(struct item_call){.verb = ITEM_UPDATE, .filter = filter, .change = update},
                    query, result, error);
}

truce_status truce_item_add(truce_item *item, truce_commit *commit, const bson_t *filter,
                            const bson_t *document, truce_item_result *result, bson_error_t *error)
{
    return item_run(item, commit,
                    &(struct item_call){.verb = ITEM_ADD, .filter = filter, .change = document},
                    NULL, result, error);
}

truce_status truce_item_replace(truce_item *item, truce_commit *commit, const bson_t *filter,
                                const bson_t *query, const bson_t *document,
                                truce_item_result *result, bson_error_t *error)
{
    return item_run(item, commit,
                    &(struct item_call){.verb = ITEM_REPLACE, .filter = filter, .change = document},
                    query, result, error);
}

truce_status truce_item_upsert(truce_item *item, truce_commit *commit, const bson_t *filter,
                               const bson_t *document, truce_item_result *result,
                               bson_error_t *error)
{
    return item_run(item, commit,
                    &(struct item_call){.verb = ITEM_UPSERT, .filter = filter, .change = document},
                    NULL, result, error);
}

truce_status truce_item_remove(truce_item *item, truce_commit *commit, const bson_t *filter,
                               const bson_t *query, truce_item_result *result, bson_error_t *error)
{
    return item_run(item, commit, &(struct item_call){.verb = ITEM_REMOVE, .filter = filter}, query,
                    result, error);
}

/* ---- item list ------------------------------------------------------------------------------- */

/*
 * The effect of a call on a document, without a store: the counts of items, and the new list or
 * map. query/update/update.c runs the same operators that are sent to a store, so the counts agree
 * with the write.
 *
 * A map is handled as the array of its items. The keys are then derived from the items' identities
 * again. No call changes an identity, so the keys stay the same.
 *
 *     {TOP: {type: "TOP", n: 1}}  ->  [{type: "TOP", n: 1}]
 *                                 -> change ->  {TOP: {type: "TOP", n: 2}}
 */

/* ---- paths ----------------------------------------------------------------------------------- */

struct value truce__item_at(const bson_t *document, const char *path)
{
    struct value at = truce__value_document(document);

    for (;;) {
        size_t length = strcspn(path, ".");

        if (at.type != BSON_TYPE_DOCUMENT)
            return truce__value_missing();
        at = truce__value_field(at, path, length);
        if (!path[length])
            return at;
        path += length + 1;
    }
}

enum item_state truce__item_state(const truce_item *item, const bson_t *document)
{
    struct value value = truce__item_at(document, item->owner);

    switch (value.type) {
    case VALUE_MISSING:
        return ITEM_NONE;
    case BSON_TYPE_ARRAY:
        return ITEM_LIST;
    case BSON_TYPE_DOCUMENT:
        return item->nested ? ITEM_LIST : ITEM_TABLE;
    default:
        return ITEM_OTHER;
    }
}

/* ---- identities and keys --------------------------------------------------------------------- */

static bool item_identifies(struct value value)
{
    return truce__value_identifies(value) && value.size <= ITEM_IDENTITY_MAX;
}

static char *key_of_text(struct value value)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);
    bson_string_t *key = bson_string_new(NULL);

    if (!length)
        bson_string_append_c(key, '%');
    for (uint32_t i = 0; i < length; i++) {
        if (text[i] == '%' || text[i] == '.' || text[i] == '$' || !text[i])
            bson_string_append_printf(key, "%%%02X", (unsigned)(unsigned char)text[i]);
        else
            bson_string_append_c(key, text[i]);
    }
    return bson_string_free(key, false);
}

/* Returns the key of a number. Equal numbers have the same key, whatever their types. */
static char *key_of_number(struct value value)
{
    char text[80];

    if (value.type == BSON_TYPE_DECIMAL128) {
        struct arena arena = ARENA_INIT;
        struct value as_double = truce__value_from_double(&arena, truce__number_to_double(value));
        bool same = truce__value_equal(value, as_double);
        bson_decimal128_t decimal = truce__value_decimal(value);
        char *key = NULL;

        if (same) {
            key = key_of_number(as_double);
        } else {
            bson_decimal128_to_string(&decimal, text);
            key = bson_strdup_printf("%%d%s", text);
            for (char *dot = strchr(key, '.'); dot; dot = strchr(dot, '.'))
                *dot = '_';
        }
        truce__arena_release(&arena);
        return key;
    }
    if (value.type == BSON_TYPE_DOUBLE) {
        double number = truce__value_double(value);

        if (!(number >= -9223372036854775808.0 && number < 9223372036854775808.0 &&
              (double)(int64_t)number == number)) {
            char *key = bson_strdup_printf("%%f%.17g", number);

            for (char *dot = strchr(key, '.'); dot; dot = strchr(dot, '.'))
                *dot = '_';
            return key;
        }
        return bson_strdup_printf("%%n%lld", (long long)number);
    }
    return bson_strdup_printf("%%n%lld", value.type == BSON_TYPE_INT32
                                             ? (long long)truce__value_int32(value)
                                             : (long long)truce__value_int64(value));
}

char *truce__item_key_of(struct value identity)
{
    static const char *const tags[256] = {[BSON_TYPE_OID] = "%o",
                                          [BSON_TYPE_DATE_TIME] = "%t",
                                          [BSON_TYPE_BOOL] = "%b",
                                          [BSON_TYPE_BINARY] = "%x"};
    const char *tag;
    char *key;

    if (!item_identifies(identity))
        return NULL;
    if (identity.type == BSON_TYPE_UTF8)
        return key_of_text(identity);
    if (truce__value_is_number(identity))
        return key_of_number(identity);
    tag = tags[identity.type];
    key = bson_malloc(strlen(tag) + 2 * (size_t)identity.size + 1);
    strcpy(key, tag);
    truce__hex_show(identity.data, identity.size, key + strlen(tag));
    return key;
}

/* Returns the value of two uppercase hexadecimal digits, or -1 if there are other characters. */
static int item_unescape_byte(const char *at)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high = at[0] ? strchr(digits, at[0]) : NULL;
    const char *low = high && at[1] ? strchr(digits, at[1]) : NULL;

    return low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

/* Decodes a key into `text`, which has space for the key. Returns the length. */
static uint32_t text_of_key(const char *key, char *text)
{
    uint32_t length = 0;

    if (!strcmp(key, "%"))
        return 0;
    while (*key) {
        int byte = *key == '%' ? item_unescape_byte(key + 1) : -1;

        text[length++] = byte < 0 ? *key : (char)byte;
        key += byte < 0 ? 1 : 3;
    }
    return length;
}

/* Appends the identity of an item that has only its key: a number or a string. Other keys become
 * strings unchanged. */
static void append_identity(const truce_item *item, const char *key, bson_t *to)
{
    char *text, *end = NULL;
    long long number;

    if (!strncmp(key, "%n", 2)) {
        number = strtoll(key + 2, &end, 10);
        if (!*end && end > key + 2) {
            if (number >= INT32_MIN && number <= INT32_MAX)
                bson_append_int32(to, item->identity, -1, (int32_t)number);
            else
                bson_append_int64(to, item->identity, -1, number);
            return;
        }
    }
    text = bson_malloc(strlen(key) + 1);
    bson_append_utf8(to, item->identity, -1, text, (int)text_of_key(key, text));
    bson_free(text);
}

static struct value identity_of(const truce_item *item, struct value value)
{
    if (value.type != BSON_TYPE_DOCUMENT)
        return truce__value_missing();
    return truce__value_field(value, item->identity, strlen(item->identity));
}

/* ---- layouts --------------------------------------------------------------------------------- */

truce_status truce__item_to_map(const truce_item *item, struct value items, bson_t *made,
                                bson_error_t *error)
{
    struct fields fields = truce__fields(items);
    truce_status status = TRUCE_OK;
    char text[120];
    bson_t map;

    bson_init(made);
    bson_append_document_begin(made, "v", 1, &map);
    while (!status && truce__fields_next(&fields)) {
        char *key = truce__item_key_of(identity_of(item, fields.value));

        if (!key)
            status =
                truce__fail(TRUCE_INVALID, error, "an item has no \"%s\" that identifies it: %s",
                            item->identity, truce__value_show(fields.value, text, sizeof text));
        else if (truce__value_field(truce__value_document(&map), key, strlen(key)).type)
            status =
                truce__fail(TRUCE_INVALID, error, "two items have the same \"%s\": %s",
                            item->identity, truce__value_show(fields.value, text, sizeof text));
        else
            truce__value_append(&map, key, strlen(key), fields.value);
        bson_free(key);
    }
    bson_append_document_end(made, &map);
    return status;
}

/* Appends an item of a map to an array, with its identity. */
static void list_append_item(const truce_item *item, const struct fields *field, bson_t *items,
                             uint32_t index)
{
    char text[16];
    const char *key;
    bson_t inner;

    bson_uint32_to_string(index, &key, text, sizeof text);
    if (field->value.type != BSON_TYPE_DOCUMENT || identity_of(item, field->value).type) {
        truce__value_append(items, key, strlen(key), field->value);
        return;
    }
    bson_append_document_begin(items, key, -1, &inner);
    append_identity(item, field->key, &inner);
    for (struct fields fields = truce__fields(field->value); truce__fields_next(&fields);)
        truce__value_append(&inner, fields.key, fields.key_length, fields.value);
    bson_append_document_end(items, &inner);
}

void truce__item_to_array(const truce_item *item, struct value map, bson_t *made)
{
    struct fields fields = truce__fields(map);
    bson_t items;

    bson_init(made);
    bson_append_array_begin(made, "v", 1, &items);
    for (uint32_t index = 0; truce__fields_next(&fields); index++)
        list_append_item(item, &fields, &items, index);
    bson_append_array_end(made, &items);
}

static struct value made_value(const bson_t *made)
{
    return truce__value_field(truce__value_document(made), "v", 1);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static truce_status list_apply(const bson_t *update, const bson_t *array_filters,
                               const bson_t *before, bson_t *after, struct update_result *result,
                               bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    struct update_options options = {.array_filters = array_filters};
    struct update *compiled = NULL;
    truce_status status = truce__update_new(update, &options, &compiled, error);

    if (status)
        bson_init(after);
    else
        status = truce__update_apply(compiled, before, NULL, &context, after, result, error);
    truce__update_free(compiled);
    truce__arena_release(&arena);
    return status;
}

/* Applies the call to a document whose items are in an array, or that has none. */
static truce_status list_change(const struct item_call *call, bool matched, const bson_t *before,
                                bson_t *after, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, filters = BSON_INITIALIZER, inner;
    struct update_result counted = {0};
    bool with_filters = false;
    truce_status status;

    if (call->verb == ITEM_REMOVE) {
        bson_append_document_begin(&update, "$pull", 5, &inner);
        bson_append_document(&inner, call->item->field, -1, &call->query);
        bson_append_document_end(&update, &inner);
    } else if (matched) {
        with_filters = truce__item_filters(call, &update, &filters);
        truce_assert(with_filters);
    } else {
        bson_append_document_begin(&update, "$push", 5, &inner);
        bson_append_document(&inner, call->item->field, -1, call->change);
        bson_append_document_end(&update, &inner);
    }
    status = list_apply(&update, with_filters ? &filters : NULL, before, after, &counted, error);
    bson_destroy(&update);
    bson_destroy(&filters);
    return status;
}

/* Applies the change to the array of the document. `before` has its items in an array, or none. */
static truce_status item_apply_list(const struct item_call *call, const bson_t *before,
                                    bson_t *after, truce_item_result *result, bson_error_t *error)
{
    const bson_t *operators = call->verb == ITEM_UPDATE ? call->change : NULL;
    bool appends = call->verb == ITEM_ADD || call->verb == ITEM_UPSERT;
    struct update_result counted = {0};
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    truce__item_operator(call, operators, &update);
    status = list_apply(&update, NULL, before, after, &counted, error);
    bson_destroy(&update);
    result->matched = counted.items_matched;
    result->modified = counted.items_modified;
    if (status || operators)
        return status;
    if ((counted.items_matched == 0 && !appends) ||
        (counted.items_matched > 0 && call->verb == ITEM_ADD))
        return TRUCE_OK;
    bson_destroy(after);
    status = list_change(call, counted.items_matched > 0, before, after, error);
    if (!status && !bson_equal(before, after))
        result->modified = counted.items_matched;
    result->added = !status && !counted.items_matched;
    return status;
}

/* Copies the document with another value at the field. */
static truce_status with_items(const truce_item *item, const bson_t *document, struct value items,
                               bson_t *made, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    struct update_result result = {0};
    truce_status status;

    bson_append_document_begin(&update, "$set", 4, &set);
    truce__value_append(&set, item->field, strlen(item->field), items);
    bson_append_document_end(&update, &set);
    status = list_apply(&update, NULL, document, made, &result, error);
    bson_destroy(&update);
    return status;
}

/* Applies the change to the items of `list`. `list` is the document with an array. The result goes
 * into the outcome in the requested layout. */
static truce_status item_compute_in(const struct item_call *call, bool as_map, const bson_t *list,
                                    struct item_outcome *outcome, bson_error_t *error)
{
    bson_t after;
    struct value value;
    truce_status status = item_apply_list(call, list, &after, &outcome->result, error);

    if (!status) {
        outcome->changed = outcome->result.modified > 0 || outcome->result.added;
        value = truce__item_at(&after, call->item->owner);
        bson_destroy(&outcome->memory);
        if (as_map && value.type == BSON_TYPE_ARRAY) {
            status = truce__item_to_map(call->item, value, &outcome->memory, error);
        } else {
            bson_init(&outcome->memory);
            truce__value_append(&outcome->memory, "v", 1, value);
        }
        outcome->after = made_value(&outcome->memory);
    }
    bson_destroy(&after);
    return status;
}

/* Computes the effect of a call. Always initializes `outcome`; the caller releases it. Returns
 * TRUCE_INVALID if the field is neither an array nor a map, or an item cannot be changed this way.
 * `layout` is the layout for a document without items. */
static truce_status item_check(const struct item_call *call, truce_item_layout layout,
                               const bson_t *document, struct item_outcome *outcome,
                               bson_error_t *error)
{
    const truce_item *item = call->item;
    enum item_state state = truce__item_state(item, document);
    bool as_map = state == ITEM_TABLE || (state == ITEM_NONE && layout == TRUCE_ITEM_MAP);
    bson_t items, list;
    truce_status status;

    memset(outcome, 0, sizeof *outcome);
    bson_init(&outcome->memory);
    if (state == ITEM_OTHER)
        return truce__fail(TRUCE_INVALID, error,
                           "the field \"%s\" of the document is %s; expected an array or a map",
                           item->owner,
                           truce__type_name(truce__item_at(document, item->owner).type));
    if (state != ITEM_TABLE)
        return item_compute_in(call, as_map, document, outcome, error);
    truce__item_to_array(item, truce__item_at(document, item->owner), &items);
    status = with_items(item, document, made_value(&items), &list, error);
    if (!status)
        status = item_compute_in(call, true, &list, outcome, error);
    bson_destroy(&items);
    bson_destroy(&list);
    return status;
}

static void item_outcome_release(struct item_outcome *outcome)
{
    bson_destroy(&outcome->memory);
}
