/* Dates: the calendar, time zones, and text with or without a format. */
#include "bson/date.h"

#include <stdio.h>
#include <strings.h>

#include "base/assert.h"

struct date_reader {
    const char *at, *end;
    /* The parts that have been read. */
    bool date, time, zoned;
    /* The date, in days since 1970. */
    int64_t days;
    /* The time of day, in ms. */
    int64_t time_ms;
    struct date_zone zone;
};

struct date_number {
    int64_t value;
    int digits;
};

/* ---- by a format, from text ------------------------------------------------------------------ */

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

static bool date_skip(struct date_reader *reader, char c);
static bool date_read_number(struct date_reader *reader, int most, struct date_number *number);
static bool date_set_date(struct date_reader *reader, int64_t year, int64_t month, int64_t day);
static bool date_set_week(struct date_reader *reader, int64_t year, int64_t week, int64_t day);
static bool date_set_day_of_year(struct date_reader *reader, int64_t year, int64_t day);
static int date_read_month(struct date_reader *reader);
static bool date_set_time(struct date_reader *reader, int64_t hour, int64_t minute, int64_t second,
                          int64_t millisecond);
static bool date_read_zone(struct date_reader *reader);
static truce_status date_finish(struct date_reader *reader, const struct date_zone *zone,
                                int64_t *date_ms, bson_error_t *error);

static bool format_read_field(struct date_reader *reader, struct fields_read *read, int field,
                              int digits)
{
    struct date_number number;

    if (!date_read_number(reader, digits, &number) || (digits == 4 && number.digits != 4))
        return false;
    read->values[field] = number.value;
    read->given[field] = true;
    if (field == MILLISECOND)
        for (int i = number.digits; i < 3; i++)
            read->values[field] *= 10;
    return true;
}

/* Reads the minutes from UTC: "+120". */
static bool read_minutes(struct date_reader *reader)
{
    bool negative = date_skip(reader, '-');
    struct date_number minutes;

    if (!negative)
        (void)date_skip(reader, '+');
    if (reader->zoned || !date_read_number(reader, 4, &minutes))
        return false;
    reader->zone.offset_s = (int32_t)minutes.value * (negative ? -60 : 60);
    reader->zoned = true;
    return true;
}

/* Reads the part of a date that the letter after a % names. The format has been checked. */
static bool read_letter(struct date_reader *reader, struct fields_read *read, char letter)
{
    static const struct {
        char letter;
        int field, digits;
    } numbers[] = {{'Y', YEAR, 4},     {'m', MONTH, 2},   {'d', DAY, 2},         {'H', HOUR, 2},
                   {'M', MINUTE, 2},   {'S', SECOND, 2},  {'L', MILLISECOND, 3}, {'G', ISO_YEAR, 4},
                   {'V', ISO_WEEK, 2}, {'u', ISO_DAY, 1}, {'j', YEAR_DAY, 3}};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (numbers[i].letter == letter)
            return format_read_field(reader, read, numbers[i].field, numbers[i].digits);
    }
    if (letter == 'b' || letter == 'B') {
        read->values[MONTH] = date_read_month(reader);
        read->given[MONTH] = true;
        return read->values[MONTH] > 0;
    }
    if (letter == 'z')
        return reader->at < reader->end && date_read_zone(reader);
    if (letter == 'Z')
        return read_minutes(reader);
    truce_assert(letter == '%');
    return date_skip(reader, '%');
}

