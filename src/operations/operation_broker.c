/* truceConsumers: the consumers of message brokers. */
#include "operations/operation.h"
#include "truce/broker.h"

static truce_status broker_run_consumers(struct operation_call *call, const void *given,
                                         bson_t *reply, bson_error_t *error)
{
    bson_t consumers;
    truce_status status = truce_consumers(call->store, &consumers, error);

    (void)given;
    if (!status)
        BSON_APPEND_ARRAY(reply, "consumers", &consumers);
    bson_destroy(&consumers);
    return status;
}

static const struct operation_row consumers_operation = {
    OPERATION("truceConsumers", ROLE_READ,
              "returns the consumers of message brokers, in all processes"),
    .value = "1",
    .answer = "`consumers`: each {consumer, source, into, rate, waiting, received, redelivered, "
              "applied, duplicate, stale, rejected, quarantined, reconnects, lastMessage, updated, "
              "workers}. The array `workers` has the running threads, each {worker, started, "
              "updated, rate, waiting}. It is empty if the consumer is stopped",
    .fields = truce__no_fields,
    .run = broker_run_consumers,
    .ways = OPERATION_REPEATABLE,
    .example = "{truceConsumers: 1}",
};

const struct operation_row *const broker_operations[] = {&consumers_operation, NULL};
