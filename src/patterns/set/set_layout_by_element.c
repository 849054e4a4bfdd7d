/*
 * The layout by element, for sets that outgrow a document: one document for each name that was ever
 * added or removed, in the collection "<collection>.<field>".
 *
 *     {_id, student_id: 1, name: "CS 101", seq: 1001, ...payload}
 *     {_id, student_id: 1, name: "CS 102", seq: 1002, removed: true}
 *
 * One guarded upsert applies an operation: {key, name, stored rank less than the operation's} ->
 * the new document. If the guard does not match, the upsert inserts, and the unique index on (key,
 * name) refuses the insert; the operation then reads the document.
 *
 * The rule of single writes (set.c) holds here, too. The guard contains {_intent: absent} and
 * whether there is a revision, as last read, so the new document has a revision if the old one had.
 * An element that was inserted without replacing another is checked against the guard of its key.
 * The guard replaces the tombstones that were collected (see below).
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/field.h"
#include "patterns/set/set.h"

/* ---- elements -------------------------------------------------------------------------------- */

/* The maximum number of operations that one bulk applies. */
#define BULK_DOCUMENTS 1000

static truce_status set_guard_read(truce_set *set, const bson_t *key, int64_t *watermark,
                                   bson_error_t *error);
static truce_status set_element_withdraw(truce_set *set, const bson_t *document,
                                         bson_error_t *error);
static void set_element_inserted(truce_set *set, const struct set_operation *const *operations,
                                 size_t count, truce_set_result **results, bson_error_t *errors);

/* Appends {$nor: [rank at least the operation's]}. */
static void element_append_guard(const truce_set *set, const struct set_rank *rank, bson_t *filter)
{
    bson_t cases, one, inner;

    bson_append_array_begin(filter, "$nor", -1, &cases);
    bson_append_document_begin(&cases, "0", 1, &one);
    bson_append_document_begin(&one, set->seq, -1, &inner);
    bson_append_int64(&inner, "$gt", -1, rank->seq);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(&cases, &one);
    bson_append_document_begin(&cases, "1", 1, &one);
    bson_append_int64(&one, set->seq, -1, rank->seq);
    bson_append_document_begin(&one, set->source, -1, &inner);
    bson_append_utf8(&inner, "$gt", -1, rank->source, -1);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(&cases, &one);
    bson_append_document_begin(&cases, "2", 1, &one);
    bson_append_int64(&one, set->seq, -1, rank->seq);
    if (rank->source[0]) {
        bson_append_utf8(&one, set->source, -1, rank->source, -1);
    } else {
        bson_append_document_begin(&one, set->source, -1, &inner);
        bson_append_bool(&inner, "$exists", -1, false);
        bson_append_document_end(&one, &inner);
    }
    if (rank->add) {
        bson_append_document_begin(&one, "removed", -1, &inner);
        bson_append_bool(&inner, "$ne", -1, true);
        bson_append_document_end(&one, &inner);
    }
    bson_append_document_end(&cases, &one);
    bson_append_array_end(filter, &cases);
}

void truce__set_element_identity(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document)
{
    truce__set_key_append(set, operation->given->key, document);
    truce__value_append(document, set->name, strlen(set->name), operation->name);
}

void truce__set_element_document(const truce_set *set, const struct set_operation *operation,
                                 bson_t *document)
{
    truce__set_key_append(set, operation->given->key, document);
    truce__set_entry_append(set, operation, document);
    if (!operation->rank.add)
        bson_append_bool(document, "removed", -1, true);
}

static void element_build(const truce_set *set, const struct set_operation *operation,
                          bool has_revision, bson_t *filter, bson_t *replacement)
{
    truce__set_element_identity(set, operation, filter);
    element_append_guard(set, &operation->rank, filter);
    truce__set_free_append(has_revision, filter);
    truce__set_element_document(set, operation, replacement);
    if (has_revision)
        truce__set_revision_append(replacement);
}

static bool is_removed(const bson_t *document)
{
    struct value removed = truce__value_field(truce__value_document(document), "removed", 7);

    return removed.type == BSON_TYPE_BOOL && truce__value_bool(removed);
}

void truce__set_element_read(const truce_set *set, const bson_t *document, struct set_state *state)
{
    struct value name;

    *state = (struct set_state){{0, "", false}, 0};
    (void)truce__set_entry_read(set, truce__value_document(document), !is_removed(document), &name,
                                &state->stored);
}

