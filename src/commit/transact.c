/* truce_transact runs the caller's function again when other writers were faster. */

#include "commit/commit.h"

#include "base/clock.h"
#include "base/deadline.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/object_id.h"
#include "commit/commit_counters.h"
#include "commit/metadata_cache.h"
#include "truce/changes.h"

/* Checks a function that applied its commit itself and returned CONFLICT. It runs again if the
 * apply failed with CONFLICT. After any other result, a second run could do everything twice. */
static truce_status applied_already(const truce_commit *commit, bson_error_t *error)
{
    if (commit->outcome == TRUCE_OK)
        return truce__fail(
            TRUCE_INVALID, error,
            "the function applied its commit, which took effect, and then returned CONFLICT: it "
            "does not run again");
    return commit->outcome;
}

/* Begins a try. If `take`, the documents of the last try are taken first (journal.c, CT1). */
static truce_status begin_try(truce_commit *commit, bool take, bool *already, bson_error_t *error)
{
    *already = false;
    commit->applied = false;
    commit->failed = TRUCE_OK;
    bson_destroy(commit->result);
    commit->result = NULL;
    bson_reinit(&commit->inserted);
    truce__commit_queries_forget(commit);
    truce__id_new(&commit->id);
    if (take)
        return truce__journal_take(commit, already, error);
    truce__commit_entries_free(commit);
    return TRUCE_OK;
}

/* Runs the function once and applies the commit. If `take`, acquires the documents of the last try
 * first. */
static truce_status run_once(truce_commit *commit, truce_commit_function *function, void *arg,
                             bool take, bson_error_t *error)
{
    int64_t before_ns;
    bool already;
    truce_status status = begin_try(commit, take, &already, error);

    if (status || already)
        return status;
    if (error)
        error->message[0] = '\0';
    before_ns = truce__deadline_set(truce__deadline_least(commit->worker.deadline_ns));
    commit->around = truce__journal_work_set(commit);
    /* The function may read documents that this commit itself holds, without waiting for the
     * commit. */
    status = function(commit, arg, error);
    truce__journal_work_set(commit->around);
    truce__deadline_set(before_ns);
    if (status == TRUCE_REFUSED && (!error || !error->message[0]))
        (void)truce__fail(status, error,
                          "the function of the commit returned TRUCE_REFUSED without a message");
    if (status == TRUCE_LOCKED && commit->yielded) /* journal.c, CT2 */
        status = TRUCE_CONFLICT;
    if (!status && !commit->applied)
        status = truce__commit_apply(commit, error);
    else if (status == TRUCE_CONFLICT && commit->applied)
        status = applied_already(commit, error);
    truce__journal_drop(commit, "its function failed");
    return status;
}

/* Waits for the disk before the result is reported, if the commit read or wrote data that was not
 * durable (per_key_lock.c, CP6). */
static truce_status transact_settle(const truce_commit *commit, truce_status status,
                                    bson_error_t *error)
{
    truce_status settled;
    bson_error_t why;

    if (!commit->worker.early || (!status && commit->settled))
        return status;
    settled = truce_settle(commit->store, &why);
    if (settled)
        *error = why;
    return settled ? settled : status;
}

/* Returns whether the conflict is final: a diff that cannot be made again found a different old
 * value, or each further run would conflict, too. */
static bool has_stale_diff(const truce_commit *commit)
{
    for (uint32_t i = 0; commit->fixed && i < commit->count; i++) {
        if (commit->entries[i]->stale)
            return true;
    }
    return commit->conflicts;
}

/* Reports that other writers were faster until the deadline. */
static truce_status out_of_time(bson_error_t *error)
{
    const bson_error_t last = *error;

    return truce__fail(TRUCE_TIMEOUT, error,
                       "the deadline passed before a try of the commit succeeded: %.300s",
                       last.message);
}

/* Marks the commit done whose mark the previous holder of the lock left, unless the decision has
 * done that (journal.c, CK6). */
static void transact_mark_left(truce_commit *commit)
{
    int64_t before_ns;
    bson_error_t ignored;

    if (!commit->lock.owes)
        return;
    before_ns = truce__deadline_set(commit->worker.deadline_ns);
    commit->lock.owes = false;
    (void)!truce__journal_done(&commit->worker, &commit->lock.left,
                               &ignored); /* If the mark is lost, the sweep writes it. */
    truce__deadline_set(before_ns);
}

static void transact_unlock(truce_commit *commit)
{
    transact_mark_left(commit);
    truce__key_lock_release(&commit->lock);
}

/* Acquires the lock of the document on which the commit lost, so that the next try can begin
 * without a pause. Returns false if the commit does not hold the lock afterward. A commit that lost
 * although it held the lock releases it: the writer that won does not use the queue. */
static bool transact_lock_lost_document(truce_commit *commit)
{
    bool had = commit->lock.held && commit->lock.stripe == commit->lost_stripe;

    if (!commit->locks || !commit->lost || had) {
        transact_unlock(commit);
        return false;
    }
    transact_mark_left(commit);
    truce__key_lock_acquire(&commit->lock, commit->locks, commit->lost_stripe,
                            commit->worker.deadline_ns);
    return commit->lock.held;
}

/* Waits before the next try. Returns TIMEOUT if no time is left. */
static truce_status next_try(truce_commit *commit, uint32_t tried, bson_error_t *error)
{
    bool over = truce__clock_monotonic_ns() >= commit->worker.deadline_ns;
    bson_error_t waiting;

    COUNT(reruns);
    commit->worker.waits = tried < 5 ? tried : 5;
    if (!over && !transact_lock_lost_document(commit) && tried > 0)
        over = truce__worker_wait(&commit->worker, "the documents", &waiting) != TRUCE_OK;
    return over ? out_of_time(error) : TRUCE_OK;
}

