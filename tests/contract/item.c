/* Items of arrays and maps: every call, in every form, on every store, leaves the same document and
 * counts the same. */
#include <stdlib.h>

#include "base/random.h"
#include "patterns/item/item.h"
#include "tests/support/item_rig.h"
#include "tests/support/tutorial.h"
#include "truce/sys/decorate.h"

/* ---- one document, one call ---- */

struct story {
    const char *before, *call, *after;
    int64_t matched, modified;
    bool added;
    bool arrays_only; /* items that a map cannot contain */
};

#define ABC                                                                                        \
    "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 2}]}"

static const struct story stories[] = {
    {ABC, "update {'type': 'B'} {'$set': {'date': null}, '$inc': {'n': 5}}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 7, 'date': null},"
     "{'type': 'C', 'n': 2}]}",
     1, 1},
    {ABC, "update {'n': 2} {'$set': {'n': 3}}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 3}, {'type': 'C', 'n': 3}]}",
     2, 2},
    {ABC, "update {'n': {'$gte': 1}} {'$max': {'n': 2}}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 2}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 2}]}",
     3, 1},
    {ABC, "update {'$or': [{'type': 'A'}, {'n': {'$gt': 7}}]} {'$unset': {'n': 1}}",
     "{'_id': 1, 'badges': [{'type': 'A'}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 2}]}", 1, 1},
    {ABC, "update {} {'$rename': {'n': 'm'}}",
     "{'_id': 1, 'badges': [{'type': 'A', 'm': 1}, {'type': 'B', 'm': 2}, {'type': 'C', 'm': 2}]}",
     3, 3},
    {ABC, "update {'type': 'B', 'n': 1} {'$set': {'n': 3}}", ABC, 0, 0},
    {ABC, "update {'type': 'B', 'n': 2} {'$push': {'log': {'at': 1}}}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2, 'log': [{'at': 1}]},"
     "{'type': 'C', 'n': 2}]}",
     1, 1},
    {ABC, "add {'type': 'D', 'n': 4}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 2},"
     "{'type': 'D', 'n': 4}]}",
     0, 0, true},
    {ABC, "add {'type': 'B', 'n': 4}", ABC, 1, 0},
    {"{'_id': 1}", "add {'type': 'B', 'n': 4}", "{'_id': 1, 'badges': [{'type': 'B', 'n': 4}]}", 0,
     0, true},
    {ABC, "replace {'type': 'B', 'x': 1}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'x': 1}, {'type': 'C', 'n': 2}]}",
     1, 1},
    {ABC, "replace {'type': 'B', 'x': 1} {'n': 2}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'x': 1}, {'type': 'C', 'n': 2}]}",
     1, 1},
    {ABC, "replace {'type': 'B', 'x': 1} {'n': 3}", ABC, 0, 0},
    {ABC, "replace {'type': 'D'}", ABC, 0, 0},
    {ABC, "replace {'type': 'B', 'n': 2}", ABC, 1, 0},
    {ABC, "upsert {'type': 'C'}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}, {'type': 'C'}]}", 1, 1},
    {ABC, "upsert {'type': 'D'}",
     "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2}, {'type': 'C', 'n': 2},"
     "{'type': 'D'}]}",
     0, 0, true},
    {"{'_id': 1}", "upsert {'type': 'D'}", "{'_id': 1, 'badges': [{'type': 'D'}]}", 0, 0, true},
    {ABC, "remove {'n': 2}", "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}]}", 2, 2},
    {ABC, "remove {'type': 'A'}",
     "{'_id': 1, 'badges': [{'type': 'B', 'n': 2}, {'type': 'C', 'n': 2}]}", 1, 1},
    {ABC, "remove {'type': 'Z'}", ABC, 0, 0},
    {"{'_id': 1}", "remove {'type': 'Z'}", "{'_id': 1}", 0, 0},
    {"{'_id': 1}", "update {'type': 'Z'} {'$set': {'n': 1}}", "{'_id': 1}", 0, 0},
    {ABC, "remove {}", "{'_id': 1, 'badges': []}", 3, 3},
    /* names that a path cannot contain unchanged */
    {"{'_id': 1, 'badges': [{'type': 'a.b', 'n': 1}, {'type': '', 'n': 1}, {'type': '$x', 'n': 1}]}",
     "update {'type': 'a.b'} {'$inc': {'n': 1}}",
     "{'_id': 1, 'badges': [{'type': 'a.b', 'n': 2}, {'type': '', 'n': 1}, {'type': '$x', 'n': 1}]}",
     1, 1},
    {"{'_id': 1, 'badges': [{'type': '$x', 'n': 1}]}", "upsert {'type': '', 'n': 9}",
     "{'_id': 1, 'badges': [{'type': '$x', 'n': 1}, {'type': '', 'n': 9}]}", 0, 0, true},
    {"{'_id': 1, 'badges': [{'type': 5, 'n': 1}, {'type': '5', 'n': 1}, {'type': '%n5', 'n': 1}]}",
     "remove {'type': 5.0}",
     "{'_id': 1, 'badges': [{'type': '5', 'n': 1}, {'type': '%n5', 'n': 1}]}", 1, 1},
    {"{'_id': 1, 'badges': [{'type': '0', 'n': 1}, {'type': '1', 'n': 1}]}",
     "update {'type': '1'} {'$inc': {'n': 1}}",
     "{'_id': 1, 'badges': [{'type': '0', 'n': 1}, {'type': '1', 'n': 2}]}", 1, 1},
    /* items that are not documents */
    {"{'_id': 1, 'badges': [5, {'type': 'A'}, 7]}", "update {'type': null} {'$set': {'n': 1}}",
     "{'_id': 1, 'badges': [5, {'type': 'A'}, 7]}", 0, 0, false, true},
    {"{'_id': 1, 'badges': [5, {'type': 'A'}, 7]}", "update {} {'$set': {'n': 1}}",
     "{'_id': 1, 'badges': [5, {'type': 'A', 'n': 1}, 7]}", 1, 1, false, true},
    {"{'_id': 1, 'badges': [5, {'type': 'A'}, 7]}", "remove {'$gte': 6}",
     "{'_id': 1, 'badges': [5, {'type': 'A'}]}", 1, 1, false, true},
    {"{'_id': 1, 'badges': []}", "update {} {'$set': {'n': 1}}", "{'_id': 1, 'badges': []}", 0, 0},
};

