#ifndef TRUCE_CLI_QUEUE_QUEUE_OPTIONS_H
#define TRUCE_CLI_QUEUE_QUEUE_OPTIONS_H

/* Options and arguments that several commands of queues share. */
#include "cli/core/cli.h"

truce_queue *cli_queue_open(const struct cli *cli, const char *name);

/* Reads --priority, --attempts, --timeout, --keep and its variants, --metadata, and --tag. The
 * caller initialises the two documents; `options` borrows them. If a value is wrong, prints the
 * error and returns false. */
bool cli_job_options(const struct cli *cli, truce_job_options *options, bson_t *metadata,
                     bson_t *tags);

/* Reads a rate, "100/1m": 100 jobs in one minute (ms, s, m, h). NULL gives zeros. If the text is
 * not a rate, prints the error and returns false. */
bool cli_rate(const struct cli *cli, const char *text, uint32_t *jobs, uint32_t *per_ms);

/* Reads "cancel", "go-on", "wait", or NULL. Another word prints an error and returns false. */
bool cli_job_failure(const struct cli *cli, const char *text, truce_job_failure *failure);

/* Finds the job of an id and returns the exit code. `job` is always initialised. */
int cli_find_job(struct cli *cli, const char *text, bson_oid_t *id, bson_t *job);

typedef truce_status job_function(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                  bson_error_t *error);
/* Calls the function for the job of each argument and returns the worst exit code. */
int cli_each_job(struct cli *cli, job_function *function, const char *done);

#endif
