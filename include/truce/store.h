#ifndef TRUCE_STORE_H
#define TRUCE_STORE_H

/*
 * A store: collections of documents with MongoDB's query language.
 *
 * The URI selects where the documents are kept:
 *
 *     file:PATH, or a bare path   the embedded store: one file, for several threads and processes
 *     mongodb://HOSTS/DATABASE    a MongoDB deployment, as libmongoc's URIs have it
 *     memory:                     a list of documents in this process, for tests and models
 *
 * Threads: any number of threads may share a store. One thread at a time may use a cursor.
 *
 * Forks: a forked child cannot use its parent's stores, nor their cursors, commits, and handles of
 * patterns. It cannot open a file that was open at the fork. All of these calls fail with
 * TRUCE_INVALID; closing and freeing is safe there, and does not affect the parent. Fork first and
 * then open the store in each process, or start a program (exec, posix_spawn), which may open any
 * file. A fork waits up to 2 seconds for threads that are opening a file. After that, the child
 * opens no file. libmongoc and OpenSSL do not support a child if threads of the parent used them at
 * the fork.
 *
 * Ownership: documents that are passed in remain the caller's; truce copies what it keeps. A
 * `bson_t *` out parameter is always initialized, also on failure. The caller destroys it.
 *
 * Durability: when a write returns TRUCE_OK, it is on disk (fsync). If `relaxed` was requested, a
 * power cut may lose the most recent writes, whole writes only.
 *
 * Options are structs in which zero means the default. NULL means all defaults.
 *
 * NULL: handles (stores, cursors, commits, and the handles of patterns) must not be NULL. Any other
 * argument that a call needs and that is NULL fails with TRUCE_INVALID, and the error names it; a
 * call that returns no status does nothing. An out parameter that may be NULL says so.
 */
#include "truce/hooks.h"

TRUCE_BEGIN_DECLS

typedef struct truce_store truce_store;
typedef struct truce_cursor truce_cursor;

