#ifndef TRUCE_STORE_MONGODB_MONGO_H
#define TRUCE_STORE_MONGODB_MONGO_H

/* The internals of the mongodb:// store; mongo.c has the overview. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "store/mongodb/mongoc_load.h"
#include "store/reserved_names.h"
#include "store/store.h"

/* The collection that probes of a server name. Probes never write to it, but some servers create
 * it. */

/* The maximum of documents in a batch. The server ends a batch at 16 MB. */
#define MONGO_BATCH 1000

enum mongo_deployment { MONGO_STANDALONE, MONGO_REPLICA_SET, MONGO_SHARDED };

/* The server's first answer. */
struct mongo_server {
    enum mongo_deployment deployment;
    /* maxWireVersion: 8 is MongoDB 4.2, 9 is 4.4, 13 is 5.0, 21 is 7.0 */
    int32_t wire;
    bool sessions;
    /* A `truce serve`. */
    bool truce;
    /* The replica set; empty: none. */
    char name[128];
};

/* An open transaction, with the connection that it occupies. */
struct mongo_transaction {
    struct mongo_store *store;
    mongoc_client_t *client;
    mongoc_client_session_t *session;
    int64_t until_ns;
    /* The first failure of a transaction of several calls, which has ended it: later statements
     * return it, too. */
    truce_status failed;
    bson_error_t failure;
};

struct mongo_store {
    /* Must be the first field. */
    truce_store base;
    mongoc_client_pool_t *pool;
    char *database;
    /* NULL means no change streams. */
    struct mongo_listener *listener;
    /* NULL if it is not sharded. */
    struct mongo_shards *shards;
    struct mongo_server server;
    uint32_t deadline_ms;
    /* How long libmongoc waits for a server at a time. */
    uint32_t select_ms;
    /* The store uses only the server that the URI names (directConnection). */
    bool direct;
    int32_t connections_max;
    atomic_uint_fast64_t round_trips;
    struct {
        pthread_mutex_t mutex;
        /* Clients whose streams end with the call (mongo_command.c). */
        const mongoc_client_t **clients;
        uint32_t count;
    } limited;
    struct mongoc_audience audience;
    /* The transaction that the store is (mongo_session.c); NULL if it is not a transaction. */
    struct mongo_transaction *transaction;
    /* The connections that sessions and change streams occupy. */
    atomic_int occupied;
    /* When a message of the kind of truce__mongo_farewell_ms last had no answer in time. */
    _Atomic int64_t stalled_ns;
    /* The last message had no answer in time. */
    atomic_bool silent;
    bool read_only, relaxed;
    /* Reads of one document by _id may ask for it. */
    bool linearizable;
    /* The changes of this handle and those of other clients that it has noticed. */
    _Atomic uint64_t changes;
    struct mongo_structure *structure;
    struct {
        /* The cluster time of the reads of a view; 0 if it is not a view. */
        uint32_t seconds, ordinal;
    } at;
};

/* ---- mongo_structure.c ---- */

struct mongo_structure *truce__mongo_structure_new(void);
void truce__mongo_structure_free(struct mongo_structure *structure);
/* Compares the UUID of a collection, whose indexes are ensured, from the next operation on. */
void truce__mongo_structure_watch(struct mongo_structure *structure, const char *collection);
/* Returns the structure number, and may request the list of collections first (`structure` of
 * truce_store_ops). */
uint64_t truce__mongo_structure_number(truce_store *base);

/* ---- mongo_error.c ---- */

/* The meaning of a missing answer. */
enum mongo_kind {
    /* TRUCE_IO */
    MONGO_READ,
    /* TRUCE_UNKNOWN, if it was sent. */
    MONGO_WRITE,
    /* A statement of a transaction: TRUCE_CONFLICT, and nothing of it will ever take effect. */
    MONGO_STATEMENT,
};

/* Returns the status and message of a failed call. `what` is "find in things"; `reply` is the
 * server's answer, or empty; `caught` is libmongoc's error. */
truce_status truce__mongo_failed(enum mongo_kind kind, const char *what, const bson_t *reply,
                                 const bson_error_t *caught, bson_error_t *error);
/* Does what truce__mongo_failed does, for an error within an answer: {code, errmsg}. */
truce_status truce__mongo_refused(enum mongo_kind kind, const char *what, uint32_t code,
                                  const char *message, bson_error_t *error);
/* Returns the status of a write that matched nothing: OK, or UNKNOWN after a message without an
 * answer, which may still take effect. */
