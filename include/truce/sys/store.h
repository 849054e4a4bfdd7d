#ifndef TRUCE_SYS_STORE_H
#define TRUCE_SYS_STORE_H

/*
 * For people who write a store backend, or a store that wraps one.
 *
 * A backend is a constant table of functions and an instance whose first member is a struct
 * truce_store. The wrappers of truce/store.h are the only callers: they check the arguments (names,
 * sizes, that documents are well-formed) and assert what the comments here promise, for every
 * backend, so a backend need not check again. Every function may be called from several threads.
 */
#include "truce/compact.h"
#include "truce/snapshot.h"

TRUCE_BEGIN_DECLS

/* What a store can do beyond the minimum. Patterns ask for these, never for a backend's name. */
enum {
    TRUCE_CAN_PIPELINE_UPDATE = 1 << 0, /* options.pipeline */
    TRUCE_CAN_ARRAY_FILTERS = 1 << 1,
    TRUCE_CAN_ITEM_UPDATE = 1 << 2, /* the operator {$update: {array: {$query, ...}}} */
    TRUCE_CAN_ATOMIC_BULK = 1 << 3, /* bulk with `atomic`, the writes in any collections */
    TRUCE_CAN_PARTIAL_INDEX = 1 << 4,
    TRUCE_CAN_WILDCARD_INDEX = 1 << 5,
    TRUCE_CAN_WAIT = 1 << 6,          /* wait() sleeps; without it, callers poll with backoff */
    TRUCE_CAN_DURABLE = 1 << 7,       /* an acknowledged write survives a power cut */
    TRUCE_CAN_SNAPSHOT_READ = 1 << 8, /* read_many */
    TRUCE_CAN_TELL_MODIFIED = 1 << 9, /* result.modified of find_and_modify; without it, it is as
                                         result.matched */
    TRUCE_CAN_KEEP_ORDER = 1 << 10, /* what a power cut takes of relaxed writes are the last of all
                                         writes, never one before a write that it leaves */
    TRUCE_CAN_REWRITE = 1 << 11,    /* rewrite */
    TRUCE_CAN_COMPARE = 1 << 12,    /* `exact` of a write */
    TRUCE_CAN_CHECK = 1 << 14,      /* checks of a bulk */
    TRUCE_CAN_RECEIPT = 1 << 15,    /* receipt of a bulk and of find_and_modify */
    TRUCE_IS_VIEW =
        1 << 13, /* not what it can do, but what it is: of one moment (truce/snapshot.h) */
    TRUCE_CAN_SORT_UPDATE = 1 << 17, /* `sort` of an update */
    TRUCE_IS_READ_ONLY = 1 << 18,    /* the same: it was opened with `read_only` */
    TRUCE_IS_TRANSACTION = 1 << 16,  /* the same: of one transaction, which a conflict ends */
};

/*
 * Documents that a function of the caller's rewrites inside the store: between what it reads and what
 * it writes nobody else writes, so there is no race to lose. All that it writes takes effect at once.
 *
 * `keys` are documents with the same fields, on which the collection has a unique index of exactly
 * those fields. The functions run under the store's lock, perhaps on another thread, while the caller
 * waits; they must be quick and call no store.
 */
typedef struct truce_rewrite truce_rewrite;
struct truce_rewrite {
    const char *collection;
    const bson_t *const *keys;
    size_t count;
    /* Comes first, and again if all is begun anew: what was made until then is undone. */
    void (*begin)(truce_rewrite *rewrite);
    /* `before`: the document with keys[number], which is borrowed; NULL: there is none. True: `after`
     * (empty; initialised) has become the document that is to stand there, with the same _id, or with
     * a new one as its first field. It is made of `before` and of parts that were checked
     * (truce__document_check): the store itself checks nothing but its size. */
    bool (*make)(truce_rewrite *rewrite, size_t number, const bson_t *before, bson_t *after);
    /* What was made of it last cannot be (a unique key is taken, it is too large): nothing of this
     * document is changed. */
    void (*refuse)(truce_rewrite *rewrite, size_t number, truce_status status,
                   const bson_error_t *error);
    bool relaxed; /* it need not wait for the disk */
};

