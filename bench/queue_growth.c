/*
 * Measures a growing job queue. For each number of done jobs, with as many live jobs after them (up
 * to a million), it measures adding, claiming, claim and done, and batches of 100. It also measures
 * the cost of the queue's figures, and the file's size.
 *
 *     queue_growth [SIZE...]        10000 1000000 10000000
 *
 * A claim takes the first entry of an index that contains live jobs only: its time must not rise
 * with either number. The done jobs are copies of one done job, with ids of their own.
 */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/histogram.h"
#include "bench/bench.h"
#include "bench/usage.h"
#include "truce/truce.h"

#define BATCH    1000
#define LIVE_MAX INT64_C(1000000)
#define CALLERS  32
#define AT_ONCE  100

struct growth {
    truce_store *store;
    truce_queue *queue;
    const char *path;
    int64_t done, live;
};

static bson_t *growth_payload(void)
{
    return BCON_NEW("to", "ada@example.org", "text", "hello, and welcome");
}

/* ---- filling --------------------------------------------------------------------------------- */

static void add_live(struct growth *growth, int64_t count)
{
    const bson_t *all[BATCH];
    bson_t *document = growth_payload();
    bson_error_t error;

    for (int i = 0; i < BATCH; i++)
        all[i] = document;
    for (; count > 0; count -= BATCH)
        BENCH_MUST(truce_queue_add_many(growth->queue, all, (size_t)(count < BATCH ? count : BATCH),
                                        NULL, NULL, &error),
                   error);
    bson_destroy(document);
}

/* Runs a job to its end, and returns its document without the _id. */
static bson_t *growth_make_done(struct growth *growth)
{
    bson_t *done = bson_new(), document;
    bson_error_t error;
    bson_oid_t id;
    truce_job *job;

    add_live(growth, 1);
    BENCH_MUST(truce_queue_claim(growth->queue, &job, &error), error);
    BENCH_MUST(truce_job_done(job, NULL, NULL, &error), error);
    bson_oid_copy(truce_job_id(job), &id);
    truce_job_free(job);
    BENCH_MUST(truce_queue_get(growth->queue, NULL, &id, &document, &error), error);
    bson_copy_to_excluding_noinit(&document, done, "_id", NULL);
    bson_destroy(&document);
    return done;
}

/* Inserts done jobs directly into the collection of the queue, in bulk. */
static void add_done(struct growth *growth)
{
    truce_write *writes = bson_malloc0(BATCH * sizeof *writes);
    truce_write_outcome *outcomes = bson_malloc0(BATCH * sizeof *outcomes);
    bson_t *documents = bson_malloc(BATCH * sizeof *documents), *done = growth_make_done(growth);
    bson_error_t error;

    for (int64_t added = 1; added < growth->done; added += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            bson_oid_t id;

            bson_oid_init(&id, NULL);
            bson_init(&documents[i]);
            BSON_APPEND_OID(&documents[i], "_id", &id);
            bson_concat(&documents[i], done);
            writes[i] = (truce_write){
                .kind = TRUCE_WRITE_INSERT, .collection = "truce_queue", .document = &documents[i]};
        }
        BENCH_MUST(truce_bulk(growth->store, writes, BATCH, NULL, outcomes, &error), error);
        for (int i = 0; i < BATCH; i++) {
            truce_write_result_release(&outcomes[i].result);
            bson_destroy(&documents[i]);
        }
    }
    bson_destroy(done);
    bson_free(documents);
    bson_free(outcomes);
    bson_free(writes);
}

/* ---- measurements ---------------------------------------------------------------------------- */

/* Runs an operation once, and returns the number of jobs. Only the measured part counts in
 * `timed`. */
typedef int64_t operation(struct growth *growth, struct histogram *timed);

static void time_since(struct histogram *timed, uint64_t began_ns)
{
    truce__histogram_add(timed, bench_now_ns() - began_ns);
}

static int64_t growth_add_one(struct growth *growth, struct histogram *timed)
{
    bson_t *document = growth_payload();
    uint64_t began_ns = bench_now_ns();
    bson_error_t error;

    BENCH_MUST(truce_queue_add(growth->queue, NULL, document, NULL, NULL, &error), error);
    time_since(timed, began_ns);
    bson_destroy(document);
    return 1;
}

/* Claims a job. Adds jobs if none is left. */
static truce_job *growth_claim(struct growth *growth)
{
    truce_job *job;
    bson_error_t error;
    truce_status status = truce_queue_claim(growth->queue, &job, &error);

    while (status == TRUCE_NOT_FOUND) {
        add_live(growth, BATCH);
        status = truce_queue_claim(growth->queue, &job, &error);
    }
    BENCH_MUST(status, error);
    return job;
}

static void growth_finish(truce_job *job)
{
    bson_error_t error;

    BENCH_MUST(truce_job_done(job, NULL, NULL, &error), error);
    truce_job_free(job);
}

static int64_t claim_alone(struct growth *growth, struct histogram *timed)
{
    uint64_t began_ns = bench_now_ns();
    truce_job *job = growth_claim(growth);

    time_since(timed, began_ns);
    growth_finish(job);
    return 1;
}

