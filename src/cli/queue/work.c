/*
 * truce work: runs a program for each job of the given queues.
 *
 *     the payload     on the program's standard input, one line of JSON
 *     TRUCE_QUEUE, TRUCE_JOB, TRUCE_JOB_ATTEMPT, TRUCE_JOB_EPOCH     in its environment
 *     exit code 0     done; the output is the result: a document, or {output: its text}
 *                     with --commit: an array of changes, which are one commit with the job's end
 *     75              later (EX_TEMPFAIL); this attempt does not count
 *     any other code, or a signal     failed; the end of its standard error is the reason
 *
 * While the program runs, the worker extends the lease. If the job is cancelled, lost, or out of
 * time, the program's process group gets SIGTERM, and SIGKILL after the grace time. Its result is
 * then ignored. After SIGTERM or Ctrl-C, the worker starts no job. The running job may end within
 * the grace time; otherwise, the worker ends its program in the same way, releases the job, and
 * prints its id. A second signal kills the worker.
 *
 * This file claims and ends jobs, and runs programs that process many jobs (--keep-open).
 * work_program.c runs one program for each job, and manages the child processes and their answers.
 *
 * Each of --workers is a thread with one program. The threads share the store, so their commits
 * share syncs.
 */
#include "cli/queue/work.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "base/limits.h"
#include "base/plural.h"
#include "base/status.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/interrupt.h"
#include "cli/core/operation_row.h"
#include "cli/queue/work_program.h"
#include "patterns/queue/queue.h"

/* The time between two checks whether a job was cancelled. */
#define CANCELLED_MS 500

/* ---- claims ---------------------------------------------------------------------------------- */

/* The claims of a worker, and the extension of their leases. Each call is an operation of the
 * table, so a truce server runs it as one command. */

/* Takes the job of a reply of truceClaim. */
static void claim_copy_job(const bson_t *reply, struct work_job *at)
{
    struct fields jobs = truce__fields(truce__value_field(truce__value_document(reply), "jobs", 4));
    bson_iter_t iter;
    bson_t job;

    if (!truce__fields_next(&jobs))
        return;
    truce__value_bson(jobs.value, &job);
    at->job = bson_copy(&job);
    if (bson_iter_init_find(&iter, at->job, "_id"))
        bson_oid_copy(bson_iter_oid(&iter), &at->id);
    if (bson_iter_init_find(&iter, at->job, "token"))
        bson_oid_copy(bson_iter_oid(&iter), &at->token);
    at->epoch = truce__field_number(at->job, "epoch");
    at->attempt = truce__field_number(at->job, "attempt");
    at->timeout_ms = truce__field_number(at->job, "timeout_ms");
}

/* Prints the note of the first claim that found no job: the name of the queue may be misspelled. If
 * no queue has jobs, the reply has no note, because a worker that waits may be the first of its
 * queue. With --drain, it ends without work. */
static void claim_print_note(struct work_source *source, const struct work *work,
                             const bson_t *reply)
{
    if (atomic_exchange(&source->checked, true) || work->cli->json)
        return;
    if (bson_has_field(reply, "note"))
        cli_note(work->cli, "%s", truce__field_text(reply, "note"));
    else if (work->drains)
        queue_note_unknown(work->cli, source->name, true);
}

/* Claims a job of one queue. A wait that is not below --deadline is shortened to half of it.
 * Returns NOT_FOUND if no job is ready. */
static truce_status claim_of(const struct work *work, struct work_source *source, int64_t wait_ms,
                             struct work_job *at, bson_error_t *error)
{
    int64_t deadline_ms = work->cli->deadline_ms;
    bson_t *request = BCON_NEW("truceClaim", BCON_UTF8(source->name), "leaseMS",
                               BCON_INT64(work->lease_ms)),
           reply;
    truce_status status;

    if (wait_ms)
        BSON_APPEND_INT64(request, "waitMS",
                          deadline_ms && wait_ms >= deadline_ms ? deadline_ms / 2 : wait_ms);
    if (!atomic_load(&source->checked))
        BSON_APPEND_BOOL(request, "check", true);
    status = cli_row_call(work->cli, request, &reply, error);
    if (!status)
        claim_copy_job(&reply, at);
    if (!status && !at->job)
        claim_print_note(source, work, &reply);
    at->source = source;
    bson_destroy(request);
    bson_destroy(&reply);
    return status || at->job ? status : TRUCE_NOT_FOUND;
}

/* Draws queues by their weights, each at most once, until one of them has a ready job. */
static truce_status claim_by_weight(struct work *work, struct work_job *at, int64_t wait_ms,
                                    bson_error_t *error)
{
    truce_queue_source weights[WORK_QUEUES_MAX] = {{0}};
    bool tried[WORK_QUEUES_MAX] = {false};
    truce_status status = TRUCE_NOT_FOUND;

    for (int i = 0; i < work->count; i++)
        weights[i].weight = work->sources[i].weight;
    for (int round = 0; status == TRUCE_NOT_FOUND && round < work->count; round++) {
        size_t drawn = truce__queue_draw(weights, (size_t)work->count, tried);

        tried[drawn] = true;
        status = claim_of(work, &work->sources[drawn], wait_ms, at, error);
    }
    return status;
}

