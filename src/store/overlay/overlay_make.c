/*
 * Collections and indexes that a transaction makes. They are made in the scratch, and in the store by the commit
 * (engine/documents/bulk_make.c), where each must be as new as it is in the view.
 *
 * An index is made of a collection that is new and empty, as in MongoDB: of another the documents would have to be entered,
 * which stand in the view and may change until the commit. One that is there already is no change. A collection that comes
 * to be by a write alone is none of these: whoever makes it first, the writes of both go there.
 */
#include "base/assert.h"
#include "base/field.h"
#include "store/overlay/overlay_parts.h"
#include "store/view.h"

static truce_status is_in_view(struct overlay *overlay, const char *name, bool *is,
                               bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(overlay->view, name, &indexes, error);

    *is = !status;
    bson_destroy(&indexes);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status has_documents(struct overlay *overlay, const char *name, bool *has,
                                  bson_error_t *error)
{
    int64_t count;
    truce_status status = truce_count(overlay->scratch, name, NULL, NULL, &count, error);

    *has = !status && count;
    return status;
}

/* ---- collections ---------------------------------------------------------------------------- */

truce_status truce__overlay_create(truce_store *base, const char *name, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, name);
    bool there, written = false;
    truce_status status = is_in_view(overlay, name, &there, error);

    if (!status)
        status = has_documents(overlay, name, &written, error);
    if (!status && (there || written || part->made))
        return truce__refuse(CODE_NAMESPACE_EXISTS, error, "the collection %s exists", name);
    if (!status)
        status = truce__overlay_prepare(overlay, part, error);
    part->made = part->made || !status;
    return status;
}

/* The scratch says whether it may be one, and gets it with each write. */
truce_status truce__overlay_validate(truce_store *base, const char *name, const bson_t *validator,
                                     bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, name);
    truce_status status;

    if (!part->made)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "the validator of %s, which is not new, cannot be set in a "
                             "transaction",
                             name);
    status = truce_collection_validate(overlay->scratch, name, validator, error);
    if (!status)
        status = truce_collection_validate(overlay->scratch, name, NULL, error);
    if (status)
        return status;
    bson_destroy(&part->validator);
    bson_copy_to(validator, &part->validator);
    return TRUCE_OK;
}

/* Those of the scratch that the view has not, and that are there. */
static truce_status overlay_make_append_new(struct overlay *overlay, const bson_t *scratch,
                                            bson_t *collections, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(scratch));
    uint32_t count = bson_count_keys(collections);
    bson_t facts, *view = bson_copy(collections);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        struct fields known = truce__fields(truce__value_document(view));
        const char *name;
        bool is_known = false, written = false;
        bson_t other;

        truce__value_bson(fields.value, &facts);
        name = truce__field_text(&facts, "name");
        while (!is_known && truce__fields_next(&known)) {
            truce__value_bson(known.value, &other);
            is_known = !strcmp(truce__field_text(&other, "name"), name);
        }
        if (is_known)
            continue;
        status = has_documents(overlay, name, &written, error);
        if (!status && (truce__overlay_part(overlay, name)->made || written))
            truce__value_append_element(collections, &count, fields.value);
    }
    bson_destroy(view);
    return status;
}

/* Of those that are not new, documents and bytes are the view's. */
truce_status truce__overlay_list(truce_store *base, const truce_list_options *options,
                                 bson_t *collections, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    truce_status status = truce_collection_list(overlay->view, options, collections, error);
    bson_t scratch;

    if (status)
        return status;
    status = truce_collection_list(overlay->scratch, options, &scratch, error);
    if (!status)
        status = overlay_make_append_new(overlay, &scratch, collections, error);
    bson_destroy(&scratch);
    return status;
}

/* ---- indexes -------------------------------------------------------------------------------- */

truce_status truce__overlay_index_list(truce_store *base, const char *name, bson_t *indexes,
                                       bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    truce_status status = truce_index_list(overlay->view, name, indexes, error);
    bool written = false;

    if (status != TRUCE_NOT_FOUND)
        return status;
    if (has_documents(overlay, name, &written, error) ||
        (!written && !truce__overlay_part(overlay, name)->made))
        return status;
    bson_destroy(indexes);
    return truce_index_list(overlay->scratch, name, indexes, error);
}

static truce_status refuse_index(const char *name, const char *why, bson_error_t *error)
{
    return truce__refuse(
        CODE_NOT_IN_TRANSACTION, error,
        "an index of %s has to be made, which %s: a transaction cannot make it, do "
        "the same once outside of one",
        name, why);
}

static truce_status overlay_make_make_index(struct overlay *overlay, struct collection_part *part,
                                            const bson_t *index, bson_error_t *error)
{
    bool written;
    truce_status status = has_documents(overlay, part->name, &written, error);

    if (!status && written)
        return refuse_index(part->name, "has documents already", error);
    if (!status)
        status = truce__overlay_prepare(overlay, part, error);
    if (!status)
        status = truce__overlay_keep_index(overlay, part, index, error);
    part->made = part->made || !status;
    return status;
}

truce_status truce__overlay_index_create(truce_store *base, const char *name, const bson_t *index,
                                         bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    bool in_view, there = false;
    bson_t indexes;
    truce_status status = is_in_view(overlay, name, &in_view, error);

    if (status)
        return status;
    status = truce__overlay_index_list(base, name, &indexes, error);
    if (!status)
        status = truce__index_is_among(&indexes, index, &there, error);
    bson_destroy(&indexes);
    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (there)
        return TRUCE_OK;
    return in_view
               ? refuse_index(name, "is not new", error)
               : overlay_make_make_index(overlay, truce__overlay_part(overlay, name), index, error);
}

/* ---- the commit ------------------------------------------------------------------------------ */

truce_status truce__overlay_makings(struct overlay *overlay, struct makings *makings,
                                    bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    size_t most = 0;

    for (const struct collection_part *part = overlay->parts; part; part = part->next)
        most += part->made;
    *makings = (struct makings){0};
    if (!most)
        return TRUCE_OK;
    makings->all = bson_malloc0(most * sizeof *makings->all);
    makings->indexes = bson_aligned_alloc0(_Alignof(bson_t), most * sizeof *makings->indexes);
    for (const struct collection_part *part = overlay->parts; part && !status; part = part->next) {
        bson_t *indexes = &makings->indexes[makings->count];

        if (!part->made)
            continue;
        makings->all[makings->count++] = (truce_making){
            .collection = part->name, .indexes = indexes, .validator = &part->validator};
        status = truce_index_list(overlay->scratch, part->name, indexes, error);
    }
    return status;
}

void truce__overlay_makings_release(struct makings *makings)
{
    for (size_t i = 0; i < makings->count; i++)
        bson_destroy(&makings->indexes[i]);
    bson_free(makings->indexes);
    bson_free(makings->all);
}
