/*
 * Lists of accumulators: parsing, the walk over a list, and the kinds of accumulators.
 *
 *     states of one group:  | state of the first | of the second | ...   (aligned, state_size)
 *
 * A state can be saved and loaded again. A kind whose state is plain bytes is copied. Each other
 * kind reports the values that it holds (`each`), and a load adds them again, or calls `restore` if
 * the held values differ from the values that were added. A kind reports its values in an order
 * that rebuilds the same state.
 */
#include "query/aggregate/accumulator.h"

#include "base/assert.h"
#include "base/limits.h"
#include "base/nearest_word.h"
#include "bson/exact_sum.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression.h"
#include "query/sort/sort.h"

enum accumulator_form {
    FORM_EXPRESSION, /* {$sum: <expression>} */
    FORM_NOTHING,    /* {$count: {}} */
    FORM_N,          /* {$firstN: {input, n}} */
    FORM_TOP,        /* {$top: {sortBy, output}} */
    FORM_TOP_N,      /* {$topN: {n, sortBy, output}} */
};

/* The environment of a call of an accumulator. */
struct accumulation {
    const struct accumulator *accumulator;
    /* The arena for states, which all groups share. */
    struct arena *arena;
    /* The environment of the evaluation. Its arena is scratch memory. */
    struct query_context *context;
    bson_error_t *error;
};

/* Receives the values that a state holds, in an order that restores the state. */
typedef void accumulator_visit(void *arg, struct accumulator_input input);

struct accumulator_kind {
    const char *name;
    enum accumulator_form form;
    size_t state_size;
    truce_status (*add)(struct accumulation *run, void *state,
                        const struct accumulator_input *input);
    /* The result lives in the state or in context->arena. */
    truce_status (*finish)(struct accumulation *run, const void *state, struct value *result);
    /* Reports the values of the state to `visit`. NULL means that the state is plain bytes. */
    void (*each)(const void *state, accumulator_visit *visit, void *arg);
    /* Adds a value that `each` has reported to a state that is loaded. NULL means that `add` does
     * so. */
    truce_status (*restore)(struct accumulation *run, void *state,
                            const struct accumulator_input *input);
};

struct accumulator {
    const struct accumulator_kind *kind;
    char *name;
    size_t name_length;
    /* The expression of `input` or `output`, or NULL for FORM_NOTHING. */
    struct expression *input;
    /* The input, if it is the same for each document. */
    struct value constant;
    bool is_constant;
    /* The option `n` of FORM_N and FORM_TOP_N. */
    struct expression *n;
    /* The option `sortBy` of FORM_TOP and FORM_TOP_N. */
    struct sort sort;
    /* The offset of the state in the block of a group. */
    size_t offset;
};

/* The first field of the states of FORM_N, FORM_TOP, and FORM_TOP_N: the n of the group. */
struct accumulator_n {
    int64_t n;
};

/* A name of NULL ends the list. */
extern const struct accumulator_kind truce__accumulators_plain[];
extern const struct accumulator_kind truce__accumulators_n[];

/* A value with memory of its own in the arena, which is reused when the value is replaced. */
struct slot {
    uint8_t *bytes;
    uint32_t room;
    struct value value;
};

static inline bool truce__is_nullish(struct value value)
{
    return value.type == VALUE_MISSING || value.type == BSON_TYPE_NULL ||
           value.type == BSON_TYPE_UNDEFINED;
}

/* ---- kinds without n ------------------------------------------------------------------------- */

/*
 * The accumulators that need no `n`: sums, averages, extremes, first and last, lists, sets, counts,
 * deviations, and merged documents.
 *
 * Lists ($push, $concatArrays) and sets ($addToSet, $setUnion) store their values in a chain of
 * chunks:
 *
 *     chunk ─> chunk ─> chunk      each: | type 1 | size 4 | data | type 1 | ...
 *
 * A set also has a hash table of pointers into the chunks.
 */

#define CHUNK_FIRST    48
#define CHUNK_MAX      8192
#define SET_ROOM_FIRST 16
/* Documents that wait are merged only when they have at least this size. */
#define WAITING_MIN      256
#define CODE_NO_DOCUMENT 40400

static void slot_set(struct slot *slot, struct arena *arena, struct value value)
{
    if (value.size > slot->room) {
        slot->room = slot->room * 2 > value.size ? slot->room * 2 : value.size;
        slot->bytes = truce__arena_take(arena, slot->room);
    }
    if (value.size)
        memcpy(slot->bytes, value.data, value.size);
    slot->value = (struct value){slot->bytes, value.size, value.type};
}

/* ---- sums ----------------------------------------------------------------------------------- */

struct sum_state {
    bool begun;
    struct sum sum;
};

static void kinds_sum_begin(struct sum_state *state)
{
    if (!state->begun)
        truce__sum_begin(&state->sum);
    state->begun = true;
}

