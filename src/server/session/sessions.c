#include "server/session/sessions.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "maintenance/session_sweep.h"
#include "store/mongodb/mongo_session.h"
#include "store/overlay/transaction_overlay.h"

#define BUCKETS  1024
#define SWEEP_MS 60000 /* The interval between two sweeps of the records. */
/* The deadline of a step of the sweep if the store is on another server. No client waits for it. */
#define SWEEP_REMOTE_MS 1000

struct sessions {
    truce_store *store;
    struct cursor_registry *cursors;
    /* The maximum duration of a transaction. Guarded by the mutex. */
    int64_t lifetime_ms;
    bool snapshot;
    /* The bytes that all running transactions have written. */
    struct overlay_total written;
    /* Guards the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when a call has returned its session. */
    pthread_cond_t given;
    /* A hash table of the sessions by their ids. */
    struct session *buckets[BUCKETS];
    /* The number of sessions, and of sessions with a running transaction. */
    int count, running;
    /* The number of the last transaction that began, for session->owner. */
    int64_t ordinal;
    /* Used only by the thread that calls sessions_expire. */
    int64_t swept_ns;
    struct session_sweep sweep;
};

struct sessions *sessions_new(truce_store *store, struct cursor_registry *cursors,
                              const struct session_options *options)
{
    struct sessions *sessions = bson_malloc0(sizeof *sessions);

    sessions->store = store;
    sessions->cursors = cursors;
    sessions->lifetime_ms =
        options->lifetime_ms ? options->lifetime_ms : TRUCE_SERVER_TRANSACTION_MS;
    sessions->snapshot = options->snapshot;
    sessions->written.bytes_max = TRUCE_SERVER_TRANSACTIONS_BYTES;
    sessions->swept_ns = truce__clock_monotonic_ns();
    pthread_mutex_init(&sessions->mutex, NULL);
    pthread_cond_init(&sessions->given, NULL);
    return sessions;
}

void sessions_free(struct sessions *sessions)
{
    sessions_end_all(sessions);
    truce__session_sweep_end(&sessions->sweep);
    pthread_cond_destroy(&sessions->given);
    pthread_mutex_destroy(&sessions->mutex);
    bson_free(sessions);
}

truce_store *sessions_store(const struct sessions *sessions)
{
    return sessions->store;
}

int64_t sessions_lifetime_ms(struct sessions *sessions)
{
    int64_t ms;

    pthread_mutex_lock(&sessions->mutex);
    ms = sessions->lifetime_ms;
    pthread_mutex_unlock(&sessions->mutex);
    return ms;
}

void sessions_set_lifetime(struct sessions *sessions, int64_t ms)
{
    pthread_mutex_lock(&sessions->mutex);
    sessions->lifetime_ms = ms;
    pthread_mutex_unlock(&sessions->mutex);
}

int sessions_running(struct sessions *sessions)
{
    int running;

    pthread_mutex_lock(&sessions->mutex);
    running = sessions->running;
    pthread_mutex_unlock(&sessions->mutex);
    return running;
}

/* ---- the table ------------------------------------------------------------------------------- */

static struct session **sessions_bucket_of(struct sessions *sessions,
                                           const uint8_t id[SESSION_ID_BYTES])
{
    uint32_t hash = 2166136261u; /* The hash is FNV-1a. */

    for (int i = 0; i < SESSION_ID_BYTES; i++)
        hash = (hash ^ id[i]) * 16777619u;
    return &sessions->buckets[hash % BUCKETS];
}

static struct session *sessions_find(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES])
{
    struct session *at = *sessions_bucket_of(sessions, id);

    while (at && memcmp(at->id, id, SESSION_ID_BYTES) != 0)
        at = at->next;
    return at;
}

void sessions_each(struct sessions *sessions,
                   void (*take)(void *arg, const uint8_t id[SESSION_ID_BYTES], int64_t used_ns),
                   void *arg)
{
    pthread_mutex_lock(&sessions->mutex);
    for (int i = 0; i < BUCKETS; i++)
        for (struct session *at = sessions->buckets[i]; at; at = at->next)
            take(arg, at->id, at->used_ns);
    pthread_mutex_unlock(&sessions->mutex);
}

