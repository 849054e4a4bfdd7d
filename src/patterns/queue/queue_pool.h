#ifndef TRUCE_PATTERNS_QUEUE_QUEUE_POOL_H
#define TRUCE_PATTERNS_QUEUE_QUEUE_POOL_H

/* A pool from the inside. The essay is in queue_pool.c. */
#include "base/histogram.h"
#include "patterns/queue/queue.h"
#include "truce/pool.h"

enum pool_end {
    POOL_DONE,
    POOL_FAILED,
    POOL_SNOOZED,
    POOL_DISCARDED,
    POOL_LOST,
    POOL_RETURNED,
    POOL_ENDS
};

/* Where one claimed job stands. */
struct pool_place {
    pthread_mutex_t mutex; /* of job and extended_ns: who extends, and who frees, take turns */
    truce_job *job;        /* NULL: the place is free */
    int64_t extended_ns;
    bool abandoned;
    bool taken; /* under the pool's mutex, and so are: */
    int64_t begun_ns;
    struct pool_place *next; /* in the line of those that are to be ended */
};

struct truce_pool {
    truce_queue *queue;
    truce_pool_function *function;
    void *arg;
    uint32_t threads, ahead;
    pthread_t claimer, keeper, *workers;
    bool claims, keeps; /* these threads are to be joined */
    uint32_t working;   /* so many of the workers are */

    pthread_mutex_t mutex; /* of all that follows; under it nobody asks the store */
    pthread_cond_t more;   /* wakes workers */
    pthread_cond_t moved;  /* wakes the claimer, and who waits for the last to end */
    pthread_cond_t over;   /* wakes the keeper */
    bool stopping, ended;  /* ended: nothing is at work, and the threads go home */
    uint32_t busy;
    struct pool_place *places; /* threads + ahead */
    uint32_t *line;            /* the places of those that are ready, a ring */
    uint32_t first, ready;
    struct pool_place *ending, **ending_last; /* those that are to be ended */
    bool ends_some;                           /* a worker is at it */
    int64_t begun, ends[POOL_ENDS];
    struct histogram waited, ran;
    char trouble[200]; /* "": none */

    pthread_mutex_t stop; /* one at a time stops it */
};

static inline uint32_t truce__pool_places(const struct truce_pool *pool)
{
    return pool->threads + pool->ahead;
}

/* The next that is ready, taken out of the line; NULL: none. Under the mutex. */
struct pool_place *truce__pool_next(struct truce_pool *pool);
/* Its job has ended so: the place is free. */
void truce__pool_leave(struct truce_pool *pool, struct pool_place *place, enum pool_end end);
/* Under the mutex: until the condition, for so long at most. */
void truce__pool_pause(struct truce_pool *pool, pthread_cond_t *condition, int64_t most_ms);

/* The threads; the argument is the pool. */
void *truce__pool_claim(void *arg);
void *truce__pool_work(void *arg);
void *truce__pool_keep(void *arg);

#endif
