/*
 * No index may refuse a release, because the commit is decided by then. So each index of the
 * collection is checked before the decision: its keys are made from the future document (a compound
 * index over two arrays would refuse it), and values under a unique index are reserved:
 *
 *   - An insert puts them into its stub. From then on, the index itself rejects other documents.
 *   - An update of such a value must hold two keys: the old one for an abort, and the new one for a
 *     commit. A document has one value, so its shadow, the array `_keys`, stores the second key.
 *     The user declares `_keys` by a unique, sparse index on it (truce_unique_declare). Without
 *     that, the update is refused with the name of the index.
 *
 *     {_id: 7, mail: "a", _keys: [{i: "mail_1", v: ["a"]}]}
 *       -(prepare)-> {.., mail: "a", _keys: [{.. "a"}, {.. "b"}], _intent: {c: C, keys: 1}}
 *       -(release)-> {.., mail: "b", _keys: [{.. "b"}]}       or, if C is undone,
 *       -(strip)->   {.., mail: "a", _keys: [{.. "a"}]}       the first `_intent.keys` elements
 *
 * Invariants for collections with declared keys:
 *
 *  CU1  Every write of truce (fast, native, stub, and release) leaves in `_keys` exactly the keys
 *       of the document, in the same single write. So a writer that claims a key encounters the
 *       reservation of its holder, whichever mechanism each of them uses.
 *  CU2  A prepare adds to `_keys` every element that the release will set, also if only the field
 *       is new and the value is not. So the release adds nothing to either index.
 *  CU3  A strip restores `_keys` as it was, not as the document implies: a document without `_keys`
 *       gets none, because nothing reserved them. So the strip adds nothing either.
 *  CU4  A document of a plain writer has no `_keys`; its key is only in the index on the value. So
 *       after a reservation, the commit looks for a holder of the key there. After the reservation,
 *       no other writer of truce can claim the key.
 *  CU5  A key that is only reserved is not taken. The commit waits for its holder, or completes it,
 *       and the outcome decides. Waits for keys have no common order, so the commit holds nothing
 *       during the wait: it is undone first, and runs again afterwards.
 *
 * Not done: a plain writer may take a reserved value between the check and the release. The release
 * is refused then; the commit stays decided, `truce check` names document and index (`blocked`),
 * and the sweep completes it once one of the two has another value. Two documents of one commit
 * cannot exchange their values, and one cannot take a value that the other gives up. Each prepare
 * and each release is one write, and between two of them the value would exist twice.
 */
#include "commit/unique_keys.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "bson/array.h"
#include "commit/commit.h"
#include "commit/metadata_cache.h"
#include "query/index/index_set.h"
#include "query/project/project.h"
#include "store/maintenance.h"
#include "store/store.h"

/* The code of MongoDB for an array in a hashed index. */
#define CODE_HASHED_ARRAY 16766

/* ---- the shadow `_keys` ---------------------------------------------------------------------- */

/*
 * One element of `_keys` represents one key of one unique index:
 *
 *     {i: "mail_1", v: ["ada@x.org"]}         values in the order of the index's fields
 *
 * Two documents have a common element exactly if an index would have a key twice, because values
 * compare alike within a document and on their own. Elements are sorted, so every process makes the
 * same `_keys` of a document.
 */

/* Makes the definition of an index without the options that do not affect its keys. */
static void plain_definition(const bson_t *definition, bson_t *plain)
{
    bson_init(plain);
    bson_copy_to_excluding_noinit(definition, plain, "hidden", "storageEngine", "clustered",
                                  "prepareUnique", NULL);
}

static const char *shadow_name_of(const bson_t *definition)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, definition, "name") && BSON_ITER_HOLDS_UTF8(&iter)
               ? bson_iter_utf8(&iter, NULL)
               : "";
}

/* Returns whether this is the index on _id. A clustered collection reports it as unique, but truce
 * does not need to check it. */
static bool is_ids(const bson_t *definition)
{
    bson_iter_t iter, key;

    return bson_iter_init_find(&iter, definition, "key") && bson_iter_recurse(&iter, &key) &&
           bson_iter_next(&key) && !strcmp(bson_iter_key(&key), "_id") && !bson_iter_next(&key);
}

/* Calls the function for each index of the collection, until a call fails. Skips indexes of kinds
 * that truce does not support (hashed, text, geographical, with a collation). Fails with INVALID if
 * such an index is unique. */
