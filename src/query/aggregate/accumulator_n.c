/*
 * The accumulators that keep the n first, last, least, greatest, top or bottom values, and $top and
 * $bottom, which are the same with an n of 1.
 *
 * Each keeps at most n slots and reuses the memory of those it lets go, so a group of a million
 * documents takes no more than its n largest values.
 *
 *     $firstN, $minN, $maxN, $topN, $bottomN    slots in the order of the result
 *     $lastN                                    a ring: `start` is the oldest
 *
 * Equal values keep the order in which they came: a newcomer stands behind its equals.
 */
#include "base/limits.h"
#include "query/aggregate/accumulator_kind.h"

struct kept {
    struct slot value, key;
};

struct n_state {
    struct accumulator_n head;
    uint32_t count, room;
    uint32_t start;
    struct kept **slots;
};

static struct kept *add_slot(struct accumulation *run, struct n_state *state)
{
    struct kept *kept = truce__arena_take(run->arena, sizeof *kept);

    if (state->count == state->room) {
        uint32_t room = state->room ? 2 * state->room : 4;
        struct kept **slots = truce__arena_take(run->arena, room * sizeof *slots);

        if (state->count)
            memcpy(slots, state->slots, state->count * sizeof *slots);
        state->slots = slots;
        state->room = room;
    }
    memset(kept, 0, sizeof *kept);
    state->slots[state->count++] = kept;
    return kept;
}

static void set_slot(struct accumulation *run, struct kept *kept,
                     const struct accumulator_input *input)
{
    struct value value = input->value;

    if (value.type == VALUE_MISSING)
        value = truce__value_null();
    truce__slot_set(&kept->value, run->arena, value);
    truce__slot_set(&kept->key, run->arena, input->key);
}

static bool accumulator_n_is_full(const struct n_state *state)
{
    return (int64_t)state->count >= state->head.n;
}

static truce_status accumulator_n_first_add(struct accumulation *run, void *data,
                                            const struct accumulator_input *input)
{
    if (!accumulator_n_is_full(data))
        set_slot(run, add_slot(run, data), input);
    return TRUCE_OK;
}

static truce_status accumulator_n_last_add(struct accumulation *run, void *data,
                                           const struct accumulator_input *input)
{
    struct n_state *state = data;

    if (!accumulator_n_is_full(state)) {
        set_slot(run, add_slot(run, state), input);
        return TRUCE_OK;
    }
    set_slot(run, state->slots[state->start], input);
    state->start = (state->start + 1) % state->count;
    return TRUCE_OK;
}

/* ---- in order ------------------------------------------------------------------------------- */

typedef int order_function(const struct kept *kept, const struct accumulator_input *input);

static int accumulator_n_by_value(const struct kept *kept, const struct accumulator_input *input)
{
    return truce__value_compare(kept->value.value, input->value);
}

static int by_value_descending(const struct kept *kept, const struct accumulator_input *input)
{
    return truce__value_compare(input->value, kept->value.value);
}

static int by_key(const struct kept *kept, const struct accumulator_input *input)
{
    struct value a = kept->key.value, b = input->key;

    return truce__bytes_compare(a.data, a.size, b.data, b.size);
}

