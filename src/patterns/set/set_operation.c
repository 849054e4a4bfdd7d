/*
 * Operations checked, keys and entries read and written: everything about one operation that does
 * not touch the store.
 *
 * Keys and names are scalars that equal nothing but themselves: no regular expressions (a filter
 * would take them for patterns), no arrays (a filter would look inside), no documents, no NaN.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/random.h"
#include "base/reserved_fields.h"
#include "bson/field_names.h"
#include "bson/number.h"
#include "patterns/set/set.h"

/* ---- ranks ----------------------------------------------------------------------------------- */

int truce__set_rank_compare(const struct set_rank *a, const struct set_rank *b)
{
    int order;

    if (a->seq != b->seq)
        return a->seq < b->seq ? -1 : 1;
    order = strcmp(a->source, b->source);
    if (order)
        return order;
    return (int)a->add - (int)b->add;
}

enum set_verdict truce__set_verdict(const struct set_state *state, const struct set_rank *rank)
{
    if (state->standing.seq) {
        int order = truce__set_rank_compare(&state->standing, rank);

        if (order == 0)
            return SET_DUPLICATE;
        if (order > 0)
            return SET_STALE;
    }
    return rank->seq <= state->watermark ? SET_BELOW : SET_OPEN;
}

/* ---- one document for each element ----------------------------------------------------------- */

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

/* ---- operations ------------------------------------------------------------------------------ */

static struct value operation_field_of(const bson_t *document, const char *name)
{
    return truce__value_field(truce__value_document(document), name, strlen(name));
}

truce_status truce__set_key_check(const truce_set *set, const bson_t *key, bson_error_t *error)
{
    truce_status status;
    char text[120];

    if (!key)
        return truce__fail(TRUCE_INVALID, error, "the operation has no key");
    status = truce__document_check(key, "key", error);
    if (status)
        return status;
    for (uint32_t i = 0; i < set->keys_count; i++) {
        struct value value = operation_field_of(key, set->keys[i]);

        if (value.type == VALUE_MISSING)
            return truce__fail(TRUCE_INVALID, error,
                               "the key has no field \"%s\" (set %s finds its documents by it)",
                               set->keys[i], set->id);
        if (!truce__value_identifies(value) || value.size > SET_NAME_MAX)
            return truce__fail(TRUCE_INVALID, error,
                               "the key's field \"%s\" is %s, which cannot name a document",
                               set->keys[i], truce__value_show(value, text, sizeof text));
    }
    if (bson_count_keys(key) != set->keys_count)
        return truce__fail(TRUCE_INVALID, error, "the key has fields beside those of set %s",
                           set->id);
    return TRUCE_OK;
}

static truce_status operation_check_payload(const truce_set *set, const bson_t *element,
                                            bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(element));

    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, set->seq) || !strcmp(fields.key, set->source) ||
            !strcmp(fields.key, "_id") || !strcmp(fields.key, "removed"))
            return truce__fail(
                TRUCE_INVALID, error,
                "the element may not have a field \"%s\": set %s keeps its own there", fields.key,
                set->id);
        if (set->layout == TRUCE_SET_BY_ELEMENT) {
            if (!strcmp(fields.key, "_rev") || !strcmp(fields.key, "_intent") ||
                !strcmp(fields.key, "_proved"))
                return truce__fail(TRUCE_INVALID, error,
                                   "the element may not have a field \"%s\": it belongs to truce",
                                   fields.key);
            for (uint32_t i = 0; i < set->keys_count; i++) {
                if (!strcmp(fields.key, set->keys[i]))
                    return truce__fail(TRUCE_INVALID, error,
                                       "the element may not have a field \"%s\": it is of the key",
                                       fields.key);
            }
        }
        if (fields.key[0] == '$')
            return truce__fail(TRUCE_INVALID, error,
                               "the element's field \"%s\" begins with a dollar sign", fields.key);
    }
    return TRUCE_OK;
}

truce_status truce__set_operation_check(const truce_set *set, const truce_set_operation *given,
                                        struct set_operation *operation, bson_error_t *error)
{
    char text[120];
    truce_status status;

