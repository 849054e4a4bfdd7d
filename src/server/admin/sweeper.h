#ifndef TRUCE_SERVER_ADMIN_SWEEPER_H
#define TRUCE_SERVER_ADMIN_SWEEPER_H

/*
 * The sweep (truce/sweep.h) as a loop in a thread of the server. Every turn runs rounds until
 * nothing is left over.
 *
 * Invariants:
 *  1. One turn runs at a time. If a client's truceSweep is running, the turn is skipped and
 *     counted.
 *  2. A failure is logged unless the turn before had the same. A turn that changed something is
 *     logged.
 *  3. No thread waits long for the sweeper: after sweeper_stop it begins no further round, and
 *     the interrupt of the store (server_stop) ends the current one. A sweep may be interrupted
 *     at any time.
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

/* Begins the loop, if there is to be one; server->sweeping until it has ended. False: no thread
 * can be had. */
bool sweeper_start(struct server *server);
/* It begins nothing any more. */
void sweeper_stop(struct sweeper *sweeper);
/* Sets the interval of a running loop. The current wait counts from its beginning. */
void sweeper_set_every(struct sweeper *sweeper, int64_t every_ms);
/* Waits for the end of its thread, if there is one. */
void sweeper_join(struct sweeper *sweeper);

/* Around a sweep by a client. */
void sweeper_enter(struct sweeper *sweeper);
void sweeper_leave(struct sweeper *sweeper);

void sweeper_count(struct sweeper *sweeper, struct sweep_sums *sums);

#endif
