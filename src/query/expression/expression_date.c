/* Dates: their parts ($year and others, $dateToParts, $dateFromParts), arithmetic ($dateAdd,
 * $dateSubtract, $dateDiff, $dateTrunc), and strings ($dateToString, $dateFromString). */
#include <strings.h>

#include "base/assert.h"
#include "bson/date.h"
#include "bson/number.h"
#include "bson/refuse_value.h"
#include "query/expression/expression_tree.h"

#define DAY_MS INT64_C(86400000)

/* Returns the seconds since 1970 of an ObjectId: its first four bytes, signed, big-endian. */
static int32_t oid_seconds(struct value oid)
{
    return (int32_t)((uint32_t)oid.data[0] << 24 | (uint32_t)oid.data[1] << 16 |
                     (uint32_t)oid.data[2] << 8 | oid.data[3]);
}

bool truce__value_to_date(struct value value, int64_t *date_ms)
{
    switch (value.type) {
    case BSON_TYPE_DATE_TIME:
        *date_ms = truce__value_int64(value);
        return true;
    case BSON_TYPE_TIMESTAMP:
        *date_ms = (int64_t)((uint64_t)truce__value_int64(value) >> 32) * 1000;
        return true;
    case BSON_TYPE_OID:
        *date_ms = (int64_t)oid_seconds(value) * 1000;
        return true;
    default:
        return false;
    }
}

/* Reads an evaluated "timezone". *given is false for null and missing; a value that is not a string
 * is refused with `code`. */
