#ifndef TRUCE_STORE_MONGODB_MONGO_H
#define TRUCE_STORE_MONGODB_MONGO_H

/* The parts of the mongodb:// store (mongo.c has the whole picture). */
#include <pthread.h>
#include <stdatomic.h>

#include "base/status.h"
#include "store/mongodb/mongoc.h"
#include "store/reserved.h"
#include "store/store.h"

/* The collection that is named when a server is tried, never written to; some servers make it. */

/* Documents of a batch at most; the server ends one at 16 MB. */
#define MONGO_BATCH 1000

enum mongo_deployment { MONGO_STANDALONE, MONGO_REPLICA_SET, MONGO_SHARDED };

/* What the server's first answer said. */
struct mongo_server {
    enum mongo_deployment deployment;
    int32_t wire; /* maxWireVersion: 8 is MongoDB 4.2, 9 is 4.4, 13 is 5.0, 21 is 7.0 */
    bool sessions;
    bool truce;     /* a `truce serve` */
    char name[128]; /* of the replica set; empty if there is none */
};

struct mongo_store {
    truce_store base; /* first */
    mongoc_client_pool_t *pool;
    char *database;
    struct mongo_listener *listener; /* NULL: no change streams */
    struct mongo_shards *shards;     /* NULL: not sharded */
    struct mongo_server server;
    uint32_t deadline_ms;
    int32_t connections_max;
    atomic_uint_fast64_t round_trips;
    struct {
        pthread_mutex_t mutex;
        const mongoc_client_t **clients; /* whose streams end with the call (mongo_command.c) */
        uint32_t count;
    } limited;
    struct mongoc_audience audience;
    bool read_only, relaxed;
    bool linearizable; /* reads of one document by _id may ask for it */
    struct {
        uint32_t seconds, ordinal; /* of a view: the cluster time that it reads at; 0: it is none */
    } at;
};

/* ---- mongo.c ---- */

/* ---- mongo_error.c ---- */

/* What it means when a call is not answered. */
enum mongo_kind {
    MONGO_READ,      /* TRUCE_IO */
    MONGO_WRITE,     /* TRUCE_UNKNOWN, if it was sent */
    MONGO_STATEMENT, /* of a transaction: TRUCE_CONFLICT, nothing of it will ever take effect */
};

/* The status and sentence of a call that failed. `what` is "find in things"; `reply` is the server's
 * answer, or empty; `caught` is what libmongoc made of it. */
truce_status truce__mongo_failed(enum mongo_kind kind, const char *what, const bson_t *reply,
                                 const bson_error_t *caught, bson_error_t *error);
/* The same for an error that stands in an answer by itself: {code, errmsg}. */
truce_status truce__mongo_refused(enum mongo_kind kind, const char *what, uint32_t code,
                                  const char *message, bson_error_t *error);
/* Nothing matched: OK, or UNKNOWN after a sending without an answer, which may still come. */
truce_status truce__mongo_found_none(enum mongo_kind kind, const char *what, bson_error_t *error);
/* Does it leave open what became of a write? */
bool truce__mongo_is_open(const bson_error_t *caught);
/* Does it say for certain that a commit, sent once, has changed nothing? */
bool truce__mongo_is_certain(const bson_error_t *caught);
bool truce__mongo_has_label(const bson_t *reply, const char *label);

/* ---- mongo_command.c ---- */

/* A connection of the pool; TIMEOUT if all are in use until the deadline. */
truce_status truce__mongo_borrow(struct mongo_store *store, mongoc_client_t **client,
                                 bson_error_t *error);
void truce__mongo_return(struct mongo_store *store, mongoc_client_t *client);

struct mongo_command {
    const char *what;     /* for the error's sentence: "count in things" */
    const bson_t *body;   /* the command; its first field is the name */
    const char *database; /* NULL: the store's */
    enum mongo_kind kind;
    bool read_concern;                /* ask for what the majority has */
    bool linearizable;                /* or for more than that */
    bool snapshot;                    /* or for a cluster time; a view asks for its own */
    bool write_concern;               /* wait until it is durable */
    bool relaxed;                     /* but not for the disk */
    mongoc_client_session_t *session; /* or NULL */
    uint32_t server_id;               /* 0: any that fits */
    uint32_t wait_ms;                 /* how long it may take; 0: no limit of its own */
};

/* Runs it. `reply` is always initialised; the caller destroys it. */
truce_status truce__mongo_run(struct mongo_store *store, mongoc_client_t *client,
                              const struct mongo_command *command, bson_t *reply,
                              bson_error_t *error);
/* The same on a connection that is borrowed for it. */
truce_status truce__mongo_run_alone(struct mongo_store *store, const struct mongo_command *command,
                                    bson_t *reply, bson_error_t *error);

/* {w: "majority", j: true}, or without the disk; the caller destroys it. */
mongoc_write_concern_t *truce__mongo_write_concern(const struct mongo_store *store, bool relaxed);

/* "find in things" into `text` */
const char *truce__mongo_what(char *text, size_t size, const char *verb, const char *collection);

/* A whole number of any type in the reply; `otherwise` if there is none. */
int64_t truce__mongo_number(const bson_t *reply, const char *path, int64_t otherwise);

/* TRUCE_INVALID if the store was opened read-only. */
truce_status truce__mongo_writable(const struct mongo_store *store, bson_error_t *error);

/* Appends {hint: ...}: the name for {"": "name"}, else the pattern. NULL is left out. */
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

/* Does the filter ask for one _id by value? `*id`, if not NULL, is a view of it. */
bool truce__mongo_names_id(const bson_t *filter, bson_value_t *id);

/* ---- mongo_read.c ---- */

