#ifndef TRUCE_SYS_DECORATE_H
#define TRUCE_SYS_DECORATE_H

/*
 * Stores that wrap another store, for tests and simulators.
 *
 * `fault` makes one call fail, and `trace` reports every call. Wrappers can be stacked. A wrapper
 * owns the store that it wraps: closing the wrapper closes the inner store. It has the capabilities
 * of the inner store, except TRUCE_CAN_CHECK.
 *
 * A call is one verb of the backend table (sys/store.h), or one step of a cursor ("next"). A
 * snapshot view belongs to the inner store: its calls are neither failed nor reported.
 */
#include <stdio.h>

#include "truce/sys/store.h"

TRUCE_BEGIN_DECLS

/* ---- fault --------------------------------------------------------------------------------- */

typedef enum truce_fault_kind {
    /* Calls are counted, and none fails. */
    TRUCE_FAULT_NONE,
    /* The call returns `status` and does not reach the inner store, except for a rewrite: the inner
     * store computes its documents and stores none. */
    TRUCE_FAULT_FAIL,
    /* The inner store executes the call, but the caller receives TRUCE_UNKNOWN. */
    TRUCE_FAULT_LOSE,
    /* die() runs instead of the call. */
    TRUCE_FAULT_DIE_BEFORE,
    /* The inner store executes the call, then die() runs. */
    TRUCE_FAULT_DIE_AFTER,
    /* A write returns success and does nothing. A test suite that looks for lost writes must detect
     * this canary. Other verbs are not affected. */
    TRUCE_FAULT_LIE,
} truce_fault_kind;

typedef struct truce_fault_options {
    truce_fault_kind kind;
    /* The number of the call, from 1. */
    uint64_t at;
    /* Fail every later call, too. */
    bool from_then_on;
    /* Count and fail only calls that may change data. */
    bool writes_only;
    /* For TRUCE_FAULT_FAIL. 0 means TRUCE_IO. */
    truce_status status;
    /* Must not return. NULL means that the process sends SIGKILL to itself. */
    void (*die)(void *arg);
    void *arg;
} truce_fault_options;

/* Returns a store that wraps `inner` and injects the fault. */
TRUCE_EXPORT truce_store *truce_fault_wrap(truce_store *inner, const truce_fault_options *options);

/* Sets a new fault and resets the counters to 0. `store` must be a result of truce_fault_wrap. */
TRUCE_EXPORT void truce_fault_arm(truce_store *store, const truce_fault_options *options);
/* Returns the number of calls since the fault was set. A run without a fault thus returns the
 * number of runs with one. */
TRUCE_EXPORT uint64_t truce_fault_calls(const truce_store *store);
/* Returns the number of calls that failed since the fault was set. If it is 0, `at` is after the
 * last call. */
TRUCE_EXPORT uint64_t truce_fault_hits(const truce_store *store);

/* ---- trace --------------------------------------------------------------------------------- */

/*
 * Receives one document for each call, in the order in which the calls return:
 *
 *     {n: 17, verb: "bulk", collection: "accounts", thread: 2, begin: <ns>, end: <ns>,
 *      arguments: {...}, status: "ok", error: {code, message}, answer: {...}}
 *
 * `begin` and `end` come from one monotonic clock. `thread` numbers the threads in the order of
 * their first call. With `beginnings`, a document {n, verb, collection, thread, begin, arguments}
 * precedes each call. A call whose process dies is thus visible too.
 */
typedef void truce_trace_function(const bson_t *event, void *arg);

typedef struct truce_trace_options {
    /* Is called by one thread at a time. */
    truce_trace_function *function;
    void *arg;
    /* Also report the begin of each call. */
    bool beginnings;
} truce_trace_options;

/* Returns a store that wraps `inner` and reports every call. */
TRUCE_EXPORT truce_store *truce_trace_wrap(truce_store *inner, const truce_trace_options *options);

/* Writes an event to the FILE * `file` as one line of canonical Extended JSON. It is a
 * truce_trace_function. */
TRUCE_EXPORT void truce_trace_to_file(const bson_t *event, void *file);

TRUCE_END_DECLS

#endif
