/* Claims from several queues by weight: each claim asks the queues in a new random order. */
#include "base/limits.h"
#include "base/null.h"
#include "base/random.h"
#include "base/reserved_fields.h"
#include "patterns/queue/queue.h"

static uint32_t weights_weight(const truce_queue_source *source)
{
    return source->weight ? source->weight : 1;
}

/* Checks the queues and weights of a claim from several queues. */
static truce_status weights_check(const truce_queue_source *sources, size_t count,
                                  bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    if (!count || count > QUEUE_SOURCES_MAX)
        return truce__fail(TRUCE_INVALID, error, "cannot claim from %zu queues: expected 1 to %d",
                           count, QUEUE_SOURCES_MAX);
    for (size_t i = 0; i < count && !status; i++) {
        status = ROOM_CHECK(&sources[i], "truce_queue_source", error);
        if (!status && !sources[i].queue)
            status = truce__fail(TRUCE_INVALID, error,
                                 "source %zu of the claim has no queue: set `queue`", i + 1);
        if (!status && sources[i].weight > QUEUE_WEIGHT_MAX)
            status =
                truce__fail(TRUCE_INVALID, error, "source %zu has the weight %u: expected 1 to %d",
                            i + 1, sources[i].weight, QUEUE_WEIGHT_MAX);
    }
    return status;
}

size_t truce__queue_draw(const truce_queue_source *sources, size_t count, const bool *tried)
{
    uint64_t total = 0, drawn;
    size_t i = 0;

    for (size_t k = 0; k < count; k++)
        total += tried[k] ? 0 : weights_weight(&sources[k]);
    drawn = truce__random_entropy() % total;
    for (; tried[i] || drawn >= weights_weight(&sources[i]); i++)
        drawn -= tried[i] ? 0 : weights_weight(&sources[i]);
    return i;
}

truce_status truce_queue_claim_from(const truce_queue_source *sources, size_t count, size_t most,
                                    truce_job **jobs, size_t *found, bson_error_t *error)
{
    RETURN_IF_NULL(found, error);
    RETURN_IF_NULL(jobs, error);
    if (count)
        RETURN_IF_NULL(sources, error);

    bool tried[QUEUE_SOURCES_MAX] = {false};
    truce_status status = weights_check(sources, count, error);

    *found = 0;
    if (!status && (most < 1 || most > JOB_CLAIMS_MAX))
        status =
            truce__fail(TRUCE_INVALID, error, "cannot claim %zu jobs at once: expected 1 to %d",
                        most, JOB_CLAIMS_MAX);
    for (size_t round = 0; round < count && !status && *found < most; round++) {
        size_t i = truce__queue_draw(sources, count, tried), some = 0;

        tried[i] = true;
        status =
            truce_queue_claim_many(sources[i].queue, most - *found, jobs + *found, &some, error);
        *found += some;
        status = status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
    }
    if (*found)
        /* If the error persists, a later claim that begins with that queue reports it. */
        return TRUCE_OK;
    return status ? status : truce__fail(TRUCE_NOT_FOUND, error, "no queue has a ready job");
}

truce_queue *truce_job_queue(const truce_job *job)
{
    return job->queue;
}
