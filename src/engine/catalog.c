/*
 * The catalog.
 *
 * Row table 0:
 *
 *     row 1        {next: int64, id?}
 *                  the next number for a table; numbers are never used again. `id` identifies the
 *                  file. It is made with this row; a file without it gets it when a server opens it
 *     row <id>     {name, indexes: [{id, state, multikey, definition: {v, key, name, ...},
 *                   hidden?}], validator?}
 *                  a collection: its documents are in c<id>, each of its indexes in x<id>. `hidden`
 *                  is outside of the definition, where programs that do not know hidden indexes
 *                  skip it and use the index
 *     row <id>     {keeps: name, indexes, validator?}
 *                  the same, for a collection whose documents the feed stores before and after a
 *                  change
 *     row <id>     {feed: 1, id, keep_ms, keep_bytes}
 *                  the feed of changes (change_feed.h), which is stored in c<id>; optional
 *
 * Invariants:
 *  1. Names are unique. The first index of every collection is the one of _id.
 *  2. The tables of the file are exactly those that the catalog names: both change in one
 *     transaction. The only exception is a damaged table of an index that a repair has left in the
 *     file (truce__catalog_move_index).
 *  3. Every change of a row from 2 on changes the version of the file.
 */
#include "engine/catalog.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits.h"
#include "query/index/index_set.h"
#include "query/match/validator.h"

/* The row table of the catalog, the row of its header, and the first number that is assigned. */
#define CATALOG      INT64_C(0)
#define ROW_NEXT     INT64_C(1)
#define FIRST_NUMBER INT64_C(2)

static truce_status catalog_bad_row(int64_t row, bson_error_t *error);

const struct collection *truce__catalog_find(const struct catalog *catalog, const char *name)
{
    uint32_t low = 0, high = catalog->count;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(catalog->collections[middle].name, name);

        if (!order)
            return &catalog->collections[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct collection *truce__catalog_find_id(const struct catalog *catalog, int64_t id)
{
    for (uint32_t i = 0; i < catalog->count; i++) {
        if (catalog->collections[i].id == id)
            return &catalog->collections[i];
    }
    return NULL;
}

const struct index *truce__collection_index(const struct collection *collection, const char *name)
{
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        if (!strcmp(collection->indexes[i].spec.name, name))
            return &collection->indexes[i];
    }
    return NULL;
}

const struct index *truce__collection_index_id(const struct collection *collection, int64_t id)
{
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        if (collection->indexes[i].id == id)
            return &collection->indexes[i];
    }
    return NULL;
}

void truce__catalog_name_table(const struct catalog *catalog, int64_t table, char *name,
                               size_t size)
{
    if (table == CATALOG)
        snprintf(name, size, "the catalog");
    if (catalog && catalog->feed.table && table == catalog->feed.table)
        snprintf(name, size, "the feed of changes");
    for (uint32_t i = 0; catalog && i < catalog->count; i++) {
        const struct collection *collection = &catalog->collections[i];
        const struct index *index = truce__collection_index_id(collection, table);

        if (collection->id == table)
            snprintf(name, size, "the documents of %s", collection->name);
        else if (index)
            snprintf(name, size, "the index %s of %s", index->spec.name, collection->name);
    }
}

/* ---- writing -------------------------------------------------------------------------------- */

static truce_status begin_header(struct kv *kv, int64_t next, const bson_oid_t *id,
                                 bson_error_t *error)
{
    bson_t header = BSON_INITIALIZER;
    int64_t row = ROW_NEXT;
    truce_status status;

    BSON_APPEND_INT64(&header, "next", next);
    BSON_APPEND_OID(&header, "id", id);
    status = truce__kv_row_insert(kv, CATALOG, &row, kv_body(&header), error);
    bson_destroy(&header);
    return status;
}

/* Returns a copy of the header and the position of `next`. Returns NOT_FOUND if the header does not
 * exist yet. */
static truce_status catalog_read_header(struct kv *kv, bson_t *header, bson_iter_t *next,
                                        bson_error_t *error)
{
    struct bytes body;
    truce_status status = truce__kv_row_get(kv, CATALOG, ROW_NEXT, &body, error);
    bson_t borrowed;

    bson_init(header);
    if (status)
        return status;
    if (!bson_init_static(&borrowed, body.data, body.size) ||
        truce__document_check(&borrowed, "catalog", NULL))
        return catalog_bad_row(ROW_NEXT, error);
    bson_concat(header, &borrowed);
    return bson_iter_init_find(next, header, "next") && BSON_ITER_HOLDS_INT64(next)
               ? TRUCE_OK
               : catalog_bad_row(ROW_NEXT, error);
}

