#include "store/overlay/overlay.h"

#include "base/assert.h"
#include "base/limits.h"
#include "query/incoming.h"
#include "store/overlay/overlay_parts.h"
#include "store/view.h"

/* ---- collections ---------------------------------------------------------------------------- */

struct collection_part *truce__overlay_part(struct overlay *overlay, const char *collection)
{
    struct collection_part **at = &overlay->parts;

    while (*at && strcmp((*at)->name, collection) != 0)
        at = &(*at)->next;
    if (!*at) {
        *at = bson_malloc0(sizeof **at);
        (*at)->name = bson_strdup(collection);
        bson_init(&(*at)->validator);
    }
    return *at;
}

truce_status truce__overlay_keep_index(struct overlay *overlay, struct collection_part *part,
                                       const bson_t *definition, bson_error_t *error)
{
    struct index_spec *spec = &part->unique[part->unique_count];
    truce_status status = truce__index_spec_parse(definition, spec, error);

    if (status)
        return status;
    if (!spec->is_id)
        status = truce_index_create(overlay->scratch, part->name, definition, error);
    if (spec->unique && !spec->is_id)
        part->unique_count++;
    else
        truce__index_spec_release(spec);
    return status;
}

static truce_status prepare_indexes(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error)
{
    bson_t indexes;
    truce_status status = truce_index_list(overlay->view, part->name, &indexes, error);
    struct fields fields = truce__fields(truce__value_document(&indexes));

    if (status == TRUCE_NOT_FOUND)
        status = TRUCE_OK;
    part->unique = bson_malloc0((TRUCE_INDEXES_MAX + 1) * sizeof *part->unique);
    while (!status && part->unique_count < TRUCE_INDEXES_MAX && truce__fields_next(&fields)) {
        bson_t definition;

        truce__value_bson(fields.value, &definition);
        status = truce__overlay_keep_index(overlay, part, &definition, error);
    }
    bson_destroy(&indexes);
    return status;
}

truce_status truce__overlay_prepare(struct overlay *overlay, struct collection_part *part,
                                    bson_error_t *error)
{
    truce_status status;

    if (part->prepared)
        return TRUCE_OK;
    status = truce_collection_create(overlay->scratch, part->name, error);
    if (!status)
        status = prepare_indexes(overlay, part, error);
    if (status)
        return status;
    part->prepared = true;
    if (!overlay->view->ops->validator) /* nothing is written over it */
        return TRUCE_OK;
    bson_destroy(&part->validator);
    return overlay->view->ops->validator(overlay->view, part->name, &part->validator, error);
}

/* ---- entries -------------------------------------------------------------------------------- */

void truce__overlay_id(const bson_t *document, bson_t *filter)
{
    bson_iter_t id;

    bson_init(filter);
    if (bson_iter_init_find(&id, document, "_id"))
        BSON_APPEND_VALUE(filter, "_id", bson_iter_value(&id));
}

static void overlay_key_of(const bson_t *document, struct buffer *key)
{
    truce__key_append(key, truce__value_field(truce__value_document(document), "_id", 3), false);
}

static struct entry **overlay_bucket_of(const struct collection_part *part,
                                        const struct buffer *key)
{
    struct fingerprint sum = {0};

    truce__fingerprint_add(&sum, key->bytes, key->size);
    return &part->buckets[sum.low & (part->buckets_count - 1)];
}

struct entry *truce__overlay_entry(const struct collection_part *part, const bson_t *document)
{
    struct buffer key = {0};
    struct entry *at;

    if (!part->entries)
        return NULL;
    overlay_key_of(document, &key);
    at = *overlay_bucket_of(part, &key);
    while (at && (at->key.size != key.size || memcmp(at->key.bytes, key.bytes, key.size) != 0))
        at = at->next;
    truce__buffer_release(&key);
    return at;
}

static void widen(struct collection_part *part)
{
    struct entry **old = part->buckets;
    uint32_t count = part->buckets_count;

    part->buckets_count = count ? 2 * count : 16;
    part->buckets = bson_malloc0(part->buckets_count * sizeof *part->buckets);
    for (uint32_t i = 0; i < count; i++)
        while (old[i]) {
            struct entry *entry = old[i], **to = overlay_bucket_of(part, &entry->key);

            old[i] = entry->next;
            entry->next = *to;
            *to = entry;
        }
    bson_free(old);
}

