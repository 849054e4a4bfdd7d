#include <strings.h>

#include "base/assert.h"
#include "bson/date_reader.h"

/*
 * Free text to dates, as MongoDB reads it; date_format.c reads by a format.
 *
 * Free text is read in pieces from left to right, each of which is a date, a time of day or a zone,
 * and may come once; names of weekdays, commas and blanks do not count. A date must be complete and
 * in the calendar; a time that is not given is midnight.
 */

#define DAY_MS INT64_C(86400000)

static bool date_read_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool date_read_is_letter(char c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

bool truce__date_skip(struct date_reader *reader, char c)
{
    if (reader->at == reader->end || lower(*reader->at) != c)
        return false;
    reader->at++;
    return true;
}

/* up to `most` digits */
bool truce__date_read_number(struct date_reader *reader, int most, struct date_number *number)
{
    *number = (struct date_number){0, 0};
    while (reader->at < reader->end && date_read_is_digit(*reader->at) && number->digits < most) {
        number->value = number->value * 10 + (*reader->at++ - '0');
        number->digits++;
    }
    return number->digits > 0;
}

static bool at_digit(const struct date_reader *reader)
{
    return reader->at < reader->end && date_read_is_digit(*reader->at);
}

/* -- dates ------------------------------------------------------------------------------------ */

bool truce__date_set_date(struct date_reader *reader, int64_t year, int64_t month, int64_t day)
{
    if (month < 1 || month > 12 || day < 1 || day > truce__date_month_days(year, month))
        return false;
    reader->days = truce__date_days(year, month, day);
    reader->date = true;
    return true;
}

bool truce__date_set_week(struct date_reader *reader, int64_t year, int64_t week, int64_t day)
{
    if (week < 1 || week > 53 || day < 1 || day > 7)
        return false;
    reader->days = truce__date_iso_days(year) + 7 * (week - 1) + day - 1;
    reader->date = true;
    return true;
}

bool truce__date_set_day_of_year(struct date_reader *reader, int64_t year, int64_t day)
{
    if (day < 1 || day > 365 + (truce__date_month_days(year, 2) == 29))
        return false;
    reader->days = truce__date_days(year, 1, 1) + day - 1;
    reader->date = true;
    return true;
}

/* `count` letters of a word of at least three: jan, sept, january */
static bool date_read_is_word(const char *text, size_t count, const char *word)
{
    if (count < 3 || count > strlen(word))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (lower(text[i]) != word[i])
            return false;
    }
    return count == 3 || word[count] == '\0' || (count == 4 && !memcmp(word, "sept", 4));
}

static int find_word(const char *text, size_t count, const char *const *words, int words_count)
{
    for (int i = 0; i < words_count; i++) {
        if (date_read_is_word(text, count, words[i]))
            return i;
    }
    return -1;
}

static size_t date_read_word_length(const struct date_reader *reader)
{
    const char *at = reader->at;

    while (at < reader->end && date_read_is_letter(*at))
        at++;
    return (size_t)(at - reader->at);
}

/* 1 to 12; 0: there is no month's name here */
int truce__date_read_month(struct date_reader *reader)
{
    static const char *const months[] = {"january",   "february", "march",    "april",
                                         "may",       "june",     "july",     "august",
                                         "september", "october",  "november", "december"};
    size_t length = date_read_word_length(reader);
    int month = find_word(reader->at, length, months, 12);

    if (month < 0)
        return 0;
    reader->at += length;
    return month + 1;
}

static void date_read_skip_blanks(struct date_reader *reader)
{
    while (reader->at < reader->end && strchr(" \t,", *reader->at) && *reader->at)
        reader->at++;
}

/* the "th" of "4th" */
static void skip_ordinal(struct date_reader *reader)
{
    static const char *const endings[] = {"st", "nd", "rd", "th"};

    if (date_read_word_length(reader) != 2)
        return;
    for (int i = 0; i < 4; i++) {
        if (lower(reader->at[0]) == endings[i][0] && lower(reader->at[1]) == endings[i][1]) {
            reader->at += 2;
            return;
        }
    }
}

