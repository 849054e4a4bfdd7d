#include "commit/shadow.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "commit/metadata_cache.h"
#include "query/index/index_set.h"

/*
 * Making `_keys` and comparing it. One element stands for one key of one unique index:
 *
 *     {i: "mail_1", v: ["ada@x.org"]}         values in the order of the index's fields
 *
 * so two documents have an element in common exactly when an index would have one key twice: the
 * values are compared in the same way, within a document as on their own. Elements are sorted, so
 * that one document has one `_keys`, whoever makes it.
 */

/* What a server may say of an index and means nothing for its keys. */
static void plain_definition(const bson_t *definition, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(definition, plain, "hidden", "storageEngine", "clustered",
                                  "prepareUnique", NULL);
}

static bool says_unique(const bson_t *definition)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, definition, "unique") && bson_iter_as_bool(&iter);
}

static const char *shadow_name_of(const bson_t *definition)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, definition, "name") && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

/* The index on _id of a clustered collection says that it is unique; of truce's there is no need. */
static bool is_ids(const bson_t *definition)
{
    bson_iter_t iter, key;

    return bson_iter_init_find(&iter, definition, "key") && bson_iter_recurse(&iter, &key) &&
           bson_iter_next(&key) && !strcmp(bson_iter_key(&key), "_id") && !bson_iter_next(&key);
}

truce_status truce__each_index(truce_store *store, const char *collection,
                               truce__spec_function *function, void *arg, bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__memo_indexes(store, collection, &indexes, error);
    bson_iter_t iter;

    if (!status)
        truce_assert(bson_iter_init(&iter, &indexes));
    while (!status && bson_iter_next(&iter)) {
        struct index_spec spec = {0};
        const uint8_t *bytes;
        uint32_t length;
        bson_t definition, plain;
        bson_error_t strange = {0};

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(bson_init_static(&definition, bytes, length));
        plain_definition(&definition, &plain);
        status = truce__index_spec_parse(&plain, &spec, &strange);
        if (!status)
            status = function(&spec, arg, error);
        else if (!says_unique(&plain) || is_ids(&plain))
            status = TRUCE_OK; /* of a kind that truce does not have: in nobody's way */
        else
            status =
                truce__fail(TRUCE_INVALID, error,
                            "the journal cannot keep the unique index \"%s\" of \"%s\": %.200s",
                            shadow_name_of(&plain), collection, strange.message);
        truce__index_spec_release(&spec);
        bson_destroy(&plain);
    }
    bson_destroy(&indexes);
    return status;
}

bool truce__shadow_index(const struct index_spec *spec)
{
    return spec->unique && spec->count == 1 && !strcmp(spec->fields[0].path.text, "_keys");
}

bool truce__shadowed_index(const struct index_spec *spec)
{
    return spec->unique && !spec->is_id && !truce__shadow_index(spec);
}

/* ---- making it ------------------------------------------------------------------------------ */

struct making {
    struct value document;
    bson_t elements; /* array, in the order of the indexes */
    uint32_t count;
};

static void shadow_append_values(const struct index_spec *spec, const bson_t *values,
                                 bson_t *element)
{
    bson_t list, nothing = BSON_INITIALIZER;
    uint32_t index = 0;

    bson_append_array_begin(element, "v", 1, &list);
    for (uint32_t i = 0; i < spec->count; i++) {
        struct value value = truce__value_field(
            truce__value_document(values), spec->fields[i].path.text, spec->fields[i].path.length);

        if (value.type == VALUE_MISSING) { /* an empty array has no value of its own */
            value = truce__value_document(&nothing);
            value.type = BSON_TYPE_ARRAY;
        }
        truce__value_append_element(&list, &index, value);
    }
    bson_append_array_end(element, &list);
    bson_destroy(&nothing);
}

static void shadow_append_key(struct making *making, const struct index_spec *spec,
                              const uint8_t *key, size_t size)
{
    bson_t values, element;
    char name[16];

    truce__index_key_values(spec, making->document, key, size, &values);
    bson_append_document_begin(&making->elements, name,
                               snprintf(name, sizeof name, "%u", making->count++), &element);
    BSON_APPEND_UTF8(&element, "i", spec->name);
    shadow_append_values(spec, &values, &element);
    bson_append_document_end(&making->elements, &element);
    bson_destroy(&values);
}

