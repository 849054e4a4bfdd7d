/* $group from BSON. */
#include "base/limits.h"
#include "query/aggregate/aggregate_group.h"

static void group_free(void *data)
{
    struct group_stage *stage = data;

    for (uint32_t i = 0; i < stage->count; i++) {
        bson_free(stage->parts[i].name);
        bson_free(stage->parts[i].field);
        truce__expression_free(stage->parts[i].expression);
    }
    bson_free(stage->parts);
    truce__accumulators_release(&stage->list);
    bson_free(stage);
}

/* Of "_id", or "_id.x" if it has parts: the field that it is of. */
static const char *group_takes(const void *data, const char *path, size_t *length)
{
    const struct group_stage *stage = data;

    if (strncmp(path, "_id", 3) != 0 || (path[3] && path[3] != '.'))
        return NULL;
    *length = 3;
    if (stage->count == 1 && !stage->parts[0].name)
        return stage->parts[0].field;
    for (uint32_t i = 0; path[3] && i < stage->count; i++) {
        size_t of_name = strlen(stage->parts[i].name);

        if (strcspn(path + 4, ".") == of_name && !memcmp(path + 4, stage->parts[i].name, of_name)) {
            *length = 4 + of_name;
            return stage->parts[i].field;
        }
    }
    return NULL;
}

static const struct stage_kind group_kind = {
    .open = truce__group_open, .free = group_free, .takes = group_takes};

/* The name in "$name"; NULL: the expression is another one. */
static char *parse_field_of(struct value expression)
{
    uint32_t length;
    const char *text;

    if (expression.type != BSON_TYPE_UTF8)
        return NULL;
    text = truce__value_text(expression, &length);
    return length > 1 && text[0] == '$' && text[1] != '$' && !memchr(text, '.', length)
               ? bson_strndup(text + 1, length - 1)
               : NULL;
}

static truce_status parse_add_part(struct group_stage *stage, const char *name, struct value value,
                                   const char *const *variables, bson_error_t *error)
{
    struct id_part part = {0};
    truce_status status;

    if (name && strchr(name, '.'))
        return truce__refuse(17390, error, "$group: the field '%s' of _id has a dot", name);
    status = truce__expression_new(value, variables, &part.expression, error);
    if (status)
        return status;
    part.name = name ? bson_strdup(name) : NULL;
    part.is_constant = truce__expression_constant_value(part.expression, &part.constant);
    part.field = parse_field_of(value);
    stage->parts = bson_realloc(stage->parts, (stage->count + 1) * sizeof *stage->parts);
    stage->parts[stage->count++] = part;
    return TRUCE_OK;
}

static truce_status parse_id(struct group_stage *stage, struct value id,
                             const char *const *variables, bson_error_t *error)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (stage->has_id)
        return truce__refuse(15948, error, "$group must have one _id");
    stage->has_id = true;
    if (id.type != BSON_TYPE_DOCUMENT)
        return parse_add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    if (!truce__fields_next(&fields) || fields.key[0] == '$')
        return parse_add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    while (!status && truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            status = truce__refuse(17390, error, "$group: the field '%s' of _id begins with '$'",
                                   fields.key);
        else
            status = parse_add_part(stage, fields.key, fields.value, variables, error);
    }
    return status;
}

truce_status truce__stage_group(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    struct group_stage *stage;
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(15947, error, "$group must be a document");
    stage = bson_malloc0(sizeof *stage);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "_id"))
            status = parse_id(stage, fields.value, parser->variables, error);
        else
            status = truce__accumulators_add_field(&stage->list, fields.key, fields.key_length,
                                                   fields.value, parser->variables, error);
    }
    if (!status && !stage->has_id)
        status = truce__refuse(15955, error, "$group must have an _id");
    if (status)
        group_free(stage);
    else
        truce__stage_push(parser, &group_kind, stage);
    return status;
}
