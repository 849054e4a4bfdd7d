/*
 * Checking a store.
 *
 * In one snapshot: SQLite's own check of the file, then for each collection
 *
 *     every document is sound BSON, its keys in every ready index stand there with its row, and the
 *     index knows of the arrays on its paths;
 *     every index has as many entries as all documents together have keys;
 *     in a unique index no key stands twice;
 *
 * and of the feed of changes, if there is one, what feed.c says of its entries.
 *
 * Keys of one document are distinct, so "all are there" and "there are not more" together are "the
 * entries are exactly the keys", in both directions.
 */
#include "base/assert.h"
#include "engine/documents/feed.h"
#include "engine/engine.h"

struct check {
    struct kv *kv;
    const struct collection *collection;
    int64_t documents, entries;
    int64_t expected[TRUCE_INDEXES_MAX]; /* keys of all documents so far, in each index */
    struct field_keys keys;
};

static truce_status file_check_keys(struct check *check, uint32_t number, int64_t row,
                                    const bson_t *bson, bson_error_t *error)
{
    const struct index *index = &check->collection->indexes[number];
    truce_status status =
        truce__index_keys(&index->spec, truce__value_document(bson), &check->keys, error);
    uint32_t start = 0;

    if (!status && check->keys.multikey_fields & ~index->multikey_fields)
        status = truce__fail(TRUCE_CORRUPT, error,
                             "index \"%s\" of %s does not know of an array in row %lld",
                             index->spec.name, check->collection->name, (long long)row);
    for (uint32_t i = 0; i < check->keys.count && !status; i++) {
        struct bytes key = {check->keys.bytes.bytes + start, check->keys.ends[i] - start};

        status = truce__kv_key_find(check->kv, index->id, key, row, error);
        if (status == TRUCE_NOT_FOUND)
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "index \"%s\" of %s lacks a key of the document in row %lld",
                                 index->spec.name, check->collection->name, (long long)row);
        start = check->keys.ends[i];
    }
    check->expected[number] += check->keys.count;
    return status;
}

static truce_status file_check_document(struct check *check, const struct kv_cursor *cursor,
                                        bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_t document;

    if (!bson_init_static(&document, cursor->body.data, cursor->body.size) ||
        truce__document_check(&document, "document", NULL))
        return truce__fail(TRUCE_CORRUPT, error, "the document in row %lld of %s is damaged",
                           (long long)cursor->row, check->collection->name);
    for (uint32_t i = 0; i < check->collection->indexes_count && !status; i++) {
        if (check->collection->indexes[i].state == INDEX_READY)
            status = file_check_keys(check, i, cursor->row, &document, error);
    }
    check->documents++;
    return status;
}

static truce_status file_check_documents(struct check *check, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    truce_status status =
        truce__kv_rows_seek(check->kv, check->collection->id, 0, false, &cursor, error);

    while (!status) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status)
            status = file_check_document(check, &cursor, error);
    }
    truce__kv_cursor_close(&cursor);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool file_same_key(const struct buffer *last, struct bytes key)
{
    return last->size == key.size && !memcmp(last->bytes, key.data, key.size);
}

static truce_status check_entries(struct check *check, const struct index *index, int64_t expected,
                                  bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    struct buffer last = {0};
    int64_t entries = 0;
    truce_status status =
        truce__kv_keys_seek(check->kv, index->id, 0, (struct bytes){0}, 0, false, &cursor, error);

    while (!status) {
        status = truce__kv_cursor_next(&cursor, error);
        if (!status && index->spec.unique && entries && file_same_key(&last, cursor.key))
            status = truce__fail(TRUCE_CORRUPT, error,
                                 "a key stands twice in the unique index "
                                 "\"%s\" of %s",
                                 index->spec.name, check->collection->name);
        last.size = 0;
        if (!status)
            truce__buffer_append(&last, cursor.key.data, cursor.key.size);
        entries += !status;
    }
    truce__kv_cursor_close(&cursor);
    truce__buffer_release(&last);
    check->entries += entries;
    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    if (!status && entries != expected)
        status = truce__fail(TRUCE_CORRUPT, error,
                             "index \"%s\" of %s has %lld entries, its documents have %lld keys",
                             index->spec.name, check->collection->name, (long long)entries,
                             (long long)expected);
    return status;
}

static truce_status file_check_collection(struct check *check, const struct collection *collection,
                                          bson_error_t *error)
{
    truce_status status;

    check->collection = collection;
    memset(check->expected, 0, sizeof check->expected);
    status = file_check_documents(check, error);
    for (uint32_t i = 0; i < collection->indexes_count && !status; i++) {
        if (collection->indexes[i].state == INDEX_READY)
            status = check_entries(check, &collection->indexes[i], check->expected[i], error);
    }
    return status;
}

truce_status truce__engine_check(struct engine *engine, int64_t *documents, int64_t *entries,
                                 bson_error_t *error)
{
    struct check check = {0};
    struct reader *reader;
    truce_status status = truce__engine_usable(engine, error);

    if (!status)
        status = truce__engine_read_begin(engine, false, &reader, error);
    if (status)
        return status;
    check.kv = reader->kv;
    status = truce__kv_integrity(reader->kv, error);
    for (uint32_t i = 0; i < reader->catalog->count && !status; i++)
        status = file_check_collection(&check, &reader->catalog->collections[i], error);
    if (!status)
        status = truce__feed_check(reader->kv, &reader->catalog->feed, error);
    truce__engine_read_end(engine, reader);
    truce__field_keys_release(&check.keys);
    if (documents)
        *documents = check.documents;
    if (entries)
        *entries = check.entries;
    return status;
}
