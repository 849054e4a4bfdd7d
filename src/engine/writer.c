/*
 * Group commit.
 *
 *     queue    op - op - op - op - op(alone) - op
 *              ^ leader's  ^ its group
 *
 * A thread puts its operation into the queue. If there is no leader, it becomes the leader. The
 * leader acquires the lock file and takes all queued operations as its group (up to an operation
 * that must run alone). It runs the group in one transaction, commits, and releases the lock. The
 * first operation that was queued in the meantime becomes the next leader. The old leader waits
 * until its commit is on disk (durable.c), and wakes its group. No thread waits in order to fill a
 * group: the next group gathers while a group runs, and a group is synced while the next one runs.
 *
 * If another process holds the lock, the leader does not wait for it. It publishes the operations
 * at the head of the queue, as far as other processes can execute them
 * (storage/published_records.c). The holder of the lock runs them after its own, in the same
 * transaction. It then syncs once for all of them, and wakes each process once. Processes therefore
 * share commits as threads do.
 *
 *     lead     lock free? --yes--> run: own group, then operations that other processes have
 *              |                   published; commit; release; wake one process that has published
 *              |                   since, to try the lock
 *              no: published --answered by another process--> done
 *                            --the lock is free, and no process has taken the group--> run
 *                            --deadline, or returned--> waits for the lock, as for operations that
 *                                                       no other process can execute
 *
 * States of an operation, a futex:
 *
 *     QUEUED --the leader takes it, or publishes it--> TAKEN --committed, or failed--> DONE
 *     TAKEN --withdrawn, or returned--> QUEUED
 *     QUEUED --it is the first, and the leader is done--> LEADS
 *     QUEUED --its deadline passes--> out of the queue
 *
 * Invariants:
 *  1. The leader's own operation is the first of the queue.
 *  2. `led` is true as long as the queue is not empty.
 *  3. The connection, the catalog, and the scratch memory belong to the leader; the mutex that
 *     passes on the lead orders their use.
 *  4. An operation that waits for the disk is DONE only after its commit is on disk, and so is
 *     everything that it saw there. A relaxed operation is DONE after the commit. There is one
 *     exception: the leader waits for its group, so its own operation is DONE with the group. If
 *     all operations that are left are early, the group does not wait.
 *  5. An operation that is delegated to another process is executed once: there, or, if it is
 *     returned, here. The result is UNKNOWN in two cases: that process did not reply within
 *     STOPPED_NS after the deadline, or another program truncated the lock file or damaged the
 *     reply in it.
 *
 * If the transaction of a group fails (the disk is full, one operation found a damaged page), all
 * of it is rolled back. Then each operation is reset and runs in a transaction of its own, so an
 * operation that cannot be done fails alone. After a crash at any time, the file contains all
 * changes of the group or none.
 *
 * Operations check everything that can refuse them before they write, so a refused operation needs
 * no savepoint. An operation of several steps that must be atomic (an atomic bulk) makes its own.
 */
#include "engine/writer.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/futex.h"
#include "engine/id_row_cache.h"
#include "engine/storage/change_notify.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/log_archive.h"
#include "engine/storage/snapshot_pins.h"

/* The nanoseconds that a waiting thread sleeps between two checks for an interrupt. */
#define NAP_NS INT64_C(50000000)
/* The nanoseconds that the leader of a published group sleeps between two checks of the lock. */
#define PUBLISHED_NAP_NS INT64_C(10000000)
/* After the deadline, the leader waits for a group that was taken for this many nanoseconds
 * more. */
#define STOPPED_NS INT64_C(1000000000)
/* After it has held the lock for this many nanoseconds, a leader takes no more operations of other
 * processes. */
#define SERVES_NS INT64_C(20000000)

enum { QUEUED, TAKEN, LEADS, DONE };

static bool writer_may_delegate(const struct writer *writer);
static void writer_run_group(struct writer *writer, struct write_op *first);
static truce_status writer_settle_orphans(struct writer *writer, bson_error_t *error);

static void writer_name_table(void *arg, int64_t table, char *name, size_t size)
{
    const struct writer *writer = arg;

    truce__catalog_name_table(writer->catalog, table, name, size);
}