static truce_status kinds_sum_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct sum_state *state = data;

    kinds_sum_begin(state);
    if (truce__value_is_number(input->value))
        truce__sum_add(&state->sum, input->value);
    return TRUCE_OK;
}

static struct sum kinds_sum_of(const void *data)
{
    struct sum_state state = *(const struct sum_state *)data;

    kinds_sum_begin(&state);
    return state.sum;
}

static truce_status sum_finish(struct accumulation *run, const void *data, struct value *result)
{
    struct sum sum = kinds_sum_of(data);

    *result = truce__sum_value(&sum, run->context->arena);
    return TRUCE_OK;
}

static truce_status average_finish(struct accumulation *run, const void *data, struct value *result)
{
    struct sum sum = kinds_sum_of(data);

    *result = truce__sum_average(&sum, run->context->arena);
    return TRUCE_OK;
}

static truce_status count_add(struct accumulation *run, void *data,
                              const struct accumulator_input *input)
{
    ++*(int64_t *)data;
    return TRUCE_OK;
}

static truce_status count_finish(struct accumulation *run, const void *data, struct value *result)
{
    int64_t count = *(const int64_t *)data;

    *result = count <= INT32_MAX ? truce__value_from_int32(run->context->arena, (int32_t)count)
                                 : truce__value_from_int64(run->context->arena, count);
    return TRUCE_OK;
}

static truce_status deviation_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    if (truce__value_is_number(input->value))
        truce__deviation_add(data, truce__number_to_double(input->value));
    return TRUCE_OK;
}

static truce_status population_finish(struct accumulation *run, const void *data,
                                      struct value *result)
{
    *result = truce__deviation_value(data, false, run->context->arena);
    return TRUCE_OK;
}

static truce_status sample_finish(struct accumulation *run, const void *data, struct value *result)
{
    *result = truce__deviation_value(data, true, run->context->arena);
    return TRUCE_OK;
}

/* ---- one value ------------------------------------------------------------------------------ */

struct one_state {
    bool set;
    struct slot slot;
};

static void one_store_value(struct accumulation *run, struct one_state *state, struct value value)
{
    slot_set(&state->slot, run->arena, value);
    state->set = true;
}

static truce_status kinds_first_add(struct accumulation *run, void *data,
                                    const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!state->set)
        one_store_value(run, state, input->value);
    return TRUCE_OK;
}

static truce_status kinds_last_add(struct accumulation *run, void *data,
                                   const struct accumulator_input *input)
{
    one_store_value(run, data, input->value);
    return TRUCE_OK;
}

static truce_status kinds_min_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!truce__is_nullish(input->value) &&
        (!state->set || truce__value_compare(input->value, state->slot.value) < 0))
        one_store_value(run, state, input->value);
    return TRUCE_OK;
}

static truce_status kinds_max_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!truce__is_nullish(input->value) &&
        (!state->set || truce__value_compare(input->value, state->slot.value) > 0))
        one_store_value(run, state, input->value);
    return TRUCE_OK;
}

static truce_status one_finish(struct accumulation *run, const void *data, struct value *result)
{
    const struct one_state *state = data;

    *result = state->set ? state->slot.value : truce__value_missing();
    return TRUCE_OK;
}

static void one_each(const void *data, accumulator_visit *visit, void *arg)
{
    const struct one_state *state = data;

    if (state->set)
        visit(arg, (struct accumulator_input){.value = state->slot.value});
}

/* ---- merged documents ----------------------------------------------------------------------- */

/* Documents are appended to a buffer. Once the buffer is as large as the merged document, it is
 * merged into it: n documents therefore cost O(n), not O(n * n). */
struct merge_state {
    struct one_state merged;
    uint8_t *waiting;
    uint32_t size, room;
};

static struct value next_waiting(const struct merge_state *state, uint32_t at)
{
    uint32_t size;

    memcpy(&size, state->waiting + at, sizeof size);
    return (struct value){state->waiting + at, size, BSON_TYPE_DOCUMENT};
}

static bool set_fields(struct field_table *table, struct value document)
{
    struct fields fields = truce__fields(document);
    bool room = true;

    while (room && truce__fields_next(&fields))
        room = truce__field_table_set(table, fields.key, fields.key_length, fields.value);
    return room;
}

/* Merges all fields into scratch memory. A field of a later document replaces an earlier one, at
 * its position. */
static truce_status kinds_merge(struct accumulation *run, const struct merge_state *state,
                                struct value *merged)
{
    struct arena *arena = run->context->arena;
    size_t bytes_max = arena->bytes + TRUCE_STAGE_MEMORY_MAX;
    struct value document = state->merged.slot.value;
    uint32_t bytes = document.size + state->size;
    struct field_table table;
    struct builder builder;
    truce_status status = truce__budget_spend(run->context->budget, bytes / 64, run->error);
    bool room;

