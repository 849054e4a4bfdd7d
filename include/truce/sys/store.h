#ifndef TRUCE_SYS_STORE_H
#define TRUCE_SYS_STORE_H

/*
 * The interface of store backends and of stores that wrap another store.
 *
 * A backend is a constant table of functions and an instance whose first member is a struct
 * truce_store. The wrappers of truce/store.h call these functions. For every backend they check the
 * arguments (names, sizes, well-formed documents) and assert the contracts in the comments below,
 * so a backend need not check again. Several threads may call each function.
 */
#include "truce/compact.h"
#include "truce/snapshot.h"

TRUCE_BEGIN_DECLS

/* The capabilities of a store beyond the minimum. Patterns query these, never the name of a
 * backend. */
enum {
    /* `pipeline` of truce_write_options: updates by aggregation stages. */
    TRUCE_CAN_PIPELINE_UPDATE = 1 << 0,
    TRUCE_CAN_ARRAY_FILTERS = 1 << 1,
    /* The operator {$update: {array: {$query, ...}}}. */
    TRUCE_CAN_ITEM_UPDATE = 1 << 2,
    /* Bulk with `atomic`, with writes in any collections. */
    TRUCE_CAN_ATOMIC_BULK = 1 << 3,
    TRUCE_CAN_PARTIAL_INDEX = 1 << 4,
    TRUCE_CAN_WILDCARD_INDEX = 1 << 5,
    /* wait() sleeps. Without it, callers poll with backoff. */
    TRUCE_CAN_WAIT = 1 << 6,
    /* An acknowledged write survives a power cut. */
    TRUCE_CAN_DURABLE = 1 << 7,
    /* read_many(): a read of several documents from one snapshot. */
    TRUCE_CAN_SNAPSHOT_READ = 1 << 8,
    /* find_and_modify reports result.modified. Without this capability, it sets result.modified to
     * result.matched. */
    TRUCE_CAN_REPORT_MODIFIED = 1 << 9,
    /* Relaxed writes that a power cut loses are the last of all writes. A surviving write never
     * follows a lost one. */
    TRUCE_CAN_KEEP_ORDER = 1 << 10,
    /* rewrite(): functions of the caller compute documents inside the store. */
    TRUCE_CAN_REWRITE = 1 << 11,
    /* `exact` of a write: the document must consist of given bytes. */
    TRUCE_CAN_COMPARE = 1 << 12,
    /* `checks` of a bulk: reads that must still hold. */
    TRUCE_CAN_CHECK = 1 << 14,
    /* `receipt` of a bulk and of find_and_modify: a document that is written in the same step. */
    TRUCE_CAN_RECEIPT = 1 << 15,
    /* A property rather than a capability: the store is a snapshot view (truce/snapshot.h). */
    TRUCE_IS_VIEW = 1 << 13,
    /* `sort` of an update: the first document in this order is changed. */
    TRUCE_CAN_SORT_UPDATE = 1 << 17,
    /* A property: the store was opened with `read_only`. */
    TRUCE_IS_READ_ONLY = 1 << 18,
    /* command(): the store is a truce server, which runs operations itself. */
    TRUCE_CAN_COMMAND = 1 << 19,
    /* A property: the store is one transaction, which a conflict ends. */
    TRUCE_IS_TRANSACTION = 1 << 16,
};

/*
 * A rewrite: a function of the caller computes new documents inside the store.
 *
 * No other write happens between the read and the write, so the rewrite cannot lose a race. All of
 * its writes take effect at once. `keys` are documents with the same fields. The collection must
 * have a unique index on exactly these fields. The functions run under the store's lock, possibly
 * on another thread, while the caller waits. They must be quick and must not call a store.
 */
