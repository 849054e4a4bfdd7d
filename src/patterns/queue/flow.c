/*
 * Workflows: jobs that wait for each other by name, added in one commit. They are put in an order in which each comes
 * behind those that it waits for; where there is none they wait in a circle, and are refused.
 */
#include <string.h>

#include "base/id.h"
#include "base/limits.h"
#include "base/reserved_fields.h"
#include "patterns/queue/queue.h"

struct flow {
    const truce_flow_job *jobs;
    size_t count;
    bson_oid_t *ids;
    size_t *order;  /* in which they are added */
    size_t ordered; /* so many have their place */
    bool *placed;
    bson_error_t *error;
};

/* `count` if there is none of that name. */
static size_t flow_find(const struct flow *flow, const char *name)
{
    size_t i = 0;

    while (i < flow->count && strcmp(flow->jobs[i].name, name))
        i++;
    return i;
}

/* ---- what may be added -------------------------------------------------------------------------- */

static truce_status flow_check_one(const struct flow *flow, size_t i)
{
    static const truce_job_options none;
    const truce_flow_job *job = &flow->jobs[i];
    const truce_job_options *options = job->options ? job->options : &none;
    truce_status status = ROOM_CHECK(job, "truce_flow_job", flow->error);

    if (!status && (!job->queue || !job->name))
        status = truce__fail(TRUCE_INVALID, flow->error, "job %zu of the workflow has no %s", i + 1,
                             job->queue ? "name" : "queue");
    if (!status && job->queue->store != flow->jobs[0].queue->store)
        status = truce__fail(TRUCE_INVALID, flow->error, "the workflow is of two stores");
    if (!status && (options->unique || options->unique_payload || options->batch || options->id))
        status =
            truce__fail(TRUCE_INVALID, flow->error,
                        "job \"%s\" of the workflow has a unique key, a batch or an id", job->name);
    return status ? status : truce__job_check(job->queue, job->payload, options, flow->error);
}

static truce_status check_edges(const struct flow *flow, size_t i, size_t *edges)
{
    const truce_flow_job *job = &flow->jobs[i];
    size_t count = 0;

    if (flow_find(flow, job->name) != i)
        return truce__fail(TRUCE_INVALID, flow->error,
                           "two jobs of the workflow have the name \"%s\"", job->name);
    for (; job->after && job->after[count]; count++) {
        if (++*edges > FLOW_EDGES_MAX)
            return truce__fail(TRUCE_LIMIT, flow->error,
                               "the jobs of the workflow wait for each other more than %d times",
                               FLOW_EDGES_MAX);
        if (flow_find(flow, job->after[count]) == flow->count)
            return truce__fail(TRUCE_INVALID, flow->error,
                               "job \"%s\" waits for \"%s\", which is not there", job->name,
                               job->after[count]);
    }
    if (count + (job->options ? job->options->after_count : 0) > JOB_AFTER_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error, "job \"%s\" waits for more than %d others",
                           job->name, JOB_AFTER_MAX);
    return count ? truce__after_indexes(job->queue, flow->error) : TRUCE_OK;
}

static truce_status flow_check(const struct flow *flow)
{
    size_t edges = 0;
    truce_status status = TRUCE_OK;

    if (flow->count > FLOW_JOBS_MAX)
        return truce__fail(TRUCE_LIMIT, flow->error, "a workflow has up to %d jobs, and not %zu",
                           FLOW_JOBS_MAX, flow->count);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_check_one(flow, i);
    for (size_t i = 0; i < flow->count && !status; i++)
        status = check_edges(flow, i, &edges);
    return status;
}

/* ---- the order ---------------------------------------------------------------------------------- */

/* The first that it waits for and that has no place yet; `count`: none. */
static size_t awaited(const struct flow *flow, size_t i)
{
    const char *const *after = flow->jobs[i].after;

    for (; after && *after; after++) {
        size_t other = flow_find(flow, *after);

        if (!flow->placed[other])
            return other;
    }
    return flow->count;
}

/* Whoever has no place waits for one that has none: going from one to the next comes back to one that was passed. */
static truce_status circle(const struct flow *flow)
{
    size_t *passed = bson_malloc0(flow->count * sizeof *passed), i = 0, step = 1, first;
    bson_string_t *names;
    truce_status status;

    while (flow->placed[i])
        i++;
    for (; !passed[i]; i = awaited(flow, i))
        passed[i] = step++;
    first = i;
    names = bson_string_new(flow->jobs[first].name);
    do {
        i = awaited(flow, i);
        if (names->len < 300)
            bson_string_append_printf(names, " after %s", flow->jobs[i].name);
    } while (i != first);
    status = truce__fail(TRUCE_INVALID, flow->error, "the jobs wait for each other in a circle: %s",
                         names->str);
    bson_string_free(names, true);
    bson_free(passed);
    return status;
}

static truce_status put_in_order(struct flow *flow)
{
    size_t before;

    do {
        before = flow->ordered;
        for (size_t i = 0; i < flow->count; i++) {
            if (!flow->placed[i] && awaited(flow, i) == flow->count) {
                flow->placed[i] = true;
                flow->order[flow->ordered++] = i;
            }
        }
    } while (flow->ordered < flow->count && flow->ordered > before);
    return flow->ordered < flow->count ? circle(flow) : TRUCE_OK;
}

/* ---- the commit ----------------------------------------------------------------------------------- */

static truce_status flow_add_one(const struct flow *flow, truce_commit *commit, size_t i,
                                 bson_error_t *error)
{
    const truce_flow_job *job = &flow->jobs[i];
    truce_job_options options = job->options ? *job->options : (truce_job_options){0};
    bson_oid_t *after = bson_malloc((JOB_AFTER_MAX + 1) * sizeof *after);
    truce_status status;

    if (options.after_count)
        memcpy(after, options.after, options.after_count * sizeof *after);
    for (const char *const *name = job->after; name && *name; name++)
        bson_oid_copy(&flow->ids[flow_find(flow, *name)], &after[options.after_count++]);
    options.after = after;
    options.name = job->name;
    status = truce__job_add(job->queue, commit, job->payload, &options, &flow->ids[i], error);
    bson_free(after);
    return status;
}

static truce_status flow_add_all(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct flow *flow = arg;
    truce_status status = TRUCE_OK;

    for (size_t i = 0; i < flow->count && !status; i++)
        status = flow_add_one(flow, commit, flow->order[i], error);
    return status;
}

truce_status truce_queue_add_flow(const truce_flow_job *jobs, size_t count, truce_commit *commit,
                                  bson_oid_t *ids, bson_error_t *error)
{
    struct flow flow = {.jobs = jobs, .count = count, .ids = ids, .error = error};
    truce_status status = flow_check(&flow);

    if (status || !count)
        return status;
    flow.order = bson_malloc0(count * sizeof *flow.order);
    flow.placed = bson_malloc0(count * sizeof *flow.placed);
    status = put_in_order(&flow);
    for (size_t i = 0; i < count; i++)
        truce__id_new(&ids[i]);
    if (!status)
        status = truce__queue_run(jobs[0].queue, commit, flow_add_all, &flow, error);
    bson_free(flow.order);
    bson_free(flow.placed);
    return status;
}
