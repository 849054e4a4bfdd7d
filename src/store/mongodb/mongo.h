#ifndef TRUCE_STORE_MONGODB_MONGO_H
#define TRUCE_STORE_MONGODB_MONGO_H

/* The internals of the mongodb:// store; mongo.c has the overview. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "store/mongodb/mongoc_load.h"
#include "store/reserved_names.h"
#include "store/store.h"

/* The maximum number of documents in a batch. The server also ends a batch at 16 MB. */
#define MONGO_BATCH 1000

enum mongo_deployment { MONGO_STANDALONE, MONGO_REPLICA_SET, MONGO_SHARDED };

/* The server's reply to hello. */
struct mongo_server {
    enum mongo_deployment deployment;
    /* The wire version (maxWireVersion): 8 is MongoDB 4.2, 9 is 4.4, 13 is 5.0, 21 is 7.0. */
    int32_t wire;
    /* Whether the server has sessions. */
    bool sessions;
    /* Whether the server is `truce serve`. */
    bool truce;
    /* The name of the replica set, or "" if the server belongs to none. */
    char name[128];
};

/* An open transaction, with the connection that it occupies. */
struct mongo_transaction {
    struct mongo_store *store;
    mongoc_client_t *client;
    mongoc_client_session_t *session;
    /* The monotonic time at which the transaction must end. */
    int64_t until_ns;
    /* The first failure of a transaction of several calls. It has ended the transaction, so later
     * statements return it, too. */
    truce_status failed;
    bson_error_t failure;
};

struct mongo_store {
    /* Must be the first field. */
    truce_store base;
    mongoc_client_pool_t *pool;
    char *database;
    /* Listens to the change stream, or NULL if the server has no change streams. */
    struct mongo_listener *listener;
    /* The shard keys, or NULL if the deployment is not sharded. */
    struct mongo_shards *shards;
    struct mongo_server server;
    /* The default deadline of a call in milliseconds. */
    uint32_t deadline_ms;
    /* The milliseconds for which the opening waits for the first reply of any server. */
    uint32_t reply_ms;
    /* The milliseconds that libmongoc waits for a server at a time. */
    uint32_t select_ms;
    /* Whether the store uses only the server that the URI names (directConnection). */
    bool direct;
    /* The maximum number of connections in the pool. */
    int32_t connections_max;
    /* The number of messages that were sent, including libmongoc's own repetitions. */
    atomic_uint_fast64_t round_trips;
    struct {
        /* Guards the list. */
        pthread_mutex_t mutex;
        /* The clients of the pool whose streams have time limits (mongo_time_limit.c). */
        const mongoc_client_t **clients;
        uint32_t count;
    } limited;
    struct mongoc_audience audience;
    /* The transaction that the store is (mongo_session.c), or NULL if it is not a transaction. */
    struct mongo_transaction *transaction;
    /* The number of connections that sessions and change streams occupy. */
    atomic_int occupied;
    /* The monotonic time at which a message of the kind of truce__mongo_farewell_ms last got a late
     * reply or none (mongo_pool.c), or 0. */
    _Atomic int64_t stalled_ns;
    /* Whether the last message got no reply in time. */
    atomic_bool silent;
    bool read_only, relaxed;
    /* Whether the server can make a linearizable read of one document by _id. */
    bool linearizable;
    /* The structure number: it counts the changes of this handle and those of other clients that
     * the handle has noticed. */
    _Atomic uint64_t changes;
    struct mongo_structure *structure;
    struct {
        /* The cluster time of the reads of a view, or 0 if the store is not a view. */
        uint32_t seconds, ordinal;
    } at;
};

/* ---- mongo_structure.c ---- */

struct mongo_structure *truce__mongo_structure_new(void);
void truce__mongo_structure_free(struct mongo_structure *structure);
/* Watches a collection whose indexes were ensured: its UUID is compared from the next operation
 * on. */
void truce__mongo_structure_watch(struct mongo_structure *structure, const char *collection);
/* Returns the structure number (`structure` of truce_store_ops). May request the list of
 * collections before. */
uint64_t truce__mongo_structure_number(truce_store *base);

/* ---- mongo_error.c ---- */

