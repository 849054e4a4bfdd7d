#ifndef TRUCE_SWEEP_H
#define TRUCE_SWEEP_H

/*
 * Recovery and consistency checks.
 *
 * Any process can complete or undo everything that truce writes. Usually the next process that
 * encounters an unfinished operation does so. The recovery pass (truce_sweep) does the same for
 * operations that no process encounters. Any number of processes may run it concurrently, at any
 * time.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* Receives a finding, which is borrowed for the call: {rule, ns, id?, commit?, text, ...}.
 * truce_check passes each fault, truce_sweep each item that it could not repair. */
typedef void truce_finding_function(const bson_t *finding, void *arg);

typedef struct truce_sweep_options {
    /* The time for which ended commits can be queried. 0 means 7 days. -1 means forever. */
    int64_t retention_ms;
    /* The maximum number of documents of each kind in one call, for each database; ten times as
     * many that expire by an index. 0 means 1,000. */
    uint32_t batch;
    /* Receives each item that could not be repaired: {rule: "failed", ns, id, status, text}. */
    truce_finding_function *function;
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_sweep_options;

typedef struct truce_sweep_report {
    /* Pending commits whose lease had ended; they were aborted. */
    int64_t undone;
    /* Unfinished work that was completed: committed commits, transfers, denormalized copies,
     * published versions of trees, and ledger documents of other programs. */
    int64_t finished;
    /* Aborted commits whose intents were removed. */
    int64_t cleaned;
    /* Intents and stubs without a commit. */
    int64_t stripped;
    /* Commit documents past their retention, and session records of a server. */
    int64_t purged;
    /* Documents that expired by an index with expireAfterSeconds. Also jobs and transfers past
     * their retention, items of trees that no reader can see, and pending ledger transactions that
     * expired. */
    int64_t expired;
    /* Items that could not be repaired; options->function received each. */
    int64_t failed;
    /* A batch was full: call again. */
    bool more;
    /* Recorded changes for change streams that exceeded their maximum age or size. */
    int64_t pruned;
    /* Running jobs whose workers did not extend their leases. Each such attempt has failed. */
    int64_t released;
    /* Must be zero. */
    uint64_t reserved[2];
} truce_sweep_report;

/* Runs one recovery pass over the whole store. `report` is filled as far as the call got, also on
 * failure. An item that cannot be repaired is counted in `failed` and does not stop the pass. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sweep(truce_store *store,
                                                     const truce_sweep_options *options,
                                                     truce_sweep_report *report,
                                                     bson_error_t *error);

/* Completes one journal commit: a decided commit is released, and a commit whose lease has ended is
 * undone. `document` is the resulting commit document, always initialized. If the commit is pending
 * and its owner may be alive, the call fails with TRUCE_LOCKED. A lease that has ended by the local
 * clock is watched first, for as long as it lasts. If no commit has this id (it never took effect,
 * or was purged), it fails with TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_resolve(truce_store *store,
                                                              const bson_oid_t *id,
                                                              bson_t *document,
                                                              bson_error_t *error);

typedef struct truce_check_options {
    /* Repair what can be repaired. Without it, nothing is written. */
    bool repair;
    /* With repair: repair only findings that have the fields {rule, ns, id?} of this one. A finding
     * without an id is about the whole collection. NULL means all. */
    const bson_t *finding;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_check_options;

typedef struct truce_check_report {
    /* Items examined. */
    int64_t collections, documents, commits;
    int64_t findings, repaired;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_check_report;

/* Checks the consistency of a live store and reports the faults; docs/commits.md lists the
 * rules. A finding has the form {rule, ns, id?, commit?, text, repair: the repair that is
 * possible or was done, repaired}. An item that cannot be examined is also a finding and does
 * not stop the check. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_check(truce_store *store,
                                                     const truce_check_options *options,
                                                     truce_finding_function *function, void *arg,
                                                     truce_check_report *report,
                                                     bson_error_t *error);

TRUCE_END_DECLS

#endif
