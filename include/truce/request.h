#ifndef TRUCE_REQUEST_H
#define TRUCE_REQUEST_H

/*
 * Commit requests: durable work for any free process.
 *
 * A request is the name of a registered function and its input. The store keeps it under the
 * caller's key. Each request runs exactly once: the changes of the function and the end of the
 * request are one commit. The idea is the hand-off of A. Hammarquist, EuroPython 2012, in a form
 * that cannot drop a request.
 *
 * Threads: any number of processes and threads may run requests of one store concurrently.
 */
#include "truce/commit.h"

TRUCE_BEGIN_DECLS

/* Runs one request. Like the function of a commit, it runs again on a conflict. Any other failure
 * counts as a failed attempt. */
typedef truce_status truce_request_function(truce_commit *commit, const bson_t *input, void *arg,
                                            bson_error_t *error);

/* A registered function and its name. */
typedef struct truce_request_handler {
    const char *name;
    truce_request_function *function;
    void *arg;
    uint64_t reserved[4]; /* Must be zero. */
} truce_request_handler;

/* Adds a request. If the same key exists with the same name and input, the call returns TRUCE_OK
 * and adds nothing. If the key belongs to another request, the call fails with TRUCE_DUPLICATE. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_add(truce_store *store, const char *key,
                                                           const char *name, const bson_t *input,
                                                           bson_error_t *error);

typedef struct truce_request_report {
    /* Requests that this call completed. */
    int64_t done;
    /* Attempts that failed. They are retried later; see truce_request_state. */
    int64_t failed;
    /* Requests for which this call has no handler. */
    int64_t refused;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_request_report;

/* Runs the waiting requests, oldest first, at most `limit` (0 means 100), and returns. If the
 * function of a request fails, the request is retried with increasing delay. After 10 attempts its
 * state becomes "failed". A failing request never blocks others. Call this function regularly, so
 * that requests left by other processes run too. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_run(truce_store *store,
                                                           const truce_request_handler *handlers,
                                                           size_t handlers_count, uint32_t limit,
                                                           const truce_commit_options *options,
                                                           truce_request_report *report,
                                                           bson_error_t *error);

/* Returns the document of a request: {_id: key, name, input, state: "waiting" | "done" |
 * "failed", attempts, error?, created, due}. If no such request exists, the call fails with
 * TRUCE_NOT_FOUND. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_request_state(truce_store *store, const char *key,
                                                             bson_t *document, bson_error_t *error);

TRUCE_END_DECLS

#endif
