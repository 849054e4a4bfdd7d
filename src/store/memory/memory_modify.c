/* Find-and-modify of the memory store: one document is found, changed or removed, and shown. */
#include "query/project/project.h"
#include "store/memory/memory_writing.h"

struct modifying {
    struct match *match;
    struct update *update;   /* NULL: remove */
    struct project *project; /* NULL: whole documents */
    struct memory_matches matches;
};

static void modifying_release(struct modifying *modifying)
{
    truce__memory_matches_release(&modifying->matches);
    truce__project_free(modifying->project);
    truce__update_free(modifying->update);
    truce__match_free(modifying->match);
}

static truce_status modifying_compile(struct modifying *modifying, const bson_t *filter,
                                      const bson_t *update, const truce_modify_options *options,
                                      bson_error_t *error)
{
    struct update_options how = {.pipeline = options->pipeline,
                                 .array_filters = options->array_filters};
    truce_status status = truce__match_new(filter, &modifying->match, error);

    if (!status && !options->remove)
        status = truce__update_new(update, &how, &modifying->update, error);
    if (!status && options->projection && !bson_empty(options->projection))
        status =
            truce__project_new(options->projection, modifying->match, &modifying->project, error);
    return status;
}

/* `shown` (initialised, empty) becomes what the caller sees of `document`. */
static truce_status memory_modify_show(struct writing *writing, const struct modifying *modifying,
                                       const bson_t *document, const struct match_result *found,
                                       bson_t *shown, bson_error_t *error)
{
    bson_destroy(shown);
    if (!modifying->project) {
        bson_copy_to(document, shown);
        return TRUCE_OK;
    }
    truce__arena_reset(&writing->arena);
    return truce__project_apply(modifying->project, truce__value_document(document), found,
                                &writing->context, shown, error);
}

/* The first match is changed or removed. */
static truce_status modify_found(struct writing *writing, const char *name,
                                 const struct modifying *modifying, bool return_new,
                                 bson_t *document, truce_write_result *result, bson_error_t *error)
{
    struct memory_collection *collection = truce__memory_find(writing->store, name);
    const struct memory_match *match = &modifying->matches.items[0];
    truce_status status;
    bson_t after = BSON_INITIALIZER;

    if (modifying->update) {
        bson_destroy(&after);
        status = truce__memory_change(writing, collection, match, modifying->update, &after, result,
                                      error);
    } else {
        truce__memory_remove_document(writing, collection, match->position);
        result->matched = result->removed = 1;
        status = TRUCE_OK;
    }
    if (!status)
        status = memory_modify_show(writing, modifying, return_new ? &after : match->document->bson,
                                    &match->found, document, error);
    bson_destroy(&after);
    return status;
}

static truce_status modify_missing(struct writing *writing, const char *name,
                                   const struct modifying *modifying,
                                   const truce_modify_options *options, bson_t *document,
                                   truce_write_result *result, bson_error_t *error)
{
    const struct match_result found = {.array_index = -1};
    truce_status status;
    bson_t made;

    if (!options->upsert)
        return TRUCE_NOT_FOUND;
    status = truce__memory_upsert(writing, name, modifying->match, modifying->update, &made, result,
                                  error);
    if (!status && options->return_new)
        status = memory_modify_show(writing, modifying, &made, &found, document, error);
    bson_destroy(&made);
    return status;
}

truce_status truce__memory_find_and_modify(truce_store *base, const char *name,
                                           const bson_t *filter, const bson_t *update,
                                           const truce_modify_options *options, bson_t *document,
                                           truce_write_result *result, bson_error_t *error)
{
    struct modifying modifying = {0};
    struct memory_query query = {.sort = options->sort, .hint = options->hint, .limit = 1};
    truce_write_outcome outcome = {0};
    struct writing writing;
    truce_status status;

    bson_init(document);
    *result = (truce_write_result){0};
    truce__memory_writing_begin(&writing, base, options->deadline_ms);
    writing.unvalidated = options->unvalidated;
    status = truce__memory_receipt_look(&writing, options->receipt, error);
    if (!status)
        status = modifying_compile(&modifying, filter, update, options, error);
    query.match = modifying.match;
    query.context = &writing.context;
    if (!status)
        status = truce__memory_select(truce__memory_find(writing.store, name), &query,
                                      &modifying.matches, error);
    if (!status && modifying.matches.count > 0)
        status =
            modify_found(&writing, name, &modifying, options->return_new, document, result, error);
    else if (!status)
        status = modify_missing(&writing, name, &modifying, options, document, result, error);
    outcome.result = *result;
    if (!status)
        status =
            truce__memory_receipt_put(&writing, options->receipt, &outcome, 1, document, error);
    if (status) {
        truce__memory_undo(&writing, 0);
        bson_destroy(document);
        bson_init(document);
        truce_write_result_release(result);
    }
    truce__memory_writing_end(&writing);
    modifying_release(&modifying);
    return status;
}
