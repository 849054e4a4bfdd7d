/*
 * Documents and index entries.
 *
 *     row table of the collection       7 -> {_id: 5, a: [1, 2]}
 *     key table of _id_                 (key(5), 7)
 *     key table of a_1                  (key(1), 7) (key(2), 7)
 *
 * Invariants between transactions (truce__engine_check checks all of them):
 *  1. For every index except one that is being built: the pairs of its key table are exactly the
 *     keys of each document (truce__index_keys) with the document's row.
 *  2. In a unique index that is not being built, no key occurs twice.
 *  3. An index's multikey_fields has the bits of every document in it. Bits are never removed.
 *
 * The changes of the entries are the difference of two sorted lists of keys. Keys that are only in
 * the old list are deleted, and keys that are only in the new one are inserted. An index that is
 * being built may or may not contain the keys of a document already. Deleting a missing key and
 * inserting an existing one are both allowed, so writers treat it like any other index.
 */
#include "engine/documents/indexed_documents.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/collections.h"
#include "query/index/index_set.h"
#include "query/match/validator.h"

bool truce__documents_failed(truce_status status)
{
    return status == TRUCE_IO || status == TRUCE_CORRUPT || status == TRUCE_LOCKED;
}

/* ---- lists of keys -------------------------------------------------------------------------- */

static struct bytes documents_key_at(const struct field_keys *keys, uint32_t number)
{
    uint32_t start = number ? keys->ends[number - 1] : 0;

    return (struct bytes){keys->bytes.bytes + start, keys->ends[number] - start};
}

static int documents_compare(struct bytes a, struct bytes b)
{
    return truce__bytes_compare(a.data, a.size, b.data, b.size);
}

/* Finds the next key that is in `list` but not in `other`. Returns false at the end. Both positions
 * advance. */
static bool next_difference(const struct field_keys *list, uint32_t *at,
                            const struct field_keys *other, uint32_t *other_at, struct bytes *key)
{
    while (*at < list->count) {
        int order;

        *key = documents_key_at(list, *at);
        while (*other_at < other->count &&
               documents_compare(documents_key_at(other, *other_at), *key) < 0)
            (*other_at)++;
        order = *other_at < other->count
                    ? documents_compare(documents_key_at(other, *other_at), *key)
                    : 1;
        (*at)++;
        if (order)
            return true;
    }
    return false;
}

/* ---- checks --------------------------------------------------------------------------------- */

struct change {
    struct writer *writer;
    const struct collection *collection;
    /* The row of the document, or 0 while it is unknown. */
    int64_t row;
    /* The document before and after the change. NULL if it did not exist or does not exist any
     * longer. */
    const bson_t *before, *after;
    /* Whether the feed reports `after` as a whole, not as differences. */
    bool whole;
};

static truce_status documents_make_keys(const struct index *index, const bson_t *document,
                                        struct field_keys *keys, bson_error_t *error)
{
    if (document)
        return truce__index_keys(&index->spec, truce__value_document(document), keys, error);
    keys->count = 0;
    keys->multikey_fields = 0;
    return TRUCE_OK;
}

/* Checks that no other document has one of the new keys of a unique index. */
static truce_status documents_check_unique(const struct change *change, const struct index *index,
                                           const struct key_change *keys, bson_error_t *error)
{
    uint32_t at = 0, other_at = 0;
    truce_status status = TRUCE_OK;
    struct bytes key;
    int64_t row;

    while (!status && next_difference(&keys->after, &at, &keys->before, &other_at, &key)) {
        status = truce__kv_key_get(change->writer->kv, index->id, key, &row, error);
        if (status == TRUCE_NOT_FOUND)
            status = TRUCE_OK;
        else if (!status && row != change->row)
            status = truce__index_refuse_duplicate(change->collection->name, &index->spec,
                                                   truce__value_document(change->after), key.data,
                                                   key.size, error);
    }
    return status;
}

/* Returns the first index that a change concerns. Replacing a document does not change the index of
 * _id. */
