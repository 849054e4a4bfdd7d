/*
 * Tests values against JSON Schemas. A keyword applies only to values of its own types: minLength
 * to strings, items to arrays. Unlike filters, a schema does not look into arrays by itself. The
 * order of fields does not matter for enum and uniqueItems.
 */
#include "query/schema/schema.h"

#include <stdlib.h>

#include "base/assert.h"
#include "bson/decimal.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "query/condition/comparison.h"
#include "query/condition/regex.h"
#include "query/condition/type_set.h"

/* ---- the compiled form ----------------------------------------------------------------------- */

struct schema_list {
    struct schema **schemas;
    uint32_t count;
};

struct schema_property {
    const char *name;
    uint32_t name_length;
    struct schema *schema;
};

struct schema_pattern {
    struct regex *regex;
    struct schema *schema;
};

struct schema_dependency {
    const char *name;
    uint32_t name_length;
    /* The names of the required fields (an array), or missing. */
    struct value names;
    /* The schema of the document, or NULL. */
    struct schema *schema;
};

/* The keyword additionalProperties or additionalItems. */
struct schema_rest {
    bool forbidden;
    /* The schema of the other values, or NULL if any value is valid. */
    struct schema *schema;
};

/* Inclusive bounds of a count. A negative `most` means no maximum. */
struct schema_range {
    int64_t least, most;
};

/* A keyword that was not given has a missing value, NULL, or a count of 0. */
struct schema {
    /* The bits truce__type_bit of the types. 0 means any type. */
    uint64_t types;
    struct value minimum, maximum, multiple_of;
    /* exclusiveMinimum and exclusiveMaximum: the bounds are exclusive. */
    bool above_minimum, below_maximum;
    struct schema_range length, items_count, properties_count;
    struct regex *pattern;
    /* The array of the keyword enum. */
    struct value choices;
    /* The array of names of the keyword required. */
    struct value required;
    /* The properties, ordered by name. */
    struct schema_property *properties;
    uint32_t properties_size;
    struct schema_pattern *patterns;
    uint32_t patterns_size;
    struct schema_rest other_properties;
    /* The form items: {...}. */
    struct schema *every_item;
    /* The form items: [...]. */
    struct schema_list items_list;
    bool has_items_list;
    /* additionalItems: the elements after those of items_list. */
    struct schema_rest other_items;
    bool unique_items;
    struct schema_dependency *dependencies;
    uint32_t dependencies_size;
    struct schema_list all_of, any_of, one_of;
    /* The keyword not. */
    struct schema *none_of;
};

/* ---- equality -------------------------------------------------------------------------------- */

/*
 * Equality of values without regard to the order of fields, and duplicate elements in this sense.
 *
 * Both functions sort: the fields of a document by name, the elements of an array by a hash that
 * does not depend on the order of fields. Neither takes quadratic time.
 */

static bool schema_equal(struct value a, struct value b);

struct named {
    const char *name;
    struct value value;
    /* The position of the field. Fields of the same name stay in this order. */
    uint32_t order;
};

static int order_of_names(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    return order ? order : (x->order > y->order) - (x->order < y->order);
}

/* Lists the fields of a document by their names. The caller frees the list. */
static struct named *sorted_fields(struct value document, uint32_t *count)
{
    struct fields fields = truce__fields(document);
    struct named *named = NULL;
    uint32_t room = 0;

    for (*count = 0; truce__fields_next(&fields); ++*count) {
        if (*count == room) {
            room = room ? 2 * room : 8;
            named = bson_realloc(named, room * sizeof *named);
        }
        named[*count] = (struct named){fields.key, fields.value, *count};
    }
    if (*count)
        qsort(named, *count, sizeof *named, order_of_names);
    return named;
}

static bool equal_documents(struct value a, struct value b)
{
    uint32_t a_count, b_count;
    struct named *a_fields = sorted_fields(a, &a_count), *b_fields = sorted_fields(b, &b_count);
    bool equal = a_count == b_count;

    for (uint32_t i = 0; i < a_count && equal; i++)
        equal = !strcmp(a_fields[i].name, b_fields[i].name) &&
                schema_equal(a_fields[i].value, b_fields[i].value);
    bson_free(a_fields);
    bson_free(b_fields);
    return equal;
}

