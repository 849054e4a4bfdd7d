/*
 * Updates: the three kinds behind one interface.
 *
 *     operators     {$set: {...}, $push: {...}}   a tree of paths, applied as edits of the bytes
 *     replacement   {a: 1, b: 2}                  the new document, but for its `_id`
 *     pipeline      [{$set: {...}}, ...]          stages that make the new document
 *
 * What each file does: update_parse.c reads operators into the tree, update_tree.c grows and unites
 * trees, update_apply.c walks them, update_edit.c writes the new bytes; update_value.c,
 * update_array.c and update_items.c are the operators; update_replace.c is for whole documents,
 * update_upsert.c for documents that did not exist.
 *
 * A compiled update is never written to again: several threads may apply it at once.
 */
#include "query/update/update.h"

#include <stddef.h>
#include <stdio.h>

#include "base/assert.h"
#include "query/update/update_tree.h"

bool truce__update_has_operators(const bson_t *update)
{
    struct fields fields = truce__fields(truce__value_document(update));

    return truce__fields_next(&fields) && fields.key[0] == '$';
}

static truce_status check_filters_used(const struct update *update, bson_error_t *error)
{
    for (uint32_t i = 0; i < update->filters_count; i++) {
        if (!update->filters[i].used)
            return truce__refuse(CODE_FAILED_TO_PARSE, error,
                                 "no path of the update uses the array filter '%s'",
                                 update->filters[i].name);
    }
    return TRUCE_OK;
}

static truce_status update_compile_operators(struct update *update, bson_error_t *error)
{
    struct update_parser parser = {.update = update};
    truce_status status;

    update->kind = UPDATE_OPERATORS;
    update->root = truce__update_node_new(update, UPDATE_OBJECT);
    status =
        truce__update_parse(&parser, update->root, truce__value_document(update->source), error);
    if (!status)
        status = check_filters_used(update, error);
    if (!status)
        truce__update_tree_seal(update->root);
    return status;
}

static truce_status compile_pipeline(struct update *update, bson_error_t *error)
{
    truce_status status;

    update->kind = UPDATE_PIPELINE;
    if (update->filters_count)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "array filters do not go with an update pipeline");
    status = truce__pipeline_new_update(update->source, &update->pipeline, error);
    if (!status)
        update->keeps_order = truce__update_keeps_order(update->source);
    return status;
}

static truce_status update_compile(struct update *update, const struct update_options *options,
                                   bson_error_t *error)
{
    truce_status status;

    if (update->filters_source) {
        status = truce__update_parse_filters(update, update->filters_source, error);
        if (status)
            return status;
    }
    if (options->pipeline)
        return compile_pipeline(update, error);
    if (truce__update_has_operators(update->source))
        return update_compile_operators(update, error);
    update->kind = UPDATE_REPLACEMENT;
    if (options->multi)
        return truce__refuse(CODE_FAILED_TO_PARSE, error,
                             "a replacement is for one document, not for all that match");
    return TRUCE_OK;
}

static struct update *update_make(const bson_t *source, const struct update_options *options)
{
    struct update *made = bson_malloc(sizeof *made);
    const bson_t *filters = options->array_filters;

    memset(made, 0, offsetof(struct update, first));
    made->memory.at = made->first;
    made->memory.end = made->memory.at + sizeof made->first;
    if (!options->borrows) {
        source = made->own_source = bson_copy(source);
        filters = made->own_filters_source = filters ? bson_copy(filters) : NULL;
    }
    made->source = source;
    made->filters_source = filters;
    return made;
}

truce_status truce__update_new(const bson_t *update, const struct update_options *options,
                               struct update **made, bson_error_t *error)
{
    static const struct update_options defaults = {0};
    struct update *new = update_make(update, options ? options : &defaults);
    truce_status status;

    *made = NULL;
    status = update_compile(new, options ? options : &defaults, error);
    if (status) {
        truce__update_free(new);
        return status;
    }
    *made = new;
    return TRUCE_OK;
}

void truce__update_release(struct update *update)
{
    for (uint32_t i = 0; i < update->matches_count; i++)
        truce__match_free(update->matches[i]);
    truce__arena_release(&update->memory);
}

void truce__update_free(struct update *update)
{
    if (!update)
        return;
    if (update->pipeline)
        truce__pipeline_free(update->pipeline);
    truce__update_release(update);
    bson_destroy(update->own_source);
    bson_destroy(update->own_filters_source);
    bson_free(update);
}

bool truce__update_is_replacement(const struct update *update)
{
    return update->kind == UPDATE_REPLACEMENT;
}

void truce__update_run_init(struct update_run *run, const struct update *update,
                            const struct match_result *found, struct query_context *context)
{
    truce_assert(context && context->arena);
    run->update = update;
    run->context = context;
    run->insert = false;
    run->matched[0] = '\0';
    run->edits = run->edits_inline;
    run->edits_count = 0;
    run->edits_room = UPDATE_EDITS_INLINE;
    run->inserted = 0;
    run->changes = 0;
    run->items_matched = 0;
    run->items_modified = 0;
    run->finder = (struct field_finder){0};
    if (found && found->matched && found->array_index >= 0)
        snprintf(run->matched, sizeof run->matched, "%lld", (long long)found->array_index);
}

static void copy_document(struct value document, bson_t *copy)
{
    uint8_t *bytes = bson_reserve_buffer(copy, document.size);

    truce_assert(bytes);
    memcpy(bytes, document.data, document.size);
}

static truce_status update_apply_operators(const struct update *update, struct value before,
                                           const struct match_result *found,
                                           struct query_context *context, bson_t *after,
                                           struct update_result *result, bson_error_t *error)
{
    struct update_run run;
    truce_status status;

    truce__update_run_init(&run, update, found, context);
    status = truce__update_walk(&run, update->root, before, error);
    truce__field_finder_release(&run.finder);
    if (status)
        return status;
    if (run.edits_count) {
        status = truce__update_splice(&run, before, after, error);
        if (status)
            return status;
    } else {
        copy_document(before, after);
    }
    result->modified = run.changes > 0;
    result->items_matched = run.items_matched;
    result->items_modified = run.items_modified;
    return TRUCE_OK;
}

static truce_status update_apply_whole(const struct update *update, struct value before,
                                       struct query_context *context, bson_t *after,
                                       struct update_result *result, bson_error_t *error)
{
    struct value replacement;
    bool pipeline = update->kind == UPDATE_PIPELINE;
    truce_status status = truce__update_whole(update, before, context, &replacement, error);

    if (!status)
        status = truce__update_replace(before, replacement, false, pipeline, after, error);
    if (status)
        return status;
    result->modified = !truce__value_identical(before, replacement);
    return TRUCE_OK;
}

truce_status truce__update_apply(const struct update *update, const bson_t *before,
                                 const struct match_result *found, struct query_context *context,
                                 bson_t *after, struct update_result *result, bson_error_t *error)
{
    struct value document = truce__value_document(before);

    bson_init(after);
    *result = (struct update_result){0};
    if (update->kind == UPDATE_OPERATORS)
        return update_apply_operators(update, document, found, context, after, result, error);
    return update_apply_whole(update, document, context, after, result, error);
}
