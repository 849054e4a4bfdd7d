/*
 * A job in its worker's hands: every change compares the claim (L2), inside of the commit that makes it.
 *
 * Of a commit without an answer the job itself tells: it is done, by the token of this claim, only if this
 * commit did it. (A worker that gives up after UNKNOWN and says fail finds its job done, or not its own.)
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/patience.h"
#include "bson/field_names.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

#define LOOK_MS  500
#define NS_IN_MS INT64_C(1000000)

const bson_oid_t *truce_job_id(const truce_job *job)
{
    return &job->id;
}

const bson_t *truce_job_document(const truce_job *job)
{
    return &job->document;
}

const bson_t *truce_job_payload(const truce_job *job)
{
    return &job->payload;
}

uint32_t truce_job_attempt(const truce_job *job)
{
    return job->attempt;
}

int64_t truce_job_epoch(const truce_job *job)
{
    return job->epoch;
}

/* ---- whose job it is ---------------------------------------------------------------------------- */

bool truce__job_is_of(const truce_job *job, const bson_t *document)
{
    bson_oid_t token;

    return !strcmp(truce__job_state(document), "running") && truce__job_token(document, &token) &&
           bson_oid_equal(&token, &job->token); /* L2 */
}

static truce_status job_lost(truce_job *job, const bson_t *document, bson_error_t *error)
{
    const char *state = truce__job_state(document);
    char id[25];

    bson_oid_to_string(&job->id, id);
    if (!strcmp(state, "cancelled")) {
        atomic_store(&job->cancelled, true);
        return truce__fail(TRUCE_EXPIRED, error, "job %s is cancelled", id);
    }
    return truce__fail(
        TRUCE_EXPIRED, error,
        "job %s is not this worker's any more: the lease of epoch %lld ended, and it is "
        "%s now",
        id, (long long)job->epoch, state[0] ? state : "gone");
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
    return job_lost(job, document, error);
}

static truce_status update_mine(truce_job *job, truce_commit *commit, const bson_t *update,
                                bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&job->id);

    return truce_commit_update(commit, QUEUE, &id, NULL, update, error);
}

/* ---- ends --------------------------------------------------------------------------------------- */

enum end_kind { END_DONE, END_FAIL, END_SNOOZE, END_DISCARD };

struct ending {
    truce_job *job;
    enum end_kind kind;
    const bson_t *result;
    const char *text;
    int64_t delay_ms;
};

void truce__job_snoozes(bson_t *update, const bson_t *document, int64_t at_ms, int64_t now_ms)
{
    bson_t set, unset, inc;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    truce__job_waits(&set, truce__field_text(document, "queue"),
                     (int32_t)truce__field_number(document, "priority"), at_ms, now_ms);
    bson_append_document_end(update, &set);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "lease", "");
    bson_append_document_end(update, &unset);
    BSON_APPEND_DOCUMENT_BEGIN(update, "$inc", &inc);
    BSON_APPEND_INT32(&inc, "attempt", -1);
    bson_append_document_end(update, &inc);
}

static void make_end(const struct ending *ending, const bson_t *document, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms();

    switch (ending->kind) {
    case END_DONE:
        truce__job_ends(update, document, "done", ending->result, now_ms);
        break;
    case END_FAIL:
        truce__job_fails(update, ending->job->queue, document, ending->text, ending->delay_ms,
                         now_ms);
        break;
    case END_SNOOZE:
        truce__job_snoozes(update, document, truce__job_date_after(now_ms, ending->delay_ms),
                           now_ms);
        break;
    case END_DISCARD:
        truce__job_ends(update, document, "discarded", NULL, now_ms);
        truce__job_blames(update, document, ending->text, now_ms);
        break;
    }
}

