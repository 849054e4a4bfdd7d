/*
 * The rules for several indexes of a collection (index_set.h): which one may be created, which one
 * a hint names, and the error for a duplicate key.
 *
 * Finding the values of a duplicate key. A key is bytes; the error must show the document's own
 * values with their types, which the bytes do not have (1 and 1.0 are one key). The search visits
 * the values that the index could have used at each of its paths and encodes them. It shows the
 * first value whose bytes equal those of the field in the key. No encoding is a prefix of another,
 * so the first match is the right one.
 */
#include "query/index/index_set.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "bson/number.h"

/* ---- sets of indexes ------------------------------------------------------------------------ */

static bool same_document(const bson_t *a, const bson_t *b)
{
    if (!a || !b)
        return a == b;
    return truce__value_equal(truce__value_document(a), truce__value_document(b));
}

bool truce__index_is_same(const struct index_spec *a, const struct index_spec *b)
{
    return a->unique == b->unique && a->sparse == b->sparse && same_document(a->key, b->key) &&
           same_document(a->partial_filter, b->partial_filter);
}

/* Sets `*present` if the index exists already. Fails if an existing one has the same name and
 * another key, or the same key and another name, expireAfterSeconds, or `hidden`. */
static truce_status compare_index(const struct index_spec *there, const struct index_spec *spec,
                                  bool *present, bson_error_t *error)
{
    bool same = truce__index_is_same(there, spec), same_name = !strcmp(there->name, spec->name);

    if (same_name && !same)
        return truce__refuse(CODE_INDEX_KEY_SPECS_CONFLICT, error,
                             "another index already has the name \"%s\"", spec->name);
    if (same && !same_name)
        return truce__refuse(CODE_INDEX_OPTIONS_CONFLICT, error,
                             "the index \"%s\" already exists, with the name \"%s\"", spec->name,
                             there->name);
    if (same && there->expire_after_s != spec->expire_after_s)
        return truce__refuse(CODE_INDEX_OPTIONS_CONFLICT, error,
                             "the index \"%s\" already exists, with another expireAfterSeconds",
                             spec->name);
    if (same && there->hidden != spec->hidden)
        return truce__refuse(CODE_INDEX_OPTIONS_CONFLICT, error,
                             "the index \"%s\" already exists, and is %s", spec->name,
                             there->hidden ? "hidden" : "not hidden");
    *present = *present || same;
    return TRUCE_OK;
}

truce_status truce__index_admit(const struct index_spec *const *indexes, uint32_t count,
                                const struct index_spec *spec, bool *present, bson_error_t *error)
{
    /* Each collection has the index of _id, so it exists under any name. */
    *present = spec->is_id;
    if (*present)
        return TRUCE_OK;
    for (uint32_t i = 0; i < count; i++) {
        truce_status status = compare_index(indexes[i], spec, present, error);

        if (status)
            return status;
    }
    if (!*present && count >= TRUCE_INDEXES_MAX)
        return truce__refuse(CODE_CANNOT_CREATE_INDEX, error,
                             "a collection may have at most %d indexes", TRUCE_INDEXES_MAX);
    return TRUCE_OK;
}

truce_status truce__index_missing(const char *name, const char *collection, bson_error_t *error)
{
    return truce__refuse(CODE_INDEX_NOT_FOUND, error, "the index \"%s\" does not exist in %s", name,
                         collection);
}

void truce__index_describe(const struct index_spec *spec, bson_t *definition)
{
    bson_init(definition);
    BSON_APPEND_INT32(definition, "v", 2);
    BSON_APPEND_DOCUMENT(definition, "key", spec->key);
    BSON_APPEND_UTF8(definition, "name", spec->name);
    if (spec->unique && !spec->is_id)
        BSON_APPEND_BOOL(definition, "unique", true);
    if (spec->sparse)
        BSON_APPEND_BOOL(definition, "sparse", true);
    if (spec->partial_filter)
        BSON_APPEND_DOCUMENT(definition, "partialFilterExpression", spec->partial_filter);
    if (spec->expire_after_s >= 0)
        BSON_APPEND_INT64(definition, "expireAfterSeconds", spec->expire_after_s);
    if (spec->hidden)
        BSON_APPEND_BOOL(definition, "hidden", true);
}