static int64_t claim_and_done(struct growth *growth, struct histogram *timed)
{
    uint64_t began_ns = bench_now_ns();

    growth_finish(growth_claim(growth));
    time_since(timed, began_ns);
    return 1;
}

static int64_t claim_batch(struct growth *growth, struct histogram *timed)
{
    truce_job *jobs[AT_ONCE];
    uint64_t began_ns = bench_now_ns();
    bson_error_t error;
    size_t count;

    if (truce_queue_claim_many(growth->queue, AT_ONCE, jobs, &count, &error) == TRUCE_NOT_FOUND)
        add_live(growth, BATCH);
    time_since(timed, began_ns);
    for (size_t i = 0; i < count; i++)
        truce_job_free(jobs[i]);
    return (int64_t)count;
}

static int64_t figures(struct growth *growth, struct histogram *timed)
{
    uint64_t began_ns = bench_now_ns();
    bson_error_t error;
    bson_t stats;

    BENCH_MUST(truce_queue_stats(growth->store, &stats, &error), error);
    time_since(timed, began_ns);
    bson_destroy(&stats);
    return 1;
}

struct caller {
    struct growth *growth;
    operation *function;
    double until;
    struct histogram timed;
    int64_t jobs;
    pthread_t thread;
};

static void *call(void *arg)
{
    struct caller *caller = arg;

    do {
        caller->jobs += caller->function(caller->growth, &caller->timed);
    } while (bench_now() < caller->until);
    return NULL;
}

/* Runs the function in `count` threads, and prints its rate and its latencies. */
static void queue_growth_measure(struct growth *growth, const char *name, operation *function,
                                 int count)
{
    struct caller *callers = bson_malloc0(CALLERS * sizeof *callers);
    struct histogram all = {0};
    double began = bench_now();
    int64_t jobs = 0;

    for (int i = 0; i < count; i++) {
        callers[i] = (struct caller){
            .growth = growth, .function = function, .until = began + bench_seconds()};
        BENCH_CHECK(pthread_create(&callers[i].thread, NULL, call, &callers[i]) == 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(callers[i].thread, NULL);
        truce__histogram_merge(&all, &callers[i].timed, 0);
        jobs += callers[i].jobs;
    }
    printf("%9" PRId64 " done %8" PRId64 " live  %-24s %9.0f/s  p50 %9.0f us  p99 %9.0f us\n",
           growth->done, growth->live, name, (double)jobs / (bench_now() - began),
           truce__histogram_us(&all, 0.5), truce__histogram_us(&all, 0.99));
    fflush(stdout);
    bson_free(callers);
}

/* ---- one size -------------------------------------------------------------------------------- */

/* Checks that each live job was added once, and that the claimed jobs are running or done. */
static void queue_growth_check(struct growth *growth)
{
    bson_t *undone = BCON_NEW("undone.state", "{", "$in", "[", "ready", "running", "]", "}");
    bson_error_t error;
    int64_t live, all;

    BENCH_MUST(truce_count(growth->store, "truce_queue", undone, NULL, &live, &error), error);
    BENCH_MUST(truce_count(growth->store, "truce_queue", NULL, NULL, &all, &error), error);
    BENCH_CHECK(all >= growth->done + growth->live && live <= all - growth->done);
    bson_destroy(undone);
}

/* Measures a queue with that many done jobs. */
static void one_size(int64_t done)
{
    const truce_queue_options options = {.queue = "jobs", .keep_ms = -1, .lease_ms = 3600000};
    struct growth growth = {.done = done, .live = done < LIVE_MAX ? done : LIVE_MAX};
    char *path = bson_strdup_printf("%s/queue-%" PRId64 ".truce", bench_directory(), done);
    char *uri = bson_strdup_printf("file:%s", path);
    double began = bench_now();
    bson_error_t error;

    growth.path = path;
    BENCH_MUST(truce_store_open(uri, NULL, &growth.store, &error), error);
    growth.queue = truce_queue_new(growth.store, &options);
    add_done(&growth);
    add_live(&growth, growth.live);
    printf("%9" PRId64 " done %8" PRId64 " live  loaded in %.1f s, %.0f MB\n", done, growth.live,
           bench_now() - began, (double)bench_file_size(path, "") / 1e6);
    queue_growth_measure(&growth, "claim", claim_alone, 1);
    queue_growth_measure(&growth, "claim and done", claim_and_done, 1);
    queue_growth_measure(&growth, "claim and done, 32", claim_and_done, CALLERS);
    queue_growth_measure(&growth, "claim of 100", claim_batch, 1);
    queue_growth_measure(&growth, "add", growth_add_one, 1);
    queue_growth_measure(&growth, "figures", figures, 1);
    queue_growth_check(&growth);
    truce_queue_free(growth.queue);
    truce_store_close(growth.store);
    bson_free(uri);
    bson_free(path);
}

int main(int count, char **words)
{
    static const int64_t sizes[] = {10000, 1000000, 10000000};

    for (size_t i = 0; count < 2 && i < sizeof sizes / sizeof *sizes; i++)
        one_size(sizes[i]);
    for (int i = 1; i < count; i++) {
        BENCH_CHECK(atoll(words[i]) >= BATCH);
        one_size(atoll(words[i]));
    }
    return 0;
}
