#ifndef TRUCE_CLI_BROKER_CONSUME_OPTIONS_H
#define TRUCE_CLI_BROKER_CONSUME_OPTIONS_H

/* The options of truce consume, also in a file for truce serve --consume. */
#include "cli/core/cli.h"
#include "truce/broker.h"

#define CONSUME_WORKERS_MAX 64
#define CONSUME_DAY_MS      INT64_C(86400000)

struct consume_call {
    /* The options of the library. Their strings are borrowed from the call; the mapping is
     * owned. */
    truce_consume_options options;
    int workers;
    bson_t map;
};

/* Reads the options, except `report` and `metrics`. If they are wrong, prints the error and returns
 * false. The call is initialized in any case. */
bool consume_options_read(struct cli *cli, struct consume_call *call);
void consume_options_release(struct consume_call *call);

/* Returns whether each worker has its own part of the messages, as with Kafka. */
bool consume_options_divided(const struct consume_call *call);

#endif
