/*
 * Arrays merged element by element. Each element is known by a key (a field of it, or, for sets, by
 * the whole of it), so a move and an edit of one element come together.
 *
 *     base   a b c        mine   b a c x       theirs   a b' y c
 *     common to all: a b c, in the order of whoever moved them: b a c
 *     behind which in its own side an element stands that is not common: x behind c, y behind b
 *     merged b' y a c x
 *
 * Two sides that put elements behind the same one: the chains stand in the order of their first keys,
 * so that it does not matter whose they are. If both moved common elements, differently, the order is
 * a conflict, and that of theirs stands (or what the policies mine and theirs say).
 */
#include <stdlib.h>

#include "query/merge_parts.h"

#define NOWHERE UINT32_MAX

enum side { BASE, MINE, THEIRS, SIDES };

struct element {
    struct value value, key;
    uint32_t in[SIDES]; /* its places in the three lists */
    bool done;          /* already in the result */
};

struct list {
    struct element *elements;
    uint32_t count;
    uint32_t *sorted; /* places in the order of keys */
};

struct lists {
    struct list of[SIDES];
    const char *key_name; /* NULL: the whole element */
};

/* ---- keys ------------------------------------------------------------------------------------- */

static bool read_key(struct value element, const char *name, struct value *key)
{
    *key = element;
    if (name) {
        if (element.type != BSON_TYPE_DOCUMENT)
            return false;
        *key = truce__value_field(element, name, strlen(name));
    }
    return key->type != VALUE_MISSING && (!name || !truce__value_is_container(*key));
}

/* for qsort, which takes no argument of its own */
struct ranked {
    struct value key;
    uint32_t place;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *first = a, *second = b;
    int order = truce__value_compare(first->key, second->key);

    return order ? order : (first->place > second->place) - (first->place < second->place);
}

/* Most lists are: their elements were given numbers as they came. */
static bool is_sorted(const struct ranked *ranked, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        if (compare_ranked(&ranked[i - 1], &ranked[i]) > 0)
            return false;
    }
    return true;
}

/* False: an element has no key, or (unless it is a set) two have the same. */
static bool read_list(struct arena *arena, struct value array, const char *name, struct list *list)
{
    struct fields fields = truce__fields(array);
    struct ranked *ranked;
    uint32_t room = 0, kept = 0;

    while (truce__fields_next(&fields))
        room++;
    list->elements = truce__arena_take(arena, (room + 1) * sizeof *list->elements);
    list->sorted = truce__arena_take(arena, (room + 1) * sizeof *list->sorted);
    ranked = truce__arena_take(arena, (room + 1) * sizeof *ranked);
    list->count = 0;
    fields = truce__fields(array);
    while (truce__fields_next(&fields)) {
        struct element *element = &list->elements[list->count];

        *element = (struct element){.value = fields.value, .in = {NOWHERE, NOWHERE, NOWHERE}};
        if (!read_key(fields.value, name, &element->key))
            return false;
        ranked[list->count] = (struct ranked){element->key, list->count};
        list->count++;
    }
    if (!is_sorted(ranked, room))
        qsort(ranked, room, sizeof *ranked, compare_ranked);
    for (uint32_t i = 0; i < room; i++) {
        if (kept &&
            !truce__value_compare(ranked[i].key, list->elements[list->sorted[kept - 1]].key)) {
            if (name)
                return false;
            list->elements[ranked[i].place].done = true; /* a set has it once */
            continue;
        }
        list->sorted[kept++] = ranked[i].place;
    }
    list->sorted[kept] = NOWHERE;
    list->count = room;
    return true;
}

/* Each element of one list learns where it stands in the other: both are sorted. */
static void link_lists(struct lists *lists, enum side a, enum side b)
{
    struct list *one = &lists->of[a], *other = &lists->of[b];
    uint32_t i = 0, k = 0;

    while (one->sorted[i] != NOWHERE && other->sorted[k] != NOWHERE) {
        struct element *first = &one->elements[one->sorted[i]];
        struct element *second = &other->elements[other->sorted[k]];
        int order = truce__value_compare(first->key, second->key);

        if (!order) {
            first->in[b] = other->sorted[k];
            second->in[a] = one->sorted[i];
        }
        i += order <= 0;
        k += order >= 0;
    }
}

static bool read_lists(struct merge *merge, const struct merge_three *three, const char *name,
                       struct lists *lists)
{
    const struct value arrays[] = {three->base, three->mine, three->theirs};

    lists->key_name = name;
    for (int side = 0; side < SIDES; side++) {
        if (!read_list(&merge->arena, arrays[side], name, &lists->of[side]))
            return false;
    }
    for (int side = 0; side < SIDES; side++) {
        struct list *list = &lists->of[side];

        for (uint32_t i = 0; list->sorted[i] != NOWHERE; i++)
            list->elements[list->sorted[i]].in[side] = list->sorted[i];
    }
    link_lists(lists, BASE, MINE);
    link_lists(lists, BASE, THEIRS);
    link_lists(lists, MINE, THEIRS);
    return true;
}