static bool is_map(truce_store *store)
{
    bson_t *filter = test_bson("{'_id': 1}"), found;
    bson_error_t error;
    bool map;

    CHECK_OK(truce_find_one(store, "employees", filter, NULL, &found, &error), error);
    map = truce__item_at(&found, "badges").type == BSON_TYPE_DOCUMENT;
    bson_destroy(&found);
    bson_destroy(filter);
    return map;
}

static void begin(const struct item_way *way, truce_store *store, truce_item *item,
                  const char *before)
{
    bson_t *document = test_bson(before), everything = BSON_INITIALIZER;
    bson_error_t error;

    CHECK_OK(truce_remove(store, "employees", &everything, NULL, NULL, &error), error);
    CHECK_OK(truce_insert(store, "employees", document, NULL, &error), error);
    if (way->layout == TRUCE_ITEM_MAP)
        CHECK_OK(truce_item_convert(item, TRUCE_ITEM_MAP, NULL, NULL, &error), error);
    bson_destroy(document);
}

static void play(const struct item_way *way, truce_store *store, const struct story *story)
{
    truce_item *item = tutorial_item(store, &(truce_item_options){.layout = way->layout});
    bson_t *expected = test_bson(story->after), *found;
    int before = test_failures();
    truce_item_result result;
    bson_error_t error;

    begin(way, store, item, story->before);
    CHECK_OK(item_rig_call(item, way, store, story->call, &result, &error), error);
    CHECK_INT(result.matched, ==, story->matched);
    CHECK_INT(result.modified, ==, story->modified);
    CHECK_INT(result.added, ==, story->added);
    found = item_rig_read(store, "employees", "badges");
    CHECK_BSON(expected, found);
    if (way->layout == TRUCE_ITEM_MAP && bson_has_field(found, "badges"))
        CHECK(is_map(store));
    if (test_failures() > before)
        fprintf(stderr, "    that was %s: %s\n", way->name, story->call);
    bson_destroy(expected);
    bson_destroy(found);
    truce_item_free(item);
}