/* Returns the next number for a table, and counts it in the header of the catalog. Creates the
 * header for the first table of a file. */
static truce_status catalog_take_number(struct kv *kv, int64_t *number, bson_error_t *error)
{
    bson_t header;
    bson_iter_t next;
    truce_status status = catalog_read_header(kv, &header, &next, error);
    bson_oid_t id;

    *number = FIRST_NUMBER;
    if (!status) {
        *number = bson_iter_int64(&next);
        bson_iter_overwrite_int64(&next, *number + 1);
        status = truce__kv_row_update(kv, CATALOG, ROW_NEXT, kv_body(&header), error);
    } else if (status == TRUCE_NOT_FOUND) {
        bson_oid_init(&id, NULL);
        status = begin_header(kv, FIRST_NUMBER + 1, &id, error);
    }
    bson_destroy(&header);
    return status;
}

truce_status truce__catalog_identify(struct kv *kv, const bson_oid_t *id, bson_error_t *error)
{
    bson_t header;
    bson_iter_t next;
    truce_status status = catalog_read_header(kv, &header, &next, error);

    if (!status && !bson_has_field(&header, "id")) {
        BSON_APPEND_OID(&header, "id", id);
        status = truce__kv_row_update(kv, CATALOG, ROW_NEXT, kv_body(&header), error);
        if (!status)
            status = truce__kv_version_bump(kv, error);
    } else if (status == TRUCE_NOT_FOUND) {
        /* The first table of the file creates the row. */
        status = TRUCE_OK;
    }
    bson_destroy(&header);
    return status;
}

void truce__catalog_uuid(const bson_oid_t *file, int64_t number, uint8_t uuid[UUID_BYTES])
{
    memcpy(uuid, file->bytes, sizeof file->bytes);
    for (int i = 0; i < 4; i++)
        uuid[12 + i] = (uint8_t)((uint64_t)number >> (24 - 8 * i));
    /* UUID version 8 (RFC 9562): the bits have a meaning that the application defines. */
    uuid[6] = (uint8_t)((uuid[6] & 0x0f) | 0x80);
    uuid[8] = (uint8_t)((uuid[8] & 0x3f) | 0x80);
}

/* Appends the entry of an index to the list of its collection, as load_read_index reads it. */
static void catalog_append_index(bson_t *list, uint32_t *count, const struct index *index)
{
    char buffer[16];
    const char *key;
    struct index_spec spec = index->spec;
    bson_t entry, definition;

    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    spec.hidden = false;
    truce__index_describe(&spec, &definition);
    bson_append_document_begin(list, key, -1, &entry);
    BSON_APPEND_INT64(&entry, "id", index->id);
    BSON_APPEND_INT32(&entry, "state", (int32_t)index->state);
    BSON_APPEND_INT32(&entry, "multikey", (int32_t)index->multikey_fields);
    BSON_APPEND_DOCUMENT(&entry, "definition", &definition);
    if (index->spec.hidden)
        BSON_APPEND_BOOL(&entry, "hidden", true);
    bson_append_document_end(list, &entry);
    bson_destroy(&definition);
}

/* Writes the row of a collection without the index `without`. The index `with` replaces the index
 * with the same id, or is appended if the collection has none. Both may be NULL. */
static void catalog_describe(const struct collection *collection, const char *name,
                             const struct index *without, const struct index *with, bson_t *row)
{
    uint32_t count = 0;
    bson_t list;

    bson_init(row);
    BSON_APPEND_UTF8(row, collection->images ? "keeps" : "name", name);
    BSON_APPEND_ARRAY_BEGIN(row, "indexes", &list);
    for (uint32_t i = 0; i < collection->indexes_count; i++) {
        const struct index *index = &collection->indexes[i];

        /* A changed index keeps its position in the list. */
        if (with && index->id == with->id)
            catalog_append_index(&list, &count, with);
        else if (index != without)
            catalog_append_index(&list, &count, index);
    }
    if (with && !truce__collection_index_id(collection, with->id))
        catalog_append_index(&list, &count, with);
    bson_append_array_end(row, &list);
    if (collection->validator)
        BSON_APPEND_DOCUMENT(row, "validator", truce__match_filter(collection->validator));
}

