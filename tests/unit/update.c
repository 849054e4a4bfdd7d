/* Updates: cases without a recorded answer of a server: limits, many operators at once,
 * dependencies on the document, the order of fields, the clock. */
#include "tests/support/test.h"

#include "base/limits.h"
#include "base/random.h"
#include "tests/support/updates.h"

static char *repeat(char letter, size_t times)
{
    char *text = bson_malloc(times + 1);

    memset(text, letter, times);
    text[times] = '\0';
    return text;
}

TEST(many_operators_work_at_once)
{
    struct updated updated = {
        .update =
            "{'$set': {'z': 1, 'a.x': 2}, '$inc': {'n': 1}, '$unset': {'gone': 1}, '$mul': {'m': 2},"
            "'$rename': {'old': 'new'}, '$push': {'list': {'$each': [3, 1], '$sort': 1}},"
            "'$pull': {'drop': 2}, '$addToSet': {'a.set': 1}, '$min': {'lo': 1}, '$max': {'hi': 2},"
            "'$bit': {'flags': {'or': 4}}, '$pop': {'stack': -1}, '$pullAll': {'all': [1, 2]},"
            "'$currentDate': {'at': true}, '$setOnInsert': {'never': 1}}",
        .before = "{'_id': 1, 'gone': 1, 'n': 1, 'm': 3, 'old': 'v', 'list': [2], 'drop': [1, 2],"
                  "'lo': 5, 'hi': 1, 'flags': 1, 'stack': [1, 2], 'all': [1, 2, 3]}"};

    CHECK_UPDATE("{'_id': 1, 'n': 2, 'm': 6, 'list': [1, 2, 3], 'drop': [1],"
                 "'lo': 1, 'hi': 2, 'flags': 5, 'stack': [2], 'all': [3],"
                 "'a': {'set': [1], 'x': 2}, 'at': {'$date': {'$numberLong': '1600000000123'}},"
                 "'new': 'v', 'z': 1}",
                 &updated);
    CHECK(updated.result.modified);
    CHECK_INT(updated.result.items_matched, ==, 0);
}

