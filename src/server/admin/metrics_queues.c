/*
 * Metrics of queues. The names of databases and queues come from clients, so they are escaped and
 * cut, and their number has a maximum: further queues are summed under the queue "other".
 */
#include "server/admin/metrics_queues.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/field.h"
#include "bson/value.h"
#include "patterns/queue/queue_times.h"
#include "server/admin/metrics_text.h"
#include "store/decorators/database_view.h"

#define STATES 6

static const char *const queue_states[STATES] = {"ready",   "delayed", "waiting",
                                                 "blocked", "running", "dead"};

struct queue_figures {
    /* Names from clients, escaped for a label. */
    char database[METRICS_LABEL_BYTES], queue[METRICS_LABEL_BYTES];
    /* The number of jobs in each state, and the age of the oldest ready job. */
    int64_t counts[STATES], oldest_ms;
};

struct queue_metrics {
    /* The last element is the sum of all queues that have no element of their own. */
    struct queue_figures all[METRICS_QUEUES_MAX + 1];
    size_t count;
};

static struct queue_figures *queue_figures_take(struct queue_metrics *metrics, const char *database,
                                                const char *queue)
{
    struct queue_figures *figures = &metrics->all[metrics->count];

    if (metrics->count < METRICS_QUEUES_MAX) {
        metrics_label(database, figures->database);
        metrics_label(queue, figures->queue);
        metrics->count++;
    } else if (!figures->queue[0]) {
        snprintf(figures->queue, sizeof figures->queue, "other");
    }
    return figures;
}

/* Adds the counts and ages of the queues of one database. */
static truce_status queue_metrics_read(void *arg, truce_store *view, const char *database,
                                       bson_error_t *error)
{
    struct queue_metrics *metrics = arg;
    bson_t stats, one;
    bson_iter_t at;
    truce_status status = truce_queue_stats(view, &stats, error);

    if (!status && bson_iter_init(&at, &stats))
        while (bson_iter_next(&at)) {
            struct queue_figures *figures;
            int64_t oldest_ms;

            truce__value_bson(truce__value_of_iter(&at), &one);
            figures = queue_figures_take(metrics, database, truce__field_text(&one, "queue"));
            for (size_t i = 0; i < STATES; i++)
                figures->counts[i] += truce__field_number(&one, queue_states[i]);
            oldest_ms = truce__field_number(&one, "oldest_ms");
            if (oldest_ms > figures->oldest_ms)
                figures->oldest_ms = oldest_ms;
        }
    bson_destroy(&stats);
    return status;
}

/* Appends the figures of the queues. Queues beyond METRICS_QUEUES_MAX share one entry. */
static void queue_put_figures(const struct queue_metrics *metrics, struct buffer *out)
{
    size_t count = metrics->count + (metrics->all[METRICS_QUEUES_MAX].queue[0] != 0);

    if (!count)
        return;
    metrics_put_head(out, "truce_queue_jobs", "gauge", "Jobs of a queue, by state.");
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < STATES; k++)
            metrics_put(out,
                        "truce_queue_jobs{database=\"%s\",queue=\"%s\",state=\"%s\"} %" PRId64 "\n",
                        metrics->all[i].database, metrics->all[i].queue, queue_states[k],
                        metrics->all[i].counts[k]);
    metrics_put_head(out, "truce_queue_oldest_seconds", "gauge", "Age of the oldest ready job.");
    for (size_t i = 0; i < count; i++)
        metrics_put(out, "truce_queue_oldest_seconds{database=\"%s\",queue=\"%s\"} %.3f\n",
                    metrics->all[i].database, metrics->all[i].queue,
                    (double)metrics->all[i].oldest_ms / 1000);
}

static void queue_put_times(const struct queue_times *times, const char *name, const char *help,
                            struct buffer *out)
{
    uint64_t count = 0;

    metrics_put_head(out, name, "histogram", help);
    for (size_t i = 0; i < QUEUE_TIMES_STEPS; i++) {
        count += times->counts[i];
        metrics_put(out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name,
                    (double)truce__queue_steps_ms[i] / 1000, count);
    }
    count += times->counts[QUEUE_TIMES_STEPS];
    metrics_put(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %.3f\n%s_count %" PRIu64 "\n",
                name, count, name, (double)times->sum_ms / 1000, name, count);
}

void metrics_put_queues(truce_store *store, struct buffer *out)
{
    struct queue_metrics *metrics = bson_malloc0(sizeof *metrics);
    struct queue_times waited, ran;
    bson_error_t error;

    /* If the store fails, the scrape still succeeds, without these lines. */
    if (!truce__each_database(store, queue_metrics_read, metrics, &error))
        queue_put_figures(metrics, out);
    bson_free(metrics);
    truce__queue_times(&waited, &ran);
    queue_put_times(&waited, "truce_job_wait_seconds",
                    "Time from the addition of a job to its first claim by this server.", out);
    queue_put_times(&ran, "truce_job_run_seconds",
                    "Time from the claim of a job to the end of its attempt, by this server.", out);
}
