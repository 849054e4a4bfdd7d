/*
 * A branch and its origin: merges either way, edits of both, collectors, erase, another branch, and
 * a drop. They run at every interleaving of their store calls, with deaths, lost answers, and calls
 * that land late. In the end each change is stored once on both sides, no merge has reported a
 * false conflict, and erased items are nowhere.
 *
 * TRUCE_TREE_TURNS: how many runs of a scene.
 */
#include "tests/support/tree_rig.h"
#include "tests/support/turns.h"

enum part { PUSH, PULL, EDIT_SITE, EDIT_DRAFT, COLLECT_SITE, COLLECT_DRAFT, ERASE, BRANCH, DROP };

struct scene {
    const char *name;
    int clients;
    enum part parts[4];
};

static const struct scene scenes[] = {
    {"both ways", 2, {PUSH, PULL}},
    {"both ways, two collectors", 4, {PUSH, PULL, COLLECT_SITE, COLLECT_DRAFT}},
    {"both ways, two edits", 4, {PUSH, PULL, EDIT_SITE, EDIT_DRAFT}},
    {"two of one way, an edit, a collector", 4, {PUSH, PUSH, EDIT_DRAFT, COLLECT_DRAFT}},
    {"two of the other way, an edit, a collector", 4, {PULL, PULL, EDIT_SITE, COLLECT_SITE}},
    {"a merge, erase", 2, {PULL, ERASE}},
    {"another branch, erase", 2, {BRANCH, ERASE}},
    {"a merge, a drop", 2, {PUSH, DROP}},
};

struct play {
    const struct scene *scene;
    bool journal;
    bool done[4];
};

static truce_tree *named(truce_store *store, const char *name)
{
    return truce_tree_new(store, &(truce_tree_options){.name = name});
}

static bool has(const struct play *play, enum part part)
{
    for (int i = 0; i < play->scene->clients; i++) {
        if (play->scene->parts[i] == part)
            return true;
    }
    return false;
}

static bool did(const struct play *play, enum part part)
{
    for (int i = 0; i < play->scene->clients; i++) {
        if (play->scene->parts[i] == part && play->done[i])
            return true;
    }
    return false;
}

/* The item e is in the origin alone, since the branch was made. */
static void begin(truce_store *store, void *arg)
{
    struct play *play = arg;
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_error_t error = {0};

    memset(play->done, 0, sizeof play->done);
    CHECK_OK(rig_publish(site, "a=0 b=0 c=0", NULL, &error), error);
    CHECK_OK(truce_tree_branch(site, NULL, "draft", &error), error);
    CHECK_OK(rig_publish(draft, "b=d", NULL, &error), error);
    CHECK_OK(rig_publish(site, "a=s e=secret", NULL, &error), error);
    rig_keep(site, 1);
    rig_keep(draft, 1);
    truce_tree_free(draft);
    truce_tree_free(site);
}

static truce_status erase(truce_tree *tree, bson_error_t *error)
{
    bson_value_t id = text_id("e");
    int64_t versions;

    return truce_tree_erase(tree, &id, &versions, error);
}

static truce_status act(truce_tree *site, truce_tree *draft, enum part part, bson_error_t *error)
{
    switch (part) {
    case PUSH:
        return truce_tree_merge(site, "draft", NULL, NULL, NULL, error);
    case PULL:
        return truce_tree_merge(draft, "site", NULL, NULL, NULL, error);
    case EDIT_SITE:
        return rig_publish(site, "c=s", NULL, error);
    case EDIT_DRAFT:
        return rig_publish(draft, "d=d", NULL, error);
    case COLLECT_SITE:
        return truce_tree_collect(site, NULL, error);
    case COLLECT_DRAFT:
        return truce_tree_collect(draft, NULL, error);
    case ERASE:
        return erase(site, error);
    case BRANCH:
        return truce_tree_branch(site, NULL, "deep", error);
    case DROP:
        return truce_tree_drop(draft, error);
    }
    return TRUCE_INVALID;
}

