/* The contract: aggregation, with the stages that reach other collections. */
#include "tests/support/contract.h"

#include "base/status.h"

const int contract_aggregate_cases = 1;

/* Runs the pipeline and collects its documents in the array `list`, which is initialized in any
 * case. */
static truce_status aggregate(struct contract *c, const char *collection, const char *pipeline,
                              const truce_aggregate_options *options, bson_t *list)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    uint32_t count = 0;
    truce_status status =
        truce_aggregate(c->store, collection, J(pipeline), options, &cursor, &c->error);

    bson_init(list);
    while (!status) {
        char key[16];

        status = truce_cursor_next(cursor, &document, &c->error);
        if (status || !document)
            break;
        snprintf(key, sizeof(key), "%u", count++);
        BSON_APPEND_DOCUMENT(list, key, document);
    }
    truce_cursor_close(cursor);
    return status;
}

static void check_gives(struct contract *c, const char *collection, const char *pipeline,
                        const char *expected, int line)
{
    bson_t list;

    test_check_status(TRUCE_OK, aggregate(c, collection, pipeline, NULL, &list), &c->error,
                      pipeline, __FILE__, line);
    test_bson_equal(J(expected), &list, __FILE__, line);
    bson_destroy(&list);
}
#define CHECK_GIVES(collection, pipeline, expected)                                                \
    check_gives(c, collection, pipeline, expected, __LINE__)

static void check_fails(struct contract *c, const char *collection, const char *pipeline,
                        uint32_t code, int line)
{
    bson_t list;
    truce_status status = aggregate(c, collection, pipeline, NULL, &list);

    if (status == TRUCE_OK || (code && c->error.code != code))
        test_fail(__FILE__, line, "%s: status %d, code %u, not %u", pipeline, status, c->error.code,
                  code);
    bson_destroy(&list);
}
#define CHECK_FAILS(collection, pipeline, code) check_fails(c, collection, pipeline, code, __LINE__)

#define SALES                                                                                      \
    "[{'_id': 1, 'k': 'a', 'n': 1}, {'_id': 2, 'k': 'b', 'n': 2}, {'_id': 3, 'k': 'a', 'n': 3}]"

CONTRACT(a_pipeline_matches_groups_and_sorts)
{
    contract_fill(c, "sales", SALES);
    CHECK_GIVES("sales", "[]", SALES);
    CHECK_GIVES("sales",
                "[{'$match': {'n': {'$gt': 0}}}, {'$group': {'_id': '$k', 'sum': {'$sum': '$n'}}},"
                " {'$sort': {'_id': -1}}]",
                "[{'_id': 'b', 'sum': 2}, {'_id': 'a', 'sum': 4}]");
    CHECK_GIVES("nothing", "[{'$count': 'n'}]", "[]");
    CHECK_GIVES("sales", "[{'$sort': {'n': -1}}, {'$limit': 1}, {'$project': {'n': 1, '_id': 0}}]",
                "[{'n': 3}]");
}

CONTRACT(refuses_an_invalid_pipeline)
{
    contract_fill(c, "sales", SALES);
    CHECK_FAILS("sales", "[{'$nope': 1}]", 40324);
    CHECK_FAILS("sales", "[{'$match': {'a': {'$nope': 1}}}]", CODE_BAD_VALUE);
    CHECK_FAILS("sales", "[{'$project': {'x': {'$divide': [1, 0]}}}]", 0);
    CHECK_FAILS("sales", "[{'$geoNear': {}}]", 0);
}

CONTRACT(lookup_and_union_reach_other_collections)
{
    contract_fill(c, "sales", SALES);
    contract_fill(c, "names", "[{'_id': 'a', 'name': 'Anna'}]");
    CHECK_GIVES(
        "sales",
        "[{'$match': {'_id': {'$lte': 2}}}, {'$lookup': {'from': 'names', 'localField': 'k',"
        " 'foreignField': '_id', 'as': 'who'}}, {'$project': {'who': '$who.name'}}]",
        "[{'_id': 1, 'who': ['Anna']}, {'_id': 2, 'who': []}]");
    CHECK_GIVES("names", "[{'$unionWith': 'sales'}, {'$count': 'n'}]", "[{'n': 4}]");
}

