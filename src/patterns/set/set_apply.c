/* Operations of an ordered set on the way to its documents: the public calls, and batches of
 * operations. set_queue.c combines the calls of several threads into batches. set_write_form.c and
 * set_layout_by_element.c apply an operation that is alone in its batch. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "patterns/set/set.h"
#include "store/store.h"

/* ---- the public calls ------------------------------------------------------------------------ */

const char *truce_set_outcome_name(truce_set_outcome outcome)
{
    switch (outcome) {
    case TRUCE_SET_APPLIED:
        return "applied";
    case TRUCE_SET_STALE:
        return "stale";
    case TRUCE_SET_DUPLICATE:
        return "duplicate";
    case TRUCE_SET_QUARANTINED:
        return "quarantined";
    }
    return "unknown";
}

truce_status truce_set_check(truce_set *set, const truce_set_operation *operation,
                             bson_error_t *error)
{
    struct set_operation checked;

    return truce__set_operation_check(set, operation, &checked, error);
}

void truce__set_call_fail(struct set_call *call, size_t number, truce_status status,
                          const bson_error_t *why)
{
    if (call->status)
        return;
    call->status = status;
    call->error = *why;
    if (call->given > 1)
        (void)truce__fail(status, &call->error, "operation %zu: %s", number + 1, why->message);
}

/* Checks all operations and moves the valid ones to the front. Invalid ones get their results here.
 * Returns the number of valid operations. */
static size_t set_check_all(truce_set *set, const truce_set_operation *given, struct set_call *call)
{
    size_t good = 0;
    bson_error_t why;

    for (size_t i = 0; i < call->count; i++) {
        struct set_operation *operation = &call->operations[good];
        truce_status status = truce__set_operation_check(set, &given[i], operation, &why);

        call->results[i] = (truce_set_result){status, 0};
        operation->call = call;
        operation->number = i;
        good += !status;
        if (status)
            truce__set_call_fail(call, i, status, &why);
    }
    return good;
}

/* Applies the operations whose documents a commit holds. The caller's thread waits for the commit
 * here. */
static void settle_held(truce_set *set, struct set_call *call)
{
    struct worker worker;

    truce__worker_init(&worker, set->store, 0);
    for (size_t i = 0; i < call->count; i++) {
        const struct set_operation *operation = &call->operations[i];
        truce_set_result *result = &call->results[operation->number];
        bson_error_t why = {0};

        if (result->status || result->outcome != SET_OUTCOME_HELD)
            continue;
        *result = (truce_set_result){TRUCE_OK, 0};
        result->status =
            set->layout == TRUCE_SET_BY_ELEMENT
                ? truce__set_element_apply(set, operation, &worker, &result->outcome, &why)
                : truce__set_apply_one(set, operation, &worker, &result->outcome, &why);
        if (result->status)
            truce__set_call_fail(call, operation->number, result->status, &why);
    }
}

/* Applies the valid operations, in the commit or by the queue of the handle. */
static truce_status set_apply_all(truce_set *set, truce_commit *commit,
                                  const truce_set_operation *given, size_t count,
                                  truce_set_result *results, bool relaxed, bson_error_t *error)
{
    struct set_operation single;
    struct set_call call = {.operations = &single,
                            .count = count,
                            .given = count,
                            .results = results,
                            .relaxed = relaxed};
    bson_error_t why = {0};
    truce_status status;

    if (!count)
        return TRUCE_OK;
    if (count > 1)
        call.operations = bson_malloc(count * sizeof *call.operations);
    call.count = set_check_all(set, given, &call);
    status = commit ? call.status : TRUCE_OK;
    if (!status && call.count)
        status = truce__set_ready(set, &why);
    else if (status)
        why = call.error;
    /* The commit fails as a whole, so valid operations of the call are not applied either. */
    for (size_t i = 0; status && i < count; i++)
        results[i].status = results[i].status ? results[i].status : status;
    if (!status && commit) {
        status = truce__set_apply_committed(set, commit, call.operations, count, results, &why);
    } else if (!status) {
        if (call.count)
            truce__set_submit(set, &call);
        if (call.held)
            settle_held(set, &call);
        status = call.status;
        why = call.error;
    }
    if (status && error)
        *error = why;
    if (count > 1)
        bson_free(call.operations);
    return status;
}

truce_status truce_set_apply(truce_set *set, truce_commit *commit, const truce_set_operation *given,
                             size_t count, truce_set_result *results, bson_error_t *error)
{
    if (count) {
        RETURN_IF_NULL(given, error);
        RETURN_IF_NULL(results, error);
    }

    DEADLINE_SCOPE(set->deadline_ms);

    return set_apply_all(set, commit, given, count, results, false, error);
}

static truce_status apply_one(truce_set *set, truce_commit *commit, truce_set_operation operation,
                              truce_set_outcome *outcome, bson_error_t *error)
{
    truce_set_result result = {0};
    truce_status status = truce_set_apply(set, commit, &operation, 1, &result, error);

    if (outcome)
        *outcome = result.outcome;
    return status;
}

truce_status truce_set_add(truce_set *set, truce_commit *commit, const bson_t *key,
                           const bson_t *element, int64_t seq, truce_set_outcome *outcome,
                           bson_error_t *error)
{
    return apply_one(set, commit, (truce_set_operation){TRUCE_SET_ADD, key, element, seq, NULL},
                     outcome, error);
}

