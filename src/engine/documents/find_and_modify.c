/* Find-and-modify: finds one document, changes or removes it, and returns it, in one atomic
 * step. */
#include "engine/documents/find_and_modify.h"

#include "base/assert.h"
#include "engine/documents/delegated_writes.h"
#include "engine/documents/indexed_documents.h"

/* Compiles the filter, the update, and the projection. */
static truce_status modify_compile(struct modify *modify, bson_error_t *error)
{
    const truce_modify_options *options = modify->options;
    struct update_options how = {
        .pipeline = options->pipeline, .array_filters = options->array_filters, .borrows = true};
    struct selector *selector = &modify->compiled.selector;
    truce_status status = truce__selector_init(
        modify->filter, options->hint || options->upsert || options->projection, selector, error);

    if (!status && !options->remove)
        status = truce__update_new(modify->update, &how, &modify->compiled.update, error);
    if (!status && options->projection && !bson_empty(options->projection))
        status = truce__project_new(options->projection, selector->match, &modify->project, error);
    return status;
}

static truce_status modify_show(struct modify *modify, const bson_t *document,
                                const struct match_result *found)
{
    bson_destroy(modify->document);
    if (!modify->project) {
        bson_copy_to(document, modify->document);
        return TRUCE_OK;
    }
    truce__arena_reset(modify->context.arena);
    return truce__project_apply(modify->project, truce__value_document(document), found,
                                &modify->context, modify->document, &modify->error);
}

/* Changes or removes the document that was found. If the old document is returned, its projection
 * is made before the change is written, because a projection may be refused. */
static truce_status change_found(struct modify *modify, struct writer *writer,
                                 const struct gathered *item)
{
    bool show_new = modify->options->return_new && !modify->options->remove;
    bson_t after = BSON_INITIALIZER;
    truce_status status = TRUCE_OK;

    if (!show_new)
        status = modify_show(modify, item->document, &item->match);
    if (!status && modify->options->remove)
        status =
            truce__change_remove(writer, modify->collection, item, modify->result, &modify->error);
    else if (!status)
        status = truce__change_update(writer, modify->collection, item, &modify->compiled,
                                      &modify->context, &after, modify->result, &modify->error);
    if (!status && show_new)
        status = modify_show(modify, &after, &item->match);
    bson_destroy(&after);
    return status;
}

/* Upserts if the call has the option. Otherwise returns NOT_FOUND. */
static truce_status change_missing(struct modify *modify, struct writer *writer)
{
    const struct match_result found = {.array_index = -1};
    truce_status status;
    bson_t made;

    if (!modify->options->upsert)
        return TRUCE_NOT_FOUND;
    status = truce__change_upsert(writer, modify->collection, &modify->compiled, &modify->context,
                                  &made, modify->result, &modify->error);
    if (!status && modify->options->return_new)
        status = modify_show(modify, &made, &found);
    bson_destroy(&made);
    return status;
}

/* Finds the document to change: the first match in the order of the sort. */
static truce_status modify_find(struct modify *modify, struct writer *writer, struct gather *gather)
{
    struct selection selection = {.selector = &modify->compiled.selector,
                                  .sort = modify->options->sort,
                                  .hint = modify->options->hint,
                                  .limit = 1};
    const struct collection *collection;
    truce_status status =
        truce__writer_collection(writer, modify->collection, &collection, &modify->error);

    *gather = (struct gather){0};
    if (status || !collection)
        return status;
    return truce__select(&selection, writer, collection, &modify->context, gather, &modify->error);
}

static void modify_reset(struct write_op *base)
{
    struct modify *modify = (struct modify *)base;

    bson_destroy(modify->document);
    bson_init(modify->document);
    truce__result_reset(modify->result);
    modify->status = TRUCE_OK;
}

/* Begins a savepoint if the change may have to be undone: only a projection of the new document can
 * fail after the change was made. */
