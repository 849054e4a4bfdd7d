/*
 * Queues: adding, reading, and managing jobs. The operations of workers are in operation_job.c.
 *
 *     truceEnqueue            adds a job, or many: all or none
 *     truceQueue              an action on jobs (cancel, retry) or on the queue (pause)
 *     truceQueueLimit         sets the limits of a queue or a pool
 *     truceJobs, truceQueues  return jobs, and the statistics of the queues
 *
 * An action that names a job need not name the queue, which is read from the job. Several jobs
 * with `ids` are changed one by one, not in one commit; the reply counts the changed ones.
 */
#include "operations/operation_queue.h"

#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "operations/reply_list.h"
#include "store/decoded_cursor.h"
#include "store/reserved_names.h"

/* ---- the queue ------------------------------------------------------------------------------- */

static void *make_queue(void *arg)
{
    const void *const *made = arg;

    return truce_queue_new((truce_store *)made[0], made[1]);
}

static void free_queue(void *queue)
{
    truce_queue_free(queue);
}

struct handle *truce__operation_queue_named(struct operation_call *call, const char *name,
                                            const char *worker, int64_t lease_ms)
{
    truce_queue_options options = {.queue = name, .worker = worker, .lease_ms = (uint32_t)lease_ms};
    const void *made[2] = {call->store, &options};
    char lease[20], *text;
    struct handle *handle;

    snprintf(lease, sizeof lease, "%u", options.lease_ms);
    text = truce__operation_key("queue", (const char *const[]){name, worker, lease}, 3);
    handle = truce__operation_handle(call, text, make_queue, made, free_queue);
    bson_free(text);
    return handle;
}

truce_status truce__operation_queue(struct operation_call *call, const char *worker,
                                    int64_t lease_ms, struct handle **handle, bson_error_t *error)
{
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    if (!status)
        *handle = truce__operation_queue_named(call, name, worker, lease_ms);
    return status;
}

truce_status truce__operation_queue_of(struct operation_call *call, const bson_oid_t *id,
                                       struct handle **handle, bson_error_t *error)
{
    const char *name;
    bson_t *filter, job;
    char text[25];
    truce_status status = id ? truce__operation_optional_text(call, &name, error)
                             : truce__operation_text(call, &name, error);

    if (status)
        return status;
    if (name) {
        *handle = truce__operation_queue_named(call, name, NULL, 0);
        return TRUCE_OK;
    }
    filter = BCON_NEW("_id", BCON_OID(id));
    status = truce_find_one(call->store, QUEUE, filter, NULL, &job, error);
    if (!status)
        *handle = truce__operation_queue_named(call, truce__field_text(&job, "queue"), NULL, 0);
    bson_oid_to_string(id, text);
    if (status == TRUCE_NOT_FOUND)
        status = truce__fail(TRUCE_NOT_FOUND, error, "the job %s does not exist", text);
    bson_destroy(filter);
    bson_destroy(&job);
    return status;
}

/* ---- unknown queues -------------------------------------------------------------------------- */

/* No index has the queues of jobs that ended. */
#define KNOWN_SCAN_MS 1000
/* The same for a list of jobs, which monitors request often. */
#define LISTED_SCAN_MS 100
#define QUEUES_SHOWN   10

