/*
 * The memory store: lists of documents in this process, and the functions of query/. It is the
 * reference model for all other stores, and the simulator's store. Its code is therefore as simple
 * as possible: a read visits every document, or those whose _id it names. The check of a unique
 * index other than that of _id visits every document, too. One mutex is held from the first read to
 * the last change. A plan only decides the order of a read without a sort (memory_read.c).
 *
 *     memory_store    collections in the order of names
 *       memory_collection   documents in the order of insertion, which is $natural order
 *         memory_document     BSON and the keys it has in each index; never changed, counted
 *
 * Invariants:
 *
 *   1. A document has one list of keys for each index of its collection, in their order.
 *   2. No two documents of a collection share a key of a unique index; `_id` has one.
 *   3. A document's BSON never changes: an update replaces it. So a cursor is the list of documents
 *      of one time, and no write disturbs it. The same holds for views: a view is a store with
 *      lists of its own, which share the documents.
 *   4. `changed` of a collection, and `dropped` of the store for a missing collection, only rise.
 *      If a caller's token differs from them, something was written.
 *
 * Files: this one (the store, collections, indexes, waits, documents and their keys),
 * memory_read.c, and memory_write.c (with the undo journal of atomic bulks).
 *
 * Deliberately not done: speed, durability, sharing between processes.
 */
#include "store/memory/memory.h"
#include "store/store_kinds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/limits.h"
#include "bson/array.h"
#include "query/input_check.h"
#include "query/match/validator.h"

/* ---- documents by _id ------------------------------------------------------------------------ */

/*
 * The index of a collection's documents by _id, so that many documents in one transaction do not
 * each visit all others.
 *
 * It is a table of pointers with open addressing, at most half full. A removal moves later entries
 * forward (Knuth, The Art of Computer Programming, volume 3, 6.4, algorithm R). A copy of a
 * collection, which is only read, has no table.
 */

/* The number of slots of the smallest table. */
#define ROOM_LEAST 32

static struct value memory_ids_id_of(const struct memory_document *document)
{
    return truce__value_field(truce__value_document(document->bson), "_id", 3);
}

static size_t home_of(const struct memory_ids *ids, struct value id)
{
    return truce__value_hash(id) & (ids->room - 1);
}

static void memory_ids_put(struct memory_ids *ids, struct memory_document *document)
{
    size_t at = home_of(ids, memory_ids_id_of(document));

    while (ids->slots[at])
        at = (at + 1) & (ids->room - 1);
    ids->slots[at] = document;
}

/* Adds a document that is already in the collection's list. If the table grows, the new table is
 * filled from this list. */
static void memory_ids_add(struct memory_collection *collection, struct memory_document *document)
{
    struct memory_ids *ids = &collection->ids;

    if (2 * collection->count <= ids->room) {
        memory_ids_put(ids, document);
        return;
    }
    bson_free(ids->slots);
    ids->room = ids->room ? 2 * ids->room : ROOM_LEAST;
    while (ids->room < 2 * collection->count)
        ids->room *= 2;
    ids->slots = bson_malloc0(ids->room * sizeof(struct memory_document *));
    for (size_t i = 0; i < collection->count; i++)
        memory_ids_put(ids, collection->documents[i]);
}

/* Removes a document from the table, and moves later entries forward, so that no search ends at the
 * hole. */
static void memory_ids_remove(struct memory_collection *collection,
                              const struct memory_document *document)
{
    struct memory_ids *ids = &collection->ids;
    size_t last = ids->room - 1, hole = home_of(ids, memory_ids_id_of(document));

    while (ids->slots[hole] != document) {
        truce_assert(ids->slots[hole] != NULL);
        hole = (hole + 1) & last;
    }
    for (size_t at = (hole + 1) & last; ids->slots[at]; at = (at + 1) & last) {
        size_t home = home_of(ids, memory_ids_id_of(ids->slots[at]));

        /* Moves the entry forward if it may be stored as early as the hole. */
        if (((at - home) & last) >= ((at - hole) & last)) {
            ids->slots[hole] = ids->slots[at];
            hole = at;
        }
    }
    ids->slots[hole] = NULL;
}

static const struct memory_document *memory_ids_find(const struct memory_collection *collection,
                                                     struct value id)
{
    const struct memory_ids *ids = &collection->ids;

