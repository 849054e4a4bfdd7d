/* The feed's entries of transactions (store/overlay) and of commits: the kinds of changes of their
 * statements. */
#include "engine/documents/change_feed.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "store/overlay/transaction_overlay.h"
#include "tests/support/test.h"
#include "truce/commit.h"

static truce_store *store, *overlay;
static bson_error_t error;
static int64_t position;

static bool begin(void)
{
    const truce_store_options options = {.relaxed = true};
    char path[400];

    position = 0;
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return CHECK_OK(truce_store_open(path, &options, &store, &error), error) &&
           CHECK_OK(truce__engine_feed_keep(truce__file_engine(store), 3600000, 0, &error), error);
}

static void put(truce_store *where, const char *json)
{
    bson_t *document = test_bson(json);

    CHECK_OK(truce_insert(where, "c", document, NULL, &error), error);
    bson_destroy(document);
}

static void change_as(const truce_write_options *options, const char *filter, const char *change)
{
    bson_t *which = test_bson(filter), *how = test_bson(change);

    CHECK_OK(truce_update(overlay, "c", which, how, options, NULL, &error), error);
    bson_destroy(which);
    bson_destroy(how);
}

static void change(const char *filter, const char *change)
{
    change_as(NULL, filter, change);
}

static void modify(const truce_modify_options *options, const char *filter, const char *change)
{
    bson_t *which = test_bson(filter), *how = change ? test_bson(change) : NULL, document;

    CHECK_OK(truce_find_and_modify(overlay, "c", which, how, options, &document, NULL, &error),
             error);
    bson_destroy(&document);
    bson_destroy(which);
    if (how)
        bson_destroy(how);
}

static void take_away(const char *filter)
{
    bson_t *which = test_bson(filter);

    CHECK_OK(truce_remove(overlay, "c", which, NULL, NULL, &error), error);
    bson_destroy(which);
}

/* ---- entries --------------------------------------------------------------------------------- */

static bool take_kind(void *arg, const struct feed_entry *entry)
{
    size_t length = strlen(arg);

    snprintf((char *)arg + length, 20 - length, "%c", (char)entry->kind);
    return true;
}

static bool pass(void *arg, const struct feed_entry *entry)
{
    return arg && entry;
}

static void read_on(feed_take *take, void *arg)
{
    struct engine *engine = truce__file_engine(store);
    struct feed_state state;

    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, position ? position : state.horizon,
                                     1000, take, arg, &position, &error),
             error);
}

/* Stores the documents {_id: 1, m: 1, n: 1} to {_id: 4, ...}; the feed has their entries. */
static void open_overlay(void)
{
    const struct overlay_options options = {0};

    for (int i = 1; i <= 4; i++) {
        bson_t *document = BCON_NEW("_id", BCON_INT32(i), "m", BCON_INT32(1), "n", BCON_INT32(1));

        CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
        bson_destroy(document);
    }
    read_on(pass, &position);
    CHECK_OK(truce__overlay_open(store, &options, &overlay, &error), error);
}

/* The kinds of the events, one letter each. */
static void expect_kinds(const char *kinds)
{
    char reported[20] = "";

    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    read_on(take_kind, reported);
    CHECK_TEXT(kinds, reported);
    truce_store_close(overlay);
    truce_store_close(store);
}

static bool take_difference(void *arg, const struct feed_entry *entry)
{
    bson_t *wanted = test_bson(arg);

    CHECK_INT(entry->kind, ==, FEED_UPDATE);
    CHECK_BSON(wanted, &entry->diff);
    bson_destroy(wanted);
    return true;
}

TEST(reports_updates_of_one_transaction_as_one_update)
{
    static char difference[] =
        "{'updatedFields': {'n': 3, 'k': 1}, 'removedFields': ['m'], 'truncatedArrays': []}";
    bson_t *which = test_bson("{'_id': 1}"), *stages = test_bson("{'0': {'$set': {'k': 1}}}");

    REQUIRE(begin());
    open_overlay();
    change("{'_id': 1}", "{'$inc': {'n': 2}}");
    CHECK_OK(truce_update(overlay, "c", which, stages, &(truce_write_options){.pipeline = true},
                          NULL, &error),
             error);
    modify(&(truce_modify_options){0}, "{'_id': 1}", "{'$unset': {'m': 1}}");
    CHECK_OK(truce__overlay_commit(overlay, NULL, 0, NULL, &error), error);
    read_on(take_difference, difference);
    truce_store_close(overlay);
    truce_store_close(store);
    bson_destroy(which);
    bson_destroy(stages);
}

