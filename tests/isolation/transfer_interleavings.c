/*
 * Two transfers a -> b -> c of one unit, step by step: one client starts one, another continues it,
 * and another cancels it. They run at every interleaving of their store calls, with deaths, lost
 * answers, and calls that land late. Then a last client ends both: each is made whole or not at
 * all, no balance is ever below zero, no mark is left.
 *
 * TRUCE_TRANSFER_TURNS: how many runs of a scene.
 */
#include "tests/support/transfer_rig.h"
#include "tests/support/turns.h"

enum part { START_FIRST, START_SECOND, RESUME_FIRST, CANCEL_FIRST, CANCEL_SECOND };

struct scene {
    const char *name;
    int a, b; /* balances at the beginning */
    int clients;
    enum part parts[4];
};

static const struct scene scenes[] = {
    {"two start and one cancels", 1, 0, 3, {START_FIRST, START_FIRST, CANCEL_FIRST}},
    {"one starts, two go on, one cancels",
     1,
     0,
     4,
     {START_FIRST, RESUME_FIRST, RESUME_FIRST, CANCEL_FIRST}},
    {"what is taken back cannot be spent",
     1,
     0,
     4,
     {START_FIRST, START_SECOND, CANCEL_FIRST, RESUME_FIRST}},
    {"both are canceled", 1, 1, 4, {START_FIRST, START_SECOND, CANCEL_FIRST, CANCEL_SECOND}},
};

struct play {
    const struct scene *scene;
    truce_status reported[4];
};

static void begin(truce_store *store, void *arg)
{
    const struct play *play = arg;

    rig_account(store, "a", play->scene->a);
    rig_account(store, "b", play->scene->b);
    rig_account(store, "c", 0);
}

static truce_status act(truce_transfers *transfers, enum part part, bson_error_t *error)
{
    bson_value_t first = text_id("t1"), second = text_id("t2");

    switch (part) {
    case START_FIRST:
        return rig_move(transfers, "t1", "a", "b", 1, NULL, error);
    case START_SECOND:
        return rig_move(transfers, "t2", "b", "c", 1, NULL, error);
    case RESUME_FIRST:
        return truce_transfer_resume(transfers, &first, error);
    case CANCEL_FIRST:
        return truce_transfer_cancel(transfers, &first, error);
    default:
        return truce_transfer_cancel(transfers, &second, error);
    }
}

static void client(truce_store *store, int number, void *arg)
{
    struct play *play = arg;
    truce_transfers *transfers = rig_transfers(store, TRUCE_MECHANISM_JOURNAL);
    bson_error_t error = {0};
    truce_status status = act(transfers, play->scene->parts[number], &error);

    play->reported[number] = status;
    if (status && status != TRUCE_REFUSED && status != TRUCE_NOT_FOUND && status != TRUCE_UNKNOWN &&
        !turns_is_dead(store))
        test_fail(__FILE__, __LINE__, "a live client failed: %s", error.message);
    truce_transfers_free(transfers);
}

/* Checks that every outcome that was reported to a client stays so. */
static void check_reported(const struct play *play, const char *first, const char *second)
{
    for (int i = 0; i < play->scene->clients; i++) {
        enum part part = play->scene->parts[i];
        const char *state = part == START_SECOND || part == CANCEL_SECOND ? second : first;
        bool cancels = part == CANCEL_FIRST || part == CANCEL_SECOND;

        if (play->reported[i] == TRUCE_OK)
            CHECK_TEXT(cancels ? "canceled" : "done", state);
        else if (play->reported[i] == TRUCE_REFUSED)
            CHECK_TEXT(cancels ? "done" : "canceled", state);
    }
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    const struct play *play = arg;
    truce_transfers *transfers = rig_transfers(store, TRUCE_MECHANISM_JOURNAL);
    char first[20], second[20];
    int one, two;

    (void)crashed;
    for (int i = 0; i < 2; i++) {
        bson_value_t id = text_id(i ? "t2" : "t1");
        bson_error_t error = {0};
        truce_status status = truce_transfer_resume(transfers, &id, &error);

        if (status && status != TRUCE_REFUSED && status != TRUCE_NOT_FOUND)
            test_fail(__FILE__, __LINE__, "no other client runs, and still: %s", error.message);
    }
    rig_state(store, "t1", first);
    rig_state(store, "t2", second);
    one = !strcmp(first, "done");
    two = !strcmp(second, "done");
    CHECK_INT(rig_balance(store, "a"), ==, play->scene->a - one);
    CHECK_INT(rig_balance(store, "b"), ==, play->scene->b + one - two);
    CHECK_INT(rig_balance(store, "c"), ==, two);
    CHECK_INT(count_json(store, "accounts", "{'balance': {'$lt': 0}}"), ==, 0);
    CHECK_INT(count_json(store, "accounts", "{'pendingTransactions.0': {'$exists': true}}"), ==, 0);
    check_reported(play, first, second);
    truce_transfers_free(transfers);
}

static void explore(struct turns_budget budget, long most)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes && !test_failures(); i++) {
        struct play play = {.scene = &scenes[i]};
        struct turns_run run = {.clients = scenes[i].clients,
                                .client = client,
                                .begin = begin,
                                .end = end,
                                .arg = &play,
                                .budget = budget};

        memset(play.reported, -1, sizeof play.reported);
        CHECK_INT(turns_explore(&run, most, test_seed(), NULL), >, 0);
        if (test_failures())
            fprintf(stderr, "    %s\n", scenes[i].name);
    }
}

TEST(transfers_are_whole_at_any_interleaving)
{
    explore((struct turns_budget){0, 0, 0}, test_scale("TRUCE_TRANSFER_TURNS", 400));
}

TEST(transfers_are_whole_with_deaths_and_late_calls)
{
    explore((struct turns_budget){1, 1, 1}, test_scale("TRUCE_TRANSFER_TURNS", 400));
}
