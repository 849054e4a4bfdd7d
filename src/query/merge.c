/*
 * The three-way merge of values. For each value, from the root down:
 *
 *     mine as theirs                taken (but for "sum": two equal changes are two changes)
 *     mine as base                  theirs is taken, also where it is gone
 *     theirs as base                mine is taken, also where it is gone
 *     three documents               field by field
 *     three arrays                  element by element, where elements can be told apart
 *     otherwise                     the policy of the path; what it cannot decide is a conflict
 *
 * Invariants:
 *   1. merge(b, b, x) = merge(b, x, b) = merge(b, x, x) = x, byte for byte.
 *   2. With sides exchanged the result is the same, where policies are (all but mine, theirs, newest).
 *   3. What one side changed is in the result, or a policy decided against it, or it is a conflict.
 *
 * Deliberately not done: arrays of scalars are not guessed at (which 5 was removed from [5, 5]?); a
 * rule makes sets of them.
 */
#include "query/merge_parts.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/limits.h"
#include "query/number.h"

/* ---- paths and conflicts ---------------------------------------------------------------------- */

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

void truce__merge_path_restore(struct merge *merge, uint32_t length)
{
    merge->path_length = length;
    merge->path[length] = '\0';
}

void truce__merge_conflict(struct merge *merge, const char *kind, const struct merge_three *three)
{
    char text[16];
    const char *key;
    bson_t conflict;

    bson_uint32_to_string(merge->conflicts_count++, &key, text, sizeof text);
    bson_append_document_begin(merge->conflicts, key, -1, &conflict);
    bson_append_utf8(&conflict, "path", 4, merge->path, (int)merge->path_length);
    bson_append_utf8(&conflict, "kind", 4, kind, -1);
    truce__value_append(&conflict, "base", 4, three->base);
    truce__value_append(&conflict, "mine", 4, three->mine);
    truce__value_append(&conflict, "theirs", 6, three->theirs);
    bson_append_document_end(merge->conflicts, &conflict);
}

static const char *kind_of(const struct merge_three *three)
{
    if (!three->mine.type || !three->theirs.type)
        return "delete-edit";
    if (truce__type_class(three->mine.type) != truce__type_class(three->theirs.type))
        return "type";
    return three->base.type ? "both-changed" : "both-added";
}

/* ---- policies --------------------------------------------------------------------------------- */

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

/* any order of values that are equal, but not the same bytes */
static bool is_greater(struct value a, struct value b)
{
    if (a.type != b.type)
        return a.type > b.type;
    return a.size != b.size ? a.size > b.size : memcmp(a.data, b.data, a.size) > 0;
}

static bool decide_extreme(const struct merge_three *three, bool greatest, struct value *decided)
{
    int order;

    if (!three->mine.type || !three->theirs.type || truce__value_is_container(three->mine) ||
        truce__type_class(three->mine.type) != truce__type_class(three->theirs.type))
        return false;
    order = truce__value_compare(three->mine, three->theirs);
    *decided = (order > 0) == greatest ? three->mine : three->theirs;
    if (!order) /* 1 and 1.0: the same from both sides */
        *decided = is_greater(three->mine, three->theirs) ? three->mine : three->theirs;
    return true;
}

/* False: the policy has no answer for these. */
static bool decide(struct merge *merge, enum merge_policy policy, const struct merge_three *three,
                   struct value *decided)
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
        return truce__merge_text(&merge->arena, three, decided);
    default:
        return false;
    }
}

/* ---- documents -------------------------------------------------------------------------------- */

static bool known(struct value document, const struct fields *field)
{
    return truce__value_field(document, field->key, field->key_length).type != VALUE_MISSING;
}

/* The fields of `a` that `b` has too stand in the same order in both. */
static bool same_order(struct value a, struct value b)
{
    struct fields in_a = truce__fields(a), in_b = truce__fields(b);

    for (;;) {
        bool more_a = truce__fields_next(&in_a), more_b;

        while (more_a && !known(b, &in_a))
            more_a = truce__fields_next(&in_a);
        more_b = truce__fields_next(&in_b);
        while (more_b && !known(a, &in_b))
            more_b = truce__fields_next(&in_b);
        if (!more_a || !more_b)
            return more_a == more_b;
        if (in_a.key_length != in_b.key_length || memcmp(in_a.key, in_b.key, in_a.key_length) != 0)
            return false;
    }
}