static truce_status evaluation_zone(const struct expression_node *node, struct evaluation *run,
                                    struct value value, uint32_t code, struct date_zone *zone,
                                    bool *given)
{
    uint32_t length;
    const char *text;

    *zone = (struct date_zone){0};
    *given = !truce__value_is_nullish(value);
    if (!*given)
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(code, run->error, "the timezone of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    text = truce__value_text(value, &length);
    return truce__date_zone_parse(text, length, zone, run->error);
}

/* -- one part --------------------------------------------------------------------------------- */

typedef int64_t part_function(const struct date_parts *parts);

struct part {
    part_function *get;
    /* The result is an int64. Otherwise it is an int32. */
    bool is_long;
};

enum { PART_DATE, PART_ZONE };

/* Applies an operator that takes one part of a date, such as $year. */
static truce_status apply_part(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    const struct part *part = node->extra;
    struct date_zone zone = {0};
    struct date_parts parts;
    bool given = true;
    int64_t date, number;
    truce_status status = TRUCE_OK;

    if (truce__value_is_nullish(operands[PART_DATE]))
        return truce__evaluation_null(result);
    if (!truce__value_to_date(operands[PART_DATE], &date))
        return truce__refuse(16006, run->error, "%s takes a date, not %s",
                             truce__expression_name(node),
                             truce__type_name(operands[PART_DATE].type));
    if (node->count > PART_ZONE && node->operands[PART_ZONE])
        status = evaluation_zone(node, run, operands[PART_ZONE], 40533, &zone, &given);
    if (status)
        return status;
    if (!given)
        return truce__evaluation_null(result);
    truce__date_split(date, &zone, &parts);
    number = part->get(&parts);
    *result = part->is_long ? truce__value_from_int64(run->arena, number)
                            : truce__value_from_int32(run->arena, (int32_t)number);
    return TRUCE_OK;
}

/* Compiles the argument: a date, [date], or {date, timezone}. */
static truce_status compile_part(struct expression_compiler *compiler,
                                 const struct expression_operator *operator, struct value argument,
                                 struct expression_node **node)
{
    struct fields fields;
    truce_status status;

    if (argument.type == BSON_TYPE_DOCUMENT) {
        fields = truce__fields(argument);
        if (!truce__fields_next(&fields) || fields.key[0] != '$') {
            status = truce__expression_compile_named(compiler, operator, argument, node);
            return status ? status : truce__expression_fold(compiler, node);
        }
    }
    if (argument.type == BSON_TYPE_ARRAY) {
        if (truce__array_count(argument) != 1)
            return truce__refuse(40536, compiler->error,
                                 "%s takes one date, not %u", operator->name,
                                 truce__array_count(argument));
        argument = truce__value_field(argument, "0", 1);
    }
    *node = truce__expression_node(compiler, operator, 1);
    status = truce__expression_compile(compiler, argument, &(*node)->operands[PART_DATE]);
    return status ? status : truce__expression_fold(compiler, node);
}

#define PART(name, expression)                                                                     \
    static int64_t name(const struct date_parts *parts)                                            \
    {                                                                                              \
        return expression;                                                                         \
    }

PART(get_year, parts->year)
PART(get_month, parts->month)
PART(get_day, parts->day)
PART(get_day_of_week, parts->day_of_week + 1)
PART(get_day_of_year, parts->day_of_year)
PART(get_hour, parts->hour)
PART(get_minute, parts->minute)
PART(get_second, parts->second)
PART(get_millisecond, parts->millisecond)
PART(get_week, parts->week)
PART(get_iso_day, parts->day_of_week ? parts->day_of_week : 7)
PART(get_iso_week, parts->iso_week)
PART(get_iso_year, parts->iso_year)

static const struct part part_year = {get_year}, part_month = {get_month}, part_day = {get_day},
                         part_day_of_week = {get_day_of_week}, part_day_of_year = {get_day_of_year},
                         part_hour = {get_hour}, part_minute = {get_minute},
                         part_second = {get_second}, part_millisecond = {get_millisecond},
                         part_week = {get_week}, part_iso_day = {get_iso_day},
                         part_iso_week = {get_iso_week}, part_iso_year = {get_iso_year, true};

static const struct expression_arguments part_arguments = {
    0, 40535, {{"date", 40539}, {"timezone", 0}}};

/* -- $dateToParts ----------------------------------------------------------------------------- */

enum { TO_DATE, TO_ZONE, TO_ISO };

static void append_int(struct builder *builder, const char *key, int64_t number)
{
    int32_t value = (int32_t)number;

    truce__builder_append(builder, key, strlen(key),
                          (struct value){(const uint8_t *)&value, 4, BSON_TYPE_INT32});
}

/* Makes the document of $dateToParts. */
static truce_status write_parts(struct evaluation *run, const struct date_parts *parts, bool iso,
                                struct value *result)
{
    struct builder builder;

    truce__evaluation_build(run, &builder, BSON_TYPE_DOCUMENT);
    if (iso) {
        append_int(&builder, "isoWeekYear", parts->iso_year);
        append_int(&builder, "isoWeek", parts->iso_week);
        append_int(&builder, "isoDayOfWeek", get_iso_day(parts));
    } else {
        append_int(&builder, "year", parts->year);
        append_int(&builder, "month", parts->month);
        append_int(&builder, "day", parts->day);
    }
    append_int(&builder, "hour", parts->hour);
    append_int(&builder, "minute", parts->minute);
    append_int(&builder, "second", parts->second);
    append_int(&builder, "millisecond", parts->millisecond);
    return truce__builder_finish(&builder, result, run->error);
}

/* Applies $dateToParts. */
static truce_status apply_to_parts(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    struct date_zone zone = {0};
    struct date_parts parts;
    bool given = true, iso = false;
    int64_t date;
    truce_status status = TRUCE_OK;

    if (node->operands[TO_ZONE])
        status = evaluation_zone(node, run, operands[TO_ZONE], 40517, &zone, &given);
    if (status)
        return status;
    if (!given)
        return truce__evaluation_null(result);
    if (node->operands[TO_ISO] && truce__value_is_nullish(operands[TO_ISO]))
        return truce__evaluation_null(result);
    if (node->operands[TO_ISO] && operands[TO_ISO].type != BSON_TYPE_BOOL)
        return truce__refuse_value(40521, operands[TO_ISO], run->error,
                                   "\"iso8601\" of $dateToParts must be true or false");
    if (node->operands[TO_ISO])
        iso = truce__value_bool(operands[TO_ISO]);
    if (truce__value_is_nullish(operands[TO_DATE]))
        return truce__evaluation_null(result);
    if (!truce__value_to_date(operands[TO_DATE], &date))
        return truce__refuse(16006, run->error, "$dateToParts takes a date, not %s",
                             truce__type_name(operands[TO_DATE].type));
    truce__date_split(date, &zone, &parts);
    return write_parts(run, &parts, iso, result);
}

static const struct expression_arguments to_parts_arguments = {
    40524, 40520, {{"date", 40522}, {"timezone", 0}, {"iso8601", 0}}};

/* -- $dateFromParts --------------------------------------------------------------------------- */

enum {
    FROM_YEAR,
    FROM_MONTH,
    FROM_DAY,
    FROM_ISO_YEAR,
    FROM_ISO_WEEK,
    FROM_ISO_DAY,
    FROM_HOUR,
    FROM_MINUTE,
    FROM_SECOND,
    FROM_MILLISECOND,
    FROM_ZONE,
    FROM_COUNT
};

static const char *const from_names[FROM_COUNT] = {
    "year", "month",  "day",    "isoWeekYear", "isoWeek", "isoDayOfWeek",
    "hour", "minute", "second", "millisecond", "timezone"};

static bool is_bounded(int part)
{
    return part != FROM_SECOND && part != FROM_MILLISECOND;
}

/* Reads a part as an integer, or `otherwise` if it is not given. *null is set if it is null. */
static truce_status date_read_part(const struct expression_node *node, struct evaluation *run,
                                   int part, int64_t otherwise, int64_t *number, bool *null)
{
    struct value value;
    int32_t whole;
    truce_status status;

    *number = otherwise;
    if (!node->operands[part])
        return TRUCE_OK;
    status = truce__expression_run(node->operands[part], run, &value);
    if (status)
        return status;
    if (truce__value_is_nullish(value)) {
        *null = true;
        return TRUCE_OK;
    }
    if (!truce__value_to_int32(value, &whole))
        return truce__refuse_value(40515, value, run->error,
                                   "\"%s\" of $dateFromParts must be an integer", from_names[part]);
    if ((part == FROM_YEAR || part == FROM_ISO_YEAR) && (whole < 1 || whole > 9999))
        return truce__refuse(part == FROM_YEAR ? 40523 : 31095, run->error,
                             "\"%s\" of $dateFromParts must be from 1 to 9999, not %d",
                             from_names[part], whole);
    if (is_bounded(part) && (whole < INT16_MIN || whole > INT16_MAX))
        return truce__refuse(31034, run->error,
                             "\"%s\" of $dateFromParts must be from %d to %d, not %d",
                             from_names[part], INT16_MIN, INT16_MAX, whole);
    *number = whole;
    return TRUCE_OK;
}

static truce_status read_parts(const struct expression_node *node, struct evaluation *run,
                               int64_t parts[FROM_COUNT], bool *null)
{
    static const int64_t otherwise[FROM_COUNT] = {0, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0};
    truce_status status = TRUCE_OK;

    *null = false;
    for (int part = 0; !status && !*null && part < FROM_ZONE; part++)
        status = date_read_part(node, run, part, otherwise[part], &parts[part], null);
    return status;
}

static int64_t join_parts(const struct expression_node *node, const int64_t parts[FROM_COUNT])
{
    int64_t days, seconds;

    if (node->operands[FROM_YEAR])
        days = truce__date_days(parts[FROM_YEAR], parts[FROM_MONTH], parts[FROM_DAY]);
    else
        days = truce__date_iso_days(parts[FROM_ISO_YEAR]) + 7 * (parts[FROM_ISO_WEEK] - 1) +
               parts[FROM_ISO_DAY] - 1;
    seconds = (parts[FROM_HOUR] * 60 + parts[FROM_MINUTE]) * 60 + parts[FROM_SECOND];
    return days * DAY_MS + seconds * 1000 + parts[FROM_MILLISECOND];
}

/* Evaluates $dateFromParts. Parts out of their range carry over into the next larger part. */
static truce_status evaluate_from_parts(const struct expression_node *node, struct evaluation *run,
                                        struct value *result)
{
    int64_t parts[FROM_COUNT];
    struct date_zone zone = {0};
    struct value name;
    bool null, given = true;
    truce_status status = truce__expression_run(node->operands[FROM_ZONE], run, &name);

    if (!status && node->operands[FROM_ZONE])
        status = evaluation_zone(node, run, name, 40517, &zone, &given);
    if (!status)
        status = read_parts(node, run, parts, &null);
    if (status)
        return status;
    if (null || !given)
        return truce__evaluation_null(result);
    *result =
        truce__value_from_date(run->arena, truce__date_from_local(join_parts(node, parts), &zone));
    return TRUCE_OK;
}

/* Checks that the parts are those of one calendar: year, month, and day, or those of ISO weeks. */
static truce_status check_from_parts(struct expression_compiler *compiler,
                                     const struct expression_node *node)
{
    bool natural = node->operands[FROM_MONTH] || node->operands[FROM_DAY];
    bool iso = node->operands[FROM_ISO_WEEK] || node->operands[FROM_ISO_DAY];

    if (!node->operands[FROM_YEAR] && !node->operands[FROM_ISO_YEAR])
        return truce__refuse(40516, compiler->error,
                             "$dateFromParts needs \"year\" or \"isoWeekYear\"");
    if (node->operands[FROM_YEAR] && (iso || node->operands[FROM_ISO_YEAR]))
        return truce__refuse(40489, compiler->error,
                             "$dateFromParts does not take ISO weeks together with \"year\"");
    if (node->operands[FROM_ISO_YEAR] && natural)
        return truce__refuse(40525, compiler->error,
                             "$dateFromParts does not take \"month\" or \"day\" together with "
                             "\"isoWeekYear\"");
    return TRUCE_OK;
}

static int date_find_part(const char *name)
{
    for (int part = 0; part < FROM_COUNT; part++) {
        if (!strcmp(from_names[part], name))
            return part;
    }
    return -1;
}

/* Compiles $dateFromParts, whose arguments are the parts. */
static truce_status compile_from_parts(struct expression_compiler *compiler,
                                       const struct expression_operator *operator,
                                       struct value argument, struct expression_node **node)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse_value(40519, argument, compiler->error,
                                   "$dateFromParts takes a document of arguments");
    *node = truce__expression_node(compiler, operator, FROM_COUNT);
    fields = truce__fields(argument);
    while (!status && truce__fields_next(&fields)) {
        int part = date_find_part(fields.key);
        if (part < 0)
            return truce__refuse(40518, compiler->error, "$dateFromParts does not take \"%s\"",
                                 fields.key);
        status = truce__expression_compile(compiler, fields.value, &(*node)->operands[part]);
    }
    if (!status)
        status = check_from_parts(compiler, *node);
    return status ? status : truce__expression_fold(compiler, node);
}

