/*
 * Figures of queues. They are counted in the indexes of live and of dead jobs, queue by queue. Only
 * the first job of each queue, state, and priority is read. The figures are not a consistent
 * snapshot.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/deadline.h"
#include "base/field.h"
#include "base/limits.h"
#include "base/null.h"
#include "base/wait_limit.h"
#include "patterns/queue/queue.h"
#include "store/maintenance.h"

enum { READY, DELAYED, WAITING, BLOCKED, RUNNING, DEAD, STATES };

static const char *const states[STATES] = {"ready",   "delayed", "waiting",
                                           "blocked", "running", "dead"};

/* The figures of one queue. */
struct figures {
    char *queue;
    /* The number of jobs in each state, and the age of the oldest ready job. */
    int64_t counts[STATES], oldest_ms;
};

struct stats {
    truce_store *store;
    struct figures *all;
    size_t count;
};

static struct figures *stats_figures(struct stats *stats, const char *queue)
{
    size_t i = 0;

    while (i < stats->count && strcmp(stats->all[i].queue, queue))
        i++;
    if (i < stats->count)
        return &stats->all[i];
    if (!(i & (i - 1)))
        stats->all = bson_realloc(stats->all, (2 * i + 1) * sizeof *stats->all);
    stats->all[stats->count++] = (struct figures){.queue = bson_strdup(queue)};
    return &stats->all[i];
}

/* ---- the walk over queues -------------------------------------------------------------------- */

/* Appends the filter of the jobs of a state. */
static void stats_append_state(bson_t *filter, int state)
{
    if (state != DEAD)
        BSON_APPEND_UTF8(filter, "undone.state", states[state]);
}

static const char *stats_queue_path(int state)
{
    return state == DEAD ? "dead.queue" : "undone.queue";
}

/* Finds the first job after the range of the filter, in the order of the index. Returns NOT_FOUND
 * if none exists. */
static truce_status stats_first(const struct stats *stats, const bson_t *filter, int state,
                                bson_t *job, bson_error_t *error)
{
    bson_t *sort = state == DEAD
                       ? BCON_NEW("dead.queue", BCON_INT32(1), "dead.at", BCON_INT32(1))
                       : BCON_NEW("undone.state", BCON_INT32(1), "undone.queue", BCON_INT32(1),
                                  "undone.rank", BCON_INT32(1), "undone.at", BCON_INT32(1)),
           *projection = BCON_NEW("queue", BCON_INT32(1), "undone", BCON_INT32(1));
    truce_find_options options = {.sort = sort, .projection = projection};
    truce_status status = truce_find_one(stats->store, QUEUE, filter, &options, job, error);

    bson_destroy(projection);
    bson_destroy(sort);
    return status;
}

static truce_status stats_count_in(const struct stats *stats, const char *queue, int state,
                                   int64_t *count, bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER;
    truce_status status;

    stats_append_state(&filter, state);
    BSON_APPEND_UTF8(&filter, stats_queue_path(state), queue);
    status = truce_count(stats->store, QUEUE, &filter, NULL, count, error);
    bson_destroy(&filter);
    return status;
}

