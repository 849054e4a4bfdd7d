/*
 * The check: L1, keys without a job, cron lines that can never fire, gates and lanes that are miscounted, jobs that wait in a
 * lane that is gone, or for jobs that are.
 */
#include "patterns/queue/queue_maintenance.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/field.h"
#include "base/limits.h"
#include "bson/value.h"
#include "patterns/queue/queue.h"

/* ---- jobs --------------------------------------------------------------------------------------- */

/* NULL: the job is as L1 says. */
static const char *check_fault_of(const bson_t *job)
{
    const char *state = truce__job_state(job);
    bool live = truce__job_live(job);
    bson_iter_t iter, field;
    bson_oid_t token;
    int64_t at_ms;

    if (!live && strcmp(state, "done") && strcmp(state, "dead") && strcmp(state, "cancelled") &&
        strcmp(state, "discarded"))
        return "the job has no state that there is";
    if (live != bson_has_field(job, "undone"))
        return live ? "a live job has no \"undone\": nobody would ever claim it"
                    : "a job that has ended stands in the index of live ones";
    if (!strcmp(state, "dead") != bson_has_field(job, "dead"))
        return "\"dead\" does not say what the state says";
    if (!live && strcmp(state, "dead") && bson_has_field(job, "then") &&
        !bson_has_field(job, "stalled"))
        return "the job has ended, and those that wait for it were not told";
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
        return "\"undone.at\" is no date";
    if (!strcmp(state, "running") && !truce__job_token(job, &token))
        return "a running job has no lease: nobody would ever give it back";
    return NULL;
}

/* The state is right, and what repeats it is made anew; a job without a lease is ready again, one in a lane keeps
 * its turn. */
