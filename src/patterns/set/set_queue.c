/*
 * The queue of an ordered set combines the calls of several threads on one handle. A leader takes
 * calls from the queue and applies them as one batch.
 *
 *     call     waits in the queue until it may lead
 *     leader   removes the calls of its batch from the queue and applies them; then wakes the
 *              callers of that batch and the next call that may lead
 *
 * No two concurrent batches share a document: `busy` counts the operations of all batches by the
 * hashes of their documents. A call with more than SMALL_BATCH operations touches so many documents
 * that its batch runs alone.
 *
 * A store that merges in its own write (`rewrites`) waits for the disk once for each batch, of any
 * size. A batch therefore takes as many calls as it can, and up to two small batches run
 * concurrently: one reads and merges while the other waits. Operations that wait for the disk are
 * folded in the meantime, so each document is read and written once for all of them.
 *
 * Other stores are reached by messages, one for each written document, so the latency is that of
 * the network. There (`by_document`) a batch takes only calls that share a document with its first
 * call. Operations on other documents form batches of their own, on other connections.
 *
 *     in the queue   a1   a2   c1   a3+b1   b2   c2     batches   {a1, a2, a3+b1, b2}  {c1, c2}
 *
 * A call does not overtake another call that waits for one of its documents, but it overtakes all
 * others. So one contended document delays only the calls that need it.
 *
 * Callers in one process do not lose races against each other. No call waits to fill a batch: a
 * single operation that is alone is applied at once. Safety does not depend on the queue, because
 * other handles and processes bypass it.
 */
#include <stdlib.h>

#include "base/assert.h"
#include "patterns/set/set.h"

/* The maximum number of operations in a batch whose first call has more than SMALL_BATCH
 * operations, and in any other batch. A single larger call is a batch of its own. */
#define BATCH_OPERATIONS 32768
#define SMALL_BATCH      64

/* A set of document hashes. */
struct documents {
    uint64_t bits[SET_BUSY / 64];
};

static bool is_large(const struct set_call *call)
{
    return call->count > SMALL_BATCH;
}

/* Returns the number of the counter in `busy` for an operation's document. In the layout by
 * element, each name has a document of its own. */
static size_t queue_counter_of(const truce_set *set, const struct set_operation *operation)
{
    uint64_t hash = operation->key_hash;

    if (set->layout == TRUCE_SET_BY_ELEMENT)
        hash += operation->name_hash * UINT64_C(0xff51afd7ed558ccd);
    /* The 12 highest bits: 0 to SET_BUSY - 1. */
    return hash * UINT64_C(0x9e3779b97f4a7c15) >> 52;
}

static void add_documents(const truce_set *set, const struct set_call *call,
                          struct documents *documents)
{
    for (size_t i = 0; i < call->count; i++) {
        size_t counter = queue_counter_of(set, &call->operations[i]);

        documents->bits[counter / 64] |= UINT64_C(1) << counter % 64;
    }
}

static bool has_one_of(const truce_set *set, const struct documents *documents,
                       const struct set_call *call)
{
    for (size_t i = 0; i < call->count; i++) {
        size_t counter = queue_counter_of(set, &call->operations[i]);

        if (documents->bits[counter / 64] >> counter % 64 & 1)
            return true;
    }
    return false;
}

/* Returns whether a batch in progress may share a document with the call. */
static bool set_call_overlaps(const truce_set *set, const struct set_call *call)
{
    for (size_t i = 0; set->batches && i < call->count; i++) {
        if (set->busy[queue_counter_of(set, &call->operations[i])])
            return true;
    }
    return false;
}

/* Returns whether the batches in progress allow another one for this call. */
static bool queue_has_room(const truce_set *set, const struct set_call *call)
{
    if (set->large || set->batches == (set->by_document ? SET_BATCHES_CONCURRENT : SET_BATCHES_MAX))
        return false;
    return !set->batches || (!is_large(call) && !set_call_overlaps(set, call));
}

/* Returns the first call in the queue that may lead, or `wanted` if it may lead. If `wanted` is
 * NULL, any call qualifies. Returns NULL if no call may lead. */
static struct set_call *find_leader(const truce_set *set, const struct set_call *wanted)
{
    struct set_call *call = set->queue_first;
    struct documents before;