static truce_status queue_find_any(const struct operation_call *call, uint32_t scan_ms,
                                   const char *collection, const char *field, const char *name)
{
    const truce_find_options options = {.deadline_ms = scan_ms};
    bson_t *filter = BCON_NEW(field, BCON_UTF8(name)), found;
    truce_status status = truce_find_one(call->store, collection, filter, &options, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* Appends the names of queues, as in `"cron", "mail"`. */
static void queue_name_queues(const bson_t *queues, bson_string_t *names)
{
    bson_iter_t at, name;
    int count = 0;

    (void)bson_iter_init(&at, queues);
    while (count <= QUEUES_SHOWN && bson_iter_next(&at))
        if (bson_iter_recurse(&at, &name) && bson_iter_find(&name, "queue")) {
            const char *comma = count ? ", " : "";

            if (count++ < QUEUES_SHOWN)
                bson_string_append_printf(names, "%s\"%s\"", comma, bson_iter_utf8(&name, NULL));
            else
                bson_string_append_printf(names, "%s...", comma);
        }
}

/* Appends the queue of any job. Statistics omit queues that have only finished jobs. */
static void queue_name_finished(const struct operation_call *call, bson_string_t *note)
{
    static const bson_t any = BSON_INITIALIZER;
    const truce_find_options options = {.deadline_ms = KNOWN_SCAN_MS};
    bson_t found;

    if (!truce_find_one(call->store, QUEUE, &any, &options, &found, NULL))
        bson_string_append_printf(note, "another queue has jobs: \"%s\"",
                                  truce__field_text(&found, "queue"));
    bson_destroy(&found);
}

/* Appends the names of queues that have jobs, or nothing if the store has no jobs. */
static void queue_name_others(const struct operation_call *call, bson_string_t *note)
{
    bson_t queues;
    bool read = !truce_queue_stats(call->store, &queues, NULL);

    if (read && bson_empty(&queues)) {
        queue_name_finished(call, note);
    } else if (read) {
        bson_string_append(note, "these queues have: ");
        queue_name_queues(&queues, note);
    }
    bson_destroy(&queues);
}

/* Does what truce__operation_queue_is_known does, within this time. */
static bool queue_is_known(const struct operation_call *call, uint32_t scan_ms, const char *name,
                           bson_t *reply)
{
    bson_string_t *others, *note;

    if (queue_find_any(call, scan_ms, QUEUE_SETTINGS, "_id", name) != TRUCE_NOT_FOUND ||
        queue_find_any(call, scan_ms, QUEUE, "queue", name) != TRUCE_NOT_FOUND)
        return true;
    others = bson_string_new("");
    queue_name_others(call, others);
    if (others->len) {
        note = bson_string_new("");
        bson_string_append_printf(note, "the queue \"%s\" has no jobs; %s", name, others->str);
        BSON_APPEND_UTF8(reply, "note", call->host->message(call, note->str));
        bson_string_free(note, true);
    }
    bson_string_free(others, true);
    return false;
}

bool truce__operation_queue_is_known(const struct operation_call *call, const char *name,
                                     bson_t *reply)
{
    return queue_is_known(call, KNOWN_SCAN_MS, name, reply);
}

/* The fields of a job that belong to truce. Replies do not show them. */
static const char *const inner_fields[] = {"undone", "_rev", "_intent", "notified", "then", NULL};

void truce__operation_append_job(const bson_t *job, const bson_oid_t *token, const char *key,
                                 bson_t *reply)
{
    bson_iter_t at;
    bson_t shown;

    BSON_APPEND_DOCUMENT_BEGIN(reply, key, &shown);
    (void)bson_iter_init(&at, job);
    while (bson_iter_next(&at))
        if (truce__operation_choice(bson_iter_key(&at), inner_fields) < 0)
            BSON_APPEND_VALUE(&shown, bson_iter_key(&at), bson_iter_value(&at));
    if (token)
        BSON_APPEND_OID(&shown, "token", token);
    bson_append_document_end(reply, &shown);
}

/* ---- the options of jobs --------------------------------------------------------------------- */

const char *const truce__job_failures[] = {"cancel", "goOn", "wait", NULL};

void truce__job_options_of_common(const struct job_common *given, truce_job_options *options)
{
    *options = (truce_job_options){.priority = (int32_t)given->priority,
                                   .attempts_max = (uint32_t)given->attempts,
                                   .timeout_ms = (uint32_t)given->timeoutMS,
                                   .keep_ms = given->keepMS,
                                   .keep_cancelled_ms = given->keepCancelledMS,
                                   .keep_discarded_ms = given->keepDiscardedMS,
                                   .keep_dead_ms = given->keepDeadMS,
                                   .metadata = given->metadata,
                                   .tags = given->tags};
}

truce_status truce__job_timed(const struct job_timed *given, truce_job_options *options,
                              bson_error_t *error)
{
    if (!given->laneRate != !given->lanePerMS)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'laneRate' and 'lanePerMS' must be given together");
    if (given->laneRate && !given->lane)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "'laneRate' needs 'lane'");
    if (given->laneWidth && !given->lane)
        return truce__refuse(CODE_INVALID_OPTIONS, error, "'laneWidth' needs 'lane'");
    truce__job_options_of_common(&given->common, options);
    options->delay_ms = given->delayMS;
    options->run_at_ms = given->runAtMS;
    options->lane = given->lane;
    options->lane_width = (uint32_t)given->laneWidth;
    options->lane_rate = (uint32_t)given->laneRate;
    options->lane_per_ms = (uint32_t)given->lanePerMS;
    options->failure =
        (truce_job_failure)truce__operation_choice(given->failure, truce__job_failures);
    return TRUCE_OK;
}

/* ---- truceEnqueue ---------------------------------------------------------------------------- */

struct enqueue_given {
    struct job_timed timed; /* Must be the first field: the table has offsets into it. */
    const bson_t *payload, *payloads, *after;
    int64_t uniquePeriodMS;
    const char *unique, *uniqueScope, *onConflict, *name;
    const bson_oid_t *id, *batch;
    bool uniquePayload, open;
};

/* The words, in the order of truce_unique_scope and of truce_conflict_policy. */
static const char *const scopes[] = {"live", "kept", "unclaimed", NULL};
static const char *const policies[] = {"ignore", "replace", "reschedule", "refuse", NULL};

static const struct operation_field enqueue_fields[] = {
    {GIVEN(enqueue_given, payload, FIELD_DOCUMENT), "the payload of the job"},
    {GIVEN(enqueue_given, payloads, FIELD_ARRAY),
     "instead: the payloads of up to 10,000 jobs, all added or none; without unique, lane, id, and "
     "after"},
    JOB_TIMED_FIELDS,
    {GIVEN(enqueue_given, unique, FIELD_TEXT), "the key of a unique job"},
    {GIVEN(enqueue_given, uniquePayload, FIELD_FLAG), "the payload is the key, or a part of it"},
    {GIVEN(enqueue_given, uniquePeriodMS, FIELD_DURATION),
     "at most one job for each key in each period of this length", 1, DURATION_MAX_MS},
    {GIVEN(enqueue_given, uniqueScope, FIELD_TEXT),
     "the jobs that conflict: live ones, also ended ones that are kept, or only unclaimed ones; "
     "absent: \"live\"",
     .words = scopes},
    {GIVEN(enqueue_given, onConflict, FIELD_TEXT),
     "the effect of a conflict, if the job does not run yet. ignore: it stays as it is. replace: it "
     "gets the payload, the time, and all options of the new one, and keeps its lane. reschedule: "
     "it gets only the new time, which must be given. refuse: the call fails; absent: \"ignore\"",
     .words = policies},
    {GIVEN(enqueue_given, after, FIELD_ARRAY), "the ids of the jobs that must end before it",
     .each = FIELD_OID},
    {GIVEN(enqueue_given, open, FIELD_FLAG),
     "the job closes a batch: it waits for the jobs of the batch, and for the action \"close\" of "
     "truceQueue"},
    {GIVEN(enqueue_given, batch, FIELD_OID), "the closing job of the batch that this job joins"},
    {GIVEN(enqueue_given, name, FIELD_TEXT), "a name for people"},
    {GIVEN(enqueue_given, id, FIELD_OID), "the _id of the job; absent: a new one"},
    {{0}}};

/* Fails with BadValue if a job to wait for does not exist in this database. */
static truce_status enqueue_check_job(struct operation_call *call, const bson_oid_t *id,
                                      bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_OID(id)), job;
    char text[25];
    truce_status status = truce_find_one(call->store, QUEUE, filter, NULL, &job, error);

    bson_destroy(filter);
    bson_destroy(&job);
    if (status != TRUCE_NOT_FOUND)
        return status;
    bson_oid_to_string(id, text);
    return truce__refuse(CODE_BAD_VALUE, error,
                         "the job %s, which this job waits for, does not exist", text);
}

