#ifndef TRUCE_SERVER_AUTH_LOGIN_H
#define TRUCE_SERVER_AUTH_LOGIN_H

/*
 * Who a connection is: the conversation by which it logs in, and the user that it then is.
 *
 *                 saslStart, hello {speculativeAuthenticate}
 *     nobody ------------------------------------------------> asked
 *       ^  ^                                                     | saslContinue, with the right proof
 *       |  +---- anything else: 18, delayed -----------------+   |    (and an empty one, for drivers of old)
 *       |                                                        v
 *       +---- logout; the user was removed, or made again ---- somebody
 *
 * Invariants:
 *  1. A connection is a user only after scram_final has taken the proof.
 *  2. What a failure is answered with is the same for a wrong password, a name that nobody has, and a mechanism that
 *     the user has no keys for; and so is the challenge before it (scram_nobody). Which mechanisms a user has hello
 *     tells anybody, as MongoDB's does.
 *  3. A failure is answered TRUCE_LOGIN_DELAY_MS late, by the connection's own thread, and at most
 *     TRUCE_LOGIN_DELAYED_MAX wait so at a time; a further one is not answered: its connection ends.
 *  4. What a user may do is read again when it is TRUCE_LOGIN_FRESH_MS old, and whenever this server has changed a
 *     user: who was removed, or lost a role, has lost it on all connections.
 *
 * There is no exception for who connects from this machine: the first user is made by `truce user add`.
 */
#include "server/auth/users.h"

struct call;
struct connection;

#define LOGIN_TAG_MAX (DATABASE_NAME_MAX + SCRAM_NAME_MAX + 2)

struct login {
    struct scram *scram; /* the conversation; NULL: there is none */
    struct user *asking; /* of the conversation; NULL: nobody's */
    bool brief;          /* the client wants no empty exchange at the end */
    bool proved;         /* the password was right; the empty exchange is left */
    struct user *user;   /* NULL: nobody has logged in */
    int64_t read_ns,
        changes; /* the user was read then, after so many changes of users; 0: is to be read */
    char tag[LOGIN_TAG_MAX]; /* "school.ada": of what belongs to the user; "": nobody */
};

/* saslStart, of a document that has its fields, for users of `database`. `early`: in hello, by a mechanism that the driver has
 * guessed; for a user of others there is no answer. */
truce_status login_start(struct call *call, const bson_t *document, const char *database,
                         bool early, bson_t *reply, bson_error_t *error);
truce_status login_continue(struct call *call, const uint8_t *payload, size_t size, bson_t *reply,
                            bson_error_t *error);
/* Logs the connection in by a name and a password: as a user of `database`, or else of the database admin. AuthenticationFailed (18),
 * as late as a login by SCRAM. */
truce_status login_by_password(struct connection *connection, const char *database,
                               const char *name, const char *password, bson_error_t *error);
void login_out(struct login *login);
/* Reads again what the user may do, if it is time. */
truce_status login_refresh(struct call *call, bson_error_t *error);
/* Gives all back. */
void login_release(struct login *login);

#endif