    if (!call)
        return NULL;
    if (!set->by_document || !call->next || is_large(call))
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

/* Adds the calls to the counters of batches in progress, or removes them. */
static void queue_mark(truce_set *set, const struct set_call *calls, bool begin)
{
    for (const struct set_call *call = calls; call; call = call->next) {
        for (size_t i = 0; i < call->count; i++) {
            uint16_t *busy = &set->busy[queue_counter_of(set, &call->operations[i])];

            truce_assert(begin || *busy > 0);
            *busy = (uint16_t)(begin ? *busy + 1 : *busy - 1);
        }
    }
}

/* Takes the leader, which is the first call, and the calls after it, up to the size of a batch. */
static struct set_call *queue_take_all(truce_set *set, size_t *operations)
{
    struct set_call *first = set->queue_first, *last = first;
    size_t most = is_large(first) ? BATCH_OPERATIONS : SMALL_BATCH;

    *operations = first->count;
    while (last->next && *operations + last->next->count <= most &&
           (most > SMALL_BATCH || !set_call_overlaps(set, last->next))) {
        last = last->next;
        *operations += last->count;
    }
    set->queue_first = last->next;
    if (!last->next)
        set->queue_last = NULL;
    last->next = NULL;
    return first;
}

/* Takes the leader and the calls that share its documents, except those that would overtake a call
 * that stays. */
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
                     *operations + call->count <= SMALL_BATCH && !set_call_overlaps(set, call));

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

/* Removes a batch from the queue. The caller holds the mutex. */
static struct set_call *queue_take_batch(truce_set *set, struct set_call *leader,
                                         size_t *operations)
{
    struct set_call *calls = set->by_document && !is_large(leader)
                                 ? queue_take_own(set, leader, operations)
                                 : queue_take_all(set, operations);

    set->batches++;
    set->large = *operations > SMALL_BATCH;
    if (!set->large)
        queue_mark(set, calls, true);
    return calls;
}

static void queue_end_batch(truce_set *set, const struct set_call *calls)
{
    truce_assert(set->batches > 0 && (!set->large || set->batches == 1));
    if (!set->large)
        queue_mark(set, calls, false);
    set->large = false;
    set->batches--;
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

/* Applies the operations of the calls, which are `count`. The operations of several calls are
 * copied into one array, because the batch sorts them. */
static void queue_apply_batch(truce_set *set, struct set_call *calls, size_t count)
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

/* Wakes the thread of a call. Each call has its own mutex, so that woken threads do not contend for
 * the queue's mutex, which the leader needs. */
static void queue_wake(struct set_call *call, bool done)
{
    pthread_mutex_lock(&call->mutex);
    call->woken = true;
    call->done = done;
    pthread_cond_signal(&call->wake);
    pthread_mutex_unlock(&call->mutex);
}

/* Waits until the call is done (returns true) or may lead (returns false). */
static bool queue_wait_for_lead(struct set_call *call)
{
    bool done;

    pthread_mutex_lock(&call->mutex);
    while (!call->woken)
        pthread_cond_wait(&call->wake, &call->mutex);
    call->woken = false;
    done = call->done;
    pthread_mutex_unlock(&call->mutex);
    return done;
}

/* Wakes the next leader. The caller holds the queue's mutex, so the call cannot leave the queue in
 * the meantime. */
static void wake_next(const truce_set *set)
{
    struct set_call *call = find_leader(set, NULL);

    if (call)
        queue_wake(call, false);
}

/* Leads a batch. The caller holds the queue's mutex, which is released here. */
static void queue_lead(truce_set *set, struct set_call *leader)
{
    size_t count;
    struct set_call *own = queue_take_batch(set, leader, &count), *call, *next;

    truce_assert(own == leader);
    wake_next(set);
    pthread_mutex_unlock(&set->queue_mutex);
    queue_apply_batch(set, own, count);
    pthread_mutex_lock(&set->queue_mutex);
    queue_end_batch(set, own);
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

/* Applies a call together with other calls that wait on this handle. */
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
        done = queue_wait_for_lead(call);
        if (!done)
            pthread_mutex_lock(&set->queue_mutex);
    }
    if (!done)
        queue_lead(set, call);
    pthread_cond_destroy(&call->wake);
    pthread_mutex_destroy(&call->mutex);
}
