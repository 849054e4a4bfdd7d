/* The contract: parts of an index, by min and max; keys and records instead of documents. */
#include "tests/support/contract.h"

#include "base/status.h"

const int contract_span_cases = 1;

#define CREATE(json) truce_index_create(c->store, "things", J(json), &c->error)
#define FIND(...)    find(c, OPTIONS(__VA_ARGS__))

static truce_status find(struct contract *c, const truce_find_options *options)
{
    truce_cursor *cursor = NULL;
    truce_status status = truce_find(c->store, "things", NULL, options, &cursor, &c->error);

    CHECK(!status == (cursor != NULL));
    truce_cursor_close(cursor);
    return status;
}

CONTRACT(min_is_found_and_max_is_not_in_the_order_of_the_index)
{
    contract_fill(c, "things",
                  "[{'_id': 1, 'a': 4}, {'_id': 2, 'a': 2}, {'_id': 3, 'a': 3}, {'_id': 4, 'a': 1},"
                  " {'_id': 5, 'a': 3}, {'_id': 6}, {'_id': 7, 'a': 'x'}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{'a': 2}"), .max = J("{'a': 4}"),
                        .projection = J("{'a': 1}")),
                "[{'_id': 2, 'a': 2}, {'_id': 3, 'a': 3}, {'_id': 5, 'a': 3}]");
    CHECK_FINDS("things", "{}", OPTIONS(.hint = J("{'': 'a_1'}"), .min = J("{'a': 4}")),
                "[{'_id': 1, 'a': 4}, {'_id': 7, 'a': 'x'}]");
    CHECK_FINDS("things", "{}", OPTIONS(.hint = J("{'a': 1}"), .max = J("{'a': 2}")),
                "[{'_id': 6}, {'_id': 4, 'a': 1}]");
    CHECK_FINDS("things", "{'_id': {'$lt': 5}}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{'a': 2}"), .skip = 1, .limit = 1),
                "[{'_id': 3, 'a': 3}]");
    CHECK_FINDS("things", "{'a': {'$gt': 2}}",
                OPTIONS(.hint = J("{'_id': 1}"), .min = J("{'_id': 2}"), .max = J("{'_id': 5}")),
                "[{'_id': 3, 'a': 3}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{}"), .max = J("{}"), .limit = 1,
                        .sort = J("{'_id': 1}")),
                "[{'_id': 1, 'a': 4}]");
}

CONTRACT(min_and_max_stand_in_the_order_of_the_index_field_by_field)
{
    contract_fill(c, "things",
                  "[{'_id': 1, 'a': 1, 'b': 1}, {'_id': 2, 'a': 1, 'b': 2}, {'_id': 3, 'a': 2, "
                  "'b': 1}, {'_id': 4, 'a': 2, 'b': 2}]");
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b': 1}}"));
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b': -1}}"));
    CHECK_DONE(CREATE("{'key': {'b': -1}}"));
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1, 'b': 1}"), .min = J("{'a': 1, 'b': 2}"),
                        .max = J("{'a': 2, 'b': 2}"), .projection = J("{'_id': 1}")),
                "[{'_id': 2}, {'_id': 3}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1, 'b': -1}"), .min = J("{'a': 1, 'b': 2}"),
                        .projection = J("{'_id': 1}")),
                "[{'_id': 2}, {'_id': 1}, {'_id': 4}, {'_id': 3}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1, 'b': -1}"), .max = J("{'a': 1, 'b': 1}"),
                        .projection = J("{'_id': 1}")),
                "[{'_id': 2}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'b': -1}"), .min = J("{'b': 2}"), .max = J("{'b': 1}"),
                        .projection = J("{'_id': 1}")),
                "[{'_id': 2}, {'_id': 4}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'b': -1}"), .max = J("{'b': 0}"), .sort = J("{'_id': -1}"),
                        .limit = 3, .projection = J("{'_id': 1}")),
                "[{'_id': 4}, {'_id': 3}, {'_id': 2}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'b': -1}"), .min = J("{'b': 2}"),
                        .sort = J("{'b': 1, '_id': 1}"), .projection = J("{'_id': 1}")),
                "[{'_id': 1}, {'_id': 3}, {'_id': 2}, {'_id': 4}]");
}

CONTRACT(a_document_with_several_keys_comes_once_with_the_least_between_min_and_max)
{
    contract_fill(c, "things",
                  "[{'_id': 1, 'a': [9, 1, 5]}, {'_id': 2, 'a': 4}, {'_id': 3, 'a': [0, 8]}, "
                  "{'_id': 4, 'a': []}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{'a': 3}"), .max = J("{'a': 100}"),
                        .projection = J("{'_id': 1}")),
                "[{'_id': 2}, {'_id': 1}, {'_id': 3}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{'a': 2}"), .max = J("{'a': 4}")), "[]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .min = J("{'a': 3}"), .return_key = true),
                "[{'a': 4}, {'a': 5}, {'a': 8}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a': 1}"), .max = J("{'a': 0}"), .return_key = true),
                "[{'a': {'$undefined': true}}]");
}