/* Reads the ids of `after` into the options, and checks that each job exists. */
static truce_status queue_read_after(struct operation_call *call, const bson_t *after,
                                     truce_job_options *options, bson_error_t *error)
{
    uint32_t count = after ? bson_count_keys(after) : 0;
    truce_status status = TRUCE_OK;
    bson_oid_t *ids;
    bson_iter_t at;

    if (count > JOB_AFTER_MAX)
        return truce__refuse(CODE_BAD_VALUE, error, "'after' may have at most %d ids, and has %u",
                             JOB_AFTER_MAX, count);
    if (!count)
        return TRUCE_OK;
    ids = truce__arena_take(call->arena, count * sizeof *ids);
    (void)bson_iter_init(&at, after);
    for (options->after_count = 0; !status && bson_iter_next(&at); options->after_count++) {
        const bson_oid_t *id;

        if (!truce__field_to_oid(call->arena, &at, &id))
            return truce__element_wrong_type("after", &at, "an ObjectId", error);
        bson_oid_copy(id, &ids[options->after_count]);
        status = enqueue_check_job(call, &ids[options->after_count], error);
    }
    options->after = ids;
    return status;
}

/* Reads the options of a job, and checks the jobs for which it waits. */
static truce_status queue_read_job(struct operation_call *call, const struct enqueue_given *given,
                                   truce_job_options *options, bson_error_t *error)
{
    truce_status status = truce__job_timed(&given->timed, options, error);

    if (!status && !given->unique && !given->uniquePayload &&
        (given->uniqueScope || given->onConflict || given->uniquePeriodMS))
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'%s' needs a key: give 'unique' or 'uniquePayload'",
                               given->uniqueScope  ? "uniqueScope"
                               : given->onConflict ? "onConflict"
                                                   : "uniquePeriodMS");
    if (!status && given->onConflict && !strcmp(given->onConflict, "reschedule") &&
        !truce__operation_given(call, "delayMS") && !truce__operation_given(call, "runAtMS"))
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'onConflict' \"reschedule\" needs the new time: give 'delayMS' (0: "
                               "now) or 'runAtMS'");
    if (status)
        return status;
    options->unique = given->unique;
    options->unique_payload = given->uniquePayload;
    options->unique_period_ms = given->uniquePeriodMS;
    options->unique_scope = (truce_unique_scope)truce__operation_choice(given->uniqueScope, scopes);
    options->on_conflict =
        (truce_conflict_policy)truce__operation_choice(given->onConflict, policies);
    options->open = given->open;
    options->batch = given->batch;
    options->name = given->name;
    options->id = given->id;
    return queue_read_after(call, given->after, options, error);
}

