#ifndef TRUCE_ENGINE_HELPER_THREADS_H
#define TRUCE_ENGINE_HELPER_THREADS_H

/*
 * Threads that help a long call while processors are idle.
 *
 * No call depends on a helper: a helper may start late or never, and may be suspended at any time.
 * Therefore its task is work that the call would otherwise do itself later.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "truce/status.h"

/* The maximum number of helpers. More would only wait for the one thread that takes their
 * results. */
#define HELPERS_MAX 3

/* The size of a lent buffer in bytes. */
#define HELPERS_BLOCK (256 * 1024)

struct helpers;

/* Creates the pool of helpers. At most `number` helpers work at the same time. If `number` is
 * negative, the number of idle processors is the limit. */
struct helpers *truce__helpers_new(int number);
/* Waits until the running tasks have ended, and frees the pool. NULL is allowed. */
void truce__helpers_free(struct helpers *helpers);

/* Reads the environment variable TRUCE_HELPERS into `*number`, which is -1 if the variable is not
 * set. Fails with INVALID unless the value is a number from 0 to HELPERS_MAX. */
truce_status truce__helpers_number(int *number, bson_error_t *error);

/* Begins and ends a call that could use helpers. The call counts as busy on one processor. */
void truce__helpers_enter(struct helpers *helpers);
void truce__helpers_leave(struct helpers *helpers);

/* Returns whether a helper is available now. */
bool truce__helpers_any(const struct helpers *helpers);
/* Calls `run` once, in another thread. Returns false if no helper is available. */
bool truce__helpers_run(struct helpers *helpers, void (*run)(void *arg), void *arg);

/* Lends an empty buffer of HELPERS_BLOCK bytes, which must not grow, and takes it back. The memory
 * is reused, so it need not come from the system each time. */
void truce__helpers_lend(struct helpers *helpers, struct buffer *buffer);
void truce__helpers_take_back(struct helpers *helpers, struct buffer *buffer);

/* The work of a helper so far, zeroed at the beginning. */
struct helper_work {
    bool begun;
    /* The parts of the helper's work, and those during which the system preempted it. */
    unsigned parts, disturbed;
    /* The thread's count of preemptions at the last call. */
    long switches;
};
/* Returns whether a helper may continue. The helper calls this before each part of its work.
 * Returns false if there is more work than processors, or if other threads need the helper's
 * processor. In the second case no helper starts for a while. */
bool truce__helpers_may_continue(struct helpers *helpers, struct helper_work *work);

#endif