truce_status truce_set_remove(truce_set *set, truce_commit *commit, const bson_t *key,
                              const bson_t *element, int64_t seq, truce_set_outcome *outcome,
                              bson_error_t *error)
{
    return apply_one(set, commit, (truce_set_operation){TRUCE_SET_REMOVE, key, element, seq, NULL},
                     outcome, error);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Copies the document without truce's fields, and with numbers. Returns TRUCE_NOT_FOUND if an
 * undecided commit inserted it. */
static truce_status plain_document(const truce_set *set, const bson_t *found, bson_t *document,
                                   bson_error_t *error)
{
    bson_t lists = BSON_INITIALIZER, whole = BSON_INITIALIZER;
    bson_iter_t iter, is_new;

    if (bson_iter_init(&iter, found) && bson_iter_find_descendant(&iter, "_intent.new", &is_new))
        return truce__fail(TRUCE_NOT_FOUND, error, "set \"%s\" has no document with this key",
                           set->id);
    if (truce__set_has_bare(set, found)) {
        truce__set_converted(set, found, &lists);
        truce__set_with_lists(found, &lists, &whole);
        found = &whole;
    }
    truce__document_append_without(found, (const char *const[]){"_rev", "_intent", NULL}, document);
    bson_destroy(&lists);
    bson_destroy(&whole);
    return TRUCE_OK;
}

truce_status truce_set_show(truce_set *set, const bson_t *key, bson_t *document,
                            bson_error_t *error)
{
    RETURN_IF_NULL(document, error);

    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__handle_usable(set->store, set->refused, &set->refusal, error);
    bson_t found;

    bson_init(document);
    if (!status)
        status = truce__set_key_check(set, key, error);
    if (status)
        return status;
    if (set->layout == TRUCE_SET_BY_ELEMENT) {
        bson_destroy(document);
        status = truce__set_element_show(set, key, document, error);
    } else {
        status = truce__set_read_document(set, key, &found, error);
        if (!status)
            status = plain_document(set, &found, document, error);
        bson_destroy(&found);
    }
    truce__names_restore_own(document);
    return status;
}

truce_status truce_set_members(truce_set *set, const bson_t *key, bson_t *members,
                               bson_error_t *error)
{
    RETURN_IF_NULL(members, error);

    bson_t document;
    struct value list;
    truce_status status = truce_set_show(set, key, &document, error);

    bson_init(members);
    if (!status) {
        list = truce__value_field(truce__value_document(&document), set->field, strlen(set->field));
        if (list.type == BSON_TYPE_ARRAY) {
            bson_t borrowed;

            truce__value_bson(list, &borrowed);
            bson_concat(members, &borrowed);
        }
    }
    bson_destroy(&document);
    return status;
}

/* Waits until earlier writes of this process are on disk, by a write of its own. */
static truce_status set_make_durable(const truce_set *set, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", "sync"),
           *update = BCON_NEW("$inc", "{", "n", BCON_INT64(1), "}");
    const truce_write_options options = {.upsert = true};
    truce_status status = truce_update(set->store, PROBE, filter, update, &options, NULL, error);

    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* Applies operations and records their numbers. On a store that rewrites, the operations do not
 * wait for the disk themselves: both are written to one log, so records that are durable follow
 * operations that are durable. */
truce_status truce_set_consume(truce_set *set, const char *consumer,
                               const truce_set_operation *operations, size_t count,
                               truce_set_result *results, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_set_operation *applied;
    size_t applied_count = 0;
    bool wrote = false, changed = false;
    bson_error_t why;
    truce_status status = truce__set_ready(set, error), recorded;

    if (!status)
        status = truce__set_record_check(set, consumer, operations, count, error);
    for (size_t i = 0; !status && i < count; i++) {
        const char *source = operations[i].source ? operations[i].source : "";

        if (!i || strcmp(source, operations[i - 1].source ? operations[i - 1].source : ""))
            status = truce__source_known(set, source, error);
    }
    if (status)
        return status;
    status = set_apply_all(set, NULL, operations, count, results, set->rewrites, error);
    applied = bson_malloc((count + 1) * sizeof *applied);
    for (size_t i = 0; i < count; i++) {
        if (results[i].status)
            continue;
        changed |= results[i].outcome == TRUCE_SET_APPLIED;
        applied[applied_count++] = operations[i];
    }
    recorded = truce__set_record_all(set, consumer, applied, applied_count, &wrote, &why);
    /* If all numbers were recorded before, no write has made the operations durable. */
    if (!recorded && set->rewrites && changed && !wrote)
        recorded = set_make_durable(set, &why);
    if (recorded && !status) {
        status = recorded;
        if (error)
            *error = why;
    }
    bson_free(applied);
    return status;
}

/* ---- set batch ------------------------------------------------------------------------------- */

/*
 * Batches. After the fold, each document has a group of operations that are sorted by name; the
 * first operation of each name is its winner. Documents are processed in windows of some hundreds.
 *
 * If the store can rewrite (sys/store.h), the winners are merged into each document inside the
 * store's own write:
 *
 *     {student_id: 5}  ->  stored document  --merge-->  new document
 *
 * Nothing happens between the read and the write, so this needs no guard and has no race. Either
 * all documents of a window are written or none. For other stores, and for documents whose rewrite
 * failed with a duplicate or without a reply, a window takes three steps:
 *
 *     read     one find for all keys of the window
 *     merge    the winners with the stored lists, in this process
 *     write    one bulk call with an update for each document that changes, guarded by the whole
 *              state that was read:
 *
 *                 {_id, key, classes, deleted_classes, _wm, _rev: as read, _intent: absent}
 *                     -> {$set: ...}
 *                 {key} -> {$setOnInsert: ...}, upsert, if there was no document
 *
 * The guard is the whole state. So the write has the effect of applying the winners one by one, or
 * no effect. The state never returns to an earlier one (ranks and `_wm` only increase). A write
 * that takes effect late, after the call gave up waiting for its reply, therefore finds another
 * state and changes nothing, or finds the same state and is correct.
 *
 * A document is tried again if its guard did not match, if its key was a duplicate, or if the reply
 * was lost. After TRIES_MAX tries, all operations on the document are applied one by one by
 * set_write_form.c, whose updates compare only the name. If a write may have failed because of one
 * operation, each half of the document's operations is tried separately, and so on. One bad
 * operation of n then costs about log2(n) writes.
 *
 * A batch does not wait for a document that a commit holds, because other callers wait for the
 * batch. It returns those operations to their callers (SET_OUTCOME_HELD).
 *
 * A crash leaves some documents of the window written and others not. When the batch is delivered
 * again, the operations that are stored are DUPLICATE.
 */

/* The operations on one document: operations[from] to operations[to - 1], and its winners,
 * winners[first] to winners[last - 1]. */
struct set_group {
    size_t from, to, first, last;
    /* The number of tries so far. After TRIES_MAX tries, the operations are applied one by one. */
    int tries;
    /* `done`: all operations of the group have their results. `seen`: the current window has read
     * or merged the document. */
    bool done, seen;
    /* The stored state shows that nothing must be written. */
    bool unchanged;
    /* The whole document must be read, because it is short of space. */
    bool whole;
};

/* The operations of a batch, and the state of their application. */
struct set_batch {
    truce_set *set;
    struct set_operation *operations;
    const struct set_operation **winners;
    /* decisions[i]: the decision of winner i. */
    enum set_decision *decisions;
    /* passed[i]: the number of operations after winner i for which there is no space. */
    uint32_t *passed;
    struct set_group *groups;
    /* The number of groups, and the number of groups that are not done. */
    size_t groups_count, left;
    /* A group was divided, so the next try need not wait. */
    bool divided;
    struct set_scratch scratch;
};

/* One update of the window, and the groups that it was built from. */
struct set_draft {
    struct set_group *group;
    bson_t filter, update;
};

/* A part of the documents of a batch: one that is read, merged, and written together. */
struct set_window {
    struct set_batch *batch;
    /* The groups of the window, sorted by the hashes of their keys. */
    struct set_group **groups;
    size_t count;
    /* The window has one document, which is short of space and is read as a whole. */
    bool whole;
    struct set_draft *drafts;
    /* The number of drafts, and the sum of their sizes. */
    size_t drafts_count, bytes;
};

/* ---- rewrites -------------------------------------------------------------------------------- */

/* If the store can rewrite (truce/sys/store.h), the winners are merged into each document inside
 * the store's own write. */

/* The result of a group. A group of the kind OUTCOME_OPEN is tried again. */
struct rewrite_outcome {
    enum { OUTCOME_OPEN, OUTCOME_SETTLED, OUTCOME_HELD, OUTCOME_FAILED } kind;
    /* The failure of a group of the kind OUTCOME_FAILED. `why` is owned. */
    truce_status status;
    bson_error_t *why;
};

/* The merges of a window inside the store's write. */
struct rewriting {
    /* Must be the first field: the functions of the rewrite get a pointer to it. */
    truce_rewrite base;
    const struct set_window *window;
    /* rewrite_outcomes[i]: the result of group i of the window. Owned. */
    struct rewrite_outcome *rewrite_outcomes;
};

static void set_group_fail(struct set_batch *batch, struct set_group *group, truce_status status,
                           const bson_error_t *why);
static bool set_group_split(struct set_batch *batch, struct set_group *group, truce_status status);
static void set_group_hand_back(struct set_batch *batch, struct set_group *group);
static void set_group_settle(struct set_batch *batch, struct set_group *group);

static struct rewrite_outcome *rewrite_outcome_of(truce_rewrite *rewrite, size_t number)
{
    return &((struct rewriting *)rewrite)->rewrite_outcomes[number];
}

static void fail_outcome(struct rewrite_outcome *rewrite_outcome, truce_status status,
                         const bson_error_t *why)
{
    rewrite_outcome->kind = OUTCOME_FAILED;
    rewrite_outcome->status = status;
    if (!rewrite_outcome->why)
        rewrite_outcome->why = bson_malloc(sizeof *rewrite_outcome->why);
    *rewrite_outcome->why = *why;
}

static void begin_rewriting(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        rewrite_outcome_of(rewrite, i)->kind = OUTCOME_OPEN;
}

/* Appends {_id, key}, the new document without lists. */
static void set_document_begin(const truce_set *set, const bson_t *key, bson_t *document)
{
    struct value root = truce__value_document(key);
    struct value id = truce__value_field(root, "_id", 3);
    bson_oid_t fresh;

    if (id.type == VALUE_MISSING) {
        truce__id_new(&fresh);
        bson_append_oid(document, "_id", 3, &fresh);
    } else {
        truce__value_append(document, "_id", 3, id);
    }
    for (uint32_t i = 0; i < set->keys_count; i++) {
        size_t length = strlen(set->keys[i]);

        if (strcmp(set->keys[i], "_id"))
            truce__value_append(document, set->keys[i], length,
                                truce__value_field(root, set->keys[i], length));
    }
}

/* Copies `before` with other lists, and with a new revision if it has one. */
static void append_changed(const bson_t *before, const bson_t *lists, bson_t *after)
{
    struct value changed = truce__value_document(lists);
    struct fields fields = truce__fields(truce__value_document(before));
    bool renew = truce__set_has_revision(before);

    while (truce__fields_next(&fields)) {
        struct value list = truce__value_field(changed, fields.key, fields.key_length);

        if (renew && !strcmp(fields.key, "_rev"))
            truce__set_revision_append(after);
        else
            truce__value_append(after, fields.key, fields.key_length,
                                list.type == VALUE_MISSING ? fields.value : list);
    }
    fields = truce__fields(changed);
    while (truce__fields_next(&fields)) {
        if (truce__value_field(truce__value_document(before), fields.key, fields.key_length).type ==
            VALUE_MISSING)
            truce__value_append(after, fields.key, fields.key_length, fields.value);
    }
}

/* Makes the new document of a group inside the store's write. Returns false if nothing can or must
 * be written. A document that a commit holds is not changed. */
static bool rewrite_make_document(truce_rewrite *rewrite, size_t number, const bson_t *before,
                                  bson_t *after)
{
    const struct set_window *window = ((struct rewriting *)rewrite)->window;
    struct set_batch *batch = window->batch;
    struct set_group *group = window->groups[number];
    struct rewrite_outcome *rewrite_outcome = rewrite_outcome_of(rewrite, number);
    struct set_merge merge = {.scratch = &batch->scratch,
                              .winners = batch->winners + group->first,
                              .count = group->last - group->first,
                              .whole = true,
                              .end = batch->operations + group->to,
                              .decisions = batch->decisions + group->first,
                              .passed = batch->passed + group->first};
    bson_t begun = BSON_INITIALIZER;
    bson_error_t why = {0};
    truce_status status;

    if (before && !truce__intent_absent(before)) {
        rewrite_outcome->kind = OUTCOME_HELD;
        return false;
    }
    if (!before) {
        set_document_begin(batch->set, rewrite->keys[number], &begun);
        before = &begun;
    }
    status = truce__set_merge(batch->set, before, &merge, &why);
    if (!status && merge.changed)
        append_changed(before, &merge.change, after);
    bson_destroy(&merge.change);
    bson_destroy(&begun);
    if (status)
        fail_outcome(rewrite_outcome, status, &why);
    else
        rewrite_outcome->kind = OUTCOME_SETTLED;
    return !status && merge.changed;
}

static void refuse_document(truce_rewrite *rewrite, size_t number, truce_status status,
                            const bson_error_t *why)
{
    if (status == TRUCE_DUPLICATE || truce__repeatable(status))
        rewrite_outcome_of(rewrite, number)->kind = OUTCOME_OPEN;
    else
        fail_outcome(rewrite_outcome_of(rewrite, number), status, why);
}

/* Gives the operations of a group the result of the rewrite. An open group stays without a result
 * and is tried again. A failed group is divided if that can help, and otherwise fails. */
static void apply_outcome(struct set_batch *batch, struct set_group *group,
                          const struct rewrite_outcome *rewrite_outcome)
{
    switch (rewrite_outcome->kind) {
    case OUTCOME_OPEN:
        return;
    case OUTCOME_SETTLED:
        set_group_settle(batch, group);
        return;
    case OUTCOME_HELD:
        set_group_hand_back(batch, group);
        return;
    case OUTCOME_FAILED:
        if (set_group_split(batch, group, rewrite_outcome->status))
            return;
        set_group_fail(batch, group, rewrite_outcome->status, rewrite_outcome->why);
        return;
    }
}

/* Returns whether no caller of the window waits for the disk here. */
static bool set_window_is_relaxed(const struct set_window *window)
{
    for (size_t i = 0; i < window->count; i++)
        for (size_t k = window->groups[i]->from; k < window->groups[i]->to; k++)
            if (!window->batch->operations[k].call->relaxed)
                return false;
    return true;
}

/* Applies a window inside the store's write. Without an index of the key, or without a reply, the
 * window is left to the next try. */
static void set_rewrite_window(struct set_window *window)
{
    const struct set_batch *batch = window->batch;
    const bson_t **keys = bson_malloc(window->count * sizeof *keys);
    struct rewriting rewriting = {.base = {.collection = batch->set->collection,
                                           .keys = keys,
                                           .count = window->count,
                                           .begin = begin_rewriting,
                                           .make = rewrite_make_document,
                                           .refuse = refuse_document,
                                           .relaxed = set_window_is_relaxed(window)},
                                  .window = window};
    bson_error_t why = {0};
    truce_status status;

    rewriting.rewrite_outcomes = bson_malloc0(window->count * sizeof *rewriting.rewrite_outcomes);
    for (size_t i = 0; i < window->count; i++)
        keys[i] = batch->operations[window->groups[i]->from].given->key;
    status = truce__store_rewrite(batch->set->store, &rewriting.base, &why);
    for (size_t i = 0; i < window->count; i++) {
        if (!status)
            apply_outcome(window->batch, window->groups[i], &rewriting.rewrite_outcomes[i]);
        else if (status != TRUCE_NOT_FOUND && !truce__store_repeatable(batch->set->store, status))
            set_group_fail(window->batch, window->groups[i], status, &why);
        bson_free(rewriting.rewrite_outcomes[i].why);
    }
    bson_free(rewriting.rewrite_outcomes);
    bson_free(keys);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The maximum number of documents in a window that is read. */
#define WINDOW_DOCUMENTS 512
/* The maximum number of documents in a window that is rewritten. Only the outcome of each document
 * is kept in memory, so the window may be larger than one that is read. */
#define REWRITE_DOCUMENTS 1024
#define WINDOW_BYTES      (8 * 1024 * 1024)
#define TRIES_MAX         4

/* ---- results ---- */

static truce_set_result *batch_result_of(const struct set_operation *operation)
{
    return &operation->call->results[operation->number];
}

static void fail_operation(const struct set_operation *operation, truce_status status,
                           const bson_error_t *why)
{
    batch_result_of(operation)->status = status;
    truce__set_call_fail(operation->call, operation->number, status, why);
}

static void batch_finish(struct set_batch *batch, struct set_group *group)
{
    truce_assert(!group->done && batch->left > 0);
    group->done = true;
    batch->left--;
}

static void set_group_fail(struct set_batch *batch, struct set_group *group, truce_status status,
                           const bson_error_t *why)
{
    for (size_t i = group->from; i < group->to; i++)
        fail_operation(&batch->operations[i], status, why);
    batch_finish(batch, group);
}

/* Divides a group in two by names; if it has one name, into single operations. */
static void divide_group(struct set_batch *batch, struct set_group *group)
{
    size_t middle = group->first + (group->last - group->first) / 2;
    struct set_group *other;

    group->tries = TRIES_MAX;
    if (middle == group->first)
        return;
    group->tries = 0;
    /* The array has space for one group for each winner, so it never grows. */
    other = &batch->groups[batch->groups_count++];
    *other = *group;
    other->first = group->last = middle;
    other->from = group->to = (size_t)(batch->winners[middle] - batch->operations);
    batch->left++;
}

/* Divides a group whose write may have failed because of one of its operations, so that each half
 * gets a separate try. Returns false if that cannot help. */
static bool set_group_split(struct set_batch *batch, struct set_group *group, truce_status status)
{
    if (group->to - group->from == 1 || group->tries > TRIES_MAX ||
        (status != TRUCE_LIMIT && status != TRUCE_INVALID && status != TRUCE_DUPLICATE))
        return false;
    batch->divided = true;
    if (status == TRUCE_LIMIT && !group->whole)
        group->tries = 0;
    else
        divide_group(batch, group);
    group->whole = true;
    return true;
}

static void hand_back(const struct set_operation *operation)
{
    *batch_result_of(operation) = (truce_set_result){TRUCE_OK, SET_OUTCOME_HELD};
    operation->call->held = true;
}

static void set_group_hand_back(struct set_batch *batch, struct set_group *group)
{
    for (size_t i = group->from; i < group->to; i++)
        hand_back(&batch->operations[i]);
    batch_finish(batch, group);
}

static void settle_below(struct set_batch *batch, const struct set_operation *operation)
{
    truce_set_result *result = batch_result_of(operation);
    bson_error_t why = {0};

    if (truce__number_recorded(batch->set, operation->rank.source, operation->rank.seq)) {
        *result = (truce_set_result){TRUCE_OK, TRUCE_SET_DUPLICATE};
        return;
    }
    result->status = truce__set_below(batch->set, operation, &result->outcome, &why);
    if (result->status)
        fail_operation(operation, result->status, &why);
}

static truce_set_outcome batch_outcome_of(enum set_decision decision)
{
    return decision == SET_OPEN    ? TRUCE_SET_APPLIED
           : decision == SET_STALE ? TRUCE_SET_STALE
                                   : TRUCE_SET_DUPLICATE;
}

static void batch_apply_alone(struct set_batch *batch, const struct set_operation *operation)
{
    truce_set_result *result = batch_result_of(operation);
    bson_error_t why = {0};

    result->status = truce__set_apply_one(batch->set, operation, NULL, &result->outcome, &why);
    if (result->status)
        fail_operation(operation, result->status, &why);
    else if (result->outcome == SET_OUTCOME_HELD)
        hand_back(operation);
}

static void fail_full(struct set_batch *batch, size_t from, size_t to)
{
    bson_error_t why;
    truce_status status =
        truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, &why, "the document would exceed %d bytes",
                      TRUCE_DOCUMENT_BYTES_MAX);

    for (size_t i = from; i < to; i++)
        fail_operation(&batch->operations[i], status, &why);
}

/* Settles the operations on one name: those from `from` to `to` - 1. The first of them has
 * `decision`. */
static void batch_settle_name(struct set_batch *batch, size_t from, size_t to,
                              enum set_decision decision)
{
    const struct set_operation *operations = batch->operations;

    for (size_t i = from; i < to; i++) {
        truce_set_result *result = batch_result_of(&operations[i]);

        if (decision == SET_BELOW) {
            settle_below(batch, &operations[i]);
            continue;
        }
        result->status = TRUCE_OK;
        if (i == from)
            result->outcome = batch_outcome_of(decision);
        else if (!truce__set_rank_compare(&operations[i].rank, &operations[i - 1].rank))
            result->outcome = TRUCE_SET_DUPLICATE;
        else
            result->outcome = TRUCE_SET_STALE;
    }
}

static void set_group_settle(struct set_batch *batch, struct set_group *group)
{
    for (size_t w = group->first; w < group->last; w++) {
        size_t from = (size_t)(batch->winners[w] - batch->operations);
        size_t to =
            w + 1 < group->last ? (size_t)(batch->winners[w + 1] - batch->operations) : group->to;
        size_t fits = batch->decisions[w] == SET_FULL ? to : from + batch->passed[w];

        if (from < fits)
            fail_full(batch, from, fits);
        batch_settle_name(batch, fits, to, batch->decisions[w]);
    }
    batch_finish(batch, group);
}

/* ---- drafts ---- */

/* Adds the guarded update of a group to the bulk of the window. A document without an _id is not
 * stored: the update is then an upsert that only inserts. */
static void add_draft(struct set_window *window, struct set_group *group, const bson_t *document,
                      const bson_t *change)
{
    const truce_set *set = window->batch->set;
    struct set_draft *draft = &window->drafts[window->drafts_count++];
    struct value id = truce__value_field(truce__value_document(document), "_id", 3);

    draft->group = group;
    bson_init(&draft->filter);
    bson_init(&draft->update);
    if (id.type == VALUE_MISSING) {
        truce__set_key_append(set, window->batch->operations[group->from].given->key,
                              &draft->filter);
        bson_append_document(&draft->update, "$setOnInsert", -1, change);
    } else {
        truce__set_state_append(set, document, &draft->filter);
        truce__set_change_append(document, change, &draft->update);
    }
    window->bytes += draft->filter.len + draft->update.len;
}

/* Merges a group with `document`, which is empty if none is stored. */
static void merge_group(struct set_window *window, struct set_group *group, const bson_t *document)
{
    struct set_batch *batch = window->batch;
    struct set_merge merge = {.scratch = &batch->scratch,
                              .winners = batch->winners + group->first,
                              .count = group->last - group->first,
                              .whole = window->whole,
                              .end = batch->operations + group->to,
                              .decisions = batch->decisions + group->first,
                              .passed = batch->passed + group->first};
    bson_t begun = BSON_INITIALIZER;
    bson_error_t why = {0};
    truce_status status;

    group->seen = true;
    if (!truce__intent_absent(document)) {
        set_group_hand_back(batch, group);
        return;
    }
    if (window->whole && bson_empty(document))
        set_document_begin(batch->set, batch->operations[group->from].given->key, &begun);
    status = truce__set_merge(batch->set, bson_empty(&begun) ? document : &begun, &merge, &why);
    bson_destroy(&begun);
    if (status && !set_group_split(batch, group, status))
        set_group_fail(batch, group, status, &why);
    else if (!status && !merge.changed)
        group->unchanged = true;
    else if (!status)
        add_draft(window, group, document, &merge.change);
    bson_destroy(&merge.change);
}

/* ---- read ---- */

/* Appends {key: {$in: [...]}}, or {$or: [{...}, ...]} for a key of several fields. */
static void append_keys(const struct set_window *window, bson_t *filter)
{
    const truce_set *set = window->batch->set;
    bool single = set->keys_count == 1;
    bson_t outer, list;
    uint32_t index = 0;

    if (single)
        bson_append_document_begin(filter, set->keys[0], -1, &outer);
    bson_append_array_begin(single ? &outer : filter, single ? "$in" : "$or", -1, &list);
    for (size_t i = 0; i < window->count; i++) {
        const bson_t *key = window->batch->operations[window->groups[i]->from].given->key;

        truce__value_append_element(&list, &index,
                                    single ? truce__value_field(truce__value_document(key),
                                                                set->keys[0], strlen(set->keys[0]))
                                           : truce__value_document(key));
    }
    bson_append_array_end(single ? &outer : filter, &list);
    if (single)
        bson_append_document_end(filter, &outer);
}

static void append_projection(const truce_set *set, bson_t *projection)
{
    for (uint32_t i = 0; i < set->keys_count; i++)
        bson_append_int32(projection, set->keys[i], -1, 1);
    bson_append_int32(projection, set->field, -1, 1);
    bson_append_int32(projection, set->deleted, -1, 1);
    bson_append_int32(projection, set->watermark, -1, 1);
    bson_append_int32(projection, "_rev", 4, 1);
    bson_append_int32(projection, "_intent", 7, 1);
}

/* Returns the group of a document by its key, or NULL. */
static struct set_group *batch_group_of(const struct set_window *window, const bson_t *document)
{
    const struct set_batch *batch = window->batch;
    uint64_t hash = truce__set_key_hash(batch->set, document);
    size_t low = 0, high = window->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (batch->operations[window->groups[middle]->from].key_hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < window->count; low++) {
        const struct set_operation *first = &batch->operations[window->groups[low]->from];

        if (first->key_hash != hash)
            break;
        if (truce__set_key_equal(batch->set, first->given->key, document))
            return window->groups[low];
    }
    return NULL;
}

/* Reads the documents of a window, and merges each one as it arrives. Stops early if the changes
 * fill a bulk. */
static truce_status window_read_documents(struct set_window *window, bson_error_t *error)
{
    const truce_set *set = window->batch->set;
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = window->whole ? NULL : &projection, .early = true};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status;

    append_keys(window, &filter);
    append_projection(set, &projection);
    status = truce_find(set->store, set->collection, &filter, &options, &cursor, error);
    while (!status && window->bytes < WINDOW_BYTES) {
        struct set_group *group;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        group = batch_group_of(window, document);
        if (group && !group->seen)
            merge_group(window, group, document);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&projection);
    return status;
}

/* ---- write ---- */

/* Settles the group of a draft if its update took effect. After a lost race or a lost reply, the
 * group stays without a result and is tried again. */
static void batch_take_outcome(struct set_window *window, struct set_draft *draft,
                               const truce_write_outcome *outcome, truce_status bulk_status)
{
    struct set_batch *batch = window->batch;
    truce_status status = outcome->status;

    if (!status && (outcome->result.modified || outcome->result.upserted)) {
        set_group_settle(batch, draft->group);
        return;
    }
    /* The bulk ended before this write. */
    if (status == TRUCE_NOT_FOUND)
        status = bulk_status;
    /* Another process has inserted the document, so the group is tried again. */
    if (status == TRUCE_DUPLICATE && bson_has_field(&draft->update, "$setOnInsert"))
        return;
    if (status && !truce__store_repeatable(batch->set->store, status) &&
        !set_group_split(batch, draft->group, status))
        set_group_fail(batch, draft->group, status, &outcome->error);
}

/* Returns whether the bulk ran and therefore waited for the disk. */
static bool write_drafts(struct set_window *window)
{
    static const truce_bulk_options options = {.unordered = true};
    size_t count = window->drafts_count;
    truce_write *writes;
    truce_write_outcome *outcomes;
    truce_status status;

    if (!count)
        return false;
    writes = bson_malloc0(count * sizeof *writes);
    outcomes = bson_malloc0(count * sizeof *outcomes);
    for (size_t i = 0; i < count; i++) {
        struct set_draft *draft = &window->drafts[i];

        writes[i] =
            (truce_write){.kind = TRUCE_WRITE_UPDATE,
                          .collection = window->batch->set->collection,
                          .filter = &draft->filter,
                          .document = &draft->update,
                          .options = {.upsert = bson_has_field(&draft->update, "$setOnInsert")}};
    }
    status = truce_bulk(window->batch->set->store, writes, count, &options, outcomes, NULL);
    for (size_t i = 0; i < count; i++) {
        batch_take_outcome(window, &window->drafts[i], &outcomes[i], status);
        truce_write_result_release(&outcomes[i].result);
    }
    bson_free(writes);
    bson_free(outcomes);
    return !status || status == TRUCE_DUPLICATE;
}

/* Settles groups that need no write, after the state that was read is durable. */
static void settle_unchanged(struct set_window *window, bool waited)
{
    struct set_batch *batch = window->batch;
    bson_error_t why = {0};
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < window->count; i++) {
        struct set_group *group = window->groups[i];

        if (!group->unchanged || group->done)
            continue;
        if (!waited)
            status = truce_settle(batch->set->store, &why);
        waited = true;
        if (status)
            set_group_fail(batch, group, status, &why);
        else
            set_group_settle(batch, group);
    }
}

