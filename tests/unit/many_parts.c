/*
 * Filters, projections and expressions of many parts. The tests count steps of the budget, which do
 * not depend on a clock: twice the parts take about twice the steps.
 */
#include "base/random.h"
#include "bson/field_path.h"
#include "query/expression/expression.h"
#include "query/match/match.h"
#include "query/project/added_fields.h"
#include "query/project/project.h"
#include "query/update/update.h"
#include "tests/support/steps.h"
#include "tests/support/test.h"

#include <math.h>

#define WIDE 4000

/* {_id: 1, f0: 0, f1: 1, ...}; `same`: all have this value, -1: their number */
static bson_t *wide(int count, int same)
{
    bson_t *document = bson_new();
    char key[16];

    BSON_APPEND_INT32(document, "_id", 1);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "f%d", i);
        BSON_APPEND_INT32(document, key, same < 0 ? i : same);
    }
    return document;
}

/* {<prefix>0: "$f0", ...} */
static bson_t *paths(const char *prefix, int count)
{
    bson_t *document = bson_new();
    char key[16], path[16];

    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%s%d", prefix, i);
        snprintf(path, sizeof path, "$f%d", i);
        BSON_APPEND_UTF8(document, key, path);
    }
    return document;
}

static bool matches(const bson_t *filter, const bson_t *document, struct work *work)
{
    struct match *match = NULL;
    struct match_result result = {0};
    bson_error_t error;

    CHECK_OK(truce__match_new(filter, &match, &error), error);
    CHECK_OK(
        truce__match_test(match, truce__value_document(document), &work->context, &result, &error),
        error);
    truce__match_free(match);
    return result.matched;
}

static bool match_ends(bool matched, bson_t *filter, bson_t *document)
{
    bson_destroy(filter);
    bson_destroy(document);
    return matched;
}

/* ---- filters -------------------------------------------------------------------------------- */

static uint64_t filter_of_fields(int count)
{
    bson_t *document = wide(count, -1), *filter = wide(count, -1);
    struct work work;

    begin(&work);
    CHECK(match_ends(matches(filter, document, &work), filter, document));
    return end(&work);
}

/* {$or: [{k: 1}, ...]}, with another field next to each if `beside` is set */
static bson_t *any_of(const char *path, int count, const char *beside)
{
    bson_t *filter = bson_new(), any;
    char key[16];

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    for (int i = 0; i < count; i++) {
        bson_t branch;

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&any, key, &branch);
        BSON_APPEND_INT32(&branch, path, 3 * i);
        if (beside)
            BSON_APPEND_INT32(&branch, beside, i);
        bson_append_document_end(&any, &branch);
    }
    bson_append_array_end(filter, &any);
    return filter;
}

static uint64_t filter_of_branches(int count, const char *beside)
{
    bson_t *filter = any_of("k", count, beside);
    bson_t *other = test_bson("{'k': [4, {'x': 1}, 'y'], 'n': 2}");
    bson_t *one = test_bson("{'k': [4, {'x': 1}, 6], 'n': 2}");
    struct work work;

    begin(&work);
    CHECK(!matches(filter, other, &work));
    CHECK(match_ends(matches(filter, one, &work), filter, one));
    bson_destroy(other);
    return end(&work);
}

/* each branch on a field of its own, in one large document */
static uint64_t filter_of_wide_branches(int count)
{
    bson_t *filter = bson_new(), any, *document = wide(count, -1);
    char key[16];
    struct work work;

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    for (int i = 0; i < count; i++) {
        bson_t branch;

        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&any, key, &branch);
        snprintf(key, sizeof key, "f%d", i);
        BSON_APPEND_INT32(&branch, key, -1);
        bson_append_document_end(&any, &branch);
    }
    bson_append_array_end(filter, &any);
    begin(&work);
    CHECK(!match_ends(matches(filter, document, &work), filter, document));
    return end(&work);
}

static uint64_t filter_of_all(int count)
{
    bson_t *filter = bson_new(), *document = bson_new(), list, inner;
    char key[16];
    struct work work;

    BSON_APPEND_ARRAY_BEGIN(document, "a", &list);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT32(&list, key, i);
    }
    bson_append_array_end(document, &list);
    BSON_APPEND_DOCUMENT_BEGIN(filter, "a", &inner);
    BSON_APPEND_ARRAY_BEGIN(&inner, "$all", &list);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT32(&list, key, count - 1 - i);
    }
    bson_append_array_end(&inner, &list);
    bson_append_document_end(filter, &inner);
    begin(&work);
    CHECK(match_ends(matches(filter, document, &work), filter, document));
    return end(&work);
}

