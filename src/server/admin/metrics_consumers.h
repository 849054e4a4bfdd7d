#ifndef TRUCE_SERVER_ADMIN_METRICS_CONSUMERS_H
#define TRUCE_SERVER_ADMIN_METRICS_CONSUMERS_H

#include "base/buffer.h"
#include "truce/store.h"

/* The maximum number of consumers that have metrics. */
#define METRICS_CONSUMERS_MAX 100

/* Appends the counts of the consumers of message brokers, of all processes (truce/broker.h). */
void metrics_put_consumers(truce_store *store, struct buffer *out);

#endif
