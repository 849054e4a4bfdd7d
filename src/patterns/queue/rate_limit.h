#ifndef TRUCE_PATTERNS_QUEUE_RATE_LIMIT_H
#define TRUCE_PATTERNS_QUEUE_RATE_LIMIT_H

/*
 * Rates: at most `rate` jobs begin in any time of `per_ms`. A limiter or a lane holds the rate in
 * its document:
 *
 *     {..., rate: 100, per_ms: 60000, at: <date>, begun: [{at: <date>, n: 3}, ...]}
 *
 * The commit of each begin reads and writes the document, so the begins of all processes are
 * counted one after the other.
 *
 * Clocks differ and jump, so the document has a time of its own, `at`. A process that begins a job
 * advances it to the latest of these times:
 *
 *   - the stored time
 *   - its own wall clock
 *   - the stored time plus the time for which it has seen this value (monotonic)
 *
 * Rules:
 *
 *  QR1. The time goes back only if the limits are set while it is more than a day ahead
 *       (rate_correct in rate_limit.c). A clock that is behind removes nothing from the window.
 *  QR2. The time runs no faster than one clock does. If the clocks of the claimers agree, a window
 *       of this time is no shorter than one of real time. If they differ, begins that a slower
 *       clock has dated may leave the window early, when a faster clock advances the time. At most
 *       `rate` jobs then begin in a window for each clock that differs. This excess needs a faster
 *       clock that has not advanced the time for as long as the clocks differ. models/rate.cpp is
 *       the model.
 *  QR3. The time pauses no longer than a process needs to see it twice. If the clock that was
 *       ahead is gone, the other processes advance the time by their monotonic clocks.
 *  QR4. `begun` holds the times of begins. A rate of up to 32 counts exactly. A higher rate
 *       combines the begins of one thirty-second of the window in one entry, which counts until its
 *       last begin leaves the window. Too many jobs therefore never begin, and at most 3 % fewer
 *       do.
 */
#include <bson/bson.h>

#include "truce/sys/store.h"

/* The maximum number of entries in a window. */
#define RATE_ENTRIES 34

/* The begins of jobs in the window of a rate. */
struct queue_rate {
    /* The rate: at most `rate` begins in any `per_ms`. If there is no limit, `rate` is 0. */
    int64_t rate, per_ms;
    /* The time of the document in ms since 1970 (QR1 to QR3). */
    int64_t now_ms;
    /* The number of elements in `begun`. */
    size_t count;
    /* The begins in the window, the oldest first: `n` jobs began at `at_ms` (QR4). */
    struct {
        int64_t at_ms, n;
    } begun[RATE_ENTRIES];
};

/* Reads the rate of a limiter or a lane, and its current time. `id` is the _id by which the process
 * watches it. */
void truce__rate_read(struct queue_rate *rate, truce_store *store, const bson_t *document,
                      const bson_t *id);
/* Returns the time in ms until a job may begin, or 0 if it may begin now. */
int64_t truce__rate_wait_ms(const struct queue_rate *rate);
/* Counts a job that begins now. */
void truce__rate_begin(struct queue_rate *rate);
/* Returns the time in ms until the last begin leaves the window, or 0 if the window is empty. */
int64_t truce__rate_left_ms(const struct queue_rate *rate);
/* Appends rate, per_ms, at, and begun, or nothing if there is no limit. */
void truce__rate_append(const struct queue_rate *rate, bson_t *document);

#endif