TEST(every_form_leaves_the_same_document_and_counts_the_same)
{
    for (int i = 0; i < item_ways_count; i++) {
        truce_store *store = item_rig_open(&item_ways[i]);

        for (size_t k = 0; k < sizeof stories / sizeof *stories; k++) {
            if (item_call_here(stories[k].call) &&
                (!stories[k].arrays_only || item_ways[i].layout == TRUCE_ITEM_ARRAY))
                play(&item_ways[i], store, &stories[k]);
        }
        truce_store_close(store);
    }
}

TEST(a_handle_for_maps_changes_arrays_and_vice_versa)
{
    for (int i = 0; i < item_ways_count; i++) {
        struct item_way other = item_ways[i];
        truce_store *store = item_rig_open(&other);
        truce_item *item = tutorial_item(store, &(truce_item_options){.layout = !other.layout});
        bson_t *found, *expected = test_bson("{'_id': 1, 'badges': [{'type': 'A', 'n': 1},"
                                             "{'type': 'B', 'n': 3}, {'type': 'D'}]}");
        truce_item_result result;
        bson_error_t error;

        begin(&other, store, item, ABC);
        CHECK_OK(item_rig_call(item, &other, store, "update {'type': 'B'} {'$inc': {'n': 1}}",
                               &result, &error),
                 error);
        CHECK_INT(result.modified, ==, 1);
        CHECK_OK(item_rig_call(item, &other, store, "upsert {'type': 'D'}", &result, &error),
                 error);
        CHECK(result.added);
        CHECK_OK(item_rig_call(item, &other, store, "add {'type': 'D'}", &result, &error), error);
        CHECK(!result.added);
        CHECK_OK(item_rig_call(item, &other, store, "remove {'type': 'C'}", &result, &error),
                 error);
        CHECK_INT(is_map(store), ==, other.layout == TRUCE_ITEM_MAP);
        found = item_rig_read(store, "employees", "badges");
        CHECK_BSON(expected, found);
        bson_destroy(found);
        bson_destroy(expected);
        truce_item_free(item);
        truce_store_close(store);
    }
}

/* ---- nested arrays ---- */

#define ORDERS                                                                                     \
    "{'_id': 1, 'orders': [{'no': 1, 'lines': [{'type': 'x', 'n': 1}, {'type': 'y', 'n': 1}]},"    \
    "{'no': 2}, {'no': 3, 'lines': [{'type': 'x', 'n': 5}]}]}"