static truce_status each_index(truce_store *store, const char *collection,
                               truce__spec_function *function, void *arg, bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__metadata_indexes(store, collection, &indexes, error);
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
        else if (!truce__field_true(&plain, "unique") || is_ids(&plain))
            /* Skipped: an index of an unsupported kind that is not unique, or the one on _id. */
            status = TRUCE_OK;
        else
            status =
                truce__fail(TRUCE_INVALID, error,
                            "the journal cannot maintain the unique index \"%s\" of \"%s\": %.200s",
                            shadow_name_of(&plain), collection, strange.message);
        truce__index_spec_release(&spec);
        bson_destroy(&plain);
    }
    bson_destroy(&indexes);
    return status;
}

/* Returns whether this is the index on `_keys` itself. */
static bool shadow_index(const struct index_spec *spec)
{
    return spec->unique && spec->count == 1 && !strcmp(spec->fields[0].path.text, "_keys");
}

/* Returns whether `_keys` repeats the values of this unique index. */
static bool shadowed_index(const struct index_spec *spec)
{
    return spec->unique && !spec->is_id && !shadow_index(spec);
}

/* ---- making `_keys` -------------------------------------------------------------------------- */

/* The elements of `_keys` for a document. */
struct making {
    struct value document;
    /* The elements of `_keys`, in the order of the indexes. */
    bson_t elements;
    uint32_t count;
};