/* The first slot that is greater than the input. */
static uint32_t accumulator_n_place_of(const struct n_state *state,
                                       const struct accumulator_input *input, order_function *order)
{
    uint32_t low = 0, high = state->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (order(state->slots[middle], input) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Moves the slot `from` to the place `to`, those between by one. */
static void move_slot(struct n_state *state, uint32_t from, uint32_t to)
{
    struct kept *moved = state->slots[from];

    if (from > to)
        memmove(&state->slots[to + 1], &state->slots[to], (from - to) * sizeof *state->slots);
    else
        memmove(&state->slots[from], &state->slots[from + 1], (to - from) * sizeof *state->slots);
    state->slots[to] = moved;
}

static truce_status keep_front(struct accumulation *run, struct n_state *state,
                               const struct accumulator_input *input, order_function *order)
{
    uint32_t place = accumulator_n_place_of(state, input, order), last;

    if (accumulator_n_is_full(state) && place == state->count)
        return TRUCE_OK;
    if (!accumulator_n_is_full(state))
        add_slot(run, state);
    last = state->count - 1;
    set_slot(run, state->slots[last], input);
    move_slot(state, last, place);
    return TRUCE_OK;
}

static truce_status keep_back(struct accumulation *run, struct n_state *state,
                              const struct accumulator_input *input, order_function *order)
{
    uint32_t place = accumulator_n_place_of(state, input, order);

    if (!accumulator_n_is_full(state)) {
        add_slot(run, state);
        set_slot(run, state->slots[state->count - 1], input);
        move_slot(state, state->count - 1, place);
    } else if (place > 0) {
        set_slot(run, state->slots[0], input);
        move_slot(state, 0, place - 1);
    }
    return TRUCE_OK;
}

static truce_status accumulator_n_min_add(struct accumulation *run, void *state,
                                          const struct accumulator_input *input)
{
    return truce__is_nullish(input->value) ? TRUCE_OK
                                           : keep_front(run, state, input, accumulator_n_by_value);
}

static truce_status accumulator_n_max_add(struct accumulation *run, void *state,
                                          const struct accumulator_input *input)
{
    return truce__is_nullish(input->value) ? TRUCE_OK
                                           : keep_front(run, state, input, by_value_descending);
}

static truce_status top_add(struct accumulation *run, void *state,
                            const struct accumulator_input *input)
{
    return keep_front(run, state, input, by_key);
}

static truce_status bottom_add(struct accumulation *run, void *state,
                               const struct accumulator_input *input)
{
    return keep_back(run, state, input, by_key);
}

/* ---- results -------------------------------------------------------------------------------- */

static void accumulator_n_each(const void *data, accumulator_visit *visit, void *arg)
{
    const struct n_state *state = data;

    for (uint32_t i = 0; i < state->count; i++) {
        const struct kept *kept = state->slots[(state->start + i) % state->count];

        visit(arg, (struct accumulator_input){kept->value.value, kept->key.value});
    }
}

static void accumulator_n_append_element(void *arg, struct accumulator_input input)
{
    truce__builder_element(arg, input.value);
}

static truce_status array_finish(struct accumulation *run, const void *data, struct value *result)
{
    struct builder builder;

    truce__builder_begin(&builder, run->context->arena,
                         run->context->arena->bytes + TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_ARRAY);
    accumulator_n_each(data, accumulator_n_append_element, &builder);
    return truce__builder_finish(&builder, result, run->error);
}

static truce_status single_finish(struct accumulation *run, const void *data, struct value *result)
{
    const struct n_state *state = data;

    *result = state->count ? state->slots[0]->value.value : truce__value_missing();
    return TRUCE_OK;
}

#define SIZE sizeof(struct n_state)

const struct accumulator_kind truce__accumulators_n[] = {
    {"$firstN", FORM_N, SIZE, accumulator_n_first_add, array_finish, accumulator_n_each},
    {"$lastN", FORM_N, SIZE, accumulator_n_last_add, array_finish, accumulator_n_each},
    {"$minN", FORM_N, SIZE, accumulator_n_min_add, array_finish, accumulator_n_each},
    {"$maxN", FORM_N, SIZE, accumulator_n_max_add, array_finish, accumulator_n_each},
    {"$topN", FORM_TOP_N, SIZE, top_add, array_finish, accumulator_n_each},
    {"$bottomN", FORM_TOP_N, SIZE, bottom_add, array_finish, accumulator_n_each},
    {"$top", FORM_TOP, SIZE, top_add, single_finish, accumulator_n_each},
    {"$bottom", FORM_TOP, SIZE, bottom_add, single_finish, accumulator_n_each},
    {NULL},
};