typedef struct truce_rewrite truce_rewrite;
struct truce_rewrite {
    const char *collection;
    const bson_t *const *keys;
    size_t count;
    /* Is called first, and again if the rewrite restarts. It discards the earlier results. */
    void (*begin)(truce_rewrite *rewrite);
    /* Computes the document with keys[number]. `before` is borrowed; NULL means that no document
     * exists. If the function returns true, `after` (initialized and empty) has become the new
     * document, with the same _id or with a new one as its first field. It consists of `before` and
     * of parts that truce__document_check has accepted: the store itself only checks its size. */
    bool (*make)(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after);
    /* Reports that the last result for keys[number] cannot be stored (a unique key exists, or it is
     * too large). This document is not changed. */
    void (*refuse)(truce_rewrite *rewrite, size_t number, truce_status status,
                   const bson_error_t *error);
    /* The write need not wait for the disk. */
    bool relaxed;
};

/* A read of a view that must still hold when a bulk executes: `checks` of its options. The store
 * checks it under its writer lock, before the first write. If it does not hold, the bulk fails with
 * TRUCE_CONFLICT (code 112) and changes nothing. */
typedef struct truce_read_check {
    const char *collection;
    /* The find. `sort` may be NULL. */
    const bson_t *filter, *sort;
    /* The limit of the find. 0 means none. */
    int64_t limit;
    /* The number of documents found and the sum of their fingerprints, in any order
     * (base/fingerprint.h). -1 means that the documents are not read again, and any write to the
     * collection since the view is a conflict. */
    int64_t count;
    uint64_t high, low;
} truce_read_check;

/* A collection that a bulk creates before its first write; also in `checks` of its options. If it
 * exists by then, the bulk fails with TRUCE_CONFLICT (code 112) and changes nothing. */
typedef struct truce_making {
    const char *collection;
    /* An array of definitions; that of _id may be among them. */
    const bson_t *indexes;
    /* Its validator. {} means none. */
    const bson_t *validator;
} truce_making;

/* All checks of a bulk. */
struct truce_read_checks {
    /* The view of this store that the reads came from. */
    truce_store *view;
    const truce_read_check *all;
    size_t count;
    const truce_making *makings;
    size_t makings_count;
    /* A collection that must not exist, because another kind of object gets its name. NULL means
     * none. */
    const char *absent;
};

/*
 * A receipt: a document that is written in the same step of the store as other writes.
 *
 * It exists if and only if the writes took effect. The functions run under the store's lock,
 * possibly on another thread, while the caller waits. They must be quick and must not call a store.
 * If the step restarts, they are called again, and the results of the last calls count.
 */
typedef struct truce_receipt truce_receipt;
struct truce_receipt {
    const char *collection;
    /* {_id: ...} of the document. */
    const bson_t *key;
    /* Is called first. `before` is the current document, borrowed; NULL means none. If the function
     * returns false, the document is not what the caller expects, and the call fails with
     * TRUCE_CONFLICT and changes nothing. */
    bool (*agrees)(truce_receipt *receipt, const bson_t *before);
    /* Is called after the writes, if any was done. `outcomes` are those of all writes of the bulk,
     * or the single one of find_and_modify, of which only the result counts. `document` is that of
     * find_and_modify; NULL means a bulk. If the function returns true, `after` (initialized and
     * empty) has become the new document, with the same _id. If it cannot be written, no effect of
     * the call remains. */
    bool (*make)(truce_receipt *receipt, const truce_write_outcome *outcomes, size_t count,
                 const bson_t *document, bson_t *after);
};

