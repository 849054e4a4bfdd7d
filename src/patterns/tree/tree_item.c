/* Documents of items: their stored form, and the form that users see. */
#include <string.h>

#include "base/arena.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/null.h"
#include "base/object_id.h"
#include "base/reserved_fields.h"
#include "bson/field_name_escape.h"
#include "bson/value_set.h"
#include "patterns/tree/tree.h"
#include "query/input_check.h"
#include "store/reserved_names.h"
#include "store/snapshot_view.h"

enum field { USERS, SHOWN_ID, SHOWN_VERSION, TOKEN, STAMP, REMOVED, ERASED, HIDDEN };

/* Returns which field of truce the key is. `version` and `itemId` are visible to users. Compares
 * the length first. */
static enum field tree_classify_field(const char *key, uint32_t length)
{
    switch (length) {
    case 3:
        return !memcmp(key, "_id", 3) ? HIDDEN : !memcmp(key, "pub", 3) ? STAMP : USERS;
    case 4:
        return !memcmp(key, "tree", 4) ? HIDDEN : USERS;
    case 5:
        return !memcmp(key, "token", 5) ? TOKEN : USERS;
    case 6:
        return !memcmp(key, "itemId", 6)   ? SHOWN_ID
               : !memcmp(key, "erased", 6) ? ERASED
               : !memcmp(key, "edited", 6) ? HIDDEN
                                           : USERS;
    case 7:
        return !memcmp(key, "version", 7)   ? SHOWN_VERSION
               : !memcmp(key, "removed", 7) ? REMOVED
               : !memcmp(key, "_intent", 7) ? HIDDEN
                                            : USERS;
    default:
        return USERS;
    }
}

static bool item_is_own(const char *field)
{
    return tree_classify_field(field, (uint32_t)strlen(field)) > SHOWN_VERSION;
}

/* ---- one pass -------------------------------------------------------------------------------- */

/* Stores one parsed field of an item. */
static void item_take(struct tree_item *item, enum field field, struct value value)
{
    switch (field) {
    case SHOWN_ID:
        if (!item->id.type)
            item->id = value;
        break;
    case SHOWN_VERSION:
        if (truce__value_is_integer(value))
            item->version = truce__value_integer(value);
        break;
    case TOKEN:
        item->token = value;
        break;
    case STAMP:
        item->stamped = true;
        break;
    case REMOVED:
    case ERASED:
        item->absent = true;
        break;
    default:
        break;
    }
}

static void end_piece(struct tree_item *item, const uint8_t *from, const uint8_t *to)
{
    if (from == to || item->count > TREE_OWN_FIELDS)
        return;
    item->pieces[item->count].from = from;
    item->pieces[item->count++].size = (uint32_t)(to - from);
    item->size += (uint32_t)(to - from);
}

void truce__tree_item_parse(const bson_t *document, struct tree_item *item)
{
    struct fields fields = truce__fields(truce__value_document(document));
    const uint8_t *from = fields.at, *at = fields.at;

    *item = (struct tree_item){0};
    while (truce__fields_next(&fields)) {
        enum field field = tree_classify_field(fields.key, fields.key_length);

        if (field != USERS)
            item_take(item, field, fields.value);
        if (field > SHOWN_VERSION) {
            end_piece(item, from, at);
            from = fields.at;
        }
        at = fields.at;
    }
    end_piece(item, from, at);
}

void truce__tree_pack(const struct tree_item *item, uint8_t *bytes)
{
    uint32_t size = BSON_UINT32_TO_LE(item->size + 5);

    memcpy(bytes, &size, sizeof size);
    bytes += sizeof size;
    for (uint32_t i = 0; i < item->count; i++) {
        memcpy(bytes, item->pieces[i].from, item->pieces[i].size);
        bytes += item->pieces[i].size;
    }
    *bytes = 0;
}

/* ---- the stored and the visible form --------------------------------------------------------- */

