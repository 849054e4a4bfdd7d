/* currentOp, killOp, and the stages of a pipeline that the server runs itself: $currentOp and
 * $collStats. */
#include "bson/refuse_value.h"
#include "server/command/cursor_reply.h"
#include "server/command/handlers.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"

/* ---- execution ------------------------------------------------------------------------------- */

/* Returns whether the caller sees the operations of all users. A user without the action sees only
 * its own operations. */
static bool sees_all(const struct call *call, bool own)
{
    return !own && access_may(call, NULL, ACTION_SERVER);
}

static bool flag_of(const bson_t *document, const char *name, bool otherwise)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, document, name) ? truce__field_truth(&at) : otherwise;
}

/* Returns whether a field of currentOp is an option, not a condition. */
static bool is_setting(const char *name)
{
    return name[0] == '$' || !strcmp(name, "currentOp") || !strcmp(name, "lsid") ||
           !strcmp(name, "comment") || !strcmp(name, "maxTimeMS") || !strcmp(name, "readConcern") ||
           !strcmp(name, "apiVersion");
}

static void read_conditions(const bson_t *command, bson_t *filter)
{
    bson_iter_t at;

    bson_init(filter);
    for (bool more = bson_iter_init(&at, command) && bson_iter_next(&at); more;
         more = bson_iter_next(&at))
        if (!is_setting(bson_iter_key(&at)))
            bson_append_iter(filter, NULL, -1, &at);
}

/* ---- a pipeline over documents without a store ----------------------------------------------- */

/* Makes [{$unset: "_id"}, STAGES], without the first `skipped` of them. */
static void begin_pipeline(const bson_t *stages, uint32_t skipped, bson_t *pipeline)
{
    bson_iter_t at;
    uint32_t count = 1;
    const char *name;
    char key[16];

    bson_init(pipeline);
    BCON_APPEND(pipeline, "0", "{", "$unset", BCON_UTF8("_id"), "}");
    for (bool more = bson_iter_init(&at, stages) && bson_iter_next(&at); more;
         more = bson_iter_next(&at)) {
        if (skipped) {
            skipped--;
            continue;
        }
        bson_uint32_to_string(count++, &name, key, sizeof key);
        bson_append_iter(pipeline, name, -1, &at);
    }
}

/* Inserts the documents of an array into the collection "documents" of a store in memory. */
static truce_status current_op_insert_all(truce_store *store, const bson_t *documents,
                                          bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    const uint8_t *bytes;
    uint32_t size;
    bson_iter_t at;
    bson_t view;

    for (bool more = bson_iter_init(&at, documents) && bson_iter_next(&at); more && !status;
         more = bson_iter_next(&at)) {
        bson_iter_document(&at, &size, &bytes);
        (void)bson_init_static(&view, bytes, size);
        status = truce_insert(store, "documents", &view, NULL, error);
    }
    return status;
}

/* Runs the stages, without the first `skipped`, over the documents, and appends the results to the
 * array. */
static truce_status run_over(const bson_t *documents, const bson_t *stages, uint32_t skipped,
                             bson_t *array, bson_error_t *error)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_store *store;
    uint32_t count = 0;
    const char *name;
    bson_t pipeline;
    char key[16];
    truce_status status = truce_store_open("memory:", NULL, &store, error);

    if (status)
        return status;
    begin_pipeline(stages, skipped, &pipeline);
    status = current_op_insert_all(store, documents, error);
    if (!status)
        status = truce_aggregate(store, "documents", &pipeline, NULL, &cursor, error);
    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document) {
        bson_uint32_to_string(count++, &name, key, sizeof key);
        bson_append_document(array, name, -1, document);
    }
    truce_cursor_close(cursor);
    truce_store_close(store);
    bson_destroy(&pipeline);
    return status;
}

/* ---- currentOp, killOp ----------------------------------------------------------------------- */

