/* The choice of a plan, and its scans. The recorded cases and the random comparison of stores check
 * that no plan changes an answer. */
#include "engine/documents/query_plan.h"

#include <stdio.h>

#include "engine/documents/query.h"
#include "tests/support/test.h"

static char path[400];
static truce_store *store;

static bool open_new(void)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/plan.truce", test_directory());
    return CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
}

static void insert(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void insert(const char *format, ...)
{
    truce_write_options options = {.relaxed = true};
    bson_error_t error;
    va_list arguments;
    bson_t *document;
    char json[400];

    va_start(arguments, format);
    vsnprintf(json, sizeof json, format, arguments);
    va_end(arguments);
    document = test_bson(json);
    CHECK_OK(truce_insert(store, "c", document, &options, &error), error);
    bson_destroy(document);
}

static void create_index(const char *json)
{
    bson_t *index = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_index_create(store, "c", index, &error), error);
    bson_destroy(index);
}

static int64_t number_at(const bson_t *plan, const char *dotted)
{
    bson_iter_t iter, found;

    if (!bson_iter_init(&iter, plan) || !bson_iter_find_descendant(&iter, dotted, &found))
        return -1;
    return bson_iter_as_int64(&found);
}

/* The expected scan of a call; `index` NULL: no named index. */
struct expected {
    const char *stage, *index;
    int64_t keys, documents, counted;
};

static void check_plan_told(int line, const char *filter_json, const bson_t *plan, bool counts,
                            struct expected expected)
{
    char *text = bson_as_relaxed_extended_json(plan, NULL);

    if (!strstr(text, expected.stage) || (expected.index && !strstr(text, expected.index)) ||
        number_at(plan, "executionStats.totalKeysExamined") != expected.keys ||
        number_at(plan, "executionStats.totalDocsExamined") != expected.documents ||
        (counts && number_at(plan, "executionStats.executionStages.nCounted") != expected.counted))
        test_fail(__FILE__, line, "%s: %s", filter_json, text);
    bson_free(text);
}

static void check_explain(int line, const char *filter_json, const truce_find_options *options,
                          struct expected expected)
{
    bson_t *filter = test_bson(filter_json), plan;
    bson_error_t error;

    CHECK_OK(truce_explain(store, "c", filter, options, &plan, &error), error);
    check_plan_told(line, filter_json, &plan, false, expected);
    bson_destroy(&plan);
    bson_destroy(filter);
}

static void check_explain_count(int line, const char *filter_json,
                                const truce_count_options *options, struct expected expected)
{
    bson_t *filter = test_bson(filter_json), plan;
    bson_error_t error;

    CHECK_OK(truce_explain_count(store, "c", filter, options, &plan, &error), error);
    check_plan_told(line, filter_json, &plan, true, expected);
    bson_destroy(&plan);
    bson_destroy(filter);
}

/* Checks that a count scans as its explain says, and returns the counted number. */
static void check_count(int line, const char *filter_json, const char *hint,
                        struct expected expected)
{
    bson_t *filter = test_bson(filter_json), *by = hint ? test_bson(hint) : NULL;
    truce_count_options options = {.hint = by};
    bson_error_t error;
    int64_t count = -1;

    check_explain_count(line, filter_json, &options, expected);
    CHECK_OK(truce_count(store, "c", filter, &options, &count, &error), error);
    if (count != expected.counted)
        test_fail(__FILE__, line, "%s: %lld", filter_json, (long long)count);
    bson_destroy(filter);
    bson_destroy(by);
}

#define COUNTS(filter, hint, ...)                                                                  \
    check_count(__LINE__, filter, hint, (struct expected){__VA_ARGS__})

/* a: 0 to 9, b: 0 to 299, c: only some; m: an array in one document; w: "x0" to "x4" */
static void fill(void)
{
    for (int i = 0; i < 300; i++)
        insert("{'_id': %d, 'a': %d, 'b': %d, 'm': %s, 'w': 'x%d'%s}", i, i % 10, i,
               i == 7 ? "[7, 8]" : "1", i % 5, i % 3 ? "" : ", 'c': 1");
}

