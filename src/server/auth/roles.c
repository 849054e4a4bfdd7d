#include "server/auth/roles.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/refuse_value.h"

#define READS    (ACTION_FIND | ACTION_STATS | ACTION_LIST)
#define WRITES   (READS | ACTION_WRITE | ACTION_SHAPE)
#define KEEPS    (ACTION_STATS | ACTION_LIST | ACTION_SHAPE | ACTION_ADMIN)
#define OWNS     (WRITES | ACTION_ADMIN | ACTION_USERS)
#define MONITORS (ACTION_LIST_DATABASES | ACTION_SERVER)

enum reach {
    REACH_OWN, /* The role applies to the database on which it is granted. */
    /* The role applies to all databases except those of the server: config and local. */
    REACH_ANY,
    REACH_ALL,
};

static const struct role {
    const char *name;
    enum reach reach;
    /* Bits of enum action: those in a database, and those on the server. */
    uint32_t actions, server;
    bool reads_users;
} roles[] = {{"read", REACH_OWN, READS, 0, false},
             {"readWrite", REACH_OWN, WRITES, 0, false},
             {"dbAdmin", REACH_OWN, KEEPS, 0, false},
             {"userAdmin", REACH_OWN, ACTION_USERS, 0, false},
             {"dbOwner", REACH_OWN, OWNS, 0, false},
             {"readAnyDatabase", REACH_ANY, READS, ACTION_LIST_DATABASES, false},
             {"readWriteAnyDatabase", REACH_ANY, WRITES, ACTION_LIST_DATABASES, false},
             {"dbAdminAnyDatabase", REACH_ANY, KEEPS, ACTION_LIST_DATABASES, false},
             {"userAdminAnyDatabase", REACH_ANY, ACTION_USERS, ACTION_LIST_DATABASES, true},
             {"clusterMonitor", REACH_ALL, ACTION_STATS | ACTION_LIST, MONITORS, false},
             {"root", REACH_ALL, OWNS, MONITORS | ACTION_KILL, true},
             {0}};

int role_of(const char *name, const char *database)
{
    for (int i = 0; roles[i].name; i++)
        if (!strcmp(roles[i].name, name))
            return roles[i].reach == REACH_OWN || !strcmp(database, "admin") ? i : -1;
    return -1;
}

const char *role_name(int i)
{
    return roles[i].name;
}

/* Returns the actions that the role allows in a database, or on the server if `database` is
 * NULL. */
static uint32_t role_actions(const struct grant *grant, const char *database)
{
    const struct role *role = &roles[grant->role];

    if (!database)
        return role->server;
    if (role->reach == REACH_OWN)
        return strcmp(grant->database, database) ? 0 : role->actions;
    if (role->reach == REACH_ANY && (!strcmp(database, "config") || !strcmp(database, "local")))
        return 0;
    return role->actions;
}

uint32_t grants_actions(const struct grants *grants, const char *database)
{
    uint32_t actions = 0;

    for (int i = 0; i < grants->count; i++)
        actions |= role_actions(&grants->all[i], database);
    return actions;
}

bool grants_read_users(const struct grants *grants)
{
    for (int i = 0; i < grants->count; i++)
        if (roles[grants->all[i].role].reads_users)
            return true;
    return false;
}

/* ---- documents of roles ---------------------------------------------------------------------- */

static truce_status roles_add(struct grants *grants, int role, const char *database,
                              bson_error_t *error)
{
    for (int i = 0; i < grants->count; i++)
        if (grants->all[i].role == role && !strcmp(grants->all[i].database, database))
            return TRUCE_OK;
    if (grants->count == TRUCE_USER_ROLES_MAX)
        return truce__refuse(CODE_BAD_VALUE, error, "a user may have at most %d roles",
                             TRUCE_USER_ROLES_MAX);
    grants->all[grants->count].role = role;
    snprintf(grants->all[grants->count++].database, DATABASE_NAME_MAX + 1, "%s", database);
    return TRUCE_OK;
}

/* Reads {role, db}. As in MongoDB, it has both and nothing else: a role with a misspelled database
 * would be granted on another one. */
static truce_status roles_read_document(const bson_iter_t *at, const char **name,
                                        const char **database, bson_error_t *error)
{
    const char *values[2] = {NULL, NULL};
    bson_iter_t field;

    (void)bson_iter_recurse(at, &field);
    while (bson_iter_next(&field)) {
        const char *key = bson_iter_key(&field);
        int which = !strcmp(key, "role") ? 0 : !strcmp(key, "db") ? 1 : -1;

        if (which < 0 || values[which])
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "a role is {role, db}: the field '%.80s' %s", key,
                                 which < 0 ? "is unknown" : "is given twice");
        if (!BSON_ITER_HOLDS_UTF8(&field))
            return truce__refuse(CODE_BAD_VALUE, error,
                                 "a role is {role, db}: the field '%s' must be a string, not %s",
                                 key, truce__type_name((uint8_t)bson_iter_type(&field)));
        values[which] = bson_iter_utf8(&field, NULL);
    }
    if (!values[0] || !values[1])
        return truce__refuse(CODE_BAD_VALUE, error,
                             "a role is {role, db}: the field '%s' is missing",
                             values[0] ? "db" : "role");
    *name = values[0];
    *database = values[1];
    return TRUCE_OK;
}

