/*
 * Calls of several threads on one handle, put together by a leader and followers.
 *
 *     call     waits in the queue until it may lead
 *     leader   takes calls off the queue, which are its round, and applies them as one batch; wakes
 *              those whose calls are done, and the next that may lead
 *
 * No two rounds have a document in common: `busy` counts the operations of all rounds by the hashes of their
 * documents. A call of many operations touches so many that its round is alone.
 *
 * A store that merges in its own write (`rewrites`) has a disk to wait for, once for a round however
 * large it is. There a round takes what it can, and small ones are two at a time: one looks and merges
 * while the other waits. So the operations that wait for the disk meanwhile are folded: each document is
 * read and written once for all of them.
 *
 * The other stores are asked by messages, one for each document that is written, and what is waited for is
 * the network. There (`beside`) a round takes the calls that share a document with its first, and no others:
 * what is of other documents is a round of its own, which travels at once on a connection of its own.
 *
 *     in the queue   a1   a2   c1   a3+b1   b2   c2     rounds   {a1, a2, a3+b1, b2}  {c1, c2}
 *
 * A call does not overtake another that waits for one of its documents, but does overtake the rest: one
 * document that is in everybody's way keeps nobody else waiting.
 *
 * Callers of one process do not lose races against each other. Nobody waits to fill a round: a single operation
 * that is alone is applied at once, merged inside the store or by one guarded update (set_form.c). Safety owes nothing
 * to this: other handles and processes do not know of the queue.
 */
#include "base/assert.h"
#include "patterns/set/set.h"

#define ROUND_OPERATIONS 32768
#define SMALL_ROUND      64

/* Documents, by hash. */
struct documents {
    uint64_t bits[SET_BUSY / 64];
};

static bool is_large(const struct set_call *call)
{
    return call->count > SMALL_ROUND;
}

/* In the layout by element each name has a document of its own. */
static size_t queue_place_of(const truce_set *set, const struct set_operation *operation)
{
    uint64_t hash = operation->key_hash;

    if (set->layout == TRUCE_SET_BY_ELEMENT)
        hash += operation->name_hash * UINT64_C(0xff51afd7ed558ccd);
    return hash * UINT64_C(0x9e3779b97f4a7c15) >> 52; /* 0 to SET_BUSY - 1 */
}

static void add_documents(const truce_set *set, const struct set_call *call,
                          struct documents *documents)
{
    for (size_t i = 0; i < call->count; i++) {
        size_t place = queue_place_of(set, &call->operations[i]);

        documents->bits[place / 64] |= UINT64_C(1) << place % 64;
    }
}

static bool has_one_of(const truce_set *set, const struct documents *documents,
                       const struct set_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        size_t place = queue_place_of(set, &call->operations[i]);

        if (documents->bits[place / 64] >> place % 64 & 1)
            return true;
    }
    return false;
}

/* Has a round that is being applied perhaps a document in common with the call? */
static bool overlaps(const truce_set *set, const struct set_call *call)
{
    for (size_t i = 0; set->rounds && i < call->count; i++) {
        if (set->busy[queue_place_of(set, &call->operations[i])])
            return true;
    }
    return false;
}

/* As far as the rounds go that are being applied. */
static bool queue_has_room(const truce_set *set, const struct set_call *call)
{
    if (set->large || set->rounds == (set->beside ? SET_ROUNDS_BESIDE : SET_ROUNDS_MAX))
        return false;
    return !set->rounds || (!is_large(call) && !overlaps(set, call));
}

/* The first in the queue that may lead, `wanted` or any (NULL); NULL: it may not, or none. */
static struct set_call *find_leader(const truce_set *set, const struct set_call *wanted)
{
    struct set_call *call = set->queue_first;
    struct documents before;

    if (!call)
        return NULL;
    if (!set->beside || !call->next || is_large(call))
        return (!wanted || wanted == call) && queue_has_room(set, call) ? call : NULL;
    memset(&before, 0, sizeof before);
    for (; call && !is_large(call); call = call->next) {
        if ((!wanted || wanted == call) && queue_has_room(set, call) &&
            !has_one_of(set, &before, call))
            return call;
        add_documents(set, call, &before);
    }
    return NULL;
}

/* Counted among those that are being applied, or no longer. */
static void queue_mark(truce_set *set, const struct set_call *calls, bool begin)
{
    for (const struct set_call *call = calls; call; call = call->next) {
        for (size_t i = 0; i < call->count; i++) {
            uint16_t *busy = &set->busy[queue_place_of(set, &call->operations[i])];

            truce_assert(begin || *busy > 0);
            *busy = (uint16_t)(begin ? *busy + 1 : *busy - 1);
        }
    }
}