truce_status truce__mongo_found_none(enum mongo_kind kind, const char *what, bson_error_t *error);
/* Returns whether the error leaves the outcome of a write open. */
bool truce__mongo_is_open(const bson_error_t *caught);
/* Returns whether the error proves that a commit, sent once, changed nothing. */
bool truce__mongo_is_certain(const bson_error_t *caught);
bool truce__mongo_has_label(const bson_t *reply, const char *label);

/* ---- mongo_pool.c ---- */

/* Makes the pool of connections, in place of the former one. */
truce_status truce__mongo_pool_open(struct mongo_store *store, const mongoc_uri_t *uri,
                                    bson_error_t *error);
void truce__mongo_pool_close(struct mongo_store *store);

/* Borrows a connection of the pool; a transaction has its own. Fails with TIMEOUT if all are in use
 * until the deadline. */
truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error);
void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client);

/* Counts a connection that is occupied for longer than a call. Fails with LIMIT if there are so
 * many that other calls could find none. */
truce_status truce__mongo_occupy(struct mongo_store *store, bson_error_t *error);
void truce__mongo_leave(struct mongo_store *store);
/* Returns the time for a message that only releases something at the server: an abort, or the end
 * of a cursor. Returns 0 if such a message recently had no reply, so that this one is not worth a
 * wait. */
uint32_t truce__mongo_farewell_ms(const struct mongo_store *store);
/* Notes how long such a message took. */
void truce__mongo_farewell_end(struct mongo_store *store, int64_t begun_ns);

/* ---- mongo_command.c ---- */

struct mongo_command {
    const char *what;     /* For the message: "count in things". */
    const bson_t *body;   /* The command. Its first field is the name. */
    const char *database; /* NULL means the store's. */
    enum mongo_kind kind;
    bool read_concern;                /* Ask for read concern majority, */
    bool linearizable;                /* or linearizable, */
    bool snapshot;                    /* or snapshot. A view uses its own time. */
    bool write_concern;               /* Wait until it is durable, */
    bool relaxed;                     /* but not for the disk. */
    bool once;                        /* Send it once: libmongoc does not repeat it. */
    bool outside;                     /* Not a statement of the store's transaction. */
    mongoc_client_session_t *session; /* May be NULL. */
    uint32_t server_id;               /* 0 means any suitable one. */
    uint32_t wait_ms;                 /* The time limit, or 0 if it has none of its own. */
};

/* Runs the command. `reply` is always initialized; the caller destroys it. */
truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error);
/* Does what truce__mongo_run does, on a borrowed connection. */
truce_status truce__mongo_run_alone(struct mongo_store *store, const struct mongo_command *command,
                                    bson_t *reply, bson_error_t *error);

/* Notes the failure of a statement, if it is the first of the store's transaction. */
void truce__mongo_statement_failed(struct mongo_store *store, truce_status status,
                                   const bson_error_t *error);
/* Makes {w: "majority", j: true}, or the same without j; the caller destroys it. */
mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed);

/* Writes "find in things" into `text`. */
const char *truce__mongo_what(char *text, size_t size, const char *verb, const char *collection);

/* Returns an integer of any type in the reply, or `otherwise`. */
int64_t truce__mongo_number(const bson_t *reply, const char *path, int64_t otherwise);

/* Fails with TRUCE_INVALID if the store was opened read-only. */
truce_status truce__mongo_writable(const struct mongo_store *store, bson_error_t *error);

/* Appends {hint: ...}: the name for {"": "name"}, else the pattern. NULL is omitted. */
void truce__mongo_append_hint(bson_t *command, const bson_t *hint);

/* ---- mongo_read.c ---- */

truce_status truce__mongo_find(truce_store *base, const char *collection, const bson_t *filter,
                               const truce_find_options *options, truce_cursor **cursor,
                               bson_error_t *error);
truce_status truce__mongo_count(truce_store *base, const char *collection, const bson_t *filter,
                                const truce_count_options *options, int64_t *count,
                                bson_error_t *error);
truce_status truce__mongo_distinct(truce_store *base, const char *collection, const char *path,
                                   const bson_t *filter, bson_t *values, bson_error_t *error);
truce_status truce__mongo_aggregate(truce_store *base, const char *collection,
                                    const bson_t *pipeline, const truce_aggregate_options *options,
                                    truce_cursor **cursor, bson_error_t *error);
truce_status truce__mongo_explain(truce_store *base, const char *collection, const bson_t *filter,
                                  const truce_find_options *options, bool count, bson_t *plan,
                                  bson_error_t *error);