/* Twice the same name, or deeper than a document may be: not to be taken apart. */
static bool names_are_unique(struct value document)
{
    struct fields fields = truce__fields(document);

    while (truce__fields_next(&fields)) {
        if (truce__value_field(document, fields.key, fields.key_length).data != fields.value.data)
            return false;
    }
    return true;
}

static void merge_field(struct merge *merge, bson_t *to, const struct fields *field,
                        const struct merge_three *outer)
{
    struct merge_three three = {truce__value_field(outer->base, field->key, field->key_length),
                                truce__value_field(outer->mine, field->key, field->key_length),
                                truce__value_field(outer->theirs, field->key, field->key_length)};
    uint32_t length = merge->path_length;

    if (length)
        truce__merge_path_add(merge, ".", 1);
    truce__merge_path_add(merge, field->key, field->key_length);
    merge->names[merge->depth++] = (struct merge_name){field->key, field->key_length};
    truce__merge_value(merge, to, field->key, field->key_length, &three);
    merge->depth--;
    truce__merge_path_restore(merge, length);
}

static int compare_fields(const void *a, const void *b)
{
    return strcmp(((const struct fields *)a)->key, ((const struct fields *)b)->key);
}

/* Fields of one side that the base does not have. */
static uint32_t list_added(struct value base, struct value side, struct fields *added)
{
    struct fields fields = truce__fields(side);
    uint32_t count = 0;

    while (truce__fields_next(&fields)) {
        if (known(base, &fields))
            continue;
        if (added)
            added[count] = fields;
        count++;
    }
    return count;
}

/* In the order of the side that has them all, or by name, so that it does not matter whose they are. */
static void merge_added(struct merge *merge, bson_t *to, const struct merge_three *three)
{
    uint32_t of_mine = list_added(three->base, three->mine, NULL);
    uint32_t of_theirs = list_added(three->base, three->theirs, NULL), count;
    struct fields *added =
        truce__arena_take(&merge->arena, (of_mine + of_theirs + 1) * sizeof *added);
    bool sorted = of_mine && of_theirs && !same_order(three->mine, three->theirs);

    (void)list_added(three->base, three->mine, added);
    count = of_mine;
    for (struct fields fields = truce__fields(three->theirs); truce__fields_next(&fields);) {
        if (!known(three->base, &fields) && !known(three->mine, &fields))
            added[count++] = fields;
    }
    if (count > of_mine && count > of_theirs)
        sorted = true;
    else if (count > of_mine)
        (void)list_added(three->base, three->theirs, added);
    if (sorted && count)
        qsort(added, count, sizeof *added, compare_fields);
    for (uint32_t i = 0; i < count; i++)
        merge_field(merge, to, &added[i], three);
}

/* Old fields in the order of whoever moved them, else of the base; then what was added. */
static void merge_documents(struct merge *merge, bson_t *to, const struct merge_three *three)
{
    bool mine_moved = !same_order(three->base, three->mine);
    bool theirs_moved = !same_order(three->base, three->theirs);
    bool agreed = same_order(three->mine, three->theirs);
    struct value order = mine_moved && (!theirs_moved || agreed) ? three->mine
                         : theirs_moved && !mine_moved           ? three->theirs
                                                                 : three->base;
    struct fields fields = truce__fields(order);

    while (truce__fields_next(&fields)) {
        if (known(three->base, &fields))
            merge_field(merge, to, &fields, three);
    }
    /* what the side that moved fields has removed, and the other has changed */
    fields = truce__fields(three->base);
    while (order.data != three->base.data && truce__fields_next(&fields)) {
        if (!known(order, &fields))
            merge_field(merge, to, &fields, three);
    }
    merge_added(merge, to, three);
}

/* ---- values ----------------------------------------------------------------------------------- */

