/* Transactions (store/overlay): cases that the isolation tests and the random tests do not
 * cover. */
#include "store/overlay/transaction_overlay.h"

#include <string.h>

#include "base/limits.h"
#include "tests/support/test.h"

static truce_store *store, *overlay;
static bson_error_t error;

static void open_overlay(void)
{
    const struct overlay_options options = {0};

    CHECK_OK(truce__overlay_open(store, &options, &overlay, &error), error);
}

static bool begin(int documents)
{
    static int number;
    char path[600];

    snprintf(path, sizeof path, "%s/%d.truce", test_directory(), number++);
    if (!CHECK_OK(truce_store_open(path, &(truce_store_options){.relaxed = true}, &store, &error),
                  error))
        return false;
    for (int i = 0; i < documents; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "u", BCON_INT32(i));

        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
        bson_destroy(document);
    }
    return true;
}

static void end(void)
{
    truce_store_close(overlay);
    truce_store_close(store);
    overlay = NULL;
}

static truce_status update(truce_store *where, const char *filter, const char *change)
{
    bson_t *asked = test_bson(filter), *to = test_bson(change);
    truce_write_result result;
    truce_status status = truce_update(where, "c", asked, to, NULL, &result, &error);

    truce_write_result_release(&result);
    bson_destroy(asked);
    bson_destroy(to);
    return status;
}

static int64_t count(truce_store *where, const char *filter)
{
    bson_t *asked = test_bson(filter);
    int64_t found = -1;

    CHECK_OK(truce_count(where, "c", asked, NULL, &found, &error), error);
    bson_destroy(asked);
    return found;
}

static truce_status commit(void)
{
    return truce__overlay_commit(overlay, NULL, 0, NULL, &error);
}

TEST(conflicts_with_any_change_of_a_collection_read_beyond_the_limit)
{
    for (int changed = 0; changed < 2; changed++) {
        if (!begin(TRUCE_TRANSACTION_READS_MAX + 1))
            return;
        open_overlay();
        CHECK_INT(TRUCE_TRANSACTION_READS_MAX + 1, ==, count(overlay, "{}"));
        CHECK_OK(update(overlay, "{'_id': 1}", "{'$set': {'x': 1}}"), error);
        if (changed)
            CHECK_OK(update(store, "{'_id': 2}", "{'$set': {'x': 1}}"), error);
        CHECK_STATUS(changed ? TRUCE_CONFLICT : TRUCE_OK, commit(), error);
        end();
    }
}

TEST(documents_of_one_transaction_may_trade_their_unique_keys)
{
    bson_t *index = test_bson("{'key': {'u': 1}, 'unique': true}");

    if (!begin(3))
        return;
    CHECK_OK(truce_index_create(store, "c", index, &error), error);
    open_overlay();
    CHECK_OK(update(overlay, "{'_id': 0}", "{'$set': {'u': -1}}"), error);
    CHECK_OK(update(overlay, "{'_id': 1}", "{'$set': {'u': 0}}"), error);
    CHECK_OK(update(overlay, "{'_id': 0}", "{'$set': {'u': 1}}"), error);
    CHECK_OK(commit(), error);
    CHECK_INT(1, ==, count(store, "{'_id': 0, 'u': 1}"));
    CHECK_INT(1, ==, count(store, "{'_id': 1, 'u': 0}"));
    end();
    bson_destroy(index);
}

TEST(
    a_unique_key_that_others_have_is_refused_by_the_write_and_one_that_they_took_since_by_the_commit)
{
    bson_t *index = test_bson("{'key': {'u': 1}, 'unique': true}");

    if (!begin(3))
        return;
    CHECK_OK(truce_index_create(store, "c", index, &error), error);
    open_overlay();
    CHECK_STATUS(TRUCE_DUPLICATE, update(overlay, "{'_id': 0}", "{'$set': {'u': 2}}"), error);
    truce_store_close(overlay);
    open_overlay();
    CHECK_OK(update(overlay, "{'_id': 0}", "{'$set': {'u': 7}}"), error);
    CHECK_OK(update(store, "{'_id': 1}", "{'$set': {'u': 7}}"), error);
    CHECK_STATUS(TRUCE_CONFLICT, commit(), error);
    CHECK_INT(112, ==, error.code);
    end();
    bson_destroy(index);
}