TEST(a_filter_of_many_fields_takes_a_few_steps_for_each)
{
    uint64_t steps = filter_of_fields(WIDE);

    CHECK_INT((intmax_t)steps, <=, 8 * WIDE);
    CHECK_INT((intmax_t)filter_of_fields(2 * WIDE), <=, 3 * (intmax_t)steps);
}

TEST(an_or_of_many_equalities_searches_each_element_once)
{
    CHECK_INT((intmax_t)filter_of_branches(WIDE, NULL), <=, 60);
    CHECK_INT((intmax_t)filter_of_branches(2 * WIDE, NULL), <=, 60);
    CHECK_INT((intmax_t)filter_of_branches(WIDE, "n"), <=, 60);
    CHECK_INT((intmax_t)filter_of_wide_branches(WIDE), <=, 8 * WIDE);
    CHECK_INT((intmax_t)filter_of_wide_branches(2 * WIDE), <=, 16 * WIDE);
}

TEST(looking_through_a_large_document_counts)
{
    bson_t *document = wide(WIDE, -1), *filter = test_bson("{'f3999': 3999}");
    struct work work;

    begin(&work);
    CHECK(match_ends(matches(filter, document, &work), filter, document));
    CHECK_INT((intmax_t)end(&work), >=, 40);
}

TEST(all_of_many_values_wants_each)
{
    for (int missing = 0; missing < 20; missing += 19) {
        bson_t *filter = bson_new(), *document = bson_new(), list, inner;
        char key[16];
        struct work work;

        BSON_APPEND_ARRAY_BEGIN(document, "a", &list);
        for (int i = 0; i < 20; i++) {
            snprintf(key, sizeof key, "%d", i);
            BSON_APPEND_INT32(&list, key, i == missing ? 100 : i);
        }
        bson_append_array_end(document, &list);
        BSON_APPEND_DOCUMENT_BEGIN(filter, "a", &inner);
        BSON_APPEND_ARRAY_BEGIN(&inner, "$all", &list);
        for (int i = 0; i < 20; i++) {
            snprintf(key, sizeof key, "%d", i);
            BSON_APPEND_INT32(&list, key, i);
        }
        bson_append_array_end(&inner, &list);
        bson_append_document_end(filter, &inner);
        begin(&work);
        CHECK(!match_ends(matches(filter, document, &work), filter, document));
        end(&work);
    }
}

TEST(all_of_many_values_searches_each_element_once)
{
    CHECK_INT((intmax_t)filter_of_all(WIDE), <=, 8 * WIDE);
    CHECK_INT((intmax_t)filter_of_all(2 * WIDE), <=, 16 * WIDE);
}

static uint64_t schema_of(int count)
{
    bson_t *filter = bson_new(), schema, list, *document = wide(count, -1);
    char key[16], name[16];
    struct work work;

    BSON_APPEND_DOCUMENT_BEGIN(filter, "$jsonSchema", &schema);
    BSON_APPEND_ARRAY_BEGIN(&schema, "required", &list);
    for (int i = 0; i < count; i++) {
        snprintf(key, sizeof key, "%d", i);
        snprintf(name, sizeof name, "f%d", i);
        BSON_APPEND_UTF8(&list, key, name);
    }
    bson_append_array_end(&schema, &list);
    BSON_APPEND_DOCUMENT_BEGIN(&schema, "properties", &list);
    for (int i = 0; i < count; i++) {
        bson_t one;

        snprintf(name, sizeof name, "f%d", count - 1 - i);
        BSON_APPEND_DOCUMENT_BEGIN(&list, name, &one);
        BSON_APPEND_INT32(&one, "minimum", count - 1 - i);
        bson_append_document_end(&list, &one);
    }
    bson_append_document_end(&schema, &list);
    bson_append_document_end(filter, &schema);
    begin(&work);
    CHECK(match_ends(matches(filter, document, &work), filter, document));
    return end(&work);
}

