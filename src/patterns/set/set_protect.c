/*
 * A set that its store protects against programs which do not compare the watermark: older consumers, that
 * send the updates of the classic description by themselves. What they would bring back is a member at or below
 * `_wm`, and so is every member that is older than the last collection. So these are marked, and a validator
 * of the collection refuses a document that has one without a mark:
 *
 *     {classes: [{name: "CS 101", seq: 1001, _proved: true}, {name: "CS 103", seq: 1203}], _wm: 1100}
 *
 *   1. Collecting raises `_wm` and marks the members up to it, in one update. All of them are real: whatever is at or
 *      below the watermark was applied, and a tombstone stood until this update against what is sent again.
 *   2. Whatever else truce writes is above `_wm`, or leaves an entry as it is: it is never refused.
 *   3. To protect a set: its definition tells collectors to mark; what stands is marked, each document up to its own
 *      `_wm`; the validator is installed; and what stands is marked once more, for a collector that had not
 *      been told, or an older consumer, in between. Until this last step such a document refuses writes.
 *
 *   4. A commit whose document has an entry at or below `_wm` that nobody has marked (it was prepared in
 *      the midst of 3) is released, or undone, past the validator, as every commit is (commit/validated.h).
 *
 * A collector of a version that does not mark is refused by the validator, and collects nothing. models/set_older.cpp
 * has the steps.
 *
 * Deliberately not done: two calls at a time on sets of one collection; the validator is read and written.
 */
#include "patterns/set/set_protect.h"

#include "base/field.h"

#define MARK "_proved"

truce_status truce__set_is_protected(truce_set *set, bool *is, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, definition;
    bson_iter_t iter;
    truce_status status;

    bson_append_utf8(&filter, "_id", -1, set->id, -1);
    status = truce_find_one(set->store, SET_DEFINITIONS, &filter, NULL, &definition, error);
    *is =
        !status && bson_iter_init_find(&iter, &definition, "protected") && bson_iter_as_bool(&iter);
    bson_destroy(&definition);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- marks ------------------------------------------------------------------------------------ */

void truce__set_sight_append(const truce_set *set, bool members, bson_t *projection)
{
    bson_append_int32(projection, set->deleted, -1, 1);
    bson_append_int32(projection, set->watermark, -1, 1);
    bson_append_int32(projection, "_rev", 4, 1);
    bson_append_int32(projection, "_intent", 7, 1);
    if (members)
        bson_append_int32(projection, set->field, -1, 1);
}

static int64_t count_unmarked(const truce_set *set, const bson_t *document, int64_t watermark)
{
    struct value list =
        truce__value_field(truce__value_document(document), set->field, strlen(set->field));
    struct fields fields;
    int64_t count = 0;

    if (list.type != BSON_TYPE_ARRAY)
        return 0;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value name;
        struct set_rank rank;

        count += truce__set_entry_read(set, fields.value, true, &name, &rank) && rank.seq > 0 &&
                 rank.seq <= watermark &&
                 truce__value_field(fields.value, MARK, strlen(MARK)).type == VALUE_MISSING;
    }
    return count;
}

int64_t truce__set_marks_append(const truce_set *set, const bson_t *document, int64_t watermark,
                                struct set_change *change)
{
    int64_t count = count_unmarked(set, document, watermark);
    bool has_revision = truce__set_has_revision(document);
    char *place = bson_strdup_printf("%s.$[m]." MARK, set->field);
    char *seq = bson_strdup_printf("m.%s", set->seq);
    bson_t outer, inner;

