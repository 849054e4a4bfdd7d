/*
 * Merges of operations into the two lists of a document, and lists without numbers. The second part
 * is a pure function of the lists and the watermark; the first part converts lists of programs that
 * had no numbers:
 *
 *     classes: ["CS 101", "CS 102"], deleted_classes: ["CS 103"]
 *     ->  classes: [{name: "CS 101", seq: 0}, {name: "CS 102", seq: 0}], deleted_classes: []
 *
 * An element without a number, a bare name or a document, is older than every operation: number 0.
 * A tombstone without a number therefore decides nothing and is dropped. So is a name without a
 * number that occurs again, in either list.
 *
 * 1. A list with bare names is converted as a whole by the write that applies an operation to its
 *    document. The merge does this itself. The updates of single operations do not match such a
 *    document; they read it, merge, and write the result, guarded by the state that was read.
 * 2. A reader always gets the converted list.
 * 3. truce_set_convert writes converted lists with the same guard, and nothing else. A state never
 *    returns (`_wm` and numbers only increase, and bare names only disappear), so a write that
 *    takes effect late finds another state, or is correct. Converted documents no longer match the
 *    search, so an interrupted run can be repeated.
 *
 * models/set_batch.cpp (plain) has the steps.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/number.h"
#include "patterns/set/set.h"
#include "patterns/set/set_walk.h"

/* The maximum number of walks over documents whose writes lost a race. */
#define ATTEMPTS_MAX 8

static const struct {
    uint8_t type;
    /* The name of the type in an aggregation. */
    const char *name;
} bare_types[] = {
    {BSON_TYPE_UTF8, "string"},   {BSON_TYPE_INT32, "int"},      {BSON_TYPE_INT64, "long"},
    {BSON_TYPE_DOUBLE, "double"}, {BSON_TYPE_OID, "objectId"},   {BSON_TYPE_DATE_TIME, "date"},
    {BSON_TYPE_BOOL, "bool"},     {BSON_TYPE_BINARY, "binData"}, {BSON_TYPE_DECIMAL128, "decimal"},
};

#define BARE_TYPES (sizeof bare_types / sizeof *bare_types)

/* Returns whether an element is only a name. */
static bool set_is_bare(struct value element)
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
        if (set_is_bare(fields.value))
            return true;
    }
    return false;
}

bool truce__set_has_bare(const truce_set *set, const bson_t *document)
{
    return has_bare(list_in(document, set->field)) || has_bare(list_in(document, set->deleted));
}

/* ---- converted lists ------------------------------------------------------------------------- */

/* An element of a list that is converted. */
struct element {
    /* The element and its name. If the name is missing, the element is not an entry and stays
     * unchanged. */
    struct value value, name;
    struct set_rank rank;
    /* The hash of the name. */
    uint64_t hash;
    /* The position of the element in both lists together. */
    size_t at;
    /* The converted lists have the element. */
    bool stays;
};

struct elements {
    struct element *all;
    size_t count, room;
};

/* Appends an element of a list. A bare name and an entry without a number get the number 0; the
 * name of any other value stays missing. */
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
    if (set_is_bare(value))
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

/* Orders by name, then by rank descending, then by position. */
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

/* Decides which elements the converted lists have: for each name the one of the highest rank,
 * unless it is a tombstone without a number. Elements that are not entries stay. */
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

/* Appends {name, seq: 0, ...payload}. */
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

/* Returns the number of elements that were changed or dropped. */
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

/* ---- conversion of a set --------------------------------------------------------------------- */

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

/* Appends {list: {$type: [...]}}, {list: {$elemMatch: {name: exists, seq: no number}}}. */
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

/* Repeats the walk until no write loses a race. */
static truce_status convert_passes(struct set_walk *walk, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, either;
    uint32_t index = 0;
    truce_status status = TRUCE_OK;

    bson_append_array_begin(&filter, "$or", -1, &either);
    append_list_filter(walk->set, walk->set->field, &index, &either);
    append_list_filter(walk->set, walk->set->deleted, &index, &either);
    bson_append_array_end(&filter, &either);
    for (int attempt = 0; !status && attempt < ATTEMPTS_MAX; attempt++) {
        truce__set_pause(attempt);
        status = truce__set_walk(walk, &filter, NULL, error);
        if (!walk->again)
            break;
    }
    bson_destroy(&filter);
    if (!status && walk->first && error)
        *error = walk->why;
    if (!status && !walk->first && walk->again)
        status = truce__fail(
            TRUCE_CONFLICT, error,
            "set \"%s\" was changed concurrently in each attempt: convert it again", walk->set->id);
    return status ? status : walk->first;
}

