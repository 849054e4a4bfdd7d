/*
 * Commits of a database of a store that holds several (src/commit/place.h): whoever works on the store itself, its sweep above
 * all, takes them for what they are.
 */
#include "base/clock.h"
#include "store/decorators/database.h"
#include "tests/support/bank.h"
#include "truce/sweep.h"
#include "truce/sys/decorate.h"

/* What a client of the database "school" has; its calls can be made to go wrong. */
static truce_store *inner, *school;

static void open_both(void)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &inner, &error), error);
    school = truce_fault_wrap(truce__database_open(inner, "@school.any"), &none);
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

/* All of it, or nothing. */
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

TEST(a_sweep_of_the_store_brings_a_database_s_commits_to_their_end)
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
        truce__clock_sleep_ms(5); /* the lease is over, and as much again */
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

/* Its owner is at work. */
TEST(a_sweep_or_a_check_of_the_store_takes_nothing_from_a_commit_that_lives)
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

TEST(a_commit_of_the_store_helps_one_of_a_database)
{
    truce_commit_options options = {.deadline_ms = 5000};
    truce_commit *commit = NULL;
    bson_error_t error = {0};

    for (uint64_t last = 6; last < 14; last++) {
        bool done;

        open_both();
        (void)!change(last, 1);
        done = is_decided();
        truce__clock_sleep_ms(5);
        CHECK_OK(truce_commit_begin(inner, &options, &commit, &error), error);
        CHECK_OK(add_update(commit, "@school.things", "a", NULL, "{'$inc': {'n': 10}}", &error),
                 error);
        CHECK_OK(truce_commit_apply(commit, &error), error);
        truce_commit_free(commit);
        CHECK_INT(count_json(inner, "@school.things",
                             done ? "{'_id': 'a', 'n': 11}" : "{'_id': 'a', 'n': 10}"),
                  ==, 1);
        close_both();
    }
}

/* By when it was met first, not by when it says that it ends. */
TEST(a_dead_one_whose_clock_was_ahead_is_undone)
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