TEST(a_schema_of_many_properties_takes_a_few_steps_for_each)
{
    CHECK_INT((intmax_t)schema_of(WIDE), <=, 8 * WIDE);
    CHECK_INT((intmax_t)schema_of(2 * WIDE), <=, 16 * WIDE);
}

TEST(each_property_of_a_schema_is_looked_at)
{
    bson_t *filter = test_bson("{'$jsonSchema': {'properties': {'c': {'minimum': 3}, 'a': "
                               "{'minimum': 1}, 'b': {'minimum': 2}}}}");
    static const struct {
        const char *document;
        bool matches;
    } cases[] = {{"{'a': 1, 'b': 2, 'c': 3}", true},
                 {"{'a': 0, 'b': 2, 'c': 3}", false},
                 {"{'a': 1, 'b': 1, 'c': 3}", false},
                 {"{'a': 1, 'b': 2, 'c': 2}", false},
                 {"{'aa': 0, 'd': 0, '': 0}", true}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t *document = test_bson(cases[i].document);
        struct work work;

        begin(&work);
        CHECK_INT(matches(filter, document, &work), ==, cases[i].matches);
        end(&work);
        bson_destroy(document);
    }
    bson_destroy(filter);
}

/* Long filters against the same conditions one by one, positions included. */
static bool one_by_one(const bson_t *list, const bson_t *document, bool any)
{
    struct fields fields = truce__fields(truce__value_document(list));
    bool found = !any;

    while (truce__fields_next(&fields)) {
        struct work work;
        bson_t branch;

        begin(&work);
        truce__value_bson(fields.value, &branch);
        if (matches(&branch, document, &work) == any)
            found = any;
        end(&work);
    }
    return found;
}

static void append_random(bson_t *to, const char *key, struct random *random, int depth)
{
    bson_t inner;

    switch (truce__random_below(random, depth ? 9 : 7)) {
    case 0:
        BSON_APPEND_NULL(to, key);
        return;
    case 1:
        BSON_APPEND_DOUBLE(to, key, truce__random_below(random, 3) ? 4 : (double)NAN);
        return;
    case 2:
        BSON_APPEND_UTF8(to, key, truce__random_below(random, 2) ? "x" : "");
        return;
    case 3:
        BSON_APPEND_INT64(to, key, (int64_t)truce__random_below(random, 40));
        return;
    case 7:
        BSON_APPEND_ARRAY_BEGIN(to, key, &inner);
        for (int i = 0, count = (int)truce__random_below(random, 4); i < count; i++)
            append_random(&inner, (const char *[]){"0", "1", "2", "3"}[i], random, depth - 1);
        bson_append_array_end(to, &inner);
        return;
    case 8:
        BSON_APPEND_DOCUMENT_BEGIN(to, key, &inner);
        append_random(&inner, truce__random_below(random, 2) ? "b" : "1", random, depth - 1);
        bson_append_document_end(to, &inner);
        return;
    default:
        BSON_APPEND_INT32(to, key, (int32_t)truce__random_below(random, 40));
        return;
    }
}

static void append_branch(bson_t *list, int number, struct random *random)
{
    static const char *const names[] = {"a", "a", "a", "a.b", "a.1", "a.1.b", "c"};
    const char *name = names[truce__random_below(random, 7)];
    bson_t branch, range;
    char key[16];

    snprintf(key, sizeof key, "%d", number);
    BSON_APPEND_DOCUMENT_BEGIN(list, key, &branch);
    if (!truce__random_below(random, 12)) {
        BSON_APPEND_DOCUMENT_BEGIN(&branch, name, &range);
        BSON_APPEND_INT32(&range, "$gt", (int32_t)truce__random_below(random, 60));
        bson_append_document_end(&branch, &range);
    } else {
        append_random(&branch, name, random, 2);
    }
    if (!truce__random_below(random, 4))
        append_random(&branch, "d", random, 0);
    bson_append_document_end(list, &branch);
}