TEST(pull_takes_every_condition_that_a_filter_takes)
{
    static const struct {
        const char *condition, *before, *after;
    } cases[] = {
        {"{'$eq': 2}", "[1, 2, 3]", "[1, 3]"},
        {"{'$eq': null}", "[1, null, 3]", "[1, 3]"},
        {"{'$eq': {'x': 1}}", "[{'x': 1}, {'x': 1, 'y': 2}]", "[{'x': 1, 'y': 2}]"},
        {"{'$eq': 2, '$exists': true}", "[1, 2]", "[1]"},
        {"{'$ne': 2}", "[1, 2, 3]", "[2]"},
        {"{'$gt': 1}", "[1, 2]", "[1]"},
        {"{'$gte': 2}", "[1, 2]", "[1]"},
        {"{'$lt': 2}", "[1, 2]", "[2]"},
        {"{'$lte': 1}", "[1, 2]", "[2]"},
        {"{'$in': [2, 3]}", "[1, 2, 3]", "[1]"},
        {"{'$nin': [2, 3]}", "[1, 2, 3]", "[2, 3]"},
        {"{'$not': {'$gt': 1}}", "[1, 2]", "[2]"},
        {"{'$mod': [2, 0]}", "[1, 2, 4]", "[1]"},
        {"{'$type': 'string'}", "[1, 'a']", "[1]"},
        {"{'$exists': true}", "[1, 2]", "[]"},
        {"{'$size': 1}", "[1, [2]]", "[1]"},
        {"{'$all': [1, 2]}", "[1, [1, 2]]", "[1]"},
        {"{'$regex': '^a'}", "['ab', 'b']", "['b']"},
        {"{'$bitsAllSet': 1}", "[1, 2, 3]", "[2]"},
        {"{'$elemMatch': {'$gt': 1}}", "[1, [2]]", "[1]"},
        {"{'$or': [{'x': 1}, {'x': 2}]}", "[{'x': 1}, {'x': 3}]", "[{'x': 3}]"},
        {"{'$and': [{'x': 1}, {'y': 2}]}", "[{'x': 1}, {'x': 1, 'y': 2}]", "[{'x': 1}]"},
        {"{'$nor': [{'x': 1}]}", "[{'x': 1}, {'x': 3}]", "[{'x': 1}]"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *update = bson_strdup_printf("{'$pull': {'a': %s}}", cases[i].condition);
        char *before = bson_strdup_printf("{'_id': 1, 'a': %s}", cases[i].before);
        char *after = bson_strdup_printf("{'_id': 1, 'a': %s}", cases[i].after);
        struct updated updated = {.update = update, .before = before};

        CHECK_UPDATE(after, &updated);
        bson_free(update);
        bson_free(before);
        bson_free(after);
    }
}

TEST(new_fields_are_appended_by_name_and_numbers_by_value)
{
    struct updated names = {.update = "{'$set': {'c': 1, 'a': 2, 'b.y': 3, 'b.x': 4}}",
                            .before = "{'_id': 1, 'z': 0}"};
    struct updated numbers = {.update =
                                  "{'$set': {'d.10': 1, 'd.9': 2, 'd.x': 3, 'd.1x': 4, 'd.#': 5}}",
                              .before = "{'_id': 1}"};
    struct updated array = {.update = "{'$set': {'d.10': 1, 'd.9': 2}}",
                            .before = "{'_id': 1, 'd': [0,1,2,3,4,5,6,7]}"};

    CHECK_UPDATE("{'_id': 1, 'z': 0, 'a': 2, 'b': {'x': 4, 'y': 3}, 'c': 1}", &names);
    CHECK_UPDATE("{'_id': 1, 'd': {'#': 5, '9': 2, '10': 1, '1x': 4, 'x': 3}}", &numbers);
    CHECK_UPDATE("{'_id': 1, 'd': [0,1,2,3,4,5,6,7,null,2,1]}", &array);
}

TEST(paths_that_meet_only_in_the_document_conflict)
{
    struct updated positional = {.update = "{'$set': {'a.$.x': 1, 'a.0.x': 2}}",
                                 .query = "{'a.k': 1}",
                                 .before = "{'_id': 1, 'a': [{'k': 1}]}"};
    struct updated below = {.update = "{'$set': {'a.$': 1, 'a.0.x': 2}}",
                            .query = "{'a.k': 1}",
                            .before = "{'_id': 1, 'a': [{'k': 1}]}"};
    struct updated filters = {.update = "{'$set': {'a.$[x].n': 1, 'a.$[].n': 2}}",
                              .filters = "[{'x.k': 1}]",
                              .before = "{'_id': 1, 'a': [{'k': 1}, {'k': 2}]}"};

    CHECK_UPDATE_CODE(40, &positional);
    CHECK_UPDATE_CODE(40, &below);
    CHECK_UPDATE_CODE(40, &filters);
}

TEST(paths_that_do_not_meet_in_the_document_do_not_conflict)
{
    struct updated positional = {.update = "{'$set': {'a.$.x': 1, 'a.0.x': 2, 'a.1.y': 3}}",
                                 .query = "{'a.k': 2}",
                                 .before = "{'_id': 1, 'a': [{'k': 1}, {'k': 2}]}"};
    struct updated filters = {.update = "{'$set': {'a.$[x].n': 1, 'a.$[y].n': 2, 'a.$[].m': 3}}",
                              .filters = "[{'x.k': 1}, {'y.k': 2}]",
                              .before = "{'_id': 1, 'a': [{'k': 1}, {'k': 2}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'k': 1, 'x': 2}, {'k': 2, 'x': 1, 'y': 3}]}", &positional);
    CHECK_UPDATE("{'_id': 1, 'a': [{'k': 1, 'm': 3, 'n': 1}, {'k': 2, 'm': 3, 'n': 2}]}", &filters);
}

TEST(an_index_with_zeros_in_front_is_the_same_element)
{
    struct updated united = {.update = "{'$set': {'a.0.x': 1, 'a.00.y': 2, 'a.02': 3, 'a.2': 4}}",
                             .before = "{'_id': 1, 'a': [{}]}"};
    struct updated apart = {.update = "{'$set': {'a.0.x': 1, 'a.00.y': 2, 'a.02': 3}}",
                            .before = "{'_id': 1, 'a': [{}]}"};

    CHECK_UPDATE_CODE(40, &united);
    CHECK_UPDATE("{'_id': 1, 'a': [{'x': 1, 'y': 2}, null, 3]}", &apart);
}

TEST(nested_array_filters_reach_every_level)
{
    struct updated updated = {
        .update = "{'$inc': {'g.$[s].q.$[x].v': 10, 'g.$[].n': 1}}",
        .filters = "[{'s.t': 1}, {'x.v': {'$gte': 2}}]",
        .before =
            "{'_id': 1, 'g': [{'t': 1, 'q': [{'v': 1}, {'v': 2}]}, {'t': 2, 'q': [{'v': 9}]}]}"};

    CHECK_UPDATE("{'_id': 1, 'g': [{'t': 1, 'q': [{'v': 1}, {'v': 12}], 'n': 1},"
                 "{'t': 2, 'q': [{'v': 9}], 'n': 1}]}",
                 &updated);
}

TEST(a_document_that_would_grow_beyond_the_limit_is_refused)
{
    char *half = repeat('x', TRUCE_DOCUMENT_BYTES_MAX / 2);
    char *before = bson_strdup_printf("{\"_id\": 1, \"a\": \"%s\", \"l\": []}", half);
    char *set = bson_strdup_printf("{\"$set\": {\"b\": \"%s\"}}", half);
    char *push = bson_strdup_printf("{\"$push\": {\"l\": \"%s\"}}", half);
    char *nested = bson_strdup_printf("{\"$set\": {\"b.c.d\": \"%s\"}}", half);
    char *replaced = bson_strdup_printf("{\"$set\": {\"a\": \"%s\"}}", half);
    const char *const refused[] = {set, push, nested};
    struct updated same = {.update = replaced, .before = before};

    for (int i = 0; i < 3; i++) {
        struct updated updated = {.update = refused[i], .before = before};

        CHECK_UPDATE_CODE(10334, &updated);
    }
    CHECK_UPDATE(before, &same);
    CHECK(!same.result.modified);
    bson_free(half);
    bson_free(before);
    bson_free(set);
    bson_free(push);
    bson_free(nested);
    bson_free(replaced);
}

TEST(a_document_of_exactly_the_limit_is_stored)
{
    /* 4 length, 9 for _id, 3 for the field, 4 + 1 for the text, 1 at the end */
    size_t text_bytes = TRUCE_DOCUMENT_BYTES_MAX - (4 + 9 + 3 + 4 + 1 + 1);
    char *fits = repeat('x', text_bytes), *over = repeat('x', text_bytes + 1);
    char *update = bson_strdup_printf("{\"$set\": {\"a\": \"%s\"}}", fits);
    char *larger = bson_strdup_printf("{\"$set\": {\"a\": \"%s\"}}", over);
    struct updated just = {.update = update, .before = "{'_id': 1}"};
    struct updated beyond = {.update = larger, .before = "{'_id': 1}"};
    bson_t *after = updated_run(&just);

    REQUIRE(after != NULL);
    CHECK_INT(after->len, ==, TRUCE_DOCUMENT_BYTES_MAX);
    bson_destroy(after);
    CHECK_UPDATE_CODE(10334, &beyond);
    bson_free(fits);
    bson_free(over);
    bson_free(update);
    bson_free(larger);
}

TEST(filling_arrays_over_and_over_is_refused_before_memory_runs_out)
{
    bson_string_t *update = bson_string_new("{\"$set\": {");
    struct updated updated = {.before = "{'_id': 1, 'a': []}"};

    for (int i = 0; i < 64; i++)
        bson_string_append_printf(update, "%s\"a.%d\": 1", i ? ", " : "", (i + 1) * 1400000);
    bson_string_append(update, "}}");
    updated.update = update->str;
    CHECK_UPDATE_CODE(10334, &updated);
    bson_string_free(update, true);
}

/* {operator: {path: a value of `depth` containers}} */
static bson_t *deep_update(const char *operator, const char * path, int depth)
{
    bson_t *fields = nested_document(path, depth), *update = bson_new();

    bson_append_document(update, operator, - 1, fields);
    bson_destroy(fields);
    return update;
}

TEST(nesting_stops_at_the_limit)
{
    static const struct {
        const char *operator, * path;
        int around; /* containers around the value */
    } cases[] = {{"$set", "a.b.c", 3}, {"$push", "l", 2},      {"$addToSet", "a.l", 3},
                 {"$min", "x", 1},     {"$set", "a.b.c.d", 4}, {"$setOnInsert", "z", 1}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int over = 0; over <= 1; over++) {
            bson_t *update = deep_update(cases[i].operator, cases[i].path,
                                         TRUCE_DOCUMENT_DEPTH_MAX - cases[i].around + over);
            struct updated updated = {.update_document = update, .query = "{'_id': 1}"};

            bson_destroy(updated_run(&updated));
            CHECK_INT(updated.code, ==, over ? 15u : 0u);
            bson_destroy(update);
        }
    }
}

