#ifndef TRUCE_ENGINE_ENGINE_H
#define TRUCE_ENGINE_ENGINE_H

/*
 * The embedded engine: collections of documents in one file, for any number of threads and
 * processes. The verbs have the contracts of the store's table of functions (truce/sys/store.h),
 * whose wrappers have checked the arguments; options are never NULL.
 */
#include "engine/checkpoint.h"
#include "engine/helpers.h"
#include "engine/hints.h"
#include "engine/readers.h"
#include "engine/snapshots.h"
#include "engine/writer.h"
#include "query/aggregate/aggregate.h"
#include "truce/sys/store.h"

struct engine {
    char *path;
    struct file_id file; /* what is there, for forks */
    bool read_only, relaxed;
    uint32_t deadline_ms; /* for operations that have none of their own */
    unsigned generation;  /* of forks, when it was opened */
    bool locked;          /* `lock` is open: always, but for a guest */
    struct lock lock;
    struct durable durable;
    struct kv *kv; /* the writer's connection; NULL if read_only */
    struct writer writer;
    /* The kinds of operations that this process executes for others, with NULL at the end. */
    const struct delegated_kind *const *kinds;
    uint64_t cache_bytes;    /* of documents and of the writer's pages, together, at most */
    struct cache *cache;     /* NULL if read_only; of a view: that of the engine that it is of */
    uint64_t cache_snapshot; /* of a view: its moment, as the cache counts it */
    struct hints *hints;     /* of a view: those of the engine */
    struct helpers *helpers; /* of a view: those of the engine */
    struct read_only_reader *read_only_reader; /* NULL: we may write what stands beside the file */
    struct readers readers;
    struct snapshots snapshots;
    unsigned *
        changes; /* of a view: the counters of changes (change_notify.h) from before its moment; NULL: unknown */
    struct snapshot *
        snapshot; /* of a view, which has nothing else that it could close; NULL: reads are of now */
    struct checkpointer checkpointer;
    const int *above;       /* the same, of the engine that a view is of */
    const int *interrupted; /* of the store, may be NULL; looked at by everything that takes long */
    atomic_uint ordinal;    /* of calls, for timestamps */
    /* where sorts go that do not fit into memory; NULL: nowhere */
    truce_status (*spill)(void *arg, struct spill **spill, bson_error_t *error);
};

/* Opens the file; see truce__engine_open (documents/document_store.h) for the arguments. `carries` lists
 * the kinds of operations that this process executes for other processes. `*engine` is NULL on failure. */
truce_status truce__engine_start(const char *path, const truce_store_options *options,
                                 const struct delegated_kind *const *kinds, struct engine **engine,
                                 bson_error_t *error);
void truce__engine_close(struct engine *engine);

/* The engine as it is now, kept: every read of the view is of this moment. It is read-only. Closed before
 * the engine. `limits` NULL: the engine's own. Of a view: another of the same moment. */
truce_status truce__engine_view(struct engine *engine, const struct snapshot_limits *limits,
                                struct engine **view, bson_error_t *error);

/* ---- for the parts of the engine ------------------------------------------------------------ */

/* Refuses every call of a forked child. */
truce_status truce__engine_usable(const struct engine *engine, bson_error_t *error);
/* The same, and refuses writes where they are not possible. */
truce_status truce__engine_writable(const struct engine *engine, bson_error_t *error);
/* deadline_ms 0: the engine's own */
int64_t truce__engine_deadline(const struct engine *engine, uint32_t deadline_ms);
/* A reader of now, all of it durable unless `early`; of a view, the one of its moment, for one thread at a
 * time. Given back soon, and not kept across a call of the engine. EXPIRED: the moment is over. */
truce_status truce__engine_read_begin(struct engine *engine, bool early, struct reader **reader,
                                      bson_error_t *error);
void truce__engine_read_end(struct engine *engine, struct reader *reader);
/* For the work of one call, besides waiting for locks; deadline_ms 0: as long as it takes. */
void truce__engine_budget(const struct engine *engine, uint32_t deadline_ms, struct budget *budget);
/* now, and an arena */
struct query_context truce__engine_context(struct engine *engine, struct arena *arena);

/* As truce__store_structure. */
uint64_t truce__engine_structure(struct engine *engine);
truce_status truce__engine_wait(struct engine *engine, const char *collection, uint64_t *token,
                                uint32_t timeout_ms, bson_error_t *error);

#endif