/* ---- windows ---- */

static void apply_one_by_one(struct set_batch *batch, struct set_group *group)
{
    for (size_t i = group->from; i < group->to; i++)
        batch_apply_alone(batch, &batch->operations[i]);
    batch_finish(batch, group);
}

/* Makes one try of a window without a rewrite: reads its documents, merges, and writes the changed
 * ones by one bulk. Groups that got no result are tried again. */
static void window_read_and_write(struct set_window *window)
{
    static const bson_t none = BSON_INITIALIZER;
    struct set_batch *batch = window->batch;
    bson_error_t why = {0};
    truce_status status;

    if (!window->drafts)
        window->drafts = bson_malloc(WINDOW_DOCUMENTS * sizeof *window->drafts);
    window->drafts_count = window->bytes = 0;
    for (size_t i = 0; i < window->count; i++)
        window->groups[i]->seen = false;
    status = window_read_documents(window, &why);
    for (size_t i = 0; !status && i < window->count && window->bytes < WINDOW_BYTES; i++) {
        if (!window->groups[i]->seen && !window->groups[i]->done)
            merge_group(window, window->groups[i], &none);
    }
    if (!status || truce__store_repeatable(batch->set->store, status))
        settle_unchanged(window, write_drafts(window));
    for (size_t i = 0;
         status && !truce__store_repeatable(batch->set->store, status) && i < window->count; i++) {
        if (!window->groups[i]->done)
            set_group_fail(batch, window->groups[i], status, &why);
    }
    for (size_t i = 0; i < window->count && window->bytes >= WINDOW_BYTES; i++) {
        /* The draft did not fit into the bulk. This was not a lost race, so the try does not
         * count. */
        if (!window->groups[i]->seen)
            window->groups[i]->tries--;
    }
    for (size_t i = 0; i < window->drafts_count; i++) {
        bson_destroy(&window->drafts[i].filter);
        bson_destroy(&window->drafts[i].update);
    }
}

