/*
 * Fencing: a worker changes a job only while the job has the token of its claim (QJ2 in queue.c).
 *
 *     worker 1    claims: token T1 ... stopped ........................ commits: reads T2, refused
 *     job         running, T1      ... released, ready   ... running, T2
 *     worker 2                                               claims: token T2
 *
 * Each change of a claimed job reads the job in its own commit and compares the token. If another
 * process has released the job in the meantime, the state is no longer "running", or another claim
 * has replaced the token, and the commit takes no effect. The end of a lease alone changes nothing:
 * until the job is released, its worker may still commit. The comparison needs no clock. Effects
 * outside of the store are fenced by the epoch, which the worker passes on
 * (docs/explanation/fencing.md).
 */
#include <string.h>

#include "base/field.h"
#include "patterns/queue/queue.h"

bool truce__job_is_of(const truce_job *job, const bson_t *document)
{
    bson_oid_t token;

    /* The job must be running under the token of this claim (QJ2). */
    return !strcmp(truce__job_state(document), "running") && truce__job_token(document, &token) &&
           bson_oid_equal(&token, &job->token);
}

/* Says why the job is no longer that of this claim. */
static truce_status fencing_fail_lost(truce_job *job, const bson_t *document, bson_error_t *error)
{
    const char *state = truce__job_state(document);
    bson_oid_t token;
    char id[25];

    bson_oid_to_string(&job->id, id);
    if (!strcmp(state, "cancelled")) {
        atomic_store(&job->cancelled, true);
        return truce__fail(TRUCE_EXPIRED, error, "job %s is cancelled", id);
    }
    if (!strcmp(state, "running"))
        return truce__fail(TRUCE_EXPIRED, error,
                           "this worker has lost job %s: another claim has it, with epoch %lld", id,
                           (long long)truce__field_number(document, "epoch"));
    if (truce__job_token(document, &token) && bson_oid_equal(&token, &job->token))
        return truce__fail(TRUCE_EXPIRED, error,
                           "this claim of job %s has ended already: the job is %s now", id, state);
    return truce__fail(TRUCE_EXPIRED, error,
                       "this worker no longer has job %s: it ended this claim, or the lease "
                       "expired, and the job is %s now",
                       id, state[0] ? state : "gone");
}

truce_status truce__job_read_mine(truce_job *job, truce_commit *commit, bson_t *document,
                                  bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&job->id);
    truce_status status = truce_commit_read(commit, QUEUE, &id, document, error);

    if (status && status != TRUCE_NOT_FOUND)
        return status;
    if (!status && truce__job_is_of(job, document))
        return TRUCE_OK;
    return fencing_fail_lost(job, document, error);
}

struct fenced_fields {
    truce_job *job;
    job_append_function *append;
    const void *arg;
};

/* Changes the fields in a commit, if the job still belongs to this claim (a
 * truce_commit_function). */
static truce_status fencing_set_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct fenced_fields *fields = arg;
    bson_value_t id = truce_id_oid(&fields->job->id);
    bson_t document, update = BSON_INITIALIZER, set;
    truce_status status = truce__job_read_mine(fields->job, commit, &document, error);

    if (!status) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        fields->append(&set, fields->job, &document, fields->arg);
        bson_append_document_end(&update, &set);
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

truce_status truce__job_set_mine(truce_job *job, job_append_function *append, const void *arg,
                                 bson_error_t *error)
{
    struct fenced_fields fields = {job, append, arg};

    return truce__queue_run(job->queue, NULL, fencing_set_in, &fields, error);
}
