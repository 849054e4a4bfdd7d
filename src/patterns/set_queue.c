/*
 * Calls of several threads on one handle, put together by a leader and followers.
 *
 *     call     waits in the queue; the first in it leads if nobody does
 *     leader   takes the queue, up to ROUND_OPERATIONS, and applies it as one batch; wakes those
 *              whose calls are done, and the first of the rest, who leads next
 *
 * So the operations that wait for the disk meanwhile are folded: each document is read and written
 * once for all of them, however many callers there are, and callers of one process do not lose races
 * against each other. Nobody waits to fill a round: a single operation that is alone is applied at
 * once by one guarded update (set_form.c). Safety owes nothing to this: other handles and processes
 * do not know of the queue.
 */
#include "base/assert.h"
#include "patterns/set.h"

#define ROUND_OPERATIONS 32768

/* Takes calls off the queue; with the mutex held. */
static struct set_call *take_round(truce_set *set, size_t *operations)
{
    struct set_call *first = set->queue_first, *last = first;

    truce_assert(first);
    *operations = first->count;
    while (last->next && *operations + last->next->count <= ROUND_OPERATIONS) {
        last = last->next;
        *operations += last->count;
    }
    set->queue_first = last->next;
    if (!last->next)
        set->queue_last = NULL;
    last->next = NULL;
    return first;
}

static void apply_alone(truce_set *set, struct set_call *call)
{
    const struct set_operation *operation = &call->operations[0];
    truce_set_result *result = &call->results[0];

    result->status = set->layout == TRUCE_SET_BY_ELEMENT
                         ? truce__set_element_apply(set, operation, &result->outcome, &call->error)
                         : truce__set_apply_one(set, operation, &result->outcome, &call->error);
    call->status = result->status;
}

static void apply_round(truce_set *set, struct set_call *calls, size_t count)
{
    struct set_operation *all;
    size_t at = 0;

    if (count == 1) {
        apply_alone(set, calls);
    } else if (!calls->next) {
        truce__set_apply_batch(set, calls->operations, count);
    } else {
        all = bson_malloc(count * sizeof *all);
        for (struct set_call *call = calls; call; call = call->next) {
            memcpy(all + at, call->operations, call->count * sizeof *all);
            at += call->count;
        }
        truce_assert(at == count);
        truce__set_apply_batch(set, all, count);
        bson_free(all);
    }
}

/* With the mutex held; it is given up while the round is applied. */
static void lead(truce_set *set)
{
    size_t count;
    struct set_call *calls = take_round(set, &count), *next;

    set->leading = true;
    pthread_mutex_unlock(&set->queue_mutex);
    apply_round(set, calls, count);
    pthread_mutex_lock(&set->queue_mutex);
    set->leading = false;
    for (struct set_call *call = calls; call; call = next) {
        next = call->next; /* the call is gone when its owner sees `done` */
        call->done = true;
        pthread_cond_signal(&call->wake);
    }
    if (set->queue_first)
        pthread_cond_signal(&set->queue_first->wake);
}

void truce__set_submit(truce_set *set, struct set_call *call)
{
    truce_assert(call->count > 0 && !call->done && !call->next);
    pthread_cond_init(&call->wake, NULL);
    pthread_mutex_lock(&set->queue_mutex);
    if (set->queue_last)
        set->queue_last->next = call;
    else
        set->queue_first = call;
    set->queue_last = call;
    while (!call->done) {
        if (!set->leading && set->queue_first == call)
            lead(set);
        else
            pthread_cond_wait(&call->wake, &set->queue_mutex);
    }
    pthread_mutex_unlock(&set->queue_mutex);
    pthread_cond_destroy(&call->wake);
}
