/*
 * Whole documents: replacements, and what an update pipeline gives.
 *
 * The new document is stored as given, with these exceptions:
 *   1. `_id` stays, and stands first, wherever the replacement has it or not. A replacement may
 *      name another number of the same value (1.0 for 1): it is equal, so it is taken.
 *   2. A Timestamp(0, 0) at the top level of a replacement, but not as `_id`, becomes the current
 *      time.
 *   3. No top-level name of a replacement begins with "$" (52); a pipeline may give such names, and
 *      so may an upsert, which inserts.
 *
 * The document counts as modified unless what was given is the old one byte by byte: a replacement
 * without `_id` always modifies.
 */
#include "query/update/update_tree.h"

#include "base/assert.h"
#include "base/limits.h"
#include "bson/field_table.h"

static bool replace_is_id(const struct fields *field)
{
    return field->key_length == 3 && memcmp(field->key, "_id", 3) == 0;
}

truce_status truce__update_check_id(struct value id, bson_error_t *error)
{
    struct fields fields;

    if (id.type == BSON_TYPE_ARRAY || id.type == BSON_TYPE_REGEX || id.type == BSON_TYPE_UNDEFINED)
        return truce__refuse(CODE_INVALID_ID_FIELD, error, "'_id' cannot be %s",
                             truce__type_name(id.type));
    if (id.type != BSON_TYPE_DOCUMENT)
        return TRUCE_OK;
    fields = truce__fields(id);
    while (truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                                 "'_id' has the field '%s': names in it do not begin with '$'",
                                 fields.key);
    }
    return TRUCE_OK;
}

static truce_status replace_check_names(struct value document, bson_error_t *error)
{
    struct fields fields = truce__fields(document);

    while (truce__fields_next(&fields)) {
        if (fields.key[0] == '$')
            return truce__refuse(CODE_DOLLAR_PREFIXED_FIELD_NAME, error,
                                 "the field '%s' of the replacement begins with '$'; a pipeline "
                                 "with $replaceWith could store that",
                                 fields.key);
    }
    return TRUCE_OK;
}

static truce_status check_replacement(struct value old_id, struct value new_id,
                                      struct value replacement, bool insert, bool dollar_names,
                                      bson_error_t *error)
{
    char before[128], after[128];
    truce_status status = TRUCE_OK;

    if (!insert && !dollar_names)
        status = replace_check_names(replacement, error);
    if (!status && !insert)
        status = truce__update_check_id(new_id, error);
    if (status)
        return status;
    if ((new_id.type == VALUE_MISSING ? old_id : new_id).type == BSON_TYPE_ARRAY)
        return truce__refuse(CODE_NOT_SINGLE_VALUE_FIELD, error, "'_id' cannot be an array");
    if (old_id.type != VALUE_MISSING && new_id.type != VALUE_MISSING &&
        !truce__value_equal(old_id, new_id))
        return truce__refuse(CODE_IMMUTABLE_FIELD, error,
                             "'_id' is %s and cannot become %s: it never changes",
                             truce__value_show(old_id, before, sizeof before),
                             truce__value_show(new_id, after, sizeof after));
    if (truce__update_depth(replacement) > TRUCE_DOCUMENT_DEPTH_MAX)
        return truce__refuse(CODE_OVERFLOW, error, "the new document nests deeper than %d",
                             TRUCE_DOCUMENT_DEPTH_MAX);
    return TRUCE_OK;
}