    if (set->refused) {
        if (error)
            *error = set->refusal;
        return TRUCE_INVALID;
    }
    status = ROOM_CHECK(given, "truce_set_operation", error);
    if (!status)
        status = truce__set_key_check(set, given->key, error);
    if (status)
        return status;
    if (given->verb != TRUCE_SET_ADD && given->verb != TRUCE_SET_REMOVE)
        return truce__fail(TRUCE_INVALID, error, "the operation is neither an add nor a remove");
    if (!given->element)
        return truce__fail(TRUCE_INVALID, error, "the operation has no element");
    status = truce__document_check_inside(
        given->element, set->layout == TRUCE_SET_IN_DOCUMENT ? 2 : 0, "element", error);
    if (status)
        return status;
    if (given->seq < 1)
        return truce__fail(TRUCE_INVALID, error,
                           "the sequence number is %lld, and must be at least 1",
                           (long long)given->seq);
    if (given->source && (!given->source[0] || strlen(given->source) > SET_CONSUMER_MAX))
        return truce__fail(TRUCE_INVALID, error,
                           "the source's name is empty or longer than %d bytes", SET_CONSUMER_MAX);
    operation->given = given;
    operation->name = operation_field_of(given->element, set->name);
    if (operation->name.type == VALUE_MISSING)
        return truce__fail(
            TRUCE_INVALID, error,
            "the element has no field \"%s\" (set %s takes its elements' names from it)", set->name,
            set->id);
    if (!truce__value_identifies(operation->name) || operation->name.size > SET_NAME_MAX)
        return truce__fail(TRUCE_INVALID, error,
                           "the element's field \"%s\" is %s, which cannot name an element",
                           set->name, truce__value_show(operation->name, text, sizeof text));
    operation->rank = (struct set_rank){given->seq, given->source ? given->source : "",
                                        given->verb == TRUCE_SET_ADD};
    operation->key_hash = truce__set_key_hash(set, given->key);
    operation->name_hash = truce__value_hash(operation->name);
    return operation_check_payload(set, given->element, error);
}

void truce__set_key_append(const truce_set *set, const bson_t *key, bson_t *filter)
{
    for (uint32_t i = 0; i < set->keys_count; i++)
        truce__value_append(filter, set->keys[i], strlen(set->keys[i]),
                            operation_field_of(key, set->keys[i]));
}

void truce__set_entry_append(const truce_set *set, const struct set_operation *operation,
                             bson_t *entry)
{
    struct fields fields;
    bson_t stored;

    truce__value_append(entry, set->name, strlen(set->name), operation->name);
    bson_append_int64(entry, set->seq, -1, operation->rank.seq);
    if (operation->rank.source[0])
        bson_append_utf8(entry, set->source, -1, operation->rank.source, -1);
    if (!operation->rank.add)
        return;
    truce__names_store(operation->given->element, &stored);
    fields = truce__fields(truce__value_document(&stored));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, set->name))
            truce__value_append(entry, fields.key, fields.key_length, fields.value);
    }
    bson_destroy(&stored);
}

bool truce__set_entry_read(const truce_set *set, struct value element, bool add, struct value *name,
                           struct set_rank *rank)
{
    struct fields fields;
    size_t left = 3;

    if (element.type != BSON_TYPE_DOCUMENT)
        return false;
    *name = truce__value_missing();
    *rank = (struct set_rank){0, "", add};
    fields = truce__fields(element);
    while (left && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, set->name)) {
            *name = fields.value;
            left--;
        } else if (!strcmp(fields.key, set->seq)) {
            if (truce__value_is_number(fields.value) &&
                !truce__number_to_int64(fields.value, &rank->seq))
                rank->seq = 0;
            left--;
        } else if (!strcmp(fields.key, set->source)) {
            uint32_t length;

            if (fields.value.type == BSON_TYPE_UTF8)
                rank->source = truce__value_text(fields.value, &length);
            left--;
        }
    }
    return name->type != VALUE_MISSING;
}

/* An entry that truce wrote begins with its name. */
struct value truce__set_entry_name(const truce_set *set, struct value element)
{
    uint32_t length = set->name_length;
    const uint8_t *first, *data;

    if (element.type != BSON_TYPE_DOCUMENT)
        return truce__value_missing();
    first = element.data + 4;
    data = first + 1 + length + 1;
    if (element.size < 4 + 1 + length + 1 + 1 || memcmp(first + 1, set->name, length + 1) != 0)
        return truce__value_field(element, set->name, length);
    return (struct value){data, truce__value_size(*first, data), *first};
}

static void state_of_list(const truce_set *set, struct value list, bool add, struct value name,
                          struct set_state *state)
{
    struct fields fields;

    if (list.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value found;
        struct set_rank rank;

        if (truce__set_entry_read(set, fields.value, add, &found, &rank) &&
            truce__value_equal(found, name) &&
            (!state->standing.seq || truce__set_rank_compare(&rank, &state->standing) > 0))
            state->standing = rank;
    }
}

int64_t truce__set_watermark_read(const truce_set *set, const bson_t *document)
{
    struct value value = operation_field_of(document, set->watermark);
    int64_t watermark = 0;

    if (truce__value_is_number(value))
        (void)truce__number_to_int64(value, &watermark); /* anything else is no watermark */
    return watermark;
}