    if (status)
        return status;
    truce__field_table_begin(&table, arena, bytes_max);
    room = set_fields(&table, document);
    for (uint32_t at = 0; room && at < state->size; at += document.size) {
        document = next_waiting(state, at);
        room = set_fields(&table, document);
    }
    truce__builder_begin(&builder, arena, bytes_max, BSON_TYPE_DOCUMENT);
    truce__field_table_write(&table, &builder);
    builder.full = builder.full || !room;
    return truce__builder_finish(&builder, merged, run->error);
}

static void let_wait(struct accumulation *run, struct merge_state *state, struct value document)
{
    if (state->room - state->size < document.size) {
        uint8_t *before = state->waiting;

        state->room = 2 * (state->size + document.size);
        state->waiting = truce__arena_take(run->arena, state->room);
        if (state->size)
            memcpy(state->waiting, before, state->size);
    }
    memcpy(state->waiting + state->size, document.data, document.size);
    state->size += document.size;
}

/* Adds a document to a $mergeObjects. Small documents wait and are merged together, so that many of
 * them take linear time. */
static truce_status merge_add(struct accumulation *run, void *data,
                              const struct accumulator_input *input)
{
    struct merge_state *state = data;
    struct value merged;
    truce_status status;

    if (truce__is_nullish(input->value))
        return TRUCE_OK;
    if (input->value.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_NO_DOCUMENT, run->error, "$mergeObjects takes documents, not %s",
                             truce__type_name(input->value.type));
    if (!state->merged.set) {
        one_store_value(run, &state->merged, input->value);
        return TRUCE_OK;
    }
    let_wait(run, state, input->value);
    if (state->size < WAITING_MIN || state->size < state->merged.slot.value.size)
        return TRUCE_OK;
    status = kinds_merge(run, state, &merged);
    if (status)
        return status;
    one_store_value(run, &state->merged, merged);
    state->size = 0;
    return TRUCE_OK;
}

static truce_status merge_finish(struct accumulation *run, const void *data, struct value *result)
{
    static const uint8_t empty[] = {5, 0, 0, 0, 0};
    const struct merge_state *state = data;

    if (state->size)
        return kinds_merge(run, state, result);
    *result = state->merged.set ? state->merged.slot.value
                                : (struct value){empty, sizeof empty, BSON_TYPE_DOCUMENT};
    return TRUCE_OK;
}

static void merge_each(const void *data, accumulator_visit *visit, void *arg)
{
    const struct merge_state *state = data;
    struct value document;

    one_each(&state->merged, visit, arg);
    for (uint32_t at = 0; at < state->size; at += document.size) {
        document = next_waiting(state, at);
        visit(arg, (struct accumulator_input){.value = document});
    }
}

/* ---- lists and sets ------------------------------------------------------------------------- */

struct chunk {
    struct chunk *next;
    uint32_t used, room;
    uint8_t bytes[];
};

struct list_state {
    struct chunk *first, *last;
    uint32_t count;
    /* The values of a set by hash, or NULL before the first search. */
    const uint8_t **table;
    /* The number of slots of `table`, a power of two. */
    uint32_t table_room;
};

static struct value kinds_read_value(const uint8_t *at)
{
    struct value value = {at + 5, 0, at[0]};

    memcpy(&value.size, at + 1, 4);
    return value;
}

/* Appends a copy of the value, and returns where it is stored. */
static const uint8_t *list_append(struct arena *arena, struct list_state *list, struct value value)
{
    uint32_t size = value.size + 5;
    struct chunk *chunk = list->last;
    uint8_t *at;

    if (!chunk || chunk->room - chunk->used < size) {
        uint32_t room = chunk ? chunk->room * 2 : CHUNK_FIRST;

        room = room > CHUNK_MAX ? CHUNK_MAX : room;
        room = room < size ? size : room;
        chunk = truce__arena_take(arena, sizeof *chunk + room);
        *chunk = (struct chunk){NULL, 0, room};
        if (list->last)
            list->last->next = chunk;
        else
            list->first = chunk;
        list->last = chunk;
    }
    at = chunk->bytes + chunk->used;
    at[0] = value.type;
    memcpy(at + 1, &value.size, 4);
    if (value.size)
        memcpy(at + 5, value.data, value.size);
    chunk->used += size;
    list->count++;
    return at;
}

static truce_status push_add(struct accumulation *run, void *data,
                             const struct accumulator_input *input)
{
    if (input->value.type != VALUE_MISSING)
        list_append(run->arena, data, input->value);
    return TRUCE_OK;
}

/* Returns the slot of this value in the table, or the free slot where it belongs. */
static const uint8_t **set_find(const struct list_state *set, struct value value)
{
    uint32_t mask = set->table_room - 1, at = (uint32_t)truce__value_hash(value) & mask;

    while (set->table[at] && !truce__value_equal(kinds_read_value(set->table[at]), value))
        at = (at + 1) & mask;
    return &set->table[at];
}

