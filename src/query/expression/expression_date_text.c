#include "bson/date.h"
#include "query/expression/expression_tree.h"

/* Formats dates as strings and parses them: $dateToString, $dateFromString. */

/* The order of the arguments; the same for both operators as far as both have them. */
enum { ARGUMENT_DATE, ARGUMENT_FORMAT, ARGUMENT_ZONE, ARGUMENT_ON_NULL, ARGUMENT_ON_ERROR };

struct text_arguments {
    struct value date, format;
    struct date_zone zone;
    /* false: it was null */
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
        status = truce__evaluation_zone(node, run, zone, 40517, &arguments->zone,
                                        &arguments->zone_given);
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

const struct expression_operator truce__expressions_date_text[] = {
    {"$dateToString", .evaluate = evaluate_to_string, .arguments = &to_string_arguments,
     .prepare = text_prepare},
    {"$dateFromString", .evaluate = evaluate_from_string, .arguments = &from_string_arguments,
     .prepare = text_prepare},
    {NULL},
};
