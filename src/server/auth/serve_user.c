/* Users: createUser, updateUser, dropUser, dropAllUsersFromDatabase, grantRolesToUser, revokeRolesFromUser. */
#include "server/command/groups.h"

#include <string.h>

struct user_fields {
    const char *password;
    const bson_t *roles, *custom, *mechanisms;
    bool digest; /* the password is as it was typed */
};

static const struct field user_fields[] = {
    {"pwd", FIELD_TEXT, offsetof(struct user_fields, password)},
    {"roles", FIELD_ARRAY, offsetof(struct user_fields, roles)},
    {"customData", FIELD_DOCUMENT, offsetof(struct user_fields, custom)},
    {"mechanisms", FIELD_ARRAY, offsetof(struct user_fields, mechanisms)},
    {"digestPassword", FIELD_FLAG, offsetof(struct user_fields, digest)},
    {"authenticationRestrictions", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static const struct field role_fields[] = {
    {"roles", FIELD_ARRAY, offsetof(struct user_fields, roles)}, {NULL, FIELD_IGNORED, 0}};

static const struct field no_fields[] = {{NULL, FIELD_IGNORED, 0}};

/* Every connection reads again what its user may do. */
static truce_status user_changed(struct call *call, truce_status status)
{
    atomic_fetch_add(&call->server->changes, 1);
    return status;
}

static truce_status user_name_of(struct call *call, const char **name, bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "'%s' must name a user by a text",
                             call->command->name);
    *name = bson_iter_utf8(&call->value, NULL);
    return users_check_name(*name, error);
}

/* The roles, which who calls must be allowed to grant where they are of. */
static truce_status read_roles(struct call *call, const bson_t *array, struct grants **grants,
                               bson_error_t *error)
{
    struct grants *read = truce__arena_take(&call->arena, sizeof *read);
    truce_status status = grants_read(array, call->database, false, read, error);

    for (int i = 0; i < read->count && !status; i++)
        status = access_need(call, read->all[i].database, ACTION_USERS, error);
    *grants = read;
    return status;
}

static truce_status read_mechanisms(const bson_t *array, uint32_t *mechanisms, bson_error_t *error)
{
    enum scram_mechanism mechanism;
    bson_iter_t at;

    *mechanisms = array ? 0 : USER_MECHANISMS;
    if (array && bson_iter_init(&at, array))
        while (bson_iter_next(&at)) {
            const char *name = BSON_ITER_HOLDS_UTF8(&at) ? bson_iter_utf8(&at, NULL) : "";

            if (!scram_mechanism_of(name, &mechanism))
                return truce__refuse(CODE_BAD_VALUE, error, "Unknown auth mechanism '%.40s'", name);
            *mechanisms |= 1u << mechanism;
        }
    return *mechanisms ? TRUCE_OK
                       : truce__refuse(CODE_BAD_VALUE, error, "mechanisms field must not be empty");
}

/* Of a command with a password, or (updateUser) without one. */
static truce_status read_facts(struct call *call, struct user_facts *facts,
                               struct user_fields *fields, bson_error_t *error)
{
    struct grants *grants = NULL;
    truce_status status = user_name_of(call, &facts->name, error);

    fields->digest = true;
    facts->database = call->database;
    if (!status)
        status = call_own_fields(call, user_fields, fields, error);
    if (!status && !fields->digest)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "the server makes the digest of a password: digestPassword must be "
                               "true");
    if (!status && fields->password && !fields->password[0])
        status = truce__refuse(CODE_BAD_VALUE, error, "User passwords must not be empty");
    if (!status && fields->mechanisms && !fields->password)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "mechanisms can only be changed together with the password");
    if (!status)
        status = read_mechanisms(fields->mechanisms, &facts->mechanisms, error);
    if (!status && fields->roles)
        status = read_roles(call, fields->roles, &grants, error);
    facts->password = fields->password;
    facts->custom = fields->custom;
    facts->grants = grants;
    return status;
}

truce_status serve_create_user(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct user_facts facts = {0};
    struct user_fields fields = {0};
    truce_status status;

    (void)reply;
    call->connection->wipes = true;
    status = read_facts(call, &facts, &fields, error);
    if (!status && !fields.password)
        status = truce__refuse(CODE_BAD_VALUE, error, "a user must have a password (pwd)");
    if (!status && !fields.roles)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "\"createUser\" command requires a \"roles\" array");
    return status ? status : user_changed(call, users_add(call->server->store, &facts, error));
}

truce_status serve_update_user(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct user_facts facts = {0};
    struct user_fields fields = {0};
    truce_status status;

    (void)reply;
    call->connection->wipes = true;
    status = read_facts(call, &facts, &fields, error);
    if (!status && !fields.password && !fields.roles && !fields.custom)
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "Must specify at least one field to update in updateUser");
    return status ? status : user_changed(call, users_change(call->server->store, &facts, error));
}

truce_status serve_drop_user(struct call *call, bson_t *reply, bson_error_t *error)
{
    const char *name = NULL;
    truce_status status = user_name_of(call, &name, error);

    (void)reply;
    if (!status)
        status = call_own_fields(call, no_fields, NULL, error);
    if (status)
        return status;
    return user_changed(call, users_remove(call->server->store, call->database, name, error));
}

truce_status serve_drop_all_users(struct call *call, bson_t *reply, bson_error_t *error)
{
    int64_t removed = 0;
    truce_status status = call_own_fields(call, no_fields, NULL, error);

    if (!status)
        status = user_changed(
            call, users_remove_all(call->server->store, call->database, &removed, error));
    BSON_APPEND_INT64(reply, "n", removed);
    return status;
}

static truce_status grant(struct call *call, bool revoke, bson_error_t *error)
{
    struct user_fields fields = {0};
    struct grants *grants;
    const char *name = NULL;
    truce_status status = user_name_of(call, &name, error);

    if (!status)
        status = call_own_fields(call, role_fields, &fields, error);
    if (!status && (!fields.roles || bson_empty(fields.roles)))
        status = truce__refuse(CODE_BAD_VALUE, error, "%s must have roles", call->command->name);
    if (!status)
        status = read_roles(call, fields.roles, &grants, error);
    if (status)
        return status;
    return user_changed(
        call, users_grant(call->server->store, call->database, name, grants, revoke, error));
}

truce_status serve_grant_roles(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)reply;
    return grant(call, false, error);
}

truce_status serve_revoke_roles(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)reply;
    return grant(call, true, error);
}
