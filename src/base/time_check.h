#ifndef TRUCE_BASE_TIME_CHECK_H
#define TRUCE_BASE_TIME_CHECK_H

/*
 * Checks the times that callers give, all of which are in milliseconds.
 *
 * A point in time in seconds is a valid number with another meaning: a job runs at once instead of
 * tomorrow. So is a point in time that is passed as a duration: a job runs in 57 years instead of
 * in an hour. Therefore every point in time and every long duration that enters the library passes
 * one of these functions.
 */
#include <stdint.h>

#include "truce/status.h"

/* The least point in time, 1970-04-26T17:46:40Z. The same number of seconds is a time in the year
 * 2286. */
#define TIME_LEAST_MS INT64_C(10000000000)

/* The longest duration, 10,000 days. Points in time after 1997 are greater. */
#define DURATION_MAX_MS INT64_C(864000000000)

/* Refuses a point in time before TIME_LEAST_MS or after the year 9999. `name` is the option, as the
 * caller knows it. If the clock of this process is itself before TIME_LEAST_MS, as in a simulation,
 * early points in time are allowed. */
truce_status truce__time_check(const char *name, int64_t time_ms, bson_error_t *error);

/* Refuses a duration above DURATION_MAX_MS. */
truce_status truce__duration_check(const char *name, int64_t duration_ms, bson_error_t *error);

#endif