/* Removes the session from the table and frees it. The mutex must be held. */
static void sessions_forget(struct sessions *sessions, struct session *session)
{
    struct session **at = sessions_bucket_of(sessions, session->id);

    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    sessions->count--;
    session_wrote(session, NULL);
    bson_free(session->aborted_by);
    bson_free(session);
}

/* Returns whether no call uses the session and it has no running transaction. */
static bool sessions_is_idle(const struct session *session)
{
    return !session->busy && !session->waiting && session->state != SESSION_RUNNING;
}

/* Returns the session that has been idle for longest, and since before `before_ns`, or NULL. */
static struct session *oldest_idle(struct sessions *sessions, int64_t before_ns)
{
    struct session *oldest = NULL;

    for (int i = 0; i < BUCKETS; i++)
        for (struct session *at = sessions->buckets[i]; at; at = at->next)
            if (sessions_is_idle(at) && at->used_ns < before_ns &&
                (!oldest || at->used_ns < oldest->used_ns))
                oldest = at;
    return oldest;
}

/* Adds a session with the id. If the table is full, forgets the session that has been idle for
 * longest; returns NULL if none is idle. The mutex must be held. */
static struct session *sessions_add(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES],
                                    const char *user)
{
    struct session **bucket = sessions_bucket_of(sessions, id), *made;

    if (sessions->count == TRUCE_SERVER_SESSIONS_MAX) {
        struct session *oldest = oldest_idle(sessions, INT64_MAX);

        if (!oldest)
            return NULL;
        sessions_forget(sessions, oldest);
    }
    made = bson_malloc0(sizeof *made);
    memcpy(made->id, id, SESSION_ID_BYTES);
    truce__sha256(user, strlen(user), made->user);
    made->number = -1;
    made->next = *bucket;
    *bucket = made;
    sessions->count++;
    return made;
}

/* Waits until no call uses the session. The mutex must be held. */
static void sessions_wait_for(struct sessions *sessions, struct session *session)
{
    session->waiting++;
    while (session->busy)
        pthread_cond_wait(&sessions->given, &sessions->mutex);
    session->waiting--;
    session->busy = true;
}

/* ---- the stored state ----------------------------------------------------------------------- */

static void id_filter(const struct session *session, bson_t *filter)
{
    bson_init(filter);
    BSON_APPEND_BINARY(filter, "_id", BSON_SUBTYPE_UUID, session->id, SESSION_ID_BYTES);
}

static truce_status sessions_read_record(struct sessions *sessions, const struct session *session,
                                         bson_t *record, bool *found, bson_error_t *error)
{
    truce_status status;
    bson_t filter;

    id_filter(session, &filter);
    status = truce_find_one(sessions->store, truce__session_records(sessions->store), &filter, NULL,
                            record, error);
    bson_destroy(&filter);
    *found = !status;
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Returns the transaction number in the record, or -1. */
static int64_t sessions_number_of(const bson_t *record)
{
    bson_iter_t number;

    return bson_iter_init_find(&number, record, "txnNum") && BSON_ITER_HOLDS_INT(&number)
               ? bson_iter_as_int64(&number)
               : -1;
}

/* Returns whether a record with a state is that of a committed transaction. */
static bool sessions_is_committed(const bson_t *record)
{
    bson_iter_t state;

    return bson_iter_init_find(&state, record, "state") && BSON_ITER_HOLDS_UTF8(&state) &&
           !strcmp(bson_iter_utf8(&state, NULL), "committed");
}

static void sessions_remember(struct session *session, const bson_t *record)
{
    session_wrote(session, NULL);
    session->wrote =
        sessions_number_of(record) == session->number && session->state == SESSION_WRITES;
    session->record_known = record->len <= TRUCE_SERVER_RECORD_BYTES;
    if (session->record_known)
        session->record = bson_copy(record);
}

/* Loads a stored session, unless it is known: its last transaction, committed or aborted, or its
 * last retryable writes. */
static truce_status sessions_look_up(struct sessions *sessions, struct session *session,
                                     bson_error_t *error)
{
    truce_status status;
    bson_t record;
    bool found;

    if (session->known)
        return TRUCE_OK;
    status = sessions_read_record(sessions, session, &record, &found, error);
    if (found && sessions_number_of(&record) >= 0) {
        session->number = sessions_number_of(&record);
        session->state = sessions_is_committed(&record)     ? SESSION_COMMITTED
                         : bson_has_field(&record, "state") ? SESSION_ABORTED
                                                            : SESSION_WRITES;
        sessions_remember(session, &record);
    }
    session->known = !status;
    bson_destroy(&record);
    return status;
}

truce_status sessions_take(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES],
                           const char *user, struct session **session, bson_error_t *error)
{
    truce_status status;

    pthread_mutex_lock(&sessions->mutex);
    *session = sessions_find(sessions, id);
    if (!*session)
        *session = sessions_add(sessions, id, user);
    if (*session)
        sessions_wait_for(sessions, *session);
    pthread_mutex_unlock(&sessions->mutex);
    if (!*session)
        return truce__fail(TRUCE_LIMIT, error,
                           "%d sessions are in use, which is the maximum: end sessions that you no "
                           "longer need",
                           TRUCE_SERVER_SESSIONS_MAX);
    status = sessions_look_up(sessions, *session, error);
    if (status)
        sessions_return(sessions, *session);
    return status;
}

