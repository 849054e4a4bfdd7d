/*
 * Tests values against JSON Schemas. A keyword applies only to values of its own types: minLength
 * to strings, items to arrays. Unlike filters, a schema does not look into arrays by itself. The
 * order of fields does not matter for enum and uniqueItems.
 */
#include "query/schema/schema.h"

#include "base/assert.h"
#include "bson/decimal.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "query/condition/comparison.h"
#include "query/condition/type_set.h"
#include "query/schema/schema_tree.h"

struct schema_run {
    struct budget *budget;
    truce_status status;
    bson_error_t *error;
    struct field_finder finder;
};

static bool schema_test(const struct schema *schema, struct value value, struct schema_run *run);

/* Spends steps. Returns false if the time is over or an earlier test failed. */
static bool schema_spend(struct schema_run *run, uint32_t steps)
{
    if (run->status == TRUCE_OK)
        run->status = truce__budget_spend(run->budget, steps, run->error);
    return run->status == TRUCE_OK;
}

static bool found(const struct regex *regex, const char *text, size_t length,
                  struct schema_run *run)
{
    bool is_found = false;

    if (run->status == TRUCE_OK)
        run->status =
            truce__regex_find(regex, text, length, 0, run->budget, &is_found, NULL, 0, run->error);
    return is_found;
}

static bool schema_within(const struct schema_range *range, int64_t count)
{
    return count >= range->least && (range->most < 0 || count <= range->most);
}

static bool is_multiple(struct value value, struct value of)
{
    _IDEC_flags flags = 0;
    decimal number = truce__decimal_of_bson(truce__number_to_decimal(value));
    decimal divisor = truce__decimal_of_bson(truce__number_to_decimal(of));

    return bid128_isZero(bid128_fmod(number, divisor, &flags));
}

static bool test_number(const struct schema *schema, struct value value)
{
    enum comparison above = schema->above_minimum ? COMPARISON_GT : COMPARISON_GTE;
    enum comparison below = schema->below_maximum ? COMPARISON_LT : COMPARISON_LTE;

    if (schema->minimum.type && !truce__comparison_holds(above, value, schema->minimum))
        return false;
    if (schema->maximum.type && !truce__comparison_holds(below, value, schema->maximum))
        return false;
    return !schema->multiple_of.type || is_multiple(value, schema->multiple_of);
}

