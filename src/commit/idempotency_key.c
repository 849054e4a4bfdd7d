#include "commit/commit.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/time_check.h"
#include "bson/field_name_escape.h"
#include "commit/metadata_cache.h"
#include "query/input_check.h"
#include "store/store.h"

/*
 * Idempotency keys. The commit document has the caller's key under a unique sparse index, so at
 * most one commit with the key can be pending or decided. An aborted commit releases its key.
 *
 * Old commits are purged below a horizon. The purge first raises `{_id: "horizon", time}`, and then
 * deletes keys whose time is not after it. A later commit with such a key is refused, because the
 * store no longer knows whether the key was used.
 */

/* Finds the commit document with the key. Repeats the read while the store does not reply. */
static truce_status key_find_holder(truce_commit *commit, bson_t *holder, bson_error_t *error)
{
    truce_status status;
    bson_t filter = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&filter, "key", commit->options.key);
    do {
        status = truce_find_one(commit->store, COMMITS, &filter, NULL, holder, error);
        if (status != TRUCE_UNKNOWN)
            break;
        bson_destroy(holder);
        bson_init(holder);
    } while (!truce__worker_wait(&commit->worker, "the store", error));
    bson_destroy(&filter);
    return status;
}

/* The time of a key may be ahead of the clock by this much. A purge of a later one would raise the
 * horizon above the times of all keys that are made until then. */
#define KEY_TIME_AHEAD_MS INT64_C(86400000)

truce_status truce__commit_key_check(const char *key, int64_t time_ms, bson_error_t *error)
{
    if (!key && !time_ms)
        return TRUCE_OK;
    if (!key)
        return truce__fail(TRUCE_INVALID, error,
                           "key_time_ms needs a key: without one, a repetition takes effect again");
    if (!key[0])
        return truce__fail(TRUCE_INVALID, error,
                           "the idempotency key is empty: give 1 byte or more, or no key");
    if (time_ms <= 0)
        return truce__fail(TRUCE_INVALID, error,
                           "the idempotency key \"%.100s\" needs key_time_ms: the time at which it "
                           "was first made, in milliseconds since 1970, the same in every retry",
                           key);
    if (time_ms > truce__clock_wall_ms() + KEY_TIME_AHEAD_MS && time_ms <= DATE_LAST_MS)
        return truce__fail(TRUCE_INVALID, error,
                           "the time of the idempotency key \"%.100s\" is %" PRId64
                           ", more than a day ahead of the clock: expected the time when the "
                           "request was made, in milliseconds since 1970",
                           key, time_ms);
    return truce__time_check("key_time_ms", time_ms, error);
}

/* Compares the inputs. The same key must mean the same request. */
static truce_status compare_input(const truce_commit *commit, const bson_t *holder,
                                  bson_error_t *error)
{
    bson_t own = BSON_INITIALIZER;
    bool same, has_changes;

    if (commit->options.input)
        truce__names_append(&own, "input", commit->options.input);
    same = truce__value_identical(truce__value_field(truce__value_document(&own), "input", 5),
                                  truce__value_field(truce__value_document(holder), "input", 5));
    bson_destroy(&own);
    if (same)
        return TRUCE_OK;
    /* The operation gives the changes as the input if its caller gives none. */
    has_changes = commit->options.input && bson_has_field(commit->options.input, "changes");
    return truce__fail(
        TRUCE_DUPLICATE, error,
        has_changes
            ? "the key \"%s\" was used before for a commit with different changes: a new request "
              "needs a new key, and a request whose repetitions compute other values needs 'input'"
            : "the key \"%s\" was used before for a commit with a different input: a "
              "new request needs a new key",
        commit->options.key);
}

/* Times of the same key may differ by less than this, because a caller that stores the time of its
 * request may round it. */
#define KEY_TIME_ROUNDED_MS 1000

/* Compares the times of the key. A caller may compute the time again in each retry. After the
 * record of the first call is purged, such a later time is above the horizon, and the request would
 * take effect again. */
static truce_status compare_key_time(const truce_commit *commit, const bson_t *holder,
                                     bson_error_t *error)
{
    bson_iter_t iter;
    int64_t given_ms = commit->options.key_time_ms, first_ms = given_ms;
    uint64_t later;

    if (bson_iter_init_find(&iter, holder, "key_time"))
        first_ms = bson_iter_as_int64(&iter);
    later = (uint64_t)given_ms - (uint64_t)first_ms;
    if (later < KEY_TIME_ROUNDED_MS || 0 - later < KEY_TIME_ROUNDED_MS)
        return TRUCE_OK;
    return truce__fail(
        TRUCE_DUPLICATE, error,
        "the key \"%s\" was first used with the time %lld, and now with %lld: give the "
        "same time in every retry",
        commit->options.key, (long long)first_ms, (long long)given_ms);
}

/* Returns whether the holder is this commit itself, whose decision got no reply, and not an
 * earlier one. */
static bool key_is_ours(const truce_commit *commit, const bson_t *holder)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, holder, "_id") && BSON_ITER_HOLDS_OID(&iter) &&
           bson_oid_equal(bson_iter_oid(&iter), &commit->id);
}