bool work_begun_all(struct work *work)
{
    return work->limit && atomic_load(&work->begun) >= work->limit;
}

/* Claims the next job. Counts it before the claim, because several threads claim at the same
 * time. */
truce_status work_claim(struct work *work, struct work_job *at, bool waits, bson_error_t *error)
{
    bool sleeps = waits && work->count == 1 && !work->drains;
    truce_status status = TRUCE_NOT_FOUND;

    *at = (struct work_job){0};
    if (atomic_fetch_add(&work->begun, 1) < work->limit || !work->limit)
        status = claim_by_weight(work, at, sleeps ? WORK_SLICE_MS : 0, error);
    if (status)
        atomic_fetch_sub(&work->begun, 1);
    at->begun_ns = at->extended_ns = at->checked_ns = truce__clock_monotonic_ns();
    return status;
}

/* Waits for a short time, or until a job is written. */
static truce_status work_pause(struct work *work, uint64_t *token, uint32_t most_ms,
                               bson_error_t *error)
{
    truce_status status = truce_wait(work->cli->store, QUEUE, token, most_ms, error);

    return status == TRUCE_TIMEOUT ? TRUCE_OK : status;
}

truce_status work_rest(struct work *work, uint64_t *token, bson_error_t *error)
{
    return work->count == 1 ? TRUCE_OK : work_pause(work, token, WORK_SLICE_MS, error);
}

void work_payload(const struct work_job *at, bson_t *payload)
{
    if (!truce__value_subdocument(at->job, "payload", payload))
        bson_init(payload);
}

/* Runs an operation on the job with further fields. */
static truce_status work_send(const struct work *work, const struct work_job *at,
                              const char *operation, const bson_t *fields, bson_error_t *error)
{
    bson_t *request = BCON_NEW(operation, BCON_UTF8(at->source->name), "id", BCON_OID(&at->id),
                               "token", BCON_OID(&at->token)),
           reply;
    truce_status status;

    bson_concat(request, fields);
    status = cli_row_call(work->cli, request, &reply, error);
    bson_destroy(request);
    bson_destroy(&reply);
    return status;
}

static void keep_lease(const struct work *work, struct work_job *at)
{
    static const bson_t none = BSON_INITIALIZER;
    bson_error_t error;

    if (!work_is_over(at->extended_ns, work->lease_ms / 3))
        return;
    at->extended_ns = truce__clock_monotonic_ns();
    if (work_send(work, at, "truceHeartbeat", &none, &error) == TRUCE_EXPIRED)
        /* Other failures are retried. If they persist, the lease ends. */
        at->lost = true;
}

/* Checks regularly whether the job was cancelled. */
static bool work_is_cancelled(const struct work *work, struct work_job *at)
{
    bson_t *request, reply;
    struct fields jobs;
    bson_error_t ignored;
    bool cancelled;

    if (!work_is_over(at->checked_ns, CANCELLED_MS))
        return false;
    at->checked_ns = truce__clock_monotonic_ns();
    request = BCON_NEW("truceJobs", BCON_UTF8(at->source->name), "id", BCON_OID(&at->id), "state",
                       BCON_UTF8("cancelled"));
    cancelled = !cli_row_call(work->cli, request, &reply, &ignored);
    jobs = truce__fields(truce__value_field(truce__value_document(&reply), "jobs", 4));
    cancelled = cancelled && truce__fields_next(&jobs);
    bson_destroy(request);
    bson_destroy(&reply);
    return cancelled;
}

void work_keep_job(const struct work *work, struct work_job *at)
{
    if (!at->lost)
        keep_lease(work, at);
    at->lost = at->lost || work_is_cancelled(work, at);
    at->timed_out = at->timed_out || (at->timeout_ms && work_is_over(at->begun_ns, at->timeout_ms));
}

/* ---- the end of a job ------------------------------------------------------------------------ */

void work_stop(struct work *work, int code)
{
    int none = CLI_DONE;

    atomic_compare_exchange_strong(&work->code, &none, code);
}