struct observed {
    enum set_decision decision;
    bool has_revision;
    /* A commit holds the document, so no decision is known yet. */
    bool held;
};

/* Compares the stored entry, which decides the operation, with the guard. If the guard makes the
 * entry invalid, withdraws it, and leaves the operation open. */
static truce_status element_check_guard(truce_set *set, const struct set_operation *operation,
                                        const bson_t *document, int64_t number,
                                        struct observed *observed, bson_error_t *error)
{
    int64_t watermark;
    truce_status status = set_guard_read(set, operation->given->key, &watermark, error);

    if (status || number > watermark)
        return status;
    observed->decision = SET_OPEN;
    return set_element_withdraw(set, document, error);
}

/* Decides an operation by the stored element of its name. Returns TRUCE_NOT_FOUND if the name has
 * no element. `refused` means that the write waited for the disk, so the entry that refused it is
 * durable, and a later entry has a greater rank. */
static truce_status element_settle(truce_set *set, const struct set_operation *operation,
                                   bool refused, struct worker *worker, struct observed *observed,
                                   bson_error_t *error)
{
    const truce_find_options options = {.early = refused};
    bson_t filter = BSON_INITIALIZER, document;
    struct set_state state;
    truce_status status;

    *observed = (struct observed){.decision = SET_OPEN};
    truce__set_element_identity(set, operation, &filter);
    status = truce_find_one(set->store, set->elements, &filter, &options, &document, error);
    if (!status) {
        observed->has_revision = truce__set_has_revision(&document);
        observed->held = !truce__intent_absent(&document);
    }
    if (!status && observed->held && worker) {
        status = truce__intent_complete_other(worker, set->elements, &document, error);
    } else if (!status && !observed->held) {
        truce__set_element_read(set, &document, &state);
        observed->decision = truce__set_decide(&state, &operation->rank);
        if (observed->decision != SET_OPEN && !truce__set_element_is_proved(&document))
            status =
                element_check_guard(set, operation, &document, state.stored.seq, observed, error);
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    return status;
}

static truce_status element_send(truce_set *set, const struct set_operation *operation,
                                 bool has_revision, bool *applied, bool *inserted,
                                 bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true};
    bson_t filter = BSON_INITIALIZER, replacement = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_status status;

    element_build(set, operation, has_revision, &filter, &replacement);
    status =
        truce_update(set->store, set->elements, &filter, &replacement, &options, &result, error);
    *inserted = !status && result.upserted;
    *applied = !status && (result.modified || result.upserted);
    truce_write_result_release(&result);
    bson_destroy(&filter);
    bson_destroy(&replacement);
    return status;
}

/* Decides the outcome of one operation whose element was inserted. */
static truce_status element_decide_inserted(truce_set *set, const struct set_operation *operation,
                                            truce_set_outcome *outcome, bson_error_t *error)
{
    truce_set_result result = {0}, *results = &result;
    bson_error_t why = {0};

    set_element_inserted(set, &operation, 1, &results, &why);
    *outcome = result.outcome;
    if (result.status && error)
        *error = why;
    return result.status;
}

truce_status truce__set_element_apply(truce_set *set, const struct set_operation *operation,
                                      struct worker *worker, truce_set_outcome *outcome,
                                      bson_error_t *error)
{
    struct observed observed = {.decision = SET_OPEN};
    truce_status status = TRUCE_OK;

    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        bool applied = false, inserted = false;

        truce__set_pause(attempt);
        status = element_send(set, operation, observed.has_revision, &applied, &inserted, error);
        if (inserted)
            return element_decide_inserted(set, operation, outcome, error);
        if (applied) {
            *outcome = TRUCE_SET_APPLIED;
            return TRUCE_OK;
        }
        if (status && status != TRUCE_DUPLICATE && !truce__store_repeatable(set->store, status))
            return status;
        status = element_settle(set, operation, !status || status == TRUCE_DUPLICATE, worker,
                                &observed, error);
        if (status && status != TRUCE_NOT_FOUND && !truce__store_repeatable(set->store, status))
            return status;
        if (observed.held && !worker) {
            *outcome = SET_OUTCOME_HELD;
            return TRUCE_OK;
        }
        /* The call has waited for the commit, up to the worker's deadline, so the tries begin
         * again. */
        if (observed.held)
            attempt = 0;
        if (!status && observed.decision != SET_OPEN) {
            *outcome = observed.decision == SET_STALE ? TRUCE_SET_STALE : TRUCE_SET_DUPLICATE;
            return TRUCE_OK;
        }
    }
    return truce__fail(TRUCE_CONFLICT, error,
                       "an operation on an element of %s conflicted with others %d times", set->id,
                       SET_TRIES_MAX);
}