static truce_status end_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct ending *ending = arg;
    bson_t document, update = BSON_INITIALIZER;
    truce_status status = truce__job_read_mine(ending->job, commit, &document, error);

    if (!status) {
        make_end(ending, &document, &update);
        status = truce__job_move(commit, &document, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

/* After an answer that was lost: true if the job is done, by this claim; `committed`: with its effects, by
 * truce_job_commit. */
static bool job_is_done(const truce_job *job, bool committed)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(&job->id), "state", BCON_UTF8("done"), "lease.token",
                              BCON_OID(&job->token));
    bson_t found;
    truce_status status;

    if (committed)
        BSON_APPEND_BOOL(filter, "lease.committed", true);
    status = truce_find_one(job->queue->store, QUEUE, filter, NULL, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_OK;
}

/* A try of ours without an answer may have landed: then the job was not lost, it is done. */
static truce_status job_settle(const truce_job *job, bool committed, truce_status status)
{
    if (!truce__unanswered(status) && status != TRUCE_EXPIRED)
        return status;
    return job_is_done(job, committed) ? TRUCE_OK : status;
}

static truce_status run_end(struct ending *ending, truce_commit *commit, bson_error_t *error)
{
    static const enum job_end ends[] = {JOB_DONE, JOB_FAILED, JOB_SNOOZED, JOB_DISCARDED};
    truce_status status = truce__queue_run(ending->job->queue, commit, end_in, ending, error);

    if (!commit && ending->kind == END_DONE)
        status = job_settle(ending->job, false, status);
    if (!status && commit)
        ending->job->said = ends[ending->kind];
    else if (!status)
        ending->job->ended = ends[ending->kind];
    return status;
}

truce_status truce__job_done_in(truce_job *job, truce_commit *commit, const bson_t *result,
                                bson_error_t *error)
{
    struct ending ending = {job, END_DONE, .result = result};

    return run_end(&ending, commit, error);
}

truce_status truce_job_fail(truce_job *job, truce_commit *commit, const char *text,
                            int64_t delay_ms, bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct ending ending = {job, END_FAIL, .text = text, .delay_ms = delay_ms};

    return run_end(&ending, commit, error);
}

truce_status truce_job_snooze(truce_job *job, truce_commit *commit, int64_t delay_ms,
                              bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct ending ending = {job, END_SNOOZE, .delay_ms = delay_ms};

    if (delay_ms < 0 || delay_ms > INT64_C(1) << 48)
        return truce__fail(TRUCE_INVALID, error, "a delay of %lld ms cannot be",
                           (long long)delay_ms);
    return run_end(&ending, commit, error);
}

truce_status truce_job_discard(truce_job *job, truce_commit *commit, const char *text,
                               bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct ending ending = {job, END_DISCARD, .text = text};

    return run_end(&ending, commit, error);
}

/* ---- the effects and the acknowledgement ---------------------------------------------------------- */

void truce_job_result(truce_job *job, const bson_t *result)
{
    if (job->result)
        bson_destroy(job->result);
    job->result = result ? bson_copy(result) : NULL;
}

struct working {
    truce_job *job;
    truce_commit_function *function;
    void *arg;
};

/* The job is read first: a worker that lost it does nothing at all. */
static truce_status work_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct working *working = arg;
    bson_t document, update = BSON_INITIALIZER;
    truce_status status = truce__job_read_mine(working->job, commit, &document, error);

    if (!status)
        status = working->function(commit, working->arg, error);
    if (!status) {
        truce__job_commits(&update, &document, working->job->result, truce__clock_wall_ms());
        status = truce__job_move(commit, &document, &update, error); /* L3 */
    }
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_commit(truce_job *job, truce_commit_function *function, void *arg,
                              const truce_commit_options *options, bson_error_t *error)
{
    if (!function)
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
    struct working working = {job, function, arg};
    truce_commit_options own = options ? *options : (truce_commit_options){0};
    truce_status status;

    if (own.mechanism == TRUCE_MECHANISM_AUTO)
        own.mechanism = job->queue->mechanism;
    if (!own.deadline_ms)
        own.deadline_ms = job->queue->deadline_ms;
    if (!own.lease_ms)
        own.lease_ms = truce__queue_commit_lease(job->queue);
    if (own.key)
        return truce__fail(TRUCE_INVALID, error,
                           "a job's commit has no key: the job itself is what happens once");
    status = truce_transact(job->queue->store, work_in, &working, &own, error);
    status = job_settle(job, true, status); /* what truce_job_done did has no effects */
    if (!status)
        job->ended = JOB_DONE;
    return status;
}

/* ---- steps -------------------------------------------------------------------------------------- */

struct stepping {
    truce_job *job;
    const char *name;
    truce_step_function *function;
    void *arg;
    bson_t result;
};

truce_status truce__job_check_step(const char *name, bson_error_t *error)
{
    size_t length = strlen(name);

    if (length && length <= JOB_KEY_BYTES_MAX && !strpbrk(name, ".$") &&
        bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "a step's name has 1 to %d bytes, without \".\" and \"$\"",
                       JOB_KEY_BYTES_MAX);
}

static bool known_step(const bson_t *steps, const char *name, bson_t *result)
{
    bson_t kept;

    if (!truce__value_subdocument(steps, name, &kept))
        return false;
    bson_copy_to(&kept, result);
    return true;
}

static truce_status step_now(struct stepping *stepping, truce_commit *commit, bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER, set;
    char *path = bson_strdup_printf("steps.%s", stepping->name);
    truce_status status = stepping->function(commit, stepping->arg, &stepping->result, error);

    if (!status) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        truce__names_append(&set, path, &stepping->result);
        bson_append_document_end(&update, &set);
        status = update_mine(stepping->job, commit, &update, error);
    }
    bson_free(path);
    bson_destroy(&update);
    return status;
}