    if (!ids->room)
        return NULL;
    for (size_t at = home_of(ids, id); ids->slots[at]; at = (at + 1) & (ids->room - 1))
        if (truce__value_equal(memory_ids_id_of(ids->slots[at]), id))
            return ids->slots[at];
    return NULL;
}

/* ---- ids of a filter ------------------------------------------------------------------------- */

/* Returns the condition that names all possible ids, or NULL. */
static const struct match_node *memory_find_id_condition(const struct match_node *node)
{
    const struct match_node *found = NULL;

    if (node->kind == MATCH_AND)
        for (uint32_t i = 0; i < node->children_count && !found; i++)
            found = memory_find_id_condition(node->children[i]);
    else if ((node->kind == MATCH_EQ || node->kind == MATCH_IN) && !strcmp(node->path.text, "_id"))
        found = node;
    return found;
}

/* Finds a document's position; documents are ordered by their numbers. */
static size_t memory_ids_position_of(const struct memory_collection *collection,
                                     const struct memory_document *document)
{
    size_t from = 0, to = collection->count;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (collection->documents[middle]->record < document->record)
            from = middle + 1;
        else
            to = middle;
    }
    truce_assert(from < collection->count && collection->documents[from] == document);
    return from;
}

static int compare_positions(const void *a, const void *b)
{
    const size_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

bool truce__memory_ids_of(const struct memory_collection *collection, const struct match *match,
                          size_t **positions, size_t *count)
{
    const struct match_node *node = memory_find_id_condition(truce__match_root(match));
    const struct value *operands;
    uint32_t operands_count;
    size_t kept = 0;

    if (!node || !collection->ids.room)
        return false;
    operands = node->kind == MATCH_IN ? node->operands : &node->operand;
    operands_count = node->kind == MATCH_IN ? node->operands_count : 1;
    for (uint32_t i = 0; i < operands_count; i++)
        if (!truce__value_identifies(operands[i]))
            return false;
    *positions = bson_malloc((operands_count + 1) * sizeof **positions);
    *count = 0;
    for (uint32_t i = 0; i < operands_count; i++) {
        const struct memory_document *document = memory_ids_find(collection, operands[i]);

        if (document)
            (*positions)[(*count)++] = memory_ids_position_of(collection, document);
    }
    qsort(*positions, *count, sizeof **positions, compare_positions);
    for (size_t i = 0; i < *count; i++)
        if (!i || (*positions)[i] != (*positions)[i - 1])
            (*positions)[kept++] = (*positions)[i];
    *count = kept;
    return true;
}

/* ---- documents and index keys ---------------------------------------------------------------- */

/* The steps of the budget that computing the keys of a document takes. */
#define STEPS_OF_DOCUMENT 4
/* The number of documents that a search for a unique key compares for one step of the budget. */
#define DOCUMENTS_OF_STEP 16

/* ---- one document --------------------------------------------------------------------------- */

static void free_keys(struct field_keys *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        truce__field_keys_release(&keys[i]);
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

static const uint8_t *memory_documents_key_at(const struct field_keys *keys, uint32_t number,
                                              size_t *size)
{
    uint32_t start = number > 0 ? keys->ends[number - 1] : 0;

    *size = keys->ends[number] - start;
    return keys->bytes.bytes + start;
}

/* Merges two sorted lists of keys. Returns the number of a key of `a` that `b` has too, or -1. */
static int64_t common_key(const struct field_keys *a, const struct field_keys *b)
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

/* Fails with DUPLICATE if a document other than number `except` has a key of the index that this
 * document has. */
static truce_status documents_check_index(const struct memory_collection *collection,
                                          const struct index_spec *spec, uint32_t number,
                                          const struct memory_document *document, size_t except,
                                          bson_error_t *error)
{
    const struct field_keys *keys = &document->keys[number];

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

/* Does what documents_check_index does, for _id, by the table. */
static truce_status documents_check_id(const struct memory_collection *collection,
                                       const struct memory_document *document, size_t except,
                                       bson_error_t *error)
{
    struct value whole = truce__value_document(document->bson);
    const struct memory_document *found =
        memory_ids_find(collection, truce__value_field(whole, "_id", 3));
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
    memory_ids_add(collection, document);
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
    memory_ids_remove(collection, old);
    collection->documents[position] = document;
    memory_ids_add(collection, document);
    return old;
}

struct memory_document *truce__memory_remove(struct memory_collection *collection, size_t position)
{
    struct memory_document *old;

    truce_assert(position < collection->count);
    old = collection->documents[position];
    memory_ids_remove(collection, old);
    collection->count--;
    memmove(collection->documents + position, collection->documents + position + 1,
            (collection->count - position) * sizeof(struct memory_document *));
    return old;
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* Makes every document again, with the keys of the current indexes, in a copy of the collection
 * that differs in its documents only. */
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

/* Releases all documents of the collection, and their lists. */
static void memory_release_documents(struct memory_collection *collection)
{
    for (size_t i = 0; i < collection->count; i++)
        truce__memory_document_release(collection->documents[i]);
    bson_free(collection->documents);
    bson_free(collection->ids.slots);
}

/* Replaces the collection's documents by those of `rebuilt`. */
static void replace_documents(struct memory_collection *collection,
                              struct memory_collection *rebuilt)
{
    struct memory_collection before = *collection;

    *collection = *rebuilt;
    memory_release_documents(&before);
}

struct positioned_key {
    const uint8_t *bytes;
    /* The size of the key, and the position of its document. */
    size_t size, position;
};

static int compare_positioned_keys(const void *a, const void *b)
{
    const struct positioned_key *x = a, *y = b;
    int order = truce__bytes_compare(x->bytes, x->size, y->bytes, y->size);

    return order ? order : (x->position > y->position) - (x->position < y->position);
}

/* Builds the sorted list of all keys of one index. The caller frees `keys`. */
static size_t position_keys(const struct memory_collection *collection, uint32_t number,
                            struct positioned_key **keys)
{
    size_t count = 0, at = 0;

    for (size_t i = 0; i < collection->count; i++)
        count += collection->documents[i]->keys[number].count;
    *keys = bson_malloc0((count + 1) * sizeof **keys);
    for (size_t i = 0; i < collection->count; i++) {
        const struct field_keys *of = &collection->documents[i]->keys[number];

        for (uint32_t j = 0; j < of->count; j++, at++) {
            (*keys)[at].bytes = memory_documents_key_at(of, j, &(*keys)[at].size);
            (*keys)[at].position = i;
        }
    }
    return count;
}

/* Checks that no two documents share a key of the index. The first document in order with a
 * duplicate is refused. */
static truce_status documents_check_all(const struct memory_collection *collection, uint32_t number,
                                        bson_error_t *error)
{
    const struct positioned_key *found = NULL;
    struct positioned_key *keys;
    size_t count = position_keys(collection, number, &keys);
    truce_status status = TRUCE_OK;

    qsort(keys, count, sizeof *keys, compare_positioned_keys);
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

/* Computes the keys of every document again, with `spec` as an additional index. If this fails,
 * nothing has changed. */
static truce_status memory_index_add(struct memory_collection *collection, struct index_spec *spec,
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
    memory_release_documents(&rebuilt);
    collection->indexes_count--;
    return status;
}

/* Removes an index, and makes every document again without the keys of this index. */
static void memory_index_remove(struct memory_collection *collection, uint32_t number)
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

/* ---- collections ---------------------------------------------------------------------------- */

/* Returns the position of the name, or the position to insert it at. */
static size_t memory_position_of(const struct memory_store *store, const char *name)
{
    size_t low = 0, high = store->count;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (strcmp(store->collections[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct memory_collection *truce__memory_find(struct memory_store *store, const char *name)
{
    size_t at = memory_position_of(store, name);

    if (at == store->count || strcmp(store->collections[at]->name, name))
        return NULL;
    return store->collections[at];
}

static void memory_attach_collection(struct memory_store *store,
                                     struct memory_collection *collection)
{
    size_t at = memory_position_of(store, collection->name);

    store->collections =
        bson_realloc(store->collections, (store->count + 1) * sizeof(*store->collections));
    memmove(store->collections + at + 1, store->collections + at,
            (store->count - at) * sizeof(*store->collections));
    store->collections[at] = collection;
    store->count++;
}

static void memory_detach_collection(struct memory_store *store,
                                     struct memory_collection *collection)
{
    size_t at = memory_position_of(store, collection->name);

    truce_assert(at < store->count && store->collections[at] == collection);
    store->count--;
    memmove(store->collections + at, store->collections + at + 1,
            (store->count - at) * sizeof(*store->collections));
}

struct memory_collection *truce__memory_find_or_create(struct memory_store *store, const char *name)
{
    struct memory_collection *collection = truce__memory_find(store, name);

    if (collection)
        return collection;
    collection = bson_malloc0(sizeof(*collection));
    collection->name = bson_strdup(name);
    collection->indexes = bson_malloc0(sizeof(*collection->indexes));
    collection->indexes[0] = bson_malloc0(sizeof(**collection->indexes));
    collection->indexes_count = 1;
    truce__index_spec_of_id(collection->indexes[0]);
    memory_attach_collection(store, collection);
    truce__memory_written(store, collection);
    return collection;
}

static void free_collection(struct memory_collection *collection)
{
    memory_release_documents(collection);
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        truce__index_spec_release(collection->indexes[i]);
        bson_free(collection->indexes[i]);
    }
    bson_free(collection->indexes);
    truce__match_free(collection->validator);
    bson_free(collection->name);
    bson_free(collection);
}

void truce__memory_drop(struct memory_store *store, struct memory_collection *collection)
{
    memory_detach_collection(store, collection);
    free_collection(collection);
    store->dropped = ++store->sequence;
    pthread_cond_broadcast(&store->written);
}

void truce__memory_written(struct memory_store *store, struct memory_collection *collection)
{
    collection->changed = ++store->sequence;
    pthread_cond_broadcast(&store->written);
}

/* ---- table: collections ---------------------------------------------------------------------- */

static truce_status memory_collection_create(truce_store *base, const char *name,
                                             bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&store->mutex);
    if (truce__memory_find(store, name))
        status = truce__collection_taken(name, error);
    else
        truce__memory_find_or_create(store, name);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

static truce_status memory_collection_drop(truce_store *base, const char *name, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_collection *collection;
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, name);
    if (collection)
        truce__memory_drop(store, collection);
    else
        status = truce__collection_missing(name, error);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

static void memory_rename_to(struct memory_store *store, struct memory_collection *collection,
                             const char *name)
{
    memory_detach_collection(store, collection);
    bson_free(collection->name);
    collection->name = bson_strdup(name);
    memory_attach_collection(store, collection);
    store->dropped = ++store->sequence;
    truce__memory_written(store, collection);
}

/* Renames a collection. Drops the target, if that is allowed. Changes the structure number. */
static truce_status memory_collection_rename(truce_store *base, const char *from, const char *to,
                                             bool drop_target, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_collection *collection, *target;
    truce_status status = TRUCE_OK;

    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, from);
    target = truce__memory_find(store, to);
    if (!collection) {
        status = truce__collection_missing(from, error);
    } else if (target && !drop_target) {
        status = truce__collection_taken(to, error);
    } else {
        if (target)
            truce__memory_drop(store, target);
        memory_rename_to(store, collection, to);
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}

/* Replaces the validator of a collection. Stored documents are not checked. */
static truce_status memory_collection_validate(truce_store *base, const char *name,
                                               const bson_t *validator, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_collection *collection;
    struct match *made;
    truce_status status = truce__validator_new(validator, &made, error);

    if (status)
        return status;
    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, name);
    if (collection) {
        struct match *old = collection->validator;

        collection->validator = made;
        made = old;
    } else {
        status = truce__collection_missing(name, error);
    }
    pthread_mutex_unlock(&store->mutex);
    truce__match_free(made);
    return status;
}

static truce_status memory_validator_of(truce_store *base, const char *name, bson_t *validator,
                                        bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    const struct memory_collection *collection;

    (void)error;
    bson_init(validator);
    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, name);
    if (collection && collection->validator)
        bson_concat(validator, truce__match_filter(collection->validator));
    pthread_mutex_unlock(&store->mutex);
    return TRUCE_OK;
}

static void memory_measure(const struct memory_collection *collection, bson_t *description)
{
    int64_t bytes = 0;

    for (size_t i = 0; i < collection->count; i++)
        bytes += collection->documents[i]->bson->len;
    BSON_APPEND_INT64(description, "documents", (int64_t)collection->count);
    BSON_APPEND_INT64(description, "bytes", bytes);
    BSON_APPEND_INT32(description, "indexes", (int32_t)collection->indexes_count);
}

static void memory_describe_collection(const struct memory_collection *collection, bool measured,
                                       bson_t *description)
{
    BSON_APPEND_UTF8(description, "name", collection->name);
    if (measured)
        memory_measure(collection, description);
    if (collection->validator)
        BSON_APPEND_DOCUMENT(description, "validator", truce__match_filter(collection->validator));
}

/* Lists the collections, or only options->collection, with their validators. Adds their sizes
 * unless options->unmeasured. */
static truce_status memory_collection_list(truce_store *base, const truce_list_options *options,
                                           bson_t *collections, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct array list = {.to = collections};
    bson_t description;

    bson_init(collections);
    pthread_mutex_lock(&store->mutex);
    for (size_t i = 0; i < store->count; i++) {
        const struct memory_collection *collection = store->collections[i];

        if (options->collection && strcmp(options->collection, collection->name))
            continue;
        truce__array_open_document(&list, &description);
        memory_describe_collection(collection, !options->unmeasured, &description);
        truce__array_close_document(&list, &description);
    }
    pthread_mutex_unlock(&store->mutex);
    return TRUCE_OK;
}

/* ---- table: indexes -------------------------------------------------------------------------- */

/* Adds an index. Creates the collection if it does not exist, and drops it again on failure. Sets
 * `*taken` if the collection now owns `spec`: it does not if it has the index already. */
static truce_status memory_add_index(struct memory_store *store, const char *name,
                                     struct index_spec *spec, bool *taken, bson_error_t *error)
{
    struct memory_collection *collection = truce__memory_find(store, name);
    bool created = !collection, present = false;
    struct budget budget;
    truce_status status;

    if (created)
        collection = truce__memory_find_or_create(store, name);
    status = truce__index_admit((const struct index_spec *const *)collection->indexes,
                                collection->indexes_count, spec, &present, error);
    if (!status && !present) {
        truce__store_budget(&store->base, 0, &budget);
        status = memory_index_add(collection, spec, &budget, error);
        *taken = !status;
    }
    if (status && created)
        truce__memory_drop(store, collection);
    return status;
}

/* Creates an index. The collection owns `spec` only if the index was added. */
static truce_status memory_index_create(truce_store *base, const char *name, const bson_t *index,
                                        bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct index_spec *spec = bson_malloc0(sizeof(*spec));
    truce_status status = truce__index_spec_parse(index, spec, error);
    bool taken = false;

    if (status) {
        bson_free(spec);
        return status;
    }
    pthread_mutex_lock(&store->mutex);
    status = memory_add_index(store, name, spec, &taken, error);
    pthread_mutex_unlock(&store->mutex);
    if (!taken) {
        truce__index_spec_release(spec);
        bson_free(spec);
    }
    return status;
}

static truce_status memory_find_index(struct memory_store *store, const char *collection_name,
                                      const char *name, struct memory_collection **collection,
                                      uint32_t *number, bson_error_t *error)
{
    *collection = truce__memory_find(store, collection_name);
    if (!*collection)
        return truce__collection_missing(collection_name, error);
    for (*number = 0; *number < (*collection)->indexes_count; (*number)++)
        if (!strcmp((*collection)->indexes[*number]->name, name))
            return TRUCE_OK;
    return truce__index_missing(name, collection_name, error);
}

/* Drops an index. The index of _id cannot be dropped. */
static truce_status memory_index_drop(truce_store *base, const char *collection_name,
                                      const char *name, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_collection *collection;
    truce_status status;
    uint32_t number;

    pthread_mutex_lock(&store->mutex);
    status = memory_find_index(store, collection_name, name, &collection, &number, error);
    if (!status && !number)
        status = truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "the index \"%s\" of collection \"%s\" cannot be dropped: every collection has an "
            "index of _id",
            name, collection_name);
    if (!status) {
        memory_index_remove(collection, number);
        store->dropped = ++store->sequence;
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}

static truce_status memory_index_modify(truce_store *base, const char *collection_name,
                                        const char *name, const bson_t *changes,
                                        bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_collection *collection;
    truce_status status;
    uint32_t number;

    pthread_mutex_lock(&store->mutex);
    status = memory_find_index(store, collection_name, name, &collection, &number, error);
    if (!status)
        status = truce__index_change(collection->indexes[number], changes, error);
    pthread_mutex_unlock(&store->mutex);
    return status;
}

/* Lists the indexes of a collection. `indexes` is initialized even if the collection is missing,
 * which is an error. */
static truce_status memory_index_list(truce_store *base, const char *name, bson_t *indexes,
                                      bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    const struct memory_collection *collection;
    truce_status status = TRUCE_OK;
    struct array list = {.to = indexes};
    bson_t definition;

    bson_init(indexes);
    pthread_mutex_lock(&store->mutex);
    collection = truce__memory_find(store, name);
    if (!collection)
        status = truce__collection_missing(name, error);
    for (uint32_t i = 0; collection && i < collection->indexes_count; i++) {
        truce__index_describe(collection->indexes[i], &definition);
        truce__array_add_document(&list, &definition);
        bson_destroy(&definition);
    }
    pthread_mutex_unlock(&store->mutex);
    return status;
}

/* ---- table: waits, open, and close ----------------------------------------------------------- */

static uint64_t written_number(struct memory_store *store, const char *name)
{
    const struct memory_collection *collection = truce__memory_find(store, name);

    return collection ? collection->changed : store->dropped;
}

/* Sleeps until something is written, for at most `longest_ms` and never longer than the interval of
 * interrupt checks. Returns the number of milliseconds that have passed. */
static int64_t sleep_a_while(struct memory_store *store, int64_t longest_ms)
{
    int64_t begun_ns = truce__clock_monotonic_ns();
    int64_t until_ns =
        begun_ns + (longest_ms < INTERRUPT_MS ? longest_ms : INTERRUPT_MS) * INT64_C(1000000);
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};

    (void)pthread_cond_timedwait(&store->written, &store->mutex, &until);
    return (truce__clock_monotonic_ns() - begun_ns + 999999) / 1000000;
}

/* Waits until the number of the last write differs from the token. Sleeps in short steps, because
 * an interrupt wakes no thread. */
static truce_status memory_wait_for_change(truce_store *base, const char *name, uint64_t *token,
                                           uint32_t timeout_ms, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    truce_status status = TRUCE_OK;
    int64_t left_ms = timeout_ms;
    uint64_t number;

    pthread_mutex_lock(&store->mutex);
    while ((number = written_number(store, name)) == *token && left_ms > 0 && !status) {
        left_ms -= sleep_a_while(store, left_ms);
        status = truce__store_interrupted(base, error);
    }
    pthread_mutex_unlock(&store->mutex);
    if (status && number == *token)
        return status;
    if (number == *token)
        return truce__fail(TRUCE_TIMEOUT, error, "nothing was written to %s in %u ms", name,
                           timeout_ms);
    *token = number;
    return TRUCE_OK;
}

static uint64_t memory_structure_of(truce_store *base)
{
    struct memory_store *store = (struct memory_store *)base;
    uint64_t structure;

    pthread_mutex_lock(&store->mutex);
    structure = store->dropped;
    pthread_mutex_unlock(&store->mutex);
    return structure;
}

/* ---- table: views ---------------------------------------------------------------------------- */

static truce_status memory_take_snapshot(truce_store *base, const truce_snapshot_options *options,
                                         truce_store **view, bson_error_t *error);

static void memory_close_store(truce_store *base)
{
    struct memory_store *store = (struct memory_store *)base;

    for (size_t i = 0; i < store->count; i++)
        free_collection(store->collections[i]);
    bson_free(store->collections);
    pthread_cond_destroy(&store->written);
    pthread_mutex_destroy(&store->mutex);
    bson_free(store);
}

static const truce_store_ops memory_ops = {
    .scheme = "memory",
    .close = memory_close_store,
    .find = truce__memory_find_documents,
    .count = truce__memory_count,
    .distinct = truce__memory_distinct,
    .aggregate = truce__memory_aggregate,
    .explain = truce__memory_explain,
    .bulk = truce__memory_bulk,
    .find_and_modify = truce__memory_find_and_modify,
    .rewrite = truce__memory_rewrite,
    .read_many = truce__memory_read_many,
    .index_create = memory_index_create,
    .index_drop = memory_index_drop,
    .index_modify = memory_index_modify,
    .index_list = memory_index_list,
    .collection_create = memory_collection_create,
    .collection_drop = memory_collection_drop,
    .collection_rename = memory_collection_rename,
    .collection_validate = memory_collection_validate,
    .collection_list = memory_collection_list,
    .wait = memory_wait_for_change,
    .structure = memory_structure_of,
    .validator = memory_validator_of,
    .snapshot = memory_take_snapshot,
};

static struct memory_store *memory_new_store(uint32_t capabilities)
{
    struct memory_store *made = bson_malloc0(sizeof(*made));
    pthread_condattr_t attributes;

    made->base.ops = &memory_ops;
    made->base.capabilities = capabilities;
    made->sequence = made->dropped = 1;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->written, &attributes);
    pthread_condattr_destroy(&attributes);
    return made;
}

static struct index_spec *copy_spec(const struct index_spec *spec)
{
    struct index_spec *copy = bson_malloc0(sizeof(*copy));
    truce_status status = truce__index_spec_copy(spec, copy, NULL);

    truce_assert(status == TRUCE_OK);
    return copy;
}

/* Copies the list. The documents are shared, because they never change. */
static struct memory_collection *copy_collection(const struct memory_collection *collection)
{
    struct memory_collection *copy = bson_malloc0(sizeof(*copy));
    truce_status status = TRUCE_OK;

    copy->name = bson_strdup(collection->name);
    copy->count = copy->room = collection->count;
    copy->documents = bson_malloc0((copy->count + 1) * sizeof(struct memory_document *));
    for (size_t i = 0; i < copy->count; i++)
        copy->documents[i] = truce__memory_document_hold(collection->documents[i]);
    copy->indexes_count = collection->indexes_count;
    copy->indexes = bson_malloc0(copy->indexes_count * sizeof(struct index_spec *));
    for (uint32_t i = 0; i < copy->indexes_count; i++)
        copy->indexes[i] = copy_spec(collection->indexes[i]);
    if (collection->validator)
        status = truce__validator_new(truce__match_filter(collection->validator), &copy->validator,
                                      NULL);
    truce_assert(status == TRUCE_OK);
    return copy;
}

/* Makes a view with lists of its own, which share the documents. */
static truce_status memory_take_snapshot(truce_store *base, const truce_snapshot_options *options,
                                         truce_store **view, bson_error_t *error)
{
    struct memory_store *store = (struct memory_store *)base;
    struct memory_store *made = memory_new_store(base->capabilities | TRUCE_IS_VIEW);

    (void)options;
    (void)error;
    pthread_mutex_lock(&store->mutex);
    made->collections = bson_malloc0((store->count + 1) * sizeof(struct memory_collection *));
    made->count = store->count;
    for (size_t i = 0; i < store->count; i++)
        made->collections[i] = copy_collection(store->collections[i]);
    pthread_mutex_unlock(&store->mutex);
    *view = &made->base;
    return TRUCE_OK;
}

truce_status truce__memory_open(const char *path, const truce_store_options *options,
                                truce_store **store, bson_error_t *error)
{
    *store = NULL;
    if (*path)
        return truce__fail(TRUCE_INVALID, error,
                           "a memory store has no name: got \"memory:%s\", "
                           "expected memory:",
                           path);
    if (options->read_only || options->must_exist)
        return truce__fail(TRUCE_INVALID, error,
                           "a memory store starts empty, so read_only and must_exist are not "
                           "allowed");
    *store =
        &memory_new_store(TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS |
                          TRUCE_CAN_ITEM_UPDATE | TRUCE_CAN_ATOMIC_BULK | TRUCE_CAN_PARTIAL_INDEX |
                          TRUCE_CAN_WILDCARD_INDEX | TRUCE_CAN_WAIT | TRUCE_CAN_SNAPSHOT_READ |
                          TRUCE_CAN_REPORT_MODIFIED | TRUCE_CAN_KEEP_ORDER | TRUCE_CAN_REWRITE |
                          TRUCE_CAN_COMPARE | TRUCE_CAN_RECEIPT | TRUCE_CAN_SORT_UPDATE)
             ->base;
    return TRUCE_OK;
}
