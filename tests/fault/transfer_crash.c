/*
 * A process dies at every store call of a transfer, before or after the call's effect, and again in
 * the second life. In further runs every single answer is lost. If each transfer is started again,
 * or another process runs the recovery pass, it is made once.
 */
#include "tests/support/transfer_rig.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *store;
    truce_mechanism mechanism;
};

static void rig_open(struct rig *rig, truce_mechanism mechanism)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();

    rig_account(memory, "a", 10);
    rig_account(memory, "b", 0);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->mechanism = mechanism;
}

/* One transfer that is made, and one that is refused after its first entry. */
static truce_status both(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_transfers *transfers =
        truce_transfers_new(rig->store, &(truce_transfer_options){.collection = "transactions",
                                                                  .accounts = "accounts",
                                                                  .resume_ms = 1,
                                                                  .deadline_ms = deadline_ms,
                                                                  .mechanism = rig->mechanism});
    bson_value_t id = text_id("t2"), a = text_id("a"), b = text_id("b");
    bson_t *debit = test_bson("{'$inc': {'balance': -1}}"), *guard = test_bson("{'balance': 99}"),
           *credit = test_bson("{'$inc': {'balance': 1}}");
    truce_transfer_entry entries[] = {
        {.collection = "accounts", .id = &a, .effect = debit},
        {.collection = "accounts", .id = &b, .guard = guard, .effect = credit}};
    truce_transfer refused = {.id = &id, .entries = entries, .count = 2};
    truce_status status = rig_move(transfers, "t1", "a", "b", 3, NULL, error);

    if (!status) {
        status = truce_transfer_start(transfers, NULL, &refused, NULL, error);
        CHECK(status);
        status = status == TRUCE_REFUSED ? TRUCE_OK : status;
    }
    bson_destroy(credit);
    bson_destroy(guard);
    bson_destroy(debit);
    truce_transfers_free(transfers);
    return status;
}

static void finish(struct rig *rig, bool sweep)
{
    truce_sweep_report report;
    bson_error_t error = {0};
    truce_status status = TRUCE_UNKNOWN;

    trouble_arm(rig->inner, rig->store, NONE, 0);
    if (sweep)
        CHECK_OK(truce_sweep(rig->store, NULL, &report, &error), error);
    for (int i = 0; i < 4 && status; i++)
        status = both(rig, 20000, &error);
    CHECK_OK(status, error);
}

/* True: the fault happened. */
static bool suffer(truce_mechanism mechanism, enum trouble first, uint64_t at, enum trouble second,
                   uint64_t then)
{
    struct rig rig;
    bson_error_t error = {0};
    int before = test_failures();
    bool hit;

    rig_open(&rig, mechanism);
    trouble_arm(rig.inner, rig.store, first, at);
    (void)!both(&rig, 15, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        trouble_arm(rig.inner, rig.store, second, then);
        (void)!both(&rig, 15, &error);
    }
    finish(&rig, at % 2);
    CHECK_INT(rig_balance(rig.store, "a"), ==, 7);
    CHECK_INT(rig_balance(rig.store, "b"), ==, 3);
    rig_settled(rig.store);
    if (test_failures() > before)
        fprintf(stderr, "    %s at %d\n", first == LOSE ? "lost" : "died", (int)at);
    truce_store_close(rig.store);
    return hit;
}

static void suffer_everywhere(truce_mechanism mechanism, int least)
{
    uint64_t at,
        stride = (uint64_t)test_scale("TRUCE_TRANSFER_CRASH_STEP", server_under_test() ? 7 : 1);

    for (at = 1; suffer(mechanism, DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 300;
         at += stride) {
        suffer(mechanism, DIE_AFTER, at, NONE, 0);
        suffer(mechanism, LOSE, at, NONE, 0);
        suffer(mechanism, DIE_AFTER, at, DIE_AFTER, 1 + at % 7);
        suffer(mechanism, DIE_BEFORE, at, DIE_BEFORE, 1 + at % 11);
    }
    CHECK_INT(at, >, least);
}

TEST(transfers_once_in_steps_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_JOURNAL, 25);
}

TEST(transfers_once_in_one_step_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_AUTO, 8);
}

/* ---- concurrently with a commit whose owner is dead ------------------------------------------ */

static truce_status pay(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t a = text_id("a"), b = text_id("b");
    bson_t *less = test_bson("{'$inc': {'balance': -5}}"),
           *more = test_bson("{'$inc': {'balance': 5}}");
    truce_status status = truce_commit_update(commit, "accounts", &a, NULL, less, error);

    (void)arg;
    if (!status)
        status = truce_commit_update(commit, "accounts", &b, NULL, more, error);
    bson_destroy(more);
    bson_destroy(less);
    return status;
}

/* Waits for the transfer that the dead commit holds, and ends it: nothing of either is lost. */
static bool beside_dead_commit(uint64_t at)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 5, .deadline_ms = 15};
    struct rig rig;
    bson_error_t error = {0};
    int before = test_failures();
    bool hit;

    rig_open(&rig, TRUCE_MECHANISM_JOURNAL);
    trouble_arm(rig.inner, rig.store, DIE_AFTER, at);
    (void)!truce_transact(rig.store, pay, NULL, &options, &error);
    hit = truce_fault_hits(rig.store) > 0;
    finish(&rig, false);
    finish(&rig, true);
    CHECK_INT(rig_balance(rig.store, "a") + rig_balance(rig.store, "b"), ==, 10);
    CHECK(rig_balance(rig.store, "a") == 7 || rig_balance(rig.store, "a") == 2);
    rig_settled(rig.store);
    if (test_failures() > before)
        fprintf(stderr, "    the commit died at %d\n", (int)at);
    truce_store_close(rig.store);
    return hit;
}

TEST(a_transfer_waits_for_a_document_that_a_dead_commit_holds)
{
    uint64_t at = 1;

    while (beside_dead_commit(at) && !test_failures() && at < 100)
        at++;
    CHECK_INT(at, >, 5);
}

TEST(two_plain_updates_lose_money_and_the_check_finds_it)
{
    struct rig rig;
    bson_t *filter = test_bson("{'_id': 'a'}"), *update = test_bson("{'$inc': {'balance': -3}}");
    bson_error_t error = {0};

    rig_open(&rig, TRUCE_MECHANISM_AUTO);
    trouble_arm(rig.inner, rig.store, DIE_BEFORE, 2);
    CHECK_OK(truce_update(rig.store, "accounts", filter, update, NULL, NULL, &error), error);
    CHECK(truce_update(rig.store, "accounts", filter, update, NULL, NULL, &error));
    trouble_arm(rig.inner, rig.store, NONE, 0);
    CHECK_INT(rig_balance(rig.store, "a") + rig_balance(rig.store, "b"), ==, 7);
    truce_store_close(rig.store);
    bson_destroy(update);
    bson_destroy(filter);
}