/* ---- batches ---- */

/* Sends the winners as one unordered bulk of upserts. */
static truce_status element_bulk(truce_set *set, const struct set_operation *const *winners,
                                 size_t count, truce_write_outcome *outcomes)
{
    static const truce_bulk_options options = {.unordered = true};
    bson_t *filters = bson_malloc(count * sizeof *filters);
    bson_t *replacements = bson_malloc(count * sizeof *replacements);
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&filters[i]);
        bson_init(&replacements[i]);
        element_build(set, winners[i], false, &filters[i], &replacements[i]);
        writes[i] = (truce_write){.kind = TRUCE_WRITE_UPDATE,
                                  .collection = set->elements,
                                  .filter = &filters[i],
                                  .document = &replacements[i],
                                  .options = {.upsert = true}};
    }
    status = truce_bulk(set->store, writes, count, &options, outcomes, NULL);
    for (size_t i = 0; i < count; i++) {
        bson_destroy(&filters[i]);
        bson_destroy(&replacements[i]);
    }
    bson_free(filters);
    bson_free(replacements);
    bson_free(writes);
    return status;
}

/* Decides the outcomes of all operations whose elements the bulk inserted. */
static void element_decide_bulk(truce_set *set, const struct set_operation *const *winners,
                                size_t count, const truce_write_outcome *outcomes,
                                truce_set_result *results, bson_error_t *errors)
{
    const struct set_operation **inserted = bson_malloc(count * sizeof *inserted);
    truce_set_result **of = bson_malloc(count * sizeof *of);
    bson_error_t *why = bson_malloc0(count * sizeof *why);
    size_t found = 0;

    for (size_t i = 0; i < count; i++) {
        if (outcomes[i].status || !outcomes[i].result.upserted)
            continue;
        inserted[found] = winners[i];
        of[found++] = &results[i];
    }
    set_element_inserted(set, inserted, found, of, why);
    for (size_t i = 0; i < found; i++)
        errors[of[i] - results] = why[i];
    bson_free(inserted);
    bson_free(of);
    bson_free(why);
}

/* Fills the result of one winner of a bulk. If the write matched nothing, or its outcome is
 * unknown, applies the operation alone, without waiting for commits. */
static void element_take_outcome(truce_set *set, const struct set_operation *winner,
                                 const truce_write_outcome *written, truce_status bulk_status,
                                 truce_set_result *result, bson_error_t *error)
{
    truce_status status = written->status == TRUCE_NOT_FOUND ? bulk_status : written->status;

    /* element_decide_bulk has decided this operation. */
    if (!status && written->result.upserted)
        return;
    if (!status && written->result.modified) {
        *result = (truce_set_result){TRUCE_OK, TRUCE_SET_APPLIED};
        return;
    }
    if (!status || status == TRUCE_DUPLICATE || truce__store_repeatable(set->store, status)) {
        result->status = truce__set_element_apply(set, winner, NULL, &result->outcome, error);
        return;
    }
    result->status = status;
    if (error)
        *error = written->error;
}

truce_status truce__set_element_batch(truce_set *set, const struct set_operation *const *winners,
                                      size_t count, truce_set_result *results, bson_error_t *error)
{
    truce_write_outcome *outcomes = bson_malloc0(BULK_DOCUMENTS * sizeof *outcomes);
    bson_error_t *errors = bson_malloc0(BULK_DOCUMENTS * sizeof *errors);
    truce_status first = TRUCE_OK;

    for (size_t from = 0; from < count; from += BULK_DOCUMENTS) {
        size_t part = count - from < BULK_DOCUMENTS ? count - from : BULK_DOCUMENTS;
        truce_status status = element_bulk(set, winners + from, part, outcomes);

        element_decide_bulk(set, winners + from, part, outcomes, results + from, errors);
        for (size_t i = 0; i < part; i++) {
            element_take_outcome(set, winners[from + i], &outcomes[i], status, &results[from + i],
                                 &errors[i]);
            if (results[from + i].status && !first) {
                first = results[from + i].status;
                if (error)
                    *error = errors[i];
            }
            truce_write_result_release(&outcomes[i].result);
        }
    }
    bson_free(outcomes);
    bson_free(errors);
    return first;
}