truce_status truce__index_spec_copy(const struct index_spec *spec, struct index_spec *copy,
                                    bson_error_t *error)
{
    bson_t definition;
    truce_status status;

    truce__index_describe(spec, &definition);
    status = truce__index_spec_parse(&definition, copy, error);
    bson_destroy(&definition);
    return status;
}

void truce__index_spec_of_id(struct index_spec *spec)
{
    bson_t definition = BSON_INITIALIZER, key;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&definition, "key", &key);
    BSON_APPEND_INT32(&key, "_id", 1);
    bson_append_document_end(&definition, &key);
    BSON_APPEND_UTF8(&definition, "name", "_id_");
    status = truce__index_spec_parse(&definition, spec, NULL);
    truce_assert(status == TRUCE_OK);
    spec->unique = true;
    bson_destroy(&definition);
}

/* Returns the name in a hint {"": "name"}, or NULL for any other hint. */
static const char *hint_name(const bson_t *hint)
{
    struct fields fields = truce__fields(truce__value_document(hint));
    uint32_t length;

    if (!truce__fields_next(&fields) || fields.key_length || fields.value.type != BSON_TYPE_UTF8)
        return NULL;
    return truce__value_text(fields.value, &length);
}

truce_status truce__index_hint(const struct index_spec *const *indexes, uint32_t count,
                               const bson_t *hint, int64_t *number, bson_error_t *error)
{
    const char *name = hint ? hint_name(hint) : NULL;
    char shown[200];

    *number = -1;
    if (!hint || bson_empty(hint) || bson_has_field(hint, "$natural"))
        return TRUCE_OK;
    for (uint32_t i = 0; i < count && *number < 0; i++)
        if (name ? !strcmp(name, indexes[i]->name) : same_document(hint, indexes[i]->key))
            *number = i;
    if (*number < 0 && name)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the index \"%.200s\" of the hint does not exist", name);
    if (*number < 0)
        return truce__refuse(CODE_BAD_VALUE, error, "no index has the key pattern of the hint, %s",
                             truce__value_show(truce__value_document(hint), shown, sizeof(shown)));
    if (indexes[*number]->hidden)
        return truce__refuse(CODE_BAD_VALUE, error, "the index of the hint, \"%s\", is hidden",
                             indexes[*number]->name);
    return TRUCE_OK;
}

/* ---- the values of a key -------------------------------------------------------------------- */

struct key_search {
    const struct key_field *field;
    /* The rest of the key, from the current field on. */
    const uint8_t *key;
    size_t size;
    struct buffer scratch;
    /* The length of the current field's encoding, once the search has found its value. */
    size_t length;
    struct value found;
};

static bool try_value(struct key_search *search, struct value value)
{
    search->scratch.size = 0;
    truce__key_append(&search->scratch, value, search->field->descending);
    if (search->scratch.size > search->size ||
        memcmp(search->scratch.bytes, search->key, search->scratch.size))
        return false;
    search->length = search->scratch.size;
    search->found = value;
    return true;
}

static bool visit_end(struct key_search *search, struct value value)
{
    struct fields fields;

    if (value.type == VALUE_MISSING)
        return try_value(search, truce__value_null());
    if (value.type == BSON_TYPE_ARRAY)
        for (fields = truce__fields(value); truce__fields_next(&fields);)
            if (try_value(search, fields.value))
                return true;
    return try_value(search, value);
}

/* Visits the values that a path has in a document, in the order of their keys, until the search has
 * found the value of its key. */
static bool index_set_visit(struct key_search *search, struct value value, uint32_t part)
{
    const struct path *path = &search->field->path;
    const struct path_part *name = &path->parts[part];
    struct fields fields;

    if (part == path->count)
        return visit_end(search, value);
    if (value.type != BSON_TYPE_ARRAY) {
        if (value.type == BSON_TYPE_DOCUMENT)
            value = truce__value_field(value, name->name, name->length);
        else
            value = truce__value_missing();
        return index_set_visit(search, value, value.type == VALUE_MISSING ? path->count : part + 1);
    }
    if (name->index >= 0 &&
        index_set_visit(search, truce__value_field(value, name->name, name->length), part + 1))
        return true;
    for (fields = truce__fields(value); truce__fields_next(&fields);)
        if (fields.value.type == BSON_TYPE_DOCUMENT && index_set_visit(search, fields.value, part))
            return true;
    return try_value(search, truce__value_null());
}

