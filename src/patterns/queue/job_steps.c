/*
 * Steps of a job: each runs in a commit of its own, which also stores its result in `steps`. If the
 * worker dies, the next attempt continues after the last stored step.
 */
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

/* The argument of the commit that runs a step. */
struct stepping {
    truce_job *job;
    const char *name;
    truce_step_function *function;
    void *arg;
    bson_t result;
};

truce_status truce__job_step_check(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (length && length <= JOB_KEY_BYTES_MAX && !strpbrk(name, ".$") &&
        bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__fail(
        TRUCE_INVALID, error,
        "invalid name of a step \"%.60s\": expected 1 to %d bytes of UTF-8 without \".\" and \"$\"",
        name, JOB_KEY_BYTES_MAX);
}

truce_status truce__job_call_check(const bson_t *called, const char *name, const char *kind,
                                   bson_error_t *error)
{
    const char *earlier = truce__field_text(called, name);

    if (!*earlier)
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "this attempt of the job has already completed the %s \"%.200s\": give each "
                       "%s its own name, for example with an index",
                       earlier, name, kind);
}

static bool step_is_known(const bson_t *steps, const char *name, bson_t *result)
{
    bson_t kept;

    if (!truce__value_subdocument(steps, name, &kept))
        return false;
    bson_copy_to(&kept, result);
    return true;
}

/* Runs the function of a step, and stores its result in the same commit. */
static truce_status step_now(struct stepping *stepping, truce_commit *commit, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    bson_value_t id = truce_id_oid(&stepping->job->id);
    char *path = bson_strdup_printf("steps.%s", stepping->name);
    truce_status status = stepping->function(commit, stepping->arg, &stepping->result, error);

    if (!status) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        truce__names_append(&set, path, &stepping->result);
        bson_append_document_end(&update, &set);
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    }
    bson_free(path);
    bson_destroy(&update);
    return status;
}

/* Runs a step in a commit, or finds the result that an earlier commit without a reply has
 * stored. */
static truce_status step_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct stepping *stepping = arg;
    bson_t document, steps;
    truce_status status = truce__job_read_mine(stepping->job, commit, &document, error);

    bson_destroy(&stepping->result);
    bson_init(&stepping->result);
    truce__names_restore_own(&document);
    if (!status && truce__value_subdocument(&document, "steps", &steps)) {
        bson_t kept;

        if (truce__value_subdocument(&steps, stepping->name, &kept)) {
            bson_concat(&stepping->result, &kept);
            goto out;
        }
    }
    if (!status)
        status = step_now(stepping, commit, error);
out:
    bson_destroy(&document);
    return status;
}

truce_status truce_job_step(truce_job *job, const char *name, truce_step_function *function,
                            void *arg, bson_t *result, bson_error_t *error)
{
    if (result && (!name || !function))
        bson_init(result);
    RETURN_IF_NULL(name, error);
    RETURN_IF_NULL(function, error);
    struct stepping stepping = {job, name, function, arg, BSON_INITIALIZER};
    truce_status status = truce__job_step_check(name, error);

    if (!status)
        status = truce__job_call_check(&job->called, name, "step", error);
    bson_destroy(&stepping.result);
    if (status || !step_is_known(&job->steps, name, &stepping.result)) {
        bson_init(&stepping.result);
        if (!status)
            status = truce__queue_run(job->queue, NULL, step_in, &stepping, error);
        if (!status)
            BSON_APPEND_DOCUMENT(&job->steps, name, &stepping.result);
    }
    if (!status)
        BSON_APPEND_UTF8(&job->called, name, "step");
    if (result && status)
        bson_init(result);
    else if (result)
        bson_copy_to(&stepping.result, result);
    bson_destroy(&stepping.result);
    return status;
}
