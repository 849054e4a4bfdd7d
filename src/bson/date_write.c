#include <stdio.h>

#include "base/assert.h"
#include "bson/date.h"

/* Dates to text by a format: what $dateToString writes. */

static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};

truce_status truce__date_format_check(const char *format, size_t length, bool reading,
                                      bson_error_t *error)
{
    const char *letters = reading ? "%YmdHMSLGVuzZjbB" : "%YmdHMSLGVuUwjzZbB";

    for (size_t i = 0; i < length; i++) {
        if (format[i] != '%')
            continue;
        if (++i == length)
            return truce__refuse(18535, error, "a date's format ends with a single '%%'");
        if (format[i] == '\0' || !strchr(letters, format[i]))
            return truce__refuse(18536, error, "a date's format has no '%%%c'", format[i]);
    }
    return TRUCE_OK;
}

static int write_zone(char letter, const struct date_zone *zone, int64_t date_ms, char *text)
{
    int minutes = truce__date_zone_offset(zone, date_ms) / 60;
    int distance = minutes < 0 ? -minutes : minutes;

    if (letter == 'Z')
        return sprintf(text, "%d", minutes);
    return sprintf(text, "%c%02d%02d", minutes < 0 ? '-' : '+', distance / 60, distance % 60);
}

static int write_letter(char letter, const struct date_parts *parts, char *text)
{
    switch (letter) {
    case 'Y':
        return sprintf(text, "%04d", (int)parts->year);
    case 'm':
        return sprintf(text, "%02d", parts->month);
    case 'd':
        return sprintf(text, "%02d", parts->day);
    case 'H':
        return sprintf(text, "%02d", parts->hour);
    case 'M':
        return sprintf(text, "%02d", parts->minute);
    case 'S':
        return sprintf(text, "%02d", parts->second);
    case 'L':
        return sprintf(text, "%03d", parts->millisecond);
    case 'j':
        return sprintf(text, "%03d", parts->day_of_year);
    case 'w':
        return sprintf(text, "%d", parts->day_of_week + 1);
    case 'u':
        return sprintf(text, "%d", parts->day_of_week ? parts->day_of_week : 7);
    case 'U':
        return sprintf(text, "%02d", parts->week);
    case 'V':
        return sprintf(text, "%02d", parts->iso_week);
    case 'G':
        return sprintf(text, "%04d", (int)parts->iso_year);
    case 'b':
        return sprintf(text, "%.3s", month_names[parts->month - 1]);
    case 'B':
        return sprintf(text, "%s", month_names[parts->month - 1]);
    default:
        truce_assert(letter == '%');
        *text = '%';
        return 1;
    }
}

truce_status truce__date_write(int64_t date_ms, const struct date_zone *zone, const char *format,
                               size_t length, char *text, size_t *written, bson_error_t *error)
{
    struct date_parts parts;
    char *at = text;
    truce_status status = truce__date_format_check(format, length, false, error);

    if (status)
        return status;
    truce__date_split(date_ms, zone, &parts);
    for (size_t i = 0; i < length; i++) {
        if (format[i] != '%') {
            *at++ = format[i];
            continue;
        }
        i++;
        if ((format[i] == 'Y' || format[i] == 'G') && (parts.year < 0 || parts.year > 9999))
            return truce__refuse(18537, error, "the year %" PRId64 " is not from 0 to 9999",
                                 parts.year);
        if (format[i] == 'z' || format[i] == 'Z')
            at += write_zone(format[i], zone, date_ms, at);
        else
            at += write_letter(format[i], &parts, at);
    }
    *written = (size_t)(at - text);
    truce_assert(*written <= length * DATE_LETTER_MAX);
    return TRUCE_OK;
}
