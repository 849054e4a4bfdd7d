#ifndef TRUCE_STORE_H
#define TRUCE_STORE_H

/*
 * A store: collections of documents, with MongoDB's verbs and query language, wherever they are
 * kept.
 *
 *     file:PATH, or a bare path   the embedded store: one file, for several threads and processes
 *     mongodb://HOSTS/DATABASE    a MongoDB deployment, as libmongoc's URIs have it
 *     memory:                     a list of documents in this process: for tests and models
 *
 * Threads: a store may be used from any number of threads at once; a cursor by one at a time.
 *
 * Forks: a forked child cannot use its parent's stores, nor open a file that was open when it was forked
 * (INVALID). Fork first and open then, in each process, or start a program (exec, posix_spawn), which may
 * open any.
 *
 * Ownership: documents passed in stay the caller's and are copied where they are kept. A `bson_t *`
 * out parameter is always initialised, also on failure; the caller destroys it.
 *
 * Durability: when a write returns TRUCE_OK it is on disk (fsync), unless `relaxed` was asked for:
 * then a power cut may lose the last moments, whole writes only.
 *
 * Options are structs in which zero means default; NULL is all defaults.
 */
#include "truce/hooks.h"

TRUCE_BEGIN_DECLS

typedef struct truce_store truce_store;
typedef struct truce_cursor truce_cursor;

typedef struct truce_store_options {
    bool read_only;       /* every write is refused; the file must exist */
    bool must_exist;      /* do not create the file */
    bool relaxed;         /* default durability of every write */
    uint32_t deadline_ms; /* how long a call may wait for locks; 0: 30,000 */
    uint32_t
        snapshot_age_ms; /* of a cursor or snapshot that is open while others write; 0: 600,000 */
    /* Megabytes for documents and pages of a file, from 16 to 1,048,576. 0: as the environment's TRUCE_CACHE_MB says,
     * or a 64th of the machine's memory, not less than 64 and not more than 256. */
    uint32_t cache_mb;
    uint64_t snapshot_log_bytes; /* what they may write meanwhile; 0: 1 GiB. See truce/snapshot.h */
    const truce_store_hooks *hooks; /* messages and slow calls; copied. NULL: nothing is told */
    /* The database whose collections, queues, sequences and other names the store has: for a file or memory the same that
     * `truce serve` serves by this name. NULL: the store's own database, with those of others as "@school.students". For
     * mongodb:// the database may be named here instead of in the URI. */
    const char *database;
    uint64_t reserved[3]; /* zeros */
} truce_store_options;

/* Opens or creates. INVALID: the URI is wrong, the file has several names (hard links), or this is a
 * forked child (above); CORRUPT: the file is not ours, or newer than this library, or what stands beside
 * it belongs to another file; LOCKED: another process opens or closes it, or another program has it open
 * without its lock file; IO: the disk refuses; NOT_FOUND: must_exist and it does not. `*store` is NULL
 * on failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_store_open(const char *uri,
                                                          const truce_store_options *options,
                                                          truce_store **store, bson_error_t *error);

/* NULL is allowed. If cursors of it are open, they answer INVALID from now on, and the store itself is
 * closed with the last of them. */
TRUCE_EXPORT void truce_store_close(truce_store *store);

/* ---- reading ------------------------------------------------------------------------------- */

