/* Commands for administrators: parameters, log, profile, fsync, compact, shutdown. */
#include <stddef.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "bson/refuse_value.h"
#include "engine/documents/open_documents.h"
#include "server/command/handlers.h"
#include "server/session/change_stream.h"
#include "store/file/file.h"
#include "truce/compact.h"

static truce_status check_admin(const struct call *call, bson_error_t *error)
{
    return strcmp(call->database, "admin") != 0
               ? truce__refuse(CODE_UNAUTHORIZED, error,
                               "%s may only be run against the admin database.",
                               call->command->name)
               : TRUCE_OK;
}

/* ---- the log --------------------------------------------------------------------------------- */

truce_status serve_log(struct call *call, bson_t *reply, bson_error_t *error)
{
    const char *name;
    int64_t all = 0;
    bson_t array;
    truce_status status = call_no_fields(call, error);

    if (status)
        return status;
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_TYPE_MISMATCH, error,
                             "Argument to getLog must be of type String");
    name = bson_iter_utf8(&call->value, NULL);
    if (!strcmp(name, "*")) {
        BCON_APPEND(reply, "names", "[", BCON_UTF8("global"), BCON_UTF8("startupWarnings"), "]");
        return TRUCE_OK;
    }
    if (strcmp(name, "global") != 0 && strcmp(name, "startupWarnings") != 0)
        return truce__refuse(CODE_OPERATION_FAILED, error, "No log named '%.80s'", name);
    bson_init(&array);
    if (!strcmp(name, "global"))
        log_append(call->server->log, &array, &all);
    BSON_APPEND_INT64(reply, "totalLinesWritten", all);
    BSON_APPEND_ARRAY(reply, "log", &array);
    bson_destroy(&array);
    return TRUCE_OK;
}

/* Serves {logRotate: 1 or "server"}. The server has no audit log, so {logRotate: "audit"} is
 * refused. */
truce_status serve_rotate(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct field fields[] = {{0}};
    truce_status status = check_admin(call, error);

    (void)reply;
    if (!status)
        status = call_own_fields(call, fields, NULL, error);
    if (!status && !truce__field_is_number(&call->value) && !BSON_ITER_HOLDS_UTF8(&call->value))
        status = truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                     "logRotate must be 1 or \"server\"");
    if (!status && BSON_ITER_HOLDS_UTF8(&call->value) &&
        strcmp(bson_iter_utf8(&call->value, NULL), "server") != 0)
        status = truce__refuse(CODE_BAD_VALUE, error, "Unknown log type '%.80s'",
                               bson_iter_utf8(&call->value, NULL));
    return status ? status : log_rotate(call->server->log, error);
}

/* ---- parameters ------------------------------------------------------------------------------ */

struct parameters {
    /* The parameters of the command. `fixed` is any parameter that cannot change. */
    const bson_value_t *lifetime, *pause, *fixed;
};

#define PARAMETER(name, member)                                                                    \
    {                                                                                              \
        name, FIELD_VALUE, offsetof(struct parameters, member)                                     \
    }
static const struct field parameter_fields[] = {
    PARAMETER("transactionLifetimeLimitSeconds", lifetime),
    PARAMETER("ttlMonitorSleepSecs", pause),
    PARAMETER("featureCompatibilityVersion", fixed),
    PARAMETER("enableTestCommands", fixed),
    PARAMETER("authenticationMechanisms", fixed),
    PARAMETER("requireApiVersion", fixed),
    {0}};

/* Reads a number of seconds, from 1 to a day. */
static truce_status read_seconds(const bson_value_t *value, const char *name, int64_t *ms,
                                 bson_error_t *error)
{
    int64_t seconds = 0;
    bson_iter_t at;
    bson_t holder;
    bool is_number;

    *ms = 0;
    call_value_iter(value, &holder, &at);
    is_number = truce__field_to_number(&at, &seconds);
    bson_destroy(&holder);
    if (!is_number)
        return truce__refuse(CODE_BAD_VALUE, error, "%s must be a number from 1 to 86400, not %s",
                             name, truce__type_name((uint8_t)value->value_type));
    if (seconds < 1 || seconds > 86400)
        return truce__refuse(CODE_BAD_VALUE, error, "%s must be a number from 1 to 86400, not %lld",
                             name, (long long)seconds);
    *ms = seconds * 1000;
    return TRUCE_OK;
}

