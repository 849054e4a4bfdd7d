/*
 * Runs one command: finds it in the table, reads its options, checks access, runs its handler,
 * and completes the reply.
 *
 *     1. find the command    commands.c
 *     2. read its options    call/call_options.c
 *     3. check the access    auth/access.c
 *     4. fail points         call/fail_point.c
 *     5. run the handler     command/serve_session.c, between the waits of call/call_archive_sync.c
 *     6. complete the reply  here; of an error: call/call_error.c
 */
#include "server/dispatch.h"

#include <stdio.h>
#include <string.h>

#include "operations/operation.h"
#include "query/expression/expression.h"
#include "server/admin/slow_command_log.h"
#include "server/admin/top.h"
#include "server/command/handlers.h"
#include "store/collection_alias.h"
#include "store/reserved_names.h"

/* Finds a field after the first one that is the name of an operation, or of any command if
 * `any`. Programs that make a command of an unordered map send such fields. Returns the number of
 * the field from 1, or 0 if no field is such a name. */
static int dispatch_misplaced_name(const struct command_table *commands, const bson_t *body,
                                   bool any, const char **name)
{
    bson_iter_t at;
    int number = 0;

    (void)bson_iter_init(&at, body);
    while (bson_iter_next(&at)) {
        const struct command *command = number++ ? commands->find(bson_iter_key(&at)) : NULL;

        *name = bson_iter_key(&at);
        if (command && command->need.kind != NEED_TESTS && (any || command->append_error))
            return number;
    }
    return 0;
}

static truce_status dispatch_refuse_unknown(const struct command_table *commands,
                                            const bson_t *body, const char *name,
                                            bson_error_t *error)
{
    struct nearest_word nearest = {.word = name};
    char hint[NEAREST_WORD_HINT_MAX];
    const char *misplaced;
    int number;

    for (const struct command *at = commands->commands; at && at->name; at++)
        if (at->need.kind != NEED_TESTS)
            truce__nearest_word_offer(&nearest, at->name);
    truce__operation_nearest(&nearest);
    number = dispatch_misplaced_name(commands, body, !nearest.best, &misplaced);
    if (number)
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error,
                             "no such command: \"%.80s\": the first field must be the name of the "
                             "command, and \"%.80s\" is field %d",
                             name, misplaced, number);
    return truce__refuse(CODE_COMMAND_NOT_FOUND, error, "no such command: \"%.80s\"%s", name,
                         truce__nearest_word_hint(&nearest, hint));
}

/* Finds the command that the first field of the request names. Commands for tests do not exist
 * without --test-commands. */
static truce_status dispatch_find(struct call *call, bson_error_t *error)
{
    const char *name;

    if (!bson_iter_init(&call->value, &call->request->body) || !bson_iter_next(&call->value))
        return truce__refuse(CODE_COMMAND_NOT_FOUND, error,
                             "the command is empty: expected a document whose first field is the "
                             "name of a command");
    name = bson_iter_key(&call->value);
    call->command = call->server->commands->find(name);
    if (!call->command || (call->command->need.kind == NEED_TESTS && !call->server->fail_point))
        return dispatch_refuse_unknown(call->server->commands, &call->request->body, name, error);
    return BSON_ITER_HOLDS_UTF8(&call->value)
               ? truce__text_check(&call->value, CODE_INVALID_NAMESPACE, error)
               : TRUCE_OK;
}

/* Replaces the request by the command in it. Old drivers wrap the command: {$query: {isMaster: 1},
 * $readPreference: ...}. */
static void dispatch_unwrap(struct wire_request *request)
{
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t size;

    if (request->old && bson_iter_init_find(&iter, &request->body, "$query") &&
        BSON_ITER_HOLDS_DOCUMENT(&iter)) {
        bson_iter_document(&iter, &size, &bytes);
        (void)bson_init_static(&request->body, bytes, size);
    }
}

/* Appends the cluster time, by which clients order their reads from several members of a replica
 * set. */
