#ifndef TRUCE_SYS_DECORATE_H
#define TRUCE_SYS_DECORATE_H

/*
 * Stores that wrap a store, for tests and simulators: `fault` makes one call go wrong, `trace`
 * tells every call. They can be stacked. A wrapper takes over the store it wraps and closes it with
 * itself; it has the capabilities of the inner store.
 *
 * A call is one verb of the backend table (sys/store.h), or one step of a cursor ("next"). The view of a snapshot is
 * that of the inner store: its calls are neither hit nor told.
 */
#include <stdio.h>

#include "truce/sys/store.h"

TRUCE_BEGIN_DECLS

/* ---- fault --------------------------------------------------------------------------------- */

typedef enum truce_fault_kind {
    TRUCE_FAULT_NONE,       /* calls are counted, nothing goes wrong */
    TRUCE_FAULT_FAIL,       /* the call returns `status`, and the inner store never sees it */
    TRUCE_FAULT_LOSE,       /* the inner store does it, but the caller gets TRUCE_UNKNOWN */
    TRUCE_FAULT_DIE_BEFORE, /* die() is called instead of the call */
    TRUCE_FAULT_DIE_AFTER,  /* the inner store does it, then die() is called */
    TRUCE_FAULT_LIE, /* a write returns success and does nothing: a canary, which a suite that
                        looks for lost writes must catch; other verbs are not touched */
} truce_fault_kind;

typedef struct truce_fault_options {
    truce_fault_kind kind;
    uint64_t at;            /* the number of the call, from 1 */
    bool from_then_on;      /* not only this one, every later one too */
    bool writes_only;       /* only calls that may change something are counted and hit */
    truce_status status;    /* for FAIL; 0: TRUCE_IO */
    void (*die)(void *arg); /* must not return; NULL: SIGKILL to this process */
    void *arg;
} truce_fault_options;

TRUCE_EXPORT truce_store *truce_fault_wrap(truce_store *inner, const truce_fault_options *options);

/* `store` must be what truce_fault_wrap returned. Arms anew, and counts from 0 again: */
TRUCE_EXPORT void truce_fault_arm(truce_store *store, const truce_fault_options *options);
/* How many calls were counted since; so a run without a fault tells how many runs with one there
 * are. */
TRUCE_EXPORT uint64_t truce_fault_calls(const truce_store *store);
/* How many calls went wrong since. A run that hit nothing is past the last call. */
TRUCE_EXPORT uint64_t truce_fault_hits(const truce_store *store);

/* ---- trace --------------------------------------------------------------------------------- */

/*
 * One document for each call that returned, in the order in which they returned:
 *
 *     {n: 17, verb: "bulk", collection: "accounts", thread: 2, begin: <ns>, end: <ns>,
 *      arguments: {...}, status: "ok", error: {code, message}, answer: {...}}
 *
 * `begin` and `end` are of one monotonic clock, `thread` counts the threads as they appear. With
 * `beginnings`, a document {n, verb, collection, thread, begin, arguments} comes before each call,
 * so that a call whose process died is seen too.
 */
typedef void truce_trace_function(const bson_t *event, void *arg);

typedef struct truce_trace_options {
    truce_trace_function *function; /* one call at a time, also with several threads */
    void *arg;
    bool beginnings;
} truce_trace_options;

TRUCE_EXPORT truce_store *truce_trace_wrap(truce_store *inner, const truce_trace_options *options);

/* A truce_trace_function: a line of canonical Extended JSON to the FILE * `file`. */
TRUCE_EXPORT void truce_trace_to_file(const bson_t *event, void *file);

TRUCE_END_DECLS

#endif