TEST(equals_the_result_of_single_equalities)
{
    struct random random;
    uint64_t seed = test_seed();

    truce__random_seed(&random, seed);
    for (int i = 0; i < 3000; i++) {
        bson_t list = BSON_INITIALIZER, document = BSON_INITIALIZER, clause = BSON_INITIALIZER;
        bool any = truce__random_below(&random, 4);
        int count = any ? 20 + (int)truce__random_below(&random, 60) : 20;
        struct work work;

        append_random(&document, "a", &random, 3);
        if (truce__random_below(&random, 2))
            append_random(&document, "c", &random, 1);
        append_random(&document, "d", &random, 0);
        for (int j = 0; j < count; j++) {
            bson_t same;

            if (any) {
                append_branch(&list, j, &random);
                continue;
            }
            /* random values seldom match all parts, but null matches a missing field */
            BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &same);
            if (truce__random_below(&random, 60))
                BSON_APPEND_NULL(&same, "e");
            else
                append_random(&same, "a", &random, 0);
            bson_append_document_end(&list, &same);
        }
        BSON_APPEND_ARRAY(&clause, any ? "$or" : "$and", &list);
        begin(&work);
        if (matches(&clause, &document, &work) != one_by_one(&list, &document, any)) {
            char *text = bson_as_canonical_extended_json(&clause, NULL),
                 *other = bson_as_canonical_extended_json(&document, NULL);
            test_fail(__FILE__, __LINE__, "%s and %s", text, other);
            bson_free(text);
            bson_free(other);
        }
        end(&work);
        bson_destroy(&list);
        bson_destroy(&document);
        bson_destroy(&clause);
    }
}

static int64_t position(const char *filter_json, const char *document_json)
{
    bson_t *filter = test_bson(filter_json), *document = test_bson(document_json);
    struct match *match = NULL;
    struct match_result result = {.array_index = -2};
    bson_error_t error;

    CHECK_OK(truce__match_new(filter, &match, &error), error);
    CHECK_OK(truce__match_test(match, truce__value_document(document), NULL, &result, &error),
             error);
    truce__match_free(match);
    bson_destroy(filter);
    bson_destroy(document);
    return result.matched ? result.array_index : -2;
}

TEST(returns_the_position_of_the_last_condition)
{
    static const char numbers[] =
        "{'a': [9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17]}";

    CHECK_INT((intmax_t)position("{'a': {'$all': [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,"
                                 "15, 17, 16]}}",
                                 numbers),
              ==, 16);
    CHECK_INT((intmax_t)position("{'a': {'$all': [17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3,"
                                 "2, 1, 0, 9]}}",
                                 numbers),
              ==, 0);
    CHECK_INT((intmax_t)position("{'a': {'$all': [17, 16, 15, 14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3,"
                                 "2, 1, 0, 18]}}",
                                 numbers),
              ==, -2);
    CHECK_INT((intmax_t)position("{'$or': [{'a': 20}, {'a': 21}, {'a': 22}, {'a': 23}, {'a': 24},"
                                 "{'a': 25}, {'a': 26}, {'a': 27}, {'a': 28}, {'a': 29}, {'a': 30},"
                                 "{'a': 31}, {'a': 32}, {'a': 33}, {'a': 34}, {'a': 4}]}",
                                 numbers),
              ==, -1);
}

/* ---- projections ---------------------------------------------------------------------------- */

static bson_t *project(const bson_t *projection, const bson_t *document, struct work *work)
{
    struct project *made = NULL;
    bson_t *result = bson_malloc0(sizeof *result);
    bson_error_t error;

    CHECK_OK(truce__project_new_stage(projection, NULL, &made, &error), error);
    CHECK_OK(truce__project_apply(made, truce__value_document(document), NULL, &work->context,
                                  result, &error),
             error);
    truce__project_free(made);
    return result;
}

static uint64_t projected(int count)
{
    bson_t *document = wide(count, -1), *projection = paths("g", count), *result;
    struct work work;

    begin(&work);
    result = project(projection, document, &work);
    CHECK_INT(bson_count_keys(result), ==, count + 1);
    bson_destroy(result);
    bson_free(result);
    bson_destroy(projection);
    bson_destroy(document);
    return end(&work);
}

static uint64_t added(int count, const char *prefix)
{
    bson_t *document = wide(count, -1), *specification = paths(prefix, count);
    struct value whole = truce__value_document(document), result;
    struct addition *addition = NULL;
    bson_error_t error;
    struct work work;

    begin(&work);
    CHECK_OK(truce__addition_new(truce__value_document(specification), NULL, &addition, &error),
             error);
    CHECK_OK(truce__addition_apply(addition, whole, whole, &work.context, &result, &error), error);
    CHECK_INT(result.type, ==, BSON_TYPE_DOCUMENT);
    if (*prefix == 'f')
        CHECK(truce__value_identical(result, whole));
    truce__addition_free(addition);
    bson_destroy(specification);
    bson_destroy(document);
    return end(&work);
}

