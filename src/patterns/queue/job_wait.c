/*
 * Sleeps, and waits for signals, between the steps of a job: durable timers and external events.
 * No worker is occupied: the job is set aside like a snoozed job.
 *
 *     sleeps: {pause: {until: <date>}}              a sleep, which ends at `until`
 *     waits: {paid: {until: <date>, over: true}}    a wait; over: the event did not come by then
 *     awaits: "paid"                                the job is set aside for that event
 *     events: {paid: {...}}                         what truce_queue_signal sent
 *
 * The waiting worker and the signalling caller both read the job in their commits. An event that
 * comes between the read and the write is therefore not missed: one of the two runs again. The
 * first of the two facts that the job records, `over` or the event, decides. No later read changes
 * the result.
 */
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/time_check.h"
#include "base/wait_limit.h"
#include "bson/field_name_escape.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

struct waiting {
    truce_job *job;
    const char *name;
    /* The length of the sleep or the wait in ms, or -1 for no limit. */
    int64_t ms;
    bson_t event;
    bool came, suspended;
};

/* ---- suspending ------------------------------------------------------------------------------ */

static bool wait_until(const bson_t *document, const char *field, const char *name,
                       int64_t *until_ms)
{
    bson_t all, one;

    return truce__value_subdocument(document, field, &all) &&
           truce__value_subdocument(&all, name, &one) && truce__job_date(&one, "until", until_ms);
}

/* Writes {$set: {FIELD.NAME.until, awaits?}}. */
static truce_status wait_write_until(const struct waiting *waiting, truce_commit *commit,
                                     const char *field, int64_t until_ms, bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&waiting->job->id);
    char *path = bson_strdup_printf("%s.%s.until", field, waiting->name);
    bson_t update = BSON_INITIALIZER, set;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_DATE_TIME(&set, path, until_ms);
    if (!strcmp(field, "waits"))
        BSON_APPEND_UTF8(&set, "awaits", waiting->name);
    bson_append_document_end(&update, &set);
    status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    bson_destroy(&update);
    bson_free(path);
    return status;
}

/* Delays the job until `until_ms` without counting the attempt, and stores that time in `field`. */
static truce_status wait_suspend(struct waiting *waiting, truce_commit *commit,
                                 const bson_t *document, const char *field, int64_t until_ms,
                                 bson_error_t *error)
{
    bson_t update = BSON_INITIALIZER;
    truce_status status;

    truce__job_update_snooze(&update, document, until_ms, truce__clock_wall_ms());
    status = truce__job_transition(commit, document, &update, error);
    if (!status)
        status = wait_write_until(waiting, commit, field, until_ms, error);
    waiting->suspended = true;
    bson_destroy(&update);
    return status;
}

static int64_t wait_end_of(const struct waiting *waiting)
{
    return waiting->ms < 0 ? DATE_LAST_MS : truce__date_after(truce__clock_wall_ms(), waiting->ms);
}

static truce_status wait_begin(struct waiting *waiting, const bson_t *called, const char *kind,
                               bson_error_t *error)
{
    truce_status status = truce__job_step_check(waiting->name, error);

    if (!status)
        status = truce__job_call_check(called, waiting->name, kind, error);
    if (!status && waiting->ms < -1)
        status = truce__fail(TRUCE_INVALID, error,
                             "invalid timeout of %lld ms: expected -1 (forever), or 0 ms or more",
                             (long long)waiting->ms);
    return status ? status : truce__duration_check("the time to wait", waiting->ms, error);
}

static truce_status wait_finish(const struct waiting *waiting, truce_status status,
                                bson_error_t *error)
{
    if (status || !waiting->suspended)
        return status;
    truce__job_ended(waiting->job, JOB_SNOOZED);
    return truce__fail(
        TRUCE_NOT_FOUND, error,
        "the job is suspended at \"%s\": its function must return now, and runs again later",
        waiting->name);
}

/* ---- sleeps ---------------------------------------------------------------------------------- */

