/* The contract: insert, update, replace, upsert, remove. */
#include "tests/support/contract.h"

#include "base/status.h"

const int contract_write_cases = 1;

CONTRACT(insert_puts_a_missing_object_id_first)
{
    bson_iter_t iter;
    bson_t document;

    CHECK_DONE(truce_insert(c->store, "things", J("{'a': 1}"), NULL, &c->error));
    CHECK_DONE(truce_find_one(c->store, "things", NULL, NULL, &document, &c->error));
    REQUIRE(bson_iter_init(&iter, &document) && bson_iter_next(&iter));
    CHECK_TEXT("_id", bson_iter_key(&iter));
    CHECK(BSON_ITER_HOLDS_OID(&iter));
    CHECK(bson_iter_next(&iter) && bson_iter_int32(&iter) == 1);
    bson_destroy(&document);
}

CONTRACT(insert_moves_the_id_to_the_front)
{
    CHECK_DONE(truce_insert(c->store, "things", J("{'a': 1, '_id': 5, 'b': 2}"), NULL, &c->error));
    CHECK_FINDS("things", "{}", NULL, "[{'_id': 5, 'a': 1, 'b': 2}]");
}

CONTRACT(insert_refuses_a_taken_id_also_of_another_number_type)
{
    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_insert(c->store, "things", J("{'_id': 1, 'a': 1}"), NULL, &c->error));
    CHECK(strstr(c->error.message, "things") && strstr(c->error.message, "_id"));
    CHECK_REFUSED(
        TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
        truce_insert(c->store, "things", J("{'_id': {'$numberDouble': '1.0'}}"), NULL, &c->error));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_insert(c->store, "things", J("{'_id': {'$numberDecimal': '1.00'}}"), NULL,
                               &c->error));
    CHECK_HOLDS("things", "[{'_id': 1}]");
}

CONTRACT(insert_refuses_ids_that_mongodb_refuses)
{
    CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_ID_FIELD,
                  truce_insert(c->store, "things", J("{'_id': [1]}"), NULL, &c->error));
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_INVALID_ID_FIELD,
        truce_insert(c->store, "things",
                     J("{'_id': {'$regularExpression': {'pattern': 'a', 'options': ''}}}"), NULL,
                     &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_DOLLAR_PREFIXED_FIELD_NAME,
                  truce_insert(c->store, "things", J("{'_id': {'$a': 1}}"), NULL, &c->error));
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_BAD_VALUE,
        truce_insert(c->store, "things", J("{'_id': 1, 'a': 1, '_id': 2}"), NULL, &c->error));
    CHECK_FINDS("things", "{}", NULL, "[]");
}

CONTRACT(insert_keeps_empty_names_and_names_with_dots_and_dollars)
{
    contract_fill(c, "things", "[{'_id': 1, 'a.b': 1, '': 2, '$c': 3}]");
    CHECK_HOLDS("things", "[{'_id': 1, 'a.b': 1, '': 2, '$c': 3}]");
}

CONTRACT(insert_fills_an_empty_timestamp_at_the_top)
{
    bson_t document = BSON_INITIALIZER, found;
    uint32_t seconds = 0, increment = 0;
    bson_iter_t iter, child;

    BSON_APPEND_INT32(&document, "_id", 1);
    BSON_APPEND_TIMESTAMP(&document, "t", 0, 0);
    bson_append_document(&document, "in", -1, J("{'t': {'$timestamp': {'t': 0, 'i': 0}}}"));
    CHECK_DONE(truce_insert(c->store, "things", &document, NULL, &c->error));
    CHECK_DONE(truce_find_one(c->store, "things", NULL, NULL, &found, &c->error));
    CHECK(bson_iter_init_find(&iter, &found, "t"));
    bson_iter_timestamp(&iter, &seconds, &increment);
    CHECK_INT(seconds, >, 1000000000);
    CHECK(bson_iter_init(&iter, &found) && bson_iter_find_descendant(&iter, "in.t", &child));
    bson_iter_timestamp(&child, &seconds, &increment);
    CHECK_INT(seconds, ==, 0);
    bson_destroy(&document);
    bson_destroy(&found);
}