static bool read_format(struct date_reader *reader, struct fields_read *read, const char *format,
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

/* Sets the date and the time from the fields that were read. Returns false if they are incomplete
 * or do not exist in the calendar. */
static bool use_fields(struct date_reader *reader, const struct fields_read *read)
{
    const int64_t *values = read->values;

    if (read->given[ISO_YEAR] || read->given[ISO_WEEK] || read->given[ISO_DAY]) {
        if (!read->given[ISO_YEAR] || read->given[YEAR] || read->given[MONTH] || read->given[DAY])
            return false;
        if (!date_set_week(reader, values[ISO_YEAR], read->given[ISO_WEEK] ? values[ISO_WEEK] : 1,
                           read->given[ISO_DAY] ? values[ISO_DAY] : 1))
            return false;
    } else if (read->given[YEAR_DAY]) {
        if (!read->given[YEAR] || !date_set_day_of_year(reader, values[YEAR], values[YEAR_DAY]))
            return false;
    } else if (!read->given[YEAR] || !read->given[MONTH] || !read->given[DAY] ||
               !date_set_date(reader, values[YEAR], values[MONTH], values[DAY])) {
        return false;
    }
    return date_set_time(reader, values[HOUR], values[MINUTE], values[SECOND], values[MILLISECOND]);
}

truce_status truce__date_parse_format(const char *text, size_t length, const char *format,
                                      size_t format_length, const struct date_zone *zone,
                                      int64_t *date_ms, bson_error_t *error)
{
    struct date_reader reader = {.at = text, .end = text + length};
    struct fields_read read = {{0}, {0}};
    truce_status status = truce__date_format_check(format, format_length, true, error);

    if (status)
        return status;
    if (!read_format(&reader, &read, format, format_length) || !use_fields(&reader, &read))
        return truce__refuse(CODE_CONVERSION_FAILURE, error,
                             "\"%.*s\" is not a complete date in the format \"%.*s\"",
                             (int)BSON_MIN(length, 100), text, (int)BSON_MIN(format_length, 100),
                             format);
    return date_finish(&reader, zone, date_ms, error);
}

/* ---- by a format, to text -------------------------------------------------------------------- */

/* Writes dates by a format, as $dateToString does. */

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
            return truce__refuse(18535, error,
                                 "the date format ends with a single '%%': write %%%% for a "
                                 "percent sign");
        if (format[i] == '\0' || !strchr(letters, format[i]))
            return truce__refuse(18536, error, "unknown letter '%%%c' in a date format", format[i]);
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

/* Writes the part of a date that a letter after a % names, except the zone. Returns the number of
 * bytes. */
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

/* ---- free text ------------------------------------------------------------------------------- */

/*
 * Reads dates from free text, as MongoDB does.
 *
 * The text is a sequence of pieces, each at most once: a date, a time of day, and a zone. Names of
 * weekdays, commas, and blanks are skipped. The date must be complete and exist in the calendar. If
 * there is no time of day, it is midnight.
 */

#define DAY_MS INT64_C(86400000)

static bool date_read_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char date_to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool date_read_is_letter(char c)
{
    return date_to_lower(c) >= 'a' && date_to_lower(c) <= 'z';
}

static bool date_skip(struct date_reader *reader, char c)
{
    if (reader->at == reader->end || date_to_lower(*reader->at) != c)
        return false;
    reader->at++;
    return true;
}

/* Reads up to `most` digits. */
static bool date_read_number(struct date_reader *reader, int most, struct date_number *number)
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

static bool date_set_date(struct date_reader *reader, int64_t year, int64_t month, int64_t day)
{
    if (month < 1 || month > 12 || day < 1 || day > truce__date_month_days(year, month))
        return false;
    reader->days = truce__date_days(year, month, day);
    reader->date = true;
    return true;
}

static bool date_set_week(struct date_reader *reader, int64_t year, int64_t week, int64_t day)
{
    if (week < 1 || week > 53 || day < 1 || day > 7)
        return false;
    reader->days = truce__date_iso_days(year) + 7 * (week - 1) + day - 1;
    reader->date = true;
    return true;
}

static bool date_set_day_of_year(struct date_reader *reader, int64_t year, int64_t day)
{
    if (day < 1 || day > 365 + (truce__date_month_days(year, 2) == 29))
        return false;
    reader->days = truce__date_days(year, 1, 1) + day - 1;
    reader->date = true;
    return true;
}

/* Returns whether the `count` letters, at least three, begin the word: jan, sept, january. */
static bool date_read_is_word(const char *text, size_t count, const char *word)
{
    if (count < 3 || count > strlen(word))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (date_to_lower(text[i]) != word[i])
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

/* Returns 1 to 12, or 0 if the text does not continue with the name of a month. */
static int date_read_month(struct date_reader *reader)
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

/* Skips the "th" of "4th". */
static void skip_ordinal(struct date_reader *reader)
{
    static const char *const endings[] = {"st", "nd", "rd", "th"};

    if (date_read_word_length(reader) != 2)
        return;
    for (int i = 0; i < 4; i++) {
        if (date_to_lower(reader->at[0]) == endings[i][0] &&
            date_to_lower(reader->at[1]) == endings[i][1]) {
            reader->at += 2;
            return;
        }
    }
}

/* Reads "April 5, 2020" or "April 5th 2020". */
static bool read_named_date(struct date_reader *reader)
{
    int month = date_read_month(reader);
    struct date_number day, year;

    if (!month)
        return false;
    (void)date_skip(reader, '.'); /* An abbreviated month may end in a period. */
    date_read_skip_blanks(reader);
    (void)date_skip(reader, '-'); /* The form "Apr-5-2020". */
    if (!date_read_number(reader, 4, &day))
        return false;
    if (day.digits == 4)
        return date_set_date(reader, day.value, month, 1);
    skip_ordinal(reader);
    date_read_skip_blanks(reader);
    (void)date_skip(reader, '-');
    return date_read_number(reader, 4, &year) && year.digits == 4 &&
           date_set_date(reader, year.value, month, day.value);
}

/* Continues after the day of "5 April 2020", "5-Apr-2020", or "5th April, 2020". */
static bool read_day_month(struct date_reader *reader, int64_t day)
{
    struct date_number year;
    int month;

    skip_ordinal(reader);
    date_read_skip_blanks(reader);
    (void)date_skip(reader, '-');
    month = date_read_month(reader);
    if (!month)
        return false;
    (void)date_skip(reader, '.');
    date_read_skip_blanks(reader);
    (void)date_skip(reader, '-');
    return date_read_number(reader, 4, &year) && year.digits == 4 &&
           date_set_date(reader, year.value, month, day);
}

/* Continues after the W of "2020-W09-6" or "2020W096". */
static bool read_week(struct date_reader *reader, int64_t year)
{
    struct date_number week, day = {1, 1};

    if (!date_read_number(reader, 2, &week) || week.digits != 2)
        return false;
    if (date_skip(reader, '-')) {
        if (!date_read_number(reader, 1, &day))
            return false;
    } else if (at_digit(reader)) {
        (void)date_read_number(reader, 1, &day);
    }
    return date_set_week(reader, year, week.value, day.value);
}

/* Continues after the first separator of "2020-02-29", "2020/2/29", "2020-060", or "2020-02". */
static bool read_after_year(struct date_reader *reader, int64_t year, char separator)
{
    struct date_number month, day;

    if (separator == '-' && date_skip(reader, 'w'))
        return read_week(reader, year);
    if (!date_read_number(reader, 3, &month))
        return false;
    if (month.digits == 3)
        return separator == '-' && date_set_day_of_year(reader, year, month.value);
    if (!date_skip(reader, separator))
        return separator == '-' && date_set_date(reader, year, month.value, 1);
    return date_read_number(reader, 2, &day) && date_set_date(reader, year, month.value, day.value);
}

/* Reads the rest of "2/29/2020", "29-2-2020", or "29.2.2020". */
static bool read_year_last(struct date_reader *reader, int64_t first, char separator)
{
    struct date_number second, year;

    if (!date_read_number(reader, 2, &second) || !date_skip(reader, separator) ||
        !date_read_number(reader, 4, &year) || year.digits != 4)
        return false;
    if (separator == '/')
        return date_set_date(reader, year.value, first, second.value);
    return date_set_date(reader, year.value, second.value, first);
}

static bool read_compact_date(struct date_reader *reader, const struct date_number *number)
{
    if (number->digits == 8)
        return date_set_date(reader, number->value / 10000, number->value / 100 % 100,
                             number->value % 100);
    return number->digits == 7 &&
           date_set_day_of_year(reader, number->value / 1000, number->value % 1000);
}

/* Reads a date that begins with a number, which is a year, a month, or a day by its digits and by
 * the separator. */
static bool read_number_date(struct date_reader *reader)
{
    struct date_number first;

    if (!date_read_number(reader, 8, &first))
        return false;
    if (first.digits > 4)
        return read_compact_date(reader, &first);
    if (first.digits == 4) {
        if (date_skip(reader, '-'))
            return read_after_year(reader, first.value, '-');
        if (date_skip(reader, '/'))
            return read_after_year(reader, first.value, '/');
        return date_skip(reader, 'w') && read_week(reader, first.value);
    }
    if (first.digits > 2)
        return false;
    if (date_skip(reader, '/'))
        return read_year_last(reader, first.value, '/');
    if (date_skip(reader, '.'))
        return read_year_last(reader, first.value, '.');
    if (reader->end - reader->at > 1 && *reader->at == '-' && date_read_is_digit(reader->at[1])) {
        reader->at++;
        return read_year_last(reader, first.value, '-');
    }
    return read_day_month(reader, first.value);
}

/* -- times ------------------------------------------------------------------------------------ */

/* Reads the decimals of a second. Digits beyond milliseconds are cut off. */
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

static bool date_set_time(struct date_reader *reader, int64_t hour, int64_t minute, int64_t second,
                          int64_t millisecond)
{
    if (hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute || second)))
        return false;
    reader->time_ms = ((hour * 60 + minute) * 60 + second) * 1000 + millisecond;
    reader->time = true;
    return true;
}

