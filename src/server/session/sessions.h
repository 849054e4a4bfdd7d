#ifndef TRUCE_SERVER_SESSION_SESSIONS_H
#define TRUCE_SERVER_SESSION_SESSIONS_H

/*
 * Sessions of clients, and the transaction that each may have.
 *
 *           begin                         commit
 *     none -------> running -------------------------------> committed
 *      ^               |                                        |
 *      |               | a statement or the commit fails,       | commit again: the same reply
 *      |               | abort, expiry, the session ends        |
 *      |               v                                        |
 *      +---------- aborted <---- begin, with a larger number ---+
 *
 * If the outcome of a commit is unknown (the disk was full, or failed), the state is `lost` until
 * the client commits again: the transaction is committed if its record exists, and aborted
 * otherwise.
 *
 * On a store mongodb:, a transaction is one of the MongoDB server (store/mongodb/mongo_session.h).
 * A commit whose message was lost may still take effect there. The next attempt to commit therefore
 * writes the record of an aborted transaction: the server lets only one of the two take effect.
 *
 * The numbers of a session's transactions grow. An acknowledged commit has written its number into
 * the collection config.transactions. So a client that commits again after a crash of the server
 * gets the same reply, and no transaction runs twice. A number may also belong to retryable writes
 * (retryable_writes.h).
 *
 * Invariants:
 *  1. A session is used by one call at a time; other calls wait.
 *  2. A transaction that is not running has no snapshot, no documents, and no cursors.
 *  3. At most TRUCE_SERVER_TRANSACTIONS_MAX transactions are running, each for at most the time in
 *     the options. sessions_expire ends an expired one that no call uses.
 *  4. Only a transaction whose commit succeeded is reported as committed. It is never reported as
 *     aborted or unknown later, as long as the session is remembered (TRUCE_SERVER_SESSION_MS).
 */
#include "base/sha256.h"
#include "server/session/cursor_registry.h"
#include "store/reserved_names.h"

#define SESSION_ID_BYTES 16

struct session {
    /* The next session of the same bucket. */
    struct session *next;
    uint8_t id[SESSION_ID_BYTES];
    /* The digest of the user's name. */
    uint8_t user[SHA256_BYTES];
    /* The number of the last transaction or retryable write, or -1. */
    int64_t number;
    enum {
        SESSION_NONE,
        SESSION_RUNNING,
        SESSION_COMMITTED,
        SESSION_ABORTED,
        SESSION_LOST,
        /* The number belongs to retryable writes. */
        SESSION_WRITES,
    } state;
    /* The error that aborted the transaction `number`, or NULL. */
    char *aborted_by;
    /* The running transaction (store/overlay, or store/mongodb/mongo_session.h). */
    truce_store *transaction;
    /* The owner of the transaction's cursors. No two transactions have the same number. */
    int64_t owner;
    /* When the transaction began, and when the session was last used (monotonic). */
    int64_t since_ns, used_ns;
    /* The session was looked up in the store. */
    bool known;
    /* The session's record belongs to `number`, and to retryable writes. */
    bool wrote;
    /* `record` is what the store contains (NULL means no record). */
    bool record_known;
    /* The cached record, of at most TRUCE_SERVER_RECORD_BYTES. */
    bson_t *record;
    /* `busy`: a call uses the session. `waiting`: the number of calls that wait for it. Guarded by
     * the mutex of the registry. */
    bool busy;
    int waiting;
};

struct session_options {
    /* The maximum duration of a transaction. 0 means TRUCE_SERVER_TRANSACTION_MS. */
    int64_t lifetime_ms;
    /* Snapshot isolation: a commit does not check what the transaction has read. */
    bool snapshot;
};

struct sessions;

struct sessions *sessions_new(truce_store *store, struct cursor_registry *cursors,
                              const struct session_options *options);
/* Ends all sessions and frees the registry. No call may be running. */
void sessions_free(struct sessions *sessions);

/* Waits for the session of that id and takes it for the caller until sessions_return. Creates an
 * unknown session; it belongs to `user`, such as "school.ada", or "" without a login. Fails with
 * LIMIT if there are too many sessions, or if the stored session cannot be read. */
truce_status sessions_take(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES],
                           const char *user, struct session **session, bson_error_t *error);
void sessions_return(struct sessions *sessions, struct session *session);

/* Ends the session and its transaction, after the call that uses it. */
void sessions_end(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES]);
void sessions_end_all(struct sessions *sessions);
/* Ends the sessions of a user. */
void sessions_end_user(struct sessions *sessions, const char *user);
/* Ends transactions and sessions that are too old and not in use. */
void sessions_expire(struct sessions *sessions);
int sessions_running(struct sessions *sessions);
/* Calls the function for each known session, under the lock. */
void sessions_each(struct sessions *sessions,
                   void (*take)(void *arg, const uint8_t id[SESSION_ID_BYTES], int64_t used_ns),
                   void *arg);
truce_store *sessions_store(const struct sessions *sessions);
int64_t sessions_lifetime_ms(struct sessions *sessions);
/* Sets the maximum duration, also of running transactions. */
void sessions_set_lifetime(struct sessions *sessions, int64_t ms);

/* ---- for a session that was taken ------------------------------------------------------------ */

/* Begins a transaction. Fails with 225 if a newer one has begun, with 117 or 256 if this one has,
 * and with LIMIT if too many are running. */
truce_status session_begin(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error);
/* Checks that the transaction is running. Fails with 225, 251, or 256 if it is not. */
truce_status session_continue(struct session *session, int64_t number, bson_error_t *error);
void session_abort(struct sessions *sessions, struct session *session);
/* Aborts because of this error, which later errors 251 of the transaction contain. */
void session_abort_by(struct sessions *sessions, struct session *session, const char *why);
/* Commits. With `relaxed`, does not wait for the disk. Fails with 112 after a conflict, which undid
 * everything. After IO and UNKNOWN, the outcome is unknown. */
truce_status session_commit(struct sessions *sessions, struct session *session, int64_t number,
                            bool relaxed, uint32_t deadline_ms, bson_error_t *error);

/* ---- retryable writes (retryable_writes.h) --------------------------------------------------- */

/* Gives the number to retryable writes. Fails with 225 if a newer one has begun, and with 72 if
 * it is a transaction's. */
truce_status session_write(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error);
/* Sets `*record` to the stored record: the session's cached one, or `read`, which the caller has
 * initialized and destroys. It is NULL if there is no record. Fails with 217 if the record of this
 * number existed and is gone, and with 225 if another server has run a transaction of this or a
 * larger number. */
truce_status session_record(struct sessions *sessions, struct session *session, bson_t *read,
                            const bson_t **record, bson_error_t *error);
/* Remembers the record that is now stored; NULL means that it is unknown. */
void session_wrote(struct session *session, const bson_t *record);

#endif
