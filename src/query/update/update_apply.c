/*
 * Walking the tree of an update over one document.
 *
 * The walk follows the tree, not the document: at each object node it looks up all branches in one
 * pass over the fields, then goes into them in the tree's order, so that errors come up and new
 * fields are appended in MongoDB's order. What it finds to change it leaves as edits
 * (query/update/update_edit.c). It never changes anything by itself, so an error needs no undoing.
 *
 *     visit   a place that exists: an element of the old document
 *     build   a place that does not: gives the value to append there, or none
 *
 * Each visit tells by how many bytes its element grew (`delta`); a container that grew gets an edit
 * of its length. A place may be visited with several nodes at once (query/update/update_tree.c).
 *
 * Rules
 *   1. Through a document a path goes by name; through an array by number; anything else ends it:
 *      code 28, if an operator wants to create something there.
 *   2. Numbers beyond the end of an array fill it with nulls; a missing parent of a number is made
 * a document, never an array.
 *   3. `_id` of a stored document does not change: any edit below it is code 66.
 *   4. What is stored nests no deeper than TRUCE_DOCUMENT_DEPTH_MAX; names that begin with "$" are
 *      not made at the top level of a stored document (code 52).
 *   5. $update's paths go through arrays by themselves, to every document in them.
 */
#include "query/update/update_tree.h"

#include "base/assert.h"
#include "base/limits.h"

const char *truce__update_place_show(const struct update_place *place, char *text, size_t size)
{
    size_t end = size - 1, total = 0;

    text[end] = '\0';
    for (const struct update_place *at = place; at && at->up; at = at->up) {
        total = at->length + (end < size - 1 ? 1 : 0);
        if (total > end)
            break;
        if (end < size - 1)
            text[--end] = '.';
        end -= at->length;
        memcpy(text + end, at->name, at->length);
    }
    memmove(text, text + end, size - end);
    return text;
}

/* a new element at the end of a container */
static void apply_append_element(struct update_run *run, struct value container, const char *name,
                                 uint32_t length, struct value value, int64_t *delta)
{
    uint64_t size = truce__update_element_size(length, value);
    uint8_t *bytes = truce__arena_take(run->context->arena, size);

    truce_assert(size <= UINT32_MAX);
    truce__update_put_element(bytes, value.type, name, length, value);
    truce__update_edit(run, container.data + container.size - 1, 0, bytes, (uint32_t)size);
    *delta += (int64_t)size;
}

struct slot {
    const uint8_t *element;
    struct value value;
};

#define LINEAR_MAX 8

static int64_t find_choice(const struct update_choice *choices, uint32_t count, const char *name,
                           uint32_t length)
{
    uint32_t low = 0, high = count;

    if (count <= LINEAR_MAX) {
        for (uint32_t i = 0; i < count; i++) {
            if (choices[i].length == length && !memcmp(choices[i].name, name, length))
                return i;
        }
        return -1;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order =
            truce__update_name_compare(name, length, choices[middle].name, choices[middle].length);

        if (order == 0)
            return middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

/* Where each choice's field stands, in one pass; of fields with one name the first. */
static struct slot *find_fields(struct update_run *run, struct value document,
                                const struct update_choice *choices, uint32_t count)
{
    struct slot *slots = truce__arena_take(run->context->arena, (count + 1) * sizeof *slots);
    struct fields fields = truce__fields(document);
    const uint8_t *element = fields.at;
    uint32_t missing = count;

    memset(slots, 0, count * sizeof *slots);
    for (; missing && truce__fields_next(&fields); element = fields.at) {
        int64_t found = find_choice(choices, count, fields.key, fields.key_length);

        if (found < 0 || slots[found].element)
            continue;
        slots[found] = (struct slot){element, fields.value};
        missing--;
    }
    return slots;
}

/* rule 3 */
static truce_status apply_check_id(const struct update_run *run, const struct update_place *place,
                                   uint64_t changes_before, bson_error_t *error)
{
    char value[128];

    if (run->changes == changes_before || place->level != 1 || place->length != 3 ||
        memcmp(place->name, "_id", 3) != 0)
        return TRUCE_OK;
    return truce__refuse(CODE_IMMUTABLE_FIELD, error,
                         "the update would change '_id' (%s), which never changes",
                         truce__value_show(place->value, value, sizeof value));
}

static truce_status visit_document(struct update_run *run, const struct update_place *place,
                                   const struct update_choice *choices, uint32_t count,
                                   int64_t *delta, bson_error_t *error)
{
    struct slot *slots = find_fields(run, place->value, choices, count);
    truce_status status;

    for (uint32_t i = 0; i < count; i++) {
        const struct update_choice *choice = &choices[i];
        struct update_place inner = truce__update_place_below(place, choice->name, choice->length);
        struct value built = truce__value_missing();
        uint64_t changes = run->changes;

        if (slots[i].element) {
            inner.element = slots[i].element;
            inner.value = slots[i].value;
            status = truce__update_visit(run, &inner, choice->nodes, choice->count, delta, error);
            if (!status)
                status = apply_check_id(run, &inner, changes, error);
        } else {
            status =
                truce__update_build(run, &inner, choice->nodes, choice->count, true, &built, error);
            if (!status && built.type != VALUE_MISSING)
                status = truce__update_check_name(run, &inner, error);
        }
        if (status)
            return status;
        if (built.type != VALUE_MISSING)
            apply_append_element(run, place->value, choice->name, choice->length, built, delta);
    }
    return TRUCE_OK;
}

/* A choice whose name is no number leads through an array only for $update (rule 5). */
static bool leads_through(const struct update_choice *choice)
{
    if (choice->index >= 0)
        return false;
    for (uint32_t i = 0; i < choice->count; i++) {
        if (!choice->nodes[i]->items_only)
            return false;
    }
    return true;
}

/* what rule 5 applies to each document of an array: one node for each way on */
static uint32_t nodes_through(struct update_run *run, const struct update_choice *choices,
                              uint32_t count, const struct update_node **nodes)
{
    uint32_t filled = 0;

    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; leads_through(&choices[i]) && j < choices[i].count; j++) {
            struct update_node *node = truce__arena_take(run->context->arena, sizeof *node);
            struct update_branch *branch = truce__arena_take(run->context->arena, sizeof *branch);

            *branch = (struct update_branch){.name = choices[i].name,
                                             .length = choices[i].length,
                                             .index = -1,
                                             .node = (struct update_node *)choices[i].nodes[j]};
            *node = (struct update_node){.kind = UPDATE_OBJECT,
                                         .items_only = true,
                                         .branches = branch,
                                         .count = 1,
                                         .room = 1};
            nodes[filled++] = node;
        }
    }
    return filled;
}