/* Reports the end of a job. A failure of the store ends the worker; the loss of a job does not. */
static void work_end_report(struct work *work, struct work_job *at, const char *word,
                            truce_status status, const bson_error_t *error)
{
    bson_t answer = BSON_INITIALIZER;
    char id[25];

    bson_oid_to_string(&at->id, id);
    BSON_APPEND_OID(&answer, "job", &at->id);
    BSON_APPEND_UTF8(&answer, "queue", at->source->name);
    BSON_APPEND_UTF8(&answer, "ended", word);
    pthread_mutex_lock(&work->answers);
    cli_answer(work->cli, &answer, "%s %s", id, word);
    fflush(stdout);
    if (status && status != TRUCE_EXPIRED)
        work_stop(work, cli_error(work->cli, id, status, error));
    pthread_mutex_unlock(&work->answers);
    bson_destroy(&answer);
    bson_destroy(at->job);
    at->job = NULL;
}

/* Ends the attempt with a reason, which may contain any bytes. A negative delay means that the
 * request has none. */
static truce_status work_end_send(const struct work *work, const struct work_job *at,
                                  const char *operation, const char *reason, int64_t delay_ms,
                                  bson_error_t *error)
{
    char *text = truce__job_error_text(reason);
    bson_t fields = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_UTF8(&fields, "error", text);
    if (delay_ms >= 0)
        BSON_APPEND_INT64(&fields, "delayMS", delay_ms);
    status = work_send(work, at, operation, &fields, error);
    bson_destroy(&fields);
    bson_free(text);
    return status;
}

void work_failed(struct work *work, struct work_job *at, const char *reason, int64_t delay_ms)
{
    bson_error_t error;
    truce_status status;

    if (delay_ms < 0)
        delay_ms = truce__job_backoff(work->backoff, work->backoff_ms, work->backoff_max_ms,
                                      (uint32_t)at->attempt);
    status = work_end_send(work, at, "truceFail", reason, delay_ms, &error);
    if (!status)
        cli_note(work->cli, "%s", reason);
    if (status != TRUCE_EXPIRED)
        atomic_fetch_add(&work->failed, 1);
    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : "failed", status, &error);
}

void work_done(struct work *work, struct work_job *at, const bson_t *result, const bson_t *changes)
{
    bson_t fields = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    if (result)
        BSON_APPEND_DOCUMENT(&fields, "result", result);
    if (changes)
        BSON_APPEND_ARRAY(&fields, "changes", changes);
    status = work_send(work, at, changes ? "truceJobCommit" : "truceDone", &fields, &error);
    bson_destroy(&fields);
    if (!status || status == TRUCE_EXPIRED)
        work_end_report(work, at, status ? "lost" : "done", status, &error);
    else
        work_failed(work, at, error.message, -1);
}

truce_status work_snooze(struct work *work, const struct work_job *at, int64_t delay_ms,
                         bson_error_t *error)
{
    bson_t fields = BSON_INITIALIZER;
    truce_status status;

    BSON_APPEND_INT64(&fields, "delayMS", delay_ms);
    status = work_send(work, at, "truceSnooze", &fields, error);
    bson_destroy(&fields);
    return status;
}

void work_later(struct work *work, struct work_job *at, int64_t delay_ms, const char *word)
{
    bson_error_t error;
    truce_status status = work_snooze(work, at, delay_ms, &error);

    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : word, status, &error);
}

static void work_discarded(struct work *work, struct work_job *at, const char *reason)
{
    bson_error_t error;
    truce_status status = work_end_send(work, at, "truceDiscard", reason, -1, &error);

    work_end_report(work, at, status == TRUCE_EXPIRED ? "lost" : "discarded", status, &error);
}

void work_lost(struct work *work, struct work_job *at)
{
    work_end_report(work, at, "lost", TRUCE_OK, NULL);
}

/* ---- a program that stays -------------------------------------------------------------------- */

/*
 * truce work --keep-open: a program that stays. It receives jobs and answers them, each as a line
 * of JSON.
 *
 *     to it      {"job": ID, "epoch": 1, "queue": "mail", "attempt": 1, "payload": {...},
 *                 "deadline": ms since 1970}
 *                {"cancel": ID, "epoch": 1, "reason": "lost" or "timed out"}
 *     from it    the answers of work_program.c, in any order
 *
 *                 .-- answered -------------------------------------------------> its end
 *     claimed, sent -- lost or timed out: cancel line sent -- answered --> lost, failed
 *                 \                                            \-- not in time: program is ended
 *                  \-- the program ended, closed a pipe, or wrote an invalid line --> failed
 *
 * Invariants:
 * WO1. A job is sent once and ends once here: by its answer, or by the end of its program.
 * WO2. An answer counts only for the job with that id and epoch that the program has. Any other
 *   changes nothing.
 * WO3. The lease is extended until the job's end. No job is released while its program may still
 *   work on it: the program has answered, or it is dead.
 * WO4. A fault of a program ends the program and the attempts of its jobs, with the reason. The
 *   program is started again, after growing delays as long as it answers nothing.
 * WO5. If a program is ended because of one job, its other jobs are released, and no attempt
 *   counts.
 *
 * If the worker is killed, its programs read the end of their input.
 */

