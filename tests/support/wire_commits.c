#include "tests/support/wire_commits.h"

#include "base/clock.h"
#include "tests/support/bank.h"

static void prepare_accounts(truce_store *store)
{
    wire_clear(store, "accounts");
    wire_clear(store, "truce_commits");
    insert_json(store, "accounts", "{'_id': 'a', 'n': 10}");
    insert_json(store, "accounts", "{'_id': 'b', 'n': 0}");
    insert_json(store, "accounts", "{'_id': 'd', 'n': 0}");
}

static truce_status move(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_value_t d = text_id("d");
    bson_t *inserted = test_bson("{'_id': 'c', 'n': 1}");
    truce_status status = add_update(commit, "accounts", "a", NULL, "{'$inc': {'n': -5}}", error);

    (void)arg;
    if (!status)
        status = add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 5}}", error);
    if (!status)
        status = truce_commit_insert(commit, "accounts", inserted, error);
    if (!status)
        status = truce_commit_remove(commit, "accounts", &d, NULL, error);
    bson_destroy(inserted);
    return status;
}

static truce_status move_by(truce_store *store, truce_mechanism mechanism, const char *key,
                            bson_error_t *error)
{
    truce_commit_options options = {
        .mechanism = mechanism, .lease_ms = 200, .deadline_ms = 6000, .key = key};

    options.key_time_ms = key ? 1700000000000 : 0;
    return truce_transact(store, move, NULL, &options, error);
}

static truce_status move_by_journal(truce_store *store, bson_error_t *error)
{
    return move_by(store, TRUCE_MECHANISM_JOURNAL, NULL, error);
}

static truce_status move_natively(truce_store *store, bson_error_t *error)
{
    return move_by(store, TRUCE_MECHANISM_NATIVE, NULL, error);
}

void wire_sweep(truce_store *store)
{
    truce_sweep_options options = {.retention_ms = -1};
    truce_sweep_report report;
    bson_error_t error = {0};

    for (int i = 0; i < 40 && (i == 0 || count_json(store, "truce_commits",
                                                    "{'state': {'$in': ["
                                                    "'pending', 'committed']}}"));
         i++) {
        truce__clock_sleep_ms(i ? 50 : 0);
        CHECK_OK(truce_sweep(store, &options, &report, &error), error);
    }
    CHECK_OK(truce_sweep(store, &options, &report, &error), error);
}

/* Checks that the commit took effect as a whole or not at all, as reported, and that no intent is
 * left. */
static void check_moved(truce_store *store, truce_status reported)
{
    int64_t a, b, c, d;

    wire_sweep(store);
    a = count_json(store, "accounts", "{'_id': 'a', 'n': 5}");
    b = count_json(store, "accounts", "{'_id': 'b', 'n': 5}");
    c = count_json(store, "accounts", "{'_id': 'c'}");
    d = count_json(store, "accounts", "{'_id': 'd'}");
    CHECK_INT(a, ==, b);
    CHECK_INT(a, ==, c);
    CHECK_INT(a, ==, 1 - d);
    CHECK_INT(a + count_json(store, "accounts", "{'_id': 'a', 'n': 10}"), ==, 1);
    CHECK_INT(count_json(store, "accounts", "{'_intent': {'$exists': true}}"), ==, 0);
    if (reported == TRUCE_OK)
        CHECK_INT(a, ==, 1);
    else if (reported != TRUCE_UNKNOWN && reported != TRUCE_IO)
        CHECK_INT(a, ==, 0);
}

/* With a key, the caller repeats the request until it knows the outcome. */
static truce_status move_with_key(truce_store *store, bson_error_t *error)
{
    truce_status status = TRUCE_UNKNOWN;

    for (int i = 0; i < 5 && (status == TRUCE_UNKNOWN || status == TRUCE_IO); i++)
        status = move_by(store, TRUCE_MECHANISM_AUTO, "move 1", error);
    return status;
}

static void check_moved_once(truce_store *store, truce_status reported)
{
    CHECK_INT(reported, ==, TRUCE_OK);
    check_moved(store, reported);
}

static truce_status increment(truce_commit *commit, void *arg, bson_error_t *error)
{
    (void)arg;
    return add_update(commit, "accounts", "b", NULL, "{'$inc': {'n': 1}}", error);
}

static truce_status increment_one(truce_store *store, bson_error_t *error)
{
    truce_commit_options options = {.deadline_ms = 6000};

    return truce_transact(store, increment, NULL, &options, error);
}

static void check_incremented(truce_store *store, truce_status reported)
{
    int64_t done = count_json(store, "accounts", "{'_id': 'b', 'n': 1}");

    CHECK_INT(done + count_json(store, "accounts", "{'_id': 'b', 'n': 0}"), ==, 1);
    if (reported == TRUCE_OK)
        CHECK_INT(done, ==, 1);
    else if (reported != TRUCE_UNKNOWN && reported != TRUCE_IO)
        CHECK_INT(done, ==, 0);
}

const struct wire_operation wire_commits[WIRE_COMMITS] = {
    [WIRE_JOURNAL] = {"journal", 0, prepare_accounts, move_by_journal, check_moved},
    [WIRE_NATIVE] = {"native", TRUCE_CAN_ATOMIC_BULK, prepare_accounts, move_natively, check_moved},
    [WIRE_KEY] = {"key", 0, prepare_accounts, move_with_key, check_moved_once},
    [WIRE_ONE] = {"one document", 0, prepare_accounts, increment_one, check_incremented},
};
