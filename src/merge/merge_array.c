/*
 * Merges arrays element by element. A key identifies each element: one of its fields or, in a set,
 * the whole element. A move and an edit of the same element are therefore combined.
 *
 *     base   a b c        mine   b a c x       theirs   a b' y c
 *     1. the common elements a b c, in the order of the side that moved them:       b a c
 *     2. each other element after the element that it follows in its own side:      y after b
 *     3. elements that were appended stay at the end:                               x
 *     merged b' y a c x
 *
 * If the sides moved different elements, the elements that neither side moved keep the order of the
 * base. Each moved element follows the element to which it was moved. Any two elements then have
 * the order of the side that changed it. If that is impossible, the order is a conflict. The result
 * then has the order of theirs, or of the side that the policy names.
 *
 * If both sides put elements after the same element, the two chains are ordered by their first
 * keys. The result does then not depend on which side is which.
 */
#include "merge/lcs.h"
#include "merge/merge_parts.h"

#define NOWHERE UINT32_MAX
/* If a check of the order needs more comparisons of elements, the order is reported as a
 * conflict. */
#define COMPARISONS_MAX 10000000

enum side { BASE, MINE, THEIRS, SIDES };

/* An element of an array that is merged. */
struct element {
    struct value value, key;
    /* The index of the element in each of the three lists, or NOWHERE. */
    uint32_t in[SIDES];
    /* The element is in the result already, or repeats an element of a set. */
    bool done;
};

/* The elements of one of the three arrays. */
struct list {
    struct element *elements;
    uint32_t count;
};

struct lists {
    struct list of[SIDES];
    /* The name of the field that is the key, or NULL if the key is the whole element. */
    const char *key_name;
};

/* ---- keys ------------------------------------------------------------------------------------ */

static bool array_read_key(struct value element, const char *name, struct value *key)
{
    *key = element;
    if (name) {
        if (element.type != BSON_TYPE_DOCUMENT)
            return false;
        *key = truce__value_field(element, name, strlen(name));
    }
    return key->type != VALUE_MISSING && (!name || !truce__value_is_container(*key));
}

static uint32_t array_count_elements(struct value array)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(array); truce__fields_next(&fields);)
        count++;
    return count;
}

/* Reads the elements and their keys. Returns false if an element has no key. */
static bool array_read_list(struct arena *arena, struct value array, const char *name,
                            struct list *list)
{
    struct fields fields = truce__fields(array);

    list->count = array_count_elements(array);
    list->elements = truce__arena_take(arena, (list->count + 1) * sizeof *list->elements);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        list->elements[i] =
            (struct element){.value = fields.value, .in = {NOWHERE, NOWHERE, NOWHERE}};
        if (!array_read_key(fields.value, name, &list->elements[i].key))
            return false;
    }
    return true;
}

/* Finds the position of each element in the other lists. Returns false if two elements of a list
 * have the same key and the list is not a set. */
static bool link_lists(struct arena *arena, struct lists *lists)
{
    uint32_t most = lists->of[BASE].count + lists->of[MINE].count + lists->of[THEIRS].count;
    uint32_t *positions = truce__arena_take(arena, (most + 1) * SIDES * sizeof *positions);
    struct numbering numbering;

    memset(positions, 0xff, (most + 1) * SIDES * sizeof *positions);
    truce__numbering_begin(&numbering, arena, most, true);
    for (int side = 0; side < SIDES; side++) {
        numbering.expected = 0;
        for (uint32_t i = 0; i < lists->of[side].count; i++) {
            struct element *element = &lists->of[side].elements[i];
            uint32_t *position = &positions[truce__numbering_of(&numbering, element->key) * SIDES];

            if (position[side] == NOWHERE)
                position[side] = i;
            else if (lists->key_name)
                return false;
            else
                element->done = true;
            for (int other = 0; other <= side && !element->done; other++) {
                element->in[other] = position[other];
                if (position[other] != NOWHERE)
                    lists->of[other].elements[position[other]].in[side] = i;
            }
        }
    }
    return true;
}

static bool read_lists(struct merge *merge, const struct merge_three *three, const char *name,
                       struct lists *lists)
{
    const struct value arrays[] = {three->base, three->mine, three->theirs};

    lists->key_name = name;
    for (int side = 0; side < SIDES; side++) {
        if (!array_read_list(&merge->arena, arrays[side], name, &lists->of[side]))
            return false;
    }
    return link_lists(&merge->arena, lists);
}

