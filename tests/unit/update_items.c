/* $update: changing the items of an array that a query finds. */
#include "tests/support/test.h"
#include "tests/support/updates.h"

#define BADGES                                                                                     \
    "{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'X', 'date': 7, 'n': 2}, 5, "           \
    "{'type': 'X'}]}"

TEST(the_items_that_match_are_changed_in_place)
{
    struct updated updated = {
        .update = "{'$update': {'badges': {'$query': {'type': 'X'}, '$set': {'date': null}}}}",
        .before = BADGES};

    CHECK_UPDATE("{'_id': 1, 'badges': [{'type': 'A', 'n': 1}, {'type': 'X', 'date': null, 'n': 2},"
                 " 5, {'type': 'X', 'date': null}]}",
                 &updated);
    CHECK(updated.result.modified);
    CHECK_INT(updated.result.items_matched, ==, 2);
    CHECK_INT(updated.result.items_modified, ==, 2);
}

TEST(items_that_match_but_stay_the_same_count_as_matched_only)
{
    struct updated updated = {
        .update = "{'$update': {'badges': {'$query': {'type': 'X'}, '$set': {'date': 7}}}}",
        .before = "{'_id': 1, 'badges': [{'type': 'X', 'date': 7}, {'type': 'X', 'date': 8}]}"};

    CHECK_UPDATE("{'_id': 1, 'badges': [{'type': 'X', 'date': 7}, {'type': 'X', 'date': 7}]}",
                 &updated);
    CHECK_INT(updated.result.items_matched, ==, 2);
    CHECK_INT(updated.result.items_modified, ==, 1);
}

TEST(modifies_nothing_if_no_item_matches)
{
    struct updated updated = {
        .update = "{'$update': {'badges': {'$query': {'type': 'Z'}, '$set': {'date': 1}}}}",
        .before = BADGES};

    CHECK_UPDATE(BADGES, &updated);
    CHECK(!updated.result.modified);
    CHECK_INT(updated.result.items_matched, ==, 0);
    CHECK_INT(updated.result.items_modified, ==, 0);
}

TEST(accepts_every_operator_in_an_update_of_items)
{
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'k': 1},"
                  "'$inc': {'i': 2}, '$mul': {'m': 3}, '$min': {'lo': 1}, '$max': {'hi': 9},"
                  "'$unset': {'u': ''}, '$rename': {'r': 's'}, '$push': {'p': 5},"
                  "'$addToSet': {'t': 1}, '$pull': {'l': {'$gt': 1}}, '$pullAll': {'q': [1]},"
                  "'$pop': {'o': 1}, '$bit': {'b': {'or': 4}}, '$setOnInsert': {'z': 1},"
                  "'$currentDate': {'d': true}, '$set': {'x.y': 'v'}}}}",
        .before = "{'_id': 1, 'a': [{'k': 1, 'i': 1, 'm': 2, 'lo': 5, 'hi': 5, 'u': 1, 'r': 3,"
                  "'p': [4], 't': [1], 'l': [1, 2], 'q': [1, 2], 'o': [1, 2], 'b': 1}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'k': 1, 'i': 3, 'm': 6, 'lo': 1, 'hi': 9,"
                 "'p': [4, 5], 't': [1], 'l': [1], 'q': [2], 'o': [1], 'b': 5,"
                 "'d': {'$date': {'$numberLong': '1600000000123'}}, 's': 3, 'x': {'y': 'v'}}]}",
                 &updated);
    CHECK_INT(updated.result.items_modified, ==, 1);
}

TEST(several_arrays_are_changed_at_once)
{
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'n': 1}, '$inc': {'n': 10}},"
                  "'b.c': {'$query': {'n': {'$gte': 2}}, '$unset': {'n': 1}}}}",
        .before = "{'_id': 1, 'a': [{'n': 1}, {'n': 2}], 'b': {'c': [{'n': 1}, {'n': 2}]}}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'n': 11}, {'n': 2}], 'b': {'c': [{'n': 1}, {}]}}", &updated);
    CHECK_INT(updated.result.items_matched, ==, 2);
}

TEST(a_path_leads_through_arrays_of_documents)
{
    struct updated updated = {
        .update = "{'$update': {'orders.lines': {'$query': {'sku': 'x'}, '$set': {'done': true}}}}",
        .before = "{'_id': 1, 'orders': [{'lines': [{'sku': 'x'}, {'sku': 'y'}]}, 3, {},"
                  "{'lines': [{'sku': 'x', 'done': true}]}]}"};

    CHECK_UPDATE("{'_id': 1, 'orders': [{'lines': [{'sku': 'x', 'done': true}, {'sku': 'y'}]}, 3, "
                 "{}, {'lines': [{'sku': 'x', 'done': true}]}]}",
                 &updated);
    CHECK_INT(updated.result.items_matched, ==, 2);
    CHECK_INT(updated.result.items_modified, ==, 1);
}