CONTRACT(an_index_that_lacks_documents_finds_no_such_document_between_min_and_max)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': 2}, {'_id': 2}, {'_id': 3, 'a': 1}]");
    CHECK_DONE(CREATE("{'key': {'a': 1}, 'sparse': true}"));
    CHECK_FINDS("things", "{}", OPTIONS(.hint = J("{'a': 1}"), .max = J("{'a': 5}")),
                "[{'_id': 3, 'a': 1}, {'_id': 1, 'a': 2}]");
}

CONTRACT(min_and_max_that_no_index_has_are_refused)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': 1, 'b': 1}]");
    CHECK_DONE(CREATE("{'key': {'a': 1, 'b': 1}}"));
    CHECK_REFUSED(TRUCE_INVALID, 51173, FIND(.min = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51173, FIND(.max = J("{'a': 1, 'b': 1}"), .hint = J("{}")));
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE, FIND(.max = J("{'c': 1}"), .hint = J("{'c': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51174, FIND(.min = J("{'a': 1}"), .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51174,
                  FIND(.max = J("{'b': 1, 'a': 1}"), .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51174,
                  FIND(.max = J("{'a': 1, 'b': 1, 'c': 1}"), .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(
        TRUCE_INVALID, 51176,
        FIND(.min = J("{'a': 1, 'b': 1}"), .max = J("{'a': 2}"), .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51176,
                  FIND(.min = J("{'a': 1, 'b': 1}"), .max = J("{'b': 2, 'a': 2}"),
                       .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51175,
                  FIND(.min = J("{'a': 1, 'b': 2}"), .max = J("{'a': 1, 'b': 2}"),
                       .hint = J("{'a': 1, 'b': 1}")));
    CHECK_REFUSED(TRUCE_INVALID, 51175,
                  FIND(.min = J("{'a': 6, 'b': 2}"), .max = J("{'a': 3, 'b': 2}"),
                       .hint = J("{'a': 1, 'b': 1}"), .sort = J("{'a': -1}")));
    CHECK_REFUSED(TRUCE_INVALID, CODE_NO_QUERY_EXECUTION_PLANS,
                  FIND(.min = J("{'a': 1, 'b': 1}"), .hint = J("{'$natural': 1}")));
}

CONTRACT(keys_are_shown_instead_of_documents)
{
    contract_fill(c, "things",
                  "[{'_id': 1, 'a': {'b': 3}, 'c': 1}, {'_id': 2, 'a': {'b': {'$numberDouble': "
                  "'1.0'}}, 'c': 2}, {'_id': 3, 'c': 0}]");
    CHECK_DONE(CREATE("{'key': {'a.b': 1, 'c': -1}}"));
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'a.b': 1, 'c': -1}"), .sort = J("{'a.b': 1}"),
                        .return_key = true, .projection = J("{'c': 1}")),
                "[{'a.b': null, 'c': 0}, {'a.b': {'$numberDouble': '1.0'}, 'c': 2},"
                " {'a.b': 3, 'c': 1}]");
    CHECK_FINDS("things", "{}",
                OPTIONS(.hint = J("{'_id': 1}"), .sort = J("{'c': 1}"), .return_key = true),
                "[{'_id': 3}, {'_id': 1}, {'_id': 2}]");
    CHECK_FINDS("things", "{'c': 1}", OPTIONS(.hint = J("{'$natural': 1}"), .return_key = true),
                "[{}]");
}

static int64_t record_of(struct contract *c, int32_t id)
{
    const truce_find_options options = {.show_record_id = true, .projection = J("{'a': 1}")};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id)), found;
    int64_t record = 0;
    bson_iter_t at;

    CHECK_DONE(truce_find_one(c->store, "things", filter, &options, &found, &c->error));
    if (CHECK(bson_iter_init_find(&at, &found, "$recordId")) && CHECK(BSON_ITER_HOLDS_INT64(&at)))
        record = bson_iter_int64(&at);
    CHECK_INT(bson_count_keys(&found), ==, 3);
    bson_destroy(&found);
    bson_destroy(filter);
    return record;
}

CONTRACT(records_have_numbers_in_the_order_of_insertion_that_stay)
{
    int64_t first, second;

    contract_fill(c, "things", "[{'_id': 5, 'a': 1}, {'_id': 3, 'a': 2}]");
    first = record_of(c, 5);
    second = record_of(c, 3);
    CHECK(first > 0 && first < second);
    CHECK_DONE(truce_update(c->store, "things", J("{'_id': 5}"), J("{'$set': {'a': 7}}"), NULL,
                            NULL, &c->error));
    CHECK_DONE(CREATE("{'key': {'a': 1}}"));
    CHECK_INT(record_of(c, 5), ==, first);
    contract_fill(c, "things", "[{'_id': 1, 'a': 0}]");
    CHECK(record_of(c, 1) > second);
    CHECK_DONE(truce_remove(c->store, "things", J("{'_id': 5}"), NULL, NULL, &c->error));
    CHECK_INT(record_of(c, 3), ==, second);
}
