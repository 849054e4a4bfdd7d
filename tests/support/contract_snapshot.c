/* The contract: every read is consistent, and a snapshot is a read-only store. */
#include "tests/support/contract.h"

#include <string.h>

#include "base/status.h"
#include "truce/commit.h"
#include "truce/snapshot.h"

const int contract_snapshot_cases = 1;

/* A number of documents that a cursor does not fetch at once. */
#define MANY 1500

/* Returns whether each cursor of the store reads one snapshot. For a server, this is not known, so
 * the test is skipped. */
static bool shows_moments(struct contract *c)
{
    if (c->store->ops->snapshot && strcmp(c->store->ops->scheme, "mongodb") != 0)
        return true;
    test_skip("its cursors are not of one moment");
    return false;
}

/* Opens a snapshot. If the server refuses it, skips the test and returns NULL. */
static truce_store *view_of(struct contract *c)
{
    truce_store *view = NULL;
    truce_status status = truce_snapshot(c->store, NULL, &view, &c->error);

    if (status == TRUCE_INVALID)
        test_skip("no snapshots here");
    else
        CHECK_STATUS(TRUCE_OK, status, c->error);
    return view;
}

/* Inserts MANY documents. The order of `k` differs from that of `_id`. */
static void fill_many(struct contract *c, const char *collection)
{
    for (int i = 0; i < MANY; i += 500) {
        truce_write writes[500] = {{0}};
        truce_write_outcome outcomes[500];

        for (int k = 0; k < 500; k++)
            writes[k] = (truce_write){.kind = TRUCE_WRITE_INSERT,
                                      .collection = collection,
                                      .document = BCON_NEW("_id", BCON_INT32(i + k), "k",
                                                           BCON_INT32((i + k) * 7 % MANY))};
        CHECK_DONE(truce_bulk(c->store, writes, 500, NULL, outcomes, &c->error));
        for (int k = 0; k < 500; k++) {
            truce_write_result_release(&outcomes[k].result);
            bson_destroy((bson_t *)writes[k].document);
        }
    }
}

static int64_t count_in(struct contract *c, truce_store *store, const char *collection)
{
    int64_t count = -1;

    CHECK_DONE(truce_count(store, collection, NULL, NULL, &count, &c->error));
    return count;
}

/* ---- one snapshot each ---------------------------------------------------------------------- */

/* Reads the cursor to its end, and inserts a document after every 50 documents that it returns.
 * Returns the number of documents that were read. */
static int read_and_insert(struct contract *c, truce_cursor *cursor, const char *collection)
{
    const bson_t *document;
    int seen = 0;

    while (!truce_cursor_next(cursor, &document, &c->error) && document && seen < 3 * MANY) {
        bson_t added = BSON_INITIALIZER;

        BSON_APPEND_INT32(&added, "_id", 1000000 + seen);
        BSON_APPEND_INT32(&added, "k", 1000000 + seen++);
        if (seen % 50 == 0)
            CHECK_DONE(truce_insert(c->store, collection, &added, WRITE_OPTIONS(.relaxed = true),
                                    &c->error));
        bson_destroy(&added);
    }
    CHECK(!document);
    truce_cursor_close(cursor);
    return seen;
}

CONTRACT(a_loop_over_a_cursor_does_not_see_its_own_inserts)
{
    static const char *const filters[] = {"{}", "{'k': {'$gte': 0}}", "{'_id': {'$gte': 0}}"};
    static const char *const sorts[] = {NULL, "{'k': 1}", "{'k': -1}", "{'_id': 1}", "{'z': 1}"};
    truce_cursor *cursor;

    if (!shows_moments(c))
        return;
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        for (size_t k = 0; k < sizeof sorts / sizeof *sorts; k++) {
            fill_many(c, "c");
            CHECK_DONE(truce_index_create(c->store, "c", J("{'key': {'k': 1}}"), &c->error));
            CHECK_DONE(truce_find(c->store, "c", J(filters[i]),
                                  OPTIONS(.sort = sorts[k] ? J(sorts[k]) : NULL), &cursor,
                                  &c->error));
            CHECK_INT(read_and_insert(c, cursor, "c"), ==, MANY);
            CHECK_DONE(truce_collection_drop(c->store, "c", &c->error));
        }
    }
}

