#include <strings.h>

#include "base/assert.h"
#include "bson/date.h"
#include "bson/number.h"
#include "query/expression/expression_tree.h"

/*
 * Arithmetic of dates: $dateAdd, $dateSubtract, $dateDiff, $dateTrunc.
 *
 * Units up to the hour are fixed numbers of milliseconds, even across changes of the clock. Days
 * and weeks are days of the zone's calendar; months, quarters, and years are months of it. Then the
 * local time of day does not change.
 */

#define DAY_MS INT64_C(86400000)
/* dates beyond it are not computed */
#define LIMIT_MS (INT64_MAX / 2)

enum kind { KIND_MS, KIND_DAYS, KIND_MONTHS };

struct unit {
    const char *name;
    enum kind kind;
    /* in milliseconds, days, or months */
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
    return truce__refuse(CODE_FAILED_TO_PARSE, run->error, "%s: there is no unit of time \"%.*s\"",
                         truce__expression_name(node), (int)BSON_MIN(length, 50), name);
}

/* Reads a weekday; 0: Sunday, the default. */
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
    return truce__refuse(5439016, run->error, "\"startOfWeek\" of %s is not a day of the week",
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
    status = truce__evaluation_zone(node, run, operands[ADD_ZONE], 40517, &zone, &given);
    if (!status)
        status = math_read_date(node, run, operands[ADD_DATE], 5166403, &date);
    if (!status)
        status = read_unit(node, run, operands[ADD_UNIT], 5166404, &unit);
    if (status)
        return status;
    if (!truce__value_is_number(operands[ADD_AMOUNT]) ||
        !truce__number_to_int64(operands[ADD_AMOUNT], &amount))
        return truce__refuse(5166405, run->error, "\"amount\" of %s must be an integer",
                             truce__expression_name(node));
    if (negative && amount == INT64_MIN)
        return truce__refuse(6045000, run->error, "\"amount\" of $dateSubtract is out of range");
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
    /* 1970-01-04, day 3, was a Sunday */
    if (unit->kind == KIND_DAYS)
        return math_floor_divide(local_days(date, zone) - (is_week(unit) ? 3 + weekday : 0),
                                 unit->size);
    /* zones differ from UTC by whole seconds, so only the remainder within a unit matters */
    shift = (int64_t)truce__date_zone_offset(zone, date) * 1000 % unit->size;
    return __builtin_add_overflow(date, shift, &shifted) ? math_floor_divide(date, unit->size)
                                                         : math_floor_divide(shifted, unit->size);
}

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
    status = truce__evaluation_zone(node, run, operands[DIFF_ZONE], 40517, &zone, &given);
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
    /* 2000-01-01 was a Saturday, number 6 */
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
        return truce__refuse(5439017, run->error, "\"binSize\" of $dateTrunc must be an integer");
    if (*bin < 1)
        return truce__refuse(5439018, run->error, "\"binSize\" of $dateTrunc must be positive");
    return TRUCE_OK;
}

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
    status = truce__evaluation_zone(node, run, operands[TRUNC_ZONE], 40517, &zone, &given);
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

const struct expression_operator truce__expressions_date_math[] = {
    {"$dateAdd", .apply = apply_add, .arguments = &add_arguments},
    {"$dateSubtract", .apply = apply_add, .arguments = &add_arguments},
    {"$dateDiff", .apply = math_apply_diff, .arguments = &diff_arguments},
    {"$dateTrunc", .apply = apply_trunc, .arguments = &trunc_arguments},
    {NULL},
};
