/*
 * Lists from before there were numbers.
 *
 *     classes: ["CS 101", "CS 102"], deleted_classes: ["CS 103"]
 *     ->  classes: [{name: "CS 101", seq: 0}, {name: "CS 102", seq: 0}], deleted_classes: []
 *
 * An element without a number, a bare name or a document, is older than every operation: number 0. So a
 * tombstone without one says nothing, and goes; so does a name that stands again with a number, in
 * either list, or once more without one.
 *
 *   1. A list with bare names is converted whole by the write that applies an operation to its document. The merge does
 *      so itself (set_merge.c); the updates of single operations do not match such a document, and
 *      are told by a look to merge and to write, guarded by everything that was looked at.
 *   2. A reader is shown the converted list, whoever wrote it.
 *   3. truce_set_convert writes nothing else, with the same guard. A state never comes back (`_wm` and
 *      numbers only rise, bare names only go), so a write that lands late finds another state, or is
 *      right. What is done is not looked for any more: a run that was killed is made again.
 *
 * models/set_batch.cpp (plain) has the steps.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "bson/number.h"
#include "patterns/set/set_walk.h"

#define ROUNDS 8

static const struct {
    uint8_t type;
    const char *name; /* as $type of an aggregation tells it */
} bare_types[] = {
    {BSON_TYPE_UTF8, "string"},   {BSON_TYPE_INT32, "int"},      {BSON_TYPE_INT64, "long"},
    {BSON_TYPE_DOUBLE, "double"}, {BSON_TYPE_OID, "objectId"},   {BSON_TYPE_DATE_TIME, "date"},
    {BSON_TYPE_BOOL, "bool"},     {BSON_TYPE_BINARY, "binData"}, {BSON_TYPE_DECIMAL128, "decimal"},
};

#define BARE_TYPES (sizeof bare_types / sizeof *bare_types)

bool truce__set_is_bare(struct value element)
{
    for (size_t i = 0; i < BARE_TYPES; i++) {
        if (element.type == bare_types[i].type)
            return true;
    }
    return false;
}

void truce__set_bare_types_append(bool by_name, bson_t *array)
{
    for (size_t i = 0; i < BARE_TYPES; i++) {
        char text[16];
        const char *key;

        bson_uint32_to_string((uint32_t)i, &key, text, sizeof text);
        if (by_name)
            bson_append_utf8(array, key, -1, bare_types[i].name, -1);
        else
            bson_append_int32(array, key, -1, bare_types[i].type);
    }
}

static struct value list_in(const bson_t *document, const char *list)
{
    return truce__value_field(truce__value_document(document), list, strlen(list));
}

static bool has_bare(struct value list)
{
    struct fields fields;

    if (list.type != BSON_TYPE_ARRAY)
        return false;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        if (truce__set_is_bare(fields.value))
            return true;
    }
    return false;
}

bool truce__set_has_bare(const truce_set *set, const bson_t *document)
{
    return has_bare(list_in(document, set->field)) || has_bare(list_in(document, set->deleted));
}

/* ---- the converted lists --------------------------------------------------------------------- */

struct element {
    struct value value, name; /* name missing: it is no entry, and stays as it is */
    struct set_rank rank;
    uint64_t hash;
    size_t at;
    bool stays;
};

struct elements {
    struct element *all;
    size_t count, room;
};

static void convert_take_element(const truce_set *set, struct value value, bool add,
                                 struct elements *elements)
{
    struct element *element;

    if (elements->count == elements->room) {
        elements->room = elements->room ? elements->room * 2 : 64;
        elements->all = bson_realloc(elements->all, elements->room * sizeof *elements->all);
    }
    element = &elements->all[elements->count];
    *element = (struct element){.value = value,
                                .name = truce__value_missing(),
                                .rank = {0, "", add},
                                .at = elements->count++};
    if (truce__set_is_bare(value))
        element->name = value;
    else if (!truce__set_entry_read(set, value, add, &element->name, &element->rank))
        element->name = truce__value_missing();
    if (element->name.type != VALUE_MISSING)
        element->hash = truce__value_hash(element->name);
}

static void take_list(const truce_set *set, struct value list, bool add, struct elements *elements)
{
    struct fields fields;

    if (list.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields))
        convert_take_element(set, fields.value, add, elements);
}

/* Names together, the highest rank of each first, of equal ones the first. */
static int convert_compare(const void *left, const void *right)
{
    const struct element *a = *(const struct element *const *)left;
    const struct element *b = *(const struct element *const *)right;
    int order = a->hash < b->hash ? -1 : a->hash > b->hash;

    if (!order)
        order = truce__value_compare(a->name, b->name);
    if (!order)
        order = truce__set_rank_compare(&b->rank, &a->rank);
    return order ? order : (a->at < b->at ? -1 : 1);
}