TEST(items_of_arrays_in_arrays_are_changed_by_their_path)
{
    static const struct story nested[] = {
        {ORDERS, "update {'type': 'x'} {'$inc': {'n': 1}}",
         "{'_id': 1, 'orders': [{'no': 1, 'lines': [{'type': 'x', 'n': 2}, {'type': 'y', 'n': 1}]},"
         "{'no': 2}, {'no': 3, 'lines': [{'type': 'x', 'n': 6}]}]}",
         2, 2},
        {ORDERS, "remove {'type': 'x'}",
         "{'_id': 1, 'orders': [{'no': 1, 'lines': [{'type': 'y', 'n': 1}]},"
         "{'no': 2}, {'no': 3, 'lines': []}]}",
         2, 2},
    };

    for (int i = 0; i < item_ways_count; i++) {
        const struct item_way *way = &item_ways[i];
        truce_store *store;

        if (way->layout == TRUCE_ITEM_MAP)
            continue;
        store = item_rig_open(way);
        for (int k = 0; k < 2; k++) {
            truce_item *item =
                tutorial_item(store, &(truce_item_options){.field = "orders.$[].lines"});
            bson_t *expected = test_bson(nested[k].after), *found;
            truce_item_result result;
            bson_error_t error;

            begin(way, store, item, nested[k].before);
            CHECK_OK(item_rig_call(item, way, store, nested[k].call, &result, &error), error);
            CHECK_INT(result.matched, ==, nested[k].matched);
            CHECK_INT(result.modified, ==, nested[k].modified);
            found = item_rig_read(store, "employees", "orders");
            CHECK_BSON(expected, found);
            CHECK_STATUS(TRUCE_INVALID,
                         item_rig_call(item, way, store, "add {'type': 'q'}", &result, &error),
                         error);
            bson_destroy(found);
            bson_destroy(expected);
            truce_item_free(item);
        }
        truce_store_close(store);
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void check_refused(const struct item_way *way, truce_item_options options,
                          const char *before, const char *call, truce_status expected,
                          uint32_t code, const char *words)
{
    truce_store *store = item_rig_open(way);
    truce_item *plain = tutorial_item(store, NULL);
    truce_item *item = tutorial_item(store, &options);
    bson_t *unchanged = test_bson(before), *found;
    truce_item_result result;
    bson_error_t error = {0};

    begin(way, store, plain, before);
    CHECK_STATUS(expected, item_rig_call(item, way, store, call, &result, &error), error);
    if (code)
        CHECK_INT(error.code, ==, code);
    if (!strstr(error.message, words))
        test_fail(__FILE__, __LINE__, "%s, %s: \"%s\"", way->name, call, error.message);
    found = item_rig_read(store, "employees", "badges");
    if (!bson_has_field(unchanged, "_rev"))
        CHECK_BSON(unchanged, found);
    bson_destroy(found);
    bson_destroy(unchanged);
    truce_item_free(item);
    truce_item_free(plain);
    truce_store_close(store);
}

TEST(an_impossible_change_is_named_and_changes_nothing)
{
    for (int i = 0; i < item_ways_count; i++) {
        const struct item_way *way = &item_ways[i];
        truce_item_options plain = {.layout = way->layout};

        if (!strcmp(way->scheme, "file"))
            continue;
        check_refused(way, plain, ABC, "update {'type': 'A'} {'$set': {'n': 1}, '$inc': {'n': 1}}",
                      TRUCE_INVALID, 40, "");
        check_refused(way, plain, ABC, "update {'type': 'A'} {'$set': {'type': 'B'}}",
                      TRUCE_INVALID, 0, "\"type\"");
        check_refused(way, plain, ABC, "update {} {'$rename': {'n': 'type'}}", TRUCE_INVALID, 0,
                      "\"type\"");
        check_refused(way, plain, ABC, "update {'type': 'A'} {}", TRUCE_INVALID, 0, "is empty");
        check_refused(way, plain, ABC, "update {'type': 'A'} {'n': 5}", TRUCE_INVALID, 9, "");
        check_refused(way, plain, ABC, "update {'$expr': true} {'$set': {'n': 5}}", TRUCE_INVALID,
                      0, "");
        check_refused(way, plain, ABC, "update {'type': 'A'} {'$push': {'n': 1}}", TRUCE_INVALID, 0,
                      "");
        check_refused(way, plain, ABC, "add {'n': 5}", TRUCE_INVALID, 0, "no field \"type\"");
        check_refused(way, plain, ABC, "add {'type': [1]}", TRUCE_INVALID, 0, "\"type\"");
        check_refused(way, plain, "{'_id': 1, 'badges': 'text'}", "add {'type': 'A'}",
                      TRUCE_INVALID, 0, "string; expected an array");
        check_refused(way, (truce_item_options){.field = "a..b"}, ABC, "remove {}", TRUCE_INVALID,
                      0, "a..b");
        check_refused(way, (truce_item_options){.field = "a.$[]"}, ABC, "remove {}", TRUCE_INVALID,
                      0, "a.$[]");
        check_refused(way, (truce_item_options){.version = "badges"}, ABC, "remove {}",
                      TRUCE_INVALID, 0, "version field \"badges\"");
        check_refused(way, (truce_item_options){.version = "_rev"}, ABC, "remove {}", TRUCE_INVALID,
                      0, "version field \"_rev\"");
        check_refused(way, (truce_item_options){.identity = "a.b"}, ABC, "remove {}", TRUCE_INVALID,
                      0, "a.b");
        if (way->layout == TRUCE_ITEM_MAP)
            continue;
        check_refused(way, plain, "{'_id': 1, 'badges': [], '_intent': 5}", "add {'type': 'A'}",
                      TRUCE_INVALID, 0, "_intent");
        check_refused(way, plain, "{'_id': 1, 'badges': [], '_rev': 5}", "add {'type': 'A'}",
                      TRUCE_INVALID, 0, "_rev");
        check_refused(way, (truce_item_options){.field = "badges.log"}, ABC, "add {'type': 'A'}",
                      TRUCE_INVALID, 0, "badges.$[].log");
    }
}

TEST(reports_not_found_for_a_missing_document)
{
    for (int i = 0; i < item_ways_count; i++) {
        truce_store *store = item_rig_open(&item_ways[i]);
        truce_item *item = tutorial_item(store, NULL);
        truce_item_result result;
        bson_error_t error;

        CHECK_STATUS(
            TRUCE_NOT_FOUND,
            item_rig_call(item, &item_ways[i], store, "upsert {'type': 'A'}", &result, &error),
            error);
        truce_item_free(item);
        truce_store_close(store);
    }
}

TEST(a_form_that_the_store_does_not_have_is_refused)
{
    const struct item_way *way = item_way_named("positional");
    truce_item_result result;
    bson_error_t error;

    for (int i = 0; i < 2; i++) {
        truce_store *store = item_rig_open(way);
        truce_item *item =
            tutorial_item(store, &(truce_item_options){.form = i ? TRUCE_ITEM_FORM_OPERATOR
                                                                 : TRUCE_ITEM_FORM_FILTERS});

        CHECK_STATUS(TRUCE_INVALID, item_rig_call(item, way, store, "remove {}", &result, &error),
                     error);
        truce_item_free(item);
        truce_store_close(store);
    }
}

/* ---- random calls ---- */

static char *random_call(struct random *random)
{
    static const char *const queries[] = {
        "{'type': '%c'}",         "{'n': {'$lt': 3}}",       "{}",
        "{'type': '%c', 'n': 2}", "{'type': {'$gt': '%c'}}", "{'$nor': [{'type': '%c'}]}"};
    static const char *const changes[] = {
        "{'$inc': {'n': 1}}",      "{'$set': {'x': {'y': 1}}}",
        "{'$unset': {'x': 1}}",    "{'$push': {'l': 1}}",
        "{'$rename': {'x': 'z'}}", "{'$set': {'n': 0}, '$unset': {'z': 1}}"};
    char name = (char)('A' + truce__random_below(random, 5)), query[60];
    int n = (int)truce__random_below(random, 4);
    const char *change = changes[truce__random_below(random, 6)];

    snprintf(query, sizeof query, queries[truce__random_below(random, 6)], name);
    switch (truce__random_below(random, 6)) {
    case 0:
        return bson_strdup_printf("add {'type': '%c', 'n': %d}", name, n);
    case 1:
        return bson_strdup_printf("replace {'type': '%c', 'n': %d, 'r': 1}", name, n);
    case 2:
        return bson_strdup_printf("upsert {'type': '%c', 'n': %d}", name, n);
    case 3:
        return bson_strdup_printf("remove {'type': '%c'}", name);
    default:
        return bson_strdup_printf("update %s %s", query, change);
    }
}

/* Runs one way and the operator in memory by the same calls. */
struct random_pair {
    const struct item_way *way[2];
    truce_store *store[2];
    truce_item *item[2];
};

static void pair_open(struct random_pair *pair, const struct item_way *way)
{
    static const struct item_way reference = {"the reference", "memory", 0, false,
                                              TRUCE_ITEM_ARRAY};
    bson_error_t error;

    pair->way[0] = &reference;
    pair->way[1] = way;
    CHECK_OK(truce_store_open("memory:", NULL, &pair->store[0], &error), error);
    pair->store[1] = item_rig_open(way);
    for (int i = 0; i < 2; i++) {
        truce_item_options options = {.layout = pair->way[i]->layout};

        pair->item[i] = tutorial_item(pair->store[i], &options);
        begin(pair->way[i], pair->store[i], pair->item[i], ABC);
    }
}

static void pair_close(struct random_pair *pair)
{
    for (int i = 0; i < 2; i++) {
        truce_item_free(pair->item[i]);
        truce_store_close(pair->store[i]);
    }
}

static void pair_call(struct random_pair *pair, const char *call)
{
    truce_item_result results[2] = {{0}};
    truce_status status[2];
    bson_t *found[2];
    bson_error_t error = {0};

    for (int i = 0; i < 2; i++) {
        status[i] =
            item_rig_call(pair->item[i], pair->way[i], pair->store[i], call, &results[i], &error);
        found[i] = item_rig_read(pair->store[i], "employees", "badges");
    }
    if (status[0] != status[1] || results[0].matched != results[1].matched ||
        results[0].modified != results[1].modified || results[0].added != results[1].added)
        test_fail(__FILE__, __LINE__, "%s, %s: %d %d %d, %s", pair->way[1]->name, call,
                  (int)results[1].matched, (int)results[1].modified, results[1].added,
                  error.message);
    if (!CHECK_BSON(found[0], found[1]))
        fprintf(stderr, "    that was %s: %s\n", pair->way[1]->name, call);
    for (int i = 0; i < 2; i++)
        bson_destroy(found[i]);
}

TEST(random_calls_leave_the_same_documents_in_every_form)
{
    long rounds = test_scale("TRUCE_ITEM_ROUNDS", 150);
    uint64_t seed = test_seed();

    for (int i = 0; i < item_ways_count; i++) {
        struct random_pair pair;
        struct random random;

        truce__random_seed(&random, seed);
        pair_open(&pair, &item_ways[i]);
        for (long round = 0; round < rounds && !test_failures(); round++) {
            char *call = random_call(&random);

            if (item_call_here(call))
                pair_call(&pair, call);
            bson_free(call);
        }
        pair_close(&pair);
    }
}

/* ---- next to commits ------------------------------------------------------------------------- */

TEST(a_change_sets_the_revision_that_commits_compare)
{
    for (int i = 0; i < item_ways_count; i++) {
        truce_store *store = item_rig_open(&item_ways[i]);
        truce_item *item =
            tutorial_item(store, &(truce_item_options){.layout = item_ways[i].layout});
        bson_value_t id = {.value_type = BSON_TYPE_INT32};
        bson_t *more = test_bson("{'$set': {'seen': true}}"), document;
        truce_commit *commit;
        truce_item_result result;
        bson_error_t error;

        id.value.v_int32 = 1;
        begin(&item_ways[i], store, item, ABC);
        CHECK_OK(truce_commit_begin(store, NULL, &commit, &error), error);
        CHECK_OK(truce_commit_read(commit, "employees", &id, &document, &error), error);
        CHECK_OK(truce_commit_update(commit, "employees", &id, NULL, more, &error), error);
        CHECK_OK(item_rig_call(item, &item_ways[i], store,
                               "update {'type': 'B'} {'$inc': {'n': 1}}", &result, &error),
                 error);
        CHECK_STATUS(TRUCE_CONFLICT, truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        bson_destroy(&document);
        bson_destroy(more);
        truce_item_free(item);
        truce_store_close(store);
    }
}

static int64_t number_of(truce_store *store)
{
    bson_t *filter = test_bson("{'_id': 1}"), found;
    bson_error_t error;
    bson_iter_t iter;
    int64_t number = -1;

    CHECK_OK(truce_find_one(store, "employees", filter, NULL, &found, &error), error);
    if (CHECK(bson_iter_init_find(&iter, &found, "version")))
        number = bson_iter_as_int64(&iter);
    bson_destroy(&found);
    bson_destroy(filter);
    return number;
}

TEST(every_change_raises_the_number_of_a_document_that_has_one)
{
    static const char *const calls[] = {"update {'type': 'B'} {'$inc': {'n': 1}}",
                                        "update {'n': {'$gt': 0}} {'$set': {'n': 9}}",
                                        "add {'type': 'D'}",
                                        "upsert {'type': 'E'}",
                                        "upsert {'type': 'E', 'n': 1}",
                                        "replace {'type': 'A', 'n': 5}",
                                        "remove {'type': 'C'}"};

    for (int i = 0; i < item_ways_count; i++) {
        truce_store *store = item_rig_open(&item_ways[i]);
        truce_item *item = tutorial_item(
            store, &(truce_item_options){.layout = item_ways[i].layout, .version = "version"});
        truce_item *plain = tutorial_item(store, NULL);
        truce_item_result result;
        bson_error_t error;

        begin(&item_ways[i], store, plain,
              "{'_id': 1, 'version': 3, 'badges': [{'type': 'A', 'n': 1}, {'type': 'B', 'n': 2},"
              "{'type': 'C', 'n': 2}]}");
        for (int k = 0; k < 7; k++) {
            CHECK_OK(item_rig_call(item, &item_ways[i], store, calls[k], &result, &error), error);
            if (!CHECK_INT(number_of(store), ==, 4 + k))
                fprintf(stderr, "    that was %s: %s\n", item_ways[i].name, calls[k]);
        }
        CHECK_OK(item_rig_call(item, &item_ways[i], store, "add {'type': 'A'}", &result, &error),
                 error);
        CHECK_INT(number_of(store), ==, 10);
        truce_item_free(plain);
        truce_item_free(item);
        truce_store_close(store);
    }
}

TEST(finds_a_change_whose_reply_was_lost_by_its_revision)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};

    for (int i = 0; i < item_ways_count; i++) {
        struct item_way way = item_ways[i];
        truce_store *store;
        truce_item *item;
        truce_item_result result;
        bson_error_t error;

        if (way.in_commit)
            continue;
        store = truce_fault_wrap(item_rig_open(&way), &none);
        item = tutorial_item(store, &(truce_item_options){.layout = way.layout});
        begin(&way, store, item, ABC);
        truce_fault_arm(
            store, &(truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = 1, .writes_only = true});
        CHECK_OK(item_rig_call(item, NULL, store, "update {'type': 'B'} {'$inc': {'n': 1}}",
                               &result, &error),
                 error);
        CHECK_INT(result.matched, ==, -1);
        truce_fault_arm(store, &(truce_fault_options){.kind = TRUCE_FAULT_FAIL,
                                                      .at = 1,
                                                      .writes_only = true,
                                                      .status = TRUCE_UNKNOWN});
        CHECK_STATUS(TRUCE_UNKNOWN,
                     item_rig_call(item, NULL, store, "update {'type': 'B'} {'$inc': {'n': 1}}",
                                   &result, &error),
                     error);
        truce_item_free(item);
        truce_store_close(store);
    }
}

static truce_status remove_from_other(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *filter = test_bson("{'_id': 1, 'name': 'other'}"), *query = test_bson("{}");
    truce_status status = truce_item_remove(arg, commit, filter, query, NULL, error);

    bson_destroy(filter);
    bson_destroy(query);
    return status;
}

TEST(a_commit_finds_the_document_by_the_whole_filter)
{
    truce_store *store = item_rig_open(item_way_named("operator"));
    truce_item *item = tutorial_item(store, NULL);
    bson_error_t error;

    begin(item_way_named("operator"), store, item, ABC);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_transact(store, remove_from_other, item, NULL, &error),
                 error);
    truce_item_free(item);
    truce_store_close(store);
}