TEST(reads_no_document_for_a_count_that_an_index_covers)
{
    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1, 'b': -1}}");
    create_index("{'key': {'w': 1}}");
    COUNTS("{}", NULL, "RECORD_STORE_FAST_COUNT", NULL, 0, 0, 300);
    COUNTS("{'a': 3}", NULL, "COUNT_SCAN", "a_1_b_-1", 30, 0, 30);
    COUNTS("{'a': 3, 'b': {'$gt': 203}}", NULL, "COUNT_SCAN", "a_1_b_-1", 9, 0, 9);
    COUNTS("{'a': 3, 'b': {'$gte': 203, '$lt': 213}}", NULL, "COUNT_SCAN", "a_1_b_-1", 1, 0, 1);
    COUNTS("{'a': {'$in': [3, 4, 77]}, 'b': {'$lte': 104}}", NULL, "COUNT_SCAN", "a_1_b_-1", 22, 0,
           22);
    COUNTS("{'a': {'$gt': 7}}", NULL, "COUNT_SCAN", "a_1_b_-1", 60, 0, 60);
    COUNTS("{'$and': [{'a': {'$gt': 2}}, {'a': {'$lt': 4}}]}", NULL, "COUNT_SCAN", "a_1_b_-1", 30,
           0, 30);
    COUNTS("{'w': 'x2'}", NULL, "COUNT_SCAN", "w_1", 60, 0, 60);
    COUNTS("{'w': {'$gte': 'x3'}}", NULL, "COUNT_SCAN", "w_1", 120, 0, 120);
    COUNTS("{'_id': 5}", NULL, "COUNT_SCAN", "_id_", 1, 0, 1);
    COUNTS("{'_id': {'$in': [5, 6, 999]}}", NULL, "COUNT_SCAN", "_id_", 2, 0, 2);
    COUNTS("{}", "{'w': 1}", "COUNT_SCAN", "w_1", 300, 0, 300);
    COUNTS("{'a': 3, 'b': 1}", "{'a': 1, 'b': -1}", "COUNT_SCAN", "a_1_b_-1", 0, 0, 0);
    /* a find of the same needs them */
    check_explain(__LINE__, "{'a': 3}", &(truce_find_options){0},
                  (struct expected){"FETCH", "a_1_b_-1", 30, 30, 0});
    truce_store_close(store);
}

TEST(reads_documents_for_a_count_that_an_index_does_not_cover)
{
    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1, 'b': -1}}");
    create_index("{'key': {'c': 1}}");
    create_index("{'key': {'m': 1}}");
    create_index("{'key': {'w': 1}}");
    create_index("{'key': {'x.$**': 1}}");
    /* a condition that bounds cannot express */
    COUNTS("{'a': 3, 'w': {'$ne': 'x3'}}", NULL, "FETCH", "a_1_b_-1", 30, 30, 0);
    COUNTS("{'a': {'$gt': 7}, 'b': {'$lt': 100}}", NULL, "FETCH", "a_1_b_-1", 60, 60, 20);
    COUNTS("{'a': {'$gt': 7, '$mod': [2, 0]}}", NULL, "FETCH", "a_1_b_-1", 60, 60, 30);
    COUNTS("{'a': 3, '$expr': {'$gt': ['$b', 200]}}", NULL, "FETCH", "a_1_b_-1", 30, 30, 10);
    COUNTS("{'a': 3, '$or': [{'b': 3}, {'b': 13}]}", NULL, "FETCH", "a_1_b_-1", 30, 30, 2);
    COUNTS("{'w': {'$regex': '^x2'}}", NULL, "FETCH", "w_1", 60, 60, 60);
    COUNTS("{'w': {'$in': [{'$regularExpression': {'pattern': '^x2.*y', 'options': ''}}, 'x3']}}",
           NULL, "FETCH", "w_1", 120, 120, 60);
    COUNTS("{'$or': [{'a': 3}, {'b': 5}]}", "{'a': 1, 'b': -1}", "FETCH", "a_1_b_-1", 300, 300, 31);
    COUNTS("{'a': {'$elemMatch': {'x': 1}}}", "{'a': 1, 'b': -1}", "FETCH", "a_1_b_-1", 300, 300,
           0);
    /* NaN is in no order with numbers */
    COUNTS("{'b': {'$gte': {'$numberDouble': 'NaN'}}, 'a': 1}", NULL, "FETCH", "a_1_b_-1", 30, 30,
           0);
    /* null matches missing and undefined values */
    COUNTS("{'c': null}", NULL, "FETCH", "c_1", 200, 200, 200);
    COUNTS("{'c': {'$in': [null, 1]}}", NULL, "FETCH", "c_1", 300, 300, 300);
    COUNTS("{'c': {'$exists': false}}", NULL, "FETCH", "c_1", 200, 200, 200);
    COUNTS("{'w': ['x1']}", NULL, "FETCH", "w_1", 60, 60, 0);
    /* a document with an array has several entries */
    COUNTS("{'m': {'$gte': 1}}", NULL, "FETCH", "m_1", 301, 300, 300);
    COUNTS("{'m': {'$in': [7, 8]}}", NULL, "FETCH", "m_1", 2, 1, 1);
    COUNTS("{}", "{'m': 1}", "FETCH", "m_1", 301, 300, 300);
    /* a duplicate name has two entries in a wildcard index; a filter sees the first */
    insert("{'_id': 900, 'x': {'y': 1, 'y': 2}}");
    COUNTS("{'x.y': 1}", NULL, "FETCH", "x.$**_1", 1, 1, 1);
    COUNTS("{'x.y': 2}", NULL, "FETCH", "x.$**_1", 1, 1, 0);
    truce_store_close(store);
}