/* Adds a job for each payload to the commit. `ids` gets the id of each new or existing job. */
static truce_status queue_add_each(truce_commit *commit, truce_queue *queue,
                                   const bson_t *const *payloads, uint32_t count,
                                   const truce_job_options *options, bson_oid_t *ids,
                                   bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    for (uint32_t i = 0; i < count && !status; i++) {
        truce_job_added added;

        status = truce_queue_add(queue, commit, payloads[i], options, &added, error);
        ids[i] = added.id;
    }
    return status;
}

/* Adds a job for each payload, all or none, and appends `ids`. */
static truce_status add_many(struct operation_call *call, truce_queue *queue,
                             const bson_t *payloads, const truce_job_options *options,
                             bson_t *reply, bson_error_t *error)
{
    uint32_t count = bson_count_keys(payloads), i = 0;
    truce_status status = TRUCE_OK;
    const bson_t **all;
    bson_oid_t *ids;
    bson_iter_t at;
    bson_t array;

    if (!count || count > JOB_BULK_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'payloads' must have 1 to %d elements, and has %u", JOB_BULK_MAX,
                             count);
    all = truce__arena_take(call->arena, count * sizeof *all);
    ids = truce__arena_take(call->arena, count * sizeof *ids);
    (void)bson_iter_init(&at, payloads);
    while (bson_iter_next(&at)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&at))
            return truce__element_wrong_type("payloads", &at, "a document", error);
        all[i++] = truce__field_view(call->arena, &at);
    }
    status = call->commit ? queue_add_each(call->commit, queue, all, count, options, ids, error)
                          : truce_queue_add_many(queue, all, count, options, ids, error);
    if (status)
        return status;
    BSON_APPEND_ARRAY_BEGIN(reply, "ids", &array);
    for (i = 0; i < count; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_OID(&array, key, &ids[i]);
    }
    bson_append_array_end(reply, &array);
    return TRUCE_OK;
}