/* Returns whether the filter asks for one _id by value. `*id`, if not NULL, is a view of it. */
bool truce__mongo_names_id(const bson_t *filter, bson_value_t *id);

truce_status truce__mongo_snapshot(truce_store *base, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error);

/* Runs a command that returns a cursor. */
truce_status truce__mongo_cursor(struct mongo_store *store, const struct mongo_command *command,
                                 truce_cursor **cursor, bson_error_t *error);
/* Sends one getMore: at most `batch` documents, or MONGO_BATCH (-1). The server waits for them for
 * `wait_ms` (0 means until some exist, or the end). */
truce_status truce__mongo_cursor_more(truce_cursor *cursor, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error);
/* Returns the next document of the current batch, unchecked. Returns NULL if the batch has no more
 * documents. */
truce_status truce__mongo_cursor_taken(truce_cursor *cursor, const bson_t **document,
                                       bson_error_t *error);
/* Returns the server's answer with the current batch. */
const bson_t *truce__mongo_cursor_reply(const truce_cursor *cursor);
/* Returns whether the server has more batches. */
bool truce__mongo_cursor_is_open(const truce_cursor *cursor);

/* ---- mongo_write.c ---- */

truce_status truce__mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error);

/* One write, or several of one kind in one collection, for one message. */
struct mongo_batch {
    const truce_write *writes;
    size_t count;
    truce_write_outcome *outcomes;
    bool unordered, relaxed;
    /* 0 means the store's deadline. */
    uint32_t wait_ms;
    /* The session of a transaction, or NULL. */
    mongoc_client_session_t *session;
    /* Out, for several updates or removes: each changed a document. The server does not report
     * which did not. */
    bool *all;
};

/* Sends the writes and fills the outcomes. Returns the first failure; TRUCE_UNKNOWN and TRUCE_IO
 * mean that there was no answer. */
truce_status truce__mongo_send(struct mongo_store *store, mongoc_client_t *client,
                               const struct mongo_batch *batch, bson_error_t *error);

/* Returns how many of the writes (at least one) fit in one message of inserts into one
 * collection. */
size_t truce__mongo_batch_size(const truce_write *writes, size_t count);

truce_status truce__mongo_find_and_modify(truce_store *base, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          truce_write_result *result, bson_error_t *error);

/* Returns how many of the first writes can be one message, or 0 if none can. */
size_t truce__mongo_together(const truce_write *writes, size_t count);
/* Sends such a message. Sets `*all` to false if some write changed no document. */
truce_status truce__mongo_send_together(struct mongo_store *store, mongoc_client_t *client,
                                        const struct mongo_batch *batch, bool *all,
                                        bson_error_t *error);

/* ---- mongo_transaction.c ---- */

/* Begins a transaction. On success, the caller releases it. If `deadline_ms` is 0, the deadline is
 * the store's. */
truce_status truce__mongo_transaction_begin(struct mongo_store *store, uint32_t deadline_ms,
                                            bool relaxed, struct mongo_transaction *transaction,
                                            bson_error_t *error);
/* Reads whether the writes of an atomic bulk will succeed: whether their filters match, and whether
 * the documents to insert exist. Nothing is written, so the transaction may continue after such a
 * failure. A write that depends on an earlier one of the bulk is not checked. */
truce_status truce__mongo_transaction_predict(struct mongo_transaction *transaction,
                                              const truce_write *writes, size_t count,
                                              truce_write_outcome *outcomes, bson_error_t *error);
/* Runs the writes of an atomic bulk as statements. After a failure, the transaction must not be
 * committed. */
truce_status truce__mongo_transaction_write(struct mongo_transaction *transaction,
                                            const truce_write *writes, size_t count,
                                            truce_write_outcome *outcomes, bson_error_t *error);
/* Commits. After CONFLICT, nothing was changed. After UNKNOWN, the outcome is unknown. */
truce_status truce__mongo_transaction_commit(struct mongo_transaction *transaction,
                                             bson_error_t *error);
/* Ends the transaction, which is aborted unless it was committed. After its deadline, no abort is
 * awaited: the server ends the transaction by itself. */
void truce__mongo_transaction_release(struct mongo_transaction *transaction);

/* The field of a guard without a change: it is set and removed again. */
#define MONGO_TOUCH "_truce_touch"

/* Reports a validator that refuses MONGO_TOUCH as such. Other statuses stay. */
truce_status truce__mongo_guard_refused(truce_status status, const char *collection,
                                        bson_error_t *error);

