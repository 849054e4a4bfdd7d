#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/null.h"
#include "commit/commit_maintenance.h"
#include "commit/journal.h"

/*
 * The sweep of the journal. Its order allows an interruption after every step:
 *
 *   1. Commits. A pending one whose lease has expired is aborted. A committed one is released and
 *      done. An aborted one is stripped and marked `cleaned`, so that the next sweep skips it.
 *   2. Documents that a missing, aborted, or done commit still holds, by the sparse index on
 *      `_intent`. Only this step finds a prepare that took effect after its commit was undone and
 *      purged.
 *   3. The purge of commits that ended before the retention period.
 *
 *  CS1  Only `done` and `aborted` commits are purged: a committed one still owes its releases.
 *  CS2  A commit with a caller's key is purged in two steps. The horizon is raised to the time of
 *       its key, and then the commit is deleted. A later request with the key is refused, so it
 *       does not run twice.
 *  CS3  The horizon is raised only to times of keys whose commits have ended, not to the local
 *       clock. A key that was never used is refused, too, if its time is not after the horizon.
 */

/* A sweep purges commits that were aborted if they began longer ago than this. */
#define ABORTED_MS INT64_C(3600000)
/* The maximum wait of truce_commit_resolve in ms if the owner was probably alive at its start. It
 * waits only if the owner is probably dead by the time of a check. */
#define RESOLVE_MS 1000

static truce_status each_commit(struct sweep *sweep, struct worker *worker,
                                const char *filter_state, bool uncleaned, sweep_function *function,
                                bson_error_t *error)
{
    bson_t *filter = BCON_NEW("state", BCON_UTF8(filter_state));
    truce_status status;

    if (uncleaned)
        BCON_APPEND(filter, "cleaned", "{", "$exists", BCON_BOOL(false), "}");
    status = truce__sweep_each(sweep, COMMITS, filter, function, worker, error);
    bson_destroy(filter);
    return status;
}

static const bson_oid_t *sweep_id_of(const bson_t *commit)
{
    static const bson_oid_t none;
    bson_iter_t iter;

    return bson_iter_init_find(&iter, commit, "_id") && BSON_ITER_HOLDS_OID(&iter)
               ? bson_iter_oid(&iter)
               : &none;
}

/* ---- 1. commits ----------------------------------------------------------------------------- */

/* Aborts a pending commit whose lease has expired. Otherwise observes the lease. Returns LOCKED if
 * the commit was not aborted. */
static truce_status sweep_undo(struct sweep *sweep, const char *collection, const bson_t *commit,
                               void *arg, bson_error_t *error)
{
    struct worker *worker = arg;
    bool over, changed = false;
    truce_status status = TRUCE_OK;

    (void)collection;
    over = truce__journal_lease_over(worker, sweep_id_of(commit), commit);
    if (over)
        status = truce__journal_abort(worker, sweep_id_of(commit), commit,
                                      "swept: its lease had expired", &changed, error);
    else
        truce__journal_lease_observe(worker, sweep_id_of(commit), commit);
    sweep->report->undone += changed;
    return status || changed ? status : TRUCE_LOCKED;
}

/* Releases the documents of a decided commit and marks it done (a sweep_function). */
static truce_status sweep_finish(struct sweep *sweep, const char *collection, const bson_t *commit,
                                 void *arg, bson_error_t *error)
{
    struct worker *worker = arg;
    uint32_t before = worker->ended;
    truce_status status = truce__journal_finish(worker, commit, error);

    (void)collection;
    sweep->report->finished += worker->ended - before;
    if (!status && worker->ended == before)
        status = TRUCE_LOCKED;
    /* LOCKED means that another process marked the commit done first, or that a plain write blocks
     * the release. The check reports such a write. */
    return status;
}

