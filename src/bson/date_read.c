#include <strings.h>

#include "base/assert.h"
#include "bson/date.h"

/*
 * Text to dates: free text as MongoDB reads it, and by a format.
 *
 * Free text is read in pieces from left to right, each of which is a date, a time of day or a zone,
 * and may come once; names of weekdays, commas and blanks do not count. A date must be complete and
 * in the calendar; a time that is not given is midnight.
 */

#define DAY_MS INT64_C(86400000)

struct reader {
    const char *at, *end;
    bool date, time, zoned; /* what has been read */
    int64_t days;           /* since 1970 */
    int64_t time_ms;        /* of the day */
    struct date_zone zone;
};

struct number {
    int64_t value;
    int digits;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool is_letter(char c)
{
    return lower(c) >= 'a' && lower(c) <= 'z';
}

static bool skip(struct reader *reader, char c)
{
    if (reader->at == reader->end || lower(*reader->at) != c)
        return false;
    reader->at++;
    return true;
}

/* up to `most` digits */
static bool read_number(struct reader *reader, int most, struct number *number)
{
    *number = (struct number){0, 0};
    while (reader->at < reader->end && is_digit(*reader->at) && number->digits < most) {
        number->value = number->value * 10 + (*reader->at++ - '0');
        number->digits++;
    }
    return number->digits > 0;
}

static bool at_digit(const struct reader *reader)
{
    return reader->at < reader->end && is_digit(*reader->at);
}

/* -- dates ------------------------------------------------------------------------------------ */

static bool set_date(struct reader *reader, int64_t year, int64_t month, int64_t day)
{
    if (month < 1 || month > 12 || day < 1 || day > truce__date_month_days(year, month))
        return false;
    reader->days = truce__date_days(year, month, day);
    reader->date = true;
    return true;
}

static bool set_week(struct reader *reader, int64_t year, int64_t week, int64_t day)
{
    if (week < 1 || week > 53 || day < 1 || day > 7)
        return false;
    reader->days = truce__date_iso_days(year) + 7 * (week - 1) + day - 1;
    reader->date = true;
    return true;
}

static bool set_day_of_year(struct reader *reader, int64_t year, int64_t day)
{
    if (day < 1 || day > 365 + (truce__date_month_days(year, 2) == 29))
        return false;
    reader->days = truce__date_days(year, 1, 1) + day - 1;
    reader->date = true;
    return true;
}

/* `count` letters of a word of at least three: jan, sept, january */
static bool is_word(const char *text, size_t count, const char *word)
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
        if (is_word(text, count, words[i]))
            return i;
    }
    return -1;
}

static size_t word_length(const struct reader *reader)
{
    const char *at = reader->at;

    while (at < reader->end && is_letter(*at))
        at++;
    return (size_t)(at - reader->at);
}

/* 1 to 12; 0: there is no month's name here */
static int read_month(struct reader *reader)
{
    static const char *const months[] = {"january",   "february", "march",    "april",
                                         "may",       "june",     "july",     "august",
                                         "september", "october",  "november", "december"};
    size_t length = word_length(reader);
    int month = find_word(reader->at, length, months, 12);

    if (month < 0)
        return 0;
    reader->at += length;
    return month + 1;
}

static void skip_blanks(struct reader *reader)
{
    while (reader->at < reader->end && strchr(" \t,", *reader->at) && *reader->at)
        reader->at++;
}

/* the "th" of "4th" */
static void skip_ordinal(struct reader *reader)
{
    static const char *const endings[] = {"st", "nd", "rd", "th"};

    if (word_length(reader) != 2)
        return;
    for (int i = 0; i < 4; i++) {
        if (lower(reader->at[0]) == endings[i][0] && lower(reader->at[1]) == endings[i][1]) {
            reader->at += 2;
            return;
        }
    }
}

