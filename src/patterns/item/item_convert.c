/*
 * Converts arrays to maps and back while writers use either, and creates indexes for both.
 *
 *     {_id, badges: as read} -> {$set: {badges: in the other layout}}
 *
 * Each document gets one compared write, in the order of _id, in passes until a pass finds nothing
 * to convert. A document that changed in between is read again. The documents themselves show what
 * is done. So an interrupted conversion can be started again, and two concurrent ones are harmless.
 *
 * A document that cannot be converted (an item without identity, or two with the same) stays
 * unchanged and is counted.
 */
#include "patterns/item/item.h"

#include "base/deadline.h"
#include "base/limits.h"
#include "base/object_id.h"
#include "commit/journal.h"
#include "query/input_check.h"
#include "store/maintenance.h"
#include "store/store.h"

/* ---- converting ------------------------------------------------------------------------------ */

struct conversion {
    truce_item *item;
    truce_item_layout layout;
    struct worker worker;
    truce_item_converted *converted;
    bson_error_t *why;
};

static bool conversion_is_due(const struct conversion *conversion, const bson_t *document)
{
    enum item_state state = truce__item_state(conversion->item, document);

    return state == (conversion->layout == TRUCE_ITEM_MAP ? ITEM_LIST : ITEM_TABLE);
}

/* Writes the converted document unless the stored one has changed since it was read. Sets *took if
 * it was written. */
static truce_status convert_write_document(struct conversion *conversion, const bson_t *document,
                                           const bson_t *made, bool *took, bson_error_t *error)
{
    const truce_item *item = conversion->item;
    static const bson_t everything = BSON_INITIALIZER;
    struct item_call call = {.item = item, .filter = &everything};
    struct item_outcome outcome = {.after =
                                       truce__value_field(truce__value_document(made), "v", 1)};
    truce_write_options options = {.relaxed = item->relaxed, .deadline_ms = item->deadline_ms};
    truce_write_result result = {0};
    struct item_write write;
    truce_status status;
    bson_oid_t rev;

    truce__id_new(&rev);
    truce__item_compared(&call, document, &outcome, &rev, &write);
    status = truce_update(item->store, item->collection, &write.filter, &write.update, &options,
                          &result, error);
    *took = !status && result.matched > 0;
    truce_write_result_release(&result);
    truce__item_write_release(&write);
    return status;
}

/* Converts a document that has the other layout. Sets *done if it was written or cannot be
 * converted; `why` gets the first reason of a refusal. */
static truce_status convert_as_read(struct conversion *conversion, const bson_t *document,
                                    bool *done, bson_error_t *error)
{
    struct value items = truce__item_at(document, conversion->item->owner);
    truce_status status = TRUCE_OK;
    bson_error_t refusal;
    bson_t made;

    if (conversion->layout == TRUCE_ITEM_MAP)
        status = truce__item_to_map(conversion->item, items, &made, &refusal);
    else
        truce__item_to_array(conversion->item, items, &made);
    if (status) {
        if (!conversion->converted->refused++ && conversion->why)
            *conversion->why = refusal;
        *done = true;
        status = TRUCE_OK;
    } else {
        status = convert_write_document(conversion, document, &made, done, error);
        conversion->converted->documents += *done;
    }
    bson_destroy(&made);
    return status;
}

/* Converts one document, and reads it again until it is converted or does not have to be. */
static truce_status convert_one(struct conversion *conversion, const bson_value_t *id,
                                bson_error_t *error)
{
    const truce_item *item = conversion->item;
    DEADLINE_SCOPE(item->deadline_ms ? item->deadline_ms : COMMIT_DEADLINE_MS);
    truce_status status = TRUCE_OK;
    bool done = false;

    for (int attempt = 0; !status && !done; attempt++) {
        bson_t document;

        if (attempt)
            status = truce__worker_wait(&conversion->worker, "a document", error);
        if (status)
            return status;
        status = truce__journal_read(&conversion->worker, conversion->item->collection, id,
                                     &document, error);
        if (status == TRUCE_NOT_FOUND) {
            status = TRUCE_OK;
            done = true;
        } else if (!status && !conversion_is_due(conversion, &document)) {
            done = true;
        } else if (!status) {
            status = convert_as_read(conversion, &document, &done, error);
            /* The write got no reply and may have taken effect, so the document is read again. */
            if (truce__unanswered(status))
                status = TRUCE_OK;
        }
        bson_destroy(&document);
    }
    return status;
}

/* Converts the documents of the old layout that the cursor returns. The next pass finds those that
 * were added in the meantime. */
