#ifndef TRUCE_PATTERNS_QUEUE_CRON_SCHEDULE_H
#define TRUCE_PATTERNS_QUEUE_CRON_SCHEDULE_H

/* The times at which a cron line fires. These functions use no store and no clock. */
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "bson/date.h"

/* The maximum length of a line in bytes. */
#define SCHEDULE_TEXT_MAX 200

/* A parsed cron line. */
struct schedule {
    /* The interval of @every in ms, or 0 if the fields of the line apply. */
    int64_t every_ms;
    uint64_t second, minute;
    /* Each of these sets, also `second` and `minute`, has a bit for each value that fires. Weekday
     * 0 is Sunday. */
    uint32_t hour, day, month, weekday;
    /* The field is "*". If both fields are restricted, a day fires when one of them matches. */
    bool any_day, any_weekday;
    struct date_zone zone;
};

/* Parses a line. `zone` NULL is UTC. Returns INVALID if a field is wrong, which the error names, or
 * if the line never fires. */
truce_status truce__schedule_parse(const char *line, const char *zone, struct schedule *schedule,
                                   bson_error_t *error);

/* Returns the first time after `after_ms` at which the line fires, or INT64_MAX if it never does;
 * @every counts from `after_ms`. */
int64_t truce__schedule_next(const struct schedule *schedule, int64_t after_ms);

/* Finds the times from `first_ms` (one of them) to `last_ms`: the newest `most` of them, the oldest
 * first. Returns their number in `ticks`, and sets *first_left if there are older times. The cost
 * does not depend on the age of the first time. */
uint32_t truce__schedule_between(const struct schedule *schedule, int64_t first_ms, int64_t last_ms,
                                 uint32_t most, int64_t *ticks, bool *first_left);

#endif
