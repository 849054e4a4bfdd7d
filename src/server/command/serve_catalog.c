/* listDatabases, listCollections, dropDatabase. */
#include "server/command/cursor_reply.h"
#include "server/command/handlers.h"
#include "server/command/read_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/random.h"
#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "query/match/match.h"
#include "server/command/collection_sizes.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"
#include "store/reserved_names.h"

/* ---- listing --------------------------------------------------------------------------------- */

/* The collections of the store, in the form of truce_collection_list. */
struct stored_names {
    bson_t list;
    bson_iter_t at;
};

/* Lists the collections of the store, to be visited one after the other. `only` and `measured` are
 * those of truce_list_options. */
static truce_status stored_names_begin(struct call *call, const char *only, bool measured,
                                       struct stored_names *stored_names, bson_error_t *error)
{
    const truce_list_options options = {
        .collection = only, .unmeasured = !measured, .pages = measured, .uuids = true};
    truce_status status = truce_collection_list(call->store, &options, &stored_names->list, error);

    (void)bson_iter_init(&stored_names->at, &stored_names->list);
    return status;
}

/* Returns the next collection; `facts` is a view. */
static bool stored_names_next(struct stored_names *stored_names, const char **stored_name,
                              bson_t *facts)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!bson_iter_next(&stored_names->at) || !BSON_ITER_HOLDS_DOCUMENT(&stored_names->at))
        return false;
    bson_iter_document(&stored_names->at, &size, &bytes);
    (void)bson_init_static(facts, bytes, size);
    *stored_name = truce__field_text(facts, "name");
    return true;
}

truce_status serve_is_there(struct call *call, const char *stored_name, bool *there, bson_t *facts,
                            bson_error_t *error)
{
    struct stored_names stored_names;
    truce_status status = stored_names_begin(call, stored_name, facts, &stored_names, error);
    const char *name;
    bson_t view;

    *there = !status && stored_names_next(&stored_names, &name, &view);
    if (*there && facts)
        bson_copy_to(&view, facts);
    else if (facts)
        bson_init(facts);
    bson_destroy(&stored_names.list);
    return status;
}

truce_status serve_no_such_namespace(struct call *call, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "ns does not exist: %s",
                         call_namespace(call, bson_iter_utf8(&call->value, NULL)));
}

truce_status serve_drop_database(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct stored_names stored_names = {.list = BSON_INITIALIZER};
    struct engine *engine = truce__file_engine_or_null(call->server->store);
    const char *stored_name;
    bool any = false;
    bson_t facts;
    truce_status status = call_no_fields(call, error);

    if (!status) {
        bson_destroy(&stored_names.list);
        status = stored_names_begin(call, NULL, false, &stored_names, error);
    }
    /* The database admin stores the users. */
    if (!status && !strcmp(call->database, "admin"))
        status = truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "Dropping the 'admin' database is prohibited.");
    while (!status && stored_names_next(&stored_names, &stored_name, &facts))
        if (truce__stored_name_plain(call->server->database, call->database, stored_name)) {
            status = truce_collection_drop(call->server->store, stored_name, error);
            any = any || !status;
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK; /* Another client has dropped the collection in the meantime. */
        }
    if (!status && any && engine) /* Change streams of the database then receive dropDatabase. */
        status = truce__engine_feed_note(engine, FEED_DROP_DATABASE, call->database, error);
    bson_destroy(&stored_names.list);
    BSON_APPEND_UTF8(reply, "dropped", call->database);
    return status;
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct list {
    const bson_t *filter;
    bool names_only;
    const bson_t *cursor; /* Only listCollections has this option. */
};

static const struct field list_fields[] = {
    {"filter", FIELD_DOCUMENT, offsetof(struct list, filter)},
    {"nameOnly", FIELD_FLAG, offsetof(struct list, names_only)},
    {"authorizedCollections", FIELD_IGNORED, 0},
    {"authorizedDatabases", FIELD_IGNORED, 0},
    {"cursor", FIELD_DOCUMENT, offsetof(struct list, cursor)},
    {NULL, FIELD_IGNORED, 0}};

/* The entries of a list that match the client's filter. */
struct filtered {
    struct match *match;
    struct query_context context;
    bson_t array;
    uint32_t count;
};

static truce_status filtered_begin(struct call *call, struct filtered *filtered, struct list *list,
                                   bson_error_t *error)
{
    truce_status status = call_own_fields(call, list_fields, list, error);

    *filtered =
        (struct filtered){.context = {.now_ms = truce__clock_wall_ms(), .arena = &call->arena}};
    bson_init(&filtered->array);
    return status ? status : truce__match_new(list->filter, &filtered->match, error);
}

