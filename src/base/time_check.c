#include "base/time_check.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/status.h"

truce_status truce__time_check(const char *name, int64_t time_ms, bson_error_t *error)
{
    bool late = time_ms > DATE_LAST_MS;

    if (late || (time_ms < TIME_LEAST_MS && truce__clock_wall_ms() >= TIME_LEAST_MS))
        return truce__fail(TRUCE_INVALID, error,
                           "%s is %" PRId64 ", a time %s: expected milliseconds since 1970, for "
                           "example 1767225600000",
                           name, time_ms,
                           late ? "after the year 9999"
                                : "before 10000000000, which is probably in seconds");
    return TRUCE_OK;
}

truce_status truce__duration_check(const char *name, int64_t duration_ms, bson_error_t *error)
{
    if (duration_ms > DURATION_MAX_MS)
        return truce__fail(TRUCE_INVALID, error,
                           "%s is %" PRId64 " ms, more than 10,000 days: expected a duration in "
                           "milliseconds, and not a point in time",
                           name, duration_ms);
    return TRUCE_OK;
}