TEST(returns_a_document_with_a_duplicate_name_once)
{
    REQUIRE(open_new());
    create_index("{'key': {'$**': 1}}");
    insert("{'_id': 1, 'y': 1, 'y': 2, 'y': 3}");
    insert("{'_id': 2, 'y': 2}");
    COUNTS("{'y': {'$gte': 1}}", NULL, "FETCH", "$**_1", 4, 2, 2);
    COUNTS("{'y': {'$in': [1, 2, 3]}}", NULL, "FETCH", "$**_1", 4, 2, 2);
    check_explain(__LINE__, "{'y': {'$gte': 1}}", &(truce_find_options){0},
                  (struct expected){"FETCH", "$**_1", 4, 2, 0});
    truce_store_close(store);
}

TEST(counts_keep_to_the_rules_of_sparse_and_partial_indexes)
{
    REQUIRE(open_new());
    fill();
    create_index("{'key': {'c': 1}, 'sparse': true}");
    create_index(
        "{'key': {'b': 1}, 'name': 'part', 'partialFilterExpression': {'a': {'$in': [1, 2]}}}");
    COUNTS("{'c': 1}", NULL, "COUNT_SCAN", "c_1", 100, 0, 100);
    COUNTS("{'c': null}", NULL, "COLLSCAN", NULL, 0, 300, 200);
    COUNTS("{}", "{'c': 1}", "COUNT_SCAN", "c_1", 100, 0, 100);
    COUNTS("{'b': {'$lt': 50}}", NULL, "COLLSCAN", NULL, 0, 300, 50);
    COUNTS("{'b': {'$lt': 50}}", "{'': 'part'}", "COUNT_SCAN", "part", 10, 0, 10);
    COUNTS("{'b': {'$lt': 50}, 'a': 2}", NULL, "FETCH", "part", 10, 10, 5);
    truce_store_close(store);
}

TEST(finds_existing_fields_by_a_sparse_index)
{
    truce_find_options all = {0};

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'c': 1}}");
    check_explain(__LINE__, "{'c': {'$exists': true}}", &all,
                  (struct expected){"COLLSCAN", NULL, 0, 300, 0});
    create_index("{'key': {'c': -1}, 'sparse': true}");
    check_explain(__LINE__, "{'c': {'$exists': true}}", &all,
                  (struct expected){"IXSCAN", "c_-1", 100, 100, 0});
    check_explain(__LINE__, "{'c': {'$exists': false}}", &all,
                  (struct expected){"IXSCAN", "c_1", 200, 200, 0});
    check_explain(__LINE__, "{'a': {'$exists': true}}", &all,
                  (struct expected){"COLLSCAN", NULL, 0, 300, 0});
    truce_store_close(store);
}

TEST(a_count_with_too_many_ranges_reads_the_documents)
{
    bson_t filter = BSON_INITIALIZER, condition, list;
    truce_count_options options = {0};
    bson_error_t error;
    int64_t count = 0;

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1, 'b': 1}}");
    for (int field = 0; field < 2; field++) {
        BSON_APPEND_DOCUMENT_BEGIN(&filter, field ? "b" : "a", &condition);
        BSON_APPEND_ARRAY_BEGIN(&condition, "$in", &list);
        for (int i = 0; i < 40; i++) {
            char key[16];

            snprintf(key, sizeof key, "%d", i);
            BSON_APPEND_INT32(&list, key, i * 3);
        }
        bson_append_array_end(&condition, &list);
        bson_append_document_end(&filter, &condition);
    }
    CHECK_OK(truce_count(store, "c", &filter, &options, &count, &error), error);
    CHECK_INT(count, ==, 16); /* b is 3 n < 120; a, its last digit, is a multiple of 3 */
    bson_destroy(&filter);
    truce_store_close(store);
}

TEST(a_limit_ends_a_count_over_an_index)
{
    bson_t *filter = test_bson("{'a': {'$in': [3, 4]}}");
    truce_count_options options = {.skip = 10, .limit = 25};
    bson_error_t error;
    int64_t count = 0;

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1}}");
    CHECK_OK(truce_count(store, "c", filter, &options, &count, &error), error);
    CHECK_INT(count, ==, 25);
    check_explain_count(__LINE__, "{'a': {'$in': [3, 4]}}", &options,
                        (struct expected){"COUNT_SCAN", "a_1", 35, 0, 25});
    options = (truce_count_options){.skip = 50, .limit = 25};
    CHECK_OK(truce_count(store, "c", filter, &options, &count, &error), error);
    CHECK_INT(count, ==, 10);
    CHECK_OK(truce_count(store, "c", NULL, &options, &count, &error), error);
    CHECK_INT(count, ==, 25);
    options.skip = 290;
    CHECK_OK(truce_count(store, "c", NULL, &options, &count, &error), error);
    CHECK_INT(count, ==, 10);
    bson_destroy(filter);
    truce_store_close(store);
}