truce_status truce__commit_key_holder(truce_commit *commit, bson_error_t *error)
{
    truce_status status = truce__metadata_ensure_commits(commit->store, error);

    while (!status) {
        const char *state;
        bson_t holder;
        bson_iter_t iter;

        status = key_find_holder(commit, &holder, error);
        if (status) {
            bson_destroy(&holder);
            break;
        }
        state = truce__commit_state(&holder);
        if (state && (!strcmp(state, "committed") || !strcmp(state, "done"))) {
            status = compare_input(commit, &holder, error);
            if (!status)
                status = compare_key_time(commit, &holder, error);
            commit->earlier = !key_is_ours(commit, &holder);
            bson_destroy(&holder);
            return status;
        }
        if (state && !strcmp(state, "pending") && bson_iter_init_find(&iter, &holder, "_id") &&
            BSON_ITER_HOLDS_OID(&iter))
            status = truce__commit_suspect(&commit->worker, bson_iter_oid(&iter), &holder, error);
        else
            status = truce__worker_wait(&commit->worker, "the key", error);
        bson_destroy(&holder);
    }
    return status == TRUCE_NOT_FOUND ? truce__commit_key_expired(commit, error) : status;
}

/* Lets the key decide about a failed commit. A request that is sent twice concurrently runs two
 * commits under one key. The loser may fail in any of its parts, because the winner changed what
 * the part depends on. For example, an insert finds its own id taken, a guard does not match, or a
 * removed document is missing. */
truce_status truce__commit_key_decides(truce_commit *commit, truce_status failure,
                                       bson_error_t *error)
{
    bson_error_t why = {0};
    truce_status status;

    if (!failure || !commit->options.key || truce__unanswered(failure))
        return failure;
    status = truce__commit_key_holder(commit, &why);
    if (!status)
        return TRUCE_OK;
    if (status != TRUCE_DUPLICATE)
        return failure;
    if (error)
        *error = why;
    return status;
}

truce_status truce__commit_key_expired(truce_commit *commit, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, horizon;
    truce_status status;
    bson_iter_t iter;

    BSON_APPEND_UTF8(&filter, "_id", "horizon");
    do {
        /* Reads the latest horizon. Commits below the horizon were purged, so a key below it must
         * not be used again. */
        status =
            truce_find_one(commit->store, COMMITS, &filter, &truce__find_latest, &horizon, error);
        if (status != TRUCE_UNKNOWN)
            break;
        bson_destroy(&horizon);
        bson_init(&horizon);
    } while (!truce__worker_wait(&commit->worker, "the store", error));
    if (!status && bson_iter_init_find(&iter, &horizon, "time") &&
        commit->options.key_time_ms <= bson_iter_as_int64(&iter))
        status = truce__fail(
            TRUCE_EXPIRED, error,
            "the key \"%s\" with the time %lld is too old: the store remembers used keys after "
            "%lld (ms since 1970), so it may have been used before; do not retry it",
            commit->options.key, (long long)commit->options.key_time_ms,
            (long long)bson_iter_as_int64(&iter));
    else if (!status || status == TRUCE_NOT_FOUND)
        status = TRUCE_NOT_FOUND;
    bson_destroy(&horizon);
    bson_destroy(&filter);
    return status;
}

void truce__commit_begin_document(const truce_commit *commit, const char *state, bson_t *document)
{
    bson_init(document);
    BSON_APPEND_OID(document, "_id", &commit->id);
    if (commit->options.key) {
        BSON_APPEND_UTF8(document, "key", commit->options.key);
        BSON_APPEND_INT64(document, "key_time", commit->options.key_time_ms);
    }
    BSON_APPEND_UTF8(document, "state", state);
    if (commit->options.input)
        truce__names_append(document, "input", commit->options.input);
    BSON_APPEND_DATE_TIME(document, "created", truce__clock_wall_ms());
}

/* ---- results --------------------------------------------------------------------------------- */

void truce__commit_append_left(const truce_commit *commit, bson_t *document)
{
    if (commit->result)
        truce__names_append(document, "result", commit->result);
    if (!bson_empty(&commit->inserted))
        BSON_APPEND_ARRAY(document, "inserted", &commit->inserted);
}

truce_status truce_commit_set_result(truce_commit *commit, const bson_t *result,
                                     bson_error_t *error)
{
    truce_status status = truce__check_required(result, "result", error);

    if (!status && !commit->options.key)
        status = truce__fail(
            TRUCE_INVALID, error,
            "a commit without a key cannot have a result, because no call could read it");
    if (!status && commit->applied)
        status = truce__fail(TRUCE_INVALID, error,
                             "the commit was already applied: set its result before that");
    if (!status && result->len > COMMIT_RESULT_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "the result of a commit has %u bytes; the maximum is %d", result->len,
                             COMMIT_RESULT_BYTES_MAX);
    if (!status)
        status = truce__document_check(result, "result", error);
    if (status)
        return status;
    bson_destroy(commit->result);
    commit->result = bson_copy(result);
    return TRUCE_OK;
}
