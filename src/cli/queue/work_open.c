/*
 * truce work --keep-open: a program that stays, and takes jobs and answers them by lines of JSON.
 *
 *     to it      {"job": ID, "epoch": 1, "queue": "mail", "attempt": 1, "payload": {...}, "deadline": ms since 1970}
 *                {"cancel": ID, "epoch": 1, "reason": "lost" or "timed out"}
 *     from it    what work_answer.c takes, in any order
 *
 *                 .-- answered ------------------------------------------------> its end
 *     claimed, sent -- lost or timed out: told by a cancel line -- answered --> lost, failed
 *                 \                                           \-- not within the grace: the program is ended
 *                  \-- the program ended, closed an end of its pipes, or wrote a line that is no answer --> failed
 *
 * Invariants:
 *   O1. A job is sent once, and ends once here: by its answer, or by the end of its program.
 *   O2. An answer counts for the job of that id and that epoch which the program has; any other changes nothing.
 *   O3. The lease is kept until the job's end, and no job is given back while its program may still work on it: it has
 *       answered, or it is dead.
 *   O4. What a program does wrong ends that program, and the attempts of its jobs, with the reason. It is started anew, later
 *       each time that it has answered nothing meanwhile.
 *   O5. A program that is ended for one job's sake gives its others back; they count no attempt.
 *
 * The worker killed: its programs read the end of their input.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cli/queue/work_answer.h"
#include "cli/queue/work_child.h"

#define BUSY_MS     50 /* between two looks at the jobs */
#define READY_MS    5  /* ... while there is room for others */
#define REST_MS     100
#define REST_MS_MAX 30000
#define SHOWN_BYTES 100 /* of a line that is none */
#define NS_IN_MS    INT64_C(1000000)

struct open_job {
    struct work_job at;
    int64_t told_ns; /* the cancel line; 0: none */
};

/* One program, and the jobs that it has. */
struct station {
    struct work *work;
    struct work_child child;
    struct open_job *jobs;
    int64_t count;
    struct json_reader reader;
    char *fault;     /* what it did wrong; NULL: nothing */
    bool gives_back; /* it is ended, and its jobs are not to blame */
    bool drained, answered;
    uint64_t token;
    int64_t asked_ns, rest_ms, rest_until_ns, ending_ns;
};

/* ---- lines to the program ------------------------------------------------------------------------- */

static void work_open_append(struct buffer *line, const char *text)
{
    truce__buffer_append(line, text, strlen(text));
}

static void send_job(struct station *station, const struct work_job *at)
{
    int64_t timeout_ms = work_timeout_ms(at);
    struct buffer line = {0};
    bson_t message = BSON_INITIALIZER;
    char id[25];

    bson_oid_to_string(truce_job_id(at->job), id);
    BSON_APPEND_UTF8(&message, "job", id);
    BSON_APPEND_INT64(&message, "epoch", truce_job_epoch(at->job));
    BSON_APPEND_UTF8(&message, "queue", at->source->name);
    BSON_APPEND_INT64(&message, "attempt", truce_job_attempt(at->job));
    if (timeout_ms)
        BSON_APPEND_INT64(&message, "deadline", truce__clock_wall_ms() + timeout_ms);
    BSON_APPEND_DOCUMENT(&message, "payload", truce_job_payload(at->job));
    truce__json_write(&line, &message, false, JSON_RELAXED);
    work_open_append(&line, "\n");
    work_child_send(&station->child, &line);
    bson_destroy(&message);
    truce__buffer_release(&line);
}

static void send_cancel(struct station *station, struct open_job *job)
{
    struct buffer line = {0};
    char id[25], text[160];

    bson_oid_to_string(truce_job_id(job->at.job), id);
    snprintf(text, sizeof text,
             "{\"cancel\": \"%s\", \"epoch\": %" PRId64 ", \"reason\": \"%s\"}\n", id,
             truce_job_epoch(job->at.job), job->at.lost ? "lost" : "timed out");
    work_open_append(&line, text);
    work_child_send(&station->child, &line);
    truce__buffer_release(&line);
    job->told_ns = truce__clock_monotonic_ns();
}

/* ---- lines from it -------------------------------------------------------------------------------- */

