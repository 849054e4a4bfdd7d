/*
 * Every operator with the largest operands: long strings and patterns, numbers and dates at the
 * limits of their types, deep and long values, long names. A call succeeds or returns an error with
 * a code, and never ends the program.
 *
 * Typical faults: a library, or a second use of an accepted value, fails because its code assumes
 * small operands.
 */
#include <string.h>

#include "base/budget.h"
#include "base/limits.h"
#include "query/expression/expression_tree.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define PATTERN_BYTES 16000
#define TEXT_BYTES    70000

/* ---- operands -------------------------------------------------------------------------------- */

static char pattern_text[PATTERN_BYTES + 1], long_text[TEXT_BYTES + 1], longest_pattern[32765];

static void append_text(bson_t *to, const char *key)
{
    BSON_APPEND_UTF8(to, key, long_text);
}

static void append_pattern(bson_t *to, const char *key)
{
    BSON_APPEND_UTF8(to, key, pattern_text);
}

static void append_longest(bson_t *to, const char *key)
{
    BSON_APPEND_UTF8(to, key, longest_pattern);
}

static void append_regex(bson_t *to, const char *key)
{
    BSON_APPEND_REGEX(to, key, pattern_text, "i");
}

static void append_repetitions(bson_t *to, const char *key)
{
    BSON_APPEND_REGEX(to, key, "(((c{90}){90})?d|c*)*$", "s");
}

static void append_least(bson_t *to, const char *key)
{
    BSON_APPEND_INT64(to, key, INT64_MIN);
}

static void append_most(bson_t *to, const char *key)
{
    BSON_APPEND_INT64(to, key, INT64_MAX);
}

static void append_real(bson_t *to, const char *key)
{
    BSON_APPEND_DOUBLE(to, key, -1.7976931348623157e308);
}

static void append_decimal(bson_t *to, const char *key)
{
    bson_decimal128_t decimal;

    bson_decimal128_from_string("9.999999999999999999999999999999999E+6144", &decimal);
    BSON_APPEND_DECIMAL128(to, key, &decimal);
}

static void append_first_date(bson_t *to, const char *key)
{
    BSON_APPEND_DATE_TIME(to, key, INT64_MIN);
}

static void append_last_date(bson_t *to, const char *key)
{
    BSON_APPEND_DATE_TIME(to, key, INT64_MAX);
}

static void append_timestamp(bson_t *to, const char *key)
{
    BSON_APPEND_TIMESTAMP(to, key, UINT32_MAX, UINT32_MAX);
}

static void append_bytes(bson_t *to, const char *key)
{
    BSON_APPEND_BINARY(to, key, BSON_SUBTYPE_BINARY, (const uint8_t *)long_text, TEXT_BYTES);
}

static void append_texts(bson_t *to, const char *key)
{
    bson_t array;
    char index[16];
    const char *name;

    BSON_APPEND_ARRAY_BEGIN(to, key, &array);
    for (uint32_t i = 0; i < 3000; i++) {
        bson_uint32_to_string(i, &name, index, sizeof index);
        BSON_APPEND_UTF8(&array, name, i % 3 ? "c" : "cd");
    }
    bson_append_array_end(to, &array);
}

static void append_deep(bson_t *to, const char *key)
{
    bson_t deep = BSON_INITIALIZER;

    for (int i = 0; i < 90; i++) {
        bson_t outer = BSON_INITIALIZER;

        if (i % 2)
            BSON_APPEND_ARRAY(&outer, "0", &deep);
        else
            BSON_APPEND_DOCUMENT(&outer, "0", &deep);
        bson_destroy(&deep);
        bson_steal(&deep, &outer);
    }
    BSON_APPEND_DOCUMENT(to, key, &deep);
    bson_destroy(&deep);
}

static void append_named(bson_t *to, const char *key)
{
    bson_t named;

    BSON_APPEND_DOCUMENT_BEGIN(to, key, &named);
    BSON_APPEND_INT32(&named, longest_pattern, 1);
    BSON_APPEND_INT32(&named, "$c", 1);
    bson_append_document_end(to, &named);
}

static void append_path(bson_t *to, const char *key)
{
    char path[2002] = "$";

    for (size_t i = 1; i + 1 < sizeof path; i++)
        path[i] = i % 2 ? 'a' : '.';
    BSON_APPEND_UTF8(to, key, path);
}

static void (*const operands[])(bson_t *to, const char *key) = {
    append_text,      append_pattern,   append_longest, append_regex,   append_repetitions,
    append_least,     append_most,      append_real,    append_decimal, append_first_date,
    append_last_date, append_timestamp, append_bytes,   append_texts,   append_deep,
    append_named,     append_path,
};

#define OPERANDS (sizeof operands / sizeof *operands)

