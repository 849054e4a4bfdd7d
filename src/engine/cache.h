#ifndef TRUCE_ENGINE_CACHE_H
#define TRUCE_ENGINE_CACHE_H

/*
 * Documents that were read or written lately, by collection and _id: what a lookup by _id finds
 * without a snapshot of the file. It is never older than the file: see the essay in cache.c.
 *
 * A cache belongs to one engine. Any thread reads; only who leads the writer, and holds the lock
 * file, changes. A fixed maximum of memory; documents above CACHE_BODY_MAX are not kept,
 * nor those whose key is above CACHE_KEY_MAX.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "engine/storage/kv.h"
#include "engine/storage/lock.h"

#define CACHE_BODY_MAX 65536
#define CACHE_KEY_MAX  1024

struct cache;

/* `begun`: how many commits that change documents were begun, by all processes, and `promises` what they have promised
 * (lock.h). `commits`: those that were made, by whatever program (kv.h). */
struct cache *truce__cache_new(const atomic_uint *begun, struct lock_promises *promises,
                               const struct kv_commits *commits, uint64_t bytes);
void truce__cache_free(struct cache *cache); /* NULL is allowed */

/* ---- readers -------------------------------------------------------------------------------- */

struct cache_look {
    uint64_t promised; /* found: durable when this number is (durable.h) */
    uint64_t version;  /* not found: to be remembered until the file is read */
    bool may_fill;
};

/* The document, appended to `body`. False: not here; begin a snapshot after this, not before. */
bool truce__cache_get(struct cache *cache, const char *collection, struct bytes key,
                      struct buffer *body, struct cache_look *look);

/* After a snapshot has begun: what it shows of that document is durable when this number is. */
uint64_t truce__cache_promised(const struct cache *cache, const char *collection, struct bytes key);

/* For a snapshot that begins after this. */
uint64_t truce__cache_snapshot(struct cache *cache);

/* The document as that snapshot shows it, appended to `body`; `look` as above. False: look into the snapshot. What
 * is found of one moment is of one moment, with or without a snapshot. */
bool truce__cache_view(struct cache *cache, uint64_t snapshot, const char *collection,
                       struct bytes key, struct buffer *body, struct cache_look *look);

/* What the snapshot showed, which is put in unless the document may have changed since the look. */
void truce__cache_fill(struct cache *cache, const char *collection, struct bytes key,
                       const struct cache_look *look, int64_t row, struct bytes body);

/* ---- who leads the writer ------------------------------------------------------------------- */

/* The write transaction has begun: what other processes have committed is known now. `foreign`: a program may have
 * that did not say so; its commits are accepted after this (kv.h). */
void truce__cache_begin(struct cache *cache, bool foreign);

/* The document as this transaction sees it, appended to `body`. False: look into the file. */
bool truce__cache_peek(struct cache *cache, const char *collection, struct bytes key, int64_t *row,
                       struct buffer *body);

/* This transaction has changed the document; an empty body: it is gone. */
void truce__cache_change(struct cache *cache, const char *collection, struct bytes key, int64_t row,
                         struct bytes body);

/* A savepoint was rolled back: nothing that was changed is known any more. */
void truce__cache_doubt(struct cache *cache);

/* Whole collections change in this transaction: everything is forgotten when it ends, and nobody
 * reads until then. */
void truce__cache_close(struct cache *cache);

/* This transaction has inserted the document. */
void truce__cache_insert(struct cache *cache, const char *collection, struct bytes key);

/* The next thing is the commit; `begun` has counted it. `promised`: its number (durable.h); 0: it has
 * none. */
void truce__cache_commit(struct cache *cache, uint64_t promised);

/* The transaction has ended. Before anybody is told so. */
void truce__cache_end(struct cache *cache, bool committed);

/* How much memory an open file takes for what it has read. */

/* `asked_mb`: of the options; 0: of the environment, or a part of the machine's memory (limits.h). INVALID: it is out of bounds,
 * or TRUCE_CACHE_MB is no number. */
truce_status truce__cache_size(uint32_t asked_mb, uint64_t *bytes, bson_error_t *error);

#endif