static truce_status write_collection(struct kv *kv, const struct collection *collection,
                                     const char *name, const struct index *without,
                                     const struct index *with, bson_error_t *error)
{
    truce_status status;
    bson_t row;

    catalog_describe(collection, name, without, with, &row);
    status = truce__kv_row_update(kv, CATALOG, collection->id, kv_body(&row), error);
    bson_destroy(&row);
    if (!status)
        status = truce__kv_version_bump(kv, error);
    return status;
}

static truce_status insert_collection(struct kv *kv, const struct collection *collection,
                                      bson_error_t *error)
{
    int64_t id = collection->id;
    truce_status status;
    bson_t row;

    catalog_describe(collection, collection->name, NULL, NULL, &row);
    status = truce__kv_row_insert(kv, CATALOG, &id, kv_body(&row), error);
    bson_destroy(&row);
    return status;
}

truce_status truce__catalog_add_collection(struct kv *kv, const char *name, bson_error_t *error)
{
    struct index id_index = {.state = INDEX_READY};
    struct collection collection = {.indexes_count = 1, .indexes = &id_index};
    truce_status status;

    truce__index_spec_of_id(&id_index.spec);
    collection.name = bson_strdup(name);
    status = catalog_take_number(kv, &collection.id, error);
    if (!status)
        status = catalog_take_number(kv, &id_index.id, error);
    if (!status)
        status = truce__kv_rows_create(kv, collection.id, error);
    if (!status)
        status = truce__kv_keys_create(kv, id_index.id, error);
    if (!status)
        status = insert_collection(kv, &collection, error);
    truce__index_spec_release(&id_index.spec);
    bson_free(collection.name);
    return status;
}

truce_status truce__catalog_drop_collection(struct kv *kv, const struct collection *collection,
                                            bson_error_t *error)
{
    truce_status status = truce__kv_rows_drop(kv, collection->id, error);

    for (uint32_t i = 0; i < collection->indexes_count && !status; i++)
        status = truce__kv_keys_drop(kv, collection->indexes[i].id, error);
    if (!status)
        status = truce__kv_row_delete(kv, CATALOG, collection->id, error);
    return status;
}

truce_status truce__catalog_rename_collection(struct kv *kv, const struct collection *collection,
                                              const char *name, bson_error_t *error)
{
    return write_collection(kv, collection, name, NULL, NULL, error);
}

truce_status truce__catalog_change_validator(struct kv *kv, const struct collection *collection,
                                             const bson_t *validator, bson_error_t *error)
{
    struct collection changed = *collection;
    truce_status status = truce__validator_new(validator, &changed.validator, error);

    if (!status)
        status = write_collection(kv, &changed, changed.name, NULL, NULL, error);
    if (changed.validator)
        truce__match_free(changed.validator);
    return status;
}

truce_status truce__catalog_change_images(struct kv *kv, const struct collection *collection,
                                          bool images, bson_error_t *error)
{
    struct collection changed = *collection;

    changed.images = images;
    return write_collection(kv, &changed, changed.name, NULL, NULL, error);
}

truce_status truce__catalog_add_index(struct kv *kv, const struct collection *collection,
                                      const struct index_spec *spec, enum index_state state,
                                      int64_t *id, bson_error_t *error)
{
    struct index index = {.state = state, .spec = *spec};
    truce_status status = catalog_take_number(kv, &index.id, error);

    if (!status)
        status = truce__kv_keys_create(kv, index.id, error);
    if (!status)
        status = write_collection(kv, collection, collection->name, NULL, &index, error);
    *id = index.id;
    return status;
}

truce_status truce__catalog_drop_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, bson_error_t *error)
{
    const struct index *index = truce__collection_index_id(collection, id);
    truce_status status;

    truce_assert(index && index != collection->indexes);
    status = truce__kv_keys_drop(kv, id, error);
    if (!status)
        status = write_collection(kv, collection, collection->name, index, NULL, error);
    return status;
}

