/*
 * Edits, rebases, readers of any version, with holds and without, and collectors, at every
 * interleaving of their store calls, with deaths, lost answers, and calls that land late. Each read
 * shows exactly the publication of one edit; in the end only the current version is left.
 *
 * TRUCE_TREE_TURNS: how many runs of a scene.
 */
#include "tests/support/tree_rig.h"
#include "tests/support/turns.h"

enum part {
    EDIT,
    EDIT_AGAIN,
    REMOVE,
    REBASE,
    READ,
    READ_FIRST,
    FIND,
    HOLD,
    COLLECT,
    COMMIT,
    TWICE
};

struct scene {
    const char *name;
    int clients;
    enum part parts[4];
};

static const struct scene scenes[] = {
    {"two edits, a reader", 3, {EDIT, EDIT_AGAIN, READ}},
    {"two edits, a reader, a collector", 4, {EDIT, REMOVE, READ, COLLECT}},
    {"an edit, a reader of the first version, two collectors",
     4,
     {REMOVE, READ_FIRST, COLLECT, COLLECT}},
    {"an edit, a reader that holds, two collectors", 4, {EDIT, HOLD, COLLECT, COLLECT}},
    {"two edits, a find, a collector", 4, {REMOVE, EDIT, FIND, COLLECT}},
    {"an edit, a rebase, a collector, a reader", 4, {EDIT, REBASE, COLLECT, READ}},
    {"an edit that puts twice, a rebase, a reader", 3, {TWICE, REBASE, READ}},
    {"a commit, an edit, a collector, a reader that holds", 4, {COMMIT, EDIT, COLLECT, HOLD}},
};

/* The items after an edit: each edit puts or removes all items. */
static const char *const left[] = {
    [EDIT] = "a=1 b=1 c=1",   [EDIT_AGAIN] = "a=2 b=2 c=2", [REMOVE] = "a=3 b=3",
    [REBASE] = "a=4 b=4 c=4", [COMMIT] = "a=5 b=5 c=5",     [TWICE] = "a=6 b=6 c=6",
};
static const char *const put[] = {
    [EDIT] = "a=1 b=1 c=1",   [EDIT_AGAIN] = "a=2 b=2 c=2", [REMOVE] = "a=3 b=3 -c",
    [REBASE] = "a=4 b=4 c=4", [COMMIT] = "a=5 b=5 c=5",     [TWICE] = "a=x b=x c=x",
};

struct play {
    const struct scene *scene;
    int64_t published[4]; /* versions; 0: none */
};

static bool is_a_version(const char *seen)
{
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (left[i] && !strcmp(seen, left[i]))
            return true;
    }
    return !strcmp(seen, "a=0 b=0 c=0") || !strcmp(seen, "a=00 b=00 c=00");
}

static void begin(truce_store *store, void *arg)
{
    struct play *play = arg;
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    memset(play->published, 0, sizeof play->published);
    CHECK_OK(rig_publish(tree, "a=00 b=00 c=00", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=0 b=0 c=0", NULL, &error), error);
    rig_keep(tree, 1);
    truce_tree_free(tree);
}

/* ---- the clients ----------------------------------------------------------------------------- */

/* Puts the same items again, each time after the first put of another one is stored. */
static truce_status put_twice(truce_tree_edit *edit, bson_error_t *error)
{
    static const char *const values[] = {"y", "6"};
    truce_status status = truce_tree_flush(edit, error);

    for (int i = 0; i < 2; i++) {
        for (const char *item = "abc"; !status && *item; item++) {
            char json[80];

            snprintf(json, sizeof json, "{'itemId': '%c', 'text': '%s'}", *item, values[i]);
            status = rig_put(edit, json, error);
        }
        if (!status)
            status = truce_tree_flush(edit, error);
    }
    return status;
}

static truce_status publish(truce_tree *tree, enum part part, int64_t *version, bson_error_t *error)
{
    truce_tree_rebase_options mine = {.prefer = TRUCE_TREE_MINE};
    truce_tree_published published = {0};
    truce_tree_edit *edit;
    truce_status status = rig_edit(tree, put[part], &edit, error);

    if (!status && part == TWICE)
        status = put_twice(edit, error);
    if (!status)
        status = truce_tree_publish(edit, NULL, &published, error);
    while (part == REBASE && status == TRUCE_CONFLICT) {
        status = truce_tree_rebase(edit, &mine, NULL, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, &published, error);
    }
    *version = status ? 0 : published.version;
    truce_tree_edit_free(edit);
    return status == TRUCE_CONFLICT && part != REBASE ? TRUCE_OK : status;
}

struct reported {
    truce_tree_edit *edit;
    truce_tree_published published;
};

static truce_status publish_in(truce_commit *commit, void *arg, bson_error_t *error)
{
    struct reported *reported = arg;
    bson_t *document = test_bson("{'_id': 'news'}");
    truce_status status = truce_tree_publish(reported->edit, commit, &reported->published, error);

    if (!status)
        status = truce_commit_insert(commit, "news", document, error);
    bson_destroy(document);
    return status;
}

static truce_status publish_by_commit(truce_tree *tree, truce_store *store, int64_t *version,
                                      bson_error_t *error)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 5};
    struct reported reported = {0};
    truce_status status = rig_edit(tree, put[COMMIT], &reported.edit, error);

    if (!status)
        status = truce_transact(store, publish_in, &reported, &options, error);
    *version = status ? 0 : reported.published.version;
    truce_tree_edit_free(reported.edit);
    return status == TRUCE_REFUSED ? TRUCE_OK : status;
}