typedef struct truce_find_options {
    const bson_t *projection; /* MongoDB's */
    const bson_t *sort;   /* {a: 1, b: -1} or {$natural: 1}; without it the order is not defined */
    const bson_t *hint;   /* {key pattern}, {"": "index name"} or {$natural: 1}: the index to use;
                             a sparse or partial one hides the documents that it does not hold; a
                             wildcard one is used where it can serve the filter, else as if not named */
    int64_t skip, limit;  /* limit 0: all */
    uint32_t deadline_ms; /* 0: none */
    bool allow_disk_use;  /* large sorts may spill to temporary files */
    bool early;           /* what is found need not be on the disk yet. For a look that a
                             write follows, which waits for the disk; else truce_settle, before
                             anybody is told of what was found */
    bool backward;        /* without a sort: what stands last in the index that is used comes first,
                             where the store can. No more than a guess at it: for a search that goes
                             on from what it finds */
    bool plan_only;       /* explain: the plan alone, nothing is read */
    /* Only what has a key in the hint's index that is not less than `min` and is less than `max`, in the order of the index:
     * {field: value} of all its fields. Each document comes once, in the order of its least such key if there is no
     * sort. INVALID with MongoDB's codes: there is no hint (51173), it is {$natural} (291), they have not the fields of
     * the index (51174, 51176), nothing is between them (51175). NULL or {}: no end on that side. */
    const bson_t *min, *max;
    /* Not the document, nor a projection of it, but its key in the hint's index, {field: value}: of several the least, between
     * min and max. Without a hint it is in the index that a file uses. {}: there is none, or it is a wildcard. */
    bool return_key;
    /* {$recordId: number} is the last field of each: where the document stands in the order of insertion. It keeps it while
     * it is there; a later document may have it then. Not in a transaction (263), where what is new has none yet. */
    bool show_record_id;
    /* Of one document by its _id: a server that was deposed and does not know it yet does not answer (mongodb:// reads
     * linearizably). Slower: a replica set without other writes takes some 50 ms. For a protocol that acts on the answer
     * by a write that compares nothing. */
    bool latest;
    uint64_t reserved[1]; /* zeros */
} truce_find_options;

/* `filter` NULL or empty: all. A collection that does not exist is empty. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_find(truce_store *store, const char *collection,
                                                    const bson_t *filter,
                                                    const truce_find_options *options,
                                                    truce_cursor **cursor, bson_error_t *error);

/* `*document` is borrowed until the next call on the cursor, NULL at the end (status OK). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cursor_next(truce_cursor *cursor,
                                                           const bson_t **document,
                                                           bson_error_t *error);
TRUCE_EXPORT void truce_cursor_close(truce_cursor *cursor);

/* The first that matches; TRUCE_NOT_FOUND if none does (`document` is then empty). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_find_one(truce_store *store, const char *collection,
                                                        const bson_t *filter,
                                                        const truce_find_options *options,
                                                        bson_t *document, bson_error_t *error);

/* One document by its _id, for looks at several documents at once (sys/store.h, truce/commit.h). */
typedef struct truce_look {
    const char *collection;
    const bson_value_t *id;
    bson_t document; /* out: always initialised, empty if there is none; the caller destroys it */
    bool found;      /* out */
    uint64_t reserved[2]; /* zeros */
} truce_look;

typedef struct truce_count_options {
    const bson_t *hint;
    int64_t skip,
        limit; /* as if they had been found; a negative limit counts as its absolute value */
    uint32_t deadline_ms;
    uint64_t reserved[4]; /* zeros */
} truce_count_options;

TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_count(truce_store *store, const char *collection,
                                                     const bson_t *filter,
                                                     const truce_count_options *options,
                                                     int64_t *count, bson_error_t *error);

/* `values`: an array of the distinct values of a path, in the order of values; the elements of arrays
 * count one by one */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_distinct(truce_store *store, const char *collection,
                                                        const char *path, const bson_t *filter,
                                                        bson_t *values, bson_error_t *error);

typedef struct truce_aggregate_options {
    const bson_t *hint;
    uint32_t deadline_ms;
    bool allow_disk_use;  /* large sorts and groups may spill to temporary files */
    bool unvalidated;     /* $out and $merge pass by the validator, as of truce_write_options */
    uint64_t reserved[4]; /* zeros */
} truce_aggregate_options;

/* `pipeline` is an array of stages. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_aggregate(truce_store *store, const char *collection,
                                                         const bson_t *pipeline,
                                                         const truce_aggregate_options *options,
                                                         truce_cursor **cursor,
                                                         bson_error_t *error);

/* How a find would run, or a count, in the shape of MongoDB's explain ("executionStats": it is run). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_explain(truce_store *store, const char *collection,
                                                       const bson_t *filter,
                                                       const truce_find_options *options,
                                                       bson_t *plan, bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_explain_count(truce_store *store,
                                                             const char *collection,
                                                             const bson_t *filter,
                                                             const truce_count_options *options,
                                                             bson_t *plan, bson_error_t *error);

/* ---- writing ------------------------------------------------------------------------------- */