/* Those behind it, too, as many as make a round. */
static struct set_call *queue_take_all(truce_set *set, size_t *operations)
{
    struct set_call *first = set->queue_first, *last = first;
    size_t most = is_large(first) ? ROUND_OPERATIONS : SMALL_ROUND;

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
    return first;
}

/* Of a leader and those of its documents: those that do not overtake somebody who is left. */
static struct set_call *queue_take_own(truce_set *set, struct set_call *leader, size_t *operations)
{
    struct documents own, left;
    struct set_call **at = &set->queue_first, *last = NULL, *end = NULL, *call;

    memset(&own, 0, sizeof own);
    memset(&left, 0, sizeof left);
    add_documents(set, leader, &own);
    *operations = 0;
    while ((call = *at) && !is_large(call)) {
        bool mine = call == leader ||
                    (last && has_one_of(set, &own, call) && !has_one_of(set, &left, call) &&
                     *operations + call->count <= SMALL_ROUND && !overlaps(set, call));

        if (!mine) {
            add_documents(set, call, &left);
            end = call;
            at = &call->next;
            continue;
        }
        *at = call->next;
        call->next = NULL;
        if (last)
            last->next = call;
        last = call;
        add_documents(set, call, &own);
        *operations += call->count;
    }
    if (!call)
        set->queue_last = end;
    return leader;
}

/* Takes a round off the queue; with the mutex held. */
static struct set_call *take_round(truce_set *set, struct set_call *leader, size_t *operations)
{
    struct set_call *calls = set->beside && !is_large(leader)
                                 ? queue_take_own(set, leader, operations)
                                 : queue_take_all(set, operations);

    set->rounds++;
    set->large = *operations > SMALL_ROUND;
    if (!set->large)
        queue_mark(set, calls, true);
    return calls;
}

static void end_round(truce_set *set, const struct set_call *calls)
{
    truce_assert(set->rounds > 0 && (!set->large || set->rounds == 1));
    if (!set->large)
        queue_mark(set, calls, false);
    set->large = false;
    set->rounds--;
}

static void queue_apply_alone(truce_set *set, struct set_call *call)
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

static void queue_apply_round(truce_set *set, struct set_call *calls, size_t count)
{
    struct set_operation *all;
    size_t at = 0;

    if (count == 1) {
        queue_apply_alone(set, calls);
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
static void queue_wake(struct set_call *call, bool done)
{
    pthread_mutex_lock(&call->mutex);
    call->turn = true;
    call->done = done;
    pthread_cond_signal(&call->wake);
    pthread_mutex_unlock(&call->mutex);
}

/* Whether it is done; otherwise it may be its turn to lead. */
static bool queue_wait_for_turn(struct set_call *call)
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
static void wake_next(const truce_set *set)
{
    struct set_call *call = find_leader(set, NULL);

    if (call)
        queue_wake(call, false);
}

/* With the queue's mutex held; it is given up. */
static void queue_lead(truce_set *set, struct set_call *leader)
{
    size_t count;
    struct set_call *own = take_round(set, leader, &count), *call, *next;

    truce_assert(own == leader);
    wake_next(set);
    pthread_mutex_unlock(&set->queue_mutex);
    queue_apply_round(set, own, count);
    pthread_mutex_lock(&set->queue_mutex);
    end_round(set, own);
    wake_next(set);
    pthread_mutex_unlock(&set->queue_mutex);
    for (call = own->next; call; call = next) {
        next = call->next;
        queue_wake(call, true);
    }
}

static void queue_enqueue(truce_set *set, struct set_call *call)
{
    if (set->queue_last)
        set->queue_last->next = call;
    else
        set->queue_first = call;
    set->queue_last = call;
}

void truce__set_submit(truce_set *set, struct set_call *call)
{
    bool done = false;

    truce_assert(call->count > 0 && !call->done && !call->next);
    pthread_mutex_init(&call->mutex, NULL);
    pthread_cond_init(&call->wake, NULL);
    pthread_mutex_lock(&set->queue_mutex);
    queue_enqueue(set, call);
    while (!done && !find_leader(set, call)) {
        pthread_mutex_unlock(&set->queue_mutex);
        done = queue_wait_for_turn(call);
        if (!done)
            pthread_mutex_lock(&set->queue_mutex);
    }
    if (!done)
        queue_lead(set, call);
    pthread_cond_destroy(&call->wake);
    pthread_mutex_destroy(&call->mutex);
}
