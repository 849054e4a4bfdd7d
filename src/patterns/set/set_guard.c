/*
 * Tombstones of the layout by element, collected by proof. What stands against an older operation that is
 * still under way, once the tombstone is gone, is a guard: a document for each key, in
 * "<collection>.<field>.guards":
 *
 *     {_id: {student_id: 1}, _wm: 900}
 *
 * An operation inserts its element and THEN reads the guard of its key: a guard at or above its number
 * says that it is a repeat of what was collected (or was given up), and the element is withdrawn. So
 * what nobody has proved yet is judged by its number:
 *
 *   E1  An element without `_proved` whose number is at or below the guard is not there: readers leave it out,
 *       whoever meets it removes it.
 *   E2  The collector of watermark W, for one key: looks at the elements, THEN reads the guard; those above it and
 *       up to W are real, since no tombstone above the guard can have gone before they were inserted: they get
 *       `_proved`, each by a write that compares `_id` (each insert makes another one), number and source. THEN it raises the guard to W. THEN it
 *       removes the tombstones at or below W.
 *   E3  What replaces an element is not proved: its number is above the guard, or it is a repeat that
 *       replaces one that is not there.
 *
 * A crash anywhere leaves tombstones for the next round, or elements that are not there by E1. An element that a
 * commit holds is waited for before its key is collected. models/set_element.cpp has the steps.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"

#define PROVED         "_proved"
#define WINDOW         500
#define ROUNDS         4
#define HELD_MS        2000
#define KEYS_IN_A_FIND 1000

/* ---- guards ----------------------------------------------------------------------------------- */

void truce__set_guard_id(const truce_set *set, const bson_t *key, const char *field,
                         bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, field, -1, &id);
    truce__set_key_append(set, key, &id);
    bson_append_document_end(document, &id);
}

truce_status truce__set_guard_read(truce_set *set, const bson_t *key, int64_t *watermark,
                                   bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    truce_status status;

    truce__set_guard_id(set, key, "_id", &filter);
    status = truce_find_one(set->store, set->guards, &filter, NULL, &document, error);
    *watermark = status ? 0 : truce__field_number(&document, set->watermark);
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

struct guard {
    uint64_t hash;
    int64_t watermark;
    bson_t *key;
};

static int by_hash(const void *left, const void *right)
{
    const struct guard *a = left, *b = right;

    return a->hash < b->hash ? -1 : a->hash > b->hash;
}

static void take_guard(const truce_set *set, const bson_t *document, struct guard *guard)
{
    bson_iter_t iter;
    bson_t key;

    *guard = (struct guard){.watermark = truce__field_number(document, set->watermark)};
    if (!bson_iter_init_find(&iter, document, "_id") || !BSON_ITER_HOLDS_DOCUMENT(&iter))
        return;
    truce__value_bson(truce__value_of_iter(&iter), &key);
    guard->key = bson_copy(&key);
    guard->hash = truce__set_key_hash(set, guard->key);
}

static int64_t set_guard_guard_of(const truce_set *set, const struct guard *guards, size_t count,
                                  const struct set_operation *operation)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (guards[middle].hash < operation->key_hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && guards[low].hash == operation->key_hash; low++) {
        if (truce__set_key_equal(set, guards[low].key, operation->given->key))
            return guards[low].watermark;
    }
    return 0;
}

/* At most KEYS_IN_A_FIND operations. */
static truce_status read_guards(truce_set *set, const struct set_operation *const *operations,
                                size_t count, int64_t *watermarks, bson_error_t *error)
{
    struct guard *guards = bson_malloc(count * sizeof *guards);
    bson_t filter = BSON_INITIALIZER, in, list;
    truce_cursor *cursor = NULL;
    size_t found = 0;
    truce_status status;

    bson_append_document_begin(&filter, "_id", -1, &in);
    bson_append_array_begin(&in, "$in", -1, &list);
    for (size_t i = 0; i < count; i++) {
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        if (!i ||
            !truce__set_key_equal(set, operations[i]->given->key, operations[i - 1]->given->key))
            truce__set_guard_id(set, operations[i]->given->key, key, &list);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    status = truce_find(set->store, set->guards, &filter, NULL, &cursor, error);
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document || found == count)
            break;
        take_guard(set, document, &guards[found]);
        found += guards[found].key != NULL;
    }
    if (cursor)
        truce_cursor_close(cursor);
    qsort(guards, found, sizeof *guards, by_hash);
    for (size_t i = 0; i < count; i++)
        watermarks[i] = set_guard_guard_of(set, guards, found, operations[i]);
    for (size_t i = 0; i < found; i++)
        bson_destroy(guards[i].key);
    bson_free(guards);
    bson_destroy(&filter);
    return status;
}

/* ---- after an insert -------------------------------------------------------------------------- */

bool truce__set_element_is_proved(const bson_t *document)
{
    return bson_has_field(document, PROVED);
}

static void guard_append_absent(const char *field, bson_t *filter)
{
    bson_t absent;

    bson_append_document_begin(filter, field, -1, &absent);
    bson_append_bool(&absent, "$exists", -1, false);
    bson_append_document_end(filter, &absent);
}

