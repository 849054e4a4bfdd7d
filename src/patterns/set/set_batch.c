/*
 * Batches. After the fold each document has a group of operations, sorted by name with the winner
 * of each name in front. Documents are done in windows of some hundreds.
 *
 * A store that can rewrite (sys/store.h) merges the winners into each document inside its own write:
 *
 *     {student_id: 5}  ->  what stands  --merge-->  what is to stand
 *
 * Nothing lies between what was read and what is written, so there is no guard and no race, and the
 * documents of a window are written all at once, or none. The other stores, and what a rewriting
 * refused as a duplicate or left without an answer, take three steps:
 *
 *     look     one find for all keys of the window
 *     merge    the winners against what stands, in this process
 *     write    one bulk call, one update for each document that is to change, guarded by the old
 *              state of everything that was looked at:
 *
 *                 {_id, key, classes, deleted_classes, _wm, _rev: as read, _intent: absent}
 *                                                                        -> {$set: ...}
 *                 {key} -> {$setOnInsert: ...}, upsert, where there was no document
 *
 * The guard is the whole state, so the write does what applying the winners one by one would do, or
 * nothing. The state never returns to an earlier one (ranks and `_wm` only rise), so a write that
 * lands late, after its answer was given up, finds another state and changes nothing, or finds the
 * same and is right. A guard that did not match, a duplicate key, an answer that was lost: the
 * document goes into the next round; after ROUNDS of them its winners are applied one by one with
 * the guarded updates of set_form.c, which do not lose races. A document that is refused for what may be
 * the fault of one of its operations is tried with each half of them, one after the other, and so on: one
 * in n that is refused costs some log2(n) writes. A document that a commit holds is not
 * waited for here, where others wait for the round: its operations are handed back to their callers
 * (SET_OUTCOME_HELD). A crash leaves some documents of the
 * window written and others not: the batch is delivered again, and what stands is DUPLICATE.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/id.h"
#include "base/limits.h"
#include "patterns/set/set.h"
#include "store/store.h"

/* The operations of one document: operations[from, to), winners[first, last). */
struct set_group {
    size_t from, to, first, last;
    int rounds;
    bool done, seen; /* seen: in this window's answer */
    bool unchanged;  /* what was seen says it all */
    bool whole;      /* its document is looked at whole: it is short of room */
};

struct set_batch {
    truce_set *set;
    struct set_operation *operations;
    const struct set_operation **winners;
    enum set_verdict *verdicts; /* of the winners */
    uint32_t *passed;           /* behind each of them: how many have no room */
    struct set_group *groups;
    size_t groups_count, left; /* left: not done */
    bool divided;              /* some were, in this round */
    struct set_scratch scratch;
};

/* One update of the window, and the documents that it is made of. */
struct set_draft {
    struct set_group *group;
    bson_t filter, update;
};

struct set_window {
    struct set_batch *batch;
    struct set_group **groups; /* sorted by key hash */
    size_t count;
    bool whole; /* it is of one document, which is short of room */
    struct set_draft *drafts;
    size_t drafts_count, bytes;
};

/* ---- rewrites -------------------------------------------------------------------------------- */

/* If the store can rewrite (truce/sys/store.h), the winners are merged into each document inside the store's own
 * write. */

/* What becomes of a group; open: another round. */
struct fate {
    enum { FATE_OPEN, FATE_SETTLED, FATE_HELD, FATE_FAILED } kind;
    truce_status status; /* failed, and why */
    bson_error_t *why;
};

struct rewriting {
    truce_rewrite base; /* first */
    const struct set_window *window;
    struct fate *fates; /* of the window's groups */
};

static void set_group_fail(struct set_batch *batch, struct set_group *group, truce_status status,
                           const bson_error_t *why);
static bool set_group_split(struct set_batch *batch, struct set_group *group, truce_status status);
static void set_group_hand_back(struct set_batch *batch, struct set_group *group);
static void set_group_settle(struct set_batch *batch, struct set_group *group);

static struct fate *fate_of(truce_rewrite *rewrite, size_t number)
{
    return &((struct rewriting *)rewrite)->fates[number];
}

static void fail_fate(struct fate *fate, truce_status status, const bson_error_t *why)
{
    fate->kind = FATE_FAILED;
    fate->status = status;
    if (!fate->why)
        fate->why = bson_malloc(sizeof *fate->why);
    *fate->why = *why;
}

static void begin_rewriting(truce_rewrite *rewrite)
{
    for (size_t i = 0; i < rewrite->count; i++)
        fate_of(rewrite, i)->kind = FATE_OPEN;
}

