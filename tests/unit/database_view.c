/* Database views (store/decorators/database_view.h), and the commits of a database: the sweep and
 * the check of the whole store recover them there. */
#include "store/decorators/database_view.h"
#include "base/clock.h"
#include "tests/support/bank.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

/* The store of a client of the database "school"; its calls can be made to fail. */
static truce_store *inner, *school;

static void open_both(void)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &inner, &error), error);
    school = truce_fault_wrap(truce__database_open(inner, "", "school"), &none);
    insert_json(inner, "@school.things", "{'_id': 'a', 'n': 0}");
    insert_json(inner, "@school.things", "{'_id': 'b', 'n': 0}");
    insert_json(inner, "@school.things", "{'_id': 'd', 'n': 0}");
}

static void close_both(void)
{
    truce_store_close(school);
    truce_store_close(inner);
}

/* An update of two, an insert and a remove, which end at the n-th write. */
static truce_status change(uint64_t last, uint32_t lease_ms)
{
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL,
                                 .status = TRUCE_INVALID,
                                 .at = last + 1,
                                 .from_then_on = true,
                                 .writes_only = true};
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = lease_ms};
    bson_t *document = test_bson("{'_id': 'c', 'n': 1}");
    bson_value_t d = text_id("d");
    truce_commit *commit = NULL;
    bson_error_t error = {0};
    truce_status status;

    CHECK_OK(truce_commit_begin(school, &options, &commit, &error), error);
    CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(add_update(commit, "things", "b", NULL, "{'$inc': {'n': 1}}", &error), error);
    CHECK_OK(truce_commit_insert(commit, "things", document, &error), error);
    CHECK_OK(truce_commit_remove(commit, "things", &d, NULL, &error), error);
    truce_fault_arm(school, &fault);
    status = truce_commit_apply(commit, &error);
    truce_fault_arm(school, &(truce_fault_options){.kind = TRUCE_FAULT_NONE});
    truce_commit_free(commit);
    bson_destroy(document);
    return status;
}

static int64_t held(void)
{
    return count_json(inner, "@school.things", "{'_intent': {'$exists': true}}");
}

static void sweep(void)
{
    truce_sweep_options options = {0};
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(inner, &options, &report, &error), error);
    CHECK_INT(report.failed, ==, 0);
}

/* The commit is atomic. */
static void check_whole(bool done)
{
    CHECK_INT(held(), ==, 0);
    CHECK_INT(count_json(inner, "@school.things", "{'n': 1}"), ==, done ? 3 : 0);
    CHECK_INT(count_json(inner, "@school.things", "{'_id': 'd'}"), ==, done ? 0 : 1);
    CHECK_INT(count_json(inner, "@school.things", "{'_id': 'c'}"), ==, done ? 1 : 0);
}

static bool is_decided(void)
{
    return count_json(inner, "@school.truce_commits", "{'state': {'$in': ['committed', 'done']}}") >
           0;
}

#define WRITES 20 /* more than there are */

TEST(completes_commits_of_a_database_by_a_sweep_of_the_store)
{
    int decided = 0, undecided = 0;

    for (uint64_t last = 0; last < WRITES; last++) {
        truce_status status;
        bool done;

        open_both();
        status = change(last, 1);
        done = is_decided();
        CHECK(!done || status == TRUCE_OK);
        decided += done;
        undecided += !done && held() > 0;
        sweep();
        truce__clock_sleep_ms(5); /* the lease is over */
        sweep();
        sweep();
        check_whole(done);
        CHECK_INT(count_json(inner, "@school.truce_commits",
                             "{'state': {'$in': ['pending', 'committed']}}"),
                  ==, 0);
        close_both();
    }
    CHECK_INT(decided, >, 2);
    CHECK_INT(undecided, >, 2);
}

static void ignore(const bson_t *finding, void *arg)
{
    (void)finding;
    (void)arg;
}

