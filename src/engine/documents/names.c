#include "engine/documents/names.h"

#include "engine/documents/query.h"

static truce_status names_look(struct writer *writer, const struct name_document *document,
                               bool *there, bson_error_t *error)
{
    struct query_context context = {.arena = &writer->arena};
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(document->id));
    const struct collection *collection;
    struct selector selector = {0};
    const struct selection selection = {.selector = &selector, .limit = 1};
    struct gather found = {0};
    truce_status status =
        truce__writer_collection(writer, document->collection, &collection, error);

    if (!status && collection) {
        status = truce__selector_init(filter, false, &selector, error);
        if (!status)
            status = truce__select(&selection, writer, collection, &context, &found, error);
        *there = !status && found.count;
        truce__gather_release(&found);
        truce__selector_release(&selector);
    }
    bson_destroy(filter);
    return status;
}

truce_status truce__names_free(struct writer *writer, const char *name, bson_error_t *error)
{
    struct name_document document;
    bool there = false;
    truce_status status = TRUCE_OK;

    if (writer->names && writer->names->document_of(writer->names, name, &document))
        status = names_look(writer, &document, &there, error);
    return !there ? status
                  : truce__refuse(CODE_COMMAND_NOT_SUPPORTED_ON_VIEW, error,
                                  "Namespace %s is a view, not a collection", document.id);
}

truce_status truce__names_add_collection(struct writer *writer, const char *name,
                                         bson_error_t *error)
{
    truce_status status = truce__names_free(writer, name, error);

    if (status)
        return status;
    status = truce__catalog_add_collection(writer->kv, name, error);
    truce__writer_catalog_changed(writer);
    return status;
}