void sessions_return(struct sessions *sessions, struct session *session)
{
    pthread_mutex_lock(&sessions->mutex);
    session->used_ns = truce__clock_monotonic_ns();
    session->busy = false;
    pthread_cond_broadcast(&sessions->given);
    pthread_mutex_unlock(&sessions->mutex);
}

/* ---- transactions ---------------------------------------------------------------------------- */

static void sessions_leave(struct sessions *sessions, struct session *session, int state)
{
    if (session->transaction) {
        cursors_close_owned(sessions->cursors, session->owner);
        truce_store_close(session->transaction);
        session->transaction = NULL;
    }
    pthread_mutex_lock(&sessions->mutex);
    sessions->running -= session->state == SESSION_RUNNING;
    session->state = state;
    pthread_mutex_unlock(&sessions->mutex);
}

void session_abort(struct sessions *sessions, struct session *session)
{
    if (session->state == SESSION_RUNNING)
        sessions_leave(sessions, session, SESSION_ABORTED);
}

static void sessions_keep_cause(struct session *session, const char *why)
{
    bson_free(session->aborted_by);
    session->aborted_by = why ? bson_strdup(why) : NULL;
}

void session_abort_by(struct sessions *sessions, struct session *session, const char *why)
{
    if (session->state == SESSION_RUNNING)
        sessions_keep_cause(session, why);
    session_abort(sessions, session);
}

static truce_status too_old(const struct session *session, int64_t number, bson_error_t *error)
{
    return truce__refuse(CODE_TRANSACTION_TOO_OLD, error,
                         "transaction %lld of the session is older than its last, %lld",
                         (long long)number, (long long)session->number);
}

static truce_status sessions_no_such(const struct session *session, int64_t number,
                                     bson_error_t *error)
{
    if (number == session->number && session->aborted_by)
        return truce__refuse(CODE_NO_SUCH_TRANSACTION, error,
                             "transaction %lld of the session was aborted by: %.400s",
                             (long long)number, session->aborted_by);
    return truce__refuse(CODE_NO_SUCH_TRANSACTION, error,
                         "transaction %lld of the session is not active: it never began, was "
                         "aborted, or expired",
                         (long long)number);
}

/* Sets the session to a running transaction. Returns false if too many transactions are running. */
static bool sessions_enter(struct sessions *sessions, struct session *session, int64_t number)
{
    bool enters;

    pthread_mutex_lock(&sessions->mutex);
    enters = sessions->running < TRUCE_SERVER_TRANSACTIONS_MAX;
    if (enters) {
        sessions->running++;
        session->state = SESSION_RUNNING;
        session->number = number;
        session->wrote = false;
        session->owner = ++sessions->ordinal;
        session->since_ns = truce__clock_monotonic_ns();
    }
    pthread_mutex_unlock(&sessions->mutex);
    return enters;
}

/* Opens a transaction: an overlay, or for a mongodb: store, a transaction of its server. */
static truce_status sessions_open(struct sessions *sessions, truce_store **transaction,
                                  bson_error_t *error)
{
    const struct overlay_options options = {.snapshot = sessions->snapshot,
                                            .total = &sessions->written};

    return truce__mongo_is(sessions->store)
               ? truce__mongo_session_open(sessions->store, transaction, error)
               : truce__overlay_open(sessions->store, &options, transaction, error);
}