/* Its owner is active. */
TEST(leaves_live_commits_alone_in_a_sweep_and_a_check)
{
    truce_check_options options = {.repair = true};
    truce_check_report report;
    bson_error_t error = {0};
    int seen = 0;

    for (uint64_t last = 0; last < WRITES; last++) {
        int64_t before;
        bool done;

        open_both();
        (void)!change(last, 60000);
        done = is_decided();
        before = held();
        seen += !done && before > 1;
        sweep();
        CHECK_OK(truce_check(inner, &options, ignore, NULL, &report, &error), error);
        if (!done)
            CHECK_INT(held(), ==, before);
        else
            check_whole(true);
        close_both();
    }
    CHECK_INT(seen, >, 1);
}

TEST(completes_or_undoes_the_commit_of_another_view_of_the_database)
{
    truce_commit_options options = {.deadline_ms = 5000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    for (uint64_t last = 6; last < 14; last++) {
        truce_store *other;
        bool done;

        open_both();
        other = truce__database_open(inner, "test", "school");
        (void)!change(last, 1);
        done = is_decided();
        truce__clock_sleep_ms(5);
        CHECK_OK(truce_commit_begin(other, &options, &commit, &error), error);
        CHECK_OK(add_update(commit, "things", "a", NULL, "{'$inc': {'n': 10}}", &error), error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        CHECK_INT(count_json(inner, "@school.things",
                             done ? "{'_id': 'a', 'n': 11}" : "{'_id': 'a', 'n': 10}"),
                  ==, 1);
        truce_store_close(other);
        close_both();
    }
}

/* Readers of that database look up the commit there. */
TEST(refuses_a_store_commit_that_changes_another_database)
{
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    open_both();
    CHECK_OK(truce_commit_begin(inner, NULL, &commit, &error), error);
    CHECK_INT(add_update(commit, "@school.things", "a", NULL, "{'$inc': {'n': 1}}", &error), ==,
              TRUCE_INVALID);
    CHECK(strstr(error.message, "another database"));
    truce_commit_free(commit);
    close_both();
}

/* The time of its first encounter counts, not its own expiry. */
TEST(undoes_a_dead_commit_whose_clock_was_ahead)
{
    bson_t *pending = test_bson("{'state': 'pending'}");
    bson_t *ahead = test_bson("{'$set': {'lease.until': {'$numberLong': '4102444800000'}}}");
    bson_error_t error = {0};

    open_both();
    (void)!change(6, 1);
    CHECK_INT(held(), >, 0);
    CHECK_OK(truce_update(inner, "@school.truce_commits", pending, ahead, NULL, NULL, &error),
             error);
    sweep();
    truce__clock_sleep_ms(5);
    sweep();
    check_whole(false);
    close_both();
    bson_destroy(ahead);
    bson_destroy(pending);
}

/* ---- names ---------------------------------------------------------------------------------- */

static bool lists(truce_store *store, const char *name)
{
    bson_t collections;
    bson_iter_t at, field;
    bson_error_t error = {0};
    bool found = false;

    CHECK_OK(truce_collection_list(store, NULL, &collections, &error), error);
    CHECK(bson_iter_init(&at, &collections));
    while (bson_iter_next(&at)) {
        CHECK(bson_iter_recurse(&at, &field) && bson_iter_find(&field, "name"));
        CHECK(bson_iter_utf8(&field, NULL)[0] != '@');
        found = found || !strcmp(bson_iter_utf8(&field, NULL), name);
    }
    bson_destroy(&collections);
    return found;
}

TEST(shows_the_collections_of_one_database_by_their_plain_names)
{
    truce_store *own, *other;

    open_both();
    insert_json(inner, "own", "{'_id': 1}");
    own = truce__database_open(inner, "test", "test");
    other = truce__database_open(inner, "test", "schools");
    CHECK(lists(school, "things") && !lists(school, "own"));
    CHECK(lists(own, "own") && !lists(own, "things"));
    CHECK(!lists(other, "things"));
    insert_json(other, "things", "{'_id': 'z'}");
    CHECK_INT(count_json(school, "things", "{'_id': 'z'}"), ==, 0);
    CHECK_INT(count_json(inner, "@schools.things", "{'_id': 'z'}"), ==, 1);
    truce_store_close(other);
    truce_store_close(own);
    close_both();
}

TEST(reports_errors_with_plain_names)
{
    bson_t *document = test_bson("{'_id': 'a'}");
    bson_error_t error = {0};

    open_both();
    CHECK_INT(truce_insert(school, "things", document, NULL, &error), ==, TRUCE_DUPLICATE);
    CHECK(strstr(error.message, "of things"));
    CHECK(!strchr(error.message, '@'));
    close_both();
    bson_destroy(document);
}

TEST(maps_the_collections_of_pipelines_snapshots_and_renames)
{
    bson_t *pipeline = test_bson("[{'$lookup': {'from': 'things', 'localField': '_id', "
                                 "'foreignField': '_id', 'as': 'found'}}, {'$out': 'joined'}]");
    truce_store *view = NULL;
    truce_cursor *cursor = NULL;
    const bson_t *document;
    bson_error_t error = {0};

    open_both();
    CHECK_OK(truce_aggregate(school, "things", pipeline, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    truce_cursor_close(cursor);
    CHECK_INT(count_json(inner, "@school.joined", "{'found._id': {'$exists': true}}"), ==, 3);
    CHECK_OK(truce_collection_rename(school, "joined", "kept", false, &error), error);
    CHECK_INT(count_json(inner, "@school.kept", "{}"), ==, 3);
    CHECK_OK(truce_snapshot(school, NULL, &view, &error), error);
    insert_json(school, "kept", "{'_id': 'later'}");
    CHECK_INT(count_json(view, "kept", "{}"), ==, 3);
    truce_store_close(view);
    close_both();
    bson_destroy(pipeline);
}

/* ---- the option ----------------------------------------------------------------------------- */

static truce_store *open_database(const char *uri, const char *database)
{
    const truce_store_options options = {.database = database};
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open(uri, &options, &store, &error), error);
    return store;
}

TEST(opens_the_database_of_a_file_that_a_server_calls_so)
{
    char *path = bson_strdup_printf("%s/own.truce", test_directory());
    truce_store *whole = open_database(path, NULL), *shop, *own;
    bson_error_t error = {0};

    shop = open_database(path, "shop");
    own = open_database(path, "test");
    insert_json(shop, "things", "{'_id': 1}");
    insert_json(own, "things", "{'_id': 2}");
    CHECK_INT(count_json(whole, "@shop.things", "{'_id': 1}"), ==, 1);
    CHECK_INT(count_json(whole, "things", "{'_id': 2}"), ==, 1);
    truce_store_close(shop);
    truce_store_close(own);
    CHECK_OK(truce__own_database_keep(whole, "school", &error), error); /* as a server does */
    own = open_database(path, "school");
    CHECK_INT(count_json(own, "things", "{'_id': 2}"), ==, 1);
    truce_store_close(own);
    own = open_database(path, "test");
    CHECK_INT(count_json(own, "things", "{}"), ==, 0);
    truce_store_close(own);
    truce_store_close(whole);
    bson_free(path);
}

TEST(refuses_the_name_of_a_database_that_is_not_valid)
{
    const truce_store_options options = {.database = "a.b"};
    truce_store *store = NULL;
    bson_error_t error = {0};

    CHECK_INT(truce_store_open("memory:", &options, &store, &error), ==, TRUCE_INVALID);
    CHECK(!store);
    CHECK(strstr(error.message, "a.b"));
}

TEST(sweeps_and_checks_a_database_alone)
{
    truce_store *shop = open_database("memory:", "shop"), *own = open_database("memory:", "test");
    truce_sweep_report swept;
    truce_check_report checked;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(shop, NULL, &swept, &error), error);
    CHECK_OK(truce_sweep(own, NULL, &swept, &error), error);
    CHECK_OK(truce_check(own, NULL, ignore, NULL, &checked, &error), error);
    truce_store_close(own);
    truce_store_close(shop);
}