/* "April 5, 2020", "April 5th 2020" */
static bool read_named_date(struct date_reader *reader)
{
    int month = truce__date_read_month(reader);
    struct date_number day, year;

    if (!month)
        return false;
    (void)truce__date_skip(reader, '.'); /* of an abbreviation */
    date_read_skip_blanks(reader);
    (void)truce__date_skip(reader, '-'); /* Apr-5-2020 */
    if (!truce__date_read_number(reader, 4, &day))
        return false;
    if (day.digits == 4)
        return truce__date_set_date(reader, day.value, month, 1);
    skip_ordinal(reader);
    date_read_skip_blanks(reader);
    (void)truce__date_skip(reader, '-');
    return truce__date_read_number(reader, 4, &year) && year.digits == 4 &&
           truce__date_set_date(reader, year.value, month, day.value);
}

/* behind the day: "5 April 2020", "5-Apr-2020", "5th April, 2020" */
static bool read_day_month(struct date_reader *reader, int64_t day)
{
    struct date_number year;
    int month;

    skip_ordinal(reader);
    date_read_skip_blanks(reader);
    (void)truce__date_skip(reader, '-');
    month = truce__date_read_month(reader);
    if (!month)
        return false;
    (void)truce__date_skip(reader, '.');
    date_read_skip_blanks(reader);
    (void)truce__date_skip(reader, '-');
    return truce__date_read_number(reader, 4, &year) && year.digits == 4 &&
           truce__date_set_date(reader, year.value, month, day);
}

/* behind the year and the W: "2020-W09-6", "2020W096" */
static bool read_week(struct date_reader *reader, int64_t year)
{
    struct date_number week, day = {1, 1};

    if (!truce__date_read_number(reader, 2, &week) || week.digits != 2)
        return false;
    if (truce__date_skip(reader, '-')) {
        if (!truce__date_read_number(reader, 1, &day))
            return false;
    } else if (at_digit(reader)) {
        (void)truce__date_read_number(reader, 1, &day);
    }
    return truce__date_set_week(reader, year, week.value, day.value);
}

/* behind four digits and a separator: "2020-02-29", "2020/2/29", "2020-060", "2020-02" */
static bool read_after_year(struct date_reader *reader, int64_t year, char separator)
{
    struct date_number month, day;

    if (separator == '-' && truce__date_skip(reader, 'w'))
        return read_week(reader, year);
    if (!truce__date_read_number(reader, 3, &month))
        return false;
    if (month.digits == 3)
        return separator == '-' && truce__date_set_day_of_year(reader, year, month.value);
    if (!truce__date_skip(reader, separator))
        return separator == '-' && truce__date_set_date(reader, year, month.value, 1);
    return truce__date_read_number(reader, 2, &day) &&
           truce__date_set_date(reader, year, month.value, day.value);
}

/* "2/29/2020", "29-2-2020", "29.2.2020" */
static bool read_year_last(struct date_reader *reader, int64_t first, char separator)
{
    struct date_number second, year;

    if (!truce__date_read_number(reader, 2, &second) || !truce__date_skip(reader, separator) ||
        !truce__date_read_number(reader, 4, &year) || year.digits != 4)
        return false;
    if (separator == '/')
        return truce__date_set_date(reader, year.value, first, second.value);
    return truce__date_set_date(reader, year.value, second.value, first);
}

static bool read_compact_date(struct date_reader *reader, const struct date_number *number)
{
    if (number->digits == 8)
        return truce__date_set_date(reader, number->value / 10000, number->value / 100 % 100,
                                    number->value % 100);
    return number->digits == 7 &&
           truce__date_set_day_of_year(reader, number->value / 1000, number->value % 1000);
}

