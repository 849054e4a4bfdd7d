/* Cron lines, which add jobs on a schedule. */
#include "base/clock.h"
#include "operations/operation_queue.h"
#include "operations/reply_list.h"
#include "store/decoded_cursor.h"
#include "store/reserved_names.h"
#include "truce/cron.h"

#define CRON_TIMES_MAX 1000

/* ---- truceCronSet ---------------------------------------------------------------------------- */

struct cron_set_given {
    struct job_common common; /* Must be the first field: the table has offsets into it. */
    const char *queue, *line, *zone, *missed;
    const bson_t *payload;
    int64_t most;
};

/* The words, in the order of truce_cron_missed. */
static const char *const cron_missed[] = {"once", "skip", "all", NULL};

static const struct operation_field cron_set_fields[] = {
    {GIVEN(cron_set_given, queue, FIELD_TEXT), "the queue of the jobs", .needed = true},
    {GIVEN(cron_set_given, line, FIELD_TEXT),
     "the schedule: \"0 3 * * *\" (minute, hour, day, month, weekday; with six fields the second "
     "comes first), \"@daily\", or \"@every 90s\"",
     .needed = true},
    {GIVEN(cron_set_given, payload, FIELD_DOCUMENT), "the payload of the jobs", .needed = true},
    {GIVEN(cron_set_given, zone, FIELD_TEXT),
     "the time zone: \"Europe/Berlin\", \"+02:00\"; absent: UTC"},
    {GIVEN(cron_set_given, missed, FIELD_TEXT),
     "the jobs for times that passed while no process ran: one job; none, unless the last time is "
     "less than a minute ago; or one for each time; absent: \"once\"",
     .words = cron_missed},
    {GIVEN(cron_set_given, most, FIELD_NUMBER),
     "with \"all\": the maximum number of these jobs; absent: 100", 1, 500},
    JOB_COMMON_FIELDS,
    {{0}}};

static bson_t *cron_filter(const char *name)
{
    return BCON_NEW("_id", BCON_UTF8(name));
}

/* Appends `next`, the next time of a cron line, or `paused`. */
static truce_status cron_append_next(struct operation_call *call, const char *name, bson_t *reply,
                                     bson_error_t *error)
{
    bson_t *filter = cron_filter(name), cron;
    bson_iter_t next;
    truce_status status = truce_find_one(call->store, QUEUE_CRONS, filter, NULL, &cron, error);

    if (!status && bson_iter_init_find(&next, &cron, "next") && BSON_ITER_HOLDS_DATE_TIME(&next))
        BSON_APPEND_DATE_TIME(reply, "next", bson_iter_date_time(&next));
    else if (!status)
        BSON_APPEND_BOOL(reply, "paused", true);
    bson_destroy(&cron);
    bson_destroy(filter);
    return status;
}

static truce_status cron_run_set(struct operation_call *call, const void *arg, bson_t *reply,
                                 bson_error_t *error)
{
    const struct cron_set_given *given = arg;
    truce_job_options job;
    truce_cron_options options = {.zone = given->zone, .most = (uint32_t)given->most, .job = &job};
    struct handle *handle;
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    if (status)
        return status;
    options.missed = (truce_cron_missed)truce__operation_choice(given->missed, cron_missed);
    if (given->most && options.missed != TRUCE_MISSED_ALL)
        return truce__refuse(CODE_INVALID_OPTIONS, error,
                             "'most' is allowed only with 'missed' \"all\"");
    truce__job_options_of_common(&given->common, &job);
    handle = truce__operation_queue_named(call, given->queue, NULL, 0);
    status = truce_cron_set(handle->thing, name, given->line, given->payload, &options, error);
    truce__operation_return(call, handle);
    return status ? status : cron_append_next(call, name, reply, error);
}

static const struct operation_row cron_set_operation = {
    OPERATION("truceCronSet", ROLE_WRITE, "sets a cron line, which adds jobs on a schedule"),
    .target = "cron",
    .value = "the name of the line",
    .answer = "`next`: the next time, a date; or `paused`: true. If the line and the zone are "
              "unchanged, the next time is kept. An error: 2 (invalid) a field of the line is "
              "wrong, the zone is unknown, or the line never fires",
    .fields = cron_set_fields,
    .size = sizeof(struct cron_set_given),
    .run = cron_run_set,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceCronSet: 'nightly', queue: 'reports', line: '0 3 * * *', zone: "
               "'Europe/Berlin', payload: {report: 'sales'}}",
};

/* ---- truceCrons ------------------------------------------------------------------------------ */

struct cron_list_given {
    const char *after;
    int64_t limit;
};

static const struct operation_field cron_list_fields[] = {
    {GIVEN(cron_list_given, after, FIELD_TEXT), "only lines after this name"},
    {GIVEN(cron_list_given, limit, FIELD_NUMBER), "the maximum number of lines; absent: 100", 1,
     REPLY_LIST_MAX},
    {{0}}};

