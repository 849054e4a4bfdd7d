/* create, collMod, drop, and renameCollection, for collections and views. */
#include "server/command/handlers.h"

#include <stdio.h>
#include <string.h>

#include "bson/value.h"
#include "engine/documents/open_documents.h"
#include "query/index/index.h"
#include "query/input_check.h"
#include "query/match/match.h"
#include "server/command/collection_uuid.h"
#include "server/session/change_stream.h"
#include "store/collection_use.h"
#include "store/decorators/database_view.h"
#include "store/file/file.h"
#include "store/reserved_names.h"

/* ---- collections ----------------------------------------------------------------------------- */

struct shape {
    /* NULL if the command has no such option. */
    const bson_t *validator, *images;
    /* An option of collMod. */
    const bson_t *index;
    /* An option of create. */
    const bson_t *id_index;
    const char *level, *action;
    /* The fields of a view. They exclude all others. */
    struct view_fields view;
};

#define SHAPE_FIELDS                                                                               \
    {"changeStreamPreAndPostImages", FIELD_DOCUMENT, offsetof(struct shape, images)},              \
        {"validationAction", FIELD_TEXT, offsetof(struct shape, action)},                          \
        {"validationLevel", FIELD_TEXT, offsetof(struct shape, level)},                            \
    {                                                                                              \
        "validator", FIELD_DOCUMENT, offsetof(struct shape, validator)                             \
    }
#define VIEW_FIELDS                                                                                \
    {"viewOn", FIELD_TEXT, offsetof(struct shape, view.on)},                                       \
    {                                                                                              \
        "pipeline", FIELD_ARRAY, offsetof(struct shape, view.pipeline)                             \
    }

/* Checks that the validator compiles, and that its level and action are the only supported ones. */
static truce_status check_validation(const struct shape *shape, bson_error_t *error)
{
    struct match *match = NULL;
    truce_status status;

    if ((shape->level && strcmp(shape->level, "strict") != 0) ||
        (shape->action && strcmp(shape->action, "error") != 0))
        return truce__refuse(
            CODE_COMMAND_NOT_SUPPORTED, error,
            "validationLevel must be \"strict\", and validationAction \"error\": they are "
            "\"%.40s\" and \"%.40s\"",
            shape->level ? shape->level : "strict", shape->action ? shape->action : "error");
    status = truce__match_new(shape->validator, &match, error);
    truce__match_free(match);
    return status;
}

/* Reads {enabled: true or false} of changeStreamPreAndPostImages. */
static truce_status read_enabled(struct call *call, const bson_t *images, bool *enabled,
                                 bson_error_t *error)
{
    const char *name = call->command->name;
    bson_iter_t at;
    bool given = false;

    (void)bson_iter_init(&at, images);
    while (bson_iter_next(&at)) {
        if (strcmp(bson_iter_key(&at), "enabled") != 0)
            return truce__refuse(
                40415, error,
                "BSON field '%s.changeStreamPreAndPostImages.%.80s' is an unknown field.", name,
                bson_iter_key(&at));
        if (!BSON_ITER_HOLDS_BOOL(&at))
            return truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "BSON field '%s.changeStreamPreAndPostImages.enabled' is the "
                                 "wrong type '%s', expected type 'bool'",
                                 name, truce__type_name((uint8_t)bson_iter_type(&at)));
        *enabled = bson_iter_bool(&at);
        given = true;
    }
    return given ? TRUCE_OK
                 : truce__refuse(40414, error,
                                 "BSON field '%s.changeStreamPreAndPostImages.enabled' is missing "
                                 "but a required field",
                                 name);
}

/* Checks {enabled}. Only a store with a change feed, a file, keeps documents as they were before a
 * change. */
static truce_status check_images(struct call *call, const bson_t *images, bool *enabled,
                                 bson_error_t *error)
{
    truce_status status;

    if (!images)
        return TRUCE_OK;
    status = read_enabled(call, images, enabled, error);
    if (status || !*enabled)
        return status;
    if (!strcmp(call->database, "admin") || !strcmp(call->database, "config") ||
        !strcmp(call->database, "local"))
        return truce__refuse(
            CODE_INVALID_OPTIONS, error,
            "changeStreamPreAndPostImages collection option is not supported on the %s database",
            call->database);
    if (call->session.transaction)
        return truce__refuse(CODE_NOT_IN_TRANSACTION, error,
                             "changeStreamPreAndPostImages cannot be set in a transaction");
    if (!truce__file_engine_or_null(call->server->store))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "changeStreamPreAndPostImages is supported only by a store in a file");
    return TRUCE_OK;
}

