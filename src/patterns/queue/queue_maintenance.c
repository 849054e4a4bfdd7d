/*
 * The check and the sweep of queues.
 *
 * The sweep does the following:
 *
 *   - It fires due cron lines.
 *   - It makes due delayed jobs ready, also in queues without claims.
 *   - It releases jobs whose workers are gone.
 *   - It continues lanes and workflows that stalled.
 *   - It removes expired jobs with their keys.
 *
 * A sweep makes a limited number of steps. Several processes may sweep concurrently.
 *
 * A job is removed by a removal that compares `expires`. Before this, its key is removed if the key
 * still names the job. A crash between the two leaves a job without the document of its key. Such a
 * job has expired, so it blocks no new job. A job that others wait for is discarded first, which
 * notifies them.
 */
#include "patterns/queue/queue_maintenance.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/array.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

/* ---- the check ------------------------------------------------------------------------------- */

/*
 * The check finds:
 *
 *   - violations of QJ1 of queue.c.
 *   - keys without a job.
 *   - cron lines that can never fire.
 *   - limiters and lanes with wrong counts.
 *   - jobs that wait in a lane that does not exist.
 *   - jobs with a wrong number of awaited jobs.
 */

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Returns how the job violates QJ1, or NULL if it does not. */
static const char *queue_fault(const bson_t *job)
{
    const char *state = truce__job_state(job);
    bool live = truce__job_live(job);
    bson_iter_t iter, field;
    bson_oid_t token;
    int64_t at_ms;

    if (!live && strcmp(state, "done") && strcmp(state, "dead") && strcmp(state, "cancelled") &&
        strcmp(state, "discarded"))
        return "the job has an unknown state";
    if (live != bson_has_field(job, "undone"))
        return live ? "a live job has no \"undone\": no worker can claim it"
                    : "an ended job is in the index of live jobs";
    if (!strcmp(state, "dead") != bson_has_field(job, "dead"))
        return "\"dead\" does not match the state";
    if (!live && strcmp(state, "dead") && bson_has_field(job, "then") &&
        !bson_has_field(job, "stalled"))
        return "the job has ended without notifying the jobs that wait for it";
    if (!live)
        return NULL;
    if (!bson_iter_init(&iter, job) || !bson_iter_find_descendant(&iter, "undone.state", &field) ||
        !BSON_ITER_HOLDS_UTF8(&field) || strcmp(bson_iter_utf8(&field, NULL), state))
        return "\"undone.state\" is not the state";
    if (!bson_iter_init(&iter, job) || !bson_iter_find_descendant(&iter, "undone.queue", &field) ||
        !BSON_ITER_HOLDS_UTF8(&field) ||
        strcmp(bson_iter_utf8(&field, NULL), truce__field_text(job, "queue")))
        return "\"undone.queue\" is not the queue";
    if (!truce__job_date(job, "undone.at", &at_ms))
        return "\"undone.at\" is not a date";
    if (!strcmp(state, "running") && !truce__job_token(job, &token))
        return "a running job has no lease: no process can release it";
    return NULL;
}

/* Makes the update that derives `undone` and `dead` from the state. A running job loses its lease
 * and becomes ready again. A waiting job stays in its lane. */
static void queue_make_repair(const bson_t *job, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms(), at_ms;
    const char *queue = truce__field_text(job, "queue");
    bool delayed = !strcmp(truce__job_state(job), "delayed") &&
                   truce__job_date(job, "undone.at", &at_ms) && at_ms > now_ms;
    bson_t set, unset, letter;

    if (truce__job_live(job)) {
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        if (truce__job_is_held(job))
            truce__job_append_held(&set, truce__job_state(job), queue, now_ms, now_ms);
        else
            truce__job_append_queued(&set, queue, (int32_t)truce__field_number(job, "priority"),
                                     delayed ? at_ms : now_ms, now_ms);
        bson_append_document_end(update, &set);
        BCON_APPEND(update, "$unset", "{", "lease", BCON_UTF8(""), "dead", BCON_UTF8(""), "}");
        return;
    }
    if (!strcmp(truce__job_state(job), "dead")) {
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        BSON_APPEND_DOCUMENT_BEGIN(&set, "dead", &letter);
        BSON_APPEND_UTF8(&letter, "queue", queue);
        BSON_APPEND_DATE_TIME(&letter, "at", now_ms);
        bson_append_document_end(&set, &letter);
        bson_append_document_end(update, &set);
    }
    if (strcmp(truce__job_state(job), "dead") && bson_has_field(job, "then"))
        BCON_APPEND(update, "$set", "{", "stalled", BCON_BOOL(true), "}");
    BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &unset);
    BSON_APPEND_UTF8(&unset, "undone", "");
    if (strcmp(truce__job_state(job), "dead"))
        BSON_APPEND_UTF8(&unset, "dead", "");
    bson_append_document_end(update, &unset);
}