static void make_repair(const bson_t *job, bson_t *update)
{
    int64_t now_ms = truce__clock_wall_ms(), at_ms;
    const char *queue = truce__field_text(job, "queue");
    bool delayed = !strcmp(truce__job_state(job), "delayed") &&
                   truce__job_date(job, "undone.at", &at_ms) && at_ms > now_ms;
    bson_t set, unset, letter;

    if (truce__job_live(job)) {
        BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set);
        if (truce__job_is_held(job))
            truce__job_stands(&set, truce__job_state(job), queue, now_ms);
        else
            truce__job_waits(&set, queue, (int32_t)truce__field_number(job, "priority"),
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

struct mending {
    bson_value_t id;
    bool mended;
};

static truce_status mend_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct mending *mending = arg;
    bson_t job, update = BSON_INITIALIZER;
    truce_status status = truce_commit_read(commit, QUEUE, &mending->id, &job, error);

    mending->mended = !status && check_fault_of(&job);
    if (mending->mended) {
        make_repair(&job, &update);
        status = truce_commit_update(commit, QUEUE, &mending->id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static bool can_mend(const bson_t *job)
{
    const char *state = truce__job_state(job);

    return truce__field_text(job, "queue")[0] &&
           (truce__job_live(job) || !strcmp(state, "done") || !strcmp(state, "dead") ||
            !strcmp(state, "cancelled") || !strcmp(state, "discarded"));
}

static truce_status queue_check_check_job(struct check *check, const char *collection,
                                          const bson_t *job, void *arg, bson_error_t *error)
{
    struct mending mending = {.id = truce__document_id(job)};
    const char *fault = bson_has_field(job, "_intent") ? NULL : check_fault_of(job);
    struct finding finding = {.rule = "job",
                              .collection = collection,
                              .text = fault,
                              .repair = can_mend(job) ? "make \"undone\" what the state says"
                                                      : "none: look at the document by hand",
                              .id = &mending.id};
    truce_status status = TRUCE_OK;

    (void)arg;
    check->report->documents++;
    if (!fault)
        return TRUCE_OK;
    if (check->repair && can_mend(job))
        status = truce_transact(check->store, mend_in, &mending, NULL, error);
    if (!status)
        truce__check_tell(check, &finding, mending.mended);
    return status;
}

static truce_status queue_check_check_key(struct check *check, const char *collection,
                                          const bson_t *key, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(key);
    const struct finding finding = {.rule = "job-key",
                                    .collection = collection,
                                    .text = "the job of this key is gone",
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
        if (check->repair)
            status = truce_remove(check->store, collection, &filter, NULL, &result, error);
        if (!status)
            truce__check_tell(check, &finding, result.removed > 0);
    }
    truce_write_result_release(&result);
    bson_destroy(&filter);
    return status;
}

static truce_status suspect_keys(struct check *check, bson_t *const *keys, uint32_t count,
                                 bool *suspect, void *arg, bson_error_t *error)
{
    struct care_links links = {.count = 0};
    bson_iter_t job;

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        if (bson_iter_init_find(&job, keys[i], "job"))
            truce__care_link(&links, bson_iter_value(&job), i);
        else
            suspect[i] = true;
    }
    return truce__care_follow(check, QUEUE, NULL, &links, suspect, error);
}

static truce_status check_cron(struct check *check, const char *collection, const bson_t *cron,
                               void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(cron);
    const struct finding finding = {.rule = "cron",
                                    .collection = collection,
                                    .text = truce__cron_fault(cron),
                                    .repair = "none: set the line anew, or remove it",
                                    .id = &id};

    (void)arg, (void)error;
    check->report->documents++;
    if (finding.text && !bson_has_field(cron, "_intent"))
        truce__check_tell(check, &finding, false);
    return TRUCE_OK;
}

/* ---- what is counted ------------------------------------------------------------------------------ */

/* A gate or a lane, and the jobs that it should have counted. Every job that comes or goes writes it: a count between
 * two looks at one and the same document is right. */
struct tally {
    const bson_t *seen; /* before the count */
    const bson_t *jobs; /* the filter of the jobs */
    int64_t stands;     /* the number that stands there */
    truce_status (*mend)(truce_commit *commit, const bson_t *seen, int64_t count,
                         bson_error_t *error);
    struct finding finding;
    int64_t count;
    bool mended;
};

static truce_status check_count_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct tally *tally = arg;
    bson_t found;
    truce_status status =
        truce_commit_read(commit, tally->finding.collection, tally->finding.id, &found, error);

    tally->mended = !status && bson_equal(&found, tally->seen);
    if (tally->mended)
        status = tally->mend(commit, &found, tally->count, error);
    bson_destroy(&found);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status check_tally(struct check *check, struct tally *tally, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, again;
    truce_status status = truce_count(check->store, QUEUE, tally->jobs, NULL, &tally->count, error);

    if (status)
        goto out;
    BSON_APPEND_VALUE(&filter, "_id", tally->finding.id);
    status = truce_find_one(check->store, tally->finding.collection, &filter, NULL, &again, error);
    if (!status && bson_equal(&again, tally->seen) && !bson_has_field(tally->seen, "_intent") &&
        tally->count != tally->stands) {
        if (check->repair)
            status = truce_transact(check->store, check_count_in, tally, NULL, error);
        if (!status)
            truce__check_tell(check, &tally->finding, tally->mended);
    }
    bson_destroy(&again);
out:
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* The name of a document's count. */
static void tally_key(char key[24], struct value id)
{
    snprintf(key, 24, "%016llx", (unsigned long long)truce__value_hash(id));
}

/* The array of a field of the documents' ids, or of the ids themselves (`field` NULL). */
static bson_t *check_ids_of(bson_t *const *documents, uint32_t count, const char *field)
{
    bson_t *ids = bson_new(), borrowed;
    bson_iter_t at;

    for (uint32_t i = 0; i < count; i++) {
        char key[16];
        size_t length = (size_t)snprintf(key, sizeof key, "%u", i);

        if (!field)
            truce__value_append(ids, key, length,
                                truce__value_field(truce__value_document(documents[i]), "_id", 3));
        else if (truce__value_subdocument(documents[i], "_id", &borrowed) &&
                 bson_iter_init_find(&at, &borrowed, field))
            truce__value_append(ids, key, length, truce__value_of_iter(&at));
    }
    return ids;
}

/* Suspects each document of which `by` does not count as many jobs as it says. `by` gives {_id, n}; takes it over. */
static truce_status suspect_tallies(struct check *check, bson_t *by, bson_t *const *documents,
                                    uint32_t count, int64_t (*stands)(const bson_t *document),
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
                     stands(documents[i]);
    }
    bson_destroy(&counted);
    bson_destroy(by);
    return status;
}

static truce_status mend_gate(truce_commit *commit, const bson_t *gate, int64_t count,
                              bson_error_t *error)
{
    bson_value_t id = truce__document_id(gate);
    bson_t *update = BCON_NEW("$set", "{", "running", BCON_INT64(count), "}");
    truce_status status = truce_commit_update(commit, QUEUE_GATES, &id, NULL, update, error);

    bson_destroy(update);
    return status;
}

static truce_status check_gate(struct check *check, const char *collection, const bson_t *gate,
                               void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(gate);
    bson_t *jobs = BCON_NEW("undone.state", BCON_UTF8("running"));
    struct tally tally = {
        .seen = gate,
        .jobs = jobs,
        .stands = truce__field_number(gate, "running"),
        .mend = mend_gate,
        .finding = {.rule = "job-gate",
                    .collection = collection,
                    .text = "\"running\" is not the number of jobs that run through this gate",
                    .repair = "count them",
                    .id = &id}};
    truce_status status;

    (void)arg;
    BSON_APPEND_VALUE(jobs, "lease.gate", &id);
    status = check_tally(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

static int64_t gate_runs(const bson_t *gate)
{
    return truce__field_number(gate, "running");
}

static truce_status suspect_gates(struct check *check, bson_t *const *gates, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    bson_t *ids = check_ids_of(gates, count, NULL);
    bson_t *by =
        BCON_NEW("0", "{", "$match", "{", "undone.state", BCON_UTF8("running"), "lease.gate", "{",
                 "$in", BCON_ARRAY(ids), "}", "}", "}", "1", "{", "$group", "{", "_id",
                 BCON_UTF8("$lease.gate"), "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(ids);
    return suspect_tallies(check, by, gates, count, gate_runs, suspect, error);
}

static int64_t lane_out(const bson_t *lane)
{
    return truce__field_number(lane, "out");
}

static truce_status suspect_lanes(struct check *check, bson_t *const *lanes, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    bson_t *names = check_ids_of(lanes, count, "lane");
    bson_t *by = BCON_NEW("0", "{", "$match", "{", "lane.name", "{", "$in", BCON_ARRAY(names), "}",
                          "undone.state", "{", "$in", "[", BCON_UTF8("ready"), BCON_UTF8("delayed"),
                          BCON_UTF8("running"), "]", "}", "}", "}", "1", "{", "$group", "{", "_id",
                          "{", "queue", BCON_UTF8("$queue"), "lane", BCON_UTF8("$lane.name"), "}",
                          "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(names);
    return suspect_tallies(check, by, lanes, count, lane_out, suspect, error);
}

static bson_t *out_of(const bson_t *id)
{
    return BCON_NEW("lane.name", BCON_UTF8(truce__field_text(id, "lane")), "queue",
                    BCON_UTF8(truce__field_text(id, "queue")), "undone.state", "{", "$in", "[",
                    BCON_UTF8("ready"), BCON_UTF8("delayed"), BCON_UTF8("running"), "]", "}");
}

static truce_status check_lane(struct check *check, const char *collection, const bson_t *lane,
                               void *arg, bson_error_t *error)
{
    bson_value_t value = truce__document_id(lane);
    struct tally tally = {.seen = lane,
                          .stands = truce__field_number(lane, "out"),
                          .mend = truce__lane_count,
                          .finding = {.rule = "job-lane",
                                      .collection = collection,
                                      .text =
                                          "\"out\" is not the number of the lane's jobs that are "
                                          "ready, delayed or running",
                                      .repair = "count them, and let out who may go",
                                      .id = &value}};
    truce_status status;
    bson_t id, *jobs;

    (void)arg;
    if (bson_has_field(lane, "job") || !truce__value_subdocument(lane, "_id", &id))
        return TRUCE_OK; /* a place in a lane */
    jobs = out_of(&id);
    tally.jobs = jobs;
    status = check_tally(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

/* ---- jobs that wait for others ----------------------------------------------------------------------- */

static int64_t after_waits(const bson_t *job)
{
    return truce__after_left(job) - truce__after_is_open(job);
}

static truce_status queue_check_check_after(struct check *check, const char *collection,
                                            const bson_t *job, void *arg, bson_error_t *error)
{
    bson_value_t id = truce__document_id(job);
    bson_t *jobs = bson_new();
    struct tally tally = {.seen = job,
                          .jobs = jobs,
                          .stands = after_waits(job),
                          .mend = truce__after_mend,
                          .finding = {.rule = "job-after",
                                      .collection = collection,
                                      .text = "\"after.left\" is not the number of jobs that it "
                                              "waits for",
                                      .repair = "count them, and let it go if there is none",
                                      .id = &id}};
    truce_status status;

    (void)arg;
    BSON_APPEND_VALUE(jobs, "then", &id);
    status = check_tally(check, &tally, error);
    bson_destroy(jobs);
    return status;
}

static truce_status suspect_after(struct check *check, bson_t *const *jobs, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    bson_t *ids = check_ids_of(jobs, count, NULL);
    bson_t *by =
        BCON_NEW("0", "{", "$match", "{", "then", "{", "$in", BCON_ARRAY(ids), "}", "}", "}", "1",
                 "{", "$unwind", BCON_UTF8("$then"), "}", "2", "{", "$match", "{", "then", "{",
                 "$in", BCON_ARRAY(ids), "}", "}", "}", "3", "{", "$group", "{", "_id",
                 BCON_UTF8("$then"), "n", "{", "$sum", BCON_INT64(1), "}", "}", "}");

    (void)arg;
    bson_destroy(ids);
    return suspect_tallies(check, by, jobs, count, after_waits, suspect, error);
}

static truce_status queue_check_check_blocked(struct check *check, bson_error_t *error)
{
    bson_t *blocked = BCON_NEW("undone.state", BCON_UTF8("blocked"));
    truce_status status = truce__check_suspects(check, QUEUE, blocked, suspect_after,
                                                queue_check_check_after, NULL, error);

    bson_destroy(blocked);
    return status;
}

/* ---- jobs that wait in a lane --------------------------------------------------------------------- */

struct turning {
    bson_value_t id;
    bool mended;
};

/* The first of them makes the lane anew, and the others stand behind it. */
static truce_status turn_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct turning *turning = arg;
    int64_t now_ms = truce__clock_wall_ms();
    bson_t job, update = BSON_INITIALIZER, set;
    truce_status status = truce_commit_read(commit, QUEUE, &turning->id, &job, error);

    turning->mended = !status && !strcmp(truce__job_state(&job), "waiting");
    if (turning->mended) {
        BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
        status = truce__job_sets_out(commit, &job, now_ms, now_ms, &set, error);
        bson_append_document_end(&update, &set);
        if (!status)
            status = truce_commit_update(commit, QUEUE, &turning->id, NULL, &update, error);
    }
    bson_destroy(&update);
    bson_destroy(&job);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Its lane's document is there, and the job was not let out meanwhile. */
static truce_status check_turn(struct check *check, const char *collection, const bson_t *job,
                               void *arg, bson_error_t *error)
{
    struct turning turning = {.id = truce__document_id(job)};
    const struct finding finding = {.rule = "job-lane",
                                    .collection = collection,
                                    .text = "the job waits for its turn in a lane that is gone",
                                    .repair = "let it go, or wait behind those that do",
                                    .id = &turning.id};
    struct job_lane lane = {.name = ""};
    bson_t *filter, found;
    truce_status status;

    (void)arg;
    (void)truce__job_lane(job, &lane);
    filter = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(job, "queue")), "lane",
                      BCON_UTF8(lane.name), "}");
    status = truce_find_one(check->store, QUEUE_LANES, filter, NULL, &found, error);
    bson_destroy(&found);
    if (status == TRUCE_NOT_FOUND) { /* is it waiting still? */
        bson_reinit(filter);
        BSON_APPEND_VALUE(filter, "_id", &turning.id);
        BSON_APPEND_UTF8(filter, "state", "waiting");
        status = truce_find_one(check->store, QUEUE, filter, NULL, &found, error);
        bson_destroy(&found);
        if (!status && turning.id.value_type == BSON_TYPE_OID) {
            if (check->repair)
                status = truce_transact(check->store, turn_in, &turning, NULL, error);
            if (!status)
                truce__check_tell(check, &finding, turning.mended);
        }
    }
    bson_destroy(filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

static truce_status suspect_turns(struct check *check, bson_t *const *jobs, uint32_t count,
                                  bool *suspect, void *arg, bson_error_t *error)
{
    struct care_links links = {.count = 0};

    (void)arg;
    for (uint32_t i = 0; i < count; i++) {
        struct job_lane lane = {.name = ""};
        bson_value_t id;
        bson_t *holder;

        (void)truce__job_lane(jobs[i], &lane);
        holder = BCON_NEW("_id", "{", "queue", BCON_UTF8(truce__field_text(jobs[i], "queue")),
                          "lane", BCON_UTF8(lane.name), "}");
        id = truce__document_id(holder);
        truce__care_link(&links, &id, i);
        bson_destroy(holder);
    }
    return truce__care_follow(check, QUEUE_LANES, NULL, &links, suspect, error);
}

static truce_status check_lanes(struct check *check, bson_error_t *error)
{
    bson_t *waiting = BCON_NEW("undone.state", BCON_UTF8("waiting"));
    truce_status status =
        truce__check_suspects(check, QUEUE_LANES, NULL, suspect_lanes, check_lane, NULL, error);

    truce__intent_append_absent(waiting);
    if (!status)
        status =
            truce__check_suspects(check, QUEUE, waiting, suspect_turns, check_turn, NULL, error);
    bson_destroy(waiting);
    return status;
}

/* ---- all of them ---------------------------------------------------------------------------------- */

truce_status truce__queue_check(struct check *check, bson_error_t *error)
{
    truce_status status = truce__check_each(check, QUEUE, NULL, queue_check_check_job, NULL, error);

    if (!status)
        status = truce__check_suspects(check, QUEUE_KEYS, NULL, suspect_keys, queue_check_check_key,
                                       NULL, error);
    if (!status)
        status = truce__check_each(check, QUEUE_CRONS, NULL, check_cron, NULL, error);
    if (!status)
        status =
            truce__check_suspects(check, QUEUE_GATES, NULL, suspect_gates, check_gate, NULL, error);
    if (!status)
        status = check_lanes(check, error);
    return status ? status : queue_check_check_blocked(check, error);
}
