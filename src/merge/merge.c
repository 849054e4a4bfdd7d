/*
 * The three-way merge of values. It begins at the root. For each value, the first rule applies:
 *
 *     mine equals theirs     take it (except for "sum", where two equal changes are two changes)
 *     mine equals base       take theirs, even if it is missing
 *     theirs equals base     take mine, even if it is missing
 *     three documents        merge field by field
 *     three arrays           merge element by element, if the elements can be identified
 *     both added one         do the same with an empty base for two arrays, or for two documents
 *                            that are fields
 *     otherwise              apply the policy of the path; if it has no answer, report a conflict
 *
 * Invariants:
 *   1. merge(b, b, x) = merge(b, x, b) = merge(b, x, x) = x, byte for byte.
 *   2. Exchanging the sides does not change the result, except with mine, theirs, and newest.
 *   3. Each change of a side is in the result, or a policy has overruled it, or it is a conflict.
 *
 * Deliberately not done: arrays of scalars are not merged by guessing, because the merge cannot
 * know which 5 was removed from [5, 5]. A rule can declare them as sets.
 */
#include "merge/merge_parts.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/number.h"

/* ---- paths and conflicts --------------------------------------------------------------------- */

uint32_t truce__merge_path_add(struct merge *merge, const char *text, size_t length)
{
    uint32_t before = merge->path_length;

    if (length > MERGE_PATH_MAX - 1 - before)
        length = MERGE_PATH_MAX - 1 - before;
    memcpy(merge->path + before, text, length);
    merge->path_length += (uint32_t)length;
    merge->path[merge->path_length] = '\0';
    return before;
}

void truce__merge_conflict(struct merge *merge, const char *kind, const struct merge_three *three,
                           const struct merged_text *text)
{
    bson_t conflict;

    truce__array_open_document(&merge->conflicts, &conflict);
    bson_append_utf8(&conflict, "path", 4, merge->path, (int)merge->path_length);
    bson_append_utf8(&conflict, "kind", 4, kind, -1);
    truce__value_append(&conflict, "base", 4, three->base);
    truce__value_append(&conflict, "mine", 4, three->mine);
    truce__value_append(&conflict, "theirs", 6, three->theirs);
    if (text) {
        bson_append_array(&conflict, "hunks", 5, &text->hunks);
        truce__value_append(&conflict, "marked", 6, text->marked);
    }
    truce__array_close_document(&merge->conflicts, &conflict);
}

static const char *merge_kind_of(const struct merge_three *three)
{
    if (!three->mine.type || !three->theirs.type)
        return "delete-edit";
    if (truce__type_class(three->mine.type) != truce__type_class(three->theirs.type))
        return "type";
    return three->base.type ? "both-changed" : "both-added";
}

/* ---- policies -------------------------------------------------------------------------------- */

static bool is_number_or_missing(struct value value)
{
    return !value.type || truce__value_is_number(value);
}

static bool decide_sum(struct merge *merge, const struct merge_three *three, struct value *decided)
{
    bool overflow = false;

    if (!truce__value_is_number(three->mine) || !truce__value_is_number(three->theirs) ||
        !is_number_or_missing(three->base))
        return false;
    *decided =
        truce__number_combine(NUMBER_ADD, three->mine, three->theirs, &merge->arena, &overflow);
    if (three->base.type && !overflow)
        *decided =
            truce__number_combine(NUMBER_SUBTRACT, *decided, three->base, &merge->arena, &overflow);
    return !overflow;
}

/* Orders values that are equal but not identical, in any consistent way. */
static bool is_greater(struct value a, struct value b)
{
    if (a.type != b.type)
        return a.type > b.type;
    return a.size != b.size ? a.size > b.size : memcmp(a.data, b.data, a.size) > 0;
}

/* Chooses the greater or the smaller value. Returns false for containers, for missing values, and
 * for values of different kinds. */