static truce_status collection_check_shape(struct call *call, const struct shape *shape,
                                           bool *images, bson_error_t *error)
{
    truce_status status = check_validation(shape, error);

    return status ? status : check_images(call, shape->images, images, error);
}

/* Reads the fields of create or collMod, and the stored name that it names. */
static truce_status read_shape(struct call *call, const struct field *fields, struct shape *shape,
                               char stored_name[STORED_NAME_MAX], bson_error_t *error)
{
    truce_status status = call_stored_name(call, stored_name, error);

    return status ? status : call_own_fields(call, fields, shape, error);
}

/* Refuses the options that views do not support. */
static truce_status refuse_on_view(const struct shape *shape, bson_error_t *error)
{
    const char *other = shape->validator ? "validator"
                        : shape->level   ? "validationLevel"
                        : shape->action  ? "validationAction"
                        : shape->images  ? "changeStreamPreAndPostImages"
                        : shape->index   ? "index"
                                         : NULL;

    return other ? truce__refuse(CODE_INVALID_OPTIONS, error, "option not supported on a view: %s",
                                 other)
                 : TRUCE_OK;
}

/* Returns the engine of the file, which makes several changes in one step. Returns NULL if the
 * store has no engine, or the call does not run on the server's store. */
static struct engine *collection_engine_of(struct call *call)
{
    return call->session.transaction ? NULL : truce__file_engine_or_null(call->server->store);
}

static struct collection_options options_of(const struct shape *shape, const bool *images)
{
    return (struct collection_options){shape->validator, shape->images ? images : NULL};
}

static truce_status serve_collection_validate(struct call *call, const char *stored_name,
                                              const struct shape *shape, bson_error_t *error)
{
    if (!shape->validator)
        return TRUCE_OK;
    return truce_collection_validate(call->store, stored_name, shape->validator, error);
}

static const struct field modify_fields[] = {
    SHAPE_FIELDS,
    VIEW_FIELDS,
    {"index", FIELD_DOCUMENT, offsetof(struct shape, index)},
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* collection_uuid.h */
    {NULL, FIELD_IGNORED, 0}};

static truce_status modify_view(struct call *call, const struct view *view,
                                const struct shape *shape, bson_error_t *error)
{
    truce_status status = refuse_on_view(shape, error);

    return status ? status : view_modify(call, view, &shape->view, error);
}

/* Makes the changes of collMod in one step, which only a file supports. If `index` is NULL, changes
 * no index. */
static truce_status modify_to(struct call *call, const char *stored_name, const struct shape *shape,
                              const bool *images, const struct modified_index *index,
                              bson_error_t *error)
{
    struct engine *engine = collection_engine_of(call);
    struct collection_options options = options_of(shape, images);

    if (engine) {
        options.index = index ? index->name : NULL;
        options.changes = index ? &index->changes : NULL;
        return truce__engine_collection_modify(engine, stored_name, &options, error);
    }
    if (index && options.validator)
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "only a store in a file can change an index and a validator at once: "
                             "send one collMod for each");
    return index ? truce_index_modify(call->server->store, stored_name, index->name,
                                      &index->changes, error)
                 : serve_collection_validate(call, stored_name, shape, error);
}

/* Runs collMod on a collection, and appends the changes of an index. */
static truce_status modify_collection(struct call *call, const char *stored_name,
                                      const struct shape *shape, bson_t *reply, bson_error_t *error)
{
    struct modified_index index;
    bool images = false;
    truce_status status = collection_check_shape(call, shape, &images, error);

    if (!status && (shape->view.on || shape->view.pipeline))
        status = truce__refuse(CODE_INVALID_OPTIONS, error, "option only supported on a view: %s",
                               shape->view.pipeline ? "pipeline" : "viewOn");
    if (status || !shape->index)
        return status ? status : modify_to(call, stored_name, shape, &images, NULL, error);
    status = serve_modified_index(call, stored_name, shape->index, &index, error);
    if (!status)
        status = modify_to(call, stored_name, shape, &images, &index, error);
    if (!status)
        serve_append_modified(&index, reply);
    bson_destroy(&index.changes);
    return status;
}

