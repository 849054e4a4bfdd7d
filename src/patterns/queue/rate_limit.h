#ifndef TRUCE_PATTERNS_QUEUE_RATE_LIMIT_H
#define TRUCE_PATTERNS_QUEUE_RATE_LIMIT_H

/*
 * Rates: at most `rate` jobs begin in any time of `per_ms`. A gate and a lane each hold one, in their document:
 *
 *     {..., rate: 100, per_ms: 60000, at: <date>, begun: [{at: <date>, n: 3}, ...]}
 *
 * The document is read and written in the commit of each begin, so begins of all processes are counted one after the other.
 *
 * Clocks differ and jump, so the document has a time of its own, `at`. A process that begins a job advances it to the latest of
 *
 *     the stored time      its own wall clock      the stored time and for how long it has seen that time (monotonic)
 *
 *   R1. The time never goes back. A clock that is behind takes nothing out of the window.
 *   R2. The time runs no faster than one clock does. So if the clocks of the claimers agree, a window of this time is no shorter
 *       than one of real time. If they differ, begins that a slower clock has dated may leave the window early when a faster
 *       one advances the time: at most `rate` jobs begin in a window for each clock that differs, and the excess needs that the
 *       faster clock has not advanced the time for as long as they differ. models/rate.cpp is the model.
 *   R3. The time does not stand still for longer than a process needs to see it twice: if the clock that was ahead is gone,
 *       the others advance the time by their monotonic clocks.
 *   R4. `begun` holds when jobs began. A rate of up to 32 counts exactly. Above, the begins of one thirty-second of the window are
 *       one entry, which counts until its last begin leaves the window: never too many begin, and at most 3 % fewer.
 */
#include <bson/bson.h>

#include "truce/sys/store.h"

#define RATE_ENTRIES 34

struct queue_rate {
    int64_t rate, per_ms; /* rate 0: no limit */
    int64_t now_ms;       /* of the document's own time */
    size_t count;
    struct {
        int64_t at_ms, n;
    } begun[RATE_ENTRIES]; /* the oldest first */
};

/* Reads a gate or a lane, and what its time is now. `id`: its _id, by which it is watched. */
void truce__rate_read(struct queue_rate *rate, truce_store *store, const bson_t *document,
                      const bson_t *id);
/* How long until a job may begin, in ms; 0: now. */
int64_t truce__rate_wait_ms(const struct queue_rate *rate);
/* Counts a job that begins now. */
void truce__rate_begin(struct queue_rate *rate);
/* How long until the last begin leaves the window, in ms; 0: none is in it. */
int64_t truce__rate_left_ms(const struct queue_rate *rate);
/* Appends rate, per_ms, at and begun, or nothing if there is no limit. */
void truce__rate_append(const struct queue_rate *rate, bson_t *document);

#endif
