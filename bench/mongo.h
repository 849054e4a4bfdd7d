#ifndef TRUCE_BENCH_MONGO_H
#define TRUCE_BENCH_MONGO_H

/*
 * One connection to a server of MongoDB's protocol, through libmongoc, as a program without truce
 * would use it: reads of concern majority, writes with w: majority and j: true. A failure calls
 * bench_fail.
 */
#include <mongoc/mongoc.h>

#include "bench/bench.h"

struct mongo;

struct mongo *mongo_connect(const char *address, const char *database);
void mongo_close(struct mongo *mongo);
void mongo_drop(struct mongo *mongo); /* Drops the database. */
/* Returns the URI with the database. The caller frees it with bson_free. */
char *mongo_address(const char *address, const char *database);

/* Initializes `document` with the whole document. Returns false if it does not exist, or if a
 * transaction must begin again. */
bool mongo_find_one(struct mongo *mongo, const char *collection, const bson_t *filter,
                    bson_t *document);
mongoc_cursor_t *mongo_find(struct mongo *mongo, const char *collection, const bson_t *filter);
mongoc_cursor_t *mongo_aggregate(struct mongo *mongo, const char *collection,
                                 const bson_t *pipeline);
/* Returns the next document, or NULL at the end. */
const bson_t *mongo_next(mongoc_cursor_t *cursor);
int64_t mongo_count(struct mongo *mongo, const char *collection);

void mongo_insert(struct mongo *mongo, const char *collection, const bson_t *document);
void mongo_insert_many(struct mongo *mongo, const char *collection, const bson_t *const *documents,
                       size_t count);
/* Updates documents, and returns the number that matched. `options` are libmongoc's, such as
 * arrayFilters and upsert, or NULL. */
int64_t mongo_update(struct mongo *mongo, const char *collection, const bson_t *filter,
                     const bson_t *update, const bson_t *options);
int64_t mongo_replace(struct mongo *mongo, const char *collection, const bson_t *filter,
                      const bson_t *document);
/* Executes several updates {q, u, upsert} in one unordered command. */
void mongo_update_many(struct mongo *mongo, const char *collection, const bson_t *updates);
void mongo_command(struct mongo *mongo, const bson_t *command, bson_t *reply);
/* Deletes a document of each collection. */
void mongo_remove_any(struct mongo *mongo);
void mongo_index(struct mongo *mongo, const char *collection, const char *field);

/* Calls `change` in a transaction, and again after each conflict. `change` stops when a find or an
 * update finds nothing. If the server has no transactions, it ends the side (side_cannot). */
void mongo_transact(struct mongo *mongo, void (*change)(struct mongo *mongo, void *arg), void *arg);
/* Returns whether the transaction was refused, so that the caller must begin it again. */
bool mongo_is_lost(const struct mongo *mongo);

/* ---- servers (target_mongo.c) ---------------------------------------------------------------- */

bool mongo_is_server(const char *name);
/* Returns the server of a name such as "truce+secantusdb", or "" for other names. */
const char *mongo_under_truce(const char *name);

struct bench_target;
/* Starts the server, once for all targets that share it. Fills address and settings. */
void mongo_server_start(struct bench_target *target, const char *name);
void mongo_server_stop(struct bench_target *target);
/* Called in the side: reads the server's durability settings, and fills version, settings, and
 * not_durable. */
void mongo_server_describe(struct mongo *mongo, struct bench_target *target, const char *name);

#endif
