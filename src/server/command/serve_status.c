/* The handshake, versions, counters, and commands that clients send for information only. */
#include "operations/operation.h"
#include "server/admin/top.h"
#include "server/command/handlers.h"
#include "server/net/compress.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"

#define COMPRESSORS_MAX  8 /* The maximum number of compressors that the reply names. */
#define WIRE_VERSION_MAX 25
/* Appends the fields of the primary of a replica set of one member. Drivers need them before they
 * retry writes. topologyVersion is absent, so drivers poll instead of waiting for the reply. */
static void append_set(const struct server *server, bson_t *reply)
{
    bson_oid_t election;

    bson_oid_init_from_string(&election, "7fffffff0000000000000001");
    BCON_APPEND(reply, "setName", BCON_UTF8(server->set), "setVersion", BCON_INT32(1), "secondary",
                BCON_BOOL(false), "hosts", "[", BCON_UTF8(server->me), "]", "primary",
                BCON_UTF8(server->me), "me", BCON_UTF8(server->me), "electionId",
                BCON_OID(&election), "lastWrite", "{", "lastWriteDate",
                BCON_DATE_TIME(truce__clock_wall_ms()), "}");
}

/* Appends the client's compressors that the server supports, in the client's order. */
static void append_compressors(const struct call *call, bson_t *reply)
{
    bson_iter_t at, name;
    bson_t array;
    int count = 0;

    if (!bson_iter_init_find(&at, &call->request->body, "compression") ||
        !BSON_ITER_HOLDS_ARRAY(&at) || !bson_iter_recurse(&at, &name))
        return;
    bson_init(&array);
    while (bson_iter_next(&name) && count < COMPRESSORS_MAX)
        if (BSON_ITER_HOLDS_UTF8(&name) &&
            compress_number(bson_iter_utf8(&name, NULL)) != COMPRESS_NOTHING) {
            char key[] = {(char)('0' + count++), 0};

            BSON_APPEND_UTF8(&array, key, bson_iter_utf8(&name, NULL));
        }
    if (count)
        BSON_APPEND_ARRAY(reply, "compression", &array);
    bson_destroy(&array);
}

truce_status serve_hello(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)error;
    if (!strcmp(call->command->name, "hello"))
        BSON_APPEND_BOOL(reply, "isWritablePrimary", true);
    else
        BSON_APPEND_BOOL(reply, "ismaster", true);
    BCON_APPEND(reply, "helloOk", BCON_BOOL(true), "maxBsonObjectSize",
                BCON_INT32(TRUCE_DOCUMENT_BYTES_MAX), "maxMessageSizeBytes", BCON_INT32(48000000),
                "maxWriteBatchSize", BCON_INT32(TRUCE_BULK_MAX), "localTime",
                BCON_DATE_TIME(truce__clock_wall_ms()), "logicalSessionTimeoutMinutes",
                BCON_INT32(TRUCE_SERVER_SESSION_MS / 60000), "connectionId",
                BCON_INT32(call->connection->number), "minWireVersion", BCON_INT32(0),
                "maxWireVersion", BCON_INT32(WIRE_VERSION_MAX), "readOnly", BCON_BOOL(false),
                "truce", "{", "version", BCON_UTF8(TRUCE_VERSION), "}");
    if (call->server->set[0])
        append_set(call->server, reply);
    append_compressors(call, reply);
    serve_hello_login(call, reply);
    return TRUCE_OK;
}

truce_status serve_build_info(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)call;
    (void)error;
    BCON_APPEND(reply, "version", BCON_UTF8(SPOKEN_VERSION), "versionArray", "[", BCON_INT32(8),
                BCON_INT32(0), BCON_INT32(0), BCON_INT32(0), "]", "gitVersion",
                BCON_UTF8("truce-" TRUCE_VERSION), "truce", "{", "version",
                BCON_UTF8(TRUCE_VERSION), "}", "modules", "[", "]", "bits", BCON_INT32(64), "debug",
                BCON_BOOL(false), "maxBsonObjectSize", BCON_INT32(TRUCE_DOCUMENT_BYTES_MAX),
                "storageEngines", "[", BCON_UTF8("truce"), "]");
    return TRUCE_OK;
}

