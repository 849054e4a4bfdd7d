#ifndef TRUCE_CLI_BROKER_CONSUME_METRICS_H
#define TRUCE_CLI_BROKER_CONSUME_METRICS_H

/* The counts of `truce consume` as a file in the text format of Prometheus, for the textfile
 * collector of node_exporter. */
#include "base/status.h"
#include "truce/broker.h"

/* Replaces the file in one step. `into` is the target, the label of the metrics. Fails with IO if
 * the file cannot be written; the error names it. */
truce_status consume_metrics_write(const char *path, const char *into,
                                   const truce_consume_counts *counts, bson_error_t *error);

#endif
