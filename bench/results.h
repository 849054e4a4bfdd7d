#ifndef TRUCE_BENCH_RESULTS_H
#define TRUCE_BENCH_RESULTS_H

/* Reads the JSON of a run. */
#include "bench/bench.h"

struct result {
    const char *workload, *target, *form; /* The names, borrowed from the document. */
    int callers;
    bool valid, cannot;
    double per_second, least, most;
    /* truce's rate divided by this rate, or 0 if the figure is truce's. */
    double truce_is;
    double p50_us, p99_us, p999_us;
    double fdatasync_us; /* 0 if the workload only reads. */
    double cpu_us, bytes, memory;
    double aim_serve; /* 0 means no aim. */
};

struct results {
    bson_t *document;
    struct result *all;
    int count;
};

/* Reads the file of a run. On failure, prints the fault of the file to standard error, and returns
 * false. */
bool results_read(const char *path, struct results *results);
void results_release(struct results *results);
/* Returns the figure that matches `like`, or NULL. */
const struct result *results_find(const struct results *results, const struct result *like);

/* Returns a number of the run by its path, for example "machine.cores", or 0 if it does not
 * exist. */
double results_number(const struct results *results, const char *path);
/* Returns whether acknowledged writes of this target are durable. */
bool results_durable(const struct results *results, const char *target);

/* ---- of bench/growth.c ----------------------------------------------------------------------- */

struct grown {
    int64_t documents;
    const char *target, *what; /* The names, borrowed from the document. */
    bool is_size;
    double numbers[4]; /* The numbers, in the order of the line. */
};

struct growths {
    bson_t *document;
    struct grown *all;
    int count;
    int64_t sizes[8];
    int sizes_count;
};

bool growths_read(const char *path, struct growths *growths);
void growths_release(struct growths *growths);
/* Returns the same measurement at another size, or NULL. */
const struct grown *growths_find(const struct growths *growths, const struct grown *like,
                                 int64_t documents);

#endif
