#include "base/assert.h"
#include "bson/date.h"
#include "query/expression/expression_tree.h"

/* Splits dates into their parts ($year and others, $dateToParts), and builds dates from parts
 * ($dateFromParts). */

#define DAY_MS INT64_C(86400000)

/* signed seconds since 1970, the first four bytes, big-endian */
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

truce_status truce__evaluation_zone(const struct expression_node *node, struct evaluation *run,
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
    /* the result is an int64, otherwise an int32 */
    bool is_long;
};

enum { PART_DATE, PART_ZONE };

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
        status = truce__evaluation_zone(node, run, operands[PART_ZONE], 40533, &zone, &given);
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

static const struct part year = {get_year}, month = {get_month}, day = {get_day},
                         day_of_week = {get_day_of_week}, day_of_year = {get_day_of_year},
                         hour = {get_hour}, minute = {get_minute}, second = {get_second},
                         millisecond = {get_millisecond}, week = {get_week},
                         iso_day = {get_iso_day}, iso_week = {get_iso_week},
                         iso_year = {get_iso_year, true};

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

static truce_status apply_to_parts(const struct expression_node *node, struct evaluation *run,
                                   const struct value *operands, struct value *result)
{
    struct date_zone zone = {0};
    struct date_parts parts;
    bool given = true, iso = false;
    int64_t date;
    truce_status status = TRUCE_OK;

    if (node->operands[TO_ZONE])
        status = truce__evaluation_zone(node, run, operands[TO_ZONE], 40517, &zone, &given);
    if (status)
        return status;
    if (!given)
        return truce__evaluation_null(result);
    if (node->operands[TO_ISO] && truce__value_is_nullish(operands[TO_ISO]))
        return truce__evaluation_null(result);
    if (node->operands[TO_ISO] && operands[TO_ISO].type != BSON_TYPE_BOOL)
        return truce__refuse(40521, run->error,
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
        return truce__refuse(40515, run->error, "\"%s\" of $dateFromParts must be an integer",
                             from_names[part]);
    if ((part == FROM_YEAR || part == FROM_ISO_YEAR) && (whole < 1 || whole > 9999))
        return truce__refuse(part == FROM_YEAR ? 40523 : 31095, run->error,
                             "\"%s\" of $dateFromParts must be from 1 to 9999, not %d",
                             from_names[part], whole);
    if (is_bounded(part) && (whole < INT16_MIN || whole > INT16_MAX))
        return truce__refuse(31034, run->error, "\"%s\" of $dateFromParts is out of range: %d",
                             from_names[part], whole);
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

static truce_status evaluate_from_parts(const struct expression_node *node, struct evaluation *run,
                                        struct value *result)
{
    int64_t parts[FROM_COUNT];
    struct date_zone zone = {0};
    struct value name;
    bool null, given = true;
    truce_status status = truce__expression_run(node->operands[FROM_ZONE], run, &name);

    if (!status && node->operands[FROM_ZONE])
        status = truce__evaluation_zone(node, run, name, 40517, &zone, &given);
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

static truce_status compile_from_parts(struct expression_compiler *compiler,
                                       const struct expression_operator *operator,
                                       struct value argument, struct expression_node **node)
{
    struct fields fields;
    truce_status status = TRUCE_OK;

    if (argument.type != BSON_TYPE_DOCUMENT)
        return truce__refuse(40519, compiler->error,
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

const struct expression_operator truce__expressions_date[] = {
    DATE_PART("$year", &year),
    DATE_PART("$month", &month),
    DATE_PART("$dayOfMonth", &day),
    DATE_PART("$dayOfWeek", &day_of_week),
    DATE_PART("$dayOfYear", &day_of_year),
    DATE_PART("$hour", &hour),
    DATE_PART("$minute", &minute),
    DATE_PART("$second", &second),
    DATE_PART("$millisecond", &millisecond),
    DATE_PART("$week", &week),
    DATE_PART("$isoDayOfWeek", &iso_day),
    DATE_PART("$isoWeek", &iso_week),
    DATE_PART("$isoWeekYear", &iso_year),
    {"$dateToParts", .apply = apply_to_parts, .arguments = &to_parts_arguments},
    {"$dateFromParts", .evaluate = evaluate_from_parts, .compile = compile_from_parts},
    {NULL},
};