static truce_status set_lifetime(struct call *call, const bson_value_t *value, bson_t *reply,
                                 bson_error_t *error)
{
    struct sessions *sessions = call->server->sessions;
    int64_t was_ms = sessions_lifetime_ms(sessions), ms;
    truce_status status = read_seconds(value, "transactionLifetimeLimitSeconds", &ms, error);

    if (status)
        return status;
    sessions_set_lifetime(sessions, ms);
    BSON_APPEND_INT64(reply, "was", was_ms / 1000);
    return TRUCE_OK;
}

/* Sets the interval of the sweep. Fails if the server was started without its sweep. */
static truce_status set_pause(struct call *call, const bson_value_t *value, bson_t *reply,
                              bson_error_t *error)
{
    struct sweep_sums sums;
    int64_t ms;
    truce_status status = read_seconds(value, "ttlMonitorSleepSecs", &ms, error);

    if (status)
        return status;
    sweeper_count(call->server->sweeper, &sums);
    if (!sums.every_ms)
        return truce__refuse(CODE_ILLEGAL_OPERATION, error,
                             "not allowed to change [ttlMonitorSleepSecs] at runtime: the server "
                             "was started without its sweep");
    sweeper_set_every(call->server->sweeper, ms);
    BSON_APPEND_INT64(reply, "was", (sums.every_ms + 999) / 1000);
    return TRUCE_OK;
}

truce_status serve_set_parameter(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct parameters given = {0};
    truce_status status = check_admin(call, error);

    if (status)
        return status;
    status = call_own_fields(call, parameter_fields, &given, error);
    if (status && error->domain == TRUCE_ERROR_SERVER && error->code == 40415)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "attempted to set unrecognized parameter; {getParameter: '*'} lists "
                             "the parameters");
    if (!status && given.fixed)
        status = truce__refuse(CODE_ILLEGAL_OPERATION, error,
                               "not allowed to change this parameter at runtime");
    if (!status && !given.lifetime == !given.pause)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               given.lifetime ? "two parameters are given: set one at a time"
                                              : "no option found to set");
    if (!status)
        status = given.lifetime ? set_lifetime(call, given.lifetime, reply, error)
                                : set_pause(call, given.pause, reply, error);
    return status;
}

/* Serves `profile`. The server has no profiler. At level 0, slowms sets which commands the log
 * reports as slow. */
truce_status serve_profile(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct profile {
        int64_t slowms;
        double rate;
    } given = {-1, 1};
    static const struct field fields[] = {
        {"slowms", FIELD_NUMBER, offsetof(struct profile, slowms)},
        {"sampleRate", FIELD_IGNORED, 0},
        {"filter", FIELD_PLAIN, 0},
        {0}};
    int64_t level = 3;
    int64_t was = atomic_load(&call->server->slow_ms);
    truce_status status = call_own_fields(call, fields, &given, error);

    if (status)
        return status;
    if (!truce__field_to_number(&call->value, &level))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                   "the level of profile must be a number");
    if (level < -1 || level > 2)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the level of profile must be -1, 0, 1, or 2, not %lld",
                             (long long)level);
    if (level > 0)
        return truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                             "there is no system.profile: slow commands are in the log, and "
                             "{profile: 0, slowms: N} sets which are slow");
    if (given.slowms < -1 || given.slowms > INT32_MAX)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "slowms must be a number from 0 to %d, not %lld", INT32_MAX,
                             (long long)given.slowms);
    if (!level && given.slowms >= 0)
        atomic_store(&call->server->slow_ms, given.slowms);
    BCON_APPEND(reply, "was", BCON_INT32(0), "slowms", BCON_INT32((int32_t)was), "sampleRate",
                BCON_DOUBLE(given.rate));
    return TRUCE_OK;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Serves `shutdown`. Without --auth only local clients can connect, which MongoDB requires for
 * shutdown. */
