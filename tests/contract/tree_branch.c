/*
 * Branches of trees: their start, merges both ways, drop, and erase across them. Long random
 * histories are checked against the three-way merge of maps.
 *
 * TRUCE_TREE_BRANCH_STEPS: of a random history.
 */
#include <string.h>

#include "base/random.h"
#include "tests/support/tree_rig.h"

static truce_tree *named(truce_store *store, const char *name)
{
    return truce_tree_new(store, &(truce_tree_options){.name = name});
}

static truce_status branch(truce_tree *tree, const char *name, bson_error_t *error)
{
    return truce_tree_branch(tree, NULL, name, error);
}

static truce_status merge(truce_tree *tree, const char *other, truce_tree_prefer prefer,
                          int64_t *version, bson_error_t *error)
{
    truce_tree_merge_options options = {.how = {.prefer = prefer}};
    truce_tree_published published = {0};
    truce_status status = truce_tree_merge(tree, other, &options, &published, NULL, error);

    *version = published.nothing ? 0 : published.version;
    return status;
}

#define CHECK_MERGE(wanted, tree, other)                                                           \
    do {                                                                                           \
        bson_error_t merge_error = {0};                                                            \
        int64_t merge_version;                                                                     \
        CHECK_OK(merge(tree, other, TRUCE_TREE_ASK, &merge_version, &merge_error), merge_error);   \
        CHECK_INT(wanted, ==, merge_version);                                                      \
    } while (0)

/* ---- a branch -------------------------------------------------------------------------------- */