static void make_texts(void)
{
    memset(pattern_text, 'c', PATTERN_BYTES);
    memset(longest_pattern, 'c', sizeof longest_pattern - 1);
    memset(long_text, 'c', TEXT_BYTES);
    long_text[TEXT_BYTES - 1] = 'd';
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct arena arena;

/* Compiles and evaluates {e: {operator: ...}}; a refusal has a code and a sentence. */
static void evaluate(const bson_t *holder, const char *name)
{
    struct budget budget;
    struct query_context context = {.arena = &arena, .budget = &budget};
    struct value whole = truce__value_document(holder), result;
    struct expression *expression = NULL;
    bson_error_t error = {0};
    truce_status status;

    truce__arena_reset(&arena);
    truce__budget_init(&budget, 0, NULL);
    status = truce__expression_new(truce__value_field(whole, "e", 1), NULL, &expression, &error);
    if (!status)
        status = truce__expression_evaluate(expression, whole, NULL, &context, &result, &error);
    if (status && (!error.code || !error.message[0]))
        test_fail(__FILE__, __LINE__, "%s is refused without a reason", name);
    truce__expression_free(expression);
}

/* Each of its operands is large, the others are another large one. */
static void try_operator(const struct expression_operator *operator, size_t one, size_t other)
{
    bson_t holder = BSON_INITIALIZER, e, list;
    uint32_t count = operator->operands_max> 3 ? 3 : operator->operands_max;

    BSON_APPEND_DOCUMENT_BEGIN(&holder, "e", &e);
    if (operator->arguments && operator->arguments->not_document) {
        BSON_APPEND_DOCUMENT_BEGIN(&e, operator->name, &list);
        for (int i = 0; i < EXPRESSION_NAMED_MAX && operator->arguments->list[i].name; i++)
            operands[i ? other : one](&list, operator->arguments->list[i].name);
        bson_append_document_end(&e, &list);
    } else if (count == 1 || operator->compile) {
        operands[one](&e, operator->name);
    } else {
        static const char *const keys[] = {"0", "1", "2"};

        BSON_APPEND_ARRAY_BEGIN(&e, operator->name, &list);
        for (uint32_t i = 0; i < count; i++)
            operands[i ? other : one](&list, keys[i]);
        bson_append_array_end(&e, &list);
    }
    bson_append_document_end(&holder, &e);
    evaluate(&holder, operator->name);
    bson_destroy(&holder);
}

TEST(expressions_take_operands_of_any_size)
{
    static const struct expression_operator *const tables[] = {
        truce__expressions_logic, truce__expressions_math,   truce__expressions_array,
        truce__expressions_loop,  truce__expressions_object, truce__expressions_string,
        truce__expressions_regex, truce__expressions_date,   truce__expressions_convert,
    };
    int operators = 0;

    make_texts();
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct expression_operator *at = tables[t]; at->name; at++, operators++)
            for (size_t one = 0; one < OPERANDS; one++)
                for (size_t other = 0; other < OPERANDS; other++)
                    if (at->operands_max != 1 || other == one)
                        try_operator(at, one, other);
    CHECK_INT(operators, >, 140);
    truce__arena_release(&arena);
}

/* ---- calls of a store ------------------------------------------------------------------------ */

static truce_store *store;
static bson_error_t error;

static void expect_reason(truce_status status, const char *what)
{
    if (status && (!error.code || !error.message[0]))
        test_fail(__FILE__, __LINE__, "%s is refused without a reason", what);
    if (status == TRUCE_CORRUPT)
        test_fail(__FILE__, __LINE__, "%s: %s", what, error.message);
    memset(&error, 0, sizeof error);
}

static void find_by(const bson_t *filter, const char *what)
{
    int64_t count;

    expect_reason(truce_count(store, "c", filter, NULL, &count, &error), what);
}

static void begin(void)
{
    bson_t document = BSON_INITIALIZER, array;

    make_texts();
    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    BSON_APPEND_INT32(&document, "_id", 1);
    append_text(&document, "f");
    BSON_APPEND_ARRAY_BEGIN(&document, "a", &array);
    append_text(&array, "0");
    append_longest(&array, "1");
    append_last_date(&array, "2");
    append_most(&array, "3");
    append_decimal(&array, "4");
    bson_append_array_end(&document, &array);
    CHECK_OK(truce_insert(store, "c", &document, NULL, &error), error);
    bson_destroy(&document);
}