static truce_status convert_pass(struct conversion *conversion, bson_error_t *error)
{
    const truce_item *item = conversion->item;
    bool to_map = conversion->layout == TRUCE_ITEM_MAP;
    bson_t *sort = BCON_NEW("_id", BCON_INT32(1)), *only = BCON_NEW("_id", BCON_INT32(1));
    bson_t *filter = to_map ? BCON_NEW(item->plain, "{", "$type", BCON_UTF8("array"), "}")
                            : BCON_NEW(item->plain, "{", "$type", BCON_UTF8("object"), "$not", "{",
                                       "$type", BCON_UTF8("array"), "}", "}");
    truce_find_options options = {.sort = sort, .projection = only};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    truce_status status =
        truce_find(item->store, item->collection, filter, &options, &cursor, error);
    bson_iter_t iter;

    while (!status) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        status = truce__document_need_id(item->collection, document, &iter, error);
        if (status)
            break;
        truce__worker_init(&conversion->worker, item->store, item->deadline_ms);
        status = convert_one(conversion, bson_iter_value(&iter), error);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    bson_destroy(sort);
    bson_destroy(only);
    return status;
}

truce_status truce_item_convert(truce_item *item, truce_item_layout layout,
                                truce_item_converted *converted, bson_error_t *why,
                                bson_error_t *error)
{
    truce_item_converted counted = {0};
    struct conversion conversion = {
        .item = item, .layout = layout, .converted = &counted, .why = why};
    truce_status status = TRUCE_OK;
    int64_t before;

    if (item->refused)
        status = truce__fail(TRUCE_INVALID, error, "%s", item->refusal.message);
    else if (item->nested)
        status =
            truce__fail(TRUCE_INVALID, error,
                        "items below an array (\"%s\") cannot be stored as a map", item->field);
    do {
        before = counted.documents;
        counted.refused = 0;
        if (!status)
            status = convert_pass(&conversion, error);
    } while (!status && counted.documents > before);
    if (converted)
        *converted = counted;
    return status;
}

/* ---- indexes --------------------------------------------------------------------------------- */

static truce_status convert_create(truce_item *item, char *path, bson_error_t *error)
{
    bson_t *index = BCON_NEW("key", "{", path, BCON_INT32(1), "}");
    truce_status status = truce__index_ensure(item->store, item->collection, index, error);

    bson_destroy(index);
    bson_free(path);
    return status;
}

/* Creates an index for each key of a map: on the item, or on a field of it. */
static truce_status index_keys(truce_item *item, const char *path, const bson_t *keys,
                               bson_error_t *error)
{
    struct fields fields = truce__fields(truce__value_document(keys));
    truce_status status = TRUCE_OK;

    while (!status && truce__fields_next(&fields)) {
        char *key = truce__item_key_of(fields.value);
        char text[120];

        if (!key)
            return truce__fail(TRUCE_INVALID, error, "no item is identified by %s",
                               truce__value_show(fields.value, text, sizeof text));
        status = convert_create(item,
                                path ? bson_strdup_printf("%s.%s.%s", item->plain, key, path)
                                     : bson_strdup_printf("%s.%s", item->plain, key),
                                error);
        bson_free(key);
    }
    return status;
}

truce_status truce_item_index(truce_item *item, truce_item_layout layout, const char *path,
                              const bson_t *keys, bson_error_t *error)
{
    truce_status status;

    if (item->refused)
        return truce__fail(TRUCE_INVALID, error, "%s", item->refusal.message);
    status = truce__check_optional(keys, "list of keys", error);
    if (status)
        return status;
    if (layout == TRUCE_ITEM_ARRAY)
        return convert_create(
            item, bson_strdup_printf("%s.%s", item->plain, path ? path : item->identity), error);
    if (keys)
        return index_keys(item, path, keys, error);
    if (!(item->store->capabilities & TRUCE_CAN_WILDCARD_INDEX))
        return truce__fail(TRUCE_INVALID, error,
                           "this store has no wildcard indexes: name the keys of the map that must "
                           "be indexed");
    return convert_create(item, bson_strdup_printf("%s.$**", item->plain), error);
}

char *truce_item_key(const bson_value_t *identity)
{
    bson_t holder = BSON_INITIALIZER;
    char *key;

    if (truce__check_value(identity, "identity", NULL))
        return NULL;
    bson_append_value(&holder, "v", 1, identity);
    key = truce__item_key_of(truce__value_field(truce__value_document(&holder), "v", 1));
    bson_destroy(&holder);
    return key;
}
