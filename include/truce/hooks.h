#ifndef TRUCE_HOOKS_H
#define TRUCE_HOOKS_H

/*
 * What a store tells its program by itself: messages that no call answers, and calls that took long.
 *
 *     static void on_slow(const truce_slow_call *call, void *arg)
 *     {
 *         fprintf(stderr, "%s took %lld us\n", call->verb, (long long)call->duration_us);
 *     }
 *     ...
 *     truce_store_hooks hooks = {.slow = on_slow, .slow_ms = 200};
 *     truce_store_options options = {.hooks = &hooks};
 *
 * All kinds of stores have them. The functions are called on any thread, several at once too, and may not
 * call the store. What they are given is valid until they return.
 */
#include "truce/status.h"

TRUCE_BEGIN_DECLS

typedef enum truce_log_level {
    TRUCE_LOG_ERROR = 1, /* somebody has to act: the disk refused a write */
    TRUCE_LOG_WARNING,   /* it works, but not as it should: the log cannot begin anew */
    TRUCE_LOG_INFO,      /* what happened by itself: a snapshot that was too old was ended */
} truce_log_level;

typedef struct truce_slow_call {
    /* The call of truce/store.h without its "truce_": find, count, distinct, aggregate, explain, insert,
     * update, remove, bulk, find_and_modify, index_create ..., or "next", a step of a cursor. What truce calls by
     * itself is told like this, too; "rewrite" is a write of an ordered set, "read_many" a look at several
     * documents. A wait is not slow, however long it lasts, and is never told. */
    const char *verb;
    const char *collection; /* NULL: none, or several */
    int64_t duration_us;
    truce_status status;
    const char *message;  /* of the error; NULL: there was none */
    uint64_t reserved[4]; /* zeros */
} truce_slow_call;

typedef struct truce_store_hooks {
    void (*log)(truce_log_level level, const char *message, void *arg); /* NULL: not told */
    void (*slow)(const truce_slow_call *call, void *arg);               /* NULL: not told */
    uint32_t slow_ms; /* calls that took as long, or longer; 0: 100 */
    void *arg;
    uint64_t reserved[4]; /* zeros */
} truce_store_hooks;

TRUCE_END_DECLS

#endif
