/* Parses JSON Schemas from BSON: one table of keywords, one function for each kind of operand. */
#include "base/assert.h"
#include "bson/number.h"
#include "query/condition/type_set.h"
#include "query/schema/schema_tree.h"

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
        if (value.size == 5 || truce__schema_has_repeats(value))
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
        return parse_refuse(parser, CODE_FAILED_TO_PARSE, "no 'integer'; use bsonType");
    return parse_refuse(parser, CODE_BAD_VALUE, "one of the types of JSON");
}

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
    if (value.size == 5 || truce__schema_has_repeats(value))
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

static truce_status schema_parse_parse_count(struct schema *schema,
                                             const struct schema_parser *parser)
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
    if (parser->value.size == 5 || truce__schema_has_repeats(parser->value))
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
    if (names.size == 5 || truce__schema_has_repeats(names))
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

static truce_status schema_parse_parse_list(const struct schema_parser *parser, struct value array,
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
    return schema_parse_parse_list(parser, parser->value, &schema->items_list);
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
    return schema_parse_parse_list(parser, parser->value, list);
}

static truce_status schema_parse_parse_not(struct schema *schema,
                                           const struct schema_parser *parser)
{
    return parse_inner(parser, parser->value, &schema->none_of);
}

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
    {"maxItems", schema_parse_parse_count},
    {"maxLength", schema_parse_parse_count},
    {"maxProperties", schema_parse_parse_count},
    {"maximum", parse_number},
    {"minItems", schema_parse_parse_count},
    {"minLength", schema_parse_parse_count},
    {"minProperties", schema_parse_parse_count},
    {"minimum", parse_number},
    {"multipleOf", parse_multiple},
    {"not", schema_parse_parse_not},
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
