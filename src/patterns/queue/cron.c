/*
 * Cron: jobs that the clock adds.
 *
 *     next <= now        a commit that read `next` as it was found: inserts the due jobs; sets
 *                        `next` to the first time after now (for @every, after the last due
 *                        time), and `last` to the last due time; adds the number of jobs to
 *                        `fired`
 *
 * Invariants:
 *
 *  QC1. A time gives a job only in the commit that moves `next` beyond it. If two processes fire
 *       the same line, one of them finds `next` moved.
 *  QC2. `next` is a time of the current line, so a changed line fires only at its new times.
 *  QC3. A paused line has no `next`, so none of its times is due, then or later.
 *
 * A crash may leave a commit, which another process completes or rolls back; until then no process
 * fires the line. A process decides by its own clock whether a time has come. Clocks never decide
 * whether a time gives a job twice.
 */
#include "truce/cron.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/reserved_fields.h"
#include "base/wait_limit.h"
#include "bson/value.h"
#include "patterns/queue/cron_schedule.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

/* The maximum number of cron lines that one pass fires. */
#define FIRED_MAX 100
/* A line that skips missed times still fires a time that was missed by less than this. */
#define GRACE_MS 60000

static const char *const missed_names[] = {
    [TRUCE_MISSED_ONCE] = "once", [TRUCE_MISSED_SKIP] = "skip", [TRUCE_MISSED_ALL] = "all"};

static const char *cron_zone(const bson_t *cron)
{
    const char *zone = truce__field_text(cron, "zone");

    return zone[0] ? zone : NULL;
}

static truce_status cron_schedule(const bson_t *cron, struct schedule *schedule,
                                  bson_error_t *error)
{
    return truce__schedule_parse(truce__field_text(cron, "line"), cron_zone(cron), schedule, error);
}

truce_status truce_cron_next(const char *line, const char *zone, int64_t after_ms, int64_t *next_ms,
                             bson_error_t *error)
{
    RETURN_IF_NULL(next_ms, error);

    *next_ms = 0;
    RETURN_IF_NULL(line, error);

    struct schedule schedule;
    truce_status status = truce__schedule_parse(line, zone, &schedule, error);

    if (!status && (after_ms < DATE_YEAR_0_MS || after_ms >= DATE_YEAR_10000_MS))
        status =
            truce__fail(TRUCE_INVALID, error,
                        "invalid time %" PRId64 " ms: expected a year from 0 to 9999", after_ms);
    if (!status)
        *next_ms = truce__schedule_next(&schedule, after_ms);
    return status;
}

/* ---- setting --------------------------------------------------------------------------------- */

struct setting_cron {
    const char *name, *line;
    const truce_cron_options *options;
    struct schedule schedule;
    /* The template of the jobs. Owned. */
    bson_t job;
};

static truce_status cron_check_name(const char *name, bson_error_t *error)
{
    size_t length = name ? strlen(name) : 0;

    if (length && length <= QUEUE_NAME_BYTES_MAX && bson_utf8_validate(name, length, false))
        return TRUCE_OK;
    return truce__fail(TRUCE_INVALID, error,
                       "invalid name of a cron line \"%.60s\": expected 1 to %d bytes of UTF-8",
                       name ? name : "", QUEUE_NAME_BYTES_MAX);
}

/* Checks the options of a cron line, and that its jobs have no option that only one job can
 * have. */
static truce_status cron_check_options(const truce_cron_options *options, bson_error_t *error)
{
    const truce_job_options *job = options->job;
    truce_status status = ROOM_CHECK(options, "truce_cron_options", error);

    if (status)
        return status;
    if ((unsigned)options->missed > TRUCE_MISSED_ALL)
        return truce__fail(
            TRUCE_INVALID, error,
            "unknown value %d of `missed`: expected TRUCE_MISSED_ONCE, TRUCE_MISSED_SKIP, or "
            "TRUCE_MISSED_ALL",
            (int)options->missed);
    if (options->most > CRON_MISSED_MAX)
        return truce__fail(TRUCE_INVALID, error, "`most` is %u, more than the maximum of %d",
                           options->most, CRON_MISSED_MAX);
    if (job && (job->delay_ms || job->run_at_ms || job->unique || job->unique_payload ||
                job->unique_period_ms || job->id || job->after_count || job->batch || job->open))
        return truce__fail(
            TRUCE_INVALID, error,
            "the jobs of a cron line cannot have a delay, a time, a key, or an id, and cannot "
            "wait for other jobs");
    return TRUCE_OK;
}