/* Adds the job, or one job for each of `payloads`, and appends the ids. */
static truce_status queue_add_job(struct operation_call *call, truce_queue *queue,
                                  const struct enqueue_given *given, bson_t *reply,
                                  bson_error_t *error)
{
    truce_job_options options;
    truce_job_added added;
    truce_status status = queue_read_job(call, given, &options, error);

    if (!status && !given->payload == !given->payloads)
        status = truce__refuse(CODE_INVALID_OPTIONS, error, "give one of 'payload' and 'payloads'");
    if (!status && given->timed.failure && !options.after_count && !options.open)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'failure' needs 'after', or 'open' for a batch");
    if (!status && given->payloads)
        return add_many(call, queue, given->payloads, &options, reply, error);
    if (!status)
        status = truce_queue_add(queue, call->commit, given->payload, &options, &added, error);
    if (!status)
        BCON_APPEND(reply, "id", BCON_OID(&added.id), "added",
                    BCON_UTF8(truce_added_name(added.added)));
    return status;
}

static truce_status run_enqueue(struct operation_call *call, const void *given, bson_t *reply,
                                bson_error_t *error)
{
    struct handle *handle;
    truce_status status = truce__operation_queue(call, NULL, 0, &handle, error);

    if (status)
        return status;
    status = queue_add_job(call, handle->thing, given, reply, error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row enqueue_operation = {
    OPERATION("truceEnqueue", ROLE_WRITE, "adds one job, or many, to a queue"),
    .target = "queue",
    .value = "the queue",
    .answer = "`id`, and `added`: \"new\", \"existing\", \"replaced\", or \"rescheduled\"; with "
              "`payloads` the `ids`. An error: 11000 (duplicate) a job with its key or id exists",
    .fields = enqueue_fields,
    .size = sizeof(struct enqueue_given),
    .run = run_enqueue,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceEnqueue: 'mail', payload: {to: 'ada@example.org'}, id: "
               "{$oid: '0123456789abcdef01234567'}, unique: 'welcome ada'}",
};

/* ---- one job, or the queue ------------------------------------------------------------------- */

#define QUEUE_IDS_MAX 1000

struct queue_given {
    const bson_oid_t *id;
    const char *action;
    const bson_t *ids;
    int64_t limit;
};

/* The words, in the order of enum queue_action. */
static const char *const actions[] = {"cancel", "retry",  "discard", "close",
                                      "pause",  "resume", "redrive", NULL};

static const struct operation_field look_after_fields[] = {
    {GIVEN(queue_given, action, FIELD_TEXT),
     "cancel, retry, or discard a job; close the batch of a job; pause or resume the queue; "
     "redrive: retry all dead jobs",
     .needed = true, .words = actions},
    {GIVEN(queue_given, id, FIELD_OID), "the job; with cancel, retry, discard, and close"},
    {GIVEN(queue_given, ids, FIELD_ARRAY),
     "instead, with cancel, retry, and discard: the _ids of up to 1,000 jobs, each changed by "
     "itself",
     .each = FIELD_OID},
    {GIVEN(queue_given, limit, FIELD_NUMBER),
     "with redrive: the maximum number of jobs; absent: 1,000", 1, INT32_MAX},
    {{0}}};

enum queue_action { CANCEL, RETRY, DISCARD, CLOSE, PAUSE, RESUME, REDRIVE };

typedef truce_status queue_control_function(truce_queue *queue, truce_commit *commit,
                                            const bson_oid_t *id, bson_error_t *error);

/* Applies the action to each of the jobs, one by one. A job that does not exist, or whose state
 * does not allow the action, is skipped. Any other failure ends the loop, and the jobs before it
 * stay changed. */
static truce_status queue_act_on_all(struct arena *arena, truce_queue *queue,
                                     queue_control_function *act, const bson_t *ids, bson_t *reply,
                                     bson_error_t *error)
{
    int64_t count = 0, skipped = 0;
    truce_status status = TRUCE_OK;
    bson_iter_t at;

    (void)bson_iter_init(&at, ids);
    while (!status && bson_iter_next(&at)) {
        const bson_oid_t *id;

        if (!truce__field_to_oid(arena, &at, &id))
            continue; /* queue_check_ids has refused such a value. */
        status = act(queue, NULL, id, error);
        if (!status)
            count++;
        else if (status == TRUCE_NOT_FOUND || status == TRUCE_INVALID ||
                 status == TRUCE_DUPLICATE) {
            status = TRUCE_OK;
            skipped++;
        }
    }
    if (!status)
        BCON_APPEND(reply, "count", BCON_INT64(count), "skipped", BCON_INT64(skipped));
    return status;
}

/* Checks that `ids` has 1 to QUEUE_IDS_MAX elements, all ObjectIds, before any of them is used. */
static truce_status queue_check_ids(struct arena *arena, const bson_t *ids, bson_error_t *error)
{
    const bson_oid_t *id;
    uint32_t count = bson_count_keys(ids);
    bson_iter_t at;

    if (!count || count > QUEUE_IDS_MAX)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'ids' must have 1 to %d elements, and has %u", QUEUE_IDS_MAX, count);
    (void)bson_iter_init(&at, ids);
    while (bson_iter_next(&at))
        if (!truce__field_to_oid(arena, &at, &id))
            return truce__element_wrong_type("ids", &at, "an ObjectId", error);
    return TRUCE_OK;
}

/* Applies the action to the jobs of `ids`, to the job, or to the queue. run_queue_action has
 * checked that the fields fit the action. */
static truce_status queue_act(struct operation_call *call, truce_queue *queue,
                              enum queue_action action, const struct queue_given *given,
                              bson_t *reply, bson_error_t *error)
{
    queue_control_function *const each[] = {truce_queue_cancel, truce_queue_retry,
                                            truce_queue_discard};
    uint32_t count;
    truce_status status;

    if (given->ids)
        return queue_act_on_all(call->arena, queue, each[action], given->ids, reply, error);
    switch (action) {
    case CANCEL:
        return truce_queue_cancel(queue, call->commit, given->id, error);
    case RETRY:
        return truce_queue_retry(queue, call->commit, given->id, error);
    case DISCARD:
        return truce_queue_discard(queue, call->commit, given->id, error);
    case CLOSE:
        return truce_queue_close(queue, call->commit, given->id, error);
    case PAUSE:
        return truce_queue_pause(queue, error);
    case RESUME:
        return truce_queue_resume(queue, error);
    case REDRIVE:
        break;
    }
    status = truce_queue_redrive(queue, (uint32_t)given->limit, &count, error);
    if (!status)
        BCON_APPEND(reply, "count", BCON_INT64(count), "more",
                    BCON_BOOL(count == (given->limit ? given->limit : 1000)));
    return status;
}

static truce_status run_queue_action(struct operation_call *call, const void *arg, bson_t *reply,
                                     bson_error_t *error)
{
    const struct queue_given *given = arg;
    int action = truce__operation_choice(given->action, actions);
    const char *name = NULL;
    struct handle *handle;
    bool known = true;
    truce_status status;

    if (given->ids && (given->id || action > DISCARD || call->commit))
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'ids' is allowed only with the actions cancel, retry, and discard, "
                             "without 'id', and outside of a commit");
    if (given->limit && action != REDRIVE)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'limit' is allowed only with the action \"redrive\", not with "
                             "\"%s\"",
                             given->action);
    if (call->commit && action > CLOSE)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "the action \"%s\" cannot be part of a commit", given->action);
    if (!given->ids && (action <= CLOSE) != (given->id != NULL))
        return truce__refuse(CODE_INVALID_OPTIONS, error, "the action \"%s\" %s 'id'",
                             given->action, given->id ? "does not allow" : "needs");
    status = given->ids ? queue_check_ids(call->arena, given->ids, error) : TRUCE_OK;
    if (!status && action > CLOSE)
        status = truce__operation_text(call, &name, error);
    if (!status)
        status = truce__operation_queue_of(call, given->id, &handle, error);
    if (status)
        return status;
    if (name)
        known = truce__operation_queue_is_known(call, name, reply);
    status = queue_act(call, handle->thing, (enum queue_action)action, given, reply, error);
    truce__operation_return(call, handle);
    if (!status && name)
        BSON_APPEND_BOOL(reply, "known", known);
    return status;
}