#define DATE_PART(name, part)                                                                      \
    {                                                                                              \
        name, .apply = apply_part, .compile = compile_part, .arguments = &part_arguments,          \
              .extra = part                                                                        \
    }

/* ---- arithmetic of dates --------------------------------------------------------------------- */

/*
 * Arithmetic of dates: $dateAdd, $dateSubtract, $dateDiff, $dateTrunc.
 *
 * Units up to the hour are fixed numbers of milliseconds, even across changes of the clock. Days
 * and weeks are days of the zone's calendar; months, quarters, and years are months of it. Then the
 * local time of day does not change.
 */

#define DAY_MS INT64_C(86400000)
/* Dates whose absolute value is greater are out of range. */
#define LIMIT_MS (INT64_MAX / 2)

enum kind { KIND_MS, KIND_DAYS, KIND_MONTHS };

struct unit {
    const char *name;
    enum kind kind;
    /* The length of the unit, in milliseconds, days, or months by its kind. */
    int64_t size;
};

static const struct unit units[] = {
    {"year", KIND_MONTHS, 12},  {"quarter", KIND_MONTHS, 3}, {"month", KIND_MONTHS, 1},
    {"week", KIND_DAYS, 7},     {"day", KIND_DAYS, 1},       {"hour", KIND_MS, 3600000},
    {"minute", KIND_MS, 60000}, {"second", KIND_MS, 1000},   {"millisecond", KIND_MS, 1},
};