/* Returns the next time. If the line has not changed, its next time does not change either. */
static int64_t cron_next_ms(const struct setting_cron *setting, const bson_t *old)
{
    const char *zone = setting->options->zone ? setting->options->zone : "";
    int64_t next_ms;

    if (old && !strcmp(truce__field_text(old, "line"), setting->line) &&
        !strcmp(truce__field_text(old, "zone"), zone) && truce__job_date(old, "next", &next_ms))
        return next_ms;
    return truce__schedule_next(&setting->schedule, truce__clock_wall_ms());
}

static void cron_copy_field(bson_t *made, const bson_t *old, const char *name)
{
    bson_iter_t iter;

    if (old && bson_iter_init_find(&iter, old, name))
        BSON_APPEND_VALUE(made, name, bson_iter_value(&iter));
}

/* Makes the document of a line; `old` is the stored document, or NULL. */
static void cron_make(const struct setting_cron *setting, const bson_t *old, bson_t *made)
{
    const truce_cron_options *options = setting->options;
    bool paused = old && bson_has_field(old, "paused");

    BSON_APPEND_UTF8(made, "_id", setting->name);
    BSON_APPEND_UTF8(made, "line", setting->line);
    if (options->zone)
        BSON_APPEND_UTF8(made, "zone", options->zone);
    BSON_APPEND_UTF8(made, "missed", missed_names[options->missed]);
    if (options->missed == TRUCE_MISSED_ALL)
        BSON_APPEND_INT32(made, "most", options->most ? (int32_t)options->most : CRON_MISSED);
    BSON_APPEND_DOCUMENT(made, "job", &setting->job);
    if (paused)
        BSON_APPEND_BOOL(made, "paused", true);
    else
        BSON_APPEND_DATE_TIME(made, "next", cron_next_ms(setting, old));
    cron_copy_field(made, old, "fired");
    cron_copy_field(made, old, "last");
}

/* Inserts or replaces a cron line in a commit. */
static truce_status cron_set_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct setting_cron *setting = arg;
    bson_value_t id = truce_id_utf8(setting->name);
    bson_t old, made = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE_CRONS, &id, &old, error);

    if (!status) {
        cron_make(setting, &old, &made);
        status = truce_commit_replace(commit, QUEUE_CRONS, &id, NULL, &made, error);
    } else if (status == TRUCE_NOT_FOUND) {
        cron_make(setting, NULL, &made);
        status = truce_commit_insert(commit, QUEUE_CRONS, &made, error);
    }
    bson_destroy(&made);
    bson_destroy(&old);
    return status;
}

/* Checks that one commit can hold all jobs that may become due at the same time. */
static truce_status cron_check_room(const struct setting_cron *setting, bson_error_t *error)
{
    const truce_cron_options *options = setting->options;
    uint32_t most = options->missed != TRUCE_MISSED_ALL ? 1
                    : options->most                     ? options->most
                                                        : CRON_MISSED;

    if ((uint64_t)most * setting->job.len <= 2 * JOB_PAYLOAD_BYTES_MAX)
        return TRUCE_OK;
    return truce__fail(TRUCE_LIMIT, error,
                       "%u missed jobs of %u bytes each exceed %d bytes: set a smaller `most`",
                       most, setting->job.len, 2 * JOB_PAYLOAD_BYTES_MAX);
}

truce_status truce_cron_set(truce_queue *queue, const char *name, const char *line,
                            const bson_t *payload, const truce_cron_options *options,
                            bson_error_t *error)
{
    DEADLINE_SCOPE(truce__queue_deadline_ms(queue));
    WAIT_LIMIT_SCOPE();
    static const truce_cron_options defaults;
    static const char *const next[] = {"next", NULL};
    struct setting_cron setting = {name, line, options ? options : &defaults,
                                   .job = BSON_INITIALIZER};
    truce_status status = cron_check_name(name, error);

    if (!status)
        status = cron_check_options(setting.options, error);
    if (!status && !line)
        status = truce__fail(TRUCE_INVALID, error, "the cron line is missing");
    if (!status)
        status = truce__schedule_parse(line, setting.options->zone, &setting.schedule, error);
    if (!status)
        status = truce__job_template(queue, payload, setting.options->job, &setting.job, error);
    if (!status)
        status = cron_check_room(&setting, error);
    if (!status)
        status = truce__queue_index(queue->store, QUEUE_CRONS, next[0], false, next, error);
    if (!status)
        status = truce__queue_run(queue, NULL, cron_set_in, &setting, error);
    bson_destroy(&setting.job);
    return status;
}

/* ---- removing and pausing -------------------------------------------------------------------- */

enum cron_control { CRON_REMOVE, CRON_PAUSE, CRON_RESUME };

struct controlling {
    const char *name;
    enum cron_control control;
};

/* Makes the update that pauses or resumes a cron line. Only a line that is not paused has a next
 * time (QC3). */