TEST(filters_take_operands_of_any_size)
{
    static const char *const operators[] = {
        "$eq",           "$ne",        "$gt",        "$gte",        "$lt",         "$lte",
        "$exists",       "$type",      "$regex",     "$size",       "$mod",        "$in",
        "$nin",          "$all",       "$not",       "$bitsAllSet", "$bitsAnySet", "$bitsAllClear",
        "$bitsAnyClear", "$elemMatch", "$geoWithin", "$jsonSchema"};

    begin();
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (size_t j = 0; j < OPERANDS; j++)
            for (int form = 0; form < 5; form++) {
                bson_t filter = BSON_INITIALIZER, field, inner, list;

                BSON_APPEND_DOCUMENT_BEGIN(&filter, form == 1 ? "a" : "f", &field);
                if (form == 2) { /* in a list */
                    BSON_APPEND_ARRAY_BEGIN(&field, operators[i], &list);
                    operands[j](&list, "0");
                    operands[(j + 1) % OPERANDS](&list, "1");
                    bson_append_array_end(&field, &list);
                } else if (form >= 3) { /* within another */
                    BSON_APPEND_DOCUMENT_BEGIN(&field, form == 3 ? "$not" : "$elemMatch", &inner);
                    operands[j](&inner, operators[i]);
                    bson_append_document_end(&field, &inner);
                } else {
                    operands[j](&field, operators[i]);
                    if (!strcmp(operators[i], "$regex"))
                        BSON_APPEND_UTF8(&field, "$options", "imsx");
                }
                bson_append_document_end(&filter, &field);
                find_by(&filter, operators[i]);
                bson_destroy(&filter);
            }
    truce_store_close(store);
}

TEST(names_and_paths_of_any_length_are_taken_or_refused)
{
    static const char *const updates[] = {"$set",  "$unset", "$inc", "$push", "$rename",
                                          "$pull", "$bit",   "$min", "$mul",  "$currentDate"};
    char path[4000];

    begin();
    for (size_t length = 1; length < sizeof path; length = length * 3 + 1) {
        bson_t one = BSON_INITIALIZER, filter = BSON_INITIALIZER;
        truce_find_options options = {.projection = &one, .sort = &one};
        truce_cursor *cursor = NULL;
        const bson_t *document;
        bson_t *index;

        length |= 1; /* a name at the end */
        for (size_t i = 0; i < length; i++)
            path[i] = i % 2 ? '.' : 'a';
        path[length] = 0;
        BSON_APPEND_INT32(&one, path, 1);
        find_by(&one, "a long path");
        for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
            bson_t update = BSON_INITIALIZER;
            truce_write_result result = {0};

            BSON_APPEND_DOCUMENT(&update, updates[i], &one);
            expect_reason(truce_update(store, "c", &filter, &update, NULL, &result, &error),
                          updates[i]);
            bson_destroy(&update);
        }
        expect_reason(truce_find(store, "c", &filter, &options, &cursor, &error), "a projection");
        if (cursor)
            expect_reason(truce_cursor_next(cursor, &document, &error), "a projection");
        truce_cursor_close(cursor);
        index = BCON_NEW("key", BCON_DOCUMENT(&one));
        expect_reason(truce_index_create(store, "c", index, &error), "an index");
        bson_destroy(index);
        bson_destroy(&one);
        bson_destroy(&filter);
    }
    truce_store_close(store);
}

TEST(updates_and_stages_take_operands_of_any_size)
{
    static const char *const updates[] = {
        "$set", "$inc", "$mul", "$push",   "$addToSet",    "$pull",  "$pullAll",    "$bit",
        "$min", "$max", "$pop", "$rename", "$currentDate", "$unset", "$setOnInsert"};
    static const char *const stages[] = {
        "$match",       "$project",         "$set",         "$limit",    "$skip",   "$sort",
        "$group",       "$unwind",          "$count",       "$sample",   "$bucket", "$sortByCount",
        "$replaceWith", "$redact",          "$lookup",      "$facet",    "$unset",  "$fill",
        "$densify",     "$setWindowFields", "$graphLookup", "$documents"};

    begin();
    for (size_t j = 0; j < OPERANDS; j++) {
        for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
            bson_t update = BSON_INITIALIZER, field, filter = BSON_INITIALIZER;
            truce_write_result result = {0};

            BSON_APPEND_DOCUMENT_BEGIN(&update, updates[i], &field);
            operands[j](&field, i % 2 ? "g" : "a");
            bson_append_document_end(&update, &field);
            expect_reason(truce_update(store, "c", &filter, &update, NULL, &result, &error),
                          updates[i]);
            bson_destroy(&update);
            bson_destroy(&filter);
        }
        for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
            for (int form = 0; form < 2; form++) {
                bson_t pipeline = BSON_INITIALIZER, stage, field;
                truce_cursor *cursor = NULL;
                const bson_t *document;

                BSON_APPEND_DOCUMENT_BEGIN(&pipeline, "0", &stage);
                if (form) {
                    BSON_APPEND_DOCUMENT_BEGIN(&stage, stages[i], &field);
                    operands[j](&field, "f");
                    bson_append_document_end(&stage, &field);
                } else {
                    operands[j](&stage, stages[i]);
                }
                bson_append_document_end(&pipeline, &stage);
                expect_reason(truce_aggregate(store, "c", &pipeline, NULL, &cursor, &error),
                              stages[i]);
                if (cursor)
                    expect_reason(truce_cursor_next(cursor, &document, &error), stages[i]);
                truce_cursor_close(cursor);
                bson_destroy(&pipeline);
            }
    }
    truce_store_close(store);
}
