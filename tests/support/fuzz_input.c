#include "tests/support/fuzz_input.h"

#include <math.h>
#include <string.h>

uint8_t fuzz_byte(struct fuzz_input *input)
{
    if (!input->left)
        return 0;
    input->left--;
    return *input->at++;
}

uint32_t fuzz_below(struct fuzz_input *input, uint32_t bound)
{
    return fuzz_byte(input) % bound;
}

char *fuzz_large(struct fuzz_input *input)
{
    static const char *const pieces[] = {
        "a",  "c", "(", ")", "(a)",   "a|", "[a-z]", "\\d",      "a?", "x*",  ".",  "a.",
        "0.", "$", "9", "e", "(?:a)", " ",  "%",     "\303\251", "\n", "{9}", "%Y", "-"};
    static const size_t sizes[] = {100,   1000,  5000,  16000,
                                   32764, 32766, 65536, FUZZ_LARGE_BYTES_MAX};
    size_t room = FUZZ_PICK(input, sizes), size = 0;
    const char *start = FUZZ_PICK(input, pieces), *piece = FUZZ_PICK(input, pieces),
               *end = FUZZ_PICK(input, pieces);
    size_t tail = strlen(end);
    char *text = bson_malloc(room + 1);

    for (const char *next = start; size + strlen(next) + tail <= room; next = piece) {
        memcpy(text + size, next, strlen(next));
        size += strlen(next);
    }
    memcpy(text + size, end, tail + 1);
    return text;
}

/* One of 64 decisions is for a large operand: the others keep the fuzzer fast. */
static bool is_large(struct fuzz_input *input)
{
    return fuzz_below(input, 64) == 63;
}

static void append_large(struct fuzz_input *input, bson_t *document, const char *key)
{
    char *text = fuzz_large(input);

    switch (fuzz_below(input, 4)) {
    case 0:
        bson_append_utf8(document, key, -1, text, -1);
        break;
    case 1:
        bson_append_symbol(document, key, -1, text, -1);
        break;
    case 2:
        bson_append_binary(document, key, -1, BSON_SUBTYPE_BINARY, (const uint8_t *)text,
                           (uint32_t)strlen(text));
        break;
    default:
        bson_append_regex(document, key, -1, text, "");
    }
    bson_free(text);
}

static void append_number(struct fuzz_input *input, bson_t *document, const char *key)
{
    static const int64_t integers[] = {
        0, 1, -1, 2, 5, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, INT64_C(9007199254740993)};
    static const double doubles[] = {0.0,
                                     -0.0,
                                     1.0,
                                     0.1,
                                     1.5,
                                     5.0,
                                     1e300,
                                     9007199254740992.0,
                                     9223372036854775808.0,
                                     5e-324,
                                     INFINITY,
                                     NAN,
                                     1.7976931348623157e308,
                                     -1.7976931348623157e308};
    static const char *const decimals[] = {"0",
                                           "-0E+10",
                                           "1.00",
                                           "0.1",
                                           "1.5",
                                           "1E+6000",
                                           "9.999999999999999999999999999999999E+6144",
                                           "-1E-6176",
                                           "-1E-6000",
                                           "9223372036854775808",
                                           "Infinity",
                                           "NaN",
                                           "0.1000000000000000055511151231257827"};
    bson_decimal128_t decimal;

    switch (fuzz_below(input, 4)) {
    case 0:
        bson_append_int32(document, key, -1, (int32_t)FUZZ_PICK(input, integers));
        break;
    case 1:
        bson_append_int64(document, key, -1, FUZZ_PICK(input, integers));
        break;
    case 2:
        bson_append_double(document, key, -1, FUZZ_PICK(input, doubles));
        break;
    default:
        bson_decimal128_from_string(FUZZ_PICK(input, decimals), &decimal);
        bson_append_decimal128(document, key, -1, &decimal);
        break;
    }
}

static const char *const texts[] = {"", "a", "ab", "b", "\303\251", "int", "^a", "1", "object"};
static const char *const patterns[] = {"", "a", "^a", "b$", "(a|b)+", "a.c", ".*", "[^a]"};
static const char *const options[] = {"", "i", "m", "s", "x", "imsx"};

static void append_text(struct fuzz_input *input, bson_t *document, const char *key)
{
    const char *text = FUZZ_PICK(input, texts);

    if (is_large(input)) {
        append_large(input, document, key);
        return;
    }
    switch (fuzz_below(input, 5)) {
    case 0:
    case 1:
        bson_append_utf8(document, key, -1, text, -1);
        break;
    case 2:
        bson_append_symbol(document, key, -1, text, -1);
        break;
    case 3:
        bson_append_code(document, key, -1, text);
        break;
    default:
        bson_append_regex(document, key, -1, FUZZ_PICK(input, patterns), FUZZ_PICK(input, options));
        break;
    }
}

