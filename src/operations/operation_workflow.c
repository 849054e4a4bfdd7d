/* Queues: workflows, results of jobs, and events. Batches are options of truceEnqueue and
 * truceQueue. */
#include <stdio.h>

#include "bson/value.h"
#include "operations/operation_queue.h"
#include "operations/reply_list.h"

#define FLOW_JOBS_MAX 500

/* ---- truceFlow ------------------------------------------------------------------------------- */

struct flow_given {
    const bson_t *jobs;
};

static const struct operation_field flow_fields[] = {
    {GIVEN(flow_given, jobs, FIELD_ARRAY),
     "up to 500 jobs, each {name, payload, after: [names], queue} with options of truceEnqueue",
     .needed = true, .each = FIELD_DOCUMENT},
    {{0}}};

struct flow_job_given {
    struct job_timed timed; /* Must be the first field: the table has offsets into it. */
    const char *name, *queue;
    const bson_t *payload, *after;
};

static const struct operation_field flow_job_fields[] = {
    {GIVEN(flow_job_given, name, FIELD_TEXT), "unique in the workflow", .needed = true},
    {GIVEN(flow_job_given, queue, FIELD_TEXT), "absent: the queue of the workflow"},
    {GIVEN(flow_job_given, payload, FIELD_DOCUMENT), "the payload; absent: empty"},
    {GIVEN(flow_job_given, after, FIELD_ARRAY), "the names of the jobs that it waits for"},
    JOB_TIMED_FIELDS,
    {{0}}};

/* A workflow while it is read, in the arena of the call. */
struct flow {
    truce_flow_job *jobs;
    truce_job_options *options;
    struct handle **handles;
    /* The number of jobs whose handle the flow holds. */
    size_t count;
};

/* Reads the names of the jobs to wait for into the arena, followed by NULL. */
static truce_status flow_read_after(struct operation_call *call, const bson_t *array,
                                    truce_flow_job *job, bson_error_t *error)
{
    uint32_t count = array ? bson_count_keys(array) : 0, i = 0;
    const char **names;
    bson_iter_t at;

    if (!count)
        return TRUCE_OK;
    names = truce__arena_take(call->arena, (count + 1) * sizeof *names);
    (void)bson_iter_init(&at, array);
    while (bson_iter_next(&at)) {
        if (!BSON_ITER_HOLDS_UTF8(&at))
            return truce__element_wrong_type("after", &at, "the name of a job", error);
        names[i++] = bson_iter_utf8(&at, NULL);
    }
    names[i] = NULL;
    job->after = names;
    return TRUCE_OK;
}

/* Reads a job, and takes the handle of its queue, which is that of the workflow by default. */
static truce_status flow_read_job(struct operation_call *call, const bson_iter_t *at,
                                  const char *queue, struct flow *flow, bson_error_t *error)
{
    static const bson_t none = BSON_INITIALIZER;
    struct flow_job_given given = {.payload = &none};
    truce_flow_job *job = &flow->jobs[flow->count];
    truce_job_options *options = &flow->options[flow->count];
    truce_status status;

    if (!BSON_ITER_HOLDS_DOCUMENT(at))
        return truce__refuse(CODE_TYPE_MISMATCH, error, "must be a document, not %s",
                             truce__type_name((uint8_t)bson_iter_type(at)));
    status = truce__operation_nested(call, truce__field_view(call->arena, at), flow_job_fields,
                                     &given, error);
    if (!status)
        status = truce__job_timed(&given.timed, options, error);
    if (status)
        return status;
    *job = (truce_flow_job){.name = given.name, .payload = given.payload, .options = options};
    status = flow_read_after(call, given.after, job, error);
    if (status)
        return status;
    if (!given.queue && !queue)
        return truce__refuse(CODE_BAD_VALUE, error,
                             "the job '%.80s' has no 'queue', and neither has the workflow",
                             given.name ? given.name : "");
    flow->handles[flow->count] =
        truce__operation_queue_named(call, given.queue ? given.queue : queue, NULL, 0);
    job->queue = flow->handles[flow->count++]->thing;
    return TRUCE_OK;
}

