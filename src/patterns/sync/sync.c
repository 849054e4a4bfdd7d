/*
 * Copies kept in step: the handle, and the calls that look.
 *
 * The master is called the source below; a dependent carries copies.
 *
 *     1. source, one write:      new values, syncRevision + 1, syncing: a fresh token
 *     2. each dependent:         {reference: the source, the stamp: S2 or S8} -> values, synced.RULE = the stamp of the source
 *     3. source:                 {syncing: the token} -> syncing away
 *     4. a dependent comes, by an insert or from another source: in the same write `unchecked`: a fresh token; THEN its source
 *        is read, step 2 for this one, and {unchecked: the token} -> unchecked away
 *
 * The stamp {source: _id, origin: token, revision: number} says which values a copy has. `origin` is the `syncOrigin` of the source: a
 * token that truce gives to a source together with its first revision. A source that is removed and created again under the
 * same _id has another one, or none. Numbers of different sources or incarnations say nothing about each other.
 *
 * Invariants (models/sync.cpp is the model; its mutants are these rules, left out one by one):
 *
 *   S1  The write that changes a copied field raises the revision and sets the flag. A flag goes when every dependent that was
 *       there has the values that were read with it, and only if it is the same token still: a time would not do, two
 *       writers can have the same one.
 *   S2  A copy compares the reference and the stamp in its write. If the stamp is of the same source and incarnation, its revision
 *       must be lower: a copy never goes back, however long its writer was stopped, and a dependent that moved away is not hit.
 *       Values and stamp are of one read of the source.
 *   S3  A flag of somebody else's (a date, true) is made a token, with the next revision, before anything is copied; the values
 *       are read after it. A fresh token and the next revision harm nobody at any time (touch): all is copied again.
 *   S4  A dependent carries its flag from the write that brings it to the look at its master after it. So whoever copies
 *       looks once at those that are there, and needs not look again.
 *   S5  That flag goes only if it is the same token still: who checks slowly does not take off what a later move set.
 *   S6  A copy that is copied on (a chain) is a change of a master: S1 holds for that write, too.
 *   S7  Every write finds no intent of a commit in the document, and leaves a fresh _rev.
 *   S8  Over a stamp of another source or incarnation a copy is written only if that stamp is the one that was read BEFORE the
 *       source was read. So a writer that read a source, and was stopped until that source was replaced and its copies written,
 *       finds another stamp than it saw. A batch, which reads its source first, leaves such dependents to single copies.
 *       A source without a number is copied only where there is no stamp; over a stamp it is numbered first, because two
 *       incarnations without numbers cannot be told apart.
 *
 * A path of a rule leads through documents. If an array lies on it, declare refuses the rule, a write through truce is
 * refused, and the walk reports the documents of other writers.
 *
 * A process reads the rules again when they are SYNC_FRESH_MS old; a new rule is told as kept when all have seen it. One
 * that was stopped in between, inside a call, may change a field without a flag; the walk finds it.
 *
 *     sync_rule.c   rules and their graph      sync_copy.c    values, single writes     sync_reconcile.c  what flags ask for
 *     sync_write.c  update, insert             sync_walk.c    drift                     sync_maintenance.c    sweep and check
 */
#include "patterns/sync/sync.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "query/incoming.h"

truce_sync *truce_sync_new(truce_store *store, const truce_sync_options *options)
{
    truce_sync *sync = bson_malloc0(sizeof *sync);

    truce_assert(store);
    sync->store = store;
    if (options)
        sync->options = *options;
    pthread_mutex_init(&sync->mutex, NULL);
    sync->refused = ROOM_CHECK(options, "truce_sync_options", &sync->refusal) != TRUCE_OK;
    if (!sync->refused && sync->options.batch > SYNC_BATCH_MAX) {
        (void)truce__fail(TRUCE_INVALID, &sync->refusal, "batch is at most %d copies",
                          SYNC_BATCH_MAX);
        sync->refused = true;
    }
    if (!sync->options.batch)
        sync->options.batch = SYNC_BATCH;
    if (!sync->options.deadline_ms)
        sync->options.deadline_ms = COMMIT_DEADLINE_MS;
    return sync;
}

void truce_sync_free(truce_sync *sync)
{
    if (!sync)
        return;
    truce__sync_rules_leave(sync, sync->rules);
    pthread_mutex_destroy(&sync->mutex);
    bson_free(sync);
}

truce_status truce__sync_usable(const truce_sync *sync, bson_error_t *error)
{
    if (!sync->refused)
        return TRUCE_OK;
    if (error)
        *error = sync->refusal;
    return TRUCE_INVALID;
}

truce_status truce__sync_begin(truce_sync *sync, struct sync_work *work, bson_error_t *error)
{
    truce_status status = truce__sync_usable(sync, error);

    *work = (struct sync_work){.sync = sync, .begun_ns = truce__clock_monotonic_ns()};
    if (status)
        return status;
    truce__worker_init(&work->worker, sync->store, sync->options.deadline_ms);
    return truce__sync_rules(sync, &work->rules, error);
}