#define BUSY_MS     50 /* The longest wait for the program's pipes. */
#define READY_MS    5  /* The same while the program has jobs, and room for more. */
#define REST_MS     100
#define REST_MS_MAX 30000
#define SHOWN_BYTES 100 /* The maximum number of bytes of an invalid line that an error shows. */
#define NS_IN_MS    INT64_C(1000000)

struct open_job {
    struct work_job at;
    /* The time when the cancel line was sent (monotonic), or 0. */
    int64_t notified_ns;
};

/* One program and its jobs. */
struct program_run {
    struct work *work;
    struct work_child child;
    struct open_job *jobs;
    int64_t count;
    struct json_reader reader;
    /* The fault for which the program is ended, or NULL. */
    char *fault;
    /* The program is ended because of one job. The attempts of its other jobs do not count
     * (WO5). */
    bool returns_jobs;
    /* `drained`: the program gets no more jobs. `answered`: it has answered since its start. */
    bool drained, answered;
    /* The token of truce_wait, which shows whether the jobs have changed. */
    uint64_t token;
    /* `claimed_ns`: the time of the last attempt to claim jobs. `rest_ms`, `rest_until_ns`: the
     * delay before the next start of the program (WO4), and the end of the delay. `ending_ns`: the
     * time since which the program must end, or 0. The times are monotonic. */
    int64_t claimed_ns, rest_ms, rest_until_ns, ending_ns;
};

/* ---- lines to the program -------------------------------------------------------------------- */

static void work_open_append(struct buffer *line, const char *text)
{
    truce__buffer_append(line, text, strlen(text));
}

/* Queues the line of a job for the program. */
static void send_job(struct program_run *run, const struct work_job *at)
{
    struct buffer line = {0};
    bson_t message = BSON_INITIALIZER, payload;
    char id[25];

    bson_oid_to_string(&at->id, id);
    BSON_APPEND_UTF8(&message, "job", id);
    BSON_APPEND_INT64(&message, "epoch", at->epoch);
    BSON_APPEND_UTF8(&message, "queue", at->source->name);
    BSON_APPEND_INT64(&message, "attempt", at->attempt);
    if (at->timeout_ms)
        BSON_APPEND_INT64(&message, "deadline", truce__clock_wall_ms() + at->timeout_ms);
    work_payload(at, &payload);
    BSON_APPEND_DOCUMENT(&message, "payload", &payload);
    truce__json_write(&line, &message, false, JSON_RELAXED);
    work_open_append(&line, "\n");
    work_child_send(&run->child, &line);
    bson_destroy(&message);
    truce__buffer_release(&line);
}

static void send_cancel(struct program_run *run, struct open_job *job)
{
    struct buffer line = {0};
    char id[25], text[160];

    bson_oid_to_string(&job->at.id, id);
    snprintf(text, sizeof text,
             "{\"cancel\": \"%s\", \"epoch\": %" PRId64 ", \"reason\": \"%s\"}\n", id,
             job->at.epoch, job->at.lost ? "lost" : "timed out");
    work_open_append(&line, text);
    work_child_send(&run->child, &line);
    truce__buffer_release(&line);
    job->notified_ns = truce__clock_monotonic_ns();
}

/* ---- lines from it --------------------------------------------------------------------------- */

static void work_reject_line(struct program_run *run, const char *line, size_t size,
                             const char *why)
{
    int shown = size > SHOWN_BYTES ? SHOWN_BYTES : (int)size;

    if (!run->fault)
        run->fault = bson_strdup_printf("the program wrote an invalid line: %s: %.*s%s", why, shown,
                                        line, size > SHOWN_BYTES ? " ..." : "");
}

static struct open_job *job_of(struct program_run *run, const struct answer *answer)
{
    for (int64_t i = 0; i < run->count; i++) {
        const struct work_job *at = &run->jobs[i].at;

        /* Only the job with this id and epoch is meant (WO2). */
        if (bson_oid_equal(&at->id, &answer->job) && at->epoch == answer->epoch)
            return &run->jobs[i];
    }
    return NULL;
}

/* Removes a job. The last job moves to its index. */
static void remove_job(struct program_run *run, struct open_job *job)
{
    *job = run->jobs[--run->count];
}

static void keep_progress(struct program_run *run, struct open_job *job, const bson_t *progress)
{
    bson_t fields = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    BSON_APPEND_DOCUMENT(&fields, "progress", progress);
    status = work_send(run->work, &job->at, "truceHeartbeat", &fields, &error);
    bson_destroy(&fields);
    if (status == TRUCE_EXPIRED)
        job->at.lost = true;
    else if (status)
        cli_note(run->work->cli, "the progress of a job could not be stored: %s", error.message);
}

/* Ends the job by the answer, and removes it. If the job is lost or timed out, the kind of the
 * answer does not matter. */
