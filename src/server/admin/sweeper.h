#ifndef TRUCE_SERVER_ADMIN_SWEEPER_H
#define TRUCE_SERVER_ADMIN_SWEEPER_H

/*
 * The sweep (truce/sweep.h) as a loop in a thread of the server. Each pass calls truce_sweep until
 * it leaves nothing, at most ROUNDS_MAX times.
 *
 * Invariants:
 *  1. One pass runs at a time. If a client's truceSweep is running, the pass is skipped and
 *     counted.
 *  2. A failure is logged unless the pass before had the same. A pass that changed something is
 *     logged.
 *  3. No thread waits long for the sweeper: after sweeper_stop it makes no further call, and
 *     the interrupt of the store (server_stop) ends the current one. A sweep may be interrupted
 *     at any time.
 */
#include <stdint.h>

#include "truce/sweep.h"

struct server;
struct sweeper;

struct sweep_sums {
    /* 0 means that the server does not sweep. */
    int64_t every_ms;
    /* The number of passes that ran, that were skipped, and that ended with an error (also counted
     * in the first). */
    int64_t passes, skipped, broken;
    /* The sum of all passes. */
    truce_sweep_report all;
};

struct sweeper *sweeper_new(int64_t every_ms);
void sweeper_free(struct sweeper *sweeper);

/* Starts the loop, if the options request it; server->sweeping is set until the loop has ended.
 * Returns false if the thread cannot be created. */
bool sweeper_start(struct server *server);
/* Makes the loop end before its next call of truce_sweep. */
void sweeper_stop(struct sweeper *sweeper);
/* Sets the interval of a running loop. The current wait gets the new length, from its beginning. */
void sweeper_set_every(struct sweeper *sweeper, int64_t every_ms);
/* Waits for the end of the thread, if it exists. */
void sweeper_join(struct sweeper *sweeper);

/* These calls enclose a client's sweep. The loop skips passes in between (invariant 1). */
void sweeper_enter(struct sweeper *sweeper);
void sweeper_leave(struct sweeper *sweeper);

void sweeper_count(struct sweeper *sweeper, struct sweep_sums *sums);

#endif
