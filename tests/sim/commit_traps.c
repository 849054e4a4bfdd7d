/* The traps of the commit protocol: for each, the smallest scenario in which the obvious way
 * goes wrong, with the faults that it takes, searched to the end. Each fails without its cure
 * (tests/mutants/commit.mutants). */
#include "tests/support/scenarios.h"
#include "tests/support/test.h"

static void search_some(long most, const char *name, int crashes, int losses, int lates, int jumps)
{
    struct sim_scenario scenario = *scenario_named(name);
    uint64_t runs = (uint64_t)test_scale("TRUCE_TRAP_RUNS", most);
    struct sim_search found;

    scenario.crashes = crashes;
    scenario.losses = losses;
    scenario.lates = lates;
    scenario.jumps = jumps;
    truce__sim_search(&scenario, runs, stderr, &found);
    printf("%s: %" PRIu64 " states%s\n", name, found.states, found.complete ? ", complete" : "");
    if (!found.complete && !found.result.violation)
        truce__sim_walks(&scenario, 1, runs, stderr, &found.result);
    if (found.result.violation)
        test_fail(__FILE__, __LINE__, "%s: %s (%s)", name, found.result.violation,
                  found.result.detail);
}

static void search(const char *name, int crashes, int losses, int lates, int jumps)
{
    search_some(3000, name, crashes, losses, lates, jumps);
}

TEST(does_not_resend_a_prepare_without_a_reply_under_one_id)
{
    search("a commit and a blind fast write", 0, 0, 2, 0);
}

TEST(does_not_resend_an_insert_of_the_commit_without_a_reply)
{
    search("a commit and a client that aborts and purges", 0, 0, 1, 1);
}

TEST(reports_unknown_for_a_missing_commit_after_a_decide_without_a_reply)
{
    search("a commit and a sweeper that purges", 0, 0, 1, 2);
}

TEST(requires_are_compared_by_revision)
{
    search("two requires whose values come back", 0, 0, 0, 0);
}

TEST(a_document_that_was_removed_and_inserted_is_another)
{
    search("remove and insert between read and require", 0, 0, 0, 0);
}

TEST(one_of_two_missing_requires_is_held)
{
    search("two missing requires", 0, 0, 0, 0);
}

TEST(a_missing_require_is_read_before_the_others)
{
    search("a missing require is looked at first", 0, 0, 0, 0);
}

TEST(avoids_the_fast_path_for_a_write_with_a_require)
{
    search("write skew: require a, write b; require b, write a", 0, 0, 0, 0);
}

TEST(a_read_of_many_waits_for_a_pending_commit)
{
    search("a snapshot next to a require and a fast write", 0, 0, 0, 0);
}

TEST(a_read_of_many_reads_twice)
{
    search("a snapshot next to a commit", 0, 0, 0, 0);
}

TEST(a_read_of_two_missing_ones_holds_one)
{
    search("a snapshot of two of which one exists", 0, 0, 0, 0);
    search("a snapshot of two of which one exists, changed thrice", 0, 0, 0, 0);
}

TEST(a_held_value_is_current_at_the_decision)
{
    search("a fence: hold a, write b; write a", 0, 0, 0, 0);
}

TEST(refuses_a_key_that_a_sweeper_purges_in_any_order)
{
    search("one key and a sweeper that purges", 0, 0, 0, 2);
    search_some(1000, "one key natively and a sweeper that purges", 0, 0, 0, 2);
}

TEST(two_commits_under_one_key_are_one)
{
    search("two commits under one key", 0, 0, 0, 1);
}

TEST(determines_a_fast_write_without_a_reply_by_its_revision)
{
    search("a blind fast write, unanswered", 0, 0, 1, 0);
    search("a fast write, unanswered", 0, 0, 1, 0);
    search("a fast write that is removed", 0, 0, 1, 0);
}

TEST(does_not_resend_a_fast_insert_without_a_reply)
{
    search("a fast insert, unanswered; remove; commit", 0, 0, 1, 0);
}

TEST(finds_a_prepare_that_arrives_after_its_commit_was_removed)
{
    search("a commit and a sweeper that purges", 1, 0, 1, 1);
}

TEST(a_pending_commit_is_aborted_before_its_intents_are_touched)
{
    search("two commits write a, b blindly", 0, 0, 0, 1);
}

TEST(a_unique_value_is_reserved_before_the_decision)
{
    search("two commits want one unique value", 0, 0, 0, 0);
    search("commits insert and update to one unique value", 0, 0, 0, 0);
    search_some(800, "a unique value changes; an update wants the new one", 1, 0, 0, 1);
    search("native next to journal: one unique value", 0, 0, 0, 0);
}

TEST(a_unique_value_is_kept_until_the_decision)
{
    search_some(800, "a unique value changes; an insert wants the old one", 1, 0, 0, 1);
    search_some(800, "a unique value changes; an insert wants the old one", 0, 0, 1, 1);
}

TEST(a_unique_value_that_is_only_reserved_is_not_taken)
{
    search_some(800, "a unique value changes; an insert wants the new one", 1, 0, 0, 1);
    search_some(800, "a commit inserts a unique value; another insert wants it", 0, 0, 0, 1);
}

TEST(searches_a_unique_value_without_keys_after_reserving_it)
{
    search("no keys yet: a commit next to the fast path", 0, 0, 0, 0);
    search("no keys yet: two commits change unique values", 0, 0, 0, 0);
}

TEST(the_first_keys_of_a_document_are_reserved_and_released)
{
    search("no keys yet: a commit wants what a touched document has", 0, 0, 0, 0);
    search_some(800, "no keys yet: a commit wants what a touched document has", 1, 0, 0, 1);
}

TEST(releases_a_reservation_that_arrives_after_its_commit)
{
    search_some(800, "a unique value, a sweeper that purges", 1, 0, 1, 1);
}

TEST(unique_values_are_not_exchanged_within_one_commit)
{
    search("unique values are exchanged, and moved", 0, 0, 0, 0);
}

TEST(reports_unknown_if_the_value_is_taken_after_a_lost_reply)
{
    search_some(800, "a unique value changes; an update wants the new one", 0, 0, 1, 0);
}

TEST(native_commits_and_the_journal_see_each_other)
{
    search("native next to journal: write skew", 0, 0, 0, 0);
    search("native insert and remove next to journal", 0, 0, 0, 0);
}