TEST(reports_a_replacement_as_a_replacement)
{
    REQUIRE(begin());
    open_overlay();
    change("{'_id': 1}", "{'m': 2, 'n': 1}");
    modify(&(truce_modify_options){0}, "{'_id': 2}", "{'m': 2, 'n': 1}");
    change("{'_id': 3}", "{'m': 2, 'n': 1}");
    change("{'_id': 3}", "{'$set': {'n': 2}}");
    change("{'_id': 4}", "{'$set': {'n': 2}}");
    change("{'_id': 4}", "{'m': 2, 'n': 1}");
    expect_kinds("rrrr");
}

TEST(reports_each_document_of_a_transaction_by_its_own_statements)
{
    REQUIRE(begin());
    open_overlay();
    change("{'_id': 1}", "{'m': 2, 'n': 1}");
    change_as(&(truce_write_options){.multi = true}, "{'_id': {'$gt': 1}}", "{'$inc': {'n': 1}}");
    expect_kinds("ruuu");
}

TEST(reports_a_removal_and_an_insert_as_a_replacement)
{
    REQUIRE(begin());
    open_overlay();
    take_away("{'_id': 1}");
    put(overlay, "{'_id': 1, 'm': 2, 'n': 1}");
    take_away("{'_id': 2}");
    change_as(&(truce_write_options){.upsert = true}, "{'_id': 2}", "{'$set': {'m': 2, 'n': 1}}");
    modify(&(truce_modify_options){.remove = true}, "{'_id': 3}", NULL);
    modify(&(truce_modify_options){.upsert = true}, "{'_id': 3}", "{'$set': {'m': 2, 'n': 1}}");
    expect_kinds("rrr");
}

TEST(reports_a_new_document_as_inserted_whatever_follows)
{
    REQUIRE(begin());
    open_overlay();
    put(overlay, "{'_id': 5, 'n': 1}");
    change("{'_id': 5}", "{'$inc': {'n': 1}}");
    put(overlay, "{'_id': 6, 'n': 1}");
    change("{'_id': 6}", "{'n': 2}");
    change_as(&(truce_write_options){.upsert = true}, "{'_id': 7}", "{'$set': {'n': 1}}");
    put(overlay, "{'_id': 8}");
    take_away("{'_id': 8}");
    expect_kinds("iii");
}

/* An atomic bulk replaces the document, and fails. */
static void fail_to_replace(const char *filter)
{
    bson_t *which = test_bson(filter), *whole = test_bson("{'n': 9}"),
           *none = test_bson("{'n': 77}");
    const truce_write writes[] = {
        {.kind = TRUCE_WRITE_UPDATE, .collection = "c", .filter = which, .document = whole},
        {.kind = TRUCE_WRITE_REQUIRE, .collection = "c", .filter = none},
    };
    truce_write_outcome outcomes[2];

    CHECK_INT(
        truce_bulk(overlay, writes, 2, &(truce_bulk_options){.atomic = true}, outcomes, &error), ==,
        TRUCE_CONFLICT);
    for (int i = 0; i < 2; i++)
        truce_write_result_release(&outcomes[i].result);
    bson_destroy(none);
    bson_destroy(whole);
    bson_destroy(which);
}

TEST(reports_a_failed_replacement_by_its_effects)
{
    REQUIRE(begin());
    open_overlay();
    fail_to_replace("{'_id': 1}");
    change("{'_id': 1}", "{'$set': {'n': 2}}");
    change("{'_id': 2}", "{'$set': {'n': 2}}");
    fail_to_replace("{'_id': 2}");
    change("{'_id': 3}", "{'m': 2, 'n': 1}");
    fail_to_replace("{'_id': 3}");
    expect_kinds("uur");
}

/* One document blind, and two that were read. */
static truce_status commit_three(truce_commit *commit, void *arg, bson_error_t *why)
{
    const bson_t *operators = arg;
    bson_t whole = BSON_INITIALIZER, found;
    truce_status status = TRUCE_OK;

    BSON_APPEND_INT32(&whole, "n", 7);
    for (int i = 1; i <= 3 && !status; i++) {
        bson_value_t id = {.value_type = BSON_TYPE_INT32, .value.v_int32 = i};

        if (i > 1) {
            status = truce_commit_read(commit, "c", &id, &found, why);
            bson_destroy(&found);
        }
        if (!status)
            status = i == 3 ? truce_commit_replace(commit, "c", &id, NULL, &whole, why)
                            : truce_commit_update(commit, "c", &id, NULL, operators, why);
    }
    bson_destroy(&whole);
    return status;
}

TEST(reports_the_differences_of_a_commit)
{
    bson_t *operators = test_bson("{'$inc': {'n': 1}}");

    REQUIRE(begin());
    open_overlay();
    CHECK_OK(truce_transact(store, commit_three, operators, NULL, &error), error);
    expect_kinds("uuu");
    bson_destroy(operators);
}
