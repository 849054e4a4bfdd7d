#ifndef TRUCE_SWEEP_H
#define TRUCE_SWEEP_H

/*
 * Recovery and inspection. Everything that truce writes can be finished or undone by any process;
 * the sweep does it for what nobody happens to meet. It is safe to run in any number of processes
 * at once, and at any time.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* What was found, or could not be mended: {rule, ns, id?, commit?, text, ...}; borrowed. */
typedef void truce_finding_function(const bson_t *finding, void *arg);

typedef struct truce_sweep_options {
    int64_t retention_ms; /* how long ended commits can be asked about; 0: 7 days; -1: keep all */
    uint32_t batch;       /* documents of a kind in one call; 0: 1,000 */
    /* Called for each thing that could not be mended: {rule: "failed", ns, id, status, text}. */
    truce_finding_function *function;
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_sweep_options;

typedef struct truce_sweep_report {
    int64_t undone;       /* pending commits whose lease was over: aborted */
    int64_t finished;     /* committed ones, brought to their end */
    int64_t cleaned;      /* aborted ones, their intents taken off */
    int64_t stripped;     /* intents and stubs that no commit stands behind any more */
    int64_t purged;       /* commit documents past retention, and records of a server's sessions */
    int64_t expired;      /* documents that an index with expireAfterSeconds says are too old */
    int64_t failed;       /* could not be mended; options->function was told each */
    bool more;            /* a batch was full: call again */
    int64_t pruned;       /* changes kept for who watches, that are too old or too much */
    uint64_t reserved[3]; /* zeros */
} truce_sweep_report;

/* One round over the whole store. `report` is filled as far as it got, also on failure. One thing that
 * cannot be mended is counted in `failed` and stops nothing else. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sweep(truce_store *store,
                                                     const truce_sweep_options *options,
                                                     truce_sweep_report *report,
                                                     bson_error_t *error);

/* Brings one journal commit to its end: a decided one is released, one whose lease is over undone.
 * `document` is the commit afterwards, always initialised. LOCKED: it is pending and its lease is not
 * over. NOT_FOUND: there is none of that id: it never took effect, or was purged. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_resolve(truce_store *store,
                                                              const bson_oid_t *id,
                                                              bson_t *document,
                                                              bson_error_t *error);

typedef struct truce_check_options {
    bool repair;          /* mend what can be mended; without it nothing is written */
    uint64_t reserved[4]; /* zeros */
} truce_check_options;

typedef struct truce_check_report {
    int64_t collections, documents, commits; /* examined */
    int64_t findings, repaired;
    uint64_t reserved[4]; /* zeros */
} truce_check_report;

/* Looks for what should not be, in a live store, and tells it; see the rules in docs/commits.md. A
 * finding: {rule, ns, id?, commit?, text, repair: what it would do or has done, repaired}. One thing
 * that cannot be looked at is a finding, too, and stops nothing else. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_check(truce_store *store,
                                                     const truce_check_options *options,
                                                     truce_finding_function *function, void *arg,
                                                     truce_check_report *report,
                                                     bson_error_t *error);

TRUCE_END_DECLS

#endif