static uint32_t count_nodes(const struct update_choice *choices, uint32_t count)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < count; i++)
        nodes += choices[i].count;
    return nodes;
}

/* The choices whose number is `index`, from *next on (choices are sorted); adds their nodes. */
static uint32_t take_index(const struct update_choice *choices, uint32_t count, uint32_t *next,
                           int64_t index, const struct update_node **nodes, uint32_t filled)
{
    for (; *next < count && choices[*next].index == index; ++*next) {
        for (uint32_t i = 0; i < choices[*next].count; i++)
            nodes[filled++] = choices[*next].nodes[i];
    }
    return filled;
}

static uint32_t apply_first_number(const struct update_choice *choices, uint32_t count)
{
    uint32_t first = 0;

    while (first < count && choices[first].index < 0)
        first++;
    return first;
}

/* An element that the array does not have yet: nulls up to it, then the value. */
static truce_status append_to_array(struct update_run *run, const struct update_place *place,
                                    int64_t index, int64_t *length, struct value built,
                                    int64_t *delta, bson_error_t *error)
{
    uint64_t size = built.size;
    uint8_t *bytes, *to;
    char path[256];

    if (index - *length > TRUCE_ARRAY_FILL_MAX)
        return truce__refuse(CODE_CANNOT_BACKFILL_ARRAY, error,
                             "element %lld of '%s' lies more than %d elements behind its end",
                             (long long)index, truce__update_place_show(place, path, sizeof path),
                             TRUCE_ARRAY_FILL_MAX);
    for (int64_t i = *length; i <= index; i++)
        size += 2 + truce__update_digits((uint32_t)i);
    bytes = to = truce__arena_take(run->context->arena, size);
    for (int64_t i = *length; i <= index; i++) {
        *to++ = i < index ? BSON_TYPE_NULL : built.type;
        to = truce__update_put_number(to, (uint32_t)i);
        *to++ = 0;
    }
    if (built.size)
        memcpy(to, built.data, built.size);
    truce__update_edit(run, place->value.data + place->value.size - 1, 0, bytes, (uint32_t)size);
    *delta += (int64_t)size;
    *length = index + 1;
    return TRUCE_OK;
}