static truce_status shadow_make_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    struct making *making = arg;
    struct field_keys keys = {0};
    truce_status status = TRUCE_OK;

    if (truce__shadow_index(spec) && (!spec->sparse || spec->partial_filter))
        return truce__fail(TRUCE_INVALID, error,
                           "the index \"%s\" on the field \"_keys\" must be unique and sparse, and "
                           "no partial one: drop it, and let truce_unique_declare make it",
                           spec->name);
    if (!truce__shadowed_index(spec))
        return TRUCE_OK;
    status = truce__index_keys(spec, making->document, &keys, error);
    for (uint32_t i = 0, start = 0; !status && i < keys.count; start = keys.ends[i++])
        shadow_append_key(making, spec, keys.bytes.bytes + start, keys.ends[i] - start);
    truce__field_keys_release(&keys);
    return status;
}

static int shadow_compare_elements(const void *a, const void *b)
{
    return truce__value_compare(*(const struct value *)a, *(const struct value *)b);
}

static void sort_elements(const struct making *making, bson_t *keys)
{
    struct value *list = bson_malloc((making->count + 1) * sizeof *list);
    struct fields fields = truce__fields(truce__value_document(&making->elements));
    uint32_t count = 0, index = 0;

    while (truce__fields_next(&fields))
        list[count++] = fields.value;
    truce_assert(count == making->count);
    qsort(list, count, sizeof *list, shadow_compare_elements);
    for (uint32_t i = 0; i < count; i++)
        truce__value_append_element(keys, &index, list[i]);
    bson_free(list);
}

truce_status truce__shadow_make(truce_store *store, const char *collection, struct value document,
                                bson_t *keys, bson_error_t *error)
{
    struct making making = {.document = document, .elements = BSON_INITIALIZER};
    truce_status status = truce__each_index(store, collection, shadow_make_index, &making, error);

    bson_init(keys);
    if (!status)
        sort_elements(&making, keys);
    bson_destroy(&making.elements);
    return status;
}

/* ---- in documents --------------------------------------------------------------------------- */

static struct value shadow_keys_of(const bson_t *document)
{
    return truce__value_field(truce__value_document(document), "_keys", 5);
}

static struct value as_array(const bson_t *keys)
{
    struct value value = truce__value_document(keys);

    value.type = bson_empty(keys) ? VALUE_MISSING : BSON_TYPE_ARRAY;
    return value;
}

bool truce__shadow_right(const bson_t *document, const bson_t *keys)
{
    struct value has = shadow_keys_of(document), wants = as_array(keys);

    return has.type == wants.type && (has.type == VALUE_MISSING || truce__value_equal(has, wants));
}

/* `document` with this `_keys`, in its place if it has the field, else at the end */
static void with_keys(const bson_t *document, struct value keys, bson_t *made)
{
    struct fields fields = truce__fields(truce__value_document(document));
    bool placed = false;

    bson_init(made);
    while (truce__fields_next(&fields)) {
        bool here = !strcmp(fields.key, "_keys");

        truce__value_append(made, fields.key, fields.key_length, here ? keys : fields.value);
        placed = placed || here;
    }
    if (!placed)
        truce__value_append(made, "_keys", 5, keys);
}

/* An update that sets `_keys` itself; a whole document is given its own in any case. */
static bool touches_keys(const struct entry *entry)
{
    for (uint32_t i = 0; i < entry->changes_count; i++) {
        if (entry->changes[i].kind != CHANGE_UPDATE)
            return false;
    }
    return entry->token.found && entry->after_found &&
           !truce__value_identical(shadow_keys_of(&entry->base), shadow_keys_of(&entry->after));
}