truce_status serve_current_op(struct call *call, bson_t *reply, bson_error_t *error)
{
    const bson_t *command = &call->request->body;
    bson_t all = BSON_INITIALIZER, stages = BSON_INITIALIZER, filter, stage, array;
    truce_status status;

    read_conditions(command, &filter);
    operations_list(call, flag_of(command, "$all", false),
                    !sees_all(call, flag_of(command, "$ownOps", false)), &all);
    BSON_APPEND_DOCUMENT_BEGIN(&stages, "0", &stage);
    BSON_APPEND_DOCUMENT(&stage, "$match", &filter);
    bson_append_document_end(&stages, &stage);
    BSON_APPEND_ARRAY_BEGIN(reply, "inprog", &array);
    status = run_over(&all, &stages, 0, &array, error);
    bson_append_array_end(reply, &array);
    bson_destroy(&stages);
    bson_destroy(&filter);
    bson_destroy(&all);
    return status;
}

/* Serves `killOp`. The reply does not depend on whether the operation is still running, as in
 * MongoDB. */
truce_status serve_kill_op(struct call *call, bson_t *reply, bson_error_t *error)
{
    bson_iter_t at;
    int64_t number;

    if (!bson_iter_init_find(&at, &call->request->body, "op") ||
        !truce__field_to_number(&at, &number))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "killOp must have the number of a call: {killOp: 1, op: 12}");
    (void)operations_kill(call->server, number);
    BSON_APPEND_UTF8(reply, "info", "attempting to kill op");
    return TRUCE_OK;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Finds the first stage. Returns false for an empty pipeline. */
static bool first_stage(const bson_t *pipeline, bson_iter_t *stage)
{
    bson_iter_t at;

    return bson_iter_init(&at, pipeline) && bson_iter_next(&at) && BSON_ITER_HOLDS_DOCUMENT(&at) &&
           bson_iter_recurse(&at, stage) && bson_iter_next(stage);
}

bool serve_is_stage(const bson_t *pipeline)
{
    bson_iter_t stage;

    return first_stage(pipeline, &stage) && (!strcmp(bson_iter_key(&stage), "$collStats") ||
                                             !strcmp(bson_iter_key(&stage), "$currentOp"));
}

/* Appends {ns, host, localTime, storageStats, count}, as far as they are requested. */
static truce_status append_collection(struct call *call, const bson_t *options, bson_t *one,
                                      bson_error_t *error)
{
    const char *name = bson_iter_utf8(&call->value, NULL);
    char stored_name[STORED_NAME_MAX], host[256] = "";
    static const bson_t plain = BSON_INITIALIZER;
    const bson_t *wanted = NULL; /* The field storageStats: {scale}. */
    bson_t stats = BSON_INITIALIZER;
    bson_iter_t at;
    truce_status status = call_stored_name(call, stored_name, error);
    bool there = false;

    (void)gethostname(host, sizeof host - 1);
    if (bson_iter_init_find(&at, options, "storageStats") && BSON_ITER_HOLDS_DOCUMENT(&at))
        wanted = call_view_of(call, &at);
    if (!status)
        status = access_need_collection(call, call->database, name, ACTION_STATS, error);
    if (!status)
        status = serve_is_there(call, stored_name, &there, NULL, error);
    if (!status)
        status = serve_sizes(call, wanted ? wanted : &plain, &stats, error);
    if (!status && !there && bson_has_field(options, "count"))
        status = serve_no_such_namespace(call, error);
    BSON_APPEND_UTF8(one, "ns", call_namespace(call, name));
    BCON_APPEND(one, "host", BCON_UTF8(host), "localTime", BCON_DATE_TIME(truce__clock_wall_ms()));
    if (bson_has_field(options, "storageStats"))
        BSON_APPEND_DOCUMENT(one, "storageStats", &stats);
    if (bson_has_field(options, "count"))
        BSON_APPEND_INT64(one, "count", truce__field_number(&stats, "count"));
    bson_destroy(&stats);
    return status;
}

