#ifndef TRUCE_SERVER_AUTH_ACCESS_H
#define TRUCE_SERVER_AUTH_ACCESS_H

/*
 * Access control. The table of commands (server/commands.c) says what each command needs, and
 * access_check verifies it before the command runs. A command without an entry is refused.
 *
 * Invariants:
 *  1. No command runs before access_check has allowed it, and none uses an unchecked collection.
 *     The first one is checked by the row of the table. Further ones (of pipelines, of
 *     renameCollection) are checked when their names are converted to places.
 *  2. The users' own records are read only with a role for that, and never without --auth. Only the
 *     commands for users write them.
 */
#include "base/status.h"
#include "server/auth/roles.h"

struct call;
struct command;

enum need_kind {
    /* The row does not name any access: the command is refused. */
    NEED_REFUSED,
    /* Allowed before the login. */
    NEED_NOTHING,
    NEED_LOGIN,
    /* The actions on the command's own collection. */
    NEED_COLLECTION,
    /* The actions on the database of the command. */
    NEED_DATABASE,
    NEED_SERVER,
    /* The actions on the server. Without --test-commands the command does not exist. */
    NEED_TESTS,
    /* The access that the inner command needs. */
    NEED_INNER,
};

struct need {
    enum need_kind kind;
    uint32_t actions; /* Bits of enum action. */
};

truce_status access_check(struct call *call, bson_error_t *error);

/* Returns whether the user may do all the actions in the database (NULL means on the server). */
bool access_may(const struct call *call, const char *database, uint32_t actions);
/* Does the same, and fails with Unauthorized (13). */
truce_status access_need(struct call *call, const char *database, uint32_t actions,
                         bson_error_t *error);
/* Does the same for a collection, which may contain the users' records. */
truce_status access_need_collection(struct call *call, const char *database, const char *collection,
                                    uint32_t actions, bson_error_t *error);
/* Returns the additional actions of the call: a write that bypasses the validator needs a role for
 * that. */
uint32_t access_more_actions(const struct call *call);
/* Returns whether the user may read the users' own records. Always false without --auth. */
bool access_reads_users(const struct call *call);
truce_status access_refuse(struct call *call, const char *database, bson_error_t *error);

#endif