CONTRACT(out_replaces_a_collection_and_keeps_its_indexes)
{
    contract_fill(c, "sales", SALES);
    contract_fill(c, "sums", "[{'_id': 'old'}]");
    CHECK_DONE(
        truce_index_create(c->store, "sums", J("{'key': {'sum': 1}, 'unique': true}"), &c->error));
    CHECK_GIVES("sales", "[{'$group': {'_id': '$k', 'sum': {'$sum': '$n'}}}, {'$out': 'sums'}]",
                "[]");
    CHECK_HOLDS("sums", "[{'_id': 'a', 'sum': 4}, {'_id': 'b', 'sum': 2}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, 0,
                  truce_insert(c->store, "sums", J("{'sum': 4}"), NULL, &c->error));
    CHECK_FAILS("sales", "[{'$project': {'sum': {'$literal': 7}}}, {'$out': 'sums'}]",
                CODE_DUPLICATE_KEY);
    CHECK_HOLDS("sums", "[{'_id': 'a', 'sum': 4}, {'_id': 'b', 'sum': 2}]");
    CHECK_GIVES("sales", "[{'$match': {'n': 99}}, {'$out': 'empty'}]", "[]");
    CHECK_FINDS("empty", "{}", NULL, "[]");
}

CONTRACT(a_failed_out_leaves_no_collection_behind)
{
    bson_t collections;

    contract_fill(c, "sales", SALES);
    CHECK_FAILS("sales",
                "[{'$project': {'x': {'$divide': [1, {'$subtract': ['$n', 3]}]}}}, {'$out': 'q'}]",
                0);
    CHECK_DONE(truce_collection_list(c->store, NULL, &collections, &c->error));
    CHECK_INT(bson_count_keys(&collections), ==, 1);
    bson_destroy(&collections);
}

CONTRACT(merge_inserts_and_merges)
{
    contract_fill(c, "sales", "[{'_id': 1, 'n': 1}, {'_id': 2, 'n': 2}]");
    contract_fill(c, "all", "[{'_id': 1, 'm': 9, 'n': 0}]");
    CHECK_GIVES("sales", "[{'$merge': {'into': 'all'}}]", "[]");
    CHECK_HOLDS("all", "[{'_id': 1, 'm': 9, 'n': 1}, {'_id': 2, 'n': 2}]");
    CHECK_GIVES("sales", "[{'$merge': 'short'}]", "[]");
    CHECK_HOLDS("short", "[{'_id': 1, 'n': 1}, {'_id': 2, 'n': 2}]");
}

CONTRACT(merge_follows_its_options_for_matches_and_others)
{
    static const struct {
        const char *options, *expected;
    } cases[] = {
        {"'whenMatched': 'replace'", "[{'_id': 1, 'n': 1}, {'_id': 2, 'n': 2}]"},
        {"'whenMatched': 'keepExisting'", "[{'_id': 1, 'm': 9}, {'_id': 2, 'n': 2}]"},
        {"'whenMatched': 'merge', 'whenNotMatched': 'discard'", "[{'_id': 1, 'm': 9, 'n': 1}]"},
        {"'whenMatched': [{'$set': {'n': {'$add': ['$m', '$$new.n']}}}]",
         "[{'_id': 1, 'm': 9, 'n': 10}, {'_id': 2, 'n': 2}]"},
        {"'let': {'v': {'$multiply': ['$n', 3]}}, 'whenMatched': [{'$set': {'x.y': '$$v'}}]",
         "[{'_id': 1, 'm': 9, 'x': {'y': 3}}, {'_id': 2, 'n': 2}]"},
    };

    contract_fill(c, "sales", "[{'_id': 1, 'n': 1}, {'_id': 2, 'n': 2}]");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char pipeline[300];

        CHECK_DONE(
            truce_remove(c->store, "all", J("{}"), WRITE_OPTIONS(.multi = true), NULL, &c->error));
        contract_fill(c, "all", "[{'_id': 1, 'm': 9}]");
        snprintf(pipeline, sizeof(pipeline), "[{'$merge': {'into': 'all', %s}}]", cases[i].options);
        CHECK_GIVES("sales", pipeline, "[]");
        CHECK_HOLDS("all", cases[i].expected);
    }
    CHECK_FAILS("sales", "[{'$merge': {'into': 'all', 'whenMatched': 'fail'}}]",
                CODE_DUPLICATE_KEY);
    CHECK_FAILS("sales", "[{'$merge': {'into': 'fresh', 'whenNotMatched': 'fail'}}]", 13113);
}