/* "April 5, 2020", "April 5th 2020" */
static bool read_named_date(struct reader *reader)
{
    int month = read_month(reader);
    struct number day, year;

    if (!month)
        return false;
    (void)skip(reader, '.'); /* of an abbreviation */
    skip_blanks(reader);
    (void)skip(reader, '-'); /* Apr-5-2020 */
    if (!read_number(reader, 4, &day))
        return false;
    if (day.digits == 4)
        return set_date(reader, day.value, month, 1);
    skip_ordinal(reader);
    skip_blanks(reader);
    (void)skip(reader, '-');
    return read_number(reader, 4, &year) && year.digits == 4 &&
           set_date(reader, year.value, month, day.value);
}

/* behind the day: "5 April 2020", "5-Apr-2020", "5th April, 2020" */
static bool read_day_month(struct reader *reader, int64_t day)
{
    struct number year;
    int month;

    skip_ordinal(reader);
    skip_blanks(reader);
    (void)skip(reader, '-');
    month = read_month(reader);
    if (!month)
        return false;
    (void)skip(reader, '.');
    skip_blanks(reader);
    (void)skip(reader, '-');
    return read_number(reader, 4, &year) && year.digits == 4 &&
           set_date(reader, year.value, month, day);
}

/* behind the year and the W: "2020-W09-6", "2020W096" */
static bool read_week(struct reader *reader, int64_t year)
{
    struct number week, day = {1, 1};

    if (!read_number(reader, 2, &week) || week.digits != 2)
        return false;
    if (skip(reader, '-')) {
        if (!read_number(reader, 1, &day))
            return false;
    } else if (at_digit(reader)) {
        (void)read_number(reader, 1, &day);
    }
    return set_week(reader, year, week.value, day.value);
}

/* behind four digits and a separator: "2020-02-29", "2020/2/29", "2020-060", "2020-02" */
static bool read_after_year(struct reader *reader, int64_t year, char separator)
{
    struct number month, day;

    if (separator == '-' && skip(reader, 'w'))
        return read_week(reader, year);
    if (!read_number(reader, 3, &month))
        return false;
    if (month.digits == 3)
        return separator == '-' && set_day_of_year(reader, year, month.value);
    if (!skip(reader, separator))
        return separator == '-' && set_date(reader, year, month.value, 1);
    return read_number(reader, 2, &day) && set_date(reader, year, month.value, day.value);
}

/* "2/29/2020", "29-2-2020", "29.2.2020" */
static bool read_year_last(struct reader *reader, int64_t first, char separator)
{
    struct number second, year;

    if (!read_number(reader, 2, &second) || !skip(reader, separator) ||
        !read_number(reader, 4, &year) || year.digits != 4)
        return false;
    if (separator == '/')
        return set_date(reader, year.value, first, second.value);
    return set_date(reader, year.value, second.value, first);
}

static bool read_compact_date(struct reader *reader, const struct number *number)
{
    if (number->digits == 8)
        return set_date(reader, number->value / 10000, number->value / 100 % 100,
                        number->value % 100);
    return number->digits == 7 &&
           set_day_of_year(reader, number->value / 1000, number->value % 1000);
}

static bool read_number_date(struct reader *reader)
{
    struct number first;

    if (!read_number(reader, 8, &first))
        return false;
    if (first.digits > 4)
        return read_compact_date(reader, &first);
    if (first.digits == 4) {
        if (skip(reader, '-'))
            return read_after_year(reader, first.value, '-');
        if (skip(reader, '/'))
            return read_after_year(reader, first.value, '/');
        return skip(reader, 'w') && read_week(reader, first.value);
    }
    if (first.digits > 2)
        return false;
    if (skip(reader, '/'))
        return read_year_last(reader, first.value, '/');
    if (skip(reader, '.'))
        return read_year_last(reader, first.value, '.');
    if (reader->end - reader->at > 1 && *reader->at == '-' && is_digit(reader->at[1])) {
        reader->at++;
        return read_year_last(reader, first.value, '-');
    }
    return read_day_month(reader, first.value);
}

/* -- times ------------------------------------------------------------------------------------ */

/* tenths, hundredths, ... of a second; what is beyond milliseconds is cut */
static int64_t read_fraction(struct reader *reader)
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

static bool set_time(struct reader *reader, int64_t hour, int64_t minute, int64_t second,
                     int64_t millisecond)
{
    if (hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute || second)))
        return false;
    reader->time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
    reader->time = true;
    return true;
}