TEST(a_renamed_value_may_not_nest_deeper_than_the_limit)
{
    bson_t *before = nested_document("v", TRUCE_DOCUMENT_DEPTH_MAX - 2);
    struct updated fits = {.update = "{'$rename': {'v': 'b.c'}}", .before_document = before};
    struct updated over = {.update = "{'$rename': {'v': 'b.c.d'}}", .before_document = before};

    bson_destroy(updated_run(&fits));
    CHECK_INT(fits.code, ==, 0);
    CHECK_UPDATE_CODE(15, &over);
    bson_destroy(before);
}

TEST(a_path_longer_than_the_nesting_limit_is_refused)
{
    bson_string_t *update = bson_string_new("{\"$set\": {\"a");
    struct updated updated = {.before = "{'_id': 1}"};

    for (int i = 0; i < TRUCE_DOCUMENT_DEPTH_MAX; i++)
        bson_string_append(update, ".a");
    bson_string_append(update, "\": 1}}");
    updated.update = update->str;
    CHECK_UPDATE_CODE(15, &updated);
    bson_string_free(update, true);
}

TEST(twenty_thousand_paths_compile_and_apply)
{
    bson_t update = BSON_INITIALIZER, set, before = BSON_INITIALIZER, after;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct update_result result;
    struct update *compiled = NULL;
    bson_error_t error;

    BSON_APPEND_INT32(&before, "_id", 1);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    for (int i = 0; i < 20000; i++) {
        char key[32];
        int scattered = (int)((int64_t)i * 7919 % 20000);

        snprintf(key, sizeof key, "f%d", scattered);
        BSON_APPEND_INT32(&set, key, i);
        if (i % 2)
            BSON_APPEND_INT32(&before, key, -1);
    }
    bson_append_document_end(&update, &set);
    REQUIRE(CHECK_OK(truce__update_new(&update, NULL, &compiled, &error), error));
    CHECK_OK(truce__update_apply(compiled, &before, NULL, &context, &after, &result, &error),
             error);
    CHECK_INT(bson_count_keys(&after), ==, 20001);
    for (int i = 0; i < 20000; i += 777) {
        char key[32];
        bson_iter_t iter;

        snprintf(key, sizeof key, "f%d", (int)((int64_t)i * 7919 % 20000));
        CHECK(bson_iter_init_find(&iter, &after, key) && bson_iter_int32(&iter) == i);
    }
    bson_destroy(&after);
    bson_destroy(&before);
    bson_destroy(&update);
    truce__update_free(compiled);
    truce__arena_release(&arena);
}

