#include "bson/date.h"

#include <stdio.h>

#include "base/assert.h"

/* The calendar and time zones. See date_read.c and date_write.c for text. */

#define DAY_MS    INT64_C(86400000)
#define HOUR_MS   3600000
#define MINUTE_MS 60000

static int64_t date_floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t floor_rest(int64_t a, int64_t b)
{
    int64_t rest = a % b;

    return rest < 0 ? rest + b : rest;
}

/* -- zones ------------------------------------------------------------------------------------ */

static bool date_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* hh, hhmm or hh:mm behind the sign */
static bool parse_offset(const char *text, size_t length, int32_t *seconds)
{
    int hours, minutes = 0;
    size_t colon = length == 5 && text[2] == ':';

    if (length != 2 && length != 4 + colon)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (!date_is_digit(text[i]) && !(colon && i == 2))
            return false;
    }
    hours = (text[0] - '0') * 10 + (text[1] - '0');
    if (length > 2)
        minutes = (text[2 + colon] - '0') * 10 + (text[3 + colon] - '0');
    *seconds = hours * 3600 + minutes * 60;
    return true;
}

static bool is_utc(const char *text, size_t length)
{
    return (length == 3 && (!memcmp(text, "UTC", 3) || !memcmp(text, "GMT", 3))) ||
           (length == 1 && *text == 'Z');
}

truce_status truce__date_zone_parse(const char *text, size_t length, struct date_zone *zone,
                                    bson_error_t *error)
{
    truce_status status;

    *zone = (struct date_zone){0};
    if (is_utc(text, length))
        return TRUCE_OK;
    if (length > 1 && (*text == '+' || *text == '-')) {
        if (!parse_offset(text + 1, length - 1, &zone->offset_s))
            return truce__refuse(40485, error, "\"%.*s\" is no distance from UTC such as +02:00",
                                 (int)BSON_MIN(length, TIME_ZONE_NAME_MAX), text);
        if (*text == '-')
            zone->offset_s = -zone->offset_s;
        return TRUCE_OK;
    }
    status = truce__time_zone_find(text, length, &zone->named, error);
    if (status == TRUCE_NOT_FOUND)
        return truce__refuse(40485, error, "there is no time zone \"%.*s\"",
                             (int)BSON_MIN(length, TIME_ZONE_NAME_MAX), text);
    return status;
}

int32_t truce__date_zone_offset(const struct date_zone *zone, int64_t date_ms)
{
    if (zone->named)
        return truce__time_zone_offset(zone->named, date_floor_divide(date_ms, 1000));
    return zone->offset_s;
}

/* Dates at the very ends of their range stay there. */
static int64_t add_seconds(int64_t ms, int64_t seconds)
{
    int64_t sum;

    if (__builtin_add_overflow(ms, seconds * 1000, &sum))
        return seconds < 0 ? INT64_MIN : INT64_MAX;
    return sum;
}

int64_t truce__date_to_local(int64_t date_ms, const struct date_zone *zone)
{
    return add_seconds(date_ms, truce__date_zone_offset(zone, date_ms));
}

int64_t truce__date_from_local(int64_t local_ms, const struct date_zone *zone)
{
    int64_t seconds = date_floor_divide(local_ms, 1000);

    if (!zone->named)
        return add_seconds(local_ms, -(int64_t)zone->offset_s);
    return add_seconds(local_ms, truce__time_zone_to_utc(zone->named, seconds) - seconds);
}

/* -- the calendar ----------------------------------------------------------------------------- */

int64_t truce__date_days(int64_t year, int64_t month, int64_t day)
{
    int64_t months = month - 3; /* years from March: 29 February is the last day of one */
    int64_t shifted = year + date_floor_divide(months, 12);
    int64_t from_march = floor_rest(months, 12);
    int64_t era = date_floor_divide(shifted, 400);
    int64_t year_of_era = shifted - era * 400;
    int64_t day_of_year = (153 * from_march + 2) / 5;

    return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
           719468 + (day - 1);
}

int32_t truce__date_month_days(int64_t year, int64_t month)
{
    return (int32_t)(truce__date_days(year, month + 1, 1) - truce__date_days(year, month, 1));
}

static void civil(int64_t days, struct date_parts *parts)
{
    int64_t shifted = days + 719468;
    int64_t era = date_floor_divide(shifted, 146097);
    int64_t day_of_era = shifted - era * 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int64_t from_march = (5 * day_of_year + 2) / 153;

    parts->day = (int32_t)(day_of_year - (153 * from_march + 2) / 5 + 1);
    parts->month = (int32_t)(from_march < 10 ? from_march + 3 : from_march - 9);
    parts->year = year_of_era + era * 400 + (parts->month <= 2);
}

int64_t truce__date_iso_days(int64_t iso_year)
{
    int64_t fourth = truce__date_days(iso_year, 1, 4); /* always in week 1 */

    return fourth - floor_rest(fourth + 3, 7); /* 1970-01-01 was a Thursday */
}

static void weeks(int64_t days, struct date_parts *parts)
{
    parts->day_of_week = (int32_t)floor_rest(days + 4, 7);
    parts->week = (parts->day_of_year - 1 + 7 - parts->day_of_week) / 7;
    parts->iso_year = parts->year;
    if (days < truce__date_iso_days(parts->iso_year))
        parts->iso_year--;
    else if (days >= truce__date_iso_days(parts->iso_year + 1))
        parts->iso_year++;
    parts->iso_week = (int32_t)((days - truce__date_iso_days(parts->iso_year)) / 7 + 1);
}

void truce__date_split(int64_t date_ms, const struct date_zone *zone, struct date_parts *parts)
{
    int64_t local = truce__date_to_local(date_ms, zone);
    int64_t days = date_floor_divide(local, DAY_MS);
    int32_t rest = (int32_t)floor_rest(local, DAY_MS);

    civil(days, parts);
    parts->day_of_year = (int32_t)(days - truce__date_days(parts->year, 1, 1) + 1);
    weeks(days, parts);
    parts->hour = rest / HOUR_MS;
    parts->minute = rest / MINUTE_MS % 60;
    parts->second = rest / 1000 % 60;
    parts->millisecond = rest % 1000;
    truce_assert(parts->month >= 1 && parts->month <= 12 && parts->day >= 1 && parts->day <= 31);
}

const char *truce__date_show(int64_t date_ms, char text[DATE_TEXT_MAX])
{
    static const struct date_zone utc = {0};
    struct date_parts parts;

    truce__date_split(date_ms, &utc, &parts);
    snprintf(text, DATE_TEXT_MAX, "%04" PRId64 "-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.year,
             parts.month, parts.day, parts.hour, parts.minute, parts.second, parts.millisecond);
    return text;
}