void truce__writer_init(struct writer *writer, struct kv *kv, struct lock *lock,
                        struct durable *durable, struct cache *cache, struct hints *hints,
                        struct seen *seen)
{
    *writer =
        (struct writer){.kv = kv, .lock = lock, .durable = durable, .cache = cache, .hints = hints};
    truce__kv_names(kv, writer_name_table, writer);
    truce__kv_set_validator(kv, truce__row_valid, seen);
    writer->end = &writer->first;
    truce__combine_init(&writer->combine, lock);
    pthread_mutex_init(&writer->mutex, NULL);
}

void truce__writer_release(struct writer *writer)
{
    truce_assert(!writer->first && !writer->led);
    truce__catalog_release(writer->catalog);
    truce__combine_release(&writer->combine);
    for (int i = 0; i < TRUCE_INDEXES_MAX; i++) {
        truce__field_keys_release(&writer->keys[i].before);
        truce__field_keys_release(&writer->keys[i].after);
    }
    truce__arena_release(&writer->arena);
    truce__buffer_release(&writer->key);
    truce__buffer_release(&writer->body);
    truce__buffer_release(&writer->id);
    pthread_mutex_destroy(&writer->mutex);
}

/* ---- the queue ------------------------------------------------------------------------------ */

/* Appends the operation to the queue. Returns whether its thread becomes the leader, because the
 * queue has no leader. */
static bool writer_enqueue(struct writer *writer, struct write_op *op)
{
    bool leads;

    op->next = NULL;
    op->status = TRUCE_OK;
    atomic_init(&op->state, QUEUED);
    pthread_mutex_lock(&writer->mutex);
    *writer->end = op;
    writer->end = &op->next;
    leads = !writer->led;
    writer->led = true;
    pthread_mutex_unlock(&writer->mutex);
    return leads;
}

/* Removes an operation from the queue. Called under the mutex. */
static void unlink_op(struct writer *writer, struct write_op *op)
{
    struct write_op **link = &writer->first;

    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    if (writer->end == &op->next)
        writer->end = link;
}

/* Removes the operations before the link from the queue. Called under the mutex. */
static void cut_queue(struct writer *writer, struct write_op **link)
{
    writer->first = *link;
    if (!writer->first)
        writer->end = &writer->first;
    *link = NULL;
}

/* Takes the group of the leader from the queue: all operations up to the first that is `alone`, or
 * only the leader's own if that is `alone`. */
static struct write_op *writer_take_group(struct writer *writer)
{
    struct write_op *first, **link;

    pthread_mutex_lock(&writer->mutex);
    first = writer->first;
    link = &first->next;
    if (!first->alone) {
        while (*link && !(*link)->alone)
            link = &(*link)->next;
    }
    cut_queue(writer, link);
    for (struct write_op *op = first; op; op = op->next)
        atomic_store(&op->state, TAKEN);
    pthread_mutex_unlock(&writer->mutex);
    return first;
}

static void writer_change_state(struct write_op *op, unsigned state)
{
    atomic_store(&op->state, state);
    truce__futex_wake(&op->state, 1);
}

static void hand_over(struct writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    writer->led = writer->first;
    if (writer->first)
        writer_change_state(writer->first, LEADS);
    pthread_mutex_unlock(&writer->mutex);
}

/* Marks the operations of the group as DONE, except `own`, and wakes their callers. As soon as an
 * operation is DONE, its memory belongs to its owner again. */
static void finish_group(struct write_op *first, struct write_op *own)
{
    while (first) {
        struct write_op *next = first->next;

        if (first != own)
            writer_change_state(first, DONE);
        first = next;
    }
}

/* Finishes the relaxed operations of the group, except `own`, before the group is on disk. Returns
 * the rest of the group. */
static struct write_op *finish_relaxed(struct write_op *first, struct write_op *own)
{
    struct write_op **link = &first;

    while (*link) {
        struct write_op *op = *link;

        if (op == own || !op->relaxed) {
            link = &op->next;
            continue;
        }
        *link = op->next;
        writer_change_state(op, DONE);
    }
    return first;
}

static truce_status writer_give_up(struct writer *writer, struct write_op *op, truce_status status)
{
    pthread_mutex_lock(&writer->mutex);
    unlink_op(writer, op);
    pthread_mutex_unlock(&writer->mutex);
    hand_over(writer);
    return status;
}

