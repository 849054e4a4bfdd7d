/* The contract: indexes of all kinds. The recorded cases and the random comparison of stores
 * check that plans change no answer; these cases check the promises of indexes themselves. */
#include "tests/support/contract.h"

#include "base/limits.h"
#include "base/status.h"

const int contract_index_cases = 1;

#define CREATE(json) truce_index_create(c->store, "things", J(json), &c->error)
#define PUT(json)    truce_insert(c->store, "things", J(json), NULL, &c->error)

CONTRACT(index_list_has_ids_index_first_and_definitions_as_given)
{
    bson_t indexes;

    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_NAMESPACE_NOT_FOUND,
                  truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK(bson_empty(&indexes));
    bson_destroy(&indexes);
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b.c': -1}}"));
    CHECK_DONE(CREATE("{'key': {'u': 1}, 'name': 'mine', 'unique': true, 'sparse': true}"));
    CHECK_DONE(CREATE("{'key': {'t': 1}, 'expireAfterSeconds': 60}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_BSON(J("[{'v': 2, 'key': {'_id': 1}, 'name': '_id_'},"
                 " {'v': 2, 'key': {'a': 1, 'b.c': -1}, 'name': 'a_1_b.c_-1'},"
                 " {'v': 2, 'key': {'u': 1}, 'name': 'mine', 'unique': true, 'sparse': true},"
                 " {'v': 2, 'key': {'t': 1}, 'name': 't_1',"
                 "  'expireAfterSeconds': {'$numberLong': '60'}}]"),
               &indexes);
    bson_destroy(&indexes);
}

CONTRACT(an_index_that_is_there_already_is_done)
{
    bson_t indexes;

    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_DONE(CREATE("{'key': {'a': {'$numberDouble': '1.0'}}}"));
    CHECK_DONE(CREATE("{'key': {'_id': 1}}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_INT(bson_count_keys(&indexes), ==, 2);
    bson_destroy(&indexes);
}

CONTRACT(index_definitions_in_conflict_are_refused)
{
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'name': 'n'}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_INDEX_KEY_SPECS_CONFLICT,
                  CREATE("{'key': {'b': 1}, 'name': 'n'}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_INDEX_OPTIONS_CONFLICT,
                  CREATE("{'key': {'a': 1}, 'name': 'other'}"));
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'name': 'unique', 'unique': true}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_INDEX_OPTIONS_CONFLICT,
                  CREATE("{'key': {'a': 1}, 'name': 'n', 'expireAfterSeconds': 5}"));
}

CONTRACT(index_definitions_that_mongodb_refuses_are_refused)
{
    static const struct {
        const char *index;
        uint32_t code;
    } cases[] = {
        {"{'key': {}}", CODE_CANNOT_CREATE_INDEX},
        {"{'key': {'a': 0}}", CODE_CANNOT_CREATE_INDEX},
        {"{'key': {'a': 'text'}}", CODE_CANNOT_CREATE_INDEX},
        {"{'key': {'$a': 1}}", CODE_CANNOT_CREATE_INDEX},
        {"{'key': 5}", CODE_TYPE_MISMATCH},
        {"{'key': {'_id': -1}}", CODE_BAD_VALUE},
        {"{'key': {'a': 1}, 'partialFilterExpression': {'b': {'$nope': 1}}}", 0},
        {"{'key': {'a': 1}, 'nonsense': true}", 0},
        {"{}", 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_REFUSED(TRUCE_INVALID, cases[i].code, CREATE(cases[i].index));
}

CONTRACT(an_index_can_be_dropped_by_name_but_not_ids)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'a': 1}"));
    CHECK_DONE(truce_index_drop(c->store, "things", "a_1", &c->error));
    CHECK_DONE(PUT("{'_id': 2, 'a': 1}"));
    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_INDEX_NOT_FOUND,
                  truce_index_drop(c->store, "things", "a_1", &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_OPTIONS,
                  truce_index_drop(c->store, "things", "_id_", &c->error));
    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_NAMESPACE_NOT_FOUND,
                  truce_index_drop(c->store, "nothing", "a_1", &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}, {'_id': 2, 'a': 1}]");
}