/* ---- keys of maps ---- */

static void check_key(const char *json, const char *expected)
{
    bson_t *holder = test_bson(json);
    bson_iter_t iter;
    char *key;

    REQUIRE(bson_iter_init_find(&iter, holder, "v"));
    key = truce_item_key(bson_iter_value(&iter));
    if (expected)
        CHECK_TEXT(expected, key);
    else
        CHECK(!key);
    bson_free(key);
    bson_destroy(holder);
}

TEST(keys_of_maps_are_names_that_a_path_can_contain)
{
    check_key("{'v': 'TOP_EMPLOYEE'}", "TOP_EMPLOYEE");
    check_key("{'v': ''}", "%");
    check_key("{'v': '%'}", "%25");
    check_key("{'v': '$a.b'}", "%24a%2Eb");
    check_key("{'v': 'a\\u0000b'}", "a%00b");
    check_key("{'v': 5}", "%n5");
    check_key("{'v': 5.0}", "%n5");
    check_key("{'v': {'$numberLong': '5'}}", "%n5");
    check_key("{'v': {'$numberDecimal': '5'}}", "%n5");
    check_key("{'v': 0.5}", "%f0_5");
    check_key("{'v': -7}", "%n-7");
    check_key("{'v': true}", "%b01");
    check_key("{'v': {'$oid': '6560f0c2a1b2c3d4e5f60718'}}", "%o6560f0c2a1b2c3d4e5f60718");
    check_key("{'v': null}", NULL);
    check_key("{'v': [1]}", NULL);
    check_key("{'v': {'a': 1}}", NULL);
    check_key("{'v': {'$numberDouble': 'NaN'}}", NULL);
}