static void set_grow(struct arena *arena, struct list_state *set)
{
    set->table_room = set->table_room ? 2 * set->table_room : SET_ROOM_FIRST;
    set->table = truce__arena_take(arena, set->table_room * sizeof *set->table);
    memset(set->table, 0, set->table_room * sizeof *set->table);
    for (const struct chunk *chunk = set->first; chunk; chunk = chunk->next) {
        for (uint32_t at = 0; at < chunk->used;) {
            struct value value = kinds_read_value(chunk->bytes + at);

            *set_find(set, value) = chunk->bytes + at;
            at += 5 + value.size;
        }
    }
}

static truce_status kinds_set_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct list_state *set = data;
    const uint8_t **position;

    if (input->value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (2 * set->count >= set->table_room)
        set_grow(run->arena, set);
    position = set_find(set, input->value);
    if (!*position)
        *position = list_append(run->arena, set, input->value);
    return TRUCE_OK;
}

typedef truce_status element_add(struct accumulation *run, void *data,
                                 const struct accumulator_input *input);

/* Adds the elements of an array one by one. A missing field adds nothing, as in MongoDB; null is
 * refused. */
static truce_status add_elements(struct accumulation *run, void *data,
                                 const struct accumulator_input *input, element_add *add)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (input->value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (input->value.type != BSON_TYPE_ARRAY)
        return truce__refuse(CODE_TYPE_MISMATCH, run->error, "%s takes arrays, not %s",
                             run->accumulator->kind->name, truce__type_name(input->value.type));
    fields = truce__fields(input->value);
    while (!status && truce__fields_next(&fields)) {
        struct accumulator_input element = {.value = fields.value};

        status = add(run, data, &element);
    }
    return status;
}

static truce_status concat_add(struct accumulation *run, void *data,
                               const struct accumulator_input *input)
{
    return add_elements(run, data, input, push_add);
}

static truce_status union_add(struct accumulation *run, void *data,
                              const struct accumulator_input *input)
{
    return add_elements(run, data, input, kinds_set_add);
}

static void list_each(const void *data, accumulator_visit *visit, void *arg)
{
    const struct list_state *list = data;

    for (const struct chunk *chunk = list->first; chunk; chunk = chunk->next) {
        for (uint32_t at = 0; at < chunk->used;) {
            struct value value = kinds_read_value(chunk->bytes + at);

            visit(arg, (struct accumulator_input){.value = value});
            at += 5 + value.size;
        }
    }
}

static void kinds_append_element(void *arg, struct accumulator_input input)
{
    truce__builder_element(arg, input.value);
}

static truce_status list_finish(struct accumulation *run, const void *data, struct value *result)
{
    struct builder builder;

    truce__builder_begin(&builder, run->context->arena,
                         run->context->arena->bytes + TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_ARRAY);
    list_each(data, kinds_append_element, &builder);
    return truce__builder_finish(&builder, result, run->error);
}

const struct accumulator_kind truce__accumulators_plain[] = {
    {"$sum", FORM_EXPRESSION, sizeof(struct sum_state), kinds_sum_add, sum_finish},
    {"$avg", FORM_EXPRESSION, sizeof(struct sum_state), kinds_sum_add, average_finish},
    {"$count", FORM_NOTHING, sizeof(int64_t), count_add, count_finish},
    {"$stdDevPop", FORM_EXPRESSION, sizeof(struct deviation), deviation_add, population_finish},
    {"$stdDevSamp", FORM_EXPRESSION, sizeof(struct deviation), deviation_add, sample_finish},
    {"$first", FORM_EXPRESSION, sizeof(struct one_state), kinds_first_add, one_finish, one_each},
    {"$last", FORM_EXPRESSION, sizeof(struct one_state), kinds_last_add, one_finish, one_each},
    {"$min", FORM_EXPRESSION, sizeof(struct one_state), kinds_min_add, one_finish, one_each},
    {"$max", FORM_EXPRESSION, sizeof(struct one_state), kinds_max_add, one_finish, one_each},
    {"$mergeObjects", FORM_EXPRESSION, sizeof(struct merge_state), merge_add, merge_finish,
     merge_each},
    {"$push", FORM_EXPRESSION, sizeof(struct list_state), push_add, list_finish, list_each},
    {"$addToSet", FORM_EXPRESSION, sizeof(struct list_state), kinds_set_add, list_finish,
     list_each},
    {"$concatArrays", FORM_EXPRESSION, sizeof(struct list_state), concat_add, list_finish,
     list_each, push_add},
    {"$setUnion", FORM_EXPRESSION, sizeof(struct list_state), union_add, list_finish, list_each,
     kinds_set_add},
    {NULL},
};

/* ---- kinds with n ---------------------------------------------------------------------------- */