CONTRACT(a_cursor_shows_documents_that_move_and_go_where_they_were)
{
    static char seen[MANY];
    truce_cursor *cursor;
    const bson_t *document;
    bson_iter_t iter;
    int number = 0;

    if (!shows_moments(c))
        return;
    fill_many(c, "c");
    CHECK_DONE(truce_index_create(c->store, "c", J("{'key': {'k': 1}}"), &c->error));
    CHECK_DONE(truce_find(c->store, "c", J("{'k': {'$gte': 0}}"), OPTIONS(.sort = J("{'k': 1}")),
                          &cursor, &c->error));
    memset(seen, 0, sizeof seen);
    while (!truce_cursor_next(cursor, &document, &c->error) && document) {
        REQUIRE(bson_iter_init_find(&iter, document, "_id"));
        CHECK(!seen[bson_iter_int32(&iter)]);
        seen[bson_iter_int32(&iter)] = 1;
        /* Moves some documents that were read to the end of the order, and removes some later
         * ones. */
        if (++number == 100) {
            CHECK_DONE(truce_update(c->store, "c", J("{'k': {'$lt': 50}}"),
                                    J("{'$inc': {'k': 1000}}"), WRITE_OPTIONS(.multi = true), NULL,
                                    &c->error));
            CHECK_DONE(truce_update(c->store, "c", J("{'k': {'$gt': 1200}}"),
                                    J("{'$set': {'k': 10}}"), WRITE_OPTIONS(.multi = true), NULL,
                                    &c->error));
            CHECK_DONE(truce_remove(c->store, "c", J("{'_id': {'$gt': 1400}}"),
                                    WRITE_OPTIONS(.multi = true), NULL, &c->error));
        }
    }
    truce_cursor_close(cursor);
    CHECK_INT(number, ==, MANY);
}

/* Runs a pipeline to its end; returns the number of its documents. */
static int run_pipeline(struct contract *c, truce_store *store, const char *collection,
                        const char *pipeline)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    int given = 0;

    CHECK_DONE(truce_aggregate(store, collection, J(pipeline), NULL, &cursor, &c->error));
    while (cursor && !truce_cursor_next(cursor, &document, &c->error) && document)
        given++;
    truce_cursor_close(cursor);
    return given;
}

CONTRACT(a_merge_into_its_own_collection_does_not_read_its_own_writes)
{
    if (!shows_moments(c))
        return;
    fill_many(c, "c");
    run_pipeline(c, c->store, "c",
                 "[{'$project': {'_id': {'$add': ['$_id', 100000]}, 'k': 1}}, "
                 "{'$merge': {'into': 'c'}}]");
    CHECK_INT(count_in(c, c->store, "c"), ==, 2 * MANY);
    run_pipeline(c, c->store, "c",
                 "[{'$match': {'_id': {'$lt': 100000}}}, {'$project': {'k': {'$add': ['$k', 1]}}}, "
                 "{'$merge': {'into': 'c'}}]");
    CHECK_INT(count_in(c, c->store, "c"), ==, 2 * MANY);
    run_pipeline(c, c->store, "c", "[{'$match': {'_id': {'$lt': 10}}}, {'$out': 'c'}]");
    CHECK_INT(count_in(c, c->store, "c"), ==, 10);
}

CONTRACT(a_join_reads_the_snapshot_of_its_input)
{
    truce_cursor *cursor = NULL;
    const bson_t *document;
    int joined = 0;

    if (!shows_moments(c))
        return;
    fill_many(c, "c");
    /* Without a snapshot, each document would find those that were merged before it. */
    run_pipeline(c, c->store, "c",
                 "[{'$match': {'_id': {'$lt': 300}}}, {'$lookup': {'from': 'd', 'pipeline': [], "
                 "'as': 'others'}}, {'$project': {'n': {'$size': '$others'}}}, "
                 "{'$merge': {'into': 'd'}}]");
    CHECK_INT(count_in(c, c->store, "d"), ==, 300);
    CHECK_FINDS("d", "{'n': {'$ne': 0}}", NULL, "[]");
    CHECK_DONE(truce_aggregate(c->store, "c",
                               J("[{'$lookup': {'from': 'd', 'localField': '_id', "
                                 "'foreignField': '_id', 'as': 'd'}}, {'$unwind': '$d'}]"),
                               NULL, &cursor, &c->error));
    while (!truce_cursor_next(cursor, &document, &c->error) && document) {
        if (joined++ == 0)
            CHECK_DONE(truce_remove(c->store, "d", J("{'_id': {'$gt': 0}}"),
                                    WRITE_OPTIONS(.multi = true), NULL, &c->error));
    }
    truce_cursor_close(cursor);
    CHECK_INT(joined, ==, 300);
    /* A union of a collection with itself has each document twice, whatever is written during the
     * read. */
    CHECK_DONE(
        truce_aggregate(c->store, "c", J("[{'$unionWith': 'c'}]"), NULL, &cursor, &c->error));
    CHECK_INT(read_and_insert(c, cursor, "c"), ==, 2 * MANY);
}