TEST(a_projection_of_many_fields_takes_a_few_steps_for_each)
{
    CHECK_INT((intmax_t)projected(WIDE), <=, 8 * WIDE);
    CHECK_INT((intmax_t)projected(2 * WIDE), <=, 16 * WIDE);
    CHECK_INT((intmax_t)added(WIDE, "g"), <=, 8 * WIDE);
    CHECK_INT((intmax_t)added(2 * WIDE, "f"), <=, 16 * WIDE);
}

/* Every field gets another name. */
static uint64_t renamed(int count)
{
    bson_t *document = wide(count, -1), operators = BSON_INITIALIZER, names, after;
    struct update_result result;
    struct update *update = NULL;
    char from[16], to[16];
    bson_error_t error;
    bson_iter_t iter;
    struct work work;

    BSON_APPEND_DOCUMENT_BEGIN(&operators, "$rename", &names);
    for (int i = 0; i < count; i++) {
        snprintf(from, sizeof from, "f%d", i);
        snprintf(to, sizeof to, "g%d", i);
        BSON_APPEND_UTF8(&names, from, to);
    }
    bson_append_document_end(&operators, &names);
    begin(&work);
    CHECK_OK(truce__update_new(&operators, NULL, &update, &error), error);
    CHECK_OK(truce__update_apply(update, document, NULL, &work.context, &after, &result, &error),
             error);
    CHECK_INT(bson_count_keys(&after), ==, count + 1);
    CHECK(bson_iter_init_find(&iter, &after, to) && bson_iter_as_int64(&iter) == count - 1);
    CHECK(!bson_has_field(&after, from));
    truce__update_free(update);
    bson_destroy(&after);
    bson_destroy(&operators);
    bson_destroy(document);
    return end(&work);
}

TEST(a_rename_of_many_fields_takes_a_few_steps_for_each)
{
    CHECK_INT((intmax_t)renamed(WIDE), >, WIDE);
    CHECK_INT((intmax_t)renamed(WIDE), <=, 8 * WIDE);
    CHECK_INT((intmax_t)renamed(2 * WIDE), <=, 16 * WIDE);
}

/* Compiling has no budget: comparing each field with each other would take many minutes. */
TEST(compiles_and_applies_very_many_fields)
{
    enum { FIELDS = 200000 };
    bson_t *document = wide(FIELDS, -1), *all = wide(FIELDS, 1), *result;
    bson_t inserted, *set = test_bson("{'$set': {'x': 1}}");
    struct update *update = NULL;
    struct match *match = NULL;
    bson_error_t error;
    struct work work;

    begin(&work);
    result = project(all, document, &work);
    CHECK_BSON(document, result);
    bson_destroy(result);
    bson_free(result);
    CHECK_INT((intmax_t)added(FIELDS, "f"), >, FIELDS);
    CHECK_OK(truce__update_new(set, NULL, &update, &error), error);
    CHECK_OK(truce__match_new(document, &match, &error), error);
    CHECK_OK(truce__update_insert(update, match, &work.context, &inserted, &error), error);
    CHECK_INT(bson_count_keys(&inserted), ==, FIELDS + 2);
    bson_destroy(&inserted);
    truce__update_free(update);
    truce__match_free(match);
    bson_destroy(all);
    bson_destroy(set);
    bson_destroy(document);
    end(&work);
}

TEST(a_query_gives_an_upsert_one_value_for_each_path)
{
    static const struct {
        const char *query;
        truce_status status;
    } cases[] = {
        {"{'a': 1, 'a.b': 2}", TRUCE_INVALID},
        {"{'a.b': 2, 'a': 1}", TRUCE_INVALID},
        {"{'a.b.c': 2, 'x': 1, 'a.b': 1}", TRUCE_INVALID},
        {"{'$and': [{'a.b': 1}, {'a.b': 1}]}", TRUCE_INVALID},
        {"{'a.b': 1, 'a.c': 2, 'ab': 3, 'a.bc': 4}", TRUCE_OK},
        {"{'a': {'b': 1}, 'b': 2}", TRUCE_OK},
    };
    bson_t *set = test_bson("{'$set': {'x': 1}}");
    struct update *update = NULL;
    bson_error_t error;

    CHECK_OK(truce__update_new(set, NULL, &update, &error), error);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bson_t *query = test_bson(cases[i].query), inserted;
        struct match *match = NULL;
        struct work work;

        begin(&work);
        CHECK_OK(truce__match_new(query, &match, &error), error);
        CHECK_STATUS(cases[i].status,
                     truce__update_insert(update, match, &work.context, &inserted, &error), error);
        if (cases[i].status)
            CHECK_INT(error.code, ==, 54);
        bson_destroy(&inserted);
        truce__match_free(match);
        bson_destroy(query);
        end(&work);
    }
    truce__update_free(update);
    bson_destroy(set);
}