/* The meaning of a missing reply. */
enum mongo_kind {
    /* The call fails with TRUCE_IO. */
    MONGO_READ,
    /* The call fails with TRUCE_UNKNOWN if the message was sent. */
    MONGO_WRITE,
    /* A statement of a transaction: the call fails with TRUCE_CONFLICT, and nothing of the
     * statement will ever take effect. */
    MONGO_STATEMENT,
};

/* Returns the status and message of a failed call. `what` is, for example, "find in things".
 * `reply` is the server's reply or empty, and `caught` is libmongoc's error. */
truce_status truce__mongo_failed(enum mongo_kind kind, const char *what, const bson_t *reply,
                                 const bson_error_t *caught, bson_error_t *error);
/* Does what truce__mongo_failed does, for an error within a reply: {code, errmsg}. */
truce_status truce__mongo_refused(enum mongo_kind kind, const char *what, uint32_t code,
                                  const char *message, bson_error_t *error);
/* Returns the status of a write that matched nothing: OK, or UNKNOWN if an earlier message got no
 * reply and may still take effect. */
truce_status truce__mongo_found_none(enum mongo_kind kind, const char *what, bson_error_t *error);
/* Returns whether the error leaves the outcome of a write open. */
bool truce__mongo_is_open(const bson_error_t *caught);
/* Returns whether the error proves that a commit, sent once, changed nothing. */
bool truce__mongo_is_certain(const bson_error_t *caught);
bool truce__mongo_has_label(const bson_t *reply, const char *label);

/* ---- mongo_pool.c ---- */

/* Creates the pool of connections, and frees the pool that the store had before. */
truce_status truce__mongo_pool_open(struct mongo_store *store, const mongoc_uri_t *uri,
                                    bson_error_t *error);
void truce__mongo_pool_close(struct mongo_store *store);

/* Borrows a connection of the pool; a transaction has its own. Fails with TIMEOUT if none is
 * returned within the URI's waitQueueTimeoutMS, by default the store's deadline. */
truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error);
void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client);

/* Counts a connection that is occupied for longer than a call. Fails with LIMIT if the connections
 * that are left for other calls would be fewer than a quarter of the pool. */
truce_status truce__mongo_occupy(struct mongo_store *store, bson_error_t *error);
void truce__mongo_leave(struct mongo_store *store);
/* Returns the milliseconds for a message that only releases something at the server, such as an
 * abort or the end of a cursor. Returns 0 if such a message recently got a late reply or none:
 * then the thread does not wait for this one. */
uint32_t truce__mongo_farewell_ms(const struct mongo_store *store);
/* Records how long such a message took. */
void truce__mongo_farewell_end(struct mongo_store *store, int64_t begun_ns);

/* ---- mongo_command.c ---- */

struct mongo_command {
    /* The name of the call for its message, such as "count in things". */
    const char *what;
    /* The command, whose first field is its name. */
    const bson_t *body;
    /* The database, or NULL for the database of the store. */
    const char *database;
    enum mongo_kind kind;
    /* The command has read concern majority. */
    bool read_concern;
    /* The command has read concern linearizable. */
    bool linearizable;
    /* The command has read concern snapshot. A view reads at its own time. */
    bool snapshot;
    /* The command waits until its effect is durable. */
    bool write_concern;
    /* With write_concern: the majority need not have written to disk. */
    bool relaxed;
    /* libmongoc must not repeat the command by itself. */
    bool once;
    /* The command is not a statement of the store's transaction. */
    bool outside;
    /* The session, or NULL. */
    mongoc_client_session_t *session;
    /* The server for the command, or 0 for any suitable server. */
    uint32_t server_id;
    /* The time limit of the command in milliseconds, or 0 for none of its own. */
    uint32_t wait_ms;
};

/* Runs the command. Always initializes `reply`; the caller destroys it. */
truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error);
/* Does what truce__mongo_run does, on a borrowed connection. */
truce_status truce__mongo_run_alone(struct mongo_store *store, const struct mongo_command *command,
                                    bson_t *reply, bson_error_t *error);

