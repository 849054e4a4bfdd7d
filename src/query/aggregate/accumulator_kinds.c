/*
 * The accumulators that need no `n`: sums, averages, extremes, first and last, lists, sets, counts,
 * deviations and merged documents.
 *
 * Lists ($push, $concatArrays) and sets ($addToSet, $setUnion) keep their values in chunks, one behind the other:
 *
 *     chunk ─> chunk ─> chunk      each: | type 1 | size 4 | data | type 1 | ...
 *
 * A set has beside it a table of pointers into the chunks, by hash.
 */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_table.h"
#include "bson/number.h"
#include "bson/sum.h"
#include "query/aggregate/accumulator_kind.h"

#define CHUNK_FIRST      48
#define CHUNK_MAX        8192
#define SET_ROOM_FIRST   16
#define WAITING_MIN      256 /* bytes of documents that wait to be merged, at least */
#define CODE_NO_DOCUMENT 40400

void truce__slot_set(struct slot *slot, struct arena *arena, struct value value)
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

static void one_set(struct accumulation *run, struct one_state *state, struct value value)
{
    truce__slot_set(&state->slot, run->arena, value);
    state->set = true;
}

static truce_status kinds_first_add(struct accumulation *run, void *data,
                                    const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!state->set)
        one_set(run, state, input->value);
    return TRUCE_OK;
}

static truce_status kinds_last_add(struct accumulation *run, void *data,
                                   const struct accumulator_input *input)
{
    one_set(run, data, input->value);
    return TRUCE_OK;
}

static truce_status kinds_min_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!truce__is_nullish(input->value) &&
        (!state->set || truce__value_compare(input->value, state->slot.value) < 0))
        one_set(run, state, input->value);
    return TRUCE_OK;
}

static truce_status kinds_max_add(struct accumulation *run, void *data,
                                  const struct accumulator_input *input)
{
    struct one_state *state = data;

    if (!truce__is_nullish(input->value) &&
        (!state->set || truce__value_compare(input->value, state->slot.value) > 0))
        one_set(run, state, input->value);
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

/*
 * What comes is put behind what waits, one document after the other, and is merged once it is as large as what was
 * merged before: so n documents cost n, not n * n.
 */
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

/* The fields of all; those of later ones win, in the places of those before. In scratch memory. */
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
        one_set(run, &state->merged, input->value);
        return TRUCE_OK;
    }
    let_wait(run, state, input->value);
    if (state->size < WAITING_MIN || state->size < state->merged.slot.value.size)
        return TRUCE_OK;
    status = kinds_merge(run, state, &merged);
    if (status)
        return status;
    one_set(run, &state->merged, merged);
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
    const uint8_t **table; /* of a set: its values by hash; NULL: none yet */
    uint32_t table_room;   /* a power of two */
};

static struct value kinds_read_value(const uint8_t *at)
{
    struct value value = {at + 5, 0, at[0]};

    memcpy(&value.size, at + 1, 4);
    return value;
}

/* Where the value stands now. */
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

/* The place in the table of this value, or the free one where it belongs. */
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
    const uint8_t **place;

    if (input->value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (2 * set->count >= set->table_room)
        set_grow(run->arena, set);
    place = set_find(set, input->value);
    if (!*place)
        *place = list_append(run->arena, set, input->value);
    return TRUCE_OK;
}

typedef truce_status element_add(struct accumulation *run, void *data,
                                 const struct accumulator_input *input);

/* The elements of an array, one by one. A missing field adds nothing, as in MongoDB; null is refused. */
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