truce_status truce__tree_item_check(const bson_t *item, struct value *id, bson_error_t *error)
{
    truce_status status = truce__document_check(item, "item", error);
    bson_iter_t iter;

    if (status)
        return status;
    *id = truce__tree_item_id(item);
    if (!id->type)
        return truce__fail(TRUCE_INVALID, error,
                           "the item has no field \"itemId\", which identifies it in all versions");
    if (!truce__value_identifies(*id))
        return truce__fail(
            TRUCE_INVALID, error,
            "an itemId must be a string, number, ObjectId, date, bool, or binary value, not %s",
            truce__type_name(id->type));
    for (bson_iter_init(&iter, item); bson_iter_next(&iter);) {
        if (item_is_own(bson_iter_key(&iter)))
            return truce__fail(
                TRUCE_INVALID, error,
                "an item must not have a field \"%s\": the name is reserved for truce",
                bson_iter_key(&iter));
    }
    if (item->len > TRUCE_DOCUMENT_BYTES_MAX - TREE_ITEM_ROOM)
        return truce__fail(TRUCE_LIMIT, error,
                           "the item has %u bytes; the maximum is %d minus %d for truce's fields",
                           item->len, TRUCE_DOCUMENT_BYTES_MAX, TREE_ITEM_ROOM);
    return TRUCE_OK;
}

struct value truce__tree_item_id(const bson_t *document)
{
    return truce__value_field(truce__value_document(document), "itemId", 6);
}

bool truce__tree_absent(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "removed") ||
           bson_iter_init_find(&iter, document, "erased");
}

void truce__tree_show(const bson_t *document, bson_t *item)
{
    struct fields fields = truce__fields(truce__value_document(document));

    while (truce__fields_next(&fields)) {
        if (!item_is_own(fields.key))
            truce__value_append(item, fields.key, fields.key_length, fields.value);
    }
    truce__names_restore_own(item);
}

/* Appends the stored form of an item. truce's fields come first, so indexes and readers find them
 * without passing over the user's fields. */
void truce__tree_item_document(const truce_tree *tree, int64_t version, const bson_oid_t *token,
                               struct value id, const bson_t *item, bson_t *document)
{
    struct fields fields;
    bson_oid_t fresh;
    bson_t stored;

    truce__id_new(&fresh);
    BSON_APPEND_OID(document, "_id", &fresh);
    BSON_APPEND_UTF8(document, "tree", tree->name);
    truce__value_append(document, "itemId", 6, id);
    BSON_APPEND_INT64(document, "version", version);
    BSON_APPEND_OID(document, "token", token);
    if (!item) {
        BSON_APPEND_BOOL(document, "removed", true);
        return;
    }
    truce__names_store(item, &stored);
    fields = truce__fields(truce__value_document(&stored));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "itemId") && strcmp(fields.key, "version"))
            truce__value_append(document, fields.key, fields.key_length, fields.value);
    }
    bson_destroy(&stored);
}

/* Advances to the next field of the user. Returns false at the end. */
static bool next_of_users(struct fields *fields)
{
    while (truce__fields_next(fields)) {
        if (!item_is_own(fields->key) && strcmp(fields->key, "version"))
            return true;
    }
    return false;
}

bool truce__tree_same(const bson_t *item, const bson_t *other)
{
    struct fields a, b;

    if (!item || !other || truce__tree_absent(item) != truce__tree_absent(other))
        return item == other;
    a = truce__fields(truce__value_document(item));
    b = truce__fields(truce__value_document(other));
    while (next_of_users(&a)) {
        if (!next_of_users(&b) || a.key_length != b.key_length ||
            memcmp(a.key, b.key, a.key_length) || !truce__value_identical(a.value, b.value))
            return false;
    }
    return !next_of_users(&b);
}

void truce__tree_filter(const truce_tree *tree, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_UTF8(filter, "tree", tree->name);
}

void truce__tree_append_id(bson_t *filter, const char *key, struct value id)
{
    bson_t inner;

    BSON_APPEND_DOCUMENT_BEGIN(filter, key, &inner);
    truce__value_append(&inner, "$eq", 3, id);
    bson_append_document_end(filter, &inner);
}
