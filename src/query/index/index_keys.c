/*
 * The keys of a document in an index: those of its fields (sort/field_keys.c), unless a partial
 * filter excludes the document or the index is a wildcard.
 *
 * A wildcard index has one key for each leaf below its root: (path, value). The elements of an
 * array count as values of the array's path. Leaves are also arrays directly inside of arrays,
 * empty documents, and empty arrays (as undefined). `_id` is left out if the root is the whole
 * document. The rules are those of MongoDB's WildcardKeyGenerator.
 */
#include "query/index/index.h"

#include "query/match/match.h"

static const struct value undefined = {NULL, 0, BSON_TYPE_UNDEFINED};

/* ---- wildcard ------------------------------------------------------------------------------- */

static truce_status wildcard_leaf(struct field_keys *keys, const struct buffer *path,
                                  struct value value, bson_error_t *error)
{
    truce__key_append_path(&keys->bytes, (const char *)path->bytes, path->size);
    truce__key_append(&keys->bytes, value, false);
    return truce__field_keys_end(keys, error);
}

static bool keys_is_empty(struct value container)
{
    return container.data[4] == 0;
}

static truce_status wildcard_below(struct field_keys *keys, struct value container, bool is_root,
                                   struct buffer *path, bson_error_t *error);

/* Appends the keys of one field (or element, if `in_array`), whose path is in `path` already. */
static truce_status wildcard_value(struct field_keys *keys, struct value value, bool in_array,
                                   struct buffer *path, bson_error_t *error)
{
    bool is_array = value.type == BSON_TYPE_ARRAY;

    if (!truce__value_is_container(value) || (is_array && in_array))
        return wildcard_leaf(keys, path, value, error);
    if (is_array) {
        keys->multikey = true;
        keys->multikey_fields = 1;
    }
    if (keys_is_empty(value))
        return wildcard_leaf(keys, path, is_array ? undefined : value, error);
    return wildcard_below(keys, value, false, path, error);
}

/* Adds the keys of a wildcard index for all fields below a document or array. `path` is the path so
 * far; elements of an array have the path of the array. */
static truce_status wildcard_below(struct field_keys *keys, struct value container, bool is_root,
                                   struct buffer *path, bson_error_t *error)
{
    bool in_array = container.type == BSON_TYPE_ARRAY;
    struct fields fields = truce__fields(container);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        size_t before = path->size;

        if (memchr(fields.key, '.', fields.key_length) || (is_root && !strcmp(fields.key, "_id")))
            /* A field whose name has a dot gets no key, because no query can name it. */
            continue;
        if (!in_array) {
            if (!is_root)
                truce__buffer_append_byte(path, '.');
            truce__buffer_append(path, fields.key, fields.key_length);
        }
        status = wildcard_value(keys, fields.value, in_array, path, error);
        path->size = before;
    }
    return status;
}

/* Walks to the root of the wildcard, also through arrays of documents. */
static truce_status wildcard_root(const struct key_field *field, uint32_t at, struct value value,
                                  bool in_array, struct field_keys *keys, struct buffer *path,
                                  bson_error_t *error)
{
    struct fields elements;
    truce_status status = TRUCE_OK;

    if (at == field->path.count)
        return wildcard_value(keys, value, in_array, path, error);
    if (value.type == BSON_TYPE_DOCUMENT) {
        const struct path_part *part = &field->path.parts[at];
        struct value next = truce__value_field(value, part->name, part->length);
        return next.type ? wildcard_root(field, at + 1, next, false, keys, path, error) : TRUCE_OK;
    }
    if (value.type != BSON_TYPE_ARRAY || in_array)
        return TRUCE_OK;
    keys->multikey = true;
    keys->multikey_fields = 1;
    elements = truce__fields(value);
    while (!status && truce__fields_next(&elements))
        status = wildcard_root(field, at, elements.value, true, keys, path, error);
    return status;
}

static truce_status wildcard_keys(const struct key_field *field, struct value document,
                                  struct field_keys *keys, bson_error_t *error)
{
    struct buffer path = {0};
    truce_status status;

    if (field->path.count == 0) {
        status = wildcard_below(keys, document, true, &path, error);
    } else {
        truce__buffer_append(&path, field->path.text, field->path.length);
        status = wildcard_root(field, 0, document, false, keys, &path, error);
    }
    truce__buffer_release(&path);
    return status;
}

truce_status truce__index_keys(const struct index_spec *spec, struct value document,
                               struct field_keys *keys, bson_error_t *error)
{
    keys->bounded = true;
    if (spec->partial) {
        struct match_result found;
        truce_status status = truce__match_test(spec->partial, document, NULL, &found, error);

        if (status)
            return status;
        if (!found.matched) {
            truce__field_keys_clear(keys);
            return TRUCE_OK;
        }
    }
    if (spec->fields[0].wildcard) {
        truce_status status;

        truce__field_keys_clear(keys);
        status = wildcard_keys(&spec->fields[0], document, keys, error);
        if (!status)
            truce__field_keys_sort(keys);
        return status;
    }
    return truce__field_keys(spec->fields, spec->count, spec->sparse, document, keys, error);
}
