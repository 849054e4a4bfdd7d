#ifndef TRUCE_SYNC_H
#define TRUCE_SYNC_H

/*
 * Copies kept in step: fields of one document (the master) that others (the dependents) carry copies of.
 *
 *     users     {_id: 17, name: "John", syncing: ObjectId, syncRevision: 4, syncOrigin: ObjectId}
 *     comments  {_id: 1, user: 17, author: "John", synced: {author: {source: 17, origin: ObjectId, revision: 4}},
 *                unchecked: ObjectId}
 *
 *     the rule "author":  master users, dependent comments, reference "user", copies {author: "name"}
 *
 * A change of the master raises its revision and sets the flag `syncing` in the same write; then the copies follow, each
 * with a write that compares the source, its incarnation, and the revision; then the flag goes. A dependent that is inserted, or moved to another
 * master, carries the flag `unchecked` until its master was read after it. Whoever dies in between leaves a flag, and
 * `truce sweep` does the rest. So every copy equals its master within one sweep, and none goes back to an older value.
 *
 * The idea is the synchronization field of A. Girbal, "How to implement robust and scalable transactions across
 * documents with MongoDB"; there the flag is a time, and two renames at once leave stale copies (docs/sync.md). Plain writers may
 * go on as they do there: a write of the master that sets `syncing` to anything (a date, true), and of a dependent that sets
 * `unchecked: true`, is found by the sweep. They leave the flags alone afterwards, and truce takes them off.
 *
 * Several rules may share a master, and a dependent may be the master of others (chains); circles are refused.
 * A master that is removed leaves its dependents as they are.
 *
 * Threads: a handle may be used from any number of threads.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_sync truce_sync;

typedef struct truce_sync_options {
    uint32_t batch;            /* copies written at once; 0: 1,000 */
    uint32_t rate;             /* copies a second at most; 0: as fast as it goes */
    uint32_t deadline_ms;      /* of a call, its copying included; 0: 30,000 */
    truce_mechanism mechanism; /* of the write of a master */
    uint64_t reserved[4];      /* zeros */
} truce_sync_options;

/* Never NULL; what is wrong with the options is refused by every call. They are copied (NULL: defaults); the store
 * must outlive the handle. */
TRUCE_EXPORT truce_sync *truce_sync_new(truce_store *store, const truce_sync_options *options);
TRUCE_EXPORT void truce_sync_free(truce_sync *sync);

/* ---- rules ---------------------------------------------------------------------------------- */

typedef struct truce_sync_rule {
    const char *name;      /* a plain word: it names the stamp in `synced` */
    const char *master;    /* collection */
    const char *dependent; /* collection; it may be the same */
    const char *reference; /* path in a dependent of the master's _id: one value, no array */
    const bson_t *copies;  /* {path in the dependent: "path in the master", ...}: at most 32 */
    uint32_t resume_ms;    /* the sweep takes up what has carried a flag for so long; 0: 60,000 */
    uint32_t
        settle_ms; /* how long to wait, once the rule is kept, until every process has seen it; 0: 5,000 */
    uint64_t reserved[4]; /* zeros */
} truce_sync_rule;

/* Keeps the rule in the store, and makes the indexes that it needs. From then on changes through truce are copied;
 * what differed before is found and mended by truce_sync_walk. Again with the same content: OK; with another one:
 * DUPLICATE. INVALID: a rule that copies onto itself, a circle of rules, a field that another rule copies to, a document
 * that has an array on a path of the rule, copies that are reversed (no master has the field that is copied, and some have the one
 * that it is copied to). */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_declare(truce_sync *sync,
                                                            const truce_sync_rule *rule,
                                                            bson_error_t *error);
/* Copies stay as they are. NOT_FOUND: there is none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_drop(truce_sync *sync, const char *name,
                                                         bson_error_t *error);
/* `status`: {rules: [{rule, master, dependent, reference, copies, syncing, unchecked, since?}]}, always initialised:
 * how many masters and dependents carry a flag, and since when the oldest. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_status(truce_sync *sync, bson_t *status,
                                                           bson_error_t *error);

/* ---- writing -------------------------------------------------------------------------------- */

typedef struct truce_sync_result {
    bool changed;   /* a flag was set: a copied field, or a reference, is another one */
    bool settled;   /* no flag was needed, or it is off again: all copies are in step */
    int64_t copies; /* written by this call */
    uint64_t reserved[4];
} truce_sync_result;

/* One document, master or dependent, by update operators. OK: it is changed, and what could not be copied now (result->settled
 * false) is left to the sweep. A change of a copy itself, or of truce's fields, is INVALID. NOT_FOUND: there is no such
 * document. `commit` NULL: alone, and its copies follow now; else they follow after the commit, by truce_sync_settle or
 * the sweep. `result` may be NULL. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_update(
    truce_sync *sync, truce_commit *commit, const char *collection, const bson_value_t *id,
    const bson_t *update, truce_sync_result *result, bson_error_t *error);

/* A new document, with its copies. It needs an _id. DUPLICATE: there is one. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_insert(truce_sync *sync, truce_commit *commit,
                                                           const char *collection,
                                                           const bson_t *document,
                                                           truce_sync_result *result,
                                                           bson_error_t *error);

/* If the document carries a flag, does now what is left, and takes it off. A document without one, or none: OK. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_settle(truce_sync *sync, const char *collection,
                                                           const bson_value_t *id,
                                                           truce_sync_result *result,
                                                           bson_error_t *error);

/* The document, a dependent as its masters are now: a copy that is behind is mended first. `document` is always
 * initialised. NOT_FOUND: there is none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_read(truce_sync *sync, const char *collection,
                                                         const bson_value_t *id, bson_t *document,
                                                         bson_error_t *error);

/* ---- drift ---------------------------------------------------------------------------------- */

typedef enum truce_sync_drift {
    TRUCE_SYNC_DIFFERS =
        1,                 /* a copy is not what the master has, and no flag says that it will be */
    TRUCE_SYNC_ORPHAN,     /* there is no such master */
    TRUCE_SYNC_UNREADABLE, /* an array lies on a path of the rule */
} truce_sync_drift;

typedef struct truce_sync_finding {
    const char *rule;
    truce_sync_drift drift;
    const bson_value_t *dependent, *master; /* ids */
    bool mended;
    uint64_t reserved[4];
} truce_sync_finding;

typedef struct truce_sync_report {
    int64_t dependents; /* looked at */
    int64_t differ;     /* of them; those under way (a flag is there) are not counted */
    int64_t orphans, unreadable, under_way, mended;
    uint64_t reserved[4];
} truce_sync_report;

typedef struct truce_sync_walk_options {
    bool mend; /* what differs gets the master's value */
    void (*function)(const truce_sync_finding *finding, void *arg); /* NULL: only counts */
    void (*progress)(const truce_sync_report *report, void *arg);   /* now and then; NULL: none */
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_sync_walk_options;

/* Compares every dependent of a rule with its master, while everything is in use. Mending, it is what a rule
 * on live data needs first; ended half-way, the next one finds the first part in step. The handle's deadline does not
 * count here. NOT_FOUND: no such rule. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_walk(truce_sync *sync, const char *rule,
                                                         const truce_sync_walk_options *options,
                                                         truce_sync_report *report,
                                                         bson_error_t *error);

TRUCE_END_DECLS

#endif
