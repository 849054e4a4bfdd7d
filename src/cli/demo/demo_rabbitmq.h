#ifndef TRUCE_CLI_DEMO_DEMO_RABBITMQ_H
#define TRUCE_CLI_DEMO_DEMO_RABBITMQ_H

/* A private RabbitMQ for a story: Debian's server on free ports of this host, with its files in a
 * directory of its own. */
#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

struct demo_rabbitmq {
    char directory[80];
    int port;
    /* The process of the script that starts the server, and Erlang's name server. 0 means not
     * running. */
    pid_t starter, names;
};

/* Returns whether the server is installed. */
bool demo_rabbitmq_is_installed(void);
/* Starts the server with these durable queues (a list that ends with NULL). Fails with IO if the
 * server does not start. The caller calls demo_rabbitmq_end in any case. */
truce_status demo_rabbitmq_begin(struct demo_rabbitmq *server, const char *const *queues,
                                 bson_error_t *error);
/* Kills the server and removes its files. */
void demo_rabbitmq_end(struct demo_rabbitmq *server);

#endif