/* Appends the entry to the list if it matches the client's filter. */
static truce_status catalog_filter_document(struct filtered *filtered, const bson_t *document,
                                            bson_error_t *error)
{
    struct match_result result;
    char buffer[16];
    const char *key;
    truce_status status = truce__match_test(filtered->match, truce__value_document(document),
                                            &filtered->context, &result, error);

    if (status || !result.matched)
        return status;
    bson_uint32_to_string(filtered->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(&filtered->array, key, document);
    return TRUCE_OK;
}

static void filtered_end(struct filtered *filtered)
{
    if (filtered->match)
        truce__match_free(filtered->match);
    bson_destroy(&filtered->array);
}

/* Makes the entry of a collection for listCollections. */
static void catalog_describe_collection(const char *name, const bson_t *facts, bool name_only,
                                        bson_t *document)
{
    bson_t options = BSON_INITIALIZER, info = BSON_INITIALIZER, validator;
    bson_iter_t uuid;

    bson_init(document);
    BCON_APPEND(document, "name", BCON_UTF8(name), "type", BCON_UTF8("collection"));
    if (truce__value_subdocument(facts, "validator", &validator))
        BCON_APPEND(&options, "validator", BCON_DOCUMENT(&validator), "validationLevel",
                    BCON_UTF8("strict"), "validationAction", BCON_UTF8("error"));
    if (bson_has_field(facts, "images"))
        BCON_APPEND(&options, "changeStreamPreAndPostImages", "{", "enabled", BCON_BOOL(true), "}");
    BSON_APPEND_BOOL(&info, "readOnly", false);
    if (truce__reserved(name)) /* A viewer can hide truce's own collections. */
        BSON_APPEND_BOOL(&info, "truce", true);
    if (bson_iter_init_find(&uuid, facts, "uuid"))
        bson_append_iter(&info, "uuid", 4, &uuid);
    if (!name_only)
        BCON_APPEND(document, "options", BCON_DOCUMENT(&options), "info", BCON_DOCUMENT(&info),
                    "idIndex", "{", "v", BCON_INT32(2), "key", "{", "_id", BCON_INT32(1), "}",
                    "name", BCON_UTF8("_id_"), "}");
    bson_destroy(&info);
    bson_destroy(&options);
}

/* Appends the views of the database that match the client's filter. */
static truce_status list_views(struct call *call, bool names_only, struct filtered *filtered,
                               bson_error_t *error)
{
    const struct view *all;
    uint32_t count;
    bson_t document;
    truce_status status =
        views_all(call->server->views, call->database, &call->arena, &all, &count, error);

    for (uint32_t i = 0; i < count && !status; i++) {
        view_describe(&all[i], names_only, &document);
        status = catalog_filter_document(filtered, &document, error);
        bson_destroy(&document);
    }
    return status;
}

truce_status serve_list_collections(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct stored_names stored_names = {.list = BSON_INITIALIZER};
    struct filtered filtered;
    struct list list = {0};
    const char *stored_name;
    bson_t facts, document;
    int64_t most = INT64_MAX;
    truce_status status = filtered_begin(call, &filtered, &list, error);

    if (!status)
        status = request_batch(call, list.cursor, &most, error);
    if (!status && most < INT64_MAX)
        status = cursor_reply_room(call, error);
    if (!status) {
        bson_destroy(&stored_names.list);
        status = stored_names_begin(call, NULL, false, &stored_names, error);
    }
    while (!status && stored_names_next(&stored_names, &stored_name, &facts)) {
        const char *name =
            truce__stored_name_plain(call->server->database, call->database, stored_name);

        if (!name)
            continue;
        catalog_describe_collection(name, &facts, list.names_only, &document);
        status = catalog_filter_document(&filtered, &document, error);
        bson_destroy(&document);
    }
    if (!status)
        status = list_views(call, list.names_only, &filtered, error);
    if (!status)
        status = cursor_reply_array(call, bson_copy(&filtered.array), "$cmd.listCollections", most,
                                    reply, error);
    bson_destroy(&stored_names.list);
    filtered_end(&filtered);
    return status;
}

truce_status serve_list_databases(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct databases databases = {0};
    struct filtered filtered;
    struct list list = {0};
    bool all = access_may(call, NULL, ACTION_LIST_DATABASES);
    int64_t total = 0;
    bson_t document;
    truce_status status = filtered_begin(call, &filtered, &list, error);

    if (!status)
        status = databases_count(call, !list.names_only, &databases, error);
    for (uint32_t i = 0; i < databases.count && !status; i++) {
        const struct database *database = &databases.all[i];
        int64_t bytes = database->sizes.storage + database->sizes.index_bytes;

        if (!all && !access_may(call, database->name, ACTION_FIND))
            continue;
        bson_init(&document);
        BSON_APPEND_UTF8(&document, "name", database->name);
        if (!list.names_only) {
            BSON_APPEND_INT64(&document, "sizeOnDisk", bytes);
            BSON_APPEND_BOOL(&document, "empty", database->sizes.documents == 0);
        }
        status = catalog_filter_document(&filtered, &document, error);
        bson_destroy(&document);
        total += bytes;
    }
    BSON_APPEND_ARRAY(reply, "databases", &filtered.array);
    if (!list.names_only)
        BSON_APPEND_INT64(reply, "totalSize", total);
    bson_free(databases.all);
    filtered_end(&filtered);
    return status;
}