/* Skips the value undefined in a key, as which an empty array is stored. */
static void skip_undefined(struct key_search *search)
{
    try_value(search, (struct value){NULL, 0, BSON_TYPE_UNDEFINED});
}

/* Appends the values. With `whole`, an empty array is shown as undefined, as in the key. */
static void index_set_append_values(const struct index_spec *spec, struct value document,
                                    const uint8_t *key, size_t size, bool whole, bson_t *values)
{
    struct key_search search = {.key = key, .size = size};

    bson_init(values);
    for (uint32_t i = 0; i < spec->count && search.size > 0; i++) {
        const struct path *path = &spec->fields[i].path;

        search.field = &spec->fields[i];
        search.length = 0;
        if (index_set_visit(&search, document, 0)) {
            truce__value_append(values, path->text, path->length, search.found);
        } else {
            skip_undefined(&search);
            if (whole)
                truce__value_append(values, path->text, path->length, search.found);
        }
        search.key += search.length;
        search.size -= search.length;
    }
    truce__buffer_release(&search.scratch);
}

void truce__index_key_values(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *values)
{
    index_set_append_values(spec, document, key, size, false, values);
}

void truce__index_key_show(const struct index_spec *spec, struct value document, const uint8_t *key,
                           size_t size, bson_t *values)
{
    index_set_append_values(spec, document, key, size, true, values);
}

/* Returns whether equality finds all documents with the key. An index also has null for a path that
 * ends at a scalar within an array, which {"a.b": null} does not find. */
static bool finds_all(const bson_iter_t *value)
{
    return !BSON_ITER_HOLDS_NULL(value) || !strchr(bson_iter_key(value), '.');
}

void truce__index_key_filter(const struct index_spec *spec, struct value document,
                             const uint8_t *key, size_t size, bson_t *filter)
{
    bson_iter_t value;
    bson_t values;

    truce__index_key_values(spec, document, key, size, &values);
    bson_init(filter);
    truce_assert(bson_iter_init(&value, &values));
    while (bson_iter_next(&value)) {
        bson_t equal;

        if (!finds_all(&value))
            continue;
        BSON_APPEND_DOCUMENT_BEGIN(filter, bson_iter_key(&value), &equal);
        BSON_APPEND_VALUE(&equal, "$eq", bson_iter_value(&value));
        bson_append_document_end(filter, &equal);
    }
    bson_destroy(&values);
}

bool truce__index_key_of(const struct index_spec *spec, const bson_t *wanted, struct buffer *key)
{
    struct value root = truce__value_document(wanted);

    key->size = 0;
    if (!(spec->unique || spec->is_id) || spec->partial || bson_count_keys(wanted) != spec->count)
        return false;
    for (uint32_t i = 0; i < spec->count; i++) {
        const struct key_field *field = &spec->fields[i];
        struct value value = truce__value_field(root, field->path.text, field->path.length);

        if (field->wildcard || value.type == VALUE_MISSING)
            return false;
        truce__key_append(key, value, field->descending);
    }
    return true;
}

truce_status truce__index_refuse_duplicate(const char *collection, const struct index_spec *spec,
                                           struct value document, const uint8_t *key, size_t size,
                                           bson_error_t *error)
{
    char shown[200], pattern[120];
    bson_t values;

    truce__index_key_values(spec, document, key, size, &values);
    truce__refuse(
        CODE_DUPLICATE_KEY, error, "duplicate key %s in the unique index \"%s\" %s of %s",
        truce__value_show(truce__value_document(&values), shown, sizeof(shown)), spec->name,
        truce__value_show(truce__value_document(spec->key), pattern, sizeof(pattern)), collection);
    bson_destroy(&values);
    return TRUCE_DUPLICATE;
}