/* ---- reading ---- */

static bool is_of_key(const truce_set *set, const char *field)
{
    for (uint32_t i = 0; i < set->keys_count; i++) {
        if (!strcmp(field, set->keys[i]))
            return true;
    }
    return !strcmp(field, "_id") || !strcmp(field, "removed") || !strcmp(field, "_rev") ||
           !strcmp(field, "_intent") || !strcmp(field, "_proved");
}

static void element_append_element(const truce_set *set, const bson_t *document, bson_t *list,
                                   uint32_t *index)
{
    struct fields fields = truce__fields(truce__value_document(document));
    char text[16];
    const char *key;
    bson_t entry;

    bson_uint32_to_string((*index)++, &key, text, sizeof text);
    bson_append_document_begin(list, key, -1, &entry);
    while (truce__fields_next(&fields)) {
        if (!is_of_key(set, fields.key))
            truce__value_append(&entry, fields.key, fields.key_length, fields.value);
    }
    bson_append_document_end(list, &entry);
}

/* The elements of a key as they were read. A guard that is read after them decides which count. */
struct shown {
    bson_t lists[2];
    uint32_t counts[2];
    bson_t **found;
    size_t found_count, room;
};

static void show_element(const truce_set *set, const bson_t *found, struct shown *shown)
{
    element_append_element(set, found, &shown->lists[is_removed(found)],
                           &shown->counts[is_removed(found)]);
}

static void keep_found(struct shown *shown, const bson_t *found)
{
    if (shown->found_count == shown->room) {
        shown->room = shown->room ? shown->room * 2 : 16;
        shown->found = bson_realloc(shown->found, shown->room * sizeof *shown->found);
    }
    shown->found[shown->found_count++] = bson_copy(found);
}

/* Reads all elements of a key, in the order of their numbers. */
static truce_status element_read_all(truce_set *set, const bson_t *key, struct shown *shown,
                                     bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    truce_find_options options = {.sort = &sort};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    truce_status status;

    truce__set_key_append(set, key, &filter);
    bson_append_int32(&sort, set->seq, -1, 1);
    status = truce_find(set->store, set->elements, &filter, &options, &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        /* An element without a number is the stub of an undecided commit. */
        if (bson_has_field(found, set->seq))
            keep_found(shown, found);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&sort);
    return status;
}

truce_status truce__set_element_show(truce_set *set, const bson_t *key, bson_t *document,
                                     bson_error_t *error)
{
    struct shown shown = {.lists = {BSON_INITIALIZER, BSON_INITIALIZER}};
    int64_t watermark = 0;
    truce_status status = element_read_all(set, key, &shown, error);

    bson_init(document);
    if (!status)
        status = set_guard_read(set, key, &watermark, error);
    for (size_t i = 0; i < shown.found_count; i++) {
        const bson_t *found = shown.found[i];
        struct set_state state;

        truce__set_element_read(set, found, &state);
        if (state.stored.seq > watermark || !state.stored.seq ||
            truce__set_element_is_proved(found))
            show_element(set, found, &shown);
        bson_destroy(shown.found[i]);
    }
    if (!status && shown.counts[0] + shown.counts[1] == 0 && !watermark)
        status = truce__fail(TRUCE_NOT_FOUND, error, "set \"%s\" has no document with this key",
                             set->id);
    if (!status) {
        truce__set_key_append(set, key, document);
        bson_append_array(document, set->field, -1, &shown.lists[0]);
        bson_append_array(document, set->deleted, -1, &shown.lists[1]);
        if (watermark)
            bson_append_int64(document, set->watermark, -1, watermark);
    }
    bson_free(shown.found);
    bson_destroy(&shown.lists[0]);
    bson_destroy(&shown.lists[1]);
    return status;
}

/* ---- guards and proofs ----------------------------------------------------------------------- */

