#include "server/command/collection_uuid.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "server/command/handlers.h"

/* ---- the lock on names ----------------------------------------------------------------------- */

void same_collection_begin(struct call *call)
{
    if (!(call->command->traits & COMMAND_CHANGES_NAMES))
        return;
    pthread_rwlock_wrlock(&call->server->names);
    call->holds_names = true;
}

static void keep_names(struct call *call)
{
    if (call->holds_names)
        return;
    pthread_rwlock_rdlock(&call->server->names);
    call->holds_names = true;
}

void same_collection_end(struct call *call)
{
    if (call->holds_names)
        pthread_rwlock_unlock(&call->server->names);
    call->holds_names = false;
}

/* ---- the check ------------------------------------------------------------------------------- */

static bool has_uuid(const bson_t *facts, const uint8_t uuid[16], bool *any)
{
    bson_subtype_t subtype;
    const uint8_t *bytes;
    uint32_t size;
    bson_iter_t at;

    if (!bson_iter_init_find(&at, facts, "uuid") || !BSON_ITER_HOLDS_BINARY(&at))
        return false;
    *any = true;
    bson_iter_binary(&at, &subtype, &size, &bytes);
    return size == 16 && !memcmp(bytes, uuid, 16);
}

struct search {
    /* The collection that has the UUID, borrowed from the list, or NULL. */
    const char *found;
    /* At least one collection has a UUID. */
    bool any;
    /* The list has at least one collection. */
    bool there;
};

/* Searches a list of truce_collection_list for the collection with the UUID. */
static struct search collection_find_uuid(const bson_t *list, const uint8_t uuid[16])
{
    struct search search = {0};
    struct fields fields = truce__fields(truce__value_document(list));

    while (!search.found && truce__fields_next(&fields)) {
        bson_t facts;

        truce__value_bson(fields.value, &facts);
        search.there = true;
        if (has_uuid(&facts, uuid, &search.any))
            search.found = truce__field_text(&facts, "name");
    }
    return search;
}

/* Fails with 361, and sets call->mismatch to its details. `found` is the stored name of the
 * collection that has the UUID, or NULL. */
static truce_status collection_refuse(struct call *call, const char *database,
                                      const char *collection, const uint8_t uuid[16],
                                      const char *found, bson_error_t *error)
{
    const char *actual =
        found ? truce__stored_name_plain(call->server->database, database, found) : NULL;
    struct uuid_mismatch *mismatch = truce__arena_take(&call->arena, sizeof *mismatch);

    *mismatch = (struct uuid_mismatch){
        .database = truce__arena_copy(&call->arena, database, strlen(database) + 1),
        .expected = truce__arena_copy(&call->arena, collection, strlen(collection) + 1)};
    if (actual)
        mismatch->actual = truce__arena_copy(&call->arena, actual, strlen(actual) + 1);
    memcpy(mismatch->uuid, uuid, sizeof mismatch->uuid);
    call->mismatch = mismatch;
    return truce__refuse(CODE_COLLECTION_UUID_MISMATCH, error,
                         "Collection UUID does not match that specified");
}

/* Checks that a collection has the UUID, and fails with the collection that has it otherwise. */
static truce_status collection_compare(struct call *call, const char *database,
                                       const char *collection, const uint8_t uuid[16],
                                       bson_error_t *error)
{
    static const truce_list_options options = {.unmeasured = true, .uuids = true};
    char stored_name[STORED_NAME_MAX];
    struct search search;
    bson_t list;
    truce_status status =
        truce__stored_name_of(call->server->database, database, collection, stored_name, error);

    if (status)
        return status;
    status = truce_collection_list(call->store, &options, &list, error);
    if (!status) {
        search = collection_find_uuid(&list, uuid);
        if (search.there && !search.any)
            status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                                   "collectionUUID is supported only by a store in a file");
        else if (!search.found || strcmp(search.found, stored_name) != 0)
            status = collection_refuse(call, database, collection, uuid, search.found, error);
    }
    bson_destroy(&list);
    return status;
}

static truce_status same_collection(struct call *call, const char *database, const char *collection,
                                    const bson_value_t *uuid, bson_error_t *error)
{
    if (uuid->value_type != BSON_TYPE_BINARY || uuid->value.v_binary.subtype != BSON_SUBTYPE_UUID ||
        uuid->value.v_binary.data_len != 16)
        return truce__refuse(
            CODE_TYPE_MISMATCH, error,
            "a collectionUUID must be a UUID (a binary of subtype 4 with 16 bytes), not %s",
            truce__type_name((uint8_t)uuid->value_type));
    keep_names(call);
    return collection_compare(call, database, collection, uuid->value.v_binary.data, error);
}

truce_status same_collection_of(struct call *call, const char *ns, const bson_value_t *uuid,
                                bson_error_t *error)
{
    char database[DATABASE_NAME_MAX + 1];
    size_t length = strcspn(ns, ".");

    snprintf(database, sizeof database, "%.*s", (int)length, ns);
    return same_collection(call, database, ns + length + 1, uuid, error);
}

/* ---- collections of the command -------------------------------------------------------------- */

truce_status same_collection_check(struct call *call, bson_error_t *error)
{
    bson_iter_t at;

    if (!(call->command->traits & COMMAND_HAS_UUID) ||
        !bson_iter_init_find(&at, &call->request->body, "collectionUUID") ||
        BSON_ITER_HOLDS_NULL(&at))
        return TRUCE_OK;
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "collectionUUID needs a command that names a collection");
    return same_collection(call, call->database, bson_iter_utf8(&call->value, NULL),
                           bson_iter_value(&at), error);
}