/* ---- snapshots ------------------------------------------------------------------------------ */

CONTRACT(a_snapshot_is_consistent_in_every_reading_call)
{
    bson_value_t one = {.value_type = BSON_TYPE_INT32, .value.v_int32 = 1};
    truce_read_request look = {.collection = "c", .id = &one};
    bson_t found, list;
    int64_t count;
    truce_store *view;

    contract_fill(c, "c", "[{'_id': 1, 'k': 1}, {'_id': 2, 'k': 1}, {'_id': 3, 'k': 3}]");
    CHECK_DONE(truce_index_create(c->store, "c", J("{'key': {'k': 1}}"), &c->error));
    view = view_of(c);
    if (!view)
        return;
    CHECK_DONE(truce_remove(c->store, "c", J("{'_id': 1}"), NULL, NULL, &c->error));
    CHECK_DONE(truce_update(c->store, "c", J("{'_id': 2}"), J("{'$set': {'k': 9}}"), NULL, NULL,
                            &c->error));
    contract_fill(c, "c", "[{'_id': 4, 'k': 1}]");
    contract_fill(c, "later", "[{'_id': 4, 'k': 1}]");

    CHECK_DONE(truce_find_one(view, "c", J("{'_id': 1}"), NULL, &found, &c->error));
    bson_destroy(&found);
    CHECK_DONE(truce_find_one(view, "c", J("{'_id': 2, 'k': 1}"), NULL, &found, &c->error));
    bson_destroy(&found);
    CHECK_STATUS(TRUCE_NOT_FOUND,
                 truce_find_one(view, "c", J("{'_id': 4}"), NULL, &found, &c->error), c->error);
    bson_destroy(&found);
    CHECK_INT(count_in(c, view, "c"), ==, 3);
    CHECK_INT(count_in(c, view, "later"), ==, 0);
    CHECK_DONE(truce_count(view, "c", J("{'k': 1}"), NULL, &count, &c->error));
    CHECK_INT(count, ==, 2);
    CHECK_DONE(truce_distinct(view, "c", "k", NULL, &list, &c->error));
    CHECK_INT(bson_count_keys(&list), ==, 2);
    bson_destroy(&list);
    CHECK_INT(run_pipeline(c, view, "c", "[{'$group': {'_id': '$k'}}]"), ==, 2);
    CHECK_INT(run_pipeline(c, view, "c", "[{'$unionWith': 'c'}]"), ==, 6);
    CHECK_DONE(truce_read_many(view, &look, 1, NULL, &c->error));
    CHECK(look.found);
    bson_destroy(&look.document);
    CHECK_DONE(truce_explain(view, "c", J("{'k': 1}"), NULL, &list, &c->error));
    bson_destroy(&list);
    CHECK_DONE(truce_index_list(view, "c", &list, &c->error));
    CHECK_INT(bson_count_keys(&list), ==, 2);
    bson_destroy(&list);
    CHECK_DONE(truce_collection_list(view, NULL, &list, &c->error));
    bson_destroy(&list);
    CHECK_DONE(truce_settle(view, &c->error));
    truce_store_close(view);
    CHECK_HOLDS("c", "[{'_id': 2, 'k': 9}, {'_id': 3, 'k': 3}, {'_id': 4, 'k': 1}]");
}