typedef struct truce_write_options {
    bool upsert;                 /* insert if nothing matches */
    bool multi;                  /* every document that matches, not the first; if one fails, those
                                    before it stay changed */
    bool pipeline;               /* `update` is an array of aggregation stages */
    const bson_t *array_filters; /* array of conditions for $[identifier] */
    const bson_t *hint;
    bool relaxed;     /* do not wait for the disk */
    bool unvalidated; /* pass by the collection's validator; a server may want a role for that */
    uint32_t
        deadline_ms; /* for waiting and working; 0: the store's for waiting, and no end of work */
    const bson_t *sort;   /* of an update without multi: the first that matches in this order is
                             changed; not in every store (truce/sys/store.h) */
    uint64_t reserved[3]; /* zeros */
} truce_write_options;

typedef struct truce_write_result {
    int64_t matched;  /* documents that the filter found */
    int64_t modified; /* of these, those that are different now */
    int64_t inserted;
    int64_t removed;
    bool upserted;            /* nothing matched, one was inserted: */
    bson_value_t upserted_id; /* its _id; type 0 if none. truce_write_result_release frees it */
    uint64_t reserved[4];     /* zeros */
} truce_write_result;

TRUCE_EXPORT void truce_write_result_release(truce_write_result *result);

/* `result` may be NULL everywhere. A document without _id gets an ObjectId as its first field; to
 * know it, put one in yourself. DUPLICATE: a unique key is taken (error->message names it). UNKNOWN, of every write: a
 * server did not answer, or another process, which was carrying the write out, was stopped over it (docs/store.md). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_insert(truce_store *store, const char *collection,
                                                      const bson_t *document,
                                                      const truce_write_options *options,
                                                      bson_error_t *error);

/* A write of documents needs a filter: without one it is INVALID; {} stands for every document.
 * `update`: operators, a replacement document, or (options->pipeline) an array of stages. Nothing
 * matched is TRUCE_OK with result->matched == 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_update(truce_store *store, const char *collection,
                                                      const bson_t *filter, const bson_t *update,
                                                      const truce_write_options *options,
                                                      truce_write_result *result,
                                                      bson_error_t *error);

/* The first that matches, or all with options->multi. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_remove(truce_store *store, const char *collection,
                                                      const bson_t *filter,
                                                      const truce_write_options *options,
                                                      truce_write_result *result,
                                                      bson_error_t *error);

typedef struct truce_modify_options {
    const bson_t *sort, *projection, *hint;
    bool remove;     /* `update` is NULL */
    bool return_new; /* the document after the change, not before */
    bool upsert, pipeline, relaxed;
    bool unvalidated; /* as of truce_write_options */
    const bson_t *array_filters;
    uint32_t deadline_ms;
    struct truce_receipt *receipt; /* what is written along with it (truce/sys/store.h); only with
                                      TRUCE_CAN_RECEIPT. NULL: nothing */
    uint64_t reserved[3];          /* zeros */
} truce_modify_options;

/* Find-and-modify: one atomic step. `document` is the old one (or the new one); empty if there was
 * none. TRUCE_NOT_FOUND: nothing matched and nothing was upserted. `result` may be NULL; a store that is
 * a server may not tell whether the document was modified, and says so then (sys/store.h). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_find_and_modify(truce_store *store, const char *collection, const bson_t *filter,
                      const bson_t *update, const truce_modify_options *options, bson_t *document,
                      truce_write_result *result, bson_error_t *error);

/* ---- bulk ---------------------------------------------------------------------------------- */

typedef enum truce_write_kind {
    TRUCE_WRITE_INSERT = 1, /* document */
    TRUCE_WRITE_UPDATE,     /* filter, document (operators, replacement or stages), options */
    TRUCE_WRITE_REMOVE,     /* filter, options.multi */
    TRUCE_WRITE_REQUIRE, /* filter: atomic only; a guard without a change: one must match, or ... */
    TRUCE_WRITE_REQUIRE_MISSING, /* ... none may */
    TRUCE_WRITE_LOOK, /* as REQUIRE, but where the store keeps snapshots apart, a change that somebody
                         makes beside the bulk is in nobody's way, and is not seen by it */
} truce_write_kind;

