#ifndef TRUCE_ENGINE_ENGINE_H
#define TRUCE_ENGINE_ENGINE_H

/*
 * The core of the embedded engine: one open file, for any number of threads and processes. The
 * operations on documents are in documents/open_documents.h.
 */
#include "engine/checkpoint.h"
#include "engine/helper_threads.h"
#include "engine/id_row_cache.h"
#include "engine/reader_pool.h"
#include "engine/snapshots.h"
#include "engine/writer.h"
#include "query/aggregate/aggregate.h"
#include "truce/sys/store.h"

struct engine {
    char *path;
    /* The identity of the file, which a forked child must not open (fork_guard.h). */
    struct file_id file;
    bool read_only, relaxed;
    /* The time that an operation without a deadline of its own may take. */
    uint32_t deadline_ms;
    /* The value of truce__forks() when the store was opened. If it differs, the call is in a forked
     * child. */
    uint32_t forks;
    /* Whether `lock` is open. It is, except for a read-only reader and a view. */
    bool locked;
    struct lock lock;
    struct durable durable;
    /* The writer's connection, or NULL for a read-only store. */
    struct kv *kv;
    /* A read-only store keeps this connection open while its process is present. Without any
     * connection, SQLite would truncate the index of the log when the next process opens it, and
     * the other processes would find that (file_identity.c). NULL if the files next to the store
     * are not writable. */
    struct kv *anchor;
    struct writer writer;
    /* The kinds of operations that this process executes for others, with NULL at the end. */
    const struct delegated_kind *const *kinds;
    /* The maximum memory in bytes for documents, the writer's pages, and the pages that the reading
     * connections share. */
    uint64_t cache_bytes;
    /* The cache of documents, or NULL for a read-only store. A view uses the cache of its
     * engine. */
    struct cache *cache;
    /* The number of a view's snapshot (truce__cache_snapshot). */
    uint64_t cache_snapshot;
    /* A view uses the hints of its engine. */
    struct hints *hints;
    /* The bodies that were valid, for all connections. NULL in a view, whose connection refers to
     * the bodies of its engine. */
    struct seen *seen;
    /* The pages that the reading connections share. NULL in a view, whose connection refers to the
     * pages of its engine. */
    struct page_cache *pages;
    /* The helper threads. A view uses the threads of its engine. */
    struct helpers *helpers;
    /* How to read without permission to write, or NULL if the files next to the store are
     * writable. */
    struct read_only_reader *read_only_reader;
    struct readers readers;
    struct snapshots snapshots;
    /* The counters of changes (change_notify.h) from before the snapshot of a view, or NULL if they
     * are unknown. */
    unsigned *changes;
    /* The snapshot of a view, which is the only part that closing a view ends. NULL in an engine,
     * whose reads use current data. */
    struct snapshot *snapshot;
    struct checkpointer checkpointer;
    /* In a view, the flag `interrupted` of its engine. */
    const int *above;
    /* The interrupt flag of the store, which all long work checks. May be NULL. */
    const int *interrupted;
    /* The number of calls so far, for the ordinals of timestamps. */
    atomic_uint ordinal;
    /* Opens temporary storage for a sort that does not fit into memory. NULL if such a sort must
     * fail. */
    truce_status (*spill)(void *arg, struct spill **spill, bson_error_t *error);
};

/* Opens the file; see truce__engine_open (documents/open_documents.h) for the arguments. `kinds`
 * lists the kinds of operations that this process executes for other processes. `*engine` is NULL
 * on failure. */
truce_status truce__engine_start(const char *path, const truce_store_options *options,
                                 const struct delegated_kind *const *kinds, struct engine **engine,
                                 bson_error_t *error);
/* Closes the engine or view. In a forked child, frees nothing of an engine. */
void truce__engine_close(struct engine *engine);

/* Returns a read-only view of the engine: every read of the view uses the same snapshot. It must be
 * closed before the engine. A limit of 0 is that of the engine. A view of a view has the same
 * snapshot. */
truce_status truce__engine_view(struct engine *engine, const struct snapshot_limits *limits,
                                struct engine **view, bson_error_t *error);

/* ---- for the other files of the engine ------------------------------------------------------ */

/* Refuses every call of a forked child. Also fails with CORRUPT as truce__lock_usable does. */
truce_status truce__engine_usable(const struct engine *engine, bson_error_t *error);
/* Does the same, and refuses writes to a read-only store. */
truce_status truce__engine_writable(const struct engine *engine, bson_error_t *error);
/* Returns the time (monotonic, in nanoseconds) until which a call may wait. If the deadline of the
 * thread (deadline.h) is earlier, it is returned, but at least DEADLINE_LEAST_NS from now. If an
 * earlier wait of the operation has failed (wait_limit.h), the time is over at once. If deadline_ms
 * is 0, the default of the engine applies. */
int64_t truce__engine_deadline(const struct engine *engine, uint32_t deadline_ms);
/* Returns a reader of current data, all of it durable unless `early`; for a view, the reader of its
 * snapshot, for one thread at a time. The caller ends the read soon and makes no other call to the
 * engine before that. Fails with EXPIRED if the snapshot has ended. */
truce_status truce__engine_read_begin(struct engine *engine, bool early, struct reader **reader,
                                      bson_error_t *error);
void truce__engine_read_end(struct engine *engine, struct reader *reader);
/* Initializes the budget for the work of one call, apart from waiting for locks. If deadline_ms is
 * 0, only the deadline of the thread (deadline.h) limits the work. */
void truce__engine_budget(const struct engine *engine, uint32_t deadline_ms, struct budget *budget);
/* Returns a context with the current time and the arena. */
struct query_context truce__engine_context(struct engine *engine, struct arena *arena);

/* Returns a counter of structural changes as truce__store_structure does. */
uint64_t truce__engine_structure(struct engine *engine);
/* Returns a number of the committed data as truce__store_version does. */
uint64_t truce__engine_version(struct engine *engine);
/* Has the contract of truce_wait. Also fails with INVALID for a read-only reader and for a view,
 * which have no lock file. */
truce_status truce__engine_wait(struct engine *engine, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error);

#endif