/* Counts documents whose list is not an array. They cannot be converted, and no operation can be
 * applied to them. */
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
                       "\"%s\" or \"%s\" is not an array in %" PRId64
                       " documents of \"%s\": repair them by hand",
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
    status = convert_passes(walk, error);
    if (!status)
        status = count_odd(set, &walk->left, error);
    if (converted)
        *converted = (truce_set_converted){
            .documents = walk->documents, .elements = walk->entries, .left = walk->left};
    bson_free(walk);
    return status;
}

/* ---- merge ----------------------------------------------------------------------------------- */

/*
 * The merge leaves what applying the winners one by one would leave, in one walk over the lists.
 *
 *     classes: [a 1] [b 2] [c 3]      winners: add b 5, remove c 6, add d 7
 *     ->       [a 1] [b 5] [d 7]      an entry is replaced in place, or appended
 *     deleted: [d 4]  ->  [c 6]
 *
 * The walk reads only the name of an entry, unless the entry has a winner's name: a hit. Runs
 * between hits that are replaced or dropped are copied unchanged. After the first dropped element
 * the elements get new array indexes.
 *
 * If the whole document is known, winners that do not fit are left out (SET_FULL), as few as
 * possible. A winner that does not fit is replaced by the operation of the next lower rank on the
 * same name.
 */

/* If there are no more winners than this, each name is compared with all of them. */
#define LINEAR_MAX 8

/* Finds the winner of a name by open addressing, at most half full. */
struct lookup {
    const struct set_merge *merge;
    /* states[i]: the stored state of winner i. */
    struct set_state *states;
    /* A hash table of the numbers of winners, plus 1. NULL if names are compared with all
     * winners. */
    uint32_t *slots;
    /* The number of slots, minus 1. */
    uint32_t mask;
};

/* An element of a list that has a winner's name. */
struct hit {
    /* The bytes of the element: its type, key, and value. */
    const uint8_t *start, *end;
    /* The index of the element in the list. */
    uint32_t index;
    uint32_t winner;
};

/* One of the lists as it was read. */
struct list {
    /* The list, or a missing value. */
    struct value value;
    /* The list has the members; otherwise it has the tombstones. */
    bool adds;
    const struct hit *hits;
    uint32_t hits_count, count;
    /* The list contains bare names. */
    bool bare;
};

void truce__set_scratch_release(struct set_scratch *scratch)
{
    truce__arena_release(&scratch->arena);
    truce__buffer_release(&scratch->hits);
    truce__buffer_release(&scratch->list);
}

/* Prepares the search for winners by name: a hash table, or a scan if they are few. */
static void lookup_init(struct lookup *lookup, const struct set_merge *merge, int64_t watermark)
{
    struct arena *arena = &merge->scratch->arena;
    uint32_t size = 16;

    *lookup = (struct lookup){
        .merge = merge, .states = truce__arena_take(arena, merge->count * sizeof *lookup->states)};
    for (size_t i = 0; i < merge->count; i++)
        lookup->states[i] = (struct set_state){{0, "", false}, watermark};
    if (merge->count <= LINEAR_MAX)
        return;
    while (size < merge->count * 2)
        size *= 2;
    lookup->slots = truce__arena_take(arena, size * sizeof *lookup->slots);
    memset(lookup->slots, 0, size * sizeof *lookup->slots);
    lookup->mask = size - 1;
    for (size_t i = 0; i < merge->count; i++) {
        uint32_t at = (uint32_t)merge->winners[i]->name_hash & lookup->mask;

        while (lookup->slots[at])
            at = (at + 1) & lookup->mask;
        lookup->slots[at] = (uint32_t)i + 1;
    }
}