static void end_job(struct program_run *run, struct open_job *job, const struct answer *answer)
{
    struct work *work = run->work;
    struct work_job *at = &job->at;

    if (at->lost)
        work_lost(work, at);
    else if (at->timed_out)
        work_failed(work, at, "timed out", -1);
    else if (answer->kind == ANSWER_DONE)
        work_done(work, at, &answer->result,
                  bson_empty(&answer->changes) ? NULL : &answer->changes);
    else if (answer->kind == ANSWER_FAIL)
        work_failed(work, at, answer->error, answer->delay_ms);
    else if (answer->kind == ANSWER_SNOOZE)
        work_later(work, at, answer->delay_ms < 0 ? work->later_ms : answer->delay_ms, "later");
    else
        work_discarded(work, at, answer->error);
    remove_job(run, job);
    run->answered = true;
}

/* Handles a line of the program. An invalid line is a fault of the program; an answer for a job
 * that it does not have is only noted (WO2). */
static void work_open_take_answer(struct program_run *run, const char *line, size_t size)
{
    struct answer answer;
    bson_error_t error;
    struct open_job *job;

    if (work_answer_read(&run->reader, line, size, &answer, &error)) {
        work_reject_line(run, line, size, error.message);
        return;
    }
    job = job_of(run, &answer);
    if (!job) {
        char id[25];

        bson_oid_to_string(&answer.job, id);
        cli_note(run->work->cli,
                 "the program answered job %s of epoch %" PRId64 ", which it does not have", id,
                 answer.epoch);
    } else if (answer.kind == ANSWER_PROGRESS) {
        keep_progress(run, job, &answer.result);
    } else {
        end_job(run, job, &answer);
    }
}

/* Reads the lines that the program has written. A line over the maximum length is a fault of the
 * program. */
static void work_read_lines(struct program_run *run)
{
    const char *line;
    size_t size;
    bool too_long = false;

    while (!run->fault && work_child_line(&run->child, &line, &size, &too_long))
        work_open_take_answer(run, line, size);
    if (too_long && !run->fault) {
        char why[60];

        snprintf(why, sizeof why, "the line is too long: the maximum is %d MiB",
                 WORK_LINE_BYTES_MAX >> 20);
        work_reject_line(run, line, size, why);
    }
}

/* ---- the jobs that it has -------------------------------------------------------------------- */

static bool work_open_is_stopped(const struct work *work)
{
    return atomic_load(work->stop) || atomic_load(&work->code);
}

static bool work_open_has_ended(const struct program_run *run)
{
    return work_open_is_stopped(run->work) || run->drained || work_begun_all(run->work);
}

static bool work_open_has_room(const struct program_run *run)
{
    return !work_open_has_ended(run) && run->count < run->work->at_once &&
           !run->child.notified_ns && !run->child.silent_ns && !run->fault;
}

/* Returns whether new jobs may be ready. While the program has jobs, it does not wait in the store,
 * so that their answers are read in time. */
static bool may_be_jobs(struct program_run *run, bson_error_t *error)
{
    uint64_t before = run->token;
    bool known = before && !work_is_over(run->claimed_ns, WORK_SLICE_MS);

    if (run->count && known &&
        (work_pause(run->work, &run->token, 0, error) || run->token == before))
        return false;
    run->claimed_ns = truce__clock_monotonic_ns();
    return true;
}

/* Claims and sends jobs while the program has room. Waits for a job only if the program has
 * none. */
static void take_jobs(struct program_run *run)
{
    struct work *work = run->work;
    truce_status status = TRUCE_OK;
    bson_error_t error;

    if (!work_open_has_room(run) || !may_be_jobs(run, &error))
        return;
    while (!status && work_open_has_room(run)) {
        struct open_job *job = &run->jobs[run->count];

        *job = (struct open_job){0};
        status = work_claim(work, &job->at, !run->count, &error);
        if (!status) {
            run->count++;
            send_job(run, &job->at);
        }
    }
    if (status == TRUCE_NOT_FOUND && work->drains && !run->count)
        run->drained = true;
    else if (status == TRUCE_NOT_FOUND && !run->count && work_open_has_room(run))
        status = work_rest(work, &run->token, &error);
    if (status && status != TRUCE_NOT_FOUND)
        work_stop(work, cli_error(work->cli, NULL, status, &error));
}

/* Extends the leases of the program's jobs, and sends a cancel line for a job that is lost or timed
 * out. If the program does not answer it within the grace time, the program must end. */
static void work_keep_open_jobs(struct program_run *run)
{
    int64_t grace_ms = run->work->grace_ms;

    for (int64_t i = 0; i < run->count; i++) {
        struct open_job *job = &run->jobs[i];

        work_keep_job(run->work, &job->at);
        if (!job->notified_ns && (job->at.lost || job->at.timed_out))
            send_cancel(run, job);
        else if (job->notified_ns && work_is_over(job->notified_ns, grace_ms))
            /* The other jobs are released without counting an attempt (WO5). */
            run->returns_jobs = true;
    }
}

