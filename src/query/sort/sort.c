/*
 * The order of a sort specification.
 *
 * A document's sort key is the least of the keys that an index of the same fields would have for
 * it. An array therefore sorts by its least element in ascending and by its greatest in descending
 * order. Missing fields sort as null, and empty arrays before null. A sort has the same order
 * whether an index or memory serves it. A document without arrays on the paths has one key and
 * takes a shortcut.
 */
#include "query/sort/sort.h"

#include "base/limits.h"
#include "bson/field_path.h"
#include "bson/number.h"
#include "bson/refuse_value.h"

/* Reads the direction of a field of a sort: 1 or -1. */
static truce_status parse_direction(const struct fields *at, bool *descending, bson_error_t *error)
{
    int64_t direction;

    if (at->value.type == BSON_TYPE_DOCUMENT)
        return truce__refuse(15974, error, "sort '%s': $meta is not supported, give 1 or -1",
                             at->key);
    if (!truce__value_is_number(at->value))
        return truce__refuse_value(15974, at->value, error,
                                   "sort '%s' must be 1 (ascending) or -1 (descending)", at->key);
    if (!truce__number_to_int64(at->value, &direction) || (direction != 1 && direction != -1))
        return truce__refuse_value(15975, at->value, error,
                                   "sort '%s' must be 1 (ascending) or -1 (descending)", at->key);
    *descending = direction < 0;
    return TRUCE_OK;
}

static truce_status sort_parse_field(const struct fields *at, struct key_field *field,
                                     bson_error_t *error)
{
    truce_status status = truce__field_path_check(at->key, at->key_length, error);

    if (!status)
        status = parse_direction(at, &field->descending, error);
    return status ? status : truce__path_parse(at->key, at->key_length, &field->path, error);
}

truce_status truce__sort_parse(const bson_t *specification, struct sort *sort, bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(specification));
    truce_status status = TRUCE_OK;

    *sort = (struct sort){.fields = bson_malloc0(TRUCE_INDEX_FIELDS_MAX * sizeof *sort->fields)};
    while (!status && truce__fields_next(&fields)) {
        if (sort->count == TRUCE_INDEX_FIELDS_MAX)
            status =
                truce__refuse(13103, error, "a sort has at most %d fields", TRUCE_INDEX_FIELDS_MAX);
        else
            status = sort_parse_field(&fields, &sort->fields[sort->count++], error);
    }
    if (status)
        truce__sort_release(sort);
    return status;
}

void truce__sort_release(struct sort *sort)
{
    for (uint32_t i = 0; i < sort->count; i++)
        truce__path_release(&sort->fields[i].path);
    bson_free(sort->fields);
    *sort = (struct sort){0};
}

truce_status truce__natural_direction(const bson_t *specification, int *direction,
                                      bson_error_t *error)
{
    struct value value;
    int64_t number;

    *direction = 0;
    if (!specification)
        return TRUCE_OK;
    value = truce__value_field(truce__value_document(specification), "$natural", 8);
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (!truce__value_is_number(value))
        return truce__refuse_value(15974, value, error, "$natural must be 1 or -1");
    if (!truce__number_to_int64(value, &number) || (number != 1 && number != -1))
        return truce__refuse_value(15975, value, error, "$natural must be 1 or -1");
    if (bson_count_keys(specification) > 1)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "a sort or hint by $natural cannot have other fields");
    *direction = (int)number;
    return TRUCE_OK;
}

/* Returns the value at the path. Returns false if an array is on the path or at its end. */
static bool sort_follow(const struct path *path, struct value value, struct value *found)
{
    for (uint32_t i = 0; i < path->count; i++) {
        if (value.type != BSON_TYPE_DOCUMENT) {
            value = truce__value_missing();
            break;
        }
        value = truce__value_field(value, path->parts[i].name, path->parts[i].length);
        *found = value;
        if (value.type == BSON_TYPE_ARRAY)
            return false;
    }
    *found = value;
    return true;
}

/* Appends the sort key of a document: the least one if it has several, because of arrays. */
static truce_status least_key(const struct sort *sort, struct value document, struct buffer *key,
                              bson_error_t *error)
{
    struct field_keys keys = {0};
    bson_error_t why = {0};
    truce_status status =
        truce__field_keys(sort->fields, sort->count, false, document, &keys, &why);

    if (status == TRUCE_OK)
        truce__buffer_append(key, keys.bytes.bytes, keys.ends[0]);
    else if (why.code == CODE_CANNOT_INDEX_PARALLEL_ARRAYS)
        status = truce__refuse(CODE_BAD_VALUE, error, "cannot sort: %s", why.message);
    else if (error)
        *error = why;
    truce__field_keys_release(&keys);
    return status;
}

truce_status truce__sort_key(const struct sort *sort, struct value document, struct buffer *key,
                             bson_error_t *error)
{
    size_t start = key->size;

    for (uint32_t i = 0; i < sort->count; i++) {
        struct value value;

        if (!sort_follow(&sort->fields[i].path, document, &value) &&
            !truce__fields_are_id(sort->fields, sort->count)) {
            key->size = start;
            return least_key(sort, document, key, error);
        }
        if (value.type == VALUE_MISSING && !sort->missing_first)
            value = truce__value_null();
        truce__key_append(key, value, sort->fields[i].descending);
    }
    return TRUCE_OK;
}