/*
 * The accumulators that store the n first, last, least, greatest, top, or bottom values. $top and
 * $bottom are the same with an n of 1.
 *
 * Each stores at most n slots and reuses the memory of the slots that it releases. A group of a
 * million documents therefore takes no more memory than its n largest values.
 *
 *     $firstN, $minN, $maxN, $topN, $bottomN    slots in the order of the result
 *     $lastN                                    a ring: `start` is the oldest
 *
 * Equal values stay in the order in which they arrived: a new value goes after its equals.
 */

struct n_entry {
    struct slot value, key;
};

struct n_state {
    struct accumulator_n head;
    uint32_t count, room;
    /* For $lastN: the index of the oldest slot. Otherwise 0. */
    uint32_t start;
    /* The slots, `count` of them. */
    struct n_entry **slots;
};

/* Adds an empty slot at the end of the state, in the arena of the run. */
static struct n_entry *add_slot(struct accumulation *run, struct n_state *state)
{
    struct n_entry *entry = truce__arena_take(run->arena, sizeof *entry);

    if (state->count == state->room) {
        uint32_t room = state->room ? 2 * state->room : 4;
        struct n_entry **slots = truce__arena_take(run->arena, room * sizeof *slots);

        if (state->count)
            memcpy(slots, state->slots, state->count * sizeof *slots);
        state->slots = slots;
        state->room = room;
    }
    memset(entry, 0, sizeof *entry);
    state->slots[state->count++] = entry;
    return entry;
}

static void set_slot(struct accumulation *run, struct n_entry *entry,
                     const struct accumulator_input *input)
{
    struct value value = input->value;

    if (value.type == VALUE_MISSING)
        value = truce__value_null();
    slot_set(&entry->value, run->arena, value);
    slot_set(&entry->key, run->arena, input->key);
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

typedef int order_function(const struct n_entry *entry, const struct accumulator_input *input);

static int accumulator_n_by_value(const struct n_entry *entry,
                                  const struct accumulator_input *input)
{
    return truce__value_compare(entry->value.value, input->value);
}

static int by_value_descending(const struct n_entry *entry, const struct accumulator_input *input)
{
    return truce__value_compare(input->value, entry->value.value);
}

static int by_key(const struct n_entry *entry, const struct accumulator_input *input)
{
    struct value a = entry->key.value, b = input->key;

    return truce__bytes_compare(a.data, a.size, b.data, b.size);
}

/* Returns the number of the first slot that is greater than the input. */
static uint32_t accumulator_n_position_of(const struct n_state *state,
                                          const struct accumulator_input *input,
                                          order_function *order)
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

/* Moves the slot `from` to the position `to`, and the slots between them by one. */
static void move_slot(struct n_state *state, uint32_t from, uint32_t to)
{
    struct n_entry *moved = state->slots[from];

    if (from > to)
        memmove(&state->slots[to + 1], &state->slots[to], (from - to) * sizeof *state->slots);
    else
        memmove(&state->slots[from], &state->slots[from + 1], (to - from) * sizeof *state->slots);
    state->slots[to] = moved;
}

static truce_status keep_front(struct accumulation *run, struct n_state *state,
                               const struct accumulator_input *input, order_function *order)
{
    uint32_t position = accumulator_n_position_of(state, input, order), last;

    if (accumulator_n_is_full(state) && position == state->count)
        return TRUCE_OK;
    if (!accumulator_n_is_full(state))
        add_slot(run, state);
    last = state->count - 1;
    set_slot(run, state->slots[last], input);
    move_slot(state, last, position);
    return TRUCE_OK;
}

static truce_status keep_back(struct accumulation *run, struct n_state *state,
                              const struct accumulator_input *input, order_function *order)
{
    uint32_t position = accumulator_n_position_of(state, input, order);

    if (!accumulator_n_is_full(state)) {
        add_slot(run, state);
        set_slot(run, state->slots[state->count - 1], input);
        move_slot(state, state->count - 1, position);
    } else if (position > 0) {
        set_slot(run, state->slots[0], input);
        move_slot(state, 0, position - 1);
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
        const struct n_entry *entry = state->slots[(state->start + i) % state->count];

        visit(arg, (struct accumulator_input){entry->value.value, entry->key.value});
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

/* ---- lists of accumulators ------------------------------------------------------------------- */

#define STATE_ALIGN 16

/* ---- parsing -------------------------------------------------------------------------------- */

/* Returns the kind of that name. If the name is unknown, returns NULL, and *nearest has the nearest
 * known name. */
static const struct accumulator_kind *accumulator_find_kind(const char *name,
                                                            struct nearest_word *nearest)
{
    static const struct accumulator_kind *const tables[] = {truce__accumulators_plain,
                                                            truce__accumulators_n};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        for (const struct accumulator_kind *kind = tables[i]; kind->name; kind++) {
            if (!strcmp(kind->name, name))
                return kind;
        }
    }
    *nearest = (struct nearest_word){.word = name};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const struct accumulator_kind *kind = tables[i]; kind->name; kind++)
            truce__nearest_word_offer(nearest, kind->name);
    return NULL;
}

static truce_status parse_expression(struct accumulator *made, struct value argument,
                                     const char *const *variables, bson_error_t *error)
{
    truce_status status = truce__expression_new(argument, variables, &made->input, error);

    if (!status)
        made->is_constant = truce__expression_constant_value(made->input, &made->constant);
    return status;
}

/* Reads one option of an accumulator such as $firstN or $topN. An option that was given before is
 * refused. */
static truce_status accumulator_parse_option(struct accumulator *made, const struct fields *at,
                                             const char *const *variables, bson_error_t *error)
{
    enum accumulator_form form = made->kind->form;
    const char *wanted = form == FORM_N ? "input" : "output";
    bson_t sort;

    if (!strcmp(at->key, wanted) && !made->input)
        return parse_expression(made, at->value, variables, error);
    if (!strcmp(at->key, "n") && form != FORM_TOP && !made->n)
        return truce__expression_new(at->value, variables, &made->n, error);
    if (!strcmp(at->key, "sortBy") && form != FORM_N && !made->sort.fields) {
        if (at->value.type != BSON_TYPE_DOCUMENT)
            return truce__refuse_value(10065, at->value, error, "%s: sortBy must be a document",
                                       made->kind->name);
        truce__value_bson(at->value, &sort);
        return truce__sort_parse(&sort, &made->sort, error);
    }
    return truce__refuse(form == FORM_N ? 5787901 : 5788002, error, "%s has no option '%s'",
                         made->kind->name, at->key);
}

/* Reads the options of an accumulator such as $firstN or $topN, and checks that the required ones
 * are given. */
static truce_status accumulator_parse_options(struct accumulator *made, struct value argument,
                                              const char *const *variables, bson_error_t *error)
{
    bool is_n = made->kind->form == FORM_N;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(is_n ? 5787900 : 5788001, argument, error,
                                   "%s must be a document", made->kind->name);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields))
        status = accumulator_parse_option(made, &fields, variables, error);
    if (status)
        return status;
    if (!made->n && made->kind->form != FORM_TOP)
        return truce__refuse(is_n ? 5787906 : 5788003, error, "%s needs 'n'", made->kind->name);
    if (!made->input)
        return truce__refuse(is_n ? 5787907 : 5788004, error, "%s needs '%s'", made->kind->name,
                             is_n ? "input" : "output");
    if (!is_n && made->sort.count == 0)
        return truce__refuse(5788005, error, "%s needs 'sortBy'", made->kind->name);
    return TRUCE_OK;
}

