/* Documents of the memory store with their index keys, and the lists they stand in. */
#include "base/assert.h"
#include "store/memory/memory.h"

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

static const uint8_t *key_at(const struct index_keys *keys, uint32_t number, size_t *size)
{
    uint32_t start = number > 0 ? keys->ends[number - 1] : 0;

    *size = keys->ends[number] - start;
    return keys->bytes.bytes + start;
}

static int compare_keys(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    int order = memcmp(a, b, a_size < b_size ? a_size : b_size);

    return order ? order : (a_size > b_size) - (a_size < b_size);
}

/* Both are sorted: walks them side by side. Returns the number of a key of `a` that `b` has too, or
 * -1. */
static int64_t common_key(const struct index_keys *a, const struct index_keys *b)
{
    for (uint32_t i = 0, j = 0; i < a->count && j < b->count;) {
        size_t a_size, b_size;
        const uint8_t *a_key = key_at(a, i, &a_size), *b_key = key_at(b, j, &b_size);
        int order = compare_keys(a_key, a_size, b_key, b_size);

        if (order == 0)
            return i;
        if (order < 0)
            i++;
        else
            j++;
    }
    return -1;
}

static truce_status check_index(const struct memory_collection *collection,
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
        key = key_at(keys, (uint32_t)common, &size);
        return truce__index_refuse_duplicate(
            collection->name, spec, truce__value_document(document->bson), key, size, error);
    }
    return TRUCE_OK;
}

truce_status truce__memory_check_unique(const struct memory_collection *collection,
                                        const struct memory_document *document, size_t except,
                                        bson_error_t *error)
{
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        truce_status status = TRUCE_OK;

        if (collection->indexes[i]->unique)
            status = check_index(collection, collection->indexes[i], i, document, except, error);
        if (status)
            return status;
    }
    return TRUCE_OK;
}

/* ---- the list ------------------------------------------------------------------------------- */

static void check_document(const struct memory_collection *collection,
                           const struct memory_document *document)
{
    truce_assert(document != NULL);
    truce_assert(document->keys_count == collection->indexes_count);
}

void truce__memory_insert(struct memory_collection *collection, size_t position,
                          struct memory_document *document)
{
    check_document(collection, document);
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
}

struct memory_document *truce__memory_replace(struct memory_collection *collection, size_t position,
                                              struct memory_document *document)
{
    struct memory_document *old;

    check_document(collection, document);
    truce_assert(position < collection->count);
    old = collection->documents[position];
    collection->documents[position] = document;
    return old;
}

struct memory_document *truce__memory_remove(struct memory_collection *collection, size_t position)
{
    struct memory_document *old;

    truce_assert(position < collection->count);
    old = collection->documents[position];
    collection->count--;
    memmove(collection->documents + position, collection->documents + position + 1,
            (collection->count - position) * sizeof(struct memory_document *));
    return old;
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* Every document once more, with the keys of the indexes as they are now; in `rebuilt`, which takes
 * the place of the collection's documents if all went well. */
static truce_status rebuild(struct memory_collection *collection, bson_error_t *error)
{
    struct memory_collection rebuilt = *collection;
    truce_status status = TRUCE_OK;

    rebuilt.documents = NULL;
    rebuilt.count = rebuilt.room = 0;
    for (size_t i = 0; i < collection->count && !status; i++) {
        struct memory_document *document = NULL;

        status =
            truce__memory_document_new(&rebuilt, collection->documents[i]->bson, &document, error);
        if (!status)
            status = truce__memory_check_unique(&rebuilt, document, SIZE_MAX, error);
        if (!status)
            truce__memory_insert(&rebuilt, rebuilt.count, document);
        else
            truce__memory_document_release(document);
    }
    if (!status) {
        struct memory_collection swap = *collection;

        *collection = rebuilt;
        rebuilt = swap;
    }
    for (size_t i = 0; i < rebuilt.count; i++)
        truce__memory_document_release(rebuilt.documents[i]);
    bson_free(rebuilt.documents);
    return status;
}

truce_status truce__memory_index_add(struct memory_collection *collection, struct index_spec *spec,
                                     bson_error_t *error)
{
    truce_status status;

    collection->indexes = bson_realloc(collection->indexes, (collection->indexes_count + 1) *
                                                                sizeof(struct index_spec *));
    collection->indexes[collection->indexes_count++] = spec;
    status = rebuild(collection, error);
    if (status)
        collection->indexes_count--;
    return status;
}

void truce__memory_index_remove(struct memory_collection *collection, uint32_t number)
{
    truce_status status;

    truce_assert(number < collection->indexes_count);
    truce__index_spec_release(collection->indexes[number]);
    bson_free(collection->indexes[number]);
    collection->indexes_count--;
    memmove(collection->indexes + number, collection->indexes + number + 1,
            (collection->indexes_count - number) * sizeof(struct index_spec *));
    status = rebuild(collection, NULL);
    truce_assert(status == TRUCE_OK);
}
