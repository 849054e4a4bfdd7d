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
 * Where another process has the lock, the leader does not wait for it: it publishes the operations at the head of the
 * queue, as many as others can carry out (storage/records.c). Whoever has the lock runs them behind his own, in the same
 * transaction; then he syncs once for all of them, and wakes each process once. So processes share commits as threads do.
 *
 *     lead     lock free? --yes--> its turn: own group, then what others have published, commit, unlock, one of those
 *              |                   who have published since is woken, to look for the lock
 *              no: published --answered by another--> done
 *                            --the lock is free, and nobody has taken it--> its turn
 *                            --its time is over, or it is returned--> waits for the lock, as it does for what nobody
 *                                                                     else can do
 *
 * States of an operation, a futex word:
 *
 *     QUEUED --the leader takes it, or publishes it--> TAKEN --committed, or failed--> DONE
 *     TAKEN --it is withdrawn, or returned--> QUEUED
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
 *  5. What another process carries out is done once, or not at all and then here: only what was stopped there for longer
 *     than its deadline is UNKNOWN.
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
#include "base/futex.h"
#include "engine/storage/change_notify.h"
#include "engine/storage/file_identity.h"
#include "engine/storage/snapshot_pins.h"

#define NAP_NS           INT64_C(50000000) /* of a waiter, between two looks whether it is interrupted */
#define PUBLISHED_NAP_NS INT64_C(10000000) /* of one that is published: whether the lock is free */
#define STOPPED_NS                                                                                 \
    INT64_C(1000000000) /* one that is taken is waited for so long behind its deadline */
#define SERVES_NS INT64_C(20000000) /* no more of others is taken so long after a turn began */

enum { QUEUED, TAKEN, LEADS, DONE };

static bool writer_keeps_company(const struct writer *writer);
static void writer_run_group(struct writer *writer, struct write_op *first);
static truce_status writer_settle_orphans(struct writer *writer, bson_error_t *error);

static void writer_name_table(void *arg, int64_t table, char *name, size_t size)
{
    const struct writer *writer = arg;

    truce__catalog_name_table(writer->catalog, table, name, size);
}

void truce__writer_init(struct writer *writer, struct kv *kv, struct lock *lock,
                        struct durable *durable, struct cache *cache)
{
    *writer = (struct writer){.kv = kv, .lock = lock, .durable = durable, .cache = cache};
    truce__kv_names(kv, writer_name_table, writer);
    truce__kv_sound(kv, truce__row_sound);
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
    pthread_mutex_destroy(&writer->mutex);
}

/* ---- the queue ------------------------------------------------------------------------------ */

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

/* Under the mutex: what comes before the link leaves the queue. */
static void cut_queue(struct writer *writer, struct write_op **link)
{
    writer->first = *link;
    if (!writer->first)
        writer->end = &writer->first;
    *link = NULL;
}

/* Takes the group of the leader: the operations from the first up to, but without, `*last`. */
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
    truce__word_wake(&op->state, 1);
}

static void hand_over(struct writer *writer)
{
    pthread_mutex_lock(&writer->mutex);
    writer->led = writer->first;
    if (writer->first)
        writer_change_state(writer->first, LEADS);
    pthread_mutex_unlock(&writer->mutex);
}

