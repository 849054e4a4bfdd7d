/*
 * Stages that make one document of one: $project, $set, $unset, $replaceRoot, $redact.
 *
 * $project and $unset are projections (project.h), $set is an addition (added_fields.h). If an
 * exclusion removes a field and the $set directly after it adds the field again, the field keeps
 * its position, as in MongoDB. Two such stages become one. $redact walks down a document and
 * evaluates its expression at each level, with the level as $$CURRENT:
 *
 *     $$KEEP     the level stays as it is
 *     $$PRUNE    the level is removed
 *     $$DESCEND  the level stays, and each document in it, also within arrays, is evaluated in turn
 */
#include "base/assert.h"
#include "base/limits.h"
#include "bson/builder.h"
#include "bson/field_path.h"
#include "bson/refuse_value.h"
#include "query/aggregate/stage.h"
#include "query/expression/expression.h"
#include "query/project/added_fields.h"
#include "query/project/project.h"

/* ---- projections and additions -------------------------------------------------------------- */

static truce_status apply_project(const void *data, struct value document,
                                  struct query_context *context, struct value *result,
                                  bson_error_t *error)
{
    return truce__project_show(data, document, context, result, error);
}

static void free_project(void *data)
{
    truce__project_free(data);
}

static bool project_keeps(const void *data, const char *field, uint32_t length)
{
    return truce__project_keeps(data, field, length);
}

static const struct stage_kind project_kind = {
    .apply = apply_project, .free = free_project, .keeps = project_keeps};

struct set_stage {
    /* The exclusion directly before a $set, or NULL. */
    struct project *exclusion;
    struct addition *addition;
};

static truce_status apply_addition(const void *data, struct value document,
                                   struct query_context *context, struct value *result,
                                   bson_error_t *error)
{
    const struct set_stage *stage = data;
    struct value existing = document;
    truce_status status = TRUCE_OK;

    if (stage->exclusion)
        status = truce__project_show(stage->exclusion, document, context, &document, error);
    return status
               ? status
               : truce__addition_apply(stage->addition, document, existing, context, result, error);
}

static void free_addition(void *data)
{
    struct set_stage *stage = data;

    truce__project_free(stage->exclusion);
    truce__addition_free(stage->addition);
    bson_free(stage);
}

static bool addition_keeps(const void *data, const char *field, uint32_t length)
{
    const struct set_stage *stage = data;

    return !truce__addition_has(stage->addition, field, length) &&
           (!stage->exclusion || truce__project_keeps(stage->exclusion, field, length));
}

static const struct stage_kind addition_kind = {
    .apply = apply_addition, .free = free_addition, .keeps = addition_keeps};

static bool is_exclusion(const void *data)
{
    return truce__project_is_exclusion(data);
}

static bool shape_is_empty(struct value container)
{
    return container.data[4] == 0;
}

truce_status truce__stage_project(struct stage_parser *parser, struct value argument,
                                  bson_error_t *error)
{
    struct project *project;
    bson_t projection;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(15969, argument, "$project must be a document", error);
    if (shape_is_empty(argument))
        return truce__refuse(51272, error, "$project must name at least one field");
    truce__value_bson(argument, &projection);
    status = truce__project_new_stage(&projection, parser->variables, &project, error);
    if (!status)
        truce__stage_push(parser, &project_kind, project);
    return status;
}

truce_status truce__stage_set(struct stage_parser *parser, struct value argument,
                              bson_error_t *error)
{
    struct addition *addition;
    struct set_stage *stage;
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(40272, argument, "$set ($addFields) must be a document", error);
    if (shape_is_empty(argument))
        return truce__refuse(40177, error, "$set ($addFields) must name at least one field");
    status = truce__addition_new(argument, parser->variables, &addition, error);
    if (status)
        return status;
    stage = bson_malloc0(sizeof *stage);
    stage->addition = addition;
    stage->exclusion = truce__stage_pop(parser, &project_kind, is_exclusion);
    truce__stage_push(parser, &addition_kind, stage);
    return TRUCE_OK;
}

