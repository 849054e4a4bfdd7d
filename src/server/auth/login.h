#ifndef TRUCE_SERVER_AUTH_LOGIN_H
#define TRUCE_SERVER_AUTH_LOGIN_H

/*
 * The login of a connection: the conversation, and the user that it results in.
 *
 *                 saslStart, hello {speculativeAuthenticate}
 *     none ------------------------------------------------> in conversation
 *       ^  ^                                                     | saslContinue with the right
 *       |  +---- anything else: error 18, delayed -----------+   | proof (and an empty one)
 *       |                                                        v
 *       +---- logout; the user was removed or created again -- logged in
 *
 * Invariants:
 *  1. A connection has a user only after scram_final has accepted the proof, or over HTTP, after
 *     the password (scram_matches) or the token (tokens_user) of a request was found to be valid.
 *  2. A login fails in the same way for a wrong password, an unknown name, and a mechanism
 *     without keys, and the challenge before it does not differ either (scram_unknown_user). As
 *     in MongoDB, hello reports the mechanisms of a user to any client.
 *  3. The reply to a failed login is delayed by TRUCE_LOGIN_DELAY_MS, in the thread of the
 *     connection. At most TRUCE_LOGIN_DELAYED_MAX replies are delayed at a time; the connection
 *     of a further one ends without a reply.
 *  4. The roles of a user are read again after TRUCE_LOGIN_FRESH_MS, and whenever this server has
 *     changed a user. So a removed user or a revoked role takes effect on all connections.
 *
 * Local connections have no exception: the first user is created by `truce user add`.
 */
#include "base/sha256.h"
#include "server/auth/users.h"

struct call;
struct connection;

#define LOGIN_TAG_MAX (DATABASE_NAME_MAX + SCRAM_NAME_MAX + 2)

struct login {
    /* The SCRAM conversation, or NULL if none exists. */
    struct scram *scram;
    /* The user that the conversation is for, or NULL if no such user exists or it has no keys for
     * the mechanism. */
    struct user *asking;
    /* The client requested to skip the empty exchange at the end (skipEmptyExchange). */
    bool brief;
    /* The proof was accepted. The client must still send the empty exchange. */
    bool proved;
    /* The user that is logged in; NULL if none exists. */
    struct user *user;
    /* The time when the user was read (monotonic), and the number of changes of users before that.
     * A number of 0 means that the user must be read. */
    int64_t read_ns, changes;
    /* The digest of the user's document at the login. */
    uint8_t document[SHA256_BYTES];
    /* "DATABASE.NAME", the owner of the user's sessions and cursors, or "" without a login. */
    char tag[LOGIN_TAG_MAX];
};

/* Starts a login from a document with the fields of saslStart, for users of `database`. `early`
 * means that the document is in hello, and that its mechanism is a guess of the driver. If the user
 * has only other mechanisms, an early start fails at once, and `reply` stays empty. */
truce_status login_start(struct call *call, const bson_t *document, const char *database,
                         bool early, bson_t *reply, bson_error_t *error);
truce_status login_continue(struct call *call, const uint8_t *payload, size_t size, bson_t *reply,
                            bson_error_t *error);
/* Logs the connection in by a name and a password: as a user of `database`, or else of the database
 * admin. Fails with AuthenticationFailed (18), after the same delay as a login by SCRAM. */
truce_status login_by_password(struct connection *connection, const char *database,
                               const char *name, const char *password, bson_error_t *error);
/* Logs the connection in as the user of a token (tokens.h). Sets *expires_ms to the end of the
 * token. Fails with AuthenticationFailed (18), after the same delay as a login by SCRAM. */
truce_status login_by_token(struct connection *connection, const char *token, int64_t *expires_ms,
                            bson_error_t *error);
/* Returns the digest of a user's document, which shows whether the document has changed. */
void login_digest(const bson_t *document, uint8_t digest[SHA256_BYTES]);
void login_out(struct login *login);
/* Reads the roles of the user again if they may have changed. Logs the user out if it was removed,
 * or removed and created again. */
truce_status login_refresh(struct call *call, bson_error_t *error);
/* Frees everything. */
void login_release(struct login *login);

#endif
