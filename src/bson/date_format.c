#include "base/assert.h"
#include "bson/date_reader.h"

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

static bool format_read_field(struct date_reader *reader, struct fields_read *read, int field,
                              int digits)
{
    struct date_number number;

    if (!truce__date_read_number(reader, digits, &number) || (digits == 4 && number.digits != 4))
        return false;
    read->values[field] = number.value;
    read->given[field] = true;
    if (field == MILLISECOND)
        for (int i = number.digits; i < 3; i++)
            read->values[field] *= 10;
    return true;
}

/* minutes from UTC: "+120" */
static bool read_minutes(struct date_reader *reader)
{
    bool negative = truce__date_skip(reader, '-');
    struct date_number minutes;

    if (!negative)
        (void)truce__date_skip(reader, '+');
    if (reader->zoned || !truce__date_read_number(reader, 4, &minutes))
        return false;
    reader->zone.offset_s = (int32_t)minutes.value * (negative ? -60 : 60);
    reader->zoned = true;
    return true;
}

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
        read->values[MONTH] = truce__date_read_month(reader);
        read->given[MONTH] = true;
        return read->values[MONTH] > 0;
    }
    if (letter == 'z')
        return reader->at < reader->end && truce__date_read_zone(reader);
    if (letter == 'Z')
        return read_minutes(reader);
    truce_assert(letter == '%');
    return truce__date_skip(reader, '%');
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

static bool use_fields(struct date_reader *reader, const struct fields_read *read)
{
    const int64_t *values = read->values;

    if (read->given[ISO_YEAR] || read->given[ISO_WEEK] || read->given[ISO_DAY]) {
        if (!read->given[ISO_YEAR] || read->given[YEAR] || read->given[MONTH] || read->given[DAY])
            return false;
        if (!truce__date_set_week(reader, values[ISO_YEAR],
                                  read->given[ISO_WEEK] ? values[ISO_WEEK] : 1,
                                  read->given[ISO_DAY] ? values[ISO_DAY] : 1))
            return false;
    } else if (read->given[YEAR_DAY]) {
        if (!read->given[YEAR] ||
            !truce__date_set_day_of_year(reader, values[YEAR], values[YEAR_DAY]))
            return false;
    } else if (!read->given[YEAR] || !read->given[MONTH] || !read->given[DAY] ||
               !truce__date_set_date(reader, values[YEAR], values[MONTH], values[DAY])) {
        return false;
    }
    return truce__date_set_time(reader, values[HOUR], values[MINUTE], values[SECOND],
                                values[MILLISECOND]);
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
        return truce__refuse(
            CODE_CONVERSION_FAILURE, error, "\"%.*s\" is no complete date in the format \"%.*s\"",
            (int)BSON_MIN(length, 100), text, (int)BSON_MIN(format_length, 100), format);
    return truce__date_finish(&reader, zone, date_ms, error);
}
