/* Faults of a process at each of its store calls while it posts: it dies before the call, after
 * it, or gets no answer. The next process finds a book whose proof is valid, and the same call
 * again moves the money once. */
#include "tests/support/book.h"
#include "tests/support/no_sleep.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *outer; /* fault stores around each other */
    truce_mechanism mechanism;
};

static void begin(struct rig *rig, truce_mechanism mechanism)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = NULL;
    truce_ledger *ledger;
    bson_error_t error = {0};

    CHECK_OK(truce_store_open("memory:", NULL, &memory, &error), error);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->outer = truce_fault_wrap(rig->inner, &none);
    rig->mechanism = mechanism;
    ledger = book_ledger(rig->outer);
    CHECK_OK(book_open(ledger, "bank", INT64_MIN, &error), error);
    CHECK_OK(book_open(ledger, "a", 0, &error), error);
    CHECK_OK(book_open(ledger, "b", 0, &error), error);
    CHECK_OK(book_transfer(ledger, "seed", "bank", "a", 1000, &error), error);
    CHECK_OK(book_post(ledger, NULL, "p", TRUCE_LEDGER_PENDING, "a", "b", 100, NULL, &error),
             error);
    CHECK_OK(book_transfer(ledger, "t", "a", "b", 50, &error), error);
    insert_json(rig->outer, "orders", "{'_id': 'o1', 'n': 0}");
    truce_ledger_free(ledger);
}

/* ---- the processes --------------------------------------------------------------------------- */

typedef truce_status action(struct rig *rig, truce_ledger *ledger, bson_error_t *error);

static truce_status transfer(struct rig *rig, truce_ledger *ledger, bson_error_t *error)
{
    (void)rig;
    return book_transfer(ledger, "x", "a", "b", 700, error);
}

static truce_status settle(struct rig *rig, truce_ledger *ledger, bson_error_t *error)
{
    (void)rig;
    return book_resolve(ledger, NULL, "x", TRUCE_LEDGER_SETTLE, "p", error);
}

static truce_status reverse(struct rig *rig, truce_ledger *ledger, bson_error_t *error)
{
    (void)rig;
    return book_resolve(ledger, NULL, "x", TRUCE_LEDGER_REVERSE, "t", error);
}

static truce_status many(struct rig *rig, truce_ledger *ledger, bson_error_t *error)
{
    bson_value_t ids[] = {text_id("x"), text_id("y"), text_id("z")};
    truce_ledger_entry entries[][2] = {{{"a", -600, NULL}, {"b", 600, NULL}},
                                       {{"a", -6000, NULL}, {"b", 6000, NULL}},
                                       {{"b", -500, NULL}, {"a", 500, NULL}}};
    truce_ledger_transaction transactions[3];
    truce_ledger_result results[3];
    truce_status status;

    (void)rig;
    for (int i = 0; i < 3; i++)
        transactions[i] =
            (truce_ledger_transaction){.id = &ids[i], .entries = entries[i], .count = 2};
    status = truce_ledger_post_many(ledger, transactions, 3, results, error);
    if (!status)
        CHECK_INT(results[1].status, ==, TRUCE_LIMIT);
    return status;
}

static truce_status buy(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *update = BCON_NEW("$inc", "{", "n", BCON_INT32(1), "}");
    bson_value_t id = text_id("o1");
    truce_ledger_result result;
    truce_status status =
        book_post(arg, commit, "x", TRUCE_LEDGER_TRANSFER, "a", "b", 700, &result, error);

    if (!status && !result.exists)
        status = truce_commit_update(commit, "orders", &id, NULL, update, error);
    bson_destroy(update);
    return status;
}

static truce_status in_commit(struct rig *rig, truce_ledger *ledger, bson_error_t *error)
{
    truce_commit_options options = {
        .mechanism = rig->mechanism, .lease_ms = 1, .deadline_ms = 60000};

    return truce_transact(rig->outer, buy, ledger, &options, error);
}

static const struct {
    const char *name;
    action *function;
    truce_mechanism mechanism;
    int64_t a, b; /* at the end */
    int64_t orders;
} stories[] = {
    {"a transfer", transfer, TRUCE_MECHANISM_AUTO, 250, 750, 0},
    {"settling", settle, TRUCE_MECHANISM_AUTO, 850, 150, 0},
    {"a reversal", reverse, TRUCE_MECHANISM_AUTO, 1000, 0, 0},
    {"many", many, TRUCE_MECHANISM_AUTO, 850, 150, 0},
    {"in a commit, native", in_commit, TRUCE_MECHANISM_NATIVE, 250, 750, 1},
    {"in a commit, journal", in_commit, TRUCE_MECHANISM_JOURNAL, 250, 750, 1},
};

