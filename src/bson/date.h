#ifndef TRUCE_BSON_DATE_H
#define TRUCE_BSON_DATE_H

/*
 * Converts dates between milliseconds since 1970 (UTC), calendar fields in a time zone, and text.
 * The calendar is the proleptic Gregorian one, with ISO weeks. Days and weekdays are computed by
 * Hinnant's algorithms ("chrono-compatible low-level date algorithms").
 */
#include "bson/timezone.h"
#include "bson/value.h"

/* A fixed offset from UTC, or a zone of the tz database. A zeroed struct is UTC. */
struct date_zone {
    /* The zone of the tz database, or NULL if the offset is fixed. */
    const struct time_zone *named;
    int32_t offset_s;
};

/* Reads "Europe/Berlin", "UTC", "GMT", "Z", "+02", "+0200", or "+02:00". The error has the code
 * 40485. */
truce_status truce__date_zone_parse(const char *text, size_t length, struct date_zone *zone,
                                    bson_error_t *error);
/* Returns the offset in seconds east of UTC at that time. */
int32_t truce__date_zone_offset(const struct date_zone *zone, int64_t date_ms);

struct date_parts {
    int64_t year;
    /* Both count from 1. */
    int32_t month, day;
    int32_t hour, minute, second, millisecond;
    /* Counts from 1. */
    int32_t day_of_year;
    /* 0 is Sunday. */
    int32_t day_of_week;
    int64_t iso_year;
    /* Counts from 1. */
    int32_t iso_week;
    /* The number of the week, which begins on Sunday. 0 means the days before the first Sunday. */
    int32_t week;
};

void truce__date_split(int64_t date_ms, const struct date_zone *zone, struct date_parts *parts);

/* Returns the days since 1970-01-01. */
int64_t truce__date_days(int64_t year, int64_t month, int64_t day);
/* Returns the days from 1970-01-01 to the Monday of ISO week 1. */
int64_t truce__date_iso_days(int64_t iso_year);
int32_t truce__date_month_days(int64_t year, int64_t month);

/* Converts between UTC and local time, which is the time on clocks in the zone, counted as if it
 * were UTC. */
int64_t truce__date_from_local(int64_t local_ms, const struct date_zone *zone);
int64_t truce__date_to_local(int64_t date_ms, const struct date_zone *zone);

#define DATE_TEXT_MAX 40
/* The beginning of the year 0, and the end of the year 9999: the years with four digits. */
#define DATE_YEAR_0_MS     INT64_C(-62167219200000)
#define DATE_YEAR_10000_MS INT64_C(253402300800000)
/* Writes the date as "2020-02-29T12:34:56.789Z". Returns `text`. */
const char *truce__date_show(int64_t date_ms, char text[DATE_TEXT_MAX]);

/* Reads the text that $dateFromString and $toDate accept without a format: ISO 8601 (dates, weeks,
 * days of the year, with or without separators), RFC 2822, and forms such as "April 5 2020 10:30
 * PM". `zone` applies to text without a zone; with a zone in both, it fails. With `zone` NULL, text
 * without a zone is UTC. The error has the code CONVERSION_FAILURE. */
truce_status truce__date_parse(const char *text, size_t length, const struct date_zone *zone,
                               int64_t *date_ms, bson_error_t *error);

/* Reads a date that a person typed: 2024-01-31, or 2024-01-31T12:00 and what truce__date_parse
 * reads after this. Other orders of day and month are ambiguous, and fail. */
truce_status truce__date_parse_typed(const char *text, size_t length, int64_t *date_ms,
                                     bson_error_t *error);

/* Reads a date by a format such as "%d/%m/%Y". */
truce_status truce__date_parse_format(const char *text, size_t length, const char *format,
                                      size_t format_length, const struct date_zone *zone,
                                      int64_t *date_ms, bson_error_t *error);

/* Checks a format for reading or for writing; the two have different letters. The errors have the
 * codes 18535 ('%' at the end) and 18536 (unknown letter). */
truce_status truce__date_format_check(const char *format, size_t length, bool reading,
                                      bson_error_t *error);

/* The maximum number of bytes that a letter of a format can produce. */
#define DATE_LETTER_MAX 12
/* Writes the date by the format into `text`, which has room for DATE_LETTER_MAX bytes for each byte
 * of the format. Fails with the code 18537 if the year is not from 0 to 9999. */
truce_status truce__date_write(int64_t date_ms, const struct date_zone *zone, const char *format,
                               size_t length, char *text, size_t *written, bson_error_t *error);

#endif
