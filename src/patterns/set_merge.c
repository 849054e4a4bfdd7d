/*
 * The winners of one document merged into its lists: what applying them one by one would leave, in
 * one walk. A pure function of the two lists and the watermark.
 *
 *     classes: [a 1] [b 2] [c 3]      winners: add b 5, remove c 6, add d 7
 *     ->       [a 1] [b 5] [d 7]      an entry is replaced in place, or put behind the last
 *     deleted: [d 4]  ->  [c 6]
 */
#include "base/assert.h"
#include "patterns/set.h"

#define LINEAR_MAX 8 /* so few winners are compared one by one */

/* Finds the winner of a name: open addressing, at most half full. */
struct lookup {
    const struct set_merge *merge;
    struct set_state *states; /* what stands for each winner */
    uint32_t *slots;          /* winner's number + 1; NULL: compare one by one */
    uint32_t mask;
};

static void lookup_init(struct lookup *lookup, const struct set_merge *merge)
{
    uint32_t size = 16;

    *lookup = (struct lookup){.merge = merge,
                              .states = bson_malloc(merge->count * sizeof *lookup->states)};
    if (merge->count <= LINEAR_MAX)
        return;
    while (size < merge->count * 2)
        size *= 2;
    lookup->slots = bson_malloc0(size * sizeof *lookup->slots);
    lookup->mask = size - 1;
    for (size_t i = 0; i < merge->count; i++) {
        uint32_t at = (uint32_t)merge->winners[i]->name_hash & lookup->mask;

        while (lookup->slots[at])
            at = (at + 1) & lookup->mask;
        lookup->slots[at] = (uint32_t)i + 1;
    }
}

/* the number of the winner, or merge->count */
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

static void read_states(const truce_set *set, struct value list, bool add,
                        const struct lookup *lookup)
{
    struct fields fields;

    if (list.type == VALUE_MISSING)
        return;
    fields = truce__fields(list);
    while (truce__fields_next(&fields)) {
        struct value name;
        struct set_rank rank;
        size_t i;

        if (!truce__set_entry_read(set, fields.value, add, &name, &rank))
            continue;
        i = lookup_find(lookup, name);
        if (i < lookup->merge->count) {
            struct set_rank *standing = &lookup->states[i].standing;

            if (!standing->seq || truce__set_rank_compare(&rank, standing) > 0)
                *standing = rank;
        }
    }
}

static void append_entry(const truce_set *set, const struct set_operation *operation, bson_t *list,
                         uint32_t *index)
{
    char text[16];
    const char *key;
    bson_t entry;

    bson_uint32_to_string((*index)++, &key, text, sizeof text);
    bson_append_document_begin(list, key, -1, &entry);
    truce__set_entry_append(set, operation, &entry);
    bson_append_document_end(list, &entry);
}

/* One list as it is to be; false: nothing in it is different. `placed[i]`: winner i is in it. */
static bool rewrite(const truce_set *set, struct value list, bool adds, const struct lookup *lookup,
                    bool *placed, bson_t *out)
{
    const struct set_merge *merge = lookup->merge;
    uint32_t index = 0;
    bool different = false;

    memset(placed, 0, merge->count);
    if (list.type != VALUE_MISSING) {
        struct fields fields = truce__fields(list);

        while (truce__fields_next(&fields)) {
            struct value name;
            struct set_rank rank;
            size_t i = merge->count;

            if (truce__set_entry_read(set, fields.value, adds, &name, &rank))
                i = lookup_find(lookup, name);
            if (i == merge->count || merge->verdicts[i] != SET_OPEN) {
                truce__value_append_element(out, &index, fields.value);
                continue;
            }
            different = true;
            if (merge->winners[i]->rank.add == adds && !placed[i])
                append_entry(set, merge->winners[i], out, &index);
            placed[i] = true;
        }
    }
    for (size_t i = 0; i < merge->count; i++) {
        if (merge->verdicts[i] == SET_OPEN && merge->winners[i]->rank.add == adds && !placed[i]) {
            append_entry(set, merge->winners[i], out, &index);
            different = true;
        }
    }
    return different;
}

static void write_list(const truce_set *set, const char *field, struct value list, bool adds,
                       const struct lookup *lookup, bool *placed, bson_t *change)
{
    bson_t out = BSON_INITIALIZER;

    if (rewrite(set, list, adds, lookup, placed, &out))
        bson_append_array(change, field, -1, &out);
    bson_destroy(&out);
}

truce_status truce__set_merge(const truce_set *set, const bson_t *document, struct set_merge *merge,
                              bson_error_t *error)
{
    struct value root = truce__value_document(document);
    struct value list = truce__value_field(root, set->field, strlen(set->field));
    struct value deleted = truce__value_field(root, set->deleted, strlen(set->deleted));
    int64_t watermark = truce__set_watermark_read(set, document);
    struct lookup lookup;
    bool *placed;

    truce_assert(merge->count > 0);
    bson_init(&merge->change);
    merge->changed = false;
    if ((list.type != VALUE_MISSING && list.type != BSON_TYPE_ARRAY) ||
        (deleted.type != VALUE_MISSING && deleted.type != BSON_TYPE_ARRAY))
        return truce__fail(
            TRUCE_CORRUPT, error, "a document of set %s has a \"%s\" that is no array", set->id,
            list.type != VALUE_MISSING && list.type != BSON_TYPE_ARRAY ? set->field : set->deleted);
    lookup_init(&lookup, merge);
    for (size_t i = 0; i < merge->count; i++)
        lookup.states[i] = (struct set_state){{0, "", false}, watermark};
    read_states(set, list, true, &lookup);
    read_states(set, deleted, false, &lookup);
    for (size_t i = 0; i < merge->count; i++) {
        merge->verdicts[i] = truce__set_verdict(&lookup.states[i], &merge->winners[i]->rank);
        merge->changed |= merge->verdicts[i] == SET_OPEN;
    }
    if (merge->changed) {
        placed = bson_malloc0(merge->count * sizeof *placed);
        write_list(set, set->field, list, true, &lookup, placed, &merge->change);
        write_list(set, set->deleted, deleted, false, &lookup, placed, &merge->change);
        bson_free(placed);
    }
    bson_free(lookup.slots);
    bson_free(lookup.states);
    return TRUCE_OK;
}