static int64_t orders_paid(truce_store *store)
{
    bson_t *filter = test_bson("{'n': {'$gte': 1}}");
    int64_t paid = -1;
    bson_error_t error = {0};

    CHECK_OK(truce_count(store, "orders", filter, NULL, &paid, &error), error);
    bson_destroy(filter);
    return paid;
}

/* Another process dies, too, at that call of its work for the first one. */
static bool die_in_recovery(struct rig *rig, size_t story, uint64_t at)
{
    truce_ledger *ledger = book_ledger(rig->outer);
    truce_sweep_report report;
    bson_error_t error = {0};
    bool hit;

    trouble_arm(rig->inner, rig->outer, at % 2 ? DIE_AFTER : DIE_BEFORE, at);
    if (!truce_sweep(rig->outer, NULL, &report, &error))
        (void)!stories[story].function(rig, ledger, &error);
    hit = truce_fault_hits(rig->inner) + truce_fault_hits(rig->outer) > 0;
    truce_ledger_free(ledger);
    return hit;
}

/* Another process checks the proof of the book before and after it repeats the same call. */
static void come_after(struct rig *rig, size_t story)
{
    truce_ledger *ledger = book_ledger(rig->outer);
    truce_sweep_report report;
    bson_error_t error = {0};

    trouble_arm(rig->inner, rig->outer, NONE, 0);
    BOOK_CHECK(ledger);
    CHECK_OK(truce_sweep(rig->outer, NULL, &report, &error), error);
    CHECK_OK(stories[story].function(rig, ledger, &error), error);
    CHECK_OK(stories[story].function(rig, ledger, &error), error);
    CHECK_INT(book_balance(ledger, "a").balance, ==, stories[story].a);
    CHECK_INT(book_balance(ledger, "b").balance, ==, stories[story].b);
    CHECK_INT(orders_paid(rig->outer), ==, stories[story].orders);
    BOOK_CHECK(ledger);
    truce_ledger_free(ledger);
}

/* `again`: the call at which the next process dies, too; 0: at none. False: no fault happened
 * any more. */
static bool play_twice(size_t story, enum trouble trouble, uint64_t again)
{
    bool hit = true, any = false;

    for (uint64_t at = 1; hit && at < 500; at++) {
        int before = test_failures();
        truce_ledger *ledger;
        truce_status status;
        bson_error_t error = {0};
        struct rig rig;

        no_sleep_use();
        begin(&rig, stories[story].mechanism);
        ledger = book_ledger(rig.outer);
        trouble_arm(rig.inner, rig.outer, trouble, at);
        status = stories[story].function(&rig, ledger, &error);
        hit = truce_fault_hits(rig.inner) + truce_fault_hits(rig.outer) > 0;
        truce_ledger_free(ledger);
        if (!hit || trouble == LOSE)
            CHECK_OK(status, error);
        if (hit && again)
            any = die_in_recovery(&rig, story, again) || any;
        come_after(&rig, story);
        truce_store_close(rig.outer);
        if (test_failures() > before) {
            fprintf(stderr, "    (%s, trouble %d at call %d)\n", stories[story].name, trouble,
                    (int)at);
            break;
        }
    }
    CHECK(!hit);
    return any;
}

static void play(size_t story, enum trouble trouble)
{
    (void)play_twice(story, trouble, 0);
}

TEST(leaves_a_provable_ledger_after_a_crash_at_any_call)
{
    for (size_t story = 0; story < sizeof stories / sizeof *stories; story++) {
        play(story, DIE_BEFORE);
        play(story, DIE_AFTER);
    }
}

TEST(survives_a_second_crash_during_recovery)
{
    /* a commit of numbers makes many calls; fault/commit_crash tests a death at each of them */
    uint64_t step = (uint64_t)test_scale("TRUCE_LEDGER_CRASH_STEP", book_has_slots() ? 42 : 28);

    for (size_t story = 0; story < sizeof stories / sizeof *stories; story++) {
        for (uint64_t again = 1; again < 500 && play_twice(story, DIE_AFTER, again);)
            again += step;
    }
}

TEST(moves_no_money_twice_if_a_reply_is_lost_at_any_call)
{
    for (size_t story = 0; story < sizeof stories / sizeof *stories; story++) {
        if (stories[story].mechanism == TRUCE_MECHANISM_AUTO)
            play(story, LOSE);
    }
}