truce_status truce__update_replace(struct value before, struct value replacement, bool insert,
                                   bool dollar_names, bson_t *after, bson_error_t *error)
{
    struct value old_id = truce__value_field(before, "_id", 3);
    struct value new_id = truce__value_field(replacement, "_id", 3);
    struct fields fields = truce__fields(replacement);
    truce_status status =
        check_replacement(old_id, new_id, replacement, insert, dollar_names, error);

    if (status)
        return status;
    if ((uint64_t)replacement.size + old_id.size > TRUCE_DOCUMENT_BYTES_MAX + 5)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the new document is larger than %d bytes", TRUCE_DOCUMENT_BYTES_MAX);
    truce__value_append(after, "_id", 3, new_id.type == VALUE_MISSING ? old_id : new_id);
    while (truce__fields_next(&fields)) {
        if (!replace_is_id(&fields))
            truce__value_append(after, fields.key, fields.key_length, fields.value);
    }
    if (after->len > TRUCE_DOCUMENT_BYTES_MAX)
        return truce__refuse(CODE_BSON_OBJECT_TOO_LARGE, error,
                             "the new document is larger than %d bytes", TRUCE_DOCUMENT_BYTES_MAX);
    return TRUCE_OK;
}

/* exception 2; a copy in the arena, only if there is such a field */
static struct value replace_stamp(struct value document, const struct query_context *context)
{
    struct fields fields = truce__fields(document);
    struct value stamped = document;

    while (truce__fields_next(&fields)) {
        uint64_t now = truce__update_timestamp(context);

        if (!truce__value_is_empty_timestamp(fields.value) || replace_is_id(&fields))
            continue;
        if (stamped.data == document.data)
            stamped = truce__value_copy(context->arena, document);
        memcpy((uint8_t *)stamped.data + (fields.value.data - document.data), &now, 8);
    }
    return stamped;
}

/* the fields of `document` in the order in which `order` has them, then its others */
static truce_status reorder(struct arena *arena, struct value order, struct value document,
                            struct value *result, bson_error_t *error)
{
    struct fields fields = truce__fields(order);
    struct field_table table;
    struct builder builder;
    bool fits = true;

    truce__field_table_begin(&table, arena, TRUCE_STAGE_MEMORY_MAX);
    while (fits && truce__fields_next(&fields))
        fits =
            truce__field_table_set(&table, fields.key, fields.key_length, truce__value_missing());
    fields = truce__fields(document);
    while (fits && truce__fields_next(&fields))
        fits = truce__field_table_set(&table, fields.key, fields.key_length, fields.value);
    if (!fits)
        return truce__refuse(CODE_EXCEEDED_MEMORY_LIMIT, error,
                             "the update pipeline wants more than %d bytes of memory",
                             TRUCE_STAGE_MEMORY_MAX);
    truce__builder_begin(&builder, arena, TRUCE_STAGE_MEMORY_MAX, BSON_TYPE_DOCUMENT);
    truce__field_table_write(&table, &builder);
    return truce__builder_finish(&builder, result, error);
}

/* Stages that set and remove fields of one document leave each its place: a field that is removed
 * and set again stands where it stood. */
bool truce__update_keeps_order(const bson_t *stages)
{
    struct fields stage = truce__fields(truce__value_document(stages));
    bool removes = false;

    while (truce__fields_next(&stage)) {
        struct fields name = truce__fields(stage.value);

        if (!truce__fields_next(&name))
            return false;
        if (strcmp(name.key, "$unset") == 0)
            removes = true;
        else if (strcmp(name.key, "$set") != 0 && strcmp(name.key, "$addFields") != 0)
            return false;
    }
    return removes;
}

truce_status truce__update_whole(const struct update *update, struct value before,
                                 struct query_context *context, struct value *replacement,
                                 bson_error_t *error)
{
    bson_t result;
    truce_status status;

    if (update->kind == UPDATE_REPLACEMENT) {
        *replacement = replace_stamp(truce__value_document(update->source), context);
        return TRUCE_OK;
    }
    status = truce__pipeline_apply(update->pipeline, before, context, &result, error);
    if (!status)
        *replacement = truce__value_from_bson(context->arena, &result, false);
    bson_destroy(&result);
    if (!status && update->keeps_order)
        status = reorder(context->arena, before, *replacement, replacement, error);
    return status;
}