/* am, pm, a.m. and p.m. behind an hour from 1 to 12 */
static bool read_half(struct reader *reader, int64_t *hour)
{
    struct reader probe = *reader;
    bool evening;

    skip_blanks(&probe);
    evening = skip(&probe, 'p');
    if (!evening && !skip(&probe, 'a'))
        return false;
    (void)skip(&probe, '.');
    if (!skip(&probe, 'm') || (probe.at < probe.end && is_letter(*probe.at)))
        return false;
    (void)skip(&probe, '.');
    if (*hour < 1 || *hour > 12)
        return false;
    *hour = *hour % 12 + (evening ? 12 : 0);
    *reader = probe;
    return true;
}

/* "12:34", "12:34:56.789", "1:30 PM", "1 PM" */
static bool read_clock(struct reader *reader)
{
    struct number hour, minute = {0}, second = {0};
    int64_t milliseconds = 0;
    bool colon;

    if (!read_number(reader, 2, &hour))
        return false;
    colon = skip(reader, ':');
    if (colon && (!read_number(reader, 2, &minute) || minute.digits != 2))
        return false;
    if (colon && skip(reader, ':')) {
        if (!read_number(reader, 2, &second) || second.digits != 2)
            return false;
        if (skip(reader, '.') || skip(reader, ','))
            milliseconds = read_fraction(reader);
    }
    if (!read_half(reader, &hour.value) && !colon)
        return false;
    return set_time(reader, hour.value, minute.value, second.value, milliseconds);
}

/* behind a T: "123456", "1234", or as above */
static bool read_time(struct reader *reader)
{
    struct reader probe = *reader;
    struct number number;

    if (read_number(&probe, 6, &number) && number.digits >= 4 &&
        (probe.at == probe.end || *probe.at != ':')) {
        int64_t milliseconds = 0;
        int64_t value = number.digits == 6 ? number.value : number.value * 100;
        if (number.digits == 5)
            return false;
        if (skip(&probe, '.'))
            milliseconds = read_fraction(&probe);
        *reader = probe;
        return set_time(reader, value / 10000, value / 100 % 100, value % 100, milliseconds);
    }
    return read_clock(reader);
}

static bool looks_like_clock(const struct reader *reader)
{
    struct reader probe = *reader;
    struct number hour;

    if (!read_number(&probe, 2, &hour) || at_digit(&probe))
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

static bool read_abbreviation(struct reader *reader)
{
    size_t length = word_length(reader);

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
    return is_letter(c) || is_digit(c) || c == '_' || c == '/' || c == '+' || c == '-' || c == ':';
}

static bool read_zone(struct reader *reader)
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

static bool skip_weekday(struct reader *reader)
{
    static const char *const names[] = {"monday", "tuesday",  "wednesday", "thursday",
                                        "friday", "saturday", "sunday"};
    size_t length = word_length(reader);

    if (find_word(reader->at, length, names, 7) < 0)
        return false;
    reader->at += length;
    return true;
}

static bool read_piece(struct reader *reader)
{
    struct reader probe = *reader;

    if (is_digit(*reader->at)) {
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
    if (reader->date && !reader->time && skip(reader, 't'))
        return read_time(reader);
    return reader->date && read_zone(reader);
}

static bool read_text(struct reader *reader)
{
    skip_blanks(reader);
    while (reader->at < reader->end) {
        if (!read_piece(reader))
            return false;
        skip_blanks(reader);
    }
    return reader->date;
}

static truce_status finish(struct reader *reader, const struct date_zone *zone, int64_t *date_ms,
                           bson_error_t *error)
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
    struct reader reader = {.at = text, .end = text + length};

    if (!read_text(&reader))
        return truce__refuse(CODE_CONVERSION_FAILURE, error, "\"%.*s\" is no complete date",
                             (int)BSON_MIN(length, 100), text);
    return finish(&reader, zone, date_ms, error);
}

/* -- by a format ------------------------------------------------------------------------------ */

enum {
    YEAR,
    MONTH,
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    MILLISECOND,
    ISO_YEAR,
    ISO_WEEK,
    ISO_DAY,
    YEAR_DAY,
    FIELDS
};

struct fields_read {
    int64_t values[FIELDS];
    bool given[FIELDS];
};

static bool read_field(struct reader *reader, struct fields_read *read, int field, int digits)
{
    struct number number;

    if (!read_number(reader, digits, &number) || (digits == 4 && number.digits != 4))
        return false;
    read->values[field] = number.value;
    read->given[field] = true;
    if (field == MILLISECOND)
        for (int i = number.digits; i < 3; i++)
            read->values[field] *= 10;
    return true;
}

/* minutes from UTC: "+120" */
static bool read_minutes(struct reader *reader)
{
    bool negative = skip(reader, '-');
    struct number minutes;

    if (!negative)
        (void)skip(reader, '+');
    if (reader->zoned || !read_number(reader, 4, &minutes))
        return false;
    reader->zone.offset_s = (int32_t)minutes.value * (negative ? -60 : 60);
    reader->zoned = true;
    return true;
}

static bool read_letter(struct reader *reader, struct fields_read *read, char letter)
{
    static const struct {
        char letter;
        int field, digits;
    } numbers[] = {{'Y', YEAR, 4},     {'m', MONTH, 2},   {'d', DAY, 2},         {'H', HOUR, 2},
                   {'M', MINUTE, 2},   {'S', SECOND, 2},  {'L', MILLISECOND, 3}, {'G', ISO_YEAR, 4},
                   {'V', ISO_WEEK, 2}, {'u', ISO_DAY, 1}, {'j', YEAR_DAY, 3}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].letter == letter)
            return read_field(reader, read, numbers[i].field, numbers[i].digits);
    }
    if (letter == 'b' || letter == 'B') {
        read->values[MONTH] = read_month(reader);
        read->given[MONTH] = true;
        return read->values[MONTH] > 0;
    }
    if (letter == 'z')
        return reader->at < reader->end && read_zone(reader);
    if (letter == 'Z')
        return read_minutes(reader);
    truce_assert(letter == '%');
    return skip(reader, '%');
}

