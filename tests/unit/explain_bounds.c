/* The bounds of an index scan in explain, in MongoDB's format. */
#include <stdio.h>

#include "bson/value.h"
#include "tests/support/test.h"
#include "truce/store.h"

static truce_store *store;
static bson_error_t error;

static void open_store(void)
{
    static const char *const indexes[] = {
        "{'key': {'a': 1, 'b': -1}, 'name': 'ab'}", "{'key': {'t': 1}, 'name': 't'}",
        "{'key': {'w.$**': 1}, 'name': 'w'}", "{'key': {'d': -1}, 'name': 'd'}"};
    bson_t *document = test_bson("{'_id': 1, 'a': 1, 'b': 1, 't': [1, 2]}");
    char path[400];

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    REQUIRE(CHECK_OK(
        truce_store_open(path, &(truce_store_options){.relaxed = true}, &store, &error), error));
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        bson_t *index = test_bson(indexes[i]);

        CHECK_OK(truce_index_create(store, "c", index, &error), error);
        bson_destroy(index);
    }
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    bson_destroy(document);
}

/* The bounds of the scan, or of the first of an $or. */
static bool find_bounds(const bson_t *plan, bson_t *bounds)
{
    static const char *const places[] = {
        "queryPlanner.winningPlan.inputStage.indexBounds",
        "queryPlanner.winningPlan.inputStage.inputStage.indexBounds",
        "queryPlanner.winningPlan.inputStages.0.inputStage.indexBounds"};
    bson_iter_t at, found;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (bson_iter_init(&at, plan) && bson_iter_find_descendant(&at, places[i], &found) &&
            BSON_ITER_HOLDS_DOCUMENT(&found)) {
            truce__value_bson(truce__value_of_iter(&found), bounds);
            return true;
        }
    return false;
}

static void expect(int line, const char *filter_json, const truce_find_options *options,
                   const char *json)
{
    bson_t *filter = test_bson(filter_json), *wanted = test_bson(json), plan, bounds;

    if (CHECK_OK(truce_explain(store, "c", filter, options, &plan, &error), error)) {
        if (!find_bounds(&plan, &bounds))
            test_fail(__FILE__, line, "%s has no bounds", filter_json);
        else if (!CHECK_BSON(wanted, &bounds))
            printf("    line %d\n", line);
    }
    bson_destroy(&plan);
    bson_destroy(filter);
    bson_destroy(wanted);
}

#define EXPECT(filter, json) expect(__LINE__, filter, NULL, json)

TEST(reports_bounds_by_field_in_the_order_of_the_scan)
{
    open_store();
    EXPECT("{'a': 5}", "{'a': ['[5, 5]'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': 5, 'b': {'$gt': 2.5}}", "{'a': ['[5, 5]'], 'b': ['[inf.0, 2.5)']}");
    EXPECT("{'a': {'$in': [3, 'x']}, 'b': {'$gte': 1, '$lt': 4}}",
           "{'a': ['[3, 3]', '[\\'x\\', \\'x\\']'], 'b': ['(4, 1]']}");
    EXPECT("{'a': null, 'b': 1}", "{'a': ['[undefined, null]'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': {'$gte': 1, '$lt': 9, '$gt': 3, '$lte': 8}}",
           "{'a': ['(3, 8]'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': {'$lt': 5, '$gt': 1, '$lte': 8, '$gte': 0}}",
           "{'a': ['(1, 5)'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': {'$gt': 5}, 'b': 1}", "{'a': ['(5, inf.0]'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': {'$lte': 'm'}}", "{'a': ['[\\'\\', \\'m\\']'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'a': {'$gte': 'm'}}", "{'a': ['[\\'m\\', {})'], 'b': ['[MaxKey, MinKey]']}");
    EXPECT("{'t': {'$regex': '^ab'}}", "{'t': ['[\\'ab\\', \\'ac\\')', '[//, DBRef)']}");
    EXPECT("{'d': {'$lt': {'$date': '1970-01-01T00:00:01Z'}}}",
           "{'d': ['(new Date(1000), new Date(-9223372036854775808)]']}");
    EXPECT(
        "{'d': {'$in': [{'$oid': '000000000000000000000001'}, true, {'$timestamp': {'t': 1, 'i': "
        "2}}]}}",
        "{'d': ['[Timestamp(1, 2), Timestamp(1, 2)]', '[true, true]', "
        "'[ObjectId(\\u0027000000000000000000000001\\u0027), "
        "ObjectId(\\u0027000000000000000000000001\\u0027)]']}");
    EXPECT("{'w.x': {'$lt': 3}}", "{'$_path': ['[\\'w.x\\', \\'w.x\\']'], 'w.x': ['[-inf.0, 3)']}");
    EXPECT("{'$or': [{'t': 1}, {'d': 2}]}", "{'t': ['[1, 1]']}");
    EXPECT("{'_id': {'$lt': {'$numberDouble': '-Infinity'}}}", "{'_id': ['[-inf.0, -inf.0)']}");
    truce_store_close(store);
}

TEST(reverses_bounds_of_a_backward_scan)
{
    bson_t *sort = test_bson("{'a': -1}"), *hint = test_bson("{'t': 1}"),
           *min = test_bson("{'t': 2}");
    const truce_find_options backward = {.sort = sort},
                             part = {.hint = hint, .min = min, .plan_only = true};

    open_store();
    expect(__LINE__, "{'a': {'$gt': 5}}", &backward,
           "{'a': ['[inf.0, 5)'], 'b': ['[MinKey, MaxKey]']}");
    expect(__LINE__, "{'t': 5}", &part,
           "{'startKey': {'t': 2}, 'startKeyInclusive': true, 'endKeyInclusive': false}");
    truce_store_close(store);
    bson_destroy(sort);
    bson_destroy(hint);
    bson_destroy(min);
}

/* If the ranges exceed the limit of a scan, the last fields are unbounded. */
TEST(reports_fields_with_too_many_ranges_as_unbounded)
{
    bson_t *filter = BCON_NEW("b", BCON_INT32(1)), in = BSON_INITIALIZER, list, plan, bounds, field;
    bson_iter_t at;

    open_store();
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &list);
    for (int32_t i = 0; i < 2000; i++)
        BSON_APPEND_INT32(&list, "", i);
    bson_append_array_end(&in, &list);
    BSON_APPEND_DOCUMENT(filter, "a", &in);
    CHECK_OK(truce_explain(store, "c", filter, NULL, &plan, &error), error);
    if (CHECK(find_bounds(&plan, &bounds)) &&
        CHECK(bson_iter_init_find(&at, &bounds, "a") && BSON_ITER_HOLDS_ARRAY(&at))) {
        truce__value_bson(truce__value_of_iter(&at), &field);
        CHECK_INT(bson_count_keys(&field), ==, 1); /* it walks through the index */
    }
    bson_destroy(&plan);
    bson_destroy(&in);
    bson_destroy(filter);
    truce_store_close(store);
}