static void guard_append_as_read(const bson_t *document, const char *field, bson_t *filter)
{
    struct value value = truce__value_field(truce__value_document(document), field, strlen(field));

    if (value.type == VALUE_MISSING)
        guard_append_absent(field, filter);
    else
        truce__value_append(filter, field, strlen(field), value);
}

/* {_id, number, source, removed: as read, not proved, free} */
static void append_unproved(const truce_set *set, const bson_t *document, bson_t *filter)
{
    guard_append_as_read(document, "_id", filter);
    guard_append_as_read(document, set->seq, filter);
    guard_append_as_read(document, set->source, filter);
    guard_append_as_read(document, "removed", filter);
    guard_append_as_read(document, "_rev", filter);
    guard_append_absent(PROVED, filter);
    guard_append_absent("_intent", filter);
}

truce_status truce__set_element_withdraw(truce_set *set, const bson_t *document,
                                         bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    append_unproved(set, document, &filter);
    for (int round = 0; truce__repeatable(status) && round < SET_TRIES_MAX; round++) {
        truce__set_pause(round);
        status = truce_remove(set->store, set->elements, &filter, NULL, NULL, error);
    }
    bson_destroy(&filter);
    return status;
}

/* The element that an operation inserted, if it still stands. */
static truce_status withdraw_own(truce_set *set, const struct set_operation *operation,
                                 bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, document;
    struct set_state state;
    truce_status status;

    truce__set_element_identity(set, operation, &filter);
    status = truce_find_one(set->store, set->elements, &filter, NULL, &document, error);
    if (!status) {
        truce__set_element_read(set, &document, &state);
        if (!truce__set_rank_compare(&state.standing, &operation->rank))
            status = truce__set_element_withdraw(set, &document, error);
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status guard_judge(truce_set *set, const struct set_operation *operation,
                                int64_t watermark, truce_set_outcome *outcome, bson_error_t *error)
{
    truce_status status;

    *outcome = TRUCE_SET_APPLIED;
    if (operation->rank.seq > watermark)
        return TRUCE_OK;
    status = withdraw_own(set, operation, error);
    return status ? status : truce__set_below(set, operation, outcome, error);
}

void truce__set_element_inserted(truce_set *set, const struct set_operation *const *operations,
                                 size_t count, truce_set_result **results, bson_error_t *errors)
{
    int64_t watermarks[KEYS_IN_A_FIND];

    for (size_t from = 0; from < count; from += KEYS_IN_A_FIND) {
        size_t part = count - from < KEYS_IN_A_FIND ? count - from : KEYS_IN_A_FIND;
        truce_status status = TRUCE_UNKNOWN;
        bson_error_t why = {0};

        for (int round = 0; truce__repeatable(status) && round < SET_TRIES_MAX; round++) {
            truce__set_pause(round);
            status = read_guards(set, operations + from, part, watermarks, &why);
        }
        for (size_t i = from; i < from + part; i++) {
            results[i]->status = status;
            errors[i] = why;
            if (!status)
                results[i]->status = guard_judge(set, operations[i], watermarks[i - from],
                                                 &results[i]->outcome, &errors[i]);
        }
    }
}

/* ---- collecting ------------------------------------------------------------------------------- */

struct proof {
    truce_set *set;
    const bson_t *key;
    int64_t watermark;
    struct worker worker;
    bson_t *looked[WINDOW]; /* at elements that nobody has proved, up to the watermark */
    size_t count;
    bool again;   /* something changed meanwhile */
    bool skipped; /* something is held, and stays so */
};

/* E2: what was looked at, against a guard that is read after it. */
static truce_status prove_looked(struct proof *proof, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write writes[WINDOW];
    truce_write_outcome *outcomes = bson_malloc0(WINDOW * sizeof *outcomes);
    bson_t filters[WINDOW], updates[WINDOW], proved = BSON_INITIALIZER;
    int64_t guard = 0;
    truce_status status = truce__set_guard_read(proof->set, proof->key, &guard, error);

    bson_append_bool(&proved, PROVED, -1, true);
    for (size_t i = 0; i < proof->count; i++) {
        struct set_state state;

        truce__set_element_read(proof->set, proof->looked[i], &state);
        bson_init(&filters[i]);
        bson_init(&updates[i]);
        append_unproved(proof->set, proof->looked[i], &filters[i]);
        truce__set_change_append(proof->looked[i], &proved, &updates[i]);
        writes[i] = (truce_write){.kind = state.standing.seq <= guard ? TRUCE_WRITE_REMOVE
                                                                      : TRUCE_WRITE_UPDATE,
                                  .collection = proof->set->elements,
                                  .filter = &filters[i]};
        if (writes[i].kind == TRUCE_WRITE_UPDATE)
            writes[i].document = &updates[i];
    }
    if (!status && proof->count)
        status = truce_bulk(proof->set->store, writes, proof->count, &options, outcomes, error);
    for (size_t i = 0; i < proof->count; i++) {
        proof->again = proof->again || outcomes[i].status ||
                       outcomes[i].result.modified + outcomes[i].result.removed == 0;
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&filters[i]);
        bson_destroy(&updates[i]);
        bson_destroy(proof->looked[i]);
    }
    proof->count = 0;
    bson_destroy(&proved);
    bson_free(outcomes);
    return status;
}

static truce_status guard_look(struct proof *proof, bson_error_t *error)
{
    truce_set *set = proof->set;
    bson_t filter = BSON_INITIALIZER, inner;
    truce_cursor *cursor = NULL;
    truce_status status;

    truce__set_key_append(set, proof->key, &filter);
    guard_append_absent(PROVED, &filter);
    bson_append_document_begin(&filter, "removed", -1, &inner);
    bson_append_bool(&inner, "$ne", -1, true);
    bson_append_document_end(&filter, &inner);
    status = truce_find(set->store, set->elements, &filter, NULL, &cursor, error);
    while (!status) {
        const bson_t *document;
        struct set_state state;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (!truce__intent_absent(document)) {
            status = truce__intent_meet(&proof->worker, set->elements, document, error);
            proof->skipped = proof->skipped || status == TRUCE_LOCKED;
            proof->again = true;
            status = status == TRUCE_LOCKED || status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
            continue;
        }
        truce__set_element_read(set, document, &state);
        if (!state.standing.seq || state.standing.seq > proof->watermark)
            continue;
        proof->looked[proof->count++] = bson_copy(document);
        if (proof->count == WINDOW)
            status = prove_looked(proof, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    if (!status && proof->count)
        status = prove_looked(proof, error);
    for (size_t i = 0; i < proof->count; i++)
        bson_destroy(proof->looked[i]);
    proof->count = 0;
    return status;
}

static truce_status raise_guard(struct proof *proof, bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true};
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, inner;
    truce_status status;

    truce__set_guard_id(proof->set, proof->key, "_id", &filter);
    bson_append_document_begin(&update, "$max", -1, &inner);
    bson_append_int64(&inner, proof->set->watermark, -1, proof->watermark);
    bson_append_document_end(&update, &inner);
    status = truce__set_update_answered(proof->set, proof->set->guards, &filter, &update, &options,
                                        error);
    bson_destroy(&filter);
    bson_destroy(&update);
    return status;
}

static truce_status remove_tombstones(struct proof *proof, int64_t *removed, bson_error_t *error)
{
    static const truce_write_options options = {.multi = true};
    bson_t filter = BSON_INITIALIZER, inner;
    truce_write_result result = {0};
    truce_status status;

    truce__set_key_append(proof->set, proof->key, &filter);
    bson_append_bool(&filter, "removed", -1, true);
    bson_append_document_begin(&filter, proof->set->seq, -1, &inner);
    bson_append_int64(&inner, "$lte", -1, proof->watermark);
    bson_append_document_end(&filter, &inner);
    guard_append_absent("_intent", &filter);
    status =
        truce_remove(proof->set->store, proof->set->elements, &filter, &options, &result, error);
    *removed = result.removed;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

static truce_status collect_key(truce_set *set, const bson_t *key, int64_t watermark,
                                truce_set_collected *collected, bson_error_t *error)
{
    struct proof *proof = bson_malloc0(sizeof *proof);
    int64_t removed = 0;
    truce_status status = TRUCE_OK;

    *proof = (struct proof){.set = set, .key = key, .watermark = watermark, .again = true};
    truce__worker_init(&proof->worker, set->store, HELD_MS);
    for (int round = 0; !status && proof->again && !proof->skipped && round < ROUNDS; round++) {
        proof->again = false;
        status = guard_look(proof, error);
    }
    if (!status && !proof->again) { /* else the next round of collecting takes it */
        status = raise_guard(proof, error);
        if (!status)
            status = remove_tombstones(proof, &removed, error);
        collected->documents += removed > 0;
        collected->tombstones += removed;
    }
    bson_free(proof);
    return status;
}

truce_status truce__set_element_collect(truce_set *set, int64_t watermark,
                                        truce_set_collected *collected, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER, key = BSON_INITIALIZER, inner;
    const truce_find_options options = {.sort = &sort};
    truce_cursor *cursor = NULL;
    truce_status status;

    bson_append_bool(&filter, "removed", -1, true);
    bson_append_document_begin(&filter, set->seq, -1, &inner);
    bson_append_int64(&inner, "$lte", -1, watermark);
    bson_append_document_end(&filter, &inner);
    for (uint32_t i = 0; i < set->keys_count; i++)
        bson_append_int32(&sort, set->keys[i], -1, 1);
    status = truce_find(set->store, set->elements, &filter, &options, &cursor, error);
    while (!status) {
        const bson_t *document;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (!bson_empty(&key) && truce__set_key_equal(set, &key, document))
            continue;
        bson_reinit(&key);
        truce__set_key_append(set, document, &key);
        status = collect_key(set, &key, watermark, collected, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&sort);
    bson_destroy(&key);
    return status;
}
