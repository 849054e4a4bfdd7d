#ifndef TRUCE_BENCH_BENCH_H
#define TRUCE_BENCH_BENCH_H

/*
 * What the benchmarks share: callers that run one function as fast as they can for a time, their
 * rate and latencies; checks that end a benchmark that computes something wrong.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <bson/bson.h>

/* What a caller does once; `caller` counts from 0, `turn` from 0 for each caller. The result is how
 * many operations that were. */
typedef int64_t bench_function(void *arg, int caller, int64_t turn);

struct bench_rate {
    double per_second;     /* operations */
    double p50_us, p99_us; /* of one call of the function */
    int64_t operations;
};

#define BENCH_CALLERS_MAX 64

/* Runs the function in `callers` threads for `seconds`. */
void bench_run(int callers, double seconds, bench_function *function, void *arg,
               struct bench_rate *rate);

/* TRUCE_BENCH_SECONDS, or 2: how long one figure is measured */
double bench_seconds(void);
/* a number from the environment, or the given one */
int64_t bench_scale(const char *variable, int64_t otherwise);

double bench_now(void); /* seconds, monotonic */
/* uniform below `bound`; each thread has its own sequence */
uint64_t bench_random(uint64_t bound);

/* A fresh directory below TRUCE_BENCH_DIR (else build/bench), removed at exit. */
const char *bench_directory(void);
/* p50 of an fdatasync after a write of 4 kB into a file that is there already, microseconds */
double bench_fdatasync_us(void);

/* One row: name, callers, truce's rate, the baseline's (NULL: none) and their ratio. */
void bench_title(const char *title, const char *baseline);
void bench_row(const char *name, int callers, const struct bench_rate *truce,
               const struct bench_rate *baseline);

/* A call that must succeed, a fact that must hold; else it says so and exits with 1. */
#define BENCH_MUST(call, error)                                                                    \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            bench_fail(__FILE__, __LINE__, #call, (error).message);                                \
    } while (0)
#define BENCH_CHECK(fact)                                                                          \
    do {                                                                                           \
        if (!(fact))                                                                               \
            bench_fail(__FILE__, __LINE__, #fact, "does not hold");                                \
    } while (0)
_Noreturn void bench_fail(const char *file, int line, const char *what, const char *why);

#endif
