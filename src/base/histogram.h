#ifndef TRUCE_BASE_HISTOGRAM_H
#define TRUCE_BASE_HISTOGRAM_H

/*
 * Latencies, after Gil Tene's HdrHistogram: 64 buckets for each power of two of nanoseconds, so that
 * every value is kept within 1.6 %, from nanoseconds to minutes, in 30 kB.
 */
#include <stdint.h>

#define HISTOGRAM_PARTS   64
#define HISTOGRAM_BUCKETS (60 * HISTOGRAM_PARTS)

struct histogram {
    int64_t counts[HISTOGRAM_BUCKETS];
    int64_t total;
};

void truce__histogram_add(struct histogram *h, uint64_t ns);
/* Adds `from` to `to`, coordinated omission made good: a caller that waits for one slow call makes
 * no others meanwhile, which a steady arrival would have made, and they would have waited too. So a
 * value of several `interval_ns` counts again, one interval less each time (0: as it is). */
void truce__histogram_merge(struct histogram *to, const struct histogram *from,
                            uint64_t interval_ns);
/* the value below which `part` (0 to 1) of them lie; 0 if there are none */
double truce__histogram_us(const struct histogram *h, double part);
/* the longest of them: how long somebody had to wait; 0 if there are none */
double truce__histogram_longest_us(const struct histogram *h);

#endif
