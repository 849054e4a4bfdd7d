/*
 * Collections and their indexes. Indexes are made when the documents are there: that is faster, and
 * a unique one does not refuse a document for the sake of another that has moved on. Those that expire
 * documents come last of all, behind the comparison: a server would begin to remove at once.
 *
 * An index that the other store cannot make is a difference, and ends nothing; so is a validator.
 */
#include "maintenance/copy.h"

#include <string.h>

#include "query/index/index_set.h"
#include "store/file/file.h"

static const char *index_name_of(const bson_t *index)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, index, "name") && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

static bool expires(const bson_t *index)
{
    return bson_has_field(index, "expireAfterSeconds");
}

/* An index of a sharded collection's key, or another hashed one: it belongs to the cluster, and no other store
 * makes one. */
static bool is_hashed(const bson_t *index)
{
    bson_iter_t iter, field;

    if (!bson_iter_init_find(&iter, index, "key") || !bson_iter_recurse(&iter, &field))
        return false;
    while (bson_iter_next(&field)) {
        if (BSON_ITER_HOLDS_UTF8(&field) && !strcmp(bson_iter_utf8(&field, NULL), "hashed"))
            return true;
    }
    return false;
}

/* It stays where it is. */
static bool is_left_out(const bson_t *index)
{
    return !strcmp(index_name_of(index), "_id_") || is_hashed(index);
}

/* The index of that name in a list. */
static bool index_find_in(const bson_t *indexes, const char *name, bson_t *found)
{
    struct fields fields = truce__fields(truce__value_document(indexes));

    while (truce__fields_next(&fields)) {
        truce__value_bson(fields.value, found);
        if (!strcmp(index_name_of(found), name))
            return true;
    }
    return false;
}

/* Both lists; empty where the collection is not there. */
static truce_status list_both(struct copy *copy, const struct copy_part *part, bson_t *from,
                              bson_t *to, bson_error_t *error)
{
    truce_status status = truce_index_list(copy->from, part->collection, from, error);

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (status) {
        bson_init(to);
        return status;
    }
    status = truce_index_list(copy->to, part->collection, to, error);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status index_make_collection(struct copy *copy, const struct copy_part *part,
                                          bson_error_t *error)
{
    truce_status status = truce_collection_create(copy->to, part->collection, error);

    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

static truce_status index_make_index(struct copy *copy, struct copy_part *part, const bson_t *index,
                                     bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status = truce_index_create(copy->to, part->collection, index, &caught);

    if (status == TRUCE_INVALID || status == TRUCE_DUPLICATE || status == TRUCE_LIMIT) {
        truce__copy_index_differs(copy, part, index_name_of(index), caught.message);
        return TRUCE_OK;
    }
    if (status && error)
        *error = caught;
    part->indexes += !status;
    return status;
}

truce_status truce__copy_indexes(struct copy *copy, struct copy_part *part, bool expiring,
                                 bson_error_t *error)
{
    struct fields fields;
    bson_t from, to;
    truce_status status = index_make_collection(copy, part, error);

    if (status || copy->options.no_indexes)
        return status;
    status = list_both(copy, part, &from, &to, error);
    fields = truce__fields(truce__value_document(&from));
    while (!status && truce__fields_next(&fields)) {
        bson_t index, there;

        truce__value_bson(fields.value, &index);
        if (is_left_out(&index) || expires(&index) != expiring)
            continue;
        if (!index_find_in(&to, index_name_of(&index), &there) || !bson_equal(&index, &there))
            status = index_make_index(copy, part, &index, error);
    }
    bson_destroy(&from);
    bson_destroy(&to);
    return status;
}

static truce_status copy_validator(struct copy *copy, const struct copy_part *part,
                                   bson_error_t *error)
{
    bson_error_t caught = {0};
    truce_status status;

    if (!part->validator)
        return TRUCE_OK;
    status = truce_collection_validate(copy->to, part->collection, part->validator, &caught);
    if (status == TRUCE_INVALID) {
        truce__copy_index_differs(copy, part, "validator", caught.message);
        return TRUCE_OK;
    }
    if (status && error)
        *error = caught;
    return status;
}

truce_status truce__copy_options(struct copy *copy, const struct copy_part *part,
                                 bson_error_t *error)
{
    truce_status status;

    if (part->rights != COPY_EVERYTHING)
        return TRUCE_OK;
    status = copy_validator(copy, part, error);
    if (!status && part->images)
        status = truce__file_keep_images(copy->to, part->collection, true, error);
    return status;
}

truce_status truce__copy_indexes_compare(struct copy *copy, struct copy_part *part,
                                         bson_error_t *error)
{
    struct fields fields;
    bson_t from, to;
    truce_status status;

    if (copy->options.no_indexes)
        return TRUCE_OK;
    status = list_both(copy, part, &from, &to, error);
    fields = truce__fields(truce__value_document(&from));
    while (!status && truce__fields_next(&fields)) {
        bson_t index, there;

        truce__value_bson(fields.value, &index);
        if (is_left_out(&index))
            continue;
        if (!index_find_in(&to, index_name_of(&index), &there))
            truce__copy_index_differs(copy, part, index_name_of(&index), "it is missing");
        else if (!bson_equal(&index, &there))
            truce__copy_index_differs(copy, part, index_name_of(&index), "it is defined otherwise");
    }
    bson_destroy(&from);
    bson_destroy(&to);
    return status;
}
