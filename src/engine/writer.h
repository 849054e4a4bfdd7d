#ifndef TRUCE_ENGINE_WRITER_H
#define TRUCE_ENGINE_WRITER_H

/*
 * The one place of a process where the file is written: a connection, the lock file, and a queue of
 * operations that are committed in groups (group commit by leader and followers, as in DeWitt et
 * al. 1984 and in LevelDB's write queue).
 */
#include <pthread.h>

#include "base/arena.h"
#include "base/limits.h"
#include "engine/cache.h"
#include "engine/catalog.h"
#include "engine/cross_process.h"
#include "engine/storage/durable.h"

struct names;
struct writer;

/* One operation. The caller owns it and waits in truce__writer_run until it is done.
 *
 * An operation that may run again keeps no state from the first time: a transaction that fails, for whatever
 * operation of its group, is rolled back, and each of the group runs again. So `reset` is called
 * before every `run`, and puts back all that `run` changes outside of the transaction. */
struct write_op {
    /* NULL: `run` changes nothing but the transaction, or the operation is `alone`. */
    void (*reset)(struct write_op *op);
    /* Runs inside the write transaction, on whichever thread leads. TRUCE_OK: whatever it did is to
     * be committed, which may be nothing; the operation's own answer, a failed write for example,
     * is the caller's to keep. Anything else: the transaction cannot be used any more, nothing of
     * it is committed. */
    truce_status (*run)(struct write_op *op, struct writer *writer, bson_error_t *error);
    const struct delegated_kind *delegated_kind; /* how another process does it; NULL: none can */
    bool relaxed;                                /* need not wait for the disk */
    bool early;                                  /* need not wait here: its caller does, later */
    bool alone;          /* runs on its own thread, under the lock, without a transaction */
    int64_t deadline_ns; /* for getting its turn; monotonic */

    /* the writer's */
    struct write_op *next;
    atomic_uint state;
    truce_status status;
    bson_error_t error;
};

/* Keys of one document before and after a change, in one index. */
struct key_change {
    struct field_keys before, after;
};

/* Where the feed of changes ends, as the last transaction has left it (documents/feed.c). */
struct feed_end {
    bool known;
    int64_t table;
    int64_t last;  /* position of the last entry */
    int64_t sum;   /* bytes of all entries that ever were */
    int64_t fresh; /* entries since something was pruned, ... */
    int64_t fresh_bytes;
};

struct writer {
    struct kv *kv;
    struct lock *lock;
    struct durable *durable;
    struct cache *cache;

    pthread_mutex_t mutex; /* over the queue */
    struct write_op *first, **end;
    bool led;

    struct combine combine; /* the leader's; with other processes */

    /* the leader's, and of the operation that it runs */
    struct catalog *catalog;             /* of this transaction; NULL: to be loaded */
    uint64_t touched[NOTIFY_SLOTS / 64]; /* collections to wake after the commit */
    struct key_change keys[TRUCE_INDEXES_MAX];
    struct arena arena;
    struct buffer key, body; /* of a look into the cache */
    bool unvalidated;        /* validators let it pass */
    struct feed_end feed;
    int64_t serves_until_ns; /* operations of other processes are taken until then */

    atomic_llong time; /* entries of the feed that are made here come behind this position */
    /* since the store was opened; of what was not alone */
    atomic_ullong operations, groups, held_ns; /* held: the lock, for them */

    const struct names
        *names; /* that no collection may have (documents/collections.h); NULL: none */
    bool (*suppressed)(const char *collection); /* the feed is not told of it; NULL: it is of all */
    void (*after_commit)(void *arg, int wal_pages);
    void *arg;
    bool rehearses; /* for tests: the first transaction of every group is rolled back */
};

void truce__writer_init(struct writer *writer, struct kv *kv, struct lock *lock,
                        struct durable *durable, struct cache *cache);
void truce__writer_release(struct writer *writer);

/* Returns when the operation is durable (or visible, if relaxed). What `run` answered if it failed;
 * LOCKED, TIMEOUT: it did not get its turn before its deadline; IO: it was not committed. */
truce_status truce__writer_run(struct writer *writer, struct write_op *op, bson_error_t *error);

/* ---- for operations that run ---------------------------------------------------------------- */

/* The collection as it is in this transaction, valid until the next change of the catalog; NULL
 * (with status OK): there is none. */
truce_status truce__writer_collection(struct writer *writer, const char *name,
                                      const struct collection **collection, bson_error_t *error);

/* The catalog was changed by this operation. */
void truce__writer_catalog_changed(struct writer *writer);

/* Rolls the savepoint back, and forgets what was known of what is undone. */
truce_status truce__writer_undo(struct writer *writer, bson_error_t *error);

/* The row and, until the next call, the document with that key of its _id, as this transaction sees
 * it; NOT_FOUND. */
truce_status truce__writer_look_up(struct writer *writer, const struct collection *collection,
                                   struct bytes key, int64_t *row, struct bytes *body,
                                   bson_error_t *error);

/* The document in the row was replaced; `before` NULL: inserted; `after` NULL: removed. */
void truce__writer_changed(struct writer *writer, const struct collection *collection, int64_t row,
                           const bson_t *before, const bson_t *after);

/* Documents of the collection were changed: who waits for it is woken after the commit. */
void truce__writer_touch(struct writer *writer, const char *collection);
/* The same of the structure: a collection was dropped, renamed or emptied, or an index dropped. */
void truce__writer_touch_structure(struct writer *writer);

/* What who has the turn does in it: for writer.c. */

#endif