truce_status serve_modify_collection(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct shape shape = {0};
    const struct view *view = NULL;
    char stored_name[STORED_NAME_MAX];
    truce_status status = read_shape(call, modify_fields, &shape, stored_name, error);

    if (!status)
        status = view_refuse_system(call->database, bson_iter_utf8(&call->value, NULL), error);
    if (!status)
        status = views_find(call->server->views, call->database, bson_iter_utf8(&call->value, NULL),
                            &call->arena, &view, error);
    if (!status)
        status = view ? modify_view(call, view, &shape, error)
                      : modify_collection(call, stored_name, &shape, reply, error);
    return status;
}

static const struct field create_fields[] = {
    SHAPE_FIELDS,
    VIEW_FIELDS,
    {"autoIndexId", FIELD_IGNORED, 0},
    {"capped", FIELD_PLAIN, 0},
    {"clusteredIndex", FIELD_PLAIN, 0},
    {"collation", FIELD_PLAIN, 0},
    {"encryptedFields", FIELD_PLAIN, 0},
    {"expireAfterSeconds", FIELD_PLAIN, 0},
    {"idIndex", FIELD_DOCUMENT, offsetof(struct shape, id_index)},
    {"indexOptionDefaults", FIELD_PLAIN, 0},
    {"max", FIELD_PLAIN, 0},
    {"size", FIELD_PLAIN, 0},
    {"storageEngine", FIELD_PLAIN, 0},
    {"timeseries", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

/* Creates the collection and sets its options, in one step where the store supports it. */
static truce_status collection_make_collection(struct call *call, const char *stored_name,
                                               const struct shape *shape, bool images,
                                               bson_error_t *error)
{
    struct collection_options options = options_of(shape, &images);
    struct engine *engine = collection_engine_of(call);
    truce_status status = truce__collection_name_check(stored_name, error);

    if (!status && engine)
        return truce__engine_collection_create(engine, stored_name, &options, error);
    if (!status)
        status = truce_collection_create(call->store, stored_name, error);
    return status ? status : serve_collection_validate(call, stored_name, shape, error);
}

static truce_status refuse_view(struct call *call, const char *name, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_EXISTS, error,
                         "namespace '%s' already exists, but is a view",
                         call_namespace(call, name));
}

/* Checks the option idIndex. Every collection has the index {_id: 1}. Its options are checked, and
 * have no effect. */
static truce_status check_id_index(const bson_t *specification, bson_error_t *error)
{
    struct index_spec spec = {0};
    truce_status status = truce__index_spec_parse(specification, &spec, error);

    if (!status && !spec.is_id)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "the field 'key' of idIndex must be {_id: 1}, not that of '%s'",
                               spec.name);
    truce__index_spec_release(&spec);
    return status;
}

/* Creates a collection with the options of `create`. Fails if a collection or a view has the
 * name. */
static truce_status create_collection(struct call *call, const char *stored_name,
                                      const struct shape *shape, bson_error_t *error)
{
    const char *name = bson_iter_utf8(&call->value, NULL);
    const struct view *view = NULL;
    bool there = false, images = false;
    truce_status status = collection_check_shape(call, shape, &images, error);

    if (!status && shape->id_index)
        status = check_id_index(shape->id_index, error);
    if (!status && shape->view.pipeline)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'pipeline' requires 'viewOn' to also be specified");
    if (!status)
        status = view_refuse_system(call->database, name, error);
    if (!status)
        status = serve_is_there(call, stored_name, &there, NULL, error);
    if (!status)
        status = views_find(call->server->views, call->database, name, &call->arena, &view, error);
    if (!status && view)
        return refuse_view(call, name, error);
    if (!status && there)
        return truce__refuse(CODE_NAMESPACE_EXISTS, error, "Collection %s already exists.",
                             call_namespace(call, name));
    if (!status)
        status = collection_make_collection(call, stored_name, shape, images, error);
    /* Another client has just created a view of this name. */
    return status && error->code == CODE_COMMAND_NOT_SUPPORTED_ON_VIEW
               ? refuse_view(call, name, error)
               : status;
}