/* The function table of a backend. */
typedef struct truce_store_ops {
    /* "memory", "file". */
    const char *scheme;
    void (*close)(truce_store *store);
    truce_status (*find)(truce_store *store, const char *collection, const bson_t *filter,
                         const truce_find_options *options, truce_cursor **cursor,
                         bson_error_t *error);
    truce_status (*count)(truce_store *store, const char *collection, const bson_t *filter,
                          const truce_count_options *options, int64_t *count, bson_error_t *error);
    truce_status (*distinct)(truce_store *store, const char *collection, const char *path,
                             const bson_t *filter, bson_t *values, bson_error_t *error);
    truce_status (*aggregate)(truce_store *store, const char *collection, const bson_t *pipeline,
                              const truce_aggregate_options *options, truce_cursor **cursor,
                              bson_error_t *error);
    /* Explains a find, or a count with the options that a count has. */
    truce_status (*explain)(truce_store *store, const char *collection, const bson_t *filter,
                            const truce_find_options *options, bool count, bson_t *plan,
                            bson_error_t *error);
    /* Executes writes. Inserts, updates, and removes arrive here too, as a bulk of one. Documents
     * to insert already have their `_id`. A write that fails changes nothing, unless it has `multi`
     * and the bulk is not atomic. Then, as in MongoDB, the documents before the failed one may stay
     * changed. */
    truce_status (*bulk)(truce_store *store, const truce_write *writes, size_t count,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error);
    truce_status (*find_and_modify)(truce_store *store, const char *collection,
                                    const bson_t *filter, const bson_t *update,
                                    const truce_modify_options *options, bson_t *document,
                                    truce_write_result *result, bson_error_t *error);
    /* Requires TRUCE_CAN_REWRITE. If the unique index is missing, the function fails with
     * TRUCE_NOT_FOUND, without a message, and does nothing. Unless the result is TRUCE_OK, the
     * computed documents are void. */
    truce_status (*rewrite)(truce_store *store, truce_rewrite *rewrite, bson_error_t *error);
    /* Reads all documents from one snapshot. Requires TRUCE_CAN_SNAPSHOT_READ. */
    truce_status (*read_many)(truce_store *store, truce_read_request *requests, size_t count,
                              bson_error_t *error);
    truce_status (*index_create)(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error);
    truce_status (*index_drop)(truce_store *store, const char *collection, const char *name,
                               bson_error_t *error);
    truce_status (*index_modify)(truce_store *store, const char *collection, const char *name,
                                 const bson_t *changes, bson_error_t *error);
    truce_status (*index_list)(truce_store *store, const char *collection, bson_t *indexes,
                               bson_error_t *error);
    truce_status (*collection_create)(truce_store *store, const char *collection,
                                      bson_error_t *error);
    truce_status (*collection_drop)(truce_store *store, const char *collection,
                                    bson_error_t *error);
    truce_status (*collection_rename)(truce_store *store, const char *from, const char *to,
                                      bool drop_target, bson_error_t *error);
    /* `validator` is a document; {} means none. */
    truce_status (*collection_validate)(truce_store *store, const char *collection,
                                        const bson_t *validator, bson_error_t *error);
    truce_status (*collection_list)(truce_store *store, const truce_list_options *options,
                                    bson_t *collections, bson_error_t *error);
    truce_status (*wait)(truce_store *store, const char *collection, uint64_t *token,
                         uint32_t timeout_ms, bson_error_t *error);
    /* Does what truce_settle does. NULL means that reads never return data that is not durable. */
    truce_status (*settle)(truce_store *store, bson_error_t *error);
    /* Appends the known facts about the store's environment, for truce_doctor, which knows the
     * fields of all kinds of stores. Unknown facts are omitted or reported as {refused: message,
     * code}. NULL means no facts. */
    truce_status (*facts)(truce_store *store, bson_t *facts, bson_error_t *error);
    /* Returns the validator of the collection as a filter; {} means that it has no validator, or
     * that it does not exist. Always initialized. NULL means unknown; never with
     * TRUCE_CAN_CHECK. */
    truce_status (*validator)(truce_store *store, const char *collection, bson_t *validator,
                              bson_error_t *error);
    /* For a store that wraps others: forwards truce_interrupt (true) and truce_resume. Like these,
     * it may run in a signal handler. NULL means that the flag is enough. */
    void (*interrupt)(truce_store *store, bool on);
    /* For truce_check: reports faults of the store's data on disk ({rule, ns, text, repair,
     * repaired}, borrowed). It repairs those of the collection `repair` (`ns`), of all
     * collections if `repair` is "", and of none if it is NULL. A NULL function means that the
     * store owns no such data. */
    truce_status (*examine)(truce_store *store, const char *repair,
                            void (*report)(const bson_t *finding, void *arg), void *arg,
                            bson_error_t *error);
    /* As truce_compact, for a store that is not a view. The report is zeroed. NULL means that the
     * store has no file of its own. */
    truce_status (*compact)(truce_store *store, const truce_compact_options *options,
                            truce_compact_report *report, bson_error_t *error);
    /* Fills the counters that the store maintains; the struct is zeroed. NULL means none. */
    void (*counters)(truce_store *store, truce_store_counters *counters);
    /* As truce_snapshot. The view has TRUCE_IS_VIEW, and none of its functions that write is ever
     * called. Views also take snapshots of themselves. NULL means that this is unsupported. */
    truce_status (*snapshot)(truce_store *store, const truce_snapshot_options *options,
                             truce_store **view, bson_error_t *error);
    /* Returns a number that changes if any process drops, renames, or empties a collection, or
     * drops an index. Cached metadata of collections may then be wrong. The number may also change
     * without a reason. A store without TRUCE_CAN_COMPARE may learn only of its own changes. The
     * call must be cheap: each operation of a pattern makes it. NULL means unknown. */
    uint64_t (*structure)(truce_store *store);
    /* Returns a number that changes whenever a commit of any process becomes visible: between two
     * calls with the same result, nothing has changed. The call must be as cheap as `structure`.
     * NULL, or the result 0, means unknown. */
    uint64_t (*version)(truce_store *store);
    /* Fills the zeroed state of a view. NULL means unknown. */
    void (*snapshot_state)(truce_store *view, truce_snapshot_state *state);
    /* Makes the change feed store each document of the collection as it was before and after a
     * change, or stops that. NULL means that the store has no such feed. */
    truce_status (*keep_images)(truce_store *store, const char *collection, bool on,
                                bson_error_t *error);
    /* Returns the name of the database of a server that the store is. NULL, or the result
     * NULL, means that the store is not a database of a server. */
    const char *(*database)(truce_store *store);
    /* Sends an operation (docs/commands.md) to the server once. `reply` is always initialized. If
     * the server has replied, it is that reply, also of a failure. If `writes` is true and no reply
     * came, the outcome is unknown. Requires TRUCE_CAN_COMMAND. */
    truce_status (*command)(truce_store *store, const bson_t *request, bool writes, bson_t *reply,
                            bson_error_t *error);
} truce_store_ops;