static const struct operation_row queue_action_operation = {
    OPERATION("truceQueue", ROLE_WRITE,
              "cancels, retries, or discards a job; closes a batch; pauses or resumes a queue"),
    .target = "queue",
    .optional = true,
    .value = "the queue; with `id`, 1 is the queue of the job",
    .answer =
        "with pause, resume, and redrive `known`: false if the queue had no job and no settings, as "
        "if its name is misspelled. A `note` then names the queues that have jobs. With redrive also "
        "`count`, and `more`: true if others may exist; send the command again. With `ids`, `count`, and `skipped`: the number of jobs that do "
        "not exist or whose state does not allow the action. An error: 125 (not found) no such job "
        "exists in the queue; 2 (invalid) the state of the job does not allow the action",
    .fields = look_after_fields,
    .size = sizeof(struct queue_given),
    .run = run_queue_action,
    .ways = OPERATION_COMMITS | OPERATION_STRICT,
    .example = "{truceQueue: 'mail', action: 'pause'}",
};

/* ---- truceQueueLimit ------------------------------------------------------------------------- */

struct limit_given {
    int64_t running, rate, perMS;
    const char *pool;
};

static const struct operation_field limit_fields[] = {
    {GIVEN(limit_given, running, FIELD_NUMBER),
     "the number of jobs that run at once; absent: any number", 1, INT32_MAX},
    {GIVEN(limit_given, rate, FIELD_NUMBER), "the number of jobs that begin in `perMS`", 1,
     INT32_MAX},
    {GIVEN(limit_given, perMS, FIELD_DURATION), "the period of `rate` in milliseconds", 1,
     INT32_MAX},
    {GIVEN(limit_given, pool, FIELD_TEXT),
     "the pool that the limits belong to; queues of one pool share them; absent: the queue's own"},
    {{0}}};

