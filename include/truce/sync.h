#ifndef TRUCE_SYNC_H
#define TRUCE_SYNC_H

/*
 * Denormalized copies: fields of a source that other documents copy.
 *
 * The source (`source`) and the documents with the copies (`dependents`) are related by a rule:
 *
 *     users     {_id: 17, name: "John", syncing: ObjectId, syncRevision: 4, syncOrigin: ObjectId}
 *     comments  {_id: 1, user: 17, author: "John", unchecked: ObjectId,
 *                synced: {author: {source: 17, origin: ObjectId, revision: 4}}}
 *
 *     the rule "author":  source users, dependent comments, reference "user",
 *                         copies {author: "name"}
 *
 * A change of the source increments its revision and sets the flag `syncing` in the same write.
 * Then the copies are updated; each write compares the source, its incarnation (origin), and the
 * revision. Then the flag is removed. A dependent that is inserted, or moved to another source, has
 * the flag `unchecked` until its source was read after that write. If a process dies in between, a
 * flag remains, and `truce sweep` completes the work. Therefore every copy equals its source within
 * one recovery pass, and no copy returns to an older value.
 *
 * The idea is the synchronization field of A. Girbal, "How to implement robust and scalable
 * transactions across documents with MongoDB". There the flag is a time, and two concurrent renames
 * leave stale copies (docs/sync.md). Plain writers may continue to work as described there. Their
 * write of a source sets `syncing` to any value (a date, true), and their write of a dependent sets
 * `unchecked: true`. The recovery pass finds these flags. The writers must not change the flags
 * afterwards; truce removes them.
 *
 * Several rules may share a source, and a dependent may be the source of other documents (chains);
 * cycles are refused. Removing a source leaves its dependents unchanged.
 *
 * Threads: any number of threads may use a handle.
 */
#include "truce/commit.h"
#include "truce/store.h"

TRUCE_BEGIN_DECLS

typedef struct truce_sync truce_sync;

