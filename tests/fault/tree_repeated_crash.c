/*
 * A process that publishes under an id of its own dies at every store call, or every single answer
 * is lost. Others publish in the meantime. The next process begins again under the id, twice, and
 * gets the same version, and there is one.
 *
 * TRUCE_TREE_CRASH_STEP: every so many calls.
 */
#include "tests/support/tree_rig.h"
#include "tests/support/trouble.h"

struct rig {
    truce_store *inner, *store;
};

static truce_status publish(struct rig *rig, uint32_t deadline_ms, truce_tree_published *published,
                            bson_error_t *error)
{
    truce_tree *tree = rig_tree(rig->store, NULL, deadline_ms);
    truce_tree_edit_options options = {.base = 1, .message = "mine"};
    truce_tree_edit *edit = NULL;
    bson_oid_t id;
    truce_status status;

    bson_oid_init_from_string(&id, "0123456789abcdef01234567");
    options.id = &id;
    status = truce_tree_begin(tree, &options, &edit, error);
    if (!status)
        status = rig_put(edit, "{'itemId': 'm', 'text': '1'}", error);
    if (!status)
        status = truce_tree_publish(edit, NULL, published, error);
    while (status == TRUCE_CONFLICT) {
        status = truce_tree_rebase(edit, NULL, NULL, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, published, error);
    }
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
}

static void others(struct rig *rig, const char *changes)
{
    truce_tree *tree = rig_tree(rig->store, NULL, 0);
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, changes, NULL, &error), error);
    truce_tree_free(tree);
}

static void judge(struct rig *rig)
{
    truce_tree *tree = rig_tree(rig->store, NULL, 0);
    truce_tree_published first = {0}, second = {0};
    bson_error_t error = {0};

    others(rig, "b=2");
    CHECK_OK(publish(rig, 20000, &first, &error), error);
    others(rig, "m=other");
    rig_collect(tree, NULL);
    CHECK_OK(publish(rig, 20000, &second, &error), error);
    CHECK_INT(second.version, ==, first.version);
    CHECK(second.exists);
    CHECK_TREE("a=1 b=2 m=other", tree, 0);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(rig->store, "truce_tree_edits", "{'message': 'mine', 'pub': true}"), ==,
              1);
    truce_tree_free(tree);
}

/* True: the fault happened. */
static bool suffer(enum trouble trouble, uint64_t at, bool late)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_tree_published published;
    struct rig rig;
    bson_error_t error = {0};
    int before = test_failures();
    bool hit;

    rig.inner = truce_fault_wrap(server_or_memory(), &none);
    rig.store = truce_fault_wrap(rig.inner, &none);
    others(&rig, "a=1");
    if (late) /* the edit has to be merged */
        others(&rig, "b=1");
    trouble_arm(rig.inner, rig.store, trouble, at);
    (void)!publish(&rig, 15, &published, &error);
    hit = truce_fault_hits(rig.store) + truce_fault_hits(rig.inner) > 0;
    trouble_arm(rig.inner, rig.store, NONE, 0);
    judge(&rig);
    if (test_failures() > before)
        fprintf(stderr, "    %s at %d%s\n", trouble == LOSE ? "lost" : "died", (int)at,
                late ? ", merged" : "");
    truce_store_close(rig.store);
    return hit;
}

TEST(publishes_one_version_per_id_after_a_crash_at_any_call)
{
    uint64_t at,
        stride = (uint64_t)test_scale("TRUCE_TREE_CRASH_STEP", server_under_test() ? 17 : 1);

    for (at = 1; suffer(DIE_BEFORE, at, true) && !test_failures() && at < 500; at += stride) {
        suffer(DIE_AFTER, at, true);
        suffer(LOSE, at, true);
        suffer(DIE_BEFORE, at, false);
        suffer(DIE_AFTER, at, false);
        suffer(LOSE, at, false);
    }
    CHECK_INT(at, >, 10);
}
