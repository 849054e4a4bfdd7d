/* The catalog, as it is read (catalog.c has the form of its rows). */
#include "engine/documents/catalog_rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "query/index/index_set.h"
#include "query/match/validator.h"

truce_status truce__catalog_bad_row(int64_t row, bson_error_t *error)
{
    return truce__fail(TRUCE_CORRUPT, error, "row %lld of the catalog is damaged", (long long)row);
}

static struct value field(struct value document, const char *name, uint8_t type)
{
    struct value found = truce__value_field(document, name, strlen(name));

    return found.type == type ? found : truce__value_missing();
}

static truce_status load_read_index(struct value entry, struct index *index, bson_error_t *error)
{
    struct value id = field(entry, "id", BSON_TYPE_INT64);
    struct value state = field(entry, "state", BSON_TYPE_INT32);
    struct value multikey = field(entry, "multikey", BSON_TYPE_INT32);
    struct value definition = field(entry, "definition", BSON_TYPE_DOCUMENT);
    bson_t borrowed;

    if (!id.type || !state.type || !multikey.type || !definition.type)
        return truce__fail(TRUCE_CORRUPT, error, "an index of the catalog is damaged");
    index->id = truce__value_int64(id);
    index->state = (enum index_state)truce__value_int32(state);
    index->multikey_fields = (uint32_t)truce__value_int32(multikey);
    if (index->id < FIRST_NUMBER || index->state < INDEX_BUILDING || index->state > INDEX_READY)
        return truce__fail(TRUCE_CORRUPT, error, "an index of the catalog is damaged");
    truce__value_bson(definition, &borrowed);
    if (truce__index_spec_parse(&borrowed, &index->spec, NULL))
        return truce__fail(TRUCE_CORRUPT, error,
                           "the definition of an index of the catalog is damaged");
    index->spec.hidden = truce__value_truth(field(entry, "hidden", BSON_TYPE_BOOL));
    return TRUCE_OK;
}

/* The index of _id is unique without saying so. */
static truce_status read_indexes(struct value list, struct collection *collection,
                                 bson_error_t *error)
{
    struct fields fields = truce__fields(list);
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        struct index *index;

        if (fields.value.type != BSON_TYPE_DOCUMENT ||
            collection->indexes_count == TRUCE_INDEXES_MAX)
            return truce__fail(TRUCE_CORRUPT, error, "an index of the catalog is damaged");
        collection->indexes = bson_realloc(collection->indexes, (collection->indexes_count + 1) *
                                                                    sizeof *collection->indexes);
        index = &collection->indexes[collection->indexes_count];
        memset(index, 0, sizeof *index);
        status = load_read_index(fields.value, index, error);
        if (!status)
            collection->indexes_count++;
    }
    if (!status && collection->indexes_count)
        collection->indexes[0].spec.unique = true;
    return status;
}

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
    return truce__fail(TRUCE_CORRUPT, error, "the validator of %s in the catalog is damaged",
                       collection->name);
}

static truce_status load_read_collection(int64_t row, struct bytes body,
                                         struct collection *collection, bson_error_t *error)
{
    struct value name, list, whole;
    truce_status status;
    uint32_t length;
    bson_t document;

    if (!bson_init_static(&document, body.data, body.size) ||
        truce__document_check(&document, "catalog", NULL))
        return truce__catalog_bad_row(row, error);
    whole = truce__value_document(&document);
    name = field(whole, "name", BSON_TYPE_UTF8);
    collection->images = !name.type;
    if (!name.type)
        name = field(whole, "keeps", BSON_TYPE_UTF8);
    list = field(whole, "indexes", BSON_TYPE_ARRAY);
    if (!name.type || !list.type)
        return truce__catalog_bad_row(row, error);
    collection->id = row;
    collection->name = bson_strdup(truce__value_text(name, &length));
    status = read_indexes(list, collection, error);
    if (!status && (!collection->indexes_count || !collection->indexes[0].spec.is_id ||
                    collection->indexes[0].state != INDEX_READY))
        status = truce__catalog_bad_row(row, error);
    return status ? status : load_read_validator(whole, collection, error);
}

/* Is it the row of the feed? */
static bool read_feed(int64_t row, struct bytes body, struct feed_spec *feed)
{
    struct value whole, is, id, keep_ms, keep_bytes;
    bson_t document;

    if (!bson_init_static(&document, body.data, body.size))
        return false;
    whole = truce__value_document(&document);
    is = field(whole, "feed", BSON_TYPE_INT32);
    id = field(whole, "id", BSON_TYPE_OID);
    keep_ms = field(whole, "keep_ms", BSON_TYPE_INT64);
    keep_bytes = field(whole, "keep_bytes", BSON_TYPE_INT64);
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
        id = field(truce__value_document(&header), "id", BSON_TYPE_OID);
    catalog->has_id = id.type == BSON_TYPE_OID;
    if (catalog->has_id)
        bson_oid_init_from_data(&catalog->id, id.data);
}

static int load_by_name(const void *a, const void *b)
{
    return strcmp(((const struct collection *)a)->name, ((const struct collection *)b)->name);
}

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

/* Into their order. */
static truce_status load_check_names(struct catalog *catalog, bson_error_t *error)
{
    if (catalog->count)
        qsort(catalog->collections, catalog->count, sizeof *catalog->collections, load_by_name);
    for (uint32_t i = 1; i < catalog->count; i++) {
        if (!load_by_name(&catalog->collections[i - 1], &catalog->collections[i]))
            return truce__catalog_bad_row(catalog->collections[i].id, error);
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