#define MODIFY(name, json) truce_index_modify(c->store, "things", name, J(json), &c->error)

CONTRACT(an_index_is_hidden_and_shown_again)
{
    bson_t indexes;

    CHECK_REFUSED(TRUCE_NOT_FOUND, 0, MODIFY("a_1", "{'hidden': true}"));
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_DONE(MODIFY("a_1", "{'hidden': true}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_BSON(J("[{'v': 2, 'key': {'_id': 1}, 'name': '_id_'},"
                 " {'v': 2, 'key': {'a': 1}, 'name': 'a_1', 'unique': true, 'hidden': true}]"),
               &indexes);
    bson_destroy(&indexes);
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'a': 1}"));
    CHECK_DONE(MODIFY("a_1", "{'hidden': false}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_BSON(J("[{'v': 2, 'key': {'_id': 1}, 'name': '_id_'},"
                 " {'v': 2, 'key': {'a': 1}, 'name': 'a_1', 'unique': true}]"),
               &indexes);
    bson_destroy(&indexes);
    CHECK_REFUSED(TRUCE_NOT_FOUND, CODE_INDEX_NOT_FOUND, MODIFY("b_1", "{'hidden': true}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE, MODIFY("_id_", "{'hidden': true}"));
}

CONTRACT(the_time_after_which_documents_of_an_index_expire_can_be_changed)
{
    bson_t indexes;

    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_DONE(CREATE("{'key': {'t': 1}, 'expireAfterSeconds': 60}"));
    CHECK_DONE(MODIFY("t_1", "{'expireAfterSeconds': 7200}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_BSON(J("[{'v': 2, 'key': {'_id': 1}, 'name': '_id_'},"
                 " {'v': 2, 'key': {'t': 1}, 'name': 't_1',"
                 "  'expireAfterSeconds': {'$numberLong': '7200'}}]"),
               &indexes);
    bson_destroy(&indexes);
}

CONTRACT(a_unique_index_refuses_equal_keys_and_names_them)
{
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b': 1}, 'unique': true}"));
    CHECK_DONE(PUT("{'_id': 1, 'a': 1, 'b': 1}"));
    CHECK_DONE(PUT("{'_id': 2, 'a': 1, 'b': 2}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  PUT("{'_id': 3, 'a': {'$numberLong': '1'}, 'b': {'$numberDouble': '2.0'}}"));
    CHECK(strstr(c->error.message, "a_1_b_1") && strstr(c->error.message, "things"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'b': 2}}"), NULL,
                               NULL, &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'b': 1, 'z': 1}}"),
                            NULL, NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1, 'b': 1, 'z': 1}, {'_id': 2, 'a': 1, 'b': 2}]");
}

CONTRACT(a_unique_index_counts_a_missing_field_as_null)
{
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_DONE(PUT("{'_id': 1}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 2, 'a': null}"));
    CHECK_DONE(PUT("{'_id': 3, 'a': []}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 4, 'a': []}"));
}

CONTRACT(a_unique_multikey_index_holds_between_documents_not_within_one)
{
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_DONE(PUT("{'_id': 1, 'a': [1, 1, 2]}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 2, 'a': 2}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 2, 'a': [3, 1]}"));
    CHECK_DONE(PUT("{'_id': 2, 'a': [3, 4]}"));
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 1}"), J("{'$pull': {'a': 1}}"), NULL,
                            NULL, &c->error));
    CHECK_DONE(PUT("{'_id': 3, 'a': 1}"));
}

CONTRACT(a_sparse_unique_index_allows_many_without_the_field)
{
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true, 'sparse': true}"));
    CHECK_DONE(PUT("{'_id': 1}"));
    CHECK_DONE(PUT("{'_id': 2}"));
    CHECK_DONE(PUT("{'_id': 3, 'a': null}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 4, 'a': null}"));
}