static void append_parameters(struct server *server, bson_t *all)
{
    struct sweep_sums sums;

    BCON_APPEND(all, "featureCompatibilityVersion", "{", "version", BCON_UTF8("8.0"), "}",
                "enableTestCommands", BCON_BOOL(server->fail_point != NULL),
                "authenticationMechanisms", "[", BCON_UTF8("SCRAM-SHA-256"),
                BCON_UTF8("SCRAM-SHA-1"), "]", "requireApiVersion", BCON_BOOL(false),
                "transactionLifetimeLimitSeconds",
                BCON_INT64(sessions_lifetime_ms(server->sessions) / 1000));
    sweeper_count(server->sweeper, &sums);
    if (sums.every_ms)
        BSON_APPEND_INT64(all, "ttlMonitorSleepSecs", (sums.every_ms + 999) / 1000);
}

/* Appends the parameters that the command names, or all: {getParameter: "*"}. */
truce_status serve_get_parameter(struct call *call, bson_t *reply, bson_error_t *error)
{
    bool every =
        BSON_ITER_HOLDS_UTF8(&call->value) && !strcmp(bson_iter_utf8(&call->value, NULL), "*");
    bson_iter_t at;
    bson_t all;

    bson_init(&all);
    append_parameters(call->server, &all);
    for (bool more = bson_iter_init(&at, &all) && bson_iter_next(&at); more;
         more = bson_iter_next(&at))
        if (every || bson_has_field(&call->request->body, bson_iter_key(&at)))
            bson_append_iter(reply, NULL, -1, &at);
    bson_destroy(&all);
    if (bson_empty(reply))
        return truce__refuse(CODE_INVALID_OPTIONS, error, "no option found to get");
    return TRUCE_OK;
}

/* Appends the fields that mongostat and exporters read, as integers. The server has no queues,
 * and no assertion has failed, as that ends the process. */
static void append_process(const struct call *call, bson_t *reply)
{
    struct server *server = call->server;
    long pages = 0, resident = 0, page = sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");
    struct rusage usage = {0};
    uint64_t in, out;

    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        pages = resident = 0;
    if (file)
        fclose(file);
    (void)getrusage(RUSAGE_SELF, &usage);
    metrics_bytes(server->metrics, &in, &out);
    BCON_APPEND(reply, "asserts", "{", "regular", BCON_INT32(0), "warning", BCON_INT32(0), "msg",
                BCON_INT32(0), "user", BCON_INT32(0), "rollovers", BCON_INT32(0), "}", "extra_info",
                "{", "page_faults", BCON_INT64(usage.ru_majflt), "}", "globalLock", "{",
                "totalTime", BCON_INT64((truce__clock_monotonic_ns() - server->started_ns) / 1000),
                "currentQueue", "{", "total", BCON_INT32(0), "readers", BCON_INT32(0), "writers",
                BCON_INT32(0), "}", "activeClients", "{", "total", BCON_INT32(0), "readers",
                BCON_INT32(0), "writers", BCON_INT32(0), "}", "}", "network", "{", "bytesIn",
                BCON_INT64((int64_t)in), "bytesOut", BCON_INT64((int64_t)out), "numRequests",
                BCON_INT64(atomic_load(&server->operations)), "}", "mem", "{", "bits",
                BCON_INT32(64), "resident", BCON_INT32((int32_t)(resident * page >> 20)), "virtual",
                BCON_INT32((int32_t)(pages * page >> 20)), "supported", BCON_BOOL(true), "}");
}

