/* Documents of the memory store with their index keys, and the lists they stand in. */
#include "base/assert.h"
#include "store/memory/memory.h"

#include <stdlib.h>

#define STEPS_OF_DOCUMENT 4
#define DOCUMENTS_OF_STEP 16 /* of which a unique key is looked for in each */

/* ---- one document --------------------------------------------------------------------------- */

static void free_keys(struct index_keys *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        truce__index_keys_release(&keys[i]);
    bson_free(keys);
}

struct memory_document *truce__memory_document_hold(struct memory_document *document)
{
    atomic_fetch_add(&document->references, 1);
    return document;
}

void truce__memory_document_release(struct memory_document *document)
{
    if (!document || atomic_fetch_sub(&document->references, 1) > 1)
        return;
    free_keys(document->keys, document->keys_count);
    bson_destroy(document->bson);
    bson_free(document);
}

truce_status truce__memory_document_new(const struct memory_collection *collection,
                                        const bson_t *bson, struct memory_document **document,
                                        bson_error_t *error)
{
    struct memory_document *made = bson_malloc0(sizeof(*made));
    uint32_t count = collection->indexes_count;
    truce_status status = TRUCE_OK;

    atomic_init(&made->references, 1);
    made->bson = bson_copy(bson);
    made->keys = bson_malloc0(count * sizeof(*made->keys));
    made->keys_count = count;
    for (uint32_t i = 0; i < count && !status; i++)
        status = truce__index_keys(collection->indexes[i], truce__value_document(made->bson),
                                   &made->keys[i], error);
    if (status) {
        truce__memory_document_release(made);
        made = NULL;
    }
    *document = made;
    return status;
}

/* ---- unique keys ---------------------------------------------------------------------------- */

static const uint8_t *memory_documents_key_at(const struct index_keys *keys, uint32_t number,
                                              size_t *size)
{
    uint32_t start = number > 0 ? keys->ends[number - 1] : 0;

    *size = keys->ends[number] - start;
    return keys->bytes.bytes + start;
}

/* Both are sorted: walks them side by side. Returns the number of a key of `a` that `b` has too, or
 * -1. */
static int64_t common_key(const struct index_keys *a, const struct index_keys *b)
{
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        size_t a_size, b_size;
        const uint8_t *a_key = memory_documents_key_at(a, i, &a_size),
                      *b_key = memory_documents_key_at(b, j, &b_size);
        int order = truce__bytes_compare(a_key, a_size, b_key, b_size);

        if (order == 0)
            return i;
        if (order < 0)
            i++;
        else
            j++;
    }
    return -1;
}

static truce_status documents_check_index(const struct memory_collection *collection,
                                          const struct index_spec *spec, uint32_t number,
                                          const struct memory_document *document, size_t except,
                                          bson_error_t *error)
{
    const struct index_keys *keys = &document->keys[number];

    for (size_t i = 0; i < collection->count; i++) {
        int64_t common = -1;
        const uint8_t *key;
        size_t size;

        if (i != except)
            common = common_key(keys, &collection->documents[i]->keys[number]);
        if (common < 0)
            continue;
        key = memory_documents_key_at(keys, (uint32_t)common, &size);
        return truce__index_refuse_duplicate(
            collection->name, spec, truce__value_document(document->bson), key, size, error);
    }
    return TRUCE_OK;
}

static truce_status documents_check_id(const struct memory_collection *collection,
                                       const struct memory_document *document, size_t except,
                                       bson_error_t *error)
{
    struct value whole = truce__value_document(document->bson);
    const struct memory_document *found =
        truce__memory_ids_find(collection, truce__value_field(whole, "_id", 3));
    const uint8_t *key;
    size_t size;

    if (!found || (except != SIZE_MAX && found == collection->documents[except]))
        return TRUCE_OK;
    key = memory_documents_key_at(&document->keys[0], 0, &size);
    return truce__index_refuse_duplicate(collection->name, collection->indexes[0], whole, key, size,
                                         error);
}

truce_status truce__memory_check_unique(const struct memory_collection *collection,
                                        const struct memory_document *document, size_t except,
                                        struct budget *budget, bson_error_t *error)
{
    truce_status status = documents_check_id(collection, document, except, error);

    for (uint32_t i = 1; i < collection->indexes_count && !status; i++) {
        if (!collection->indexes[i]->unique)
            continue;
        status =
            truce__budget_spend(budget, (uint32_t)(collection->count / DOCUMENTS_OF_STEP), error);
        if (!status)
            status = documents_check_index(collection, collection->indexes[i], i, document, except,
                                           error);
    }
    return status;
}

/* ---- the list ------------------------------------------------------------------------------- */

static void documents_check_document(const struct memory_collection *collection,
                                     const struct memory_document *document)
{
    truce_assert(document != NULL);
    truce_assert(document->keys_count == collection->indexes_count);
}

void truce__memory_insert(struct memory_collection *collection, size_t position,
                          struct memory_document *document)
{
    documents_check_document(collection, document);
    truce_assert(position <= collection->count);
    if (collection->count == collection->room) {
        collection->room = collection->room ? collection->room * 2 : 16;
        collection->documents = bson_realloc(collection->documents,
                                             collection->room * sizeof(struct memory_document *));
    }
    memmove(collection->documents + position + 1, collection->documents + position,
            (collection->count - position) * sizeof(struct memory_document *));
    collection->documents[position] = document;
    collection->count++;
    if (!document->record)
        document->record = ++collection->records;
    truce__memory_ids_add(collection, document);
}

struct memory_document *truce__memory_replace(struct memory_collection *collection, size_t position,
                                              struct memory_document *document)
{
    struct memory_document *old;