/* Reads the jobs of a workflow. Also after a failure, the caller gives back the handles of
 * `flow`. */
static truce_status flow_read(struct operation_call *call, const bson_t *jobs, struct flow *flow,
                              bson_error_t *error)
{
    uint32_t count = bson_count_keys(jobs);
    const char *queue;
    bson_iter_t at;
    truce_status status = truce__operation_optional_text(call, &queue, error);

    *flow = (struct flow){0};
    if (status)
        return status;
    if (!count || count > FLOW_JOBS_MAX)
        return truce__refuse(CODE_INVALID_LENGTH, error,
                             "'jobs' must have 1 to %d jobs, and has %u", FLOW_JOBS_MAX, count);
    flow->jobs = truce__arena_take(call->arena, count * sizeof *flow->jobs);
    flow->options = truce__arena_take(call->arena, count * sizeof *flow->options);
    flow->handles = truce__arena_take(call->arena, count * sizeof(struct handle *));
    (void)bson_iter_init(&at, jobs);
    while (!status && bson_iter_next(&at))
        status = flow_read_job(call, &at, queue, flow, error);
    if (status)
        (void)truce__operation_element(status, "job", (int64_t)flow->count + 1, error);
    return status;
}

/* Appends the array `jobs` of {name, id}, in the order of the request. */
static void flow_append_ids(const struct flow *flow, const bson_oid_t *ids, bson_t *reply)
{
    bson_t array, one;

    BSON_APPEND_ARRAY_BEGIN(reply, "jobs", &array);
    for (uint32_t i = 0; i < flow->count; i++) {
        char buffer[16];
        const char *key;

        bson_uint32_to_string(i, &key, buffer, sizeof buffer);
        BSON_APPEND_DOCUMENT_BEGIN(&array, key, &one);
        BCON_APPEND(&one, "name", BCON_UTF8(flow->jobs[i].name), "id", BCON_OID(&ids[i]));
        bson_append_document_end(&array, &one);
    }
    bson_append_array_end(reply, &array);
}

static truce_status flow_run(struct operation_call *call, const void *arg, bson_t *reply,
                             bson_error_t *error)
{
    const struct flow_given *given = arg;
    struct flow flow;
    truce_status status = flow_read(call, given->jobs, &flow, error);

    if (!status) {
        bson_oid_t *ids = truce__arena_take(call->arena, flow.count * sizeof *ids);

        status = truce_queue_add_flow(flow.jobs, flow.count, call->commit, ids, error);
        if (!status)
            flow_append_ids(&flow, ids, reply);
    }
    for (size_t i = 0; i < flow.count; i++)
        truce__operation_return(call, flow.handles[i]);
    return status;
}

static const struct operation_row flow_operation = {
    OPERATION("truceFlow", ROLE_WRITE, "adds jobs that wait for each other, all or none"),
    .target = "queue",
    .optional = true,
    .value = "the queue of the jobs that name no other queue; 1: every job names one",
    .answer = "`jobs`: each {name, id}. An error, with nothing added: 2 (invalid) a name occurs "
              "twice or does not exist, or jobs wait for each other in a cycle",
    .fields = flow_fields,
    .size = sizeof(struct flow_given),
    .run = flow_run,
    .ways = OPERATION_COMMITS | OPERATION_TRANSACTS,
    .example = "{truceFlow: 'build', jobs: [{name: 'compile', payload: {n: 1}}, {name: 'test', "
               "payload: {n: 2}, after: ['compile']}]}",
};

/* ---- truceJobGraph, truceJobResults ---------------------------------------------------------- */

static truce_status flow_run_graph(struct operation_call *call, const void *given, bson_t *reply,
                                   bson_error_t *error)
{
    const bson_oid_t *id;
    bson_t graph;
    truce_status status = truce__operation_oid(call, &id, error);

    (void)given;
    if (status)
        return status;
    status = truce_queue_graph(call->store, id, &graph, error);
    if (!status)
        BSON_APPEND_ARRAY(reply, "jobs", &graph);
    bson_destroy(&graph);
    return status;
}

