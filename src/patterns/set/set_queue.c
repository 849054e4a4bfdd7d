/*
 * Calls of several threads on one handle, put together by a leader and followers.
 *
 *     call     waits in the queue; the first in it leads if it may
 *     leader   takes the queue, up to a round's size, and applies it as one batch; wakes those
 *              whose calls are done, and the first of the rest, who leads next
 *
 * Small rounds may be two at a time, if they have no document in common: one looks and merges while
 * the other waits for the disk. A large one touches so many documents that it is alone.
 *
 * So the operations that wait for the disk meanwhile are folded: each document is read and written
 * once for all of them, however many callers there are, and callers of one process do not lose races
 * against each other. Nobody waits to fill a round: a single operation that is alone is applied at
 * once, merged inside the store or by one guarded update (set_form.c). Safety owes nothing to this: other handles and processes
 * do not know of the queue.
 */
#include "base/assert.h"
#include "patterns/set/set.h"

#define ROUND_OPERATIONS 32768
#define SMALL_ROUND      64

static uint64_t *word_of(struct set_round *round, uint64_t key_hash, uint64_t *bit)
{
    uint64_t mixed = key_hash * UINT64_C(0x9e3779b97f4a7c15) >> 54; /* 0 to 1023 */

    *bit = UINT64_C(1) << mixed % 64;
    return &round->keys[mixed / 64];
}

/* Has a round that is being applied perhaps a document in common with the call? */
static bool overlaps(truce_set *set, const struct set_call *call)
{
    for (int r = 0; r < SET_ROUNDS_MAX; r++) {
        for (size_t i = 0; set->rounds[r].used && i < call->count; i++) {
            uint64_t bit;

            if (*word_of(&set->rounds[r], call->operations[i].key_hash, &bit) & bit)
                return true;
        }
    }
    return false;
}

/* A free round for the first call of the queue; NULL: it has to wait. */
static struct set_round *may_lead(truce_set *set, const struct set_call *call)
{
    struct set_round *found = NULL;
    bool any = false;

    if (set->queue_first != call)
        return NULL;
    for (int r = 0; r < SET_ROUNDS_MAX; r++) {
        if (!set->rounds[r].used)
            found = &set->rounds[r];
        else if (set->rounds[r].large)
            return NULL;
        else
            any = true;
    }
    if (any && (call->count > SMALL_ROUND || overlaps(set, call)))
        return NULL;
    return found;
}

static void mark(struct set_round *round, const struct set_call *call)
{
    for (size_t i = 0; !round->large && i < call->count; i++) {
        uint64_t bit, *word = word_of(round, call->operations[i].key_hash, &bit);

        *word |= bit;
    }
}

/* Takes calls off the queue; with the mutex held. */
static struct set_call *take_round(truce_set *set, struct set_round *round, size_t *operations)
{
    struct set_call *first = set->queue_first, *last = first;
    size_t most = first->count > SMALL_ROUND ? ROUND_OPERATIONS : SMALL_ROUND;

    *operations = first->count;
    while (last->next && *operations + last->next->count <= most &&
           (most > SMALL_ROUND || !overlaps(set, last->next))) {
        last = last->next;
        *operations += last->count;
    }
    set->queue_first = last->next;
    if (!last->next)
        set->queue_last = NULL;
    last->next = NULL;
    *round = (struct set_round){.used = true, .large = *operations > SMALL_ROUND};
    for (const struct set_call *call = first; call; call = call->next)
        mark(round, call);
    return first;
}

static void apply_alone(truce_set *set, struct set_call *call)
{
    const struct set_operation *operation = &call->operations[0];
    truce_set_result *result = &call->results[operation->number];
    bson_error_t why = {0};

    if (set->rewrites) {
        truce__set_apply_batch(set, call->operations, 1);
        return;
    }
    result->status = set->layout == TRUCE_SET_BY_ELEMENT
                         ? truce__set_element_apply(set, operation, NULL, &result->outcome, &why)
                         : truce__set_apply_one(set, operation, NULL, &result->outcome, &why);
    call->held = !result->status && result->outcome == SET_OUTCOME_HELD;
    if (result->status)
        truce__set_call_fail(call, operation->number, result->status, &why);
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

/* A mutex for each call: those that are woken do not all want the queue's, which the leader needs. */
static void wake(struct set_call *call, bool done)
{
    pthread_mutex_lock(&call->mutex);
    call->turn = true;
    call->done = done;
    pthread_cond_signal(&call->wake);
    pthread_mutex_unlock(&call->mutex);
}

/* Whether it is done; otherwise it may be its turn to lead. */
static bool wait_for_turn(struct set_call *call)
{
    bool done;

    pthread_mutex_lock(&call->mutex);
    while (!call->turn)
        pthread_cond_wait(&call->wake, &call->mutex);
    call->turn = false;
    done = call->done;
    pthread_mutex_unlock(&call->mutex);
    return done;
}

/* With the queue's mutex held, so that the call cannot leave the queue meanwhile. */
static void wake_first(const struct truce_set *set)
{
    if (set->queue_first)
        wake(set->queue_first, false);
}

/* With the queue's mutex held; it is given up. */
static void lead(truce_set *set, struct set_round *round)
{
    size_t count;
    struct set_call *own = take_round(set, round, &count), *call, *next;

    wake_first(set);
    pthread_mutex_unlock(&set->queue_mutex);
    apply_round(set, own, count);
    pthread_mutex_lock(&set->queue_mutex);
    round->used = false;
    wake_first(set);
    pthread_mutex_unlock(&set->queue_mutex);
    for (call = own->next; call; call = next) {
        next = call->next;
        wake(call, true);
    }
}

static void enqueue(truce_set *set, struct set_call *call)
{
    if (set->queue_last)
        set->queue_last->next = call;
    else
        set->queue_first = call;
    set->queue_last = call;
}

void truce__set_submit(truce_set *set, struct set_call *call)
{
    struct set_round *round = NULL;
    bool done = false;

    truce_assert(call->count > 0 && !call->done && !call->next);
    pthread_mutex_init(&call->mutex, NULL);
    pthread_cond_init(&call->wake, NULL);
    pthread_mutex_lock(&set->queue_mutex);
    enqueue(set, call);
    while (!done && !(round = may_lead(set, call))) {
        pthread_mutex_unlock(&set->queue_mutex);
        done = wait_for_turn(call);
        if (!done)
            pthread_mutex_lock(&set->queue_mutex);
    }
    if (round)
        lead(set, round);
    pthread_cond_destroy(&call->wake);
    pthread_mutex_destroy(&call->mutex);
}
