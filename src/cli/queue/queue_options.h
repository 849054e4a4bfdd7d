#ifndef TRUCE_CLI_QUEUE_QUEUE_OPTIONS_H
#define TRUCE_CLI_QUEUE_QUEUE_OPTIONS_H

/* What the commands of queues share. */
#include "cli/core/cli.h"

truce_queue *cli_queue_open(const struct cli *cli, const char *name);

/* "100/1m": so many in so long (ms, s, m, h); NULL: zeros. false: it is none, and that was said. */
bool cli_rate(const struct cli *cli, const char *text, uint32_t *jobs, uint32_t *per_ms);

/* "cancel", "go-on", "wait", or nothing; false: another word, and that was said. */
bool cli_job_failure(const struct cli *cli, const char *text, truce_job_failure *failure);

/* The job of that id; the exit code. `job` is always initialised. */
int cli_find_job(struct cli *cli, const char *text, bson_oid_t *id, bson_t *job);

typedef truce_status job_function(truce_queue *queue, truce_commit *commit, const bson_oid_t *id,
                                  bson_error_t *error);
/* Each of the arguments; the worst exit code. */
int cli_each_job(struct cli *cli, job_function *function, const char *done);

#endif