TEST(a_path_may_name_an_element_or_filter_them)
{
    struct updated by_number = {
        .update = "{'$update': {'o.1.l': {'$query': {'k': 1}, '$set': {'k': 2}}}}",
        .before = "{'_id': 1, 'o': [{'l': [{'k': 1}]}, {'l': [{'k': 1}]}]}"};
    struct updated by_filter = {
        .update = "{'$update': {'o.$[x].l': {'$query': {'k': 1}, '$set': {'k': 2}}}}",
        .filters = "[{'x.v': 7}]",
        .before = "{'_id': 1, 'o': [{'v': 7, 'l': [{'k': 1}]}, {'v': 8, 'l': [{'k': 1}]}]}"};
    struct updated by_match = {
        .update = "{'$update': {'o.$.l': {'$query': {'k': 1}, '$set': {'k': 2}}}}",
        .query = "{'o.v': 8}",
        .before = "{'_id': 1, 'o': [{'v': 7, 'l': [{'k': 1}]}, {'v': 8, 'l': [{'k': 1}]}]}"};

    CHECK_UPDATE("{'_id': 1, 'o': [{'l': [{'k': 1}]}, {'l': [{'k': 2}]}]}", &by_number);
    CHECK_UPDATE("{'_id': 1, 'o': [{'v': 7, 'l': [{'k': 2}]}, {'v': 8, 'l': [{'k': 1}]}]}",
                 &by_filter);
    CHECK_UPDATE("{'_id': 1, 'o': [{'v': 7, 'l': [{'k': 1}]}, {'v': 8, 'l': [{'k': 2}]}]}",
                 &by_match);
}

TEST(nests_an_update_of_items_in_another)
{
    struct updated updated = {
        .update = "{'$update': {'o': {'$query': {'id': 2}, '$inc': {'n': 1},"
                  "'$update': {'l': {'$query': {'k': 1}, '$set': {'k': 5}}}}}}",
        .before = "{'_id': 1, 'o': [{'id': 1, 'l': [{'k': 1}]}, {'id': 2, 'n': 1, 'l': [{'k': 1},"
                  "{'k': 2}]}]}"};

    CHECK_UPDATE("{'_id': 1, 'o': [{'id': 1, 'l': [{'k': 1}]}, {'id': 2, 'n': 2, 'l': [{'k': 5},"
                 "{'k': 2}]}]}",
                 &updated);
    CHECK_INT(updated.result.items_matched, ==, 2);
    CHECK_INT(updated.result.items_modified, ==, 2);
}

TEST(a_condition_on_the_items_themselves_can_choose_documents_too)
{
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'$elemMatch': {'$eq': 1}}, '$set': {'0': 9}}}}",
        .before = "{'_id': 1, 'a': [[1, 2], [3, 4]]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [[9, 2], [3, 4]]}", &updated);
}

TEST(combines_with_other_operators)
{
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'k': 1}, '$set': {'k': 2}}}, '$set': {'b': 1},"
                  "'$inc': {'c.n': 1}, '$push': {'d': 1}}",
        .before = "{'_id': 1, 'a': [{'k': 1}], 'c': {'n': 1}}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'k': 2}], 'c': {'n': 2}, 'b': 1, 'd': [1]}", &updated);
}

TEST(conflicts_with_operators_above_and_below_its_path)
{
    static const char *const updates[] = {
        "{'$update': {'a': {'$query': {}, '$set': {'k': 2}}}, '$push': {'a': 1}}",
        "{'$update': {'a.b': {'$query': {}, '$set': {'k': 2}}}, '$set': {'a': 1}}",
        "{'$update': {'a': {'$query': {}, '$set': {'k': 2}}}, '$set': {'a.0.x': 1}}",
        "{'$update': {'a': {'$query': {}, '$set': {'k': 2, 'k.x': 1}}}}",
        "{'$update': {'a': {'$query': {}, '$set': {'k': 2}}, 'a.b': {'$query': {}}}}",
        "{'$update': {'a': {'$query': {}, '$set': {'k': 2}}}, '$rename': {'a': 'b'}}",
    };

    for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
        struct updated updated = {.update = updates[i], .before = "{'_id': 1, 'a': [{'k': 1}]}"};

        CHECK_UPDATE_CODE(40, &updated);
    }
}

TEST(a_path_through_an_array_meets_operators_on_its_elements)
{
    struct updated apart = {.update = "{'$update': {'a.l': {'$query': {'k': 1}, '$set': {'k': 2}}},"
                                      "'$set': {'a.0.n': 7}}",
                            .before = "{'_id': 1, 'a': [{'l': [{'k': 1}]}, {'l': [{'k': 1}]}]}"};
    struct updated same = {.update = "{'$update': {'a.l': {'$query': {'k': 1}, '$set': {'k': 2}}},"
                                     "'$set': {'a.0.l': 7}}",
                           .before = "{'_id': 1, 'a': [{'l': [{'k': 1}]}, {'l': [{'k': 1}]}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'l': [{'k': 2}], 'n': 7}, {'l': [{'k': 2}]}]}", &apart);
    CHECK_UPDATE_CODE(40, &same);
}