CONTRACT(a_partial_unique_index_applies_to_documents_that_its_filter_matches)
{
    if (!contract_needs(c, TRUCE_CAN_PARTIAL_INDEX))
        return;
    CHECK_DONE(
        CREATE("{'key': {'a': 1}, 'unique': true, 'partialFilterExpression': {'on': true}}"));
    CHECK_DONE(PUT("{'_id': 1, 'a': 1}"));
    CHECK_DONE(PUT("{'_id': 2, 'a': 1}"));
    CHECK_DONE(PUT("{'_id': 3, 'a': 1, 'on': true}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, PUT("{'_id': 4, 'a': 1, 'on': true}"));
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY,
                  truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'on': true}}"),
                               NULL, NULL, &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 3}"), J("{'$set': {'on': false}}"), NULL,
                            NULL, &c->error));
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'on': true}}"), NULL,
                            NULL, &c->error));
}

CONTRACT(two_arrays_in_one_compound_index_are_refused)
{
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b': 1}}"));
    CHECK_DONE(PUT("{'_id': 1, 'a': [1, 2], 'b': 1}"));
    CHECK_DONE(PUT("{'_id': 2, 'a': 1, 'b': [1, 2]}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_CANNOT_INDEX_PARALLEL_ARRAYS,
                  PUT("{'_id': 3, 'a': [1], 'b': [1]}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_CANNOT_INDEX_PARALLEL_ARRAYS,
                  truce_update(c->store, "things", J("{'_id': 1}"), J("{'$set': {'b': [1]}}"), NULL,
                               NULL, &c->error));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': [1, 2], 'b': 1}, {'_id': 2, 'a': 1, 'b': [1, 2]}]");
}

CONTRACT(a_failed_build_leaves_nothing)
{
    bson_t indexes;

    contract_fill(c, "things",
                  "[{'_id': 1, 'a': 1, 'x': [1], 'y': [1]}, {'_id': 2, 'a': 1}, {'_id': 3}]");
    CHECK_REFUSED(TRUCE_DUPLICATE, CODE_DUPLICATE_KEY, CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_REFUSED(TRUCE_INVALID, CODE_CANNOT_INDEX_PARALLEL_ARRAYS,
                  CREATE("{'key': {'x': 1, 'y': 1}}"));
    CHECK_DONE(truce_index_list(c->store, "things", &indexes, &c->error));
    CHECK_INT(bson_count_keys(&indexes), ==, 1);
    bson_destroy(&indexes);
    CHECK_DONE(PUT("{'_id': 4, 'a': 1}"));
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_FINDS("things", "{'a': 1}", OPTIONS(.hint = J("{'a': 1}"), .projection = J("{'_id': 1}")),
                "[{'_id': 1}, {'_id': 2}, {'_id': 4}]");
}

CONTRACT(a_build_over_existing_documents_finds_them)
{
    contract_fill(
        c, "things",
        "[{'_id': 1, 'a': [3, 1]}, {'_id': 2, 'a': 2}, {'_id': 3}, {'_id': 4, 'a': 'x'}]");
    CHECK_DONE(CREATE("{'key': {'a': -1}}"));
    CHECK_FINDS("things", "{'a': {'$gt': 1}}",
                OPTIONS(.hint = J("{'a': -1}"), .sort = J("{'_id': 1}")),
                "[{'_id': 1, 'a': [3, 1]}, {'_id': 2, 'a': 2}]");
    CHECK_FINDS("things", "{'a': null}", OPTIONS(.hint = J("{'': 'a_-1'}")), "[{'_id': 3}]");
}

CONTRACT(a_hint_must_name_an_index)
{
    truce_cursor *cursor = NULL;
    bson_t document;

    contract_fill(c, "things", "[{'_id': 1, 'a': 1}]");
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_BAD_VALUE,
        truce_find(c->store, "things", NULL, OPTIONS(.hint = J("{'a': 1}")), &cursor, &c->error));
    CHECK(cursor == NULL);
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE,
                  truce_update(c->store, "things", J("{}"), J("{'$set': {'b': 1}}"),
                               WRITE_OPTIONS(.hint = J("{'': 'nope'}")), NULL, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE,
                  truce_find_and_modify(c->store, "things", J("{}"), J("{'$set': {'b': 1}}"),
                                        &(truce_modify_options){.hint = J("{'b': 1}")}, &document,
                                        NULL, &c->error));
    bson_destroy(&document);
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 1}]");
    CHECK_FINDS("things", "{'a': 1}", OPTIONS(.hint = J("{'$natural': 1}")),
                "[{'_id': 1, 'a': 1}]");
}

