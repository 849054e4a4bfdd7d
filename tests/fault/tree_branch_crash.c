/*
 * A process dies at every store call of a branch, its merges both ways, and its end, before or
 * after the call's effect, and again in the second life. In further runs every single answer is
 * lost. Reads in between show exactly one version of each tree. The next process continues, and
 * nothing is left of the branch.
 *
 * TRUCE_TREE_CRASH_STEP: every so many calls.
 */
#include "tests/support/tree_rig.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *store;
};

static truce_tree *named(truce_store *store, const char *name, uint32_t deadline_ms)
{
    return truce_tree_new(store, &(truce_tree_options){.name = name, .deadline_ms = deadline_ms});
}

static void rig_open(struct rig *rig)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();
    truce_tree *tree = rig_tree(memory, NULL, 0);
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1", NULL, &error), error);
    rig_keep(tree, 1);
    truce_tree_free(tree);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
}

/* Both sides have changed, and each merges the changes of the other. A branch that an earlier
 * life made is used again. */
static truce_status life(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_tree *site = named(rig->store, "site", deadline_ms),
               *draft = named(rig->store, "draft", deadline_ms);
    truce_status status = truce_tree_branch(site, NULL, "draft", error);

    if (status == TRUCE_DUPLICATE)
        status = TRUCE_OK;
    if (!status)
        status = rig_publish(draft, "a=d c=d", NULL, error);
    if (!status)
        status = rig_publish(site, "b=s", NULL, error);
    if (!status)
        status = truce_tree_merge(site, "draft", NULL, NULL, NULL, error);
    if (!status)
        status = truce_tree_merge(draft, "site", NULL, NULL, NULL, error);
    for (int i = 0; !status && i < 2; i++)
        status = truce_tree_collect(site, NULL, error);
    if (!status)
        status = truce_tree_drop(draft, error);
    truce_tree_free(draft);
    truce_tree_free(site);
    return status;
}

static bool is_one_of(const char *seen, const char *const *versions)
{
    while (*versions && strcmp(seen, *versions))
        versions++;
    return *versions;
}

static void judge(const struct rig *rig)
{
    static const char *const site[] = {"a=1 b=1 c=1", "a=1 b=s c=1", "a=d b=s c=d", NULL},
                             /* begun, and not published yet: no version */
        *const draft[] = {"", "a=1 b=1 c=1", "a=d b=1 c=d", "a=d b=s c=d", NULL};
    truce_tree *tree = named(rig->store, "site", 0), *branch = named(rig->store, "draft", 0);
    struct rig_text seen;
    bson_error_t error = {0};
    truce_status status;

    CHECK_OK(rig_see(tree, 0, &seen, &error), error);
    if (!is_one_of(seen.text, site))
        test_fail(__FILE__, __LINE__, "seen was %s", seen.text);
    status = rig_see(branch, 0, &seen, &error);
    if (status != TRUCE_NOT_FOUND)
        CHECK_OK(status, error);
    if (!status && !is_one_of(seen.text, draft))
        test_fail(__FILE__, __LINE__, "in the branch, seen was %s", seen.text);
    truce_tree_free(branch);
    truce_tree_free(tree);
}

/* Lets a day pass for the remains of the dead process: its holds have expired, its edit is
 * silent. */
static void let_time_pass(const struct rig *rig)
{
    bson_t *all = bson_new(), *ending = test_bson("{'until': {'$exists': true}}"),
           *holds = test_bson("{'$set': {'until': {'$date': 0}, 'ms': 0}}"),
           *edits = test_bson("{'$set': {'renewed': {'$date': 0}, 'ms': 0}}");
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    CHECK_OK(truce_update(rig->store, "truce_tree_holds", ending, holds, &many, NULL, &error),
             error);
    CHECK_OK(truce_update(rig->store, "truce_tree_edits", all, edits, &many, NULL, &error), error);
    bson_destroy(edits);
    bson_destroy(holds);
    bson_destroy(ending);
    bson_destroy(all);
}

/* Publishes versions on both sides, after which the common version is current on neither side:
 * it is held, or it is collected. */
static void go_on(const struct rig *rig)
{
    truce_tree *tree = named(rig->store, "site", 0), *branch = named(rig->store, "draft", 0);
    struct rig_text seen;
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "b=s", NULL, &error), error);
    if (!rig_see(branch, 0, &seen, &error) && *seen.text)
        CHECK_OK(rig_publish(branch, "a=d c=d", NULL, &error), error);
    truce_tree_free(branch);
    truce_tree_free(tree);
}

static void finish(struct rig *rig, bool swept)
{
    truce_tree *tree = named(rig->store, "site", 0);
    truce_sweep_report report;
    bson_error_t error = {0};

    trouble_arm(rig->inner, rig->store, NONE, 0);
    judge(rig);
    if (swept)
        CHECK_OK(truce_sweep(rig->store, NULL, &report, &error), error);
    let_time_pass(rig);
    go_on(rig);
    rig_collect(tree, NULL); /* the origin first */
    CHECK_OK(truce_sweep(rig->store, NULL, &report, &error), error);
    judge(rig);
    CHECK_OK(life(rig, 20000, &error), error);
    CHECK_TREE("a=d b=s c=d", tree, 0);
    let_time_pass(rig);
    CHECK_OK(truce_sweep(rig->store, NULL, &report, &error), error);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(rig->store, "truce_tree_holds", "{}"), ==, 0);
    CHECK_TREE("a=d b=s c=d", tree, 0);
    CHECK_INT(count_json(rig->store, "pages", "{}"), ==, 3);
    CHECK_INT(count_json(rig->store, "truce_trees", "{}"), ==, 1);
    CHECK_INT(count_json(rig->store, "truce_tree_edits", "{'tree': {'$ne': 'site'}}"), ==, 0);
    truce_tree_free(tree);
}

/* True: the fault happened. */
static bool suffer(enum trouble first, uint64_t at, enum trouble second, uint64_t then)
{
    struct rig rig;
    bson_error_t error = {0};
    int before = test_failures();
    bool hit;

    rig_open(&rig);
    trouble_arm(rig.inner, rig.store, first, at);
    (void)!life(&rig, 15, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    if (second) {
        trouble_arm(rig.inner, rig.store, second, then);
        (void)!life(&rig, 15, &error);
    }
    finish(&rig, at % 2);
    if (test_failures() > before)
        fprintf(stderr, "    %s at %d, then %d at %d\n", first == LOSE ? "lost" : "died", (int)at,
                (int)second, (int)then);
    truce_store_close(rig.store);
    return hit;
}

TEST(loses_no_change_or_branch_after_a_crash_at_any_call)
{
    uint64_t at,
        stride = (uint64_t)test_scale("TRUCE_TREE_CRASH_STEP", server_under_test() ? 17 : 3);

    for (at = 1; suffer(DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 500; at += stride) {
        suffer(DIE_AFTER, at, NONE, 0);
        suffer(LOSE, at, NONE, 0);
        suffer(DIE_AFTER, at, DIE_AFTER, 1 + at % 17);
        suffer(DIE_BEFORE, at, DIE_BEFORE, 1 + at % 29);
    }
    CHECK_INT(at, >, 60);
}