    if (count || has_revision) {
        bson_append_document_begin(&change->update, "$set", -1, &outer);
        if (has_revision)
            truce__set_revision_append(&outer);
        if (count)
            bson_append_bool(&outer, place, -1, true);
        bson_append_document_end(&change->update, &outer);
    }
    if (count) {
        bson_append_document_begin(&change->array_filters, "0", 1, &outer);
        bson_append_document_begin(&outer, seq, -1, &inner);
        bson_append_int64(&inner, "$gte", -1, 1);
        bson_append_int64(&inner, "$lte", -1, watermark);
        bson_append_document_end(&outer, &inner);
        bson_append_document_begin(&outer, "m." MARK, -1, &inner);
        bson_append_bool(&inner, "$exists", -1, false);
        bson_append_document_end(&outer, &inner);
        bson_append_document_end(&change->array_filters, &outer);
    }
    bson_free(place);
    bson_free(seq);
    return count;
}

/* A document of the walk that marks what stands. */
static void protect_add_document(struct set_walk *walk, const bson_t *document)
{
    int64_t watermark = truce__field_number(document, walk->set->watermark);
    struct set_change *change;

    if (!count_unmarked(walk->set, document, watermark))
        return;
    change = truce__set_walk_change(walk);
    truce__value_append(&change->filter, "_id", 3,
                        truce__value_field(truce__value_document(document), "_id", 3));
    truce__set_free_append(truce__set_has_revision(document), &change->filter);
    change->entries = truce__set_marks_append(walk->set, document, watermark, change);
}

/* Everything that stands at or below the watermark of its document. */
static truce_status mark_all(truce_set *set, bson_error_t *error)
{
    struct set_walk *walk = bson_malloc0(sizeof *walk);
    bson_t projection = BSON_INITIALIZER;
    bson_t *filter = BCON_NEW(set->watermark, "{", "$exists", BCON_BOOL(true), "}", set->field, "{",
                              "$elemMatch", "{", set->seq, "{", "$gte", BCON_INT32(1), "}", MARK,
                              "{", "$exists", BCON_BOOL(false), "}", "}", "}");
    truce_status status;

    walk->set = set;
    walk->add = protect_add_document;
    truce__set_sight_append(set, true, &projection);
    status = truce__set_walk(walk, filter, &projection, error);
    for (int round = 1; !status && walk->again && round < SET_TRIES_MAX; round++) {
        truce__set_pause(round);
        status = truce__set_walk(walk, filter, &projection, error);
    }
    if (!status && walk->first) {
        status = walk->first;
        if (error)
            *error = walk->why;
    }
    bson_destroy(&projection);
    bson_destroy(filter);
    bson_free(walk);
    return status;
}

/* ---- the validator ---------------------------------------------------------------------------- */

/* {$expr: {$not: [{$anyElementTrue: [members, {number from 1 to _wm, and no mark}]}]}} */
static bson_t *make_rule(const truce_set *set)
{
    char *list = bson_strdup_printf("$%s", set->field);
    char *seq = bson_strdup_printf("$$m.%s", set->seq);
    char *watermark = bson_strdup_printf("$%s", set->watermark);
    bson_t *rule = BCON_NEW("$expr", "{", "$not", "[", "{", "$anyElementTrue", "[", "{", "$map",
                            "{", "input", "{", "$cond", "[", "{", "$isArray", "[", BCON_UTF8(list),
                            "]", "}", BCON_UTF8(list), "[", "]", "]", "}", "as", BCON_UTF8("m"),
                            "in", "{", "$and", "[", "{", "$gte", "[", BCON_UTF8(seq), BCON_INT32(1),
                            "]", "}", "{", "$lte", "[", BCON_UTF8(seq), BCON_UTF8(watermark), "]",
                            "}", "{", "$ne", "[", BCON_UTF8("$$m." MARK), BCON_BOOL(true), "]", "}",
                            "]", "}", "}", "}", "]", "}", "]", "}");

    bson_free(list);
    bson_free(seq);
    bson_free(watermark);
    return rule;
}

