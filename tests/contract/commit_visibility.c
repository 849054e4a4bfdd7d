/*
 * A commit of the journal that moves, changes and inserts documents dies after each of its writes.
 * Every read call on a snapshot shows the commit wholly, or not at all, and all of them show the
 * same.
 */
#include "tests/support/half_commit.h"
#include "truce/snapshot.h"

enum seen { BEFORE, AFTER, MIXED };

static enum seen judge(bool before, bool after)
{
    return before == after ? MIXED : after ? AFTER : BEFORE;
}

static int64_t number_of(truce_cursor *cursor, const char *field)
{
    const bson_t *document = NULL;
    bson_error_t error = {0};
    int64_t number = 0;
    bson_iter_t iter;

    for (;;) {
        if (!CHECK_OK(truce_cursor_next(cursor, &document, &error), error) || !document)
            return number;
        CHECK(!bson_has_field(document, "_intent"));
        if (!field)
            number++;
        else if (bson_iter_init_find(&iter, document, field))
            number += bson_iter_as_int64(&iter);
    }
}

/* Returns the number of documents; with a field, the sum of it. */
static int64_t find_all(truce_store *view, const char *collection, const char *json,
                        const truce_find_options *options, const char *field)
{
    bson_t *filter = test_bson(json);
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};
    int64_t number = -1;

    if (CHECK_OK(truce_find(view, collection, filter, options, &cursor, &error), error))
        number = number_of(cursor, field);
    truce_cursor_close(cursor);
    bson_destroy(filter);
    return number;
}

static int64_t aggregate(truce_store *view, const char *collection, const char *json,
                         const char *field)
{
    bson_t *pipeline = test_bson(json), stages;
    truce_cursor *cursor = NULL;
    bson_error_t error = {0};
    int64_t number = -1;
    bson_iter_t iter;
    const uint8_t *bytes;
    uint32_t length;

    CHECK(bson_iter_init_find(&iter, pipeline, "stages"));
    bson_iter_array(&iter, &length, &bytes);
    CHECK(bson_init_static(&stages, bytes, length));
    if (CHECK_OK(truce_aggregate(view, collection, &stages, NULL, &cursor, &error), error))
        number = number_of(cursor, field);
    truce_cursor_close(cursor);
    bson_destroy(pipeline);
    return number;
}

static enum seen by_find(truce_store *view)
{
    int64_t m0 = find_all(view, "m0", "{}", NULL, NULL),
            m1 = find_all(view, "m1", "{}", NULL, NULL);

    return judge(m0 == 3 && m1 == 1, m0 == 2 && m1 == 3);
}

static enum seen by_find_one(truce_store *view)
{
    bool there[2];

    for (int i = 0; i < 2; i++) {
        bson_t *filter = test_bson("{'_id': 'mover'}"), document;
        bson_error_t error = {0};

        there[i] = !truce_find_one(view, i ? "m1" : "m0", filter, NULL, &document, &error);
        CHECK(!there[i] || bson_has_field(&document, "a"));
        bson_destroy(&document);
        bson_destroy(filter);
    }
    return judge(there[0] && !there[1], !there[0] && there[1]);
}

static enum seen by_filter(truce_store *view)
{
    int64_t one = find_all(view, "m0", "{'n': 1}", NULL, NULL),
            two = find_all(view, "m0", "{'n': 2}", NULL, NULL);

    return judge(one == 2 && two == 0, one == 1 && two == 1);
}

static enum seen by_index(truce_store *view)
{
    bson_t *hint = test_bson("{'n': 1}"), *min = test_bson("{'n': 2}"),
           *max = test_bson("{'n': 99}");
    truce_find_options options = {.hint = hint, .min = min, .max = max};
    int64_t m0 = find_all(view, "m0", "{}", &options, "n"),
            m1 = find_all(view, "m1", "{}", &options, "n");

    bson_destroy(max);
    bson_destroy(min);
    bson_destroy(hint);
    return judge(m0 == 0 && m1 == 0, m0 == 2 && m1 == 9);
}

static enum seen by_sort(truce_store *view)
{
    bson_t *sort = test_bson("{'n': -1}");
    truce_find_options options = {.sort = sort, .limit = 1};
    int64_t n = find_all(view, "m1", "{}", &options, "n");

    bson_destroy(sort);
    return judge(n == 1, n == 9);
}