/* Reads am, pm, a.m., or p.m. after an hour from 1 to 12. */
static bool read_half(struct date_reader *reader, int64_t *hour)
{
    struct date_reader probe = *reader;
    bool evening;

    date_read_skip_blanks(&probe);
    evening = date_skip(&probe, 'p');
    if (!evening && !date_skip(&probe, 'a'))
        return false;
    (void)date_skip(&probe, '.');
    if (!date_skip(&probe, 'm') || (probe.at < probe.end && date_read_is_letter(*probe.at)))
        return false;
    (void)date_skip(&probe, '.');
    if (*hour < 1 || *hour > 12)
        return false;
    *hour = *hour % 12 + (evening ? 12 : 0);
    *reader = probe;
    return true;
}

/* Reads "12:34", "12:34:56.789", "1:30 PM", or "1 PM". */
static bool read_clock(struct date_reader *reader)
{
    struct date_number hour, minute = {0}, second = {0};
    int64_t milliseconds = 0;
    bool colon;

    if (!date_read_number(reader, 2, &hour))
        return false;
    colon = date_skip(reader, ':');
    if (colon && (!date_read_number(reader, 2, &minute) || minute.digits != 2))
        return false;
    if (colon && date_skip(reader, ':')) {
        if (!date_read_number(reader, 2, &second) || second.digits != 2)
            return false;
        if (date_skip(reader, '.') || date_skip(reader, ','))
            milliseconds = read_fraction(reader);
    }
    if (!read_half(reader, &hour.value) && !colon)
        return false;
    return date_set_time(reader, hour.value, minute.value, second.value, milliseconds);
}

