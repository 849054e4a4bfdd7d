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
#include "merge/merge_parts.h"

#define NOWHERE UINT32_MAX

enum side { BASE, MINE, THEIRS, SIDES };

struct element {
    struct value value, key;
    uint32_t in[SIDES]; /* its places in the three lists */
    bool done;          /* already in the result, or in a set a second time */
};

struct list {
    struct element *elements;
    uint32_t count;
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

static uint32_t count_elements(struct value array)
{
    uint32_t count = 0;

    for (struct fields fields = truce__fields(array); truce__fields_next(&fields);)
        count++;
    return count;
}

/* False: an element has no key. */
static bool read_list(struct arena *arena, struct value array, const char *name, struct list *list)
{
    struct fields fields = truce__fields(array);

    list->count = count_elements(array);
    list->elements = truce__arena_take(arena, (list->count + 1) * sizeof *list->elements);
    for (uint32_t i = 0; truce__fields_next(&fields); i++) {
        list->elements[i] =
            (struct element){.value = fields.value, .in = {NOWHERE, NOWHERE, NOWHERE}};
        if (!read_key(fields.value, name, &list->elements[i].key))
            return false;
    }
    return true;
}

/* Each element learns where it stands in the other lists. False: two of one list have the same key,
 * and it is no set. */
static bool link_lists(struct arena *arena, struct lists *lists)
{
    uint32_t most = lists->of[BASE].count + lists->of[MINE].count + lists->of[THEIRS].count;
    uint32_t *places = truce__arena_take(arena, (most + 1) * SIDES * sizeof *places);
    struct numbering numbering;

    memset(places, 0xff, (most + 1) * SIDES * sizeof *places);
    truce__numbering_begin(&numbering, arena, most, true);
    for (int side = 0; side < SIDES; side++) {
        numbering.expected = 0;
        for (uint32_t i = 0; i < lists->of[side].count; i++) {
            struct element *element = &lists->of[side].elements[i];
            uint32_t *place = &places[truce__numbering_of(&numbering, element->key) * SIDES];

            if (place[side] == NOWHERE)
                place[side] = i;
            else if (lists->key_name)
                return false;
            else
                element->done = true;
            for (int other = 0; other <= side && !element->done; other++) {
                element->in[other] = place[other];
                if (place[other] != NOWHERE)
                    lists->of[other].elements[place[other]].in[side] = i;
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
        if (!read_list(&merge->arena, arrays[side], name, &lists->of[side]))
            return false;
    }
    return link_lists(&merge->arena, lists);
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
    uint32_t length = merge->path_length;

    if (element->done)
        return;
    mark_done(result, element);
    if (truce__merge_both_changed(&three))
        enter(result, element);
    truce__merge_value(merge, NULL, 0, &three);
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

bool truce__merge_array(struct merge *merge, const char *key, uint32_t key_length,
                        const struct merge_three *three, bool as_set)
{
    struct lists lists;
    struct result result = {.merge = merge, .lists = &lists};
    struct builder_mark mark;
    const struct list *order;
    uint32_t side;

    if (!tell_apart(merge, three, as_set, &lists))
        return false;
    side = order_of(&lists);
    if (side == NOWHERE)
        side = order_in_conflict(merge, three);
    order = &lists.of[side];
    mark = truce__merge_open(merge, key, key_length, BSON_TYPE_ARRAY);
    add_behind(&result, 0, 0);
    for (uint32_t i = 0; i < order->count; i++) {
        struct element *element = &order->elements[i];

        if (!is_common(element))
            continue;
        add_element(&result, element);
        add_behind(&result, element->in[MINE] + 1, element->in[THEIRS] + 1);
    }
    truce__builder_close(&merge->out, mark);
    return true;
}
