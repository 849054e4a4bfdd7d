#ifndef TRUCE_SERVER_AUTH_ROLES_H
#define TRUCE_SERVER_AUTH_ROLES_H

/*
 * Roles, as MongoDB has them built in, and what they allow. A role is granted on a database;
 * those of all databases, and of the server, are granted on admin.
 */
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
    ACTION_LIST = 1 << 2,  /* collections and indexes */
    ACTION_WRITE = 1 << 3, /* documents */
    ACTION_SHAPE = 1 << 4, /* make, drop and rename collections and indexes */
    ACTION_ADMIN = 1 << 5, /* validators and what passes by them, whole databases */
    ACTION_USERS = 1 << 6,
    /* of the server, and not of a database: */
    ACTION_LIST_DATABASES = 1 << 7,
    ACTION_SERVER = 1 << 8, /* its counters and settings */
    ACTION_KILL = 1 << 9,   /* what others have begun */
    ACTION_KINDS = 10,
};

struct grant {
    int role; /* as role_of has it */
    char database[DATABASE_NAME_MAX + 1];
};

struct grants {
    struct grant all[TRUCE_USER_ROLES_MAX];
    int count;
};

/* -1: there is no such role (on that database). */
int role_of(const char *name, const char *database);
/* The i-th; NULL: there are no more. */
const char *role_name(int i);

uint32_t grants_actions(const struct grants *grants, const char *database);
/* May it read the users' own records, with what their logins are checked by? */
bool grants_read_users(const struct grants *grants);

/* From [{role, db}, "role", ...]; a text is of `database`. RoleNotFound (31); `lenient`: what is
 * not known is passed over. */
truce_status grants_read(const bson_t *array, const char *database, bool lenient,
                         struct grants *grants, bson_error_t *error);
void grants_append(const struct grants *grants, const char *key, bson_t *document);
/* [{resource: {...}, actions: [...]}, ...] */
void grants_append_privileges(const struct grants *grants, const char *key, bson_t *document);

#endif