static bool decide_extreme(const struct merge_three *three, bool greatest, struct value *decided)
{
    int order;

    if (!three->mine.type || !three->theirs.type || truce__value_is_container(three->mine) ||
        truce__type_class(three->mine.type) != truce__type_class(three->theirs.type))
        return false;
    order = truce__value_compare(three->mine, three->theirs);
    *decided = (order > 0) == greatest ? three->mine : three->theirs;
    /* If the numbers are equal, such as 1 and 1.0, both sides of the merge must choose the same
     * one. */
    if (!order)
        *decided = is_greater(three->mine, three->theirs) ? three->mine : three->theirs;
    return true;
}

/* Merges the parts of a text that do not conflict, even if other parts do. */
static bool decide_text(struct merge *merge, const struct merge_three *three, struct value *decided)
{
    struct merged_text merged;
    enum merge_settle settle = merge->options->settle;
    bool done = truce__merge_text(&merge->arena, three, settle == MERGE_SETTLE_MINE, &merged);

    if (done)
        *decided = settle == MERGE_SETTLE_MARKED ? merged.marked : merged.text;
    if (done && !bson_empty(&merged.hunks) && settle == MERGE_REPORT)
        truce__merge_conflict(merge, merge_kind_of(three), three, &merged);
    bson_destroy(&merged.hunks);
    return done;
}

/* Applies the policy. Returns false if the policy has no answer for these values. */
static bool merge_decide(struct merge *merge, enum merge_policy policy,
                         const struct merge_three *three, struct value *decided)
{
    switch (policy) {
    case MERGE_MINE:
        *decided = three->mine;
        return true;
    case MERGE_THEIRS:
        *decided = three->theirs;
        return true;
    case MERGE_NEWEST:
        *decided = merge->options->mine_is_newer ? three->mine : three->theirs;
        return true;
    case MERGE_MAX:
    case MERGE_MIN:
        return decide_extreme(three, policy == MERGE_MAX, decided);
    case MERGE_SUM:
        return decide_sum(merge, three, decided);
    case MERGE_TEXT:
        return decide_text(merge, three, decided);
    default:
        return false;
    }
}

/* ---- documents ------------------------------------------------------------------------------- */

enum side { BASE, MINE, THEIRS };

/* Merges one field. Extends the path and the names only if a conflict is possible. */
static void merge_field(struct merge *merge, const struct aligned *aligned,
                        const struct fields *field, uint32_t number)
{
    struct merge_three three = {truce__aligned_value(aligned, BASE, number),
                                truce__aligned_value(aligned, MINE, number),
                                truce__aligned_value(aligned, THEIRS, number)};
    uint32_t length = merge->path_length;

    /* The value has no conflict, so its path is not needed. */
    if (!truce__merge_both_changed(&three)) {
        truce__merge_value(merge, field->key, field->key_length, &three);
        return;
    }
    if (length)
        truce__merge_path_add(merge, ".", 1);
    truce__merge_path_add(merge, field->key, field->key_length);
    merge->names[merge->depth++] = (struct merge_name){field->key, field->key_length};
    truce__merge_value(merge, field->key, field->key_length, &three);
    merge->depth--;
    truce__merge_path_restore(merge, length);
}

struct added {
    const struct fields *field;
    uint32_t number;
};

static int compare_added(const void *a, const void *b)
{
    return strcmp(((const struct added *)a)->field->key, ((const struct added *)b)->field->key);
}

/* Lists the fields of `side` that neither the base nor, if it is given, `other` has. */
static uint32_t list_added(const struct aligned *aligned, enum side side, enum side other,
                           struct added *added)
{
    const struct aligned_side *own = &aligned->sides[side];
    uint32_t count = 0;

    for (uint32_t i = 0; i < own->count; i++) {
        uint32_t number = own->numbers[i];

        if (truce__aligned_has(aligned, BASE, number) ||
            (other != BASE && truce__aligned_has(aligned, other, number)))
            continue;
        added[count++] = (struct added){&own->fields[i], number};
    }
    return count;
}

/* Appends added fields in the order of the side that has all of them, or else by name. The order
 * then does not depend on which side is which. */
