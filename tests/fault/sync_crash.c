/*
 * A process dies at every store call of a rename, an insert, and a move, before or after the call's
 * effect, and again in the second life. In further runs every single answer is lost. One recovery
 * pass later every copy equals its source.
 */
#include "tests/support/sync_rig.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *store;
    truce_mechanism mechanism;
};

static void rig_open(struct rig *rig, truce_mechanism mechanism)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();
    truce_sync *sync = rig_sync(memory, mechanism, 0);
    bson_error_t error = {0};

    insert_json(memory, "users", "{'_id': 'u', 'name': 'n0'}");
    insert_json(memory, "users", "{'_id': 'v', 'name': 'm0'}");
    insert_json(memory, "comments", "{'_id': 'c1', 'user': 'u', 'author': 'n0'}");
    insert_json(memory, "comments", "{'_id': 'c2', 'user': 'u', 'author': 'n0'}");
    insert_json(memory, "comments", "{'_id': 'c3', 'user': 'v', 'author': 'm0'}");
    insert_json(memory, "likes", "{'_id': 'l1', 'comment': 'c1', 'author': 'n0'}");
    rig_author(sync);
    CHECK_OK(
        rig_declare(sync, "liked", "comments", "likes", "comment", "{'author': 'author'}", &error),
        error);
    truce_sync_free(sync);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
    rig->mechanism = mechanism;
}

static truce_status life(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_sync *sync = rig_sync(rig->store, rig->mechanism, deadline_ms);
    truce_status status = rig_change(sync, "users", "u", "{'$set': {'name': 'n1'}}", NULL, error);

    if (!status)
        status = rig_insert(sync, "comments", "{'_id': 'c4', 'user': 'u'}", NULL, error);
    if (!status || status == TRUCE_DUPLICATE)
        status = rig_change(sync, "comments", "c1", "{'$set': {'user': 'v'}}", NULL, error);
    truce_sync_free(sync);
    return status;
}

/* Checks what a recovery pass repairs, whichever process died where, before any process
 * continues. */
static void judge(struct rig *rig)
{
    truce_sync *sync = rig_sync(rig->store, rig->mechanism, 0);
    truce_sync_report report;
    bson_error_t error = {0};

    trouble_arm(rig->inner, rig->store, NONE, 0);
    rig_sweep(rig->store);
    rig_in_step(sync, rig->store, "author");
    CHECK_OK(truce_sync_walk(sync, "liked", NULL, &report, &error), error);
    CHECK_INT(report.differ + report.under_way, ==, 0);
    truce_sync_free(sync);
}

static void finish(struct rig *rig)
{
    bson_error_t error = {0};

    CHECK_OK(life(rig, 20000, &error), error);
    judge(rig);
    CHECK_INT(count_json(rig->store, "comments", "{'user': 'u', 'author': 'n1'}"), ==, 2);
    CHECK_INT(count_json(rig->store, "comments", "{'user': 'v', 'author': 'm0'}"), ==, 2);
    CHECK_INT(count_json(rig->store, "likes", "{'author': 'm0'}"), ==, 1);
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
    (void)!life(&rig, 15, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        truce_sweep_report report;

        trouble_arm(rig.inner, rig.store, second, then);
        (void)!truce_sweep(rig.store, NULL, &report, &error);
    }
    judge(&rig);
    finish(&rig);
    if (test_failures() > before)
        fprintf(stderr, "    %s at %d, then %d at %d\n", first == LOSE ? "lost" : "died", (int)at,
                (int)second, (int)then);
    truce_store_close(rig.store);
    return hit;
}

static void suffer_everywhere(truce_mechanism mechanism)
{
    uint64_t at,
        stride = (uint64_t)test_scale("TRUCE_SYNC_CRASH_STEP", server_under_test() ? 11 : 1);

    for (at = 1; suffer(mechanism, DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 300;
         at += stride) {
        suffer(mechanism, DIE_AFTER, at, NONE, 0);
        suffer(mechanism, LOSE, at, NONE, 0);
        suffer(mechanism, DIE_AFTER, at, DIE_AFTER, 1 + at % 17);
        suffer(mechanism, DIE_BEFORE, at, DIE_BEFORE, 1 + at % 29);
    }
    CHECK_INT(at, >, 30);
}

TEST(reconciles_copies_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_AUTO);
}

TEST(reconciles_copies_by_journal_after_a_crash_at_any_call)
{
    suffer_everywhere(TRUCE_MECHANISM_JOURNAL);
}

/* ---- concurrently with a commit whose owner is dead ------------------------------------------ */

static truce_status edit(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t c1 = text_id("c1"), u = text_id("u");
    bson_t *update = test_bson("{'$set': {'edited': true}}");
    truce_status status = truce_commit_update(commit, "comments", &c1, NULL, update, error);

    (void)arg;
    if (!status)
        status = truce_commit_update(commit, "users", &u, NULL, update, error);
    bson_destroy(update);
    return status;
}

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
    (void)!truce_transact(rig.store, edit, NULL, &options, &error);
    hit = truce_fault_hits(rig.store) > 0;
    trouble_arm(rig.inner, rig.store, NONE, 0);
    finish(&rig);
    CHECK_INT(count_json(rig.store, "comments", "{'edited': true}"), ==,
              count_json(rig.store, "users", "{'edited': true}"));
    if (test_failures() > before)
        fprintf(stderr, "    the commit died at %d\n", (int)at);
    truce_store_close(rig.store);
    return hit;
}

TEST(a_copy_waits_for_a_document_that_a_dead_commit_holds)
{
    uint64_t at = 1;

    while (beside_dead_commit(at) && !test_failures() && at < 100)
        at++;
    CHECK_INT(at, >, 5);
}

/* The copy is not written as long as the commit may still be alive. */
TEST(skips_a_document_that_a_silent_commit_holds)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 3600000, .deadline_ms = 15};
    truce_sync_result result = {0};
    struct rig rig;
    bson_error_t error = {0};
    truce_sync *sync;
    uint64_t at = 0;

    do {
        if (at)
            truce_store_close(rig.store);
        rig_open(&rig, TRUCE_MECHANISM_JOURNAL);
        trouble_arm(rig.inner, rig.store, DIE_AFTER, ++at);
        (void)!truce_transact(rig.store, edit, NULL, &options, &error);
        trouble_arm(rig.inner, rig.store, NONE, 0);
    } while (at < 20 && !count_json(rig.store, "comments", "{'_intent': {'$exists': true}}"));
    CHECK_INT(count_json(rig.store, "comments", "{'_id': 'c1', '_intent': {'$exists': true}}"), ==,
              1);
    CHECK_INT(count_json(rig.store, "users", "{'_intent': {'$exists': true}}"), ==, 0);
    sync = rig_sync(rig.store, TRUCE_MECHANISM_AUTO, 2000);
    CHECK_OK(truce_sync_drop(sync, "liked", &error), error); /* it would wait, too */
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'n1'}}", &result, &error), error);
    CHECK(!result.settled);
    CHECK_INT(count_json(rig.store, "comments", "{'_id': 'c1', 'author': 'n0'}"), ==, 1);
    truce_sync_free(sync);
    truce_store_close(rig.store);
}