/* Records the failure of a statement, if it is the first failure of the store's transaction. */
void truce__mongo_statement_failed(struct mongo_store *store, truce_status status,
                                   const bson_error_t *error);
/* Returns {w: "majority", j: true}, or {w: "majority", j: false} if `relaxed` is set, with a time
 * limit. The caller destroys it. */
mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed);

/* Writes a name such as "find in things" into `text`, and returns it. */
const char *truce__mongo_what(char *text, size_t size, const char *verb, const char *collection);

/* Returns the number at `path` in the reply, whatever its type, or `otherwise` if the reply has no
 * such number. */
int64_t truce__mongo_number(const bson_t *reply, const char *path, int64_t otherwise);

/* Fails with TRUCE_INVALID if the store was opened read-only. */
truce_status truce__mongo_writable(const struct mongo_store *store, bson_error_t *error);

/* Appends {hint: ...}: the name of the index if `hint` is {"": "name"}, otherwise its pattern.
 * Appends nothing if `hint` is NULL. */
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

/* Returns whether the filter requires one _id by its value. If `id` is not NULL, `*id` is then a
 * view of it. */
bool truce__mongo_names_id(const bson_t *filter, bson_value_t *id);

truce_status truce__mongo_snapshot(truce_store *base, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error);

/* Runs a command that returns a cursor. */
truce_status truce__mongo_cursor(struct mongo_store *store, const struct mongo_command *command,
                                 truce_cursor **cursor, bson_error_t *error);
/* Sends one getMore, for at most `batch` documents, or MONGO_BATCH if `batch` is -1. The server
 * waits `wait_ms` milliseconds for documents; 0 means until there are some, or until the end. */
truce_status truce__mongo_cursor_more(truce_cursor *cursor, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error);
/* Returns the next document of the current batch without checking it. Returns NULL at the end of
 * the batch. */
truce_status truce__mongo_cursor_taken(truce_cursor *cursor, const bson_t **document,
                                       bson_error_t *error);
/* Returns the server's reply, which contains the current batch. */
const bson_t *truce__mongo_cursor_reply(const truce_cursor *cursor);
/* Returns whether the server has more batches. */
bool truce__mongo_cursor_is_open(const truce_cursor *cursor);

/* ---- mongo_write.c ---- */

truce_status truce__mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error);

/* One write, or several writes of one kind to one collection, for one message. */
struct mongo_batch {
    const truce_write *writes;
    size_t count;
    truce_write_outcome *outcomes;
    bool unordered, relaxed;
    /* The deadline in milliseconds, or 0 for the deadline of the store. */
    uint32_t wait_ms;
    /* The session of a transaction, or NULL. */
    mongoc_client_session_t *session;
    /* Set by truce__mongo_send for several updates or removes: whether each of them changed a
     * document. The server does not report which of them did not. */
    bool *all;
};

/* Sends the writes and sets the outcomes. Returns the first failure. TRUCE_UNKNOWN and TRUCE_IO
 * mean that there was no reply. */
truce_status truce__mongo_send(struct mongo_store *store, mongoc_client_t *client,
                               const struct mongo_batch *batch, bson_error_t *error);

/* Returns the number of writes, at least one, that fit in one message of inserts into one
 * collection. */
size_t truce__mongo_batch_size(const truce_write *writes, size_t count);

truce_status truce__mongo_find_and_modify(truce_store *base, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          truce_write_result *result, bson_error_t *error);

/* Returns the number of first writes that can be one message, or 0 if no writes can share one. */
size_t truce__mongo_together(const truce_write *writes, size_t count);
/* Sends such a message. Sets `*all` to false if a write changed no document. */
truce_status truce__mongo_send_together(struct mongo_store *store, mongoc_client_t *client,
                                        const struct mongo_batch *batch, bool *all,
                                        bson_error_t *error);

/* ---- mongo_transaction.c ---- */

/* Begins a transaction. On success, the caller releases it. If `deadline_ms` is 0, the deadline of
 * the store applies. */
truce_status truce__mongo_transaction_begin(struct mongo_store *store, uint32_t deadline_ms,
                                            bool relaxed, struct mongo_transaction *transaction,
                                            bson_error_t *error);
