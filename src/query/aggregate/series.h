#ifndef TRUCE_QUERY_AGGREGATE_SERIES_H
#define TRUCE_QUERY_AGGREGATE_SERIES_H

/* Series of preferred numbers, for the granularity of $bucketAuto: Renard numbers (ISO 3), E series
 * (IEC 60063), 1-2-5, and powers of two. */
#include "bson/value.h"

struct series;

/* Returns the series "R5", "E24", "1-2-5", "POWERSOF2" ...; NULL if the name is unknown. */
const struct series *truce__series_find(const char *name);

/* Returns the least number of the series that is greater than `number`, or the greatest that is
 * less; zero stays zero. `number` is not negative and not NaN. The result is a double, or a decimal
 * if `number` is one. */
struct value truce__series_up(const struct series *series, struct value number,
                              struct arena *arena);
struct value truce__series_down(const struct series *series, struct value number,
                                struct arena *arena);

#endif