static truce_status look(truce_tree *tree, enum part part, bson_error_t *error)
{
    truce_tree_at at = {.version = part == READ_FIRST ? 1
                                   : part == HOLD     ? 2
                                                      : 0,
                        .hold = part == HOLD};
    bson_t *filter = test_bson("{'text': {'$gte': ''}}"), *sort = test_bson("{'itemId': 1}");
    truce_tree_find_options sorted = {.sort = sort};
    truce_tree_snapshot *snapshot;
    truce_status status = truce_tree_open(tree, &at, &snapshot, error);
    bool open = !status;

    for (int i = 0; !status && i < 2; i++) {
        struct rig_text seen = {{0}};

        status = truce_tree_find(snapshot, part == FIND ? filter : NULL,
                                 part == FIND ? &sorted : NULL, rig_append, &seen, error);
        if (!status && !is_a_version(seen.text))
            test_fail(__FILE__, __LINE__, "a reader saw %s", seen.text);
        if (!status && part == READ_FIRST)
            CHECK_TEXT("a=00 b=00 c=00", seen.text);
    }
    if (open && part == HOLD && status == TRUCE_EXPIRED)
        test_fail(__FILE__, __LINE__, "a reader that holds was cut off: %s", error->message);
    truce_tree_close(snapshot);
    bson_destroy(sort);
    bson_destroy(filter);
    return status == TRUCE_EXPIRED ? TRUCE_OK : status;
}

static void client(truce_store *store, int number, void *arg)
{
    struct play *play = arg;
    enum part part = play->scene->parts[number];
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};
    truce_status status;

    if (part == COLLECT)
        status = truce_tree_collect(tree, NULL, &error);
    else if (part == COMMIT)
        status = publish_by_commit(tree, store, &play->published[number], &error);
    else if (put[part])
        status = publish(tree, part, &play->published[number], &error);
    else
        status = look(tree, part, &error);
    if (status && status != TRUCE_UNKNOWN && !turns_is_dead(store))
        test_fail(__FILE__, __LINE__, "a live client failed: %s", error.message);
    truce_tree_free(tree);
}

/* ---- the checks ------------------------------------------------------------------------------ */

/* A dead reader's hold ends with its lease. */
static void drop_holds(truce_store *store)
{
    bson_t *all = bson_new();
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    CHECK_OK(truce_remove(store, "truce_tree_holds", all, &many, NULL, &error), error);
    bson_destroy(all);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    const struct play *play = arg;
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct rig_text seen;
    bson_error_t error = {0};

    (void)crashed;
    for (int i = 0; i < play->scene->clients; i++) {
        if (!play->published[i])
            continue;
        CHECK(play->published[i] > 2);
        if (!rig_see(tree, play->published[i], &seen, &error))
            CHECK_TEXT(left[play->scene->parts[i]], seen.text);
        for (int j = 0; j < i; j++)
            CHECK(play->published[i] != play->published[j]);
    }
    drop_holds(store);
    for (int i = 0; i < 3; i++)
        rig_collect(tree, NULL);
    CHECK_OK(rig_see(tree, 0, &seen, &error), error);
    CHECK(is_a_version(seen.text));
    truce_tree_free(tree);
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

        CHECK_INT(turns_explore(&run, most, test_seed(), NULL), >, 0);
        if (test_failures())
            fprintf(stderr, "    %s\n", scenes[i].name);
    }
}

TEST(reads_show_a_published_version_at_any_interleaving)
{
    explore((struct turns_budget){0, 0, 0}, test_scale("TRUCE_TREE_TURNS", 300));
}

TEST(reads_show_a_published_version_with_deaths_and_late_calls)
{
    explore((struct turns_budget){1, 1, 1}, test_scale("TRUCE_TREE_TURNS", 300));
}
