/*
 * Group commit.
 *
 *     queue    op - op - op - op - op(alone) - op
 *              ^ leader's  ^ its group
 *
 * A thread puts its operation into the queue. If nobody leads, it leads: it takes the lock file,
 * takes all that is queued by then as its group (up to an operation that must be alone), runs the
 * group in one transaction, commits, lets go of the lock, hands the lead to the first operation that
 * has come since, waits until its commit is on the disk (durable.c), and wakes its group. Nobody waits
 * on purpose to fill a group: while one is being run the next one gathers by itself, and while that
 * one is run the first is being synced.
 *
 * States of an operation, a futex word:
 *
 *     QUEUED --the leader takes it--> TAKEN --committed, or failed--> DONE
 *     QUEUED --it is the first, the leader is done--> LEADS
 *     QUEUED --its deadline passes--> out of the queue
 *
 * Invariants:
 *  1. The leader's own operation is the first of the queue.
 *  2. `led` is true as long as the queue is not empty.
 *  3. The connection, the catalog and the scratch memory belong to the leader; the mutex that
 *     hands the lead over orders their use.
 *  4. An operation is DONE only after the commit that holds it is on the disk, and so is what it saw
 *     there, unless it is relaxed: then it is DONE after the commit, whoever is in the group.
 *
 * A group whose transaction fails (the disk is full, one operation met a damaged page) is rolled
 * back whole, and then each of its operations is reset and runs in a transaction of its own: one that
 * cannot be done fails alone. A crash at any moment leaves the group whole or not at all.
 *
 * Operations check everything that can refuse them before they write, so that a refused one needs
 * no savepoint; one of several steps that must be all or none (an atomic bulk) makes its own.
 */
#include "engine/writer.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/word.h"
#include "engine/storage/pins.h"
#include "engine/storage/stamp.h"
#include "engine/storage/wake.h"

#define NAP_NS INT64_C(50000000) /* of a waiter, between two looks whether it is interrupted */

enum { QUEUED, TAKEN, LEADS, DONE };

static void name_table(void *arg, int64_t table, char *name, size_t size)
{
    const struct writer *writer = arg;

    truce__catalog_name_table(writer->catalog, table, name, size);
}

void truce__writer_init(struct writer *writer, struct kv *kv, struct lock *lock,
                        struct durable *durable, struct cache *cache)
{
    *writer = (struct writer){.kv = kv, .lock = lock, .durable = durable, .cache = cache};
    truce__kv_names(kv, name_table, writer);
    truce__kv_sound(kv, truce__row_sound);
    writer->end = &writer->first;
    pthread_mutex_init(&writer->mutex, NULL);
}

void truce__writer_release(struct writer *writer)
{
    truce_assert(!writer->first && !writer->led);
    truce__catalog_release(writer->catalog);
    for (int i = 0; i < TRUCE_INDEXES_MAX; i++) {
        truce__index_keys_release(&writer->keys[i].before);
        truce__index_keys_release(&writer->keys[i].after);
    }
    truce__arena_release(&writer->arena);
    truce__buffer_release(&writer->key);
    truce__buffer_release(&writer->body);
    pthread_mutex_destroy(&writer->mutex);
}

/* ---- what operations use -------------------------------------------------------------------- */

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

truce_status truce__writer_settle_format(struct writer *writer, bson_error_t *error)
{
    const struct collection *ignored;
    truce_status status;

    truce__writer_catalog_changed(writer);
    /* any name: it loads the catalog */
    status = truce__writer_collection(writer, "", &ignored, error);
    return status ? status : truce__catalog_settle_format(writer->kv, writer->catalog, error);
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
    return truce__kv_key_lookup(writer->kv, collection->indexes[0].id, collection->id, key, row,
                                body, error);
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
        body = (struct bytes){bson_get_data(after), after->len};
    if (before)
        truce__cache_change(writer->cache, collection->name, key, row, body);
    else
        truce__cache_insert(writer->cache, collection->name, key);
}

void truce__writer_touch(struct writer *writer, const char *collection)
{
    uint32_t slot = truce__wake_slot(collection);

    writer->touched[slot / 64] |= (uint64_t)1 << slot % 64;
}

/* ---- one transaction ------------------------------------------------------------------------ */