truce_status truce__mongo_atomic(struct mongo_store *store, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error);
truce_status truce__mongo_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                    bson_error_t *error);
/* Checks that the server really implements transactions. OK, or INVALID with its answer. */
truce_status truce__mongo_probe_transaction(struct mongo_store *store, bson_error_t *error);

/* ---- mongo.c ---- */

truce_status truce__mongo_index_create(truce_store *base, const char *collection,
                                       const bson_t *index, bson_error_t *error);
truce_status truce__mongo_validator(truce_store *base, const char *collection, bson_t *validator,
                                    bson_error_t *error);
truce_status truce__mongo_index_list(truce_store *base, const char *collection, bson_t *indexes,
                                     bson_error_t *error);
truce_status truce__mongo_collection_create(truce_store *base, const char *collection,
                                            bson_error_t *error);
truce_status truce__mongo_collection_list(truce_store *base, const truce_list_options *options,
                                          bson_t *collections, bson_error_t *error);

/* Fails with CORRUPT, because the server sent an invalid document. The message has the reason and
 * the _id, if possible. */
truce_status truce__mongo_unsound(const char *what, const bson_t *document, bson_error_t *error);

/* ---- mongo_time_limit.c ---- */

/* Limits the messages that this thread sends after this call: each ends within wait_ms (0 means
 * only the URI's limits) and within the deadline of the surrounding work. */
void truce__mongo_limit(uint32_t wait_ms);
/* Returns how long the server may wait for locks or for the majority. */
uint32_t truce__mongo_wait_ms(const struct mongo_store *store);
/* Waits until a server that accepts writes is known, or until the end of the call. `why` (may be
 * NULL) gets the reason of a failure. */
bool truce__mongo_await_server(struct mongo_store *store, mongoc_client_t *client,
                               bson_error_t *why);
/* Returns whether a server is known or libmongoc has the time to wait for one. If the call is about
 * to end, waits for a server as truce__mongo_await_server does. `why` may be NULL. */
bool truce__mongo_has_server(struct mongo_store *store, mongoc_client_t *client, bson_error_t *why);
/* Notes whether the last message of this thread had an answer. */
void truce__mongo_limit_answered(bool answered);
/* Ends the time of this thread's messages: each later message is sent, and its answer is not
 * awaited. */
void truce__mongo_limit_to_now(void);
/* Returns whether the time of the server has expired. */
bool truce__mongo_limit_is_over(void);
void truce__mongo_limit_forget(struct mongo_store *store);
/* Makes each later read and connect of this thread end soon after `*stop` is true, on connections
 * of a client set up by truce__mongo_watch. */
void truce__mongo_limit_until(const atomic_bool *stop);
void truce__mongo_limit_listener(mongoc_client_t *client);
/* Applies the limits to the streams of a client of the pool. */
void truce__mongo_limit_client(struct mongo_store *store, mongoc_client_t *client);

/* ---- round trips (mongo_command.c) ---- */

/* Begins a call of this thread, which has lost no answer yet. */
void truce__mongo_call(void);
/* Returns whether a message of the call had no answer, or one that leaves its outcome open. */
bool truce__mongo_lost(void);

/* Makes the pool's connections count their messages in the store. Call it before the first one is
 * borrowed. */
void truce__mongo_watch(struct mongo_store *store);
void truce__mongo_counters(truce_store *base, truce_store_counters *counters);

/* ---- mongo_change_listener.c ---- */

/* Makes a listener, which follows the change stream of the URI's database from the first wait until
 * no wait has happened for `idle_ms`. Sends nothing. `structure` counts the drops and renames that
 * it receives, or may have missed. */
struct mongo_listener *truce__mongo_listener_new(const mongoc_uri_t *uri, uint32_t idle_ms,
                                                 _Atomic uint64_t *structure);
/* Does what truce_wait does. Without a stream, waits are short. */
truce_status truce__mongo_listener_wait(struct mongo_listener *listener, const truce_store *store,
                                        const char *collection, uint64_t *token,
                                        uint32_t timeout_ms, bson_error_t *error);
/* Ends the thread and waits for its end, which needs no answer of a server. NULL is allowed. No
 * wait may be active. */
void truce__mongo_listener_close(struct mongo_listener *listener);

/* ---- mongo_server_operation.c ---- */

const char *truce__mongo_database(truce_store *base);
truce_status truce__mongo_operation(truce_store *base, const bson_t *request, bool writes,
                                    bson_t *reply, bson_error_t *error);

/* ---- mongo_doctor_facts.c ---- */

truce_status truce__mongo_facts(truce_store *base, bson_t *facts, bson_error_t *error);

truce_status truce__mongo_wait(truce_store *base, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error);

#endif