truce_status serve_server_status(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const char *const names[COUNTED_KINDS] = {"insert", "query",   "update",
                                                     "delete", "getmore", "command"};
    struct server *server = call->server;
    int64_t up_ms = (truce__clock_monotonic_ns() - server->started_ns) / 1000000;
    int64_t up_s = up_ms / 1000;
    struct sweep_sums sums;
    char host[256] = "";
    bson_t counters;

    (void)error;
    sweeper_count(server->sweeper, &sums);
    (void)gethostname(host, sizeof host - 1);
    BCON_APPEND(reply, "host", BCON_UTF8(host), "version", BCON_UTF8(SPOKEN_VERSION), "process",
                BCON_UTF8("truce"), "pid", BCON_INT64(getpid()), "uptime",
                BCON_DOUBLE((double)up_s), "uptimeMillis", BCON_INT64(up_ms), "uptimeEstimate",
                BCON_INT64(up_s), "localTime", BCON_DATE_TIME(truce__clock_wall_ms()));
    append_process(call, reply);
    pthread_mutex_lock(&server->mutex);
    BCON_APPEND(reply, "connections", "{", "current", BCON_INT32(server->connected), "available",
                BCON_INT32(server->connections_max - server->connected), "totalCreated",
                BCON_INT64(server->created), "rejected", BCON_INT64(server->refused), "}");
    pthread_mutex_unlock(&server->mutex);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "opcounters", &counters);
    for (int i = 0; i < COUNTED_KINDS; i++)
        BSON_APPEND_INT64(&counters, names[i], atomic_load(&server->counted[i]));
    bson_append_document_end(reply, &counters);
    BCON_APPEND(reply, "metrics", "{", "cursor", "{", "open", "{", "total",
                BCON_INT64(cursors_count(server->cursors)), "}", "}", "ttl", "{",
                "deletedDocuments", BCON_INT64(sums.all.expired), "passes", BCON_INT64(sums.passes),
                "}", "}", "sweep", "{", "everySeconds", BCON_DOUBLE((double)sums.every_ms / 1000),
                "turns", BCON_INT64(sums.passes), "skipped", BCON_INT64(sums.skipped), "broken",
                BCON_INT64(sums.broken), "undone", BCON_INT64(sums.all.undone), "finished",
                BCON_INT64(sums.all.finished), "cleaned", BCON_INT64(sums.all.cleaned), "stripped",
                BCON_INT64(sums.all.stripped), "purged", BCON_INT64(sums.all.purged), "expired",
                BCON_INT64(sums.all.expired), "pruned", BCON_INT64(sums.all.pruned), "released",
                BCON_INT64(sums.all.released), "failed", BCON_INT64(sums.all.failed), "}",
                "security", "{", "authentication", "{", "received",
                BCON_INT64(atomic_load(&server->logins)), "failed",
                BCON_INT64(atomic_load(&server->logins_failed)), "}", "}", "storageEngine", "{",
                "name", BCON_UTF8("truce"), "}");
    return TRUCE_OK;
}

truce_status serve_host_info(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct utsname name = {0};

    (void)call;
    (void)error;
    (void)uname(&name);
    BCON_APPEND(reply, "system", "{", "currentTime", BCON_DATE_TIME(truce__clock_wall_ms()),
                "hostname", BCON_UTF8(name.nodename), "cpuAddrSize", BCON_INT32(64), "numCores",
                BCON_INT32((int32_t)sysconf(_SC_NPROCESSORS_ONLN)), "cpuArch",
                BCON_UTF8(name.machine), "}", "os", "{", "type", BCON_UTF8(name.sysname), "name",
                BCON_UTF8(name.sysname), "version", BCON_UTF8(name.release), "}");
    return TRUCE_OK;
}

truce_status serve_options(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)error;
    BCON_APPEND(reply, "argv", "[", BCON_UTF8("truce"), BCON_UTF8("serve"), "]", "parsed", "{",
                "net", "{", "port", BCON_INT32(call->server->port), "}", "security", "{",
                "authorization", BCON_UTF8(call->server->auth ? "enabled" : "disabled"), "}", "}");
    return TRUCE_OK;
}

truce_status serve_whats_my_uri(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)error;
    BSON_APPEND_UTF8(reply, "you", call->connection->peer);
    return TRUCE_OK;
}