/* Suspends the job in a commit, unless its sleep has ended. */
static truce_status sleep_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct waiting *waiting = arg;
    bson_t document;
    int64_t until_ms;
    truce_status status = truce__job_read_mine(waiting->job, commit, &document, error);

    waiting->suspended = false;
    if (!status && !wait_until(&document, "sleeps", waiting->name, &until_ms))
        until_ms = wait_end_of(waiting);
    if (!status && truce__clock_wall_ms() < until_ms)
        status = wait_suspend(waiting, commit, &document, "sleeps", until_ms, error);
    bson_destroy(&document);
    return status;
}

truce_status truce_job_sleep(truce_job *job, const char *name, int64_t ms, bson_error_t *error)
{
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    struct waiting waiting = {.job = job, .name = name, .ms = ms};
    int64_t until_ms;
    truce_status status = wait_begin(&waiting, &job->called, "sleep", error);

    if (!status && ms < 0)
        status = truce__fail(TRUCE_INVALID, error,
                             "invalid duration of a sleep, %lld ms: expected 0 ms or more",
                             (long long)ms);
    if (!status && (!wait_until(&job->document, "sleeps", name, &until_ms) ||
                    truce__clock_wall_ms() < until_ms))
        status = wait_finish(&waiting,
                             truce__queue_run(job->queue, NULL, sleep_in, &waiting, error), error);
    if (!status)
        BSON_APPEND_UTF8(&job->called, name, "sleep");
    return status;
}

/* ---- waits ----------------------------------------------------------------------------------- */

/* Copies the event if it has come. */
static bool wait_find_event(struct waiting *waiting, const bson_t *document)
{
    bson_t events, one;

    waiting->came = truce__value_subdocument(document, "events", &events) &&
                    truce__value_subdocument(&events, waiting->name, &one);
    bson_reinit(&waiting->event);
    if (waiting->came) {
        bson_destroy(&waiting->event);
        truce__names_restore(&one, &waiting->event);
    }
    return waiting->came;
}

static bool wait_is_over(const bson_t *document, const char *name)
{
    bson_t waits, one;

    return truce__value_subdocument(document, "waits", &waits) &&
           truce__value_subdocument(&waits, name, &one) && bson_has_field(&one, "over");
}

static truce_status wait_write_over(const struct waiting *waiting, truce_commit *commit,
                                    bson_error_t *error)
{
    bson_value_t id = truce_id_oid(&waiting->job->id);
    char *path = bson_strdup_printf("waits.%s.over", waiting->name);
    bson_t *update = BCON_NEW("$set", "{", path, BCON_BOOL(true), "}", "$unset", "{", "awaits",
                              BCON_UTF8(""), "}");
    truce_status status = truce_commit_update(commit, QUEUE, &id, NULL, update, error);

    bson_destroy(update);
    bson_free(path);
    return status;
}

/* Suspends the job in a commit, unless its event exists or the timeout has passed. */
static truce_status wait_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct waiting *waiting = arg;
    bson_t document;
    int64_t until_ms;
    truce_status status = truce__job_read_mine(waiting->job, commit, &document, error);

    waiting->suspended = waiting->came = false;
    if (status || wait_is_over(&document, waiting->name) || wait_find_event(waiting, &document))
        goto out;
    if (!wait_until(&document, "waits", waiting->name, &until_ms))
        until_ms = wait_end_of(waiting);
    if (truce__clock_wall_ms() < until_ms)
        status = wait_suspend(waiting, commit, &document, "waits", until_ms, error);
    else
        status = wait_write_over(waiting, commit, error);
out:
    bson_destroy(&document);
    return status;
}

