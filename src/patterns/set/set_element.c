/*
 * The layout by element, for sets that outgrow a document: one document for each name that was ever
 * added or removed, in the collection "<collection>.<field>".
 *
 *     {_id, student_id: 1, name: "CS 101", seq: 1001, ...payload}
 *     {_id, student_id: 1, name: "CS 102", seq: 1002, removed: true}
 *
 * One guarded upsert applies an operation: {key, name, rank not at least mine} -> the new document.
 * A guard that does not match makes the upsert insert, which the unique index on (key, name)
 * refuses: look again. The rule of single writes (set.c) holds here as well: the guard has
 * {_intent: absent}, and whether there is a revision is compared with what the last look saw, so that
 * the new document has one if the old one had. An element that was inserted, and not put in the place of another, is
 * judged by the guard of its key, which stands for tombstones that were collected (set_guard.c).
 */
#include "base/assert.h"
#include "patterns/set/set.h"

#define BULK_DOCUMENTS 1000

/* {$nor: [rank at least the operation's]} */
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
                                &state->standing);
}

struct sight {
    enum set_verdict verdict;
    bool has_revision;
    bool held; /* by a commit: the verdict is open */
};

/* What settles the operation may itself not be there. */
static truce_status judge_standing(truce_set *set, const struct set_operation *operation,
                                   const bson_t *document, int64_t number, struct sight *sight,
                                   bson_error_t *error)
{
    int64_t watermark;
    truce_status status = truce__set_guard_read(set, operation->given->key, &watermark, error);

    if (status || number > watermark)
        return status;
    sight->verdict = SET_OPEN;
    return truce__set_element_withdraw(set, document, error);
}

/* NOT_FOUND: nothing was ever applied to that name. `refused`: the write waited for the disk, and what
 * refused it is there; what came since has a greater rank. */
static truce_status element_settle(truce_set *set, const struct set_operation *operation,
                                   bool refused, struct worker *worker, struct sight *sight,
                                   bson_error_t *error)
{
    const truce_find_options options = {.early = refused};
    bson_t filter = BSON_INITIALIZER, document;
    struct set_state state;
    truce_status status;

    *sight = (struct sight){.verdict = SET_OPEN};
    truce__set_element_identity(set, operation, &filter);
    status = truce_find_one(set->store, set->elements, &filter, &options, &document, error);
    if (!status) {
        sight->has_revision = truce__set_has_revision(&document);
        sight->held = !truce__intent_absent(&document);
    }
    if (!status && sight->held && worker) {
        status = truce__intent_meet(worker, set->elements, &document, error);
    } else if (!status && !sight->held) {
        truce__set_element_read(set, &document, &state);
        sight->verdict = truce__set_verdict(&state, &operation->rank);
        if (sight->verdict != SET_OPEN && !truce__set_element_is_proved(&document))
            status = judge_standing(set, operation, &document, state.standing.seq, sight, error);
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

static truce_status judge_inserted(truce_set *set, const struct set_operation *operation,
                                   truce_set_outcome *outcome, bson_error_t *error)
{
    truce_set_result result = {0}, *results = &result;
    bson_error_t why = {0};

    truce__set_element_inserted(set, &operation, 1, &results, &why);
    *outcome = result.outcome;
    if (result.status && error)
        *error = why;
    return result.status;
}

truce_status truce__set_element_apply(truce_set *set, const struct set_operation *operation,
                                      struct worker *worker, truce_set_outcome *outcome,
                                      bson_error_t *error)
{
    struct sight sight = {.verdict = SET_OPEN};
    truce_status status = TRUCE_OK;

    for (int round = 0; round < SET_TRIES_MAX; round++) {
        bool applied = false, inserted = false;

        truce__set_pause(round);
        status = element_send(set, operation, sight.has_revision, &applied, &inserted, error);
        if (inserted)
            return judge_inserted(set, operation, outcome, error);
        if (applied) {
            *outcome = TRUCE_SET_APPLIED;
            return TRUCE_OK;
        }
        if (status && status != TRUCE_DUPLICATE && !truce__repeatable(status))
            return status;
        status = element_settle(set, operation, !status || status == TRUCE_DUPLICATE, worker,
                                &sight, error);
        if (status && status != TRUCE_NOT_FOUND && !truce__repeatable(status))
            return status;
        if (sight.held && !worker) {
            *outcome = SET_OUTCOME_HELD;
            return TRUCE_OK;
        }
        if (sight.held) /* it was met, and waited for: until the worker's deadline */
            round = 0;
        if (!status && sight.verdict != SET_OPEN) {
            *outcome = sight.verdict == SET_STALE ? TRUCE_SET_STALE : TRUCE_SET_DUPLICATE;
            return TRUCE_OK;
        }
    }
    return truce__fail(TRUCE_CONFLICT, error,
                       "%d rounds on one element of %s did not settle an operation", SET_TRIES_MAX,
                       set->id);
}

/* ---- batches ---- */

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

/* Those whose elements were inserted, all at once. */
static void judge_all(truce_set *set, const struct set_operation *const *winners, size_t count,
                      const truce_write_outcome *outcomes, truce_set_result *results,
                      bson_error_t *errors)
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
    truce__set_element_inserted(set, inserted, found, of, why);
    for (size_t i = 0; i < found; i++)
        errors[of[i] - results] = why[i];
    bson_free(inserted);
    bson_free(of);
    bson_free(why);
}

static void element_take_outcome(truce_set *set, const struct set_operation *winner,
                                 const truce_write_outcome *written, truce_status bulk_status,
                                 truce_set_result *result, bson_error_t *error)
{
    truce_status status = written->status == TRUCE_NOT_FOUND ? bulk_status : written->status;

    if (!status && written->result.upserted)
        return; /* it was judged */
    if (!status && written->result.modified) {
        *result = (truce_set_result){TRUCE_OK, TRUCE_SET_APPLIED};
        return;
    }
    if (!status || status == TRUCE_DUPLICATE || truce__repeatable(status)) {
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

        judge_all(set, winners + from, part, outcomes, results + from, errors);
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

/* What is there of a key: elements as they were looked at, judged by a guard that is read after them. */
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

static truce_status element_look_at_all(truce_set *set, const bson_t *key, struct shown *shown,
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
        if (bson_has_field(found, set->seq)) /* else a commit may insert it, or not */
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
    truce_status status = element_look_at_all(set, key, &shown, error);

    bson_init(document);
    if (!status)
        status = truce__set_guard_read(set, key, &watermark, error);
    for (size_t i = 0; i < shown.found_count; i++) {
        const bson_t *found = shown.found[i];
        struct set_state state;

        truce__set_element_read(set, found, &state);
        if (state.standing.seq > watermark || !state.standing.seq ||
            truce__set_element_is_proved(found))
            show_element(set, found, &shown);
        bson_destroy(shown.found[i]);
    }
    if (!status && shown.counts[0] + shown.counts[1] == 0 && !watermark)
        status = truce__fail(TRUCE_NOT_FOUND, error, "set %s has nothing under this key", set->id);
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