void truce__set_state_read(const truce_set *set, const bson_t *document, struct value name,
                           struct set_state *state)
{
    *state = (struct set_state){{0, "", false}, truce__set_watermark_read(set, document)};
    state_of_list(set, operation_field_of(document, set->field), true, name, state);
    state_of_list(set, operation_field_of(document, set->deleted), false, name, state);
}

truce_status truce__set_look(truce_set *set, const bson_t *key, bson_t *document,
                             bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    truce_find_options options = {.projection = &projection};
    truce_status status;

    truce__set_key_append(set, key, &filter);
    for (uint32_t i = 0; i < set->keys_count; i++) {
        if (strcmp(set->keys[i], "_id"))
            bson_append_int32(&projection, set->keys[i], -1, 1);
    }
    bson_append_int32(&projection, set->field, -1, 1);
    bson_append_int32(&projection, set->deleted, -1, 1);
    bson_append_int32(&projection, set->watermark, -1, 1);
    bson_append_int32(&projection, "_rev", 4, 1);
    bson_append_int32(&projection, "_intent", 7, 1);
    status = truce_find_one(set->store, set->collection, &filter, &options, document, error);
    bson_destroy(&filter);
    bson_destroy(&projection);
    return status;
}

bool truce__set_has_revision(const bson_t *document)
{
    return operation_field_of(document, "_rev").type == BSON_TYPE_OID;
}

void truce__set_free_append(bool has_revision, bson_t *filter)
{
    bson_t condition, negation;

    bson_append_document_begin(filter, "_intent", 7, &condition);
    bson_append_bool(&condition, "$exists", 7, false);
    bson_append_document_end(filter, &condition);
    bson_append_document_begin(filter, "_rev", 4, &condition);
    if (has_revision) {
        bson_append_int32(&condition, "$type", 5, BSON_TYPE_OID);
    } else {
        bson_append_document_begin(&condition, "$not", 4, &negation);
        bson_append_int32(&negation, "$type", 5, BSON_TYPE_OID);
        bson_append_document_end(&condition, &negation);
    }
    bson_append_document_end(filter, &condition);
}

void truce__set_revision_append(bson_t *change)
{
    bson_oid_t fresh;

    truce__id_new(&fresh);
    bson_append_oid(change, "_rev", 4, &fresh);
}

static void operation_append_as_read(const bson_t *document, const char *field, bson_t *filter)
{
    struct value value = truce__value_field(truce__value_document(document), field, strlen(field));
    bson_t absent;

    if (value.type != VALUE_MISSING) {
        truce__value_append(filter, field, strlen(field), value);
        return;
    }
    bson_append_document_begin(filter, field, -1, &absent);
    bson_append_bool(&absent, "$exists", -1, false);
    bson_append_document_end(filter, &absent);
}

void truce__set_change_append(const bson_t *document, const bson_t *change, bson_t *update)
{
    bson_t set;

    if (!truce__set_has_revision(document)) {
        bson_append_document(update, "$set", -1, change);
        return;
    }
    bson_append_document_begin(update, "$set", -1, &set);
    bson_concat(&set, change);
    truce__set_revision_append(&set);
    bson_append_document_end(update, &set);
}

void truce__set_state_append(const truce_set *set, const bson_t *document, bson_t *filter)
{
    operation_append_as_read(document, "_id", filter);
    for (uint32_t i = 0; i < set->keys_count; i++) {
        if (strcmp(set->keys[i], "_id"))
            operation_append_as_read(document, set->keys[i], filter);
    }
    operation_append_as_read(document, set->field, filter);
    operation_append_as_read(document, set->deleted, filter);
    operation_append_as_read(document, set->watermark, filter);
    operation_append_as_read(document, "_rev", filter);
    operation_append_as_read(document, "_intent", filter);
}

truce_status truce__set_update_answered(truce_set *set, const char *collection,
                                        const bson_t *filter, const bson_t *update,
                                        const truce_write_options *options, bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    for (int round = 0; round < SET_TRIES_MAX; round++) {
        truce__set_pause(round);
        status = truce_update(set->store, collection, filter, update, options, NULL, error);
        if (status != TRUCE_DUPLICATE && !truce__repeatable(status)) /* two upserts may meet */
            break;
    }
    return status;
}

void truce__set_pause(int round)
{
    int64_t limit_ms = round < 8 ? 1 << round : 256;

    if (round > 1)
        truce__clock_sleep_ms((int64_t)(truce__random_entropy() % (uint64_t)limit_ms));
}