/* Identifies the elements by the declared key, or by a key that all elements have. */
static bool choose_identity(struct merge *merge, const struct merge_three *three, bool as_set,
                            struct lists *lists)
{
    static const char *const names[] = {"_id", "id", "name"};
    const char *declared = truce__merge_key(merge);

    if (declared)
        return read_lists(merge, three, declared, lists);
    if (as_set)
        return read_lists(merge, three, NULL, lists);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (read_lists(merge, three, names[i], lists))
            return true;
    }
    return false;
}

/* ---- order ----------------------------------------------------------------------------------- */

static bool array_is_common(const struct element *element)
{
    return element->in[BASE] != NOWHERE && element->in[MINE] != NOWHERE &&
           element->in[THEIRS] != NOWHERE;
}

/* The common elements, as positions in the base. */
struct order {
    uint32_t *positions;
    uint32_t count;
};

static struct order order_of_side(struct arena *arena, const struct lists *lists, enum side side)
{
    const struct list *list = &lists->of[side];
    struct order order = {
        .positions = truce__arena_take(arena, (list->count + 1) * sizeof *order.positions)};

    for (uint32_t i = 0; i < list->count; i++) {
        if (array_is_common(&list->elements[i]))
            order.positions[order.count++] = list->elements[i].in[BASE];
    }
    return order;
}

static bool same_order(const struct order *a, const struct order *b)
{
    return !memcmp(a->positions, b->positions, a->count * sizeof *a->positions);
}

/* Returns an array that says, for each position in the base, whether the side moved the element.
 * All positions are below `bound`. */
static bool *moved_by(struct arena *arena, const struct order *base, const struct order *side,
                      uint32_t bound)
{
    uint32_t *match = truce__arena_take(arena, (base->count + 1) * sizeof *match);
    bool *moved = truce__arena_take(arena, bound + 1);

    memset(moved, 0, bound + 1);
    truce__lcs(arena, base->positions, base->count, side->positions, side->count, bound, match);
    for (uint32_t i = 0; i < base->count; i++)
        moved[base->positions[i]] = match[i] == LCS_NONE;
    return moved;
}

/* For each element that neither side moved, and for the beginning: the elements that one side moved
 * there. */
struct runs {
    /* The first and the last moved element after the element at each position, with index position
     * + 1. Index 0 is the beginning of the list. */
    uint32_t *first, *last;
    /* For each moved element, the next one that was moved to the same position, or NOWHERE. */
    uint32_t *next;
};

/* Returns the elements that this side moved, as one list for each element that neither side moved
 * and that they follow. */
static struct runs runs_of(struct arena *arena, const struct order *side, const bool *moved,
                           const bool *moved_by_other, uint32_t bound)
{
    size_t size = (bound + 1) * sizeof(uint32_t);
    struct runs runs = {truce__arena_take(arena, size), truce__arena_take(arena, size),
                        truce__arena_take(arena, size)};
    uint32_t behind = 0;

    memset(runs.first, 0xff, size);
    for (uint32_t i = 0; i < side->count; i++) {
        uint32_t position = side->positions[i];

        if (moved[position]) {
            if (runs.first[behind] == NOWHERE)
                runs.first[behind] = position;
            else
                runs.next[runs.last[behind]] = position;
            runs.last[behind] = position;
            runs.next[position] = NOWHERE;
        } else if (!moved_by_other[position]) {
            behind = position + 1;
        }
    }
    return runs;
}

static void array_add_run(struct order *order, const struct runs *runs, uint32_t position)
{
    for (; position != NOWHERE; position = runs->next[position])
        order->positions[order->count++] = position;
}

/* Adds the elements that the sides moved to the position after `behind`. If both sides moved
 * elements there, the order of the base decides. */
static void add_runs(struct order *order, const struct runs *mine, const struct runs *theirs,
                     uint32_t behind)
{
    bool mine_first = mine->first[behind] < theirs->first[behind];

    array_add_run(order, mine_first ? mine : theirs, (mine_first ? mine : theirs)->first[behind]);
    array_add_run(order, mine_first ? theirs : mine, (mine_first ? theirs : mine)->first[behind]);
}

static const uint32_t *ranks_of(struct arena *arena, const struct order *order, uint32_t bound)
{
    uint32_t *ranks = truce__arena_take(arena, (bound + 1) * sizeof *ranks);

    for (uint32_t i = 0; i < order->count; i++)
        ranks[order->positions[i]] = i;
    return ranks;
}