static bool equal_arrays(struct value a, struct value b)
{
    struct fields a_fields = truce__fields(a), b_fields = truce__fields(b);

    for (;;) {
        bool more = truce__fields_next(&a_fields);

        if (more != truce__fields_next(&b_fields))
            return false;
        if (!more)
            return true;
        if (!schema_equal(a_fields.value, b_fields.value))
            return false;
    }
}

/* Returns whether the values are equal without regard to the order of fields. */
static bool schema_equal(struct value a, struct value b)
{
    if (a.type == BSON_TYPE_DOCUMENT && b.type == BSON_TYPE_DOCUMENT)
        return equal_documents(a, b);
    if (a.type == BSON_TYPE_ARRAY && b.type == BSON_TYPE_ARRAY)
        return equal_arrays(a, b);
    return truce__value_equal(a, b);
}

static uint64_t equal_hash_name(const char *name)
{
    /* The hash is FNV-1a. */
    uint64_t hash = 0xcbf29ce484222325u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}

/* Returns a hash that does not depend on the order of fields. */
static uint64_t hash_unordered(struct value value)
{
    struct fields fields;
    uint64_t hash = value.type;

    if (!truce__value_is_container(value))
        return truce__value_hash(value);
    fields = truce__fields(value);
    while (truce__fields_next(&fields)) {
        uint64_t one = hash_unordered(fields.value);

        if (value.type == BSON_TYPE_DOCUMENT)
            hash += (one ^ equal_hash_name(fields.key)) * 0x9e3779b97f4a7c15u;
        else
            hash = hash * 31 + one;
    }
    return hash;
}

struct hashed {
    uint64_t hash;
    struct value value;
};

static int order_of_hashes(const void *a, const void *b)
{
    const struct hashed *x = a, *y = b;

    return (x->hash > y->hash) - (x->hash < y->hash);
}

/* Returns whether two elements of the array are equal in this sense. */
static bool schema_has_repeats(struct value array)
{
    struct fields fields = truce__fields(array);
    struct hashed *hashed = NULL;
    uint32_t count = 0, room = 0;
    bool repeats = false;

    while (truce__fields_next(&fields)) {
        if (count == room) {
            room = room ? 2 * room : 16;
            hashed = bson_realloc(hashed, room * sizeof *hashed);
        }
        hashed[count++] = (struct hashed){hash_unordered(fields.value), fields.value};
    }
    if (count)
        qsort(hashed, count, sizeof *hashed, order_of_hashes);
    for (uint32_t i = 0; i < count && !repeats; i++) {
        for (uint32_t j = i + 1; j < count && hashed[j].hash == hashed[i].hash && !repeats; j++)
            repeats = schema_equal(hashed[i].value, hashed[j].value);
    }
    bson_free(hashed);
    return repeats;
}

/* ---- tests ----------------------------------------------------------------------------------- */

struct schema_run {
    struct budget *budget;
    truce_status status;
    bson_error_t *error;
    struct field_finder finder;
};

static bool schema_test(const struct schema *schema, struct value value, struct schema_run *run);

/* Spends steps. Returns false if the time has expired or an earlier test failed. */
static bool schema_spend(struct schema_run *run, uint32_t steps)
{
    if (run->status == TRUCE_OK)
        run->status = truce__budget_spend(run->budget, steps, run->error);
    return run->status == TRUCE_OK;
}

static bool schema_find_regex(const struct regex *regex, const char *text, size_t length,
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
    return !schema->pattern || schema_find_regex(schema->pattern, text, length, run);
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
           !(schema->unique_items && schema_has_repeats(array));
}

/* Returns the number of the first property whose name is not less than the name. */
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
        if (!schema_find_regex(schema->patterns[i].regex, field->key, field->key_length, run))
            continue;
        named = true;
        if (!schema_test(schema->patterns[i].schema, field->value, run))
            return false;
    }
    return named || test_rest(&schema->other_properties, field->value, run);
}

/* Returns whether the document has the field. If the time has expired, returns false and sets
 * run->status. */
static bool schema_has_field(struct value document, const char *name, uint32_t length,
                             struct schema_run *run)
{
    uint32_t steps = 1;
    struct value value = truce__field_finder_find(&run->finder, document, name, length, &steps);

    return schema_spend(run, steps) && value.type != VALUE_MISSING;
}

/* Returns whether the document has all fields in a list of names, which may be missing. */
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
        if (schema_equal(fields.value, value))
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