/* Checks that the store can be written: its disk has not failed a sync, its files were not
 * replaced, and the records of a dead lock holder are settled. Called when the lock was acquired;
 * releases it if a check fails. */
static truce_status writer_check_locked(struct writer *writer, struct write_op *op,
                                        bson_error_t *error)
{
    truce_status status;

    truce__durable_begin(writer->durable);
    status = truce__durable_usable(writer->durable, error);
    if (!status)
        status = truce__file_identity_check_locked(writer->lock, writer->kv, error);
    /* A checkpoint, which is `alone`, checks this itself. */
    if (!status && !op->alone)
        status = truce__lock_log_usable(writer->lock, error);
    if (!status && !op->alone)
        status = writer_settle_orphans(writer, error);
    if (status)
        truce__lock_release(writer->lock);
    return status;
}

static void writer_unlock(struct writer *writer)
{
    truce__log_identity_before_unlock(writer->lock);
    truce__lock_release(writer->lock);
}

static truce_status writer_acquire_lock(struct writer *writer, struct write_op *op)
{
    truce_status status = truce__lock_acquire(writer->lock, op->deadline_ns, &op->error);

    return status ? status : writer_check_locked(writer, op, &op->error);
}

/* Waits until the group is durable. If the sync fails, every operation of the group fails, also one
 * that was refused: its result depends on data that may be lost. */
static void writer_settle(struct writer *writer, struct write_op *group, uint64_t promised)
{
    bson_error_t error;
    truce_status status = truce__durable_wait(writer->durable, promised, &error);

    for (struct write_op *op = group; op && status; op = op->next) {
        op->status = status;
        op->error = error;
    }
}

static bool is_relaxed(const struct write_op *group)
{
    while (group && group->relaxed)
        group = group->next;
    return !group;
}

static bool is_early(const struct write_op *group)
{
    while (group && group->early)
        group = group->next;
    return !group;
}

/* Records the statistics of a group. `began_ns` is the time at which the lock was acquired. */
static void note_group(struct writer *writer, const struct write_op *group, int64_t began_ns)
{
    uint64_t operations = 0;

    for (; group; group = group->next)
        operations++;
    atomic_fetch_add(&writer->operations, operations);
    atomic_fetch_add(&writer->groups, 1);
    atomic_fetch_add(&writer->held_ns, (uint64_t)(truce__clock_monotonic_ns() - began_ns));
}

/* ---- operations that another process executes ----------------------------------------------- */

/* Takes the operations at the head of the queue that can be published. Returns NULL if the first
 * one cannot. */
static struct write_op *take_to_publish(struct writer *writer)
{
    struct write_op *first, **link = &writer->first;

    truce__combine_begin(&writer->combine);
    pthread_mutex_lock(&writer->mutex);
    first = writer->first;
    while (*link && truce__combine_add(&writer->combine, *link)) {
        atomic_store(&(*link)->state, TAKEN);
        link = &(*link)->next;
    }
    if (link == &writer->first)
        first = NULL;
    else
        cut_queue(writer, link);
    pthread_mutex_unlock(&writer->mutex);
    return first;
}

/* Puts the group back at the head of the queue. */
static void writer_put_back(struct writer *writer, struct write_op *group)
{
    struct write_op **link = &group;

    pthread_mutex_lock(&writer->mutex);
    for (; *link; link = &(*link)->next)
        atomic_store(&(*link)->state, QUEUED);
    if (!writer->first)
        writer->end = link;
    *link = writer->first;
    writer->first = group;
    pthread_mutex_unlock(&writer->mutex);
}

static int64_t first_deadline(const struct write_op *group)
{
    int64_t first_ns = group->deadline_ns;

    for (; group; group = group->next) {
        if (group->deadline_ns < first_ns)
            first_ns = group->deadline_ns;
    }
    return first_ns;
}

enum publish_outcome {
    /* The lock is not held, and the group is in the queue, or returns to it. */
    GROUP_QUEUED,
    /* This process holds the lock. */
    LOCK_ACQUIRED,
    /* Another process has executed the group, or the outcome is unknown. The operations have their
     * results. */
    GROUP_FINISHED
};

/* Called when this process has acquired the lock while its group was published. Withdraws the group
 * and returns LOCK_ACQUIRED, with the lock. If the group cannot be withdrawn, another process has
 * taken it, and has replied since or died while it held the lock. Then settles the records of dead
 * processes, sets `*settled` if this succeeded, and releases the lock. */
