#ifndef TRUCE_BSON_SUM_H
#define TRUCE_BSON_SUM_H

/*
 * Sums of numbers of all types, as $add, $sum and $avg make them: the result is as narrow as
 * possible, and does not depend on rounding in between. Numbers but decimals are summed in two
 * doubles, the second of which holds what the first has lost (Dekker 1971, Knuth 4.2.2), so sums of
 * 64-bit integers are exact; decimals are summed apart and joined at the end.
 *
 * Zero-initialise is not enough: begin with truce__sum_begin.
 */
#include "bson/decimal.h"
#include "bson/value.h"

struct sum {
    double high, low; /* high + low is the sum */
    double plain;     /* the usual sum, for NaN and infinities */
    decimal decimals;
    int64_t count; /* of the numbers added */
    uint8_t type;  /* the widest so far: INT32, INT64, DOUBLE or DECIMAL128 */
};

void truce__sum_begin(struct sum *sum);
void truce__sum_add(struct sum *sum, struct value number);
/* a date's milliseconds: does not widen the type */
void truce__sum_add_int64(struct sum *sum, int64_t number);

/* int, else long, else double; decimal if there was one */
struct value truce__sum_value(const struct sum *sum, struct arena *arena);
/* null if nothing was added; a double, or a decimal */
struct value truce__sum_average(const struct sum *sum, struct arena *arena);
/* As an int64; false if it does not fit. Decimals are rounded half to even,
 * doubles half away from zero. */
bool truce__sum_to_int64(const struct sum *sum, int64_t *result);

/* The standard deviation of numbers as they come, all taken as doubles (Welford 1962). */
struct deviation {
    int64_t count;
    double mean, squares;
};

void truce__deviation_add(struct deviation *deviation, double number);
/* null if there are too few numbers: none, or only one for the sample's deviation */
struct value truce__deviation_value(const struct deviation *deviation, bool sample,
                                    struct arena *arena);

#endif