/* Adds {path: 0} to the projection that implements $unset. */
static truce_status unset_one(struct value path, bson_t *projection, bson_error_t *error)
{
    size_t length;
    const char *text = truce__stage_text(path, &length);
    truce_status status;

    if (!text)
        return truce__stage_refuse(31120, path, "the fields of $unset must be strings", error);
    status = truce__field_path_check(text, length, error);
    if (!status)
        bson_append_int32(projection, text, (int)length, 0);
    return status;
}

/* Makes the projection that implements $unset from a path or an array of paths. */
static truce_status unset_all(struct value paths, bson_t *projection, bson_error_t *error)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (paths.type == BSON_TYPE_UTF8)
        return unset_one(paths, projection, error);
    if (paths.type != BSON_TYPE_ARRAY)
        return truce__stage_refuse(31002, paths, "$unset must be a string or an array of strings",
                                   error);
    if (shape_is_empty(paths))
        return truce__refuse(31119, error, "$unset must name at least one field");
    fields = truce__fields(paths);
    while (!status && truce__fields_next(&fields))
        status = unset_one(fields.value, projection, error);
    return status;
}

truce_status truce__stage_unset(struct stage_parser *parser, struct value argument,
                                bson_error_t *error)
{
    bson_t projection = BSON_INITIALIZER;
    struct project *project;
    truce_status status = unset_all(argument, &projection, error);

    if (!status)
        status = truce__project_new_stage(&projection, NULL, &project, error);
    if (!status)
        truce__stage_push(parser, &project_kind, project);
    bson_destroy(&projection);
    return status;
}

/* ---- $replaceRoot --------------------------------------------------------------------------- */

static truce_status apply_root(const void *data, struct value document,
                               struct query_context *context, struct value *result,
                               bson_error_t *error)
{
    truce_status status =
        truce__expression_evaluate(data, document, context->variables, context, result, error);
    char shown[100];

    if (status || result->type == BSON_TYPE_DOCUMENT)
        return status;
    return truce__refuse(
        40228, error, "the new root of a document must be a document, it is %s (%s)",
        truce__value_show(*result, shown, sizeof shown), truce__type_name(result->type));
}

static void free_expression(void *data)
{
    truce__expression_free(data);
}

static const struct stage_kind root_kind = {.apply = apply_root, .free = free_expression};

truce_status truce__stage_replace_with(struct stage_parser *parser, struct value argument,
                                       bson_error_t *error)
{
    struct expression *expression;
    truce_status status = truce__expression_new(argument, parser->variables, &expression, error);

    if (!status)
        truce__stage_push(parser, &root_kind, expression);
    return status;
}

truce_status truce__stage_replace_root(struct stage_parser *parser, struct value argument,
                                       bson_error_t *error)
{
    struct value root = truce__value_missing();
    const struct stage_option known[] = {{"newRoot", &root}, {NULL, NULL}};
    truce_status status;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__stage_refuse(40229, argument, "$replaceRoot must be a document", error);
    status = truce__stage_options("$replaceRoot", 40415, argument, known, error);
    if (status)
        return status;
    if (!root.type)
        return truce__refuse(40414, error,
                             "$replaceRoot needs 'newRoot', for example {newRoot: \"$item\"}");
    return truce__stage_replace_with(parser, root, error);
}

/* ---- $redact -------------------------------------------------------------------------------- */

#define REDACT_VARIABLES_MAX 100

struct redact {
    struct expression *expression;
    /* The number of variables of the surrounding pipelines. They come before those of $redact. */
    uint32_t outer;
};

struct redaction {
    const struct redact *redact;
    struct query_context *context;
    struct value root;
    struct builder *builder;
    bson_error_t *error;
};

static struct value project_redact_result(struct arena *arena, const char *name)
{
    return truce__value_from_text(arena, name, strlen(name));
}

/* Evaluates the expression for one level. Sets *what to 'k' ($$KEEP), 'p' ($$PRUNE), or 'd'
 * ($$DESCEND). */
