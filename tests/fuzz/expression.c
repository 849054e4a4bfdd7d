/*
 * Expressions grown from the input: every operator over literals of every type, paths, variables,
 * and other expressions, with operands by position or by name, right and wrong. An expression that
 * compiles is evaluated twice, with the same answer. A result must be well-formed BSON, an error
 * must have a code and a message, and the arena must not grow beyond its bound. Some operands have
 * the maximum size.
 */
#include "query/expression/expression.h"
#include "base/assert.h"
#include "base/limits.h"
#include "base/random.h"
#include "tests/support/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEPTH_MAX 6
#define SLACK     ((size_t)64 * 1024)
/* ends an evaluation that has large operands in loops; the same number of steps ends at the same
 * place */
#define STEPS_MAX 2000000

static const char *const operators[] = {
    "$abs",
    "$acos",
    "$acosh",
    "$add",
    "$allElementsTrue",
    "$and",
    "$anyElementTrue",
    "$arrayElemAt",
    "$arrayToObject",
    "$asin",
    "$asinh",
    "$atan",
    "$atan2",
    "$atanh",
    "$avg",
    "$binarySize",
    "$bitAnd",
    "$bitNot",
    "$bitOr",
    "$bitXor",
    "$bsonSize",
    "$ceil",
    "$cmp",
    "$concat",
    "$concatArrays",
    "$cond",
    "$convert",
    "$cos",
    "$cosh",
    "$dateAdd",
    "$dateDiff",
    "$dateFromParts",
    "$dateFromString",
    "$dateSubtract",
    "$dateToParts",
    "$dateToString",
    "$dateTrunc",
    "$dayOfMonth",
    "$dayOfWeek",
    "$dayOfYear",
    "$degreesToRadians",
    "$divide",
    "$eq",
    "$exp",
    "$filter",
    "$first",
    "$firstN",
    "$floor",
    "$getField",
    "$gt",
    "$gte",
    "$hour",
    "$ifNull",
    "$in",
    "$indexOfArray",
    "$indexOfBytes",
    "$indexOfCP",
    "$isArray",
    "$isNumber",
    "$isoDayOfWeek",
    "$isoWeek",
    "$isoWeekYear",
    "$last",
    "$lastN",
    "$let",
    "$literal",
    "$ln",
    "$log",
    "$log10",
    "$lt",
    "$lte",
    "$ltrim",
    "$map",
    "$max",
    "$maxN",
    "$mergeObjects",
    "$meta",
    "$min",
    "$minN",
    "$millisecond",
    "$minute",
    "$mod",
    "$month",
    "$multiply",
    "$ne",
    "$not",
    "$nothing",
    "$objectToArray",
    "$or",
    "$pow",
    "$radiansToDegrees",
    "$range",
    "$reduce",
    "$regexFind",
    "$regexFindAll",
    "$regexMatch",
    "$replaceAll",
    "$replaceOne",
    "$reverseArray",
    "$round",
    "$rtrim",
    "$second",
    "$setDifference",
    "$setEquals",
    "$setField",
    "$setIntersection",
    "$setIsSubset",
    "$setUnion",
    "$sin",
    "$sinh",
    "$size",
    "$slice",
    "$sortArray",
    "$split",
    "$sqrt",
    "$stdDevPop",
    "$stdDevSamp",
    "$strLenBytes",
    "$strLenCP",
    "$strcasecmp",
    "$substr",
    "$substrBytes",
    "$substrCP",
    "$subtract",
    "$sum",
    "$switch",
    "$tan",
    "$tanh",
    "$toBool",
    "$toDate",
    "$toDecimal",
    "$toDouble",
    "$toInt",
    "$toLong",
    "$toLower",
    "$toObjectId",
    "$toString",
    "$toUpper",
    "$trim",
    "$trunc",
    "$tsIncrement",
    "$tsSecond",
    "$type",
    "$unsetField",
    "$week",
    "$year",
    "$zip",
    "$function",
};