static uint32_t first_index(const struct change *change)
{
    return change->before && change->after ? 1 : 0;
}

/* Makes the keys of all indexes, then checks them: parallel arrays are refused before duplicate
 * keys. */
static truce_status documents_prepare(const struct change *change, bson_error_t *error)
{
    const struct collection *collection = change->collection;
    truce_status status = TRUCE_OK;

    for (uint32_t i = first_index(change); i < collection->indexes_count && !status; i++) {
        struct key_change *keys = &change->writer->keys[i];

        status = documents_make_keys(&collection->indexes[i], change->before, &keys->before, error);
        if (!status)
            status =
                documents_make_keys(&collection->indexes[i], change->after, &keys->after, error);
    }
    for (uint32_t i = first_index(change); i < collection->indexes_count && !status; i++) {
        const struct index *index = &collection->indexes[i];

        if (index->spec.unique && index->state != INDEX_BUILDING)
            status = documents_check_unique(change, index, &change->writer->keys[i], error);
    }
    return status;
}

/* ---- changes -------------------------------------------------------------------------------- */

/* Deletes the entries for keys that only the document before the change has, and inserts those for
 * keys that only the document after it has. */
static truce_status write_keys(const struct change *change, const struct index *index,
                               const struct key_change *keys, bson_error_t *error)
{
    struct kv *kv = change->writer->kv;
    uint32_t at = 0, other_at = 0;
    truce_status status = TRUCE_OK;
    struct bytes key;

    while (!status && next_difference(&keys->before, &at, &keys->after, &other_at, &key))
        status = truce__kv_key_delete(kv, index->id, key, change->row, error);
    at = other_at = 0;
    while (!status && next_difference(&keys->after, &at, &keys->before, &other_at, &key))
        status = truce__kv_key_insert(kv, index->id, key, change->row, error);
    return status;
}

static truce_status write_all_keys(const struct change *change, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = first_index(change); i < change->collection->indexes_count && !status; i++)
        status =
            write_keys(change, &change->collection->indexes[i], &change->writer->keys[i], error);
    return status;
}

/* Adds bits to the multikey_fields of an index in the catalog. Pointers into the loaded catalog are
 * invalid afterwards, unless the caller holds a reference to it. */
static truce_status note_multikey(struct writer *writer, const char *name, int64_t id,
                                  uint32_t fields, bson_error_t *error)
{
    const struct collection *collection;
    struct index changed;
    truce_status status = truce__writer_collection(writer, name, &collection, error);

    if (status)
        return status;
    changed = *truce__collection_index_id(collection, id);
    changed.multikey_fields |= fields;
    status = truce__catalog_change_index(writer->kv, collection, &changed, error);
    truce__writer_catalog_changed(writer);
    return status;
}

/* Records in the catalog which fields of the indexes have passed through an array. This is rare:
 * each field of an index passes through its first array once. The first change drops the loaded
 * catalog, so the function holds a reference while it walks over the indexes. */
static truce_status note_arrays(const struct change *change, bson_error_t *error)
{
    const struct collection *collection = change->collection;
    struct catalog *held = truce__catalog_hold(change->writer->catalog);
    truce_status status = TRUCE_OK;

    for (uint32_t i = first_index(change); i < collection->indexes_count && !status; i++) {
        const struct index *index = &collection->indexes[i];
        uint32_t fields = change->writer->keys[i].after.multikey_fields;

        if (fields & ~index->multikey_fields)
            status = note_multikey(change->writer, collection->name, index->id, fields, error);
    }
    truce__catalog_release(held);
    return status;
}

/* Inserts, updates, or deletes the row of the document. */
static truce_status documents_write_row(struct change *change, bson_error_t *error)
{
    struct kv *kv = change->writer->kv;
    int64_t table = change->collection->id;
    truce_status status;

    if (!change->before)
        return truce__kv_row_insert(kv, table, &change->row, kv_body(change->after), error);
    if (!change->after)
        return truce__kv_row_delete(kv, table, change->row, error);
    status = truce__kv_row_update(kv, table, change->row, kv_body(change->after), error);
    /* A document that was changed is often read soon, to be changed again. */
    if (!status)
        truce__kv_vouch(kv, table, change->row, kv_body(change->after));
    return status;
}