static truce_status append_numbers(struct update_run *run, const struct update_place *place,
                                   const struct update_choice *choices, uint32_t count,
                                   uint32_t next, int64_t length, int64_t *delta,
                                   bson_error_t *error)
{
    const struct update_node **nodes = truce__arena_take(
        run->context->arena, (count_nodes(choices, count) + 1) * sizeof(struct update_node *));
    truce_status status = TRUCE_OK;

    while (!status && next < count && choices[next].index >= 0) {
        const struct update_choice *choice = &choices[next];
        struct update_place inner = truce__update_place_below(place, choice->name, choice->length);
        struct value built = truce__value_missing();
        uint32_t filled = take_index(choices, count, &next, choice->index, nodes, 0);

        status = truce__update_conflict(run, &inner, nodes, filled, error);
        if (!status)
            status = truce__update_build(run, &inner, nodes, filled, true, &built, error);
        if (!status && built.type != VALUE_MISSING)
            status = append_to_array(run, place, choice->index, &length, built, delta, error);
    }
    return status;
}

/* Choices from `first` to `end` that are no numbers and do not lead through: code 28, unless their
 * operators do not mind. */
static truce_status refuse_names(struct update_run *run, const struct update_place *place,
                                 const struct update_choice *choices, uint32_t first, uint32_t end,
                                 bson_error_t *error)
{
    struct value none = truce__value_missing();
    truce_status status = TRUCE_OK;

    for (uint32_t i = first; !status && i < end; i++) {
        struct update_place inner =
            truce__update_place_below(place, choices[i].name, choices[i].length);

        if (choices[i].index < 0 && !leads_through(&choices[i]))
            status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, false,
                                         &none, error);
    }
    return status;
}

/* Goes through an array by number. */
static truce_status apply_visit_array(struct update_run *run, const struct update_place *place,
                                      const struct update_choice *choices, uint32_t count,
                                      int64_t *delta, bson_error_t *error)
{
    const struct update_node **nodes = truce__arena_take(
        run->context->arena, (count_nodes(choices, count) + 1) * sizeof(struct update_node *));
    uint32_t through = nodes_through(run, choices, count, nodes);
    uint32_t next = apply_first_number(choices, count);
    struct fields fields = truce__fields(place->value);
    const uint8_t *element = fields.at;
    truce_status status;
    int64_t length = 0;

    status = refuse_names(run, place, choices, 0, next, error);
    for (; !status && (through || (next < count && choices[next].index >= 0));
         element = fields.at) {
        struct update_place inner;
        uint32_t first, filled;

        if (!truce__fields_next(&fields))
            break;
        first = fields.value.type == BSON_TYPE_DOCUMENT ? 0 : through;
        filled = take_index(choices, count, &next, length++, nodes, through);
        if (filled == first)
            continue;
        inner = truce__update_place_below(place, fields.key, fields.key_length);
        inner.element = element;
        inner.value = fields.value;
        status = truce__update_conflict(run, &inner, nodes + first, filled - first, error);
        if (!status)
            status = truce__update_visit(run, &inner, nodes + first, filled - first, delta, error);
    }
    if (!status)
        status = append_numbers(run, place, choices, count, next, length, delta, error);
    return status ? status : refuse_names(run, place, choices, next, count, error);
}

static truce_status visit_object(struct update_run *run, const struct update_place *place,
                                 const struct update_node *const *nodes, uint32_t count,
                                 int64_t *delta, bson_error_t *error)
{
    struct update_choice *choices;
    struct value none = truce__value_missing();
    uint32_t choices_count;
    int64_t grown = 0;
    truce_status status =
        truce__update_choices(run, place, nodes, count, &choices, &choices_count, error);

    if (status)
        return status;
    if (place->value.type == BSON_TYPE_DOCUMENT) {
        status = visit_document(run, place, choices, choices_count, &grown, error);
    } else if (place->value.type == BSON_TYPE_ARRAY) {
        status = apply_visit_array(run, place, choices, choices_count, &grown, error);
    } else {
        for (uint32_t i = 0; !status && i < choices_count; i++) {
            struct update_place inner =
                truce__update_place_below(place, choices[i].name, choices[i].length);

            status = truce__update_build(run, &inner, choices[i].nodes, choices[i].count, false,
                                         &none, error);
        }
    }
    if (status)
        return status;
    truce__update_edit_length(run, place->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/* the nodes whose filter takes this element */
static truce_status filtered_nodes(struct update_run *run, const struct update_node *const *nodes,
                                   uint32_t count, struct value element,
                                   const struct update_node **taken, uint32_t *taken_count,
                                   bson_error_t *error)
{
    *taken_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < nodes[i]->count; j++) {
            const struct update_branch *branch = &nodes[i]->branches[j];
            struct match_result result = {.matched = true};

            if (branch->filter) {
                truce_status status =
                    truce__match_test(branch->filter->match, element, run->context, &result, error);
                if (status)
                    return status;
            }
            if (result.matched)
                taken[(*taken_count)++] = branch->node;
        }
    }
    return TRUCE_OK;
}