/* Checks that any two elements, one of them moved, have the order of the side that changed it. */
static bool keeps_every_move(struct arena *arena, const struct order *orders, const bool *moved,
                             uint32_t bound, const struct order *merged)
{
    const struct order *base = &orders[BASE];
    const uint32_t *mine = ranks_of(arena, &orders[MINE], bound);
    const uint32_t *theirs = ranks_of(arena, &orders[THEIRS], bound);
    const uint32_t *made = ranks_of(arena, merged, bound);
    uint64_t comparisons = 0;

    for (uint32_t i = 0; i < base->count; i++) {
        uint32_t x = base->positions[i];

        if (!moved[x])
            continue;
        comparisons += base->count;
        if (comparisons > COMPARISONS_MAX)
            return false;
        for (uint32_t k = 0; k < base->count; k++) {
            uint32_t y = base->positions[k];
            bool in_base = i < k, in_mine = mine[x] < mine[y], in_theirs = theirs[x] < theirs[y];

            if (x != y && (made[x] < made[y]) != (in_mine != in_base ? in_mine : in_theirs))
                return false;
        }
    }
    return true;
}

/* Returns false if the moves of the two sides contradict each other. */
static bool merge_orders(struct arena *arena, const struct order *orders, uint32_t bound,
                         struct order *merged)
{
    bool *by_mine = moved_by(arena, &orders[BASE], &orders[MINE], bound);
    const bool *by_theirs = moved_by(arena, &orders[BASE], &orders[THEIRS], bound);
    struct runs mine, theirs;

    *merged = orders[THEIRS];
    if (same_order(&orders[MINE], &orders[THEIRS]) || same_order(&orders[BASE], &orders[MINE]))
        return true;
    *merged = orders[MINE];
    if (same_order(&orders[BASE], &orders[THEIRS]))
        return true;
    for (uint32_t position = 0; position < bound; position++) {
        if (by_mine[position] && by_theirs[position])
            return false;
    }
    mine = runs_of(arena, &orders[MINE], by_mine, by_theirs, bound);
    theirs = runs_of(arena, &orders[THEIRS], by_theirs, by_mine, bound);
    merged->positions = truce__arena_take(arena, (bound + 1) * sizeof *merged->positions);
    merged->count = 0;
    add_runs(merged, &mine, &theirs, 0);
    for (uint32_t i = 0; i < orders[BASE].count; i++) {
        uint32_t position = orders[BASE].positions[i];

        if (by_mine[position] || by_theirs[position])
            continue;
        merged->positions[merged->count++] = position;
        add_runs(merged, &mine, &theirs, position + 1);
    }
    for (uint32_t position = 0; position < bound; position++)
        by_mine[position] |= by_theirs[position];
    return keeps_every_move(arena, orders, by_mine, bound, merged);
}

/* Chooses the order if the moves contradict each other. Reports a conflict unless the policy or the
 * options decide. */
static struct order order_in_conflict(struct merge *merge, const struct merge_three *three,
                                      const struct order *orders)
{
    enum merge_policy policy = truce__merge_policy(merge);

    if (policy == MERGE_MINE || (policy == MERGE_NEWEST && merge->options->mine_is_newer))
        return orders[MINE];
    if (policy == MERGE_ASK && merge->options->settle != MERGE_REPORT)
        return orders[truce__merge_for_mine(merge) ? MINE : THEIRS];
    /* The order of a set does not matter, so the base's order is kept. */
    if (policy == MERGE_UNION)
        return orders[BASE];
    if (policy != MERGE_THEIRS && policy != MERGE_NEWEST)
        truce__merge_conflict(merge, "order", three, NULL);
    return orders[THEIRS];
}

/* ---- the result ------------------------------------------------------------------------------ */

struct result {
    struct merge *merge;
    struct lists *lists;
    /* For each list, the index of the first element that was appended at the end. */
    uint32_t tails[SIDES];
};

static struct value value_in(const struct result *result, enum side side, uint32_t position)
{
    return position == NOWHERE ? truce__value_missing()
                               : result->lists->of[side].elements[position].value;
}

static void array_mark_done(struct result *result, const struct element *element)
{
    for (int side = 0; side < SIDES; side++) {
        if (element->in[side] != NOWHERE)
            result->lists->of[side].elements[element->in[side]].done = true;
    }
}

/* Extends the path by the element: "[sku: 5]", or "[5]" in a set. */
static void array_enter(struct result *result, const struct element *element)
{
    const char *name = result->lists->key_name;
    struct merge *merge = result->merge;
    char shown[200];

    truce__merge_path_add(merge, "[", 1);
    if (name) {
        truce__merge_path_add(merge, name, strlen(name));
        truce__merge_path_add(merge, ": ", 2);
    }
    truce__value_show(element->key, shown, sizeof shown);
    truce__merge_path_add(merge, shown, strlen(shown));
    truce__merge_path_add(merge, "]", 1);
}