struct entry *truce__overlay_add(struct overlay *overlay, struct collection_part *part,
                                 const bson_t *document, const bson_t *base)
{
    struct entry *entry = bson_malloc0(sizeof *entry), **bucket;

    if (part->entries == part->buckets_count)
        widen(part);
    overlay_key_of(document, &entry->key);
    entry->base = base ? bson_copy(base) : NULL;
    entry->since = overlay->writes;
    entry->size = base ? base->len : 0;
    bucket = overlay_bucket_of(part, &entry->key);
    entry->next = *bucket;
    *bucket = entry;
    part->entries++;
    overlay->documents++;
    overlay->bytes += 2 * (size_t)entry->size;
    return entry;
}

truce_status truce__overlay_show(truce_store *base, const char *collection, const bson_t *stored,
                                 const bson_t *shown, bson_error_t *error)
{
    struct overlay *overlay = overlay_of(base);
    struct collection_part *part = truce__overlay_part(overlay, collection);
    truce_status status = truce__overlay_prepare(overlay, part, error);

    if (!status && shown)
        status = truce_insert(overlay->scratch, collection, shown, NULL, error);
    if (!status)
        (void)truce__overlay_add(overlay, part, stored, stored);
    return status;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void free_part(struct collection_part *part)
{
    while (part->reads) {
        struct read *read = part->reads;

        part->reads = read->next;
        bson_destroy(read->filter);
        if (read->sort)
            bson_destroy(read->sort);
        bson_free(read);
    }
    for (uint32_t i = 0; i < part->buckets_count; i++)
        while (part->buckets[i]) {
            struct entry *entry = part->buckets[i];

            part->buckets[i] = entry->next;
            if (entry->base)
                bson_destroy(entry->base);
            truce__buffer_release(&entry->key);
            bson_free(entry);
        }
    for (uint32_t i = 0; i < part->unique_count; i++)
        truce__index_spec_release(&part->unique[i]);
    bson_free(part->unique);
    bson_free(part->buckets);
    bson_destroy(&part->validator);
    bson_free(part->name);
    bson_free(part);
}

static void close_overlay(truce_store *base)
{
    struct overlay *overlay = overlay_of(base);

    if (overlay->told)
        atomic_fetch_sub(&overlay->options.total->bytes, overlay->told);
    while (overlay->parts) {
        struct collection_part *part = overlay->parts;

        overlay->parts = part->next;
        free_part(part);
    }
    if (!overlay->options.view)
        truce_store_close(overlay->view);
    truce_store_close(overlay->scratch);
    bson_free(overlay);
}

/* ---- the store ------------------------------------------------------------------------------ */

static const truce_store_ops overlay_ops = {
    .scheme = "transaction",
    .close = close_overlay,
    .find = truce__overlay_find,
    .count = truce__overlay_count,
    .distinct = truce__overlay_distinct,
    .aggregate = truce__overlay_aggregate,
    .bulk = truce__overlay_bulk,
    .find_and_modify = truce__overlay_modify,
    .index_list = truce__overlay_index_list,
    .index_create = truce__overlay_index_create,
    .collection_create = truce__overlay_create,
    .collection_validate = truce__overlay_validate,
    .collection_list = truce__overlay_list,
};

truce_status truce__overlay_open(truce_store *store, const struct overlay_options *options,
                                 truce_store **overlay, bson_error_t *error)
{
    struct overlay *made;
    truce_status status = TRUCE_OK;

    *overlay = NULL;
    if (!options->view && !(store->capabilities & TRUCE_CAN_CHECK))
        return truce__fail(TRUCE_INVALID, error,
                           "a store of the kind \"%s\" has no transactions of this form",
                           store->ops->scheme);
    made = bson_malloc0(sizeof *made);
    made->base.ops = &overlay_ops;
    made->base.capabilities =
        TRUCE_CAN_ATOMIC_BULK | TRUCE_IS_TRANSACTION |
        (store->capabilities &
         (TRUCE_CAN_PIPELINE_UPDATE | TRUCE_CAN_ARRAY_FILTERS | TRUCE_CAN_ITEM_UPDATE |
          TRUCE_CAN_TELL_MODIFIED | TRUCE_CAN_SORT_UPDATE));
    made->store = store;
    made->options = *options;
    if (!made->options.bytes_max)
        made->options.bytes_max = TRUCE_TRANSACTION_BYTES_MAX;
    if (!made->options.documents_max)
        made->options.documents_max = TRUCE_TRANSACTION_DOCUMENTS_MAX;
    made->view = options->view;
    if (!made->view)
        status = truce__store_snapshot(store, NULL, &made->view, error);
    if (!status)
        status = truce_store_open("memory:", NULL, &made->scratch, error);
    if (status)
        close_overlay(&made->base);
    else
        *overlay = &made->base;
    return status;
}