/* Compiles the argument of an accumulator by its form: an expression, nothing, or a document of
 * options. */
static truce_status parse_argument(struct accumulator *made, struct value argument,
                                   const char *const *variables, bson_error_t *error)
{
    switch (made->kind->form) {
    case FORM_EXPRESSION:
        return parse_expression(made, argument, variables, error);
    case FORM_NOTHING:
        if (argument.type != BSON_TYPE_DOCUMENT || argument.data[4] != 0)
            return truce__refuse_value(CODE_TYPE_MISMATCH, argument, error,
                                       "%s takes no arguments, and must be {%s: {}}",
                                       made->kind->name, made->kind->name);
        return TRUCE_OK;
    default:
        return accumulator_parse_options(made, argument, variables, error);
    }
}

/* Checks the name and the form of a field of a group, and returns its operator. */
static truce_status accumulator_check_field(const char *name, size_t length,
                                            struct value specification, struct fields *operator,
                                            bson_error_t * error)
{
    struct fields rest;

    if (memchr(name, '.', length))
        return truce__refuse(40235, error, "the field '%s' of a group must not have a dot", name);
    if (name[0] == '$')
        return truce__refuse(40236, error, "the field '%s' of a group must not begin with '$'",
                             name);
    if (specification.type == BSON_TYPE_DOCUMENT) {
        *operator= truce__fields(specification);
        if (truce__fields_next(operator) && operator->key[0] == '$') {
            rest = *operator;
            if (truce__fields_next(&rest))
                return truce__refuse(
                    40238, error, "the field '%s' must have one accumulator, and has '%s' and '%s'",
                    name, operator->key, rest.key);
            return TRUCE_OK;
        }
    }
    return truce__refuse_value(40234, specification, error,
                               "the field '%s' must be an accumulator, for example {$sum: 1}",
                               name);
}

static void accumulator_release_one(struct accumulator *accumulator)
{
    truce__expression_free(accumulator->input);
    truce__expression_free(accumulator->n);
    truce__sort_release(&accumulator->sort);
    bson_free(accumulator->name);
}