/* Returns whether the next try must run without locking the documents first (journal.c, CT3). */
static bool is_unsuited(const truce_commit *commit, truce_status status)
{
    if (commit->applied && commit->outcome == TRUCE_OK)
        return false; /* The commit took effect, so there is no next try. */
    return status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_DUPLICATE ||
           (status == TRUCE_CONFLICT && commit->untakeable);
}

/* Runs tries until one does not end with CONFLICT, the conflict is final, or the maximum number of
 * tries or the deadline is reached. Later tries acquire their documents first (journal.c, CT1). */
static truce_status try_often(truce_commit *commit, truce_commit_function *function, void *arg,
                              uint32_t tries, bson_error_t *error)
{
    int64_t begun_ns = truce__clock_monotonic_ns();

    for (uint32_t i = 0;; i++) {
        bool take =
            i >= COMMIT_TRIES_FREE && !commit->untakeable &&
            truce__clock_monotonic_ns() - begun_ns >= COMMIT_OPTIMISTIC_MS * INT64_C(1000000);
        truce_status status;

        commit->lost = commit->settled = commit->yielded = false;
        if (take)
            transact_unlock(commit);
        status = run_once(commit, function, arg, take, error);
        if (status != TRUCE_CONFLICT)
            transact_unlock(commit);
        if (take && is_unsuited(commit, status)) {
            commit->untakeable = true;
            status = TRUCE_CONFLICT;
        }
        if (status != TRUCE_CONFLICT || has_stale_diff(commit) || i + 1 >= tries)
            return status;
        status = next_try(commit, i, error);
        if (status)
            return status;
    }
}

/* Returns whether commits of this store use the wait queues. In memory, a failed try costs less
 * than a wake-up (per_key_lock.c, CP7). */
static bool uses_wait_queue(const truce_store *store)
{
    return !(store->capabilities & TRUCE_CAN_COMPARE) || store->capabilities & TRUCE_CAN_DURABLE;
}

/* Gives a message to an error that has none: the last conflict, or a status of the function. */
static void transact_explain(truce_status status, uint32_t tries, bson_error_t *why)
{
    if (!status || why->message[0])
        return;
    if ((unsigned)status > TRUCE_REFUSED)
        truce__fail(status, why,
                    "the function of the commit returned %d, which is not a truce_status",
                    (int)status);
    else if (status == TRUCE_CONFLICT)
        truce__fail(status, why,
                    "the commit conflicted in each of %u runs of its function (tries_max)", tries);
    else
        truce__fail(status, why,
                    "the function of the commit returned this status without a message");
}

/* Returns the per-key locks of the store. The first call may have to ask a server, which ends at
 * the commit's deadline. */
static struct key_locks *transact_locks(truce_store *store, const truce_commit *commit)
{
    int64_t before_ns = truce__deadline_set(commit->worker.deadline_ns);
    struct key_locks *locks = truce__metadata_key_locks(store);

    truce__deadline_set(before_ns);
    return locks;
}

truce_status truce__transact(truce_store *store, truce_commit_function *function, void *arg,
                             const truce_commit_options *options, bool waits, bson_error_t *error)
{
    uint32_t tries = options && options->tries_max ? options->tries_max : COMMIT_TRIES;
    truce_commit *commit = NULL;
    truce_status status = truce__commit_new(store, options, &commit, error);
    bson_error_t why = {0};

    if (status)
        return status;
    if (store->capabilities & TRUCE_IS_TRANSACTION) {
        /* The queries of every try would read the same snapshot, so the caller must begin another
         * transaction. */
        tries = 1;
        waits = false;
    }
    commit->locks = waits && uses_wait_queue(store) ? transact_locks(store, commit) : NULL;
    commit->worker.early =
        waits && (store->capabilities & TRUCE_CAN_KEEP_ORDER) && !commit->options.relaxed;
    if (commit->options.key)
        status = truce__commit_key_holder(commit, &why);
    if (!commit->options.key || status == TRUCE_NOT_FOUND)
        status =
            truce__commit_key_decides(commit, try_often(commit, function, arg, tries, &why), &why);
    transact_unlock(commit);
    status = transact_settle(commit, status, &why);
    transact_explain(status, tries, &why);
    truce__commit_report_earlier(commit, !status && commit->earlier);
    truce_commit_free(commit);
    if (status && error)
        *error = why;
    return status;
}

truce_status truce_transact(truce_store *store, truce_commit_function *function, void *arg,
                            const truce_commit_options *options, bson_error_t *error)
{
    RETURN_IF_NULL(function, error);

    return truce__transact(store, function, arg, options, true, error);
}

/* ---- diffs ----------------------------------------------------------------------------------- */

/* The argument of the function that applies a list of changes. */
struct change_list {
    const char *collection;
    const bson_t *changes;
};

static truce_status transact_changes(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct change_list *list = arg;

    truce_commit_changes_fixed(commit);
    return truce_commit_changes(commit, list->collection, list->changes, error);
}

truce_status truce_changes_apply(truce_store *store, const char *collection, const bson_t *changes,
                                 const truce_commit_options *options, bson_error_t *error)
{
    struct change_list list = {collection, changes};

    return truce_transact(store, transact_changes, &list, options, error);
}