/* ---- parsing --------------------------------------------------------------------------------- */

/* Parses JSON Schemas from BSON: one table of keywords, one function for each kind of operand. */

#define CODE_NO_PATTERN CODE_BAD_VALUE

struct keyword;

struct schema_parser {
    const struct keyword *keyword;
    struct value value;
    bson_error_t *error;
};

typedef truce_status keyword_parse(struct schema *schema, const struct schema_parser *parser);

struct keyword {
    const char *name;
    keyword_parse *parse;
};

static truce_status parse_refuse(const struct schema_parser *parser, uint32_t code,
                                 const char *wanted)
{
    char text[120];

    return truce__refuse(code, parser->error, "$jsonSchema: %s takes %s, not %s",
                         parser->keyword->name, wanted,
                         truce__value_show(parser->value, text, sizeof text));
}

static uint32_t parse_count_fields(struct value container)
{
    struct fields fields = truce__fields(container);
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return count;
}

static bool parse_is(const struct schema_parser *parser, const char *name)
{
    return !strcmp(parser->keyword->name, name);
}

/* -- types -- */

/* Parses bsonType: the name of a type, or a list of names without repetition. */
static truce_status parse_types(struct schema *schema, const struct schema_parser *parser)
{
    struct value value = parser->value;
    struct fields fields;

    if (schema->types)
        return truce__refuse(CODE_FAILED_TO_PARSE, parser->error,
                             "$jsonSchema: type and bsonType exclude each other");
    if (value.type != BSON_TYPE_UTF8 && value.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "the name of a type or a list of names");
    if (value.type == BSON_TYPE_ARRAY) {
        if (value.size == 5 || schema_has_repeats(value))
            return parse_refuse(parser, CODE_FAILED_TO_PARSE, "names of types, each once");
        fields = truce__fields(value);
        while (truce__fields_next(&fields)) {
            if (fields.value.type != BSON_TYPE_UTF8)
                return parse_refuse(parser, CODE_TYPE_MISMATCH, "names of types");
        }
    }
    return truce__type_set_parse(value, "$jsonSchema: bsonType", &schema->types, parser->error);
}

/* Adds one of JSON's own names of types. */
static truce_status add_json_type(struct schema *schema, const struct schema_parser *parser,
                                  struct value name)
{
    static const struct {
        const char *name;
        uint8_t type;
    } types[] = {
        {"object", BSON_TYPE_DOCUMENT}, {"array", BSON_TYPE_ARRAY}, {"string", BSON_TYPE_UTF8},
        {"boolean", BSON_TYPE_BOOL},    {"null", BSON_TYPE_NULL},
    };
    uint32_t length;
    const char *text;

    if (name.type != BSON_TYPE_UTF8)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "names of types");
    text = truce__value_text(name, &length);
    if (!strcmp(text, "number")) {
        uint64_t numbers;
        truce_status status =
            truce__type_set_parse(name, "$jsonSchema: type", &numbers, parser->error);

        schema->types |= numbers;
        return status;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!strcmp(types[i].name, text)) {
            schema->types |= truce__type_bit(types[i].type);
            return TRUCE_OK;
        }
    }
    if (!strcmp(text, "integer"))
        return parse_refuse(parser, CODE_FAILED_TO_PARSE,
                            "a type of JSON other than 'integer' (use bsonType: 'int' or 'long')");
    return parse_refuse(parser, CODE_BAD_VALUE, "one of the types of JSON");
}

/* Parses `type`, which takes the names of JSON types. */
static truce_status parse_json_types(struct schema *schema, const struct schema_parser *parser)
{
    struct value value = parser->value;
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (schema->types)
        return truce__refuse(CODE_FAILED_TO_PARSE, parser->error,
                             "$jsonSchema: type and bsonType exclude each other");
    if (value.type == BSON_TYPE_UTF8)
        return add_json_type(schema, parser, value);
    if (value.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "the name of a type or a list of names");
    if (value.size == 5 || schema_has_repeats(value))
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "names of types, each once");
    fields = truce__fields(value);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = add_json_type(schema, parser, fields.value);
    return status;
}

/* -- scalars -- */

static truce_status parse_number(struct schema *schema, const struct schema_parser *parser)
{
    if (!truce__value_is_number(parser->value))
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a number");
    if (parse_is(parser, "minimum"))
        schema->minimum = parser->value;
    else
        schema->maximum = parser->value;
    return TRUCE_OK;
}

