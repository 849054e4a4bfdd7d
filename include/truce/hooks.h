#ifndef TRUCE_HOOKS_H
#define TRUCE_HOOKS_H

/*
 * Hooks of a store: log messages and slow calls.
 *
 * A store reports events that no call returns, and calls that took long, through functions of the
 * program:
 *
 *     static void on_slow(const truce_slow_call *call, void *arg)
 *     {
 *         fprintf(stderr, "%s took %lld us\n", call->verb, (long long)call->duration_us);
 *     }
 *     ...
 *     truce_store_hooks hooks = {.slow = on_slow, .slow_ms = 200};
 *     truce_store_options options = {.hooks = &hooks};
 *
 * All kinds of stores support hooks. The functions run on any thread, possibly on several
 * concurrently, and must not call the store. Their arguments are valid until they return.
 */
#include "truce/status.h"

TRUCE_BEGIN_DECLS

typedef enum truce_log_level {
    /* An operator must act, for example because the disk refused a write. */
    TRUCE_LOG_ERROR = 1,
    /* The store works, but needs attention, for example because the log cannot be restarted. */
    TRUCE_LOG_WARNING,
    /* The store acted by itself, for example ended a snapshot that was too old. */
    TRUCE_LOG_INFO,
} truce_log_level;

typedef struct truce_slow_call {
    /* The call of truce/store.h without its "truce_": find, count, distinct, aggregate, explain,
     * insert, update, remove, bulk, find_and_modify, index_create, and so on. "next" is a step of a
     * cursor. Calls that truce makes internally are reported too: "rewrite" is a write of an
     * ordered set, "read_many" a read of several documents. Waiting time is never reported, however
     * long it lasts. */
    const char *verb;
    /* NULL means that the call has no collection, or several. */
    const char *collection;
    int64_t duration_us;
    truce_status status;
    /* The error message. NULL means that no error occurred. */
    const char *message;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_slow_call;

typedef struct truce_store_hooks {
    /* Receives log messages. NULL means that they are dropped. */
    void (*log)(truce_log_level level, const char *message, void *arg);
    /* Receives slow calls. NULL means that they are not reported. */
    void (*slow)(const truce_slow_call *call, void *arg);
    /* The threshold: calls that took at least this long are reported. 0 means 100. */
    uint32_t slow_ms;
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_store_hooks;

TRUCE_END_DECLS

#endif
