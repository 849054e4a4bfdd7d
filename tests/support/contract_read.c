/* The contract: find, cursors, count, distinct, explain, finds by _id. */
#include "tests/support/contract.h"

#include "base/status.h"
#include "store/store.h"

const int contract_read_cases = 1;

#define THINGS                                                                                     \
    "[{'_id': 1, 'a': 3, 'b': 'x'}, {'_id': 2, 'a': 1, 'b': 'y'}, {'_id': 3, 'a': 2, 'b': 'x'}]"

CONTRACT(a_collection_that_does_not_exist_is_empty)
{
    int64_t count = 7;
    bson_t values;

    CHECK_FINDS("nothing", "{}", NULL, "[]");
    CHECK_DONE(truce_count(c->store, "nothing", NULL, NULL, &count, &c->error));
    CHECK_INT(count, ==, 0);
    CHECK_DONE(truce_distinct(c->store, "nothing", "a", NULL, &values, &c->error));
    CHECK(bson_empty(&values));
    bson_destroy(&values);
}

CONTRACT(find_without_a_filter_gives_all_in_natural_order)
{
    contract_fill(c, "things", THINGS);
    CHECK_FINDS("things", NULL, OPTIONS(.sort = J("{'$natural': 1}")), THINGS);
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'$natural': -1}")),
                "[{'_id': 3, 'a': 2, 'b': 'x'}, {'_id': 2, 'a': 1, 'b': 'y'},"
                " {'_id': 1, 'a': 3, 'b': 'x'}]");
}

CONTRACT(find_filters)
{
    contract_fill(c, "things", THINGS);
    CHECK_FINDS("things", "{'_id': 2}", NULL, "[{'_id': 2, 'a': 1, 'b': 'y'}]");
    CHECK_FINDS("things", "{'a': {'$gt': 1}, 'b': 'x'}", OPTIONS(.sort = J("{'_id': 1}")),
                "[{'_id': 1, 'a': 3, 'b': 'x'}, {'_id': 3, 'a': 2, 'b': 'x'}]");
    CHECK_FINDS("things", "{'a': 9}", NULL, "[]");
}

CONTRACT(find_sorts_skips_and_limits_in_that_order)
{
    contract_fill(c, "things", THINGS);
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'a': 1}"), .skip = 1, .limit = 1),
                "[{'_id': 3, 'a': 2, 'b': 'x'}]");
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'b': -1, 'a': -1}"), .limit = 2),
                "[{'_id': 2, 'a': 1, 'b': 'y'}, {'_id': 1, 'a': 3, 'b': 'x'}]");
    CHECK_FINDS("things", "{}", OPTIONS(.skip = 3), "[]");
    CHECK_FINDS("things", "{}", OPTIONS(.skip = INT64_MAX, .limit = INT64_MAX), "[]");
    CHECK_FINDS("things", "{}", OPTIONS(.sort = J("{'_id': 1}"), .limit = INT64_MAX), THINGS);
}

CONTRACT(find_projects)
{
    contract_fill(c, "things", "[{'_id': 1, 'a': [1, 2, 3], 'b': {'c': 1, 'd': 2}}]");
    CHECK_FINDS("things", "{}", OPTIONS(.projection = J("{'b.c': 1, '_id': 0}")),
                "[{'b': {'c': 1}}]");
    CHECK_FINDS("things", "{}", OPTIONS(.projection = J("{'a': 0}")),
                "[{'_id': 1, 'b': {'c': 1, 'd': 2}}]");
    CHECK_FINDS("things", "{'a': {'$gte': 2}}", OPTIONS(.projection = J("{'a.$': 1}")),
                "[{'_id': 1, 'a': [2]}]");
    CHECK_FINDS("things", "{}", OPTIONS(.projection = J("{}")),
                "[{'_id': 1, 'a': [1, 2, 3], 'b': {'c': 1, 'd': 2}}]");
}

