#ifndef TRUCE_BASE_TIMEZONE_H
#define TRUCE_BASE_TIMEZONE_H

/*
 * Time zones of the tz database ("Europe/Berlin"), read from the system's compiled files (RFC 8536)
 * and kept: a zone lives as long as the process. The process's own zone and the TZ variable play no
 * part. Safe from any thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TIME_ZONE_NAME_MAX 64 /* bytes */

struct time_zone;

/* TRUCE_NOT_FOUND if there is no such zone, TRUCE_IO or TRUCE_CORRUPT if its file cannot be used.
 * The directory is /usr/share/zoneinfo, or what TRUCE_ZONEINFO of the environment says. */
truce_status truce__time_zone_find(const char *name, size_t length, const struct time_zone **zone,
                                   bson_error_t *error);

/* From the bytes of a compiled file; the caller frees. For tests: find is what others call. */
truce_status truce__time_zone_parse(const uint8_t *bytes, size_t size, struct time_zone **zone,
                                    bson_error_t *error);
void truce__time_zone_free(struct time_zone *zone);

/* Seconds east of UTC at that moment (seconds since 1970, UTC). */
int32_t truce__time_zone_offset(const struct time_zone *zone, int64_t utc_s);

/* The moment at which the clocks of the zone show `local_s` (seconds since 1970 as if it were UTC).
 * Of two such moments the first; if the clocks skip it, as if they had not been moved yet. */
int64_t truce__time_zone_to_utc(const struct time_zone *zone, int64_t local_s);

#endif