typedef struct truce_sync_options {
    /* The number of copies in one write. 0 means 1,000. */
    uint32_t batch;
    /* The maximum number of copies per second. 0 means no limit. */
    uint32_t rate;
    /* The deadline of a call, including its copying. 0 means 30,000. */
    uint32_t deadline_ms;
    /* The mechanism for writes of a source. */
    truce_mechanism mechanism;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_sync_options;

/* Returns a handle, never NULL. If the options are wrong, every call fails. The options are copied
 * (NULL means defaults). The store must outlive the handle. */
TRUCE_EXPORT truce_sync *truce_sync_new(truce_store *store, const truce_sync_options *options);
/* Frees the handle. */
TRUCE_EXPORT void truce_sync_free(truce_sync *sync);

/* ---- rules -------------------------------------------------------------------------------- */

typedef struct truce_sync_rule {
    /* A plain word: it is the field name of the rule in `synced`. */
    const char *name;
    /* The collection of the sources. */
    const char *source;
    /* The collection of the dependents; it may be the same. */
    const char *dependent;
    /* The path in a dependent to the _id of its source: one value, not an array. */
    const char *reference;
    /* {path in the dependent: "path in the source", ...}: at most 32. */
    const bson_t *copies;
    /* The recovery pass processes documents that have carried a flag for this time. 0 means
     * 60,000. */
    uint32_t resume_ms;
    /* The time to wait after the rule is stored until every process has seen it. 0 means 5,000. */
    uint32_t settle_ms;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_sync_rule;

/*
 * Stores a rule and creates the indexes that it needs. After this, changes through truce are
 * copied. truce_sync_walk finds and repairs earlier divergence. If the rule exists with the same
 * content, the call returns TRUCE_OK; with other content, it fails with TRUCE_DUPLICATE. In these
 * cases it fails with TRUCE_INVALID:
 *   - the rule copies a field onto itself, or the rules form a cycle;
 *   - another rule copies to the same field;
 *   - a document has an array on a path of the rule;
 *   - the copies are reversed: no source has the field that is copied, and some have the field that
 *     it is copied to.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_declare(truce_sync *sync,
                                                            const truce_sync_rule *rule,
                                                            bson_error_t *error);
/* Drops a rule. Copies stay unchanged. If no such rule exists, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_drop(truce_sync *sync, const char *name,
                                                         bson_error_t *error);
/* Returns {rules: [{rule, source, dependent, reference, copies, syncing, unchecked, since?}]}:
 * `syncing` and `unchecked` are the numbers of sources and of dependents with a flag; `since` is
 * the time of the oldest flag. `status` is always initialized. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_status(truce_sync *sync, bson_t *status,
                                                           bson_error_t *error);

/* ---- writing ------------------------------------------------------------------------------ */

typedef struct truce_sync_result {
    /* A copied field or a reference changed, and a flag was set. */
    bool changed;
    /* All copies are consistent: no flag was needed, or it was removed again. */
    bool settled;
    /* Copies written by this call. */
    int64_t copies;
    uint64_t reserved[4];
} truce_sync_result;

/*
 * Updates one document, a source or a dependent, by update operators. TRUCE_OK means that the
 * document was changed; copies that could not be written now (result->settled is false) are left to
 * the recovery pass. Without a commit (NULL), the copies are written now. With a commit, they are
 * written after it by truce_sync_reconcile or the recovery pass. `result` may be NULL.
 *
 * If the update changes a copy itself or truce's fields, the call fails with TRUCE_INVALID. If the
 * document does not exist, it fails with TRUCE_NOT_FOUND.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_update(
    truce_sync *sync, truce_commit *commit, const char *collection, const bson_value_t *id,
    const bson_t *update, truce_sync_result *result, bson_error_t *error);

/* Inserts a document with its copies. It requires an _id. If the _id exists, the call fails with
 * TRUCE_DUPLICATE. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_insert(truce_sync *sync, truce_commit *commit,
                                                           const char *collection,
                                                           const bson_t *document,
                                                           truce_sync_result *result,
                                                           bson_error_t *error);

/* Completes the work for a document that carries a flag and removes the flag. If the document has
 * no flag or does not exist, the call returns TRUCE_OK. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_reconcile(truce_sync *sync,
                                                              const char *collection,
                                                              const bson_value_t *id,
                                                              truce_sync_result *result,
                                                              bson_error_t *error);

/* Reads a document. The copies of a dependent are those of its current sources: an outdated copy is
 * repaired first. `document` is always initialized. If the document does not exist, the call fails
 * with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_read(truce_sync *sync, const char *collection,
                                                         const bson_value_t *id, bson_t *document,
                                                         bson_error_t *error);

/* ---- divergence --------------------------------------------------------------------------- */

/* A divergence between a dependent and its source. */
typedef enum truce_sync_divergence {
    /* A copy differs from its source, and no flag announces an update. */
    TRUCE_SYNC_DIFFERS = 1,
    /* The source does not exist. */
    TRUCE_SYNC_ORPHAN,
    /* An array is on a path of the rule. */
    TRUCE_SYNC_UNREADABLE,
} truce_sync_divergence;

typedef struct truce_sync_finding {
    const char *rule;
    truce_sync_divergence divergence;
    /* The _id of the dependent, and the value of its reference (null if it has none). */
    const bson_value_t *dependent, *source;
    /* The copy was repaired. */
    bool repaired;
    uint64_t reserved[4];
} truce_sync_finding;

typedef struct truce_sync_report {
    /* Dependents examined. */
    int64_t dependents;
    /* Dependents that differ from their source. Dependents with a flag are counted in `under_way`
     * instead. */
    int64_t differ;
    /* Dependents without a source. */
    int64_t orphans;
    /* Dependents with an array on a path of the rule. */
    int64_t unreadable;
    /* Dependents whose copies are being updated: they, or their source, have a flag. */
    int64_t under_way;
    /* Dependents whose copies this call repaired. */
    int64_t repaired;
    uint64_t reserved[4];
} truce_sync_report;

typedef struct truce_sync_walk_options {
    /* Copies that differ get the source's value. */
    bool repair;
    /* Compare only the dependent with this _id. NULL means all. */
    const bson_value_t *dependent;
    /* Receives each divergence. NULL means that the call only counts. */
    void (*function)(const truce_sync_finding *finding, void *arg);
    /* Receives the counts from time to time. NULL means none. */
    void (*progress)(const truce_sync_report *report, void *arg);
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_sync_walk_options;

/* Compares every dependent of a rule with its source, while the data is in use. If you declare a
 * rule for existing data, run the walk with `repair` first. If it is interrupted, the next walk
 * finds the first part consistent. The deadline of the handle does not apply. If no such rule
 * exists, the call fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sync_walk(truce_sync *sync, const char *rule,
                                                         const truce_sync_walk_options *options,
                                                         truce_sync_report *report,
                                                         bson_error_t *error);

TRUCE_END_DECLS

#endif