static int64_t math_floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static int64_t time_of_day(int64_t local_ms)
{
    int64_t rest = local_ms % DAY_MS;

    return rest < 0 ? rest + DAY_MS : rest;
}

static bool is_week(const struct unit *unit)
{
    return unit->kind == KIND_DAYS && unit->size == 7;
}

/* -- reading arguments ------------------------------------------------------------------------ */

/* Reads a unit of time. */
static truce_status read_unit(const struct expression_node *node, struct evaluation *run,
                              struct value value, uint32_t code, const struct unit **unit)
{
    uint32_t length;
    const char *name;

    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(code, run->error, "\"unit\" of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    name = truce__value_text(value, &length);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strlen(units[i].name) == length && !memcmp(units[i].name, name, length)) {
            *unit = &units[i];
            return TRUCE_OK;
        }
    }
    return truce__refuse(
        CODE_FAILED_TO_PARSE, run->error,
        "%s: unknown unit of time \"%.*s\": expected year, quarter, month, week, day, hour, "
        "minute, second, or millisecond",
        truce__expression_name(node), (int)BSON_MIN(length, 50), name);
}

/* Reads a weekday; 0 is Sunday, the default. */
static truce_status read_weekday(const struct expression_node *node, struct evaluation *run,
                                 struct value value, int *weekday)
{
    static const char *const names[] = {"sunday",   "monday", "tuesday", "wednesday",
                                        "thursday", "friday", "saturday"};
    uint32_t length;
    const char *name;