/* Predicts by reads whether the writes of an atomic bulk will succeed: whether their filters match,
 * and whether the documents to insert exist. Nothing is written, so the transaction may continue
 * after such a failure. A write that depends on an earlier write of the bulk is not checked. */
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

/* The field that a guard without a change sets and removes. */
#define MONGO_TOUCH "_truce_touch"

/* If a validator has refused MONGO_TOUCH, changes the error to say so. Other statuses stay. */
truce_status truce__mongo_guard_refused(truce_status status, const char *collection,
                                        bson_error_t *error);

truce_status truce__mongo_atomic(struct mongo_store *store, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error);
truce_status truce__mongo_read_many(truce_store *base, truce_read_request *requests, size_t count,
                                    bson_error_t *error);
/* Checks by a probe that the server implements transactions. Returns OK, or INVALID with the
 * server's message. */
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

/* Fails with CORRUPT, because the server sent an invalid document. The message has the reason and,
 * if possible, the _id. */
truce_status truce__mongo_malformed(const char *what, const bson_t *document, bson_error_t *error);

/* ---- mongo_time_limit.c ---- */

/* Limits the messages that this thread sends after this call: each ends within wait_ms milliseconds
 * (0 means only the limits of the URI) and within the deadline of the surrounding work. */
void truce__mongo_limit(uint32_t wait_ms);
/* Returns the milliseconds for which the server may wait for locks or for the majority. */
uint32_t truce__mongo_wait_ms(const struct mongo_store *store);
/* Waits until a server that accepts writes is known, or until the end of the call. On failure,
 * `why` gets the reason unless it is NULL. */
bool truce__mongo_await_server(struct mongo_store *store, mongoc_client_t *client,
                               bson_error_t *why);
/* Returns whether a server is known or libmongoc has the time to wait for one. If the call is about
 * to end, waits for a server as truce__mongo_await_server does. `why` may be NULL. */
bool truce__mongo_has_server(struct mongo_store *store, mongoc_client_t *client, bson_error_t *why);
/* Records whether the last message of this thread got a reply. */
void truce__mongo_limit_answered(bool answered);
/* Ends the time of this thread's messages: each later message is sent without waiting for its
 * reply. */
void truce__mongo_limit_to_now(void);
/* Returns whether the time for the server has expired. */
bool truce__mongo_limit_is_over(void);
void truce__mongo_limit_forget(struct mongo_store *store);
/* Makes each later read of this thread end soon after `*stop` becomes true, and each later connect
 * fail, on connections of a client that truce__mongo_limit_listener has prepared. */
void truce__mongo_limit_until(const atomic_bool *stop);
void truce__mongo_limit_listener(mongoc_client_t *client);
/* Applies the limits to the streams of a client of the pool. */
void truce__mongo_limit_client(struct mongo_store *store, mongoc_client_t *client);

/* ---- round trips (mongo_command.c) ---- */

/* Begins a call of this thread, of which no reply is lost yet. */
void truce__mongo_call(void);
/* Returns whether a message of the call got no reply, or one that leaves its outcome open. */
bool truce__mongo_lost(void);

/* Makes the pool's connections count their messages in the store. Called before the first
 * connection is borrowed. */
void truce__mongo_watch(struct mongo_store *store);
void truce__mongo_counters(truce_store *base, truce_store_counters *counters);

/* ---- mongo_change_listener.c ---- */

/* Creates a listener, which follows the change stream of the URI's database from the first wait
 * until no wait has happened for `idle_ms`. Sends nothing. `structure` counts the drops and renames
 * that the listener receives, or may have missed. */
struct mongo_listener *truce__mongo_listener_new(const mongoc_uri_t *uri, uint32_t idle_ms,
                                                 _Atomic uint64_t *structure);
/* Does what truce_wait does. While no stream is open, a wait ends early and its caller checks. */
truce_status truce__mongo_listener_wait(struct mongo_listener *listener, const truce_store *store,
                                        const char *collection, uint64_t *token,
                                        uint32_t timeout_ms, bson_error_t *error);
/* Ends the thread and waits for its end, which does not depend on a reply of a server. NULL is
 * allowed. No wait may be active. */
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
