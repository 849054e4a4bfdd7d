#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_TIMES_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_TIMES_H

/* How long the jobs of this process waited and ran, as two histograms over all queues. */
#include <stdint.h>

#include "truce/queue.h"

/* The number of upper bounds in a distribution of times. */
#define QUEUE_TIMES_STEPS 12

/* A distribution of times. */
struct queue_times {
    /* counts[i]: the number of jobs between the steps i - 1 and i (not cumulated). The last element
     * counts all longer times. */
    uint64_t counts[QUEUE_TIMES_STEPS + 1];
    uint64_t sum_ms;
};

/* The upper bounds of the steps in ms. */
extern const uint32_t truce__queue_steps_ms[QUEUE_TIMES_STEPS];

/* Counts the time from the addition of a job to its first claim. A delay counts. Later claims are
 * not counted. */
void truce__queue_waited(const truce_job *job);
/* Counts the time from the claim of a job to the end of its attempt. */
void truce__queue_ran(const truce_job *job);
/* Copies both histograms. */
void truce__queue_times(struct queue_times *waited, struct queue_times *ran);

#endif