/*
 * Tombstones of the layout by element are collected by proof. After a tombstone is gone, a guard
 * still refuses older operations that are on their way. The guard is a document for each key, in
 * "<collection>.<field>.guards":
 *
 *     {_id: {student_id: 1}, _wm: 900}
 *
 * An operation inserts its element and THEN reads the guard of its key. If the guard is at or above
 * its number, the operation is a repeat of a collected one (or its number was declared void), and
 * the element is withdrawn. Until an element is proved, its number decides:
 *
 * SE1. An element without `_proved` whose number is at or below the guard counts as absent. Readers
 *     omit it, and an operation that encounters it removes it.
 * SE2. The collector of watermark W, for one key: reads the elements, THEN reads the guard.
 *     Elements above the guard and up to W are real: no tombstone above the guard can have gone
 *     before their insert. Each of them gets `_proved` by a write that compares `_id`, number, and
 *     source. (Each insert creates another `_id`.) THEN the collector raises the guard to W, and
 *     only then removes tombstones.
 * SE3. An element that replaces another is not proved. Its number is above the guard, or it is a
 *     repeat that replaces an absent element.
 *
 * A crash leaves tombstones for the next collection, or elements that are absent by SE1. The
 * collector waits for a commit that holds an element before it collects the key.
 * models/set_element.cpp has the steps.
 */

#define PROVED "_proved"
/* The maximum number of elements that the collector reads before it proves them. */
#define WINDOW 500
/* How often the collector reads a key whose elements change concurrently. */
#define ATTEMPTS_MAX 4
/* The maximum time for which the collector waits for a commit that holds an element. */
#define HELD_MS 2000
/* The maximum number of operations whose guards one message reads. */
#define KEYS_IN_A_FIND 1000

/* ---- guards ---------------------------------------------------------------------------------- */

void truce__set_guard_id(const truce_set *set, const bson_t *key, const char *field,
                         bson_t *document)
{
    bson_t id;

    bson_append_document_begin(document, field, -1, &id);
    truce__set_key_append(set, key, &id);
    bson_append_document_end(document, &id);
}

