#ifndef TRUCE_SERVER_AUTH_ACCESS_H
#define TRUCE_SERVER_AUTH_ACCESS_H

/*
 * Access control. The table of commands (server/commands.c) says what each command needs, and
 * access_check verifies it before the command runs. A command without a row is refused.
 *
 * Invariants:
 *  1. No command runs before access_check has allowed it, and none uses an unchecked collection.
 *     The first one is checked by the row of the table. Further ones (of pipelines, of
 *     renameCollection) are checked when their names are converted to stored names.
 *  2. The users' own records are read only with a role for that, and never without --auth. Only the
 *     commands for users write them.
 */
#include "base/status.h"
#include "server/auth/roles.h"

struct call;
struct command;

enum need_kind {
    /* The row names no access. The command is refused. */
    NEED_REFUSED,
    /* The command is allowed before the login. */
    NEED_NOTHING,
    NEED_LOGIN,
    /* The command needs the actions on its own collection. */
    NEED_COLLECTION,
    /* The command needs the actions on its database. */
    NEED_DATABASE,
    NEED_SERVER,
    /* The command needs the actions on the server. Without --test-commands it does not exist. */
    NEED_TESTS,
    /* The command (explain) needs the access of the command in it. */
    NEED_INNER,
};

struct need {
    enum need_kind kind;
    uint32_t actions; /* Bits of enum action. */
};

truce_status access_check(struct call *call, bson_error_t *error);

/* Returns whether the user may do all the actions in the database (NULL means on the server). */
bool access_may(const struct call *call, const char *database, uint32_t actions);
/* Fails with Unauthorized (13) unless the user may do all the actions in the database. */
truce_status access_need(struct call *call, const char *database, uint32_t actions,
                         bson_error_t *error);
/* Does what access_need does for a collection. The collection of the users' records needs a role
 * for reading it. */
truce_status access_need_collection(struct call *call, const char *database, const char *collection,
                                    uint32_t actions, bson_error_t *error);
/* Returns the actions that the call needs besides those of its row: a write that bypasses the
 * validator needs ACTION_ADMIN. */
uint32_t access_more_actions(const struct call *call);
/* Returns whether the user may read the users' own records. Always false without --auth. */
bool access_reads_users(const struct call *call);
truce_status access_refuse(struct call *call, const char *database, bson_error_t *error);

#endif