static truce_status shape_check(const struct redaction *run, struct value level, char *what)
{
    struct value values[REDACT_VARIABLES_MAX + 3], result;
    struct arena *arena = run->context->arena;
    uint32_t count = run->redact->outer, length = 0;
    truce_status status;

    if (count)
        memcpy(values, run->context->variables, count * sizeof *values);
    values[count] = project_redact_result(arena, "keep");
    values[count + 1] = project_redact_result(arena, "prune");
    values[count + 2] = project_redact_result(arena, "descend");
    status = truce__expression_evaluate_within(run->redact->expression, run->root, level, values,
                                               run->context, &result, run->error);
    if (status)
        return status;
    *what = 0;
    if (result.type == BSON_TYPE_UTF8) {
        const char *text = truce__value_text(result, &length);

        for (uint32_t i = 0; i < 3; i++) {
            if (truce__value_identical(result, values[count + i]))
                *what = text[0];
        }
    }
    if (!*what)
        return truce__refuse_value(17053, result, run->error,
                                   "the result of $redact must be $$KEEP, $$PRUNE, or $$DESCEND");
    return TRUCE_OK;
}

static truce_status redact_fields(struct redaction *run, struct value container);

/* Redacts a value within a level: a document is evaluated, an array is searched for documents. */
static truce_status redact_value(struct redaction *run, const char *key, uint32_t length,
                                 struct value value)
{
    struct builder_mark mark;
    truce_status status;
    char what = 'd';

    if (value.type == BSON_TYPE_DOCUMENT) {
        status = shape_check(run, value, &what);
        if (status || what == 'p')
            return status;
    }
    if (!truce__value_is_container(value) || what == 'k') {
        if (key)
            truce__builder_append(run->builder, key, length, value);
        else
            truce__builder_element(run->builder, value);
        return TRUCE_OK;
    }
    mark = key ? truce__builder_open(run->builder, key, length, value.type)
               : truce__builder_open_element(run->builder, value.type);
    status = redact_fields(run, value);
    truce__builder_close(run->builder, mark);
    return status;
}

static truce_status redact_fields(struct redaction *run, struct value container)
{
    struct fields fields = truce__fields(container);
    bool is_array = container.type == BSON_TYPE_ARRAY;
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields))
        status = redact_value(run, is_array ? NULL : fields.key, fields.key_length, fields.value);
    return status;
}

/* Evaluates the expression for the whole document, and redacts its fields if the result is
 * $$DESCEND. The result is missing if the document is removed. */
static truce_status apply_redact(const void *data, struct value document,
                                 struct query_context *context, struct value *result,
                                 bson_error_t *error)
{
    struct builder builder;
    struct redaction run = {data, context, document, &builder, error};
    char what;
    truce_status status = shape_check(&run, document, &what);

    if (status)
        return status;
    *result = what == 'k' ? document : truce__value_missing();
    if (what != 'd')
        return TRUCE_OK;
    truce__builder_begin(&builder, context->arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    status = redact_fields(&run, document);
    return status ? status : truce__builder_finish(&builder, result, error);
}

static void free_redact(void *data)
{
    truce__expression_free(((struct redact *)data)->expression);
    bson_free(data);
}

static const struct stage_kind redact_kind = {
    .apply = apply_redact, .free = free_redact, .drops = true};

truce_status truce__stage_redact(struct stage_parser *parser, struct value argument,
                                 bson_error_t *error)
{
    const char *names[REDACT_VARIABLES_MAX + 4];
    struct redact *redact = bson_malloc0(sizeof *redact);
    truce_status status;

    while (parser->variables && parser->variables[redact->outer]) {
        truce_assert(redact->outer < REDACT_VARIABLES_MAX);
        names[redact->outer] = parser->variables[redact->outer];
        redact->outer++;
    }
    names[redact->outer] = "KEEP";
    names[redact->outer + 1] = "PRUNE";
    names[redact->outer + 2] = "DESCEND";
    names[redact->outer + 3] = NULL;
    status = truce__expression_new(argument, names, &redact->expression, error);
    if (status)
        bson_free(redact);
    else
        truce__stage_push(parser, &redact_kind, redact);
    return status;
}
