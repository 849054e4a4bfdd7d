/* truce work: which job is next, and the signs of life of one at work. */
#include "base/field.h"
#include "cli/queue/work.h"
#include "patterns/queue/queue.h"

static truce_status claim_by_weight(struct work *work, struct work_job *at, bson_error_t *error)
{
    truce_queue_source sources[WORK_QUEUES_MAX] = {{0}};
    size_t found;
    truce_status status;

    for (int i = 0; i < work->count; i++)
        sources[i] = (truce_queue_source){.queue = work->sources[i].queue,
                                          .weight = work->sources[i].weight};
    status = truce_queue_claim_from(sources, (size_t)work->count, 1, &at->job, &found, error);
    for (int i = 0; i < work->count && !status; i++) {
        if (work->sources[i].queue == truce_job_queue(at->job))
            at->source = &work->sources[i];
    }
    return status;
}

bool work_begun_all(struct work *work)
{
    return work->limit && atomic_load(&work->begun) >= work->limit;
}

/* The job counts before it is claimed: several look for one at once. */
truce_status work_claim(struct work *work, struct work_job *at, bson_error_t *error)
{
    truce_status status = TRUCE_NOT_FOUND;

    *at = (struct work_job){0};
    if (atomic_fetch_add(&work->begun, 1) < work->limit || !work->limit)
        status = claim_by_weight(work, at, error);
    if (status)
        atomic_fetch_sub(&work->begun, 1);
    at->begun_ns = at->extended_ns = truce__clock_monotonic_ns();
    return status;
}

truce_status work_pause(struct work *work, uint64_t *token, uint32_t most_ms, bson_error_t *error)
{
    truce_status status = truce_wait(work->cli->store, "truce_queue", token, most_ms, error);

    return status == TRUCE_TIMEOUT ? TRUCE_OK : status;
}

truce_status work_rest(struct work *work, uint64_t *token, bson_error_t *error)
{
    int64_t most_ms = INT32_MAX, one_ms;

    for (int i = 0; i < work->count; i++) {
        one_ms = truce__queue_pause_ms(work->sources[i].queue);
        most_ms = one_ms < most_ms ? one_ms : most_ms;
    }
    return work_pause(work, token, (uint32_t)most_ms, error);
}

int64_t work_timeout_ms(const struct work_job *at)
{
    return truce__field_number(truce_job_document(at->job), "timeout_ms");
}

static void keep_lease(const struct work *work, struct work_job *at)
{
    bson_error_t error;

    if (!work_is_over(at->extended_ns, work->lease_ms / 3))
        return;
    at->extended_ns = truce__clock_monotonic_ns();
    if (truce_job_extend(at->job, &error) == TRUCE_EXPIRED)
        at->lost = true; /* what else fails is tried again, and the lease ends if it goes on */
}

void work_look_after(const struct work *work, struct work_job *at)
{
    int64_t timeout_ms = work_timeout_ms(at);

    if (!at->lost)
        keep_lease(work, at);
    at->lost = at->lost || truce_job_cancelled(at->job);
    at->timed_out = at->timed_out || (timeout_ms && work_is_over(at->begun_ns, timeout_ms));
}