static truce_status begin(struct writer *writer, bson_error_t *error)
{
    uint32_t version;
    truce_status status = truce__kv_write_begin(writer->kv, &version, error);

    if (status)
        return status;
    truce__cache_begin(writer->cache, truce__durable_promised(writer->durable),
                       truce__kv_foreign(writer->kv));
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

    for (size_t i = 0; i < WAKE_SLOTS / 64; i++)
        all |= writer->touched[i];
    return all;
}

static truce_status commit(struct writer *writer, bool relaxed, bson_error_t *error)
{
    bool changed = touched_any(writer), wrote;
    uint64_t promised = 0;
    truce_status status;

    if (!relaxed && truce__kv_changed(writer->kv))
        promised = truce__durable_promise(writer->durable);
    if (changed) {
        truce__wake_begin(writer->lock);
        truce__cache_commit(writer->cache, promised);
    }
    wrote = truce__kv_changed(writer->kv);
    status = truce__kv_write_commit(writer->kv, error);
    if (!status && wrote)
        truce__pins_note_log(writer->lock, truce__kv_wal_pages(writer->kv));
    truce__durable_written(writer->durable);
    if (changed)
        truce__wake_announce(writer->lock, writer->touched);
    return status;
}

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
        status = op->run(op, writer, error);
    }
    return status;
}

static void roll_back(struct writer *writer)
{
    truce__kv_write_rollback(writer->kv);
    truce__cache_end(writer->cache, false);
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
}

/* Runs the operations from `first` up to, but without, `last` in one transaction. The status is the
 * transaction's. */
static truce_status transact(struct writer *writer, struct write_op *first, struct write_op *last,
                             bson_error_t *error)
{
    truce_status status = begin(writer, error);
    bool relaxed;

    if (status)
        return status;
    status = run_each(writer, first, last, &relaxed, error);
    if (status) {
        roll_back(writer);
        return status;
    }
    status = commit(writer, relaxed, error);
    truce__cache_end(writer->cache, !status);
    if (status)
        truce__writer_catalog_changed(writer);
    writer->feed.known = writer->feed.known && !status;
    return status;
}

/* Whatever happens, nothing of it stays. */
static void rehearse(struct writer *writer, struct write_op *first)
{
    bson_error_t ignored;
    bool relaxed;

    if (begin(writer, &ignored))
        return;
    (void)run_each(writer, first, NULL, &relaxed, &ignored);
    roll_back(writer);
}

static void run_alone(struct writer *writer, struct write_op *op)
{
    op->status = op->run(op, writer, &op->error);
}

/* Each operation by itself, after a group has failed; but where the file is locked by another
 * program it fails for all at once, or they would wait one after the other. */
static void run_group(struct writer *writer, struct write_op *first)
{
    truce_status status;
    bool together;

    if (writer->rehearses)
        rehearse(writer, first);
    status = transact(writer, first, NULL, &first->error);
    together = !status || status == TRUCE_LOCKED || !first->next ||
               truce__durable_usable(writer->durable, NULL);
    for (struct write_op *op = first->next; op; op = op->next) {
        op->status = status;
        op->error = first->error;
    }
    first->status = status;
    for (struct write_op *op = first; op && !together; op = op->next)
        op->status = transact(writer, op, op->next, &op->error);
}

/* ---- the queue ------------------------------------------------------------------------------ */

static bool enqueue(struct writer *writer, struct write_op *op)
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

/* Under the mutex. */
static void unlink_op(struct writer *writer, struct write_op *op)
{
    struct write_op **link = &writer->first;

    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    if (writer->end == &op->next)
        writer->end = link;
}

/* Takes the group of the leader: the operations from the first up to, but without, `*last`. */
static struct write_op *take_group(struct writer *writer)
{
    struct write_op *first, **link;

    pthread_mutex_lock(&writer->mutex);
    first = writer->first;
    link = &first->next;
    if (!first->alone) {
        while (*link && !(*link)->alone)
            link = &(*link)->next;
    }
    writer->first = *link;
    if (!writer->first)
        writer->end = &writer->first;
    *link = NULL;
    for (struct write_op *op = first; op; op = op->next)
        atomic_store(&op->state, TAKEN);
    pthread_mutex_unlock(&writer->mutex);
    return first;
}

static void change_state(struct write_op *op, unsigned state)
{
    atomic_store(&op->state, state);
    truce__word_wake(&op->state, 1);
}

