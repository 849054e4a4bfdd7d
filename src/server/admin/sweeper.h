#ifndef TRUCE_SERVER_ADMIN_SWEEPER_H
#define TRUCE_SERVER_ADMIN_SWEEPER_H

/*
 * The sweep (truce/sweep.h) as a loop of the server, in a thread of its own: a turn every so many seconds, of as many rounds
 * as there is something left over.
 *
 * Invariants:
 *  1. One turn at a time; where a client's truceSweep runs just then, the turn is left out, and counted.
 *  2. A failure is told in the log when it is another than that of the turn before, and what was done when anything was.
 *  3. Nobody waits for it: once it is to end it begins no further round, and the one that runs ends with the store's
 *     interrupt (server_stop), which a sweep may be at any time.
 */
#include <stdint.h>

#include "truce/sweep.h"

struct server;
struct sweeper;

struct sweep_sums {
    int64_t every_ms; /* 0: there is no loop */
    int64_t turns, skipped,
        broken;             /* that were run, left out; that ended with an error, of `turns` */
    truce_sweep_report all; /* of all of them */
};

struct sweeper *sweeper_new(int64_t every_ms);
void sweeper_free(struct sweeper *sweeper);

/* Begins the loop, if there is to be one; server->sweeping until it has ended. False: no thread can be had. */
bool sweeper_start(struct server *server);
/* It begins nothing any more. */
void sweeper_stop(struct sweeper *sweeper);
/* From now on, if it sweeps at all; the turn that is waited for counts from when its waiting began. */
void sweeper_set_every(struct sweeper *sweeper, int64_t every_ms);
/* Waits for the end of its thread, if there is one. */
void sweeper_join(struct sweeper *sweeper);

/* Around a sweep by a client. */
void sweeper_enter(struct sweeper *sweeper);
void sweeper_leave(struct sweeper *sweeper);

void sweeper_count(struct sweeper *sweeper, struct sweep_sums *sums);

#endif