static truce_status set_guard_read(truce_set *set, const bson_t *key, int64_t *watermark,
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

/* The guard of a key. */
struct guard {
    /* The hash of the key. */
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

/* Returns the watermark of the guard of the operation's key, or 0 if the key has no guard. `guards`
 * are sorted by hash. */
static int64_t set_guard_of(const truce_set *set, const struct guard *guards, size_t count,
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

/* Reads the guards of the operations' keys: sets watermarks[i] to that of operations[i]. At most
 * KEYS_IN_A_FIND operations. */
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
        watermarks[i] = set_guard_of(set, guards, found, operations[i]);
    for (size_t i = 0; i < found; i++)
        bson_destroy(guards[i].key);
    bson_free(guards);
    bson_destroy(&filter);
    return status;
}

/* ---- effects of an insert -------------------------------------------------------------------- */

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

/* Appends {_id, number, source, removed: as read, not proved, free}. */
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

/* Removes an element that is absent by its guard, if it is still as it was read. */
static truce_status set_element_withdraw(truce_set *set, const bson_t *document,
                                         bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status = TRUCE_UNKNOWN;

    append_unproved(set, document, &filter);
    for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce_remove(set->store, set->elements, &filter, NULL, NULL, error);
        if (!truce__store_repeatable(set->store, status))
            break;
    }
    bson_destroy(&filter);
    return status;
}

/* Removes the element that an operation inserted, if it is still stored. */
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
        if (!truce__set_rank_compare(&state.stored, &operation->rank))
            status = set_element_withdraw(set, &document, error);
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status guard_check(truce_set *set, const struct set_operation *operation,
                                int64_t watermark, truce_set_outcome *outcome, bson_error_t *error)
{
    truce_status status;

    *outcome = TRUCE_SET_APPLIED;
    if (operation->rank.seq > watermark)
        return TRUCE_OK;
    status = withdraw_own(set, operation, error);
    return status ? status : truce__set_below(set, operation, outcome, error);
}

/* Decides operations whose elements were inserted. They are in the order of their keys. */
static void set_element_inserted(truce_set *set, const struct set_operation *const *operations,
                                 size_t count, truce_set_result **results, bson_error_t *errors)
{
    int64_t watermarks[KEYS_IN_A_FIND];

    for (size_t from = 0; from < count; from += KEYS_IN_A_FIND) {
        size_t part = count - from < KEYS_IN_A_FIND ? count - from : KEYS_IN_A_FIND;
        truce_status status = TRUCE_UNKNOWN;
        bson_error_t why = {0};

        for (int attempt = 0; attempt < SET_TRIES_MAX; attempt++) {
            truce__set_pause(attempt);
            status = read_guards(set, operations + from, part, watermarks, &why);
            if (!truce__store_repeatable(set->store, status))
                break;
        }
        for (size_t i = from; i < from + part; i++) {
            results[i]->status = status;
            errors[i] = why;
            if (!status)
                results[i]->status = guard_check(set, operations[i], watermarks[i - from],
                                                 &results[i]->outcome, &errors[i]);
        }
    }
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* The collection of the tombstones of one key. */
struct proof {
    truce_set *set;
    const bson_t *key;
    int64_t watermark;
    struct worker worker;
    /* Elements at or below the watermark that are not proved yet. Owned. */
    bson_t *read[WINDOW];
    size_t count;
    /* An element changed concurrently, so the key must be read again. */
    bool again;
    /* A commit still holds an element, so the next collection handles the key. */
    bool skipped;
};

/* Proves the elements that were read, or removes those that are not above the guard, which is read
 * after them (SE2). Frees the elements. Sets proof->again if one changed concurrently. */
static truce_status prove_elements(struct proof *proof, bson_error_t *error)
{
    static const truce_bulk_options options = {.unordered = true};
    truce_write writes[WINDOW];
    truce_write_outcome *outcomes = bson_malloc0(WINDOW * sizeof *outcomes);
    bson_t filters[WINDOW], updates[WINDOW], proved = BSON_INITIALIZER;
    int64_t guard = 0;
    truce_status status = set_guard_read(proof->set, proof->key, &guard, error);

    bson_append_bool(&proved, PROVED, -1, true);
    for (size_t i = 0; i < proof->count; i++) {
        struct set_state state;

        truce__set_element_read(proof->set, proof->read[i], &state);
        bson_init(&filters[i]);
        bson_init(&updates[i]);
        append_unproved(proof->set, proof->read[i], &filters[i]);
        truce__set_change_append(proof->read[i], &proved, &updates[i]);
        writes[i] = (truce_write){.kind = state.stored.seq <= guard ? TRUCE_WRITE_REMOVE
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
        bson_destroy(proof->read[i]);
    }
    proof->count = 0;
    bson_destroy(&proved);
    bson_free(outcomes);
    return status;
}

/* Reads the elements of a key at or below the watermark and proves them, a window at a time. Sets
 * proof->again if an element had an intent. */
static truce_status proof_read_guard(struct proof *proof, bson_error_t *error)
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
            status = truce__intent_complete_other(&proof->worker, set->elements, document, error);
            proof->skipped = proof->skipped || status == TRUCE_LOCKED;
            proof->again = true;
            status = status == TRUCE_LOCKED || status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
            continue;
        }
        truce__set_element_read(set, document, &state);
        if (!state.stored.seq || state.stored.seq > proof->watermark)
            continue;
        proof->read[proof->count++] = bson_copy(document);
        if (proof->count == WINDOW)
            status = prove_elements(proof, error);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    if (!status && proof->count)
        status = prove_elements(proof, error);
    for (size_t i = 0; i < proof->count; i++)
        bson_destroy(proof->read[i]);
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

/* Removes the tombstones of a key up to the watermark, unless a commit holds them. Runs after the
 * guard was raised (SE2). */
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

/* Collects one key in the order of SE2. If its elements change during each of ATTEMPTS_MAX reads,
 * or a commit holds one for HELD_MS, leaves the key to the next collection. */
static truce_status collect_key(truce_set *set, const bson_t *key, int64_t watermark,
                                truce_set_collected *collected, bson_error_t *error)
{
    struct proof *proof = bson_malloc0(sizeof *proof);
    int64_t removed = 0;
    truce_status status = TRUCE_OK;

    *proof = (struct proof){.set = set, .key = key, .watermark = watermark, .again = true};
    truce__worker_init(&proof->worker, set->store, HELD_MS);
    for (int attempt = 0; !status && proof->again && !proof->skipped && attempt < ATTEMPTS_MAX;
         attempt++) {
        proof->again = false;
        status = proof_read_guard(proof, error);
    }
    /* If elements still change, the next collection handles the key. */
    if (!status && !proof->again) {
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
