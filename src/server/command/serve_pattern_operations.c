#include "server/command/serve_pattern_operations.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/assert.h"

#define ROWS_MAX         256
#define OPERATION_PREFIX "truce" /* The prefix of the name of every operation. */
#define PREFIX_BYTES     5

/* ---- the commands ---------------------------------------------------------------------------- */

struct row_command {
    struct command command; /* Must be the first field: dispatch gets a pointer to the command. */
    const struct operation_row *row;
};

/* The commands of all operations, in the order of their table. Made once. A row of NULL ends
 * them. */
static struct row_command row_commands[ROWS_MAX];
static pthread_once_t row_commands_once = PTHREAD_ONCE_INIT;

static truce_status serve_operation(struct call *call, bson_t *reply, bson_error_t *error);

static void operation_append_error(const struct call *call, truce_status status, uint32_t code,
                                   bson_t *reply);

static struct need row_need(enum operation_role role)
{
    static const struct need needs[] = {
        [ROLE_NONE] = {NEED_NOTHING, 0},
        [ROLE_READ] = {NEED_DATABASE, ACTION_FIND},
        [ROLE_WRITE] = {NEED_DATABASE, ACTION_FIND | ACTION_WRITE},
        [ROLE_MONITOR] = {NEED_SERVER, ACTION_SERVER},
        [ROLE_MAINTAIN] = {NEED_SERVER, ACTION_KILL},
    };

    return needs[role];
}

/* Fills row_commands from the tables of operations. A name without the prefix "truce", or too many
 * rows, is an error of the program. */
static void row_commands_make(void)
{
    size_t count = 0;

    for (const struct operation_group *group = truce__operation_groups; group->title; group++)
        for (const struct operation_row *const *at = group->rows; *at; at++) {
            truce_assert(count < ROWS_MAX - 1 &&
                         !strncmp((*at)->name, OPERATION_PREFIX, PREFIX_BYTES));
            row_commands[count++] = (struct row_command){
                {(*at)->name, serve_operation, COUNTED_COMMAND, row_need((*at)->role),
                 (*at)->ways & OPERATION_TRANSACTS ? COMMAND_TRANSACTS : 0, (*at)->help,
                 operation_append_error},
                *at};
        }
}

const struct command *row_command(const struct operation_row *row)
{
    size_t i = 0;

    (void)pthread_once(&row_commands_once, row_commands_make);
    while (row_commands[i].row != row)
        i++;
    return &row_commands[i].command;
}

/* Finds a command by name. Every request searches here, so the comparison of most entries reads one
 * byte. */
const struct command *command_named(const struct command *commands, const char *name)
{
    const struct row_command *at = row_commands;

    while (commands->name && (commands->name[0] != name[0] || strcmp(commands->name, name) != 0))
        commands++;
    if (commands->name)
        return commands;
    if (strncmp(name, OPERATION_PREFIX, PREFIX_BYTES) != 0)
        return NULL;
    (void)pthread_once(&row_commands_once, row_commands_make);
    name += PREFIX_BYTES;
    while (at->row && (at->command.name[PREFIX_BYTES] != name[0] ||
                       strcmp(at->command.name + PREFIX_BYTES, name) != 0))
        at++;
    return at->row ? &at->command : NULL;
}

static const struct operation_row *command_row(const struct command *command)
{
    return ((const struct row_command *)command)->row;
}

static void operation_append_error(const struct call *call, truce_status status, uint32_t code,
                                   bson_t *reply)
{
    /* A code that another part of the server has refused with, such as NoSuchTransaction. */
    if (status == TRUCE_INVALID)
        status = truce__class_of_code(code);
    truce__operation_append_error(command_row(call->command), status, code,
                                  call->session.transaction || call->labels, reply);
    if (call->details)
        bson_concat(reply, call->details);
}

/* ---- the server as the host of an operation -------------------------------------------------- */

static truce_status host_check_role(const struct operation_call *operation,
                                    enum operation_role role, bson_error_t *error)
{
    struct call *call = operation->host_arg;
    const struct need need = row_need(role);
    truce_status status = need.kind == NEED_NOTHING
                              ? TRUCE_OK
                              : access_need(call, need.kind == NEED_SERVER ? NULL : call->database,
                                            need.actions, error);

    if (!status && (role == ROLE_WRITE || role == ROLE_MAINTAIN))
        status = call_archive_sync_write(call, error);
    return status;
}

static truce_status host_check_collection(const struct operation_call *operation,
                                          const char *collection, bool writes, bson_error_t *error)
{
    struct call *call = operation->host_arg;
    char stored_name[STORED_NAME_MAX];
    truce_status status = call_stored_name_of(call, collection, stored_name, error);

    if (!status)
        status = access_need_collection(call, call->database, collection,
                                        row_need(writes ? ROLE_WRITE : ROLE_READ).actions, error);
    if (!status && writes)
        status = call_archive_sync_write(call, error);
    return status ? status : view_refuse(call, call->database, collection, true, error);
}

static bool host_is_gone(const struct operation_call *operation)
{
    const struct call *call = operation->host_arg;
    struct pollfd polled = {.fd = call->connection->socket, .events = POLLRDHUP};

    /* recv() cannot detect that the client has ended: with TLS, the end itself consists of bytes to
     * read. */
    return server_is_stopping(call->server) ||
           (poll(&polled, 1, 0) > 0 && polled.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

static const char *host_message(const struct operation_call *operation, const char *message)
{
    return call_message(operation->host_arg, message);
}

static void host_sweep(const struct operation_call *operation, bool begins)
{
    const struct call *call = operation->host_arg;

    if (begins)
        sweeper_enter(call->server->sweeper);
    else
        sweeper_leave(call->server->sweeper);
}

/* Serves an operation of a pattern: passes the call to operations/. */
static truce_status serve_operation(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct operation_host host = {.check_role = host_check_role,
                                               .check_collection = host_check_collection,
                                               .is_gone = host_is_gone,
                                               .message = host_message,
                                               .sweep = host_sweep};
    struct operation_call operation = {.row = command_row(call->command),
                                       .host = &host,
                                       .host_arg = call,
                                       .find = truce__operation_named,
                                       .handles = call->server->handles,
                                       .whole = call->store,
                                       .transaction = call->store != call->server->store,
                                       .own_database = call->server->database,
                                       .database = call->database,
                                       .request = &call->request->body,
                                       .target = call->value,
                                       .deadline_ms = call->deadline_ms,
                                       .relaxed = call->relaxed,
                                       .arena = &call->arena,
                                       .details = &call->details};
    truce_status status = truce__operation_run(&operation, reply, error);

    call->waited_ns += operation.waited_ns;
    return status;
}