/* Fills the window with documents that are not done. Returns false if all are done. */
static bool batch_next_window(struct set_window *window, size_t room, size_t *at)
{
    struct set_batch *batch = window->batch;

    window->count = 0;
    window->whole = false;
    for (; *at < batch->groups_count && window->count < room && !window->whole; (*at)++) {
        struct set_group *group = &batch->groups[*at];

        if (group->done)
            continue;
        /* A document that is short of space gets a window of its own. */
        if (group->whole && group->tries < TRIES_MAX) {
            if (window->count)
                break;
            window->whole = true;
        }
        if (group->tries++ < TRIES_MAX)
            window->groups[window->count++] = group;
        else
            apply_one_by_one(batch, group);
    }
    return window->count > 0;
}

/* Runs passes over the groups that are not done, until all are. Only the first pass uses rewrites,
 * because the others handle documents whose rewrite failed. */
static void batch_run_passes(struct set_batch *batch)
{
    struct set_group *in_window[REWRITE_DOCUMENTS];
    struct set_window window = {.batch = batch, .groups = in_window};

    for (int pass = 0; batch->left; pass++) {
        bool rewrites = batch->set->rewrites && pass == 0;
        size_t at = 0;

        truce__set_pause(batch->divided ? 0 : pass);
        batch->divided = false;
        while (batch_next_window(&window, rewrites ? REWRITE_DOCUMENTS : WINDOW_DOCUMENTS, &at)) {
            if (rewrites)
                set_rewrite_window(&window);
            else
                window_read_and_write(&window);
        }
    }
    bson_free(window.drafts);
}