truce_status session_begin(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error)
{
    truce_status status;

    if (number < session->number)
        return too_old(session, number, error);
    if (number == session->number)
        return session->state == SESSION_COMMITTED
                   ? truce__refuse(CODE_TRANSACTION_COMMITTED, error,
                                   "transaction %lld of the session is committed",
                                   (long long)number)
                   : truce__refuse(CODE_CONFLICTING_OPERATION, error,
                                   "transaction %lld of the session has already begun",
                                   (long long)number);
    session_abort(sessions, session);
    sessions_keep_cause(session, NULL);
    if (!sessions_enter(sessions, session, number))
        return truce__fail(TRUCE_LIMIT, error,
                           "%d transactions are running, which is the maximum: try again later",
                           TRUCE_SERVER_TRANSACTIONS_MAX);
    status = sessions_open(sessions, &session->transaction, error);
    if (status)
        session_abort(sessions, session);
    return status;
}

truce_status session_continue(struct session *session, int64_t number, bson_error_t *error)
{
    if (number < session->number)
        return too_old(session, number, error);
    if (number == session->number && session->state == SESSION_COMMITTED)
        return truce__refuse(CODE_TRANSACTION_COMMITTED, error,
                             "transaction %lld of the session is committed", (long long)number);
    return number == session->number && session->state == SESSION_RUNNING
               ? TRUCE_OK
               : sessions_no_such(session, number, error);
}

/* ---- commit ---------------------------------------------------------------------------------- */

/* Commits the transaction together with its record, so that a repeated commit finds the outcome. */
static truce_status sessions_commit(struct sessions *sessions, struct session *session,
                                    const truce_bulk_options *options, bson_error_t *error)
{
    bson_t *record =
        BCON_NEW("txnNum", BCON_INT64(session->number), "state", BCON_UTF8("committed"),
                 "lastWriteDate", BCON_DATE_TIME(truce__clock_wall_ms()));
    truce_write write = {.kind = TRUCE_WRITE_UPDATE,
                         .collection = truce__session_records(sessions->store),
                         .document = record,
                         .options = {.upsert = true}};
    truce_status status;
    bson_t filter;

    id_filter(session, &filter);
    write.filter = &filter;
    status = truce__mongo_is(sessions->store)
                 ? truce__mongo_session_commit(session->transaction, &write, 1,
                                               options->deadline_ms, error)
                 : truce__overlay_commit(session->transaction, &write, 1, options, error);
    session_wrote(session, NULL);
    bson_destroy(&filter);
    bson_destroy(record);
    return status;
}

/* Writes the record of an aborted transaction, unless the record of this or a later number exists.
 * A commit that MongoDB has not executed yet writes the same record, so only one of the two takes
 * effect. */