truce_status truce__accumulators_add_field(struct accumulators *list, const char *name,
                                           size_t length, struct value specification,
                                           const char *const *variables, bson_error_t *error)
{
    struct accumulator made = {0};
    struct fields operator;
    struct nearest_word nearest;
    char hint[NEAREST_WORD_HINT_MAX];
    truce_status status = accumulator_check_field(name, length, specification, &operator, error);

    if (status)
        return status;
    if (operator.value.type == BSON_TYPE_ARRAY)
        return truce__refuse_value(40237, operator.value, error,
                                   "the accumulator %s takes one operand", operator.key);
    made.kind = accumulator_find_kind(operator.key, &nearest);
    if (!made.kind)
        return truce__refuse(15952, error, "unknown accumulator \"%s\"%s", operator.key,
                             truce__nearest_word_hint(&nearest, hint));
    status = parse_argument(&made, operator.value, variables, error);
    if (status) {
        accumulator_release_one(&made);
        return status;
    }
    made.name = bson_strndup(name, length);
    made.name_length = length;
    made.offset = list->state_size;
    list->state_size += (made.kind->state_size + STATE_ALIGN - 1) & ~(size_t)(STATE_ALIGN - 1);
    list->items = bson_realloc(list->items, (list->count + 1) * sizeof *list->items);
    list->items[list->count++] = made;
    return TRUCE_OK;
}

void truce__accumulators_release(struct accumulators *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        accumulator_release_one(&list->items[i]);
    bson_free(list->items);
    *list = (struct accumulators){0};
}

/* ---- one group ------------------------------------------------------------------------------ */

/* Evaluates the option `n` for a group, whose fields it may use. */
static truce_status evaluate_n(const struct accumulator *accumulator, struct value id,
                               struct query_context *context, int64_t *n, bson_error_t *error)
{
    static const uint8_t empty[] = {5, 0, 0, 0, 0};
    struct value root = id, result;
    truce_status status;

    *n = 1;
    if (!accumulator->n)
        return TRUCE_OK;
    if (id.type != BSON_TYPE_DOCUMENT)
        root = (struct value){empty, sizeof empty, BSON_TYPE_DOCUMENT};
    status = truce__expression_evaluate(accumulator->n, root, context->variables, context, &result,
                                        error);
    if (status)
        return status;
    if (!truce__value_is_number(result))
        return truce__refuse_value(5787902, result, error, "%s: n must be a whole number",
                                   accumulator->kind->name);
    if (!truce__number_to_int64(result, n))
        return truce__refuse_value(5787903, result, error,
                                   "%s: n must be a whole number of 64 bits",
                                   accumulator->kind->name);
    if (*n <= 0)
        return truce__refuse(5787908, error, "%s: n must be greater than 0, it is %" PRId64,
                             accumulator->kind->name, *n);
    return TRUCE_OK;
}

truce_status truce__accumulators_begin(const struct accumulators *list, void *states,
                                       struct value id, struct query_context *context,
                                       bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        enum accumulator_form form = accumulator->kind->form;
        struct accumulator_n *head = (void *)((uint8_t *)states + accumulator->offset);
        truce_status status;

        if (form != FORM_N && form != FORM_TOP && form != FORM_TOP_N)
            continue;
        status = evaluate_n(accumulator, id, context, &head->n, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

static truce_status accumulator_evaluate_key(const struct accumulator *accumulator,
                                             struct value document, struct query_context *context,
                                             struct buffer *keys, struct value *key,
                                             bson_error_t *error)
{
    truce_status status;

    keys->size = 0;
    status = truce__sort_key(&accumulator->sort, document, keys, error);
    if (!status)
        *key = (struct value){truce__arena_copy(context->arena, keys->bytes, keys->size),
                              (uint32_t)keys->size, BSON_TYPE_BINARY};
    return status;
}

static inline truce_status accumulator_evaluate(const struct accumulator *accumulator,
                                                struct value document,
                                                struct query_context *context, struct buffer *keys,
                                                struct accumulator_input *input,
                                                bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *input = (struct accumulator_input){.value = accumulator->constant};
    if (accumulator->input && !accumulator->is_constant)
        status = truce__expression_evaluate(accumulator->input, document, context->variables,
                                            context, &input->value, error);
    if (!status && accumulator->sort.count)
        status = accumulator_evaluate_key(accumulator, document, context, keys, &input->key, error);
    return status;
}

static inline truce_status accumulator_add(const struct accumulator *accumulator, void *states,
                                           const struct accumulator_input *input,
                                           struct arena *arena, struct query_context *context,
                                           bson_error_t *error)
{
    struct accumulation run = {accumulator, arena, context, error};

    return accumulator->kind->add(&run, (uint8_t *)states + accumulator->offset, input);
}

truce_status truce__accumulators_evaluate(const struct accumulators *list, struct value document,
                                          struct query_context *context, struct buffer *keys,
                                          struct accumulator_input *inputs, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++)
        status = accumulator_evaluate(&list->items[i], document, context, keys, &inputs[i], error);
    return status;
}

truce_status truce__accumulators_add(const struct accumulators *list, void *states,
                                     const struct accumulator_input *inputs, struct arena *arena,
                                     struct query_context *context, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++)
        status = accumulator_add(&list->items[i], states, &inputs[i], arena, context, error);
    return status;
}

