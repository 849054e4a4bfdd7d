/* createToken, tokensInfo, revokeToken. As for a change of passwords, a caller needs the right to
 * change users of the database. */
#include "base/clock.h"
#include "bson/refuse_value.h"
#include "server/auth/tokens.h"
#include "server/auth/users.h"
#include "server/command/handlers.h"

struct token_fields {
    int64_t expires_ms;
    const char *id;
};

static const struct field create_token_fields[] = {
    {"expiresMS", FIELD_WHOLE, offsetof(struct token_fields, expires_ms)},
    {NULL, FIELD_IGNORED, 0}};
static const struct field revoke_token_fields[] = {
    {"id", FIELD_TEXT, offsetof(struct token_fields, id)}, {NULL, FIELD_IGNORED, 0}};
static const struct field tokens_info_fields[] = {{NULL, FIELD_IGNORED, 0}};

/* Reads the name of the user, and the fields. */
static truce_status token_read(struct call *call, const struct field *table,
                               struct token_fields *fields, const char **user, bson_error_t *error)
{
    truce_status status;

    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                   "'%s' must be a string, the name of a user",
                                   call->command->name);
    *user = bson_iter_utf8(&call->value, NULL);
    status = users_check_name(*user, error);
    return status ? status : call_own_fields(call, table, fields, error);
}

truce_status serve_create_token(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct token_fields fields = {0};
    char token[TOKEN_MAX], id[TOKEN_ID_MAX];
    const char *user;
    truce_status status = token_read(call, create_token_fields, &fields, &user, error);

    if (!status && fields.expires_ms && fields.expires_ms <= truce__clock_wall_ms())
        status =
            truce__refuse(CODE_BAD_VALUE, error,
                          "the field 'expiresMS' must be a time in the future, ms since 1970, not "
                          "%lld",
                          (long long)fields.expires_ms);
    if (!status)
        status = tokens_add(call->server->store, call->database, user, fields.expires_ms, token, id,
                            error);
    if (!status)
        BCON_APPEND(reply, "token", BCON_UTF8(token), "id", BCON_UTF8(id));
    explicit_bzero(token, sizeof token);
    return status;
}

truce_status serve_tokens(struct call *call, bson_t *reply, bson_error_t *error)
{
    const char *user;
    truce_status status = token_read(call, tokens_info_fields, NULL, &user, error);
    bson_t tokens;

    if (status)
        return status;
    status = tokens_list(call->server->store, call->database, user, &tokens, error);
    if (!status)
        BSON_APPEND_ARRAY(reply, "tokens", &tokens);
    bson_destroy(&tokens);
    return status;
}

truce_status serve_revoke_token(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct token_fields fields = {0};
    const char *user;
    truce_status status = token_read(call, revoke_token_fields, &fields, &user, error);

    (void)reply;
    if (!status && !fields.id)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "'revokeToken' needs the field 'id': tokensInfo lists the ids");
    if (!status)
        status = tokens_revoke(call->server->store, call->database, user, fields.id, error);
    if (status == TRUCE_NOT_FOUND)
        status = truce__refuse(CODE_BAD_VALUE, error, "the user has no token with the id \"%.40s\"",
                               fields.id);
    /* Each connection reads its user's roles again. */
    atomic_fetch_add(&call->server->changes, 1);
    return status;
}