CONTRACT(refuses_an_invalid_find)
{
    truce_cursor *cursor = (truce_cursor *)c;

    CHECK_REFUSED(
        TRUCE_INVALID, CODE_BAD_VALUE,
        truce_find(c->store, "things", J("{'a': {'$nope': 1}}"), NULL, &cursor, &c->error));
    CHECK(cursor == NULL);
    CHECK_REFUSED(TRUCE_INVALID, 51024,
                  truce_find(c->store, "things", NULL, OPTIONS(.skip = -1), &cursor, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 51024,
                  truce_find(c->store, "things", NULL, OPTIONS(.limit = -1), &cursor, &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_find(c->store, "things", NULL, OPTIONS(.sort = J("{'a': 'up'}")), &cursor,
                             &c->error));
    CHECK_REFUSED(TRUCE_INVALID, 0,
                  truce_find(c->store, "things", NULL, OPTIONS(.projection = J("{'a': 1, 'b': 0}")),
                             &cursor, &c->error));
}

CONTRACT(an_error_while_testing_a_document_reaches_the_caller)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status;

    contract_fill(c, "things", "[{'_id': 1, 'a': 0}]");
    status = truce_find(c->store, "things", J("{'$expr': {'$divide': [1, '$a']}}"), NULL, &cursor,
                        &c->error);
    if (!status)
        status = truce_cursor_next(cursor, &document, &c->error);
    CHECK_REFUSED(TRUCE_INVALID, CODE_BAD_VALUE, status);
    CHECK(document == NULL);
    truce_cursor_close(cursor);
}

CONTRACT(a_cursor_at_its_end_stays_there)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;

    contract_fill(c, "things", "[{'_id': 1}]");
    CHECK_DONE(truce_find(c->store, "things", NULL, NULL, &cursor, &c->error));
    CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
    REQUIRE(document != NULL);
    CHECK_BSON(J("{'_id': 1}"), document);
    for (int i = 0; i < 3; i++) {
        CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
        CHECK(document == NULL);
    }
    truce_cursor_close(cursor);
    truce_cursor_close(NULL);
}

/* Inserts {_id: 0 ... count - 1, v: 0} by bulks. */
static void fill_many(struct contract *c, const char *collection, int count)
{
    enum { BATCH = 500 };
    bson_t documents[BATCH];
    truce_write writes[BATCH];
    truce_write_outcome outcomes[BATCH];

    for (int from = 0; from < count; from += BATCH) {
        int size = count - from < BATCH ? count - from : BATCH;

        for (int i = 0; i < size; i++) {
            bson_init(&documents[i]);
            BSON_APPEND_INT32(&documents[i], "_id", from + i);
            BSON_APPEND_INT32(&documents[i], "v", 0);
            writes[i] = (truce_write){
                .kind = TRUCE_WRITE_INSERT, .collection = collection, .document = &documents[i]};
        }
        CHECK_DONE(truce_bulk(c->store, writes, (size_t)size,
                              &(truce_bulk_options){.relaxed = true}, outcomes, &c->error));
        for (int i = 0; i < size; i++) {
            truce_write_result_release(&outcomes[i].result);
            bson_destroy(&documents[i]);
        }
    }
}

static int id_of(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "_id") ? bson_iter_int32(&iter) : -1;
}

CONTRACT(a_cursor_gives_every_untouched_document_once_while_others_are_written)
{
    enum { COUNT = 2000 };
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    bool seen[COUNT] = {false};
    int found = 0, step = 0;

    fill_many(c, "many", COUNT);
    CHECK_DONE(truce_find(c->store, "many", J("{'_id': {'$lt': 2000}}"), NULL, &cursor, &c->error));
    for (;; step++) {
        int id;
        bson_t filter = BSON_INITIALIZER;

        CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
        if (!document)
            break;
        id = id_of(document);
        REQUIRE(id >= 0 && id < COUNT);
        if (id % 2 == 0)
            CHECK(!seen[id]);
        found += id % 2 == 0 && !seen[id];
        seen[id] = true;
        /* Changes and removes documents with odd ids in all parts of the collection. */
        BSON_APPEND_INT32(&filter, "_id", (step * 37 % COUNT) | 1);
        if (step % 20 == 0)
            CHECK_DONE(truce_remove(c->store, "many", &filter, WRITE_OPTIONS(.relaxed = true), NULL,
                                    &c->error));
        else if (step % 20 == 10)
            CHECK_DONE(truce_update(c->store, "many", &filter,
                                    J("{'$set': {'v': 'longer than it was before'}}"),
                                    WRITE_OPTIONS(.relaxed = true), NULL, &c->error));
        bson_destroy(&filter);
    }
    CHECK_INT(found, ==, COUNT / 2);
    truce_cursor_close(cursor);
}