/*
 * What was read in a view, and has to be so still when a bulk is done: `checks` of its options. The store
 * looks at it where nobody else writes, before the first write; one that does not hold ends the bulk with
 * CONFLICT (code 112), and nothing was done.
 */
typedef struct truce_read_check {
    const char *collection;
    const bson_t *filter, *sort; /* of a find; sort NULL: none */
    int64_t limit;               /* 0: none */
    /* How many documents it found, and the sum of their fingerprints in any order (base/fingerprint.h). -1: they
     * are not looked at again; whatever was written to the collection since the view is a conflict. */
    int64_t count;
    uint64_t high, low;
} truce_read_check;

/*
 * A collection that is made with a bulk, before its first write: `checks` of its options, too. One that is there by then ends
 * the bulk with CONFLICT (code 112), and nothing was done.
 */
typedef struct truce_making {
    const char *collection;
    const bson_t *indexes;   /* an array of definitions; _id's may be among them */
    const bson_t *validator; /* {}: none */
} truce_making;

struct truce_read_checks {
    truce_store *view; /* of this store: where all of them were read */
    const truce_read_check *all;
    size_t count;
    const truce_making *makings;
    size_t makings_count;
    const char *
        absent; /* a collection that must not be there, as another kind of thing gets its name; NULL: none */
};

/*
 * A document that is written along with what the writes did: in the same step of the store, so that there is one if and
 * only if they took effect. The functions run under the store's lock, perhaps on another thread, while the caller waits;
 * they must be quick and call no store. They may be called again, if all is begun anew; then what the last calls said
 * counts.
 */
typedef struct truce_receipt truce_receipt;
struct truce_receipt {
    const char *collection;
    const bson_t *key; /* {_id: ...} of the document */
    /* Comes first. `before`: what stands there, borrowed; NULL: nothing. False: it is not what the caller takes it for,
     * and the call ends with CONFLICT, with nothing done. */
    bool (*agrees)(truce_receipt *receipt, const bson_t *before);
    /* Comes after the writes, if any was done. `outcomes`: of all writes of the bulk (one for find_and_modify, of which
     * only the result counts); `document`: of find_and_modify; NULL: a bulk. True: `after` (empty; initialised) has
     * become the document that is to stand there, with the same _id. If it cannot, nothing of the call stays. */
    bool (*make)(truce_receipt *receipt, const truce_write_outcome *outcomes, size_t count,
                 const bson_t *document, bson_t *after);
};

