/* Updates, upserts, and removals of single documents (document_change.h). */
#include "engine/documents/document_change.h"

#include "base/assert.h"
#include "engine/documents/indexed_documents.h"
#include "query/input_check.h"

void truce__compiled_release(struct compiled *compiled)
{
    truce__selector_release(&compiled->selector);
    truce__update_free(compiled->update);
}

void truce__result_reset(truce_write_result *result)
{
    if (result->upserted)
        bson_value_destroy(&result->upserted_id);
    *result = (truce_write_result){0};
}

/* Returns the document of an item: the gathered document, or a copy that is read from its row. */
static truce_status change_read_document(struct writer *writer, const char *name,
                                         const struct gathered *item, bson_t **document,
                                         bson_error_t *error)
{
    const struct collection *collection;
    struct bytes body;
    truce_status status = truce__writer_collection(writer, name, &collection, error);

    *document = NULL;
    if (!status && item->document) {
        *document = item->document;
        return TRUCE_OK;
    }
    if (!status)
        status = truce__kv_row_get(writer->kv, collection->id, item->row, &body, error);
    if (!status)
        *document = bson_new_from_data(body.data, body.size);
    if (status == TRUCE_NOT_FOUND || (!status && !*document))
        status = truce__fail(
            TRUCE_CORRUPT, error,
            "the document in row %lld of \"%s\" is damaged: truce check shows all damage",
            (long long)item->row, name);
    return status;
}

static void free_document(const struct gathered *item, bson_t *document)
{
    if (document && document != item->document)
        bson_destroy(document);
}

truce_status truce__change_update(struct writer *writer, const char *collection,
                                  const struct gathered *item, const struct compiled *compiled,
                                  struct query_context *context, bson_t *after,
                                  truce_write_result *result, bson_error_t *error)
{
    const struct update *update = compiled->update;
    bool whole = truce__update_is_replacement(update) && !compiled->in_parts;
    struct update_result changed = {0};
    bson_t *before;
    truce_status status = change_read_document(writer, collection, item, &before, error);

    truce__arena_reset(context->arena);
    if (status)
        bson_init(after);
    else
        status = truce__update_apply(update, before, &item->match, context, after, &changed, error);
    if (!status && changed.modified) {
        status = truce__document_check(after, "updated document", error);
        if (!status)
            status = truce__documents_replace(writer, collection, item->row, before, after, whole,
                                              error);
    }
    free_document(item, before);
    if (!status) {
        result->matched++;
        result->modified += changed.modified;
    }
    return status;
}

static void change_keep_id(const bson_t *document, truce_write_result *result)
{
    bson_iter_t iter;
    bool found = bson_iter_init_find(&iter, document, "_id");

    truce_assert(found);
    bson_value_copy(bson_iter_value(&iter), &result->upserted_id);
    result->upserted = true;
}

truce_status truce__change_upsert(struct writer *writer, const char *collection,
                                  const struct compiled *compiled, struct query_context *context,
                                  bson_t *made, truce_write_result *result, bson_error_t *error)
{
    truce_status status;
    bson_t raw;

    bson_init(made);
    truce__arena_reset(context->arena);
    status = truce__update_insert(compiled->update, compiled->selector.match, context, &raw, error);
    if (!status)
        status = truce__document_check(&raw, "upserted document", error);
    if (!status) {
        bson_destroy(made);
        status = truce__document_prepare(&raw, context, made, error);
    }
    if (!status)
        status = truce__documents_insert(writer, collection, made, error);
    if (!status)
        change_keep_id(made, result);
    bson_destroy(&raw);
    return status;
}

truce_status truce__change_remove(struct writer *writer, const char *collection,
                                  const struct gathered *item, truce_write_result *result,
                                  bson_error_t *error)
{
    bson_t *before;
    truce_status status = change_read_document(writer, collection, item, &before, error);

    if (!status)
        status = truce__documents_remove(writer, collection, item->row, before, error);
    free_document(item, before);
    if (!status) {
        result->matched++;
        result->removed++;
    }
    return status;
}