static truce_status parse_exclusive(struct schema *schema, const struct schema_parser *parser)
{
    bool exclusive;

    if (parser->value.type != BSON_TYPE_BOOL)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "true or false");
    exclusive = truce__value_bool(parser->value);
    if (parse_is(parser, "exclusiveMinimum"))
        schema->above_minimum = exclusive;
    else
        schema->below_maximum = exclusive;
    return TRUCE_OK;
}

static truce_status parse_multiple(struct schema *schema, const struct schema_parser *parser)
{
    static const uint8_t zero[4];
    struct value nothing = {zero, sizeof zero, BSON_TYPE_INT32};
    double real;

    if (!truce__value_is_number(parser->value))
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a number");
    real = truce__number_to_double(parser->value);
    if (truce__number_compare(parser->value, nothing) <= 0 || real - real != 0)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "a number greater than 0");
    schema->multiple_of = parser->value;
    return TRUCE_OK;
}

static struct schema_range *parse_range_of(struct schema *schema, const char *keyword)
{
    if (strstr(keyword, "Length"))
        return &schema->length;
    return strstr(keyword, "Items") ? &schema->items_count : &schema->properties_count;
}

static truce_status schema_parse_count(struct schema *schema, const struct schema_parser *parser)
{
    struct schema_range *range = parse_range_of(schema, parser->keyword->name);
    int64_t count;

    if (!truce__value_is_number(parser->value) || !truce__number_to_int64(parser->value, &count) ||
        count < 0)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "a whole number from 0");
    if (parser->keyword->name[1] == 'i')
        range->least = count;
    else
        range->most = count;
    return TRUCE_OK;
}

static truce_status parse_pattern(struct schema *schema, const struct schema_parser *parser)
{
    const char *text;
    uint32_t length;

    if (parser->value.type != BSON_TYPE_UTF8)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a string");
    text = truce__value_text(parser->value, &length);
    truce__regex_free(schema->pattern);
    return truce__regex_new(text, length, "", &schema->pattern, parser->error);
}

static truce_status parse_unique(struct schema *schema, const struct schema_parser *parser)
{
    if (parser->value.type != BSON_TYPE_BOOL)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "true or false");
    schema->unique_items = truce__value_bool(parser->value);
    return TRUCE_OK;
}

static truce_status parse_note(struct schema *schema, const struct schema_parser *parser)
{
    if (parser->value.type != BSON_TYPE_UTF8)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a string");
    return TRUCE_OK;
}

/* -- lists of values -- */

static truce_status parse_enum(struct schema *schema, const struct schema_parser *parser)
{
    if (parser->value.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a list of values");
    if (parser->value.size == 5 || schema_has_repeats(parser->value))
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "values, each once");
    schema->choices = parser->value;
    return TRUCE_OK;
}

static truce_status parse_check_names(const struct schema_parser *parser, struct value names)
{
    struct fields fields;

    if (names.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a list of names");
    fields = truce__fields(names);
    while (truce__fields_next(&fields)) {
        if (fields.value.type != BSON_TYPE_UTF8)
            return parse_refuse(parser, CODE_TYPE_MISMATCH, "a list of names");
    }
    if (names.size == 5 || schema_has_repeats(names))
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "names, each once");
    return TRUCE_OK;
}

static truce_status parse_required(struct schema *schema, const struct schema_parser *parser)
{
    schema->required = parser->value;
    return parse_check_names(parser, parser->value);
}

/* -- schemas inside of schemas -- */

static truce_status parse_inner(const struct schema_parser *parser, struct value value,
                                struct schema **schema)
{
    if (value.type != BSON_TYPE_DOCUMENT)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "schemas");
    truce__schema_free(*schema);
    return truce__schema_new(value, schema, parser->error);
}

static int parse_by_name(const void *a, const void *b)
{
    return strcmp(((const struct schema_property *)a)->name,
                  ((const struct schema_property *)b)->name);
}

