/*
 * The change of a job in a commit. A job that ends leaves its limiter (QG1 of rate_limit.c) and its
 * lane, and notifies the jobs that wait for it, in the same commit.
 */
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"
#include "patterns/queue/rate_limit.h"
#include "store/maintenance.h"

/* Returns the state that an update sets if the state ends the job, and "" otherwise. Borrowed from
 * the update. */
static const char *job_end_state(const bson_t *update)
{
    bson_t set;

    return truce__value_subdocument(update, "$set", &set) && bson_has_field(&set, "state") &&
                   !truce__job_live(&set)
               ? truce__job_state(&set)
               : "";
}

truce_status truce__job_transition(truce_commit *commit, const bson_t *job, const bson_t *update,
                                   bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_iter_t iter, limiter;
    const char *end = job_end_state(update);
    struct job_lane lane;
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    /* Only running jobs have a lease, so only they leave a limiter (QG1). */
    if (!status && bson_iter_init(&iter, job) &&
        bson_iter_find_descendant(&iter, "lease.limiter", &limiter))
        status = truce__limiter_leave(commit, bson_iter_value(&limiter), error);
    if (!status && *end && truce__job_live(job) && !truce__job_is_held(job) &&
        truce__job_lane(job, &lane))
        status = truce__lane_leave(commit, truce__field_text(job, "queue"), lane.name, error);
    if (!status && *end)
        status = truce__workflow_notify(commit, job, end, error);
    return status;
}
