#include "query/expression/expression_growth.h"

#include "base/limits.h"

#define COMPACT_BYTES (1024 * 1024)
#define BYTES_OF_STEP 64

/* -- compiling -------------------------------------------------------------------------------- */

static bool growth_is_operator(const struct expression_node *node, const char *name)
{
    return node->operator&& !strcmp(node->operator->name, name);
}

/* Slots are assigned once, so a node with this slot reads the variable. */
static bool growth_reads(const struct expression_node *node, uint32_t slot)
{
    if (!node || truce__expression_is_constant_node(node))
        return false;
    if (node->slot == slot)
        return true;
    for (uint32_t i = 0; i < node->count; i++) {
        if (growth_reads(node->operands[i], slot))
            return true;
    }
    return false;
}

/* Returns whether the node may be evaluated while the variable is not readable. */
static bool may_run(const struct expression_node *node, uint32_t slot, bool hidden)
{
    return !hidden || !growth_reads(node, slot);
}

/* Returns whether the body only extends the variable. `hidden`: the variable must not be read. */
static bool keeps(const struct expression_node *body, uint32_t slot, const char *name, bool hidden)
{
    if (truce__expression_is_variable(body, slot))
        return true;
    if (growth_is_operator(body, "$cond"))
        return may_run(body->operands[0], slot, hidden) &&
               keeps(body->operands[1], slot, name, hidden) &&
               keeps(body->operands[2], slot, name, hidden);
    if (!growth_is_operator(body, name) || body->count < 2 ||
        !truce__expression_is_variable(body->operands[0], slot))
        return false;
    for (uint32_t i = 1; i < body->count; i++) {
        if (growth_reads(body->operands[i], slot))
            return false;
    }
    return true;
}

bool truce__growth_possible(const struct expression_node *body, uint32_t slot)
{
    if (!body->operator)
        return false;
    return keeps(body, slot, "$concatArrays", false) || keeps(body, slot, "$concat", false) ||
           keeps(body, slot, "$mergeObjects", true);
}

/* -- evaluating ------------------------------------------------------------------------------- */

void truce__growth_release(struct growth *growth)
{
    truce__arena_release(&growth->arena);
    truce__buffer_release(&growth->text);
    *growth = (struct growth){0};
}

/* -- arrays ----------------------------------------------------------------------------------- */

static truce_status growth_append_all(struct growth *growth, struct evaluation *run,
                                      struct value array)
{
    struct fields fields = truce__fields(array);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        truce__builder_element(&growth->builder, fields.value);
        status = truce__evaluation_check(run);
    }
    return status;
}

static truce_status growth_begin(struct growth *growth, struct evaluation *run, struct value value)
{
    truce__growth_release(growth);
    truce__builder_begin(&growth->builder, &growth->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_ARRAY);
    growth->begun = true;
    return growth_append_all(growth, run, value);
}

/* Returns the array with the elements so far. The next append overwrites its last byte. */
static truce_status growth_show(struct growth *growth, struct evaluation *run, struct value *value)
{
    truce_status status = truce__builder_finish(&growth->builder, value, run->error);

    growth->builder.size--;
    /* the lists cached by address belong to the shorter array */
    run->list = (struct evaluation_list){NULL};
    run->among = (struct evaluation_among){NULL};
    return status;
}

static truce_status concatenate(struct growth *growth, const struct expression_node *node,
                                struct evaluation *run, struct value *value)
{
    truce_status status = TRUCE_OK;

    if (!growth->begun)
        status = growth_begin(growth, run, *value);
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value array;

        status = truce__expression_run(node->operands[i], run, &array);
        if (status)
            break;
        if (truce__value_is_nullish(array)) {
            growth->begun = false;
            return truce__evaluation_null(value);
        }
        if (array.type != BSON_TYPE_ARRAY)
            return truce__refuse(28664, run->error, "$concatArrays takes arrays, not %s",
                                 truce__type_name(array.type));
        status = growth_append_all(growth, run, array);
    }
    return status ? status : growth_show(growth, run, value);
}

/* -- texts ------------------------------------------------------------------------------------ */

/* Returns the string so far. The next append overwrites its NUL. */
static void show_text(struct growth *growth, struct value *value)
{
    uint32_t length = BSON_UINT32_TO_LE((uint32_t)(growth->text.size - 4 + 1));

    truce__buffer_append_byte(&growth->text, 0);
    memcpy(growth->text.bytes, &length, sizeof length);
    *value = (struct value){growth->text.bytes, (uint32_t)growth->text.size, BSON_TYPE_UTF8};
    growth->text.size--;
}

static truce_status lengthen(struct growth *growth, struct evaluation *run, struct value text)
{
    truce__buffer_append(&growth->text, text.data + 4, text.size - 5);
    if (growth->text.size > TRUCE_STAGE_MEMORY_MAX)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                             "an expression's result takes more than %d bytes of memory",
                             TRUCE_STAGE_MEMORY_MAX);
    return truce__evaluation_spend(run, 1 + text.size / BYTES_OF_STEP);
}

static truce_status concatenate_text(struct growth *growth, const struct expression_node *node,
                                     struct evaluation *run, struct value *value)
{
    truce_status status = TRUCE_OK;