truce_status truce__accumulators_take(const struct accumulators *list, void *states,
                                      struct value document, struct arena *arena,
                                      struct query_context *context, struct buffer *keys,
                                      bson_error_t *error)
{
    struct accumulator_input input;
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < list->count && !status; i++) {
        status = accumulator_evaluate(&list->items[i], document, context, keys, &input, error);
        if (!status)
            status = accumulator_add(&list->items[i], states, &input, arena, context, error);
    }
    return status;
}

truce_status truce__accumulators_finish(const struct accumulators *list, const void *states,
                                        struct query_context *context, struct builder *builder,
                                        bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        struct accumulation run = {accumulator, NULL, context, error};
        struct value result;
        truce_status status =
            accumulator->kind->finish(&run, (const uint8_t *)states + accumulator->offset, &result);

        if (status)
            return status;
        if (result.type == VALUE_MISSING)
            result = truce__value_null();
        truce__builder_append(builder, accumulator->name, accumulator->name_length, result);
    }
    return TRUCE_OK;
}

/* ---- putting away --------------------------------------------------------------------------- */

void truce__value_save(struct value value, struct buffer *bytes)
{
    truce__buffer_append_byte(bytes, value.type);
    truce__buffer_append(bytes, &value.size, sizeof value.size);
    truce__buffer_append(bytes, value.data, value.size);
}

struct value truce__value_load(const uint8_t **at)
{
    struct value value = {*at + 5, 0, (*at)[0]};

    memcpy(&value.size, *at + 1, sizeof value.size);
    *at += 5 + value.size;
    return value;
}

void truce__accumulators_save_inputs(const struct accumulators *list,
                                     const struct accumulator_input *inputs, struct buffer *bytes)
{
    for (uint32_t i = 0; i < list->count; i++) {
        truce__value_save(inputs[i].value, bytes);
        if (list->items[i].sort.count)
            truce__value_save(inputs[i].key, bytes);
    }
}

void truce__accumulators_load_inputs(const struct accumulators *list,
                                     struct accumulator_input *inputs, const uint8_t **at)
{
    for (uint32_t i = 0; i < list->count; i++) {
        inputs[i] = (struct accumulator_input){.value = truce__value_load(at)};
        if (list->items[i].sort.count)
            inputs[i].key = truce__value_load(at);
    }
}

struct saving {
    struct buffer *bytes;
    uint32_t count;
};

static void save_one(void *arg, struct accumulator_input input)
{
    struct saving *saving = arg;

    truce__value_save(input.value, saving->bytes);
    truce__value_save(input.key, saving->bytes);
    saving->count++;
}

void truce__accumulators_save(const struct accumulators *list, const void *states,
                              struct buffer *bytes)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct accumulator *accumulator = &list->items[i];
        const uint8_t *state = (const uint8_t *)states + accumulator->offset;
        struct saving saving = {bytes, 0};
        size_t start = bytes->size;

        if (!accumulator->kind->each) {
            truce__buffer_append(bytes, state, accumulator->kind->state_size);
            continue;
        }
        truce__buffer_append(bytes, &saving.count, sizeof saving.count);
        accumulator->kind->each(state, save_one, &saving);
        memcpy(bytes->bytes + start, &saving.count, sizeof saving.count);
    }
}

/* Loads the state of one accumulator that save_one or a copy of its bytes has saved, and moves
 * `*at` behind it. */
static truce_status load_one(struct accumulation *run, void *state, const uint8_t **at)
{
    const struct accumulator_kind *kind = run->accumulator->kind;
    uint32_t count;
    truce_status status = TRUCE_OK;

    if (!kind->each) {
        memcpy(state, *at, kind->state_size);
        *at += kind->state_size;
        return TRUCE_OK;
    }
    memcpy(&count, *at, sizeof count);
    *at += sizeof count;
    while (!status && count-- > 0) {
        struct accumulator_input input;

        input.value = truce__value_load(at);
        input.key = truce__value_load(at);
        status = kind->restore ? kind->restore(run, state, &input) : kind->add(run, state, &input);
    }
    return status;
}

truce_status truce__accumulators_load(const struct accumulators *list, void *states,
                                      const uint8_t **at, struct arena *arena,
                                      struct query_context *context, bson_error_t *error)
{
    for (uint32_t i = 0; i < list->count; i++) {
        struct accumulation run = {&list->items[i], arena, context, error};
        truce_status status = load_one(&run, (uint8_t *)states + list->items[i].offset, at);

        if (status)
            return status;
    }
    return TRUCE_OK;
}