TEST(counts_in_the_snapshot_of_its_plan)
{
    static const truce_find_options all = {0};
    truce_store_options as_it_is = {0};
    bson_t *filter = test_bson("{'a': {'$gte': 0}}");
    struct engine *engine;
    struct query query;
    bson_error_t error;
    int64_t count = 0;

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1}}");
    REQUIRE(CHECK_OK(truce__engine_open(path, &as_it_is, &engine, &error), error));
    CHECK_OK(truce__query_init(&query, engine, "c", filter, &all, PLAN_COUNT, &error), error);
    CHECK(query.plan.covered);
    insert("{'_id': 1000, 'a': [1, 2, 3]}");
    CHECK_OK(truce__query_count(&query, 0, 0, &count, &error), error);
    CHECK_INT(count, ==, 300); /* and not 303 */
    truce__query_release(&query);
    truce__engine_close(engine);
    bson_destroy(filter);
    truce_store_close(store);
}

TEST(does_not_count_elements_as_fields)
{
    REQUIRE(open_new());
    insert("{'_id': 1, 'a': {'x': 1, 'y': 2}}");
    create_index("{'key': {'a.x': 1, 'a.y': 1}}");
    COUNTS("{'a.x': 1, 'a.y': 2}", NULL, "COUNT_SCAN", "a.x_1_a.y_1", 1, 0, 1);
    COUNTS("{'a': {'$elemMatch': {'x': 1}}}", NULL, "FETCH", "a.x_1_a.y_1", 1, 1, 0);
    COUNTS("{'a': {'$elemMatch': {'x': 1, 'y': 2}}, '$or': [{'_id': 1}, {'_id': 2}]}", NULL,
           "FETCH", "a.x_1_a.y_1", 1, 1, 0);
    truce_store_close(store);
}

/* ---- few of many ---------------------------------------------------------------------------- */

#define MANY 3000

/* a: from MANY - 1 down to 0, d: some order; e: the half that an index with a filter has */
static void fill_many(void)
{
    truce_write_outcome *outcomes = bson_malloc0(MANY * sizeof *outcomes);
    truce_write *writes = bson_malloc0(MANY * sizeof *writes);
    bson_t *documents = bson_malloc0(MANY * sizeof *documents);
    truce_bulk_options options = {.relaxed = true};
    bson_error_t error;

    for (int i = 0; i < MANY; i++) {
        bson_init(&documents[i]);
        BSON_APPEND_INT32(&documents[i], "_id", i);
        BSON_APPEND_INT32(&documents[i], "a", MANY - 1 - i);
        BSON_APPEND_INT32(&documents[i], "d", i * 1009 % MANY);
        BSON_APPEND_INT32(&documents[i], "e", i % 2);
        writes[i] =
            (truce_write){.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = &documents[i]};
    }
    CHECK_OK(truce_bulk(store, writes, MANY, &options, outcomes, &error), error);
    for (int i = 0; i < MANY; i++) {
        truce_write_result_release(&outcomes[i].result);
        bson_destroy(&documents[i]);
    }
    bson_free(outcomes);
    bson_free(documents);
    bson_free(writes);
}

/* The _ids that a find brings, as text; the caller frees it. */
static char *find_ids(const char *filter_json, truce_find_options options)
{
    bson_string_t *ids = bson_string_new("");
    bson_t *filter = test_bson(filter_json);
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error;

    if (CHECK_OK(truce_find(store, "c", filter, &options, &cursor, &error), error))
        while (!truce_cursor_next(cursor, &document, &error) && document)
            bson_string_append_printf(ids, "%lld ", (long long)number_at(document, "_id"));
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return bson_string_free(ids, false);
}

TEST(few_documents_of_a_wide_range_come_without_the_whole_of_it)
{
    truce_find_options ten = {.limit = 10};

    REQUIRE(open_new());
    fill_many();
    create_index("{'key': {'a': 1}}");
    create_index("{'key': {'d': 1}}");
    check_explain(__LINE__, "{'a': {'$gte': 0}}", &ten,
                  (struct expected){"FETCH", "a_1", 10, 10, 0});
    check_explain(__LINE__, "{'$or': [{'a': {'$gte': 0}}, {'d': {'$gte': 5}}]}", &ten,
                  (struct expected){"OR", "a_1", 10, 10, 0});
    check_explain(__LINE__, "{'a': {'$lt': 60}}", &ten,
                  (struct expected){"FETCH", "a_1", 10, 10, 0});
    truce_store_close(store);
}