CONTRACT(update_changes_the_first_match_only)
{
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 1}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'a': 1}"), J("{'$inc': {'a': 5}}"), NULL,
                            &result, &c->error));
    CHECK_INT(result.matched, ==, 1);
    CHECK_INT(result.modified, ==, 1);
    CHECK(!result.upserted);
    truce_write_result_release(&result);
    CHECK_FINDS("things", "{'a': 6}", OPTIONS(.projection = J("{'a': 1, '_id': 0}")), "[{'a': 6}]");
    CHECK_FINDS("things", "{'a': 1}", OPTIONS(.projection = J("{'a': 1, '_id': 0}")), "[{'a': 1}]");
}

CONTRACT(update_with_a_sort_changes_the_first_in_its_order)
{
    truce_write_result result;

    if (!contract_needs(c, TRUCE_CAN_SORT_UPDATE))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 2}, {'_id': 2, 'a': 9}, {'_id': 3, 'a': 5}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'a': {'$lt': 9}}"), J("{'$set': {'b': 1}}"),
                            WRITE_OPTIONS(.sort = J("{'a': -1}")), &result, &c->error));
    CHECK_INT(result.matched, ==, 1);
    CHECK_DONE(truce_update(c->store, "things", J("{}"), J("{'b': 2}"),
                            WRITE_OPTIONS(.sort = J("{'a': 1}"), .hint = J("{'$natural': -1}")),
                            &result, &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 7}"), J("{'$set': {'b': 3}}"),
                            WRITE_OPTIONS(.sort = J("{'a': 1}"), .upsert = true), &result,
                            &c->error));
    CHECK(result.upserted);
    truce_write_result_release(&result);
    CHECK_HOLDS("things", "[{'_id': 1, 'b': 2}, {'_id': 2, 'a': 9}, {'_id': 3, 'a': 5, 'b': 1}, "
                          "{'_id': 7, 'b': 3}]");
}

CONTRACT(a_sort_that_an_update_cannot_have_is_refused)
{
    if (!contract_needs(c, TRUCE_CAN_SORT_UPDATE))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 2}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_FAILED_TO_PARSE,
                  truce_update(c->store, "things", J("{}"), J("{'$set': {'b': 1}}"),
                               WRITE_OPTIONS(.sort = J("{'a': 1}"), .multi = true), NULL,
                               &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 15975,
                  truce_update(c->store, "nothing", J("{}"), J("{'$set': {'b': 1}}"),
                               WRITE_OPTIONS(.sort = J("{'a': 7}")), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.sort = J("{'a': 1}")),
                               NULL, &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{}"), J("{'$set': {'a': 3}}"),
                            WRITE_OPTIONS(.sort = J("{}"), .multi = true), NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 3}]");
    CHECK_DONE(
        truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.sort = J("{}")), NULL, &c->error));
    CHECK_HOLDS("things", "[]");
}

CONTRACT(update_with_multi_changes_every_match)
{
    truce_write_options multi = {.multi = true};
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 2}, {'_id': 3, 'b': 1}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'a': {'$exists': true}}"),
                            J("{'$set': {'a': 2}}"), &multi, &result, &c->error));
    CHECK_INT(result.matched, ==, 2);
    CHECK_INT(result.modified, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}, {'_id': 2, 'a': 2}, {'_id': 3, 'b': 1}]");
}

CONTRACT(update_with_multi_updates_no_document_twice)
{
    enum { COUNT = 400 };
    truce_write_options multi = {.multi = true};
    truce_write_result result;
    int64_t count = 0;

    for (int i = 0; i < COUNT; i++) {
        bson_t document = BSON_INITIALIZER;

        BSON_APPEND_INT32(&document, "_id", i);
        BSON_APPEND_INT32(&document, "a", i);
        CHECK_DONE(
            truce_insert(c->store, "things", &document, WRITE_OPTIONS(.relaxed = true), &c->error));
        bson_destroy(&document);
    }
    CHECK_DONE(truce_index_create(c->store, "things", J("{'key': {'a': 1}}"), &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{'a': {'$gte': 0}}"),
                            J("{'$inc': {'a': 1000, 'n': 1}}"), &multi, &result, &c->error));
    CHECK_INT(result.modified, ==, COUNT);
    CHECK_DONE(truce_count(c->store, "things", J("{'n': 1}"), NULL, &count, &c->error));
    CHECK_INT(count, ==, COUNT);
}

