/*
 * The order of documents without a sort: that of the index that finds them, as in MongoDB. Each
 * test runs in a file and in memory.
 */
#include <stdio.h>

#include "base/arena.h"
#include "base/random.h"
#include "query/sort/sort.h"
#include "tests/support/test.h"
#include "truce/store.h"

#define MANY 6000 /* a read scans 4,096 entries before it pauses */

static truce_store *store;
static bool in_memory;

static void order_run(bool memory, void (*test)(void))
{
    char path[400];
    bson_error_t error;

    in_memory = memory;
    snprintf(path, sizeof path, "%s/order.truce", test_directory());
    if (!CHECK_OK(truce_store_open(memory ? "memory:" : path, NULL, &store, &error), error))
        return;
    test();
    truce_store_close(store);
}

#define TEST_OF_ORDER(name)                                                                        \
    static void order_test_##name(void);                                                           \
    TEST(name)                                                                                     \
    {                                                                                              \
        order_run(false, order_test_##name);                                                       \
    }                                                                                              \
    TEST(name##_in_memory)                                                                         \
    {                                                                                              \
        order_run(true, order_test_##name);                                                        \
    }                                                                                              \
    static void order_test_##name(void)

static void order_insert(const char *json)
{
    bson_t *document = test_bson(json);
    truce_write_options options = {.relaxed = true};
    bson_error_t error;

    CHECK_OK(truce_insert(store, "c", document, &options, &error), error);
    bson_destroy(document);
}

static void order_index(const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, "c", index, &error), error);
    bson_destroy(index);
}

static long long order_id(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_id") ? (long long)bson_iter_as_int64(&iter) : -1;
}

/* The _ids that a cursor gives, each followed by a space. Closes it. */
static char *order_ids(truce_cursor *cursor)
{
    bson_string_t *ids = bson_string_new("");
    const bson_t *document;
    bson_error_t error;

    while (CHECK_OK(truce_cursor_next(cursor, &document, &error), error) && document)
        bson_string_append_printf(ids, "%lld ", order_id(document));
    truce_cursor_close(cursor);
    return bson_string_free(ids, false);
}

static void order_check(int line, const char *filter_json, truce_find_options options,
                        const char *expected)
{
    bson_t *filter = test_bson(filter_json);
    truce_cursor *cursor = NULL;
    bson_error_t error;
    char *ids;

    if (CHECK_OK(truce_find(store, "c", filter, &options, &cursor, &error), error)) {
        ids = order_ids(cursor);
        if (strcmp(ids, expected))
            test_fail(__FILE__, line, "%s: %s, not %s", filter_json, ids, expected);
        bson_free(ids);
    }
    bson_destroy(filter);
}

#define COMES(filter, expected) order_check(__LINE__, filter, (truce_find_options){0}, expected)

/* ---- indexes of one key for each document --------------------------------------------------- */

static void order_insert_random(struct random *random, int id)
{
    static const char *const values[] = {"0",   "1",        "2",     "2.5",   "-3",
                                         "'a'", "'ab'",     "''",    "null",  "true",
                                         "{}",  "{'x': 1}", "false", "'ABC'", "1000000"};
    const char *picked[3];
    char json[200], c[60] = "";

    for (int i = 0; i < 3; i++)
        picked[i] = values[truce__random_below(random, sizeof values / sizeof *values)];
    if (truce__random_below(random, 4))
        snprintf(c, sizeof c, ", 'c': %s", picked[2]);
    snprintf(json, sizeof json, "{'_id': %d, 'a': %s, 'b': %s%s}", id, picked[0], picked[1], c);
    order_insert(json);
}

/* The documents come in the order of the pattern's keys; equal keys come in the order of insertion,
 * which equals the order of the _ids. */
static int order_check_keys(int line, const char *filter_json, const char *hint_json, bool backward)
{
    bson_t *filter = test_bson(filter_json), *hint = test_bson(hint_json);
    truce_find_options options = {.hint = hint, .backward = backward};
    struct buffer last = {0}, key = {0};
    truce_cursor *cursor = NULL;
    const bson_t *document;
    struct sort sort = {0};
    long long last_id = -1;
    bson_error_t error;
    int count = 0;

    CHECK_OK(truce__sort_parse(hint, &sort, &error), error);
    CHECK_OK(truce_find(store, "c", filter, &options, &cursor, &error), error);
    while (CHECK_OK(truce_cursor_next(cursor, &document, &error), error) && document) {
        int order;

        key.size = 0;
        CHECK_OK(truce__sort_key(&sort, truce__value_document(document), &key, &error), error);
        order = truce__bytes_compare(last.bytes, last.size, key.bytes, key.size);
        if (count++ && (backward ? order < 0 || (!order && last_id < order_id(document))
                                 : order > 0 || (!order && last_id > order_id(document))))
            test_fail(__FILE__, line, "%s by %s: %lld after %lld", filter_json, hint_json,
                      order_id(document), last_id);
        last.size = 0;
        truce__buffer_append(&last, key.bytes, key.size);
        last_id = order_id(document);
    }
    truce_cursor_close(cursor);
    truce__buffer_release(&last);
    truce__buffer_release(&key);
    truce__sort_release(&sort);
    bson_destroy(filter);
    bson_destroy(hint);
    return count;
}

TEST_OF_ORDER(documents_come_in_the_order_of_the_keys_of_an_index)
{
    static const char *const patterns[] = {"{'a': 1}",          "{'a': -1}",
                                           "{'a': 1, 'b': 1}",  "{'a': -1, 'b': 1}",
                                           "{'b': 1, 'a': -1}", "{'c': 1, 'a': 1, 'b': -1}",
                                           "{'_id': 1}"};
    static const char *const filters[] = {
        "{}",
        "{'a': {'$gte': 0}}",
        "{'a': {'$in': ['ab', 2, null, true, -3]}}",
        "{'a': {'$in': [2, 1]}, 'b': {'$gt': 0}}",
        "{'a': 2}",
        "{'a': 2, 'b': {'$in': ['', 'a', 1]}}",
        "{'b': {'$lt': 'b'}}",
        "{'b': {'$in': [{}, 0]}, 'c': null}",
        "{'_id': {'$in': [400, 3, 77, 4]}}",
        "{'_id': {'$gt': 300}, 'a': {'$ne': 1}}",
        "{'$or': [{'a': 2.5}, {'a': {'$lt': 1}}, {'b': true}]}",
    };
    struct random random;
    int found = 0;

    truce__random_seed(&random, test_seed());
    for (int i = 0; i < 500; i++)
        order_insert_random(&random, i);
    for (size_t i = 0; i + 1 < sizeof patterns / sizeof *patterns; i++) {
        char json[200];

        snprintf(json, sizeof json, "{'key': %s}", patterns[i]);
        order_index(json);
    }
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (size_t j = 0; j < sizeof filters / sizeof *filters; j++)
            for (int backward = 0; backward < (in_memory ? 1 : 2); backward++)
                found += order_check_keys(__LINE__, filters[j], patterns[i], backward);
    CHECK_INT(found, >, 5000);
}

TEST_OF_ORDER(a_filter_without_a_hint_comes_in_the_order_of_its_index)
{
    order_insert("{'_id': 3, 'k': 30, 'd': 1, 'x': 2}");
    order_insert("{'_id': 1, 'k': 20, 'd': 2, 'x': 1}");
    order_insert("{'_id': 2, 'k': 10, 'd': 3, 'x': 2}");
    order_insert("{'_id': 0, 'k': 20, 'd': 2, 'x': 1}");
    order_index("{'key': {'k': 1}}");
    order_index("{'key': {'d': -1}}");
    order_index("{'key': {'x': 1, 'k': -1}}");
    COMES("{}", "3 1 2 0 ");
    COMES("{'_id': {'$in': [2, 0, 3, 1]}}", "0 1 2 3 ");
    COMES("{'_id': {'$gt': 0}}", "1 2 3 ");
    COMES("{'$or': [{'_id': 3}, {'_id': 2}, {'_id': {'$lt': 1}}]}", "0 2 3 ");
    COMES("{'k': {'$gt': 0}}", "2 1 0 3 ");
    COMES("{'k': {'$in': [30, 10]}}", "2 3 ");
    COMES("{'d': {'$gt': 0}}", "2 1 0 3 ");
    COMES("{'d': {'$lte': 2}}", "1 0 3 ");
    COMES("{'x': {'$in': [2, 1]}}", "1 0 3 2 ");
    COMES("{'x': 2}", "3 2 ");
}

/* ---- several keys for a document ------------------------------------------------------------ */

TEST_OF_ORDER(a_document_with_several_keys_comes_at_the_first_that_the_filter_looks_at)
{
    order_insert("{'_id': 1, 'm': [5, 40], 'e': [{'n': 9}, {'n': 2}], 'w': {'q': [3, 8]}}");
    order_insert("{'_id': 2, 'm': [1, 30], 'e': [{'n': 5}, {'n': 7}], 'w': {'q': 4}}");
    order_insert("{'_id': 3, 'm': 20, 'e': [{'n': 3}], 'w': {'q': 1}}");
    order_insert("{'_id': 4, 'm': [], 'e': [], 'w': {'q': [9, 0]}}");
    order_index("{'key': {'m': 1}}");
    order_index("{'key': {'e.n': -1}}");
    order_index("{'key': {'w.$**': 1}}");
    COMES("{'m': {'$gte': 0}}", "2 1 3 ");
    COMES("{'m': {'$gt': 5}}", "3 2 1 "); /* the keys 20, 30 and 40 */
    COMES("{'m': {'$in': [40, 30]}}", "2 1 ");
    COMES("{'m': {'$elemMatch': {'$gt': 1, '$lt': 35}}}", "1 2 ");
    COMES("{'e.n': {'$gt': 0}}", "1 2 3 ");
    COMES("{'e.n': {'$lt': 6}}", "2 3 1 ");
    COMES("{'w.q': {'$gt': 1}}", "1 2 4 ");
    COMES("{'$or': [{'m': 30}, {'m': 5}, {'m': {'$gt': 15}}]}", "1 3 2 ");
    if (!in_memory)
        order_check(__LINE__, "{'m': {'$gt': 0}}", (truce_find_options){.backward = true},
                    "1 2 3 ");
}

TEST_OF_ORDER(branches_of_an_or_come_index_after_index)
{
    for (int i = 0; i < 6; i++) {
        char json[100];

        snprintf(json, sizeof json, "{'_id': %d, 'a': %d, 'b': %d}", i, 10 - i, i % 3);
        order_insert(json);
    }
    order_index("{'key': {'a': 1}}");
    order_index("{'key': {'b': 1, 'a': 1}}");
    COMES("{'$or': [{'b': 0}, {'a': {'$gt': 8}}]}", "1 0 3 ");
    COMES("{'$or': [{'a': 6}, {'b': {'$gte': 1}}, {'a': 7}]}", "4 3 1 5 2 ");
    COMES("{'$or': [{'b': 2}, {'b': 1}]}", "4 1 5 2 ");
}

TEST_OF_ORDER(the_order_holds_over_the_parts_of_a_long_read)
{
    bson_t *filter = test_bson("{'m': {'$gte': 0}}");
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;
    int count = 0;

    order_index("{'key': {'m': 1}}");
    for (int i = 0; i < MANY; i++) {
        char json[100];

        snprintf(json, sizeof json, "{'_id': %d, 'm': [%d, %d, %d]}", i, MANY - i, 2 * MANY - i,
                 MANY - i + 1);
        order_insert(json);
    }
    CHECK_OK(truce_find(store, "c", filter, NULL, &cursor, &error), error);
    while (CHECK_OK(truce_cursor_next(cursor, &document, &error), error) && document)
        if (!CHECK_INT(order_id(document), ==, MANY - 1 - count++))
            break;
    CHECK_INT(count, ==, MANY);
    truce_cursor_close(cursor);
    bson_destroy(filter);
}

/* ---- few of them ---------------------------------------------------------------------------- */

static void order_fill(void)
{
    static const char *const documents[] = {"{'_id': 1, 'k': 30}", "{'_id': 2, 'k': 10}",
                                            "{'_id': 3, 'k': 20}", "{'_id': 4, 'k': 20}"};

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        order_insert(documents[i]);
    order_index("{'key': {'k': 1}}");
}

TEST_OF_ORDER(a_limit_and_a_skip_count_in_the_order_of_the_index)
{
    bson_t *filter = test_bson("{'k': {'$gt': 0}}"), document;
    bson_t *pipeline = test_bson("{'0': {'$match': {'k': {'$gt': 0}}}, '1': {'$limit': 3}}");
    truce_cursor *cursor = NULL;
    bson_error_t error;
    char *ids;

    order_fill();
    order_check(__LINE__, "{'k': {'$gt': 0}}", (truce_find_options){.limit = 2}, "2 3 ");
    order_check(__LINE__, "{'k': {'$gt': 0}}", (truce_find_options){.skip = 2}, "4 1 ");
    CHECK_OK(truce_find_one(store, "c", filter, NULL, &document, &error), error);
    CHECK_INT(order_id(&document), ==, 2);
    bson_destroy(&document);
    if (CHECK_OK(truce_aggregate(store, "c", pipeline, NULL, &cursor, &error), error)) {
        ids = order_ids(cursor);
        CHECK_TEXT("2 3 4 ", ids);
        bson_free(ids);
    }
    bson_destroy(pipeline);
    bson_destroy(filter);
}

TEST_OF_ORDER(a_write_to_one_document_takes_the_first_of_the_index)
{
    bson_t *filter = test_bson("{'k': {'$gt': 0}}"), *update = test_bson("{'$set': {'x': 1}}");
    truce_modify_options removes = {.remove = true};
    truce_write_result result;
    bson_error_t error;
    bson_t document;

    order_fill();
    CHECK_OK(truce_update(store, "c", filter, update, NULL, &result, &error), error);
    truce_write_result_release(&result);
    COMES("{'x': 1}", "2 ");
    CHECK_OK(truce_remove(store, "c", filter, NULL, &result, &error), error);
    truce_write_result_release(&result);
    COMES("{}", "1 3 4 ");
    CHECK_OK(truce_find_and_modify(store, "c", filter, NULL, &removes, &document, &result, &error),
             error);
    CHECK_INT(order_id(&document), ==, 3);
    truce_write_result_release(&result);
    bson_destroy(&document);
    bson_destroy(filter);
    bson_destroy(update);
}

TEST_OF_ORDER(removes_all_matching_documents_in_any_order)
{
    static const char *const hints[] = {"{'k': 1}", "{'$natural': -1}"};
    bson_t *filter = test_bson("{'k': {'$gt': 15}}"), *all = test_bson("{}");

    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        truce_write_options options = {.multi = true, .hint = test_bson(hints[i])};
        truce_write_result result;
        bson_error_t error;

        order_fill();
        CHECK_OK(truce_remove(store, "c", filter, &options, &result, &error), error);
        CHECK_INT(result.removed, ==, 3);
        truce_write_result_release(&result);
        COMES("{}", "2 ");
        CHECK_OK(truce_remove(store, "c", all, &options, &result, &error), error);
        truce_write_result_release(&result);
        bson_destroy((bson_t *)options.hint);
    }
    bson_destroy(all);
    bson_destroy(filter);
}

/* ---- distinct values ------------------------------------------------------------------------ */

TEST_OF_ORDER(distinct_values_are_sorted_with_and_without_an_index)
{
    static const char *const documents[] = {"{'_id': 1, 'k': 'b'}",  "{'_id': 2, 'k': [7, 2]}",
                                            "{'_id': 3, 'k': null}", "{'_id': 4, 'k': 2.0}",
                                            "{'_id': 5, 'k': 'a'}",  "{'_id': 6, 'k': -1}"};
    bson_t *filter = test_bson("{'_id': {'$gt': 0}}");

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++)
        order_insert(documents[i]);
    for (int indexed = 0; indexed < 2; indexed++) {
        bson_error_t error;
        bson_t values;
        char *json;

        if (indexed)
            order_index("{'key': {'k': -1}}");
        CHECK_OK(truce_distinct(store, "c", "k", filter, &values, &error), error);
        json = bson_array_as_json(&values, NULL);
        CHECK_TEXT("[ null, -1, 2, 7, \"a\", \"b\" ]", json);
        bson_free(json);
        bson_destroy(&values);
    }
    bson_destroy(filter);
}