TEST(few_documents_of_a_range_are_the_first_of_all_of_them)
{
    static const char *const filters[] = {
        "{'a': {'$gte': 0}}",
        "{'a': {'$lt': 1500}}",
        "{'a': {'$lt': 2900}, 'e': 1}",
        "{'d': {'$gte': 100}}",
        "{'d': {'$gt': 1200, '$lt': 2600}}",
        "{'d': {'$gt': 1200}, 'e': 0, '_id': {'$gt': 2500}}",
        "{'d': {'$gt': 5}, 'e': 7}",
        "{'$or': [{'a': {'$lt': 1100}}, {'d': {'$lt': 1100}}]}",
    };
    static const int64_t limits[] = {1, 2, 40, 333, 1500, MANY};

    REQUIRE(open_new());
    fill_many();
    create_index("{'key': {'a': 1}}");
    create_index("{'key': {'d': 1}}");
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        for (size_t j = 0; j < sizeof limits / sizeof *limits; j++) {
            truce_find_options options = {.skip = (int64_t)i % 3 * 20};
            char *all = find_ids(filters[i], options), *few;

            options.limit = limits[j];
            few = find_ids(filters[i], options);
            if (strncmp(all, few, strlen(few)) != 0 || (*all && !*few))
                test_fail(__FILE__, __LINE__, "%s, limit %lld: %s, not the first of %s", filters[i],
                          (long long)limits[j], few, all);
            bson_free(all);
            bson_free(few);
        }
    truce_store_close(store);
}

TEST(a_list_of_many_values_looks_at_their_keys_alone)
{
    bson_string_t *list = bson_string_new(""), *branches = bson_string_new("");
    char *filter;

    REQUIRE(open_new());
    fill_many();
    create_index("{'key': {'a': 1, 'd': 1}}");
    for (int i = 0; i < 1200; i++) {
        bson_string_append_printf(list, "%s%d", i ? "," : "", 2 * i);
        bson_string_append_printf(branches, "%s{'a': %d}", i ? "," : "", 2 * i);
    }
    filter = bson_strdup_printf("{'a': {'$in': [%s]}}", list->str);
    check_explain(__LINE__, filter, &(truce_find_options){0},
                  (struct expected){"FETCH", "a_1_d_1", 1200, 1200, 0});
    bson_free(filter);
    filter = bson_strdup_printf("{'$or': [%s]}", branches->str);
    check_explain(__LINE__, filter, &(truce_find_options){0},
                  (struct expected){"FETCH", "a_1_d_1", 1200, 1200, 0});
    bson_free(filter);
    bson_string_free(list, true);
    bson_string_free(branches, true);
    truce_store_close(store);
}

TEST(hides_documents_by_a_hinted_index_from_limited_reads_too)
{
    bson_t *hint = test_bson("{'': 'half'}");
    char *ids;

    REQUIRE(open_new());
    fill_many();
    create_index("{'key': {'d': 1}, 'name': 'half', 'partialFilterExpression': {'e': 1}}");
    ids = find_ids("{'d': {'$gte': 0}}", (truce_find_options){.hint = hint, .limit = 4});
    if (strcmp(ids, "889 2667 1445 223 ")) /* with d of 1, 3, 5 and 7 */
        test_fail(__FILE__, __LINE__, "%s", ids);
    bson_free(ids);
    bson_destroy(hint);
    truce_store_close(store);
}

static int64_t find_backward(const char *filter, int64_t limit, int64_t *first)
{
    truce_find_options options = {.limit = limit, .backward = true};
    bson_t *document = test_bson(filter);
    truce_cursor *cursor = NULL;
    const bson_t *found = NULL;
    bson_error_t error;
    int64_t count = 0;

    CHECK_OK(truce_find(store, "c", document, &options, &cursor, &error), error);
    while (CHECK_OK(truce_cursor_next(cursor, &found, &error), error) && found) {
        if (!count++)
            *first = number_at(found, "_id");
    }
    truce_cursor_close(cursor);
    bson_destroy(document);
    return count;
}

TEST(scans_backward_from_the_end_and_returns_each_document_once)
{
    int64_t first = 0;

    if (!open_new())
        return;
    create_index("{'key': {'e.a': 1, 'e.n': 1}, 'name': 'en'}");
    for (int i = 0; i < 300; i++)
        insert("{'_id': %d, 'e': [{'a': 'x', 'n': %d}, {'a': 'y', 'n': %d}]}", i, i * 7 % 300,
               1000 - i);
    CHECK_INT(find_backward("{'e': {'$elemMatch': {'a': 'x', 'n': {'$gt': 0}}}}", 1, &first), ==,
              1);
    CHECK_INT(first, ==, 257); /* 257 * 7 % 300 is 299 */
    CHECK_INT(find_backward("{'e.a': {'$in': ['x', 'y']}}", 0, &first), ==, 300);
    CHECK_INT(first, ==, 0);
    CHECK_INT(find_backward("{'e.n': {'$gte': 0}}", 0, &first), ==, 300);
    CHECK_INT(find_backward("{'$or': [{'_id': 1}, {'e.a': 'x', 'e.n': 5}]}", 0, &first), ==, 2);
    truce_store_close(store);
}

/* Checks that the call finds the same documents as a full scan, and at least one. */
static void check_same(int line, const char *filter_json, const char *sort_json)
{
    bson_t *natural = test_bson("{'$natural': 1}"), *sort = test_bson(sort_json);
    char *by_plan = find_ids(filter_json, (truce_find_options){.sort = sort});
    char *by_rows = find_ids(filter_json, (truce_find_options){.sort = sort, .hint = natural});

    if (strcmp(by_plan, by_rows) || !*by_rows)
        test_fail(__FILE__, line, "%s by %s: %s, not %s", filter_json, sort_json, by_plan, by_rows);
    bson_free(by_plan);
    bson_free(by_rows);
    bson_destroy(natural);
    bson_destroy(sort);
}

