/*
 * Claims that wait until a job is ready (long polling).
 *
 * The wait ends when a job is added (truce_wait). It also ends after a pause. Some events wake
 * no waiting claim: the time of a delayed job, the end of a lease, a rate that allows the next job.
 * On a store without truce_wait, the claim polls with growing pauses.
 */
#include "base/clock.h"
#include "base/null.h"
#include "patterns/queue/queue.h"

#define WAIT_MS 1000 /* The longest sleep, because the end of a lease wakes no claimer. */
/* The shortest sleep. */
#define WAIT_MS_MIN 20
/* The longest sleep if the queue has a limiter, because a rate that allows the next job wakes no
 * claimer. */
#define GATED_MS 250
#define NS_IN_MS INT64_C(1000000)

int64_t truce__queue_pause_ms(const truce_queue *queue)
{
    int64_t due_ms = atomic_load(&queue->due_ms), left_ms;

    if (atomic_load(&queue->limited))
        return GATED_MS;
    left_ms = due_ms - truce__clock_wall_ms();
    if (!due_ms || left_ms > WAIT_MS)
        return WAIT_MS;
    return left_ms < WAIT_MS_MIN ? WAIT_MS_MIN : left_ms;
}

truce_status truce_queue_claim_wait(truce_queue *queue, uint32_t timeout_ms, truce_job **job,
                                    bson_error_t *error)
{
    RETURN_IF_NULL(job, error);

    int64_t deadline_ns = truce__clock_monotonic_ns() + timeout_ms * NS_IN_MS;
    bool waits = (queue->store->capabilities & TRUCE_CAN_WAIT) != 0;
    uint64_t token = 0;
    truce_status status = TRUCE_OK;
    int64_t pause_ms = 5;

    *job = NULL;
    if (waits) /* Fills the token: a job that is added after this call wakes the claimer. */
        status = truce_wait(queue->store, QUEUE, &token, 0, error);
    while (!status) {
        int64_t left_ms;

        status = truce_queue_claim(queue, job, error);
        left_ms = (deadline_ns - truce__clock_monotonic_ns()) / NS_IN_MS;
        if (status != TRUCE_NOT_FOUND || left_ms <= 0)
            return status;
        if (waits) {
            int64_t most_ms = truce__queue_pause_ms(queue);

            status = truce_wait(queue->store, QUEUE, &token,
                                (uint32_t)(left_ms < most_ms ? left_ms : most_ms), error);
        } else {
            truce__clock_sleep_ms(left_ms < pause_ms ? left_ms : pause_ms);
            pause_ms = pause_ms < WAIT_MS / 2 ? pause_ms * 2 : WAIT_MS;
            status = TRUCE_OK;
        }
        if (status == TRUCE_TIMEOUT &&
            !__atomic_load_n(&queue->store->interrupted, __ATOMIC_RELAXED))
            status = TRUCE_OK;
    }
    return status;
}