static void convert_choose(struct elements *elements)
{
    struct element **sorted = bson_malloc((elements->count + 1) * sizeof *sorted);
    size_t count = 0;

    for (size_t i = 0; i < elements->count; i++) {
        elements->all[i].stays = elements->all[i].name.type == VALUE_MISSING;
        if (!elements->all[i].stays)
            sorted[count++] = &elements->all[i];
    }
    qsort(sorted, count, sizeof *sorted, convert_compare);
    for (size_t i = 0; i < count; i++) {
        bool first = !i || sorted[i]->hash != sorted[i - 1]->hash ||
                     !truce__set_name_equal(sorted[i]->name, sorted[i - 1]->name);

        sorted[i]->stays = first && (sorted[i]->rank.seq || sorted[i]->rank.add);
    }
    bson_free(sorted);
}

/* {name, seq: 0, ...payload} */
static void append_numbered(const truce_set *set, const struct element *element, const char *key,
                            bson_t *list)
{
    bson_t entry;

    bson_append_document_begin(list, key, -1, &entry);
    truce__value_append(&entry, set->name, set->name_length, element->name);
    bson_append_int64(&entry, set->seq, -1, 0);
    if (element->value.type == BSON_TYPE_DOCUMENT) {
        struct fields fields = truce__fields(element->value);

        while (truce__fields_next(&fields)) {
            if (strcmp(fields.key, set->name) && strcmp(fields.key, set->seq))
                truce__value_append(&entry, fields.key, fields.key_length, fields.value);
        }
    }
    bson_append_document_end(list, &entry);
}

/* Returns how many are different from what they were, or gone. */
static int64_t convert_write_list(const truce_set *set, const struct elements *elements,
                                  size_t from, size_t to, bson_t *list)
{
    uint32_t index = 0;
    int64_t changed = 0;

    for (size_t i = from; i < to; i++) {
        const struct element *element = &elements->all[i];
        char text[16];
        const char *key;

        if (!element->stays) {
            changed++;
        } else if (element->name.type == VALUE_MISSING || element->rank.seq) {
            truce__value_append_element(list, &index, element->value);
        } else {
            bool numbered = element->value.type == BSON_TYPE_DOCUMENT &&
                            truce__value_is_number(
                                truce__value_field(element->value, set->seq, strlen(set->seq)));

            if (numbered) {
                truce__value_append_element(list, &index, element->value);
                continue;
            }
            bson_uint32_to_string(index++, &key, text, sizeof text);
            append_numbered(set, element, key, list);
            changed++;
        }
    }
    return changed;
}

int64_t truce__set_converted(const truce_set *set, const bson_t *document, bson_t *lists)
{
    struct value list = list_in(document, set->field), deleted = list_in(document, set->deleted);
    struct elements elements = {0};
    size_t adds;
    int64_t changed = 0;
    bson_t array;

    take_list(set, list, true, &elements);
    adds = elements.count;
    take_list(set, deleted, false, &elements);
    convert_choose(&elements);
    if (list.type == BSON_TYPE_ARRAY) {
        bson_append_array_begin(lists, set->field, -1, &array);
        changed += convert_write_list(set, &elements, 0, adds, &array);
        bson_append_array_end(lists, &array);
    }
    if (deleted.type == BSON_TYPE_ARRAY) {
        bson_append_array_begin(lists, set->deleted, -1, &array);
        changed += convert_write_list(set, &elements, adds, elements.count, &array);
        bson_append_array_end(lists, &array);
    }
    bson_free(elements.all);
    return changed;
}

void truce__set_with_lists(const bson_t *document, const bson_t *lists, bson_t *to)
{
    struct value changed = truce__value_document(lists);
    struct fields fields = truce__fields(truce__value_document(document));

    while (truce__fields_next(&fields)) {
        struct value list = truce__value_field(changed, fields.key, fields.key_length);

        truce__value_append(to, fields.key, fields.key_length,
                            list.type == VALUE_MISSING ? fields.value : list);
    }
}

/* ---- converting what is there ---------------------------------------------------------------- */

static void convert_add_document(struct set_walk *walk, const bson_t *document)
{
    bson_t lists = BSON_INITIALIZER;
    int64_t changed = truce__set_converted(walk->set, document, &lists);

    if (changed) {
        struct set_change *change = truce__set_walk_change(walk);

        truce__set_state_append(walk->set, document, &change->filter);
        truce__set_change_append(document, &lists, &change->update);
        change->entries = changed;
    }
    bson_destroy(&lists);
}