TEST(plans_bring_all_that_matches_and_each_once)
{
    REQUIRE(open_new());
    fill();
    insert("{'_id': 901, 'f': [5, {'b': 1}]}");
    insert("{'_id': 902, 'g': 3, 'hb': 5}");
    insert("{'_id': 903, 'x': {'y': {'z': 1}}}");
    create_index("{'key': {'a': 1}}");
    create_index("{'key': {'b': 1}}");
    create_index("{'key': {'f.0': 1}}");
    create_index("{'key': {'g': 1}, 'partialFilterExpression': {'ha': {'$gte': 1}}}");
    create_index("{'key': {'x.$**': 1}}");
    create_index("{'key': {'w': 1, 'b': 1}}");
    /* the second element has no field 0 */
    check_same(__LINE__, "{'f.0': null, '_id': {'$gt': 900}}", "{}");
    check_same(__LINE__, "{'f.0': null}", "{'_id': 1}");
    /* not in the partial index, whose path only begins with the same letter */
    check_same(__LINE__, "{'g': 3, 'hb': {'$gte': 5}}", "{}");
    /* not in a wildcard index, which has no documents */
    check_same(__LINE__, "{'x.y': {'z': 1}}", "{}");
    /* two branches, and the order of neither */
    check_same(__LINE__, "{'$or': [{'a': 3}, {'b': {'$lt': 50}}]}", "{'m': 1, '_id': -1}");
    check_same(__LINE__, "{}", "{'w': 1, 'b': -1}");
    check_same(__LINE__, "{'w': {'$gt': 'x1'}}", "{'w': -1, 'b': 1}");
    /* the intersection of two lists and a range */
    check_same(__LINE__,
               "{'$and': [{'b': {'$in': [9, 5, 31, 33, 200, 1]}}, {'b': {'$in': [1, 200, 33, 9, 7, "
               "299]}}, {'b': {'$gt': 1, '$lte': 200}}]}",
               "{'_id': 1}");
    /* a list of which not all is in a partial index */
    create_index("{'key': {'c': 1}, 'partialFilterExpression': {'a': {'$in': [1, 2, 4]}}}");
    check_same(__LINE__, "{'c': 1, 'a': {'$in': [1, 4]}}", "{'_id': 1}");
    check_same(__LINE__, "{'c': 1, 'a': {'$in': [1, 3]}}", "{'_id': 1}");
    check_same(__LINE__, "{'c': 1, 'a': {'$in': [0, 1, 2, 4]}}", "{'_id': 1}");
    check_same(__LINE__, "{'c': 1, 'a': {'$in': [4, 9]}}", "{'_id': 1}");
    truce_store_close(store);
}

TEST(an_or_of_many_ranges_in_all_looks_at_all_rows)
{
    bson_t filter = BSON_INITIALIZER, list, part, in;
    bson_error_t error;
    char *text, key[16];

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'b': 1, 'a': 1}}");
    BSON_APPEND_DOCUMENT_BEGIN(&filter, "a", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &list);
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d", i);
        BSON_APPEND_INT32(&list, key, i);
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    for (int branches = 4; branches <= 800; branches += 796) {
        bson_t whole, plan;

        bson_copy_to(&filter, &whole);
        BSON_APPEND_ARRAY_BEGIN(&whole, "$or", &list);
        for (int i = 0; i < branches; i++) {
            snprintf(key, sizeof key, "%d", i);
            BSON_APPEND_DOCUMENT_BEGIN(&list, key, &part);
            BSON_APPEND_INT32(&part, "b", i);
            bson_append_document_end(&list, &part);
        }
        bson_append_array_end(&whole, &list);
        CHECK_OK(truce_explain(store, "c", &whole, NULL, &plan, &error), error);
        text = bson_as_relaxed_extended_json(&plan, NULL);
        CHECK_INT(strstr(text, "COLLSCAN") != NULL, ==, branches > 4);
        bson_free(text);
        bson_destroy(&plan);
        bson_destroy(&whole);
    }
    bson_destroy(&filter);
    truce_store_close(store);
}

TEST(an_index_that_is_being_built_is_used_by_no_plan)
{
    static const enum index_state states[] = {INDEX_BUILDING, INDEX_CHECKING, INDEX_READY};
    bson_t *definition = test_bson("{'key': {'a': 1}}"), *filter = test_bson("{'a': 5}");
    struct index index = {.id = 7};
    struct collection collection = {.id = 1, .indexes_count = 1, .indexes = &index};
    struct plan_request request = {.collection = &collection};
    struct match *match;
    bson_error_t error;

    CHECK_OK(truce__index_spec_parse(definition, &index.spec, &error), error);
    CHECK_OK(truce__match_new(filter, &match, &error), error);
    request.match = match;
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        struct plan plan;

        index.state = states[i];
        CHECK_OK(truce__plan_make(&request, &plan, &error), error);
        CHECK_INT(plan.count, ==, 1);
        CHECK_INT(plan.scans[0].index, ==, states[i] == INDEX_READY ? 7 : 0);
        truce__plan_release(&plan);
    }
    truce__match_free(match);
    truce__index_spec_release(&index.spec);
    bson_destroy(definition);
    bson_destroy(filter);
}