truce_status serve_create(struct call *call, bson_t *reply, bson_error_t *error)
{
    char stored_name[STORED_NAME_MAX];
    struct shape shape = {0};
    truce_status status = read_shape(call, create_fields, &shape, stored_name, error);

    (void)reply;
    if (status || !shape.view.on)
        return status ? status : create_collection(call, stored_name, &shape, error);
    status = refuse_on_view(&shape, error);
    return status ? status
                  : view_create(call, bson_iter_utf8(&call->value, NULL), &shape.view, error);
}

/* Checks that the collection may be dropped. View definitions are removed with their views or their
 * database, never alone. */
static truce_status check_drop(struct call *call, const char *name, bson_error_t *error)
{
    const struct view *all;
    uint32_t count = 0;
    truce_status status = TRUCE_OK;

    if (!strcmp(name, VIEWS_COLLECTION))
        status = views_all(call->server->views, call->database, &call->arena, &all, &count, error);
    return !status && count
               ? truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "cannot drop %s while there are views", call_namespace(call, name))
               : status;
}

static const struct field drop_fields[] = {
    {"collectionUUID", FIELD_IGNORED, 0, true}, /* collection_uuid.h */
    {NULL, FIELD_IGNORED, 0}};

truce_status serve_drop(struct call *call, bson_t *reply, bson_error_t *error)
{
    char stored_name[STORED_NAME_MAX];
    bool was = false;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, drop_fields, NULL, error);
    if (!status)
        status = check_drop(call, bson_iter_utf8(&call->value, NULL), error);
    if (!status)
        status = view_drop(call, bson_iter_utf8(&call->value, NULL), &was, error);
    if (!status && !was)
        status = truce_collection_drop(call->server->store, stored_name, error);
    if (!status)
        BSON_APPEND_UTF8(reply, "ns", call_namespace(call, bson_iter_utf8(&call->value, NULL)));
    /* Dropping a collection that does not exist succeeds, as in MongoDB since 7.0. */
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* ---- by their whole names: "school.students" ------------------------------------------------- */

static truce_status refuse_target(const char *ns, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_EXISTS, error,
                         "a view already exists with that name: %.200s", ns);
}

/* Converts a namespace of renameCollection. With `target`, its collection must not exist yet. */
static truce_status stored_name_of_namespace(struct call *call, const char *ns, uint32_t actions,
                                             bool target, char stored_name[STORED_NAME_MAX],
                                             bson_error_t *error)
{
    const uint32_t reads = ACTION_FIND | ACTION_STATS | ACTION_LIST;
    char database[DATABASE_NAME_MAX + 1];
    const char *dot = strchr(ns, '.');
    size_t length = dot ? (size_t)(dot - ns) : 0;
    truce_status status;

    if (!length || length > DATABASE_NAME_MAX)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "\"%.80s\" is not of the form DATABASE.COLLECTION", ns);
    snprintf(database, sizeof database, "%.*s", (int)length, ns);
    status = truce__database_name_check(database, error);
    if (!status)
        status = access_need_collection(call, database, dot + 1, actions, error);
    if (!status)
        status = view_refuse(call, database, dot + 1, actions & ~reads, error);
    if (target && status && error->code == CODE_COMMAND_NOT_SUPPORTED_ON_VIEW)
        return refuse_target(ns, error);
    return status ? status
                  : truce__stored_name_of(call->server->database, database, dot + 1, stored_name,
                                          error);
}

truce_status serve_stored_name_of(struct call *call, const char *ns, uint32_t actions,
                                  char stored_name[STORED_NAME_MAX], bson_error_t *error)
{
    return stored_name_of_namespace(call, ns, actions, false, stored_name, error);
}

/* ---- renameCollection ------------------------------------------------------------------------ */

struct rename {
    const char *to;
    const bson_value_t *drop, *uuid; /* `drop` is true or the UUID of the collection to drop. */
};

static const struct field rename_fields[] = {
    {"to", FIELD_TEXT, offsetof(struct rename, to)},
    {"dropTarget", FIELD_VALUE, offsetof(struct rename, drop)},
    {"collectionUUID", FIELD_VALUE, offsetof(struct rename, uuid), true},
    {NULL, FIELD_IGNORED, 0}};