/* Reads one role of a list. With `lenient`, skips a role that does not exist. */
static truce_status roles_read_one(const bson_iter_t *at, const char *database, bool lenient,
                                   struct grants *grants, bson_error_t *error)
{
    const char *name = "";
    truce_status status = TRUCE_OK;
    int role;

    if (BSON_ITER_HOLDS_UTF8(at))
        name = bson_iter_utf8(at, NULL);
    else if (BSON_ITER_HOLDS_DOCUMENT(at))
        status = roles_read_document(at, &name, &database, lenient ? NULL : error);
    if (status && !lenient)
        return status;
    if (!name[0] && !lenient)
        return truce__refuse_value(CODE_BAD_VALUE, truce__value_of_iter(at), error,
                                   "a role must be a name, or a document with a role and a db");
    role = role_of(name, database);
    if (role < 0 && !lenient)
        return truce__refuse(CODE_ROLE_NOT_FOUND, error, "No role named %.80s@%.63s", name,
                             database);
    if (role < 0 || truce__database_name_check(database, lenient ? NULL : error))
        return lenient ? TRUCE_OK : TRUCE_INVALID;
    return lenient && grants->count == TRUCE_USER_ROLES_MAX
               ? TRUCE_OK
               : roles_add(grants, role, database, error);
}

truce_status grants_read(const bson_t *array, const char *database, bool lenient,
                         struct grants *grants, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    grants->count = 0;
    if (bson_iter_init(&at, array))
        while (!status && bson_iter_next(&at))
            status = roles_read_one(&at, database, lenient, grants, error);
    return status;
}

void grants_append(const struct grants *grants, const char *key, bson_t *document)
{
    char buffer[16];
    const char *index;
    bson_t array, one;

    BSON_APPEND_ARRAY_BEGIN(document, key, &array);
    for (int i = 0; i < grants->count; i++) {
        bson_uint32_to_string((uint32_t)i, &index, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, index, &one);
        BSON_APPEND_UTF8(&one, "role", roles[grants->all[i].role].name);
        BSON_APPEND_UTF8(&one, "db", grants->all[i].database);
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(document, &array);
}

/* The names that MongoDB uses. */
static const char *const names[ACTION_KINDS][10] = {
    {"find", "killCursors"},
    {"collStats", "dbStats"},
    {"listCollections", "listIndexes"},
    {"insert", "update", "remove"},
    {"createCollection", "dropCollection", "createIndex", "dropIndex", "renameCollectionSameDB"},
    {"collMod", "validate", "bypassDocumentValidation", "dropDatabase", "compact",
     "enableProfiler"},
    {"createUser", "dropUser", "grantRole", "revokeRole", "changePassword", "changeCustomData",
     "viewUser", "viewRole"},
    {"listDatabases"},
    {"serverStatus", "hostInfo", "getLog", "getParameter", "getCmdLineOpts", "replSetGetStatus",
     "inprog", "top", "connPoolStats"},
    {"killAnySession", "killAnyCursor", "killop", "setParameter", "fsync", "shutdown",
     "logRotate"}};

/* Appends MongoDB's names of the actions as an array. */
static void append_actions(uint32_t actions, bson_t *privilege)
{
    uint32_t count = 0;
    char buffer[16];
    const char *index;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(privilege, "actions", &array);
    for (int i = 0; i < ACTION_KINDS; i++)
        for (int j = 0; actions & 1u << i && names[i][j]; j++) {
            bson_uint32_to_string(count++, &index, buffer, sizeof buffer);
            BSON_APPEND_UTF8(&array, index, names[i][j]);
        }
    bson_append_array_end(privilege, &array);
}

/* Appends the privilege to do `actions` in a database. If `database` is NULL, the privilege is for
 * the server. */
static void append_privilege(const char *database, uint32_t actions, uint32_t *count, bson_t *array)
{
    char buffer[16];
    const char *index;
    bson_t privilege;

    bson_uint32_to_string((*count)++, &index, buffer, sizeof buffer);
    BSON_APPEND_DOCUMENT_BEGIN(array, index, &privilege);
    if (database)
        BCON_APPEND(&privilege, "resource", "{", "db", BCON_UTF8(database), "collection",
                    BCON_UTF8(""), "}");
    else
        BCON_APPEND(&privilege, "resource", "{", "cluster", BCON_BOOL(true), "}");
    append_actions(actions, &privilege);
    bson_append_document_end(array, &privilege);
}

void grants_append_privileges(const struct grants *grants, const char *key, bson_t *document)
{
    uint32_t count = 0;
    bson_t array;

    BSON_APPEND_ARRAY_BEGIN(document, key, &array);
    for (int i = 0; i < grants->count; i++) {
        const struct role *role = &roles[grants->all[i].role];

        append_privilege(role->reach == REACH_OWN ? grants->all[i].database : "", role->actions,
                         &count, &array);
        if (role->server)
            append_privilege(NULL, role->server, &count, &array);
    }
    bson_append_array_end(document, &array);
}