TEST(changes_nothing_by_setting_equal_values)
{
    struct updated updated = {
        .update = "{'$set': {'a': 1, 'b.c': [1, {'x': 2}], 'd.1': 'y'}, '$unset': {'nope': 1},"
                  "'$min': {'g': 5}, '$addToSet': {'s': 1}, '$inc': {'z': 0},"
                  "'$bit': {'f': {'and': 7}}, '$setOnInsert': {'q': 1}}",
        .before = "{'_id': 1, 'a': 1, 'b': {'c': [1, {'x': 2}]}, 'd': ['x', 'y'], 's': [1],"
                  "'z': 4, 'f': 5, 'g': 3}"};

    CHECK_UPDATE(updated.before, &updated);
    CHECK(!updated.result.modified);
}

TEST(values_without_bytes_are_replaced_in_any_order)
{
    struct updated last = {.update = "{'$set': {'z': 'text', 'a': 1}}",
                           .before = "{'_id': 1, 'z': null}"};
    struct updated followed = {.update = "{'$set': {'z': 'text', 'a': 'other'}}",
                               .before = "{'_id': 1, 'z': null, 'a': 1}"};
    struct updated nested = {.update = "{'$set': {'z.y': {'k': null}, 'z.x': 2, 'b': 3}}",
                             .before = "{'_id': 1, 'z': {'y': {'$minKey': 1}}}"};
    struct updated emptied = {.update = "{'$set': {'z': null, 'a': null}, '$unset': {'b': 1}}",
                              .before = "{'_id': 1, 'z': 1, 'b': null, 'a': 'x'}"};

    CHECK_UPDATE("{'_id': 1, 'z': 'text', 'a': 1}", &last);
    CHECK_UPDATE("{'_id': 1, 'z': 'text', 'a': 'other'}", &followed);
    CHECK_UPDATE("{'_id': 1, 'z': {'y': {'k': null}, 'x': 2}, 'b': 3}", &nested);
    CHECK_UPDATE("{'_id': 1, 'z': null, 'a': null}", &emptied);
}