/* An index and a filter treat values along a path through arrays differently. */
static const char *shapes[] = {"{}",
                               "{'a': null}",
                               "{'a': 1}",
                               "{'a': []}",
                               "{'a': [1]}",
                               "{'a': [null]}",
                               "{'a': [[]]}",
                               "{'a': [[1]]}",
                               "{'a': {}}",
                               "{'a': [{}]}",
                               "{'a': [1, {'b': 1}]}",
                               "{'a': [null, {'b': 1.0}, 2]}",
                               "{'a': {'b': null}}",
                               "{'a': {'b': []}}",
                               "{'a': {'b': [[], 1]}}",
                               "{'a': {'b': [1, null]}}",
                               "{'a': [{'b': []}]}",
                               "{'a': [{'b': null}, {'b': 3}]}",
                               "{'a': [[{'b': 1}]]}",
                               "{'a': [0, true, []], 'c': null}",
                               "{'a': {'b': {'c': 1}}, 'c': 1}",
                               "{'a': [{'b': [{'c': 1}, 2]}]}"};

#define SHAPES (int)(sizeof shapes / sizeof *shapes)

static truce_status insert_shape(truce_store *where, int id, int shape)
{
    bson_t *document = test_bson(shapes[shape]);
    truce_status status;

    BSON_APPEND_INT32(document, "_id", id);
    status = truce_insert(where, "c", document, NULL, &error);
    bson_destroy(document);
    return status;
}

static void remove_shape(truce_store *where, int id)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id));
    truce_write_result result;

    CHECK_OK(truce_remove(where, "c", filter, NULL, &result, &error), error);
    truce_write_result_release(&result);
    bson_destroy(filter);
}

/* In a transaction, and in the store without one. */
static void insert_beside(int stands, int comes)
{
    truce_status expected, status;

    expected = insert_shape(store, 1, comes);
    if (!expected)
        remove_shape(store, 1);
    open_overlay();
    status = insert_shape(overlay, 1, comes);
    if (status != expected)
        printf("    %s beside %s\n", shapes[comes], shapes[stands]);
    CHECK_INT(expected, ==, status);
    truce_store_close(overlay);
    overlay = NULL;
}

TEST(enforces_unique_indexes_in_a_transaction_for_every_update)
{
    const char *keys[] = {"{'a': 1}",   "{'a.b': 1}",           "{'a.b': 1, 'c': 1}",
                          "{'a.0': 1}", "{'c': 1, 'a.0.b': 1}", "{'a.b.c': 1}"};

    if (!begin(0))
        return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bson_t *key = test_bson(keys[i]),
               *index = BCON_NEW("key", BCON_DOCUMENT(key), "unique", BCON_BOOL(true), "name", "i");

        CHECK_OK(truce_index_create(store, "c", index, &error), error);
        for (int stands = 0; stands < SHAPES; stands++) {
            CHECK_OK(insert_shape(store, 0, stands), error);
            for (int comes = 0; comes < SHAPES; comes++)
                insert_beside(stands, comes);
            remove_shape(store, 0);
        }
        CHECK_OK(truce_index_drop(store, "c", "i", &error), error);
        bson_destroy(index);
        bson_destroy(key);
    }
    end();
}