/* ---- end of the command ---------------------------------------------------------------------- */

/* Ends the program if it must end: SIGTERM now, SIGKILL after the grace time. */
static void work_end_child(struct program_run *run)
{
    struct work *work = run->work;
    struct work_child *child = &run->child;

    if (work_open_has_ended(run) && !run->count) {
        /* The program gets no more jobs, even if other threads still work. */
        run->drained = true;
        work_child_close_in(child);
    }
    if (!run->ending_ns && (run->drained || work_open_is_stopped(work)))
        run->ending_ns = truce__clock_monotonic_ns();
    if (run->ending_ns && work_is_over(run->ending_ns, work->grace_ms))
        run->returns_jobs = true;
    if (run->fault || run->returns_jobs ||
        (child->silent_ns && work_is_over(child->silent_ns, work->grace_ms)))
        work_child_signal(child, work->grace_ms);
}

static char *work_open_reason_of(const struct program_run *run)
{
    if (run->fault)
        return bson_strdup(run->fault);
    if (run->child.silent_ns && run->child.notified_ns)
        return bson_strdup("the program closed its input or output and did not end");
    return work_child_end(&run->child);
}

/* Ends the jobs of a program that has ended: released if it was ended because of one job (WO5),
 * else failed with the reason (WO4). */
static void conclude_all(struct program_run *run)
{
    struct work *work = run->work;
    char *reason = work_open_reason_of(run);

    if (!run->count && !work_open_has_ended(run))
        cli_note(work->cli, "%s", reason);
    while (run->count) {
        struct work_job *at = &run->jobs[--run->count].at;

        if (at->lost)
            work_lost(work, at);
        else if (at->timed_out)
            work_failed(work, at, "timed out", -1);
        else if (run->returns_jobs)
            work_later(work, at, 0, work_open_is_stopped(work) ? "abandoned" : "returned");
        else
            work_failed(work, at, reason, -1);
    }
    bson_free(reason);
}

static void work_close_run(struct program_run *run)
{
    do
        work_read_lines(run);
    while (!run->fault && work_child_move(&run->child, 0));
    conclude_all(run);
    run->rest_ms = run->answered                    ? 0
                   : !run->rest_ms                  ? REST_MS
                   : run->rest_ms < REST_MS_MAX / 2 ? run->rest_ms * 2
                                                    : REST_MS_MAX;
    run->rest_until_ns = truce__clock_monotonic_ns() + run->rest_ms * NS_IN_MS;
    run->answered = run->returns_jobs = false;
    bson_free(run->fault);
    run->fault = NULL;
    work_child_forget(&run->child);
}

/* ---- one program after the other ------------------------------------------------------------- */

static void start_child(struct program_run *run)
{
    const struct cli *cli = run->work->cli;
    int failed;

    if (truce__clock_monotonic_ns() < run->rest_until_ns) {
        truce__clock_sleep_ms(BUSY_MS);
        return;
    }
    failed = work_child_start(&run->child, run->work);
    if (failed)
        work_stop(run->work, cli_message(cli, CLI_USAGE, "cannot run %s: %s", cli_text(cli, "exec"),
                                         strerror(failed)));
}

static int work_open_pause_of(const struct program_run *run)
{
    if (!work_open_has_room(run))
        return BUSY_MS;
    /* Without a job, the thread has already waited in the store. */
    return run->count ? READY_MS : 0;
}

/* Runs one program that receives jobs as lines. */
static void work_keeping_open(struct work *work)
{
    struct program_run run = {.work = work, .reader = {.typed = false}};

    run.jobs = bson_malloc0((size_t)work->at_once * sizeof *run.jobs);
    while (run.child.pid || !work_open_has_ended(&run)) {
        if (!run.child.pid) {
            start_child(&run);
            continue;
        }
        take_jobs(&run);
        (void)work_child_move(&run.child, work_open_pause_of(&run));
        work_read_lines(&run);
        work_keep_open_jobs(&run);
        work_end_child(&run);
        if (work_child_has_ended(&run.child))
            work_close_run(&run);
    }
    truce__json_reader_release(&run.reader);
    bson_free(run.jobs);
}

/* ---- the command ----------------------------------------------------------------------------- */

#define OUTPUT_MAX (1024 * 1024) /* The maximum size of a result in bytes. */

static void *work_on(void *arg)
{
    struct work *work = arg;

    if (work->keeps_open)
        work_keeping_open(work);
    else
        work_by_programs(work);
    return NULL;
}

/* Notes the running jobs of a queue whose lease has expired by the clock. A worker that ends with the
 * queue has not observed their leases, so it cannot release them. */
