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
 * the new document has one if the old one had. A tombstone is not deleted: nothing would then stand against an add that is
 * older.
 */
#include "base/assert.h"
#include "patterns/set/set.h"

#define BULK_DOCUMENTS 1000

/* {$nor: [rank at least the operation's]} */
static void append_guard(const truce_set *set, const struct set_rank *rank, bson_t *filter)
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

static void build(const truce_set *set, const struct set_operation *operation, bool has_revision,
                  bson_t *filter, bson_t *replacement)
{
    truce__set_element_identity(set, operation, filter);
    append_guard(set, &operation->rank, filter);
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

/* NOT_FOUND: nothing was ever applied to that name. `refused`: the write waited for the disk, and what
 * refused it is there; what came since has a greater rank. */
static truce_status settle(truce_set *set, const struct set_operation *operation, bool refused,
                           struct worker *worker, struct sight *sight, bson_error_t *error)
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
    }
    bson_destroy(&document);
    bson_destroy(&filter);
    return status;
}

static truce_status send(truce_set *set, const struct set_operation *operation, bool has_revision,
                         bool *applied, bson_error_t *error)
{
    static const truce_write_options options = {.upsert = true};
    bson_t filter = BSON_INITIALIZER, replacement = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_status status;

    build(set, operation, has_revision, &filter, &replacement);
    status =
        truce_update(set->store, set->elements, &filter, &replacement, &options, &result, error);
    *applied = !status && (result.modified || result.upserted);
    truce_write_result_release(&result);
    bson_destroy(&filter);
    bson_destroy(&replacement);
    return status;
}

truce_status truce__set_element_apply(truce_set *set, const struct set_operation *operation,
                                      struct worker *worker, truce_set_outcome *outcome,
                                      bson_error_t *error)
{
    struct sight sight = {.verdict = SET_OPEN};
    truce_status status = TRUCE_OK;

    for (int round = 0; round < SET_TRIES_MAX; round++) {
        bool applied = false;

        truce__set_pause(round);
        status = send(set, operation, sight.has_revision, &applied, error);
        if (applied) {
            *outcome = TRUCE_SET_APPLIED;
            return TRUCE_OK;
        }
        if (status && status != TRUCE_DUPLICATE && !truce__repeatable(status))
            return status;
        status =
            settle(set, operation, !status || status == TRUCE_DUPLICATE, worker, &sight, error);
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

static truce_status bulk(truce_set *set, const struct set_operation *const *winners, size_t count,
                         truce_write_outcome *outcomes)
{
    static const truce_bulk_options options = {.unordered = true};
    bson_t *filters = bson_malloc(count * sizeof *filters);
    bson_t *replacements = bson_malloc(count * sizeof *replacements);
    truce_write *writes = bson_malloc0(count * sizeof *writes);
    truce_status status;

    for (size_t i = 0; i < count; i++) {
        bson_init(&filters[i]);
        bson_init(&replacements[i]);
        build(set, winners[i], false, &filters[i], &replacements[i]);
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

static void take_outcome(truce_set *set, const struct set_operation *winner,
                         const truce_write_outcome *written, truce_status bulk_status,
                         truce_set_result *result, bson_error_t *error)
{
    truce_status status = written->status == TRUCE_NOT_FOUND ? bulk_status : written->status;

    if (!status && (written->result.modified || written->result.upserted)) {
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
    truce_status first = TRUCE_OK;

    for (size_t from = 0; from < count; from += BULK_DOCUMENTS) {
        size_t part = count - from < BULK_DOCUMENTS ? count - from : BULK_DOCUMENTS;
        truce_status status = bulk(set, winners + from, part, outcomes);

        for (size_t i = 0; i < part; i++) {
            bson_error_t why = {0};

            take_outcome(set, winners[from + i], &outcomes[i], status, &results[from + i], &why);
            if (results[from + i].status && !first) {
                first = results[from + i].status;
                if (error)
                    *error = why;
            }
            truce_write_result_release(&outcomes[i].result);
        }
    }
    bson_free(outcomes);
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
           !strcmp(field, "_intent");
}

static void append_element(const truce_set *set, const bson_t *document, bson_t *list,
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

truce_status truce__set_element_show(truce_set *set, const bson_t *key, bson_t *document,
                                     bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, sort = BSON_INITIALIZER;
    bson_t lists[2] = {BSON_INITIALIZER, BSON_INITIALIZER};
    truce_find_options options = {.sort = &sort};
    truce_cursor *cursor = NULL;
    const bson_t *found;
    uint32_t counts[2] = {0, 0};
    truce_status status;

    bson_init(document);
    truce__set_key_append(set, key, &filter);
    bson_append_int32(&sort, set->seq, -1, 1);
    status = truce_find(set->store, set->elements, &filter, &options, &cursor, error);
    while (!status) {
        status = truce_cursor_next(cursor, &found, error);
        if (status || !found)
            break;
        if (!bson_has_field(found, set->seq)) /* a commit may insert it, or not */
            continue;
        append_element(set, found, &lists[is_removed(found)], &counts[is_removed(found)]);
    }
    if (!status && counts[0] + counts[1] == 0)
        status = truce__fail(TRUCE_NOT_FOUND, error, "set %s has nothing under this key", set->id);
    if (!status) {
        truce__set_key_append(set, key, document);
        bson_append_array(document, set->field, -1, &lists[0]);
        bson_append_array(document, set->deleted, -1, &lists[1]);
    }
    if (cursor)
        truce_cursor_close(cursor);
    bson_destroy(&filter);
    bson_destroy(&sort);
    bson_destroy(&lists[0]);
    bson_destroy(&lists[1]);
    return status;
}