static bool read_number_date(struct date_reader *reader)
{
    struct date_number first;

    if (!truce__date_read_number(reader, 8, &first))
        return false;
    if (first.digits > 4)
        return read_compact_date(reader, &first);
    if (first.digits == 4) {
        if (truce__date_skip(reader, '-'))
            return read_after_year(reader, first.value, '-');
        if (truce__date_skip(reader, '/'))
            return read_after_year(reader, first.value, '/');
        return truce__date_skip(reader, 'w') && read_week(reader, first.value);
    }
    if (first.digits > 2)
        return false;
    if (truce__date_skip(reader, '/'))
        return read_year_last(reader, first.value, '/');
    if (truce__date_skip(reader, '.'))
        return read_year_last(reader, first.value, '.');
    if (reader->end - reader->at > 1 && *reader->at == '-' && date_read_is_digit(reader->at[1])) {
        reader->at++;
        return read_year_last(reader, first.value, '-');
    }
    return read_day_month(reader, first.value);
}

/* -- times ------------------------------------------------------------------------------------ */

/* tenths, hundredths, ... of a second; what is beyond milliseconds is cut */
static int64_t read_fraction(struct date_reader *reader)
{
    int64_t milliseconds = 0;
    int digits = 0;

    for (; at_digit(reader); reader->at++, digits++) {
        if (digits < 3)
            milliseconds = milliseconds * 10 + (*reader->at - '0');
    }
    for (; digits < 3; digits++)
        milliseconds *= 10;
    return milliseconds;
}

bool truce__date_set_time(struct date_reader *reader, int64_t hour, int64_t minute, int64_t second,
                          int64_t millisecond)
{
    if (hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute || second)))
        return false;
    reader->time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
    reader->time = true;
    return true;
}

/* am, pm, a.m. and p.m. behind an hour from 1 to 12 */
static bool read_half(struct date_reader *reader, int64_t *hour)
{
    struct date_reader probe = *reader;
    bool evening;

    date_read_skip_blanks(&probe);
    evening = truce__date_skip(&probe, 'p');
    if (!evening && !truce__date_skip(&probe, 'a'))
        return false;
    (void)truce__date_skip(&probe, '.');
    if (!truce__date_skip(&probe, 'm') || (probe.at < probe.end && date_read_is_letter(*probe.at)))
        return false;
    (void)truce__date_skip(&probe, '.');
    if (*hour < 1 || *hour > 12)
        return false;
    *hour = *hour % 12 + (evening ? 12 : 0);
    *reader = probe;
    return true;
}

/* "12:34", "12:34:56.789", "1:30 PM", "1 PM" */
static bool read_clock(struct date_reader *reader)
{
    struct date_number hour, minute = {0}, second = {0};
    int64_t milliseconds = 0;
    bool colon;

    if (!truce__date_read_number(reader, 2, &hour))
        return false;
    colon = truce__date_skip(reader, ':');
    if (colon && (!truce__date_read_number(reader, 2, &minute) || minute.digits != 2))
        return false;
    if (colon && truce__date_skip(reader, ':')) {
        if (!truce__date_read_number(reader, 2, &second) || second.digits != 2)
            return false;
        if (truce__date_skip(reader, '.') || truce__date_skip(reader, ','))
            milliseconds = read_fraction(reader);
    }
    if (!read_half(reader, &hour.value) && !colon)
        return false;
    return truce__date_set_time(reader, hour.value, minute.value, second.value, milliseconds);
}

/* behind a T: "123456", "1234", or as above */
static bool date_read_read_time(struct date_reader *reader)
{
    struct date_reader probe = *reader;
    struct date_number number;

    if (truce__date_read_number(&probe, 6, &number) && number.digits >= 4 &&
        (probe.at == probe.end || *probe.at != ':')) {
        int64_t milliseconds = 0;
        int64_t value = number.digits == 6 ? number.value : number.value * 100;
        if (number.digits == 5)
            return false;
        if (truce__date_skip(&probe, '.'))
            milliseconds = read_fraction(&probe);
        *reader = probe;
        return truce__date_set_time(reader, value / 10000, value / 100 % 100, value % 100,
                                    milliseconds);
    }
    return read_clock(reader);
}

static bool looks_like_clock(const struct date_reader *reader)
{
    struct date_reader probe = *reader;
    struct date_number hour;

    if (!truce__date_read_number(&probe, 2, &hour) || at_digit(&probe))
        return false;
    if (probe.at < probe.end && *probe.at == ':')
        return true;
    return read_half(&probe, &hour.value);
}

