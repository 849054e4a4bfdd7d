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
    double rates[BENCH_ROUNDS_MAX]; /* operations per second, of each round that it took part in */
    int numbers[BENCH_ROUNDS_MAX];  /* The numbers of these rounds. */
    int64_t operations;
    double seconds, cpu_seconds;
    int64_t bytes_written, memory;
    struct bench_writes writes;
    struct histogram latencies;
    struct histogram disk; /* The times of an fdatasync just before the rounds. */
    char why[300];         /* The reason why the figure is void; "": it is valid. */
    bool cannot;           /* Not void: the target does not support the workload. */
};

struct figures {
    struct figure *all;
    int count, room;
};

struct conditions {
    bool quick, real_time;
    int rounds_min, rounds; /* more than the least until it is quiet enough */
    double seconds;
    struct histogram before, after; /* The times of an fdatasync. */
};

void figure_add(struct figure *figure, int number, const struct bench_round *round);
double figure_rate(const struct figure *figure);   /* the median of the rounds */
double figure_spread(const struct figure *figure); /* (greatest - least) / median */
double figure_noise(const struct figure *figure);  /* how far off the median may be: estimated */
/* Returns the ratio to the other's rate: the median of the ratios of the rounds in which both ran,
 * one after the other. */
double figure_ratio(const struct figure *figure, const struct figure *other);

/* The table of a workload: figures `from` up to the last. */
void report_workload(const struct figures *figures, int from);
/* Prints the ratio of each line to each peer, and which aims hold. */
void report_summary(const struct figures *figures);
void report_conditions(const struct conditions *conditions, const struct bench_target *targets,
                       int count);
/* Writes the JSON file. */
void report_json(const struct figures *figures, const struct conditions *conditions,
                 const struct bench_target *targets, int count, const char *path);

#endif