static truce_status cron_run_list(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct cron_list_given *given = arg;
    bson_t filter = BSON_INITIALIZER, *sort = BCON_NEW("_id", BCON_INT32(1)),
           *projection = BCON_NEW("_rev", BCON_INT32(0));
    const truce_find_options options = {.sort = sort, .projection = projection};
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status;

    truce__reply_list_begin(&list, given->limit);
    if (given->after)
        BCON_APPEND(&filter, "_id", "{", "$gt", BCON_UTF8(given->after), "}");
    status = truce_find(call->store, QUEUE_CRONS, &filter, &options, &cursor, error);
    if (!status)
        status = truce__reply_list_read(&list, truce__restored_cursor(cursor), error);
    bson_destroy(projection);
    bson_destroy(sort);
    bson_destroy(&filter);
    return truce__reply_list_end(&list, status, "crons", reply);
}

static const struct operation_row cron_list_operation = {
    OPERATION("truceCrons", ROLE_READ, "lists the cron lines with their next times"),
    .value = "1",
    .answer = "`crons`, by name: each {_id, line, zone, missed, next, paused, job}; and `more`: "
              "continue with `after` the last _id",
    .fields = cron_list_fields,
    .size = sizeof(struct cron_list_given),
    .run = cron_run_list,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceCrons: 1}",
};

/* ---- truceCron ------------------------------------------------------------------------------- */

struct cron_given {
    const char *action;
};

typedef truce_status cron_action(truce_store *store, const char *name, bson_error_t *error);

static const char *const cron_actions[] = {"pause", "resume", "remove", NULL};
static cron_action *const cron_functions[] = {truce_cron_pause, truce_cron_resume,
                                              truce_cron_remove};

static const struct operation_field cron_fields[] = {
    {GIVEN(cron_given, action, FIELD_TEXT),
     "pause or resume the line, or remove it; times during a pause do not count as missed",
     .needed = true, .words = cron_actions},
    {{0}}};

static truce_status cron_run_action(struct operation_call *call, const void *arg, bson_t *reply,
                                    bson_error_t *error)
{
    const struct cron_given *given = arg;
    const char *name;
    truce_status status = truce__operation_text(call, &name, error);

    (void)reply;
    if (status)
        return status;
    return cron_functions[truce__operation_choice(given->action, cron_actions)](call->store, name,
                                                                                error);
}

static const struct operation_row cron_operation = {
    OPERATION("truceCron", ROLE_WRITE, "pauses, resumes, or removes a cron line"),
    .target = "cron",
    .value = "the name of the line",
    .answer =
        "nothing more. Jobs that the line added stay. An error: 125 (not found) no such line exists",
    .fields = cron_fields,
    .size = sizeof(struct cron_given),
    .run = cron_run_action,
    .ways = OPERATION_REPEATABLE | OPERATION_STRICT,
    .example = "{truceCron: 'nightly', action: 'pause'}",
};

/* ---- truceCronNext --------------------------------------------------------------------------- */

struct cron_next_given {
    const char *zone;
    int64_t afterMS, limit;
};

static const struct operation_field cron_next_fields[] = {
    {GIVEN(cron_next_given, zone, FIELD_TEXT), "the time zone; absent: UTC"},
    {GIVEN(cron_next_given, afterMS, FIELD_TIME),
     "the times after this one, ms since 1970; absent: now", TIME_LEAST_MS, DATE_LAST_MS},
    {GIVEN(cron_next_given, limit, FIELD_NUMBER), "the number of times; absent: 5", 1,
     CRON_TIMES_MAX},
    {{0}}};

static truce_status cron_run_next(struct operation_call *call, const void *arg, bson_t *reply,
                                  bson_error_t *error)
{
    const struct cron_next_given *given = arg;
    int64_t at_ms = given->afterMS ? given->afterMS : truce__clock_wall_ms();
    uint32_t limit = given->limit ? (uint32_t)given->limit : 5;
    const char *line;
    bson_t times = BSON_INITIALIZER;
    truce_status status = truce__operation_text(call, &line, error);

    for (uint32_t i = 0; i < limit && !status; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        status = truce_cron_next(line, given->zone, at_ms, &at_ms, error);
        if (!status)
            BSON_APPEND_DATE_TIME(&times, key, at_ms);
    }
    if (!status)
        BSON_APPEND_ARRAY(reply, "times", &times);
    bson_destroy(&times);
    return status;
}

static const struct operation_row cron_next_operation = {
    OPERATION("truceCronNext", ROLE_READ, "computes the next times of a schedule"),
    .target = "line",
    .value = "the schedule",
    .answer = "`times`: dates",
    .fields = cron_next_fields,
    .size = sizeof(struct cron_next_given),
    .run = cron_run_next,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceCronNext: '30 2 * * *', zone: 'Europe/Berlin', limit: 3}",
};

const struct operation_row *const cron_operations[] = {&cron_set_operation, &cron_list_operation,
                                                       &cron_operation, &cron_next_operation, NULL};