static enum publish_outcome group_check_records(struct writer *writer, struct write_op *group,
                                                bool *settled)
{
    bson_error_t ignored;

    if (truce__records_withdraw(&writer->combine.records))
        return LOCK_ACQUIRED;
    *settled = !writer_check_locked(writer, group, &ignored);
    if (*settled)
        writer_unlock(writer);
    return GROUP_QUEUED;
}

/* Fails the operations of a group with UNKNOWN, because the process that took the group has stalled
 * or died. */
static void leave_unknown(struct write_op *group)
{
    for (struct write_op *op = group; op; op = op->next)
        op->status =
            truce__fail(TRUCE_UNKNOWN, &op->error,
                        "the outcome of the write is unknown, because the process that executed "
                        "it did not reply: read the documents to find the outcome");
}

/* Waits while the group is published, until one of these holds: another process has executed or
 * returned it, its deadline has passed, or this process has the lock. */
static enum publish_outcome wait_published(struct writer *writer, struct write_op *group,
                                           uint64_t *promise)
{
    struct records *records = &writer->combine.records;
    int64_t until_ns = first_deadline(group);
    /* Whether to check if the lock is free. */
    bool tries = true;
    truce_status status;

    for (;;) {
        enum record_state state = truce__records_state(records);
        int64_t left = until_ns - truce__clock_monotonic_ns();
        bool over = left <= 0 || truce__lock_interrupted(writer->lock), settled;

        switch (state) {
        case RECORD_ANSWERED:
            truce__combine_report(&writer->combine, group, promise);
            return GROUP_FINISHED;
        case RECORD_RETURNED:
            truce__combine_take_back(&writer->combine);
            return GROUP_QUEUED;
        /* The record is gone, because another program truncated the lock file. */
        case RECORD_FREE:
            leave_unknown(group);
            return GROUP_FINISHED;
        case RECORD_PUBLISHED:
            if (over && truce__records_withdraw(records))
                return GROUP_QUEUED;
            break;
        case RECORD_TAKEN:
            if (left < -STOPPED_NS) {
                leave_unknown(group);
                return GROUP_FINISHED;
            }
            break;
        }
        status = tries ? truce__lock_try(writer->lock) : TRUCE_LOCKED;
        if (!status) {
            if (group_check_records(writer, group, &settled) == LOCK_ACQUIRED)
                return LOCK_ACQUIRED;
            tries = !settled;
            continue;
        }
        if (status != TRUCE_LOCKED && truce__records_withdraw(records))
            /* The caller then waits for the lock, and gets the error from that call. */
            return GROUP_QUEUED;
        truce__records_sleep(records, state, PUBLISHED_NAP_NS);
        tries = true;
    }
}

static void finish_committed(struct writer *writer, struct write_op *group, struct write_op *own,
                             uint64_t promise)
{
    hand_over(writer);
    if (is_relaxed(group))
        promise = 0;
    group = finish_relaxed(group, own);
    if (!is_early(group))
        writer_settle(writer, group, promise);
    finish_group(group, own);
}

/* Publishes the operations at the head of the queue, unless the lock is free, and waits for
 * them. */
static enum publish_outcome writer_publish(struct writer *writer, struct write_op *op)
{
    struct write_op *group;
    uint64_t promise = 0;
    enum publish_outcome outcome = GROUP_QUEUED;
    truce_status status;

    if (op->alone || !writer_may_delegate(writer) || !truce__combine_wanted(&writer->combine))
        return GROUP_QUEUED;
    status = truce__lock_try(writer->lock);
    if (status != TRUCE_LOCKED)
        return status ? GROUP_QUEUED : LOCK_ACQUIRED;
    group = take_to_publish(writer);
    if (!group)
        return GROUP_QUEUED;
    truce_assert(group == op);
    if (truce__combine_publish(&writer->combine, is_relaxed(group)))
        outcome = wait_published(writer, group, &promise);
    if (outcome == GROUP_FINISHED)
        finish_committed(writer, group, op, promise);
    else
        writer_put_back(writer, group);
    return outcome;
}

/* ---- leading -------------------------------------------------------------------------------- */