/* Appends a value of a type that is rare in real documents. */
static void append_rare(struct fuzz_input *input, bson_t *document, const char *key)
{
    uint8_t bytes[12] = {fuzz_byte(input), fuzz_byte(input)};
    bson_t scope = BSON_INITIALIZER;
    bson_oid_t id;

    bson_oid_init_from_data(&id, bytes);
    switch (fuzz_below(input, 8)) {
    case 0:
        bson_append_undefined(document, key, -1);
        break;
    case 1:
        bson_append_minkey(document, key, -1);
        break;
    case 2:
        bson_append_maxkey(document, key, -1);
        break;
    case 3:
        bson_append_timestamp(document, key, -1, bytes[0], bytes[1]);
        break;
    case 4:
        bson_append_dbpointer(document, key, -1, FUZZ_PICK(input, texts), &id);
        break;
    case 5:
        bson_append_int32(&scope, "x", 1, bytes[0]);
        bson_append_code_with_scope(document, key, -1, FUZZ_PICK(input, texts), &scope);
        break;
    case 6:
        bson_append_oid(document, key, -1, &id);
        break;
    default:
        bson_append_date_time(document, key, -1, (int8_t)bytes[0]);
        break;
    }
    bson_destroy(&scope);
}

static const char *const names[] = {"a", "b", "c", "0", "1", "", "x"};

/* Repeats one element, so that the input of a large array stays small. */
static void append_large_array(struct fuzz_input *input, bson_t *document, unsigned depth)
{
    static const uint32_t counts[] = {100, 1000, 5000};
    uint32_t count = FUZZ_PICK(input, counts);
    bson_t one = BSON_INITIALIZER;
    bson_iter_t element;
    char digits[16];
    const char *key;

    fuzz_append(input, &one, "0", depth);
    for (uint32_t i = 0; i < count && bson_iter_init_find(&element, &one, "0"); i++) {
        bson_uint32_to_string(i, &key, digits, sizeof digits);
        bson_append_iter(document, key, -1, &element);
    }
    bson_destroy(&one);
}

static void append_large_name(struct fuzz_input *input, bson_t *document, unsigned depth)
{
    char *name = fuzz_large(input);

    fuzz_append(input, document, name, depth);
    bson_free(name);
}

static void append_fields(struct fuzz_input *input, bson_t *document, bool is_array, unsigned depth)
{
    char digits[16];
    const char *key;
    uint32_t count = fuzz_below(input, 5);

    if (depth == 0 && is_large(input)) {
        is_array ? append_large_array(input, document, depth)
                 : append_large_name(input, document, depth);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (is_array)
            bson_uint32_to_string(i, &key, digits, sizeof digits);
        else
            key = FUZZ_PICK(input, names);
        fuzz_append(input, document, key, depth);
    }
}

static void append_container(struct fuzz_input *input, bson_t *document, const char *key,
                             unsigned depth)
{
    bson_t child = BSON_INITIALIZER;
    bool is_array = fuzz_below(input, 2);

    if (depth)
        append_fields(input, &child, is_array, depth - 1);
    if (is_array)
        bson_append_array(document, key, -1, &child);
    else
        bson_append_document(document, key, -1, &child);
    bson_destroy(&child);
}

void fuzz_append(struct fuzz_input *input, bson_t *document, const char *key, unsigned depth)
{
    uint8_t bytes[4];

    switch (fuzz_below(input, 10)) {
    case 0:
        bson_append_null(document, key, -1);
        break;
    case 1:
    case 2:
        append_number(input, document, key);
        break;
    case 3:
        append_text(input, document, key);
        break;
    case 4:
        bson_append_bool(document, key, -1, fuzz_below(input, 2));
        break;
    case 5:
        memset(bytes, fuzz_byte(input), sizeof bytes);
        bson_append_binary(document, key, -1, fuzz_below(input, 2) ? BSON_SUBTYPE_UUID : 0, bytes,
                           fuzz_below(input, 5));
        break;
    case 6:
        append_rare(input, document, key);
        break;
    default:
        append_container(input, document, key, depth);
        break;
    }
}

bson_t *fuzz_document(struct fuzz_input *input, unsigned depth)
{
    bson_t *document = bson_new();

    append_fields(input, document, false, depth);
    return document;
}

static const char *const paths[] = {"a",     "b",     "a.b", "a.0", "a.b.c", "0",
                                    "a.0.b", "a.b.0", "",    "a.",  "x"};

static void append_conditions(struct fuzz_input *input, bson_t *document, const char *key,
                              unsigned depth);