truce_status truce__mongo_snapshot(truce_store *base, const truce_snapshot_options *options,
                                   truce_store **view, bson_error_t *error);

/* Runs a command that answers with a cursor. */
truce_status truce__mongo_cursor(struct mongo_store *store, const struct mongo_command *command,
                                 truce_cursor **cursor, bson_error_t *error);

/* ---- mongo_write.c ---- */

truce_status truce__mongo_bulk(truce_store *base, const truce_write *writes, size_t count,
                               const truce_bulk_options *options, truce_write_outcome *outcomes,
                               bson_error_t *error);

/* One write, or several of one kind in one collection, as the server answers them. */
struct mongo_batch {
    const truce_write *writes;
    size_t count;
    truce_write_outcome *outcomes;
    bool unordered, relaxed;
    uint32_t wait_ms;                 /* 0: the store's deadline */
    mongoc_client_session_t *session; /* of a transaction, or NULL */
    bool *all; /* several updates or removes: out, each changed a document; the server does not tell
                  which did not */
};

/* Sends them and fills the outcomes. The status is the first failure's; TRUCE_UNKNOWN and TRUCE_IO
 * say that there was no answer. */
truce_status truce__mongo_send(struct mongo_store *store, mongoc_client_t *client,
                               const struct mongo_batch *batch, bson_error_t *error);

/* How many of the writes (at least one) go in one message: inserts into one collection. */
size_t truce__mongo_batch_size(const truce_write *writes, size_t count);

truce_status truce__mongo_find_and_modify(truce_store *base, const char *collection,
                                          const bson_t *filter, const bson_t *update,
                                          const truce_modify_options *options, bson_t *document,
                                          truce_write_result *result, bson_error_t *error);

/* How many of the writes, from the first on, can be one message; 0: the first is none that could. */
size_t truce__mongo_together(const truce_write *writes, size_t count);
/* Sends them so. OK with *all false: not every one changed a document. */
truce_status truce__mongo_send_together(struct mongo_store *store, mongoc_client_t *client,
                                        const struct mongo_batch *batch, bool *all,
                                        bson_error_t *error);

/* ---- mongo_transaction.c ---- */

/* The field of a guard without a change: set and taken away again. */
#define MONGO_TOUCH "_truce_touch"

/* A validator that refuses MONGO_TOUCH is told as such; other statuses stay. */
truce_status truce__mongo_guard_refused(truce_status status, const char *collection,
                                        bson_error_t *error);

truce_status truce__mongo_atomic(struct mongo_store *store, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error);
truce_status truce__mongo_read_many(truce_store *base, truce_look *looks, size_t count,
                                    bson_error_t *error);
/* Does the server really keep a transaction? OK, or INVALID with what it answered. */
truce_status truce__mongo_probe_transaction(struct mongo_store *store, bson_error_t *error);

/* ---- mongo.c ---- */

truce_status truce__mongo_index_list(truce_store *base, const char *collection, bson_t *indexes,
                                     bson_error_t *error);
truce_status truce__mongo_collection_create(truce_store *base, const char *collection,
                                            bson_error_t *error);
truce_status truce__mongo_collection_list(truce_store *base, const truce_list_options *options,
                                          bson_t *collections, bson_error_t *error);

/* CORRUPT: what the server sent is no sound document, and why; by its _id, if that can be told. */
truce_status truce__mongo_unsound(const char *what, const bson_t *document, bson_error_t *error);

/* The messages that this thread sends from now on end after so long (0: with the URI's time-outs only), and with
 * the deadline of the work around them. */
void truce__mongo_limit(uint32_t wait_ms);
/* How long the server may wait, for others or for the majority. */
uint32_t truce__mongo_wait_ms(const struct mongo_store *store);
/* A server that takes writes is known, or becomes known before the end of the call; else `why` (may be NULL) says
 * what stood in the way. */
bool truce__mongo_await_server(struct mongo_store *store, mongoc_client_t *client,
                               bson_error_t *why);
void truce__mongo_limit_forget(struct mongo_store *store);
/* From now on each read and connect of this thread ends soon after `*stop` is true, on connections of a client with
 * the second function. */
void truce__mongo_limit_until(const atomic_bool *stop);
void truce__mongo_limit_listener(mongoc_client_t *client);

/* A call of this thread begins: it has lost no answer. */
void truce__mongo_call(void);
/* Has one of its messages had no answer, or one that leaves open what became of it? */
bool truce__mongo_lost(void);

/* The pool's connections count their messages in the store; before the first is taken out of it. */
void truce__mongo_watch(struct mongo_store *store);
void truce__mongo_counters(truce_store *base, truce_store_counters *counters);

/* ---- mongo_listen.c ---- */

/* Hears of every write to the URI's database, by its change stream, from the first wait until nobody has
 * waited for `idle_ms`. No network is asked here. */
struct mongo_listener *truce__mongo_listener_new(const mongoc_uri_t *uri, uint32_t idle_ms);
/* As truce_wait. Where the stream cannot be had, for now or ever, waits are short ones. */
truce_status truce__mongo_listener_wait(struct mongo_listener *listener, const truce_store *store,
                                        const char *collection, uint64_t *token,
                                        uint32_t timeout_ms, bson_error_t *error);
/* Ends the thread and waits for its end, which takes no answer of a server; NULL is allowed. No wait may be going
 * on. */
void truce__mongo_listener_close(struct mongo_listener *listener);

/* ---- mongo_facts.c ---- */

truce_status truce__mongo_facts(truce_store *base, bson_t *facts, bson_error_t *error);

truce_status truce__mongo_wait(truce_store *base, const char *collection, uint64_t *token,
                               uint32_t timeout_ms, bson_error_t *error);

#endif
