#include <math.h>

#include "bson/date.h"
#include "bson/decimal.h"
#include "bson/number.h"
#include "query/expression/expression_tree.h"

/*
 * Conversions: $convert and its short forms, and $type. A table says which type can become which;
 * a conversion that fails (241) may have an alternative, onError.
 */

typedef truce_status convert_function(struct evaluation *run, struct value input,
                                      struct value *result);

static truce_status convert_cannot(struct evaluation *run, struct value input, const char *to)
{
    char shown[100];

    return truce__refuse(CODE_CONVERSION_FAILURE, run->error, "%s %s cannot be converted to %s",
                         truce__type_name(input.type),
                         truce__value_show(input, shown, sizeof shown), to);
}

/* An integer, date or bool as an int64; a double or decimal without its fraction; text that is one
 */
static bool read_int64(struct value input, int64_t *number)
{
    _IDEC_flags flags = 0;
    uint32_t length;
    const char *text;

    switch (input.type) {
    case BSON_TYPE_DOUBLE: {
        double real = truce__value_double(input);
        if (!(real > -0x1p63 - 1 && real < 0x1p63))
            return false;
        *number = (int64_t)real;
        return true;
    }
    case BSON_TYPE_DECIMAL128:
        *number = bid128_to_int64_int(truce__decimal_of_bson(truce__value_decimal(input)), &flags);
        return !(flags & BID_INVALID_EXCEPTION);
    case BSON_TYPE_BOOL:
        *number = truce__value_bool(input);
        return true;
    case BSON_TYPE_DATE_TIME:
        *number = truce__value_int64(input);
        return true;
    case BSON_TYPE_UTF8:
        text = truce__value_text(input, &length);
        return truce__int64_read(text, length, number);
    default:
        return truce__value_is_number(input) && truce__number_to_int64(input, number);
    }
}

static truce_status to_int(struct evaluation *run, struct value input, struct value *result)
{
    int64_t number;

    if (input.type == BSON_TYPE_DATE_TIME || !read_int64(input, &number) || number < INT32_MIN ||
        number > INT32_MAX)
        return convert_cannot(run, input, "int");
    *result = truce__value_from_int32(run->arena, (int32_t)number);
    return TRUCE_OK;
}

static truce_status to_long(struct evaluation *run, struct value input, struct value *result)
{
    int64_t number;

    if (!read_int64(input, &number))
        return convert_cannot(run, input, "long");
    *result = truce__value_from_int64(run->arena, number);
    return TRUCE_OK;
}

static truce_status to_double(struct evaluation *run, struct value input, struct value *result)
{
    double number = 0;
    bool possible = true;
    uint32_t length;
    const char *text;

    if (input.type == BSON_TYPE_UTF8) {
        text = truce__value_text(input, &length);
        possible = truce__double_read(text, length, &number);
    } else if (truce__value_is_number(input)) {
        number = truce__number_to_double(input);
        possible = input.type != BSON_TYPE_DECIMAL128 || isfinite(number) ||
                   !bid128_isFinite(truce__decimal_of_bson(truce__value_decimal(input)));
    } else if (input.type == BSON_TYPE_BOOL) {
        number = truce__value_bool(input);
    } else if (input.type == BSON_TYPE_DATE_TIME) {
        number = (double)truce__value_int64(input);
    } else {
        possible = false;
    }
    if (!possible)
        return convert_cannot(run, input, "double");
    *result = truce__value_from_double(run->arena, number);
    return TRUCE_OK;
}

static truce_status to_decimal(struct evaluation *run, struct value input, struct value *result)
{
    bson_decimal128_t number;
    uint32_t length;
    const char *text;
    int64_t whole;

    if (truce__value_is_number(input)) {
        number = truce__number_to_decimal(input);
    } else if (input.type == BSON_TYPE_UTF8) {
        text = truce__value_text(input, &length);
        if (!truce__decimal_read(text, length, &number))
            return convert_cannot(run, input, "decimal");
    } else if (read_int64(input, &whole)) {
        number = truce__decimal_to_bson(bid128_from_int64(whole));
    } else {
        return convert_cannot(run, input, "decimal");
    }
    *result = truce__value_from_decimal(run->arena, number);
    return TRUCE_OK;
}

static truce_status to_bool(struct evaluation *run, struct value input, struct value *result)
{
    *result = truce__value_from_bool(truce__value_truth(input));
    return TRUCE_OK;
}