CONTRACT(a_failed_update_of_several_keeps_earlier_updates)
{
    truce_write_options multi = {.multi = true};

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 'x'}, {'_id': 3, 'a': 1}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_TYPE_MISMATCH,
                  truce_update(c->store, "things", J("{}"), J("{'$inc': {'a': 1}}"), &multi, NULL,
                               &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}, {'_id': 2, 'a': 'x'}, {'_id': 3, 'a': 1}]");
}

CONTRACT(an_update_that_changes_nothing_is_matched_not_modified)
{
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_DONE(truce_update(c->store, "things", J("{}"), J("{'$set': {'a': 1}}"), NULL, &result,
                            &c->error));
    CHECK_INT(result.matched, ==, 1);
    CHECK_INT(result.modified, ==, 0);
}

CONTRACT(an_update_that_matches_nothing_is_done)
{
    truce_write_result result;

    CHECK_DONE(truce_update(c->store, "nothing", J("{'_id': 1}"), J("{'$set': {'a': 1}}"), NULL,
                            &result, &c->error));
    CHECK_INT(result.matched, ==, 0);
    CHECK(!result.upserted);
    CHECK_FINDS("nothing", "{}", NULL, "[]");
}

CONTRACT(a_replacement_keeps_the_id_and_nothing_else)
{
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1, 'b': 2}]");
    CHECK_DONE(
        truce_update(c->store, "things", J("{'a': 1}"), J("{'c': 3}"), NULL, &result, &c->error));
    CHECK_INT(result.modified, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1, 'c': 3}]");
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_IMMUTABLE_FIELD,
        truce_update(c->store, "things", J("{}"), J("{'_id': 2}"), NULL, NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_FAILED_TO_PARSE,
                  truce_update(c->store, "things", J("{}"), J("{'d': 4}"),
                               WRITE_OPTIONS(.multi = true), NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'c': 3}]");
}

CONTRACT(updates_that_mongodb_refuses_are_refused_with_its_codes)
{
    static const struct {
        const char *update;
        uint32_t code;
    } cases[] = {
        {"{'$set': {'a': 1, 'a.b': 2}}", CODE_CONFLICTING_UPDATE_OPERATORS},
        {"{'$set': {'a': 1}, '$inc': {'a': 2}}", CODE_CONFLICTING_UPDATE_OPERATORS},
        {"{'$set': {'_id': 7}}", CODE_IMMUTABLE_FIELD},
        {"{'$set': {'a.b': 1}}", CODE_PATH_NOT_VIABLE},
        {"{'$inc': {'s': 1}}", CODE_TYPE_MISMATCH},
        {"{'$push': {'a': 1}}", CODE_BAD_VALUE},
        {"{'$nope': {'a': 1}}", CODE_FAILED_TO_PARSE},
        {"{'$set': {'': 1}}", CODE_EMPTY_FIELD_NAME},
        {"{'$inc': {'big': 1}}", CODE_BAD_VALUE},
    };

    contract_fill(c, "things",
                  "[{'_id': 1, 'a': 1, 's': 'x', 'big': {'$numberLong': '9223372036854775807'}}]");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_REFUSED(
            TRUCE_INVALID, cases[i].code,
            truce_update(c->store, "things", J("{}"), J(cases[i].update), NULL, NULL, &c->error));
    CHECK_HOLDS("things",
                "[{'_id': 1, 'a': 1, 's': 'x', 'big': {'$numberLong': '9223372036854775807'}}]");
}

CONTRACT(upsert_inserts_the_fields_of_filter_and_update)
{
    truce_write_options upsert = {.upsert = true};
    truce_write_result result;

    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 5, 'a': 1, 'b': {'$gt': 3}}"),
                            J("{'$set': {'x': 1}, '$setOnInsert': {'y': 2}}"), &upsert, &result,
                            &c->error));
    CHECK_INT(result.matched, ==, 0);
    CHECK(result.upserted && result.upserted_id.value_type == BSON_TYPE_INT32 &&
          result.upserted_id.value.v_int32 == 5);
    truce_write_result_release(&result);
    CHECK_INT(result.upserted_id.value_type, ==, 0);
    CHECK_HOLDS("things", "[{'_id': 5, 'a': 1, 'x': 1, 'y': 2}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 5}"),
                            J("{'$set': {'x': 2}, '$setOnInsert': {'y': 9}}"), &upsert, &result,
                            &c->error));
    CHECK_INT(result.matched, ==, 1);
    CHECK(!result.upserted);
    CHECK_HOLDS("things", "[{'_id': 5, 'a': 1, 'x': 2, 'y': 2}]");
}

