/* A process dies at each store call of the post that completes a run of stored sums, or of the
 * balance that builds one. Balances at value dates are right after that, and the proof finds
 * nothing. */
#include "store/reserved_names.h"
#include "tests/support/book.h"
#include "tests/support/no_sleep.h"
#include "tests/support/trouble.h"

#define RUN  128 /* the numbers of a run */
#define DATE INT64_C(1600000000000)

struct rig {
    truce_store *inner, *outer;
};

static truce_status dated(truce_ledger *ledger, int number, bson_error_t *error)
{
    bson_value_t id = truce_id_int64(number);
    truce_ledger_entry entries[] = {{"bank", -number, NULL}, {"a", number, NULL}};
    truce_ledger_transaction transaction = {
        .id = &id, .entries = entries, .count = 2, .effective_ms = DATE + number * 7 % 50};

    return truce_ledger_post(ledger, NULL, &transaction, NULL, error);
}

/* The next post takes number `posts` + 2 of each account. */
static void begin(struct rig *rig, int posts)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->outer = truce_fault_wrap(rig->inner, &none);
    ledger = book_ledger(rig->outer);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "a", 0, &error), error);
    for (int i = 1; i <= posts; i++)
        CHECK_OK(dated(ledger, i, &error), error);
    truce_ledger_free(ledger);
}

static void check_dates(truce_ledger *ledger, int posts)
{
    for (int day = -1; day <= 50; day += 3) {
        truce_ledger_balance balance;
        bson_error_t error = {0};
        int64_t sum = 0;

        for (int i = 1; i <= posts; i++)
            sum += i * 7 % 50 <= day ? i : 0;
        CHECK_OK(truce_ledger_balance_of(ledger, "a",
                                         &(truce_ledger_moment){.effective_ms = DATE + day},
                                         &balance, &error),
                 error);
        CHECK_INT(balance.balance, ==, sum);
    }
}

static void look(truce_ledger *ledger)
{
    truce_ledger_balance balance;
    bson_error_t ignored;

    (void)!truce_ledger_balance_of(ledger, "a", &(truce_ledger_moment){.effective_ms = DATE + 25},
                                   &balance, &ignored);
}

static void arm(struct rig *rig, enum trouble trouble, uint64_t at, bool writes)
{
    truce_fault_options inner = {.kind = TRUCE_FAULT_NONE}, outer = {.kind = TRUCE_FAULT_NONE};

    if (trouble == DIE_AFTER || trouble == LOSE)
        inner = (truce_fault_options){.kind = TRUCE_FAULT_LOSE, .at = at, .writes_only = writes};
    if (trouble == DIE_BEFORE || trouble == DIE_AFTER)
        outer = (truce_fault_options){.kind = TRUCE_FAULT_FAIL,
                                      .at = trouble == DIE_BEFORE ? at : at + 1,
                                      .from_then_on = true,
                                      .writes_only = writes};
    truce_fault_arm(rig->inner, &inner);
    truce_fault_arm(rig->outer, &outer);
}

/* Repeats until no call is left to die at; `drops`: the runs are dropped, so that a balance
 * builds them. The process dies at each call that writes, or (each document of a cursor is a
 * call) at some of all calls. */
static void die_at_calls(int posts, bool drops, enum trouble trouble, bool writes)
{
    bool hit = true;

    for (uint64_t at = 1; hit && at < 5000; at += writes ? 1 : 1 + at / 3) {
        int before = test_failures();
        truce_ledger *ledger;
        bson_error_t error = {0};
        struct rig rig;

        no_sleep_use();
        begin(&rig, posts);
        if (drops)
            CHECK_OK(truce_collection_drop(rig.outer, LEDGER_SUMS, &error), error);
        ledger = book_ledger(rig.outer);
        arm(&rig, trouble, at, writes);
        if (drops)
            look(ledger);
        else
            (void)!dated(ledger, posts + 1, &error);
        hit = truce_fault_hits(rig.inner) + truce_fault_hits(rig.outer) > 0;
        truce_ledger_free(ledger);
        arm(&rig, NONE, 0, false);
        ledger = book_ledger(rig.outer);
        BOOK_CHECK(ledger);
        CHECK_OK(dated(ledger, posts + 1, &error), error);
        check_dates(ledger, posts + 1);
        BOOK_CHECK(ledger);
        truce_ledger_free(ledger);
        truce_store_close(rig.outer);
        if (test_failures() > before) {
            fprintf(stderr, "    (trouble %d at call %d)\n", trouble, (int)at);
            break;
        }
    }
    CHECK(!hit);
}

static void die_at_each(int posts, bool drops)
{
    static const enum trouble troubles[] = {DIE_BEFORE, DIE_AFTER, LOSE};

    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        die_at_calls(posts, drops, troubles[i], true);
        die_at_calls(posts, drops, troubles[i], false);
    }
}

TEST(keeps_balances_right_after_a_crash_at_the_end_of_a_run)
{
    die_at_each(RUN - 2, false);
}

TEST(keeps_balances_right_after_a_crash_in_building_runs)
{
    die_at_each(2 * RUN, true);
}