static const char *const texts[] = {
    "",
    "a",
    "ab",
    "$a",
    "$b",
    "$c",
    "$a.b",
    "$a.0.b",
    "$d",
    "$s",
    "$$ROOT",
    "$$CURRENT.a",
    "$$NOW",
    "$$REMOVE",
    "$$this",
    "$$value",
    "$$x",
    "$$x.a",
    "$$nothing",
    "$",
    "$$",
    "$a..b",
    "$.",
    "\xc3\xa9\xf0\x9f\x98\x80 a",
    "2020-02-29T12:34:56.789Z",
    "Feb 29 2020 1 pm",
    "2020-W09-6",
    "Europe/Berlin",
    "+05:30",
    "%Y-%m-%dT%H:%M:%S.%L%z",
    "%d %b %j %U %V %G %u %Z",
    "%",
    "%Q",
    "day",
    "month",
    "week",
    "hour",
    "quarter",
    "monday",
    "(a)|(b)?",
    "a*",
    "(",
    "^.$",
    "im",
    "int",
    "string",
    "objectId",
    "000000000000000000000001",
    "1e3",
    "-12",
    "NaN",
    " x ",
};

static const char *const names[] = {
    "input",
    "in",
    "as",
    "cond",
    "limit",
    "initialValue",
    "vars",
    "x",
    "a",
    "b",
    "if",
    "then",
    "else",
    "branches",
    "case",
    "default",
    "inputs",
    "defaults",
    "useLongestLength",
    "date",
    "timezone",
    "format",
    "onNull",
    "onError",
    "dateString",
    "year",
    "month",
    "day",
    "hour",
    "isoWeekYear",
    "isoWeek",
    "second",
    "iso8601",
    "startDate",
    "endDate",
    "unit",
    "amount",
    "binSize",
    "startOfWeek",
    "to",
    "regex",
    "options",
    "chars",
    "find",
    "replacement",
    "field",
    "value",
    "n",
    "sortBy",
    "k",
    "v",
    "",
    "$x",
    "a.b",
};

/* arguments that belong together, so that more than chance compiles */
static const struct {
    const char *name;
    const char *arguments[6];
} named[] = {
    {"$map", {"input", "in"}},
    {"$filter", {"input", "cond"}},
    {"$reduce", {"input", "initialValue", "in"}},
    {"$dateToString", {"date", "format", "timezone", "onNull"}},
    {"$dateFromString", {"dateString", "format", "timezone", "onError"}},
    {"$dateToParts", {"date", "timezone", "iso8601"}},
    {"$dateFromParts", {"year", "month", "day", "hour", "timezone"}},
    {"$dateAdd", {"startDate", "unit", "amount", "timezone"}},
    {"$dateSubtract", {"startDate", "unit", "amount"}},
    {"$dateDiff", {"startDate", "endDate", "unit", "timezone", "startOfWeek"}},
    {"$dateTrunc", {"date", "unit", "binSize", "timezone", "startOfWeek"}},
    {"$convert", {"input", "to", "onError", "onNull"}},
    {"$regexMatch", {"input", "regex", "options"}},
    {"$regexFind", {"input", "regex"}},
    {"$regexFindAll", {"input", "regex"}},
    {"$trim", {"input", "chars"}},
    {"$ltrim", {"input"}},
    {"$replaceOne", {"input", "find", "replacement"}},
    {"$replaceAll", {"input", "find", "replacement"}},
    {"$getField", {"field", "input"}},
    {"$setField", {"field", "input", "value"}},
    {"$unsetField", {"field", "input"}},
    {"$firstN", {"n", "input"}},
    {"$lastN", {"n", "input"}},
    {"$minN", {"n", "input"}},
    {"$maxN", {"n", "input"}},
    {"$sortArray", {"input", "sortBy"}},
    {"$zip", {"inputs", "useLongestLength"}},
    {"$let", {"vars", "in"}},
    {"$cond", {"if", "then", "else"}},
    {"$switch", {"branches", "default"}},
    {"$year", {"date", "timezone"}},
};