    *weekday = 0;
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (value.type != BSON_TYPE_UTF8)
        return truce__refuse(5439015, run->error, "\"startOfWeek\" of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    name = truce__value_text(value, &length);
    for (int i = 0; i < 7; i++) {
        if ((length == 3 || length == strlen(names[i])) && !strncasecmp(name, names[i], length)) {
            *weekday = i;
            return TRUCE_OK;
        }
    }
    return truce__refuse_value(
        5439016, value, run->error,
        "\"startOfWeek\" of %s must be a day of the week, such as \"monday\"",
        truce__expression_name(node));
}

static truce_status math_read_date(const struct expression_node *node, struct evaluation *run,
                                   struct value value, uint32_t code, int64_t *date)
{
    if (!truce__value_to_date(value, date))
        return truce__refuse(code, run->error, "%s takes dates, not %s",
                             truce__expression_name(node), truce__type_name(value.type));
    return TRUCE_OK;
}

/* Returns whether an argument is given, but null or missing in this document. */
static bool is_null(const struct expression_node *node, const struct value *operands, int argument)
{
    return node->operands[argument] && truce__value_is_nullish(operands[argument]);
}

static truce_status out_of_range(const struct expression_node *node, struct evaluation *run,
                                 uint32_t code)
{
    return truce__refuse(code, run->error, "the result of %s is out of the range of dates",
                         truce__expression_name(node));
}

/* -- counting units --------------------------------------------------------------------------- */

/* Returns the days of the zone's calendar since 1970-01-01. */
static int64_t local_days(int64_t date, const struct date_zone *zone)
{
    return math_floor_divide(truce__date_to_local(date, zone), DAY_MS);
}

/* Returns the months of the zone's calendar since the year 0. */
static int64_t local_months(int64_t date, const struct date_zone *zone)
{
    struct date_parts parts;

    truce__date_split(date, zone, &parts);
    return parts.year * 12 + parts.month - 1;
}

/* Adds a time of day to a day of the zone's calendar. Returns false if the date is out of range. */
static bool from_days(int64_t days, int64_t time_ms, const struct date_zone *zone, int64_t *date)
{
    if (days > LIMIT_MS / DAY_MS || days < -LIMIT_MS / DAY_MS)
        return false;
    *date = truce__date_from_local(days * DAY_MS + time_ms, zone);
    return true;
}

static bool from_months(int64_t months, int64_t day, int64_t time_ms, const struct date_zone *zone,
                        int64_t *date)
{
    int64_t year = math_floor_divide(months, 12), month = months - year * 12 + 1;

    if (year > 200000000 || year < -200000000)
        return false;
    day = BSON_MIN(day, truce__date_month_days(year, month));
    return from_days(truce__date_days(year, month, day), time_ms, zone, date);
}

/* -- $dateAdd, $dateSubtract ------------------------------------------------------------------ */

enum { ADD_DATE, ADD_UNIT, ADD_AMOUNT, ADD_ZONE };

/* Adds an amount of units to a date. Returns false if the result is out of range. */
static bool math_add(int64_t date, const struct unit *unit, int64_t amount,
                     const struct date_zone *zone, int64_t *result)
{
    int64_t local = truce__date_to_local(date, zone);
    int64_t days = math_floor_divide(local, DAY_MS), step, sum;
    struct date_parts parts;

    if (__builtin_mul_overflow(amount, unit->size, &step))
        return false;
    if (unit->kind == KIND_MS)
        return !__builtin_add_overflow(date, step, result);
    if (unit->kind == KIND_DAYS)
        return !__builtin_add_overflow(days, step, &sum) &&
               from_days(sum, time_of_day(local), zone, result);
    truce__date_split(date, zone, &parts);
    return !__builtin_add_overflow(parts.year * 12 + parts.month - 1, step, &sum) &&
           from_months(sum, parts.day, time_of_day(local), zone, result);
}

/* Applies $dateAdd or $dateSubtract. */
static truce_status apply_add(const struct expression_node *node, struct evaluation *run,
                              const struct value *operands, struct value *result)
{
    bool negative = !strcmp(truce__expression_name(node), "$dateSubtract"), given;
    const struct unit *unit;
    struct date_zone zone;
    int64_t date, amount;
    truce_status status;

    for (int i = ADD_DATE; i <= ADD_ZONE; i++) {
        if (is_null(node, operands, i))
            return truce__evaluation_null(result);
    }
    status = evaluation_zone(node, run, operands[ADD_ZONE], 40517, &zone, &given);
    if (!status)
        status = math_read_date(node, run, operands[ADD_DATE], 5166403, &date);
    if (!status)
        status = read_unit(node, run, operands[ADD_UNIT], 5166404, &unit);
    if (status)
        return status;
    if (!truce__value_is_number(operands[ADD_AMOUNT]) ||
        !truce__number_to_int64(operands[ADD_AMOUNT], &amount))
        return truce__refuse_value(5166405, operands[ADD_AMOUNT], run->error,
                                   "\"amount\" of %s must be an integer",
                                   truce__expression_name(node));
    if (negative && amount == INT64_MIN)
        return truce__refuse_value(
            6045000, operands[ADD_AMOUNT], run->error,
            "\"amount\" of $dateSubtract must be above the least 64-bit integer");
    if (!math_add(date, unit, negative ? -amount : amount, &zone, &date))
        return out_of_range(node, run, 5166406);
    *result = truce__value_from_date(run->arena, date);
    return TRUCE_OK;
}

static const struct expression_arguments add_arguments = {
    5166400,
    5166401,
    {{"startDate", 5166402}, {"unit", 5166402}, {"amount", 5166402}, {"timezone", 0}}};

/* -- $dateDiff -------------------------------------------------------------------------------- */

enum { DIFF_START, DIFF_END, DIFF_UNIT, DIFF_ZONE, DIFF_WEEK };

/* Returns the number of the unit that contains the date, by the zone's calendar or clock. */
static int64_t math_number_of(int64_t date, const struct unit *unit, const struct date_zone *zone,
                              int weekday)
{
    int64_t shift, shifted;

    if (unit->kind == KIND_MONTHS)
        return math_floor_divide(local_months(date, zone), unit->size);
    /* Day 3, 1970-01-04, was a Sunday. */
    if (unit->kind == KIND_DAYS)
        return math_floor_divide(local_days(date, zone) - (is_week(unit) ? 3 + weekday : 0),
                                 unit->size);
    /* Zones differ from UTC by whole seconds, so only the remainder within a unit matters. */
    shift = (int64_t)truce__date_zone_offset(zone, date) * 1000 % unit->size;
    return __builtin_add_overflow(date, shift, &shifted) ? math_floor_divide(date, unit->size)
                                                         : math_floor_divide(shifted, unit->size);
}

/* Applies $dateDiff: the number of unit boundaries between the dates. */
static truce_status math_apply_diff(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    const struct unit *unit;
    struct date_zone zone;
    int64_t start, end, difference;
    int weekday = 0;
    bool given;
    truce_status status;

    for (int i = DIFF_START; i <= DIFF_ZONE; i++) {
        if (is_null(node, operands, i))
            return truce__evaluation_null(result);
    }
    status = evaluation_zone(node, run, operands[DIFF_ZONE], 40517, &zone, &given);
    if (!status)
        status = math_read_date(node, run, operands[DIFF_START], 5166307, &start);
    if (!status)
        status = math_read_date(node, run, operands[DIFF_END], 5166307, &end);
    if (!status)
        status = read_unit(node, run, operands[DIFF_UNIT], 5439013, &unit);
    if (!status && is_week(unit) && is_null(node, operands, DIFF_WEEK))
        return truce__evaluation_null(result);
    if (!status && is_week(unit))
        status = read_weekday(node, run, operands[DIFF_WEEK], &weekday);
    if (status)
        return status;
    if (__builtin_sub_overflow(math_number_of(end, unit, &zone, weekday),
                               math_number_of(start, unit, &zone, weekday), &difference))
        return out_of_range(node, run, 5166308);
    *result = truce__value_from_int64(run->arena, difference);
    return TRUCE_OK;
}

static const struct expression_arguments diff_arguments = {5166301,
                                                           5166302,
                                                           {{"startDate", 5166303},
                                                            {"endDate", 5166304},
                                                            {"unit", 5166305},
                                                            {"timezone", 0},
                                                            {"startOfWeek", 0}}};

/* -- $dateTrunc ------------------------------------------------------------------------------- */

/*
 * Time is divided into bins of some units each, which are counted from the start of the year 2000
 * in the zone (for weeks: from the first start of a week in that year).
 */
enum { TRUNC_DATE, TRUNC_UNIT, TRUNC_BIN, TRUNC_ZONE, TRUNC_WEEK };

#define DAYS_TO_2000   10957
#define MONTHS_TO_2000 (2000 * 12)

/* Returns the start of the bin that contains `number`, or false if it is out of range. */
static bool bin_start(int64_t number, int64_t origin, int64_t bin, int64_t *start)
{
    int64_t distance;

    if (__builtin_sub_overflow(number, origin, &distance))
        return false;
    return !__builtin_mul_overflow(math_floor_divide(distance, bin), bin, start) &&
           !__builtin_add_overflow(*start, origin, start);
}

/* Returns the start of the bin that contains the date. Returns false if it is out of range. */
static bool truncate_date(int64_t date, const struct unit *unit, int64_t bin,
                          const struct date_zone *zone, int weekday, int64_t *result)
{
    int64_t size, origin = DAYS_TO_2000, start;

    if (__builtin_mul_overflow(bin, unit->size, &size))
        return false;
    if (unit->kind == KIND_MONTHS)
        return bin_start(local_months(date, zone), MONTHS_TO_2000, size, &start) &&
               from_months(start, 1, 0, zone, result);
    if (unit->kind == KIND_MS) {
        origin = truce__date_from_local(DAYS_TO_2000 * DAY_MS, zone);
        return bin_start(date, origin, size, result);
    }
    /* 2000-01-01 was a Saturday, weekday 6. */
    if (is_week(unit))
        origin += (weekday + 7 - 6) % 7;
    return bin_start(local_days(date, zone), origin, size, &start) &&
           from_days(start, 0, zone, result);
}

static truce_status read_bin(struct evaluation *run, struct value value, int64_t *bin)
{
    *bin = 1;
    if (value.type == VALUE_MISSING)
        return TRUCE_OK;
    if (!truce__value_is_number(value) || !truce__number_to_int64(value, bin))
        return truce__refuse_value(5439017, value, run->error,
                                   "\"binSize\" of $dateTrunc must be an integer");
    if (*bin < 1)
        return truce__refuse_value(5439018, value, run->error,
                                   "\"binSize\" of $dateTrunc must be positive");
    return TRUCE_OK;
}

/* Applies $dateTrunc. */
static truce_status apply_trunc(const struct expression_node *node, struct evaluation *run,
                                const struct value *operands, struct value *result)
{
    const struct unit *unit;
    struct date_zone zone;
    int64_t date, bin;
    int weekday = 0;
    bool given;
    truce_status status;

    for (int i = TRUNC_DATE; i <= TRUNC_ZONE; i++) {
        if (is_null(node, operands, i))
            return truce__evaluation_null(result);
    }
    status = evaluation_zone(node, run, operands[TRUNC_ZONE], 40517, &zone, &given);
    if (!status)
        status = math_read_date(node, run, operands[TRUNC_DATE], 5439012, &date);
    if (!status)
        status = read_unit(node, run, operands[TRUNC_UNIT], 5439013, &unit);
    if (!status && is_week(unit) && is_null(node, operands, TRUNC_WEEK))
        return truce__evaluation_null(result);
    if (!status && is_week(unit))
        status = read_weekday(node, run, operands[TRUNC_WEEK], &weekday);
    if (!status)
        status = read_bin(run, operands[TRUNC_BIN], &bin);
    if (status)
        return status;
    if (!truncate_date(date, unit, bin, &zone, weekday, &date))
        return out_of_range(node, run, 5439006);
    *result = truce__value_from_date(run->arena, date);
    return TRUCE_OK;
}

static const struct expression_arguments trunc_arguments = {
    5439007,
    5439008,
    {{"date", 5439009}, {"unit", 5439010}, {"binSize", 0}, {"timezone", 0}, {"startOfWeek", 0}}};

/* ---- dates as strings ------------------------------------------------------------------------ */

/* Formats dates as strings and parses them: $dateToString, $dateFromString. */

/* The order of the arguments of both operators. */
enum { ARGUMENT_DATE, ARGUMENT_FORMAT, ARGUMENT_ZONE, ARGUMENT_ON_NULL, ARGUMENT_ON_ERROR };

struct text_arguments {
    struct value date, format;
    struct date_zone zone;
    /* False if the argument was null or missing. */
    bool zone_given;
};

/* Reads the date, the format (checked unless it is null), and the zone. */
static truce_status text_read_arguments(const struct expression_node *node, struct evaluation *run,
                                        bool reading, struct text_arguments *arguments)
{
    struct value zone;
    uint32_t length;
    const char *format;
    truce_status status =
        truce__expression_run(node->operands[ARGUMENT_DATE], run, &arguments->date);

    if (!status)
        status = truce__expression_run(node->operands[ARGUMENT_FORMAT], run, &arguments->format);
    if (status)
        return status;
    if (!truce__value_is_nullish(arguments->format)) {
        if (arguments->format.type != BSON_TYPE_UTF8)
            return truce__refuse(
                reading ? 40684 : 18533, run->error, "the format of %s must be a string, not %s",
                truce__expression_name(node), truce__type_name(arguments->format.type));
        format = truce__value_text(arguments->format, &length);
        status = truce__date_format_check(format, length, reading, run->error);
    }
    if (!status)
        status = truce__expression_run(node->operands[ARGUMENT_ZONE], run, &zone);
    if (!status)
        status = evaluation_zone(node, run, zone, 40517, &arguments->zone, &arguments->zone_given);
    return status;
}

static truce_status run_or_null(const struct expression_node *node, struct evaluation *run,
                                struct value *result)
{
    return node ? truce__expression_run(node, run, result) : truce__evaluation_null(result);
}

/* -- $dateToString ---------------------------------------------------------------------------- */

static truce_status text_write_date(struct evaluation *run, int64_t date,
                                    const struct date_zone *zone, const char *format, size_t length,
                                    struct value *result)
{
    char *text = truce__evaluation_take(run, length * DATE_LETTER_MAX + 1);
    size_t written;
    truce_status status;