/* Appends the one document of $collStats. Fails with InvalidNamespace (73) without a collection. */
static truce_status collection_stats(struct call *call, const bson_t *options, bson_t *documents,
                                     bson_error_t *error)
{
    /* The server has no statistics of times and plans. */
    static const struct field fields[] = {{"storageStats", FIELD_IGNORED, 0},
                                          {"count", FIELD_IGNORED, 0},
                                          {"latencyStats", FIELD_IGNORED, 0},
                                          {"queryExecStats", FIELD_IGNORED, 0},
                                          {0}};
    truce_status status;
    bson_t one;

    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "$collStats needs a collection: send {aggregate: NAME}");
    status = call_fields(call, options, fields, false, NULL, error);
    if (status)
        return status;
    BSON_APPEND_DOCUMENT_BEGIN(documents, "0", &one);
    status = append_collection(call, options, &one, error);
    bson_append_document_end(documents, &one);
    return status;
}

/* Checks the options of $currentOp. Some have no effect, because the server lists only its own
 * operations, and each in full. */
static truce_status current_op_check_options(const bson_t *options, bson_error_t *error)
{
    static const char *const known[] = {"allUsers",     "idleConnections", "idleCursors",
                                        "idleSessions", "localOps",        "truncateOps",
                                        "backtrace",    "targetAllNodes",  NULL};
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    (void)bson_iter_init(&at, options);
    while (!status && bson_iter_next(&at))
        status = call_check_name(CODE_FAILED_TO_PARSE, "$currentOp", &at, known, error);
    return status;
}

/* Appends the documents of $currentOp. Only a user with ACTION_SERVER may request those of all
 * users. */
static truce_status current_op_list(struct call *call, const bson_t *options, bson_t *documents,
                                    bson_error_t *error)
{
    truce_status status;

    if (BSON_ITER_HOLDS_UTF8(&call->value) || strcmp(call->database, "admin") != 0)
        return truce__refuse(CODE_INVALID_NAMESPACE, error,
                             "$currentOp must be sent to the database admin, with {aggregate: 1}");
    status = current_op_check_options(options, error);
    if (status)
        return status;
    if (flag_of(options, "allUsers", false) && !access_may(call, NULL, ACTION_SERVER))
        return access_refuse(call, "admin", error);
    operations_list(call, flag_of(options, "idleConnections", false),
                    call->server->auth && !flag_of(options, "allUsers", false), documents);
    return TRUCE_OK;
}

static truce_status current_op_refuse_other(void *arg, const char *database, const char *collection,
                                            bool writes, bson_error_t *error)
{
    (void)arg;
    (void)writes;
    return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                         "no stage after $collStats or $currentOp may name a collection (%s.%s)",
                         database, collection);
}

truce_status serve_stage(struct call *call, const bson_t *pipeline, int64_t most, bson_t *reply,
                         bson_error_t *error)
{
    const struct name_guard guard = {current_op_refuse_other, NULL};
    bson_t documents = BSON_INITIALIZER, array = BSON_INITIALIZER, named;
    bool of_collection = BSON_ITER_HOLDS_UTF8(&call->value);
    truce_status status;
    const bson_t *options;
    bson_iter_t stage;

    (void)first_stage(pipeline, &stage);
    if (!BSON_ITER_HOLDS_DOCUMENT(&stage))
        return truce__refuse_value(CODE_FAILED_TO_PARSE, truce__value_of_iter(&stage), error,
                                   "%s must be a document", bson_iter_key(&stage));
    options = call_view_of(call, &stage);
    if (!strcmp(bson_iter_key(&stage), "$collStats"))
        status = collection_stats(call, options, &documents, error);
    else
        status = current_op_list(call, options, &documents, error);
    if (!status) {
        status = truce__map_pipeline(call->server->database, call->database, pipeline, &guard,
                                     &named, error);
        bson_destroy(&named);
    }
    if (!status)
        status = run_over(&documents, pipeline, 1, &array, error);
    if (!status)
        status = cursor_reply_array(call, bson_copy(&array),
                                    of_collection ? bson_iter_utf8(&call->value, NULL)
                                                  : "$cmd.aggregate",
                                    most, reply, error);
    bson_destroy(&documents);
    bson_destroy(&array);
    return status;
}