/* "a.$[]" and "a.$[x]" */
static truce_status visit_elements(struct update_run *run, const struct update_place *place,
                                   const struct update_node *const *nodes, uint32_t count,
                                   int64_t *delta, bson_error_t *error)
{
    const struct update_node **taken;
    struct fields fields;
    const uint8_t *element;
    uint32_t branches = 0, taken_count;
    truce_status status = TRUCE_OK;
    int64_t grown = 0;
    char path[256];

    if (place->value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_BAD_VALUE, error, "'%s' is %s, no array to update elements of",
                             truce__update_place_show(place, path, sizeof path),
                             truce__type_name(place->value.type));
    for (uint32_t i = 0; i < count; i++)
        branches += nodes[i]->count;
    taken = truce__arena_take(run->context->arena, branches * sizeof(struct update_node *));
    fields = truce__fields(place->value);
    for (element = fields.at; !status && truce__fields_next(&fields); element = fields.at) {
        struct update_place inner = truce__update_place_below(place, fields.key, fields.key_length);

        inner.element = element;
        inner.value = fields.value;
        status = filtered_nodes(run, nodes, count, fields.value, taken, &taken_count, error);
        if (!status && taken_count)
            status = truce__update_conflict(run, &inner, taken, taken_count, error);
        if (!status && taken_count)
            status = truce__update_visit(run, &inner, taken, taken_count, &grown, error);
    }
    if (status)
        return status;
    truce__update_edit_length(run, place->value, grown);
    *delta += grown;
    return TRUCE_OK;
}

/* A value without bytes (null) begins where its element ends, where other edits may stand: so the
 * zero byte before it is written anew too, which keeps edits apart. */
static void edit_nothing(struct update_run *run, struct value old, struct value new)
{
    uint8_t *bytes = truce__arena_take(run->context->arena, (size_t) new.size + 1);

    bytes[0] = 0;
    if (new.size)
        memcpy(bytes + 1, new.data, new.size);
    truce__update_edit(run, old.data - 1, 1, bytes, new.size + 1);
}

static void edit_value(struct update_run *run, const struct update_place *place, struct value new,
                       int64_t *delta)
{
    struct value old = place->value;

    if (new.type != old.type)
        truce__update_edit(run, place->element, 1,
                           truce__arena_copy(run->context->arena, &new.type, 1), 1);
    if (old.size == 0)
        edit_nothing(run, old, new);
    else
        truce__update_edit(run, old.data, old.size, new.data, new.size);
    *delta += (int64_t) new.size - old.size;
}

static void edit_away(struct update_run *run, const struct update_place *place, int64_t *delta)
{
    uint32_t size = (uint32_t)(place->value.data + place->value.size - place->element);

    truce__update_edit(run, place->element, size, NULL, 0);
    *delta -= size;
}

static truce_status visit_leaf(struct update_run *run, const struct update_leaf *leaf,
                               const struct update_place *place, int64_t *delta,
                               bson_error_t *error)
{
    struct value new = place->value;
    truce_status status;

    if (truce__update_is_idle(run, leaf))
        return TRUCE_OK;
    if (leaf->operator->flags & UPDATE_ITEMS)
        return truce__update_items(run, leaf, place, delta, error);
    status = leaf->operator->apply(run, leaf, place, place->value, &new, error);
    if (status)
        return status;
    if (new.type == VALUE_MISSING && place->up->value.type == BSON_TYPE_ARRAY) {
        new = truce__value_null();
        run->changes++;
    }
    if (truce__value_identical(place->value, new))
        return TRUCE_OK;
    if (new.type == VALUE_MISSING) {
        edit_away(run, place, delta);
        return TRUCE_OK;
    }
    edit_value(run, place, new, delta);
    status = truce__update_check_stored(run, leaf, place, new, error);
    if (!status && !(leaf->operator->flags & UPDATE_DOLLAR_NAMES))
        status = truce__update_check_name(run, place, error);
    return status;
}

truce_status truce__update_visit(struct update_run *run, const struct update_place *place,
                                 const struct update_node *const *nodes, uint32_t count,
                                 int64_t *delta, bson_error_t *error)
{
    truce_assert(count > 0);
    switch (nodes[0]->kind) {
    case UPDATE_LEAF:
        truce_assert(count == 1);
        return visit_leaf(run, &nodes[0]->leaf, place, delta, error);
    case UPDATE_OBJECT:
        return visit_object(run, place, nodes, count, delta, error);
    case UPDATE_ARRAY:
        break;
    }
    return visit_elements(run, place, nodes, count, delta, error);
}

truce_status truce__update_walk(struct update_run *run, const struct update_node *root,
                                struct value document, bson_error_t *error)
{
    struct update_place place = {.root = true, .value = document};
    int64_t delta = 0;

    run->root = document;
    return truce__update_visit(run, &place, &root, 1, &delta, error);
}