    if (!text)
        return TRUCE_LIMIT;
    status = truce__date_write(date, zone, format, length, text, &written, run->error);
    if (!status)
        *result = truce__value_from_text(run->arena, text, written);
    return status;
}

/* Evaluates $dateToString. The default format ends with a Z only for UTC. */
static truce_status evaluate_to_string(const struct expression_node *node, struct evaluation *run,
                                       struct value *result)
{
    const char *format = "%Y-%m-%dT%H:%M:%S.%LZ";
    struct text_arguments arguments;
    uint32_t length;
    int64_t date;
    truce_status status = text_read_arguments(node, run, false, &arguments);

    if (status)
        return status;
    if (truce__value_is_nullish(arguments.date))
        return run_or_null(node->operands[ARGUMENT_ON_NULL], run, result);
    if (node->operands[ARGUMENT_ZONE] && !arguments.zone_given)
        return truce__evaluation_null(result);
    if (!truce__value_to_date(arguments.date, &date))
        return truce__refuse(16006, run->error, "$dateToString takes a date, not %s",
                             truce__type_name(arguments.date.type));
    if (node->operands[ARGUMENT_FORMAT] && truce__value_is_nullish(arguments.format))
        return truce__evaluation_null(result);
    if (arguments.zone.named || arguments.zone.offset_s)
        format = "%Y-%m-%dT%H:%M:%S.%L";
    length = (uint32_t)strlen(format);
    if (node->operands[ARGUMENT_FORMAT])
        format = truce__value_text(arguments.format, &length);
    return text_write_date(run, date, &arguments.zone, format, length, result);
}

/* -- $dateFromString -------------------------------------------------------------------------- */

/* Converts the string of a $dateFromString, by the format if one is given. */
static truce_status text_read_date(const struct expression_node *node, struct evaluation *run,
                                   const struct text_arguments *arguments, struct value *result)
{
    const struct date_zone *zone = node->operands[ARGUMENT_ZONE] ? &arguments->zone : NULL;
    uint32_t length, format_length;
    const char *text, *format;
    int64_t date;
    truce_status status;

    if (arguments->date.type != BSON_TYPE_UTF8)
        return truce__refuse(CODE_CONVERSION_FAILURE, run->error,
                             "$dateFromString takes a string, not %s",
                             truce__type_name(arguments->date.type));
    if (zone && !arguments->zone_given)
        return truce__evaluation_null(result);
    if (node->operands[ARGUMENT_FORMAT] && truce__value_is_nullish(arguments->format))
        return truce__evaluation_null(result);
    text = truce__value_text(arguments->date, &length);
    if (node->operands[ARGUMENT_FORMAT]) {
        format = truce__value_text(arguments->format, &format_length);
        status =
            truce__date_parse_format(text, length, format, format_length, zone, &date, run->error);
    } else {
        status = truce__date_parse(text, length, zone, &date, run->error);
    }
    if (!status)
        *result = truce__value_from_date(run->arena, date);
    return status;
}

/* Evaluates $dateFromString. onError is the result if the string cannot be converted. */
static truce_status evaluate_from_string(const struct expression_node *node, struct evaluation *run,
                                         struct value *result)
{
    struct text_arguments arguments;
    bson_error_t *error;
    truce_status status = text_read_arguments(node, run, true, &arguments);