static truce_status sessions_rule_out(struct sessions *sessions, const struct session *session,
                                      uint32_t deadline_ms, bson_error_t *error)
{
    const truce_write_options options = {.upsert = true, .deadline_ms = deadline_ms};
    bson_t *update =
        BCON_NEW("$set", "{", "txnNum", BCON_INT64(session->number), "state", BCON_UTF8("aborted"),
                 "lastWriteDate", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status;
    bson_t filter;

    id_filter(session, &filter);
    BCON_APPEND(&filter, "txnNum", "{", "$lt", BCON_INT64(session->number), "}");
    status = truce_update(sessions->store, truce__session_records(sessions->store), &filter, update,
                          &options, NULL, error);
    bson_destroy(&filter);
    bson_destroy(update);
    return status == TRUCE_DUPLICATE ? TRUCE_OK : status;
}

/* Finds out whether a commit with a lost reply took place. If its record is missing, it did not,
 * and cannot take place later. */
static truce_status sessions_find_out(struct sessions *sessions, struct session *session,
                                      uint32_t deadline_ms, bson_error_t *error)
{
    bson_error_t why;
    truce_status status;
    bson_t record;
    bool found;

    if (truce__mongo_is(sessions->store) && sessions_rule_out(sessions, session, deadline_ms, &why))
        return truce__fail(TRUCE_UNKNOWN, error,
                           "it is still unknown whether transaction %lld of the session was "
                           "committed: %.300s",
                           (long long)session->number, why.message);
    status = sessions_read_record(sessions, session, &record, &found, error);

    if (!status && found && sessions_number_of(&record) > session->number)
        status = truce__fail(TRUCE_UNKNOWN, error,
                             "it is unknown whether transaction %lld of the session was committed: "
                             "another server of this store has run a later one",
                             (long long)session->number);
    else if (!status)
        sessions_leave(sessions, session,
                       found && sessions_number_of(&record) == session->number &&
                               sessions_is_committed(&record)
                           ? SESSION_COMMITTED
                           : SESSION_ABORTED);
    bson_destroy(&record);
    return status;
}

/* Sets the session to a number that this server has not seen, if the store is mongodb:. The
 * transaction may be that of another server, or of this server before a restart, and its commit may
 * still be in progress. On any other store, an unknown number was not committed. */
static void sessions_adopt(struct sessions *sessions, struct session *session, int64_t number)
{
    if (!truce__mongo_is(sessions->store) || number <= session->number ||
        session->state == SESSION_RUNNING)
        return;
    sessions_keep_cause(session, NULL);
    session->number = number;
    session->state = SESSION_LOST;
}

truce_status session_commit(struct sessions *sessions, struct session *session, int64_t number,
                            bool relaxed, uint32_t deadline_ms, bson_error_t *error)
{
    const truce_bulk_options options = {.relaxed = relaxed, .deadline_ms = deadline_ms};
    truce_status status = TRUCE_OK;

    sessions_adopt(sessions, session, number);
    if (number == session->number && session->state == SESSION_LOST)
        status = sessions_find_out(sessions, session, deadline_ms, error);
    if (status)
        return status;
    if (number == session->number && session->state == SESSION_COMMITTED)
        return relaxed ? TRUCE_OK : truce_settle(sessions->store, error);
    status = session_continue(session, number, error);
    if (status)
        return status;
    status = sessions_commit(sessions, session, &options, error);
    if (status)
        sessions_keep_cause(session, error->message);
    sessions_leave(sessions, session,
                   !status                     ? SESSION_COMMITTED
                   : truce__unanswered(status) ? SESSION_LOST
                                               : SESSION_ABORTED);
    return status;
}

/* ---- retryable writes ------------------------------------------------------------------------ */

truce_status session_write(struct sessions *sessions, struct session *session, int64_t number,
                           bson_error_t *error)
{
    if (number < session->number)
        return too_old(session, number, error);
    if (number == session->number)
        return session->state == SESSION_WRITES
                   ? TRUCE_OK
                   : truce__refuse(CODE_INVALID_OPTIONS, error,
                                   "txnNumber %lld of the session is a transaction: each of its "
                                   "statements must have autocommit: false",
                                   (long long)number);
    session_abort(sessions, session);
    sessions_keep_cause(session, NULL);
    pthread_mutex_lock(&sessions->mutex);
    session->number = number;
    session->state = SESSION_WRITES;
    session->wrote = false;
    pthread_mutex_unlock(&sessions->mutex);
    return TRUCE_OK;
}

truce_status session_record(struct sessions *sessions, struct session *session, bson_t *read,
                            const bson_t **record, bson_error_t *error)
{
    truce_status status;
    bool found;

    *record = session->record;
    if (session->record_known)
        return TRUCE_OK;
    bson_destroy(read);
    status = sessions_read_record(sessions, session, read, &found, error);
    if (status)
        return status;
    if (found && (sessions_number_of(read) > session->number ||
                  (sessions_number_of(read) == session->number && bson_has_field(read, "state"))))
        return truce__refuse(CODE_TRANSACTION_TOO_OLD, error,
                             "another server of this store has run transaction %lld of the session",
                             (long long)sessions_number_of(read));
    if (session->wrote && !(found && sessions_number_of(read) == session->number))
        return truce__refuse(CODE_INCOMPLETE_HISTORY, error,
                             "the results of the statements with txnNumber %lld are no longer "
                             "stored",
                             (long long)session->number);
    if (found)
        sessions_remember(session, read);
    else
        session->record_known = true;
    *record = found ? read : NULL;
    return TRUCE_OK;
}

void session_wrote(struct session *session, const bson_t *record)
{
    if (session->record)
        bson_destroy(session->record);
    session->record = NULL;
    session->record_known = false;
    if (record)
        sessions_remember(session, record);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Ends a session. The mutex must be held. It is released in the meantime. */
static void server_sessions_end(struct sessions *sessions, struct session *session)
{
    sessions_wait_for(sessions, session);
    pthread_mutex_unlock(&sessions->mutex);
    session_abort(sessions, session);
    pthread_mutex_lock(&sessions->mutex);
    session->busy = false;
    pthread_cond_broadcast(&sessions->given);
    if (!session->waiting)
        sessions_forget(sessions, session);
}

void sessions_end(struct sessions *sessions, const uint8_t id[SESSION_ID_BYTES])
{
    struct session *session;

    pthread_mutex_lock(&sessions->mutex);
    session = sessions_find(sessions, id);
    if (session)
        server_sessions_end(sessions, session);
    pthread_mutex_unlock(&sessions->mutex);
}

/* Returns a session of the user, or NULL if the user has no session. */
static struct session *session_of_user(struct sessions *sessions, const uint8_t user[SHA256_BYTES])
{
    for (int i = 0; i < BUCKETS; i++)
        for (struct session *at = sessions->buckets[i]; at; at = at->next)
            if (!memcmp(at->user, user, SHA256_BYTES))
                return at;
    return NULL;
}

void sessions_end_user(struct sessions *sessions, const char *user)
{
    uint8_t digest[SHA256_BYTES];
    struct session *session;

    truce__sha256(user, strlen(user), digest);
    pthread_mutex_lock(&sessions->mutex);
    while ((session = session_of_user(sessions, digest)) != NULL)
        server_sessions_end(sessions, session);
    pthread_mutex_unlock(&sessions->mutex);
}

void sessions_end_all(struct sessions *sessions)
{
    pthread_mutex_lock(&sessions->mutex);
    for (int i = 0; i < BUCKETS; i++)
        while (sessions->buckets[i])
            server_sessions_end(sessions, sessions->buckets[i]);
    pthread_mutex_unlock(&sessions->mutex);
}

/* Returns a session whose transaction began before `before_ns` and that no call uses, or NULL. */
static struct session *find_late(struct sessions *sessions, int64_t before_ns)
{
    for (int i = 0; i < BUCKETS && sessions->running; i++)
        for (struct session *at = sessions->buckets[i]; at; at = at->next)
            if (!at->busy && at->state == SESSION_RUNNING && at->since_ns < before_ns)
                return at;
    return NULL;
}

/* Removes a bounded number of expired records. */
static void sweep_records(struct sessions *sessions, int64_t now_ns)
{
    int64_t cutoff_ms = truce__clock_wall_ms() - TRUCE_SERVER_SESSION_MS, removed, before;
    /* After a failure, the remaining records are removed by the next sweep. */
    bson_error_t ignored;

    if (!sessions->sweep.more && now_ns - sessions->swept_ns < (int64_t)SWEEP_MS * 1000000)
        return;
    sessions->swept_ns = now_ns;
    before = truce_deadline_begin(truce__mongo_is(sessions->store) ? SWEEP_REMOTE_MS : 0);
    if (truce__session_sweep(sessions->store, &sessions->sweep, TRUCE_SERVER_SWEEP_BATCH, cutoff_ms,
                             &removed, &ignored))
        truce__session_sweep_end(&sessions->sweep);
    truce_deadline_end(before);
}

void sessions_expire(struct sessions *sessions)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    struct session *session;

    pthread_mutex_lock(&sessions->mutex);
    while ((session = find_late(sessions, now_ns - sessions->lifetime_ms * 1000000)) != NULL) {
        session->busy = true;
        pthread_mutex_unlock(&sessions->mutex);
        session_abort(sessions, session);
        pthread_mutex_lock(&sessions->mutex);
        session->busy = false;
        pthread_cond_broadcast(&sessions->given);
    }
    while ((session = oldest_idle(sessions, now_ns - (int64_t)TRUCE_SERVER_SESSION_MS * 1000000)) !=
           NULL)
        sessions_forget(sessions, session);
    pthread_mutex_unlock(&sessions->mutex);
    sweep_records(sessions, now_ns);
}