CONTRACT(a_hinted_sparse_index_hides_documents_that_it_lacks)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': 1}, {'_id': 2}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'sparse': true}"));
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'a': 1}")), "[{'_id': 2}, {'_id': 1, 'a': 1}]");
    CHECK_FINDS("things", "{'a': null}", NULL, "[{'_id': 2}]");
    CHECK_FINDS("things", "{}", OPTIONS(.hint = J("{'a': 1}")), "[{'_id': 1, 'a': 1}]");
}

CONTRACT(sorts_by_an_index_have_the_order_of_a_sort)
{
    static const char *const expected =
        "[{'_id': 3, 'a': null}, {'_id': 1, 'a': 1}, {'_id': 5, 'a': {'$numberDouble': '1.5'}},"
        " {'_id': 2, 'a': 'x'}, {'_id': 4, 'a': {'b': 1}}]";

    contract_fill(c, "things", expected);
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'a': 1}")), expected);
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'a': -1}"), .skip = 1, .limit = 2),
                "[{'_id': 2, 'a': 'x'}, {'_id': 5, 'a': {'$numberDouble': '1.5'}}]");
    CHECK_FINDS("things", "{'a': {'$gt': 0}}", OPTIONS(.sort = J("{'a': -1}")),
                "[{'_id': 5, 'a': {'$numberDouble': '1.5'}}, {'_id': 1, 'a': 1}]");
}

CONTRACT(a_wildcard_index_finds_by_any_path)
{
    if (!contract_needs(c, TRUCE_CAN_WILDCARD_INDEX))
        return;
    contract_fill(c, "people",
                  "[{'_id': 1, 'badges': {'A': {'n': 1}, 'B': {'n': 2}}},"
                  " {'_id': 2, 'badges': {'C': {'n': [1, 5]}}}, {'_id': 3, 'badges': 7}]");
    CHECK_DONE(truce_index_create(c->store, "people", J("{'key': {'badges.$**': 1}}"), &c->error));
    CHECK_FINDS("people", "{'badges.A.n': 1}", OPTIONS(.projection = J("{'_id': 1}")),
                "[{'_id': 1}]");
    CHECK_FINDS("people", "{'badges.C.n': {'$gte': 2}}", OPTIONS(.projection = J("{'_id': 1}")),
                "[{'_id': 2}]");
    CHECK_FINDS("people", "{'badges.C.n': null}",
                OPTIONS(.projection = J("{'_id': 1}"), .sort = J("{'_id': 1}")),
                "[{'_id': 1}, {'_id': 3}]");
    CHECK_FINDS("people", "{'badges': 7}", OPTIONS(.projection = J("{'_id': 1}")), "[{'_id': 3}]");
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_index_create(c->store, "people", J("{'key': {'$**': 1}, 'unique': true}"),
                                     &c->error));
}

CONTRACT(a_collection_has_64_indexes_at_most)
{
    char json[60];

    for (int i = 1; i < TRUCE_INDEXES_MAX; i++) {
        snprintf(json, sizeof(json), "{'key': {'f%d': 1}}", i);
        CHECK_DONE(CREATE(json));
    }
    CHECK_REFUSED(TRUCE_INVALID, CODE_CANNOT_CREATE_INDEX, CREATE("{'key': {'more': 1}}"));
    CHECK_DONE(PUT("{'_id': 1, 'f1': 1, 'f63': 'x'}"));
    CHECK_FINDS("things", "{'f63': 'x'}", OPTIONS(.projection = J("{'_id': 1}")), "[{'_id': 1}]");
}

