#ifndef TRUCE_BSON_TIMEZONE_H
#define TRUCE_BSON_TIMEZONE_H

/*
 * Time zones of the tz database, such as "Europe/Berlin", from the system's compiled files (RFC
 * 8536). A zone stays in memory until the process ends. The process's own zone and the variable TZ
 * have no effect. Any thread may call these functions.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TIME_ZONE_NAME_MAX 64 /* The maximum size of a name in bytes. */

struct time_zone;

/* Finds a zone by its name. Returns NOT_FOUND if there is no such zone, and IO or CORRUPT if its
 * file cannot be read. The directory is /usr/share/zoneinfo, or the value of TRUCE_ZONEINFO. */
truce_status truce__time_zone_find(const char *name, size_t length, const struct time_zone **zone,
                                   bson_error_t *error);

/* Parses the bytes of a compiled file. The caller frees the zone. Only tests call it directly. */
truce_status truce__time_zone_parse(const uint8_t *bytes, size_t size, struct time_zone **zone,
                                    bson_error_t *error);
void truce__time_zone_free(struct time_zone *zone);

/* Returns the offset in seconds east of UTC at `utc_s` (seconds since 1970, UTC). */
int32_t truce__time_zone_offset(const struct time_zone *zone, int64_t utc_s);

/* Returns the UTC time at which clocks in the zone show `local_s`, counted in seconds since 1970
 * as if it were UTC. If there are two such times, it is the first. If the clocks skip `local_s`,
 * the offset before the change applies. */
int64_t truce__time_zone_to_utc(const struct time_zone *zone, int64_t local_s);

#endif