/* Appends the merged element, unless the result already has it. */
static void array_add_element(struct result *result, struct element *element)
{
    struct merge *merge = result->merge;
    struct merge_three three = {value_in(result, BASE, element->in[BASE]),
                                value_in(result, MINE, element->in[MINE]),
                                value_in(result, THEIRS, element->in[THEIRS])};
    uint32_t length = merge->path_length;

    if (element->done)
        return;
    array_mark_done(result, element);
    if (truce__merge_both_changed(&three))
        array_enter(result, element);
    truce__merge_value(merge, NULL, 0, &three);
    truce__merge_path_restore(merge, length);
}

/* Returns the end of a chain: the elements of one side from `position` up to the next common
 * element. */
static uint32_t chain_end(const struct list *list, uint32_t position)
{
    while (position < list->count && !array_is_common(&list->elements[position]))
        position++;
    return position;
}

static void add_chain(struct result *result, enum side side, uint32_t position)
{
    struct list *list = &result->lists->of[side];
    uint32_t end = chain_end(list, position);

    for (; position < end; position++)
        array_add_element(result, &list->elements[position]);
}

/* Compares two chains by the first pair of keys that differ. */
static int compare_chains(const struct list *a, uint32_t in_a, const struct list *b, uint32_t in_b)
{
    uint32_t end_a = chain_end(a, in_a), end_b = chain_end(b, in_b);

    for (; in_a < end_a && in_b < end_b; in_a++, in_b++) {
        int order = truce__value_compare(a->elements[in_a].key, b->elements[in_b].key);

        if (order)
            return order;
    }
    return 0;
}

/* Appends the chains of both sides after a common element, at the beginning, or at the end. */
static void append_chains(struct result *result, uint32_t in_mine, uint32_t in_theirs)
{
    bool theirs_first = compare_chains(&result->lists->of[MINE], in_mine,
                                       &result->lists->of[THEIRS], in_theirs) > 0;

    if (theirs_first)
        add_chain(result, THEIRS, in_theirs);
    add_chain(result, MINE, in_mine);
    if (!theirs_first)
        add_chain(result, THEIRS, in_theirs);
}

/* Returns the beginning of the last chain. Appended elements stay last, even if the element before
 * them moved. */
static uint32_t tail_of(const struct list *list)
{
    uint32_t position = list->count;

    while (position > 0 && !array_is_common(&list->elements[position - 1]))
        position--;
    return position;
}

/* Returns the chain at `position`, unless it is the last one, which is appended separately. */
static uint32_t chain_at(const struct result *result, enum side side, uint32_t position)
{
    return position < result->tails[side] ? position : result->lists->of[side].count;
}

/* Appends all elements: each common one, followed by the other elements that follow it in one of
 * the sides, and the appended ones at the end. */
static void array_add_all(struct result *result, const struct order *order)
{
    const struct list *base = &result->lists->of[BASE];

    for (int side = 0; side < SIDES; side++)
        result->tails[side] = tail_of(&result->lists->of[side]);
    append_chains(result, chain_at(result, MINE, 0), chain_at(result, THEIRS, 0));
    for (uint32_t i = 0; i < order->count; i++) {
        struct element *element = &base->elements[order->positions[i]];

        array_add_element(result, element);
        append_chains(result, chain_at(result, MINE, element->in[MINE] + 1),
                      chain_at(result, THEIRS, element->in[THEIRS] + 1));
    }
    append_chains(result, result->tails[MINE], result->tails[THEIRS]);
}

bool truce__merge_array(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three, bool as_set)
{
    struct lists lists;
    struct result result = {.merge = merge, .lists = &lists};
    struct order orders[SIDES], order;
    struct builder_mark mark;

    if (!choose_identity(merge, three, as_set, &lists))
        return false;
    for (int side = 0; side < SIDES; side++)
        orders[side] = order_of_side(&merge->arena, &lists, (enum side)side);
    if (!merge_orders(&merge->arena, orders, lists.of[BASE].count, &order))
        order = order_in_conflict(merge, three, orders);
    mark = truce__merge_open(merge, key, key_length, BSON_TYPE_ARRAY);
    array_add_all(&result, &order);
    truce__builder_close(&merge->out, mark);
    return true;
}
