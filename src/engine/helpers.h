#ifndef TRUCE_ENGINE_HELPERS_H
#define TRUCE_ENGINE_HELPERS_H

/*
 * Threads that help a call which has much to do, while processors have nothing else to do.
 *
 * Nobody depends on a helper: it may come late, or never, and may be put aside at any time. So what it is given to do
 * is what the call would do itself, later.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "truce/status.h"

#define HELPERS_MAX   3 /* what they bring is taken up by one thread, which is at its end with that */

#define HELPERS_BLOCK (256 * 1024) /* bytes of a buffer that is lent */

struct helpers;

/* `number`: so many, whatever else there is to do; less than 0: as many as there are processors without work. */
struct helpers *truce__helpers_new(int number);
/* When what they do has ended. NULL is allowed. */
void truce__helpers_free(struct helpers *helpers);

/* What TRUCE_HELPERS says; -1: nothing. INVALID: something else than a number from 0 to HELPERS_MAX. */
truce_status truce__helpers_number(int *number, bson_error_t *error);

/* A call begins that could be helped, and is over: it has a processor for itself. */
void truce__helpers_enter(struct helpers *helpers);
void truce__helpers_leave(struct helpers *helpers);

/* Is there anybody who could be asked now? */
bool truce__helpers_any(const struct helpers *helpers);
/* `run` is called once, in a thread of its own. False: there is no helper for that. */
bool truce__helpers_ask(struct helpers *helpers, void (*run)(void *arg), void *arg);

/* An empty buffer with so much room, which is not to grow, and back; others are lent the same memory, so that it need not be
 * had of the system each time. */
void truce__helpers_lend(struct helpers *helpers, struct buffer *buffer);
void truce__helpers_take_back(struct helpers *helpers, struct buffer *buffer);

/* For a helper, again and again while it works: may it go on? Not if there are more at work than processors, or others
 * want the one that it runs on: then there are no helpers for a moment. `*work` is zeroed at the beginning. */
struct helper_work {
    bool begun;
    unsigned parts, disturbed;
    long switches;
};
bool truce__helpers_go_on(struct helpers *helpers, struct helper_work *work);

#endif