static void merge_added(struct merge *merge, const struct aligned *aligned)
{
    uint32_t room = aligned->sides[MINE].count + aligned->sides[THEIRS].count + 1;
    struct added *added = truce__arena_take(&merge->arena, room * sizeof *added);
    uint32_t of_theirs = list_added(aligned, THEIRS, BASE, added);
    uint32_t of_mine = list_added(aligned, MINE, BASE, added);
    uint32_t count = of_mine + list_added(aligned, THEIRS, MINE, added + of_mine);
    bool sorted = of_mine && of_theirs && !truce__aligned_same_order(aligned, MINE, THEIRS);

    if (count > of_mine && count > of_theirs)
        sorted = true;
    else if (count > of_mine)
        (void)list_added(aligned, THEIRS, BASE, added);
    if (sorted && count)
        qsort(added, count, sizeof *added, compare_added);
    for (uint32_t i = 0; i < count; i++)
        merge_field(merge, aligned, added[i].field, added[i].number);
}

/* Returns whose order the old fields have: that of the side that moved them, or else the base's. */
static enum side order_of(const struct aligned *aligned)
{
    bool mine_moved = !truce__aligned_same_order(aligned, BASE, MINE);
    bool theirs_moved = !truce__aligned_same_order(aligned, BASE, THEIRS);

    if (mine_moved && (!theirs_moved || truce__aligned_same_order(aligned, MINE, THEIRS)))
        return MINE;
    return theirs_moved && !mine_moved ? THEIRS : BASE;
}

/* Appends the old fields and then the added ones. */
static void merge_documents(struct merge *merge, const struct aligned *aligned)
{
    enum side order = order_of(aligned);
    const struct aligned_side *old = &aligned->sides[BASE], *first = &aligned->sides[order];

    for (uint32_t i = 0; i < first->count; i++) {
        if (truce__aligned_has(aligned, BASE, first->numbers[i]))
            merge_field(merge, aligned, &first->fields[i], first->numbers[i]);
    }
    /* The remaining fields: one side has moved fields and removed these, and the other side has
     * changed them. */
    for (uint32_t i = 0; order != BASE && i < old->count; i++) {
        if (!truce__aligned_has(aligned, order, old->numbers[i]))
            merge_field(merge, aligned, &old->fields[i], old->numbers[i]);
    }
    merge_added(merge, aligned);
}