/* By the declared key, or by one that all elements have. */
static bool tell_apart(struct merge *merge, const struct merge_three *three, bool as_set,
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

/* ---- order ------------------------------------------------------------------------------------ */

static bool is_common(const struct element *element)
{
    return element->in[BASE] != NOWHERE && element->in[MINE] != NOWHERE &&
           element->in[THEIRS] != NOWHERE;
}

/* The common elements stand in the same order in both lists. */
static bool same_order(const struct lists *lists, enum side a, enum side b)
{
    const struct list *list = &lists->of[a];
    uint32_t last = 0;
    bool any = false;

    for (uint32_t i = 0; i < list->count; i++) {
        const struct element *element = &list->elements[i];

        if (!is_common(element))
            continue;
        if (any && element->in[b] < last)
            return false;
        last = element->in[b];
        any = true;
    }
    return true;
}

/* Whose order the common elements have; NOWHERE: both moved, differently. */
static uint32_t order_of(const struct lists *lists)
{
    if (same_order(lists, MINE, THEIRS))
        return MINE;
    if (same_order(lists, BASE, MINE))
        return THEIRS;
    return same_order(lists, BASE, THEIRS) ? (uint32_t)MINE : NOWHERE;
}

static enum side order_in_conflict(struct merge *merge, const struct merge_three *three)
{
    enum merge_policy policy = truce__merge_policy(merge);

    if (policy == MERGE_MINE || (policy == MERGE_NEWEST && merge->options->mine_is_newer))
        return MINE;
    if (policy == MERGE_ASK && merge->options->settle != MERGE_REPORT)
        return merge->options->settle == MERGE_SETTLE_MINE ? MINE : THEIRS;
    if (policy == MERGE_UNION) /* a set has no order to quarrel about */
        return BASE;
    if (policy != MERGE_THEIRS && policy != MERGE_NEWEST)
        truce__merge_conflict(merge, "order", three);
    return THEIRS;
}

/* ---- the result ------------------------------------------------------------------------------- */

struct result {
    struct merge *merge;
    struct lists *lists;
    bson_t array;
    uint32_t count;
};

static struct value value_in(const struct result *result, enum side side, uint32_t place)
{
    return place == NOWHERE ? truce__value_missing()
                            : result->lists->of[side].elements[place].value;
}

static void mark_done(struct result *result, const struct element *element)
{
    for (int side = 0; side < SIDES; side++) {
        if (element->in[side] != NOWHERE)
            result->lists->of[side].elements[element->in[side]].done = true;
    }
}

/* The path grows by the element: only where there may be a conflict. */
static void enter(struct result *result, const struct element *element)
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

static void add_element(struct result *result, struct element *element)
{
    struct merge *merge = result->merge;
    struct merge_three three = {value_in(result, BASE, element->in[BASE]),
                                value_in(result, MINE, element->in[MINE]),
                                value_in(result, THEIRS, element->in[THEIRS])};
    uint32_t length = merge->path_length, before = result->array.len;
    char text[16];
    const char *key;

    if (element->done)
        return;
    mark_done(result, element);
    if (!truce__value_identical(three.base, three.mine) &&
        !truce__value_identical(three.base, three.theirs))
        enter(result, element);
    bson_uint32_to_string(result->count, &key, text, sizeof text);
    truce__merge_value(merge, &result->array, key, (uint32_t)strlen(key), &three);
    result->count += result->array.len > before;
    truce__merge_path_restore(merge, length);
}

/* What stands in one side from `place` on, up to the next common element. */
static uint32_t chain_end(const struct list *list, uint32_t place)
{
    while (place < list->count && !is_common(&list->elements[place]))
        place++;
    return place;
}

static void add_chain(struct result *result, enum side side, uint32_t place)
{
    struct list *list = &result->lists->of[side];
    uint32_t end = chain_end(list, place);

    for (; place < end; place++)
        add_element(result, &list->elements[place]);
}

/* By the first keys that differ. */
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

/* What the two sides have behind a common element, or at their beginnings. */
static void add_behind(struct result *result, uint32_t in_mine, uint32_t in_theirs)
{
    bool theirs_first = compare_chains(&result->lists->of[MINE], in_mine,
                                       &result->lists->of[THEIRS], in_theirs) > 0;

    if (theirs_first)
        add_chain(result, THEIRS, in_theirs);
    add_chain(result, MINE, in_mine);
    if (!theirs_first)
        add_chain(result, THEIRS, in_theirs);
}

bool truce__merge_array(struct merge *merge, bson_t *to, const char *key, uint32_t key_length,
                        const struct merge_three *three, bool as_set)
{
    struct lists lists;
    struct result result = {.merge = merge, .lists = &lists};
    const struct list *order;
    uint32_t side;

    if (!tell_apart(merge, three, as_set, &lists))
        return false;
    side = order_of(&lists);
    if (side == NOWHERE)
        side = order_in_conflict(merge, three);
    order = &lists.of[side];
    bson_append_array_begin(to, key, (int)key_length, &result.array);
    add_behind(&result, 0, 0);
    for (uint32_t i = 0; i < order->count; i++) {
        struct element *element = &order->elements[i];

        if (!is_common(element))
            continue;
        add_element(&result, element);
        add_behind(&result, element->in[MINE] + 1, element->in[THEIRS] + 1);
    }
    bson_append_array_end(to, &result.array);
    return true;
}