void truce__sync_end(struct sync_work *work)
{
    truce__sync_rules_leave(work->sync, work->rules);
}

/* ---- calls ------------------------------------------------------------------------------------ */

truce_status truce_sync_settle(truce_sync *sync, const char *collection, const bson_value_t *id,
                               truce_sync_result *result, bson_error_t *error)
{
    RETURN_IF_NULL(collection, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    truce_sync_result nobody;
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    result = result ? result : &nobody;
    *result = (truce_sync_result){0};
    if (!status)
        status = truce__check_value(id, "_id", error);
    if (!status)
        status = truce__sync_settle(&work, collection, id, error);
    result->settled = !status;
    result->copies = work.copies;
    truce__sync_end(&work);
    return status;
}

truce_status truce_sync_read(truce_sync *sync, const char *collection, const bson_value_t *id,
                             bson_t *document, bson_error_t *error)
{
    RETURN_IF_NULL(document, error);
    RETURN_EMPTY_IF_NULL(collection, document, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    struct sync_work work;
    truce_status status = truce__sync_begin(sync, &work, error);

    bson_init(document);
    if (!status)
        status = truce__check_value(id, "_id", error);
    if (!status) {
        bson_destroy(document);
        status = truce__journal_look(&work.worker, collection, id, document, error);
    }
    if (!status)
        status = truce__sync_bring_up_by_all(&work, collection, document, error);
    if (!status && work.copies) {
        bson_destroy(document);
        status = truce__journal_look(&work.worker, collection, id, document, error);
    }
    if (status)
        bson_reinit(document);
    truce__sync_end(&work);
    return status;
}

/* ---- status ----------------------------------------------------------------------------------- */

/* How many carry a flag; *since: of the oldest token, seconds; INT64_MAX: none tells. */
static truce_status count_flags(truce_sync *sync, const char *collection, const char *flag,
                                int64_t *count, int64_t *since, bson_error_t *error)
{
    bson_t *filter = BCON_NEW(flag, "{", "$exists", BCON_BOOL(true), "}"),
           *oldest = BCON_NEW(flag, "{", "$type", "objectId", "}"),
           *sort = BCON_NEW(flag, BCON_INT32(1)), found;
    truce_find_options options = {.sort = sort};
    truce_status status = truce_count(sync->store, collection, filter, NULL, count, error);
    bson_iter_t iter;

    if (!status && *count) {
        status = truce_find_one(sync->store, collection, oldest, &options, &found, error);
        if (!status && bson_iter_init_find(&iter, &found, flag) && BSON_ITER_HOLDS_OID(&iter)) {
            int64_t made = (int64_t)bson_oid_get_time_t(bson_iter_oid(&iter));

            *since = made < *since ? made : *since;
        }
        bson_destroy(&found);
    }
    bson_destroy(sort);
    bson_destroy(oldest);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status append_rule(truce_sync *sync, const struct sync_rule *rule, bson_t *one,
                                bson_error_t *error)
{
    int64_t syncing = 0, unchecked = 0, since = INT64_MAX;
    truce_status status = count_flags(sync, rule->master, SYNC_FLAG, &syncing, &since, error);

    if (!status)
        status = count_flags(sync, rule->dependent, SYNC_UNCHECKED, &unchecked, &since, error);
    BSON_APPEND_UTF8(one, "rule", rule->name);
    BSON_APPEND_UTF8(one, "master", rule->master);
    BSON_APPEND_UTF8(one, "dependent", rule->dependent);
    BSON_APPEND_UTF8(one, "reference", rule->reference);
    BSON_APPEND_DOCUMENT(one, "copies", &rule->copies);
    BSON_APPEND_INT64(one, "syncing", syncing);
    BSON_APPEND_INT64(one, "unchecked", unchecked);
    if (since != INT64_MAX)
        BSON_APPEND_DATE_TIME(one, "since", since * 1000);
    return status;
}

truce_status truce_sync_status(truce_sync *sync, bson_t *status, bson_error_t *error)
{
    RETURN_IF_NULL(status, error);

    DEADLINE_SCOPE(sync->options.deadline_ms);
    struct sync_work work;
    bson_t rules;
    truce_status result = truce__sync_begin(sync, &work, error);

    bson_init(status);
    BSON_APPEND_ARRAY_BEGIN(status, "rules", &rules);
    for (uint32_t i = 0; !result && i < work.rules->count; i++) {
        char key[12];
        bson_t one;

        snprintf(key, sizeof key, "%u", i);
        BSON_APPEND_DOCUMENT_BEGIN(&rules, key, &one);
        result = append_rule(sync, &work.rules->rules[i], &one, error);
        bson_append_document_end(&rules, &one);
    }
    bson_append_array_end(status, &rules);
    truce__sync_end(&work);
    return result;
}