TEST(items_of_a_map_that_carry_no_identity_get_that_of_their_key)
{
    truce_store *store = item_rig_open(item_way_named("operator"));
    truce_item *item = tutorial_item(store, NULL);
    bson_t *before = test_bson("{'_id': 1, 'badges': {'TOP': {'date': 1}, '%24x': {'date': 2},"
                               "'%': {}, '%n7': {}}}");
    bson_t *expected = test_bson("{'_id': 1, 'badges': [{'type': 'TOP', 'date': 1},"
                                 "{'type': '$x', 'date': 2}, {'type': ''}, {'type': 7}]}");
    bson_t *found;
    truce_item_converted converted;
    bson_error_t error;

    CHECK_OK(truce_insert(store, "employees", before, NULL, &error), error);
    CHECK_OK(truce_item_convert(item, TRUCE_ITEM_ARRAY, &converted, NULL, &error), error);
    CHECK_INT(converted.documents, ==, 1);
    CHECK(!is_map(store));
    found = item_rig_read(store, "employees", "badges");
    CHECK_BSON(expected, found);
    bson_destroy(found);
    bson_destroy(before);
    bson_destroy(expected);
    truce_item_free(item);
    truce_store_close(store);
}

TEST(counts_and_skips_documents_that_cannot_become_maps)
{
    static const char *const documents[] = {
        "{'_id': 1, 'badges': [{'type': 'A'}, {'type': 'A'}]}",
        "{'_id': 2, 'badges': [{'name': 'A'}]}",
        "{'_id': 3, 'badges': [{'type': 'A'}, {'type': 'B'}]}",
        "{'_id': 'x', 'badges': []}",
        "{'_id': {'a': 1}, 'badges': [{'type': 'A'}]}",
        "{'_id': 4}",
        "{'_id': 5, 'badges': [{'type': 5}, {'type': 5.0}]}",
    };

    for (int i = 0; i < 2; i++) {
        truce_store *store = item_rig_open(item_way_named(i ? "operator in a file" : "operator"));
        truce_item *item = tutorial_item(store, NULL);
        truce_item_converted converted;
        bson_error_t error, why = {0};

        for (size_t k = 0; k < sizeof documents / sizeof *documents; k++) {
            bson_t *document = test_bson(documents[k]);

            CHECK_OK(truce_insert(store, "employees", document, NULL, &error), error);
            bson_destroy(document);
        }
        CHECK_OK(truce_item_convert(item, TRUCE_ITEM_MAP, &converted, &why, &error), error);
        CHECK_INT(converted.documents, ==, 3);
        CHECK_INT(converted.refused, ==, 3);
        CHECK(strstr(why.message, "same \"type\"") != NULL);
        CHECK_OK(truce_item_convert(item, TRUCE_ITEM_ARRAY, &converted, &why, &error), error);
        CHECK_INT(converted.documents, ==, 3);
        CHECK_INT(converted.refused, ==, 0);
        truce_item_free(item);
        truce_store_close(store);
    }
}