static enum seen by_count(truce_store *view)
{
    int64_t m0 = count_json(view, "m0", "{}"), m1 = count_json(view, "m1", "{}"),
            two = count_json(view, "m0", "{'n': 2}");

    return judge(m0 == 3 && m1 == 1 && two == 0, m0 == 2 && m1 == 3 && two == 1);
}

static enum seen by_distinct(truce_store *view)
{
    bson_t *filter = test_bson("{}"), values;
    bson_error_t error = {0};
    uint32_t count;

    CHECK_OK(truce_distinct(view, "m0", "n", filter, &values, &error), error);
    count = bson_count_keys(&values);
    bson_destroy(&values);
    bson_destroy(filter);
    return judge(count == 1, count == 2);
}

static enum seen by_group(truce_store *view)
{
    int64_t sum = aggregate(
        view, "m0", "{'stages': [{'$group': {'_id': null, 'sum': {'$sum': '$n'}}}]}", "sum");

    return judge(sum == 2, sum == 3);
}

/* The first collection of the pipeline has no document of the commit. */
static enum seen by_union(truce_store *view)
{
    int64_t count = aggregate(
        view, "none", "{'stages': [{'$unionWith': 'm0'}, {'$unionWith': {'coll': 'm1'}}]}", NULL);

    return judge(count == 4, count == 5);
}

static enum seen by_lookup(truce_store *view)
{
    int64_t count = aggregate(
        view, "names",
        "{'stages': [{'$lookup': {'from': 'm1', 'localField': 'of', 'foreignField': '_id',"
        " 'as': 'found'}}, {'$unwind': '$found'}]}",
        NULL);

    return judge(count == 0, count == 1);
}

static enum seen by_read_many(truce_store *view)
{
    bson_value_t id = text_id("mover");
    truce_read_request looks[] = {{.collection = "m0", .id = &id}, {.collection = "m1", .id = &id}};
    bson_error_t error = {0};
    enum seen seen;

    CHECK_OK(truce_read_many(view, looks, 2, NULL, &error), error);
    seen = judge(looks[0].found && !looks[1].found, !looks[0].found && looks[1].found);
    for (int i = 0; i < 2; i++)
        bson_destroy(&looks[i].document);
    return seen;
}

static const struct {
    const char *name;
    enum seen (*read)(truce_store *view);
} reads[] = {{"find", by_find},         {"find_one", by_find_one},  {"filter", by_filter},
             {"index", by_index},       {"sort", by_sort},          {"count", by_count},
             {"distinct", by_distinct}, {"$group", by_group},       {"$unionWith", by_union},
             {"$lookup", by_lookup},    {"read_many", by_read_many}};

static bool see(const struct setting *setting, uint64_t at, int seen_so[2])
{
    truce_store *store = truce_fault_wrap(open_setting(setting), &(truce_fault_options){0}), *view;
    bson_error_t error = {0};
    enum seen first = MIXED;
    bool died;

    half_commit_fill(store);
    died = half_commit_end_at(store, at);
    if (CHECK_OK(truce_snapshot(store, NULL, &view, &error), error)) {
        for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
            enum seen seen = reads[i].read(view);

            if (i == 0)
                first = seen;
            if (seen == MIXED || seen != first)
                test_fail(__FILE__, __LINE__, "%s after write %d: %d, and find %d", reads[i].name,
                          (int)at, (int)seen, (int)first);
        }
        if (first != MIXED)
            seen_so[first]++;
    }
    truce_store_close(view);
    truce_store_close(store);
    return died;
}

TEST(every_read_of_a_snapshot_shows_a_commit_wholly_or_not_at_all)
{
    static const struct setting stores[] = {{"memory", "memory:", TRUCE_MECHANISM_JOURNAL, 0},
                                            {"file", "file:", TRUCE_MECHANISM_JOURNAL, 0}};

    for (size_t i = 0; i < sizeof stores / sizeof *stores; i++) {
        int before = test_failures(), seen_so[2] = {0};

        for (uint64_t at = 1; at < 30 && see(&stores[i], at, seen_so); at++)
            ;
        CHECK_INT(seen_so[BEFORE], >, 2);
        CHECK_INT(seen_so[AFTER], >, 2);
        if (test_failures() > before)
            fprintf(stderr, "    (with %s)\n", stores[i].name);
    }
}
