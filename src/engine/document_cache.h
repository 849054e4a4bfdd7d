#ifndef TRUCE_ENGINE_DOCUMENT_CACHE_H
#define TRUCE_ENGINE_DOCUMENT_CACHE_H

/*
 * Documents that were read or written recently, by collection and _id. A lookup by _id finds them
 * without a snapshot of the file. The cache is never older than the file: see the essay in
 * document_cache.c.
 *
 * A cache belongs to one engine. Any thread looks documents up in it, and inserts what it has read
 * from the file. Only the leader of the writer, which holds the write lock, records changes of
 * documents. Its memory has a fixed maximum. It does not store documents larger than
 * CACHE_BODY_MAX, nor documents whose key is larger than CACHE_KEY_MAX.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "base/status.h"
#include "engine/storage/kv.h"
#include "engine/storage/write_lock.h"

/* The maximum bytes of a document, and of the key of an _id, that the cache stores. */
#define CACHE_BODY_MAX 65536
#define CACHE_KEY_MAX  1024

struct cache;

/* Creates a cache of at most `bytes`. `begun` counts the commits that change documents, by all
 * processes; `promises` are the numbers that these commits have promised (write_lock.h). `commits`
 * counts the commits of all programs (kv.h). */
struct cache *truce__cache_new(const atomic_uint *begun, struct lock_promises *promises,
                               const struct kv_commits *commits, uint64_t bytes);
/* Frees the cache. NULL is allowed. */
void truce__cache_free(struct cache *cache);

/* ---- readers -------------------------------------------------------------------------------- */

struct cache_lookup {
    /* If the document was found: it is durable when the commit with this number is (durable.h). */
    uint64_t promised;
    /* If the document was not found: the version of its shard, which truce__cache_fill compares. */
    uint64_t version;
    bool may_fill;
};

/* Appends the document to `body`. Returns false if it is not cached; the caller begins its snapshot
 * after this call, not before. */
bool truce__cache_get(struct cache *cache, const char *collection, struct bytes key,
                      struct buffer *body, struct cache_lookup *lookup);

/* Returns a number (durable.h) that is at least that of the last commit that wrote the document.
 * Called after a snapshot has begun: its version of the document is durable when the number is. */
uint64_t truce__cache_promised(const struct cache *cache, const char *collection, struct bytes key);

/* Returns the number of a snapshot that begins after this call. */
uint64_t truce__cache_snapshot(struct cache *cache);

/* Appends the document to `body` as that snapshot shows it; `lookup` as above. Returns false if the
 * caller must read the snapshot. All documents that are found for one number belong to one
 * snapshot. If `body` is NULL, only returns whether the document is cached. If a document is found
 * both before and after a snapshot of the file has begun, that snapshot shows the same document. */
bool truce__cache_view(struct cache *cache, uint64_t snapshot, const char *collection,
                       struct bytes key, struct buffer *body, struct cache_lookup *lookup);

/* Inserts what the snapshot showed, unless the document may have changed since the lookup. */
void truce__cache_fill(struct cache *cache, const char *collection, struct bytes key,
                       const struct cache_lookup *lookup, int64_t row, struct bytes body);

/* ---- for the leader of the writer ----------------------------------------------------------- */

/* Drops all entries if other processes or programs have committed since the last transaction.
 * Called when the write transaction has begun: the commits of other processes are known now.
 * `foreign` means that a program may have committed without announcing it. Its commits are accepted
 * after this call (kv.h). */
void truce__cache_begin(struct cache *cache, bool foreign);

/* Appends the document to `body` as this transaction sees it. Returns false if the caller must read
 * the file. */
bool truce__cache_peek(struct cache *cache, const char *collection, struct bytes key, int64_t *row,
                       struct buffer *body);

/* Records that this transaction has changed the document. An empty body means that it was
 * removed. */
void truce__cache_change(struct cache *cache, const char *collection, struct bytes key, int64_t row,
                         struct bytes body);

/* Marks the documents of all changed entries as unknown. Called after a savepoint was rolled
 * back. */
void truce__cache_doubt(struct cache *cache);

/* Closes the cache, because whole collections change in this transaction. When the transaction
 * ends, all entries are dropped; until then no thread reads the cache. */
void truce__cache_close(struct cache *cache);

/* Records that this transaction has inserted the document. */
void truce__cache_insert(struct cache *cache, const char *collection, struct bytes key);

/* Records that the next commit, which `begun` has counted, is one of this process, and stores its
 * number for the changed documents. Called right before the commit. `promised` is its number
 * (durable.h), or 0 if it has none. */
void truce__cache_commit(struct cache *cache, uint64_t promised);

/* Opens the changed entries to readers, or drops them if the transaction was not committed. Called
 * when the transaction has ended, before any caller learns of it. */
void truce__cache_end(struct cache *cache, bool committed);

/* Returns the memory that an open file uses for what it has read. `requested_mb` comes from the
 * options. If it is 0, the function uses the environment, or a part of the machine's memory
 * (limits.h). Fails with INVALID if the size is out of bounds or TRUCE_CACHE_MB is not a number. */
truce_status truce__cache_size(uint32_t requested_mb, uint64_t *bytes, bson_error_t *error);

#endif