static void grow(struct fuzz_input *input, bson_t *into, const char *key, int depth, bool literal);

static void grow_number(struct fuzz_input *input, bson_t *into, const char *key)
{
    static const double doubles[] = {0.0,
                                     -0.0,
                                     1.0,
                                     2.5,
                                     -1.5,
                                     1e300,
                                     5e-324,
                                     16.0,
                                     1e15,
                                     1.7976931348623157e308,
                                     -1.7976931348623157e308};
    static const char *const decimals[] = {
        "0",   "-0.00",    "1.50",      "1E+6000", "-7",
        "NaN", "Infinity", "-Infinity", "1E-6176", "9.999999999999999999999999999999999E+6144"};
    static const int64_t longs[] = {0, 1, -1, 3, INT64_C(1) << 40, INT64_MAX, INT64_MIN, 20, 64};
    bson_decimal128_t decimal;

    switch (fuzz_below(input, 4)) {
    case 0:
        bson_append_int32(into, key, -1, (int32_t)fuzz_below(input, 40) - 8);
        break;
    case 1:
        bson_append_int64(into, key, -1, FUZZ_PICK(input, longs));
        break;
    case 2:
        bson_append_double(into, key, -1, FUZZ_PICK(input, doubles));
        break;
    default:
        bson_decimal128_from_string(FUZZ_PICK(input, decimals), &decimal);
        bson_append_decimal128(into, key, -1, &decimal);
    }
}

/* Appends a string, a regular expression, or the name of a field or variable of maximum size. */
static void grow_large(struct fuzz_input *input, bson_t *into, const char *key, bool literal)
{
    static const char *const prefixes[] = {"", "", "$", "$$x."};
    unsigned kind = fuzz_below(input, 5);
    char *text = fuzz_large(input);
    char *whole = bson_strdup_printf("%s%s", kind < 4 && !literal ? prefixes[kind] : "", text);

    if (kind == 4)
        bson_append_regex(into, key, -1, whole, "");
    else
        bson_append_utf8(into, key, -1, whole, -1);
    bson_free(whole);
    bson_free(text);
}

static void grow_scalar(struct fuzz_input *input, bson_t *into, const char *key, bool literal)
{
    static const int64_t dates[] = {0, -1, 1582979696789, INT64_MAX, INT64_MIN, 253402300799999};
    const char *text = FUZZ_PICK(input, texts);
    bson_oid_t oid = {{0x5e, 0x5a, 0x60, 0x70, 1, 2, 3, 4, 5, 6, 7, 8}};

    switch (fuzz_below(input, 14)) {
    case 11:
        if (fuzz_below(input, 8) == 7) {
            grow_large(input, into, key, literal);
            break;
        }
        bson_append_utf8(into, key, -1, literal && *text == '$' ? text + 1 : text, -1);
        break;
    case 0:
        bson_append_bool(into, key, -1, fuzz_below(input, 2));
        break;
    case 1:
        bson_append_null(into, key, -1);
        break;
    case 2:
        bson_append_date_time(into, key, -1, FUZZ_PICK(input, dates));
        break;
    case 3:
        bson_append_timestamp(into, key, -1, 1582979696u + fuzz_below(input, 3),
                              fuzz_below(input, 9));
        break;
    case 4:
        bson_append_oid(into, key, -1, &oid);
        break;
    case 5:
        bson_append_regex(into, key, -1, "(a)|b", fuzz_below(input, 2) ? "i" : "");
        break;
    case 6:
        bson_append_binary(into, key, -1, BSON_SUBTYPE_BINARY, oid.bytes, fuzz_below(input, 12));
        break;
    case 7:
        bson_append_minkey(into, key, -1);
        break;
    case 8:
        bson_append_undefined(into, key, -1);
        break;
    case 9:
    case 10:
        grow_number(input, into, key);
        break;
    default:
        if (literal && *text == '$')
            text++;
        bson_append_utf8(into, key, -1, text, -1);
    }
}