TEST(a_type_that_changes_is_a_change)
{
    struct updated updated = {.update = "{'$set': {'a': {'$numberLong': '1'}}}",
                              .before = "{'_id': 1, 'a': 1, 'b': 2}"};

    CHECK_UPDATE("{'_id': 1, 'a': {'$numberLong': '1'}, 'b': 2}", &updated);
    CHECK(updated.result.modified);
}

TEST(empty_operators_change_nothing)
{
    struct updated updated = {
        .update = "{'$set': {}, '$push': {}, '$update': {}, '$rename': {}, '$pull': {}}",
        .before = "{'_id': 1, 'a': 1}"};

    CHECK_UPDATE("{'_id': 1, 'a': 1}", &updated);
    CHECK(!updated.result.modified);
}

TEST(names_that_begin_with_a_dollar_are_stored_below_the_top_only)
{
    struct updated top = {.update = "{'$set': {'$x': 1}}", .before = "{'_id': 1}"};
    struct updated made = {.update = "{'$set': {'$x.y': 1}}", .before = "{'_id': 1}"};
    struct updated below = {.update = "{'$set': {'a.$x': 1, 'b': {'$y': 2}}}",
                            .before = "{'_id': 1}"};
    struct updated removed = {.update = "{'$unset': {'$x': 1}}", .before = "{'_id': 1, '$x': 1}"};
    struct updated inserted = {.update = "{'$set': {'$x': 1}}", .query = "{'_id': 1}"};

    CHECK_UPDATE_CODE(52, &top);
    CHECK_UPDATE_CODE(52, &made);
    CHECK_UPDATE("{'_id': 1, 'a': {'$x': 1}, 'b': {'$y': 2}}", &below);
    CHECK_UPDATE("{'_id': 1}", &removed);
    CHECK_UPDATE("{'_id': 1, '$x': 1}", &inserted);
}

