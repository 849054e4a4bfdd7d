/* The documents of items: as they are kept, and as users see them. */
#include <string.h>

#include "base/field.h"
#include "base/id.h"
#include "patterns/tree/tree.h"
#include "query/incoming.h"

static const char *const own[] = {"_id", "tree", "token", "pub", "removed", "erased", "edited"};

/* `version` is shown, and is not the user's all the same. */
static bool is_own(const char *field)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (!strcmp(field, own[i]))
            return true;
    }
    return false;
}

truce_status truce__tree_check_item(const bson_t *item, struct value *id, bson_error_t *error)
{
    truce_status status = truce__document_check(item, "item", error);
    bson_iter_t iter;

    if (status)
        return status;
    *id = truce__tree_item_id(item);
    if (!id->type)
        return truce__fail(TRUCE_INVALID, error, "the item has no field \"itemId\"");
    if (!truce__value_identifies(*id))
        return truce__fail(TRUCE_INVALID, error,
                           "an itemId is a text, number, ObjectId, date, bool or binary, not %s",
                           truce__type_name(id->type));
    for (bson_iter_init(&iter, item); bson_iter_next(&iter);) {
        if (is_own(bson_iter_key(&iter)))
            return truce__fail(TRUCE_INVALID, error, "the field \"%s\" of an item is truce's own",
                               bson_iter_key(&iter));
    }
    if (item->len > TRUCE_DOCUMENT_BYTES_MAX - TREE_ITEM_ROOM)
        return truce__fail(TRUCE_LIMIT, error,
                           "the item has %u bytes, more than %d less %d for truce's own fields",
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
        if (!is_own(fields.key))
            truce__value_append(item, fields.key, fields.key_length, fields.value);
    }
}

/* An index's key may have them no further behind, and a reader that looks for them finds them at once. */
void truce__tree_keep_item(const truce_tree *tree, int64_t version, const bson_oid_t *token,
                           struct value id, const bson_t *item, bson_t *document)
{
    struct fields fields;
    bson_oid_t fresh;

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
    fields = truce__fields(truce__value_document(item));
    while (truce__fields_next(&fields)) {
        if (strcmp(fields.key, "itemId") && strcmp(fields.key, "version"))
            truce__value_append(document, fields.key, fields.key_length, fields.value);
    }
}

/* The next field that is the user's; false: there is none. */
static bool next_of_users(struct fields *fields)
{
    while (truce__fields_next(fields)) {
        if (!is_own(fields->key) && strcmp(fields->key, "version"))
            return true;
    }
    return false;
}

bool truce__tree_same(const bson_t *item, const bson_t *other)
{
    struct fields a = truce__fields(truce__value_document(item)),
                  b = truce__fields(truce__value_document(other));

    if (truce__tree_absent(item) != truce__tree_absent(other))
        return false;
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