static truce_status to_text(struct evaluation *run, struct value input, struct value *result)
{
    char shown[NUMBER_TEXT_MAX];
    const char *text = shown;
    bson_oid_t oid;

    if (input.type == BSON_TYPE_UTF8) {
        *result = input;
        return TRUCE_OK;
    }
    if (truce__value_is_number(input)) {
        truce__number_show(input, shown);
    } else if (input.type == BSON_TYPE_BOOL) {
        text = truce__value_bool(input) ? "true" : "false";
    } else if (input.type == BSON_TYPE_DATE_TIME) {
        truce__date_show(truce__value_int64(input), shown);
    } else if (input.type == BSON_TYPE_OID) {
        memcpy(oid.bytes, input.data, 12);
        bson_oid_to_string(&oid, shown);
    } else {
        return convert_cannot(run, input, "string");
    }
    *result = truce__value_from_text(run->arena, text, strlen(text));
    return TRUCE_OK;
}

static truce_status to_oid(struct evaluation *run, struct value input, struct value *result)
{
    uint32_t length;
    const char *text;
    bson_oid_t oid;

    if (input.type == BSON_TYPE_OID) {
        *result = input;
        return TRUCE_OK;
    }
    if (input.type != BSON_TYPE_UTF8)
        return convert_cannot(run, input, "objectId");
    text = truce__value_text(input, &length);
    if (!bson_oid_is_valid(text, length) || length != 24)
        return convert_cannot(run, input, "objectId");
    bson_oid_init_from_string(&oid, text);
    *result = (struct value){truce__arena_copy(run->arena, oid.bytes, 12), 12, BSON_TYPE_OID};
    return TRUCE_OK;
}

static truce_status to_date(struct evaluation *run, struct value input, struct value *result)
{
    uint32_t length;
    const char *text;
    int64_t date;
    truce_status status;

    if (input.type == BSON_TYPE_UTF8) {
        text = truce__value_text(input, &length);
        status = truce__date_parse(text, length, NULL, &date, run->error);
        if (status)
            return status;
    } else if (input.type == BSON_TYPE_INT32 || input.type == BSON_TYPE_BOOL ||
               (!truce__value_to_date(input, &date) && !read_int64(input, &date))) {
        return convert_cannot(run, input, "date");
    }
    *result = truce__value_from_date(run->arena, date);
    return TRUCE_OK;
}

static truce_status to_nothing(struct evaluation *run, struct value input, struct value *result)
{
    return convert_cannot(run, input, "that type");
}

/* -- the target ------------------------------------------------------------------------------- */

struct target {
    const char *name;
    int number; /* BSON's number of the type */
    convert_function *convert;
};

static const struct target targets[] = {
    {"double", BSON_TYPE_DOUBLE, to_double},
    {"string", BSON_TYPE_UTF8, to_text},
    {"objectId", BSON_TYPE_OID, to_oid},
    {"bool", BSON_TYPE_BOOL, to_bool},
    {"date", BSON_TYPE_DATE_TIME, to_date},
    {"int", BSON_TYPE_INT32, to_int},
    {"long", BSON_TYPE_INT64, to_long},
    {"decimal", BSON_TYPE_DECIMAL128, to_decimal},
    {"missing", 0, to_nothing},
    {"object", BSON_TYPE_DOCUMENT, to_nothing},
    {"array", BSON_TYPE_ARRAY, to_nothing},
    {"binData", BSON_TYPE_BINARY, to_nothing},
    {"undefined", BSON_TYPE_UNDEFINED, to_nothing},
    {"null", BSON_TYPE_NULL, to_nothing},
    {"regex", BSON_TYPE_REGEX, to_nothing},
    {"dbPointer", BSON_TYPE_DBPOINTER, to_nothing},
    {"javascript", BSON_TYPE_CODE, to_nothing},
    {"symbol", BSON_TYPE_SYMBOL, to_nothing},
    {"javascriptWithScope", BSON_TYPE_CODEWSCOPE, to_nothing},
    {"timestamp", BSON_TYPE_TIMESTAMP, to_nothing},
    {"minKey", -1, to_nothing},
    {"maxKey", 127, to_nothing},
};

#define TARGETS_COUNT (sizeof targets / sizeof *targets)