/* ---- expressions ---------------------------------------------------------------------------- */

static uint64_t reduced(int count, const char *body, uint32_t items)
{
    char json[600];
    struct value result;
    struct work work;

    begin(&work);
    snprintf(json, sizeof json,
             "{'e': {'$reduce': {'input': {'$range': [0, {'$add': ['$_id', %d]}]}, 'initialValue': "
             "'$a', 'in': %s}}}",
             count - 1, body);
    result = evaluate(json, &work);
    CHECK_INT(result.type, ==, BSON_TYPE_ARRAY);
    if (result.type == BSON_TYPE_ARRAY) {
        struct fields fields = truce__fields(result);
        uint32_t number = 0;
        char key[16];

        for (; truce__fields_next(&fields); number++) {
            snprintf(key, sizeof key, "%u", number);
            CHECK_TEXT(key, fields.key);
        }
        CHECK_INT(number, ==, items);
    }
    return end(&work);
}

/* A copy in each iteration would take 400 GB. */
TEST(a_very_long_array_grows)
{
    CHECK_INT((intmax_t)reduced(200000, "{'$concatArrays': ['$$value', ['$$this']]}", 200002), >,
              200000);
}

TEST(a_reduce_that_makes_an_array_longer_copies_it_seldom)
{
    static const char plain[] = "{'$concatArrays': ['$$value', ['$$this']]}";
    static const char chosen[] = "{'$cond': [{'$mod': ['$$this', 2]}, '$$value', "
                                 "{'$concatArrays': ['$$value', ['$$this'], ['x']]}]}";

    CHECK_INT((intmax_t)reduced(WIDE, plain, WIDE + 2), <=, 12 * WIDE);
    CHECK_INT((intmax_t)reduced(2 * WIDE, plain, 2 * WIDE + 2), <=, 24 * WIDE);
    CHECK_INT((intmax_t)reduced(2 * WIDE, chosen, 2 * WIDE + 2), <=, 32 * WIDE);
}

/* A number is expected: that of the elements. */
static bool is_count(const bson_t *wanted)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, wanted, "e") && BSON_ITER_HOLDS_INT32(&iter);
}

static struct value count_of(struct value array, struct work *work)
{
    struct fields fields = truce__fields(array);
    int32_t count = 0;

    while (truce__fields_next(&fields))
        count++;
    return truce__value_from_int32(&work->arena, count);
}

static void check_reduce(const char *expected, const char *input, const char *initial,
                         const char *body)
{
    bson_t *wanted = test_bson(expected);
    struct value result;
    char json[600];
    struct work work;

    begin(&work);
    snprintf(json, sizeof json, "{'e': {'$reduce': {'input': %s, 'initialValue': %s, 'in': %s}}}",
             input, initial, body);
    result = evaluate(json, &work);
    if (!truce__value_equal(truce__value_field(truce__value_document(wanted), "e", 1),
                            is_count(wanted) ? count_of(result, &work) : result))
        test_fail(__FILE__, __LINE__, "%s: not %s", body, expected);
    end(&work);
    bson_destroy(wanted);
}

