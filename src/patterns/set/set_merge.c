/*
 * The winners of one document merged into its lists: what applying them one by one would leave, in
 * one walk. A pure function of the two lists and the watermark.
 *
 *     classes: [a 1] [b 2] [c 3]      winners: add b 5, remove c 6, add d 7
 *     ->       [a 1] [b 5] [d 7]      an entry is replaced in place, or put behind the last
 *     deleted: [d 4]  ->  [c 6]
 *
 * The walk reads no more of an entry than its name, unless a winner has it: a hit. What stands between
 * the hits that are replaced or left out is copied as it is; behind the first that is left out the
 * elements are numbered anew.
 *
 * Where the whole document is known, what it has no room for is left out (SET_FULL): as many of the
 * winners are merged as can be. A winner without room makes way for the next best of its name.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "patterns/set/set.h"

#define LINEAR_MAX 8 /* so few winners are compared one by one */

/* Finds the winner of a name: open addressing, at most half full. */
struct lookup {
    const struct set_merge *merge;
    struct set_state *states; /* what stands for each winner */
    uint32_t *slots;          /* winner's number + 1; NULL: compare one by one */
    uint32_t mask;
};

/* An element of a list that has a winner's name. */
struct hit {
    const uint8_t *start, *end; /* type, number and value */
    uint32_t index;             /* in the list */
    uint32_t winner;
};

/* One of the lists, as it was read. */
struct list {
    struct value value; /* or missing */
    bool adds;
    const struct hit *hits;
    uint32_t hits_count, count;
    bool bare; /* names stand in it that have no number */
};

void truce__set_scratch_release(struct set_scratch *scratch)
{
    truce__arena_release(&scratch->arena);
    truce__buffer_release(&scratch->hits);
    truce__buffer_release(&scratch->list);
}

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

/* ---- reading -------------------------------------------------------------------------------- */

static void take_standing(const struct lookup *lookup, size_t winner, const struct set_rank *rank)
{
    struct set_rank *standing = &lookup->states[winner].standing;

    if (!standing->seq || truce__set_rank_compare(rank, standing) > 0)
        *standing = *rank;
}

/* The hits go behind those that `hits` has. */
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
            list->bare = list->bare || truce__set_is_bare(fields.value);
            continue;
        }
        winner = lookup_find(lookup, name);
        if (winner == lookup->merge->count)
            continue;
        truce__set_entry_read(set, fields.value, list->adds, &name, &rank);
        take_standing(lookup, winner, &rank);
        truce__buffer_append(hits, &(struct hit){start, fields.at, list->count, (uint32_t)winner},
                             sizeof(struct hit));
        list->hits_count++;
    }
}

/* ---- room ----------------------------------------------------------------------------------- */

/* A document in bytes, as it becomes. */
struct outline {
    size_t others;      /* all but the lists */
    size_t heads[2];    /* type and name of the lists' fields */
    size_t values[2];   /* of the elements, with their types */
    uint32_t counts[2]; /* of the elements: members, tombstones */
    bool exists[2];
};

/* What a winner adds to the outline. */
struct share {
    size_t winner;
    int64_t values[2];
    int32_t counts[2];
    int64_t growth; /* about */
};

/* The operation that the verdict is of. */
static const struct set_operation *chosen(const struct set_merge *merge, size_t winner)
{
    return merge->winners[winner] + (merge->passed ? merge->passed[winner] : 0);
}

