#ifndef TRUCE_REQUEST_H
#define TRUCE_REQUEST_H

/*
 * Commit requests: work handed to whichever process is free. A request is the name of a registered
 * function and its input, durable in the store under the caller's key; it is run exactly once: what
 * the function changes and the end of the request are one commit. (The hand-off of A. Hammarquist,
 * EuroPython 2012, in a form that cannot drop a request.)
 *
 * Threads: any number of processes and threads may run requests of one store at once.
 */
#include "truce/commit.h"

TRUCE_BEGIN_DECLS

/* Runs as a commit's function does: again on a conflict. Any other failure counts as an attempt. */
typedef truce_status truce_request_function(truce_commit *commit, const bson_t *input, void *arg,
                                            bson_error_t *error);

typedef struct truce_request_handler {
    const char *name;
    truce_request_function *function;
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_request_handler;

/* Leaves a request. The same key with the same name and input: OK, nothing is added. DUPLICATE: the
 * key stands for another request. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_add(truce_store *store, const char *key,
                                                           const char *name, const bson_t *input,
                                                           bson_error_t *error);

typedef struct truce_request_report {
    int64_t done;         /* run to their end by this call */
    int64_t failed;       /* attempts that failed; they come again later, see truce_request_state */
    int64_t refused;      /* nobody here has a handler of that name */
    uint64_t reserved[4]; /* zeros */
} truce_request_report;

/* Runs what waits, oldest first, at most `limit` (0: 100), and returns. A request whose function
 * fails is tried again after a while, longer each time, and is set aside as "failed" after 10
 * attempts; it never keeps others from running. Call it regularly: also for requests that nobody
 * ran. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_run(truce_store *store,
                                                           const truce_request_handler *handlers,
                                                           size_t handlers_count, uint32_t limit,
                                                           const truce_commit_options *options,
                                                           truce_request_report *report,
                                                           bson_error_t *error);

/* The request's document: {_id: key, name, input, state: "waiting" | "done" | "failed", attempts,
 * error?, created, due}. NOT_FOUND: there is none. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_state(truce_store *store, const char *key,
                                                             bson_t *document, bson_error_t *error);

TRUCE_END_DECLS

#endif