/* Repeats one element, so that the input of a large array stays small. */
static void grow_large_array(struct fuzz_input *input, bson_t *into, const char *key, int depth,
                             bool literal)
{
    static const uint32_t counts[] = {100, 1000, 5000};
    uint32_t count = FUZZ_PICK(input, counts);
    bson_t one = BSON_INITIALIZER, array;
    bson_iter_t element;
    char index[12];

    grow(input, &one, "0", depth + 1, literal);
    bson_append_array_begin(into, key, -1, &array);
    for (uint32_t i = 0; i < count && bson_iter_init_find(&element, &one, "0"); i++) {
        snprintf(index, sizeof index, "%u", i);
        bson_append_iter(&array, index, -1, &element);
    }
    bson_append_array_end(into, &array);
    bson_destroy(&one);
}

static void grow_array(struct fuzz_input *input, bson_t *into, const char *key, int depth,
                       bool literal)
{
    unsigned count = fuzz_below(input, 5);
    bson_t array;
    char index[12];

    bson_append_array_begin(into, key, -1, &array);
    for (unsigned i = 0; i < count; i++) {
        snprintf(index, sizeof index, "%u", i);
        grow(input, &array, index, depth + 1, literal);
    }
    bson_append_array_end(into, &array);
}

static void grow_document(struct fuzz_input *input, bson_t *into, const char *key, int depth,
                          bool literal)
{
    unsigned count = fuzz_below(input, 4);
    bson_t document;

    bson_append_document_begin(into, key, -1, &document);
    for (unsigned i = 0; i < count; i++) {
        const char *name = FUZZ_PICK(input, names);
        grow(input, &document, name, depth + 1, literal);
    }
    bson_append_document_end(into, &document);
}

/* The branches of a $switch. */
static void grow_branches(struct fuzz_input *input, bson_t *into, int depth)
{
    unsigned count = fuzz_below(input, 5);
    bson_t array, branch;
    char index[12];

    bson_append_array_begin(into, "branches", -1, &array);
    for (unsigned i = 0; i < count; i++) {
        snprintf(index, sizeof index, "%u", i);
        bson_append_document_begin(&array, index, -1, &branch);
        grow(input, &branch, "case", depth + 1, false);
        grow(input, &branch, "then", depth + 1, false);
        bson_append_document_end(&array, &branch);
    }
    bson_append_array_end(into, &array);
}

static void grow_argument(struct fuzz_input *input, bson_t *into, const char *name, int depth)
{
    if (!strcmp(name, "inputs"))
        grow_array(input, into, name, depth + 1, false);
    else if (!strcmp(name, "branches"))
        grow_branches(input, into, depth + 1);
    else if (!strcmp(name, "useLongestLength"))
        bson_append_bool(into, name, -1, fuzz_below(input, 2));
    else
        grow(input, into, name, depth + 1, false);
}

/* An operator with named arguments, some of which are missing or given twice. */
static void grow_named(struct fuzz_input *input, bson_t *into, int depth)
{
    unsigned chosen = fuzz_below(input, sizeof named / sizeof *named);
    bson_t arguments;

    bson_append_document_begin(into, named[chosen].name, -1, &arguments);
    for (int i = 0; i < 6 && named[chosen].arguments[i]; i++) {
        unsigned luck = fuzz_below(input, 16);

        for (unsigned times = luck == 15 ? 0 : luck == 14 ? 2 : 1; times > 0; times--)
            grow_argument(input, &arguments, named[chosen].arguments[i], depth);
    }
    bson_append_document_end(into, &arguments);
}

static void grow_operator(struct fuzz_input *input, bson_t *into, const char *key, int depth)
{
    const char *name = FUZZ_PICK(input, operators);
    bson_t operator;

    bson_append_document_begin(into, key, -1, &operator);
    if (fuzz_below(input, 3) == 0)
        grow_named(input, &operator, depth);
    else if (fuzz_below(input, 4) == 0)
        grow(input, &operator, name, depth + 1, false);
    else
        grow_array(input, &operator, name, depth, false);
    bson_append_document_end(into, &operator);
}