static void work_note_overdue(const struct work *work, const char *queue)
{
    int64_t count = 0;

    if (!truce__queue_count_overdue(work->cli->store, queue, &count, NULL) && count)
        cli_note(work->cli,
                 "%s of the queue \"%s\" %s still running after the end of the lease: run a worker "
                 "without --drain, or truce sweep twice, a lease apart",
                 PLURAL(count, "job", "jobs"), queue, count == 1 ? "is" : "are");
}

/* Runs each worker in a thread, the first one in this thread. Returns the exit code. */
static int work_all(struct work *work)
{
    pthread_t threads[WORK_PROGRAMS_MAX];
    int count = 1, code; /* The main thread is the first worker. */

    while (count < work->workers && !pthread_create(&threads[count], NULL, work_on, work))
        count++;
    if (count < work->workers)
        cli_note(
            work->cli,
            "only %d of %d programs could be started: the system has no memory or no threads left",
            count, (int)work->workers);
    work_on(work);
    for (int i = 1; i < count; i++)
        pthread_join(threads[i], NULL);
    code = atomic_load(&work->code);
    for (int i = 0; work->drains && !code && !work->cli->json && i < work->count; i++)
        work_note_overdue(work, work->sources[i].name);
    return code ? code : cli_output_end(atomic_load(&work->failed) ? CLI_NO : CLI_DONE);
}

/* ---- the call -------------------------------------------------------------------------------- */

/* Reads "mail" or "mail=3". */
static bool work_add_source(struct work *work, const char *text)
{
    const char *equals = strrchr(text, '=');
    struct work_source *source = &work->sources[work->count];
    char *end = NULL;
    long long weight = equals ? strtoll(equals + 1, &end, 10) : 1;

    if ((equals && (*end || end == equals + 1)) || weight < 1 || weight > QUEUE_WEIGHT_MAX) {
        cli_usage(
            work->cli,
            "invalid --queue \"%s\": expected NAME, or NAME=WEIGHT with a weight of 1 to 1000",
            text);
        return false;
    }
    source->weight = (uint32_t)weight;
    source->name = equals ? bson_strndup(text, (size_t)(equals - text)) : bson_strdup(text);
    work->count++;
    return true;
}

/* Reads and checks the options. On a fault, prints the usage error and returns false. */
static bool work_read_call(struct work *work)
{
    struct cli *cli = work->cli;
    int failed;
    bool good = cli_duration(cli, "lease", 100, 86400000, 30000, &work->lease_ms);

    good = good && cli_duration(cli, "grace", 0, 86400000, 10000, &work->grace_ms) &&
           cli_duration(cli, "later", 0, INT64_C(1) << 40, 60000, &work->later_ms) &&
           cli_duration(cli, "backoff", 1, 86400000, 1000, &work->backoff_ms) &&
           cli_duration(cli, "backoff-max", 1, 86400000, 3600000, &work->backoff_max_ms) &&
           cli_number(cli, "limit", 1, INT32_MAX, 0, &work->limit) &&
           cli_number(cli, "output", 0, OUTPUT_MAX, 65536, &work->output_max);
    work->backoff = cli_flag(cli, "fixed") ? TRUCE_BACKOFF_FIXED : TRUCE_BACKOFF_EXPONENTIAL;
    work->commits = cli_flag(cli, "commit");
    work->drains = cli_flag(cli, "drain");
    work->keeps_open = cli_flag(cli, "keep-open");
    good = good && cli_number(cli, "workers", 1, WORK_PROGRAMS_MAX, 1, &work->workers) &&
           cli_number(cli, "at-once", 1, WORK_AT_ONCE_MAX, 1, &work->at_once);
    if (good && !work->keeps_open && cli_text(cli, "at-once")) {
        cli_usage(cli, "--at-once needs --keep-open: without it, a program runs one job");
        return false;
    }
    if (good && work->keeps_open && (work->commits || cli_text(cli, "output"))) {
        cli_usage(cli, "--keep-open excludes --commit and --output: each reply of the program "
                       "has its own \"changes\" and \"result\"");
        return false;
    }
    if (good && !cli_text(cli, "exec")) {
        cli_usage(cli, "--exec PROGRAM is missing: the program that runs for each job");
        return false;
    }
    failed = good ? work_program_check(cli_text(cli, "exec")) : 0;
    if (failed) {
        cli_usage(cli, "cannot run %s: %s", cli_text(cli, "exec"), strerror(failed));
        return false;
    }
    if (good && !cli_texts(cli, "queue", 0)) {
        cli_usage(cli, "--queue QUEUE is missing");
        return false;
    }
    for (const char *text; good && (text = cli_texts(cli, "queue", work->count));) {
        good = work->count < WORK_QUEUES_MAX;
        if (!good)
            cli_usage(cli, "more than %d queues are given with --queue", WORK_QUEUES_MAX);
        good = good && work_add_source(work, text);
    }
    return good;
}