static void work_open_blame(struct station *station, const char *line, size_t size, const char *why)
{
    int shown = size > SHOWN_BYTES ? SHOWN_BYTES : (int)size;

    if (!station->fault)
        station->fault =
            bson_strdup_printf("the program wrote a line that is no answer: %s: %.*s%s", why, shown,
                               line, size > SHOWN_BYTES ? " ..." : "");
}

static struct open_job *job_of(struct station *station, const struct answer *answer)
{
    for (int64_t i = 0; i < station->count; i++) {
        const truce_job *job = station->jobs[i].at.job;

        if (bson_oid_equal(truce_job_id(job), &answer->job) &&
            truce_job_epoch(job) == answer->epoch) /* O2 */
            return &station->jobs[i];
    }
    return NULL;
}

/* The place of one that has ended goes to the last. */
static void remove_job(struct station *station, struct open_job *job)
{
    *job = station->jobs[--station->count];
}

static void keep_progress(struct station *station, struct open_job *job, const bson_t *progress)
{
    bson_error_t error;
    truce_status status = truce_job_progress(job->at.job, progress, &error);

    if (status == TRUCE_EXPIRED)
        job->at.lost = true;
    else if (status)
        cli_remark(station->work->cli, "the progress of a job is not kept: %s", error.message);
}

static void end_job(struct station *station, struct open_job *job, const struct answer *answer)
{
    struct work *work = station->work;
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
    remove_job(station, job);
    station->answered = true;
}

static void work_open_take_answer(struct station *station, const char *line, size_t size)
{
    struct answer answer;
    bson_error_t error;
    struct open_job *job;

    if (work_answer_read(&station->reader, line, size, &answer, &error)) {
        work_open_blame(station, line, size, error.message);
        return;
    }
    job = job_of(station, &answer);
    if (!job) {
        char id[25];

        bson_oid_to_string(&answer.job, id);
        cli_remark(station->work->cli,
                   "the program answered job %s of epoch %" PRId64 ", which it does not have", id,
                   answer.epoch);
    } else if (answer.kind == ANSWER_PROGRESS) {
        keep_progress(station, job, &answer.result);
    } else {
        end_job(station, job, &answer);
    }
}

static void work_open_hear(struct station *station)
{
    const char *line;
    size_t size;
    bool too_long = false;

    while (!station->fault && work_child_line(&station->child, &line, &size, &too_long))
        work_open_take_answer(station, line, size);
    if (too_long && !station->fault)
        work_open_blame(station, line, size, "it is too long");
}

/* ---- the jobs that it has ------------------------------------------------------------------------- */

static bool work_open_is_stopped(const struct work *work)
{
    return atomic_load(&work_ending) || atomic_load(&work->code);
}

static bool work_open_is_over(const struct station *station)
{
    return work_open_is_stopped(station->work) || station->drained || work_begun_all(station->work);
}

static bool work_open_has_room(const struct station *station)
{
    return !work_open_is_over(station) && station->count < station->work->at_once &&
           !station->child.told_ns && !station->child.silent_ns && !station->fault;
}

/* While the program has jobs nobody sleeps in the store: what it answers comes first. */
static bool may_be_jobs(struct station *station, bson_error_t *error)
{
    uint64_t before = station->token;
    bool known = before && !work_is_over(station->asked_ns, WORK_SLICE_MS);

    if (station->count && known &&
        (work_pause(station->work, &station->token, 0, error) || station->token == before))
        return false;
    station->asked_ns = truce__clock_monotonic_ns();
    return true;
}

static void take_jobs(struct station *station)
{
    struct work *work = station->work;
    truce_status status = TRUCE_OK;
    bson_error_t error;

    if (!work_open_has_room(station) || !may_be_jobs(station, &error))
        return;
    while (!status && work_open_has_room(station)) {
        struct open_job *job = &station->jobs[station->count];

        *job = (struct open_job){0};
        status = work_claim(work, &job->at, &error);
        if (!status) {
            station->count++;
            send_job(station, &job->at);
        }
    }
    if (status == TRUCE_NOT_FOUND && work->drains && !station->count)
        station->drained = true;
    else if (status == TRUCE_NOT_FOUND && !station->count && work_open_has_room(station))
        status = work_rest(work, &station->token, &error);
    if (status && status != TRUCE_NOT_FOUND)
        work_stop(work, cli_error(work->cli, NULL, status, &error));
}