    if (status)
        return status;
    if (truce__value_is_nullish(arguments.date))
        return run_or_null(node->operands[ARGUMENT_ON_NULL], run, result);
    if (!node->operands[ARGUMENT_ON_ERROR])
        return text_read_date(node, run, &arguments, result);
    error = truce__evaluation_hush(run);
    status = text_read_date(node, run, &arguments, result);
    run->error = error;
    if (status)
        return truce__expression_run(node->operands[ARGUMENT_ON_ERROR], run, result);
    return TRUCE_OK;
}

/* Checks a constant format at compilation. */
static truce_status text_prepare(struct expression_compiler *compiler, struct expression_node *node)
{
    bool reading = node->evaluate == evaluate_from_string;
    const struct expression_node *format = node->operands[ARGUMENT_FORMAT];
    uint32_t length;
    const char *text;

    if (!format || !truce__expression_is_constant_node(format) ||
        truce__value_is_nullish(format->value))
        return TRUCE_OK;
    if (format->value.type != BSON_TYPE_UTF8)
        return truce__refuse(reading ? 40684 : 18533, compiler->error,
                             "the format of %s must be a string, not %s",
                             truce__expression_name(node), truce__type_name(format->value.type));
    text = truce__value_text(format->value, &length);
    return truce__date_format_check(text, length, reading, compiler->error);
}

static const struct expression_arguments to_string_arguments = {
    18629, 18534, {{"date", 18628}, {"format", 0}, {"timezone", 0}, {"onNull", 0}}};
static const struct expression_arguments from_string_arguments = {
    40540,
    40541,
    {{"dateString", 40542}, {"format", 0}, {"timezone", 0}, {"onNull", 0}, {"onError", 0}}};

/* -- the table --------------------------------------------------------------------------------- */

const struct expression_operator truce__expressions_date[] = {
    DATE_PART("$year", &part_year),
    DATE_PART("$month", &part_month),
    DATE_PART("$dayOfMonth", &part_day),
    DATE_PART("$dayOfWeek", &part_day_of_week),
    DATE_PART("$dayOfYear", &part_day_of_year),
    DATE_PART("$hour", &part_hour),
    DATE_PART("$minute", &part_minute),
    DATE_PART("$second", &part_second),
    DATE_PART("$millisecond", &part_millisecond),
    DATE_PART("$week", &part_week),
    DATE_PART("$isoDayOfWeek", &part_iso_day),
    DATE_PART("$isoWeek", &part_iso_week),
    DATE_PART("$isoWeekYear", &part_iso_year),
    {"$dateToParts", .apply = apply_to_parts, .arguments = &to_parts_arguments},
    {"$dateFromParts", .evaluate = evaluate_from_parts, .compile = compile_from_parts},
    {"$dateAdd", .apply = apply_add, .arguments = &add_arguments},
    {"$dateSubtract", .apply = apply_add, .arguments = &add_arguments},
    {"$dateDiff", .apply = math_apply_diff, .arguments = &diff_arguments},
    {"$dateTrunc", .apply = apply_trunc, .arguments = &trunc_arguments},
    {"$dateToString", .evaluate = evaluate_to_string, .arguments = &to_string_arguments,
     .prepare = text_prepare},
    {"$dateFromString", .evaluate = evaluate_from_string, .arguments = &from_string_arguments,
     .prepare = text_prepare},
    {NULL},
};