/* Parses the schemas of properties, and sorts them by name. */
static truce_status parse_properties(struct schema *schema, const struct schema_parser *parser)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (parser->value.type != BSON_TYPE_DOCUMENT)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a document of schemas");
    if (schema->properties)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "one document");
    schema->properties =
        bson_malloc0((parse_count_fields(parser->value) + 1) * sizeof *schema->properties);
    fields = truce__fields(parser->value);
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        struct schema_property *property = schema->properties + schema->properties_size++;

        property->name = fields.key;
        property->name_length = fields.key_length;
        status = parse_inner(parser, fields.value, &property->schema);
    }
    qsort(schema->properties, schema->properties_size, sizeof *schema->properties, parse_by_name);
    return status;
}

static truce_status parse_name_pattern(const struct schema_parser *parser, const char *text,
                                       uint32_t length, struct regex **regex)
{
    bson_error_t reason;

    if (truce__regex_new(text, length, "", regex, &reason) == TRUCE_OK)
        return TRUCE_OK;
    return truce__refuse(CODE_NO_PATTERN, parser->error, "$jsonSchema: patternProperties: %.300s",
                         reason.message);
}

/* Parses patternProperties: schemas for the fields whose names match a regular expression. */
static truce_status parse_patterns(struct schema *schema, const struct schema_parser *parser)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (parser->value.type != BSON_TYPE_DOCUMENT)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a document of schemas");
    if (schema->patterns)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "one document");
    schema->patterns =
        bson_malloc0((parse_count_fields(parser->value) + 1) * sizeof *schema->patterns);
    fields = truce__fields(parser->value);
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        struct schema_pattern *pattern = schema->patterns + schema->patterns_size++;

        status = parse_inner(parser, fields.value, &pattern->schema);
        if (status == TRUCE_OK)
            status = parse_name_pattern(parser, fields.key, fields.key_length, &pattern->regex);
    }
    return status;
}

static truce_status parse_rest(struct schema *schema, const struct schema_parser *parser)
{
    struct schema_rest *rest =
        parse_is(parser, "additionalItems") ? &schema->other_items : &schema->other_properties;

    if (parser->value.type == BSON_TYPE_BOOL) {
        rest->forbidden = !truce__value_bool(parser->value);
        return TRUCE_OK;
    }
    if (parser->value.type != BSON_TYPE_DOCUMENT)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "true, false or a schema");
    return parse_inner(parser, parser->value, &rest->schema);
}

static truce_status schema_parse_list(const struct schema_parser *parser, struct value array,
                                      struct schema_list *list)
{
    truce_status status = TRUCE_OK;
    struct fields fields = truce__fields(array);

    if (list->schemas)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "one list");
    list->schemas = bson_malloc0((parse_count_fields(array) + 1) * sizeof *list->schemas);
    while (status == TRUCE_OK && truce__fields_next(&fields))
        status = parse_inner(parser, fields.value, &list->schemas[list->count++]);
    return status;
}

static truce_status parse_items(struct schema *schema, const struct schema_parser *parser)
{
    if (parser->value.type == BSON_TYPE_DOCUMENT)
        return parse_inner(parser, parser->value, &schema->every_item);
    if (parser->value.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a schema or a list of schemas");
    schema->has_items_list = true;
    return schema_parse_list(parser, parser->value, &schema->items_list);
}

static truce_status parse_combination(struct schema *schema, const struct schema_parser *parser)
{
    struct schema_list *list = parse_is(parser, "allOf")   ? &schema->all_of
                               : parse_is(parser, "anyOf") ? &schema->any_of
                                                           : &schema->one_of;

    if (parser->value.type != BSON_TYPE_ARRAY)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a list of schemas");
    if (parser->value.size == 5)
        return parse_refuse(parser, CODE_BAD_VALUE, "at least one schema");
    return schema_parse_list(parser, parser->value, list);
}

static truce_status schema_parse_not(struct schema *schema, const struct schema_parser *parser)
{
    return parse_inner(parser, parser->value, &schema->none_of);
}

/* Parses `dependencies`: for each name, a schema or other names. */
static truce_status parse_dependencies(struct schema *schema, const struct schema_parser *parser)
{
    truce_status status = TRUCE_OK;
    struct fields fields;

    if (parser->value.type != BSON_TYPE_DOCUMENT)
        return parse_refuse(parser, CODE_TYPE_MISMATCH, "a document");
    if (schema->dependencies)
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "one document");
    schema->dependencies =
        bson_malloc0((parse_count_fields(parser->value) + 1) * sizeof *schema->dependencies);
    fields = truce__fields(parser->value);
    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        struct schema_dependency *dependency = schema->dependencies + schema->dependencies_size++;

        dependency->name = fields.key;
        dependency->name_length = fields.key_length;
        if (fields.value.type == BSON_TYPE_DOCUMENT) {
            status = parse_inner(parser, fields.value, &dependency->schema);
        } else {
            dependency->names = fields.value;
            status = parse_check_names(parser, fields.value);
        }
    }
    return status;
}