static void append_list(struct fuzz_input *input, bson_t *document, const char *key, unsigned depth)
{
    bson_t list = BSON_INITIALIZER;

    append_fields(input, &list, true, depth);
    bson_append_array(document, key, -1, &list);
    bson_destroy(&list);
}

static void append_filter(struct fuzz_input *input, bson_t *document, const char *key,
                          unsigned depth)
{
    bson_t *filter = fuzz_filter(input, depth);

    bson_append_document(document, key, -1, filter);
    bson_destroy(filter);
}

/* Appends a query operator, mostly with an operand of the expected form. "$nope" does not exist. */
static void append_operator(struct fuzz_input *input, bson_t *conditions, unsigned depth)
{
    static const char *const operators[] = {
        "$eq",   "$ne",         "$gt",           "$gte",  "$lt",        "$lte", "$exists",
        "$type", "$regex",      "$options",      "$size", "$mod",       "$in",  "$nin",
        "$all",  "$bitsAllSet", "$bitsAnyClear", "$not",  "$elemMatch", "$nope"};
    const char *name = FUZZ_PICK(input, operators);

    if (!strcmp(name, "$not"))
        append_conditions(input, conditions, name, depth);
    else if (!strcmp(name, "$elemMatch") && fuzz_below(input, 2))
        append_conditions(input, conditions, name, depth);
    else if (!strcmp(name, "$elemMatch"))
        append_filter(input, conditions, name, depth);
    else if ((!strcmp(name, "$in") || !strcmp(name, "$nin") || !strcmp(name, "$all") ||
              !strcmp(name, "$mod")) &&
             fuzz_below(input, 8))
        append_list(input, conditions, name, 1);
    else
        fuzz_append(input, conditions, name, 2);
}

static void append_conditions(struct fuzz_input *input, bson_t *document, const char *key,
                              unsigned depth)
{
    bson_t conditions = BSON_INITIALIZER;
    uint32_t count = 1 + fuzz_below(input, 2);

    for (uint32_t i = 0; i < count && depth; i++)
        append_operator(input, &conditions, depth - 1);
    bson_append_document(document, key, -1, &conditions);
    bson_destroy(&conditions);
}

static void append_filters(struct fuzz_input *input, bson_t *filter, unsigned depth)
{
    static const char *const clauses[] = {"$and", "$or", "$nor"};
    bson_t list = BSON_INITIALIZER;

    append_filter(input, &list, "0", depth);
    if (fuzz_below(input, 2))
        append_filter(input, &list, "1", depth);
    bson_append_array(filter, FUZZ_PICK(input, clauses), -1, &list);
    bson_destroy(&list);
}

static void append_schema(struct fuzz_input *input, bson_t *document, const char *key,
                          unsigned depth)
{
    static const char *const keywords[] = {
        "type",     "bsonType",     "required",    "minimum",    "maxLength",
        "minItems", "enum",         "uniqueItems", "multipleOf", "pattern",
        "title",    "dependencies", "not",         "items",      "additionalProperties"};
    bson_t schema = BSON_INITIALIZER, properties = BSON_INITIALIZER;
    const char *keyword = FUZZ_PICK(input, keywords);

    if (depth && fuzz_below(input, 2)) {
        append_schema(input, &properties, FUZZ_PICK(input, names), depth - 1);
        bson_append_document(&schema, "properties", -1, &properties);
    } else if (depth && (!strcmp(keyword, "not") || !strcmp(keyword, "items"))) {
        append_schema(input, &schema, keyword, depth - 1);
    } else {
        fuzz_append(input, &schema, keyword, 2);
    }
    bson_append_document(document, key, -1, &schema);
    bson_destroy(&properties);
    bson_destroy(&schema);
}

/* Appends one clause of a filter: a value, conditions on a path, a combination of filters, or a
 * schema. */
static void append_clause(struct fuzz_input *input, bson_t *filter, unsigned depth)
{
    if (is_large(input)) {
        char *path = fuzz_large(input);

        append_conditions(input, filter, path, depth);
        bson_free(path);
        return;
    }
    switch (fuzz_below(input, 8)) {
    case 0:
    case 1:
        fuzz_append(input, filter, FUZZ_PICK(input, paths), 2);
        break;
    case 2:
        append_filters(input, filter, depth);
        break;
    case 3:
        append_schema(input, filter, "$jsonSchema", depth);
        break;
    default:
        append_conditions(input, filter, FUZZ_PICK(input, paths), depth);
        break;
    }
}

bson_t *fuzz_filter(struct fuzz_input *input, unsigned depth)
{
    bson_t *filter = bson_new();
    uint32_t count = 1 + fuzz_below(input, 2);

    for (uint32_t i = 0; i < count && depth; i++)
        append_clause(input, filter, depth - 1);
    return filter;
}
