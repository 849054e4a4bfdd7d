#ifndef TRUCE_BROKER_CONSUMER_LIST_H
#define TRUCE_BROKER_CONSUMER_LIST_H

/*
 * The collection truce_consumers: the consumers of all processes, with their counts and workers.
 *
 *     {_id: "enrolments", source: "amqp://localhost/enrolments", into: "set:students.classes",
 *      received, redelivered, applied, duplicate, stale, rejected, quarantined, reconnects,
 *      lastMessage, updated,
 *      workers: [{worker: "host:4711:0", started, updated, rate, waiting}]}
 *
 * Each worker adds its counts every few seconds, so the counts never decrease. If a worker is
 * killed, the counts of its last seconds are lost. The document is a report only: no consumer
 * depends on it.
 */
#include "truce/broker.h"

/* Without messages, a worker reports less often. A worker without a report for CONSUMERS_LIVE_MS is
 * dead. */
#define CONSUMERS_BUSY_MS 5000
#define CONSUMERS_IDLE_MS 10000
#define CONSUMERS_LIVE_MS 30000

/* The report of one worker. */
struct consumers_report {
    const char *consumer, *source, *into, *worker;
    int64_t started_ms;
    /* The time of the last message, or 0 if none came. */
    int64_t last_message_ms;
    /* Messages per second since the last report. */
    double rate;
    /* The counts now, and at the last report. */
    truce_consume_counts now, before;
    /* The worker ends: its entry is removed. */
    bool ends;
};

/* Adds a report. */
truce_status truce__consumers_report(truce_store *store, const struct consumers_report *report,
                                     bson_error_t *error);

/* Removes consumers without a report for a month. */
truce_status truce__consumers_forget(truce_store *store, bson_error_t *error);

#endif