truce_status truce__shadow_set(truce_store *store, struct entry *entry, bson_error_t *error)
{
    bson_t keys, after;
    truce_status status;

    if (!entry->after_found)
        return TRUCE_OK;
    if (touches_keys(entry))
        return truce__fail(TRUCE_INVALID, error,
                           "the field \"_keys\" of \"%s\" belongs to truce: a commit cannot change "
                           "it",
                           entry->collection);
    status = truce__shadow_make(store, entry->collection, truce__value_document(&entry->after),
                                &keys, error);
    if (!status && !truce__shadow_right(&entry->after, &keys)) {
        with_keys(&entry->after, as_array(&keys), &after);
        bson_destroy(&entry->after);
        bson_steal(&entry->after, &after);
    }
    bson_destroy(&keys);
    return status;
}

/* ---- reserving ------------------------------------------------------------------------------ */

static bool shadow_contains(struct value array, struct value element)
{
    struct fields fields = truce__fields(array);

    while (truce__fields_next(&fields)) {
        if (truce__value_equal(fields.value, element))
            return true;
    }
    return false;
}

static uint32_t append_old(struct value keys, bson_t *list)
{
    uint32_t index = 0;

    if (keys.type == BSON_TYPE_ARRAY) {
        struct fields fields = truce__fields(keys);

        while (truce__fields_next(&fields))
            truce__value_append_element(list, &index, fields.value);
    }
    return index;
}

static uint32_t shadow_append_new(const struct entry *entry, uint32_t index, bson_t *list)
{
    struct value before = shadow_keys_of(&entry->base), after = shadow_keys_of(&entry->after);
    struct fields fields;

    if (after.type != BSON_TYPE_ARRAY)
        return index;
    fields = truce__fields(after);
    while (truce__fields_next(&fields)) {
        if (before.type != BSON_TYPE_ARRAY || !shadow_contains(before, fields.value))
            truce__value_append_element(list, &index, fields.value);
    }
    return index;
}

int32_t truce__shadow_reserves(const struct entry *entry)
{
    bson_t list = BSON_INITIALIZER;
    uint32_t before, after;

    if (!entry->keyed || !entry->token.found || !entry->after_found)
        return -1;
    before = append_old(shadow_keys_of(&entry->base), &list);
    after = shadow_append_new(entry, before, &list);
    bson_destroy(&list);
    return after > before ? (int32_t)before : -1;
}

void truce__shadow_reserve(const struct entry *entry, bson_t *set)
{
    bson_t list;
    uint32_t before;

    bson_append_array_begin(set, "_keys", 5, &list);
    before = append_old(shadow_keys_of(&entry->base), &list);
    shadow_append_new(entry, before, &list);
    bson_append_array_end(set, &list);
}

int32_t truce__shadow_reserved(const bson_t *document)
{
    bson_iter_t iter, intent;

    return bson_iter_init_find(&iter, document, "_intent") && bson_iter_recurse(&iter, &intent) &&
                   bson_iter_find(&intent, "keys") && BSON_ITER_HOLDS_INT32(&intent)
               ? bson_iter_int32(&intent)
               : -1;
}

/* The first `count` elements. */
static void append_first(bson_t *plain, struct value keys, int32_t count)
{
    struct fields fields = truce__fields(keys);
    uint32_t index = 0;
    bson_t list;

    bson_append_array_begin(plain, "_keys", 5, &list);
    while (index < (uint32_t)count && truce__fields_next(&fields))
        truce__value_append_element(&list, &index, fields.value);
    bson_append_array_end(plain, &list);
}

void truce__shadow_restore(const bson_t *document, bson_t *plain)
{
    int32_t reserved = truce__shadow_reserved(document);
    struct fields fields = truce__fields(truce__value_document(document));

    bson_init(plain);
    while (truce__fields_next(&fields)) {
        if (!strcmp(fields.key, "_intent"))
            continue;
        if (reserved < 0 || strcmp(fields.key, "_keys") != 0 ||
            fields.value.type != BSON_TYPE_ARRAY)
            truce__value_append(plain, fields.key, fields.key_length, fields.value);
        else if (reserved > 0)
            append_first(plain, fields.value, reserved);
    }
}
