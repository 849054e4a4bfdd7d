/* Users: createUser, updateUser, dropUser, dropAllUsersFromDatabase, grantRolesToUser,
 * revokeRolesFromUser, usersInfo, rolesInfo. */
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/refuse_value.h"
#include "bson/value.h"
#include "server/command/handlers.h"
#include "store/reserved_names.h"

/* ---- usersInfo and rolesInfo ----------------------------------------------------------------- */

/* The options of usersInfo and rolesInfo. */
struct info {
    const bson_t *filter;
    bool credentials, custom, builtin, privileges;
};

static const struct field users_fields[] = {
    {"showCredentials", FIELD_FLAG, offsetof(struct info, credentials)},
    {"showCustomData", FIELD_FLAG, offsetof(struct info, custom)},
    {"showPrivileges", FIELD_PLAIN, 0},
    {"showAuthenticationRestrictions", FIELD_IGNORED, 0},
    {"filter", FIELD_PLAIN, 0},
    {NULL, FIELD_IGNORED, 0}};

static const struct field roles_fields[] = {
    {"showBuiltinRoles", FIELD_FLAG, offsetof(struct info, builtin)},
    {"showPrivileges", FIELD_FLAG, offsetof(struct info, privileges)},
    {"showAuthenticationRestrictions", FIELD_IGNORED, 0},
    {NULL, FIELD_IGNORED, 0}};

/* Reads the user or role (`kind`) that a command names: "ada", which leaves `*database` as it is,
 * or {user: "ada", db: "school"}. Returns false if the value has another form. */
static bool info_name_of(const bson_iter_t *at, const char *kind, const char **name,
                         const char **database)
{
    const char *given = NULL;
    bson_iter_t field;

    *name = NULL;
    if (BSON_ITER_HOLDS_UTF8(at)) {
        *name = bson_iter_utf8(at, NULL);
        return true;
    }
    if (!BSON_ITER_HOLDS_DOCUMENT(at) || !bson_iter_recurse(at, &field))
        return false;
    while (bson_iter_next(&field)) {
        bool is_name = !strcmp(bson_iter_key(&field), kind);

        if ((!is_name && strcmp(bson_iter_key(&field), "db") != 0) || !BSON_ITER_HOLDS_UTF8(&field))
            return false;
        *(is_name ? name : &given) = bson_iter_utf8(&field, NULL);
    }
    *database = given;
    return *name && given;
}

static bool is_all_databases(const bson_iter_t *value)
{
    bson_iter_t field;

    return BSON_ITER_HOLDS_DOCUMENT(value) && bson_iter_recurse(value, &field) &&
           bson_iter_find(&field, "forAllDBs") && truce__field_truth(&field);
}

/* Returns whether the named user is the caller. A user may always read its own record. */
static bool is_self(const struct call *call, const char *name, const char *database)
{
    const struct user *user = call->connection->login.user;

    return user && !strcmp(user->name, name) && !strcmp(user->database, database);
}

/* ---- users ----------------------------------------------------------------------------------- */

/* Adds the _id of one user that usersInfo names to `ids`. Fails if it is another user than the
 * caller, and the caller may not see the users of its database. */
static truce_status add_user(struct call *call, const bson_iter_t *at, bson_t *ids, uint32_t *count,
                             bson_error_t *error)
{
    const char *name, *database = call->database, *key;
    char buffer[16], *id;

    if (!info_name_of(at, "user", &name, &database))
        return truce__refuse_value(
            CODE_BAD_VALUE, truce__value_of_iter(at), error,
            "usersInfo takes a name, {user, db}, an array of these, 1, or {forAllDBs: true}");
    if (!is_self(call, name, database) && !access_may(call, database, ACTION_USERS))
        return access_refuse(call, database, error);
    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    id = bson_strdup_printf("%s.%s", database, name);
    BSON_APPEND_UTF8(ids, key, id);
    bson_free(id);
    return TRUCE_OK;
}

/* Makes the filter for the users that usersInfo names: {_id: {$in: [...]}}, {db: ...}, or {} for
 * all databases. Every user may read its own record. Reading other records needs the right to see
 * the users of their databases. */