typedef struct truce_store_options {
    /* Every write fails. The file must exist. */
    bool read_only;
    /* Do not create the file. */
    bool must_exist;
    /* The default durability of every write. */
    bool relaxed;
    /* The maximum time in ms that a call waits for locks. 0 means 30,000. */
    uint32_t deadline_ms;
    /* The maximum age in ms of a cursor or snapshot while other clients write. 0 means 600,000. */
    uint32_t snapshot_age_ms;
    /* Megabytes for documents and pages of a file, from 16 to 1,048,576. 0 means the value of the
     * environment variable TRUCE_CACHE_MB, or 1/64 of the machine's memory, at least 64 and at most
     * 256. */
    uint32_t cache_mb;
    /* The maximum of log bytes that may be written while a cursor or snapshot is open. 0 means
     * 1 GiB. See truce/snapshot.h. */
    uint64_t snapshot_log_bytes;
    /* Hooks for messages and slow calls; copied. NULL means that nothing is reported. */
    const truce_store_hooks *hooks;
    /* The database of the collections, queues, sequences, and other names. For a file or memory, it
     * is the database that `truce serve` serves by this name. NULL means the store's own
     * database, in which the collections of other databases are visible as "@school.students". For
     * mongodb://, the database may be named here instead of in the URI. */
    const char *database;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_store_options;

/*
 * Opens a store, or creates it. On failure, `*store` is NULL.
 *
 *     TRUCE_INVALID     the URI is malformed, the file has several names (hard links), or this
 *                       process is a forked child (see above)
 *     TRUCE_CORRUPT     the file is not a truce store, is newer than this library, or the log or
 *                       lock file next to it belongs to another store
 *     TRUCE_LOCKED      another process is opening or closing the store, or a program has the
 *                       file open without its lock file
 *     TRUCE_IO          the disk refused an operation
 *     TRUCE_NOT_FOUND   `must_exist` is set and the file does not exist
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_store_open(const char *uri,
                                                          const truce_store_options *options,
                                                          truce_store **store, bson_error_t *error);

/* Closes the store. NULL is allowed. If cursors of the store are open, they fail with TRUCE_INVALID
 * after this, and closing the last of them frees the store. */
TRUCE_EXPORT void truce_store_close(truce_store *store);

/* ---- reading ------------------------------------------------------------------------------ */

typedef struct truce_find_options {
    /* A projection as in MongoDB. */
    const bson_t *projection;
    /* {a: 1, b: -1} or {$natural: 1}. Without it, the order is that of the index that the find
     * uses, or that of insertion. Another index can change it. */
    const bson_t *sort;
    /* The index to use: {key pattern}, {"": "index name"}, or {$natural: 1}. A sparse or partial
     * index hides the documents that it does not contain. A wildcard index is used if it can serve
     * the filter; otherwise the hint is ignored. */
    const bson_t *hint;
    /* A `limit` of 0 returns all documents. */
    int64_t skip, limit;
    /* The deadline of the call. 0 means no deadline. */
    uint32_t deadline_ms;
    /* Large sorts may spill to temporary files. */
    bool allow_disk_use;
    /* Documents may be returned before they are on disk. Use it if a write that waits for the disk
     * follows. Otherwise call truce_settle before you report the result to others. */
    bool early;
    /* Without a sort: return the last documents of the index in use first, if the store can. The
     * order is only a hint, for a search that continues from its result. */
    bool backward;
    /* For explain: return only the plan and read nothing. */
    bool plan_only;
    /*
     * Returns only documents with a key in the hint's index that is at least `min` and less than
     * `max`, in index order. Both have the form {field: value}, with all fields of the index. Each
     * document is returned once, in the order of its least such key if there is no sort. NULL or
     * {} means no bound on that side. The call fails with TRUCE_INVALID, with MongoDB's codes:
     *
     *     51173          the hint is missing
     *     291            the hint is {$natural}
     *     51174, 51176   the fields are not those of the index
     *     51175          no key is between the bounds
     */
    const bson_t *min, *max;
    /* Returns the key in the hint's index, {field: value}, instead of the document or its
     * projection. If a document has several keys between `min` and `max`, the least one is
     * returned. Without a hint, it is the key in the index that a file uses. {} means that no index
     * is used, or that the index is a wildcard index. */
    bool return_key;
    /* Adds {$recordId: number} as the last field of each document: its position in insertion order.
     * The number is stable while the document exists; a later document may reuse it. In a
     * transaction the call fails (263), because new documents do not have a number yet. */
    bool show_record_id;
    /* For one document by its _id: never return data of a server that is no longer the primary
     * (mongodb:// reads linearizably). It is slower: a replica set without other writes takes about
     * 50 ms. Set it if a later write depends on this result but does not itself check that the
     * document is unchanged. */
    bool latest;
    /* Must be zero. */
    uint64_t reserved[1];
} truce_find_options;

/* Finds the documents that match `filter`; NULL or an empty filter matches all. A collection that
 * does not exist is empty. The caller closes the cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_find(truce_store *store, const char *collection,
                                                    const bson_t *filter,
                                                    const truce_find_options *options,
                                                    truce_cursor **cursor, bson_error_t *error);

/* Advances the cursor. `*document` is borrowed until the next call on the cursor. At the end it is
 * NULL, and the status is TRUCE_OK. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_cursor_next(truce_cursor *cursor,
                                                           const bson_t **document,
                                                           bson_error_t *error);
/* Closes the cursor and frees it. */
TRUCE_EXPORT void truce_cursor_close(truce_cursor *cursor);

/* Returns the first document that matches. If none does, the call fails with TRUCE_NOT_FOUND and
 * `document` is empty. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_find_one(truce_store *store, const char *collection,
                                                        const bson_t *filter,
                                                        const truce_find_options *options,
                                                        bson_t *document, bson_error_t *error);

/* A read of one document by its _id, for calls that read several documents together
 * (truce/sys/store.h, truce/commit.h). */
typedef struct truce_read_request {
    const char *collection;
    const bson_value_t *id;
    /* Out: always initialized, empty if the document does not exist. The caller destroys it. */
    bson_t document;
    /* Out: the document exists. */
    bool found;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_read_request;

typedef struct truce_count_options {
    const bson_t *hint;
    /* The documents to skip, and the maximum of the count. 0 means no maximum, and a negative limit
     * means its absolute value. */
    int64_t skip, limit;
    uint32_t deadline_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_count_options;

/* Counts the documents that match `filter`. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_count(truce_store *store, const char *collection,
                                                     const bson_t *filter,
                                                     const truce_count_options *options,
                                                     int64_t *count, bson_error_t *error);

/* Returns an array of the distinct values of a path, in the order of values. Elements of arrays
 * count individually. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_distinct(truce_store *store, const char *collection,
                                                        const char *path, const bson_t *filter,
                                                        bson_t *values, bson_error_t *error);

typedef struct truce_aggregate_options {
    const bson_t *hint;
    uint32_t deadline_ms;
    /* Large sorts and groups may spill to temporary files. */
    bool allow_disk_use;
    /* $out and $merge bypass the validator, as in truce_write_options. */
    bool unvalidated;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_aggregate_options;

/* Runs an aggregation. `pipeline` is an array of stages. The caller closes the cursor. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_aggregate(truce_store *store, const char *collection,
                                                         const bson_t *pipeline,
                                                         const truce_aggregate_options *options,
                                                         truce_cursor **cursor,
                                                         bson_error_t *error);

/* Explains how a find runs, in the form of MongoDB's explain ("executionStats": the find is
 * executed). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_explain(truce_store *store, const char *collection,
                                                       const bson_t *filter,
                                                       const truce_find_options *options,
                                                       bson_t *plan, bson_error_t *error);
/* Explains how a count runs, in the same form. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_explain_count(truce_store *store,
                                                             const char *collection,
                                                             const bson_t *filter,
                                                             const truce_count_options *options,
                                                             bson_t *plan, bson_error_t *error);

/* ---- writing ------------------------------------------------------------------------------ */

typedef struct truce_write_options {
    /* Insert a document if nothing matches. */
    bool upsert;
    /* Change every document that matches, not only the first. If one fails, the documents changed
     * before it stay changed. */
    bool multi;
    /* `update` is an array of aggregation stages. */
    bool pipeline;
    /* An array of conditions for $[identifier]. */
    const bson_t *array_filters;
    const bson_t *hint;
    /* Do not wait for the disk. */
    bool relaxed;
    /* Bypass the validator of the collection. A server may require a role for this. */
    bool unvalidated;
    /* Limits waiting and work. 0 means the store's deadline for waiting, and no limit for work. */
    uint32_t deadline_ms;
    /* For an update without `multi`: change the first document in this order. Not every store
     * supports it (truce/sys/store.h). */
    const bson_t *sort;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_write_options;

typedef struct truce_write_result {
    /* Documents that matched the filter. */
    int64_t matched;
    /* Matched documents that the write changed. */
    int64_t modified;
    int64_t inserted;
    int64_t removed;
    /* Nothing matched, and a document was inserted. */
    bool upserted;
    /* The _id of the inserted document. Its type is 0 if nothing was inserted.
     * truce_write_result_release frees it. */
    bson_value_t upserted_id;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_write_result;

/* Frees the contents of a result. */
TRUCE_EXPORT void truce_write_result_release(truce_write_result *result);

/*
 * Inserts a document. Without an _id, the document gets an ObjectId as its first field; to know the
 * _id, set it yourself. If a unique key exists, the insert fails with TRUCE_DUPLICATE, and
 * error->message names the key.
 *
 * If the outcome of a write is unknown, every write call fails with TRUCE_UNKNOWN. Either a server
 * did not reply, or another process that executed the write for this one stalled or died
 * (docs/store.md). `result` may be NULL in all calls.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_insert(truce_store *store, const char *collection,
                                                      const bson_t *document,
                                                      const truce_write_options *options,
                                                      bson_error_t *error);

/* Updates documents. A write requires a filter: without one it fails with TRUCE_INVALID; {} matches
 * every document. `update` contains operators, is a replacement document, or (options->pipeline) is
 * an array of stages. If nothing matches, the call returns TRUCE_OK with result->matched == 0. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_update(truce_store *store, const char *collection,
                                                      const bson_t *filter, const bson_t *update,
                                                      const truce_write_options *options,
                                                      truce_write_result *result,
                                                      bson_error_t *error);

/* Removes the first document that matches, or all of them with options->multi. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_remove(truce_store *store, const char *collection,
                                                      const bson_t *filter,
                                                      const truce_write_options *options,
                                                      truce_write_result *result,
                                                      bson_error_t *error);

typedef struct truce_modify_options {
    const bson_t *sort, *projection, *hint;
    /* Remove the document; `update` is NULL. */
    bool remove;
    /* Return the document after the change instead of before it. */
    bool return_new;
    /* These options mean what they mean in truce_write_options. */
    bool upsert, pipeline, relaxed;
    bool unvalidated;
    const bson_t *array_filters;
    /* The deadline of the call in ms. 0 means that of the store. */
    uint32_t deadline_ms;
    /* A document that is written in the same step (truce/sys/store.h). Requires TRUCE_CAN_RECEIPT.
     * NULL means none. */
    struct truce_receipt *receipt;
    /* Must be zero. */
    uint64_t reserved[3];
} truce_modify_options;

/* Finds and changes one document in one atomic step. `document` receives the old document, or the
 * new one; without one, it is empty. If nothing matched and nothing was upserted, the call fails
 * with TRUCE_NOT_FOUND. `result` may be NULL. A server may not report whether the document was
 * modified (TRUCE_CAN_REPORT_MODIFIED in sys/store.h). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status
truce_find_and_modify(truce_store *store, const char *collection, const bson_t *filter,
                      const bson_t *update, const truce_modify_options *options, bson_t *document,
                      truce_write_result *result, bson_error_t *error);

/* ---- bulk --------------------------------------------------------------------------------- */

typedef enum truce_write_kind {
    /* Uses document. */
    TRUCE_WRITE_INSERT = 1,
    /* Uses filter, document (operators, replacement, or stages), and options. */
    TRUCE_WRITE_UPDATE,
    /* Uses filter and options.multi. */
    TRUCE_WRITE_REMOVE,
    /* Uses filter; atomic bulks only. A guard without a change: at least one document must
     * match. */
    TRUCE_WRITE_REQUIRE,
    /* Uses filter; atomic bulks only. A guard without a change: no document may match. */
    TRUCE_WRITE_REQUIRE_MISSING,
    /* As TRUCE_WRITE_REQUIRE, but in a store with snapshot isolation, a concurrent change of the
     * document is not a conflict and is not visible to the bulk. */
    TRUCE_WRITE_REQUIRE_IN_SNAPSHOT,
} truce_write_kind;

typedef struct truce_write {
    truce_write_kind kind;
    const char *collection;
    const bson_t *filter, *document;
    /* `relaxed` and `deadline_ms` are taken from the bulk, not from its writes. */
    truce_write_options options;
    /* For update, remove, and require: the matching document must also consist of exactly these
     * bytes. NULL means any. Requires TRUCE_CAN_COMPARE (sys/store.h). */
    const bson_t *exact;
    /* For update: the whole document represents changes of parts of it, and change streams report
     * the parts. */
    bool in_parts;
    /* Must be zero. */
    uint64_t reserved[1];
} truce_write;

typedef struct truce_write_outcome {
    truce_status status;
    truce_write_result result;
    bson_error_t error;
    uint64_t reserved[2]; /* Must be zero. */
} truce_write_outcome;

typedef struct truce_bulk_options {
    /* Continue after a failure. */
    bool unordered;
    /* All writes or none. Every update and remove must match at least one document; otherwise the
     * whole bulk fails with TRUCE_CONFLICT. */
    bool atomic;
    /* Do not wait for the disk. */
    bool relaxed;
    /* The call may return before the writes are on disk. Only reads with `early` find them before
     * that. Call truce_settle before you report the result to others. */
    bool early;
    /* The deadline of the call in ms. 0 means that of the store. */
    uint32_t deadline_ms;
    /* Reads that must still hold (truce/sys/store.h). Requires `atomic` and TRUCE_CAN_CHECK. NULL
     * means none. */
    const struct truce_read_checks *checks;
    /* A document that is written in the same step (truce/sys/store.h). Requires TRUCE_CAN_RECEIPT,
     * and not `atomic`. NULL means none. */
    struct truce_receipt *receipt;
    /* Consecutive updates of one collection (without `multi` and `upsert`), and consecutive
     * removes, may be sent to a server as one message. The server reports how many of them changed
     * a document, but not which. If one did not, `matched` is 0 for each. */
    bool joined;
    /* Must be zero. */
    uint64_t reserved[1];
} truce_bulk_options;

/* Executes writes[0..count) in order, of any collections. `outcomes` has room for `count` elements.
 * Each is initialized; free each with truce_write_result_release. Writes that were not reached have
 * the status TRUCE_CONFLICT in an atomic bulk, otherwise TRUCE_NOT_FOUND, and no error message.
 * Returns the status of the first failure. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_bulk(truce_store *store, const truce_write *writes,
                                                    size_t count, const truce_bulk_options *options,
                                                    truce_write_outcome *outcomes,
                                                    bson_error_t *error);

/* ---- collections and indexes -------------------------------------------------------------- */

/*
 * Creates an index. `index` has MongoDB's form: {key: {a: 1, b: -1}, name, unique, sparse,
 * partialFilterExpression, expireAfterSeconds, hidden}. If the index exists with the same
 * definition, the call returns TRUCE_OK.
 *
 * A hidden index is maintained: its unique keys stay unique and its documents expire. But no query
 * uses it, and a hint for it is refused. Hide an index to try how queries perform without it before
 * you drop it.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_create(truce_store *store,
                                                            const char *collection,
                                                            const bson_t *index,
                                                            bson_error_t *error);
/* Drops an index. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_drop(truce_store *store,
                                                          const char *collection, const char *name,
                                                          bson_error_t *error);
/*
 * Changes an index: {hidden: true or false, expireAfterSeconds}, one of them or both. The keys
 * stay.
 *
 *     TRUCE_NOT_FOUND (26, 27)   the collection or the index does not exist
 *     TRUCE_INVALID (72)         `changes` has another field, or the index cannot expire documents:
 *                                it has several fields or a wildcard, or is that of _id
 *     TRUCE_INVALID (2)          `changes` hides the index of _id
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_modify(truce_store *store,
                                                            const char *collection,
                                                            const char *name, const bson_t *changes,
                                                            bson_error_t *error);
/* Returns an array of index definitions, beginning with that of _id. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_index_list(truce_store *store,
                                                          const char *collection, bson_t *indexes,
                                                          bson_error_t *error);

/* Creates an empty collection. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_create(truce_store *store,
                                                                 const char *collection,
                                                                 bson_error_t *error);
/* Drops a collection. If it does not exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_drop(truce_store *store,
                                                               const char *collection,
                                                               bson_error_t *error);
/* Renames a collection. If `to` exists and `drop_target` is false, the call fails with
 * TRUCE_DUPLICATE (code 48). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_rename(truce_store *store,
                                                                 const char *from, const char *to,
                                                                 bool drop_target,
                                                                 bson_error_t *error);
/* Sets the validator of a collection: a filter that every inserted or changed document must match
 * (NULL or {} means none). A write of any other document fails with TRUCE_INVALID and MongoDB's
 * code 121. Stored documents are not checked until they are changed. On a server, it becomes the
 * collection's validator. If the collection does not exist, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_validate(truce_store *store,
                                                                   const char *collection,
                                                                   const bson_t *validator,
                                                                   bson_error_t *error);
typedef struct truce_list_options {
    /* Only this collection, if it exists. NULL means all. */
    const char *collection;
    /* Omit documents, bytes, and indexes, which require a scan of all data. */
    bool unmeasured;
    /* Include storage, unused, and indexBytes of a file, which require another scan. */
    bool pages;
    /* Include the uuid of each collection of a file. */
    bool uuids;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_list_options;

/*
 * Returns an array of collections, ordered by name. `options` may be NULL. An element has the form
 * {name, documents, bytes, indexes, storage?, unused?, indexBytes?, validator?, images?, uuid?}:
 *
 *     images                        true: changes record the documents before the change
 *     uuid                          a binary that identifies the collection, also after a rename
 *     storage, unused, indexBytes   bytes of pages of a file
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_collection_list(truce_store *store,
                                                               const truce_list_options *options,
                                                               bson_t *collections,
                                                               bson_error_t *error);

/* Removes the documents that are expired by an index with expireAfterSeconds: the indexed field is,
 * or contains, an older date. A MongoDB server does this itself once a minute. An embedded store
 * does it in this call, and `truce sweep` calls it. A document must also match `guard` (NULL means
 * no guard). At most `limit` documents are removed (0 means all). `removed` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_store_expire(truce_store *store, const bson_t *guard,
                                                            int64_t limit, int64_t *removed,
                                                            bson_error_t *error);

/* Waits until all earlier reads and writes with `early` are durable. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_settle(truce_store *store, bson_error_t *error);

/* ---- wake-up ------------------------------------------------------------------------------- */

/* Waits until any process has written to the collection since `*token` was filled. If nothing is
 * written in time, the call fails with TRUCE_TIMEOUT. Start with a token of 0, with which the call
 * returns immediately. The call may return without a change, but never misses one. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_wait(truce_store *store, const char *collection,
                                                    uint64_t *token, uint32_t timeout_ms,
                                                    bson_error_t *error);

/* ---- ending calls ------------------------------------------------------------------------- */

/*
 * Ends the calls that run on the store. The call itself returns immediately; any thread or a signal
 * handler may make it. Calls that read or write documents, steps of open cursors, and waits fail
 * with TRUCE_TIMEOUT and MongoDB's code 11601 (Interrupted). As after a passed deadline, they have
 * no effect. A view ends with its store. A call that has committed, or waits for a server, ends
 * with its own result.
 *
 * Until truce_resume, every later call fails in the same way, so a loop of calls also ends. Closing
 * cursors and the store, and calls for collections and indexes, are not refused, but a long index
 * build ends.
 *
 * A commit of several documents that is interrupted leaves the same state as a process that dies.
 * The next process that encounters it cleans up. The status of the commit says in which way:
 *
 *     TRUCE_TIMEOUT   the commit was not decided: it has no effect, and is undone
 *     TRUCE_OK        the commit was decided before the interrupt: it is completed
 *     TRUCE_UNKNOWN   a server did not reply to the decision: it is completed or undone
 */
TRUCE_EXPORT void truce_interrupt(truce_store *store);
/* Ends the interruption: later calls run. Call it after the interrupted calls have returned. */
TRUCE_EXPORT void truce_resume(truce_store *store);

/* Sets a deadline for all calls of this thread, on any store, until truce_deadline_end. A call
 * that exceeds it fails with TRUCE_TIMEOUT (code 50), or with TRUCE_LOCKED if it waits for a
 * lock. The deadline also covers calls without a deadline of their own: truce_index_create,
 * truce_distinct, truce_check, ordered sets. If a call has its own deadline, the earlier one
 * counts. A cursor keeps the deadline under which it was opened. 0 changes nothing. Pass the
 * result to truce_deadline_end. */
TRUCE_EXPORT TRUCE_MUST_USE int64_t truce_deadline_begin(uint32_t deadline_ms);
/* Restores the deadline that was valid before truce_deadline_begin. */
TRUCE_EXPORT void truce_deadline_end(int64_t before);

/* ---- counters ----------------------------------------------------------------------------- */

/* Counters of a store handle. */
typedef struct truce_store_counters {
    /* Messages to a server that waited for a reply (or its loss), without those that only monitor
     * the server. 0 means that the store has no server. */
    uint64_t round_trips;
    /* The calls that wrote to a file. Each write of a bulk counts as one. Other stores have 0. */
    uint64_t writes;
    /* The disk syncs of a file. One sync serves all calls that wait at the time. Other stores
     * have 0. */
    uint64_t syncs;
    /* The current size of the log of a file, to which any process writes. Other stores have 0. */
    uint64_t log_bytes;
    /* Must be zero. */
    uint64_t reserved[1];
} truce_store_counters;

/* Returns the counters of this handle, of all threads, since it was opened. */
TRUCE_EXPORT void truce_store_count(truce_store *store, truce_store_counters *counters);

TRUCE_END_DECLS

#endif