TEST(the_id_never_changes)
{
    static const char *const refused[] = {
        "{'$set': {'_id.x': 2}}",      "{'$unset': {'_id': 1}}",
        "{'$rename': {'_id': 'a'}}",   "{'$rename': {'b': '_id'}}",
        "{'$inc': {'_id.x': 1}}",      "{'$set': {'_id.y': 1}}",
        "{'_id': {'x': 2}}",           "{'$set': {'_id': {'x': {'$numberLong': '1'}}}}",
        "{'$rename': {'_id.x': 'a'}}",
    };
    struct updated same = {.update = "{'$set': {'_id': {'x': 1}, '_id2': 1}}",
                           .before = "{'_id': {'x': 1}, 'b': 1}"};

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct updated updated = {.update = refused[i], .before = "{'_id': {'x': 1}, 'b': 1}"};

        CHECK_UPDATE_CODE(66, &updated);
    }
    CHECK_UPDATE("{'_id': {'x': 1}, 'b': 1, '_id2': 1}", &same);
}

TEST(keeps_the_id_first_and_fills_timestamps_in_a_replacement)
{
    struct updated updated = {.update = "{'a': 1, 't': {'$timestamp': {'t': 0, 'i': 0}}, '_id': 7,"
                                        "'u': {'v': {'$timestamp': {'t': 0, 'i': 0}}}}",
                              .before = "{'_id': 7, 'b': 2}"};
    bson_t *after = updated_run(&updated);
    bson_iter_t iter;
    uint32_t seconds, increment;

    REQUIRE(after != NULL);
    CHECK(bson_iter_init(&iter, after) && bson_iter_next(&iter));
    CHECK_TEXT("_id", bson_iter_key(&iter));
    CHECK(bson_iter_init_find(&iter, after, "t"));
    bson_iter_timestamp(&iter, &seconds, &increment);
    CHECK_INT(seconds, ==, 1600000000);
    CHECK_INT(increment, >, 0);
    CHECK(bson_iter_init(&iter, after) && bson_iter_find_descendant(&iter, "u.v", &iter));
    bson_iter_timestamp(&iter, &seconds, &increment);
    CHECK_INT(seconds, ==, 0);
    bson_destroy(after);
}

TEST(an_empty_timestamp_as_id_stays)
{
    struct updated updated = {.update = "{'_id': {'$timestamp': {'t': 0, 'i': 0}}, 'a': 1}",
                              .before = "{'_id': {'$timestamp': {'t': 0, 'i': 0}}}"};

    CHECK_UPDATE("{'_id': {'$timestamp': {'t': 0, 'i': 0}}, 'a': 1}", &updated);
}

TEST(makes_distinct_growing_timestamps_within_a_millisecond)
{
    bson_t *update = test_bson("{'$currentDate': {'t': {'$type': 'timestamp'}}}");
    bson_t *before = test_bson("{'_id': 1}");
    struct update *compiled = NULL;
    bson_error_t error;
    uint64_t last = 0;

    REQUIRE(CHECK_OK(truce__update_new(update, NULL, &compiled, &error), error));
    for (int i = 0; i < 6; i++) {
        struct arena arena = ARENA_INIT;
        struct query_context context = {
            .now_ms = 1600000000999 + i / 2, .now_ordinal = (uint32_t)(i % 2), .arena = &arena};
        struct update_result result;
        uint32_t seconds, increment;
        bson_iter_t iter;
        bson_t after;

        CHECK_OK(truce__update_apply(compiled, before, NULL, &context, &after, &result, &error),
                 error);
        REQUIRE(bson_iter_init_find(&iter, &after, "t"));
        bson_iter_timestamp(&iter, &seconds, &increment);
        CHECK(((uint64_t)seconds << 32 | increment) > last);
        last = (uint64_t)seconds << 32 | increment;
        bson_destroy(&after);
        truce__arena_release(&arena);
    }
    truce__update_free(compiled);
    bson_destroy(update);
    bson_destroy(before);
}