struct job_repair {
    bson_value_t id;
    bool repaired;
};

/* Repairs a job in a commit, if it still has a fault. */
static truce_status queue_repair_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct job_repair *repair = arg;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE, &repair->id, &job, error);

    repair->repaired = !status && queue_fault(&job);
    if (repair->repaired) {
        queue_make_repair(&job, &update);
        status = truce_commit_update(commit, QUEUE, &repair->id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool queue_can_repair(const bson_t *job)
{
    const char *state = truce__job_state(job);

    return truce__field_text(job, "queue")[0] &&
           (truce__job_live(job) || !strcmp(state, "done") || !strcmp(state, "dead") ||
            !strcmp(state, "cancelled") || !strcmp(state, "discarded"));
}

/* Reports a job that violates QJ1. A repair derives `undone` from the state. */
static truce_status queue_check_job(struct check *check, const char *collection, const bson_t *job,
                                    void *arg, bson_error_t *error)
{
    struct job_repair repair = {.id = truce__document_id(job)};
    const char *fault = bson_has_field(job, "_intent") ? NULL : queue_fault(job);
    struct finding finding = {.rule = "job",
                              .collection = collection,
                              .text = fault,
                              .repair = queue_can_repair(job)
                                            ? "derive \"undone\" from the state"
                                            : "none: inspect the document by hand",
                              .id = &repair.id};
    truce_status status = TRUCE_OK;

    (void)arg;
    check->report->documents++;
    if (!fault)
        return TRUCE_OK;
    if (queue_can_repair(job) && truce__check_repairs(check, &finding))
        status = truce_transact(check->store, queue_repair_in, &repair, NULL, error);
    if (!status)
        truce__check_report(check, &finding, repair.repaired);
    return status;
}

/* Reports a key whose job does not exist. A repair removes the key, unless it has changed since. */
static truce_status queue_check_key(struct check *check, const char *collection, const bson_t *key,
                                    void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(key);
    const struct finding finding = {.rule = "job-key",
                                    .collection = collection,
                                    .text = "the job of this key does not exist",
                                    .repair = "remove the key, if it still names that job",
                                    .id = &id};
    bson_t filter = BSON_INITIALIZER, found;
    truce_write_result result = {0};
    bson_iter_t job;
    truce_status status;

    (void)arg;
    if (bson_has_field(key, "_intent"))
        return TRUCE_OK;
    if (bson_iter_init_find(&job, key, "job"))
        BSON_APPEND_VALUE(&filter, "_id", bson_iter_value(&job));
    status = truce_find_one(check->store, QUEUE, &filter, NULL, &found, error);
    bson_destroy(&found);
    if (status == TRUCE_NOT_FOUND) {
        status = TRUCE_OK;
        bson_reinit(&filter);
        bson_concat(&filter, key);
        truce__intent_append_absent(&filter);
        if (truce__check_repairs(check, &finding))
            status = truce_remove(check->store, collection, &filter, NULL, &result, error);
        if (!status)
            truce__check_report(check, &finding, result.removed > 0);
    }
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

/* Marks the keys whose job does not exist. */
static truce_status queue_suspect_keys(struct check *check, bson_t *const *keys, uint32_t count,
                                       bool *suspect, void *arg, bson_error_t *error)
{
    struct maintenance_links links = {.count = 0};
    bson_iter_t job;

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        if (bson_iter_init_find(&job, keys[i], "job"))
            truce__maintenance_link(&links, bson_iter_value(&job), i);
        else
            suspect[i] = true;
    }
    return truce__maintenance_follow(check, QUEUE, NULL, &links, suspect, error);
}

/* Reports a cron line that is invalid or can never fire. */
static truce_status queue_check_cron(struct check *check, const char *collection,
                                     const bson_t *cron, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(cron);
    const struct finding finding = {.rule = "cron",
                                    .collection = collection,
                                    .text = truce__cron_fault(cron),
                                    .repair = "none: set the line again, or remove it",
                                    .id = &id};

    (void)arg, (void)error;
    check->report->documents++;
    if (finding.text && !bson_has_field(cron, "_intent"))
        truce__check_report(check, &finding, false);
    return TRUCE_OK;
}

/* ---- counts ---------------------------------------------------------------------------------- */

/* A document with a count of jobs: a limiter, a lane, or a job that waits for others. Every job
 * that changes the count writes the document. A count of the jobs is therefore right if the
 * document is the same before and after it. */
struct tally {
    /* The document whose count is checked, as it was before the count. */
    const bson_t *seen;
    /* The filter of the jobs that the count must include. */
    const bson_t *jobs;
    /* The stored count. */
    int64_t stored;
    truce_status (*repair)(truce_commit *commit, const bson_t *seen, int64_t count,
                           bson_error_t *error);
    struct finding finding;
    int64_t count;
    bool repaired;
};

static truce_status tally_repair_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct tally *tally = arg;
    bson_t found;
    truce_status status =
        truce_commit_read(commit, tally->finding.collection, tally->finding.id, &found, error);

    tally->repaired = !status && bson_equal(&found, tally->seen);
    if (tally->repaired)
        status = tally->repair(commit, &found, tally->count, error);
    bson_destroy(&found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reports a stored count that differs from the number of jobs, if the document did not change
 * during the count. */
static truce_status tally_check(struct check *check, struct tally *tally, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, again;
    truce_status status = truce_count(check->store, QUEUE, tally->jobs, NULL, &tally->count, error);

    if (status)
        goto out;
    BSON_APPEND_VALUE(&filter, "_id", tally->finding.id);
    status = truce_find_one(check->store, tally->finding.collection, &filter, NULL, &again, error);
    if (!status && bson_equal(&again, tally->seen) && !bson_has_field(tally->seen, "_intent") &&
        tally->count != tally->stored) {
        if (truce__check_repairs(check, &tally->finding))
            status = truce_transact(check->store, tally_repair_in, tally, NULL, error);
        if (!status)
            truce__check_report(check, &tally->finding, tally->repaired);
    }
    bson_destroy(&again);
out:
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Makes the key of a document's count. */
static void tally_key(char key[24], struct value id)
{
    snprintf(key, 24, "%016llx", (unsigned long long)truce__value_hash(id));
}

/* Returns the array of a field of the documents' _ids, or of the _ids themselves (`field` NULL). */
static bson_t *tally_ids(bson_t *const *documents, uint32_t count, const char *field)
{
    bson_t *ids = bson_new(), borrowed;
    struct array list = {.to = ids};
    bson_iter_t at;

    for (uint32_t i = 0; i < count; i++) {
        if (!field)
            truce__array_add(&list,
                             truce__value_field(truce__value_document(documents[i]), "_id", 3));
        else if (truce__value_subdocument(documents[i], "_id", &borrowed) &&
                 bson_iter_init_find(&at, &borrowed, field))
            truce__array_add(&list, truce__value_of_iter(&at));
    }
    return ids;
}

/* Marks each document whose stored count differs from the number that `by` counts. `by` is a
 * pipeline that returns {_id, n}; the function destroys it. */
static truce_status tally_suspects(struct check *check, bson_t *by, bson_t *const *documents,
                                   uint32_t count, int64_t (*stored)(const bson_t *document),
                                   bool *suspect, bson_error_t *error)
{
    bson_t counted = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *group;
    char key[24];
    bson_iter_t id, at;
    truce_status status = truce_aggregate(check->store, QUEUE, by, NULL, &cursor, error);

    while (!status) {
        status = truce_cursor_next(cursor, &group, error);
        if (status || !group)
            break;
        if (!bson_iter_init_find(&id, group, "_id"))
            continue;
        tally_key(key, truce__value_of_iter(&id));
        BSON_APPEND_INT64(&counted, key, truce__field_number(group, "n"));
    }
    truce_cursor_close(cursor);
    for (uint32_t i = 0; !status && i < count; i++) {
        bson_iter_init_find(&id, documents[i], "_id");
        tally_key(key, truce__value_of_iter(&id));
        suspect[i] = (bson_iter_init_find(&at, &counted, key) ? bson_iter_as_int64(&at) : 0) !=
                     stored(documents[i]);
    }
    bson_destroy(&counted);
    bson_destroy(by);
    return status;
}

static truce_status queue_repair_limiter(truce_commit *commit, const bson_t *limiter, int64_t count,
                                         bson_error_t *error)
{
    bson_value_t id = truce__document_id(limiter);
    bson_t *update = BCON_NEW("$set", "{", "running", BCON_INT64(count), "}");
    truce_status status = truce_commit_update(commit, QUEUE_LIMITERS, &id, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* Compares the count of a limiter with its jobs. */
static truce_status queue_check_limiter(struct check *check, const char *collection,
                                        const bson_t *limiter, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(limiter);
    bson_t *jobs = BCON_NEW("undone.state", BCON_UTF8("running"));
    struct tally tally = {
        .seen = limiter,
        .jobs = jobs,
        .stored = truce__field_number(limiter, "running"),
        .repair = queue_repair_limiter,
        .finding = {.rule = "job-limiter",
                    .collection = collection,
                    .text = "\"running\" is not the number of running jobs of this limit",
                    .repair = "count the jobs again",
                    .id = &id}};
    truce_status status;

    (void)arg;
    BSON_APPEND_VALUE(jobs, "lease.limiter", &id);
    status = tally_check(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

static int64_t queue_limiter_running(const bson_t *limiter)
{
    return truce__field_number(limiter, "running");
}

static truce_status queue_suspect_limiters(struct check *check, bson_t *const *limiters,
                                           uint32_t count, bool *suspect, void *arg,
                                           bson_error_t *error)
{
    bson_t *ids = tally_ids(limiters, count, NULL);
    bson_t *by =
        BCON_NEW("0", "{", "$match", "{", "undone.state", BCON_UTF8("running"), "lease.limiter",
                 "{", "$in", BCON_ARRAY(ids), "}", "}", "}", "1", "{", "$group", "{", "_id",
                 BCON_UTF8("$lease.limiter"), "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(ids);
    return tally_suspects(check, by, limiters, count, queue_limiter_running, suspect, error);
}

static int64_t queue_lane_out(const bson_t *lane)
{
    return truce__field_number(lane, "out");
}

static truce_status queue_suspect_lanes(struct check *check, bson_t *const *lanes, uint32_t count,
                                        bool *suspect, void *arg, bson_error_t *error)
{
    bson_t *names = tally_ids(lanes, count, "lane");
    bson_t *by = BCON_NEW("0", "{", "$match", "{", "lane.name", "{", "$in", BCON_ARRAY(names), "}",
                          "undone.state", "{", "$in", "[", BCON_UTF8("ready"), BCON_UTF8("delayed"),
                          BCON_UTF8("running"), "]", "}", "}", "}", "1", "{", "$group", "{", "_id",
                          "{", "queue", BCON_UTF8("$queue"), "lane", BCON_UTF8("$lane.name"), "}",
                          "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(names);
    return tally_suspects(check, by, lanes, count, queue_lane_out, suspect, error);
}

static bson_t *queue_lane_filter(const bson_t *id)
{
    return BCON_NEW("lane.name", BCON_UTF8(truce__field_text(id, "lane")), "queue",
                    BCON_UTF8(truce__field_text(id, "queue")), "undone.state", "{", "$in", "[",
                    BCON_UTF8("ready"), BCON_UTF8("delayed"), BCON_UTF8("running"), "]", "}");
}

/* Compares the count of a lane with its jobs. */
static truce_status queue_check_lane(struct check *check, const char *collection,
                                     const bson_t *lane, void *arg, bson_error_t *error)
{
    bson_value_t value = truce__document_id(lane);
    struct tally tally = {.seen = lane,
                          .stored = truce__field_number(lane, "out"),
                          .repair = truce__lane_repair,
                          .finding = {.rule = "job-lane",
                                      .collection = collection,
                                      .text =
                                          "\"out\" is not the number of the lane's jobs that are "
                                          "ready, delayed, or running",
                                      .repair = "count the jobs again, and let the next ones out",
                                      .id = &value}};
    truce_status status;
    bson_t id, *jobs;

    (void)arg;
    if (bson_has_field(lane, "job") || !truce__value_subdocument(lane, "_id", &id))
        return TRUCE_OK; /* The document is the position of a waiting job, not a lane. */
    jobs = queue_lane_filter(&id);
    tally.jobs = jobs;
    status = tally_check(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

/* ---- jobs that wait for others --------------------------------------------------------------- */

static int64_t queue_after_waits(const bson_t *job)
{
    return truce__workflow_pending(job) - truce__workflow_is_open(job);
}

/* Compares the count of awaited jobs with the jobs. */
static truce_status queue_check_after(struct check *check, const char *collection,
                                      const bson_t *job, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t *jobs = bson_new();
    struct tally tally = {
        .seen = job,
        .jobs = jobs,
        .stored = queue_after_waits(job),
        .repair = truce__workflow_repair,
        .finding = {.rule = "job-after",
                    .collection = collection,
                    .text = "\"after.left\" is not the number of jobs that it "
                            "waits for",
                    .repair = "count the jobs again, and start the job if none is left",
                    .id = &id}};
    truce_status status;

    (void)arg;
    BSON_APPEND_VALUE(jobs, "then", &id);
    status = tally_check(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

static truce_status queue_suspect_after(struct check *check, bson_t *const *jobs, uint32_t count,
                                        bool *suspect, void *arg, bson_error_t *error)
{
    bson_t *ids = tally_ids(jobs, count, NULL);
    bson_t *by =
        BCON_NEW("0", "{", "$match", "{", "then", "{", "$in", BCON_ARRAY(ids), "}", "}", "}", "1",
                 "{", "$unwind", BCON_UTF8("$then"), "}", "2", "{", "$match", "{", "then", "{",
                 "$in", BCON_ARRAY(ids), "}", "}", "}", "3", "{", "$group", "{", "_id",
                 BCON_UTF8("$then"), "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(ids);
    return tally_suspects(check, by, jobs, count, queue_after_waits, suspect, error);
}

static truce_status queue_check_blocked(struct check *check, bson_error_t *error)
{
    bson_t *blocked = BCON_NEW("undone.state", BCON_UTF8("blocked"));
    truce_status status = truce__check_suspects(check, QUEUE, blocked, queue_suspect_after,
                                                queue_check_after, NULL, error);

    bson_destroy(blocked);
    return status;
}

/* ---- jobs that wait in a lane ---------------------------------------------------------------- */

struct lane_repair {
    bson_value_t id;
    bool repaired;
};

/* Lets a waiting job enter its lane again. The first such job creates the lane. */
static truce_status lane_repair_entry(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct lane_repair *repair = arg;
    int64_t now_ms = truce__clock_wall_ms();
    bson_t job, update = BSON_INITIALIZER, set;
    truce_status status = truce_commit_read(commit, QUEUE, &repair->id, &job, error);

    repair->repaired = !status && !strcmp(truce__job_state(&job), "waiting");
    if (repair->repaired) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        status = truce__job_append_started(commit, &job, now_ms, now_ms, &set, error);
        bson_append_document_end(&update, &set);
        if (!status)
            status = truce_commit_update(commit, QUEUE, &repair->id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Reports a job that waits in a lane which does not exist. Lanes that released the job in the
 * meantime cause no report. */
static truce_status check_waiting_job(struct check *check, const char *collection,
                                      const bson_t *job, void *arg, bson_error_t *error)
{
    struct lane_repair repair = {.id = truce__document_id(job)};
    const struct finding finding = {.rule = "job-lane",
                                    .collection = collection,
                                    .text = "the job waits in a lane that does not exist",
                                    .repair = "let the job enter the lane again",
                                    .id = &repair.id};
    struct job_lane lane = {.name = ""};
    bson_t *filter, found;
    truce_status status;

    (void)arg;
    (void)truce__job_lane(job, &lane);
    filter = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(job, "queue")), "lane",
                      BCON_UTF8(lane.name), "}");
    status = truce_find_one(check->store, QUEUE_LANES, filter, NULL, &found, error);
    bson_destroy(&found);
    /* The lane may have released the job and ended since, so the state of the job is read again. */
    if (status == TRUCE_NOT_FOUND) {
        bson_reinit(filter);
        BSON_APPEND_VALUE(filter, "_id", &repair.id);
        BSON_APPEND_UTF8(filter, "state", "waiting");
        status = truce_find_one(check->store, QUEUE, filter, NULL, &found, error);
        bson_destroy(&found);
        if (!status && repair.id.value_type == BSON_TYPE_OID) {
            if (truce__check_repairs(check, &finding))
                status = truce_transact(check->store, lane_repair_entry, &repair, NULL, error);
            if (!status)
                truce__check_report(check, &finding, repair.repaired);
        }
    }
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Marks the waiting jobs whose lane has no document. */
static truce_status suspect_waiting_jobs(struct check *check, bson_t *const *jobs, uint32_t count,
                                         bool *suspect, void *arg, bson_error_t *error)
{
    struct maintenance_links links = {.count = 0};

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        struct job_lane lane = {.name = ""};
        bson_value_t id;
        bson_t *holder;

        (void)truce__job_lane(jobs[i], &lane);
        holder = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(jobs[i], "queue")),
                          "lane", BCON_UTF8(lane.name), "}");
        id = truce__document_id(holder);
        truce__maintenance_link(&links, &id, i);
        bson_destroy(holder);
    }
    return truce__maintenance_follow(check, QUEUE_LANES, NULL, &links, suspect, error);
}

static truce_status queue_check_lanes(struct check *check, bson_error_t *error)
{
    bson_t *waiting = BCON_NEW("undone.state", BCON_UTF8("waiting"));
    truce_status status = truce__check_suspects(check, QUEUE_LANES, NULL, queue_suspect_lanes,
                                                queue_check_lane, NULL, error);

    truce__intent_append_absent(waiting);
    if (!status)
        status = truce__check_suspects(check, QUEUE, waiting, suspect_waiting_jobs,
                                       check_waiting_job, NULL, error);
    bson_destroy(waiting);
    return status;
}

/* ---- the whole check ------------------------------------------------------------------------- */

truce_status truce__queue_check(struct check *check, bson_error_t *error)
{
    truce_status status = truce__check_each(check, QUEUE, NULL, queue_check_job, NULL, error);

    if (!status)
        status = truce__check_suspects(check, QUEUE_KEYS, NULL, queue_suspect_keys, queue_check_key,
                                       NULL, error);
    if (!status)
        status = truce__check_each(check, QUEUE_CRONS, NULL, queue_check_cron, NULL, error);
    if (!status)
        status = truce__check_suspects(check, QUEUE_LIMITERS, NULL, queue_suspect_limiters,
                                       queue_check_limiter, NULL, error);
    if (!status)
        status = queue_check_lanes(check, error);
    return status ? status : queue_check_blocked(check, error);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Removes the unique key of a job, if it still names the job. */
static truce_status queue_remove_key(truce_store *store, const bson_t *job, const bson_value_t *id,
                                     bson_error_t *error)
{
    const char *key = truce__field_text(job, "key");
    bson_t *filter;
    truce_status status;

    if (!key[0])
        return TRUCE_OK;
    filter = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(job, "queue")), "key",
                      BCON_UTF8(key), "}");
    BSON_APPEND_VALUE(filter, "job", id);
    truce__intent_append_absent(filter);
    status = truce_remove(store, QUEUE_KEYS, filter, NULL, NULL, error);
    bson_destroy(filter);
    return status;
}

/* Appends the condition that no commit holds the job and that all jobs which waited for it were
 * notified. */
static void queue_append_settled(bson_t *filter)
{
    BCON_APPEND(filter, "stalled", "{", "$exists", BCON_BOOL(false), "}");
    truce__intent_append_absent(filter);
}

/* Discards a dead job whose retry others wait for: it expires, and the discard notifies them. */
static truce_status queue_discard_dead(struct sweep *sweep, const bson_t *job, bson_error_t *error)
{
    truce_queue_options options = {.queue = truce__field_text(job, "queue")};
    truce_queue *queue = truce_queue_new(sweep->store, &options);
    bson_value_t id = truce__document_id(job);
    truce_status status = id.value_type == BSON_TYPE_OID
                              ? truce_queue_discard(queue, NULL, &id.value.v_oid, error)
                              : TRUCE_OK;

    truce_queue_free(queue);
    return status;
}

/* Removes an expired job and its key. A job that others wait for is discarded instead. */
static truce_status queue_prune(struct sweep *sweep, const char *collection, const bson_t *job,
                                void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    truce_write_result result = {0};
    bson_t filter = BSON_INITIALIZER;
    int64_t expires_ms;
    truce_status status;

    if (bson_has_field(job, "then"))
        return queue_discard_dead(sweep, job, error);
    status = queue_remove_key(sweep->store, job, &id, error);

    (void)arg;
    (void)truce__job_date(job, "expires", &expires_ms);
    BSON_APPEND_VALUE(&filter, "_id", &id);
    BSON_APPEND_DATE_TIME(&filter, "expires", expires_ms);
    BCON_APPEND(&filter, "then", "{", "$exists", BCON_BOOL(false), "}");
    queue_append_settled(&filter);
    if (!status)
        status = truce_remove(sweep->store, collection, &filter, NULL, &result, error);
    sweep->report->expired += result.removed;
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

static truce_status queue_prune_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("expires", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status;

    queue_append_settled(filter);
    status = truce__sweep_each(sweep, QUEUE, filter, queue_prune, NULL, error);
    bson_destroy(filter);
    return status;
}

static truce_status queue_rescue_job(struct sweep *sweep, const char *collection, const bson_t *job,
                                     void *arg, bson_error_t *error)
{
    bool rescued;
    truce_status status;

    (void)collection;
    status = truce__queue_rescue(arg, job, &rescued, error);
    sweep->report->released += rescued;
    if (!status && !rescued)
        status = truce__queue_lease_observe(sweep->store, job, error);
    /* LOCKED means that the lease has not expired. */
    return status || rescued ? status : TRUCE_LOCKED;
}

static truce_status queue_rescue_all(struct sweep *sweep, bson_error_t *error)
{
    /* The backoff comes from the default options. Each job names its own queue. */
    truce_queue_options options = {.queue = "sweep"};
    truce_queue *queue = truce_queue_new(sweep->store, &options);
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    truce__queue_append_suspects(queue->lease_ms, &filter);
    status = truce__sweep_each(sweep, QUEUE, &filter, queue_rescue_job, queue, error);
    bson_destroy(&filter);
    truce_queue_free(queue);
    return status;
}

/* Fires a due cron line; its queue may have no jobs yet. */
static truce_status queue_fire(struct sweep *sweep, const char *collection, const bson_t *cron,
                               void *arg, bson_error_t *error)
{
    (void)collection, (void)arg;
    return truce__cron_fire_one(sweep->store, cron, NULL, error);
}

static truce_status queue_fire_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = truce__cron_due();
    truce_status status = truce__sweep_each(sweep, QUEUE_CRONS, filter, queue_fire, NULL, error);

    bson_destroy(filter);
    return status;
}

/* Continues the lanes and notifications that were not completed, and removes idle lanes. */
static truce_status queue_resume_all(struct sweep *sweep, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("stalled", BCON_BOOL(true)),
           *idle = BCON_NEW("idle", "{", "$lte", BCON_DATE_TIME(truce__clock_wall_ms()), "}");
    truce_status status;

    truce__intent_append_absent(filter);
    truce__intent_append_absent(idle);
    status = truce__sweep_each(sweep, QUEUE_LANES, filter, truce__lane_resume, NULL, error);
    if (!status)
        status = truce__sweep_each(sweep, QUEUE_LANES, idle, truce__lane_resume, NULL, error);
    if (!status)
        status = truce__sweep_each(sweep, QUEUE, filter, truce__workflow_resume, NULL, error);
    bson_destroy(idle);
    bson_destroy(filter);
    return status;
}

/* Finds whether the store has any job. If not, the sweep has no work and makes no indexes. */
static truce_status queue_is_used(truce_store *store, bool *used, bson_error_t *error)
{
    bson_t found;
    truce_status status = truce_find_one(store, QUEUE, NULL, NULL, &found, error);

    *used = status == TRUCE_OK;
    bson_destroy(&found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

truce_status truce__queue_sweep(struct sweep *sweep, bson_error_t *error)
{
    bool used = false, more = false;
    truce_status status = queue_fire_all(sweep, error);

    if (!status)
        status = queue_is_used(sweep->store, &used, error);
    if (status || !used)
        return status;
    status = truce__queue_indexes(sweep->store, error);
    if (!status)
        status = truce__queue_promote(sweep->store, NULL, &more, error);
    sweep->report->more = sweep->report->more || more;
    if (!status)
        status = queue_rescue_all(sweep, error);
    if (!status)
        status = queue_resume_all(sweep, error);
    return status ? status : queue_prune_all(sweep, error);
}
