/*
 * A process dies at every store call of edits, a rebase, a tag, and a collection, before or after
 * the call's effect, and again in the second life. In further runs every single answer is lost.
 * Reads in between show exactly one version; the next process continues.
 *
 * TRUCE_TREE_CRASH_STEP: every so many calls.
 */
#include "tests/support/tree_rig.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *store;
};

static void rig_open(struct rig *rig)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory();
    truce_tree *tree = rig_tree(memory, NULL, 0);
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "a=0 b=0 c=0", NULL, &error), error);
    rig_keep(tree, 1);
    truce_tree_free(tree);
    rig->inner = truce_fault_wrap(memory, &none);
    rig->store = truce_fault_wrap(rig->inner, &none);
}

/* Each version is whole: all of one edit. */
static void judge(truce_tree *tree)
{
    struct rig_text seen;
    bson_error_t error = {0};

    CHECK_OK(rig_see(tree, 0, &seen, &error), error);
    if (strcmp(seen.text, "a=0 b=0 c=0") && strcmp(seen.text, "a=1 b=1") &&
        strcmp(seen.text, "a=2 b=2 c=2") && strcmp(seen.text, "a=3 b=3 c=2"))
        test_fail(__FILE__, __LINE__, "seen was %s", seen.text);
}

static truce_status life(struct rig *rig, uint32_t deadline_ms, bson_error_t *error)
{
    truce_tree_rebase_options mine = {.prefer = TRUCE_TREE_MINE};
    truce_tree *tree = rig_tree(rig->store, NULL, deadline_ms);
    truce_tree_edit *edit;
    truce_status status = rig_publish(tree, "a=1 b=1 -c", NULL, error);

    if (!status)
        status = truce_tree_tag(tree, "x", 0, error);
    if (!status)
        status = rig_edit(tree, "a=3 b=3", &edit, error);
    if (!status) {
        status = truce_tree_flush(edit, error);
        if (!status)
            status = rig_publish(tree, "a=2 b=2 c=2", NULL, error);
        if (!status)
            status = truce_tree_rebase(edit, &mine, NULL, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, NULL, error);
        truce_tree_edit_free(edit);
    }
    if (!status)
        status = truce_tree_untag(tree, "x", error);
    for (int i = 0; !status && i < 2; i++)
        status = truce_tree_collect(tree, NULL, error);
    truce_tree_free(tree);
    return status;
}

static void finish(struct rig *rig)
{
    truce_tree *tree = rig_tree(rig->store, NULL, 0);
    bson_t *all = bson_new();
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    trouble_arm(rig->inner, rig->store, NONE, 0);
    judge(tree);
    CHECK_OK(life(rig, 20000, &error), error);
    CHECK_TREE("a=3 b=3 c=2", tree, 0);
    /* a dead reader's hold and a dead edit's record expire in time */
    CHECK_OK(truce_remove(rig->store, "truce_tree_holds", all, &many, NULL, &error), error);
    bson_destroy(all);
    all = test_bson("{'state': 'open', 'pub': {'$exists': false}}");
    CHECK_OK(truce_remove(rig->store, "truce_tree_edits", all, &many, NULL, &error), error);
    bson_destroy(all);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(rig->store, "pages", "{'pub': true}"), ==, 3);
    CHECK_TREE("a=3 b=3 c=2", tree, 0);
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
        truce_sweep_report report;

        trouble_arm(rig.inner, rig.store, second, then);
        (void)!truce_sweep(rig.store, NULL, &report, &error);
    }
    finish(&rig);
    if (test_failures() > before)
        fprintf(stderr, "    %s at %d, then %d at %d\n", first == LOSE ? "lost" : "died", (int)at,
                (int)second, (int)then);
    truce_store_close(rig.store);
    return hit;
}

TEST(keeps_versions_whole_after_a_crash_at_any_call)
{
    uint64_t at,
        stride = (uint64_t)test_scale("TRUCE_TREE_CRASH_STEP", server_under_test() ? 17 : 2);

    for (at = 1; suffer(DIE_BEFORE, at, NONE, 0) && !test_failures() && at < 500; at += stride) {
        suffer(DIE_AFTER, at, NONE, 0);
        suffer(LOSE, at, NONE, 0);
        suffer(DIE_AFTER, at, DIE_AFTER, 1 + at % 17);
        suffer(DIE_BEFORE, at, DIE_BEFORE, 1 + at % 29);
    }
    CHECK_INT(at, >, 60);
}