/* The moment an operation is DONE its memory is its owner's again. */
static void finish_group(struct write_op *first, struct write_op *own)
{
    while (first) {
        struct write_op *next = first->next;

        if (first != own)
            writer_change_state(first, DONE);
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

/* Is it a turn in which something can be written? If not the lock is let go. */
static truce_status begin_turn(struct writer *writer, struct write_op *op, bson_error_t *error)
{
    truce_status status;

    truce__durable_begin(writer->durable);
    status = truce__durable_usable(writer->durable, error);
    if (!status)
        status = truce__file_identity_check_in_turn(writer->lock, writer->kv, error);
    if (!status && !op->alone) /* a checkpoint finds out by itself */
        status = truce__lock_log_usable(writer->lock, error);
    if (!status && !op->alone)
        status = writer_settle_orphans(writer, error);
    if (status)
        truce__lock_release(writer->lock);
    return status;
}

static void writer_end_turn(struct writer *writer)
{
    truce__log_identity_end_turn(writer->lock);
    truce__lock_release(writer->lock);
}

static truce_status acquire(struct writer *writer, struct write_op *op)
{
    truce_status status = truce__lock_acquire(writer->lock, op->deadline_ns, &op->error);

    return status ? status : begin_turn(writer, op, &op->error);
}

/* What a refused operation answers depends on what was there, too. */
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

/* ---- operations that another process carries out -------------------------------------------- */

/* Those at the head of the queue that can be published, as a group; NULL: the first cannot. */
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

/* At the head of the queue again. */
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

enum turn {
    NO_TURN,   /* to be waited for */
    OUR_TURN,  /* the lock is ours */
    DONE_THERE /* another process has carried the group out */
};

/* The lock was found free while our group is published, or was. */
static enum turn look_in_turn(struct writer *writer, struct write_op *group, bool *settled)
{
    bson_error_t ignored;

    if (truce__records_withdraw(&writer->combine.records))
        return OUR_TURN;
    *settled = !begin_turn(writer, group, &ignored);
    if (*settled)
        writer_end_turn(writer);
    return NO_TURN;
}

/* Who has it was stopped over it, or it cannot be told what has become of it. */
static void leave_unknown(struct write_op *group)
{
    for (struct write_op *op = group; op; op = op->next)
        op->status = truce__fail(TRUCE_UNKNOWN, &op->error,
                                 "another process was carrying the write out, and has not said "
                                 "what came of it: look whether it is there");
}

/* While it is published: until it is done, or the time is over, or it is our turn. */
static enum turn wait_published(struct writer *writer, struct write_op *group, uint64_t *promise)
{
    struct records *records = &writer->combine.records;
    int64_t until_ns = first_deadline(group);
    bool looks = true; /* whether the lock is free */
    truce_status status;

    for (;;) {
        enum record_state state = truce__records_look(records);
        int64_t left = until_ns - truce__clock_monotonic_ns();
        bool over = left <= 0 || truce__lock_interrupted(writer->lock), settled;

        switch (state) {
        case RECORD_ANSWERED:
            truce__combine_tell(&writer->combine, group, promise);
            return DONE_THERE;
        case RECORD_RETURNED:
            truce__combine_take_back(&writer->combine);
            return NO_TURN;
        case RECORD_FREE: /* somebody has cut the file */
            leave_unknown(group);
            return DONE_THERE;
        case RECORD_PUBLISHED:
            if (over && truce__records_withdraw(records))
                return NO_TURN;
            break;
        case RECORD_TAKEN:
            if (left < -STOPPED_NS) {
                leave_unknown(group);
                return DONE_THERE;
            }
            break;
        }
        status = looks ? truce__lock_try(writer->lock) : TRUCE_LOCKED;
        if (!status) {
            if (look_in_turn(writer, group, &settled) == OUR_TURN)
                return OUR_TURN;
            looks = !settled;
            continue;
        }
        if (status != TRUCE_LOCKED && truce__records_withdraw(records))
            return NO_TURN; /* and hears why */
        truce__records_sleep(records, state, PUBLISHED_NAP_NS);
        looks = true;
    }
}

static void finish_told(struct writer *writer, struct write_op *group, struct write_op *own,
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

/* Has another process do what is at the head of the queue, if the lock is not free. */
static enum turn writer_publish(struct writer *writer, struct write_op *op)
{
    struct write_op *group;
    uint64_t promise = 0;
    enum turn turn = NO_TURN;
    truce_status status;

    if (op->alone || !writer_keeps_company(writer) || !truce__combine_wanted(&writer->combine))
        return NO_TURN;
    status = truce__lock_try(writer->lock);
    if (status != TRUCE_LOCKED)
        return status ? NO_TURN : OUR_TURN;
    group = take_to_publish(writer);
    if (!group)
        return NO_TURN;
    truce_assert(group == op);
    if (truce__combine_publish(&writer->combine, is_relaxed(group)))
        turn = wait_published(writer, group, &promise);
    if (turn == DONE_THERE)
        finish_told(writer, group, op, promise);
    else
        writer_put_back(writer, group);
    return turn;
}

/* ---- leading -------------------------------------------------------------------------------- */

/* In its turn. */
static truce_status lead_group(struct writer *writer, struct write_op *op)
{
    int64_t began_ns = truce__clock_monotonic_ns();
    struct write_op *group;
    uint64_t promised, answered, relaxed;
    int pages;

    truce__kv_patience(writer->kv, (op->deadline_ns - began_ns) / 1000000 + 1);
    writer->serves_until_ns = began_ns + SERVES_NS;
    writer->combine.served = false;
    group = writer_take_group(writer);
    truce_assert(group == op);
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
    writer_end_turn(writer);
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
    enum turn turn = writer_publish(writer, op);
    truce_status status;

    if (turn == DONE_THERE)
        return op->status;
    status = turn == OUR_TURN ? begin_turn(writer, op, &op->error) : acquire(writer, op);
    return status ? writer_give_up(writer, op, status) : lead_group(writer, op);
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
static unsigned writer_follow(struct writer *writer, struct write_op *op)
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
    unsigned state = writer_enqueue(writer, op) ? LEADS : writer_follow(writer, op);
    truce_status status;

    if (state == QUEUED && truce__lock_interrupted(writer->lock))
        return truce__refuse(CODE_INTERRUPTED, error, "the call was interrupted");
    if (state == QUEUED) {
        status = truce__lock_blame(writer->lock, error);
        return status ? status
                      : truce__fail(TRUCE_TIMEOUT, error,
                                    "other writes of this process took too long");
    }
    status = state == LEADS ? writer_lead(writer, op) : op->status;
    if (status && error)
        *error = op->error;
    return status;
}

/* ---- writer group --------------------------------------------------------------------------- */

/* The transaction of a group, and what its operations use in it. */

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

static truce_status commit_told(struct writer *writer, bool relaxed, bson_error_t *error)
{
    bool changed = touched_any(writer), wrote;
    uint64_t promised = 0;
    truce_status status;

    if (!relaxed && truce__kv_changed(writer->kv))
        promised = truce__durable_promise(writer->durable);
    if (changed) {
        truce__notify_begin(writer->lock);
        truce__cache_commit(writer->cache, promised);
    }
    wrote = truce__kv_changed(writer->kv);
    status = truce__kv_write_commit(writer->kv, error);
    if (!status && wrote) {
        truce__pins_note_log(writer->lock, truce__kv_wal_pages(writer->kv));
        truce__log_identity_note(writer->lock, writer->kv);
    }
    truce__durable_written(writer->durable);
    if (changed)
        truce__notify_announce(writer->lock, writer->touched);
    return status;
}

static truce_status group_commit(struct writer *writer, bool relaxed, bson_error_t *error)
{
    truce_status status = commit_told(writer, relaxed, error);

    truce__cache_end(writer->cache, !status);
    if (status)
        truce__writer_catalog_changed(writer);
    writer->feed.known = writer->feed.known && !status;
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

static void group_roll_back(struct writer *writer)
{
    truce__kv_write_rollback(writer->kv);
    truce__cache_end(writer->cache, false);
    truce__writer_catalog_changed(writer);
    writer->feed.known = false;
}

/* Runs the operations from `first` up to, but without, `last` in one transaction, and, if it `serves`, those of other
 * processes behind them. The status is the transaction's. */
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

/* Whatever happens, nothing of it stays. */
static void group_rehearse(struct writer *writer, struct write_op *first)
{
    bson_error_t ignored;
    bool relaxed;

    if (group_begin(writer, &ignored))
        return;
    (void)run_each(writer, first, NULL, &relaxed, &ignored);
    group_roll_back(writer);
}

/* Does it work for other processes, and they for it? A store whose names are not only the file's keeps to itself. */
static bool writer_keeps_company(const struct writer *writer)
{
    return writer->combine.kinds && !writer->names;
}

/* Each operation by itself, after a group has failed; but where the file is locked by another
 * program it fails for all at once, or they would wait one after the other. What fails with the operations of other
 * processes is first tried without. */
static void writer_run_group(struct writer *writer, struct write_op *first)
{
    truce_status status;
    bool together;

    if (writer->rehearses)
        group_rehearse(writer, first);
    status = group_transact(writer, first, NULL, writer_keeps_company(writer), &first->error);
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

/* What one who had the turn and died has left taken: nothing of others is carried out before it is known what was. */
static truce_status writer_settle_orphans(struct writer *writer, bson_error_t *error)
{
    struct records *records = &writer->combine.records;
    uint64_t lost;
    truce_status status;

    if (!writer_keeps_company(writer) || !truce__records_orphaned(records))
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
