#include "server/auth/access.h"

#include <string.h>

#include "server/call/call.h"

bool access_may(const struct call *call, const char *database, uint32_t actions)
{
    const struct user *user = call->connection->login.user;

    if (!call->server->auth)
        return true;
    return user && (grants_actions(&user->grants, database) & actions) == actions;
}

bool access_reads_users(const struct call *call)
{
    const struct user *user = call->connection->login.user;

    return call->server->auth && user && grants_read_users(&user->grants);
}

/* Fails because the user lacks a right. The message is "not authorized on school to execute command
 * { find: "students" }". Other fields may contain secrets. */
truce_status access_refuse(struct call *call, const char *database, bson_error_t *error)
{
    const bson_iter_t *value = &call->value;

    if (BSON_ITER_HOLDS_UTF8(value))
        return truce__refuse(CODE_UNAUTHORIZED, error,
                             "not authorized on %s to execute command { %s: \"%.120s\" }", database,
                             call->command->name, bson_iter_utf8(value, NULL));
    return truce__refuse(CODE_UNAUTHORIZED, error,
                         "not authorized on %s to execute command { %s: 1 }", database,
                         call->command->name);
}

truce_status access_need(struct call *call, const char *database, uint32_t actions,
                         bson_error_t *error)
{
    if (access_may(call, database, actions))
        return TRUCE_OK;
    return access_refuse(call, database ? database : "admin", error);
}

truce_status access_need_collection(struct call *call, const char *database, const char *collection,
                                    uint32_t actions, bson_error_t *error)
{
    const uint32_t reading = ACTION_FIND | ACTION_STATS | ACTION_LIST;

    if (strcmp(database, "admin") != 0 || strcmp(collection, "system.users") != 0)
        return access_need(call, database, actions, error);
    if (access_reads_users(call) && !(actions & ~reading))
        return TRUCE_OK;
    return access_refuse(call, database, error);
}

/* ---- the table ------------------------------------------------------------------------------- */

static truce_status check_need(struct call *call, const struct need *need, const bson_iter_t *value,
                               bson_error_t *error);

/* Checks the inner command of {explain: {find: "students", ...}}. */
static truce_status check_inner(struct call *call, const bson_iter_t *value, bson_error_t *error)
{
    const struct command *command = NULL;
    bson_iter_t inner;

    if (BSON_ITER_HOLDS_DOCUMENT(value) && bson_iter_recurse(value, &inner) &&
        bson_iter_next(&inner))
        command = call->server->commands->find(bson_iter_key(&inner));
    if (!command || command->need.kind == NEED_INNER)
        return TRUCE_OK; /* The handler refuses an explain without an inner command. */
    return check_need(call, &command->need, &inner, error);
}

uint32_t access_more_actions(const struct call *call)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, &call->request->body, "bypassDocumentValidation") &&
                   truce__field_truth(&at)
               ? ACTION_ADMIN
               : 0;
}

/* Checks that the user may do what a command needs. `value` is the value of the command's first
 * field. */
static truce_status check_need(struct call *call, const struct need *need, const bson_iter_t *value,
                               bson_error_t *error)
{
    switch (need->kind) {
    case NEED_NOTHING:
    case NEED_LOGIN:
        return TRUCE_OK;
    case NEED_COLLECTION:
        return access_need_collection(
            call, call->database, BSON_ITER_HOLDS_UTF8(value) ? bson_iter_utf8(value, NULL) : "",
            need->actions | (need->actions & ACTION_WRITE ? access_more_actions(call) : 0), error);
    case NEED_DATABASE:
        return access_need(call, call->database, need->actions, error);
    case NEED_SERVER:
    case NEED_TESTS:
        return access_need(call, NULL, need->actions, error);
    case NEED_INNER:
        return check_inner(call, value, error);
    case NEED_REFUSED:
        break;
    }
    return access_refuse(call, call->database, error);
}

truce_status access_check(struct call *call, bson_error_t *error)
{
    const struct need *need = &call->command->need;
    truce_status status =
        call->server->refresh_login ? call->server->refresh_login(call, error) : TRUCE_OK;

    if (status)
        return status;
    if (call->server->auth && !call->connection->login.user && need->kind != NEED_NOTHING)
        return truce__refuse(CODE_UNAUTHORIZED, error, "Command %s requires authentication",
                             call->command->name);
    return check_need(call, need, &call->value, error);
}