static const struct operation_row graph_operation = {
    OPERATION("truceJobGraph", ROLE_READ, "lists the jobs that are connected with a job"),
    .target = "job",
    .value = "the _id of the job",
    .answer =
        "`jobs`, up to 1,000: each {_id, name, queue, state, level, after}, where `after` has "
        "the ids of the jobs that it waits for. \"not found\": no such job exists",
    .fields = truce__no_fields,
    .run = flow_run_graph,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceJobGraph: {$oid: '0123456789abcdef01234567'}}",
};

static truce_status flow_run_results(struct operation_call *call, const void *given, bson_t *reply,
                                     bson_error_t *error)
{
    const bson_oid_t *id;
    struct reply_list list;
    truce_cursor *cursor;
    truce_status status = truce__operation_oid(call, &id, error);

    (void)given;
    if (status)
        return status;
    truce__reply_list_begin(&list, REPLY_LIST_MAX);
    status = truce_queue_results(call->store, id, &cursor, error);
    if (!status)
        status = truce__reply_list_read(&list, cursor, error);
    return truce__reply_list_end(&list, status, "jobs", reply);
}

static const struct operation_row results_operation = {
    OPERATION("truceJobResults", ROLE_READ,
              "returns the results of the jobs that a job waited for"),
    .target = "job",
    .value = "the _id of the job",
    .answer = "`jobs`: each {_id, name, queue, state, result, errors}, as far as they have ended, "
              "where `errors` has the error of the last failed attempt: [{at, attempt, text}]; and "
              "`more`: whether others exist. A job that does not exist has none",
    .fields = truce__no_fields,
    .run = flow_run_results,
    .ways = OPERATION_REPEATABLE | OPERATION_TRANSACTS,
    .example = "{truceJobResults: {$oid: '0123456789abcdef01234567'}}",
};

/* ---- truceSignal ----------------------------------------------------------------------------- */

struct signal_given {
    const bson_oid_t *id;
    const char *name;
    const bson_t *event;
};

static const struct operation_field signal_fields[] = {
    {GIVEN(signal_given, id, FIELD_OID), "the _id of the job", .needed = true},
    {GIVEN(signal_given, name, FIELD_TEXT), "the name of the event", .needed = true},
    {GIVEN(signal_given, event, FIELD_DOCUMENT),
     "the contents of the event, up to 64 KiB; absent: empty"},
    {{0}}};

static truce_status flow_run_signal(struct operation_call *call, const void *arg, bson_t *reply,
                                    bson_error_t *error)
{
    const struct signal_given *given = arg;
    struct handle *handle;
    truce_status status = truce__operation_queue_of(call, given->id, &handle, error);

    (void)reply;
    if (status)
        return status;
    status = truce_queue_signal(handle->thing, call->commit, given->id, given->name, given->event,
                                error);
    truce__operation_return(call, handle);
    return status;
}

static const struct operation_row signal_operation = {
    OPERATION("truceSignal", ROLE_WRITE,
              "sends an event to a job, which waits for it now or later (truceJobWait)"),
    .target = "queue",
    .optional = true,
    .value = "the queue; 1: that of the job",
    .answer =
        "nothing more. The first event of a name counts; later ones change nothing. An error: 125 "
        "(not found) no such job exists in the queue; 2 (invalid) the job has ended; 146 (limit "
        "reached) it has 100 events",
    .fields = signal_fields,
    .size = sizeof(struct signal_given),
    .run = flow_run_signal,
    .ways = OPERATION_COMMITS | OPERATION_REPEATABLE | OPERATION_STRICT | OPERATION_TRANSACTS,
    .example = "{truceSignal: 'mail', id: {$oid: '0123456789abcdef01234567'}, name: 'approved', "
               "event: {by: 'ada'}}",
};

const struct operation_row *const flow_operations[] = {&flow_operation, &graph_operation,
                                                       &results_operation, &signal_operation, NULL};