/* Tests the document after the change against the validator. An existing document may violate a
 * later validator; a written document may not. */
static truce_status documents_validate(const struct change *change, bson_error_t *error)
{
    const struct collection *collection = change->collection;

    if (!collection->validator || !change->after || change->writer->unvalidated)
        return TRUCE_OK;
    return truce__validator_test(collection->validator, collection->name, truce__clock_wall_ms(),
                                 change->after, error);
}

/* Applies a change: checks it, writes the row and the keys of all indexes, and reports it to
 * caches, waiters, and the feed. */
static truce_status documents_apply(struct change *change, bson_error_t *error)
{
    truce_status status = documents_validate(change, error);

    if (!status)
        status = documents_prepare(change, error);
    if (!status)
        status = documents_write_row(change, error);
    if (!status)
        status = write_all_keys(change, error);
    if (status)
        return status;
    truce__writer_changed(change->writer, change->collection, change->row, change->before,
                          change->after);
    truce__writer_touch(change->writer, change->collection->name);
    status = truce__feed_report(change->writer, change->collection, change->before, change->after,
                                change->whole, error);
    if (status)
        return status;
    return note_arrays(change, error);
}

/* ---- the operations ------------------------------------------------------------------------- */

static truce_status documents_find_or_add(struct writer *writer, const char *name,
                                          const struct collection **collection, bson_error_t *error)
{
    truce_status status = truce__writer_collection(writer, name, collection, error);

    if (status || *collection)
        return status;
    status = truce__names_add_collection(writer, name, error);
    if (!status)
        status = truce__feed_report_made(writer, name, error);
    if (!status)
        status = truce__writer_collection(writer, name, collection, error);
    return status;
}

truce_status truce__documents_insert(struct writer *writer, const char *collection,
                                     const bson_t *document, bson_error_t *error)
{
    struct change change = {.writer = writer, .after = document};
    truce_status status = documents_find_or_add(writer, collection, &change.collection, error);

    return status ? status : documents_apply(&change, error);
}

truce_status truce__documents_replace(struct writer *writer, const char *collection, int64_t row,
                                      const bson_t *before, const bson_t *after, bool whole,
                                      bson_error_t *error)
{
    struct change change = {
        .writer = writer, .row = row, .before = before, .after = after, .whole = whole};
    truce_status status = truce__writer_collection(writer, collection, &change.collection, error);

    truce_assert(status || change.collection);
    return status ? status : documents_apply(&change, error);
}

truce_status truce__documents_remove(struct writer *writer, const char *collection, int64_t row,
                                     const bson_t *before, bson_error_t *error)
{
    struct change change = {.writer = writer, .row = row, .before = before};
    truce_status status = truce__writer_collection(writer, collection, &change.collection, error);

    truce_assert(status || change.collection);
    return status ? status : documents_apply(&change, error);
}

truce_status truce__documents_index(struct writer *writer, const char *collection, int64_t index,
                                    int64_t row, const bson_t *document, bson_error_t *error)
{
    struct change change = {.writer = writer, .row = row, .after = document};
    struct key_change *keys = &writer->keys[0];
    const struct index *found;
    truce_status status = truce__writer_collection(writer, collection, &change.collection, error);

    if (status)
        return status;
    found = truce__collection_index_id(change.collection, index);
    truce_assert(found);
    status = documents_make_keys(found, NULL, &keys->before, error);
    if (!status)
        status = documents_make_keys(found, document, &keys->after, error);
    if (!status)
        status = write_keys(&change, found, keys, error);
    if (!status && keys->after.multikey_fields & ~found->multikey_fields)
        status = note_multikey(writer, collection, index, keys->after.multikey_fields, error);
    return status;
}
