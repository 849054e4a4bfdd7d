/* saslStart, saslContinue, logout, connectionStatus, and the fields of hello about logins. */
#include "server/command/handlers.h"

#include <string.h>

#include "base/field.h"

truce_status serve_sasl_start(struct call *call, bson_t *reply, bson_error_t *error)
{
    call->connection->wipes = true;
    return login_start(call, &call->request->body, call->database, false, reply, error);
}

truce_status serve_sasl_continue(struct call *call, bson_t *reply, bson_error_t *error)
{
    const uint8_t *payload = NULL;
    uint32_t size = 0;
    bson_iter_t at;

    call->connection->wipes = true;
    if (!bson_iter_init_find(&at, &call->request->body, "payload") || !BSON_ITER_HOLDS_BINARY(&at))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "saslContinue needs 'payload', a binary");
    bson_iter_binary(&at, NULL, &size, &payload);
    return login_continue(call, payload, size, reply, error);
}

truce_status serve_logout(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct login *login = &call->connection->login;

    (void)reply;
    (void)error;
    if (login->user && !strcmp(login->user->database, call->database))
        login_out(login);
    return TRUCE_OK;
}

static void login_append_user(const struct user *user, bson_t *info)
{
    bson_t users;

    BSON_APPEND_ARRAY_BEGIN(info, "authenticatedUsers", &users);
    if (user)
        BCON_APPEND(&users, "0", "{", "user", BCON_UTF8(user->name), "db",
                    BCON_UTF8(user->database), "}");
    bson_append_array_end(info, &users);
}

truce_status serve_connection_status(struct call *call, bson_t *reply, bson_error_t *error)
{
    static const struct grants none;
    const struct user *user = call->connection->login.user;
    const struct grants *grants = user ? &user->grants : &none;
    bson_iter_t at;
    bson_t info;

    (void)error;
    BSON_APPEND_DOCUMENT_BEGIN(reply, "authInfo", &info);
    login_append_user(user, &info);
    grants_append(grants, "authenticatedUserRoles", &info);
    if (bson_iter_init_find(&at, &call->request->body, "showPrivileges") && truce__field_truth(&at))
        grants_append_privileges(grants, "authenticatedUserPrivileges", &info);
    bson_append_document_end(reply, &info);
    return TRUCE_OK;
}

/* ---- in hello -------------------------------------------------------------------------------- */

/* Appends the mechanisms of a user. For an unknown user it reports the default mechanisms, so the
 * reply does not reveal whether the user exists. */
static void append_mechanisms(struct call *call, const char *namespace, bson_t *reply)
{
    const char *dot = strchr(namespace, '.');
    char database[DATABASE_NAME_MAX + 1] = "";
    uint32_t mechanisms = USER_MECHANISMS;
    bson_t document;

    if (!dot || dot - namespace > DATABASE_NAME_MAX)
        return;
    memcpy(database, namespace, (size_t)(dot - namespace));
    if (!users_read(call->server->store, database, dot + 1, &document, NULL))
        mechanisms = users_mechanisms(&document);
    bson_destroy(&document);
    users_append_mechanisms(mechanisms, "saslSupportedMechs", reply);
}

/* Runs the first step of a login that is part of hello. If it is not possible, the reply
 * omits it. */
static void append_start(struct call *call, const bson_t *document, bson_t *reply)
{
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;

    call->connection->wipes = true;
    if (!login_start(call, document, truce__field_text(document, "db"), true, &answer, &error))
        BSON_APPEND_DOCUMENT(reply, "speculativeAuthenticate", &answer);
    bson_destroy(&answer);
}

void serve_hello_login(struct call *call, bson_t *reply)
{
    bson_iter_t at;

    if (bson_iter_init_find(&at, &call->request->body, "saslSupportedMechs") &&
        BSON_ITER_HOLDS_UTF8(&at))
        append_mechanisms(call, bson_iter_utf8(&at, NULL), reply);
    if (bson_iter_init_find(&at, &call->request->body, "speculativeAuthenticate") &&
        BSON_ITER_HOLDS_DOCUMENT(&at))
        append_start(call, call_view_of(call, &at), reply);
}
