#ifndef TRUCE_ENGINE_WRITER_H
#define TRUCE_ENGINE_WRITER_H

/*
 * The writer: the only code of a process that commits changes. (checkpoint.c moves committed
 * pages.) It has a connection, the lock file, and a queue of operations that are committed in
 * groups (group commit by leader and followers, as in DeWitt et al. 1984 and in LevelDB's write
 * queue).
 */
#include <pthread.h>

#include "base/arena.h"
#include "base/limits.h"
#include "engine/catalog.h"
#include "engine/cross_process_commit.h"
#include "engine/document_cache.h"
#include "engine/storage/durable.h"

struct names;
struct writer;

/* One operation. The caller owns it and waits in truce__writer_run until it is done.
 *
 * An operation may run several times: if a transaction fails because of any of its operations, it
 * is rolled back, and each operation of the group runs again. Therefore `reset` is called before
 * every `run`. It restores everything that `run` changes outside of the transaction. */
struct write_op {
    /* NULL if `run` changes nothing but the transaction, or the operation is `alone`. */
    void (*reset)(struct write_op *op);
    /* Runs inside the write transaction, on the thread that leads. TRUCE_OK: its changes, if any,
     * are to be committed; the operation stores its own result, such as a failed write, elsewhere.
     * Any other status: the transaction is unusable, and nothing of it is committed. */
    truce_status (*run)(struct write_op *op, struct writer *writer, bson_error_t *error);
    /* How another process executes the operation, or NULL if only this process can. */
    const struct delegated_kind *delegated_kind;
    /* The operation returns after its commit and does not wait for the disk, unless it leads a
     * group that waits (writer.c, invariant 4). */
    bool relaxed;
    /* The operation returns after its commit, because its caller waits for the disk later. If
     * another operation of the group waits for the disk, this one waits with it. */
    bool early;
    /* The writer begins no transaction for the operation, which begins its own if it needs one. It
     * runs on its own thread, under the lock, as the only operation of its group. */
    bool alone;
    /* The monotonic time until which the operation waits for the lock or for another leader. */
    int64_t deadline_ns;

    /* The fields below are used by the writer. */

    /* The next operation of the queue or of the group. */
    struct write_op *next;
    /* The state (writer.c), a futex. */
    atomic_uint state;
    /* The result of the operation and its error. */
    truce_status status;
    bson_error_t error;
};

/* Keys of one document before and after a change, in one index. */
struct key_change {
    struct field_keys before, after;
};

/* The end of the feed of changes after the last transaction (documents/change_feed.c). */
struct feed_end {
    /* The fields below describe the end of the feed. Otherwise they are read again before the next
     * entry is written. */
    bool known;
    /* The row table of the feed, or 0 if the file has no feed. */
    int64_t table;
    /* The position of the last entry. */
    int64_t last;
    /* The position of the first entry of the running operation, or 0 if it has written none. */
    int64_t first;
    /* The sum of the bytes of all entries that ever existed. */
    int64_t sum;
    /* The number and the bytes of the entries that were written since entries were last pruned. */
    int64_t fresh;
    int64_t fresh_bytes;
};

struct writer {
    struct kv *kv;
    struct lock *lock;
    struct durable *durable;
    struct cache *cache;
    struct hints *hints;

    /* Guards the queue: the fields `first`, `end`, and `led`. */
    pthread_mutex_t mutex;
    struct write_op *first, **end;
    bool led;

    /* The state of delegation with other processes. Used by the leader. */
    struct combine combine;

    /* The fields up to `serves_until_ns` are used by the leader and by the operation that it
     * runs. */

    /* The catalog of this transaction, or NULL until it is loaded. */
    struct catalog *catalog;
    /* A bit for each slot of change_notify.h whose waiters are woken after the commit. */
    uint64_t touched[NOTIFY_SLOTS / 64];
    /* Scratch memory for the keys of the document that is being changed, for each index. */
    struct key_change keys[TRUCE_INDEXES_MAX];
    struct arena arena;
    /* Scratch memory for lookups. */
    struct buffer key, body, id;
    /* Whether the running operation skips validators. */
    bool unvalidated;
    struct feed_end feed;
    /* The leader takes no more operations of other processes after this monotonic time. */
    int64_t serves_until_ns;

    /* New entries of the feed get positions after this one. Any thread may raise it
     * (truce__feed_pass). */
    atomic_llong time;
    /* Statistics since the store was opened, without operations that are alone: the number of
     * operations and of groups, and the nanoseconds for which the lock was held for them. */
    atomic_ullong operations, groups, held_ns;

    /* The names that collections may not have (documents/collections.h), or NULL if every name is
     * allowed. */
    const struct names *names;
    /* Returns whether the feed omits the changes of a collection. NULL means that the feed omits
     * none. */
    bool (*suppressed)(const char *collection);
    /* Called after each group without the lock, with the number of pages in the log. May be
     * NULL. */
    void (*after_commit)(void *arg, int wal_pages);
    void *arg;
    /* For tests: the first transaction of every group is rolled back, so that each operation runs
     * twice. */
    bool rehearses;
};

/* Initializes the writer. The connection and the other parts belong to the caller and must outlive
 * the writer. */
void truce__writer_init(struct writer *writer, struct kv *kv, struct lock *lock,
                        struct durable *durable, struct cache *cache, struct hints *hints,
                        struct seen *seen);
/* Frees what the writer has allocated. Called when no operation is queued. */
void truce__writer_release(struct writer *writer);

/* Runs the operation, alone or in a group. Returns when it is durable. A relaxed or early operation
 * returns when it is visible, except when it must wait with its group (struct write_op). If `run`
 * failed, returns its status. Fails with LOCKED or TIMEOUT if the lock was not acquired before the
 * deadline, and with IO if the operation was not committed. Fails with UNKNOWN if another process
 * may have executed the operation (writer.c, invariant 5). */
truce_status truce__writer_run(struct writer *writer, struct write_op *op, bson_error_t *error);

/* ---- for operations that run ---------------------------------------------------------------- */

/* Returns the collection as it is in this transaction, valid until the next change of the catalog.
 * `*collection` is NULL if the collection does not exist. */
truce_status truce__writer_collection(struct writer *writer, const char *name,
                                      const struct collection **collection, bson_error_t *error);

/* Commits the changes of the transaction, and records the commit in the shared page. The writer
 * calls it for its groups, so only an operation with its own transaction does. */
truce_status truce__writer_commit(struct writer *writer, bson_error_t *error);

/* Records that this operation has changed the catalog. */
void truce__writer_catalog_changed(struct writer *writer);

/* Rolls the savepoint back, and drops what the caches know about the changes. */
truce_status truce__writer_undo(struct writer *writer, bson_error_t *error);

/* Looks up the document with that key of its _id, as this transaction sees it. Returns its row and,
 * until the next call, its body. NOT_FOUND if it does not exist. */
truce_status truce__writer_look_up(struct writer *writer, const struct collection *collection,
                                   struct bytes key, int64_t *row, struct bytes *body,
                                   bson_error_t *error);

/* Records that the document in the row was replaced. If `before` is NULL, the document was
 * inserted; if `after` is NULL, it was removed. */
void truce__writer_changed(struct writer *writer, const struct collection *collection, int64_t row,
                           const bson_t *before, const bson_t *after);

/* Records that documents of the collection were changed: its waiters are woken after the commit. */
void truce__writer_touch(struct writer *writer, const char *collection);
/* Does the same for the structure: a collection was dropped, renamed, or emptied, or an index was
 * dropped. */
void truce__writer_touch_structure(struct writer *writer);

#endif