/* {list: {$type: [...]}}, {list: {$elemMatch: {name: exists, seq: no number}}} */
static void append_list_filter(const truce_set *set, const char *list, uint32_t *index,
                               bson_t *either)
{
    bson_t one, inner, match, name, seq, negation;
    char text[16];
    const char *key;

    bson_uint32_to_string((*index)++, &key, text, sizeof text);
    bson_append_document_begin(either, key, -1, &one);
    bson_append_document_begin(&one, list, -1, &inner);
    bson_append_array_begin(&inner, "$type", -1, &match);
    truce__set_bare_types_append(false, &match);
    bson_append_array_end(&inner, &match);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(either, &one);
    bson_uint32_to_string((*index)++, &key, text, sizeof text);
    bson_append_document_begin(either, key, -1, &one);
    bson_append_document_begin(&one, list, -1, &inner);
    bson_append_document_begin(&inner, "$elemMatch", -1, &match);
    bson_append_document_begin(&match, set->name, -1, &name);
    bson_append_bool(&name, "$exists", -1, true);
    bson_append_document_end(&match, &name);
    bson_append_document_begin(&match, set->seq, -1, &seq);
    bson_append_document_begin(&seq, "$not", -1, &negation);
    bson_append_utf8(&negation, "$type", -1, "number", -1);
    bson_append_document_end(&seq, &negation);
    bson_append_document_end(&match, &seq);
    bson_append_document_end(&inner, &match);
    bson_append_document_end(&one, &inner);
    bson_append_document_end(either, &one);
}

/* Round after round, until nothing loses a race. */
static truce_status convert_convert(struct set_walk *walk, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, either;
    uint32_t index = 0;
    truce_status status = TRUCE_OK;

    bson_append_array_begin(&filter, "$or", -1, &either);
    append_list_filter(walk->set, walk->set->field, &index, &either);
    append_list_filter(walk->set, walk->set->deleted, &index, &either);
    bson_append_array_end(&filter, &either);
    for (int round = 0; !status && round < ROUNDS; round++) {
        truce__set_pause(round);
        status = truce__set_walk(walk, &filter, NULL, error);
        if (!walk->again)
            break;
    }
    bson_destroy(&filter);
    if (!status && walk->first && error)
        *error = walk->why;
    if (!status && !walk->first && walk->again)
        status = truce__fail(TRUCE_CONFLICT, error,
                             "set %s: others change documents all the time; convert it again",
                             walk->set->id);
    return status ? status : walk->first;
}

/* What is not a list, where one should be, cannot be converted, and no operation can be applied to it. */
static truce_status count_odd(truce_set *set, int64_t *left, bson_error_t *error)
{
    const char *lists[] = {set->field, set->deleted};
    bson_t filter = BSON_INITIALIZER, either, one, inner, negation;
    truce_status status;
    int64_t count = 0;

    bson_append_array_begin(&filter, "$or", -1, &either);
    for (uint32_t i = 0; i < 2; i++) {
        bson_append_document_begin(&either, i ? "1" : "0", 1, &one);
        bson_append_document_begin(&one, lists[i], -1, &inner);
        BSON_APPEND_BOOL(&inner, "$exists", true);
        bson_append_document_begin(&inner, "$not", -1, &negation);
        BSON_APPEND_UTF8(&negation, "$type", "array");
        bson_append_document_end(&inner, &negation);
        bson_append_document_end(&one, &inner);
        bson_append_document_end(&either, &one);
    }
    bson_append_array_end(&filter, &either);
    status = truce_count(set->store, set->collection, &filter, NULL, &count, error);
    bson_destroy(&filter);
    if (status || !count)
        return status;
    *left += count;
    return truce__fail(TRUCE_INVALID, error,
                       "\"%s\" or \"%s\" is no list in %" PRId64
                       " documents of \"%s\": mend them by hand",
                       set->field, set->deleted, count, set->collection);
}

truce_status truce_set_convert(truce_set *set, truce_set_converted *converted, bson_error_t *error)
{
    DEADLINE_SCOPE(set->deadline_ms);
    struct set_walk *walk;
    truce_status status = truce__set_ready(set, error);

    if (converted)
        *converted = (truce_set_converted){0};
    if (status || set->layout == TRUCE_SET_BY_ELEMENT)
        return status;
    walk = bson_malloc0(sizeof *walk);
    walk->set = set;
    walk->add = convert_add_document;
    status = convert_convert(walk, error);
    if (!status)
        status = count_odd(set, &walk->left, error);
    if (converted)
        *converted = (truce_set_converted){
            .documents = walk->documents, .elements = walk->entries, .left = walk->left};
    bson_free(walk);
    return status;
}