static void look_after_jobs(struct station *station)
{
    int64_t grace_ms = station->work->grace_ms;

    for (int64_t i = 0; i < station->count; i++) {
        struct open_job *job = &station->jobs[i];

        work_look_after(station->work, &job->at);
        if (!job->told_ns && (job->at.lost || job->at.timed_out))
            send_cancel(station, job);
        else if (job->told_ns && work_is_over(job->told_ns, grace_ms))
            station->gives_back = true; /* O5 */
    }
}

/* ---- its end -------------------------------------------------------------------------------------- */

/* Whether it has to end: SIGTERM now, SIGKILL after the grace. */
static void look_after_child(struct station *station)
{
    struct work *work = station->work;
    struct work_child *child = &station->child;

    if (work_open_is_over(station) && !station->count) {
        station->drained = true; /* it gets no more lines, whatever others leave */
        work_child_close_in(child);
    }
    if (!station->ending_ns && (station->drained || work_open_is_stopped(work)))
        station->ending_ns = truce__clock_monotonic_ns();
    if (station->ending_ns && work_is_over(station->ending_ns, work->grace_ms))
        station->gives_back = true;
    if (station->fault || station->gives_back ||
        (child->silent_ns && work_is_over(child->silent_ns, work->grace_ms)))
        work_child_tell(child, work->grace_ms);
}

static char *work_open_reason_of(const struct station *station)
{
    if (station->fault)
        return bson_strdup(station->fault);
    if (station->child.silent_ns && station->child.told_ns)
        return bson_strdup("the program closed its input or its output, and did not end");
    return work_child_end(&station->child);
}

static void conclude_all(struct station *station)
{
    struct work *work = station->work;
    char *reason = work_open_reason_of(station);

    if (!station->count && !work_open_is_over(station))
        cli_remark(work->cli, "%s", reason);
    while (station->count) {
        struct work_job *at = &station->jobs[--station->count].at;

        if (at->lost)
            work_lost(work, at);
        else if (at->timed_out)
            work_failed(work, at, "timed out", -1);
        else if (station->gives_back)
            work_later(work, at, 0, work_open_is_stopped(work) ? "abandoned" : "returned");
        else
            work_failed(work, at, reason, -1);
    }
    bson_free(reason);
}

static void bury(struct station *station)
{
    do
        work_open_hear(station);
    while (!station->fault && work_child_move(&station->child, 0));
    conclude_all(station);
    station->rest_ms = station->answered                    ? 0
                       : !station->rest_ms                  ? REST_MS
                       : station->rest_ms < REST_MS_MAX / 2 ? station->rest_ms * 2
                                                            : REST_MS_MAX;
    station->rest_until_ns = truce__clock_monotonic_ns() + station->rest_ms * NS_IN_MS;
    station->answered = station->gives_back = false;
    bson_free(station->fault);
    station->fault = NULL;
    work_child_forget(&station->child);
}

/* ---- one program after the other ------------------------------------------------------------------ */

static void start_child(struct station *station)
{
    const struct cli *cli = station->work->cli;
    int failed;

    if (truce__clock_monotonic_ns() < station->rest_until_ns) {
        truce__clock_sleep_ms(BUSY_MS);
        return;
    }
    failed = work_child_start(&station->child, station->work);
    if (failed)
        work_stop(station->work, cli_say(cli, CLI_USAGE, "%s cannot be run: %s",
                                         cli_text(cli, "exec"), strerror(failed)));
}

static int work_open_pause_of(const struct station *station)
{
    if (!work_open_has_room(station))
        return BUSY_MS;
    return station->count ? READY_MS : 0; /* without a job it has waited in the store */
}

void work_keeping_open(struct work *work)
{
    struct station station = {.work = work, .reader = {.typed = false}};

    station.jobs = bson_malloc0((size_t)work->at_once * sizeof *station.jobs);
    while (station.child.pid || !work_open_is_over(&station)) {
        if (!station.child.pid) {
            start_child(&station);
            continue;
        }
        take_jobs(&station);
        (void)work_child_move(&station.child, work_open_pause_of(&station));
        work_open_hear(&station);
        look_after_jobs(&station);
        look_after_child(&station);
        if (work_child_has_ended(&station.child))
            bury(&station);
    }
    truce__json_reader_release(&station.reader);
    bson_free(station.jobs);
}