/* A step that an earlier, unanswered commit did is found here. */
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
    if (!function) {
        if (result)
            bson_init(result);
        return truce__fail(TRUCE_INVALID, error, "%s needs a function", __func__);
    }
    struct stepping stepping = {job, name, function, arg, BSON_INITIALIZER};
    truce_status status = truce__job_check_step(name, error);

    bson_destroy(&stepping.result);
    if (status || !known_step(&job->steps, name, &stepping.result)) {
        bson_init(&stepping.result);
        if (!status)
            status = truce__queue_run(job->queue, NULL, step_in, &stepping, error);
        if (!status)
            BSON_APPEND_DOCUMENT(&job->steps, name, &stepping.result);
    }
    if (result && status)
        bson_init(result);
    else if (result)
        bson_copy_to(&stepping.result, result);
    bson_destroy(&stepping.result);
    return status;
}

/* ---- signs of life ------------------------------------------------------------------------------ */

struct sign {
    truce_job *job;
    const bson_t *progress; /* NULL: the lease */
};

static truce_status sign_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct sign *sign = arg;
    truce_job *job = sign->job;
    int64_t until_ms = truce__clock_wall_ms() + job->queue->lease_ms;
    bson_t document, update = BSON_INITIALIZER, set;
    truce_status status = truce__job_read_mine(job, commit, &document, error);

    if (job->timeout_ms && until_ms > job->since_ms + job->timeout_ms)
        until_ms = job->since_ms + job->timeout_ms;
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    if (sign->progress)
        truce__names_append(&set, "progress", sign->progress);
    else
        BSON_APPEND_DATE_TIME(&set, "undone.at", until_ms);
    bson_append_document_end(&update, &set);
    if (!status)
        status = update_mine(job, commit, &update, error);
    bson_destroy(&update);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_extend(truce_job *job, bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct sign sign = {job};

    return truce__queue_run(job->queue, NULL, sign_in, &sign, error);
}

truce_status truce_job_progress(truce_job *job, const bson_t *progress, bson_error_t *error)
{
    DEADLINE_SCOPE(job->queue->deadline_ms);
    PATIENCE_SCOPE();
    struct sign sign = {job, progress};
    truce_status status = truce__document_check(progress, "progress", error);

    if (!status && progress->len > JOB_METADATA_BYTES_MAX)
        status = truce__fail(TRUCE_LIMIT, error, "the progress has %u bytes, and may have %d",
                             progress->len, JOB_METADATA_BYTES_MAX);
    return status ? status : truce__queue_run(job->queue, NULL, sign_in, &sign, error);
}

bool truce_job_cancelled(truce_job *job)
{
    int64_t now_ns = truce__clock_monotonic_ns(), last = atomic_load(&job->looked_ns);
    bson_t *filter, found;

    if (atomic_load(&job->cancelled) || now_ns - last < LOOK_MS * NS_IN_MS ||
        !atomic_compare_exchange_strong(&job->looked_ns, &last, now_ns))
        return atomic_load(&job->cancelled);
    filter = BCON_NEW("_id", BCON_OID(&job->id), "state", BCON_UTF8("cancelled"));
    if (truce_find_one(job->queue->store, QUEUE, filter, NULL, &found, NULL) == TRUCE_OK)
        atomic_store(&job->cancelled, true);
    bson_destroy(&found);
    bson_destroy(filter);
    return atomic_load(&job->cancelled);
}
