#ifndef TRUCE_PATTERNS_QUEUE_SCHEDULE_H
#define TRUCE_PATTERNS_QUEUE_SCHEDULE_H

/* When a cron line fires. Functions of text and time: no store, no clock. */
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "bson/date.h"

#define SCHEDULE_TEXT_MAX 200 /* bytes of a line */

struct schedule {
    int64_t every_ms; /* @every; 0: the fields count */
    uint64_t second, minute;
    uint32_t hour, day, month, weekday; /* a bit for each value that fires; weekday 0: Sunday */
    bool any_day, any_weekday;          /* "*": if neither, a day fires when one of them says so */
    struct date_zone zone;
};

/* `zone` NULL: UTC. INVALID: which field is wrong and why; also a line that never fires. */
truce_status truce__schedule_parse(const char *line, const char *zone, struct schedule *schedule,
                                   bson_error_t *error);

/* The first moment after `after_ms` at which it fires; of @every, counted from `after_ms`. INT64_MAX: never. */
int64_t truce__schedule_next(const struct schedule *schedule, int64_t after_ms);

/* The moments from `first_ms` (one of them) to `last_ms`: the newest `most` of them, the oldest first. Returns how many
 * there are in `ticks`; *first_left: there were older ones. The cost does not depend on how long ago the first is. */
uint32_t truce__schedule_between(const struct schedule *schedule, int64_t first_ms, int64_t last_ms,
                                 uint32_t most, int64_t *ticks, bool *first_left);

#endif