static bool all_are(const struct merge_three *three, uint8_t type)
{
    return three->base.type == type && three->mine.type == type && three->theirs.type == type;
}

/* A conflict is told, or decided for one side. */
static struct value settle(struct merge *merge, const struct merge_three *three)
{
    if (merge->options->settle == MERGE_REPORT)
        truce__merge_conflict(merge, kind_of(three), three);
    return merge->options->settle == MERGE_SETTLE_MINE ? three->mine : three->theirs;
}

/* What both sides changed, differently. */
static void merge_changed(struct merge *merge, bson_t *to, const char *key, uint32_t key_length,
                          const struct merge_three *three)
{
    enum merge_policy policy = truce__merge_policy(merge);
    struct value decided = three->theirs;
    bson_t inner;

    if (merge->options->strict) {
        decided = settle(merge, three);
    } else if (all_are(three, BSON_TYPE_DOCUMENT) && names_are_unique(three->base) &&
               names_are_unique(three->mine) && names_are_unique(three->theirs)) {
        bson_append_document_begin(to, key, (int)key_length, &inner);
        merge_documents(merge, &inner, three);
        bson_append_document_end(to, &inner);
        return;
    } else if (all_are(three, BSON_TYPE_ARRAY) &&
               truce__merge_array(merge, to, key, key_length, three, policy == MERGE_UNION)) {
        return;
    } else if (policy != MERGE_SUM && truce__value_identical(three->mine, three->theirs)) {
        decided = three->mine;
    } else if (!decide(merge, policy, three, &decided)) {
        decided = settle(merge, three);
    }
    truce__value_append(to, key, key_length, decided);
}

/* Two equal changes of a number, or of something with numbers in it, are two where they are summed. */
static bool may_sum(struct merge *merge, const struct merge_three *three)
{
    if (!truce__merge_sums(merge) || merge->options->strict)
        return false;
    if (truce__value_is_number(three->mine))
        return truce__merge_policy(merge) == MERGE_SUM;
    return truce__value_is_container(three->mine) && three->base.type == three->mine.type;
}

void truce__merge_value(struct merge *merge, bson_t *to, const char *key, uint32_t key_length,
                        const struct merge_three *three)
{
    bool mine_changed = !truce__value_identical(three->base, three->mine);
    bool theirs_changed = !truce__value_identical(three->base, three->theirs);
    struct value taken = mine_changed ? three->mine : three->theirs;

    if (mine_changed && theirs_changed &&
        (!truce__value_identical(three->mine, three->theirs) || may_sum(merge, three)))
        merge_changed(merge, to, key, key_length, three);
    else
        truce__value_append(to, key, key_length, taken);
}

truce_status truce__merge(struct value base, struct value mine, struct value theirs,
                          const struct merge_options *options, bson_t *merged, bson_t *conflicts,
                          bson_error_t *error)
{
    static const struct merge_options defaults;
    struct merge_three three = {base, mine, theirs};
    bson_t holder = BSON_INITIALIZER;
    struct merge *merge = bson_malloc0(sizeof *merge);
    struct value root;
    truce_status status = TRUCE_OK;

    bson_init(merged);
    bson_init(conflicts);
    merge->options = options ? options : &defaults;
    merge->conflicts = conflicts;
    truce_assert(base.type == BSON_TYPE_DOCUMENT && mine.type == BSON_TYPE_DOCUMENT &&
                 theirs.type == BSON_TYPE_DOCUMENT);
    truce__merge_value(merge, &holder, "v", 1, &three);
    root = truce__value_field(truce__value_document(&holder), "v", 1);
    if (root.size > TRUCE_DOCUMENT_BYTES_MAX) {
        status = truce__fail(TRUCE_LIMIT, error,
                             "the merged document would have %u bytes, at most %d fit", root.size,
                             TRUCE_DOCUMENT_BYTES_MAX);
    } else {
        bson_t borrowed;

        truce__value_bson(root, &borrowed);
        bson_concat(merged, &borrowed);
    }
    bson_destroy(&holder);
    truce__arena_release(&merge->arena);
    bson_free(merge);
    return status;
}