/* Returns the number of the winner, or merge->count. */
static size_t lookup_find(const struct lookup *lookup, struct value name)
{
    const struct set_merge *merge = lookup->merge;
    uint32_t at;

    if (!lookup->slots) {
        for (size_t i = 0; i < merge->count; i++) {
            if (truce__set_name_equal(merge->winners[i]->name, name))
                return i;
        }
        return merge->count;
    }
    for (at = (uint32_t)truce__value_hash(name) & lookup->mask; lookup->slots[at];
         at = (at + 1) & lookup->mask) {
        if (truce__set_name_equal(merge->winners[lookup->slots[at] - 1]->name, name))
            return lookup->slots[at] - 1;
    }
    return merge->count;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void lookup_add_rank(const struct lookup *lookup, size_t winner, const struct set_rank *rank)
{
    struct set_rank *stored = &lookup->states[winner].stored;

    if (!stored->seq || truce__set_rank_compare(rank, stored) > 0)
        *stored = *rank;
}

/* Appends the hits to `hits`. */
static void merge_read_list(const truce_set *set, struct list *list, const struct lookup *lookup,
                            struct buffer *hits)
{
    struct fields fields;

    if (list->value.type == VALUE_MISSING)
        return;
    fields = truce__fields(list->value);
    for (;; list->count++) {
        const uint8_t *start = fields.at;
        struct value name;
        struct set_rank rank;
        size_t winner;

        if (!truce__fields_next(&fields))
            return;
        name = truce__set_entry_name(set, fields.value);
        if (name.type == VALUE_MISSING) {
            list->bare = list->bare || set_is_bare(fields.value);
            continue;
        }
        winner = lookup_find(lookup, name);
        if (winner == lookup->merge->count)
            continue;
        truce__set_entry_read(set, fields.value, list->adds, &name, &rank);
        lookup_add_rank(lookup, winner, &rank);
        truce__buffer_append(hits, &(struct hit){start, fields.at, list->count, (uint32_t)winner},
                             sizeof(struct hit));
        list->hits_count++;
    }
}

/* ---- room ------------------------------------------------------------------------------------ */

/* The size of the document that the merge builds, by parts. */
struct outline {
    /* The size of all fields except the lists. */
    size_t others;
    /* The sizes of the types and names of the two list fields. */
    size_t heads[2];
    /* The sizes of the elements of each list, with their types and without their keys. */
    size_t values[2];
    /* The number of members and of tombstones. */
    uint32_t counts[2];
    /* exists[i]: the field of list i exists, or a winner creates it. */
    bool exists[2];
};

/* The part of the outline that a winner adds. */
struct share {
    size_t winner;
    int64_t values[2];
    int32_t counts[2];
    /* The estimated growth of the document in bytes. */
    int64_t growth;
};

/* Returns the operation that the winner's decision belongs to. */
static const struct set_operation *merge_winning_operation(const struct set_merge *merge,
                                                           size_t winner)
{
    return merge->winners[winner] + (merge->passed ? merge->passed[winner] : 0);
}

/* Returns the size of the keys "0", "1", ... of an array's elements. */
static size_t keys_size(uint32_t count)
{
    /* Each key has a terminating zero byte. */
    size_t size = count;
    uint32_t from = 0, digits = 1;

    for (uint64_t to = 10; from < count; to *= 10, digits++) {
        uint32_t end = count < to ? count : (uint32_t)to;

        size += (size_t)(end - from) * digits;
        from = end;
    }
    return size;
}

static size_t list_size(const struct outline *outline, int list)
{
    return outline->exists[list]
               ? outline->heads[list] + 5 + outline->values[list] + keys_size(outline->counts[list])
               : 0;
}

static size_t outline_size(const struct outline *outline)
{
    return outline->others + list_size(outline, 0) + list_size(outline, 1);
}

static void outline_init(struct outline *outline, const truce_set *set, const bson_t *document,
                         const struct list *lists)
{
    *outline = (struct outline){.heads = {strlen(set->field) + 2, strlen(set->deleted) + 2}};
    for (int i = 0; i < 2; i++) {
        outline->exists[i] = lists[i].value.type != VALUE_MISSING;
        outline->counts[i] = lists[i].count;
        if (outline->exists[i])
            outline->values[i] = lists[i].value.size - 5 - keys_size(lists[i].count);
    }
    outline->others = document->len - list_size(outline, 0) - list_size(outline, 1);
}

static uint32_t merge_digits_of(uint32_t index)
{
    uint32_t digits = 1;

    for (; index >= 10; index /= 10)
        digits++;
    return digits;
}

static int by_growth(const void *left, const void *right)
{
    const struct share *a = left, *b = right;

    if (a->growth != b->growth)
        return a->growth < b->growth ? -1 : 1;
    return a->winner < b->winner ? -1 : 1;
}

static void leave_element(struct share *share, int list, const struct hit *hit)
{
    int64_t size = hit->end - hit->start - merge_digits_of(hit->index) - 1;

    share->values[list] -= size;
    share->counts[list]--;
    share->growth -= size + 6;
}

static void count_entry(const truce_set *set, const struct set_operation *operation, int sign,
                        struct share *share)
{
    bson_t entry = BSON_INITIALIZER;
    int own = operation->rank.add ? 0 : 1;

    truce__set_entry_append(set, operation, &entry);
    share->values[own] += sign * ((int64_t)entry.len + 1);
    share->counts[own] += sign;
    share->growth += sign * ((int64_t)entry.len + 1 + 6);
    bson_destroy(&entry);
}

/* Fills the shares of the open winners and returns their number. */
static size_t merge_divide(const truce_set *set, const struct set_merge *merge,
                           const struct list *lists, struct share *shares)
{
    size_t count = 0, *at = bson_malloc(merge->count * sizeof *at);

    for (size_t i = 0; i < merge->count; i++) {
        if (merge->decisions[i] != SET_OPEN)
            continue;
        at[i] = count;
        shares[count] = (struct share){.winner = i};
        count_entry(set, merge->winners[i], 1, &shares[count++]);
    }
    for (int list = 0; list < 2; list++) {
        for (uint32_t h = 0; h < lists[list].hits_count; h++) {
            const struct hit *hit = &lists[list].hits[h];

            if (merge->decisions[hit->winner] == SET_OPEN)
                leave_element(&shares[at[hit->winner]], list, hit);
        }
    }
    bson_free(at);
    return count;
}

static void take_share(struct outline *outline, const struct share *share)
{
    for (int list = 0; list < 2; list++) {
        outline->values[list] = (size_t)((int64_t)outline->values[list] + share->values[list]);
        outline->counts[list] = (uint32_t)((int64_t)outline->counts[list] + share->counts[list]);
        outline->exists[list] = outline->exists[list] || share->counts[list] > 0;
    }
}

/* Returns whether everything fits for certain, whatever the lists contain. */
static bool fits_surely(const bson_t *document, const struct set_merge *merge)
{
    size_t size = document->len + 1000;

    for (size_t i = 0; i < merge->count; i++)
        size += merge->winners[i]->given->element->len + merge->winners[i]->name.size + 200;
    return size <= TRUCE_DOCUMENT_BYTES_MAX;
}

/* Replaces a winner by the next operation that it supersedes. Returns false without such an
 * operation, or if it would change nothing. */
static bool merge_pass_over(const truce_set *set, struct set_merge *merge,
                            const struct lookup *lookup, struct share *share)
{
    size_t winner = share->winner;
    const struct set_operation *full = merge_winning_operation(merge, winner), *next = full + 1;
    const struct set_operation *end =
        winner + 1 < merge->count ? merge->winners[winner + 1] : merge->end;

    merge->decisions[winner] = SET_FULL;
    if (!merge->end || next == end)
        return false;
    merge->passed[winner]++;
    merge->decisions[winner] = truce__set_decide(&lookup->states[winner], &next->rank);
    if (merge->decisions[winner] != SET_OPEN)
        return false;
    count_entry(set, full, -1, share);
    count_entry(set, next, 1, share);
    return true;
}

/* Keeps open as many winners as fit, those with the smallest growth first. */
static void choose_fitting(const truce_set *set, const bson_t *document, struct set_merge *merge,
                           const struct lookup *lookup, const struct list *lists)
{
    struct share *shares;
    struct outline outline;
    size_t count;

    if (fits_surely(document, merge))
        return;
    shares = bson_malloc(merge->count * sizeof *shares);
    outline_init(&outline, set, document, lists);
    count = merge_divide(set, merge, lists, shares);
    qsort(shares, count, sizeof *shares, by_growth);
    merge->changed = false;
    for (size_t i = 0; i < count; i++) {
        struct outline then;
        bool fits;

        do {
            then = outline;
            take_share(&then, &shares[i]);
            fits = outline_size(&then) <= TRUCE_DOCUMENT_BYTES_MAX;
        } while (!fits && merge_pass_over(set, merge, lookup, &shares[i]));
        if (!fits)
            continue;
        outline = then;
        merge->changed = true;
    }
    bson_free(shares);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A list under construction, as bytes. */
struct output {
    struct buffer *bytes;
    uint32_t count;
    /* The list would exceed the maximum size of a document. Its remaining elements are not written,
     * because the merge fails anyway. */
    bool full;
};

static void merge_append_head(struct output *out, uint8_t type)
{
    char text[16];
    const char *key;
    size_t length = bson_uint32_to_string(out->count++, &key, text, sizeof text);

    truce__buffer_append_byte(out->bytes, type);
    truce__buffer_append(out->bytes, key, length + 1);
}

static void merge_append_entry(const truce_set *set, const struct set_operation *operation,
                               struct output *out)
{
    bson_t entry = BSON_INITIALIZER;

    out->full = out->bytes->size > TRUCE_DOCUMENT_BYTES_MAX;
    if (out->full)
        return;
    truce__set_entry_append(set, operation, &entry);
    merge_append_head(out, BSON_TYPE_DOCUMENT);
    truce__buffer_append(out->bytes, bson_get_data(&entry), entry.len);
    bson_destroy(&entry);
}

/* Appends the elements from `start` to `end`, the first of which had the index `index`. */
static void merge_append_run(struct output *out, const uint8_t *start, const uint8_t *end,
                             uint32_t index, uint32_t count)
{
    if (index == out->count) {
        truce__buffer_append(out->bytes, start, (size_t)(end - start));
        out->count += count;
        return;
    }
    while (start < end) {
        uint8_t type = *start;
        uint32_t size;

        start += 1 + strlen((const char *)start + 1) + 1;
        size = truce__value_size(type, start);
        merge_append_head(out, type);
        truce__buffer_append(out->bytes, start, size);
        start += size;
    }
}

static bool merge_decision_is_open(const struct set_merge *merge, size_t winner, bool adds)
{
    return merge->decisions[winner] == SET_OPEN &&
           merge_winning_operation(merge, winner)->rank.add == adds;
}

/* Copies the old elements, with the winners' elements replaced or dropped. Sets written[i] for each
 * winner i that is done. Returns whether an element differs. */
static bool rewrite_elements(const truce_set *set, const struct list *list,
                             const struct set_merge *merge, bool *written, struct output *out)
{
    const uint8_t *from = list->value.data + 4, *end = list->value.data + list->value.size - 1;
    uint32_t from_index = 0;

    for (uint32_t h = 0; h < list->hits_count; h++) {
        const struct hit *hit = &list->hits[h];

        if (merge->decisions[hit->winner] != SET_OPEN)
            continue;
        merge_append_run(out, from, hit->start, from_index, hit->index - from_index);
        if (merge_decision_is_open(merge, hit->winner, list->adds) && !written[hit->winner])
            merge_append_entry(set, merge_winning_operation(merge, hit->winner), out);
        written[hit->winner] = true;
        from = hit->end;
        from_index = hit->index + 1;
    }
    merge_append_run(out, from, end, from_index, list->count - from_index);
    return from_index > 0;
}

/* Builds the new list. Returns false if it equals the old one. */
static bool set_merge_write_list(const truce_set *set, const struct list *list,
                                 const struct set_merge *merge, bool *written, struct output *out)
{
    int32_t size = 0;
    bool different = false;

    memset(written, 0, merge->count);
    truce__buffer_append(out->bytes, &size, 4);
    if (list->value.type != VALUE_MISSING)
        different = rewrite_elements(set, list, merge, written, out);
    for (size_t i = 0; i < merge->count; i++) {
        if (merge_decision_is_open(merge, i, list->adds) && !written[i]) {
            merge_append_entry(set, merge_winning_operation(merge, i), out);
            different = true;
        }
    }
    truce__buffer_append_byte(out->bytes, 0);
    size = (int32_t)out->bytes->size;
    memcpy(out->bytes->bytes, &size, 4);
    return different;
}

static truce_status merge_write_list(const truce_set *set, const char *field,
                                     const struct list *list, struct set_merge *merge,
                                     bool *written, bson_error_t *error)
{
    struct output out = {.bytes = &merge->scratch->list};

    out.bytes->size = 0;
    if (!set_merge_write_list(set, list, merge, written, &out))
        return TRUCE_OK;
    if (out.full || out.bytes->size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the list \"%s\" would exceed %d bytes", field,
                             TRUCE_DOCUMENT_BYTES_MAX);
    truce__value_append(
        &merge->change, field, strlen(field),
        (struct value){out.bytes->bytes, (uint32_t)out.bytes->size, BSON_TYPE_ARRAY});
    return TRUCE_OK;
}

static truce_status check_lists(const truce_set *set, struct value list, struct value deleted,
                                bson_error_t *error)
{
    bool list_wrong = list.type != VALUE_MISSING && list.type != BSON_TYPE_ARRAY;

    if (!list_wrong && (deleted.type == VALUE_MISSING || deleted.type == BSON_TYPE_ARRAY))
        return TRUCE_OK;
    return truce__fail(TRUCE_CORRUPT, error,
                       "the field \"%s\" in a document of set \"%s\" is not an array",
                       list_wrong ? set->field : set->deleted, set->id);
}

/* Merges into a document whose lists have elements without numbers. Both lists get numbers first,
 * so lists that the operations do not change are written, too. */
static truce_status merge_converted(const truce_set *set, const bson_t *document,
                                    struct set_merge *merge, bson_error_t *error)
{
    const char *const lists[] = {set->field, set->deleted};
    bson_t converted = BSON_INITIALIZER, whole = BSON_INITIALIZER;
    truce_status status;

    truce__set_converted(set, document, &converted);
    truce__set_with_lists(document, &converted, &whole);
    bson_destroy(&merge->change);
    status = truce__set_merge(set, &whole, merge, error);
    for (int i = 0; !status && merge->changed && i < 2; i++) {
        struct value list =
            truce__value_field(truce__value_document(&converted), lists[i], strlen(lists[i]));

        if (list.type != VALUE_MISSING && !bson_has_field(&merge->change, lists[i]))
            truce__value_append(&merge->change, lists[i], strlen(lists[i]), list);
    }
    bson_destroy(&whole);
    bson_destroy(&converted);
    return status;
}

truce_status truce__set_merge(const truce_set *set, const bson_t *document, struct set_merge *merge,
                              bson_error_t *error)
{
    struct value root = truce__value_document(document);
    struct list list = {.value = truce__value_field(root, set->field, strlen(set->field)),
                        .adds = true};
    struct list deleted = {.value = truce__value_field(root, set->deleted, strlen(set->deleted))};
    struct buffer *hits = &merge->scratch->hits;
    truce_status status = check_lists(set, list.value, deleted.value, error);
    struct lookup lookup;
    bool *written;

    truce_assert(merge->count > 0);
    bson_init(&merge->change);
    merge->changed = false;
    if (status)
        return status;
    truce__arena_reset(&merge->scratch->arena);
    hits->size = 0;
    lookup_init(&lookup, merge, truce__set_watermark_read(set, document));
    merge_read_list(set, &list, &lookup, hits);
    merge_read_list(set, &deleted, &lookup, hits);
    if (list.bare || deleted.bare)
        return merge_converted(set, document, merge, error);
    list.hits = (const struct hit *)hits->bytes;
    deleted.hits = list.hits ? list.hits + list.hits_count : NULL;
    for (size_t i = 0; i < merge->count; i++) {
        if (merge->passed)
            merge->passed[i] = 0;
        merge->decisions[i] = truce__set_decide(&lookup.states[i], &merge->winners[i]->rank);
        merge->changed |= merge->decisions[i] == SET_OPEN;
    }
    if (merge->changed && merge->whole)
        choose_fitting(set, document, merge, &lookup, (const struct list[]){list, deleted});
    if (merge->changed) {
        written = truce__arena_take(&merge->scratch->arena, merge->count * sizeof *written);
        status = merge_write_list(set, set->field, &list, merge, written, error);
        if (!status)
            status = merge_write_list(set, set->deleted, &deleted, merge, written, error);
    }
    return status;
}