TEST(shows_a_cursor_the_documents_of_its_opening)
{
    const bson_t *document;
    truce_cursor *cursor;
    int shown = 0;

    if (!begin(500))
        return;
    open_overlay();
    CHECK_OK(truce_find(overlay, "c", NULL, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    CHECK_OK(update(overlay, "{'_id': 400}", "{'$set': {'x': 1}}"), error);
    for (shown = 1; !truce_cursor_next(cursor, &document, &error) && document; shown++)
        CHECK(!bson_has_field(document, "x"));
    CHECK_INT(500, ==, shown);
    truce_cursor_close(cursor);
    CHECK_INT(1, ==, count(overlay, "{'x': 1}"));
    end();
}

TEST(refuses_to_change_a_concurrently_changed_document)
{
    if (!begin(3))
        return;
    open_overlay();
    CHECK_INT(1, ==, count(overlay, "{'_id': 1}"));
    CHECK_OK(update(store, "{'_id': 1}", "{'$set': {'x': 1}}"), error);
    CHECK_STATUS(TRUCE_CONFLICT, update(overlay, "{'_id': 1}", "{'$set': {'x': 2}}"), error);
    CHECK_INT(112, ==, error.code);
    end();
}

TEST(validates_written_documents_and_not_stored_ones)
{
    bson_t *validator = test_bson("{'u': {'$gt': 0}}");

    if (!begin(3))
        return;
    CHECK_OK(truce_collection_validate(store, "c", validator, &error), error);
    open_overlay();
    CHECK_OK(update(overlay, "{'_id': 0}", "{'$set': {'u': 9}}"), error);
    CHECK_STATUS(TRUCE_INVALID, update(overlay, "{'_id': 1}", "{'$set': {'u': -9}}"), error);
    CHECK_INT(121, ==, error.code);
    end();
    bson_destroy(validator);
}

/* By an insert, an update, an upsert, a find-and-modify and one that upserts. */
static void write_past(truce_store *where)
{
    truce_modify_options modify = {.unvalidated = true};
    truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = test_bson("{'_id': 10}")},
        {.kind = TRUCE_WRITE_UPDATE, .collection = "c", .filter = test_bson("{'_id': 1}")},
        {.kind = TRUCE_WRITE_UPDATE, .collection = "c", .filter = test_bson("{'_id': 11}")},
    };
    bson_t *set = test_bson("{'$set': {'u': -9}}"), *own = test_bson("{'_id': 2}"), document;
    truce_write_outcome outcome;

    for (size_t i = 0; i < 3; i++) {
        writes[i].options = (truce_write_options){.unvalidated = true, .upsert = i > 0};
        if (i)
            writes[i].document = set;
        CHECK_OK(truce_bulk(where, &writes[i], 1, NULL, &outcome, &error), error);
        truce_write_result_release(&outcome.result);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_find_and_modify(where, "c", own, set, &modify, &document, NULL, &error),
                 error);
        bson_destroy(&document);
        modify.upsert = true;
        bson_destroy(own);
        own = test_bson("{'_id': 12}");
    }
    bson_destroy((bson_t *)writes[0].document);
    bson_destroy((bson_t *)writes[1].filter);
    bson_destroy((bson_t *)writes[2].filter);
    bson_destroy(own);
    bson_destroy(set);
}

TEST(commits_writes_that_bypass_a_validator)
{
    bson_t *validator = test_bson("{'u': {'$gt': 0}}");

    if (!begin(4))
        return;
    CHECK_OK(truce_collection_validate(store, "c", validator, &error), error);
    open_overlay();
    write_past(overlay);
    CHECK_OK(update(overlay, "{'_id': 3}", "{'$set': {'u': 4}}"), error);
    CHECK_OK(update(overlay, "{'_id': 1}", "{'$set': {'u': -9}}"), error); /* is so already */
    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    CHECK_INT(4, ==, count(store, "{'u': -9}"));
    CHECK_INT(1, ==, count(store, "{'_id': 10}"));
    CHECK_INT(1, ==, count(store, "{'_id': 3, 'u': 4}"));
    end();
    bson_destroy(validator);
}

