#ifndef TRUCE_SERVER_AUTH_ROLES_H
#define TRUCE_SERVER_AUTH_ROLES_H

/* MongoDB's built-in roles, and the actions that each allows. A role is granted on a database.
 * Roles for all databases, and for the server, are granted on admin. */
#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/limits.h"
#include "base/status.h"
#include "store/namespace_map.h"

/* The actions that a command may need: MongoDB's actions, combined where no role separates them
 * (names in roles.c). */
enum action {
    ACTION_FIND = 1 << 0,
    ACTION_STATS = 1 << 1,
    /* Lists collections and indexes. */
    ACTION_LIST = 1 << 2,
    /* Changes documents. */
    ACTION_WRITE = 1 << 3,
    /* Creates, drops, and renames collections and indexes. */
    ACTION_SHAPE = 1 << 4,
    /* Sets validators, bypasses them, and drops whole databases. */
    ACTION_ADMIN = 1 << 5,
    ACTION_USERS = 1 << 6,
    /* This action and the following ones are on the server, not on a database. */
    ACTION_LIST_DATABASES = 1 << 7,
    /* Reads the server's counters, parameters, log, and options, and lists other users'
     * operations. */
    ACTION_SERVER = 1 << 8,
    /* Kills operations, cursors, and sessions of other users, changes settings, and stops the
     * server. */
    ACTION_KILL = 1 << 9,
    ACTION_KINDS = 10,
};

struct grant {
    int role; /* The number of the role (role_of). */
    char database[DATABASE_NAME_MAX + 1];
};

struct grants {
    struct grant all[TRUCE_USER_ROLES_MAX];
    int count;
};

/* Returns the number of the role, or -1 if the database has no such role. */
int role_of(const char *name, const char *database);
/* Returns the name of role number i, or NULL after the last role. */
const char *role_name(int i);

uint32_t grants_actions(const struct grants *grants, const char *database);
/* Returns whether the roles allow reading the users' own records, with their keys. */
bool grants_read_users(const struct grants *grants);

/* Reads [{role, db}, "role", ...]; a string is a role of `database`. Fails with RoleNotFound (31).
 * With `lenient`, unknown roles are ignored. */
truce_status grants_read(const bson_t *array, const char *database, bool lenient,
                         struct grants *grants, bson_error_t *error);
void grants_append(const struct grants *grants, const char *key, bson_t *document);
/* Appends [{resource: {...}, actions: [...]}, ...]. */
void grants_append_privileges(const struct grants *grants, const char *key, bson_t *document);

#endif
