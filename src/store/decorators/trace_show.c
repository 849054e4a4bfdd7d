#include "store/decorators/trace_show.h"

void truce__trace_add_document(bson_t *parent, const char *name, const bson_t *document)
{
    if (document && !bson_empty(document))
        BSON_APPEND_DOCUMENT(parent, name, document);
}

void truce__trace_add_array(bson_t *parent, const char *name, const bson_t *array)
{
    if (array)
        BSON_APPEND_ARRAY(parent, name, array);
}

void truce__trace_add_number(bson_t *parent, const char *name, int64_t number)
{
    if (number)
        BSON_APPEND_INT64(parent, name, number);
}

void truce__trace_add_truth(bson_t *parent, const char *name, bool truth)
{
    if (truth)
        BSON_APPEND_BOOL(parent, name, true);
}

void truce__trace_add_find_options(bson_t *parent, const truce_find_options *options)
{
    truce__trace_add_document(parent, "projection", options->projection);
    truce__trace_add_document(parent, "sort", options->sort);
    truce__trace_add_document(parent, "hint", options->hint);
    truce__trace_add_number(parent, "skip", options->skip);
    truce__trace_add_number(parent, "limit", options->limit);
    truce__trace_add_number(parent, "deadline_ms", options->deadline_ms);
}

void truce__trace_add_update(bson_t *parent, const bson_t *update, bool pipeline)
{
    if (pipeline)
        truce__trace_add_array(parent, "update", update);
    else if (update)
        BSON_APPEND_DOCUMENT(parent, "update", update);
}

static void add_write(bson_t *parent, const truce_write *write)
{
    static const char *const kinds[] = {"",       "insert",  "update",
                                        "remove", "require", "require_missing"};

    BSON_APPEND_UTF8(parent, "kind", kinds[write->kind]);
    BSON_APPEND_UTF8(parent, "collection", write->collection);
    if (write->kind != TRUCE_WRITE_INSERT)
        BSON_APPEND_DOCUMENT(parent, "filter", write->filter);
    if (write->kind == TRUCE_WRITE_INSERT)
        BSON_APPEND_DOCUMENT(parent, "document", write->document);
    if (write->kind == TRUCE_WRITE_UPDATE)
        truce__trace_add_update(parent, write->document, write->options.pipeline);
    truce__trace_add_truth(parent, "upsert", write->options.upsert);
    truce__trace_add_truth(parent, "multi", write->options.multi);
    truce__trace_add_array(parent, "arrayFilters", write->options.array_filters);
}

void truce__trace_add_result(bson_t *parent, const truce_write_result *result)
{
    truce__trace_add_number(parent, "matched", result->matched);
    truce__trace_add_number(parent, "modified", result->modified);
    truce__trace_add_number(parent, "inserted", result->inserted);
    truce__trace_add_number(parent, "removed", result->removed);
    if (result->upserted)
        BSON_APPEND_VALUE(parent, "upserted", &result->upserted_id);
}

void truce__trace_element_begin(bson_t *array, size_t number, bson_t *child)
{
    char buffer[16];
    const char *key;

    bson_uint32_to_string((uint32_t)number, &key, buffer, sizeof(buffer));
    BSON_APPEND_DOCUMENT_BEGIN(array, key, child);
}

void truce__trace_add_writes(bson_t *parent, const truce_write *writes, size_t count)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "writes", &array);
    for (size_t i = 0; i < count; i++) {
        truce__trace_element_begin(&array, i, &child);
        add_write(&child, &writes[i]);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}

void truce__trace_add_outcomes(bson_t *parent, const truce_write_outcome *outcomes, size_t count)
{
    bson_t array, child;

    BSON_APPEND_ARRAY_BEGIN(parent, "outcomes", &array);
    for (size_t i = 0; i < count; i++) {
        truce__trace_element_begin(&array, i, &child);
        BSON_APPEND_UTF8(&child, "status", truce_status_name(outcomes[i].status));
        truce__trace_add_result(&child, &outcomes[i].result);
        bson_append_document_end(&array, &child);
    }
    bson_append_array_end(parent, &array);
}
