#ifndef TRUCE_SERVER_PATTERN_PATTERN_QUEUE_H
#define TRUCE_SERVER_PATTERN_PATTERN_QUEUE_H

/* What the files of the queue's commands share. */
#include "operations/operation.h"
#include "truce/queue.h"

/* The queue that the command names; `worker` NULL: the server's name; `lease_ms` 0: the default. */
truce_status truce__operation_queue(struct operation_call *call, const char *worker,
                                    int64_t lease_ms, struct handle **handle, bson_error_t *error);
/* Appends a job without the fields that are the server's own. `token`: of a claim; NULL: none. */
void truce__operation_append_job(const bson_t *job, const bson_oid_t *token, const char *key,
                                 bson_t *reply);

#endif