typedef struct truce_write {
    truce_write_kind kind;
    const char *collection;
    const bson_t *filter, *document;
    truce_write_options options; /* relaxed and deadline_ms of the bulk count, not of its writes */
    const bson_t
        *exact; /* update, remove, require: what matches must be these bytes besides; NULL: no
                            matter. Only with TRUCE_CAN_COMPARE (sys/store.h) */
    bool
        in_parts; /* update: the whole document stands for changes of parts of it, and what follows the
                      store (change streams) is told these */
    uint64_t reserved[1]; /* zeros */
} truce_write;

typedef struct truce_write_outcome {
    truce_status status;
    truce_write_result result;
    bson_error_t error;
    uint64_t reserved[2]; /* zeros */
} truce_write_outcome;

typedef struct truce_bulk_options {
    bool unordered; /* go on after a failure */
    bool atomic;    /* all or none, and every update and remove must match exactly what it says it
                       matches: at least one document, or all is refused with TRUCE_CONFLICT */
    bool relaxed;
    bool
        early; /* what is written need not be on the disk yet when the call returns, and nobody finds it
                   before it is (but by an early look); truce_settle, before anybody is told */
    uint32_t deadline_ms;
    const struct truce_read_checks
        *checks;                   /* what must stand as it was read (truce/sys/store.h); only
                                          with `atomic` and TRUCE_CAN_CHECK. NULL: nothing */
    struct truce_receipt *receipt; /* what is written along with it (truce/sys/store.h); only with
                                      TRUCE_CAN_RECEIPT, and not `atomic`. NULL: nothing */
    bool
        joined; /* updates (no `multi`, no `upsert`) that stand side by side and go to one collection may be
                    one message to a server, and removes, too. A server tells how many of them changed a
                    document, not which: if one did not, `matched` is 0 for each */
    uint64_t reserved[1]; /* zeros */
} truce_bulk_options;

/* Does writes[0..count) in order, of any collections. `outcomes` has room for `count`; each is
 * initialised; truce_write_result_release each. Writes that were not reached have TRUCE_CONFLICT if
 * atomic, TRUCE_NOT_FOUND otherwise, and no error text. Returns the first failure's status. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_bulk(truce_store *store, const truce_write *writes,
                                                    size_t count, const truce_bulk_options *options,
                                                    truce_write_outcome *outcomes,
                                                    bson_error_t *error);

/* ---- collections and indexes --------------------------------------------------------------- */

/* MongoDB's form: {key: {a: 1, b: -1}, name, unique, sparse, partialFilterExpression,
 * expireAfterSeconds, hidden}. Existing with the same definition: OK. A hidden index is kept as any other, what is unique
 * stays so and what expires is removed, but no query uses it, and a hint for it is refused: to see how it would be
 * without the index before it is dropped. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_create(truce_store *store,
                                                            const char *collection,
                                                            const bson_t *index,
                                                            bson_error_t *error);
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_drop(truce_store *store,
                                                          const char *collection, const char *name,
                                                          bson_error_t *error);
/* {hidden: true or false, expireAfterSeconds}, one of them or both; the keys stay. NOT_FOUND (code 26 or 27): there is no such
 * collection or index. INVALID: something else is changed (72), the index is that of _id (2; 72 for expireAfterSeconds), or has
 * several fields or a wildcard, so that its documents cannot expire (72). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_modify(truce_store *store,
                                                            const char *collection,
                                                            const char *name, const bson_t *changes,
                                                            bson_error_t *error);
/* `indexes`: an array of definitions, _id's first */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_list(truce_store *store,
                                                          const char *collection, bson_t *indexes,
                                                          bson_error_t *error);

TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_create(truce_store *store,
                                                                 const char *collection,
                                                                 bson_error_t *error);
/* NOT_FOUND: there is none */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_drop(truce_store *store,
                                                               const char *collection,
                                                               bson_error_t *error);
/* DUPLICATE (code 48): `to` exists, and `drop_target` is false */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_rename(truce_store *store,
                                                                 const char *from, const char *to,
                                                                 bool drop_target,
                                                                 bson_error_t *error);
