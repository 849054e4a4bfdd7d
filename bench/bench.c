#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- latencies: 16 buckets for each power of two of nanoseconds ----------------------------- */

#define BUCKETS (64 * 16)

struct histogram {
    int64_t counts[BUCKETS];
    int64_t total;
};

static int bucket_of(uint64_t ns)
{
    int power;

    if (ns < 16)
        return (int)ns;
    power = 63 - __builtin_clzll(ns);
    return (power - 3) * 16 + (int)(ns >> (power - 4) & 15);
}

static double bucket_us(int bucket)
{
    int power = bucket / 16 + 3;

    if (bucket < 16)
        return bucket / 1000.0;
    return ((double)(16 + bucket % 16) * (double)(UINT64_C(1) << (power - 4))) / 1000.0;
}

static double percentile(const struct histogram *h, double part)
{
    int64_t seen = 0, wanted = (int64_t)((double)h->total * part);

    for (int i = 0; i < BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted)
            return bucket_us(i);
    }
    return 0;
}

/* ---- callers --------------------------------------------------------------------------------- */

struct run {
    bench_function *function;
    void *arg;
    atomic_bool stop;
    pthread_barrier_t start;
};

struct caller {
    struct run *run;
    int number;
    int64_t operations;
    struct histogram latencies;
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

double bench_now(void)
{
    return (double)now_ns() / 1e9;
}

static void *call(void *arg)
{
    struct caller *caller = arg;
    struct run *run = caller->run;
    uint64_t before;

    pthread_barrier_wait(&run->start);
    before = now_ns();
    for (int64_t turn = 0; !atomic_load_explicit(&run->stop, memory_order_relaxed); turn++) {
        uint64_t after;

        caller->operations += run->function(run->arg, caller->number, turn);
        after = now_ns();
        caller->latencies.counts[bucket_of(after - before)]++;
        caller->latencies.total++;
        before = after;
    }
    return NULL;
}

void bench_run(int callers, double seconds, bench_function *function, void *arg,
               struct bench_rate *rate)
{
    struct run run = {.function = function, .arg = arg};
    struct caller *all = bson_malloc0((size_t)callers * sizeof *all);
    pthread_t threads[BENCH_CALLERS_MAX];
    struct histogram *sum = bson_malloc0(sizeof *sum);
    double began, took;

    BENCH_CHECK(callers <= BENCH_CALLERS_MAX);
    pthread_barrier_init(&run.start, NULL, (unsigned)callers + 1);
    for (int i = 0; i < callers; i++) {
        all[i].run = &run;
        all[i].number = i;
        BENCH_CHECK(pthread_create(&threads[i], NULL, call, &all[i]) == 0);
    }
    pthread_barrier_wait(&run.start);
    began = bench_now();
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
              NULL);
    atomic_store(&run.stop, true);
    *rate = (struct bench_rate){0};
    for (int i = 0; i < callers; i++) {
        pthread_join(threads[i], NULL);
        rate->operations += all[i].operations;
        sum->total += all[i].latencies.total;
        for (int k = 0; k < BUCKETS; k++)
            sum->counts[k] += all[i].latencies.counts[k];
    }
    took = bench_now() - began;
    rate->per_second = (double)rate->operations / took;
    rate->p50_us = percentile(sum, 0.5);
    rate->p99_us = percentile(sum, 0.99);
    pthread_barrier_destroy(&run.start);
    bson_free(all);
    bson_free(sum);
}

/* ---- the surroundings ------------------------------------------------------------------------ */

int64_t bench_scale(const char *variable, int64_t otherwise)
{
    const char *given = getenv(variable);

    return given && *given ? strtoll(given, NULL, 10) : otherwise;
}

double bench_seconds(void)
{
    const char *given = getenv("TRUCE_BENCH_SECONDS");

    return given && *given ? strtod(given, NULL) : 2.0;
}

uint64_t bench_random(uint64_t bound)
{
    static _Thread_local uint64_t state;

    if (!state)
        state = now_ns() * UINT64_C(0x9e3779b97f4a7c15) | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint64_t)(((unsigned __int128)state * bound) >> 64);
}

static char directory[500];

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
    (void)about;
    (void)kind;
    (void)walk;
    return remove(path);
}

static void remove_directory(void)
{
    nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

const char *bench_directory(void)
{
    const char *base = getenv("TRUCE_BENCH_DIR");

    if (directory[0])
        return directory;
    base = base && *base ? base : "build/bench";
    if (mkdir(base, 0777) != 0 && errno != EEXIST)
        bench_fail(__FILE__, __LINE__, base, strerror(errno));
    snprintf(directory, sizeof directory, "%s/run-XXXXXX", base);
    if (!mkdtemp(directory))
        bench_fail(__FILE__, __LINE__, directory, strerror(errno));
    atexit(remove_directory);
    return directory;
}

double bench_fdatasync_us(void)
{
    static char block[4096];
    struct histogram *h = bson_malloc0(sizeof *h);
    char *path = bson_strdup_printf("%s/fdatasync", bench_directory());
    int file = open(path, O_RDWR | O_CREAT, 0600);
    double p50;

    BENCH_CHECK(file >= 0);
    for (int i = 0; i < 256; i++)
        BENCH_CHECK(pwrite(file, block, sizeof block, i * 4096) == sizeof block);
    BENCH_CHECK(fsync(file) == 0);
    for (int i = 0; i < 1000; i++) {
        uint64_t before = now_ns();

        BENCH_CHECK(pwrite(file, block, sizeof block, i % 256 * 4096) == sizeof block);
        BENCH_CHECK(fdatasync(file) == 0);
        h->counts[bucket_of(now_ns() - before)]++;
        h->total++;
    }
    close(file);
    unlink(path);
    p50 = percentile(h, 0.5);
    bson_free(path);
    bson_free(h);
    return p50;
}

/* ---- the table ------------------------------------------------------------------------------- */

void bench_title(const char *title, const char *baseline)
{
    printf("\n%s\n%-30s %7s %12s %9s %9s", title, "", "callers", "truce/s", "p50 us", "p99 us");
    if (baseline)
        printf(" %10s/s %9s %7s", baseline, "p99 us", "ratio");
    printf("\n");
}

void bench_row(const char *name, int callers, const struct bench_rate *truce,
               const struct bench_rate *baseline)
{
    printf("%-30s %7d %12.0f %9.0f %9.0f", name, callers, truce->per_second, truce->p50_us,
           truce->p99_us);
    if (baseline)
        printf(" %12.0f %9.0f %7.2f", baseline->per_second, baseline->p99_us,
               truce->per_second / baseline->per_second);
    printf("\n");
    fflush(stdout);
}

_Noreturn void bench_fail(const char *file, int line, const char *what, const char *why)
{
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, why);
    exit(1);
}
