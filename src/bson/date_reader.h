#ifndef TRUCE_BSON_DATE_READER_H
#define TRUCE_BSON_DATE_READER_H

/* What the two readers of dates share: date_read.c (free text) and date_format.c (by a format). */
#include "bson/date.h"

struct date_reader {
    const char *at, *end;
    bool date, time, zoned; /* what has been read */
    int64_t days;           /* since 1970 */
    int64_t time_ms;        /* of the day */
    struct date_zone zone;
};

struct date_number {
    int64_t value;
    int digits;
};

bool truce__date_skip(struct date_reader *reader, char c);
/* up to `most` digits */
bool truce__date_read_number(struct date_reader *reader, int most, struct date_number *number);
bool truce__date_set_date(struct date_reader *reader, int64_t year, int64_t month, int64_t day);
bool truce__date_set_week(struct date_reader *reader, int64_t year, int64_t week, int64_t day);
bool truce__date_set_day_of_year(struct date_reader *reader, int64_t year, int64_t day);
bool truce__date_set_time(struct date_reader *reader, int64_t hour, int64_t minute, int64_t second,
                          int64_t millisecond);
/* 1 to 12; 0: there is no month's name here */
int truce__date_read_month(struct date_reader *reader);
bool truce__date_read_zone(struct date_reader *reader);
truce_status truce__date_finish(struct date_reader *reader, const struct date_zone *zone,
                                int64_t *date_ms, bson_error_t *error);

#endif
