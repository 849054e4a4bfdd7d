/*
 * Threads of one handle that claim at once: one of them claims for all.
 *
 *     claim     waits in the line; the first in it leads, if nobody does
 *     leader    takes the line, and claims as many jobs as stand in it in one look and one write (queue_many.c);
 *               wakes those that it claimed for, and the first of the rest, who leads next
 *
 * So a crowd does not look for the same first job, and its claims share what a write costs. Nobody waits for a line to
 * fill: who comes alone claims alone. Only where jobs are claimed inside the store's write; a server does
 * better with claims side by side. Safety owes nothing to this.
 *
 * A child of a fork has the line as it stood, and none of those who stand in it: it claims alone.
 */
#include <unistd.h>

#include "patterns/queue/queue.h"

#define MOST  64
#define TRIES 4

struct claimer {
    struct claimer *next;
    pthread_cond_t wake;
    truce_job *job;
    truce_status status;
    bson_error_t error;
    bool done;
};

void truce__crowd_begin(struct queue_crowd *crowd)
{
    *crowd = (struct queue_crowd){.process = getpid()};
    pthread_mutex_init(&crowd->mutex, NULL);
}

void truce__crowd_end(struct queue_crowd *crowd)
{
    pthread_mutex_destroy(&crowd->mutex);
}

bool truce__crowd_may_form(const truce_queue *queue)
{
    return (queue->store->capabilities & TRUCE_CAN_REWRITE) && queue->crowd.process == getpid();
}

/* Those that get none are told why. */
static void claim_for(truce_queue *queue, struct claimer *first, size_t count)
{
    truce_job *jobs[MOST];
    bson_error_t error = {0};
    truce_status status = TRUCE_OK;

    for (int i = 0; i < TRIES && count > 1 && !status; i++) {
        size_t claimed;

        status = truce__queue_claim_several(queue, count, jobs, &claimed, &error);
        for (size_t k = 0; k < claimed; k++, first = first->next, count--)
            first->job = jobs[k];
    }
    for (; first; first = first->next) {
        if (!status)
            status = truce__queue_claim_one(queue, &first->job, &error);
        first->status = status;
        first->error = error;
    }
}

/* With the mutex held; it is given up meanwhile. */
static void crowd_lead(truce_queue *queue)
{
    struct queue_crowd *crowd = &queue->crowd;
    struct claimer *first = crowd->first, *last = first, *next;
    size_t count = 1;

    for (; last->next && count < MOST; count++)
        last = last->next;
    crowd->first = last->next;
    if (!crowd->first)
        crowd->last = NULL;
    last->next = NULL;
    crowd->led = true;
    pthread_mutex_unlock(&crowd->mutex);
    claim_for(queue, first, count);
    pthread_mutex_lock(&crowd->mutex);
    crowd->led = false;
    for (; first; first = next) {
        next = first->next;
        first->done = true;
        pthread_cond_signal(&first->wake);
    }
    if (crowd->first)
        pthread_cond_signal(&crowd->first->wake);
}

truce_status truce__crowd_claim(truce_queue *queue, truce_job **job, bson_error_t *error)
{
    struct queue_crowd *crowd = &queue->crowd;
    struct claimer own = {0};

    pthread_cond_init(&own.wake, NULL);
    pthread_mutex_lock(&crowd->mutex);
    if (crowd->last)
        crowd->last->next = &own;
    else
        crowd->first = &own;
    crowd->last = &own;
    while (!own.done && (crowd->led || crowd->first != &own))
        pthread_cond_wait(&own.wake, &crowd->mutex);
    if (!own.done)
        crowd_lead(queue);
    pthread_mutex_unlock(&crowd->mutex);
    pthread_cond_destroy(&own.wake);
    *job = own.job;
    if (own.status && error)
        *error = own.error;
    return own.status;
}