static truce_status info_filter_of(struct call *call, bson_t *filter, bson_error_t *error)
{
    const bson_iter_t *value = &call->value;
    truce_status status = TRUCE_OK;
    uint32_t count = 0;
    bson_iter_t at;
    bson_t in, ids;

    /* Users of all databases were requested, so a role on a single database is not enough. */
    if (is_all_databases(value))
        return access_need(call, "", ACTION_USERS, error);
    if (truce__field_is_number(value)) {
        BSON_APPEND_UTF8(filter, "db", call->database);
        return access_need(call, call->database, ACTION_USERS, error);
    }
    BSON_APPEND_DOCUMENT_BEGIN(filter, "_id", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &ids);
    if (BSON_ITER_HOLDS_ARRAY(value) && bson_iter_recurse(value, &at)) {
        while (!status && bson_iter_next(&at))
            status = add_user(call, &at, &ids, &count, error);
    } else {
        status = add_user(call, value, &ids, &count, error);
    }
    bson_append_array_end(&in, &ids);
    bson_append_document_end(filter, &in);
    return status;
}

/* Appends the fields of the user's document that `info` requests, never its tokens, and the names
 * of its mechanisms. */
static void info_append_user(const bson_t *document, const struct info *info, bson_t *one)
{
    bson_iter_t at;

    if (bson_iter_init(&at, document))
        while (bson_iter_next(&at)) {
            const char *key = bson_iter_key(&at);

            if (strcmp(key, "tokens") != 0 &&
                (strcmp(key, "credentials") != 0 || info->credentials) &&
                (strcmp(key, "customData") != 0 || info->custom))
                BSON_APPEND_VALUE(one, key, bson_iter_value(&at));
        }
    users_append_mechanisms(users_mechanisms(document), "mechanisms", one);
}

/* Appends the users that match: at most TRUCE_USERS_LISTED_MAX, and about half the maximum size of
 * a document. */
static truce_status list_users(struct call *call, const bson_t *filter, const struct info *info,
                               bson_t *users, bson_error_t *error)
{
    const truce_find_options options = {.limit = TRUCE_USERS_LISTED_MAX};
    const bson_t *document = NULL;
    truce_cursor *cursor = NULL;
    char buffer[16];
    const char *key;
    bson_t one;
    truce_status status =
        truce_find(call->server->store, USER_RECORDS, filter, &options, &cursor, error);

    for (uint32_t i = 0; !status; i++) {
        status = truce_cursor_next(cursor, &document, error);
        if (status || !document || users->len > TRUCE_DOCUMENT_BYTES_MAX / 2)
            break;
        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(users, key, &one);
        info_append_user(document, info, &one);
        bson_append_document_end(users, &one);
    }
    truce_cursor_close(cursor);
    return status;
}

truce_status serve_users(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct info info = {.custom = true};
    bson_t filter = BSON_INITIALIZER, users = BSON_INITIALIZER;
    truce_status status = call_own_fields(call, users_fields, &info, error);

    if (!status && info.credentials && !access_reads_users(call))
        status = access_refuse(call, "admin", error);
    if (!status)
        status = info_filter_of(call, &filter, error);
    if (!status)
        status = list_users(call, &filter, &info, &users, error);
    BSON_APPEND_ARRAY(reply, "users", &users);
    bson_destroy(&users);
    bson_destroy(&filter);
    return status;
}

/* ---- roles ----------------------------------------------------------------------------------- */

/* Appends {role, db, isBuiltin, roles, inheritedRoles} of a role, and its privileges if `info`
 * requests them. No role inherits another one. */