static truce_status run_limit(struct operation_call *call, const void *arg, bson_t *reply,
                              bson_error_t *error)
{
    const struct limit_given *given = arg;
    const truce_queue_limits limits = {.running = (uint32_t)given->running,
                                       .rate = (uint32_t)given->rate,
                                       .per_ms = (uint32_t)given->perMS,
                                       .pool = given->pool};
    const char *name;
    struct handle *handle;
    bool known;
    truce_status status;

    if (!given->rate != !given->perMS)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'rate' and 'perMS' must be given together");
    if (given->pool && !given->rate && !given->running)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'pool' needs 'running' or 'rate': the limits of the pool");
    status = truce__operation_text(call, &name, error);
    if (!status)
        status = truce__operation_queue(call, NULL, 0, &handle, error);
    if (status)
        return status;
    known = truce__operation_queue_is_known(call, name, reply);
    status = truce_queue_limit(handle->thing, &limits, error);
    truce__operation_return(call, handle);
    if (!status)
        BSON_APPEND_BOOL(reply, "known", known);
    return status;
}

static const struct operation_row limit_operation = {
    OPERATION("truceQueueLimit", ROLE_WRITE,
              "limits how many jobs of a queue run at once, or begin in a period"),
    .target = "queue",
    .value = "the queue",
    .answer =
        "`known`: false if the queue had no job and no settings, as if its name is misspelled. A "
        "`note` then names the queues that have jobs. Without any field, the queue has no limits. The limits hold for all processes, and take "
        "effect within a second",
    .fields = limit_fields,
    .size = sizeof(struct limit_given),
    .run = run_limit,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceQueueLimit: 'mail', running: 4, rate: 100, perMS: 60000}",
};

/* ---- reading --------------------------------------------------------------------------------- */

struct jobs_given {
    const bson_oid_t *id, *after;
    const char *state, *tag;
    int64_t limit;
};

static const char *const job_states[] = {"ready", "delayed", "running",   "waiting",   "blocked",
                                         "done",  "dead",    "cancelled", "discarded", NULL};