/* Reads the time after a T: "123456", "1234", or a form of read_clock. */
static bool date_read_time(struct date_reader *reader)
{
    struct date_reader probe = *reader;
    struct date_number number;

    if (date_read_number(&probe, 6, &number) && number.digits >= 4 &&
        (probe.at == probe.end || *probe.at != ':')) {
        int64_t milliseconds = 0;
        int64_t value = number.digits == 6 ? number.value : number.value * 100;
        if (number.digits == 5)
            return false;
        if (date_skip(&probe, '.'))
            milliseconds = read_fraction(&probe);
        *reader = probe;
        return date_set_time(reader, value / 10000, value / 100 % 100, value % 100, milliseconds);
    }
    return read_clock(reader);
}

static bool looks_like_clock(const struct date_reader *reader)
{
    struct date_reader probe = *reader;
    struct date_number hour;

    if (!date_read_number(&probe, 2, &hour) || at_digit(&probe))
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

/* Reads an offset such as +02:00, a name with a slash such as Europe/Paris, or an abbreviation such
 * as EST. */
static bool date_read_zone(struct date_reader *reader)
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

/* Reads the next piece: a date, a time of day, a zone, or the name of a weekday. */
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
    if (reader->date && !reader->time && date_skip(reader, 't'))
        return date_read_time(reader);
    return reader->date && date_read_zone(reader);
}