    if (!growth->begun) {
        truce__growth_release(growth);
        truce__buffer_append(&growth->text, value->data, 4);
        growth->begun = true;
        status = lengthen(growth, run, *value);
    }
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value text;

        status = truce__expression_run(node->operands[i], run, &text);
        if (status)
            break;
        if (truce__value_is_nullish(text)) {
            growth->begun = false;
            return truce__evaluation_null(value);
        }
        if (text.type != BSON_TYPE_UTF8)
            return truce__refuse(16702, run->error, "$concat takes strings, not %s",
                                 truce__type_name(text.type));
        status = lengthen(growth, run, text);
    }
    if (!status)
        show_text(growth, value);
    return status;
}

/* -- documents -------------------------------------------------------------------------------- */

static truce_status growth_out_of_memory(struct evaluation *run)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                         "evaluating an expression takes more than %d bytes of memory",
                         TRUCE_STAGE_MEMORY_MAX);
}

/* Copies the value, and the name if it is new. */
static bool set_field(struct growth *growth, const char *name, uint32_t length, struct value value)
{
    struct field_entry *entry = truce__field_table_find(&growth->table, name, length);

    value = truce__value_copy(&growth->arena, value);
    if (entry) {
        growth->live += value.size;
        growth->live -= entry->value.size;
        entry->value = value;
        return growth->arena.bytes <= TRUCE_STAGE_MEMORY_MAX;
    }
    growth->live += length + value.size;
    return truce__field_table_set(&growth->table, truce__arena_copy(&growth->arena, name, length),
                                  length, value);
}

/* Removes the values that were replaced. */
static bool growth_compact(struct growth *growth)
{
    struct growth smaller = {.begun = true};
    bool fits = true;

    truce__field_table_begin(&smaller.table, &smaller.arena, TRUCE_STAGE_MEMORY_MAX);
    for (uint32_t i = 0; i < growth->table.count && fits; i++) {
        const struct field_entry *entry = &growth->table.entries[i];

        fits = set_field(&smaller, entry->key, entry->key_length, entry->value);
    }
    truce__growth_release(growth);
    *growth = smaller;
    growth->table.arena = &growth->arena;
    return fits;
}

static truce_status growth_merge(struct growth *growth, struct evaluation *run,
                                 struct value document)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(document))
        return TRUCE_OK;
    if (document.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40400, run->error, "$mergeObjects takes documents, not %s",
                             truce__type_name(document.type));
    fields = truce__fields(document);
    while (!status && truce__fields_next(&fields)) {
        if (!set_field(growth, fields.key, fields.key_length, fields.value))
            return growth_out_of_memory(run);
        status = truce__evaluation_spend(run, 1 + fields.value.size / BYTES_OF_STEP);
    }
    return status;
}

static truce_status merge_all(struct growth *growth, const struct expression_node *node,
                              struct evaluation *run, struct value *value)
{
    size_t table = growth->table.room * (2 * sizeof *growth->table.entries);
    truce_status status = TRUCE_OK;

    if (!growth->begun) {
        truce__growth_release(growth);
        truce__field_table_begin(&growth->table, &growth->arena, TRUCE_STAGE_MEMORY_MAX);
        growth->begun = true;
        status = growth_merge(growth, run, *value);
        *value = truce__value_null();
    }
    if (growth->arena.bytes > COMPACT_BYTES + 2 * (growth->live + table) && !growth_compact(growth))
        return growth_out_of_memory(run);
    for (uint32_t i = 1; !status && i < node->count; i++) {
        struct value document;

        status = truce__expression_run(node->operands[i], run, &document);
        if (!status)
            status = growth_merge(growth, run, document);
    }
    return status;
}

truce_status truce__growth_end(struct growth *growth, struct evaluation *run, struct value *value)
{
    struct builder builder;

    if (!growth->begun || !growth->table.arena)
        return TRUCE_OK;
    truce__builder_begin(&builder, &growth->arena,
                         growth->arena.bytes + 2 * (size_t)TRUCE_STAGE_MEMORY_MAX,
                         BSON_TYPE_DOCUMENT);
    truce__field_table_write(&growth->table, &builder);
    return truce__builder_finish(&builder, value, run->error);
}

/* -- a turn ----------------------------------------------------------------------------------- */

truce_status truce__growth_turn(struct growth *growth, const struct expression_node *body,
                                struct evaluation *run, struct value *value)
{
    while (growth_is_operator(body, "$cond")) {
        struct value condition;
        truce_status status = truce__expression_run(body->operands[0], run, &condition);

        if (status)
            return status;
        body = body->operands[truce__value_truth(condition) ? 1 : 2];
    }
    if (!body->operator)
        return TRUCE_OK; /* the variable itself */
    if (growth_is_operator(body, "$mergeObjects") &&
        (growth->begun || value->type == BSON_TYPE_DOCUMENT || truce__value_is_nullish(*value)))
        return merge_all(growth, body, run, value);
    if (growth_is_operator(body, "$concat") && value->type == BSON_TYPE_UTF8)
        return concatenate_text(growth, body, run, value);
    if (growth_is_operator(body, "$concatArrays") && value->type == BSON_TYPE_ARRAY)
        return concatenate(growth, body, run, value);
    return truce__expression_run(body, run, value);
}