/* The metadata cache of the layers above, for one store: for example the indexes that they have
 * ensured. These layers fill it, and truce_store_close calls its `free`. A backend leaves it
 * NULL. */
struct truce_store_cache {
    void (*free)(struct truce_store_cache *cache);
};

struct truce_store {
    const truce_store_ops *ops;
    /* TRUCE_CAN_ bits. */
    uint32_t capabilities;
    /* Private to the wrappers: the open cursors. NULL means that none was ever opened. */
    struct truce_holds *holds;
    struct truce_store_cache *cache;
    /* Private to truce_command. */
    struct truce_store_cache *commands;
    /* 1 from truce_interrupt until truce_resume. The wrappers refuse calls in between. A backend
     * reads it (__atomic_load_n) where a call takes long or waits, and ends the call with
     * TRUCE_TIMEOUT, code 11601. */
    int interrupted;
    /* The same flag of the store that a view belongs to. NULL means that the store is not a
     * view. */
    const int *above;
    /* Private to the wrappers: the deadline with which the store was opened. 0 means that none was
     * given, or that the store is a view. */
    uint32_t deadline_ms;
    /* Private to the wrappers: one more than the number of forks before the store was opened
     * (base/forks.h). 0 means unknown; the store is not refused in a forked child. */
    uint32_t opened_after;
};

typedef struct truce_cursor_ops {
    truce_status (*next)(truce_cursor *cursor, const bson_t **document, bson_error_t *error);
    void (*close)(truce_cursor *cursor);
} truce_cursor_ops;

struct truce_cursor {
    const truce_cursor_ops *ops;
    /* Private to the wrappers. NULL means a cursor that a backend uses itself. */
    truce_store *store;
    /* Private to the wrappers: the slot of the registry that counts this cursor. */
    uint32_t hold;
};

TRUCE_END_DECLS

#endif