/* Strips the documents of an aborted commit, and marks the commit as cleaned. */
static truce_status sweep_clean_commit(struct sweep *sweep, const char *collection,
                                       const bson_t *commit, void *arg, bson_error_t *error)
{
    truce_status status = truce__journal_clean(arg, commit, error);
    bson_t filter = BSON_INITIALIZER, *update;
    truce_write_result result = {0};

    if (!status) {
        BSON_APPEND_OID(&filter, "_id", sweep_id_of(commit));
        BSON_APPEND_UTF8(&filter, "state", "aborted");
        update = BCON_NEW("$set", "{", "cleaned", BCON_BOOL(true), "}");
        status = truce_update(sweep->store, collection, &filter, update, NULL, &result, error);
        bson_destroy(update);
    }
    sweep->report->cleaned += !status && result.modified > 0;
    if (!status && !result.modified)
        status = TRUCE_LOCKED;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

/* ---- 2. documents --------------------------------------------------------------------------- */

struct stripping {
    struct worker *worker;
    /* The last commit that could not be resolved, because its owner may be alive. Its other
     * documents are skipped. */
    bson_oid_t busy;
};

/* Resolves the intent of a document. Returns LOCKED if the commit that holds it may still be
 * active. */
static truce_status sweep_strip_intent(struct sweep *sweep, const char *collection,
                                       const bson_t *document, void *arg, bson_error_t *error)
{
    struct stripping *stripping = arg;
    struct worker *worker = stripping->worker;
    uint32_t before = worker->did;
    truce_status status;
    bson_oid_t commit;

    if (!truce__intent_commit(document, &commit))
        return TRUCE_LOCKED; /* Another program wrote the field; the check reports the document. */
    if (bson_oid_equal(&commit, &stripping->busy))
        return TRUCE_LOCKED;
    status = truce__intent_complete_other(worker, collection, document, error);
    sweep->report->stripped += worker->did - before;
    if (!status && worker->did == before)
        status = TRUCE_LOCKED;
    if (status == TRUCE_LOCKED)
        stripping->busy = commit;
    return status; /* LOCKED means that the owner of the commit may be alive. */
}

/* ---- 3. purge ------------------------------------------------------------------------------- */

static truce_status raise_horizon(struct sweep *sweep, int64_t time_ms, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8("horizon"));
    bson_t *update = BCON_NEW("$max", "{", "time", BCON_INT64(time_ms), "}");
    truce_write_options options = {.upsert = true};
    truce_status status =
        truce_update(sweep->store, COMMITS, filter, update, &options, NULL, error);

    bson_destroy(filter);
    bson_destroy(update);
    return status;
}

/* Purges one commit (CS1, CS2). Done and aborted are final, so the id is a sufficient filter. */
static truce_status sweep_purge_commit(struct sweep *sweep, const char *collection,
                                       const bson_t *commit, void *arg, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_write_result result = {0};
    truce_status status = TRUCE_OK;
    bson_iter_t iter;

    BSON_APPEND_OID(&filter, "_id", sweep_id_of(commit));
    if (bson_iter_init_find(&iter, commit, "key") && bson_iter_init_find(&iter, commit, "key_time"))
        status = raise_horizon(sweep, bson_iter_as_int64(&iter), error);
    if (!status)
        status = truce_remove(sweep->store, collection, &filter, NULL, &result, error);
    sweep->report->purged += result.removed;
    if (!status && !result.removed)
        status = TRUCE_LOCKED;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

/* Purges failed attempts. No client asks for them, and each conflict of the journal leaves one. */
static truce_status purge_aborted(struct sweep *sweep, bson_error_t *error)
{
    int64_t cutoff_ms = truce__clock_wall_ms() - ABORTED_MS;
    bson_t *filter =
        BCON_NEW("state", BCON_UTF8("aborted"), "created", "{", "$lt",
                 BCON_DATE_TIME(cutoff_ms > sweep->cutoff_ms ? cutoff_ms : sweep->cutoff_ms), "}",
                 "key", "{", "$exists", BCON_BOOL(false), "}");
    truce_status status =
        truce__sweep_each(sweep, COMMITS, filter, sweep_purge_commit, NULL, error);

    bson_destroy(filter);
    return status;
}

static truce_status purge_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter =
        BCON_NEW("state", "{", "$in", "[", BCON_UTF8("done"), BCON_UTF8("aborted"), "]", "}",
                 "created", "{", "$lt", BCON_DATE_TIME(sweep->cutoff_ms), "}", "$or", "[", "{",
                 "key_time", "{", "$lt", BCON_INT64(sweep->cutoff_ms), "}", "}", "{", "key", "{",
                 "$exists", BCON_BOOL(false), "}", "}", "]");
    truce_status status =
        truce__sweep_each(sweep, COMMITS, filter, sweep_purge_commit, NULL, error);

    bson_destroy(filter);
    return status;
}

static truce_status sweep_commits(struct sweep *sweep, struct worker *worker, bson_error_t *error)
{
    truce_status first, status;

    first = each_commit(sweep, worker, "pending", false, sweep_undo, error);
    status = each_commit(sweep, worker, "committed", false, sweep_finish, first ? NULL : error);
    first = first ? first : status;
    status = each_commit(sweep, worker, "aborted", true, sweep_clean_commit, first ? NULL : error);
    return first ? first : status;
}