static bool may_fail(const struct play *play, enum part part, truce_status status)
{
    if (status == TRUCE_UNKNOWN)
        return true;
    if (part == EDIT_SITE || part == EDIT_DRAFT)
        return status == TRUCE_CONFLICT;
    return has(play, DROP) && status == TRUCE_NOT_FOUND;
}

static void client(truce_store *store, int number, void *arg)
{
    struct play *play = arg;
    enum part part = play->scene->parts[number];
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_error_t error = {0};
    truce_status status;

    if (play->journal)
        store->capabilities &= ~TRUCE_CAN_ATOMIC_BULK;
    status = act(site, draft, part, &error);
    play->done[number] = !status;
    if (status && !turns_is_dead(store) && !may_fail(play, part, status))
        test_fail(__FILE__, __LINE__, "client %d failed: %s", number, error.message);
    truce_tree_free(draft);
    truce_tree_free(site);
}

/* ---- the checks ------------------------------------------------------------------------------ */

/* A dead reader's hold ends with its lease. */
static void drop_holds(truce_store *store)
{
    bson_t *all = test_bson("{'branch': {'$exists': false}}");
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    CHECK_OK(truce_remove(store, "truce_tree_holds", all, &many, NULL, &error), error);
    bson_destroy(all);
}

static void check_item(const struct rig_text *seen, const char *before, const char *after,
                       bool certain, bool possible)
{
    bool is_after = strstr(seen->text, after) != NULL;

    CHECK(is_after || !before || strstr(seen->text, before));
    if ((certain && !is_after) || (!possible && is_after))
        test_fail(__FILE__, __LINE__, "%s is wrong in %s", after, seen->text);
}

static void judge_merged(truce_store *store, const struct play *play)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    struct rig_text seen[2];
    bson_error_t error = {0};

    for (int i = 0; i < 3; i++) {
        rig_collect(site, NULL);
        rig_collect(draft, NULL);
    }
    CHECK_OK(truce_tree_merge(site, "draft", NULL, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_merge(draft, "site", NULL, NULL, NULL, &error), error);
    CHECK_OK(rig_see(site, 0, &seen[0], &error), error);
    CHECK_OK(rig_see(draft, 0, &seen[1], &error), error);
    CHECK_TEXT(seen[0].text, seen[1].text);
    check_item(&seen[0], NULL, "a=s", true, true);
    check_item(&seen[0], NULL, "b=d", true, true);
    check_item(&seen[0], "c=0", "c=s", did(play, EDIT_SITE), has(play, EDIT_SITE));
    check_item(&seen[0], NULL, "d=d", did(play, EDIT_DRAFT), has(play, EDIT_DRAFT));
    truce_tree_free(draft);
    truce_tree_free(site);
}

static void end(truce_store *store, const bool *crashed, void *arg)
{
    const struct play *play = arg;
    truce_sweep_report report;
    bson_error_t error = {0};

    (void)crashed;
    drop_holds(store);
    if (!has(play, DROP))
        judge_merged(store, play);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    if (did(play, DROP))
        CHECK_INT(count_json(store, "truce_trees", "{'_id': 'draft'}"), ==, 0);
    /* a client that merged or branched, and died, had seen the erased item: it may have returned
     * with an edit that belongs to no version */
    if (did(play, ERASE) && (did(play, PULL) || did(play, BRANCH)))
        CHECK_INT(count_json(store, "pages", "{'text': 'secret'}"), ==, 0);
}

static void explore(struct turns_budget budget, bool journal, long most)
{
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes && !test_failures(); i++) {
        struct play play = {.scene = &scenes[i], .journal = journal};
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

TEST(a_change_is_stored_once_on_both_sides_at_any_interleaving)
{
    explore((struct turns_budget){0, 0, 0}, false, test_scale("TRUCE_TREE_TURNS", 200));
}

TEST(a_change_is_stored_once_on_both_sides_by_the_journal)
{
    explore((struct turns_budget){0, 0, 0}, true, test_scale("TRUCE_TREE_TURNS", 200));
}

TEST(stores_a_change_once_on_both_sides_despite_crashes)
{
    explore((struct turns_budget){1, 1, 1}, false, test_scale("TRUCE_TREE_TURNS", 200));
}