TEST(explain_shows_each_step_of_a_find)
{
    bson_t *sort = test_bson("{'b': 1}");
    truce_find_options options = {.skip = 3, .limit = 5};

    REQUIRE(open_new());
    fill();
    create_index("{'key': {'a': 1}}");
    check_explain(
        __LINE__, "{'a': 3}", &options,
        (struct expected){
            "{ \"stage\" : \"LIMIT\", \"limitAmount\" : 5, \"inputStage\" : { \"stage\" : "
            "\"SKIP\", \"skipAmount\" : 3, \"inputStage\" : { \"stage\" : \"FETCH\"",
            "a_1", 8, 8, 0});
    options.sort = sort;
    check_explain(__LINE__, "{'a': 3}", &options,
                  (struct expected){
                      "{ \"stage\" : \"SKIP\", \"skipAmount\" : 3, \"inputStage\" : { \"stage\" : "
                      "\"SORT\", \"sortPattern\" : { \"b\" : 1 }, \"limitAmount\" : 8",
                      "a_1", 30, 30, 0});
    bson_destroy(sort);
    truce_store_close(store);
}

TEST(conditions_that_two_elements_meet_find_the_document)
{
    static const char *const filters[] = {"{'a.b': 1, 'a.c': 1}", "{'d': {'$gt': 5, '$lt': 3}}",
                                          "{'d': 1, 'e': {'$gte': 4}}"};

    REQUIRE(open_new());
    insert("{'_id': 1, 'a': [{'b': 1, 'c': 9}, {'b': 9, 'c': 1}], 'd': [1, 9], 'e': 4}");
    create_index("{'key': {'a.b': 1, 'a.c': 1}}");
    create_index("{'key': {'d': 1, 'e': 1}}");
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        char *ids = find_ids(filters[i], (truce_find_options){0});

        if (strcmp(ids, "1 "))
            test_fail(__FILE__, __LINE__, "%s: %s", filters[i], ids);
        check_explain(__LINE__, filters[i], &(truce_find_options){0},
                      (struct expected){"IXSCAN", NULL, 1, 1, 0});
        bson_free(ids);
    }
    truce_store_close(store);
}

TEST(conditions_on_one_element_bound_all_its_fields)
{
    static const struct {
        const char *filter, *ids;
        int64_t keys;
    } cases[] = {
        {"{'a': {'$elemMatch': {'b': 1, 'c': 5}}}", "1 ", 1},
        {"{'a': {'$elemMatch': {'b': 1, 'c': {'$gt': 4}}}}", "1 2 ", 2},
        {"{'a': {'$elemMatch': {'b': 1, 'c': {'$in': [5, 6, 7]}}}}", "1 2 ", 2},
        /* another element satisfies the other condition */
        {"{'a': {'$elemMatch': {'b': 1}}, 'a.c': 9}", "3 1 ", 3},
        {"{'a.c': 9, 'a': {'$elemMatch': {'b': 2, 'c': {'$gt': 8}}}}", "1 3 ", 2},
        {"{'a': {'$elemMatch': {'b': 1, 'c': {'$lt': 6}}}, 'a.b': 2}", "3 1 ", 2},
        {"{'$and': [{'a': {'$elemMatch': {'b': 1}}}, {'a': {'$elemMatch': {'c': 9}}}]}", "3 1 ", 3},
        {"{'d': {'$elemMatch': {'e.x': 1, 'e.y': 1}}}", "1 ", 1},
        {"{'d.e': {'$elemMatch': {'x': 1, 'y': 9}}}", "1 ", 1},
        {"{'d.e': {'$elemMatch': {'x': 1, 'y': 1}}}", "", 0},
    };

    REQUIRE(open_new());
    create_index("{'key': {'a.b': 1, 'a.c': 1}, 'name': 'i'}");
    create_index("{'key': {'d.e.x': 1, 'd.e.y': 1}, 'name': 'j'}");
    insert("{'_id': 1, 'a': [{'b': 1, 'c': 5}, {'b': 2, 'c': 9}],"
           " 'd': [{'e': [{'x': 1, 'y': 9}, {'x': 9, 'y': 1}]}]}");
    insert("{'_id': 2, 'a': [{'b': 1, 'c': 6}, {'b': 3, 'c': 1}]}");
    insert("{'_id': 3, 'a': [{'b': 1, 'c': 1}, {'b': 2, 'c': 9}]}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *ids = find_ids(cases[i].filter, (truce_find_options){0});

        if (strcmp(ids, cases[i].ids))
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].filter, ids);
        check_explain(__LINE__, cases[i].filter, &(truce_find_options){0},
                      (struct expected){"IXSCAN", NULL, cases[i].keys, cases[i].keys, 0});
        bson_free(ids);
    }
    truce_store_close(store);
}

