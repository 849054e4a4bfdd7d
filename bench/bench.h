#ifndef TRUCE_BENCH_BENCH_H
#define TRUCE_BENCH_BENCH_H

/*
 * The base of all benchmarks: time, random numbers, a directory, and checks. A failed call or a
 * false fact ends the benchmark without a figure.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <bson/bson.h>

/* TRUCE_BENCH_SECONDS, or 2: how long one figure of the tables (bench/query.c ...) is measured */
double bench_seconds(void);
/* a number from the environment, or the given one */
int64_t bench_scale(const char *variable, int64_t otherwise);

double bench_now(void); /* seconds, monotonic */
uint64_t bench_now_ns(void);
/* uniform below `bound`; each thread has its own sequence */
uint64_t bench_random(uint64_t bound);
/* After a fork: a sequence of the child's own. */
void bench_random_again(void);

/* Returns the absolute path of a new directory below TRUCE_BENCH_DIR (or build/bench). It is
 * removed when the first process that called this exits. */
const char *bench_directory(void);

/* Measures two sides in alternation, and sets `least` to each side's fastest call in seconds. All
 * `turns` together take twice bench_seconds(). `once` receives the side, 0 or 1. */
void bench_in_turns(void (*once)(void *arg, int side), void *arg, int turns, double least[2]);

/* Returns the size of the file named `path` + `suffix`; 0 if it does not exist. */
int64_t bench_file_size(const char *path, const char *suffix);

/* Check a call that must succeed, or a fact that must hold. On failure they print it and exit with
 * 1. */
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
/* The first message is also written there: the harness reads from it why a target has no figure. */
void bench_fail_into(char *why, size_t size);
/* Exits with 1, with that sentence there and no word elsewhere. */
_Noreturn void bench_cannot(const char *prefix, const char *why);

#endif