CONTRACT(upsert_makes_an_object_id_and_reports_it)
{
    truce_write_options upsert = {.upsert = true};
    truce_write_result result;
    bson_t document;
    bson_iter_t iter;

    CHECK_DONE(truce_update(c->store, "things", J("{'k': 'new'}"), J("{'$inc': {'n': 1}}"), &upsert,
                            &result, &c->error));
    REQUIRE(result.upserted && result.upserted_id.value_type == BSON_TYPE_OID);
    CHECK_DONE(truce_find_one(c->store, "things", NULL, NULL, &document, &c->error));
    CHECK(bson_iter_init_find(&iter, &document, "_id") &&
          bson_oid_equal(bson_iter_oid(&iter), &result.upserted_id.value.v_oid));
    truce_write_result_release(&result);
    bson_destroy(&document);
}

CONTRACT(upsert_of_a_taken_id_is_a_duplicate)
{
    truce_write_options upsert = {.upsert = true};
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_update(c->store, "things", J("{'_id': 1, 'a': 2}"), J("{'$set': {'b': 1}}"),
                               &upsert, &result, &c->error));
    CHECK(!result.upserted);
    truce_write_result_release(&result);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}]");
}

CONTRACT(array_filters_choose_elements)
{
    truce_write_options options = {.array_filters = J("[{'x': {'$gte': 10}}]")};

    if (!contract_needs(c, TRUCE_CAN_ARRAY_FILTERS))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': [5, 15, 25]}]");
    CHECK_DONE(truce_update(c->store, "things", J("{}"), J("{'$inc': {'a.$[x]': 1}}"), &options,
                            NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': [5, 16, 26]}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_FAILED_TO_PARSE,
                  truce_update(c->store, "things", J("{}"), J("{'$inc': {'b': 1}}"), &options, NULL,
                               &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE,
                  truce_update(c->store, "things", J("{}"), J("{'$inc': {'a.$[y]': 1}}"), NULL,
                               NULL, &c->error));
}

CONTRACT(the_positional_operator_means_the_element_that_matched)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': [{'k': 'x', 'n': 1}, {'k': 'y', 'n': 1}]}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'a.k': 'y'}"), J("{'$inc': {'a.$.n': 5}}"),
                            NULL, NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': [{'k': 'x', 'n': 1}, {'k': 'y', 'n': 6}]}]");
}

CONTRACT(a_pipeline_updates_from_the_document_itself)
{
    truce_write_options pipeline = {.pipeline = true, .upsert = true};
    truce_write_result result;

    if (!contract_needs(c, TRUCE_CAN_PIPELINE_UPDATE))
        return;
    contract_fill(c, "things", "[{'_id': 1, 'a': 2, 'b': 3}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 1}"),
                            J("[{'$set': {'c': {'$add': ['$a', '$b']}}}, {'$unset': 'a'}]"),
                            &pipeline, &result, &c->error));
    CHECK_INT(result.modified, ==, 1);
    CHECK_HOLDS("things", "[{'_id': 1, 'b': 3, 'c': 5}]");
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 2}"),
                            J("[{'$set': {'n': {'$ifNull': ['$n', 7]}}}]"), &pipeline, &result,
                            &c->error));
    CHECK(result.upserted);
    truce_write_result_release(&result);
    CHECK_HOLDS("things", "[{'_id': 1, 'b': 3, 'c': 5}, {'_id': 2, 'n': 7}]");
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_update(c->store, "things", J("{}"), J("[{'$match': {'a': 1}}]"), &pipeline,
                               NULL, &c->error));
}