/* {_id, key}: what a document is before there are lists in it */
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

/* `before` with other lists, and another revision if it has one. */
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

static bool rewrite_make_document(truce_rewrite *rewrite, size_t number, const bson_t *before,
                                  bson_t *after)
{
    const struct set_window *window = ((struct rewriting *)rewrite)->window;
    struct set_batch *batch = window->batch;
    struct set_group *group = window->groups[number];
    struct fate *fate = fate_of(rewrite, number);
    struct set_merge merge = {.scratch = &batch->scratch,
                              .winners = batch->winners + group->first,
                              .count = group->last - group->first,
                              .whole = true,
                              .end = batch->operations + group->to,
                              .verdicts = batch->verdicts + group->first,
                              .passed = batch->passed + group->first};
    bson_t begun = BSON_INITIALIZER;
    bson_error_t why = {0};
    truce_status status;

    if (before && !truce__intent_absent(before)) {
        fate->kind = FATE_HELD;
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
        fail_fate(fate, status, &why);
    else
        fate->kind = FATE_SETTLED;
    return !status && merge.changed;
}

static void refuse_document(truce_rewrite *rewrite, size_t number, truce_status status,
                            const bson_error_t *why)
{
    if (status == TRUCE_DUPLICATE || truce__repeatable(status))
        fate_of(rewrite, number)->kind = FATE_OPEN;
    else
        fail_fate(fate_of(rewrite, number), status, why);
}

static void meet_fate(struct set_batch *batch, struct set_group *group, const struct fate *fate)
{
    switch (fate->kind) {
    case FATE_OPEN:
        return;
    case FATE_SETTLED:
        set_group_settle(batch, group);
        return;
    case FATE_HELD:
        set_group_hand_back(batch, group);
        return;
    case FATE_FAILED:
        if (set_group_split(batch, group, fate->status))
            return;
        set_group_fail(batch, group, fate->status, fate->why);
        return;
    }
}

/* Without an index of the key, or an answer, the window is left to the next round. */
static void set_rewrite_window(struct set_window *window)
{
    const struct set_batch *batch = window->batch;
    const bson_t **keys = bson_malloc(window->count * sizeof *keys);
    struct rewriting rewriting = {.base = {.collection = batch->set->collection,
                                           .keys = keys,
                                           .count = window->count,
                                           .begin = begin_rewriting,
                                           .make = rewrite_make_document,
                                           .refuse = refuse_document},
                                  .window = window};
    bson_error_t why = {0};
    truce_status status;

    rewriting.fates = bson_malloc0(window->count * sizeof *rewriting.fates);
    for (size_t i = 0; i < window->count; i++)
        keys[i] = batch->operations[window->groups[i]->from].given->key;
    status = truce__store_rewrite(batch->set->store, &rewriting.base, &why);
    for (size_t i = 0; i < window->count; i++) {
        if (!status)
            meet_fate(window->batch, window->groups[i], &rewriting.fates[i]);
        else if (status != TRUCE_NOT_FOUND && !truce__repeatable(status))
            set_group_fail(window->batch, window->groups[i], status, &why);
        bson_free(rewriting.fates[i].why);
    }
    bson_free(rewriting.fates);
    bson_free(keys);
}

/* ---- the fold -------------------------------------------------------------------------------- */

/* Folding a batch: its operations in the order of (document, name, rank falling), so that the first
 * of each name is the one that in-order delivery of the batch would leave. */

static struct value key_field(const truce_set *set, const bson_t *key, uint32_t i)
{
    return truce__value_field(truce__value_document(key), set->keys[i], strlen(set->keys[i]));
}

uint64_t truce__set_key_hash(const truce_set *set, const bson_t *key)
{
    uint64_t hash = 0;

    for (uint32_t i = 0; i < set->keys_count; i++)
        hash = hash * 0x9e3779b97f4a7c15u + truce__value_hash(key_field(set, key, i));
    return hash;
}

bool truce__set_name_equal(struct value a, struct value b)
{
    if (a.type == b.type && a.type == BSON_TYPE_UTF8)
        return a.size == b.size && !memcmp(a.data, b.data, a.size);
    return truce__value_equal(a, b);
}

static int compare_keys(const truce_set *set, const bson_t *a, const bson_t *b)
{
    for (uint32_t i = 0; i < set->keys_count; i++) {
        int order = truce__value_compare(key_field(set, a, i), key_field(set, b, i));

        if (order)
            return order;
    }
    return 0;
}

bool truce__set_key_equal(const truce_set *set, const bson_t *a, const bson_t *b)
{
    return compare_keys(set, a, b) == 0;
}

static int fold_compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int fold_compare(const void *left, const void *right, void *arg)
{
    const struct set_operation *a = left, *b = right;
    int order = fold_compare_numbers(a->key_hash, b->key_hash);

    if (!order)
        order = compare_keys(arg, a->given->key, b->given->key);
    if (!order)
        order = fold_compare_numbers(a->name_hash, b->name_hash);
    if (!order)
        order = truce__value_compare(a->name, b->name);
    if (!order)
        order = truce__set_rank_compare(&b->rank, &a->rank);
    if (!order)
        order = fold_compare_numbers((uintptr_t)a->call, (uintptr_t)b->call);
    return order ? order : fold_compare_numbers(a->number, b->number);
}

void truce__set_fold(const truce_set *set, struct set_operation *operations, size_t count)
{
    qsort_r(operations, count, sizeof *operations, fold_compare, (void *)set);
}

/* ---- windows --------------------------------------------------------------------------------- */

#define WINDOW_DOCUMENTS  512
#define REWRITE_DOCUMENTS 1024 /* of a window that is rewritten: of each only its fate is kept */
#define WINDOW_BYTES      (8 * 1024 * 1024)
#define ROUNDS            4

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

/* In two by its names; the operations on one name, one by one. */
static void divide_group(struct set_batch *batch, struct set_group *group)
{
    size_t middle = group->first + (group->last - group->first) / 2;
    struct set_group *other;

    group->rounds = ROUNDS;
    if (middle == group->first)
        return;
    group->rounds = 0;
    other = &batch->groups[batch->groups_count++]; /* there is room for one for each winner */
    *other = *group;
    other->first = group->last = middle;
    other->from = group->to = (size_t)(batch->winners[middle] - batch->operations);
    batch->left++;
}

/* It was refused for what may be the fault of one of its operations: each half of them gets a try apart.
 * False: there is no other way. */
static bool set_group_split(struct set_batch *batch, struct set_group *group, truce_status status)
{
    if (group->to - group->from == 1 || group->rounds > ROUNDS ||
        (status != TRUCE_LIMIT && status != TRUCE_INVALID && status != TRUCE_DUPLICATE))
        return false;
    batch->divided = true;
    if (status == TRUCE_LIMIT && !group->whole)
        group->rounds = 0;
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

static truce_set_outcome batch_outcome_of(enum set_verdict verdict)
{
    return verdict == SET_OPEN    ? TRUCE_SET_APPLIED
           : verdict == SET_STALE ? TRUCE_SET_STALE
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
        truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, &why,
                      "the document would have more than %d bytes", TRUCE_DOCUMENT_BYTES_MAX);

    for (size_t i = from; i < to; i++)
        fail_operation(&batch->operations[i], status, &why);
}

/* The operations on one name, [from, to), the first of which met `verdict`. */
static void batch_settle_name(struct set_batch *batch, size_t from, size_t to,
                              enum set_verdict verdict)
{
    const struct set_operation *operations = batch->operations;

    for (size_t i = from; i < to; i++) {
        truce_set_result *result = batch_result_of(&operations[i]);

        if (verdict == SET_BELOW) {
            settle_below(batch, &operations[i]);
            continue;
        }
        result->status = TRUCE_OK;
        if (i == from)
            result->outcome = batch_outcome_of(verdict);
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
        size_t fits = batch->verdicts[w] == SET_FULL ? to : from + batch->passed[w];

        if (from < fits)
            fail_full(batch, from, fits);
        batch_settle_name(batch, fits, to, batch->verdicts[w]);
    }
    batch_finish(batch, group);
}

/* ---- drafts ---- */

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

/* `document` is empty if there is none. */
static void merge_group(struct set_window *window, struct set_group *group, const bson_t *document)
{
    struct set_batch *batch = window->batch;
    struct set_merge merge = {.scratch = &batch->scratch,
                              .winners = batch->winners + group->first,
                              .count = group->last - group->first,
                              .whole = window->whole,
                              .end = batch->operations + group->to,
                              .verdicts = batch->verdicts + group->first,
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

/* ---- look ---- */

/* {key: {$in: [...]}}, or {$or: [{...}, ...]} for a key of several fields */
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

static truce_status batch_look(struct set_window *window, bson_error_t *error)
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

static void batch_take_outcome(struct set_window *window, struct set_draft *draft,
                               const truce_write_outcome *outcome, truce_status bulk_status)
{
    struct set_batch *batch = window->batch;
    truce_status status = outcome->status;

    if (!status && (outcome->result.modified || outcome->result.upserted)) {
        set_group_settle(batch, draft->group);
        return;
    }
    if (status == TRUCE_NOT_FOUND) /* not reached */
        status = bulk_status;
    if (status == TRUCE_DUPLICATE && bson_has_field(&draft->update, "$setOnInsert"))
        return; /* somebody else made the document */
    if (status && !truce__repeatable(status) && !set_group_split(batch, draft->group, status))
        set_group_fail(batch, draft->group, status, &outcome->error);
}

/* Whether the bulk ran, and so has waited for the disk. */
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

/* What needs no write is told when what the look saw is on the disk. */
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

/* ---- windows and rounds ---- */

static void apply_one_by_one(struct set_batch *batch, struct set_group *group)
{
    for (size_t i = group->from; i < group->to; i++)
        batch_apply_alone(batch, &batch->operations[i]);
    batch_finish(batch, group);
}

static void look_and_write(struct set_window *window)
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
    status = batch_look(window, &why);
    for (size_t i = 0; !status && i < window->count && window->bytes < WINDOW_BYTES; i++) {
        if (!window->groups[i]->seen && !window->groups[i]->done)
            merge_group(window, window->groups[i], &none);
    }
    if (!status || truce__repeatable(status))
        settle_unchanged(window, write_drafts(window));
    for (size_t i = 0; status && !truce__repeatable(status) && i < window->count; i++) {
        if (!window->groups[i]->done)
            set_group_fail(batch, window->groups[i], status, &why);
    }
    for (size_t i = 0; i < window->count && window->bytes >= WINDOW_BYTES; i++) {
        if (!window->groups[i]->seen)
            window->groups[i]->rounds--; /* it did not fit, and lost no race */
    }
    for (size_t i = 0; i < window->drafts_count; i++) {
        bson_destroy(&window->drafts[i].filter);
        bson_destroy(&window->drafts[i].update);
    }
}

/* Fills the window with documents that are not done; false: there are none left. */
static bool batch_next_window(struct set_window *window, size_t room, size_t *at)
{
    struct set_batch *batch = window->batch;

    window->count = 0;
    window->whole = false;
    for (; *at < batch->groups_count && window->count < room && !window->whole; (*at)++) {
        struct set_group *group = &batch->groups[*at];

        if (group->done)
            continue;
        if (group->whole && group->rounds < ROUNDS) { /* alone */
            if (window->count)
                break;
            window->whole = true;
        }
        if (group->rounds++ < ROUNDS)
            window->groups[window->count++] = group;
        else
            apply_one_by_one(batch, group);
    }
    return window->count > 0;
}

static void batch_run_rounds(struct set_batch *batch)
{
    struct set_group *in_window[REWRITE_DOCUMENTS];
    struct set_window window = {.batch = batch, .groups = in_window};

    for (int round = 0; batch->left; round++) {
        bool rewrites = batch->set->rewrites && round == 0;
        size_t at = 0;

        truce__set_pause(batch->divided ? 0 : round);
        batch->divided = false;
        while (batch_next_window(&window, rewrites ? REWRITE_DOCUMENTS : WINDOW_DOCUMENTS, &at)) {
            if (rewrites)
                set_rewrite_window(&window);
            else
                look_and_write(&window);
        }
    }
    bson_free(window.drafts);
}

/* Groups and winners of the sorted operations. */
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

static enum set_verdict verdict_of(truce_set_outcome outcome)
{
    return outcome == TRUCE_SET_APPLIED       ? SET_OPEN
           : outcome == TRUCE_SET_STALE       ? SET_STALE
           : outcome == TRUCE_SET_QUARANTINED ? SET_BELOW
                                              : SET_DUPLICATE;
}

/* The layout by element: a winner is a document. */
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
            batch->verdicts[w] = verdict_of(of_winners[w].outcome);
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
    batch.verdicts = bson_malloc0(count * sizeof *batch.verdicts);
    batch.passed = bson_malloc0(count * sizeof *batch.passed);
    batch.groups = bson_malloc0(count * sizeof *batch.groups);
    batch_divide(&batch, count);
    if (set->layout == TRUCE_SET_BY_ELEMENT)
        run_elements(&batch);
    else
        batch_run_rounds(&batch);
    truce_assert(!batch.left);
    truce__set_scratch_release(&batch.scratch);
    bson_free(batch.winners);
    bson_free(batch.verdicts);
    bson_free(batch.passed);
    bson_free(batch.groups);
}
