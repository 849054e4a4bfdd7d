/* Databases and collections. */
#include "server/groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/random.h"
#include "bson/value.h"
#include "engine/engine.h"
#include "query/incoming.h"
#include "query/match/match.h"
#include "server/sizes.h"
#include "server/watch.h"

/* ---- what is there -------------------------------------------------------------------------- */

/* The collections of the store, each as truce_collection_list says. */
struct places {
    bson_t list;
    bson_iter_t at;
};

/* `only`, `measured`: as truce_list_options. */
static truce_status places_begin(struct call *call, const char *only, bool measured,
                                 struct places *places, bson_error_t *error)
{
    const truce_list_options options = {.collection = only, .unmeasured = !measured};
    truce_status status = truce_collection_list(call->store, &options, &places->list, error);

    (void)bson_iter_init(&places->at, &places->list);
    return status;
}

/* The next one; `facts` is a view. */
static bool places_next(struct places *places, const char **place, bson_t *facts)
{
    const uint8_t *bytes;
    uint32_t size;

    if (!bson_iter_next(&places->at) || !BSON_ITER_HOLDS_DOCUMENT(&places->at))
        return false;
    bson_iter_document(&places->at, &size, &bytes);
    (void)bson_init_static(facts, bytes, size);
    *place = truce__field_text(facts, "name");
    return true;
}

truce_status serve_is_there(struct call *call, const char *place, bool *there, bson_t *facts,
                            bson_error_t *error)
{
    struct places places;
    truce_status status = places_begin(call, place, facts, &places, error);
    const char *name;
    bson_t view;

    *there = !status && places_next(&places, &name, &view);
    if (*there && facts)
        bson_copy_to(&view, facts);
    else if (facts)
        bson_init(facts);
    bson_destroy(&places.list);
    return status;
}

truce_status serve_no_such_place(struct call *call, bson_error_t *error)
{
    return truce__refuse(CODE_NAMESPACE_NOT_FOUND, error, "ns does not exist: %s",
                         call_namespace(call, bson_iter_utf8(&call->value, NULL)));
}

/* ---- collections ---------------------------------------------------------------------------- */

struct shape {
    const bson_t *validator, *images; /* NULL: not given */
    const char *level, *action;
};

#define SHAPE_FIELDS                                                                               \
    {"changeStreamPreAndPostImages", FIELD_DOCUMENT, offsetof(struct shape, images)},              \
        {"validationAction", FIELD_TEXT, offsetof(struct shape, action)},                          \
        {"validationLevel", FIELD_TEXT, offsetof(struct shape, level)},                            \
    {                                                                                              \
        "validator", FIELD_DOCUMENT, offsetof(struct shape, validator)                             \
    }

static truce_status check_validation(const struct shape *shape, bson_error_t *error)
{
    struct match *match = NULL;
    truce_status status;

    if ((shape->level && strcmp(shape->level, "strict") != 0) ||
        (shape->action && strcmp(shape->action, "error") != 0))
        return truce__refuse(
            CODE_COMMAND_NOT_SUPPORTED, error,
            "a validator is for every write (\"strict\"), and refuses (\"error\")");
    status = truce__match_new(shape->validator, &match, error);
    truce__match_free(match);
    return status;
}

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

/* {enabled}: the documents of the collection as they were are kept by the feed, which a file has. */
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
                             "changeStreamPreAndPostImages is not set in a transaction");
    if (!watch_engine(call->server->store))
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "changeStreamPreAndPostImages is of a store that is a file");
    return TRUCE_OK;
}

static truce_status read_shape(struct call *call, const struct field *fields, struct shape *shape,
                               bool *images, bson_error_t *error)
{
    truce_status status = call_own_fields(call, fields, shape, error);

    if (!status)
        status = check_validation(shape, error);
    return status ? status : check_images(call, shape->images, images, error);
}

/* The engine of the file, where one step does all of it; NULL: there is none, or it is not the one that is to be changed. */
static struct engine *engine_of(struct call *call)
{
    return call->session.transaction ? NULL : watch_engine(call->server->store);
}

static struct collection_options options_of(const struct shape *shape, const bool *images)
{
    return (struct collection_options){shape->validator, shape->images ? images : NULL};
}

static truce_status validate(struct call *call, const char *place, const struct shape *shape,
                             bson_error_t *error)
{
    if (!shape->validator)
        return TRUCE_OK;
    return truce_collection_validate(call->store, place, shape->validator, error);
}

static const struct field modify_fields[] = {SHAPE_FIELDS, {NULL, FIELD_IGNORED, 0}};

truce_status serve_modify_collection(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct engine *engine = engine_of(call);
    struct collection_options options;
    struct shape shape = {0};
    char place[PLACE_MAX];
    bool images = false;
    truce_status status = call_place(call, place, error);

    (void)reply;
    if (!status)
        status = read_shape(call, modify_fields, &shape, &images, error);
    if (status)
        return status;
    options = options_of(&shape, &images);
    return engine ? truce__engine_collection_modify(engine, place, &options, error)
                  : validate(call, place, &shape, error);
}