TEST(an_array_that_grows_is_seen_as_it_is)
{
    static const char once[] = "{'$cond': [{'$in': ['$$this', '$$value']}, '$$value', "
                               "{'$concatArrays': ['$$value', ['$$this']]}]}";

    check_reduce("{'e': [1, 2, 3]}", "[1, 2, 1, 2, 3, 3]", "[]", once);
    check_reduce("{'e': [2, 1, 3]}", "[1, 2, 1, 2, 3, 3]", "[2]", once);
    /* the last element of the value */
    check_reduce("{'e': [1, 2, 3, 4]}", "[1, 1, 2, 2, 2, 3, 4, 4]", "[]",
                 "{'$cond': [{'$eq': [{'$arrayElemAt': ['$$value', -1]}, '$$this']}, '$$value', "
                 "{'$concatArrays': ['$$value', ['$$this']]}]}");
    /* long enough for a set of its own */
    check_reduce("{'e': 300}", "{'$concatArrays': [{'$range': [0, 300]}, {'$range': [0, 300]}]}",
                 "[]",
                 "{'$cond': [{'$in': ['$$this', '$$value']}, '$$value', "
                 "{'$concatArrays': ['$$value', ['$$this']]}]}");
    check_reduce("{'e': [1, 1, 2, 2]}", "[1, 2]", "[]",
                 "{'$concatArrays': ['$$value', ['$$this', '$$this']]}");
    /* both sides, itself twice, and a value that is not an array */
    check_reduce("{'e': [3, 2, 1]}", "[1, 2, 3]", "[]",
                 "{'$concatArrays': [['$$this'], '$$value']}");
    check_reduce("{'e': [0, 0, 0, 0]}", "[1, 2]", "[0]",
                 "{'$concatArrays': ['$$value', '$$value']}");
    check_reduce("{'e': [0, 1, [0], 2, [0, 1, [0]]]}", "[1, 2]", "[0]",
                 "{'$concatArrays': ['$$value', ['$$this', '$$value']]}");
    check_reduce("{'e': null}", "[[1], null, [2]]", "[]",
                 "{'$concatArrays': ['$$value', '$$this']}");
    check_reduce("{'e': null}", "[[1], [2]]", "null", "{'$concatArrays': ['$$value', '$$this']}");
    check_reduce("{'e': [7]}", "[[1], [2]]", "[7]",
                 "{'$concatArrays': ['$$value', {'$cond': [{'$in': [2, '$$this']}, [], []]}]}");
    check_reduce("{'e': [5, 1, 2]}", "[1, 2]", "{'$concatArrays': ['$a', [5]]}",
                 "{'$cond': [{'$eq': ['$$this', 0]}, '$$value', {'$concatArrays': "
                 "[{'$cond': [{'$eq': ['$$this', 1]}, [5], '$$value']}, ['$$this']]}]}");
    /* one in another, of the outer's value */
    check_reduce("{'e': [0, 1, 2, 1, 2]}", "[[1, 2], [1, 2]]", "[0]",
                 "{'$reduce': {'input': '$$this', 'initialValue': '$$value', 'in': "
                 "{'$concatArrays': ['$$value', ['$$this']]}}}");
}

/* ---- finding fields ------------------------------------------------------------------------- */

TEST(finds_the_same_as_a_linear_search)
{
    struct random random;
    bson_t documents[12];
    struct field_finder finder = {NULL};
    char name[16];

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 12; i++) {
        bson_init(&documents[i]);
        for (int j = 0, count = (int)truce__random_below(&random, 3000); j < count; j++) {
            /* some names occur twice; one is empty */
            snprintf(name, sizeof name, "%.*s%x", (int)truce__random_below(&random, 2), "n",
                     (unsigned)truce__random_below(&random, 4000));
            BSON_APPEND_INT32(&documents[i], truce__random_below(&random, 900) ? name : "", j);
        }
    }
    for (int i = 0; i < 60000; i++) {
        const bson_t *one = &documents[truce__random_below(&random, i < 30000 ? 3 : 12)];
        struct value document = truce__value_document(one), found, expected;
        uint32_t steps = 0;

        snprintf(name, sizeof name, "%.*s%x", (int)truce__random_below(&random, 2), "n",
                 (unsigned)truce__random_below(&random, 4000));
        if (!truce__random_below(&random, 900))
            *name = '\0';
        expected = truce__value_field(document, name, strlen(name));
        found = truce__field_finder_find(&finder, document, name, (uint32_t)strlen(name), &steps);
        if (found.data != expected.data || found.size != expected.size ||
            found.type != expected.type)
            test_fail(__FILE__, __LINE__, "'%s' is another field", name);
    }
    truce__field_finder_release(&finder);
    for (int i = 0; i < 12; i++)
        bson_destroy(&documents[i]);
}