CONTRACT(the_item_update_changes_array_items_by_query)
{
    truce_write_result result;

    if (!contract_needs(c, TRUCE_CAN_ITEM_UPDATE))
        return;
    contract_fill(c, "people",
                  "[{'_id': 1, 'badges': [{'type': 'A', 'date': 1},"
                  " {'type': 'B', 'date': 2}, {'type': 'A', 'date': 3}]}]");
    CHECK_DONE(truce_update(
        c->store, "people", J("{'_id': 1}"),
        J("{'$update': {'badges': {'$query': {'type': 'A'}, '$set': {'date': null}}}}"), NULL,
        &result, &c->error));
    CHECK_INT(result.modified, ==, 1);
    CHECK_HOLDS("people", "[{'_id': 1, 'badges': [{'type': 'A', 'date': null},"
                          " {'type': 'B', 'date': 2}, {'type': 'A', 'date': null}]}]");
}

CONTRACT(remove_takes_the_first_match_or_all)
{
    truce_write_result result;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 1}, {'_id': 3, 'a': 2}]");
    CHECK_DONE(truce_remove(c->store, "things", J("{'a': 1}"), NULL, &result, &c->error));
    CHECK_INT(result.removed, ==, 1);
    CHECK_DONE(truce_remove(c->store, "things", J("{'a': 9}"), NULL, &result, &c->error));
    CHECK_INT(result.removed, ==, 0);
    CHECK_DONE(truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.multi = true), &result,
                            &c->error));
    CHECK_INT(result.removed, ==, 2);
    CHECK_FINDS("things", "{}", NULL, "[]");
    CHECK_DONE(truce_insert(c->store, "things", J("{'_id': 1}"), NULL, &c->error));
}

CONTRACT(a_write_of_every_document_says_so)
{
    const truce_write writes[] = {
        {TRUCE_WRITE_UPDATE, "things", NULL, J("{'$set': {'a': 9}}"), {.multi = true}},
        {TRUCE_WRITE_REMOVE, "things", NULL, NULL, {.multi = true}},
    };
    truce_write_outcome outcome;
    bson_t document;

    contract_fill(c, "things", "[{'_id': 1}, {'_id': 2}]");
    CHECK_REFUSED(
        TRUCE_INVALID, 0,
        truce_update(c->store, "things", NULL, J("{'$set': {'a': 1}}"), NULL, NULL, &c->error));
    CHECK(strstr(c->error.message, "filter"));
    CHECK_REFUSED(
        TRUCE_INVALID, 0,
        truce_remove(c->store, "things", NULL, WRITE_OPTIONS(.multi = true), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_find_and_modify(c->store, "things", NULL, NULL,
                                        &(truce_modify_options){.remove = true}, &document, NULL,
                                        &c->error));
    bson_destroy(&document);
    for (int i = 0; i < 2; i++)
        CHECK_REFUSED(TRUCE_INVALID, 0,
                      truce_bulk(c->store, &writes[i], 1, NULL, &outcome, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1}, {'_id': 2}]");
    CHECK_DONE(
        truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.multi = true), NULL, &c->error));
    CHECK_HOLDS("things", "[]");
}

CONTRACT(a_document_may_have_16_megabytes_and_no_more)
{
    enum { SIZE = 16 * 1024 * 1024 - 4096 };
    char *text = bson_malloc(SIZE);
    bson_t document = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    bson_iter_t iter;
    bson_t found;

    memset(text, 'x', SIZE);
    BSON_APPEND_INT32(&document, "_id", 1);
    bson_append_utf8(&document, "t", 1, text, SIZE);
    CHECK_DONE(truce_insert(c->store, "big", &document, NULL, &c->error));
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    bson_append_utf8(&set, "v", 1, text, 8192);
    bson_append_document_end(&update, &set);
    CHECK(truce_update(c->store, "big", J("{}"), &update, NULL, NULL, &c->error) != TRUCE_OK);
    CHECK(c->error.message[0]);
    CHECK_DONE(truce_find_one(c->store, "big", NULL, NULL, &found, &c->error));
    CHECK(!bson_iter_init_find(&iter, &found, "v"));
    CHECK_INT(found.len, ==, document.len);
    bson_append_utf8(&document, "v", 1, text, 8192);
    CHECK_REFUSED(TRUCE_LIMIT, CODE_BSON_OBJECT_TOO_LARGE,
                  truce_insert(c->store, "other", &document, NULL, &c->error));
    bson_destroy(&found);
    bson_destroy(&update);
    bson_destroy(&document);
    bson_free(text);
}