truce_status truce__catalog_change_index(struct kv *kv, const struct collection *collection,
                                         const struct index *index, bson_error_t *error)
{
    truce_assert(truce__collection_index_id(collection, index->id));
    return write_collection(kv, collection, collection->name, NULL, index, error);
}

truce_status truce__catalog_move_index(struct kv *kv, const struct collection *collection,
                                       int64_t id, int64_t *moved, bson_error_t *error)
{
    struct collection changed = *collection;
    truce_status status = catalog_take_number(kv, moved, error);

    if (!status)
        status = truce__kv_keys_create(kv, *moved, error);
    if (status)
        return status;
    changed.indexes = bson_malloc(collection->indexes_count * sizeof *changed.indexes);
    memcpy(changed.indexes, collection->indexes,
           collection->indexes_count * sizeof *changed.indexes);
    for (uint32_t i = 0; i < changed.indexes_count; i++) {
        if (changed.indexes[i].id == id)
            changed.indexes[i].id = *moved;
    }
    status = write_collection(kv, &changed, changed.name, NULL, NULL, error);
    bson_free(changed.indexes);
    return status;
}

/* ---- the feed of changes -------------------------------------------------------------------- */

static void describe_feed(const struct feed_spec *feed, bson_t *row)
{
    bson_init(row);
    BSON_APPEND_INT32(row, "feed", 1);
    BSON_APPEND_OID(row, "id", &feed->id);
    BSON_APPEND_INT64(row, "keep_ms", feed->keep_ms);
    BSON_APPEND_INT64(row, "keep_bytes", feed->keep_bytes);
}

truce_status truce__catalog_add_feed(struct kv *kv, struct feed_spec *feed, bson_error_t *error)
{
    truce_status status = catalog_take_number(kv, &feed->table, error);
    int64_t row = feed->table;
    bson_t body;

    if (!status)
        status = truce__kv_rows_create(kv, feed->table, error);
    if (status)
        return status;
    describe_feed(feed, &body);
    status = truce__kv_row_insert(kv, CATALOG, &row, kv_body(&body), error);
    bson_destroy(&body);
    return status;
}

truce_status truce__catalog_change_feed(struct kv *kv, const struct feed_spec *feed,
                                        bson_error_t *error)
{
    truce_status status;
    bson_t body;

    describe_feed(feed, &body);
    status = truce__kv_row_update(kv, CATALOG, feed->table, kv_body(&body), error);
    bson_destroy(&body);
    return status ? status : truce__kv_version_bump(kv, error);
}

truce_status truce__catalog_drop_feed(struct kv *kv, const struct feed_spec *feed,
                                      bson_error_t *error)
{
    truce_status status = truce__kv_rows_drop(kv, feed->table, error);

    return status ? status : truce__kv_row_delete(kv, CATALOG, feed->table, error);
}

/* ---- loading -------------------------------------------------------------------------------- */

static truce_status catalog_bad_row(int64_t row, bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error,
                       "row %lld of the catalog is damaged: save the documents with truce salvage",
                       (long long)row);
}

static struct value catalog_typed_field(struct value document, const char *name, uint8_t type)
{
    struct value found = truce__value_field(document, name, strlen(name));

    return found.type == type ? found : truce__value_missing();
}

/* Fails with CORRUPT. The damaged index is the one with the number `indexes_count`, because the
 * indexes before it have been read. */
static truce_status catalog_bad_index(const struct collection *collection, const char *reason,
                                      bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error,
                       "collection \"%s\": index %u in the catalog is damaged (%s): save the "
                       "documents with truce salvage",
                       collection->name, collection->indexes_count, reason);
}

/* Reads the entry of an index in the row of its collection. Fails with CORRUPT if a field is
 * missing or invalid. */
static truce_status load_read_index(const struct collection *collection, struct value entry,
                                    struct index *index, bson_error_t *error)
{
    struct value id = catalog_typed_field(entry, "id", BSON_TYPE_INT64);
    struct value state = catalog_typed_field(entry, "state", BSON_TYPE_INT32);
    struct value multikey = catalog_typed_field(entry, "multikey", BSON_TYPE_INT32);
    struct value definition = catalog_typed_field(entry, "definition", BSON_TYPE_DOCUMENT);
    bson_t borrowed;