static const struct field create_fields[] = {SHAPE_FIELDS,
                                             {"autoIndexId", FIELD_IGNORED, 0},
                                             {"capped", FIELD_PLAIN, 0},
                                             {"clusteredIndex", FIELD_PLAIN, 0},
                                             {"collation", FIELD_PLAIN, 0},
                                             {"encryptedFields", FIELD_PLAIN, 0},
                                             {"expireAfterSeconds", FIELD_PLAIN, 0},
                                             {"idIndex", FIELD_IGNORED, 0},
                                             {"indexOptionDefaults", FIELD_PLAIN, 0},
                                             {"max", FIELD_PLAIN, 0},
                                             {"pipeline", FIELD_PLAIN, 0},
                                             {"size", FIELD_PLAIN, 0},
                                             {"storageEngine", FIELD_PLAIN, 0},
                                             {"timeseries", FIELD_PLAIN, 0},
                                             {"viewOn", FIELD_PLAIN, 0},
                                             {NULL, FIELD_IGNORED, 0}};

/* With its options in one step, where that is to be had. */
static truce_status make_collection(struct call *call, const char *place, const struct shape *shape,
                                    bool images, bson_error_t *error)
{
    struct collection_options options = options_of(shape, &images);
    struct engine *engine = engine_of(call);
    truce_status status = truce__collection_name_check(place, error);

    if (!status && engine)
        return truce__engine_collection_create(engine, place, &options, error);
    if (!status)
        status = truce_collection_create(call->store, place, error);
    return status ? status : validate(call, place, shape, error);
}

truce_status serve_create(struct call *call, bson_t *reply, bson_error_t *error)
{
    char place[PLACE_MAX];
    struct shape shape = {0};
    bool there = false, images = false;
    truce_status status = call_place(call, place, error);

    (void)reply;
    if (!status)
        status = read_shape(call, create_fields, &shape, &images, error);
    if (!status)
        status = serve_is_there(call, place, &there, NULL, error);
    if (!status && there)
        return truce__refuse(CODE_NAMESPACE_EXISTS, error, "Collection %s already exists.",
                             call_namespace(call, bson_iter_utf8(&call->value, NULL)));
    return status ? status : make_collection(call, place, &shape, images, error);
}

truce_status serve_drop(struct call *call, bson_t *reply, bson_error_t *error)
{
    char place[PLACE_MAX];
    truce_status status = call_place(call, place, error);

    if (!status)
        status = truce_collection_drop(call->server->store, place, error);
    if (!status)
        BSON_APPEND_UTF8(reply, "ns", call_namespace(call, bson_iter_utf8(&call->value, NULL)));
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* as MongoDB since 7.0 */
}

truce_status serve_drop_database(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct places places;
    struct engine *engine = watch_engine(call->server->store);
    const char *place;
    bool any = false;
    bson_t facts;
    truce_status status = places_begin(call, NULL, false, &places, error);

    if (!status && !strcmp(call->database, "admin")) /* the users are there */
        status = truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "Dropping the 'admin' database is prohibited.");
    while (!status && places_next(&places, &place, &facts))
        if (place_within(call->server->database, call->database, place)) {
            status = truce_collection_drop(call->server->store, place, error);
            any = any || !status;
            if (status == TRUCE_NOT_FOUND)
                status = TRUCE_OK; /* somebody else was faster */
        }
    if (!status && any && engine) /* who follows hears that it was all of them */
        status = truce__engine_feed_note(engine, FEED_DROP_DATABASE, call->database, error);
    bson_destroy(&places.list);
    BSON_APPEND_UTF8(reply, "dropped", call->database);
    return status;
}

struct rename {
    const char *to;
    bool drop;
};

static const struct field rename_fields[] = {
    {"to", FIELD_TEXT, offsetof(struct rename, to)},
    {"dropTarget", FIELD_FLAG, offsetof(struct rename, drop)},
    {NULL, FIELD_IGNORED, 0}};

truce_status serve_place_of(struct call *call, const char *ns, uint32_t actions,
                            char place[PLACE_MAX], bson_error_t *error)
{
    char database[DATABASE_NAME_MAX + 1];
    const char *dot = strchr(ns, '.');
    size_t length = dot ? (size_t)(dot - ns) : 0;
    truce_status status;

    if (!length || length > DATABASE_NAME_MAX)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "\"%.80s\" is not of the form DATABASE.COLLECTION", ns);
    snprintf(database, sizeof database, "%.*s", (int)length, ns);
    status = database_check(database, error);
    if (!status)
        status = access_need_collection(call, database, dot + 1, actions, error);
    return status ? status : place_of(call->server->database, database, dot + 1, place, error);
}

static bool is_same_database(const char *from, const char *to)
{
    size_t length = strcspn(from, ".");

    return length == strcspn(to, ".") && !strncmp(from, to, length);
}

