#ifndef TRUCE_BENCH_BENCH_H
#define TRUCE_BENCH_BENCH_H

/*
 * The base of all benchmarks: time, random numbers, a directory, and checks. A call that fails, or
 * a condition that does not hold, ends the benchmark without a figure.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <bson/bson.h>

/* Returns the time for which each figure of the tables (bench/query.c and others) is measured:
 * TRUCE_BENCH_SECONDS, or 2. */
double bench_seconds(void);
/* Returns the number in an environment variable, or `otherwise`. */
int64_t bench_scale(const char *variable, int64_t otherwise);

double bench_now(void); /* Returns the monotonic time in seconds. */
uint64_t bench_now_ns(void);
/* Returns a uniform random number below `bound`. Each thread has its own sequence. */
uint64_t bench_random(uint64_t bound);
/* Gives the child of a fork its own sequence. */
void bench_random_again(void);

/* Returns the absolute path of a new directory below TRUCE_BENCH_DIR (or build/bench). It is
 * removed when the first process that called this exits. */
const char *bench_directory(void);

/* Measures two sides in alternation, and sets `least` to each side's fastest call in seconds. All
 * `turns` together take twice bench_seconds(). `once` receives the side, 0 or 1. */
void bench_in_turns(void (*once)(void *arg, int side), void *arg, int turns, double least[2]);

/* Returns the size of the file `path` + `suffix`, or 0 if it does not exist. */
int64_t bench_file_size(const char *path, const char *suffix);

/* These macros check that a call succeeds, or that a condition holds. Otherwise they print it and
 * exit with 1. */
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
/* Also writes the first message into `why`, where the harness reads why a target has no figure. */
void bench_fail_into(char *why, size_t size);
/* Writes the prefix and the reason there, prints nothing, and exits with 1. */
_Noreturn void bench_cannot(const char *prefix, const char *why);

#endif