static bool read_format(struct reader *reader, struct fields_read *read, const char *format,
                        size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (format[i] == '%') {
            if (!read_letter(reader, read, format[++i]))
                return false;
        } else if (reader->at == reader->end || *reader->at++ != format[i]) {
            return false;
        }
    }
    return reader->at == reader->end;
}

static bool use_fields(struct reader *reader, const struct fields_read *read)
{
    const int64_t *values = read->values;

    if (read->given[ISO_YEAR] || read->given[ISO_WEEK] || read->given[ISO_DAY]) {
        if (!read->given[ISO_YEAR] || read->given[YEAR] || read->given[MONTH] || read->given[DAY])
            return false;
        if (!set_week(reader, values[ISO_YEAR], read->given[ISO_WEEK] ? values[ISO_WEEK] : 1,
                      read->given[ISO_DAY] ? values[ISO_DAY] : 1))
            return false;
    } else if (read->given[YEAR_DAY]) {
        if (!read->given[YEAR] || !set_day_of_year(reader, values[YEAR], values[YEAR_DAY]))
            return false;
    } else if (!read->given[YEAR] || !read->given[MONTH] || !read->given[DAY] ||
               !set_date(reader, values[YEAR], values[MONTH], values[DAY])) {
        return false;
    }
    return set_time(reader, values[HOUR], values[MINUTE], values[SECOND], values[MILLISECOND]);
}

truce_status truce__date_parse_format(const char *text, size_t length, const char *format,
                                      size_t format_length, const struct date_zone *zone,
                                      int64_t *date_ms, bson_error_t *error)
{
    struct reader reader = {.at = text, .end = text + length};
    struct fields_read read = {{0}, {0}};
    truce_status status = truce__date_format_check(format, format_length, true, error);

    if (status)
        return status;
    if (!read_format(&reader, &read, format, format_length) || !use_fields(&reader, &read))
        return truce__refuse(
            CODE_CONVERSION_FAILURE, error, "\"%.*s\" is no complete date in the format \"%.*s\"",
            (int)BSON_MIN(length, 100), text, (int)BSON_MIN(format_length, 100), format);
    return finish(&reader, zone, date_ms, error);
}
