#ifndef TRUCE_BSON_DATE_H
#define TRUCE_BSON_DATE_H

/*
 * Dates: milliseconds since 1970 (UTC) from and to the calendar (proleptic Gregorian, ISO weeks) in
 * a time zone, and from and to text. Days and weekdays by Hinnant's algorithms ("chrono-compatible
 * low-level date algorithms").
 */
#include "base/timezone.h"
#include "bson/value.h"

/* A fixed distance from UTC, or a zone of the tz database. All zero: UTC. */
struct date_zone {
    const struct time_zone *named; /* or NULL */
    int32_t offset_s;
};

/* "Europe/Berlin", "UTC", "GMT", "Z", "+02", "+0200", "+02:00". Refuses with 40485. */
truce_status truce__date_zone_parse(const char *text, size_t length, struct date_zone *zone,
                                    bson_error_t *error);
/* seconds east of UTC at that moment */
int32_t truce__date_zone_offset(const struct date_zone *zone, int64_t date_ms);

struct date_parts {
    int64_t year;
    int32_t month, day; /* from 1 */
    int32_t hour, minute, second, millisecond;
    int32_t day_of_year; /* from 1 */
    int32_t day_of_week; /* 0: Sunday */
    int64_t iso_year;
    int32_t iso_week; /* from 1 */
    int32_t week;     /* of the year, starting on Sunday; 0 before the first Sunday */
};

void truce__date_split(int64_t date_ms, const struct date_zone *zone, struct date_parts *parts);

/* days since 1970-01-01 */
int64_t truce__date_days(int64_t year, int64_t month, int64_t day);
/* the Monday of ISO week 1 */
int64_t truce__date_iso_days(int64_t iso_year);
int32_t truce__date_month_days(int64_t year, int64_t month);

/* Clocks of the zone to UTC: `local_ms` is what they show, as if it were UTC. */
int64_t truce__date_from_local(int64_t local_ms, const struct date_zone *zone);
int64_t truce__date_to_local(int64_t date_ms, const struct date_zone *zone);

#define DATE_TEXT_MAX      40
#define DATE_YEAR_0_MS     INT64_C(-62167219200000) /* the years of four digits: from here */
#define DATE_YEAR_10000_MS INT64_C(253402300800000) /* to before this */
/* "2020-02-29T12:34:56.789Z"; returns `text` */
const char *truce__date_show(int64_t date_ms, char text[DATE_TEXT_MAX]);

/* What $dateFromString and $toDate read without a format: ISO 8601 (dates, weeks, days of the year;
 * with and without separators), RFC 2822, "April 5 2020 10:30 PM" and their like. `zone` is for
 * text without a zone of its own; NULL: there may be one, UTC otherwise. CONVERSION_FAILURE. */
truce_status truce__date_parse(const char *text, size_t length, const struct date_zone *zone,
                               int64_t *date_ms, bson_error_t *error);

/* By a format such as "%d/%m/%Y". */
truce_status truce__date_parse_format(const char *text, size_t length, const char *format,
                                      size_t format_length, const struct date_zone *zone,
                                      int64_t *date_ms, bson_error_t *error);

/* The format's own errors: 18535 (a '%' at the end), 18536 (unknown letter). `reading` allows the
 * letters of parse_format, else those of write. */
truce_status truce__date_format_check(const char *format, size_t length, bool reading,
                                      bson_error_t *error);

/* As long as the format, each letter up to so many bytes: */
#define DATE_LETTER_MAX 12
/* Writes into `text` (room for DATE_LETTER_MAX bytes each byte of the format) and returns the
 * length in *written. 18537 if the year is not from 0 to 9999. */
truce_status truce__date_write(int64_t date_ms, const struct date_zone *zone, const char *format,
                               size_t length, char *text, size_t *written, bson_error_t *error);

#endif