static truce_status purge_commits(struct sweep *sweep, bson_error_t *error)
{
    truce_status first, status;

    if (sweep->cutoff_ms == INT64_MIN)
        return TRUCE_OK;
    first = purge_all(sweep, error);
    status = purge_aborted(sweep, first ? NULL : error);
    return first ? first : status;
}

struct sweep_all {
    struct sweep *sweep;
    struct stripping stripping;
};

static truce_status sweep_collection(void *arg, const char *collection, bson_error_t *error)
{
    struct sweep_all *all = arg;
    bson_t *filter;
    truce_status status;

    if (!strcmp(collection, COMMITS))
        return TRUCE_OK;
    filter = BCON_NEW("_intent", "{", "$exists", BCON_BOOL(true), "}");
    status = truce__sweep_each(all->sweep, collection, filter, sweep_strip_intent, &all->stripping,
                               error);
    bson_destroy(filter);
    return status;
}

truce_status truce__commit_sweep(struct sweep *sweep, bson_error_t *error)
{
    struct worker worker;
    struct sweep_all all = {.sweep = sweep, .stripping = {.worker = &worker}};
    truce_status first, status;

    truce__worker_init(&worker, sweep->store, 1);
    first = sweep_commits(sweep, &worker, error);
    status = truce__each_collection(sweep->store, sweep_collection, &all, first ? NULL : error);
    first = first ? first : status;
    status = purge_commits(sweep, first ? NULL : error);
    return first ? first : status;
}

/* ---- one commit ----------------------------------------------------------------------------- */

static truce_status sweep_find_by_id(truce_store *store, const bson_oid_t *id, bson_t *commit,
                                     bson_error_t *error)
{
    truce_status status = truce__commit_find(store, id, commit, error);
    char hex[25];

    bson_oid_to_string(id, hex);
    return status == TRUCE_NOT_FOUND
               ? truce__fail(status, error,
                             "the commit %s does not exist: it never took effect, or was purged",
                             hex)
               : status;
}

/* Undoes a pending commit whose lease has expired, or finishes a decided one. */
static truce_status bring_to_its_end(struct sweep *sweep, struct worker *worker,
                                     const bson_t *commit, bson_error_t *error)
{
    const char *state = truce__commit_state(commit);

    if (state && !strcmp(state, "pending")) {
        truce_status status = sweep_undo(sweep, COMMITS, commit, worker, error);

        if (status == TRUCE_LOCKED)
            return truce__fail(
                TRUCE_LOCKED, error,
                "the commit is pending, and its lease has not expired: its process may still "
                "complete it");
        return status ? status : sweep_clean_commit(sweep, COMMITS, commit, worker, error);
    }
    if (state && !strcmp(state, "committed"))
        return truce__journal_finish(worker, commit, error);
    return TRUCE_OK;
}

static bool sweep_is_doubtful(const bson_t *commit)
{
    const char *state = truce__commit_state(commit);

    return state && !strcmp(state, "pending") && truce__journal_lease_doubtful(commit);
}

truce_status truce_commit_resolve(truce_store *store, const bson_oid_t *id, bson_t *document,
                                  bson_error_t *error)
{
    RETURN_IF_NULL(document, error);
    RETURN_EMPTY_IF_NULL(id, document, error);

    truce_sweep_report report = {0};
    struct sweep sweep = {.store = store, .report = &report, .batch = 1};
    struct worker worker;
    truce_status status = sweep_find_by_id(store, id, document, error);

    if (status)
        return status;
    /* If the owner is probably dead, the call waits until the lease expires or the default deadline
     * passes. Otherwise it usually returns LOCKED at once. */
    truce__worker_init(&worker, store, truce__journal_lease_doubtful(document) ? 0 : RESOLVE_MS);
    status = bring_to_its_end(&sweep, &worker, document, error);
    while (status == TRUCE_LOCKED && sweep_is_doubtful(document) &&
           !truce__worker_wait(&worker, "the commit", NULL)) {
        bson_destroy(document);
        status = sweep_find_by_id(store, id, document, error);
        if (!status)
            status = bring_to_its_end(&sweep, &worker, document, error);
    }
    if (status)
        return status;
    bson_destroy(document);
    return sweep_find_by_id(store, id, document, error);
}