    if (!id.type || !state.type || !multikey.type || !definition.type)
        return catalog_bad_index(collection,
                                 !id.type           ? "no \"id\""
                                 : !state.type      ? "no \"state\""
                                 : !definition.type ? "no \"definition\""
                                                    : "no \"multikey\"",
                                 error);
    index->id = truce__value_int64(id);
    index->state = (enum index_state)truce__value_int32(state);
    index->multikey_fields = (uint32_t)truce__value_int32(multikey);
    if (index->id < FIRST_NUMBER || index->state < INDEX_BUILDING || index->state > INDEX_READY)
        return catalog_bad_index(collection, "invalid \"id\" or \"state\"", error);
    truce__value_bson(definition, &borrowed);
    if (truce__index_spec_parse(&borrowed, &index->spec, NULL))
        return catalog_bad_index(collection, "invalid \"definition\"", error);
    index->spec.hidden = truce__value_truth(catalog_typed_field(entry, "hidden", BSON_TYPE_BOOL));
    return TRUCE_OK;
}

/* Reads the indexes of a collection from its row. The index of _id is unique, although its entry
 * has no field `unique`. */
static truce_status read_indexes(struct value list, struct collection *collection,
                                 bson_error_t *error)
{
    struct fields fields = truce__fields(list);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        struct index *index;

        if (fields.value.type != BSON_TYPE_DOCUMENT ||
            collection->indexes_count == TRUCE_INDEXES_MAX)
            return catalog_bad_index(collection, "not a document, or more indexes than allowed",
                                     error);
        collection->indexes = bson_realloc(collection->indexes, (collection->indexes_count + 1) *
                                                                    sizeof *collection->indexes);
        index = &collection->indexes[collection->indexes_count];
        memset(index, 0, sizeof *index);
        status = load_read_index(collection, fields.value, index, error);
        if (!status)
            collection->indexes_count++;
    }
    if (!status && collection->indexes_count)
        collection->indexes[0].spec.unique = true;
    return status;
}

/* Compiles the validator in the row of a collection. Fails with CORRUPT if it is not a valid
 * filter. */
static truce_status load_read_validator(struct value row, struct collection *collection,
                                        bson_error_t *error)
{
    struct value validator = truce__value_field(row, "validator", 9);
    bson_t filter;

    if (validator.type == VALUE_MISSING)
        return TRUCE_OK;
    if (validator.type == BSON_TYPE_DOCUMENT) {
        truce__value_bson(validator, &filter);
        if (!truce__validator_new(&filter, &collection->validator, NULL))
            return TRUCE_OK;
    }
    return truce__fail(
        TRUCE_CORRUPT, error,
        "collection \"%s\": the validator in the catalog is damaged: save the documents with "
        "truce salvage",
        collection->name);
}

/* Reads the row of a collection: its name, indexes, and validator. Fails with CORRUPT if the row is
 * damaged, or if its first index is not the ready index of _id. */
static truce_status load_read_collection(int64_t row, struct bytes body,
                                         struct collection *collection, bson_error_t *error)
{
    struct value name, list, whole;
    truce_status status;
    uint32_t length;
    bson_t document;

    if (!bson_init_static(&document, body.data, body.size) ||
        truce__document_check(&document, "catalog", NULL))
        return catalog_bad_row(row, error);
    whole = truce__value_document(&document);
    name = catalog_typed_field(whole, "name", BSON_TYPE_UTF8);
    collection->images = !name.type;
    if (!name.type)
        name = catalog_typed_field(whole, "keeps", BSON_TYPE_UTF8);
    list = catalog_typed_field(whole, "indexes", BSON_TYPE_ARRAY);
    if (!name.type || !list.type)
        return catalog_bad_row(row, error);
    collection->id = row;
    collection->name = bson_strdup(truce__value_text(name, &length));
    status = read_indexes(list, collection, error);
    if (!status && (!collection->indexes_count || !collection->indexes[0].spec.is_id ||
                    collection->indexes[0].state != INDEX_READY))
        status = catalog_bad_row(row, error);
    return status ? status : load_read_validator(whole, collection, error);
}