CONTRACT(removed_and_changed_documents_leave_their_keys)
{
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'unique': true}"));
    CHECK_DONE(PUT("{'_id': 1, 'a': 1}"));
    CHECK_DONE(
        truce_update(c->store, "things", J("{}"), J("{'$set': {'a': 2}}"), NULL, NULL, &c->error));
    CHECK_FINDS("things", "{'a': 1}", NULL, "[]");
    CHECK_DONE(PUT("{'_id': 2, 'a': 1}"));
    CHECK_DONE(truce_remove(c->store, "things", J("{'a': 1}"), NULL, NULL, &c->error));
    CHECK_DONE(PUT("{'_id': 3, 'a': 1}"));
    CHECK_HOLDS("things", "[{'_id': 1, 'a': 2}, {'_id': 3, 'a': 1}]");
}

/* ---- documents that expire ------------------------------------------------------------------ */

#define PAST   "{'$date': {'$numberLong': '1000'}}"
#define FUTURE "{'$date': {'$numberLong': '253402300799000'}}"

CONTRACT(documents_expire_by_the_date_in_an_index)
{
    int64_t removed = -1;

    contract_fill(c, "sessions",
                  "[{'_id': 1, 't': " PAST "}, {'_id': 2, 't': " FUTURE "}, {'_id': 3},"
                  " {'_id': 4, 't': 5}, {'_id': 5, 't': [" FUTURE ", " PAST "]}]");
    contract_fill(c, "other", "[{'_id': 1, 't': " PAST "}]");
    CHECK_DONE(truce_store_expire(c->store, NULL, 0, &removed, &c->error));
    CHECK_INT(removed, ==, 0);
    CHECK_DONE(truce_index_create(c->store, "sessions",
                                  J("{'key': {'t': 1}, 'expireAfterSeconds': 3600}"), &c->error));
    CHECK_DONE(truce_store_expire(c->store, NULL, 0, &removed, &c->error));
    CHECK_INT(removed, ==, 2);
    CHECK_HOLDS("sessions", "[{'_id': 2, 't': " FUTURE "}, {'_id': 3}, {'_id': 4, 't': 5}]");
    CHECK_HOLDS("other", "[{'_id': 1, 't': " PAST "}]");
}

CONTRACT(expiry_keeps_to_partial_filter_guard_and_limit)
{
    int64_t removed = 0;
    int64_t count = 0;

    CHECK_DONE(truce_index_create(c->store, "jobs",
                                  J("{'key': {'t': 1}, 'expireAfterSeconds': 0,"
                                    " 'partialFilterExpression': {'done': true}}"),
                                  &c->error));
    contract_fill(c, "jobs",
                  "[{'_id': 1, 't': " PAST ", 'done': true}, {'_id': 2, 't': " PAST "},"
                  " {'_id': 3, 't': " PAST ", 'done': true, 'held': 1},"
                  " {'_id': 4, 't': " PAST ", 'done': true}]");
    CHECK_DONE(
        truce_store_expire(c->store, J("{'held': {'$exists': false}}"), 1, &removed, &c->error));
    CHECK_INT(removed, ==, 1);
    CHECK_DONE(truce_store_expire(c->store, J("{'held': {'$exists': false}}"), 0, NULL, &c->error));
    CHECK_DONE(truce_count(c->store, "jobs", NULL, NULL, &count, &c->error));
    CHECK_INT(count, ==, 2);
    CHECK_FINDS("jobs", "{'done': true}", OPTIONS(.projection = J("{'held': 1}")),
                "[{'_id': 3, 'held': 1}]");
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE,
                  truce_store_expire(c->store, J("{'$nope': 1}"), 0, &removed, &c->error));
}