/* -- zones ------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    int hours;
} abbreviations[] = {{"est", -5}, {"edt", -4}, {"cst", -6}, {"cdt", -5}, {"mst", -7},
                     {"mdt", -6}, {"pst", -8}, {"pdt", -7}, {"cet", 1},  {"cest", 2},
                     {"eet", 2},  {"eest", 3}, {"wet", 0},  {"west", 1}, {"bst", 1},
                     {"msk", 3},  {"jst", 9},  {"utc", 0},  {"gmt", 0},  {"z", 0}};

static bool read_abbreviation(struct date_reader *reader)
{
    size_t length = date_read_word_length(reader);

    for (size_t i = 0; i < sizeof abbreviations / sizeof *abbreviations; i++) {
        const char *name = abbreviations[i].name;
        if (strlen(name) == length && !strncasecmp(name, reader->at, length)) {
            reader->zone.offset_s = abbreviations[i].hours * 3600;
            reader->at += length;
            return true;
        }
    }
    return false;
}

static bool is_zone_letter(char c)
{
    return date_read_is_letter(c) || date_read_is_digit(c) || c == '_' || c == '/' || c == '+' ||
           c == '-' || c == ':';
}

bool truce__date_read_zone(struct date_reader *reader)
{
    const char *first = reader->at, *at = first;

    if (reader->zoned)
        return false;
    reader->zoned = true;
    while (at < reader->end && is_zone_letter(*at))
        at++;
    if (memchr(first, '/', (size_t)(at - first)) || *first == '+' || *first == '-') {
        reader->at = at;
        return !truce__date_zone_parse(first, (size_t)(at - first), &reader->zone, NULL);
    }
    return read_abbreviation(reader);
}

/* -- free text -------------------------------------------------------------------------------- */

static bool skip_weekday(struct date_reader *reader)
{
    static const char *const names[] = {"monday", "tuesday",  "wednesday", "thursday",
                                        "friday", "saturday", "sunday"};
    size_t length = date_read_word_length(reader);

    if (find_word(reader->at, length, names, 7) < 0)
        return false;
    reader->at += length;
    return true;
}

static bool read_piece(struct date_reader *reader)
{
    struct date_reader probe = *reader;

    if (date_read_is_digit(*reader->at)) {
        if (!reader->time && looks_like_clock(reader))
            return read_clock(reader);
        return !reader->date && read_number_date(reader);
    }
    if (skip_weekday(reader))
        return true;
    if (!reader->date && read_named_date(&probe)) {
        *reader = probe;
        return true;
    }
    if (reader->date && !reader->time && truce__date_skip(reader, 't'))
        return date_read_read_time(reader);
    return reader->date && truce__date_read_zone(reader);
}

static bool date_read_read_text(struct date_reader *reader)
{
    date_read_skip_blanks(reader);
    while (reader->at < reader->end) {
        if (!read_piece(reader))
            return false;
        date_read_skip_blanks(reader);
    }
    return reader->date;
}

truce_status truce__date_finish(struct date_reader *reader, const struct date_zone *zone,
                                int64_t *date_ms, bson_error_t *error)
{
    if (reader->zoned && zone)
        return truce__refuse(CODE_CONVERSION_FAILURE, error,
                             "a date in text that has a zone of its own takes no \"timezone\"");
    if (!reader->zoned && zone)
        reader->zone = *zone;
    *date_ms = truce__date_from_local(reader->days * DAY_MS + reader->time_ms, &reader->zone);
    return TRUCE_OK;
}

truce_status truce__date_parse(const char *text, size_t length, const struct date_zone *zone,
                               int64_t *date_ms, bson_error_t *error)
{
    struct date_reader reader = {.at = text, .end = text + length};

    if (!date_read_read_text(&reader))
        return truce__refuse(CODE_CONVERSION_FAILURE, error, "\"%.*s\" is no complete date",
                             (int)BSON_MIN(length, 100), text);
    return truce__date_finish(&reader, zone, date_ms, error);
}
