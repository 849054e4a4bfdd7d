/*
 * Collections that a transaction has made, as part of its commit. They are empty, so their indexes are ready at once: no document
 * has to be entered, and none can repeat a key. What the transaction wrote there comes behind it, like any other write.
 */
#include "engine/documents/bulk_make.h"

#include "bson/value.h"
#include "engine/documents/feed.h"
#include "engine/documents/names.h"
#include "query/index/index.h"

static void bulk_make_changed(struct writer *writer, const char *collection)
{
    truce__writer_catalog_changed(writer);
    truce__cache_close(writer->cache);
    truce__writer_touch(writer, collection);
}

static truce_status bulk_make_make_index(struct writer *writer, const char *name,
                                         const bson_t *definition, bson_error_t *error)
{
    const struct collection *collection;
    struct index_spec spec;
    truce_status status = truce__index_spec_parse(definition, &spec, error);
    int64_t id;

    if (status)
        return status;
    if (!spec.is_id) {
        status = truce__writer_collection(writer, name, &collection, error);
        if (!status)
            status =
                truce__catalog_add_index(writer->kv, collection, &spec, INDEX_READY, &id, error);
        bulk_make_changed(writer, name);
        if (!status)
            status = truce__writer_collection(writer, name, &collection, error);
        if (!status)
            status = truce__feed_tell_index(writer, FEED_INDEX, collection, &spec, error);
    }
    truce__index_spec_release(&spec);
    return status;
}

static truce_status bulk_make_make_validator(struct writer *writer, const truce_making *making,
                                             bson_error_t *error)
{
    const struct collection *collection;
    truce_status status;

    if (bson_empty(making->validator))
        return TRUCE_OK;
    status = truce__writer_collection(writer, making->collection, &collection, error);
    if (!status)
        status = truce__catalog_change_validator(writer->kv, collection, making->validator, error);
    bulk_make_changed(writer, making->collection);
    return status;
}

static truce_status bulk_make_make(struct writer *writer, const truce_making *making,
                                   bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(making->indexes));
    const struct collection *collection;
    truce_status status = truce__writer_collection(writer, making->collection, &collection, error);

    if (status)
        return status;
    if (collection)
        return truce__refuse(CODE_WRITE_CONFLICT, error, "%s was made by somebody else",
                             making->collection);
    status = truce__names_add_collection(writer, making->collection, error);
    if (status)
        return status;
    bulk_make_changed(writer, making->collection);
    status = bulk_make_make_validator(writer, making, error);
    if (!status)
        status = truce__feed_tell_made(writer, making->collection, error);
    while (!status && truce__fields_next(&fields)) {
        bson_t definition;

        truce__value_bson(fields.value, &definition);
        status = bulk_make_make_index(writer, making->collection, &definition, error);
    }
    return status;
}

truce_status truce__bulk_make(const struct truce_read_checks *checks, struct writer *writer,
                              bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < checks->makings_count && !status; i++)
        status = bulk_make_make(writer, &checks->makings[i], error);
    return status;
}