typedef struct truce_store_ops {
    const char *scheme; /* "memory", "file" */
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
    /* of a find, or of a count: then the options that a count has are set */
    truce_status (*explain)(truce_store *store, const char *collection, const bson_t *filter,
                            const truce_find_options *options, bool count, bson_t *plan,
                            bson_error_t *error);
    /* Insert, update and remove come here too, as a bulk of one. Documents to insert have their
     * `_id` already. A write that fails changes nothing, but for an update with `multi`: as in
     * MongoDB the documents before the one that failed stay changed (unless the bulk is atomic). */
    truce_status (*bulk)(truce_store *store, const truce_write *writes, size_t count,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error);
    truce_status (*find_and_modify)(truce_store *store, const char *collection,
                                    const bson_t *filter, const bson_t *update,
                                    const truce_modify_options *options, bson_t *document,
                                    truce_write_result *result, bson_error_t *error);
    /* Only with TRUCE_CAN_REWRITE. NOT_FOUND (without text): there is no such index, nothing was done.
     * Unless it is OK, what was made counts for nothing. */
    truce_status (*rewrite)(truce_store *store, truce_rewrite *rewrite, bson_error_t *error);
    /* all of one instant; only with TRUCE_CAN_SNAPSHOT_READ */
    truce_status (*read_many)(truce_store *store, truce_look *looks, size_t count,
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
    /* `validator`: a document; {}: none */
    truce_status (*collection_validate)(truce_store *store, const char *collection,
                                        const bson_t *validator, bson_error_t *error);
    truce_status (*collection_list)(truce_store *store, const truce_list_options *options,
                                    bson_t *collections, bson_error_t *error);
    truce_status (*wait)(truce_store *store, const char *collection, uint64_t *token,
                         uint32_t timeout_ms, bson_error_t *error);
    /* as truce_settle; NULL: nothing is found before it is durable */
    truce_status (*settle)(truce_store *store, bson_error_t *error);
    /* Appends what is known of what the store stands on: for truce_doctor, which knows the fields of
     * the stores there are. What cannot be told is left out, or said: {refused: sentence, code}. NULL:
     * nothing. */
    truce_status (*facts)(truce_store *store, bson_t *facts, bson_error_t *error);
    /* What the collection's validator refuses, as a filter; {}: nothing is refused, or there is no
     * such collection. Always initialised. NULL: it is not known; never with TRUCE_CAN_CHECK. */
    truce_status (*validator)(truce_store *store, const char *collection, bson_t *validator,
                              bson_error_t *error);
    /* For a store that wraps others: passes truce_interrupt (true) and truce_resume on. As these it may
     * be called in a signal handler. NULL: the flag is enough. */
    void (*interrupt)(truce_store *store, bool on);
    /* For truce_read_check: tells what is wrong in what the store keeps on a disk ({rule, ns, text, repair, repaired},
     * borrowed), and mends it with `repair`. NULL: nothing of it is the store's own. */
    truce_status (*examine)(truce_store *store, bool repair,
                            void (*tell)(const bson_t *finding, void *arg), void *arg,
                            bson_error_t *error);
    /* As truce_compact, for a store that is no view; the report is zeros. NULL: it has no file of its own. */
    truce_status (*compact)(truce_store *store, const truce_compact_options *options,
                            truce_compact_report *report, bson_error_t *error);
    /* fills what it counts of the zeroed counters; NULL: nothing */
    void (*counters)(truce_store *store, truce_store_counters *counters);
    /* As truce_snapshot. The view has TRUCE_IS_VIEW, and none of its functions that write is ever called; it may
     * itself be asked for a view. NULL: it cannot. */
    truce_status (*snapshot)(truce_store *store, const truce_snapshot_options *options,
                             truce_store **view, bson_error_t *error);
    /* A number that has changed if a collection was dropped, renamed or emptied at once, or an index was dropped, by any
     * process, since it was asked for last: what is remembered of collections may be wrong then. It may also change
     * without. Cheap: before each operation of a pattern. NULL: it is not known. */
    uint64_t (*structure)(truce_store *store);
    /* Of a view: fills the zeroed state; NULL: nothing is known. */
    void (*snapshot_state)(truce_store *view, truce_snapshot_state *state);
} truce_store_ops;

/* What the layers above remember of one store (which indexes they made sure of). Theirs to fill;
 * truce_store_close calls its `free`. A backend leaves it NULL. */
struct truce_memo {
    void (*free)(struct truce_memo *memo);
};

struct truce_store {
    const truce_store_ops *ops;
    uint32_t capabilities; /* TRUCE_CAN_ bits */
    struct truce_holds
        *holds; /* the wrappers' own: the cursors that are open; NULL: none ever was */
    struct truce_memo *memo;
    /* By truce_interrupt, 1 until truce_resume. The wrappers refuse calls meanwhile; a backend looks at
     * it where a call takes long or waits (__atomic_load_n), and ends with TIMEOUT, code 11601. */
    int interrupted;
    const int *above; /* of a view: the same, of the store that it is of; NULL: it is none */
    /* The wrappers' own: that of the options by which it was opened. 0: none was given, or it is a view. */
    uint32_t deadline_ms;
};

typedef struct truce_cursor_ops {
    truce_status (*next)(truce_cursor *cursor, const bson_t **document, bson_error_t *error);
    void (*close)(truce_cursor *cursor);
} truce_cursor_ops;

struct truce_cursor {
    const truce_cursor_ops *ops;
    truce_store *store; /* the wrappers' own; NULL: a backend's, for itself */
    uint32_t hold;      /* the wrappers' own: where it is counted */
};

TRUCE_END_DECLS

#endif