TEST(an_array_that_does_not_exist_has_no_items)
{
    static const char *const befores[] = {"{'_id': 1}", "{'_id': 1, 'a': {}}",
                                          "{'_id': 1, 'a': []}"};

    for (size_t i = 0; i < sizeof befores / sizeof *befores; i++) {
        struct updated updated = {.update =
                                      "{'$update': {'a.l': {'$query': {}, '$set': {'k': 2}}}}",
                                  .before = befores[i]};

        CHECK_UPDATE(befores[i], &updated);
        CHECK(!updated.result.modified);
    }
}

TEST(refuses_a_value_that_is_not_an_array)
{
    struct updated document = {.update = "{'$update': {'a': {'$query': {}, '$set': {'k': 2}}}}",
                               .before = "{'_id': 1, 'a': {'k': 1}}"};
    struct updated scalar = {.update = "{'$update': {'a.l': {'$query': {}, '$set': {'k': 2}}}}",
                             .before = "{'_id': 1, 'a': 5}"};
    struct updated item = {.update =
                               "{'$update': {'a': {'$query': {'$gte': 5}, '$set': {'k': 2}}}}",
                           .before = "{'_id': 1, 'a': [1, 6]}"};

    CHECK_UPDATE_CODE(2, &document);
    CHECK_UPDATE_CODE(28, &scalar);
    CHECK_UPDATE_CODE(28, &item);
}

TEST(refuses_malformed_updates_of_items)
{
    static const struct {
        const char *update;
        uint32_t code;
    } cases[] = {
        {"{'$update': {'a': 1}}", 9},
        {"{'$update': {'a': {'$set': {'k': 1}}}}", 9},
        {"{'$update': {'a': {'$query': 1, '$set': {'k': 1}}}}", 9},
        {"{'$update': {'a': {'$query': {}, 'k': 1}}}", 9},
        {"{'$update': {'a': {'$query': {}, '$nope': {'k': 1}}}}", 9},
        {"{'$update': {'a': {'$query': {'$nope': 1}, '$set': {'k': 1}}}}", 2},
        {"{'$update': {'a': {'$query': {}, '$set': {'b.$': 1}}}}", 2},
        {"{'$update': {'a': {'$query': {}, '$set': {'b..c': 1}}}}", 56},
        {"{'$update': {'a': {'$query': {'$expr': {'$eq': ['$x', 1]}}, '$set': {'k': 1}}}}", 224},
        {"{'$update': {'a.': {'$query': {}, '$set': {'k': 1}}}}", 56},
        {"{'$update': 5}", 9},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct updated updated = {.update = cases[i].update,
                                  .before = "{'_id': 1, 'a': [{'k': 0}]}"};

        CHECK_UPDATE_CODE(cases[i].code, &updated);
    }
}

TEST(the_positional_operator_means_nothing_inside)
{
    struct updated updated = {.update = "{'$update': {'a': {'$query': {}, '$set': {'b.$': 1}}}}",
                              .query = "{'a.k': 0}",
                              .before = "{'_id': 1, 'a': [{'k': 0, 'b': [1]}]}"};

    CHECK_UPDATE_CODE(2, &updated);
}

TEST(ids_of_items_may_change)
{
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'_id': 1}, '$set': {'_id': 2, '$x': 1}}}}",
        .before = "{'_id': 1, 'a': [{'_id': 1}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'_id': 2, '$x': 1}]}", &updated);
}

TEST(an_upsert_updates_the_items_that_the_query_brought)
{
    struct updated updated = {.update = "{'$update': {'a': {'$query': {'k': 1}, '$set': {'k': 2},"
                                        "'$setOnInsert': {'new': true}}}}",
                              .query = "{'_id': 1, 'a': [{'k': 1}, {'k': 3}]}"};

    CHECK_UPDATE("{'_id': 1, 'a': [{'k': 2, 'new': true}, {'k': 3}]}", &updated);
}

TEST(ten_thousand_items_are_changed_in_one_pass)
{
    bson_string_t *before = bson_string_new("{\"_id\": 1, \"a\": [");
    bson_string_t *after = bson_string_new("{\"_id\": 1, \"a\": [");
    struct updated updated = {
        .update = "{'$update': {'a': {'$query': {'odd': 1}, '$set': {'text': 'longer'}}}}"};

    for (int i = 0; i < 10000; i++) {
        const char *comma = i ? ", " : "";

        bson_string_append_printf(before, "%s{\"odd\": %d, \"text\": \"x\"}", comma, i % 2);
        bson_string_append_printf(after, "%s{\"odd\": %d, \"text\": \"%s\"}", comma, i % 2,
                                  i % 2 ? "longer" : "x");
    }
    bson_string_append(before, "]}");
    bson_string_append(after, "]}");
    updated.before = before->str;
    CHECK_UPDATE(after->str, &updated);
    CHECK_INT(updated.result.items_modified, ==, 5000);
    bson_string_free(before, true);
    bson_string_free(after, true);
}