static const struct operation_field jobs_fields[] = {
    {GIVEN(jobs_given, id, FIELD_OID), "only this job"},
    {GIVEN(jobs_given, state, FIELD_TEXT), "only jobs in this state", .words = job_states},
    {GIVEN(jobs_given, tag, FIELD_TEXT), "only jobs with this tag"},
    {GIVEN(jobs_given, after, FIELD_OID),
     "only jobs after this _id, the last one of the previous page"},
    {GIVEN(jobs_given, limit, FIELD_NUMBER), "the maximum number of jobs; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static void jobs_filter(const struct jobs_given *given, const char *queue, bson_t *filter)
{
    if (given->id)
        BSON_APPEND_OID(filter, "_id", given->id);
    else if (given->after)
        BCON_APPEND(filter, "_id", "{", "$gt", BCON_OID(given->after), "}");
    if (queue)
        BSON_APPEND_UTF8(filter, "queue", queue);
    if (given->state)
        BSON_APPEND_UTF8(filter, "state", given->state);
    if (given->tag)
        BSON_APPEND_UTF8(filter, "tags", given->tag);
}

static bson_t *jobs_projection(void)
{
    bson_t *projection = bson_new();

    for (const char *const *field = inner_fields; *field; field++)
        BSON_APPEND_INT32(projection, *field, 0);
    return projection;
}

static truce_status run_jobs(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct jobs_given *given = arg;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1)),
           *projection = jobs_projection();
    truce_find_options options = {.sort = sort, .projection = projection};
    const char *name;
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status = truce__operation_optional_text(call, &name, error);

    if (!status && given->id && given->after)
        status = truce__refuse(CODE_INVALID_OPTIONS, error,
                               "'after' is not allowed with 'id', which finds one job");
    truce__reply_list_begin(&list, given->limit);
    options.limit = list.limit + 1; /* With a limit, no plan sorts all jobs of a state. */
    jobs_filter(given, name, &filter);
    if (!status)
        status = truce_find(call->store, QUEUE, &filter, &options, &cursor, error);
    if (!status)
        status = truce__reply_list_read(&list, truce__restored_cursor(cursor), error);
    bson_destroy(projection);
    bson_destroy(sort);
    bson_destroy(&filter);
    if (!status && name && !list.count && !call->transaction)
        (void)queue_is_known(call, LISTED_SCAN_MS, name, reply);
    return truce__reply_list_end(&list, status, "jobs", reply);
}

static const struct operation_row jobs_operation = {
    OPERATION("truceJobs", ROLE_READ,
              "lists the jobs of a queue, or of all queues, the oldest first"),
    .target = "queue",
    .optional = true,
    .value = "the queue; 1: all queues",
    .answer =
        "`jobs`: each {_id, queue, state, priority, created, attempt, payload, result, errors, "
        "...}; and `more`: continue with `after` the last _id. If the list is empty, and the queue "
        "has no jobs and no settings, as if its name is misspelled, a `note` names the queues that "
        "have jobs",
    .fields = jobs_fields,
    .size = sizeof(struct jobs_given),
    .run = run_jobs,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceJobs: 'mail', state: 'ready', limit: 10}",
};

static truce_status run_queues(struct operation_call *call, const void *given, bson_t *reply,
                               bson_error_t *error)
{
    bson_t stats;
    truce_status status = truce_queue_stats(call->store, &stats, error);

    (void)given;
    if (!status)
        BSON_APPEND_ARRAY(reply, "queues", &stats);
    bson_destroy(&stats);
    return status;
}

static const struct operation_row queues_operation = {
    OPERATION("truceQueues", ROLE_READ, "returns the statistics of the queues of the database"),
    .value = "1",
    .answer = "`queues`: each {queue, paused, ready, delayed, waiting, blocked, running, dead, "
              "oldest_ms}",
    .fields = truce__no_fields,
    .run = run_queues,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceQueues: 1}",
};

const struct operation_row *const queue_operations[] = {&enqueue_operation, &jobs_operation,
                                                        &queues_operation,  &queue_action_operation,
                                                        &limit_operation,   NULL};