static void goes_its_own_way(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft"),
               *old = named(store, "old");
    truce_tree_at first = {.version = 1};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(site, "b=2 c=2", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(truce_tree_branch(site, &first, "old", &error), error);
    CHECK_TREE("a=1 b=2 c=2", draft, 0);
    CHECK_TREE("a=1 b=1", old, 0);
    CHECK_OK(rig_publish(draft, "a=d -c", NULL, &error), error);
    CHECK_OK(rig_publish(site, "c=3", NULL, &error), error);
    CHECK_TREE("a=d b=2", draft, 0);
    CHECK_TREE("a=1 b=2 c=2", draft, 1);
    CHECK_TREE("a=1 b=2 c=3", site, 0);
    CHECK_STATUS(TRUCE_DUPLICATE, branch(site, "draft", &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, branch(draft, "site", &error), error);
    CHECK_TREE("a=d b=2", draft, 0);
    CHECK_STATUS(TRUCE_INVALID, branch(site, "", &error), error);
    CHECK_STATUS(TRUCE_INVALID, branch(site, NULL, &error), error);
    first.version = 9;
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_branch(site, &first, "none", &error), error);
    truce_tree_free(old);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_branch_begins_as_a_version_and_changes_independently)
{
    rig_everywhere(goes_its_own_way);
}

static void begins_empty(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1", NULL, &error), error);
    CHECK_OK(rig_publish(site, "-a", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_STATUS(TRUCE_DUPLICATE, branch(site, "draft", &error), error);
    CHECK_OK(rig_publish(draft, "b=1", NULL, &error), error);
    CHECK_MERGE(3, site, "draft");
    CHECK_TREE("b=1", site, 0);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_branch_of_an_empty_version_is_empty)
{
    rig_everywhere(begins_empty);
}

/* ---- merges ---------------------------------------------------------------------------------- */

struct conflict {
    int count;
    char text[3100];
};

static void note_conflict(const truce_tree_conflict *conflict, void *arg)
{
    struct conflict *noted = arg;
    struct rig_text sides[3] = {{""}, {""}, {""}};
    const bson_t *items[] = {conflict->base, conflict->mine, conflict->theirs};

    noted->count++;
    for (int i = 0; i < 3; i++) {
        if (items[i])
            rig_append(items[i], &sides[i]);
    }
    snprintf(noted->text, sizeof noted->text, "%s | %s | %s", sides[0].text, sides[1].text,
             sides[2].text);
}

static void merges_both_ways(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1 c=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_MERGE(0, site, "draft");
    CHECK_OK(rig_publish(draft, "a=d", NULL, &error), error);
    CHECK_OK(rig_publish(site, "b=s", NULL, &error), error);
    CHECK_MERGE(3, site, "draft");
    CHECK_TREE("a=d b=s c=1", site, 0);
    CHECK_MERGE(0, site, "draft");
    CHECK_MERGE(3, draft, "site");
    CHECK_TREE("a=d b=s c=1", draft, 0);
    CHECK_MERGE(0, draft, "site");
    CHECK_MERGE(0, site, "draft");
    /* a change that the other side has merged is not a change of its own */
    CHECK_OK(rig_publish(draft, "a=d2 -c", NULL, &error), error);
    CHECK_OK(rig_publish(draft, "a=d3 e=5", NULL, &error), error);
    CHECK_MERGE(4, site, "draft");
    CHECK_TREE("a=d3 b=s e=5", site, 0);
    CHECK_OK(rig_publish(site, "a=s4", NULL, &error), error);
    CHECK_MERGE(6, draft, "site");
    CHECK_TREE("a=s4 b=s e=5", draft, 0);
    CHECK_OK(merge(site, "draft", TRUCE_TREE_ASK, &version, &error), error);
    CHECK_TREE("a=s4 b=s e=5", site, 0);
    CHECK_STATUS(TRUCE_INVALID, merge(site, "site", TRUCE_TREE_ASK, &version, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, merge(site, "none", TRUCE_TREE_ASK, &version, &error), error);
    CHECK_STATUS(TRUCE_INVALID, merge(site, NULL, TRUCE_TREE_ASK, &version, &error), error);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(merges_go_both_ways)
{
    rig_everywhere(merges_both_ways);
}

/* A merge reads its items in portions of 50. */
static void merges_many(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_string_t *before = bson_string_new(NULL), *after = bson_string_new(NULL);
    bson_error_t error = {0};

    (void)setting;
    for (int i = 100; i < 220; i++) {
        bson_string_append_printf(before, "%si%d=1", i == 100 ? "" : " ", i);
        bson_string_append_printf(after, "%si%d=2", i == 100 ? "" : " ", i);
    }
    CHECK_OK(rig_publish(site, before->str, NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(rig_publish(draft, after->str, NULL, &error), error);
    CHECK_MERGE(2, site, "draft");
    CHECK_TREE(after->str, site, 0);
    bson_string_free(before, true);
    bson_string_free(after, true);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(merges_more_items_than_it_reads_at_once)
{
    rig_everywhere(merges_many);
}

static void tells_conflicts(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    struct conflict noted = {0};
    truce_tree_merge_options options = {.how = {.conflict = note_conflict, .arg = &noted}};
    uint32_t conflicts;
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1 c=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(rig_publish(draft, "a=d b=2", NULL, &error), error);
    CHECK_OK(rig_publish(site, "a=s", NULL, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT,
                 truce_tree_merge(site, "draft", &options, NULL, &conflicts, &error), error);
    CHECK_INT(conflicts, ==, 1);
    CHECK_INT(noted.count, ==, 1);
    CHECK_TEXT("a=1 | a=s | a=d", noted.text);
    CHECK_TREE("a=s b=1 c=1", site, 0);
    CHECK_OK(merge(site, "draft", TRUCE_TREE_MINE, &version, &error), error);
    CHECK_TREE("a=s b=2 c=1", site, 0);
    /* it was decided: it does not conflict again, from either side */
    CHECK_MERGE(0, site, "draft");
    CHECK_MERGE(3, draft, "site");
    CHECK_TREE("a=s b=2 c=1", draft, 0);
    CHECK_OK(rig_publish(draft, "-a", NULL, &error), error);
    CHECK_OK(rig_publish(site, "a=z", NULL, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, merge(site, "draft", TRUCE_TREE_ASK, &version, &error), error);
    CHECK_OK(merge(site, "draft", TRUCE_TREE_THEIRS, &version, &error), error);
    CHECK_TREE("b=2 c=1", site, 0);
    /* all differences are decided for the stored side: nothing is published, and the question is
     * not repeated */
    CHECK_OK(rig_publish(draft, "c=d", NULL, &error), error);
    CHECK_OK(rig_publish(site, "c=s", NULL, &error), error);
    CHECK_OK(merge(site, "draft", TRUCE_TREE_MINE, &version, &error), error);
    CHECK_INT(version, ==, 0);
    CHECK_MERGE(0, site, "draft");
    CHECK_TREE("b=2 c=s", site, 0);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_merge_conflict_is_reported_and_decided_once)
{
    rig_everywhere(tells_conflicts);
}

static void merges_a_shape(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, "up", 0), *draft = named(store, "draft");
    truce_tree_edit *edit;
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "home=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(truce_tree_begin(draft, NULL, &edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'jobs', 'up': 'home'}", &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    truce_tree_edit_free(edit);
    CHECK_OK(rig_publish(site, "-home", NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, merge(site, "draft", TRUCE_TREE_ASK, &version, &error), error);
    CHECK(strstr(error.message, "\"jobs\" has the parent \"home\""));
    CHECK_TREE("", site, 0);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_merge_leaves_no_orphan)
{
    rig_everywhere(merges_a_shape);
}

static void is_another(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_t *filter = test_bson("{'_id': 'site'}");
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(truce_remove(store, "truce_trees", filter, NULL, NULL, &error), error);
    CHECK_OK(rig_publish(site, "b=1", NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, merge(site, "draft", TRUCE_TREE_ASK, &version, &error), error);
    CHECK(strstr(error.message, "dropped and created again"));
    CHECK_STATUS(TRUCE_NOT_FOUND, merge(draft, "site", TRUCE_TREE_ASK, &version, &error), error);
    bson_destroy(filter);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_new_tree_of_the_origins_name_is_not_merged_with)
{
    rig_everywhere(is_another);
}

/* The hold loses the day of a merge when the merge is done. */
static void is_held(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    bson_t *ending = test_bson("{'until': {'$exists': true}}"),
           *ran_out = test_bson("{'$set': {'until': {'$date': 0}, 'ms': 0}}");
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1 c=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    rig_keep(site, 1);
    rig_keep(draft, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_update(store, "truce_tree_holds", ending, ran_out, &many, NULL, &error),
                 error);
        CHECK_OK(rig_publish(draft, i ? "a=e" : "a=d", NULL, &error), error);
        CHECK_OK(rig_publish(site, i ? "b=t" : "b=s", NULL, &error), error);
        CHECK_OK(rig_publish(site, "c=2", NULL, &error), error);
        for (int j = 0; j < 2; j++) {
            rig_collect(site, NULL);
            rig_collect(draft, NULL);
        }
        CHECK_MERGE(4 + 3 * i, site, "draft");
    }
    CHECK_TREE("a=e b=t c=2", site, 0);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 1);
    /* of a merger that died after its commit */
    insert_json(store, "truce_tree_holds",
                "{'_id': 1, 'tree': 'draft', 'version': 1, 'branch': 'draft', 'merge': 1}");
    rig_collect(draft, NULL);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 1);
    CHECK_INT(count_json(store, "truce_tree_holds", "{'_id': 1}"), ==, 0);
    bson_destroy(ran_out);
    bson_destroy(ending);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(holds_the_common_version_as_long_as_the_branch_exists)
{
    rig_everywhere(is_held);
}

/* ---- drop, erase ----------------------------------------------------------------------------- */

static void is_dropped(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft");
    truce_tree_edit *edit;
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(truce_tree_tag(draft, "x", 0, &error), error);
    CHECK_OK(rig_edit(draft, "a=2", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_tree_drop(site, &error), error);
    CHECK(strstr(error.message, "\"draft\""));
    CHECK_OK(truce_tree_drop(draft, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_drop(draft, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, merge(site, "draft", TRUCE_TREE_ASK, &version, &error), error);
    CHECK_INT(count_json(store, "pages", "{'tree': 'draft'}"), ==, 0);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_tree_edits", "{'tree': 'draft'}"), ==, 0);
    CHECK_TREE("a=1 b=1", site, 0);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_TREE("a=1 b=1", draft, 0);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_publish(edit, NULL, NULL, &error), error);
    truce_tree_edit_free(edit);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(a_tree_that_is_dropped_leaves_nothing)
{
    rig_everywhere(is_dropped);
}

static void goes_on_dropping(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0);
    bson_t *filter = test_bson("{'_id': 'site'}"),
           *update = test_bson("{'$set': {'dropped': true}}");
    truce_sweep_report report;
    bson_error_t error = {0};

    for (int by = 0; by < 2; by++) {
        CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
        CHECK_OK(truce_update(store, "truce_trees", filter, update, NULL, NULL, &error), error);
        if (by == 0)
            CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        else
            CHECK_OK(rig_publish(site, "c=1", NULL, &error), error);
        CHECK_INT(count_json(store, "pages", "{}"), ==, by);
        CHECK_INT(count_json(store, "truce_trees", "{}"), ==, by);
    }
    CHECK_TREE("c=1", site, 1);
    (void)setting;
    bson_destroy(update);
    bson_destroy(filter);
    truce_tree_free(site);
}

TEST(completes_a_crashed_drop_by_the_sweep_or_the_next_tree)
{
    rig_everywhere(goes_on_dropping);
}

static void erases_everywhere(truce_store *store, const struct setting *setting)
{
    truce_tree *site = rig_tree(store, NULL, 0), *draft = named(store, "draft"),
               *deep = named(store, "deep"), *other = named(store, "other");
    truce_tree_options apart = {.collection = "pages", .name = "other"};
    bson_value_t a = text_id("a");
    int64_t versions;
    bson_error_t error = {0};

    (void)setting;
    truce_tree_free(other);
    other = truce_tree_new(store, &apart);
    CHECK_OK(rig_publish(site, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(other, "a=1", NULL, &error), error);
    CHECK_OK(branch(site, "draft", &error), error);
    CHECK_OK(rig_publish(draft, "a=2", NULL, &error), error);
    CHECK_OK(branch(draft, "deep", &error), error);
    CHECK_OK(truce_tree_erase(draft, &a, &versions, &error), error);
    CHECK_INT(versions, ==, 4);
    CHECK_TREE("b=1", site, 0);
    CHECK_TREE("b=1", draft, 0);
    CHECK_TREE("b=1", draft, 1);
    CHECK_TREE("b=1", deep, 0);
    CHECK_TREE("a=1", other, 0);
    CHECK_MERGE(0, site, "draft");
    truce_tree_free(other);
    truce_tree_free(deep);
    truce_tree_free(draft);
    truce_tree_free(site);
}

TEST(an_erase_reaches_the_origin_and_every_branch)
{
    rig_everywhere(erases_everywhere);
}

/* ---- random histories ------------------------------------------------------------------------ */

#define TREES_MADE 3 /* a tree, its branch, and the branch's branch */
#define ITEMS      6

/* The first letter of each item's text; 0: the item is missing. */
struct contents {
    char items[ITEMS];
};

struct history {
    truce_tree *trees[TREES_MADE];
    struct contents now[TREES_MADE], common[TREES_MADE]; /* with the one above */
    struct random random;
    char next;
};

static void show(const struct contents *contents, char *text)
{
    *text = 0;
    for (int i = 0; i < ITEMS; i++) {
        if (contents->items[i])
            sprintf(text + strlen(text), "%s%c=%c", *text ? " " : "", 'a' + i, contents->items[i]);
    }
}

static void change(struct history *history, int which)
{
    char text[100] = "";
    struct contents *now = &history->now[which];
    bson_error_t error = {0};

    for (int i = 0; i < ITEMS; i++) {
        uint64_t what = truce__random_below(&history->random, 6);

        if (what > 1)
            continue;
        history->next = history->next == 'z' ? 'A' : history->next == 'Z' ? 'a' : history->next + 1;
        now->items[i] = what ? history->next : 0;
        sprintf(text + strlen(text), what ? "%s%c=%c" : "%s-%c", *text ? " " : "", 'a' + i,
                history->next);
    }
    CHECK_OK(rig_publish(history->trees[which], text, NULL, &error), error);
}

static void join(struct history *history, int branch, bool up, truce_tree_prefer prefer)
{
    static const char *const names[] = {"site", "draft", "deep"};
    int target = up ? branch - 1 : branch, source = up ? branch : branch - 1;
    struct contents *mine = &history->now[target], *theirs = &history->now[source],
                    *common = &history->common[branch], merged = *mine;
    uint32_t wanted = 0, conflicts;
    truce_tree_merge_options options = {.how = {.prefer = prefer}};
    bson_error_t error = {0};
    truce_status status;

    for (int i = 0; i < ITEMS; i++) {
        if (theirs->items[i] == common->items[i] || theirs->items[i] == mine->items[i])
            continue;
        if (mine->items[i] == common->items[i] || prefer == TRUCE_TREE_THEIRS)
            merged.items[i] = theirs->items[i];
        else if (prefer == TRUCE_TREE_ASK)
            wanted++;
    }
    status =
        truce_tree_merge(history->trees[target], names[source], &options, NULL, &conflicts, &error);
    CHECK_INT(conflicts, ==, wanted);
    if (wanted) {
        CHECK_STATUS(TRUCE_CONFLICT, status, error);
        return;
    }
    CHECK_OK(status, error);
    *mine = merged;
    *common = *theirs;
}

static void go(struct history *history)
{
    uint64_t what = truce__random_below(&history->random, 10);
    int which = (int)truce__random_below(&history->random, TREES_MADE);
    truce_tree_prefer prefer = (truce_tree_prefer)truce__random_below(&history->random, 3);

    if (what < 4)
        change(history, which);
    else if (what < 8)
        join(history, which ? which : 1, what < 6, prefer);
    else
        rig_collect(history->trees[which], NULL);
}

static void goes_at_random(truce_store *store, const struct setting *setting)
{
    struct history history = {.next = 'b'};
    long steps = test_scale("TRUCE_TREE_BRANCH_STEPS", 60);
    bson_error_t error = {0};
    char wanted[100];

    (void)setting;
    truce__random_seed(&history.random, test_seed());
    history.trees[0] = rig_tree(store, NULL, 0);
    history.trees[1] = named(store, "draft");
    history.trees[2] = named(store, "deep");
    memset(history.now[0].items, 'b', ITEMS);
    CHECK_OK(rig_publish(history.trees[0], "a=b b=b c=b d=b e=b f=b", NULL, &error), error);
    CHECK_OK(branch(history.trees[0], "draft", &error), error);
    CHECK_OK(branch(history.trees[1], "deep", &error), error);
    for (int i = 0; i < TREES_MADE; i++) {
        history.now[i] = history.common[i] = history.now[0];
        rig_keep(history.trees[i], 1);
    }
    for (long step = 0; step < steps && !test_failures(); step++) {
        go(&history);
        for (int i = 0; i < TREES_MADE; i++) {
            show(&history.now[i], wanted);
            CHECK_TREE(wanted, history.trees[i], 0);
        }
    }
    for (int i = TREES_MADE; i--;) {
        CHECK_OK(truce_tree_drop(history.trees[i], &error), error);
        truce_tree_free(history.trees[i]);
    }
    CHECK_INT(count_json(store, "pages", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
}

TEST(random_histories_of_branches_equal_three_way_merges)
{
    rig_everywhere(goes_at_random);
}