static int64_t count_characters(const char *text, uint32_t length)
{
    int64_t count = 0;

    for (uint32_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static bool test_text(const struct schema *schema, struct value value, struct schema_run *run)
{
    uint32_t length;
    const char *text = truce__value_text(value, &length);

    if (!schema_within(&schema->length, count_characters(text, length)))
        return false;
    return !schema->pattern || found(schema->pattern, text, length, run);
}

static bool test_rest(const struct schema_rest *rest, struct value value, struct schema_run *run)
{
    return !rest->forbidden && (!rest->schema || schema_test(rest->schema, value, run));
}

static bool test_item(const struct schema *schema, struct value item, uint32_t index,
                      struct schema_run *run)
{
    if (schema->every_item)
        return schema_test(schema->every_item, item, run);
    if (!schema->has_items_list)
        return true;
    if (index < schema->items_list.count)
        return schema_test(schema->items_list.schemas[index], item, run);
    return test_rest(&schema->other_items, item, run);
}

static bool test_array(const struct schema *schema, struct value array, struct schema_run *run)
{
    struct fields fields = truce__fields(array);
    uint32_t count = 0;

    while (truce__fields_next(&fields)) {
        if (!test_item(schema, fields.value, count, run))
            return false;
        count++;
    }
    return schema_within(&schema->items_count, count) &&
           !(schema->unique_items && truce__schema_has_repeats(array));
}

/* Returns the first property that is not before the name; they are ordered by name. */
static uint32_t first_property(const struct schema *schema, const char *name)
{
    uint32_t low = 0, high = schema->properties_size;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (strcmp(schema->properties[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Tests one field against properties and patternProperties; a field in neither is additional. */
static bool test_property(const struct schema *schema, const struct fields *field,
                          struct schema_run *run)
{
    bool named = false;

    for (uint32_t i = first_property(schema, field->key);
         i < schema->properties_size && !strcmp(schema->properties[i].name, field->key); i++) {
        named = true;
        if (!schema_test(schema->properties[i].schema, field->value, run))
            return false;
    }
    for (uint32_t i = 0; i < schema->patterns_size; i++) {
        if (!found(schema->patterns[i].regex, field->key, field->key_length, run))
            continue;
        named = true;
        if (!schema_test(schema->patterns[i].schema, field->value, run))
            return false;
    }
    return named || test_rest(&schema->other_properties, field->value, run);
}

/* Returns false also if the time is over; run->status has the error then. */
static bool schema_has_field(struct value document, const char *name, uint32_t length,
                             struct schema_run *run)
{
    uint32_t steps = 1;
    struct value value = truce__field_finder_find(&run->finder, document, name, length, &steps);

    return schema_spend(run, steps) && value.type != VALUE_MISSING;
}

static bool has_all(struct value document, struct value names, struct schema_run *run)
{
    struct fields fields;

    if (!names.type)
        return true;
    fields = truce__fields(names);
    while (truce__fields_next(&fields)) {
        uint32_t length;
        const char *name = truce__value_text(fields.value, &length);

        if (!schema_has_field(document, name, length, run))
            return false;
    }
    return true;
}

static bool test_dependencies(const struct schema *schema, struct value document,
                              struct schema_run *run)
{
    for (uint32_t i = 0; i < schema->dependencies_size; i++) {
        const struct schema_dependency *dependency = schema->dependencies + i;

        if (!schema_has_field(document, dependency->name, dependency->name_length, run))
            continue;
        if (!has_all(document, dependency->names, run) ||
            (dependency->schema && !schema_test(dependency->schema, document, run)))
            return false;
    }
    return true;
}

static bool test_document(const struct schema *schema, struct value document,
                          struct schema_run *run)
{
    struct fields fields = truce__fields(document);
    int64_t count = 0;

    while (truce__fields_next(&fields)) {
        if (!test_property(schema, &fields, run))
            return false;
        count++;
    }
    return schema_within(&schema->properties_count, count) &&
           has_all(document, schema->required, run) && test_dependencies(schema, document, run);
}

static uint32_t count_valid(const struct schema_list *list, struct value value,
                            struct schema_run *run)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < list->count; i++)
        count += schema_test(list->schemas[i], value, run);
    return count;
}

static bool test_combinations(const struct schema *schema, struct value value,
                              struct schema_run *run)
{
    if (schema->none_of && schema_test(schema->none_of, value, run))
        return false;
    if (count_valid(&schema->all_of, value, run) < schema->all_of.count)
        return false;
    if (schema->any_of.count && !count_valid(&schema->any_of, value, run))
        return false;
    return !schema->one_of.count || count_valid(&schema->one_of, value, run) == 1;
}

static bool is_choice(struct value choices, struct value value, struct schema_run *run)
{
    struct fields fields = truce__fields(choices);

    while (truce__fields_next(&fields) && schema_spend(run, 1)) {
        if (truce__schema_equal(fields.value, value))
            return true;
    }
    return false;
}

static bool test_by_type(const struct schema *schema, struct value value, struct schema_run *run)
{
    if (truce__value_is_number(value))
        return test_number(schema, value);
    switch (value.type) {
    case BSON_TYPE_UTF8:
        return test_text(schema, value, run);
    case BSON_TYPE_ARRAY:
        return test_array(schema, value, run);
    case BSON_TYPE_DOCUMENT:
        return test_document(schema, value, run);
    default:
        return true;
    }
}

static bool schema_test(const struct schema *schema, struct value value, struct schema_run *run)
{
    if (!schema_spend(run, 1))
        return false;
    if (schema->types && !(schema->types & truce__type_bit(value.type)))
        return false;
    if (schema->choices.type && !is_choice(schema->choices, value, run))
        return false;
    return test_by_type(schema, value, run) && test_combinations(schema, value, run);
}

truce_status truce__schema_test(const struct schema *schema, struct value value,
                                struct budget *budget, bool *valid, bson_error_t *error)
{
    struct schema_run run = {budget, TRUCE_OK, error, {NULL}};

    *valid = schema_test(schema, value, &run) && run.status == TRUCE_OK;
    truce__field_finder_release(&run.finder);
    return run.status;
}