/* Finds the age of the oldest ready job. Each rank is in the order of time. */
static truce_status stats_find_oldest(const struct stats *stats, struct figures *figures,
                                      bson_error_t *error)
{
    int64_t now_ms = truce__clock_wall_ms(), rank = -JOB_PRIORITY_MAX - 1;
    truce_status status = TRUCE_OK;

    while (!status) {
        bson_t filter = BSON_INITIALIZER, job, undone, above;
        int64_t at_ms;

        stats_append_state(&filter, READY);
        BSON_APPEND_UTF8(&filter, "undone.queue", figures->queue);
        BSON_APPEND_DOCUMENT_BEGIN(&filter, "undone.rank", &above);
        BSON_APPEND_INT64(&above, "$gt", rank);
        bson_append_document_end(&filter, &above);
        status = stats_first(stats, &filter, READY, &job, error);
        if (!status && truce__job_date(&job, "undone.at", &at_ms) &&
            now_ms - at_ms > figures->oldest_ms)
            figures->oldest_ms = now_ms - at_ms;
        if (!status && truce__value_subdocument(&job, "undone", &undone) &&
            truce__field_number(&undone, "rank") > rank)
            rank = truce__field_number(&undone, "rank");
        else
            /* The job has changed in the meantime, so the search reports that no job was found. */
            status = status ? status : TRUCE_NOT_FOUND;
        bson_destroy(&job);
        bson_destroy(&filter);
    }
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Replaces *queue, which is NULL at the beginning, by the next queue, in the order of names, that
 * has a job in this state, or NULL if none exists. Frees the old name; the caller frees the new
 * one. */
static truce_status stats_next_queue(const struct stats *stats, int state, char **queue,
                                     bson_error_t *error)
{
    bson_t filter = BSON_INITIALIZER, job, after;
    char *next = NULL;
    bson_iter_t iter, found;
    truce_status status;

    stats_append_state(&filter, state);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, stats_queue_path(state), &after);
    BSON_APPEND_UTF8(&after, "$gt", *queue ? *queue : "");
    bson_append_document_end(&filter, &after);
    status = stats_first(stats, &filter, state, &job, error);
    if (!status && bson_iter_init_find(&iter, &job, "queue") && BSON_ITER_HOLDS_UTF8(&iter))
        next = bson_strdup(bson_iter_utf8(&iter, NULL));
    if (!status && state != DEAD && bson_iter_init(&iter, &job) &&
        bson_iter_find_descendant(&iter, "undone.queue", &found) && BSON_ITER_HOLDS_UTF8(&found)) {
        bson_free(next);
        next = bson_strdup(bson_iter_utf8(&found, NULL));
    }
    /* A document with an invalid name must not make the walk endless. */
    if (next && *queue && strcmp(next, *queue) <= 0) {
        bson_free(next);
        next = NULL;
    }
    bson_free(*queue);
    *queue = next;
    bson_destroy(&job);
    bson_destroy(&filter);
    return status == TRUCE_NOT_FOUND ? TRUCE_OK : status;
}

/* Counts the jobs of one state in each queue. */
static truce_status stats_walk(struct stats *stats, int state, bson_error_t *error)
{
    char *queue = NULL;
    truce_status status = stats_next_queue(stats, state, &queue, error);

    while (!status && queue) {
        struct figures *figures = stats_figures(stats, queue);

        status = stats_count_in(stats, queue, state, &figures->counts[state], error);
        if (!status && state == READY)
            status = stats_find_oldest(stats, figures, error);
        if (!status)
            status = stats_next_queue(stats, state, &queue, error);
    }
    bson_free(queue);
    return status;
}

/* ---- the result ------------------------------------------------------------------------------ */

static bool stats_is_paused(truce_store *store, const char *queue)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(queue), "paused", BCON_BOOL(true)), found;
    truce_status status = truce_find_one(store, QUEUE_SETTINGS, filter, NULL, &found, NULL);

    bson_destroy(&found);
    bson_destroy(filter);
    return status == TRUCE_OK;
}

static void stats_append(const struct stats *stats, const struct figures *figures, bson_t *result)
{
    char key[16];
    bson_t one;

    bson_snprintf(key, sizeof key, "%u", bson_count_keys(result));
    BSON_APPEND_DOCUMENT_BEGIN(result, key, &one);
    BSON_APPEND_UTF8(&one, "queue", figures->queue);
    BSON_APPEND_BOOL(&one, "paused", stats_is_paused(stats->store, figures->queue));
    for (int state = 0; state < STATES; state++)
        BSON_APPEND_INT64(&one, states[state], figures->counts[state]);
    BSON_APPEND_INT64(&one, "oldest_ms", figures->oldest_ms);
    bson_append_document_end(result, &one);
}

static int stats_by_name(const void *left, const void *right)
{
    return strcmp(((const struct figures *)left)->queue, ((const struct figures *)right)->queue);
}

truce_status truce_queue_stats(truce_store *store, bson_t *result, bson_error_t *error)
{
    RETURN_IF_NULL(result, error);

    DEADLINE_SCOPE(truce__queue_store_deadline_ms(store));
    WAIT_LIMIT_SCOPE();
    struct stats stats = {.store = store};
    truce_status status = TRUCE_OK;

    bson_init(result);
    for (int state = 0; state < STATES && !status; state++)
        status = stats_walk(&stats, state, error);
    if (stats.count)
        qsort(stats.all, stats.count, sizeof *stats.all, stats_by_name);
    for (size_t i = 0; i < stats.count; i++) {
        if (!status)
            stats_append(&stats, &stats.all[i], result);
        bson_free(stats.all[i].queue);
    }
    bson_free(stats.all);
    return status;
}
