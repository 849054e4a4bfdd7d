/* truce work: which job is next, and the signs of life of one at work. */
#include "base/field.h"
#include "base/random.h"
#include "cli/work.h"

/* The queues in an order that is drawn by their weights: the first that has a job gives it. */
static truce_status claim_by_weight(struct work *work, struct work_job *at, bson_error_t *error)
{
    bool tried[WORK_QUEUES_MAX] = {false};
    truce_status status = TRUCE_NOT_FOUND;

    for (int round = 0; round < work->count && status == TRUCE_NOT_FOUND; round++) {
        int64_t total = 0, drawn;
        int i = 0;

        for (int k = 0; k < work->count; k++)
            total += tried[k] ? 0 : work->sources[k].weight;
        drawn = (int64_t)(truce__random_entropy() % (uint64_t)total);
        while (tried[i] || drawn >= work->sources[i].weight) {
            drawn -= tried[i] ? 0 : work->sources[i].weight;
            i++;
        }
        tried[i] = true;
        at->source = &work->sources[i];
        status = truce_queue_claim(at->source->queue, &at->job, error);
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