static truce_status find_target_name(struct evaluation *run, struct value to,
                                     const struct target **target)
{
    uint32_t length;
    const char *name = truce__value_text(to, &length);

    for (size_t i = 0; i < TARGETS_COUNT; i++) {
        if (strlen(targets[i].name) == length && !memcmp(targets[i].name, name, length)) {
            *target = &targets[i];
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_BAD_VALUE, run->error,
                         "\"to\" of $convert: there is no type \"%.*s\"",
                         (int)BSON_MIN(length, 100), name);
}

static truce_status find_target(struct evaluation *run, struct value to,
                                const struct target **target)
{
    int32_t number;

    if (to.type == BSON_TYPE_UTF8)
        return find_target_name(run, to, target);
    if (!truce__value_is_number(to))
        return truce__refuse(CODE_FAILED_TO_PARSE, run->error,
                             "\"to\" of $convert must be a string or a number, not %s",
                             truce__type_name(to.type));
    if (!truce__value_to_int32(to, &number))
        return truce__refuse(CODE_FAILED_TO_PARSE, run->error,
                             "\"to\" of $convert must be an integer");
    for (size_t i = 0; i < TARGETS_COUNT; i++) {
        if (targets[i].number == number) {
            *target = &targets[i];
            return TRUCE_OK;
        }
    }
    return truce__refuse(CODE_FAILED_TO_PARSE, run->error,
                         "\"to\" of $convert: there is no type number %d", number);
}

/* -- $convert --------------------------------------------------------------------------------- */

enum { CONVERT_INPUT, CONVERT_TO, CONVERT_ON_ERROR, CONVERT_ON_NULL };

static truce_status evaluate_convert(const struct expression_node *node, struct evaluation *run,
                                     struct value *result)
{
    const struct target *target = NULL;
    struct value input, to;
    bson_error_t *error;
    truce_status status = truce__expression_run(node->operands[CONVERT_TO], run, &to);

    if (!status)
        status = truce__expression_run(node->operands[CONVERT_INPUT], run, &input);
    if (!status && !truce__value_is_nullish(to))
        status = find_target(run, to, &target);
    if (status)
        return status;
    if (truce__value_is_nullish(input)) {
        if (node->operands[CONVERT_ON_NULL])
            return truce__expression_run(node->operands[CONVERT_ON_NULL], run, result);
        return truce__evaluation_null(result);
    }
    if (!target)
        return truce__evaluation_null(result);
    if (!node->operands[CONVERT_ON_ERROR])
        return target->convert(run, input, result);
    error = truce__evaluation_hush(run);
    status = target->convert(run, input, result);
    run->error = error;
    if (status)
        return truce__expression_run(node->operands[CONVERT_ON_ERROR], run, result);
    return TRUCE_OK;
}

static const struct expression_arguments convert_arguments = {
    CODE_FAILED_TO_PARSE,
    CODE_FAILED_TO_PARSE,
    {{"input", CODE_FAILED_TO_PARSE}, {"to", CODE_FAILED_TO_PARSE}, {"onError", 0}, {"onNull", 0}}};

/* -- $toInt and its kin: `extra` is the target ------------------------------------------------- */

static truce_status evaluate_short(const struct expression_node *node, struct evaluation *run,
                                   struct value *result)
{
    const struct target *target = node->extra;
    struct value input;
    truce_status status = truce__expression_run(node->operands[0], run, &input);

    if (status)
        return status;
    if (truce__value_is_nullish(input))
        return truce__evaluation_null(result);
    return target->convert(run, input, result);
}

static truce_status compile_short(struct expression_compiler *compiler,
                                  const struct expression_operator *operator, struct value argument,
                                  struct expression_node **node)
{
    truce_status status;

    if (argument.type == BSON_TYPE_ARRAY) {
        if (truce__array_count(argument) != 1)
            return truce__refuse(50723, compiler->error,
                                 "%s takes one operand, not %u", operator->name,
                                 truce__array_count(argument));
        argument = truce__value_field(argument, "0", 1);
    }
    *node = truce__expression_node(compiler, operator, 1);
    status = truce__expression_compile(compiler, argument, &(*node)->operands[0]);
    return status ? status : truce__expression_fold(compiler, node);
}

/* -- $type, $isNumber ------------------------------------------------------------------------- */

static truce_status apply_type(const struct expression_node *node, struct evaluation *run,
                               const struct value *operands, struct value *result)
{
    const char *name = truce__type_name(operands[0].type);

    *result = truce__value_from_text(run->arena, name, strlen(name));
    return TRUCE_OK;
}

static truce_status apply_is_number(const struct expression_node *node, struct evaluation *run,
                                    const struct value *operands, struct value *result)
{
    *result = truce__value_from_bool(truce__value_is_number(operands[0]));
    return TRUCE_OK;
}

#define SHORT(name, target)                                                                        \
    {                                                                                              \
        name, .evaluate = evaluate_short, .compile = compile_short, .extra = target                \
    }

const struct expression_operator truce__expressions_convert[] = {
    {"$convert", .evaluate = evaluate_convert, .arguments = &convert_arguments},
    SHORT("$toDouble", &targets[0]),
    SHORT("$toString", &targets[1]),
    SHORT("$toObjectId", &targets[2]),
    SHORT("$toBool", &targets[3]),
    SHORT("$toDate", &targets[4]),
    SHORT("$toInt", &targets[5]),
    SHORT("$toLong", &targets[6]),
    SHORT("$toDecimal", &targets[7]),
    {"$type", 1, 1, .apply = apply_type},
    {"$isNumber", 1, 1, .apply = apply_is_number},
    {NULL},
};
