/*
 * Renames, plain ones too, concurrently with inserts, moves there and back, and a recovery pass.
 * They run at every interleaving of their store calls, with deaths, lost answers, and calls that
 * land late. One recovery pass later every copy equals its source.
 *
 * TRUCE_SYNC_TURNS: how many runs of a scene.
 */
#include "tests/support/sync_rig.h"
#include "tests/support/turns.h"

enum part { RENAME, RENAME_AGAIN, PLAIN, INSERT, MOVE, SWEEP, READ, CREATE_AGAIN };

struct scene {
    const char *name;
    int clients;
    enum part parts[4];
};

static const struct scene scenes[] = {
    {"two renames", 2, {RENAME, RENAME_AGAIN}},
    {"two renames and an insert", 3, {RENAME, RENAME_AGAIN, INSERT}},
    {"two renames, a move there and back", 3, {RENAME, RENAME_AGAIN, MOVE}},
    {"a rename, an insert, a move, a sweep", 4, {RENAME, INSERT, MOVE, SWEEP}},
    {"a plain rename next to ours, an insert, a sweep", 4, {RENAME, PLAIN, INSERT, SWEEP}},
    {"plain renames next to a reader and a sweep", 4, {PLAIN, PLAIN, READ, SWEEP}},
    {"a rename of a source that is created again", 2, {RENAME, CREATE_AGAIN}},
};

struct play {
    const struct scene *scene;
    truce_status reported[4];
};

static void begin(truce_store *store, void *arg)
{
    truce_sync *sync = rig_sync(store, TRUCE_MECHANISM_JOURNAL, 0);
    truce_sync_walk_options repair = {.repair = true};
    truce_sync_report report;
    bson_error_t error = {0};

    (void)arg;
    insert_json(store, "users", "{'_id': 'u', 'name': 'n0'}");
    insert_json(store, "users", "{'_id': 'v', 'name': 'm0'}");
    insert_json(store, "comments", "{'_id': 'c1', 'user': 'u', 'author': 'n0'}");
    insert_json(store, "comments", "{'_id': 'c2', 'user': 'u', 'author': 'old'}");
    rig_author(sync);
    /* c2 gets a stamp without an origin, so a batch skips it. */
    CHECK_OK(truce_sync_walk(sync, "author", &repair, &report, &error), error);
    CHECK_INT(report.repaired, ==, 1);
    truce_sync_free(sync);
}

static truce_status rename_plainly(truce_store *store, int number, bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", "u"), *update;
    char name[20];
    truce_status status;

    snprintf(name, sizeof name, "plain%d", number);
    update = BCON_NEW("$set", "{", "name", BCON_UTF8(name), "syncing", BCON_BOOL(true), "}");
    status = truce_update(store, "users", filter, update, NULL, NULL, error);
    bson_destroy(update);
    bson_destroy(filter);
    return status;
}

/* Removes the source, unless a commit holds it, and inserts another one with the same _id. */
static truce_status create_again(truce_sync *sync, truce_store *store, bson_error_t *error)
{
    bson_t *filter = test_bson("{'_id': 'u', '_intent': {'$exists': false}}");
    truce_write_result result = {0};
    truce_status status = truce_remove(store, "users", filter, NULL, &result, error);

    if (!status && result.removed)
        status = rig_insert(sync, "users", "{'_id': 'u', 'name': 'again'}", NULL, error);
    truce_write_result_release(&result);
    bson_destroy(filter);
    return status;
}

/* Reconciles the copies that a recovery pass finds. */
static truce_status settle_all(truce_sync *sync, bson_error_t *error)
{
    bson_value_t u = text_id("u"), ids[] = {text_id("c1"), text_id("c3")};
    truce_status status = truce_sync_reconcile(sync, "users", &u, NULL, error);

    for (int i = 0; !status && i < 2; i++)
        status = truce_sync_reconcile(sync, "comments", &ids[i], NULL, error);
    return status;
}

static truce_status act(truce_sync *sync, truce_store *store, enum part part, int number,
                        bson_error_t *error)
{
    bson_value_t c1 = text_id("c1");
    truce_status status;
    bson_t found;

    switch (part) {
    case RENAME:
        status = rig_change(sync, "users", "u", "{'$set': {'name': 'n1'}}", NULL, error);
        return status == TRUCE_NOT_FOUND ? TRUCE_OK : status; /* it may be removed */
    case RENAME_AGAIN:
        return rig_change(sync, "users", "u", "{'$set': {'name': 'n2'}}", NULL, error);
    case PLAIN:
        return rename_plainly(store, number, error);
    case INSERT:
        return rig_insert(sync, "comments", "{'_id': 'c3', 'user': 'u'}", NULL, error);
    case MOVE:
        status = rig_change(sync, "comments", "c1", "{'$set': {'user': 'v'}}", NULL, error);
        return status ? status
                      : rig_change(sync, "comments", "c1", "{'$set': {'user': 'u'}}", NULL, error);
    case SWEEP:
        return settle_all(sync, error);
    case CREATE_AGAIN:
        return create_again(sync, store, error);
    default:
        status = truce_sync_read(sync, "comments", &c1, &found, error);
        bson_destroy(&found);
        return status;
    }
}

static void client(truce_store *store, int number, void *arg)
{
    struct play *play = arg;
    truce_sync *sync = rig_sync(store, TRUCE_MECHANISM_JOURNAL, 0);
    bson_error_t error = {0};
    truce_status status = act(sync, store, play->scene->parts[number], number, &error);

    play->reported[number] = status;
    if (status && status != TRUCE_UNKNOWN && !turns_is_dead(store))
        test_fail(__FILE__, __LINE__, "a live client failed: %s", error.message);
    truce_sync_free(sync);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    truce_sync *sync = rig_sync(store, TRUCE_MECHANISM_JOURNAL, 0);
    const struct play *play = arg;

    (void)crashed;
    rig_sweep(store);
    rig_in_step(sync, store, "author");
    for (int i = 0; i < play->scene->clients; i++) {
        if (play->scene->parts[i] == INSERT && play->reported[i] == TRUCE_OK)
            CHECK_INT(count_json(store, "comments", "{'_id': 'c3'}"), ==, 1);
    }
    truce_sync_free(sync);
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

TEST(copies_end_consistent_at_any_interleaving)
{
    explore((struct turns_budget){0, 0, 0}, test_scale("TRUCE_SYNC_TURNS", 300));
}

TEST(copies_end_consistent_with_deaths_and_late_calls)
{
    explore((struct turns_budget){1, 1, 1}, test_scale("TRUCE_SYNC_TURNS", 300));
}