static bool date_read_text(struct date_reader *reader)
{
    date_read_skip_blanks(reader);
    while (reader->at < reader->end) {
        if (!read_piece(reader))
            return false;
        date_read_skip_blanks(reader);
    }
    return reader->date;
}

static truce_status date_finish(struct date_reader *reader, const struct date_zone *zone,
                                int64_t *date_ms, bson_error_t *error)
{
    if (reader->zoned && zone)
        return truce__refuse(CODE_CONVERSION_FAILURE, error,
                             "\"timezone\" is not allowed because the date string has a time zone");
    if (!reader->zoned && zone)
        reader->zone = *zone;
    *date_ms = truce__date_from_local(reader->days * DAY_MS + reader->time_ms, &reader->zone);
    return TRUCE_OK;
}

truce_status truce__date_parse(const char *text, size_t length, const struct date_zone *zone,
                               int64_t *date_ms, bson_error_t *error)
{
    struct date_reader reader = {.at = text, .end = text + length};

    if (!date_read_text(&reader))
        return truce__refuse(CODE_CONVERSION_FAILURE, error, "\"%.*s\" is not a complete date",
                             (int)BSON_MIN(length, 100), text);
    return date_finish(&reader, zone, date_ms, error);
}

truce_status truce__date_parse_typed(const char *text, size_t length, int64_t *date_ms,
                                     bson_error_t *error)
{
    static const char form[] = "0000-00-00";
    size_t at = 0;

    while (at < length && form[at] &&
           (form[at] == '-' ? text[at] == '-' : text[at] >= '0' && text[at] <= '9'))
        at++;
    if (form[at] || (length > at && text[at] != 'T' && text[at] != ' '))
        return truce__refuse(CODE_CONVERSION_FAILURE, error,
                             "\"%.*s\" does not begin with a date such as 2024-01-31",
                             (int)BSON_MIN(length, 100), text);
    return truce__date_parse(text, length, NULL, date_ms, error);
}

/* ---- the calendar ---------------------------------------------------------------------------- */

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

/* Reads hh, hhmm, or hh:mm after the sign. */
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
            return truce__refuse(40485, error, "\"%.*s\" is not an offset from UTC such as +02:00",
                                 (int)BSON_MIN(length, TIME_ZONE_NAME_MAX), text);
        if (*text == '-')
            zone->offset_s = -zone->offset_s;
        return TRUCE_OK;
    }
    status = truce__time_zone_find(text, length, &zone->named, error);
    if (status == TRUCE_NOT_FOUND)
        return truce__refuse(40485, error, "unknown time zone \"%.*s\"",
                             (int)BSON_MIN(length, TIME_ZONE_NAME_MAX), text);
    return status;
}

int32_t truce__date_zone_offset(const struct date_zone *zone, int64_t date_ms)
{
    if (zone->named)
        return truce__time_zone_offset(zone->named, date_floor_divide(date_ms, 1000));
    return zone->offset_s;
}

/* Adds, but stays within the range of int64_t. */
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
    int64_t months = month - 3; /* Counted from March, a year ends with 29 February. */
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

static void date_fill_calendar(int64_t days, struct date_parts *parts)
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
    int64_t fourth = truce__date_days(iso_year, 1, 4); /* 4 January is always in week 1. */

    return fourth - floor_rest(fourth + 3, 7); /* 1970-01-01 was a Thursday. */
}

static void date_fill_weeks(int64_t days, struct date_parts *parts)
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

    date_fill_calendar(days, parts);
    parts->day_of_year = (int32_t)(days - truce__date_days(parts->year, 1, 1) + 1);
    date_fill_weeks(days, parts);
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