CONTRACT(a_sorted_cursor_keeps_its_order_while_others_write)
{
    enum { COUNT = 1500 };
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    int last = COUNT, found = 0;

    fill_many(c, "many", COUNT);
    CHECK_DONE(
        truce_find(c->store, "many", NULL, OPTIONS(.sort = J("{'_id': -1}")), &cursor, &c->error));
    for (;;) {
        CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
        if (!document)
            break;
        CHECK_INT(id_of(document), <, last);
        last = id_of(document);
        found++;
        if (found % 100 == 0)
            CHECK_DONE(truce_insert(c->store, "many", J("{'v': 1}"), NULL, &c->error));
    }
    CHECK_INT(found, >=, COUNT);
    truce_cursor_close(cursor);
}

CONTRACT(a_borrowed_document_survives_writes_until_the_next_step)
{
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;

    contract_fill(c, "things", THINGS);
    CHECK_DONE(truce_find(c->store, "things", J("{'_id': 1}"), NULL, &cursor, &c->error));
    CHECK_DONE(truce_cursor_next(cursor, &document, &c->error));
    CHECK_DONE(
        truce_remove(c->store, "things", J("{}"), WRITE_OPTIONS(.multi = true), NULL, &c->error));
    REQUIRE(document != NULL);
    CHECK_BSON(J("{'_id': 1, 'a': 3, 'b': 'x'}"), document);
    truce_cursor_close(cursor);
}

CONTRACT(many_cursors_are_open_at_once)
{
    enum { CURSORS = 64 };
    truce_cursor *cursors[CURSORS];
    const bson_t *document = NULL;

    fill_many(c, "many", 300);
    for (int i = 0; i < CURSORS; i++)
        CHECK_DONE(truce_find(c->store, "many", NULL, NULL, &cursors[i], &c->error));
    for (int step = 0; step < 300; step++)
        for (int i = 0; i < CURSORS; i++) {
            CHECK_DONE(truce_cursor_next(cursors[i], &document, &c->error));
            CHECK(document != NULL);
        }
    CHECK_DONE(truce_insert(c->store, "other", J("{'_id': 1}"), NULL, &c->error));
    for (int i = 0; i < CURSORS; i++)
        truce_cursor_close(cursors[i]);
}

CONTRACT(find_one_gives_the_first_or_not_found)
{
    bson_t document;

    contract_fill(c, "things", THINGS);
    CHECK_DONE(truce_find_one(c->store, "things", J("{'b': 'x'}"), OPTIONS(.sort = J("{'a': 1}")),
                              &document, &c->error));
    CHECK_BSON(J("{'_id': 3, 'a': 2, 'b': 'x'}"), &document);
    bson_destroy(&document);
    CHECK_REFUSED(TRUCE_NOT_FOUND, 0,
                  truce_find_one(c->store, "things", J("{'b': 'z'}"), NULL, &document, &c->error));
    CHECK(bson_empty(&document));
    bson_destroy(&document);
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_BAD_VALUE,
        truce_find_one(c->store, "things", J("{'$nope': 1}"), NULL, &document, &c->error));
    CHECK(bson_empty(&document));
    bson_destroy(&document);
}

CONTRACT(count_counts_after_skip_and_limit)
{
    static const struct {
        int64_t skip, limit, expected;
    } cases[] = {{0, 0, 3}, {1, 0, 2},  {0, 2, 2},        {2, 2, 1},
                 {5, 0, 0}, {0, -2, 2}, {0, INT64_MIN, 3}};
    int64_t count;

    contract_fill(c, "things", THINGS);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        truce_count_options options = {.skip = cases[i].skip, .limit = cases[i].limit};

        CHECK_DONE(truce_count(c->store, "things", NULL, &options, &count, &c->error));
        CHECK_INT(count, ==, cases[i].expected);
    }
    CHECK_DONE(truce_count(c->store, "things", J("{'b': 'x'}"), NULL, &count, &c->error));
    CHECK_INT(count, ==, 2);
    CHECK_REFUSED(
        TRUCE_INVALID, 51024,
        truce_count(c->store, "things", NULL, COUNT_OPTIONS(.skip = -1), &count, &c->error));
    CHECK_INT(count, ==, 0);
}