CONTRACT(merge_on_other_fields_wants_a_unique_index)
{
    contract_fill(c, "sales", "[{'_id': 1, 'k': 'a', 'n': 1}, {'_id': 2, 'k': 'b', 'n': 2}]");
    contract_fill(c, "all", "[{'_id': 7, 'k': 'a', 'n': 0}]");
    CHECK_FAILS("sales", "[{'$unset': '_id'}, {'$merge': {'into': 'all', 'on': 'k'}}]", 51183);
    CHECK_FAILS("nothing", "[{'$merge': {'into': 'all', 'on': 'k'}}]", 51183);
    CHECK_DONE(
        truce_index_create(c->store, "all", J("{'key': {'k': 1}, 'unique': true}"), &c->error));
    CHECK_GIVES("sales",
                "[{'$match': {'k': 'a'}}, {'$unset': '_id'},"
                " {'$merge': {'into': 'all', 'on': 'k'}}]",
                "[]");
    CHECK_FAILS("sales",
                "[{'$project': {'_id': 0, 'n': 1}}, {'$merge': {'into': 'all', 'on': 'k'}}]",
                51132);
}

CONTRACT(a_large_sort_spills_only_if_it_may)
{
    truce_aggregate_options may = {.allow_disk_use = true};
    enum { COUNT = 260, SIZE = 500 * 1024 };
    truce_status status;
    char *text;
    bson_t list;

    if (TEST_THREAD_SANITIZED) {
        test_skip("one thread, and 130 MB: that takes long here");
        return;
    }
    text = bson_malloc(SIZE);
    memset(text, 'x', SIZE);
    for (int i = 0; i < COUNT; i++) {
        bson_t document = BSON_INITIALIZER;

        BSON_APPEND_INT32(&document, "_id", (i * 7) % COUNT);
        bson_append_utf8(&document, "t", 1, text, SIZE);
        CHECK_DONE(
            truce_insert(c->store, "big", &document, WRITE_OPTIONS(.relaxed = true), &c->error));
        bson_destroy(&document);
    }
    status = aggregate(
        c, "big", "[{'$sort': {'x': 1, '_id': -1}}, {'$group': {'_id': null, 'n': {'$sum': 1}}}]",
        NULL, &list);
    CHECK(status == TRUCE_LIMIT || status == TRUCE_INVALID || bson_count_keys(&list) == 1);
    bson_destroy(&list);
    CHECK_DONE(
        aggregate(c, "big",
                  "[{'$sort': {'x': 1, '_id': -1}}, {'$skip': 2}, {'$limit': 200},"
                  " {'$group': {'_id': null, 'n': {'$sum': 1}, 'first': {'$first': '$_id'}}}]",
                  &may, &list));
    CHECK_BSON(J("[{'_id': null, 'n': 200, 'first': 257}]"), &list);
    bson_destroy(&list);
    bson_free(text);
}