static truce_status cron_control_update(const struct controlling *controlling, const bson_t *cron,
                                        bson_t *update, bson_error_t *error)
{
    struct schedule schedule;
    bson_t set, unset;
    truce_status status = cron_schedule(cron, &schedule, error);

    if (status)
        return status;
    BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
    if (controlling->control == CRON_PAUSE)
        BSON_APPEND_BOOL(&set, "paused", true);
    else
        BSON_APPEND_DATE_TIME(&set, "next",
                              truce__schedule_next(&schedule, truce__clock_wall_ms()));
    bson_append_document_end(update, &set);
    /* A paused line has no next time (QC3). */
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, controlling->control == CRON_PAUSE ? "next" : "paused", "");
    bson_append_document_end(update, &unset);
    return TRUCE_OK;
}

/* Pauses, resumes, or removes a cron line in a commit. Does nothing if its state is the wanted one
 * already. */
static truce_status cron_control_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct controlling *controlling = arg;
    bson_value_t id = truce_id_utf8(controlling->name);
    bson_t cron, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE_CRONS, &id, &cron, error);
    bool paused = !status && bson_has_field(&cron, "paused");

    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the cron line %s does not exist",
                             controlling->name);
    if (status ||
        (controlling->control != CRON_REMOVE && paused == (controlling->control == CRON_PAUSE)))
        goto out;
    if (controlling->control == CRON_REMOVE)
        status = truce_commit_remove(commit, QUEUE_CRONS, &id, NULL, error);
    else
        status = cron_control_update(controlling, &cron, &update, error);
    if (!status && controlling->control != CRON_REMOVE)
        status = truce_commit_update(commit, QUEUE_CRONS, &id, NULL, &update, error);
out:
    bson_destroy(&update);
    bson_destroy(&cron);
    return status;
}

static truce_status queue_cron_control(truce_store *store, const char *name, enum cron_control what,
                                       bson_error_t *error)
{
    struct controlling controlling = {name, what};
    truce_status status = cron_check_name(name, error);

    return status ? status : truce_transact(store, cron_control_in, &controlling, NULL, error);
}

truce_status truce_cron_remove(truce_store *store, const char *name, bson_error_t *error)
{
    return queue_cron_control(store, name, CRON_REMOVE, error);
}

truce_status truce_cron_pause(truce_store *store, const char *name, bson_error_t *error)
{
    return queue_cron_control(store, name, CRON_PAUSE, error);
}

truce_status truce_cron_resume(truce_store *store, const char *name, bson_error_t *error)
{
    return queue_cron_control(store, name, CRON_RESUME, error);
}

/* ---- firing ---------------------------------------------------------------------------------- */

struct firing {
    bson_value_t id;
    /* The value of `next` that this process found (QC1). */
    int64_t next_ms;
};

static uint32_t cron_most_of(const bson_t *cron)
{
    int64_t most = truce__field_number(cron, "most");

    if (strcmp(truce__field_text(cron, "missed"), missed_names[TRUCE_MISSED_ALL]))
        return 1;
    return most < 1 ? 1 : most > CRON_MISSED_MAX ? CRON_MISSED_MAX : (uint32_t)most;
}

static truce_status cron_add_one(truce_commit *commit, const bson_t *cron, const bson_t *template,
                                 int64_t at_ms, bson_error_t *error)
{
    bson_t *more = BCON_NEW("cron", "{", "name", BCON_UTF8(truce__field_text(cron, "_id")), "at",
                            BCON_DATE_TIME(at_ms), "}");
    truce_status status = truce__job_from_template(commit, template, more, error);

    bson_destroy(more);
    return status;
}

/* Adds one job for each due time, in the commit that moves `next` (QC1). */
static truce_status cron_add_due(truce_commit *commit, const bson_t *cron, const int64_t *ticks,
                                 uint32_t count, bson_error_t *error)
{
    bson_t template;
    truce_status status = TRUCE_OK;

    if (!truce__value_subdocument(cron, "job", &template))
        return truce__fail(TRUCE_CORRUPT, error,
                           "the cron line \"%s\" of " QUEUE_CRONS
                           " is damaged, because it has no job: set it again",
                           truce__field_text(cron, "_id"));
    for (uint32_t i = 0; i < count && !status; i++)
        status = cron_add_one(commit, cron, &template, ticks[i], error);
    return status;
}

/* Adds the jobs of the due times and stores the next time, in one commit. Does nothing if this
 * clock shows no due time. */