TEST(makes_an_id_for_an_upsert_from_clock_and_random_numbers)
{
    bson_t *update = test_bson("{'$set': {'a': 1}}");
    struct update *compiled = NULL;
    bson_t made[2];
    bson_error_t error;

    REQUIRE(CHECK_OK(truce__update_new(update, NULL, &compiled, &error), error));
    for (int i = 0; i < 2; i++) {
        struct arena arena = ARENA_INIT;
        struct random random;
        struct query_context context = {.now_ms = 1600000000000, .arena = &arena};
        bson_iter_t iter;

        truce__random_seed(&random, 42);
        context.random = &random;
        CHECK_OK(truce__update_insert(compiled, NULL, &context, &made[i], &error), error);
        CHECK(bson_iter_init_find(&iter, &made[i], "_id") && BSON_ITER_HOLDS_OID(&iter));
        CHECK_INT(bson_oid_get_time_t(bson_iter_oid(&iter)), ==, 1600000000);
        truce__arena_release(&arena);
    }
    CHECK_BSON(&made[0], &made[1]);
    bson_destroy(&made[0]);
    bson_destroy(&made[1]);
    bson_destroy(update);
    truce__update_free(compiled);
}

TEST(an_error_leaves_an_empty_document_that_can_be_destroyed)
{
    bson_t *update = test_bson("{'$inc': {'a': 1}}");
    bson_t *before = test_bson("{'_id': 1, 'a': 'text'}");
    struct update *compiled = NULL;
    struct arena arena = ARENA_INIT;
    struct query_context context = {.arena = &arena};
    struct update_result result;
    bson_error_t error;
    bson_t after;

    REQUIRE(CHECK_OK(truce__update_new(update, NULL, &compiled, &error), error));
    CHECK_STATUS(TRUCE_INVALID,
                 truce__update_apply(compiled, before, NULL, &context, &after, &result, &error),
                 error);
    CHECK_INT(error.code, ==, 14);
    CHECK(!result.modified);
    CHECK_INT(after.len, ==, 5);
    bson_destroy(&after);
    bson_destroy(before);
    bson_destroy(update);
    truce__update_free(compiled);
    truce__arena_release(&arena);
}

TEST(refuses_a_replacement_of_several_documents)
{
    struct updated multi = {.update = "{'a': 1}", .before = "{'_id': 1}", .multi = true};
    struct updated unused = {
        .update = "{'$set': {'a': 1}}", .before = "{'_id': 1}", .filters = "[{'x': 1}]"};
    struct updated pipeline = {.update = "[{'$set': {'a': 1}}]",
                               .before = "{'_id': 1}",
                               .filters = "[{'x': 1}]",
                               .pipeline = true};

    CHECK_UPDATE_CODE(9, &multi);
    CHECK_UPDATE_CODE(9, &unused);
    CHECK_UPDATE_CODE(9, &pipeline);
}

TEST(a_pipeline_keeps_the_id_and_the_limits)
{
    bson_t *before = nested_document("v", TRUCE_DOCUMENT_DEPTH_MAX - 2);
    struct updated id = {
        .update = "[{'$set': {'_id': 2}}]", .before = "{'_id': 1}", .pipeline = true};
    struct updated dropped = {.update = "[{'$replaceWith': {'b': '$a', 'c': 1}}]",
                              .before = "{'_id': 1, 'a': 5}",
                              .pipeline = true};
    struct updated deep = {.update = "[{'$set': {'w': {'x': {'y': '$v'}}}}]",
                           .before_document = before,
                           .pipeline = true};

    CHECK_UPDATE_CODE(66, &id);
    CHECK_UPDATE("{'_id': 1, 'b': 5, 'c': 1}", &dropped);
    CHECK_UPDATE_CODE(15, &deep);
    bson_destroy(before);
}