/* Runs the group. Called with the lock, which it releases. */
static truce_status lead_group(struct writer *writer, struct write_op *op)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    struct write_op *group;
    uint64_t promised, answered, relaxed;
    int pages;

    truce__kv_busy_timeout(writer->kv, (op->deadline_ns - began_ns) / 1000000 + 1);
    writer->serves_until_ns = began_ns + SERVES_NS;
    writer->combine.served = false;
    group = writer_take_group(writer);
    truce_assert(group == op);
    writer->feed.first = 0;
    if (op->alone)
        op->status = op->run(op, writer, &op->error);
    else
        writer_run_group(writer, op);
    pages = truce__kv_wal_pages(writer->kv);
    promised = op->alone || is_relaxed(group) ? 0 : truce__durable_promised(writer->durable);
    if (!op->alone)
        note_group(writer, group, began_ns);
    answered = op->alone ? 0 : writer->combine.taken;
    relaxed = answered & writer->combine.relaxed;
    writer_unlock(writer);
    truce__records_wake_next(&writer->combine.records);
    truce__records_wake(&writer->combine.records, relaxed);
    hand_over(writer);
    group = finish_relaxed(group, op);
    if (!is_early(group))
        writer_settle(writer, group, promised);
    truce__records_wake(&writer->combine.records, answered & ~relaxed);
    finish_group(group, op);
    if (writer->after_commit)
        writer->after_commit(writer->arg, pages);
    return op->status;
}

static truce_status writer_lead(struct writer *writer, struct write_op *op)
{
    enum publish_outcome outcome = writer_publish(writer, op);
    truce_status status;

    if (outcome == GROUP_FINISHED)
        return op->status;
    status = outcome == LOCK_ACQUIRED ? writer_check_locked(writer, op, &op->error)
                                      : writer_acquire_lock(writer, op);
    return status ? writer_give_up(writer, op, status) : lead_group(writer, op);
}

/* Removes the operation from the queue if its deadline has passed before a leader took it. Returns
 * whether it was removed. */
static bool left_queue(struct writer *writer, struct write_op *op)
{
    bool queued;

    pthread_mutex_lock(&writer->mutex);
    queued = atomic_load(&op->state) == QUEUED;
    if (queued)
        unlink_op(writer, op);
    pthread_mutex_unlock(&writer->mutex);
    return queued;
}

/* Waits until the operation is DONE or its thread LEADS. Returns QUEUED if the operation has left
 * the queue, because its deadline has passed or the call was interrupted. */
static unsigned writer_follow(struct writer *writer, struct write_op *op)
{
    unsigned state;

    while ((state = atomic_load(&op->state)) != DONE && state != LEADS) {
        int64_t left = op->deadline_ns - truce__clock_monotonic_ns();

        if (state == QUEUED && (left <= 0 || truce__lock_interrupted(writer->lock)) &&
            left_queue(writer, op))
            return QUEUED;
        truce__futex_wait(&op->state, state,
                          state == QUEUED && left > 0 && left < NAP_NS ? left : NAP_NS);
    }
    return state;
}

truce_status truce__writer_run(struct writer *writer, struct write_op *op, bson_error_t *error)
{
    unsigned state = writer_enqueue(writer, op) ? LEADS : writer_follow(writer, op);
    truce_status status;

    if (state == QUEUED && truce__lock_interrupted(writer->lock))
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    if (state == QUEUED) {
        status = truce__lock_blame(writer->lock, error);
        return status ? status
                      : truce__fail(TRUCE_TIMEOUT, error,
                                    "the deadline passed while other writes of this process were "
                                    "running");
    }
    status = state == LEADS ? writer_lead(writer, op) : op->status;
    if (status && error)
        *error = op->error;
    return status;
}

/* ---- for operations ------------------------------------------------------------------------- */

truce_status truce__writer_collection(struct writer *writer, const char *name,
                                      const struct collection **collection, bson_error_t *error)
{
    truce_status status = TRUCE_OK;
    uint32_t version;

    *collection = NULL;
    if (!writer->catalog) {
        status = truce__kv_version(writer->kv, &version, error);
        if (!status)
            status = truce__catalog_load(writer->kv, version, &writer->catalog, error);
    }
    if (!status)
        *collection = truce__catalog_find(writer->catalog, name);
    return status;
}

void truce__writer_catalog_changed(struct writer *writer)
{
    truce__catalog_release(writer->catalog);
    writer->catalog = NULL;
}

