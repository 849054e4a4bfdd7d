/* The public verbs about indexes and collections; store.c says what a wrapper does. */
#include "store/answer.h"

#include "base/assert.h"
#include "base/reserved_fields.h"
#include "query/incoming.h"
#include "store/view.h"

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce_index_create(truce_store *store, const char *collection, const bson_t *index,
                                bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__check_required(index, "index", error);
    if (status)
        return status;
    if (truce__is_view(store))
        return truce__view_index(store, collection, index, error);
    status = store->ops->index_create(store, collection, index, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce__index_ensure(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    bson_error_t why = {0};
    bool there = false;
    bson_t indexes;
    truce_status status = truce_index_create(store, collection, index, &why);

    if (!status)
        return TRUCE_OK;
    if (why.domain == TRUCE_ERROR_SERVER && why.code == CODE_INDEX_OPTIONS_CONFLICT) {
        if (!truce_index_list(store, collection, &indexes, NULL))
            there = truce__index_is_kept(&indexes, index);
        bson_destroy(&indexes);
    }
    if (!there && error)
        *error = why;
    return there ? TRUCE_OK : status;
}

truce_status truce_index_drop(truce_store *store, const char *collection, const char *name,
                              bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__view_guard(store, "drop an index of", collection, error);
    if (status)
        return status;
    status = store->ops->index_drop(store, collection, name, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_index_modify(truce_store *store, const char *collection, const char *name,
                                const bson_t *changes, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__check_required(changes, "changes of an index", error);
    if (!status)
        status = truce__view_guard(store, "change an index of", collection, error);
    if (status)
        return status;
    status = store->ops->index_modify(store, collection, name, changes, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_index_list(truce_store *store, const char *collection, bson_t *indexes,
                              bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (status) {
        bson_init(indexes);
        return status;
    }
    status = store->ops->index_list(store, collection, indexes, &caught);
    truce_assert(status || bson_has_field(indexes, "0.name"));
    return truce__pass_error(status, &caught, error);
}

/* ---- collections ---------------------------------------------------------------------------- */

truce_status truce_collection_create(truce_store *store, const char *collection,
                                     bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__view_guard(store, "create", collection, error);
    if (status)
        return status;
    status = store->ops->collection_create(store, collection, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_drop(truce_store *store, const char *collection, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!status)
        status = truce__view_guard(store, "drop", collection, error);
    if (status)
        return status;
    status = store->ops->collection_drop(store, collection, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_rename(truce_store *store, const char *from, const char *to,
                                     bool drop_target, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(from, error);

    if (!status)
        status = truce__collection_name_check(to, error);
    if (!status && !strcmp(from, to))
        status = truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "a collection cannot be renamed to its own name (%s)", from);
    if (!status)
        status = truce__view_guard(store, "rename", from, error);
    if (status)
        return status;
    status = store->ops->collection_rename(store, from, to, drop_target, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_validate(truce_store *store, const char *collection,
                                       const bson_t *validator, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    bson_error_t caught = {0};
    truce_status status = truce__collection_name_check(collection, error);

    if (!validator)
        validator = &none;
    if (!status)
        status = truce__check_required(validator, "validator", error);
    if (!status)
        status = truce__view_guard(store, "set the validator of", collection, error);
    if (status)
        return status;
    status = store->ops->collection_validate(store, collection, validator, &caught);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_collection_list(truce_store *store, const truce_list_options *options,
                                   bson_t *collections, bson_error_t *error)
{
    static const truce_list_options defaults = {0};
    bson_error_t caught = {0};
    truce_status status = ROOM_CHECK(options, "truce_list_options", error);

    if (status) {
        bson_init(collections);
        return status;
    }
    status =
        store->ops->collection_list(store, options ? options : &defaults, collections, &caught);
    truce_assert(collections->len >= 5);
    return truce__pass_error(status, &caught, error);
}

truce_status truce_settle(truce_store *store, bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = store->ops->settle ? store->ops->settle(store, &caught) : TRUCE_OK;

    return truce__pass_error(status, &caught, error);
}