truce_status serve_shutdown(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct field fields[] = {
        {"force", FIELD_IGNORED, 0}, {"timeoutSecs", FIELD_IGNORED, 0}, {0}};
    struct server *server = call->server;
    truce_status status = check_admin(call, error);
    bson_t *details;
    char nothing;

    (void)reply;
    if (!status)
        status = call_own_fields(call, fields, &nothing, error);
    if (!status && !server->shutdown)
        status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                               "shutdown is not supported here: the server is embedded in a "
                               "program, which ends it");
    if (status)
        return status;
    details = BCON_NEW("from", BCON_UTF8(call->connection->peer));
    log_write(server->log, TRUCE_LOG_INFO, LOG_SERVER, call->connection->number,
              "shutdown requested", details);
    bson_destroy(details);
    server->shutdown(server->shutdown_arg);
    return TRUCE_OK;
}

/* ---- the disk -------------------------------------------------------------------------------- */

truce_status serve_fsync(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct sync {
        bool lock;
    } given = {0};
    static const struct field fields[] = {
        {"lock", FIELD_FLAG, offsetof(struct sync, lock)}, {"async", FIELD_IGNORED, 0}, {0}};
    struct engine *engine = truce__file_engine_or_null(call->server->store);
    truce_status status = check_admin(call, error);

    if (!status)
        status = call_own_fields(call, fields, &given, error);
    if (!status && given.lock)
        status =
            truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                          "fsync with lock is not supported: truce backup copies a file in use");
    if (!status && !engine)
        status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                               "the command is supported only by a store in a file");
    if (!status)
        status = truce__durable_sync(&engine->durable, error);
    if (!status)
        BSON_APPEND_INT32(reply, "numFiles", 1);
    return status;
}

/* Compacts the whole file, whichever collection the command names. */
truce_status serve_compact(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct field fields[] = {{"force", FIELD_IGNORED, 0},
                                          {"freeSpaceTargetMB", FIELD_IGNORED, 0},
                                          {"dryRun", FIELD_PLAIN, 0},
                                          {0}};
    truce_compact_options options = {.deadline_ms = call->deadline_ms};
    truce_compact_report report = {0};
    char stored_name[STORED_NAME_MAX], nothing;
    bool there = false;
    truce_status status = call_stored_name(call, stored_name, error);

    if (!status)
        status = call_own_fields(call, fields, &nothing, error);
    if (!status)
        status = serve_is_there(call, stored_name, &there, NULL, error);
    if (!status && !there)
        status = serve_no_such_namespace(call, error);
    if (!status && !truce__file_engine_or_null(call->server->store))
        status = truce__refuse(CODE_COMMAND_NOT_SUPPORTED, error,
                               "the command is supported only by a store in a file");
    if (!status)
        status = truce_compact(call->server->store, &options, &report, error);
    if (!status)
        BCON_APPEND(reply, "bytesFreed",
                    BCON_INT64(report.bytes_before > report.bytes_after
                                   ? report.bytes_before - report.bytes_after
                                   : 0),
                    "complete", BCON_BOOL(report.complete));
    return status;
}

truce_status serve_data_size(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct field fields[] = {{"estimate", FIELD_IGNORED, 0},
                                          {"keyPattern", FIELD_PLAIN, 0},
                                          {"min", FIELD_PLAIN, 0},
                                          {"max", FIELD_PLAIN, 0},
                                          {0}};
    int64_t begun_ns = truce__clock_monotonic_ns();
    char stored_name[STORED_NAME_MAX], nothing;
    bool there = false;
    bson_t facts;
    truce_status status;

    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                   "dataSize must name a collection: DB.NAME");
    status = serve_stored_name_of(call, bson_iter_utf8(&call->value, NULL), ACTION_FIND,
                                  stored_name, error);
    if (!status)
        status = call_own_fields(call, fields, &nothing, error);
    if (status)
        return status;
    status = serve_is_there(call, stored_name, &there, &facts, error);
    if (!status)
        BCON_APPEND(reply, "size", BCON_INT64(truce__field_number(&facts, "bytes")), "numObjects",
                    BCON_INT64(truce__field_number(&facts, "documents")), "millis",
                    BCON_INT64((truce__clock_monotonic_ns() - begun_ns) / 1000000), "estimate",
                    BCON_BOOL(false));
    bson_destroy(&facts);
    return status;
}