truce_status truce__writer_undo(struct writer *writer, bson_error_t *error)
{
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
    truce__cache_doubt(writer->cache);
    return truce__kv_savepoint_rollback(writer->kv, error);
}

truce_status truce__writer_look_up(struct writer *writer, const struct collection *collection,
                                   struct bytes key, int64_t *row, struct bytes *body,
                                   bson_error_t *error)
{
    writer->body.size = 0;
    if (truce__cache_peek(writer->cache, collection->name, key, row, &writer->body)) {
        *body = (struct bytes){writer->body.bytes, writer->body.size};
        return TRUCE_OK;
    }
    return truce__hints_look_up(writer->hints, writer->kv, collection->indexes[0].id,
                                collection->id, key, &writer->id, row, body, error);
}

void truce__writer_changed(struct writer *writer, const struct collection *collection, int64_t row,
                           const bson_t *before, const bson_t *after)
{
    const bson_t *document = before ? before : after;
    struct bytes key, body = {0};

    writer->key.size = 0;
    truce__key_append(&writer->key, truce__value_field(truce__value_document(document), "_id", 3),
                      false);
    key = (struct bytes){writer->key.bytes, writer->key.size};
    if (after)
        body = kv_body(after);
    if (before)
        truce__cache_change(writer->cache, collection->name, key, row, body);
    else
        truce__cache_insert(writer->cache, collection->name, key);
}

static void touch_slot(struct writer *writer, uint32_t slot)
{
    writer->touched[slot / 64] |= (uint64_t)1 << slot % 64;
}

void truce__writer_touch(struct writer *writer, const char *collection)
{
    touch_slot(writer, truce__notify_slot(collection));
}

void truce__writer_touch_structure(struct writer *writer)
{
    touch_slot(writer, NOTIFY_STRUCTURE);
}

/* ---- one transaction ------------------------------------------------------------------------ */

/* Begins the transaction of a group, and discards cached state that commits of other processes have
 * made obsolete. */
static truce_status group_begin(struct writer *writer, bson_error_t *error)
{
    uint32_t version;
    truce_status status = truce__kv_write_begin(writer->kv, &version, error);

    if (status)
        return status;
    truce__cache_begin(writer->cache, truce__kv_foreign(writer->kv));
    writer->feed.known = writer->feed.known && !truce__kv_foreign(writer->kv);
    truce__kv_accept(writer->kv);
    memset(writer->touched, 0, sizeof writer->touched);
    if (writer->catalog && writer->catalog->version != version)
        truce__writer_catalog_changed(writer);
    return TRUCE_OK;
}

static bool touched_any(const struct writer *writer)
{
    uint64_t all = 0;

    for (size_t i = 0; i < NOTIFY_SLOTS / 64; i++)
        all |= writer->touched[i];
    return all;
}

truce_status truce__writer_commit(struct writer *writer, bson_error_t *error)
{
    truce_status status;

    truce__archive_note_begin(writer->lock, writer->kv);
    status = truce__kv_write_commit(writer->kv, error);
    if (!status) {
        truce__archive_note_commit(writer->lock, writer->kv);
        truce__pins_note_log(writer->lock, truce__kv_wal_pages(writer->kv));
        truce__log_identity_note(writer->lock, writer->kv);
    }
    return status;
}

/* Commits the transaction. Promises a number for it unless all operations are relaxed, and notifies
 * waiters and caches of other processes of the changes. */
static truce_status commit_and_notify(struct writer *writer, bool relaxed, bson_error_t *error)
{
    bool changed = touched_any(writer);
    uint64_t promised = 0;
    truce_status status;

    if (!relaxed && truce__kv_changed(writer->kv))
        promised = truce__durable_promise(writer->durable);
    if (changed) {
        truce__notify_begin(writer->lock);
        truce__cache_commit(writer->cache, promised);
    }
    status = truce__kv_changed(writer->kv) ? truce__writer_commit(writer, error)
                                           : truce__kv_write_commit(writer->kv, error);
    truce__durable_written(writer->durable);
    if (changed)
        truce__notify_announce(writer->lock, writer->touched);
    return status;
}

static truce_status group_commit(struct writer *writer, bool relaxed, bson_error_t *error)
{
    truce_status status = commit_and_notify(writer, relaxed, error);

    truce__cache_end(writer->cache, !status);
    if (status)
        truce__writer_catalog_changed(writer);
    writer->feed.known = writer->feed.known && !status;
    return status;
}