truce_status serve_rename(struct call *call, bson_t *reply, bson_error_t *error)
{
    char from[PLACE_MAX], to[PLACE_MAX];
    uint32_t away = ACTION_SHAPE, there = ACTION_SHAPE;
    struct rename rename = {0};
    truce_status status = call_own_fields(call, rename_fields, &rename, error);

    (void)reply;
    if (!status && (!rename.to || !BSON_ITER_HOLDS_UTF8(&call->value)))
        status = truce__refuse(40414, error, "renameCollection must have two namespaces");
    if (!status && !is_same_database(bson_iter_utf8(&call->value, NULL), rename.to)) {
        away |= ACTION_FIND | ACTION_WRITE; /* it is taken out there, and put in here */
        there |= ACTION_WRITE;
    }
    if (!status)
        status = serve_place_of(call, bson_iter_utf8(&call->value, NULL), away, from, error);
    if (!status)
        status = serve_place_of(call, rename.to, there, to, error);
    return status ? status
                  : truce_collection_rename(call->server->store, from, to, rename.drop, error);
}

/* ---- lists ---------------------------------------------------------------------------------- */

struct list {
    const bson_t *filter;
    bool names_only;
};

static const struct field list_fields[] = {
    {"filter", FIELD_DOCUMENT, offsetof(struct list, filter)},
    {"nameOnly", FIELD_FLAG, offsetof(struct list, names_only)},
    {"authorizedCollections", FIELD_IGNORED, 0},
    {"authorizedDatabases", FIELD_IGNORED, 0},
    {"cursor", FIELD_IGNORED, 0},
    {NULL, FIELD_IGNORED, 0}};

/* A list that grows by what matches the client's filter. */
struct sifted {
    struct match *match;
    struct query_context context;
    bson_t array;
    uint32_t count;
};

static truce_status sifted_begin(struct call *call, struct sifted *sifted, struct list *list,
                                 bson_error_t *error)
{
    truce_status status = call_own_fields(call, list_fields, list, error);

    *sifted = (struct sifted){.context = {.now_ms = truce__clock_wall_ms(), .arena = &call->arena}};
    bson_init(&sifted->array);
    return status ? status : truce__match_new(list->filter, &sifted->match, error);
}

static truce_status sift(struct sifted *sifted, const bson_t *document, bson_error_t *error)
{
    struct match_result result;
    char buffer[16];
    const char *key;
    truce_status status = truce__match_test(sifted->match, truce__value_document(document),
                                            &sifted->context, &result, error);

    if (status || !result.matched)
        return status;
    bson_uint32_to_string(sifted->count++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT(&sifted->array, key, document);
    return TRUCE_OK;
}

static void sifted_end(struct sifted *sifted)
{
    if (sifted->match)
        truce__match_free(sifted->match);
    bson_destroy(&sifted->array);
}

static void describe_collection(const char *name, const bson_t *facts, bool name_only,
                                bson_t *document)
{
    bson_t options = BSON_INITIALIZER, validator;

    bson_init(document);
    BCON_APPEND(document, "name", BCON_UTF8(name), "type", BCON_UTF8("collection"));
    if (truce__value_subdocument(facts, "validator", &validator))
        BCON_APPEND(&options, "validator", BCON_DOCUMENT(&validator), "validationLevel",
                    BCON_UTF8("strict"), "validationAction", BCON_UTF8("error"));
    if (bson_has_field(facts, "images"))
        BCON_APPEND(&options, "changeStreamPreAndPostImages", "{", "enabled", BCON_BOOL(true), "}");
    if (!name_only)
        BCON_APPEND(document, "options", BCON_DOCUMENT(&options), "info", "{", "readOnly",
                    BCON_BOOL(false), "}", "idIndex", "{", "v", BCON_INT32(2), "key", "{", "_id",
                    BCON_INT32(1), "}", "name", BCON_UTF8("_id_"), "}");
    bson_destroy(&options);
}

truce_status serve_list_collections(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct places places = {.list = BSON_INITIALIZER};
    struct sifted sifted;
    struct list list = {0};
    const char *place;
    bson_t facts, document;
    truce_status status = sifted_begin(call, &sifted, &list, error);

    if (!status) {
        bson_destroy(&places.list);
        status = places_begin(call, NULL, false, &places, error);
    }
    while (!status && places_next(&places, &place, &facts)) {
        const char *name = place_within(call->server->database, call->database, place);

        if (!name)
            continue;
        describe_collection(name, &facts, list.names_only, &document);
        status = sift(&sifted, &document, error);
        bson_destroy(&document);
    }
    if (!status)
        status = serve_documents(call, &sifted.array, "$cmd.listCollections", reply);
    bson_destroy(&places.list);
    sifted_end(&sifted);
    return status;
}

truce_status serve_list_databases(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct databases databases = {0};
    struct sifted sifted;
    struct list list = {0};
    bool all = access_may(call, NULL, ACTION_LIST_DATABASES);
    int64_t total = 0;
    bson_t document;
    truce_status status = sifted_begin(call, &sifted, &list, error);

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
        status = sift(&sifted, &document, error);
        bson_destroy(&document);
        total += bytes;
    }
    BSON_APPEND_ARRAY(reply, "databases", &sifted.array);
    if (!list.names_only)
        BSON_APPEND_INT64(reply, "totalSize", total);
    bson_free(databases.all);
    sifted_end(&sifted);
    return status;
}