TEST(keeps_the_position_of_a_field_that_a_pipeline_removes_and_sets)
{
    struct updated kept = {.update = "[{'$unset': ['b', 'a']}, {'$set': {'n': 1, 'a': 7}}]",
                           .before = "{'_id': 1, 'a': 1, 'b': 2, 'c': 3}",
                           .pipeline = true};
    struct updated shaped = {.update =
                                 "[{'$unset': ['a']}, {'$project': {'c': 1}}, {'$set': {'a': 7}}]",
                             .before = "{'_id': 1, 'a': 1, 'b': 2, 'c': 3}",
                             .pipeline = true};

    CHECK_UPDATE("{'_id': 1, 'a': 7, 'c': 3, 'n': 1}", &kept);
    CHECK_UPDATE("{'_id': 1, 'c': 3, 'a': 7}", &shaped);
}

TEST(push_places_sorts_and_slices_in_that_order)
{
    struct updated updated = {
        .update = "{'$push': {'a': {'$each': [{'s': 5}, {'s': 1}], '$sort': {'s': -1}, '$slice': 3,"
                  "'$position': 0}}}",
        .before = "{'_id': 1, 'a': [{'s': 3}, {'s': 3, 'k': 1}, {}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'s': 5}, {'s': 3}, {'s': 3, 'k': 1}]}", &updated);
}

TEST(array_keys_are_numbered_without_gaps_through_many_digits)
{
    bson_string_t *each = bson_string_new("{\"$push\": {\"a\": {\"$each\": [0");
    struct updated updated = {.before = "{'_id': 1, 'a': []}"};
    bson_t *after;
    bson_iter_t iter, items;

    for (int i = 1; i < 1200; i++)
        bson_string_append_printf(each, ", %d", i);
    bson_string_append(each, "]}}}");
    updated.update = each->str;
    after = updated_run(&updated);
    REQUIRE(after != NULL);
    REQUIRE(bson_iter_init_find(&iter, after, "a") && bson_iter_recurse(&iter, &items));
    for (int i = 0; i < 1200; i++) {
        char key[16];

        snprintf(key, sizeof key, "%d", i);
        REQUIRE(bson_iter_next(&items));
        CHECK_TEXT(key, bson_iter_key(&items));
        CHECK_INT(bson_iter_int32(&items), ==, i);
    }
    bson_destroy(after);
    bson_string_free(each, true);
}

TEST(messages_name_the_path_and_the_value)
{
    struct updated updated = {.update = "{'$set': {'a.b.c': 1}}",
                              .before = "{'_id': 1, 'a': {'b': 'text'}}"};

    CHECK_UPDATE_CODE(28, &updated);
    CHECK(strstr(updated.message, "a.b.c") != NULL);
    CHECK(strstr(updated.message, "text") != NULL);
}

TEST(suggests_the_nearest_operator)
{
    static const struct {
        const char *update, *message;
    } cases[] = {
        {"{'$icn': {'n': 1}}", "unknown update operator \"$icn\": did you mean \"$inc\"?"},
        {"{'$sett': {'n': 1}}", "unknown update operator \"$sett\": did you mean \"$set\"?"},
        {"{'$multiply': {'n': 1}}",
         "unknown update operator \"$multiply\": expected an operator such as $set, $inc, $push, or "
         "$unset"},
        {"{'$set': {'n': 1}, 'm': 1}",
         "unknown update operator \"m\": an update has either operators or fields, not both"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct updated updated = {.update = cases[i].update, .before = "{'_id': 1}"};

        CHECK_UPDATE_CODE(9, &updated);
        CHECK_TEXT(cases[i].message, updated.message);
    }
}
