/*
 * One publication under an id, and the same one, sent again, that comes whole before its first call
 * of the store, before its second, and so on. It runs with and without publications of others. Both
 * get the same version, and there is one.
 */
#include "tests/support/hooked.h"
#include "tests/support/tree_rig.h"

static int calls, enter_at;
static bool inside, others, merges;
static truce_tree_published intruded;

static truce_status publish(truce_store *store, truce_tree_published *published,
                            bson_error_t *error)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit_options options = {.base = 1, .message = "mine"};
    truce_tree_edit *edit = NULL;
    bson_oid_t id;
    uint32_t conflicts = 0;
    truce_status status;

    bson_oid_init_from_string(&id, "0123456789abcdef01234567");
    options.id = &id;
    status = truce_tree_begin(tree, &options, &edit, error);
    if (!status)
        status = rig_put(edit, "{'itemId': 'm', 'text': '1'}", error);
    if (!status && merges) /* whatever is stored */
        status = truce_tree_rebase(edit, NULL, &conflicts, error);
    if (!status)
        status = truce_tree_publish(edit, NULL, published, error);
    while (status == TRUCE_CONFLICT && merges && !conflicts) {
        status = truce_tree_rebase(edit, NULL, &conflicts, error);
        if (!status)
            status = truce_tree_publish(edit, NULL, published, error);
    }
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    return status;
}

static void before_call(truce_store *store)
{
    truce_tree *tree;
    bson_error_t error = {0};

    if (inside || ++calls != enter_at)
        return;
    inside = true;
    CHECK_OK(publish(store, &intruded, &error), error);
    tree = rig_tree(store, NULL, 0);
    if (others)
        CHECK_OK(rig_publish(tree, "m=2", NULL, &error), error);
    truce_tree_free(tree);
    inside = false;
}

static void at_every_call(void)
{
    int at = 0;

    do {
        truce_tree_published published = {0};
        truce_store *store = NULL;
        truce_tree *tree;
        bson_error_t error = {0};

        CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
        hooked_make(store, before_call);
        store->ops = &hooked_ops;
        tree = rig_tree(store, NULL, 0);
        inside = true;
        intruded = (truce_tree_published){0};
        CHECK_OK(rig_publish(tree, "a=0", NULL, &error), error);
        inside = false;
        calls = 0;
        enter_at = ++at;
        CHECK_OK(publish(store, &published, &error), error);
        inside = true;
        CHECK_INT(published.version, ==, 2);
        if (calls >= enter_at) {
            CHECK_INT(intruded.version, ==, 2);
            CHECK(published.exists != intruded.exists);
        }
        rig_collect(tree, NULL);
        CHECK_INT(count_json(store, "truce_tree_edits", "{'message': 'mine', 'pub': true}"), ==, 1);
        CHECK_INT(count_json(store, "truce_tree_edits", "{'state': 'open'}"), ==, 0);
        truce_tree_free(tree);
        truce_store_close(store);
        if (test_failures())
            fprintf(stderr, "    before call %d\n", at);
    } while (calls >= enter_at && !test_failures());
    CHECK_INT(at, >, 5);
}

TEST(creates_one_version_if_a_publication_is_repeated_at_any_time)
{
    for (int way = 0; way < 4; way++) {
        others = way & 1;
        merges = way & 2;
        at_every_call();
        if (test_failures())
            fprintf(stderr, "    others %d, merged %d\n", others, merges);
    }
}