/* ---- indexes ---- */

static bool has_index(truce_store *store, const char *path)
{
    bson_error_t error;
    bson_t indexes;
    bool found;
    char *text;

    CHECK_OK(truce_index_list(store, "employees", &indexes, &error), error);
    text = bson_as_relaxed_extended_json(&indexes, NULL);
    found = strstr(text, path) != NULL;
    bson_free(text);
    bson_destroy(&indexes);
    return found;
}

TEST(indexes_are_on_the_path_of_arrays_on_known_keys_or_on_all_of_a_map)
{
    truce_store *store = item_rig_open(item_way_named("operator"));
    truce_item *item = tutorial_item(store, NULL);
    bson_t *keys = test_bson("{'0': 'TOP', '1': 'a.b'}"), *bad = test_bson("{'0': null}");
    bson_error_t error;

    CHECK_OK(truce_item_index(item, TRUCE_ITEM_ARRAY, "date", NULL, &error), error);
    CHECK_OK(truce_item_index(item, TRUCE_ITEM_ARRAY, NULL, NULL, &error), error);
    CHECK_OK(truce_item_index(item, TRUCE_ITEM_MAP, "date", keys, &error), error);
    CHECK_OK(truce_item_index(item, TRUCE_ITEM_MAP, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_item_index(item, TRUCE_ITEM_MAP, "date", bad, &error), error);
    CHECK(has_index(store, "\"badges.date\""));
    CHECK(has_index(store, "\"badges.type\""));
    CHECK(has_index(store, "\"badges.TOP.date\""));
    CHECK(has_index(store, "\"badges.a%2Eb.date\""));
    CHECK(has_index(store, "\"badges.$**\""));
    truce_item_free(item);
    truce_store_close(store);
    store = item_rig_open(
        &(struct item_way){"no wildcards", "memory", TRUCE_CAN_WILDCARD_INDEX, false, 0});
    item = tutorial_item(store, NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_item_index(item, TRUCE_ITEM_MAP, NULL, NULL, &error), error);
    CHECK(strstr(error.message, "name the keys") != NULL);
    truce_item_free(item);
    truce_store_close(store);
    bson_destroy(keys);
    bson_destroy(bad);
}
