/*
 * Second lives of jobs that others waited for. A job that is cancelled because one that it waits for ended otherwise than
 * done says because of whom:
 *
 *     after: {left: 0, failure: "cancel", failed: [X]}
 *
 * and when X is retried it waits for X again, in the commit of the retry: it goes from X's `told` back into its `then`. Once
 * `failed` is empty it is blocked as before, and so are those, in turn, that were cancelled because of it. (W5)
 *
 * Who was cancelled by hand, or discarded, is not there, and stays as it is. So does one whose key has another live job by
 * now.
 */
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

struct reviving {
    truce_commit *commit;
    bson_t *jobs[REVIVED_MAX + 1]; /* that live again: the first is the one that is retried */
    size_t count, looked;
};

static void again_append_id(bson_t *array, const bson_value_t *id)
{
    char key[16];

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(array));
    BSON_APPEND_VALUE(array, key, id);
}

static bool array_in(const bson_t *document, const char *path, bson_iter_t *iter)
{
    bson_iter_t found;

    return bson_iter_init(iter, document) && bson_iter_find_descendant(iter, path, &found) &&
           BSON_ITER_HOLDS_ARRAY(&found) && bson_iter_recurse(&found, iter);
}

/* Without `because`; false: it was not there. */
static bool failed_without(const bson_t *job, const bson_oid_t *because, bson_t *failed)
{
    bson_iter_t iter;
    bool was_there = false;

    for (bool some = array_in(job, "after.failed", &iter); some && bson_iter_next(&iter);) {
        if (BSON_ITER_HOLDS_OID(&iter) && bson_oid_equal(bson_iter_oid(&iter), because))
            was_there = true;
        else
            again_append_id(failed, bson_iter_value(&iter));
    }
    return was_there;
}

/* It waits for one more again, and is blocked if nobody else is in the way. */
static void make_update(const bson_t *job, const bson_t *failed, bson_t *update)
{
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    BSON_APPEND_INT64(&set, "after.left", truce__after_left(job) + 1);
    if (!bson_empty(failed)) {
        BSON_APPEND_ARRAY(&set, "after.failed", failed);
        bson_append_document_end(update, &set);
        return;
    }
    BSON_APPEND_INT32(&set, "attempt", 0);
    truce__job_stands(&set, "blocked", truce__field_text(job, "queue"), truce__clock_wall_ms());
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "after.failed", "");
    BSON_APPEND_UTF8(&unset, "ended", "");
    BSON_APPEND_UTF8(&unset, "expires", "");
    BSON_APPEND_UTF8(&unset, "stalled", "");
    bson_append_document_end(update, &unset);
}

static truce_status revive(struct reviving *reviving, const bson_t *job, const bson_t *failed,
                           bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    make_update(job, failed, &update);
    status = truce_commit_update(reviving->commit, QUEUE, &id, NULL, &update, error);
    if (bson_empty(failed))
        reviving->jobs[reviving->count++] = bson_copy(job);
    bson_destroy(&update);
    return status;
}

/* *waits: it does, again. */
static truce_status again_look_at(struct reviving *reviving, const bson_value_t *id,
                                  const bson_oid_t *because, bool *waits, bson_error_t *error)
{
    bson_t job, failed = BSON_INITIALIZER;
    truce_status status = truce_commit_read(reviving->commit, QUEUE, id, &job, error);

    *waits = !status && !strcmp(truce__job_state(&job), "cancelled") &&
             failed_without(&job, because, &failed);
    if (*waits && reviving->looked++ == REVIVED_MAX)
        status = truce__fail(TRUCE_LIMIT, error,
                             "more than %d jobs were cancelled with it: it cannot be retried",
                             REVIVED_MAX);
    if (*waits && !status && bson_empty(&failed)) {
        status = truce__queue_key_retake(reviving->commit, &job, error);
        *waits = status != TRUCE_INVALID;
        status = *waits ? status : TRUCE_OK;
    }
    if (*waits && !status)
        status = revive(reviving, &job, &failed, error);
    bson_destroy(&failed);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* pruned since */
}

/* Appends `then` and `told` as they are from now on. */
static truce_status again_look_at_all(struct reviving *reviving, const bson_t *job, bson_t *set,
                                      bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t then = BSON_INITIALIZER, told = BSON_INITIALIZER;
    bson_iter_t iter;
    truce_status status = TRUCE_OK;

    for (bool some = array_in(job, "then", &iter); some && bson_iter_next(&iter);)
        again_append_id(&then, bson_iter_value(&iter));
    for (bool some = array_in(job, "told", &iter); some && !status && bson_iter_next(&iter);) {
        bool waits;

        status = again_look_at(reviving, bson_iter_value(&iter), &id.value.v_oid, &waits, error);
        again_append_id(waits ? &then : &told, bson_iter_value(&iter));
    }
    BSON_APPEND_ARRAY(set, "told", &told);
    if (!bson_empty(&then))
        BSON_APPEND_ARRAY(set, "then", &then);
    bson_destroy(&then);
    bson_destroy(&told);
    return status;
}

static truce_status again_look_behind(struct reviving *reviving, const bson_t *job,
                                      bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    if (!bson_has_field(job, "told"))
        return TRUCE_OK;
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    status = again_look_at_all(reviving, job, &set, error);
    bson_append_document_end(&update, &set);
    if (!status)
        status = truce_commit_update(reviving->commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    return status;
}

truce_status truce__after_again(truce_commit *commit, const bson_t *job, bson_t *set,
                                bson_error_t *error)
{
    struct reviving *reviving;
    truce_status status;

    if (!bson_has_field(job, "told"))
        return TRUCE_OK;
    reviving = bson_malloc0(sizeof *reviving);
    reviving->commit = commit;
    status = again_look_at_all(reviving, job, set, error);
    for (size_t i = 0; i < reviving->count && !status; i++)
        status = again_look_behind(reviving, reviving->jobs[i], error);
    for (size_t i = 0; i < reviving->count; i++)
        bson_destroy(reviving->jobs[i]);
    bson_free(reviving);
    return status;
}
