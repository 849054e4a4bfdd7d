#ifndef TRUCE_BASE_HISTOGRAM_H
#define TRUCE_BASE_HISTOGRAM_H

/*
 * A histogram of latencies, after Gil Tene's HdrHistogram. Each power of two of nanoseconds has 64
 * buckets. A value is therefore precise to 1.6 %, from nanoseconds to minutes, in 30 kB.
 */
#include <stdint.h>

/* The number of buckets for each power of two. */
#define HISTOGRAM_PARTS   64
#define HISTOGRAM_BUCKETS (60 * HISTOGRAM_PARTS)

struct histogram {
    int64_t counts[HISTOGRAM_BUCKETS];
    /* The number of values. */
    int64_t total;
};

void truce__histogram_add(struct histogram *h, uint64_t ns);
/* Adds `from` to `to` and corrects coordinated omission. A caller that waits for a slow call
 * makes no other calls in the meantime. At a steady rate, those calls would have been made and
 * would have waited, too. A value of several `interval_ns` is therefore counted again, one interval
 * shorter each time. If `interval_ns` is 0, nothing is corrected. */
void truce__histogram_merge(struct histogram *to, const struct histogram *from,
                            uint64_t interval_ns);
/* Returns the microseconds below which the fraction `part` (0 to 1) of all values lie, or 0 if the
 * histogram is empty. */
double truce__histogram_us(const struct histogram *h, double part);
/* Returns the greatest value in microseconds, or 0 if the histogram is empty. */
double truce__histogram_longest_us(const struct histogram *h);

#endif