CONTRACT(a_snapshot_keeps_collections_and_indexes_that_are_dropped)
{
    truce_store *view, *again = NULL;
    truce_cursor *cursor = NULL;
    bson_t list;

    if (!shows_moments(c))
        return;
    fill_many(c, "c");
    CHECK_DONE(truce_index_create(c->store, "c", J("{'key': {'k': 1}}"), &c->error));
    view = view_of(c);
    CHECK_DONE(truce_index_drop(c->store, "c", "k_1", &c->error));
    CHECK_DONE(truce_collection_drop(c->store, "c", &c->error));
    CHECK_DONE(truce_find(view, "c", J("{'k': {'$gte': 0}}"), OPTIONS(.hint = J("{'k': 1}")),
                          &cursor, &c->error));
    CHECK_INT(read_and_insert(c, cursor, "c"), ==, MANY);
    CHECK_DONE(truce_index_list(view, "c", &list, &c->error));
    CHECK_INT(bson_count_keys(&list), ==, 2);
    bson_destroy(&list);
    CHECK_DONE(truce_snapshot(view, NULL, &again, &c->error));
    truce_store_close(view);
    CHECK_INT(count_in(c, again, "c"), ==, MANY);
    truce_store_close(again);
}

static bool refuses(struct contract *c, truce_status status, const char *name)
{
    return CHECK_STATUS(TRUCE_INVALID, status, c->error) &&
           CHECK(strstr(c->error.message, "snapshot")) && CHECK(strstr(c->error.message, name));
}

CONTRACT(a_snapshot_refuses_every_call_that_writes_by_name)
{
    truce_store *view;
    uint64_t token = 0;
    truce_cursor *cursor;
    bson_t found;

    contract_fill(c, "c", "[{'_id': 1, 'k': 1}]");
    CHECK_DONE(truce_index_create(c->store, "c", J("{'key': {'k': 1}}"), &c->error));
    view = view_of(c);
    if (!view)
        return;
    refuses(c, truce_insert(view, "c", J("{'_id': 2}"), NULL, &c->error), "insert into c");
    refuses(
        c, truce_update(view, "c", J("{'_id': 1}"), J("{'$set': {'k': 2}}"), NULL, NULL, &c->error),
        "update c");
    refuses(c, truce_remove(view, "c", J("{'_id': 1}"), NULL, NULL, &c->error), "remove from c");
    refuses(c,
            truce_find_and_modify(view, "c", J("{'_id': 1}"), J("{'$set': {'k': 2}}"), NULL, &found,
                                  NULL, &c->error),
            "find and modify in c");
    bson_destroy(&found);
    refuses(c, truce_aggregate(view, "c", J("[{'$out': 'd'}]"), NULL, &cursor, &c->error), "c");
    refuses(c,
            truce_aggregate(view, "c", J("[{'$merge': {'into': 'd'}}]"), NULL, &cursor, &c->error),
            "c");
    refuses(c, truce_index_create(view, "c", J("{'key': {'z': 1}}"), &c->error), "index of c");
    refuses(c, truce_index_create(view, "d", J("{'key': {'z': 1}}"), &c->error), "index of d");
    CHECK_DONE(truce_index_create(view, "c", J("{'key': {'k': 1}}"), &c->error));
    refuses(c, truce_index_drop(view, "c", "k_1", &c->error), "drop an index of c");
    refuses(c, truce_collection_create(view, "d", &c->error), "create d");
    refuses(c, truce_collection_drop(view, "c", &c->error), "drop c");
    refuses(c, truce_collection_rename(view, "c", "d", false, &c->error), "rename c");
    refuses(c, truce_wait(view, "c", &token, 1, &c->error), "wait for changes of c");
    truce_store_close(view);
    CHECK_HOLDS("c", "[{'_id': 1, 'k': 1}]");
}

CONTRACT(a_snapshot_reports_its_kind)
{
    truce_snapshot_state state;
    truce_store *view = view_of(c);

    if (!view)
        return;
    CHECK_DONE(truce_snapshot_inspect(view, &state, &c->error));
    CHECK(!state.ended && state.age_ms >= 0);
    truce_store_close(view);
    CHECK_STATUS(TRUCE_INVALID, truce_snapshot_inspect(c->store, &state, &c->error), c->error);
}