static truce_status modify_begin(struct modify *modify, struct writer *writer, bson_error_t *error)
{
    bool after_change = modify->project && modify->options->return_new;

    modify->context.arena = &writer->arena;
    return after_change ? truce__kv_savepoint_begin(writer->kv, error) : TRUCE_OK;
}

static truce_status modify_end(struct modify *modify, struct writer *writer, bson_error_t *error)
{
    if (!(modify->project && modify->options->return_new))
        return TRUCE_OK;
    if (!modify->status)
        return truce__kv_savepoint_release(writer->kv, error);
    return truce__writer_undo(writer, error);
}

/* Checks the receipt, and then finds and changes the document. */
static truce_status modify_change(struct modify *modify, struct writer *writer)
{
    struct gather gather = {0};
    truce_status status =
        truce__receipt_check(&modify->receipt, writer, &modify->context, &modify->error);

    writer->unvalidated = modify->options->unvalidated;
    if (!status)
        status = modify_find(modify, writer, &gather);
    if (!status)
        status = gather.count ? change_found(modify, writer, &gather.items[0])
                              : change_missing(modify, writer);
    truce__gather_release(&gather);
    writer->unvalidated = false;
    return status;
}

/* Runs a find-and-modify in the writer's transaction, and records its result in the receipt. A
 * refused call leaves no change. */
static truce_status modify_run_op(struct write_op *base, struct writer *writer, bson_error_t *error)
{
    struct modify *modify = (struct modify *)base;
    truce_write_outcome outcome = {0};
    truce_status status = modify_begin(modify, writer, error);

    if (status)
        return status;
    modify->status = modify_change(modify, writer);
    if (truce__documents_failed(modify->status)) {
        *error = modify->error;
        return modify->status;
    }
    status = modify_end(modify, writer, error);
    if (status || modify->status)
        return status;
    outcome.result = *modify->result;
    return truce__receipt_put(&modify->receipt, writer, &outcome, 1, modify->document, error);
}

truce_status truce__modify_init(struct modify *modify, struct engine *engine, bson_error_t *error)
{
    modify->base.reset = modify_reset;
    modify->base.run = modify_run_op;
    modify->base.delegated_kind = &truce__delegated_kind_modify;
    modify->base.relaxed = modify->options->relaxed || engine->relaxed;
    modify->context = truce__engine_context(engine, NULL);
    modify->context.budget = &modify->budget;
    return modify_compile(modify, error);
}

void truce__modify_release(struct modify *modify)
{
    truce__project_free(modify->project);
    truce__receipt_release(&modify->receipt);
    truce__compiled_release(&modify->compiled);
}

static truce_status modify_finish(struct modify *modify, truce_status status, bson_error_t *error)
{
    if (!status && modify->status) {
        status = modify->status;
        *error = modify->error;
    }
    if (status)
        modify_reset(&modify->base);
    truce__modify_release(modify);
    return status;
}

truce_status truce__engine_find_and_modify(struct engine *engine, const char *collection,
                                           const bson_t *filter, const bson_t *update,
                                           const truce_modify_options *options, bson_t *document,
                                           truce_write_result *result, bson_error_t *error)
{
    struct modify modify = {.collection = collection,
                            .filter = filter,
                            .update = update,
                            .options = options,
                            .document = document,
                            .result = result};
    truce_status status = truce__engine_writable(engine, error);

    bson_init(document);
    *result = (truce_write_result){0};
    if (status)
        return status;
    status = truce__modify_init(&modify, engine, error);
    modify.base.deadline_ns = truce__engine_deadline(engine, options->deadline_ms);
    truce__engine_budget(engine, options->deadline_ms, &modify.budget);
    if (!status)
        status = truce__receipt_init(&modify.receipt, options->receipt, error);
    if (!status)
        status = truce__writer_run(&engine->writer, &modify.base, error);
    return modify_finish(&modify, status, error);
}