static void grow(struct fuzz_input *input, bson_t *into, const char *key, int depth, bool literal)
{
    unsigned kind = fuzz_below(input, 8);

    if (depth >= DEPTH_MAX || !input->left || kind < 3)
        grow_scalar(input, into, key, literal);
    else if (kind == 3 && depth == DEPTH_MAX - 1 && fuzz_below(input, 16) == 15)
        grow_large_array(input, into, key, depth, literal);
    else if (kind == 3)
        grow_array(input, into, key, depth, literal);
    else if (kind == 4 || literal)
        grow_document(input, into, key, depth, literal);
    else
        grow_operator(input, into, key, depth);
}

/* -- checks ----------------------------------------------------------------------------------- */

static void check_error(truce_status status, const bson_error_t *error)
{
    truce_assert(status == TRUCE_INVALID || status == TRUCE_LIMIT || status == TRUCE_TIMEOUT);
    truce_assert(error->code && error->message[0]);
}

/* The caller refuses a result that is too deep or too large, in a document of its own. */
static void check_result(struct value result)
{
    bson_t document = BSON_INITIALIZER;
    bson_error_t error = {0};
    truce_status status;

    if (result.size < TRUCE_DOCUMENT_BYTES_MAX - 100) {
        truce__value_append(&document, "r", 1, result);
        status = truce__document_check(&document, "result", &error);
        truce_assert(!status || strstr(error.message, "nested"));
    }
    bson_destroy(&document);
}

static truce_status evaluate(const struct expression *expression, const bson_t *document,
                             struct arena *arena, struct value *result, bson_error_t *error)
{
    static const char inner[] = "\x02\0\0\0x";
    struct value x = {(const uint8_t *)inner, 6, BSON_TYPE_UTF8};
    static const int always = 1;
    struct budget budget = {.left = STEPS_MAX, .interrupted = &always};
    struct random random;
    struct query_context context = {
        .now_ms = 1700000000123, .random = &random, .arena = arena, .budget = &budget};
    truce_status status;

    truce__random_seed(&random, 1);
    status = truce__expression_evaluate(expression, truce__value_document(document), &x, &context,
                                        result, error);
    truce_assert(arena->bytes <= TRUCE_STAGE_MEMORY_MAX + SLACK);
    return status;
}

static void evaluate_twice(const struct expression *expression, const bson_t *document)
{
    struct arena arenas[2] = {ARENA_INIT, ARENA_INIT};
    struct value results[2];
    bson_error_t errors[2] = {{0}, {0}};
    truce_status statuses[2];

    for (int i = 0; i < 2; i++)
        statuses[i] = evaluate(expression, document, &arenas[i], &results[i], &errors[i]);
    truce_assert(statuses[0] == statuses[1]);
    if (statuses[0]) {
        check_error(statuses[0], &errors[0]);
    } else {
        truce_assert(truce__value_identical(results[0], results[1]));
        check_result(results[0]);
    }
    truce__arena_release(&arenas[0]);
    truce__arena_release(&arenas[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const variables[] = {"x", NULL};
    struct fuzz_input input = {data, size};
    bson_t source = BSON_INITIALIZER, document = BSON_INITIALIZER;
    struct expression *expression = NULL;
    bson_error_t error = {0};
    truce_status status;

    grow(&input, &document, "a", 2, true);
    grow(&input, &document, "b", 2, true);
    grow(&input, &document, "c", 2, true);
    bson_append_date_time(&document, "d", -1, 1582979696789);
    bson_append_utf8(&document, "s", -1, "abc", -1);
    grow(&input, &source, "e", 0, false);
    status = truce__expression_new(truce__value_field(truce__value_document(&source), "e", 1),
                                   variables, &expression, &error);
    if (status)
        check_error(status, &error);
    else
        evaluate_twice(expression, &document);
    truce__expression_free(expression);
    bson_destroy(&document);
    bson_destroy(&source);
    return 0;
}
