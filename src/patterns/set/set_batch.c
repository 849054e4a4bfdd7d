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
#include "patterns/set/set_batch.h"
#include "base/assert.h"
#include "base/id.h"
#include "base/limits.h"
#include "store/store.h"

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

void truce__set_group_fail(struct set_batch *batch, struct set_group *group, truce_status status,
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

bool truce__set_group_split(struct set_batch *batch, struct set_group *group, truce_status status)
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

void truce__set_group_hand_back(struct set_batch *batch, struct set_group *group)
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

void truce__set_group_settle(struct set_batch *batch, struct set_group *group)
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
        truce__set_group_hand_back(batch, group);
        return;
    }
    if (window->whole && bson_empty(document))
        truce__set_document_begin(batch->set, batch->operations[group->from].given->key, &begun);
    status = truce__set_merge(batch->set, bson_empty(&begun) ? document : &begun, &merge, &why);
    bson_destroy(&begun);
    if (status && !truce__set_group_split(batch, group, status))
        truce__set_group_fail(batch, group, status, &why);
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
        truce__set_group_settle(batch, draft->group);
        return;
    }
    if (status == TRUCE_NOT_FOUND) /* not reached */
        status = bulk_status;
    if (status == TRUCE_DUPLICATE && bson_has_field(&draft->update, "$setOnInsert"))
        return; /* somebody else made the document */
    if (status && !truce__repeatable(status) &&
        !truce__set_group_split(batch, draft->group, status))
        truce__set_group_fail(batch, draft->group, status, &outcome->error);
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
            truce__set_group_fail(batch, group, status, &why);
        else
            truce__set_group_settle(batch, group);
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
            truce__set_group_fail(batch, window->groups[i], status, &why);
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
                truce__set_rewrite_window(&window);
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
        truce__set_group_settle(batch, group);
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