/* Reads the row of the feed. Returns false if the row is another one. */
static bool read_feed(int64_t row, struct bytes body, struct feed_spec *feed)
{
    struct value whole, is, id, keep_ms, keep_bytes;
    bson_t document;

    if (!bson_init_static(&document, body.data, body.size))
        return false;
    whole = truce__value_document(&document);
    is = catalog_typed_field(whole, "feed", BSON_TYPE_INT32);
    id = catalog_typed_field(whole, "id", BSON_TYPE_OID);
    keep_ms = catalog_typed_field(whole, "keep_ms", BSON_TYPE_INT64);
    keep_bytes = catalog_typed_field(whole, "keep_bytes", BSON_TYPE_INT64);
    if (!is.type || !id.type || !keep_ms.type || !keep_bytes.type)
        return false;
    *feed = (struct feed_spec){row, .keep_ms = truce__value_int64(keep_ms),
                               .keep_bytes = truce__value_int64(keep_bytes)};
    bson_oid_init_from_data(&feed->id, id.data);
    return true;
}

static void load_read_header(struct bytes body, struct catalog *catalog)
{
    struct value id = {0};
    bson_t header;

    if (bson_init_static(&header, body.data, body.size) &&
        !truce__document_check(&header, "catalog", NULL))
        id = catalog_typed_field(truce__value_document(&header), "id", BSON_TYPE_OID);
    catalog->has_id = id.type == BSON_TYPE_OID;
    if (catalog->has_id)
        bson_oid_init_from_data(&catalog->id, id.data);
}

static int load_by_name(const void *a, const void *b)
{
    return strcmp(((const struct collection *)a)->name, ((const struct collection *)b)->name);
}

/* Reads all rows of the catalog: the header, the feed, and the collections. */
static truce_status load_read_rows(struct kv *kv, struct catalog *catalog, bson_error_t *error)
{
    struct kv_cursor cursor = {0};
    truce_status status = truce__kv_rows_seek(kv, CATALOG, ROW_NEXT - 1, false, &cursor, error);

    while (!status) {
        struct collection *collection;

        status = truce__kv_cursor_next(&cursor, error);
        if (status)
            break;
        if (cursor.row == ROW_NEXT) {
            load_read_header(cursor.body, catalog);
            continue;
        }
        if (!catalog->feed.table && read_feed(cursor.row, cursor.body, &catalog->feed))
            continue;
        catalog->collections =
            bson_realloc(catalog->collections, (catalog->count + 1) * sizeof *catalog->collections);
        collection = &catalog->collections[catalog->count++];
        memset(collection, 0, sizeof *collection);
        status = load_read_collection(cursor.row, cursor.body, collection, error);
    }
    truce__kv_cursor_close(&cursor);
    if (!catalog->has_id)
        catalog->id = catalog->feed.id;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Sorts the collections by name and checks that names are unique. */
static truce_status load_check_names(struct catalog *catalog, bson_error_t *error)
{
    if (catalog->count)
        qsort(catalog->collections, catalog->count, sizeof *catalog->collections, load_by_name);
    for (uint32_t i = 1; i < catalog->count; i++) {
        if (!load_by_name(&catalog->collections[i - 1], &catalog->collections[i]))
            return catalog_bad_row(catalog->collections[i].id, error);
    }
    return TRUCE_OK;
}

truce_status truce__catalog_load(struct kv *kv, uint32_t version, struct catalog **catalog,
                                 bson_error_t *error)
{
    struct catalog *made = bson_malloc0(sizeof *made);
    truce_status status;

    atomic_init(&made->references, 1);
    made->version = version;
    status = truce__kv_schema_check(kv, error);
    if (!status)
        status = load_read_rows(kv, made, error);
    if (!status)
        status = load_check_names(made, error);
    if (status) {
        truce__catalog_release(made);
        made = NULL;
    }
    *catalog = made;
    return status;
}

struct catalog *truce__catalog_hold(struct catalog *catalog)
{
    atomic_fetch_add(&catalog->references, 1);
    return catalog;
}

static void release_collection(struct collection *collection)
{
    for (uint32_t i = 0; i < collection->indexes_count; i++)
        truce__index_spec_release(&collection->indexes[i].spec);
    bson_free(collection->indexes);
    truce__match_free(collection->validator);
    bson_free(collection->name);
}

void truce__catalog_release(struct catalog *catalog)
{
    if (!catalog || atomic_fetch_sub(&catalog->references, 1) > 1)
        return;
    for (uint32_t i = 0; i < catalog->count; i++)
        release_collection(&catalog->collections[i]);
    bson_free(catalog->collections);
    bson_free(catalog);
}
