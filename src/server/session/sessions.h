#ifndef TRUCE_SERVER_SESSION_SESSIONS_H
#define TRUCE_SERVER_SESSION_SESSIONS_H

/*
 * Sessions of clients, and the transaction that each of them may have.
 *
 *           begin                         commit
 *     none -------> running -------------------------------> committed
 *      ^               |                                        |
 *      |               | a statement or the commit fails,       | commit again: the same answer
 *      |               | abort, too old, the session ends       |
 *      |               v                                        |
 *      +---------- aborted <---- begin, with a larger number ---+
 *
 * A commit that was not answered (the disk was full, or failed) leaves it lost, until it is asked for again: it is committed if
 * its record is there, and aborted else.
 *
 * The numbers of a session's transactions rise. Where a commit is acknowledged, the number stands in the collection
 * config.transactions, written by the same commit: so a client that asks again after a crash of the server has the
 * same answer, and never runs a transaction twice. A number may be of writes without a transaction, too (retryable_writes.h).
 *
 * Invariants:
 *  1. A session is used by one call at a time; the next waits for its turn.
 *  2. A transaction that is not running any more holds nothing: no snapshot, no documents, no cursors.
 *  3. At most TRUCE_SERVER_TRANSACTIONS_MAX transactions are running, each for at most as long as the options say. One
 *     whose time is over ends when no call is in it.
 *  4. A transaction was acknowledged as committed only if its commit was; and one that was acknowledged is never said
 *     to be gone, as long as the session is remembered (TRUCE_SERVER_SESSION_MS since then).
 */
#include "server/session/cursor_registry.h"
#include "store/reserved.h"

#define SESSION_ID_BYTES 16

struct session {
    struct session *next; /* of the same bucket */
    uint8_t id[SESSION_ID_BYTES];
    int64_t number; /* of its last transaction; -1: none yet */
    enum {
        SESSION_NONE,
        SESSION_RUNNING,
        SESSION_COMMITTED,
        SESSION_ABORTED,
        SESSION_LOST,
        SESSION_WRITES, /* the number is of writes that are kept (retryable_writes.h) */
    } state;
    truce_store *transaction;  /* while it is running (store/overlay) */
    int64_t owner;             /* of its cursors; no two transactions have the same */
    int64_t since_ns, used_ns; /* it runs since, was used last */
    bool known;                /* it was looked up in the store */
    bool wrote;                /* its record is of this number, and of writes */
    bool record_known;         /* what stands in the store is: */
    bson_t *record;            /* NULL: nothing; at most TRUCE_SERVER_RECORD_BYTES */
    /* under the mutex of all */
    bool busy, gone;
    int waiting;
};

struct session_options {
    int64_t lifetime_ms; /* of a transaction; 0: TRUCE_SERVER_TRANSACTION_MS */
    bool snapshot;       /* isolation: what was read is not checked */
};

struct sessions;

struct sessions *sessions_new(truce_store *store, struct cursor_registry *cursors,
                              const struct session_options *options);
void sessions_free(struct sessions *sessions); /* no call runs any more */

/* The session of that id, made if it is not known, for the one who calls, until it is given back. LIMIT: there are too
 * many. */
truce_status sessions_take(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES],
                           struct session **session, bson_error_t *error);
void sessions_give(struct sessions *sessions, struct session *session);

/* Ends it, its transaction too; waits for who uses it. */
void sessions_end(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES]);
void sessions_end_all(struct sessions *sessions);
/* Ends transactions and sessions that are too old, of those that nobody uses. */
void sessions_expire(struct sessions *sessions);
int sessions_running(struct sessions *sessions);
/* All that are known, under their lock. */
void sessions_each(struct sessions *sessions,
                   void (*take)(void *arg, const uint8_t id[SESSION_ID_BYTES], int64_t used_ns),
                   void *arg);
truce_store *sessions_store(const struct sessions *sessions);
int64_t sessions_lifetime_ms(struct sessions *sessions);
void sessions_set_lifetime(struct sessions *sessions, int64_t ms); /* also of those that run */

/* ---- of a session that was taken ------------------------------------------------------------ */

/* 225: a newer one has begun; 117, 256: this one has. */
truce_status session_begin(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error);
/* 225, 251, 256: it does not run. */
truce_status session_go_on(struct session *session, int64_t number, bson_error_t *error);
void session_abort(struct sessions *sessions, struct session *session);
/* `relaxed`: need not be on the disk. 112: a conflict, nothing was done. IO, UNKNOWN: it may be done. */
truce_status session_commit(struct sessions *sessions, struct session *session, int64_t number,
                            bool relaxed, uint32_t deadline_ms, bson_error_t *error);

/* ---- writes that are kept (retryable_writes.h) ---------------------------------------------------------- */

/* The number is of such writes from now on. 225: a newer one has begun; 72: it is a transaction's. */
truce_status session_write(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error);
/* The record as it stands: the session's own, or `read`, which is initialised; NULL: there is none. 217: there was one
 * for this number, and it is gone. */
truce_status session_record(struct sessions *sessions, struct session *session, bson_t *read,
                            const bson_t **record, bson_error_t *error);
/* What stands now; NULL: nobody knows. */
void session_wrote(struct session *session, const bson_t *record);

#endif