static void hand_over(struct writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    writer->led = writer->first;
    if (writer->first)
        change_state(writer->first, LEADS);
    pthread_mutex_unlock(&writer->mutex);
}

/* The moment an operation is DONE its memory is its owner's again. */
static void finish_group(struct write_op *first, struct write_op *own)
{
    while (first) {
        struct write_op *next = first->next;

        if (first != own)
            change_state(first, DONE);
        first = next;
    }
}

/* Those of the group that need not wait for the disk; the group without them. */
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
        change_state(op, DONE);
    }
    return first;
}

static truce_status give_up(struct writer *writer, struct write_op *op, truce_status status)
{
    pthread_mutex_lock(&writer->mutex);
    unlink_op(writer, op);
    pthread_mutex_unlock(&writer->mutex);
    hand_over(writer);
    return status;
}

static truce_status acquire(struct writer *writer, struct write_op *op)
{
    truce_status status = truce__lock_acquire(writer->lock, op->deadline_ns, &op->error);

    if (status)
        return status;
    truce__durable_begin(writer->durable);
    status = truce__durable_usable(writer->durable, &op->error);
    if (!status)
        status = truce__stamp_check_in_turn(writer->lock, writer->kv, &op->error);
    if (!status && !op->alone) /* a checkpoint finds out by itself */
        status = truce__lock_log_usable(writer->lock, &op->error);
    if (status)
        truce__lock_release(writer->lock);
    return status;
}

/* What a refused operation answers depends on what was there, too. */
static void settle(struct writer *writer, struct write_op *group, uint64_t promised)
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

/* One group, since the lock was taken. */
static void note_group(struct writer *writer, const struct write_op *group, int64_t began_ns)
{
    uint64_t operations = 0;

    for (; group; group = group->next)
        operations++;
    atomic_fetch_add(&writer->operations, operations);
    atomic_fetch_add(&writer->groups, 1);
    atomic_fetch_add(&writer->held_ns, (uint64_t)(truce__clock_monotonic_ns() - began_ns));
}

static truce_status lead(struct writer *writer, struct write_op *op)
{
    truce_status status = acquire(writer, op);
    int64_t began_ns = truce__clock_monotonic_ns();
    struct write_op *group;
    uint64_t promised;
    int pages;

    if (status)
        return give_up(writer, op, status);
    truce__kv_patience(writer->kv, (op->deadline_ns - began_ns) / 1000000 + 1);
    group = take_group(writer);
    truce_assert(group == op);
    if (op->alone)
        run_alone(writer, op);
    else
        run_group(writer, op);
    pages = truce__kv_wal_pages(writer->kv);
    promised = op->alone || is_relaxed(group) ? 0 : truce__durable_promised(writer->durable);
    if (!op->alone)
        note_group(writer, group, began_ns);
    truce__lock_release(writer->lock);
    hand_over(writer);
    group = finish_relaxed(group, op);
    if (!is_early(group))
        settle(writer, group, promised);
    finish_group(group, op);
    if (writer->after_commit)
        writer->after_commit(writer->arg, pages);
    return op->status;
}

/* The deadline of a queued operation: true if it has left the queue. */
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

/* Until it is DONE (true) or LEADS, or its deadline has passed (false with state QUEUED). */
static unsigned follow(struct writer *writer, struct write_op *op)
{
    unsigned state;

    while ((state = atomic_load(&op->state)) != DONE && state != LEADS) {
        int64_t left = op->deadline_ns - truce__clock_monotonic_ns();

        if (state == QUEUED && (left <= 0 || truce__lock_interrupted(writer->lock)) &&
            left_queue(writer, op))
            return QUEUED;
        truce__word_sleep(&op->state, state,
                          state == QUEUED && left > 0 && left < NAP_NS ? left : NAP_NS);
    }
    return state;
}

truce_status truce__writer_run(struct writer *writer, struct write_op *op, bson_error_t *error)
{
    unsigned state = enqueue(writer, op) ? LEADS : follow(writer, op);
    truce_status status;

    if (state == QUEUED && truce__lock_interrupted(writer->lock))
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    if (state == QUEUED) {
        status = truce__lock_blame(writer->lock, error);
        return status ? status
                      : truce__fail(TRUCE_TIMEOUT, error,
                                    "other writes of this process took too long");
    }
    status = state == LEADS ? lead(writer, op) : op->status;
    if (status && error)
        *error = op->error;
    return status;
}