/* What is written from now on, documents that are inserted or changed, has to match `validator`, a filter
 * (NULL or {}: anything does); else its write is refused as INVALID, with MongoDB's code 121. What stands
 * there is not looked at before somebody changes it. At a server it is the collection's validator.
 * NOT_FOUND: there is no such collection. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_validate(truce_store *store,
                                                                   const char *collection,
                                                                   const bson_t *validator,
                                                                   bson_error_t *error);
typedef struct truce_list_options {
    const char *collection; /* only this one, if it is there; NULL: all */
    bool
        unmeasured; /* without documents, bytes and indexes, which take a walk through everything */
    bool pages;     /* with storage, unused and indexBytes of a file, which take another one */
    bool uuids;     /* with the uuid of each, of a file */
    uint64_t reserved[2]; /* zeros */
} truce_list_options;

/* `collections`: an array of {name, documents, bytes, indexes, storage?, unused?, indexBytes?, validator?, images?, uuid?} by name. images:
 * true: its changes keep documents as they were. uuid: a binary that stays as long as the collection is there, whatever its name. storage, unused, indexBytes: bytes of pages of a file. `options` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_list(truce_store *store,
                                                               const truce_list_options *options,
                                                               bson_t *collections,
                                                               bson_error_t *error);

/* Removes documents that an index with expireAfterSeconds says are too old: those with a date at the
 * index's path (or in an array there) that lies further back. MongoDB does so by itself once a
 * minute; an embedded store does it when it is called, and `truce sweep` calls it. `guard` (NULL:
 * none) must match a document too. At most `limit` documents, 0: all. `*removed` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_store_expire(truce_store *store, const bson_t *guard,
                                                            int64_t limit, int64_t *removed,
                                                            bson_error_t *error);

/* Returns when everything that was found `early` until now is on the disk. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_settle(truce_store *store, bson_error_t *error);

/* ---- wake-up ------------------------------------------------------------------------------- */

/* Waits until something was written to the collection (by any process) since `*token` was filled,
 * or the time is over (TRUCE_TIMEOUT). Start with a token of 0, which returns at once. May wake
 * without a change, never misses one. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_wait(truce_store *store, const char *collection,
                                                    uint64_t *token, uint32_t timeout_ms,
                                                    bson_error_t *error);

/* ---- ending calls --------------------------------------------------------------------------- */

/* Ends what runs on the store, from any thread or from a signal handler, and returns at once. Calls
 * that read or write documents, cursors that are asked for more, and waits end with TRUCE_TIMEOUT and
 * MongoDB's code 11601 (Interrupted), as if their deadline had passed: what so ends has changed
 * nothing. A view ends with the store that it was taken of. A call that is about to commit, or waits
 * for a server, ends with its own answer. The same is said to every call that begins afterwards, until
 * truce_resume: so a loop of calls ends, too. Closing cursors and the store, and calls for collections
 * and indexes, are not refused; a build of an index that takes long ends. A commit of several documents
 * that is cut off so is what a process that dies leaves: whoever meets it finishes or undoes it. */
TRUCE_EXPORT void truce_interrupt(truce_store *store);
/* Takes it back: calls that begin from now on run. Call it when those that were to end have. */
TRUCE_EXPORT void truce_resume(truce_store *store);

/* Until truce_deadline_end, whatever this thread does on any store ends by then (TRUCE_TIMEOUT, code 50; waiting
 * for a lock: TRUCE_LOCKED), the calls that have no deadline in their options included: truce_index_create,
 * truce_distinct, truce_check, ordered sets. Of this and a call's own deadline the earlier one counts; a
 * cursor keeps the one that it was opened under. 0: as it is. What it gives back is truce_deadline_end's. */
TRUCE_EXPORT TRUCE_MUST_USE int64_t truce_deadline_begin(uint32_t deadline_ms);
TRUCE_EXPORT void truce_deadline_end(int64_t before);

/* ---- what it cost --------------------------------------------------------------------------- */

typedef struct truce_store_counters {
    uint64_t round_trips; /* messages to a server, each of which waited for an answer (or its loss);
                             not those that only watch the server. A store without a server: 0 */
    /* of a file; of others 0 */
    uint64_t writes; /* calls that wrote, one of a bulk being one */
    uint64_t
        syncs; /* times that the disk was waited for: one serves all calls that wait just then */
    uint64_t log_bytes;   /* in the log beside the file now, by whatever process */
    uint64_t reserved[1]; /* zeros */
} truce_store_counters;

/* Of this handle, by all threads, since it was opened. */
TRUCE_EXPORT void truce_store_count(truce_store *store, truce_store_counters *counters);

TRUCE_END_DECLS

#endif