/* ---- pipelines ------------------------------------------------------------------------------ */

/* Checks the _ids of a pipeline's results in order, and whether an index gave the order. */
static void check_pipeline(int line, const char *filter_json, const char *sort_json,
                           const char *tail_json, bool ordered, const char *ids)
{
    char json[600], found[400] = "";
    bson_t *filter = test_bson(filter_json), *sort = test_bson(sort_json), *stages;
    truce_find_options options = {.sort = sort};
    truce_store_options plain = {0};
    truce_cursor *cursor = NULL;
    struct engine *engine;
    const bson_t *document;
    bson_error_t error;
    bool sorted = false;

    snprintf(json, sizeof json, "[{'$match': %s}, {'$sort': %s}%s]", filter_json, sort_json,
             tail_json);
    stages = test_bson(json);
    CHECK_OK(truce_aggregate(store, "c", stages, NULL, &cursor, &error), error);
    while (!truce_cursor_next(cursor, &document, &error) && document)
        snprintf(found + strlen(found), sizeof found - strlen(found), "%lld ",
                 (long long)number_at(document, "_id"));
    truce_cursor_close(cursor);
    if (strcmp(found, ids))
        test_fail(__FILE__, line, "%s: %s, not %s", json, found, ids);
    CHECK_OK(truce__engine_open(path, &plain, &engine, &error), error);
    CHECK_OK(truce__engine_find_if_sorted(engine, "c", filter, &options, &cursor, &sorted, &error),
             error);
    truce_cursor_close(cursor);
    truce__engine_close(engine);
    if (sorted != ordered)
        test_fail(__FILE__, line, "%s: %s", json, sorted ? "by an index" : "by no index");
    bson_destroy(stages);
    bson_destroy(filter);
    bson_destroy(sort);
}

#define ORDERS_IF(ordered, filter, sort, tail, ids)                                                \
    check_pipeline(__LINE__, filter, sort, tail, ordered, ids)

TEST(sorts_by_an_index_and_distinguishes_missing_from_null)
{
    REQUIRE(open_new());
    insert("{'_id': 1, 'g': 1, 'a': 5}");
    insert("{'_id': 2, 'g': 1, 'a': null}");
    insert("{'_id': 3, 'g': 1}");
    insert("{'_id': 4, 'g': 2, 'a': 1}");
    insert("{'_id': 5, 'g': 1, 'a': null}");
    insert("{'_id': 6, 'g': 1, 'a': {'$undefined': true}}");
    insert("{'_id': 7, 'g': 1, 'a': {'$minKey': 1}}");
    insert("{'_id': 8, 'g': 2}");
    insert("{'_id': 9, 'g': 2, 'a': null, 'b': 1}");
    insert("{'_id': 10, 'g': 2, 'b': 2}");
    insert("{'_id': 11, 'g': 2, 'a': null}");
    for (int indexed = 0; indexed < 2; indexed++) {
        ORDERS_IF(indexed, "{'g': 1}", "{'a': 1, '_id': 1}", "", "7 3 6 2 5 1 ");
        ORDERS_IF(indexed, "{'g': 1}", "{'a': -1, '_id': -1}", "", "1 5 2 6 3 7 ");
        ORDERS_IF(indexed, "{'g': 1}", "{'a': 1, '_id': 1}", ", {'$limit': 3}", "7 3 6 ");
        ORDERS_IF(indexed, "{'g': 1}", "{'a': 1, '_id': 1}", ", {'$skip': 2}, {'$limit': 2}",
                  "6 2 ");
        ORDERS_IF(indexed, "{}", "{'g': 1, 'a': 1, '_id': 1}", "", "7 3 6 2 5 1 8 10 9 11 4 ");
        ORDERS_IF(indexed, "{}", "{'a': 1, 'b': -1, '_id': 1}", ", {'$limit': 8}",
                  "7 10 3 6 8 9 2 5 ");
        create_index("{'key': {'g': 1, 'a': 1, '_id': 1}}");
        create_index("{'key': {'a': 1, 'b': -1, '_id': 1}}");
    }
    ORDERS_IF(true, "{'g': 1, 'a': {'$gt': 0}}", "{'a': 1}", "", "1 ");
    ORDERS_IF(false, "{'g': 1}", "{'b': 1, '_id': 1}", ", {'$limit': 2}", "1 2 ");
    insert("{'_id': 12, 'g': 1, 'a': [4, 6]}");
    ORDERS_IF(false, "{'g': 1}", "{'a': 1, '_id': 1}", "", "7 3 6 2 5 12 1 ");
    truce_store_close(store);
}