static int work_run(struct cli *cli)
{
    struct work work = {.cli = cli, .answers = PTHREAD_MUTEX_INITIALIZER};
    int code = CLI_USAGE;

    if (work_read_call(&work)) {
        code = CLI_DONE;
        /* The store of a rehearsal has no jobs, so the worker would wait forever. */
        if (!cli->rehearsal) {
            if (cli->creates_store)
                cli_note(cli, "the store %s did not exist and was created", cli->uri);
            work.stop = cli_interrupt_stop();
            code = work_all(&work);
        }
    }
    for (int i = 0; i < work.count; i++)
        bson_free(work.sources[i].name);
    return code;
}

static const struct cli_command cli_work = {
    .noun = "work",
    .arguments = "[WORD...]",
    .summary = "run a program for each job of one or more queues",
    .help =
        "The program reads a job's payload from standard input. TRUCE_JOB, TRUCE_QUEUE,\n"
        "TRUCE_JOB_ATTEMPT, and TRUCE_JOB_EPOCH are in its environment. WORDs are its arguments\n"
        "(put -- before them). Exit code 0: done; its output is the result, a document or text.\n"
        "Exit code 75: snoozed; the attempt does not count. Any other code, or a signal:\n"
        "failed. The end of its standard error is the reason. The job is retried with a delay\n"
        "that doubles.\n"
        "\n"
        "With --commit, the program prints an array of changes, as truce commit apply takes them.\n"
        "The changes and the end of the job are one commit: they take effect once, and not at all\n"
        "if this worker has lost the job. Without output, the job ends without changes.\n"
        "\n"
        "The lease is extended while the program runs. If the job is cancelled, lost, or out of\n"
        "time, the program gets SIGTERM, and SIGKILL after --grace. After SIGTERM or Ctrl-C to\n"
        "the worker, the running job may end within --grace, or is released. Exit code 1: an\n"
        "attempt failed.\n"
        "\n"
        "With --keep-open, one run of the program processes many jobs. Each job and each reply\n"
        "is a line:\n"
        "  {\"job\": ID, \"epoch\": 1, \"queue\": \"mail\", \"attempt\": 1, \"payload\": {...}}\n"
        "  {\"done\": ID, \"epoch\": 1, \"result\": {...}, \"changes\": [...]}\n"
        "  {\"fail\": ID, \"epoch\": 1, \"error\": \"...\", \"delay_ms\": 1000}\n"
        "  {\"snooze\": ID, \"epoch\": 1, \"delay_ms\": 1000}\n"
        "  {\"discard\": ID, \"epoch\": 1, \"error\": \"...\"}\n"
        "  {\"progress\": ID, \"epoch\": 1, \"result\": {...}}\n"
        "Result, changes, delay_ms, and the error of a discard are optional. If a job is lost or\n"
        "times out, the program reads {\"cancel\": ID, \"epoch\": 1, \"reason\": \"lost\"}. It\n"
        "must still reply within --grace. An invalid line ends the program; its jobs\n"
        "fail with the reason, and it is started again. The same happens if it exits.\n"
        "The end of its input means that there are no more jobs.",
    .example = "truce queue add mail '{_id: 1, to: \"ada@x.org\"}'\n"
               "truce work --queue mail --drain --commit --exec sh -- \\\n"
               "    -c 'echo \"[{insert: \\\"sent\\\", with: $(cat)}]\"'\n"
               "truce find sent",
    .options =
        (const struct cli_option[]){
            {"queue", 0, "QUEUE",
             "claim from this queue; NAME=3: three times as often (may be repeated)", true},
            {"exec", 0, "PROGRAM", "the program to run", false},
            {"commit", 0, NULL, "commit the printed changes together with the job's end", false},
            {"keep-open", 0, NULL, "keep a program running, with a line for each job and reply",
             false},
            {"workers", 0, "N", "programs at the same time, up to 64 (default: 1)", false},
            {"at-once", 0, "N", "with --keep-open: jobs of each program, up to 1000 (default: 1)",
             false},
            {"drain", 0, NULL, "end when no job is ready", false},
            {"limit", 'n', "N", "end after this many jobs", false},
            {"lease", 0, "DURATION",
             "lease: others get the job this long after a crash (default: 30s)", false},
            {"grace", 0, "DURATION", "time between SIGTERM and SIGKILL (default: 10s)", false},
            {"later", 0, "DURATION", "delay after exit code 75 (default: 60s)", false},
            {"backoff", 0, "DURATION", "delay after the first failure (default: 1s)", false},
            {"backoff-max", 0, "DURATION", "maximum delay (default: 1h)", false},
            {"fixed", 0, NULL, "the same delay after each failure", false},
            {"output", 0, "BYTES", "bytes of the output to store (default: 65536)", false},
            {0}},
    .store = CLI_STORE_WRITE,
    .run = work_run,
};

cli_command_list cli_work_commands = {&cli_work, NULL};