TEST(checks_writes_against_a_new_validator_at_the_commit)
{
    bson_t *validator = test_bson("{'u': {'$gt': 0}}");

    if (!begin(3))
        return;
    open_overlay();
    CHECK_OK(update(overlay, "{'_id': 1}", "{'$set': {'u': -9}}"), error);
    CHECK_OK(truce_collection_validate(store, "c", validator, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    CHECK_INT(121, ==, error.code);
    end();
    bson_destroy(validator);
}

/* {_id, t: that many letters} */
static truce_status insert_letters(truce_store *where, int id, uint32_t size)
{
    bson_t *document = BCON_NEW("_id", BCON_INT32(id));
    char *text = bson_malloc(size + 1);
    truce_status status;

    memset(text, 't', size);
    text[size] = '\0';
    BSON_APPEND_UTF8(document, "t", text);
    status = truce_insert(where, "c", document, NULL, &error);
    bson_free(text);
    bson_destroy(document);
    return status;
}

TEST(limits_the_writes_of_all_transactions_and_frees_space_at_an_end)
{
    struct overlay_total total = {.bytes_max = 10000};
    const struct overlay_options options = {.total = &total};
    truce_store *beside = NULL;

    if (!begin(1))
        return;
    CHECK_OK(truce__overlay_open(store, &options, &overlay, &error), error);
    CHECK_OK(truce__overlay_open(store, &options, &beside, &error), error);
    CHECK_OK(insert_letters(overlay, 10, 6000), error);
    CHECK_OK(insert_letters(beside, 11, 3000), error);
    CHECK_STATUS(TRUCE_INVALID, insert_letters(beside, 12, 3000), error);
    CHECK_INT(257, ==, error.code);
    truce_store_close(beside);
    CHECK_INT(total.bytes, <, 6100);
    CHECK_OK(insert_letters(overlay, 13, 3000), error);
    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    truce_store_close(overlay);
    CHECK_INT(total.bytes, ==, 0);
    CHECK_OK(truce__overlay_open(store, &options, &overlay, &error), error);
    CHECK_OK(insert_letters(overlay, 14, 9000), error);
    end();
    CHECK_INT(total.bytes, ==, 0);
}

TEST(only_a_store_that_can_has_transactions)
{
    const struct overlay_options options = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce__overlay_open(store, &options, &overlay, &error), error);
    end();
}

/* Documents that the transaction removed do not count for the limit. */
TEST(applies_a_limit_to_the_remaining_documents)
{
    bson_t *first = test_bson("{'_id': {'$lt': 2}}"), *sort = test_bson("{'_id': 1}"), found;
    truce_write_options many = {.multi = true};
    truce_find_options options = {.sort = sort, .limit = 1};
    bson_iter_t id;

    if (!begin(5))
        return;
    open_overlay();
    CHECK_OK(truce_remove(overlay, "c", first, &many, NULL, &error), error);
    CHECK_OK(truce_find_one(overlay, "c", NULL, &options, &found, &error), error);
    CHECK(bson_iter_init_find(&id, &found, "_id") && bson_iter_as_int64(&id) == 2);
    bson_destroy(&found);
    end();
    bson_destroy(sort);
    bson_destroy(first);
}

/* An insert, an update and a remove, and a fourth write, of which the filter is given. */
static truce_status bulk_of_four(truce_write_kind last, const char *filter)
{
    bson_t *new = test_bson("{'_id': 100, 'u': 100}"), *one = test_bson("{'_id': 1}"),
           *two = test_bson("{'_id': 2}"), *change = test_bson("{'$set': {'u': 50}}"),
           *fourth = test_bson(filter);
    const truce_write writes[] = {
        {.kind = TRUCE_WRITE_INSERT, .collection = "c", .document = new},
        {.kind = TRUCE_WRITE_UPDATE, .collection = "c", .filter = one, .document = change},
        {.kind = TRUCE_WRITE_REMOVE, .collection = "c", .filter = two},
        {.kind = last,
         .collection = "c",
         .filter = last == TRUCE_WRITE_INSERT ? NULL : fourth,
         .document = last == TRUCE_WRITE_INSERT ? fourth : NULL},
    };
    const truce_bulk_options options = {.atomic = true};
    truce_write_outcome outcomes[4];
    truce_status status = truce_bulk(overlay, writes, 4, &options, outcomes, &error);

    for (int i = 0; i < 4; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_destroy(fourth);
    bson_destroy(change);
    bson_destroy(two);
    bson_destroy(one);
    bson_destroy(new);
    return status;
}

static void check_unchanged(truce_store *where)
{
    CHECK_INT(count(where, "{}"), ==, 5);
    CHECK_INT(count(where, "{'_id': 1, 'u': 1}"), ==, 1);
    CHECK_INT(count(where, "{'_id': 2, 'u': 2}"), ==, 1);
}

TEST(undoes_a_failed_atomic_bulk_and_continues_the_transaction)
{
    if (!begin(5))
        return;
    open_overlay();
    CHECK_INT(bulk_of_four(TRUCE_WRITE_REQUIRE, "{'_id': 3, 'u': 4}"), ==, TRUCE_CONFLICT);
    check_unchanged(overlay);
    CHECK_INT(bulk_of_four(TRUCE_WRITE_REQUIRE_MISSING, "{'_id': 3}"), ==, TRUCE_CONFLICT);
    CHECK_INT(bulk_of_four(TRUCE_WRITE_REMOVE, "{'_id': 7}"), ==, TRUCE_CONFLICT);
    CHECK_INT(bulk_of_four(TRUCE_WRITE_INSERT, "{'_id': 3}"), ==, TRUCE_DUPLICATE);
    CHECK_INT(bulk_of_four(TRUCE_WRITE_INSERT, "{'_id': 100}"), ==, TRUCE_DUPLICATE);
    check_unchanged(overlay);
    CHECK_OK(update(overlay, "{'_id': 4}", "{'$set': {'u': 44}}"), error);
    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    check_unchanged(store);
    CHECK_INT(count(store, "{'_id': 4, 'u': 44}"), ==, 1);
    truce_store_close(overlay);

    open_overlay();
    CHECK_OK(bulk_of_four(TRUCE_WRITE_REQUIRE, "{'_id': 3, 'u': 3}"), error);
    CHECK_INT(count(overlay, "{}"), ==, 5);
    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    CHECK_INT(count(store, "{'u': {'$in': [50, 100]}}"), ==, 2);
    CHECK_INT(count(store, "{'_id': 2}"), ==, 0);
    end();
}