/* Builds the groups and winners of the sorted operations. */
static void batch_divide(struct set_batch *batch, size_t count)
{
    const struct set_operation *before = NULL;
    size_t winners = 0;

    for (size_t i = 0; i < count; i++) {
        const struct set_operation *now = &batch->operations[i];
        bool same_key = before && before->key_hash == now->key_hash &&
                        truce__set_key_equal(batch->set, before->given->key, now->given->key);

        if (!same_key)
            batch->groups[batch->groups_count++] = (struct set_group){.from = i, .first = winners};
        if (!same_key || before->name_hash != now->name_hash ||
            !truce__set_name_equal(before->name, now->name))
            batch->winners[winners++] = now;
        batch->groups[batch->groups_count - 1].to = i + 1;
        batch->groups[batch->groups_count - 1].last = winners;
        before = now;
    }
    batch->left = batch->groups_count;
}

static enum set_decision decision_of(truce_set_outcome outcome)
{
    return outcome == TRUCE_SET_APPLIED       ? SET_OPEN
           : outcome == TRUCE_SET_STALE       ? SET_STALE
           : outcome == TRUCE_SET_QUARANTINED ? SET_BELOW
                                              : SET_DUPLICATE;
}

/* Applies the winners in the layout by element, where each winner is a document. */
static void run_elements(struct set_batch *batch)
{
    size_t count = batch->groups_count ? batch->groups[batch->groups_count - 1].last : 0;
    truce_set_result *of_winners = bson_malloc0(count * sizeof *of_winners);
    bson_error_t why = {0};
    truce_status status =
        truce__set_element_batch(batch->set, batch->winners, count, of_winners, &why);

    for (size_t g = 0; g < batch->groups_count; g++) {
        struct set_group *group = &batch->groups[g];

        for (size_t w = group->first; w < group->last; w++) {
            batch->decisions[w] = decision_of(of_winners[w].outcome);
        }
        set_group_settle(batch, group);
    }
    for (size_t w = 0; w < count; w++) {
        if (status && of_winners[w].status)
            fail_operation(batch->winners[w], of_winners[w].status, &why);
        else if (of_winners[w].outcome == SET_OUTCOME_HELD)
            hand_back(batch->winners[w]);
    }
    bson_free(of_winners);
}

void truce__set_apply_batch(truce_set *set, struct set_operation *operations, size_t count)
{
    struct set_batch batch = {.set = set, .operations = operations};

    truce__set_fold(set, operations, count);
    batch.winners = bson_malloc(count * sizeof *batch.winners);
    batch.decisions = bson_malloc0(count * sizeof *batch.decisions);
    batch.passed = bson_malloc0(count * sizeof *batch.passed);
    batch.groups = bson_malloc0(count * sizeof *batch.groups);
    batch_divide(&batch, count);
    if (set->layout == TRUCE_SET_BY_ELEMENT)
        run_elements(&batch);
    else
        batch_run_passes(&batch);
    truce_assert(!batch.left);
    truce__set_scratch_release(&batch.scratch);
    bson_free(batch.winners);
    bson_free(batch.decisions);
    bson_free(batch.passed);
    bson_free(batch.groups);
}
