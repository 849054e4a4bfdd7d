/*
 * Measures batches of jobs: the program adds PEER_JOBS jobs, and threads claim 100 jobs in one call
 * and complete them in one call, durably. Every job must be done once. bench/peers/run runs the
 * same work on queues from npm.
 *
 *     queue_batch        PEER_JOBS (20000), PEER_BATCH (100), PEER_CALLERS (8);
 *                        PEER_POOL: instead of these, a pool of that many threads, each of
 *                        which does one job after the other, with PEER_BATCH ahead
 */
#include <inttypes.h>
#include <pthread.h>
#include <unistd.h>

#include "base/histogram.h"
#include "bench/bench.h"
#include "bench/usage.h"
#include "truce/pool.h"
#include "truce/truce.h"

#define ADDED_AT_ONCE 1000
#define CALLERS_MAX   64

static struct batches {
    truce_store *store;
    truce_queue *queue;
    int64_t jobs, batch;
} batches;

static void batch_add_all(void)
{
    const bson_t *all[ADDED_AT_ONCE];
    bson_t *payload = BCON_NEW("to", "ada@example.org", "text", "hello, and welcome");
    bson_error_t error;

    for (int i = 0; i < ADDED_AT_ONCE; i++)
        all[i] = payload;
    for (int64_t left = batches.jobs; left > 0; left -= ADDED_AT_ONCE)
        BENCH_MUST(truce_queue_add_many(batches.queue, all,
                                        (size_t)(left < ADDED_AT_ONCE ? left : ADDED_AT_ONCE), NULL,
                                        NULL, &error),
                   error);
    bson_destroy(payload);
}

static void *batch_work(void *arg)
{
    truce_job **jobs = bson_malloc((size_t)batches.batch * sizeof *jobs);
    int64_t *done = arg;
    bson_error_t error;
    size_t count;

    while (!truce_queue_claim_many(batches.queue, (size_t)batches.batch, jobs, &count, &error)) {
        BENCH_MUST(truce_queue_done_many(batches.queue, jobs, count, NULL, NULL, &error), error);
        *done += (int64_t)count;
        for (size_t i = 0; i < count; i++)
            truce_job_free(jobs[i]);
    }
    bson_free(jobs);
    return NULL;
}

static truce_status do_nothing(truce_job *job, void *arg, bson_error_t *error)
{
    return TRUCE_OK;
}

static int64_t work_by_pool(int64_t threads)
{
    truce_pool_options options = {
        .function = do_nothing, .threads = (uint32_t)threads, .ahead = (uint32_t)batches.batch};
    bson_error_t error;
    truce_pool *pool;
    int64_t done = 0;

    BENCH_MUST(truce_pool_start(batches.queue, &options, &pool, &error), error);
    while (done < batches.jobs) {
        bson_iter_t iter;
        bson_t figures;

        usleep(2000);
        truce_pool_figures(pool, &figures);
        if (bson_iter_init_find(&iter, &figures, "done"))
            done = bson_iter_as_int64(&iter);
        bson_destroy(&figures);
    }
    truce_pool_free(pool);
    return done;
}

static int64_t work_by_callers(int64_t callers)
{
    int64_t done[CALLERS_MAX] = {0}, all = 0;
    pthread_t threads[CALLERS_MAX];

    BENCH_CHECK(callers > 0 && callers <= CALLERS_MAX);
    for (int64_t i = 0; i < callers; i++)
        BENCH_CHECK(pthread_create(&threads[i], NULL, batch_work, &done[i]) == 0);
    for (int64_t i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
        all += done[i];
    }
    return all;
}

static void batch_check(int64_t done)
{
    bson_t *once = BCON_NEW("state", "done", "epoch", BCON_INT64(1));
    bson_error_t error;
    int64_t count;

    BENCH_MUST(truce_count(batches.store, "truce_queue", once, NULL, &count, &error), error);
    BENCH_CHECK(done == batches.jobs && count == batches.jobs);
    bson_destroy(once);
}

static void report_disk(void)
{
    struct histogram latencies = {0};

    usage_disk(bench_directory(), 200, &latencies);
    printf("fdatasync of 4 kB: %.0f us (p99 %.0f us)\n", truce__histogram_us(&latencies, 0.5),
           truce__histogram_us(&latencies, 0.99));
}

int main(void)
{
    const truce_queue_options options = {.queue = "jobs", .keep_ms = -1};
    int64_t threads = bench_scale("PEER_POOL", 0), all;
    char *uri = bson_strdup_printf("file:%s/batches.truce", bench_directory());
    bson_error_t error;
    double began;

    report_disk();
    batches.jobs = bench_scale("PEER_JOBS", 20000);
    batches.batch = bench_scale("PEER_BATCH", 100);
    BENCH_MUST(truce_store_open(uri, NULL, &batches.store, &error), error);
    batches.queue = truce_queue_new(batches.store, &options);
    batch_add_all();
    began = bench_now();
    all = threads ? work_by_pool(threads) : work_by_callers(bench_scale("PEER_CALLERS", 8));
    printf("%-28s %9.0f jobs/s\n", threads ? "truce, a pool" : "truce",
           (double)all / (bench_now() - began));
    batch_check(all);
    truce_queue_free(batches.queue);
    truce_store_close(batches.store);
    bson_free(uri);
    return 0;
}