static const struct keyword keywords[] = {
    {"additionalItems", parse_rest},
    {"additionalProperties", parse_rest},
    {"allOf", parse_combination},
    {"anyOf", parse_combination},
    {"bsonType", parse_types},
    {"dependencies", parse_dependencies},
    {"description", parse_note},
    {"enum", parse_enum},
    {"exclusiveMaximum", parse_exclusive},
    {"exclusiveMinimum", parse_exclusive},
    {"items", parse_items},
    {"maxItems", schema_parse_count},
    {"maxLength", schema_parse_count},
    {"maxProperties", schema_parse_count},
    {"maximum", parse_number},
    {"minItems", schema_parse_count},
    {"minLength", schema_parse_count},
    {"minProperties", schema_parse_count},
    {"minimum", parse_number},
    {"multipleOf", parse_multiple},
    {"not", schema_parse_not},
    {"oneOf", parse_combination},
    {"pattern", parse_pattern},
    {"patternProperties", parse_patterns},
    {"properties", parse_properties},
    {"required", parse_required},
    {"title", parse_note},
    {"type", parse_json_types},
    {"uniqueItems", parse_unique},
};

static const struct keyword *keyword_named(const char *name)
{
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (!strcmp(keywords[i].name, name))
            return keywords + i;
    }
    return NULL;
}

/* Parses all keywords of a schema, and checks that exclusive limits have a limit. */
static truce_status parse_keywords(struct schema *schema, struct value source, bson_error_t *error)
{
    struct fields fields = truce__fields(source);
    truce_status status = TRUCE_OK;

    while (status == TRUCE_OK && truce__fields_next(&fields)) {
        struct schema_parser parser = {keyword_named(fields.key), fields.value, error};

        if (!parser.keyword)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "$jsonSchema: unknown or unsupported keyword '%s'", fields.key);
        status = parser.keyword->parse(schema, &parser);
    }
    if (status == TRUCE_OK && ((schema->above_minimum && !schema->minimum.type) ||
                               (schema->below_maximum && !schema->maximum.type)))
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "$jsonSchema: an exclusive limit needs the minimum or maximum");
    return status;
}

truce_status truce__schema_new(struct value source, struct schema **schema, bson_error_t *error)
{
    truce_status status;

    *schema = NULL;
    if (source.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(CODE_TYPE_MISMATCH, error, "$jsonSchema takes a document, not %s",
                             truce__type_name(source.type));
    *schema = bson_malloc0(sizeof **schema);
    (*schema)->length.most = (*schema)->items_count.most = (*schema)->properties_count.most = -1;
    status = parse_keywords(*schema, source, error);
    if (status != TRUCE_OK) {
        truce__schema_free(*schema);
        *schema = NULL;
    }
    return status;
}

static void free_list(struct schema_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        truce__schema_free(list->schemas[i]);
    bson_free(list->schemas);
}

void truce__schema_free(struct schema *schema)
{
    if (!schema)
        return;
    truce__regex_free(schema->pattern);
    for (uint32_t i = 0; i < schema->properties_size; i++)
        truce__schema_free(schema->properties[i].schema);
    bson_free(schema->properties);
    for (uint32_t i = 0; i < schema->patterns_size; i++) {
        truce__regex_free(schema->patterns[i].regex);
        truce__schema_free(schema->patterns[i].schema);
    }
    bson_free(schema->patterns);
    for (uint32_t i = 0; i < schema->dependencies_size; i++)
        truce__schema_free(schema->dependencies[i].schema);
    bson_free(schema->dependencies);
    truce__schema_free(schema->other_properties.schema);
    truce__schema_free(schema->other_items.schema);
    truce__schema_free(schema->every_item);
    truce__schema_free(schema->none_of);
    free_list(&schema->items_list);
    free_list(&schema->all_of);
    free_list(&schema->any_of);
    free_list(&schema->one_of);
    bson_free(schema);
}