static void dispatch_append_time(const struct call *call, bson_t *reply)
{
    static const uint8_t unsigned_[20];
    struct server *server = call->server;
    bson_t time, signature;
    uint32_t seconds, number;
    uint64_t now;

    if (!server->set[0] || (server->auth && !call->connection->login.user))
        return;
    now = server_time(server);
    seconds = (uint32_t)(now >> 32);
    number = (uint32_t)now;
    BSON_APPEND_TIMESTAMP(reply, "operationTime", seconds, number);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "$clusterTime", &time);
    BSON_APPEND_TIMESTAMP(&time, "clusterTime", seconds, number);
    BSON_APPEND_DOCUMENT_BEGIN(&time, "signature", &signature);
    BSON_APPEND_BINARY(&signature, "hash", BSON_SUBTYPE_BINARY, unsigned_, sizeof unsigned_);
    BSON_APPEND_INT64(&signature, "keyId", 0);
    bson_append_document_end(&time, &signature);
    bson_append_document_end(reply, &time);
}

/* Stores the name that the client program gives itself in hello: {client: {application:
 * {name}}}. */
static void dispatch_read_app(struct call *call)
{
    struct connection *connection = call->connection;
    bson_iter_t at, found;

    if (call->command->traits & COMMAND_NAMES_CLIENT && !connection->app[0] &&
        bson_iter_init(&at, &call->request->body) &&
        bson_iter_find_descendant(&at, "client.application.name", &found) &&
        BSON_ITER_HOLDS_UTF8(&found))
        snprintf(connection->app, sizeof connection->app, "%s", bson_iter_utf8(&found, NULL));
}

truce_status server_dispatch(struct connection *connection, const struct wire_request *request,
                             bson_t *reply)
{
    struct wire_request own = *request;
    struct call call = {.server = connection->server,
                        .connection = connection,
                        .request = &own,
                        .store = connection->server->store,
                        .session.number = -1};
    bson_error_t error = {0};
    const char *name;
    truce_status status = truce__message_check(&own.body, &error);
    int64_t ns = 0;

    bson_init(reply);
    if (!status) {
        dispatch_unwrap(&own);
        status = dispatch_find(&call, &error);
    }
    if (!status)
        status = call_read_options(&call, &error);
    if (!status)
        status = access_check(&call, &error);
    if (!status) {
        call_session_id(&call, call.session.id, call.session.id);
        atomic_fetch_add_explicit(&call.server->counted[call.command->counted], 1,
                                  memory_order_relaxed);
        operation_begin(&call);
        dispatch_read_app(&call);
        truce__cluster_time_begin(call.server->set[0] ? server_time(call.server) : 0);
        status = fail_point_enter(&call, &error);
        if (!status)
            status = call_archive_sync_ready(&call, &error);
        if (!status)
            status = call_archive_sync_wait(&call, serve_in_session(&call, reply, &error), &error);
        truce__cluster_time_begin(0);
        truce__let_begin(NULL, false);
        (void)truce__aliases_use(NULL);
        ns = operation_end(&call) - call.waited_ns;
        if (!status)
            top_ran(call.server->top, &call, ns);
    }
    if (call.command && (status == TRUCE_IO || status == TRUCE_CORRUPT))
        command_log_failure(&call, &error);
    if (status) {
        bson_reinit(reply);
        call_append_error(&call, reply, status, &error);
        /* The error of an unknown operation has a status, too, so clients of truce recognize this
         * server as truce. */
        if (!call.command &&
            (truce__is_operation(&own.body) ||
             dispatch_misplaced_name(call.server->commands, &own.body, false, &name)))
            BSON_APPEND_UTF8(reply, "status", truce_status_name(status));
    } else {
        BSON_APPEND_DOUBLE(reply, "ok", 1);
        fail_point_leave(&call, reply);
    }
    dispatch_append_time(&call, reply);
    if (call.command && ns / 1000000 >= atomic_load(&call.server->slow_ms))
        command_log_slow(&call, ns / 1000000, reply);
    truce__aliases_release(call.aliases);
    truce__arena_release(&call.arena);
    return status;
}