/* The numbers of an array's elements, as the keys that they are. */
static size_t keys_size(uint32_t count)
{
    size_t size = count; /* the zeros behind them */
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

static void leave_place(struct share *share, int list, const struct hit *hit)
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

/* The shares of the winners that are open; returns how many there are. */
static size_t merge_divide(const truce_set *set, const struct set_merge *merge,
                           const struct list *lists, struct share *shares)
{
    size_t count = 0, *at = bson_malloc(merge->count * sizeof *at);

    for (size_t i = 0; i < merge->count; i++) {
        if (merge->verdicts[i] != SET_OPEN)
            continue;
        at[i] = count;
        shares[count] = (struct share){.winner = i};
        count_entry(set, merge->winners[i], 1, &shares[count++]);
    }
    for (int list = 0; list < 2; list++) {
        for (uint32_t h = 0; h < lists[list].hits_count; h++) {
            const struct hit *hit = &lists[list].hits[h];

            if (merge->verdicts[hit->winner] == SET_OPEN)
                leave_place(&shares[at[hit->winner]], list, hit);
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

/* Room for everything, whatever the lists are like? */
static bool is_roomy(const bson_t *document, const struct set_merge *merge)
{
    size_t size = document->len + 1000;

    for (size_t i = 0; i < merge->count; i++)
        size += merge->winners[i]->given->element->len + merge->winners[i]->name.size + 200;
    return size <= TRUCE_DOCUMENT_BYTES_MAX;
}

/* The next of those that the winner beat takes its place; false: it would change nothing, or there is none. */
static bool merge_pass_over(const truce_set *set, struct set_merge *merge,
                            const struct lookup *lookup, struct share *share)
{
    size_t winner = share->winner;
    const struct set_operation *full = chosen(merge, winner), *next = full + 1;
    const struct set_operation *end =
        winner + 1 < merge->count ? merge->winners[winner + 1] : merge->end;

    merge->verdicts[winner] = SET_FULL;
    if (!merge->end || next == end)
        return false;
    merge->passed[winner]++;
    merge->verdicts[winner] = truce__set_verdict(&lookup->states[winner], &next->rank);
    if (merge->verdicts[winner] != SET_OPEN)
        return false;
    count_entry(set, full, -1, share);
    count_entry(set, next, 1, share);
    return true;
}

/* As many winners as the document has room for stay open, those that need least first. */
static void choose_fitting(const truce_set *set, const bson_t *document, struct set_merge *merge,
                           const struct lookup *lookup, const struct list *lists)
{
    struct share *shares;
    struct outline outline;
    size_t count;

    if (is_roomy(document, merge))
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

/* ---- writing -------------------------------------------------------------------------------- */

/* A list under construction, as bytes. */
struct output {
    struct buffer *bytes;
    uint32_t count;
    bool full; /* it is too large for any document: what is missing does not matter */
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

/* The elements from `start` to `end`, the first of which had the number `index`. */
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

static bool belongs(const struct set_merge *merge, size_t winner, bool adds)
{
    return merge->verdicts[winner] == SET_OPEN && chosen(merge, winner)->rank.add == adds;
}

/* The old elements, without those of the winners or with theirs in place. True: some are different.
 * `placed[i]`: winner i is done with. */
static bool rewrite_elements(const truce_set *set, const struct list *list,
                             const struct set_merge *merge, bool *placed, struct output *out)
{
    const uint8_t *from = list->value.data + 4, *end = list->value.data + list->value.size - 1;
    uint32_t from_index = 0;

    for (uint32_t h = 0; h < list->hits_count; h++) {
        const struct hit *hit = &list->hits[h];

        if (merge->verdicts[hit->winner] != SET_OPEN)
            continue;
        merge_append_run(out, from, hit->start, from_index, hit->index - from_index);
        if (belongs(merge, hit->winner, list->adds) && !placed[hit->winner])
            merge_append_entry(set, chosen(merge, hit->winner), out);
        placed[hit->winner] = true;
        from = hit->end;
        from_index = hit->index + 1;
    }
    merge_append_run(out, from, end, from_index, list->count - from_index);
    return from_index > 0;
}

/* The list as it is to be; false: nothing in it is different. */
static bool rewrite(const truce_set *set, const struct list *list, const struct set_merge *merge,
                    bool *placed, struct output *out)
{
    int32_t size = 0;
    bool different = false;

    memset(placed, 0, merge->count);
    truce__buffer_append(out->bytes, &size, 4);
    if (list->value.type != VALUE_MISSING)
        different = rewrite_elements(set, list, merge, placed, out);
    for (size_t i = 0; i < merge->count; i++) {
        if (belongs(merge, i, list->adds) && !placed[i]) {
            merge_append_entry(set, chosen(merge, i), out);
            different = true;
        }
    }
    truce__buffer_append_byte(out->bytes, 0);
    size = (int32_t)out->bytes->size;
    memcpy(out->bytes->bytes, &size, 4);
    return different;
}

static truce_status merge_write_list(const truce_set *set, const char *field,
                                     const struct list *list, struct set_merge *merge, bool *placed,
                                     bson_error_t *error)
{
    struct output out = {.bytes = &merge->scratch->list};

    out.bytes->size = 0;
    if (!rewrite(set, list, merge, placed, &out))
        return TRUCE_OK;
    if (out.full || out.bytes->size > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the list \"%s\" would have more than %d bytes", field,
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
    return truce__fail(TRUCE_CORRUPT, error, "a document of set %s has a \"%s\" that is no array",
                       set->id, list_wrong ? set->field : set->deleted);
}

/* Both lists get their numbers first; what an operation does not change of them is written all the same. */
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
    bool *placed;

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
        merge->verdicts[i] = truce__set_verdict(&lookup.states[i], &merge->winners[i]->rank);
        merge->changed |= merge->verdicts[i] == SET_OPEN;
    }
    if (merge->changed && merge->whole)
        choose_fitting(set, document, merge, &lookup, (const struct list[]){list, deleted});
    if (merge->changed) {
        placed = truce__arena_take(&merge->scratch->arena, merge->count * sizeof *placed);
        status = merge_write_list(set, set->field, &list, merge, placed, error);
        if (!status)
            status = merge_write_list(set, set->deleted, &deleted, merge, placed, error);
    }
    return status;
}