CONTRACT(distinct_takes_array_elements_one_by_one)
{
    bson_t values;

    contract_fill(c, "things",
                  "[{'_id': 1, 'a': [1, 2]}, {'_id': 2, 'a': 2}, {'_id': 3, 'a': {'b': 3}},"
                  " {'_id': 4}, {'_id': 5, 'a': [{'b': 4}, {'b': 3}]}]");
    CHECK_DONE(
        truce_distinct(c->store, "things", "a", J("{'_id': {'$lt': 3}}"), &values, &c->error));
    CHECK_BSON(J("[1, 2]"), &values);
    bson_destroy(&values);
    CHECK_DONE(truce_distinct(c->store, "things", "a.b", NULL, &values, &c->error));
    CHECK_INT(bson_count_keys(&values), ==, 2);
    bson_destroy(&values);
    CHECK_REFUSED(
        TRUCE_INVALID, CODE_BAD_VALUE,
        truce_distinct(c->store, "things", "a", J("{'a': {'$nope': 1}}"), &values, &c->error));
    CHECK(bson_empty(&values));
    bson_destroy(&values);
}

CONTRACT(explain_has_the_shape_of_mongodb)
{
    bson_iter_t iter, child;
    bson_t plan;

    contract_fill(c, "things", THINGS);
    CHECK_DONE(truce_explain(c->store, "things", J("{'b': 'x'}"), NULL, &plan, &c->error));
    CHECK(bson_iter_init(&iter, &plan) &&
          bson_iter_find_descendant(&iter, "queryPlanner.winningPlan.stage", &child));
    CHECK(bson_iter_init(&iter, &plan) &&
          bson_iter_find_descendant(&iter, "executionStats.nReturned", &child) &&
          bson_iter_as_int64(&child) == 2);
    CHECK(bson_iter_init(&iter, &plan) &&
          bson_iter_find_descendant(&iter, "executionStats.totalKeysExamined", &child));
    CHECK(bson_iter_init(&iter, &plan) &&
          bson_iter_find_descendant(&iter, "executionStats.totalDocsExamined", &child) &&
          bson_iter_as_int64(&child) >= 2);
    bson_destroy(&plan);
}

CONTRACT(finds_by_id_see_several_documents_of_one_snapshot)
{
    bson_value_t one = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    bson_value_t nine = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 9};
    bson_value_t same = {.value_type = BSON_TYPE_DOUBLE, .value.v_double = 1.0};
    truce_read_request looks[] = {{.collection = "things", .id = &one},
                                  {.collection = "things", .id = &nine},
                                  {.collection = "nothing", .id = &one},
                                  {.collection = "things", .id = &same}};

    if (!contract_needs(c, TRUCE_CAN_SNAPSHOT_READ))
        return;
    contract_fill(c, "things", THINGS);
    CHECK_DONE(truce__store_read_many(c->store, looks, 4, &c->error));
    CHECK(looks[0].found && !looks[1].found && !looks[2].found && looks[3].found);
    CHECK_BSON(J("{'_id': 1, 'a': 3, 'b': 'x'}"), &looks[0].document);
    CHECK_BSON(J("{'_id': 1, 'a': 3, 'b': 'x'}"), &looks[3].document);
    for (int i = 0; i < 4; i++)
        bson_destroy(&looks[i].document);
    looks[1].collection = "a$b";
    CHECK_REFUSED(TRUCE_INVALID, CODE_INVALID_NAMESPACE,
                  truce__store_read_many(c->store, looks, 4, &c->error));
    for (int i = 0; i < 4; i++) {
        CHECK(!looks[i].found);
        bson_destroy(&looks[i].document);
    }
}

CONTRACT(a_deadline_ends_a_long_read)
{
    truce_count_options options = {.deadline_ms = 1};
    bson_t filter = BSON_INITIALIZER, any, one, above;
    truce_status status = TRUCE_OK;
    int64_t count;

    fill_many(c, "many", 3000);
    BSON_APPEND_ARRAY_BEGIN(&filter, "$or", &any);
    for (int i = 0; i < 400; i++) {
        char key[16];

        snprintf(key, sizeof(key), "%d", i);
        BSON_APPEND_DOCUMENT_BEGIN(&any, key, &one);
        BSON_APPEND_REGEX(&one, "v", "(a+)+b", "");
        BSON_APPEND_DOCUMENT_BEGIN(&one, "nowhere", &above);
        BSON_APPEND_INT32(&above, "$gt", i);
        bson_append_document_end(&one, &above);
        bson_append_document_end(&any, &one);
    }
    bson_append_array_end(&filter, &any);
    for (int i = 0; i < 20 && !status; i++)
        status = truce_count(c->store, "many", &filter, &options, &count, &c->error);
    CHECK_REFUSED(TRUCE_TIMEOUT, CODE_MAX_TIME_MS_EXPIRED, status);
    bson_destroy(&filter);
}
