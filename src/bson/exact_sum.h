#ifndef TRUCE_BSON_EXACT_SUM_H
#define TRUCE_BSON_EXACT_SUM_H

/*
 * Sums numbers of all types for $add, $sum, and $avg. All numbers except decimals are summed in two
 * doubles; the second one has the rounding errors of the first (Dekker 1971, Knuth 4.2.2). Sums of
 * 64-bit integers are therefore exact. A sum with a double is the first of the two doubles, as in
 * MongoDB. Decimals are summed separately and added at the end.
 *
 * truce__sum_begin must begin a sum: a zeroed struct is not valid.
 */
#include "bson/decimal.h"
#include "bson/value.h"

struct sum {
    /* The sum is high + low. */
    double high, low;
    /* The sum computed in one double, which gives NaN and infinities. */
    double plain;
    decimal decimals;
    /* The number of calls of truce__sum_add. */
    int64_t count;
    /* The widest type so far: INT32, INT64, DOUBLE, or DECIMAL128. */
    uint8_t type;
};

void truce__sum_begin(struct sum *sum);
void truce__sum_add(struct sum *sum, struct value number);
/* Adds the milliseconds of a date. This does not widen the type. */
void truce__sum_add_int64(struct sum *sum, int64_t number);

/* Returns the sum in the widest type that was added. A sum of ints that does not fit becomes a
 * long, and a sum of longs that does not fit becomes a double. */
struct value truce__sum_value(const struct sum *sum, struct arena *arena);
/* Returns the average, a double or a decimal, or null if nothing was added. */
struct value truce__sum_average(const struct sum *sum, struct arena *arena);
/* Converts the sum to an int64. Returns false if it does not fit. A decimal is rounded half to
 * even, a double half away from zero. */
bool truce__sum_to_int64(const struct sum *sum, int64_t *result);

/* The standard deviation, computed incrementally with doubles (Welford 1962). */
struct deviation {
    int64_t count;
    double mean, squares;
};

void truce__deviation_add(struct deviation *deviation, double number);
/* Returns null for too few numbers: none, or only one for the deviation of a sample. */
struct value truce__deviation_value(const struct deviation *deviation, bool sample,
                                    struct arena *arena);

#endif