/* Merges documents field by field. Returns false if a name occurs twice in one of them. */
static bool merge_as_documents(struct merge *merge, const char *key, uint32_t key_length,
                               const struct merge_three *three)
{
    const struct value documents[] = {three->base, three->mine, three->theirs};
    struct builder_mark mark;
    struct aligned aligned;

    truce__align_fields(&merge->arena, documents, 3, &aligned);
    if (!aligned.unique)
        return false;
    mark = truce__merge_open(merge, key, key_length, BSON_TYPE_DOCUMENT);
    merge_documents(merge, &aligned);
    truce__builder_close(&merge->out, mark);
    return true;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void merge_put(struct merge *merge, const char *key, uint32_t key_length, struct value value)
{
    if (key)
        truce__builder_append(&merge->out, key, key_length, value);
    else if (value.type)
        truce__builder_element(&merge->out, value);
}

struct builder_mark truce__merge_open(struct merge *merge, const char *key, uint32_t key_length,
                                      uint8_t type)
{
    return key ? truce__builder_open(&merge->out, key, key_length, type)
               : truce__builder_open_element(&merge->out, type);
}

/* Merges with an empty base if both sides added an array, or a document as a field. Documents that
 * are elements of an array are not merged: under one identity, they may be different things. */
static bool merge_both_added(struct merge *merge, const char *key, uint32_t key_length,
                             const struct merge_three *three, bool as_set)
{
    static const uint8_t empty[] = {5, 0, 0, 0, 0};
    const struct merge_three added = {
        {empty, sizeof empty, three->mine.type}, three->mine, three->theirs};

    if (three->base.type || three->mine.type != three->theirs.type)
        return false;
    if (three->mine.type == BSON_TYPE_ARRAY)
        return truce__merge_array(merge, key, key_length, &added, as_set);
    return three->mine.type == BSON_TYPE_DOCUMENT && key &&
           merge_as_documents(merge, key, key_length, &added);
}

static bool all_are(const struct merge_three *three, uint8_t type)
{
    return three->base.type == type && three->mine.type == type && three->theirs.type == type;
}

bool truce__merge_for_mine(const struct merge *merge)
{
    return merge->options->settle == MERGE_SETTLE_MINE ||
           merge->options->settle == MERGE_SETTLE_MARKED;
}

/* Reports a conflict, or settles it as the options say. */
static struct value merge_settle_conflict(struct merge *merge, const struct merge_three *three)
{
    if (merge->options->settle == MERGE_REPORT)
        truce__merge_conflict(merge, merge_kind_of(three), three, NULL);
    return truce__merge_for_mine(merge) ? three->mine : three->theirs;
}

/* Merges a value that both sides changed in different ways. */
static void merge_changed(struct merge *merge, const char *key, uint32_t key_length,
                          const struct merge_three *three)
{
    enum merge_policy policy = truce__merge_policy(merge);
    struct value decided = three->theirs;

    if (merge->options->strict) {
        decided = merge_settle_conflict(merge, three);
    } else if (all_are(three, BSON_TYPE_DOCUMENT) &&
               merge_as_documents(merge, key, key_length, three)) {
        return;
    } else if (all_are(three, BSON_TYPE_ARRAY) &&
               truce__merge_array(merge, key, key_length, three, policy == MERGE_UNION)) {
        return;
    } else if (merge_both_added(merge, key, key_length, three, policy == MERGE_UNION)) {
        return;
    } else if (policy != MERGE_SUM && truce__value_identical(three->mine, three->theirs)) {
        decided = three->mine;
    } else if (!merge_decide(merge, policy, three, &decided)) {
        decided = merge_settle_conflict(merge, three);
    }
    merge_put(merge, key, key_length, decided);
}

/* Returns whether two equal changes may count twice: of a number that is summed, or of a container
 * with such numbers. */
static bool may_sum(struct merge *merge, const struct merge_three *three)
{
    if (!truce__merge_sums(merge) || merge->options->strict)
        return false;
    if (truce__value_is_number(three->mine))
        return truce__merge_policy(merge) == MERGE_SUM;
    return truce__value_is_container(three->mine) && three->base.type == three->mine.type;
}

bool truce__merge_both_changed(const struct merge_three *three)
{
    return !truce__value_identical(three->base, three->mine) &&
           !truce__value_identical(three->base, three->theirs);
}

void truce__merge_value(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three)
{
    bool mine_changed = !truce__value_identical(three->base, three->mine);

    if (mine_changed && truce__merge_both_changed(three) &&
        (!truce__value_identical(three->mine, three->theirs) || may_sum(merge, three)))
        merge_changed(merge, key, key_length, three);
    else
        merge_put(merge, key, key_length, mine_changed ? three->mine : three->theirs);
}

truce_status truce__merge(struct value base, struct value mine, struct value theirs,
                          const struct merge_options *options, bson_t *merged, bson_t *conflicts,
                          bson_error_t *error)
{
    static const struct merge_options defaults;
    struct merge_three three = {base, mine, theirs};
    struct merge *merge = bson_malloc0(sizeof *merge);
    struct value holder, root;
    truce_status status = TRUCE_OK;

    bson_init(merged);
    bson_init(conflicts);
    merge->options = options ? options : &defaults;
    merge->conflicts.to = conflicts;
    truce_assert(base.type == BSON_TYPE_DOCUMENT && mine.type == BSON_TYPE_DOCUMENT &&
                 theirs.type == BSON_TYPE_DOCUMENT);
    truce__builder_begin(&merge->out, &merge->made, MERGE_BYTES_MAX, BSON_TYPE_DOCUMENT);
    truce__merge_value(merge, "v", 1, &three);
    status = truce__builder_finish(&merge->out, &holder, error);
    root = status ? holder : truce__value_field(holder, "v", 1);
    if (status || root.size > TRUCE_DOCUMENT_BYTES_MAX) {
        status = truce__fail(TRUCE_LIMIT, error, "the merged document would have over %d bytes",
                             TRUCE_DOCUMENT_BYTES_MAX);
    } else {
        bson_t borrowed;

        truce__value_bson(root, &borrowed);
        bson_concat(merged, &borrowed);
    }
    truce__arena_release(&merge->arena);
    truce__arena_release(&merge->made);
    bson_free(merge);
    return status;
}
