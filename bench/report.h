#ifndef TRUCE_BENCH_REPORT_H
#define TRUCE_BENCH_REPORT_H

/*
 * Figures, for people and for machines.
 */
#include "bench/harness.h"

struct figure {
    const struct bench_workload *workload;
    const struct bench_form *form;
    const struct bench_target *target;
    int callers, rounds;
    /* The operations per second in each round of the figure. */
    double rates[BENCH_ROUNDS_MAX];
    int numbers[BENCH_ROUNDS_MAX]; /* The numbers of these rounds. */
    int64_t operations;
    double seconds, cpu_seconds;
    int64_t bytes_written, memory;
    struct bench_writes writes;
    struct histogram latencies;
    struct histogram disk; /* The times of an fdatasync just before the rounds. */
    char why[300];         /* The reason why the figure is void, or "". */
    bool cannot;           /* The target does not support the workload, so there is no figure. */
};

struct figures {
    struct figure *all;
    int count, room;
};

struct conditions {
    bool quick, real_time;
    /* The minimum number of rounds, and the maximum if the figures are noisy. */
    int rounds_min, rounds;
    double seconds;
    struct histogram before, after; /* The times of an fdatasync. */
};

void figure_add(struct figure *figure, int number, const struct bench_round *round);
double figure_rate(const struct figure *figure);   /* The median of the rounds. */
double figure_spread(const struct figure *figure); /* (greatest - least) / median. */
double figure_noise(const struct figure *figure);  /* An estimate of the error of the median. */
/* Returns the ratio to the rate of another figure: the median of the ratios in the rounds that both
 * ran. */
double figure_ratio(const struct figure *figure, const struct figure *other);

/* Prints the table of a workload: the figures from number `from` on. */
void report_workload(const struct figures *figures, int from);
/* Prints the ratio to each peer for each line, and whether the aims are met. */
void report_summary(const struct figures *figures);
void report_conditions(const struct conditions *conditions, const struct bench_target *targets,
                       int count);
/* Writes the JSON file. */
void report_json(const struct figures *figures, const struct conditions *conditions,
                 const struct bench_target *targets, int count, const char *path);

#endif
