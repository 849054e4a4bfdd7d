#ifndef TRUCE_BASE_CLOCK_H
#define TRUCE_BASE_CLOCK_H

#include <stdint.h>

/* Returns the wall-clock time in milliseconds since 1970 (UTC). It is stored in documents; no
 * guarantee depends on it. */
int64_t truce__clock_wall_ms(void);

/* Returns the monotonic time in nanoseconds, for deadlines and measurements. */
int64_t truce__clock_monotonic_ns(void);

/* Returns the name of the monotonic clock, which identifies one boot of one computer. Processes
 * with the same name read the same clock. Returns NULL if the name is unknown. The name is a valid
 * field name. */
const char *truce__clock_name(void);

void truce__clock_sleep_ms(int64_t duration_ms);

#endif
