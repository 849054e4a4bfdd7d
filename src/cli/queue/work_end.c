/* truce work: what became of a job. Its new state is in the store, its end is printed. */
#include <string.h>

#include "base/status.h"
#include "cli/document/commit_parts.h"
#include "cli/queue/work.h"
#include "patterns/change_list/change_list.h"

void work_stop(struct work *work, int code)
{
    int none = CLI_DONE;

    atomic_compare_exchange_strong(&work->code, &none, code);
}

/* A store that fails ends the worker; a job that is lost does not. */
static void work_end_report(struct work *work, struct work_job *at, const char *word,
                            truce_status status, const bson_error_t *error)
{
    bson_t answer = BSON_INITIALIZER;
    char id[25];

    bson_oid_to_string(truce_job_id(at->job), id);
    BSON_APPEND_OID(&answer, "job", truce_job_id(at->job));
    BSON_APPEND_UTF8(&answer, "queue", at->source->name);
    BSON_APPEND_UTF8(&answer, "ended", word);
    pthread_mutex_lock(&work->answers);
    cli_answer(work->cli, &answer, "%s %s", id, word);
    fflush(stdout);
    if (status && status != TRUCE_EXPIRED)
        work_stop(work, cli_error(work->cli, id, status, error));
    pthread_mutex_unlock(&work->answers);
    bson_destroy(&answer);
    truce_job_free(at->job);
    at->job = NULL;
}

void work_failed(struct work *work, struct work_job *at, const char *reason, int64_t delay_ms)
{
    bson_error_t error;
    truce_status status = truce_job_fail(at->job, NULL, reason, delay_ms, &error);

    if (!status)
        cli_remark(work->cli, "%s", reason);
    if (status != TRUCE_EXPIRED)
        atomic_fetch_add(&work->failed, 1);
    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : "failed", status, &error);
}

static truce_status work_end_add_changes(truce_commit *commit, void *arg, bson_error_t *error)
{
    return truce__written_add(arg, NULL, commit, error);
}

void work_done(struct work *work, struct work_job *at, const bson_t *result, const bson_t *changes)
{
    bson_error_t error;
    truce_status status;

    if (changes && cli_parts_check(work->cli, changes)) {
        status = truce__fail(TRUCE_INVALID, &error, "the program printed no array of changes");
    } else if (changes) {
        truce_job_result(at->job, result);
        status = truce_job_commit(at->job, work_end_add_changes, (bson_t *)changes, NULL, &error);
    } else {
        status = truce_job_done(at->job, NULL, result, &error);
    }
    if (!status || status == TRUCE_EXPIRED)
        work_end_report(work, at, status ? "lost" : "done", status, &error);
    else
        work_failed(work, at, error.message, -1);
}

void work_later(struct work *work, struct work_job *at, int64_t delay_ms, const char *word)
{
    bson_error_t error;
    truce_status status = truce_job_snooze(at->job, NULL, delay_ms, &error);

    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : word, status, &error);
}

void work_discarded(struct work *work, struct work_job *at, const char *reason)
{
    bson_error_t error;
    truce_status status = truce_job_discard(at->job, NULL, reason, &error);

    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : "discarded", status, &error);
}

void work_lost(struct work *work, struct work_job *at)
{
    work_end_report(work, at, "lost", TRUCE_OK, NULL);
}
