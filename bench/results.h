#ifndef TRUCE_BENCH_RESULTS_H
#define TRUCE_BENCH_RESULTS_H

/* The JSON of a run, read again. */
#include "bench/bench.h"

struct result {
    const char *workload, *target, *form; /* in the document */
    int callers;
    bool valid;
    double per_second, least, most;
    double truce_is; /* how many times this rate truce's is; 0: it is truce */
};

struct results {
    bson_t *document;
    struct result *all;
    int count;
};

/* False: it says on standard error what is wrong with the file. */
bool results_read(const char *path, struct results *results);
void results_release(struct results *results);
/* The same figure as `like`; NULL: there is none. */
const struct result *results_find(const struct results *results, const struct result *like);

#endif
