/*
 * Unique keys, across the scratch and the view. The scratch has the indexes, and refuses what two of its
 * documents would share. What is left are documents that stand in the view alone: the values of each key are looked for
 * there. Others may take a key between the view and the commit; then the commit is a conflict.
 */
#include "query/index/index_set.h"
#include "store/overlay/overlay_parts.h"

/* One key of a document, in one index. */
struct unique_key {
    struct overlay *overlay;
    struct collection_part *part;
    const struct index_spec *spec;
    const bson_t *document;
    const uint8_t *bytes;
    size_t size;
};

/* Finds every document that may have the key; those that have it not are sorted out by look_at. */
static void unique_filter_of(const struct unique_key *key, bson_t *filter)
{
    bson_t both;

    truce__index_key_filter(key->spec, truce__value_document(key->document), key->bytes, key->size,
                            filter);
    if (key->spec->partial_filter) {
        BSON_APPEND_ARRAY_BEGIN(filter, "$and", &both);
        BSON_APPEND_DOCUMENT(&both, "0", key->spec->partial_filter);
        bson_append_array_end(filter, &both);
    }
}

static bool overlay_unique_holds(const struct index_keys *keys, const struct unique_key *key)
{
    uint32_t start = 0;

    for (uint32_t i = 0; i < keys->count; start = keys->ends[i++])
        if (keys->ends[i] - start == key->size &&
            !memcmp(keys->bytes.bytes + start, key->bytes, key->size))
            return true;
    return false;
}

static truce_status unique_look_at(const struct unique_key *key, const bson_t *other,
                                   bson_error_t *error)
{
    struct index_keys keys = {.bounded = true};
    truce_status status = TRUCE_OK;

    if (truce__overlay_entry(key->part, other))
        return TRUCE_OK; /* the scratch has answered for it */
    status = truce__index_keys(key->spec, truce__value_document(other), &keys, error);
    if (!status && overlay_unique_holds(&keys, key))
        status = truce__index_refuse_duplicate(key->part->name, key->spec,
                                               truce__value_document(key->document), key->bytes,
                                               key->size, error);
    truce__index_keys_release(&keys);
    return status;
}

static truce_status unique_look_for(const struct unique_key *key, bson_error_t *error)
{
    const bson_t *other;
    truce_cursor *cursor;
    truce_status status;
    bson_t filter;

    unique_filter_of(key, &filter);
    status = truce_find(key->overlay->view, key->part->name, &filter, NULL, &cursor, error);
    bson_destroy(&filter);
    if (status)
        return status;
    do {
        status = truce_cursor_next(cursor, &other, error);
        if (!status && other)
            status = unique_look_at(key, other, error);
    } while (!status && other);
    truce_cursor_close(cursor);
    return status;
}

truce_status truce__overlay_unique(struct overlay *overlay, struct collection_part *part,
                                   const bson_t *document, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < part->unique_count && !status; i++) {
        struct index_keys keys = {.bounded = true};
        struct unique_key key = {overlay, part, &part->unique[i], document, NULL, 0};
        uint32_t start = 0;

        status = truce__index_keys(key.spec, truce__value_document(document), &keys, error);
        for (uint32_t j = 0; j < keys.count && !status; start = keys.ends[j++]) {
            key.bytes = keys.bytes.bytes + start;
            key.size = keys.ends[j] - start;
            status = unique_look_for(&key, error);
        }
        truce__index_keys_release(&keys);
    }
    return status;
}