    documents_check_document(collection, document);
    truce_assert(position < collection->count);
    old = collection->documents[position];
    if (!document->record)
        document->record = old->record;
    truce__memory_ids_remove(collection, old);
    collection->documents[position] = document;
    truce__memory_ids_add(collection, document);
    return old;
}

struct memory_document *truce__memory_remove(struct memory_collection *collection, size_t position)
{
    struct memory_document *old;

    truce_assert(position < collection->count);
    old = collection->documents[position];
    truce__memory_ids_remove(collection, old);
    collection->count--;
    memmove(collection->documents + position, collection->documents + position + 1,
            (collection->count - position) * sizeof(struct memory_document *));
    return old;
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* Every document once more, with the keys of the indexes as they are now; a collection that differs
 * in its documents alone. */
static truce_status documents_rebuild(const struct memory_collection *collection,
                                      struct budget *budget, struct memory_collection *rebuilt,
                                      bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *rebuilt = *collection;
    rebuilt->documents = NULL;
    rebuilt->ids = (struct memory_ids){0};
    rebuilt->count = rebuilt->room = 0;
    for (size_t i = 0; i < collection->count && !status; i++) {
        const bson_t *bson = collection->documents[i]->bson;
        struct memory_document *document = NULL;

        status = truce__budget_spend(budget, STEPS_OF_DOCUMENT + bson->len / 64, error);
        if (!status)
            status = truce__memory_document_new(rebuilt, bson, &document, error);
        if (status)
            break;
        document->record = collection->documents[i]->record;
        truce__memory_insert(rebuilt, rebuilt->count, document);
    }
    return status;
}

void truce__memory_release_documents(struct memory_collection *collection)
{
    for (size_t i = 0; i < collection->count; i++)
        truce__memory_document_release(collection->documents[i]);
    bson_free(collection->documents);
    bson_free(collection->ids.slots);
}

/* The documents of `rebuilt` take the place of the collection's. */
static void replace_documents(struct memory_collection *collection,
                              struct memory_collection *rebuilt)
{
    struct memory_collection before = *collection;

    *collection = *rebuilt;
    truce__memory_release_documents(&before);
}

struct placed_key {
    const uint8_t *bytes;
    size_t size, position;
};

static int compare_placed(const void *a, const void *b)
{
    const struct placed_key *x = a, *y = b;
    int order = truce__bytes_compare(x->bytes, x->size, y->bytes, y->size);

    return order ? order : (x->position > y->position) - (x->position < y->position);
}

/* All keys of one index; `keys` is allocated here. */
static size_t place_keys(const struct memory_collection *collection, uint32_t number,
                         struct placed_key **keys)
{
    size_t count = 0, at = 0;

    for (size_t i = 0; i < collection->count; i++)
        count += collection->documents[i]->keys[number].count;
    *keys = bson_malloc0((count + 1) * sizeof **keys);
    for (size_t i = 0; i < collection->count; i++) {
        const struct index_keys *of = &collection->documents[i]->keys[number];

        for (uint32_t j = 0; j < of->count; j++, at++) {
            (*keys)[at].bytes = memory_documents_key_at(of, j, &(*keys)[at].size);
            (*keys)[at].position = i;
        }
    }
    return count;
}

/* Does each key of the index, of which no document has one twice, stand in one document only? The first document in order that has one of another
 * is refused. */
static truce_status documents_check_all(const struct memory_collection *collection, uint32_t number,
                                        bson_error_t *error)
{
    const struct placed_key *found = NULL;
    struct placed_key *keys;
    size_t count = place_keys(collection, number, &keys);
    truce_status status = TRUCE_OK;

    qsort(keys, count, sizeof *keys, compare_placed);
    for (size_t i = 1; i < count; i++) {
        bool same =
            !truce__bytes_compare(keys[i].bytes, keys[i].size, keys[i - 1].bytes, keys[i - 1].size);

        if (same && (!found || keys[i].position < found->position))
            found = &keys[i];
    }
    if (found)
        status = truce__index_refuse_duplicate(
            collection->name, collection->indexes[number],
            truce__value_document(collection->documents[found->position]->bson), found->bytes,
            found->size, error);
    bson_free(keys);
    return status;
}

truce_status truce__memory_index_add(struct memory_collection *collection, struct index_spec *spec,
                                     struct budget *budget, bson_error_t *error)
{
    uint32_t number = collection->indexes_count++;
    struct memory_collection rebuilt;
    truce_status status;

    collection->indexes =
        bson_realloc(collection->indexes, collection->indexes_count * sizeof(struct index_spec *));
    collection->indexes[number] = spec;
    status = documents_rebuild(collection, budget, &rebuilt, error);
    if (!status && spec->unique)
        status = documents_check_all(&rebuilt, number, error);
    if (!status) {
        replace_documents(collection, &rebuilt);
        return TRUCE_OK;
    }
    truce__memory_release_documents(&rebuilt);
    collection->indexes_count--;
    return status;
}

void truce__memory_index_remove(struct memory_collection *collection, uint32_t number)
{
    struct memory_collection rebuilt;
    truce_status status;

    truce_assert(number < collection->indexes_count);
    truce__index_spec_release(collection->indexes[number]);
    bson_free(collection->indexes[number]);
    collection->indexes_count--;
    memmove(collection->indexes + number, collection->indexes + number + 1,
            (collection->indexes_count - number) * sizeof(struct index_spec *));
    status = documents_rebuild(collection, NULL, &rebuilt, NULL);
    truce_assert(status == TRUCE_OK);
    replace_documents(collection, &rebuilt);
}