static bool is_same_database(const char *from, const char *to)
{
    size_t length = strcspn(from, ".");

    return length == strcspn(to, ".") && !strncmp(from, to, length);
}

/* Checks that both collections still have the UUIDs that the client knows, if it gave any. */
static truce_status collection_check_same(struct call *call, const char *from,
                                          const struct rename *rename, bson_error_t *error)
{
    bool drops_one = rename->drop && rename->drop->value_type == BSON_TYPE_BINARY;
    truce_status status = TRUCE_OK;

    if ((rename->uuid || drops_one) && !is_same_database(from, rename->to))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "collectionUUID and a UUID as dropTarget are supported only within "
                             "one database");
    if (rename->uuid)
        status = same_collection_of(call, from, rename->uuid, error);
    if (!status && drops_one)
        status = same_collection_of(call, rename->to, rename->drop, error);
    return status;
}

/* Reads `dropTarget`: a boolean, a number, or a UUID, which collection_check_same checks. */
static truce_status read_drop(const bson_value_t *given, bool *drop, bson_error_t *error)
{
    bson_iter_t at;
    bson_t holder;
    bool known;

    *drop = given != NULL;
    if (!given || given->value_type == BSON_TYPE_BINARY)
        return TRUCE_OK;
    call_value_iter(given, &holder, &at);
    known = BSON_ITER_HOLDS_BOOL(&at) || truce__field_is_number(&at);
    *drop = known && truce__field_truth(&at);
    bson_destroy(&holder);
    return known ? TRUCE_OK
                 : truce__refuse(CODE_TYPE_MISMATCH, error,
                                 "the field 'dropTarget' must be true or false, or a UUID, not %s",
                                 truce__type_name((uint8_t)given->value_type));
}

/* Checks that the collection is not the server's own, and that no pattern of its database uses
 * it. */
static truce_status collection_check_unused(struct call *call, const char *ns,
                                            const char *stored_name, bson_error_t *error)
{
    char database[DATABASE_NAME_MAX + 1];
    truce_store *view;
    truce_status status;

    if (truce__reserved_stored_name(stored_name))
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "%s is reserved for truce: it cannot be renamed or replaced", ns);
    snprintf(database, sizeof database, "%.*s", (int)strcspn(ns, "."), ns);
    view = truce__database_open(call->server->store, call->server->database, database);
    status = truce__collection_check_unused(view, ns + strlen(database) + 1, error);
    truce_store_close(view);
    return status;
}

truce_status serve_rename(struct call *call, bson_t *reply, bson_error_t *error)
{
    const char *ns = BSON_ITER_HOLDS_UTF8(&call->value) ? bson_iter_utf8(&call->value, NULL) : NULL;
    bool drop = false;
    char from[STORED_NAME_MAX], to[STORED_NAME_MAX];
    uint32_t away = ACTION_SHAPE, there = ACTION_SHAPE;
    struct rename rename = {0};
    truce_status status = call_own_fields(call, rename_fields, &rename, error);

    (void)reply;
    if (!status)
        status = read_drop(rename.drop, &drop, error);
    if (!status && (!rename.to || !ns))
        status = truce__refuse(
            40414, error,
            "renameCollection needs two namespaces: {renameCollection: FROM, to: TO}");
    if (!status && !is_same_database(ns, rename.to)) {
        /* A move to another database also reads and removes the documents here, and writes them
         * there. */
        away |= ACTION_FIND | ACTION_WRITE;
        there |= ACTION_WRITE;
    }
    if (!status)
        status = serve_stored_name_of(call, ns, away, from, error);
    if (!status)
        status = stored_name_of_namespace(call, rename.to, there, true, to, error);
    if (!status)
        status = collection_check_same(call, ns, &rename, error);
    if (!status)
        status = collection_check_unused(call, ns, from, error);
    if (!status)
        status = collection_check_unused(call, rename.to, to, error);
    if (status)
        return status;
    status = truce_collection_rename(call->server->store, from, to, drop, error);
    /* Another client has just created a view of this name. */
    return status && error->code == CODE_COMMAND_NOT_SUPPORTED_ON_VIEW
               ? refuse_target(rename.to, error)
               : status;
}
