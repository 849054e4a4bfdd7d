/* $group from BSON. */
#include "base/limits.h"
#include "query/aggregate/aggregate_group.h"

static void group_free(void *data)
{
    struct group_stage *stage = data;

    for (uint32_t i = 0; i < stage->count; i++) {
        bson_free(stage->parts[i].name);
        truce__expression_free(stage->parts[i].expression);
    }
    bson_free(stage->parts);
    truce__accumulators_release(&stage->list);
    bson_free(stage);
}

static const struct stage_kind group_kind = {.open = truce__group_open, .free = group_free};

static truce_status add_part(struct group_stage *stage, const char *name, struct value value,
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
        return add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    if (!truce__fields_next(&fields) || fields.key[0] == '$')
        return add_part(stage, NULL, id, variables, error);
    fields = truce__fields(id);
    while (!status && truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            status = truce__refuse(17390, error, "$group: the field '%s' of _id begins with '$'",
                                   fields.key);
        else
            status = add_part(stage, fields.key, fields.value, variables, error);
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
