#include "base/histogram.h"

/* The base-2 logarithm of HISTOGRAM_PARTS. */
#define PART_BITS 6

static int histogram_bucket_of(uint64_t ns)
{
    int power, bucket;

    if (ns < HISTOGRAM_PARTS)
        return (int)ns;
    power = 63 - __builtin_clzll(ns);
    bucket = (power - PART_BITS + 1) * HISTOGRAM_PARTS +
             (int)(ns >> (power - PART_BITS) & (HISTOGRAM_PARTS - 1));
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* Returns the middle of a bucket in nanoseconds. */
static uint64_t bucket_ns(int bucket)
{
    int power = bucket / HISTOGRAM_PARTS - 1;

    if (power < 0)
        return (uint64_t)bucket;
    return ((uint64_t)(HISTOGRAM_PARTS + bucket % HISTOGRAM_PARTS) << power) +
           ((UINT64_C(1) << power) >> 1);
}

void truce__histogram_add(struct histogram *h, uint64_t ns)
{
    h->counts[histogram_bucket_of(ns)]++;
    h->total++;
}

void truce__histogram_merge(struct histogram *to, const struct histogram *from,
                            uint64_t interval_ns)
{
    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t ns = bucket_ns(i);

        if (from->counts[i] == 0)
            continue;
        to->counts[i] += from->counts[i];
        to->total += from->counts[i];
        while (interval_ns > 0 && ns >= 2 * interval_ns) {
            ns -= interval_ns;
            to->counts[histogram_bucket_of(ns)] += from->counts[i];
            to->total += from->counts[i];
        }
    }
}

double truce__histogram_us(const struct histogram *h, double part)
{
    int64_t seen = 0, wanted = (int64_t)((double)h->total * part);

    for (int i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (seen > wanted)
            return (double)bucket_ns(i) / 1000.0;
    }
    return 0;
}

double truce__histogram_longest_us(const struct histogram *h)
{
    int i = HISTOGRAM_BUCKETS;

    while (i > 0 && !h->counts[i - 1])
        i--;
    return i ? (double)bucket_ns(i - 1) / 1000.0 : 0;
}
