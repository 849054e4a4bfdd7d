#ifndef TRUCE_CLI_SERVER_SERVE_CONSUME_H
#define TRUCE_CLI_SERVER_SERVE_CONSUME_H

/* Consumers of message brokers in the server (--consume). */
#include "cli/core/cli.h"
#include "server/server.h"

struct serve_consume;

/* Checks the files of --consume before the store is created. Prints the error and returns the exit
 * code. */
int serve_consume_check(const struct cli *cli, const char *own);
/* Starts the consumers of the files of --consume. `own` is the name of the store's own database.
 * Prints an error of a file and returns the exit code. Without files, *consume is NULL. */
int serve_consume_begin(const struct cli *cli, truce_store *store, const char *own, struct log *log,
                        struct serve_consume **consume);

/* Ends the consumers after their current batches. Called before the store is closed. NULL is
 * allowed. */
void serve_consume_end(struct serve_consume *consume);

#endif