static void append_role(int role, const char *database, const struct info *info, uint32_t *count,
                        bson_t *array)
{
    struct grants *grants = bson_malloc0(sizeof *grants);
    char buffer[16];
    const char *key;
    bson_t one;

    grants->count = 1;
    grants->all[0].role = role;
    snprintf(grants->all[0].database, sizeof grants->all[0].database, "%s", database);
    bson_uint32_to_string((*count)++, &key, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(array, key, &one);
    BCON_APPEND(&one, "role", BCON_UTF8(role_name(role)), "db", BCON_UTF8(database), "isBuiltin",
                BCON_BOOL(true), "roles", "[", "]", "inheritedRoles", "[", "]");
    if (info->privileges) {
        grants_append_privileges(grants, "privileges", &one);
        grants_append_privileges(grants, "inheritedPrivileges", &one);
    }
    bson_append_document_end(array, &one);
    bson_free(grants);
}

/* Appends a role that rolesInfo names, or nothing if it does not exist. Fails if the caller may not
 * see the users of its database. */
static truce_status add_role(struct call *call, const bson_iter_t *at, const struct info *info,
                             uint32_t *count, bson_t *array, bson_error_t *error)
{
    const char *name, *database = call->database;
    int role;

    if (!info_name_of(at, "role", &name, &database))
        return truce__refuse_value(CODE_BAD_VALUE, truce__value_of_iter(at), error,
                                   "rolesInfo takes a name, {role, db}, an array of these, or 1");
    role = role_of(name, database);
    if (!access_may(call, database, ACTION_USERS))
        return access_refuse(call, database, error);
    if (role >= 0)
        append_role(role, database, info, count, array);
    return TRUCE_OK;
}

truce_status serve_roles(struct call *call, bson_t *reply, bson_error_t *error)
{
    struct info info = {0};
    uint32_t count = 0;
    bson_iter_t at;
    bson_t array;
    truce_status status = call_own_fields(call, roles_fields, &info, error);

    BSON_APPEND_ARRAY_BEGIN(reply, "roles", &array);
    if (!status && truce__field_is_number(&call->value)) {
        status = access_need(call, call->database, ACTION_USERS, error);
        for (int i = 0; role_name(i) && info.builtin && !status; i++)
            if (role_of(role_name(i), call->database) >= 0)
                append_role(i, call->database, &info, &count, &array);
    } else if (!status && BSON_ITER_HOLDS_ARRAY(&call->value) &&
               bson_iter_recurse(&call->value, &at)) {
        while (!status && bson_iter_next(&at))
            status = add_role(call, &at, &info, &count, &array, error);
    } else if (!status) {
        status = add_role(call, &call->value, &info, &count, &array, error);
    }
    bson_append_array_end(reply, &array);
    return status;
}

/* ---- changes of users ------------------------------------------------------------------------ */

struct user_fields {
    const char *password;
    const bson_t *roles, *custom, *mechanisms;
    bool digest; /* The server hashes the password (digestPassword); the client has not. */
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

/* Makes each connection read its user's roles again. */
static truce_status user_changed(struct call *call, truce_status status)
{
    atomic_fetch_add(&call->server->changes, 1);
    return status;
}

static truce_status user_name_of(struct call *call, const char **name, bson_error_t *error)
{
    if (!BSON_ITER_HOLDS_UTF8(&call->value))
        return truce__refuse_value(CODE_TYPE_MISMATCH, truce__value_of_iter(&call->value), error,
                                   "'%s' must be a string, the name of a user",
                                   call->command->name);
    *name = bson_iter_utf8(&call->value, NULL);
    return users_check_name(*name, error);
}

/* Reads the roles. The caller needs the right to grant each on its database. */
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

/* Reads the names of mechanisms as bits. Without an array, the result is all mechanisms. */
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

/* Reads the fields of a command with a password, or (updateUser) without one. */
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
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "createUser needs 'pwd', the password of the user");
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

/* Grants or revokes roles: the handler of grantRolesToUser and revokeRolesFromUser. */
static truce_status user_change_roles(struct call *call, bool revoke, bson_error_t *error)
{
    struct user_fields fields = {0};
    struct grants *grants;
    const char *name = NULL;
    truce_status status = user_name_of(call, &name, error);

    if (!status)
        status = call_own_fields(call, role_fields, &fields, error);
    if (!status && (!fields.roles || bson_empty(fields.roles)))
        status = truce__refuse(CODE_BAD_VALUE, error,
                               "%s needs 'roles', an array that is not empty", call->command->name);
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
    return user_change_roles(call, false, error);
}

truce_status serve_revoke_roles(struct call *call, bson_t *reply, bson_error_t *error)
{
    (void)reply;
    return user_change_roles(call, true, error);
}