truce_status serve_replica_status(struct call *call, bson_t *reply, bson_error_t *error)
{
    const struct server *server = call->server;
    int64_t up_s = (truce__clock_monotonic_ns() - server->started_ns) / 1000000000;

    if (!server->set[0])
        return truce__refuse(CODE_NO_REPLICATION_ENABLED, error,
                             "the server is not a replica set: start it with --replica-set");
    BCON_APPEND(reply, "set", BCON_UTF8(server->set), "date",
                BCON_DATE_TIME(truce__clock_wall_ms()), "myState", BCON_INT32(1), "members", "[",
                "{", "_id", BCON_INT32(0), "name", BCON_UTF8(server->me), "health", BCON_DOUBLE(1),
                "state", BCON_INT32(1), "stateStr", BCON_UTF8("PRIMARY"), "uptime",
                BCON_INT64(up_s), "self", BCON_BOOL(true), "}", "]");
    return TRUCE_OK;
}

truce_status serve_last_error(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)error;
    BCON_APPEND(reply, "connectionId", BCON_INT32(call->connection->number), "n", BCON_INT32(0),
                "err", BCON_NULL);
    return TRUCE_OK;
}

truce_status serve_top(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct field fields[] = {{0}};
    bson_t totals;
    truce_status status = call_own_fields(call, fields, NULL, error);

    if (!status && strcmp(call->database, "admin") != 0)
        status = truce__refuse(CODE_UNAUTHORIZED, error,
                               "top may only be run against the admin database.");
    if (status)
        return status;
    BSON_APPEND_DOCUMENT_BEGIN(reply, "totals", &totals);
    top_append(call->server->top, &totals);
    bson_append_document_end(reply, &totals);
    return TRUCE_OK;
}

/* Serves connPoolStats: connections that the server has opened to other servers. It opens none. */
truce_status serve_pools(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const char *const names[] = {
        "numClientConnections", "numAScopedConnections", "totalInUse",
        "totalAvailable",       "totalLeased",           "totalCreated",
        "totalRefreshing",      "totalRefreshed",        "totalWasNeverUsed"};
    static const struct field fields[] = {{0}};
    const struct server *server = call->server;
    bson_t sets;
    truce_status status = call_own_fields(call, fields, NULL, error);

    if (status)
        return status;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        BSON_APPEND_INT32(reply, names[i], 0);
    BCON_APPEND(reply, "pools", "{", "}", "hosts", "{", "}");
    BSON_APPEND_DOCUMENT_BEGIN(reply, "replicaSets", &sets);
    if (server->set[0])
        BCON_APPEND(&sets, server->set, "{", "hosts", "[", "{", "addr", BCON_UTF8(server->me), "ok",
                    BCON_BOOL(true), "ismaster", BCON_BOOL(true), "hidden", BCON_BOOL(false),
                    "secondary", BCON_BOOL(false), "pingTimeMillis", BCON_INT32(0), "}", "]", "}");
    bson_append_document_end(reply, &sets);
    return TRUCE_OK;
}

/* Appends the entry of a command for listCommands. */
static void append_help(const struct command *command, bool tests, bson_t *commands)
{
    bson_t one;

    /* A second spelling of a command has no help. Commands for tests are listed only if the server
     * allows them. */
    if (!command->help || (command->need.kind == NEED_TESTS && !tests))
        return;
    BSON_APPEND_DOCUMENT_BEGIN(commands, command->name, &one);
    BSON_APPEND_UTF8(&one, "help", command->help);
    BSON_APPEND_BOOL(&one, "requiresAuth", command->need.kind != NEED_NOTHING);
    if (command->traits & COMMAND_STABLE)
        BCON_APPEND(&one, "apiVersions", "[", BCON_UTF8("1"), "]");
    else
        BCON_APPEND(&one, "apiVersions", "[", "]");
    bson_append_document_end(commands, &one);
}

truce_status serve_list_commands(struct call *call, bson_t *reply, bson_error_t *error)
{
    const struct command_table *table = call->server->commands;
    bool tests = call->server->fail_point != NULL;
    bson_t commands;

    (void)error;
    BSON_APPEND_DOCUMENT_BEGIN(reply, "commands", &commands);
    for (const struct command *at = table->commands; at->name; at++)
        append_help(at, tests, &commands);
    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++)
            append_help(table->of_operation(*at), tests, &commands);
    bson_append_document_end(reply, &commands);
    return TRUCE_OK;
}