static truce_status cron_fire_now(truce_commit *commit, const struct firing *firing,
                                  const bson_t *cron, bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), ticks[CRON_MISSED_MAX];
    bool skips = !strcmp(truce__field_text(cron, "missed"), missed_names[TRUCE_MISSED_SKIP]), left;
    struct schedule schedule;
    bson_t *update = NULL;
    uint32_t count;
    truce_status status = cron_schedule(cron, &schedule, error);

    if (status)
        return status;
    count = truce__schedule_between(&schedule, firing->next_ms, now_ms, cron_most_of(cron), ticks,
                                    &left);
    if (!count)
        return TRUCE_OK; /* The clock was set back, so no time is due. */
    update = BCON_NEW("$set", "{", "next",
                      BCON_DATE_TIME(truce__schedule_next(
                          &schedule, schedule.every_ms ? ticks[count - 1] : now_ms)),
                      "last", BCON_DATE_TIME(ticks[count - 1]), "}");
    if (skips && now_ms - ticks[count - 1] >= GRACE_MS)
        count = 0;
    BCON_APPEND(update, "$inc", "{", "fired", BCON_INT64(count), "}");
    status = cron_add_due(commit, cron, ticks, count, error);
    if (!status) /* The jobs and the next time are written by one commit (QC1). */
        status = truce_commit_update(commit, QUEUE_CRONS, &firing->id, NULL, update, error);
    bson_destroy(update);
    return status;
}

static truce_status cron_fire_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct firing *firing = arg;
    int64_t next_ms;
    bson_t cron;
    truce_status status = truce_commit_read(commit, QUEUE_CRONS, &firing->id, &cron, error);

    if (!status && truce__job_date(&cron, "next", &next_ms) && next_ms == firing->next_ms)
        status = cron_fire_now(commit, firing, &cron, error);
    bson_destroy(&cron);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__cron_fire_one(truce_store *store, const bson_t *cron,
                                  const truce_commit_options *options, bson_error_t *error)
{
    struct firing firing = {.id = truce__document_id(cron)};
    truce_status status;

    if (firing.id.value_type != BSON_TYPE_UTF8 || !truce__job_date(cron, "next", &firing.next_ms))
        return TRUCE_OK; /* The document is not a cron line of truce; the check reports it. */
    status = truce_transact(store, cron_fire_in, &firing, options, error);
    /* LOCKED means that another process is firing the line. */
    return status == TRUCE_LOCKED ? TRUCE_OK : status;
}

bson_t *truce__cron_due(void)
{
    return BCON_NEW("next", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
}

truce_status truce__cron_fire(const truce_queue *queue, bson_error_t *error)
{
    bson_t *filter = truce__cron_due(), *found[FIRED_MAX];
    truce_find_options options = {.limit = FIRED_MAX};
    truce_commit_options firing = {.mechanism = queue->mechanism,
                                   .lease_ms = truce__queue_commit_lease(queue)};
    truce_cursor *cursor = NULL;
    const bson_t *cron = NULL;
    size_t count = 0;
    truce_status status;

    BSON_APPEND_UTF8(filter, "job.queue", queue->name);
    status = truce_find(queue->store, QUEUE_CRONS, filter, &options, &cursor, error);
    while (!status && count < FIRED_MAX) {
        status = truce_cursor_next(cursor, &cron, error);
        if (status || !cron)
            break;
        found[count++] = bson_copy(cron);
    }
    truce_cursor_close(cursor);
    bson_destroy(filter);
    for (size_t i = 0; i < count; i++) {
        /* A faulty line must not keep workers from their jobs. The sweep reports it. */
        bson_error_t ignored;

        (void)truce__cron_fire_one(queue->store, found[i], &firing, &ignored);
        bson_destroy(found[i]);
    }
    return status;
}

truce_status truce__cron_next_due(const truce_queue *queue, int64_t *due_ms, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("next", "{", "$gt", BCON_DATE_TIME(truce__clock_wall_ms()), "}",
                              "job.queue", BCON_UTF8(queue->name)),
           *sort = BCON_NEW("next", BCON_INT32(1)), cron;
    const truce_find_options options = {.sort = sort, .early = true};
    truce_status status = truce_find_one(queue->store, QUEUE_CRONS, filter, &options, &cron, error);

    *due_ms = INT64_MAX;
    if (!status)
        (void)truce__job_date(&cron, "next", due_ms);
    bson_destroy(&cron);
    bson_destroy(sort);
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

const char *truce__cron_fault(const bson_t *cron)
{
    struct schedule schedule;
    bson_error_t reason;
    int64_t next_ms;
    bson_t job;

    if (cron_schedule(cron, &schedule, &reason))
        return "the line or its time zone is invalid: it never fires";
    if (!truce__value_subdocument(cron, "job", &job) || !truce__field_text(&job, "queue")[0] ||
        !bson_has_field(&job, "payload"))
        return "the line has no job: it never fires";
    if (truce__job_date(cron, "next", &next_ms) == bson_has_field(cron, "paused"))
        return "a line must either have a next time or be paused";
    return NULL;
}