/* `rule` is in or out of a validator that may have rules of others: {$and: [theirs, ours]}. */
static void with_rule(const bson_t *validator, const bson_t *rule, bool in, bson_t *made)
{
    struct value list = truce__value_field(truce__value_document(validator), "$and", 4);
    bson_t rules = BSON_INITIALIZER, one;
    uint32_t count = 0;

    if (list.type == BSON_TYPE_ARRAY && bson_count_keys(validator) == 1) {
        struct fields fields = truce__fields(list);

        while (truce__fields_next(&fields)) {
            if (fields.value.type == BSON_TYPE_DOCUMENT)
                truce__value_bson(fields.value, &one);
            if (fields.value.type != BSON_TYPE_DOCUMENT || !bson_equal(&one, rule))
                truce__value_append_element(&rules, &count, fields.value);
        }
    } else if (!bson_empty(validator) && !bson_equal(validator, rule)) {
        truce__value_append_element(&rules, &count, truce__value_document(validator));
    }
    if (in)
        truce__value_append_element(&rules, &count, truce__value_document(rule));
    if (count == 1 && truce__value_subdocument(&rules, "0", &one))
        bson_concat(made, &one);
    else if (count)
        BSON_APPEND_ARRAY(made, "$and", &rules);
    bson_destroy(&rules);
}

/* NOT_FOUND: there is no such collection. */
static truce_status protect_read_validator(truce_set *set, bson_t *validator, bson_error_t *error)
{
    const truce_list_options wanted = {.collection = set->collection, .unmeasured = true};
    bson_t list, one, found;
    truce_status status = truce_collection_list(set->store, &wanted, &list, error);
    struct fields fields = truce__fields(truce__value_document(&list));
    bool there = !status && truce__fields_next(&fields);

    if (there) {
        truce__value_bson(fields.value, &one);
        if (truce__value_subdocument(&one, "validator", &found))
            bson_concat(validator, &found);
    }
    bson_destroy(&list);
    return status || there ? status : TRUCE_NOT_FOUND;
}

static truce_status put_rule(truce_set *set, bool in, bson_error_t *error)
{
    bson_t before = BSON_INITIALIZER, after = BSON_INITIALIZER, *rule = make_rule(set);
    truce_status status = protect_read_validator(set, &before, error);

    if (!status) {
        with_rule(&before, rule, in, &after);
        if (!bson_equal(&before, &after))
            status = truce_collection_validate(set->store, set->collection, &after, error);
    }
    bson_destroy(rule);
    bson_destroy(&before);
    bson_destroy(&after);
    return status;
}

/* ---- the call --------------------------------------------------------------------------------- */

static truce_status protect_tell(truce_set *set, bool on, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(set->id));
    bson_t *update = BCON_NEW("$set", "{", "protected", BCON_BOOL(on), "}");
    truce_status status =
        truce__set_update_answered(set, SET_DEFINITIONS, filter, update, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

static truce_status protect(truce_set *set, bson_error_t *error)
{
    truce_status status = truce_collection_create(set->store, set->collection, error);

    status = status == TRUCE_DUPLICATE ? TRUCE_OK : status;
    if (!status)
        status = protect_tell(set, true, error);
    if (!status)
        status = mark_all(set, error);
    if (!status)
        status = put_rule(set, true, error);
    return status ? status : mark_all(set, error);
}

truce_status truce__set_unprotect(truce_set *set, bson_error_t *error)
{
    bool is = false;
    truce_status status = truce__set_is_protected(set, &is, error);

    if (status || !is)
        return status;
    status = put_rule(set, false, error);
    return status && status != TRUCE_NOT_FOUND ? status : protect_tell(set, false, error);
}

truce_status truce_set_protect(truce_set *set, bool on, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    truce_status status = truce__set_ready(set, error);

    if (status)
        return status;
    if (set->layout == TRUCE_SET_BY_ELEMENT ||
        !(set->store->capabilities & TRUCE_CAN_ARRAY_FILTERS))
        return truce__fail(TRUCE_INVALID, error, "set %s cannot be protected: %s", set->id,
                           set->layout == TRUCE_SET_BY_ELEMENT
                               ? "its elements are documents of their own"
                               : "the store has no array filters");
    return on ? protect(set, error) : truce__set_unprotect(set, error);
}