/* Runs the operations from `first` up to `last`, exclusive, until one fails the transaction. Sets
 * `*relaxed` if none of them waits for the disk. */
static truce_status run_each(struct writer *writer, struct write_op *first, struct write_op *last,
                             bool *relaxed, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    *relaxed = true;
    for (struct write_op *op = first; op != last && !status; op = op->next) {
        truce__arena_reset(&writer->arena);
        *relaxed = *relaxed && op->relaxed;
        if (op->reset)
            op->reset(op);
        writer->feed.first = 0;
        status = op->run(op, writer, error);
    }
    return status;
}

static void group_roll_back(struct writer *writer)
{
    truce__kv_write_rollback(writer->kv);
    truce__cache_end(writer->cache, false);
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
}

/* Runs the operations from `first` up to `last`, exclusive, in one transaction; if it `serves`,
 * also those of other processes after them. Returns the status of the transaction. */
static truce_status group_transact(struct writer *writer, struct write_op *first,
                                   struct write_op *last, bool serves, bson_error_t *error)
{
    struct combine *combine = &writer->combine;
    truce_status status = group_begin(writer, error);
    bool relaxed;

    truce__combine_forget(combine);
    if (status)
        return status;
    status = run_each(writer, first, last, &relaxed, error);
    if (!status && serves && truce__clock_monotonic_ns() < writer->serves_until_ns)
        status = truce__combine_run(combine, writer, &relaxed, error);
    if (status) {
        group_roll_back(writer);
        truce__combine_failed(combine);
        return status;
    }
    status = group_commit(writer, relaxed, error);
    if (status)
        truce__combine_failed(combine);
    else
        truce__combine_committed(combine, truce__durable_promised(writer->durable));
    return status;
}

/* Runs the group in a transaction and rolls it back, so that it runs a second time in tests. */
static void group_rehearse(struct writer *writer, struct write_op *first)
{
    bson_error_t ignored;
    bool relaxed;

    if (group_begin(writer, &ignored))
        return;
    (void)run_each(writer, first, NULL, &relaxed, &ignored);
    group_roll_back(writer);
}

/* Returns whether operations are delegated to and from other processes. A store that maps names of
 * collections (names) executes its own operations, because another process does not know the
 * map. */
static bool writer_may_delegate(const struct writer *writer)
{
    return writer->combine.kinds && !__atomic_load_n(&writer->names, __ATOMIC_ACQUIRE);
}

/* Runs the group in one transaction. If that fails, runs each operation by itself. If another
 * program has locked the file, or the disk has failed, all operations fail at once; otherwise they
 * would wait one after the other. A group that fails with the operations of other processes is
 * first tried without them. */
static void writer_run_group(struct writer *writer, struct write_op *first)
{
    truce_status status;
    bool together;

    if (writer->rehearses)
        group_rehearse(writer, first);
    status = group_transact(writer, first, NULL, writer_may_delegate(writer), &first->error);
    if (status && writer->combine.served)
        status = group_transact(writer, first, NULL, false, &first->error);
    together = !status || status == TRUCE_LOCKED || !first->next ||
               truce__durable_usable(writer->durable, NULL);
    for (struct write_op *op = first->next; op; op = op->next) {
        op->status = status;
        op->error = first->error;
    }
    first->status = status;
    for (struct write_op *op = first; op && !together; op = op->next)
        op->status = group_transact(writer, op, op->next, false, &op->error);
}

/* Settles the operations that a dead lock holder had taken. No operations of other processes run
 * before their result is known. */
static truce_status writer_settle_orphans(struct writer *writer, bson_error_t *error)
{
    struct records *records = &writer->combine.records;
    uint64_t lost;
    truce_status status;

    if (!writer_may_delegate(writer) || !truce__records_orphaned(records))
        return TRUCE_OK;
    status = group_begin(writer, error);
    if (status)
        return status;
    status = truce__records_adopt(records, writer->kv, truce__durable_promised(writer->durable),
                                  &lost, error);
    if (status || !lost) {
        group_roll_back(writer);
        return status;
    }
    status = group_commit(writer, false, error);
    if (!status)
        truce__records_return_all(records, lost, 0);
    return status;
}