/* Appends the values of one key of an index, with an empty array for a missing value. */
static void shadow_append_values(const struct index_spec *spec, const bson_t *values,
                                 bson_t *element)
{
    bson_t nothing = BSON_INITIALIZER;
    struct array list;

    truce__array_begin(&list, element, "v");
    for (uint32_t i = 0; i < spec->count; i++) {
        struct value value = truce__value_field(
            truce__value_document(values), spec->fields[i].path.text, spec->fields[i].path.length);

        /* An empty array has no value of its own in the index, so the element gets an empty
         * array. */
        if (value.type == VALUE_MISSING) {
            value = truce__value_document(&nothing);
            value.type = BSON_TYPE_ARRAY;
        }
        truce__array_add(&list, value);
    }
    truce__array_end(&list, element);
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

/* Appends the keys that a document has in one unique index. */
static truce_status shadow_make_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    struct making *making = arg;
    struct field_keys keys = {0};
    truce_status status = TRUCE_OK;

    if (shadow_index(spec) && (!spec->sparse || spec->partial_filter))
        return truce__fail(
            TRUCE_INVALID, error,
            "the index \"%s\" on the field \"_keys\" must be unique and sparse, without a partial "
            "filter: drop it, and declare the keys of the collection, which makes it",
            spec->name);
    if (!shadowed_index(spec))
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

/* Writes the elements of `_keys` in their fixed order. */
static void sort_elements(const struct making *making, bson_t *keys)
{
    struct value *list = bson_malloc((making->count + 1) * sizeof *list);
    struct fields fields = truce__fields(truce__value_document(&making->elements));
    struct array sorted = {.to = keys};
    uint32_t count = 0;

    while (truce__fields_next(&fields))
        list[count++] = fields.value;
    truce_assert(count == making->count);
    qsort(list, count, sizeof *list, shadow_compare_elements);
    for (uint32_t i = 0; i < count; i++)
        truce__array_add(&sorted, list[i]);
    bson_free(list);
}

truce_status truce__shadow_make(truce_store *store, const char *collection, struct value document,
                                bson_t *keys, bson_error_t *error)
{
    struct making making = {.document = document, .elements = BSON_INITIALIZER};
    truce_status status = each_index(store, collection, shadow_make_index, &making, error);

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

/* Makes `document` with this `_keys`, in place if it has the field, else at the end. */
static void with_keys(const bson_t *document, struct value keys, bson_t *made)
{
    struct fields fields = truce__fields(truce__value_document(document));
    bool appended = false;

    bson_init(made);
    while (truce__fields_next(&fields)) {
        bool here = !strcmp(fields.key, "_keys");

        truce__value_append(made, fields.key, fields.key_length, here ? keys : fields.value);
        appended = appended || here;
    }
    if (!appended)
        truce__value_append(made, "_keys", 5, keys);
}

/* Returns whether an update sets `_keys` itself. A whole document gets correct `_keys` in any
 * case. */
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
                           "the field \"_keys\" of \"%s\" is reserved for truce: a commit cannot "
                           "change it",
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

static void append_old(struct value keys, struct array *list)
{
    if (keys.type == BSON_TYPE_ARRAY) {
        struct fields fields = truce__fields(keys);

        while (truce__fields_next(&fields))
            truce__array_add(list, fields.value);
    }
}

static void shadow_append_new(const struct entry *entry, struct array *list)
{
    struct value before = shadow_keys_of(&entry->base), after = shadow_keys_of(&entry->after);
    struct fields fields;

    if (after.type != BSON_TYPE_ARRAY)
        return;
    fields = truce__fields(after);
    while (truce__fields_next(&fields)) {
        if (before.type != BSON_TYPE_ARRAY || !shadow_contains(before, fields.value))
            truce__array_add(list, fields.value);
    }
}

int32_t truce__shadow_reserves(const struct entry *entry)
{
    bson_t keys = BSON_INITIALIZER;
    struct array list = {.to = &keys};
    uint32_t before;

    if (!entry->keyed || !entry->token.found || !entry->after_found)
        return -1;
    append_old(shadow_keys_of(&entry->base), &list);
    before = list.count;
    shadow_append_new(entry, &list);
    bson_destroy(&keys);
    return list.count > before ? (int32_t)before : -1;
}

void truce__shadow_reserve(const struct entry *entry, bson_t *set)
{
    struct array list;

    truce__array_begin(&list, set, "_keys");
    append_old(shadow_keys_of(&entry->base), &list);
    shadow_append_new(entry, &list);
    truce__array_end(&list, set);
}

int32_t truce__shadow_reserved(const bson_t *document)
{
    bson_iter_t iter, intent;

    return bson_iter_init_find(&iter, document, "_intent") && bson_iter_recurse(&iter, &intent) &&
                   bson_iter_find(&intent, "keys") && BSON_ITER_HOLDS_INT32(&intent)
               ? bson_iter_int32(&intent)
               : -1;
}

/* Appends the first `count` elements. */
static void append_first(bson_t *plain, struct value keys, int32_t count)
{
    struct fields fields = truce__fields(keys);
    struct array list;

    truce__array_begin(&list, plain, "_keys");
    while (list.count < (uint32_t)count && truce__fields_next(&fields))
        truce__array_add(&list, fields.value);
    truce__array_end(&list, plain);
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

/* ---- keys before and after ------------------------------------------------------------------ */

static bool same_keys(const struct field_keys *a, const struct field_keys *b)
{
    return a->count == b->count && a->bytes.size == b->bytes.size &&
           (!a->bytes.size || !memcmp(a->bytes.bytes, b->bytes.bytes, a->bytes.size));
}

/* Fails if the commit changes a uniquely indexed value that the journal cannot reserve, because the
 * collection has no declared keys. */
static truce_status unique_check_index(const struct index_spec *spec, void *arg,
                                       bson_error_t *error)
{
    const struct entry *entry = arg;
    struct field_keys before = {0}, after = {0};
    truce_status status =
        truce__index_keys(spec, truce__value_document(&entry->after), &after, error);
    char text[300];

    if (!status && shadowed_index(spec) && entry->token.found && !entry->keyed) {
        status = truce__index_keys(spec, truce__value_document(&entry->base), &before, error);
        if (!status && !same_keys(&before, &after))
            status = truce__fail(
                TRUCE_INVALID, error,
                "the journal cannot reserve the new value of the unique index \"%s\" in %s. "
                "Declare the keys of the collection (`truce commit unique %s`), or use a store that "
                "commits natively",
                spec->name, truce__entry_show(entry, text, sizeof text), entry->collection);
    }
    truce__field_keys_release(&before);
    truce__field_keys_release(&after);
    return status;
}

/* Checks what a hashed index would refuse: an array on the path or at its end. */
static truce_status check_hashed(const bson_t *definition, const struct entry *entry,
                                 bson_error_t *error)
{
    bson_iter_t iter, key;

    if (!bson_iter_init_find(&iter, definition, "key") || !bson_iter_recurse(&iter, &key))
        return TRUCE_OK;
    while (bson_iter_next(&key)) {
        struct key_field field = {0};
        struct field_keys keys = {0};
        truce_status status;

        if (!BSON_ITER_HOLDS_UTF8(&key) || strcmp(bson_iter_utf8(&key, NULL), "hashed") != 0)
            continue;
        status =
            truce__path_parse(bson_iter_key(&key), strlen(bson_iter_key(&key)), &field.path, error);
        if (!status)
            status = truce__field_keys(&field, 1, false, truce__value_document(&entry->after),
                                       &keys, error);
        if (!status && keys.multikey)
            status = truce__refuse(CODE_HASHED_ARRAY, error,
                                   "a hashed index cannot contain arrays, and \"%s\" is one",
                                   bson_iter_key(&key));
        truce__field_keys_release(&keys);
        truce__path_release(&field.path);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* Checks the entry against all hashed indexes of its collection. */
static truce_status check_all_hashed(truce_store *store, const struct entry *entry,
                                     bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce__metadata_indexes(store, entry->collection, &indexes, error);
    bson_iter_t iter;

    if (!status)
        truce_assert(bson_iter_init(&iter, &indexes));
    while (!status && bson_iter_next(&iter)) {
        const uint8_t *bytes;
        uint32_t length;
        bson_t definition;

        bson_iter_document(&iter, &length, &bytes);
        truce_assert(bson_init_static(&definition, bytes, length));
        status = check_hashed(&definition, entry, error);
    }
    bson_destroy(&indexes);
    return status;
}

truce_status truce__unique_check(truce_store *store, const struct entry *entry, bson_error_t *error)
{
    truce_status status;

    if (!entry->after_found)
        return TRUCE_OK;
    status = each_index(store, entry->collection, unique_check_index, (void *)entry, error);
    return status ? status : check_all_hashed(store, entry, error);
}

/* ---- the stub ------------------------------------------------------------------------------- */

static void projection_add_path(bson_t *projection, const char *path)
{
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, projection, path))
        bson_append_int32(projection, path, -1, 1);
}

/* Projects the fields that a filter uses, as a whole. */
static void include_filter(bson_t *projection, const bson_t *filter)
{
    bson_iter_t iter, below;

    truce_assert(bson_iter_init(&iter, filter));
    while (bson_iter_next(&iter)) {
        const char *name = bson_iter_key(&iter);

        if (name[0] != '$') {
            projection_add_path(projection, name);
            continue;
        }
        if (!bson_iter_recurse(&iter, &below))
            continue;
        while (bson_iter_next(&below)) {
            const uint8_t *bytes;
            uint32_t length;
            bson_t inner;

            if (!BSON_ITER_HOLDS_DOCUMENT(&below))
                continue;
            bson_iter_document(&below, &length, &bytes);
            if (bson_init_static(&inner, bytes, length))
                include_filter(projection, &inner);
        }
    }
}

/* Returns whether the projection already has the path or a prefix of it. Projections refuse a path
 * together with its prefix; the prefix is enough. */
static bool projection_has_prefix(const bson_t *projection, const char *path)
{
    bson_iter_t iter;

    truce_assert(bson_iter_init(&iter, projection));
    while (bson_iter_next(&iter)) {
        size_t length = strlen(bson_iter_key(&iter));

        if (strcmp(bson_iter_key(&iter), path) != 0 &&
            !strncmp(bson_iter_key(&iter), path, length) && path[length] == '.')
            return true;
    }
    return false;
}

static truce_status collect_unique(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    bson_t *projection = arg;

    (void)error;
    if (!spec->unique || spec->is_id)
        return TRUCE_OK;
    for (uint32_t i = 0; i < spec->count; i++)
        projection_add_path(projection, spec->fields[i].path.text);
    if (spec->partial_filter)
        include_filter(projection, spec->partial_filter);
    return TRUCE_OK;
}

/* Makes the stub of an insert: the _id and the fields at the paths. */
static truce_status project_stub(const struct entry *entry, const bson_t *paths, bson_t *stub,
                                 bson_error_t *error)
{
    struct arena arena = ARENA_INIT;
    struct query_context context = {.now_ms = truce__clock_wall_ms(), .arena = &arena};
    bson_t projection = BSON_INITIALIZER;
    struct project *project = NULL;
    truce_status status;
    bson_iter_t iter;

    BSON_APPEND_INT32(&projection, "_id", 1);
    truce_assert(bson_iter_init(&iter, paths));
    while (bson_iter_next(&iter)) {
        if (!projection_has_prefix(paths, bson_iter_key(&iter)))
            bson_append_int32(&projection, bson_iter_key(&iter), -1, 1);
    }
    status = truce__project_new(&projection, NULL, &project, error);
    if (!status) {
        bson_destroy(stub);
        status = truce__project_apply(project, truce__value_document(&entry->after), NULL, &context,
                                      stub, error);
    }
    truce__project_free(project);
    bson_destroy(&projection);
    truce__arena_release(&arena);
    return status;
}

truce_status truce__unique_stub(truce_store *store, const struct entry *entry,
                                const bson_oid_t *commit, bson_t *stub, bson_error_t *error)
{
    bson_t paths = BSON_INITIALIZER, intent;
    truce_status status;

    bson_init(stub);
    if (entry->shows)
        bson_concat(&paths, entry->shows);
    status = each_index(store, entry->collection, collect_unique, &paths, error);
    if (!status && !bson_empty(&paths) && entry->after_found)
        status = project_stub(entry, &paths, stub, error);
    else if (!status)
        BSON_APPEND_VALUE(stub, "_id", &entry->id);
    if (!status) {
        bson_append_document_begin(stub, "_intent", 7, &intent);
        BSON_APPEND_OID(&intent, "c", commit);
        BSON_APPEND_BOOL(&intent, "new", true);
        bson_append_document_end(stub, &intent);
    }
    bson_destroy(&paths);
    return status;
}

/* ---- the holder of a value ------------------------------------------------------------------- */

/* A search for documents that have a unique key which an entry wants. */
struct search {
    truce_commit *commit;
    const struct entry *entry;
    /* Search only for keys that the base does not have, and not in the index on `_keys`. */
    bool new_only;
    /* Receives a holder that has the intent of another commit. The caller owns the document. */
    bson_t *held;
};

static bool unique_has_key(const struct field_keys *keys, const uint8_t *key, size_t size)
{
    for (uint32_t i = 0, start = 0; i < keys->count; start = keys->ends[i++]) {
        if (keys->ends[i] - start == size && !memcmp(keys->bytes.bytes + start, key, size))
            return true;
    }
    return false;
}

/* Returns whether the index really has this document under the key. A partial or sparse index can
 * omit documents that the filter matches. */
static bool unique_holds(const struct index_spec *spec, const bson_t *document, const uint8_t *key,
                         size_t size)
{
    struct field_keys keys = {0};
    bool found = !truce__index_keys(spec, truce__value_document(document), &keys, NULL) &&
                 unique_has_key(&keys, key, size);

    truce__field_keys_release(&keys);
    return found;
}

/* Returns the commit's own entry of that document, or NULL. */
static const struct entry *unique_own_entry(const struct search *search, const bson_t *document)
{
    struct entry *entry;
    const struct entry *found = NULL;
    bson_iter_t iter;

    if (!bson_iter_init_find(&iter, document, "_id"))
        return NULL; /* A document of a view may have no `_id`. */
    entry = truce__entry_new(search->entry->collection, bson_iter_value(&iter));
    for (uint32_t i = 0; !found && i < search->commit->count; i++) {
        if (truce__entry_compare(search->commit->entries[i], entry) == 0)
            found = search->commit->entries[i];
    }
    truce__entry_free(entry);
    return found;
}

/* Returns whether the commit changes the document so that it no longer has the key. */
static bool gives_up(const struct entry *own, const struct index_spec *spec, const uint8_t *key,
                     size_t size)
{
    return truce__entry_writes(own) &&
           !(own->after_found && unique_holds(spec, &own->after, key, size));
}

static bool held_by_another(const struct search *search, const bson_t *holder)
{
    bson_oid_t id;

    return !truce__intent_absent(holder) &&
           !(truce__intent_commit(holder, &id) && bson_oid_equal(&id, &search->commit->id));
}

/* Refuses a value that another document of this commit gives up. Returns CONFLICT if that document
 * got the value after the commit read it, and INVALID otherwise. */
static truce_status refuse_own(const struct search *search, const struct index_spec *spec,
                               const struct entry *own, const uint8_t *key, size_t size,
                               bson_error_t *error)
{
    char text[300], other[300];

    if (own->known && !unique_holds(spec, &own->base, key, size))
        return truce__entry_conflict(own, "was changed by another commit", error);
    return truce__fail(
        TRUCE_INVALID, error,
        "%s takes the value of the unique index \"%s\" from %s in the same commit: remove the "
        "value in one commit, and set it in a later one",
        truce__entry_show(search->entry, text, sizeof text), spec->name,
        truce__entry_show(own, other, sizeof other));
}

/* Reports which document has a uniquely indexed value: one that another commit holds, one that this
 * commit changes, or another one. */
static truce_status diagnose_holder(struct search *search, const struct index_spec *spec,
                                    const bson_t *holder, const uint8_t *key, size_t size,
                                    bson_error_t *error)
{
    const struct entry *own = unique_own_entry(search, holder);
    char text[300];

    truce__entry_show(search->entry, text, sizeof text);
    if (held_by_another(search, holder)) {
        bson_destroy(search->held);
        bson_copy_to(holder, search->held);
        return truce__fail(TRUCE_CONFLICT, error,
                           "%s needs a value of the unique index \"%s\" that another commit holds",
                           text, spec->name);
    }
    if (own && gives_up(own, spec, key, size))
        return refuse_own(search, spec, own, key, size, error);
    return truce__refuse(
        CODE_DUPLICATE_KEY, error,
        "%s cannot be written: another document has its value in the unique index \"%s\"", text,
        spec->name);
}

/* Looks for a stored document with this key of the index, and reports it. */
static truce_status unique_find_holder(struct search *search, const struct index_spec *spec,
                                       const bson_t *filter, const uint8_t *key, size_t size,
                                       bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status =
        truce_find(search->commit->store, search->entry->collection, filter, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (unique_holds(spec, document, key, size))
            status = diagnose_holder(search, spec, document, key, size, error);
    }
    truce_cursor_close(cursor);
    return status;
}

/* Fails if two documents of the commit get the same value. */
static truce_status search_own(const struct search *search, const struct index_spec *spec,
                               const uint8_t *key, size_t size, bson_error_t *error)
{
    char text[300], other[300];

    for (uint32_t i = 0; i < search->commit->count; i++) {
        const struct entry *own = search->commit->entries[i];

        if (own == search->entry || strcmp(own->collection, search->entry->collection) != 0 ||
            !own->after_found || !unique_holds(spec, &own->after, key, size))
            continue;
        return truce__refuse(
            CODE_DUPLICATE_KEY, error,
            "%s and %s of one commit have the same value in the unique index \"%s\"",
            truce__entry_show(own, other, sizeof other),
            truce__entry_show(search->entry, text, sizeof text), spec->name);
    }
    return TRUCE_OK;
}

/* Makes the filter of documents other than `id` that may have the key of `document`. */
static void filter_others(const struct index_spec *spec, const bson_t *document, const uint8_t *key,
                          size_t size, const bson_value_t *id, bson_t *filter)
{
    bson_t other;

    truce__index_key_filter(spec, truce__value_document(document), key, size, filter);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &other);
    BSON_APPEND_VALUE(&other, "$ne", id);
    bson_append_document_end(filter, &other);
}

/* Looks for the holder of one key, first among the entries of this commit and then in the store. */
static truce_status search_key(struct search *search, const struct index_spec *spec,
                               const uint8_t *key, size_t size, bson_error_t *error)
{
    truce_status status = search_own(search, spec, key, size, error);
    bson_t filter;

    if (status)
        return status;
    filter_others(spec, &search->entry->after, key, size, &search->entry->id, &filter);
    do
        status = unique_find_holder(search, spec, &filter, key, size, error);
    while (truce__unanswered(status) &&
           !truce__worker_wait(&search->commit->worker, "the store", error));
    bson_destroy(&filter);
    return status;
}

/* Looks for the holders of all keys that the entry has in one unique index; with `new_only`, of its
 * new keys. */
static truce_status search_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    struct search *search = arg;
    const struct entry *entry = search->entry;
    struct field_keys before = {0}, keys = {0};
    truce_status status = TRUCE_OK;

    if (!spec->unique || spec->is_id || (search->new_only && shadow_index(spec)))
        return TRUCE_OK;
    status = truce__index_keys(spec, truce__value_document(&entry->after), &keys, error);
    if (!status && search->new_only)
        status = truce__index_keys(spec, truce__value_document(&entry->base), &before, error);
    for (uint32_t i = 0, start = 0; !status && i < keys.count; start = keys.ends[i++]) {
        const uint8_t *key = keys.bytes.bytes + start;

        if (!unique_has_key(&before, key, keys.ends[i] - start))
            status = search_key(search, spec, key, keys.ends[i] - start, error);
    }
    truce__field_keys_release(&before);
    truce__field_keys_release(&keys);
    return status;
}

truce_status truce__unique_holder(truce_commit *commit, const struct entry *entry, bson_t *held,
                                  bson_error_t *error)
{
    struct search search = {.commit = commit, .entry = entry, .held = held};

    if (!entry->after_found)
        return TRUCE_OK;
    /* The index may be newer than the cached list. */
    truce__metadata_forget(commit->store, entry->collection);
    return each_index(commit->store, entry->collection, search_index, &search, error);
}

struct filters {
    const bson_value_t *id;
    const bson_t *after;
    struct array *to;
};

/* Appends one filter for each key of a unique index, which matches the other documents that may
 * have the key. */
static truce_status filters_of_index(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    const struct filters *filters = arg;
    struct field_keys keys = {0};
    truce_status status;

    if (!spec->unique || spec->is_id)
        return TRUCE_OK;
    status = truce__index_keys(spec, truce__value_document(filters->after), &keys, error);
    for (uint32_t i = 0, start = 0; !status && i < keys.count; start = keys.ends[i++]) {
        bson_t filter;

        filter_others(spec, filters->after, keys.bytes.bytes + start, keys.ends[i] - start,
                      filters->id, &filter);
        truce__array_add_document(filters->to, &filter);
        bson_destroy(&filter);
    }
    truce__field_keys_release(&keys);
    return status;
}

truce_status truce__unique_filters(truce_store *store, const char *collection,
                                   const bson_value_t *id, const bson_t *after,
                                   struct array *filters, bson_error_t *error)
{
    struct filters all = {id, after, filters};

    return each_index(store, collection, filters_of_index, &all, error);
}

/* Looks for the holder of reserved keys (CU4). */
truce_status truce__unique_reserved_holder(truce_commit *commit, const struct entry *entry,
                                           bson_t *held, bson_error_t *error)
{
    struct search search = {.commit = commit, .entry = entry, .new_only = true, .held = held};

    return each_index(commit->store, entry->collection, search_index, &search, error);
}

/* After this number of searches without a holder, the refusal is reported as DUPLICATE. */
#define SEARCHES 8

/* Waits before the next try after an index refused the entry, or fails with DUPLICATE at the
 * SEARCHES-th time. The index or the holder is gone, or this user cannot read the holder. */
truce_status truce__unique_none(truce_commit *commit, const struct entry *entry,
                                bson_error_t *error)
{
    char text[300];

    if (++commit->searched >= SEARCHES)
        return truce__refuse(
            CODE_DUPLICATE_KEY, error,
            "%s cannot be written: a unique index of its collection already contains one of its "
            "values",
            truce__entry_show(entry, text, sizeof text));
    return truce__worker_wait(&commit->worker, "a unique value", error);
}

/* Waits for the commit that holds the key (CU5). */
truce_status truce__unique_wait(truce_commit *commit, const char *collection, const bson_t *held,
                                bson_error_t *error)
{
    bson_iter_t iter;
    bson_t document;
    truce_status status = truce__document_need_id(collection, held, &iter, error);

    if (status)
        return status;
    status =
        truce__journal_read(&commit->worker, collection, bson_iter_value(&iter), &document, error);
    bson_destroy(&document);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__unique_refused(truce_commit *commit, const struct entry *entry,
                                   bson_error_t *error)
{
    bson_t held = BSON_INITIALIZER;
    truce_status status = truce__unique_holder(commit, entry, &held, error);

    if (!status)
        status = truce__unique_none(commit, entry, error);
    else if (status == TRUCE_CONFLICT && !bson_empty(&held))
        status = truce__unique_wait(commit, entry->collection, &held, error);
    bson_destroy(&held);
    return status;
}

static truce_status count_shadowed(const struct index_spec *spec, void *arg, bson_error_t *error)
{
    uint32_t *count = arg;

    (void)error;
    *count += shadowed_index(spec);
    return TRUCE_OK;
}

truce_status truce__unique_count(truce_store *store, const char *collection, uint32_t *count,
                                 bson_error_t *error)
{
    *count = 0;
    return each_index(store, collection, count_shadowed, count, error);
}