truce_status truce_job_wait(truce_job *job, const char *name, int64_t timeout_ms, bson_t *event,
                            bool *came, bson_error_t *error)
{
    RETURN_IF_NULL(event, error);
    RETURN_EMPTY_IF_NULL(name, event, error);
    RETURN_EMPTY_IF_NULL(came, event, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(job->queue));
    WAIT_LIMIT_SCOPE();
    struct waiting waiting = {
        .job = job, .name = name, .ms = timeout_ms, .event = BSON_INITIALIZER};
    truce_status status = wait_begin(&waiting, &job->awaited, "wait", error);

    if (!status && !wait_is_over(&job->document, name) &&
        !wait_find_event(&waiting, &job->document))
        status = wait_finish(&waiting, truce__queue_run(job->queue, NULL, wait_in, &waiting, error),
                             error);
    if (!status)
        BSON_APPEND_UTF8(&job->awaited, name, "wait");
    *came = !status && waiting.came;
    bson_init(event);
    if (*came)
        bson_concat(event, &waiting.event);
    bson_destroy(&waiting.event);
    return status;
}

/* ---- signals --------------------------------------------------------------------------------- */

/* The argument of the commit that sends an event to a job. */
struct signalling {
    truce_queue *queue;
    const bson_oid_t *id;
    const char *name;
    const bson_t *event;
};

/* Checks that a job can receive an event. Sets *known if it already has this one. */
static truce_status wait_check_room(const bson_t *job, const char *name, bool *known,
                                    bson_error_t *error)
{
    bson_t events;

    *known = false;
    if (!truce__job_live(job))
        return truce__fail(TRUCE_INVALID, error, "the job is %s and cannot receive an event",
                           truce__job_state(job));
    if (!truce__value_subdocument(job, "events", &events))
        return TRUCE_OK;
    *known = bson_has_field(&events, name);
    if (!*known && bson_count_keys(&events) >= JOB_EVENTS_MAX)
        return truce__fail(TRUCE_LIMIT, error,
                           "the job already has %d events, which is the maximum", JOB_EVENTS_MAX);
    return TRUCE_OK;
}

/* Makes the update that stores an event. A job that is suspended for this event becomes ready. */
static void signal_make(const struct signalling *signalling, const bson_t *job, bson_t *update)
{
    char *path = bson_strdup_printf("events.%s", signalling->name);
    int64_t now_ms = truce__clock_wall_ms();
    bool wakes = !strcmp(truce__job_state(job), "delayed") &&
                 !strcmp(truce__field_text(job, "awaits"), signalling->name);
    bson_t set, unset;

    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    truce__names_append(&set, path, signalling->event);
    if (wakes)
        truce__job_append_queued(&set, signalling->queue->name,
                                 (int32_t)truce__field_number(job, "priority"), now_ms, now_ms);
    bson_append_document_end(update, &set);
    if (wakes) {
        BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
        BSON_APPEND_UTF8(&unset, "awaits", "");
        bson_append_document_end(update, &unset);
    }
    bson_free(path);
}

/* Stores an event in a commit. A second event of the same name changes nothing. */
static truce_status signal_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct signalling *signalling = arg;
    bson_value_t id = truce_id_oid(signalling->id);
    bson_t job, update = BSON_INITIALIZER;
    bool known = false;
    truce_status status =
        truce__queue_read_job(signalling->queue, commit, signalling->id, &job, error);

    if (!status)
        status = wait_check_room(&job, signalling->name, &known, error);
    if (!status && !known) {
        signal_make(signalling, &job, &update);
        status = truce_commit_update(commit, QUEUE, &id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status;
}

truce_status truce_queue_signal(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                const char *name, const bson_t *event, bson_error_t *error)
{
    RETURN_IF_NULL(id, error);
    RETURN_IF_NULL(name, error);

    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    bson_t empty = BSON_INITIALIZER;
    struct signalling signalling = {queue, id, name, event ? event : &empty};
    truce_status status = truce__job_step_check(name, error);

    if (!status)
        status = truce__document_check(signalling.event, "event", error);
    if (!status && signalling.event->len > JOB_METADATA_BYTES_MAX)
        status =
            truce__fail(TRUCE_LIMIT, error, "the event has %u bytes, more than the maximum of %d",
                        signalling.event->len, JOB_METADATA_BYTES_MAX);
    if (!status)
        status = truce__queue_ready(queue, error);
    if (!status)
        status = truce__queue_run(queue, commit, signal_in, &signalling, error);
    bson_destroy(&empty);
    return status;
}
