#include "bson/json_wrapper.h"

#include <bson/bson.h>

/* days since 1970-01-01 of the proleptic Gregorian calendar (Howard Hinnant, "chrono-compatible
 * low-level date algorithms") */
static int64_t days_of(int64_t year, int month, int day)
{
    int64_t y = month <= 2 ? year - 1 : year;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    int64_t doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;

    return era * 146097 + doe - 719468;
}

static bool date_take_number(const char **at, int digits, int *number)
{
    *number = 0;
    for (int i = 0; i < digits; i++, (*at)++) {
        if (**at < '0' || **at > '9')
            return false;
        *number = *number * 10 + (**at - '0');
    }
    return true;
}

static bool date_take(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

/* "Z", "+01:00", "+0100", "+01": minutes east of UTC; it is the rest of the text */
static bool take_zone(const char **at, int *minutes)
{
    int hours = 0, rest = 0;
    char sign = **at;

    *minutes = 0;
    if (date_take(at, 'Z'))
        return **at == '\0';
    if (sign != '+' && sign != '-')
        return false;
    (*at)++;
    if (!date_take_number(at, 2, &hours))
        return false;
    if (**at) {
        (void)date_take(at, ':');
        if (!date_take_number(at, 2, &rest))
            return false;
    }
    *minutes = (hours * 60 + rest) * (sign == '-' ? -1 : 1);
    return **at == '\0' && hours < 24 && rest < 60;
}

static bool take_fraction(const char **at, int *ms)
{
    int scale = 100;

    *ms = 0;
    if (!date_take(at, '.'))
        return true;
    if (**at < '0' || **at > '9')
        return false;
    for (; **at >= '0' && **at <= '9'; (*at)++, scale /= 10)
        *ms += (**at - '0') * scale;
    return true;
}

/* ISO 8601: 2024-02-29T12:30:00[.250](Z or +01:00) */
bool truce__json_date(const char *at, int64_t *ms)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int year, month, day, hour, minute, second = 0, fraction = 0, zone;

    if (!date_take_number(&at, 4, &year) || !date_take(&at, '-') ||
        !date_take_number(&at, 2, &month) || !date_take(&at, '-') ||
        !date_take_number(&at, 2, &day) || !date_take(&at, 'T') ||
        !date_take_number(&at, 2, &hour) || !date_take(&at, ':') ||
        !date_take_number(&at, 2, &minute))
        return false;
    if (date_take(&at, ':') &&
        (!date_take_number(&at, 2, &second) || !take_fraction(&at, &fraction)))
        return false;
    if (!take_zone(&at, &zone) || month < 1 || month > 12 || day < 1 || hour > 23 || minute > 59 ||
        second > 59)
        return false;
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (day > days[month - 1] + (month == 2 && leap))
        return false;
    *ms = ((days_of(year, month, day) * 24 + hour) * 60 + minute - zone) * 60000 + second * 1000 +
          fraction;
    return true;
}
