#ifndef TRUCE_STORE_MONGODB_MONGO_SESSION_H
#define TRUCE_STORE_MONGODB_MONGO_SESSION_H

/*
 * Transactions of several calls, and change streams, which a server (src/server) passes on to
 * MongoDB for its clients.
 *
 * Each occupies a connection of the pool as long as it is open. At most three quarters of the
 * connections may be occupied in this way, so that other calls find one.
 */
#include "truce/sys/store.h"

/* Returns whether the store is a deployment of MongoDB, which has transactions and change streams
 * of its own. */
bool truce__mongo_is(const truce_store *store);

/* Opens a transaction: a store whose calls are statements of one transaction of the server. One
 * thread at a time uses it and its cursors. Until it is closed, `store` must stay open. A failed
 * statement ends it: CONFLICT means that all of it may run again. Lists of collections and indexes
 * are read outside of it. Fails with INVALID if the server has no transactions, and with LIMIT if
 * too many connections are occupied. */
truce_status truce__mongo_session_open(truce_store *store, truce_store **transaction,
                                       bson_error_t *error);
/* Commits, on disk unless the store is relaxed; afterwards the transaction can only be closed.
 * `more` has writes to add if the transaction wrote anything. After CONFLICT, nothing was written;
 * run the transaction again. After UNKNOWN, the outcome is unknown, and the server may still
 * commit. */
truce_status truce__mongo_session_commit(truce_store *transaction, const truce_write *more,
                                         size_t count, uint32_t deadline_ms, bson_error_t *error);

/* A change stream of the server. */
struct mongo_stream;

/* Opens a change stream. If `collection` is NULL, the stream is that of the store's database.
 * `pipeline` begins with $changeStream. `batch` is the maximum number of events in the first batch;
 * -1 means the default of the server. */
truce_status truce__mongo_stream_open(truce_store *store, const char *collection,
                                      const bson_t *pipeline, int64_t batch,
                                      struct mongo_stream **stream, bson_error_t *error);
/* Waits for the next batch for at most `wait_ms` milliseconds; the batch may be empty. If the
 * server cannot be reached, fails with code HostUnreachable, after which drivers resume. */
truce_status truce__mongo_stream_next(struct mongo_stream *stream, int64_t batch, uint32_t wait_ms,
                                      bson_error_t *error);
/* Appends the remaining events of the batch to an array that was begun. */
truce_status truce__mongo_stream_take(struct mongo_stream *stream, bson_t *events, uint32_t *count,
                                      bson_error_t *error);
/* Appends the fields of the token from which a stream resumes after the batch. Returns false if the
 * server returned no token. */
bool truce__mongo_stream_token(const struct mongo_stream *stream, bson_t *token);
/* Returns whether the server has ended the stream. */
bool truce__mongo_stream_is_over(const struct mongo_stream *stream);
/* Closes the stream. NULL is allowed. */
void truce__mongo_stream_close(struct mongo_stream *stream);

#endif
