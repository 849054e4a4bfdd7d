/* Helpers for the evaluation of all operators: memory with a limit, fields, and arrays. */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

static truce_status evaluation_out_of_memory(struct evaluation *run)
{
    return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, run->error,
                         "evaluating an expression takes more than %zu bytes of memory",
                         run->bytes_max);
}

truce_status truce__evaluation_check(struct evaluation *run)
{
    return run->arena->bytes > run->bytes_max ? evaluation_out_of_memory(run)
                                              : truce__evaluation_spend(run, 1);
}

void *truce__evaluation_take(struct evaluation *run, size_t size)
{
    if (run->arena->bytes + size > run->bytes_max) {
        /* Only sets the error. The caller returns TRUCE_LIMIT. */
        (void)evaluation_out_of_memory(run);
        return NULL;
    }
    return truce__arena_take(run->arena, size ? size : 1);
}

void truce__evaluation_build(struct evaluation *run, struct builder *builder, uint8_t type)
{
    truce__builder_begin(builder, run->arena, run->bytes_max, type);
}

truce_status truce__evaluation_field(struct evaluation *run, uint32_t slot, struct value document,
                                     const struct expression_key *name, struct value *result)
{
    /* A $reduce may have freed the values of other variables. */
    struct field_finder *finder = slot < EXPRESSION_SLOTS_FIXED ? run->finder : NULL;
    uint32_t steps = 0;

    if (document.size < FIELD_FINDER_BYTES) {
        *result = truce__value_field(document, name->name, name->length);
        return TRUCE_OK;
    }
    *result = truce__field_finder_find(finder, document, name->name, name->length, &steps);
    return steps ? truce__evaluation_spend(run, steps) : TRUCE_OK;
}

uint32_t truce__array_count(struct value array)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

truce_status truce__evaluation_items(struct evaluation *run, struct value array,
                                     struct value **items, uint32_t *count)
{
    struct fields fields = truce__fields(array);
    uint32_t i = 0;

    truce_assert(truce__value_is_container(array));
    *count = truce__array_count(array);
    *items = truce__evaluation_take(run, *count * sizeof **items);
    if (!*items)
        return TRUCE_LIMIT;
    while (truce__fields_next(&fields))
        (*items)[i++] = fields.value;
    truce_assert(i == *count);
    return TRUCE_OK;
}

truce_status truce__evaluation_array(struct evaluation *run, const struct value *items,
                                     uint32_t count, struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_ARRAY);
    for (uint32_t i = 0; i < count; i++)
        truce__builder_element(&builder, items[i]);
    return truce__builder_finish(&builder, result, run->error);
}

bool truce__value_to_int32(struct value value, int32_t *result)
{
    int64_t wide;

    if (!truce__value_is_number(value) || !truce__number_to_int64(value, &wide))
        return false;
    if (wide < INT32_MIN || wide > INT32_MAX)
        return false;
    *result = (int32_t)wide;
    return true;
}

truce_status truce__evaluation_int32(const struct expression_node *node, struct evaluation *run,
                                     struct value value, const char *what, uint32_t code,
                                     int32_t *result)
{
    if (!truce__value_is_number(value))
        return truce__refuse(code, run->error, "the %s of %s must be a number, not %s", what,
                             truce__expression_name(node), truce__type_name(value.type));
    if (!truce__value_to_int32(value, result))
        return truce__refuse_value(code + 1, value, run->error,
                                   "the %s of %s must be a 32-bit integer", what,
                                   truce__expression_name(node));
    return TRUCE_OK;
}

truce_status truce__evaluation_bound(const struct expression_node *node, struct evaluation *run,
                                     struct value value, int32_t *bound)
{
    if (!truce__value_to_int32(value, bound))
        return truce__refuse_value(40096, value, run->error,
                                   "a bound of %s must be a 32-bit integer",
                                   truce__expression_name(node));
    if (*bound < 0)
        return truce__refuse(40097, run->error, "a bound of %s is negative: %d",
                             truce__expression_name(node), *bound);
    return TRUCE_OK;
}
