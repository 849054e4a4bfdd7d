#ifndef TRUCE_SERVER_ADMIN_METRICS_QUEUES_H
#define TRUCE_SERVER_ADMIN_METRICS_QUEUES_H

#include "base/buffer.h"
#include "truce/store.h"

/* The maximum number of queues that have metrics of their own. The others are summed under the
 * queue "other". */
#define METRICS_QUEUES_MAX 100

/* Appends the depth of the queues by state, the age of their oldest ready job, and the times of the
 * jobs of this process. */
void metrics_put_queues(truce_store *store, struct buffer *out);

#endif
