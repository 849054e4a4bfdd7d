/*
 * A commit holds or changes a document of a tree (TR13 of tree.c): an item, a tag, or a reader's
 * hold. It is stopped before each of its store calls. In the meantime, other processes settle,
 * collect, erase, put, tag, read, and drop; none of them changes the document. In further runs the
 * process of the commit dies at each call, and the next collector does, too.
 */
#include "base/clock.h"
#include "tests/support/hooked.h"
#include "tests/support/no_sleep.h"
#include "tests/support/tree_rig.h"
#include "tests/support/trouble.h"

/* The deadline of the calls that wait for the commit, which cannot continue. */
#define SHORT_MS 15

struct scene {
    /* The document: its collection, and a filter that finds it. */
    const char *collection, *wanted;
    /* The commit changes the document. Otherwise it only holds it. */
    bool changes;
    void (*prepare)(truce_store *store, truce_tree *tree);
    /* Adds other parts to the commit in place of the document. */
    truce_status (*add)(truce_commit *commit, bson_error_t *error);
    /* Another process. It returns LOCKED if it has to wait for the commit. */
    truce_status (*work)(truce_store *store, truce_tree *tree, bson_error_t *error);
    /* The work does not wait for the commit. */
    bool passes;
    /* Checks the store after the commit. */
    void (*judge)(truce_store *store, truce_tree *tree);
};

static const struct scene *scene;
static int calls, enter_at;
static bool inside, held_once;

static void before_call(truce_store *store)
{
    truce_tree *tree;
    bson_t *filter, before, after;
    bson_error_t error = {0};
    truce_status status;
    bool held;

    if (inside || ++calls != enter_at)
        return;
    inside = true;
    tree = rig_tree(store, NULL, SHORT_MS);
    filter = test_bson(scene->wanted);
    held = !truce_find_one(store, scene->collection, filter, NULL, &before, &error) &&
           bson_has_field(&before, "_intent") &&
           count_json(store, "truce_commits", "{'state': 'pending'}");
    status = scene->work(store, tree, &error);
    if (held) {
        CHECK_STATUS(scene->passes ? TRUCE_OK : TRUCE_LOCKED, status, error);
        CHECK_OK(truce_find_one(store, scene->collection, filter, NULL, &after, &error), error);
        CHECK(bson_equal(&before, &after));
        bson_destroy(&after);
        held_once = true;
    } else {
        CHECK_OK(status, error);
    }
    bson_destroy(&before);
    bson_destroy(filter);
    truce_tree_free(tree);
    inside = false;
}

/* Adds the document and an insert to the commit. */
static truce_status add(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_value_t *id = arg;
    bson_t *news = test_bson("{'_id': 1}"),
           *update = test_bson("{'$set': {'text': 'changed', 'more': 1}}"),
           *unerased = test_bson("{'erased': {'$exists': false}}");
    truce_status status = truce_commit_insert(commit, "news", news, error);

    if (!status && scene->add)
        status = scene->add(commit, error);
    else if (!status && scene->changes)
        status = truce_commit_update(commit, scene->collection, id, unerased, update, error);
    else if (!status)
        status = truce_commit_hold(commit, scene->collection, id, NULL, error);
    bson_destroy(unerased);
    bson_destroy(update);
    bson_destroy(news);
    return status;
}

static truce_status commit(truce_store *store, const truce_commit_options *options,
                           bson_error_t *error)
{
    bson_t *filter = test_bson(scene->wanted), found;
    truce_status status = truce_find_one(store, scene->collection, filter, NULL, &found, error);
    bson_iter_t id;

    if (!status && bson_iter_init_find(&id, &found, "_id"))
        status = truce_transact(store, add, (void *)bson_iter_value(&id), options, error);
    bson_destroy(&found);
    bson_destroy(filter);
    return status;
}

/* c is put in version 2 and removed in version 3; only the current version is to be kept. No
 * version is settled. */
static void fill(truce_store *store)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "c=2", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "-c", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=4", NULL, &error), error);
    rig_keep(tree, 1);
    if (scene->prepare)
        scene->prepare(store, tree);
    truce_tree_free(tree);
}

/* Runs the scene once for each call of the commit. */
static void play(const struct scene *played)
{
    truce_commit_options options = {.mechanism = TRUCE_MECHANISM_JOURNAL};
    bool entered = true;

    scene = played;
    held_once = false;
    for (enter_at = 1; entered && !test_failures() && enter_at < 300; enter_at++) {
        truce_store *store = server_or_memory();
        truce_tree *tree = rig_tree(store, NULL, 0);
        const truce_store_ops *own = store->ops;
        bson_error_t error = {0};
        truce_status status;

        no_sleep_begin();
        fill(store);
        calls = 0;
        hooked_make(store, before_call);
        store->ops = &hooked_ops;
        status = commit(store, &options, &error);
        store->ops = own;
        entered = calls >= enter_at;
        /* The other process may have removed or erased the document before the commit took it. */
        CHECK(!status || status == TRUCE_NOT_FOUND || status == TRUCE_REFUSED);
        CHECK_INT(count_json(store, "news", "{}"), ==, !status);
        scene->judge(store, tree);
        CHECK_INT(count_json(store, "pages", "{'_intent': {'$exists': true}}"), ==, 0);
        truce_tree_free(tree);
        truce_store_close(store);
        truce__environment_use(NULL);
        if (test_failures())
            fprintf(stderr, "    before call %d of the commit with %s\n", enter_at, scene->wanted);
    }
    CHECK_INT(enter_at, >, 3);
    CHECK(held_once);
}

/* ---- the collector --------------------------------------------------------------------------- */

static truce_status collect(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    (void)store;
    for (int i = 0; !status && i < 3; i++) {
        truce_tree_collected collected;

        status = truce_tree_collect(tree, &collected, error);
        CHECK(!collected.more); /* otherwise callers would repeat the call without a pause */
        CHECK_TREE("a=4 b=1", tree, 0);
    }
    return status;
}

static void settle(truce_store *store, truce_tree *tree)
{
    truce_tree_snapshot *snapshot;
    truce_tree_at first = {.version = 1, .hold = true};
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_open(tree, &first, &snapshot, &error), error);
    rig_collect(tree, NULL);
    truce_tree_close(snapshot);
}

static void all_is_collected(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(collect(store, tree, &error), error);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 2);
    CHECK_INT(count_json(store, "pages", "{'pub': true}"), ==, 2);
    CHECK_INT(count_json(store, "truce_trees", "{'collected': 4}"), ==, 1);
}

static const char *const items[] = {
    "{'itemId': 'c', 'version': 2}", /* superseded, and hidden by a removal */
    "{'itemId': 'c', 'version': 3}", /* the removal */
    "{'itemId': 'a', 'version': 1}", /* superseded */
    "{'itemId': 'b', 'version': 1}", /* in all versions */
};

TEST(collects_no_item_that_a_commit_holds)
{
    for (size_t i = 0; i < 2 * (sizeof items / sizeof *items); i++)
        play(&(struct scene){.collection = "pages",
                             .wanted = items[i / 2],
                             .prepare = i % 2 ? settle : NULL,
                             .work = collect,
                             .passes = true,
                             .judge = all_is_collected});
}

/* An edit is given up, and another one is published under its number. */
static void give_up(truce_store *store, truce_tree *tree)
{
    truce_tree_edit *edit;
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(rig_edit(tree, "d=5", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(truce_tree_abandon(edit, &error), error);
    CHECK_OK(rig_publish(tree, "b=1", NULL, &error), error);
    truce_tree_edit_free(edit);
}

static void edit_is_dropped(truce_store *store, truce_tree *tree)
{
    rig_collect(tree, NULL);
    CHECK_INT(count_json(store, "pages", "{'itemId': 'd'}"), ==, 0);
    CHECK_INT(count_json(store, "truce_tree_edits", "{'state': 'given up'}"), ==, 0);
}

TEST(removes_no_item_of_an_abandoned_edit_that_a_commit_holds)
{
    play(&(struct scene){.collection = "pages",
                         .wanted = "{'itemId': 'd'}",
                         .prepare = give_up,
                         .work = collect,
                         .passes = true,
                         .judge = edit_is_dropped});
}

/* An item of no version and no edit. */
static void lose(truce_store *store, truce_tree *tree)
{
    rig_collect(tree, NULL);
    insert_json(store, "pages",
                "{'tree': 'site', 'itemId': 'd', 'version': 3, 'token': {'$oid': "
                "'0123456789abcdef01234567'}}");
}

static truce_status repair(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_check_options options = {.repair = true};
    truce_check_report report;

    (void)tree;
    return truce_check(store, &options, NULL, NULL, &report, error);
}

static void lost_is_removed(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(repair(store, tree, &error), error);
    CHECK_INT(count_json(store, "pages", "{'itemId': 'd'}"), ==, 0);
}

TEST(repairs_no_item_that_a_commit_holds)
{
    play(&(struct scene){.collection = "pages",
                         .wanted = "{'itemId': 'd'}",
                         .prepare = lose,
                         .work = repair,
                         .passes = true,
                         .judge = lost_is_removed});
}

/* ---- calls that wait for the commit ---------------------------------------------------------- */

static truce_status erase(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    bson_value_t b = text_id("b");
    int64_t versions;

    (void)store;
    return truce_tree_erase(tree, &b, &versions, error);
}

static void is_erased(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(erase(store, tree, &error), error);
    CHECK_TREE("a=4", tree, 4);
    CHECK_INT(count_json(store, "pages",
                         "{'itemId': 'b', '$or': [{'text': {'$exists': true}}, {'more': 1}]}"),
              ==, 0);
}

TEST(erases_an_item_after_the_commit_that_holds_it)
{
    play(&(struct scene){
        .collection = "pages", .wanted = items[3], .work = erase, .judge = is_erased});
}

TEST(erases_what_a_commit_wrote_to_an_item)
{
    play(&(struct scene){.collection = "pages",
                         .wanted = items[3],
                         .changes = true,
                         .work = erase,
                         .judge = is_erased});
}

static truce_store *dying; /* the store of a commit whose process dies */
static uint64_t die_at;

static void commit_and_die(truce_store *store)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1, .deadline_ms = 4};
    truce_fault_options fault = {.kind = TRUCE_FAULT_FAIL, .at = die_at, .from_then_on = true};
    bson_error_t error = {0};

    (void)store;
    if (inside || ++calls != enter_at)
        return;
    inside = true;
    truce_fault_arm(dying, &fault);
    (void)!commit(dying, &options, &error);
    inside = false;
}

/* The eraser is stopped before call `enter_at`, and a commit changes the item or dies. Returns
 * whether the eraser was stopped. */
static bool erase_beside_commit(void)
{
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *store = server_or_memory();
    truce_tree *tree = rig_tree(store, NULL, 0);
    const truce_store_ops *own = store->ops;
    bson_error_t error = {0};

    no_sleep_begin();
    fill(store);
    dying = truce_fault_wrap(store, &none);
    calls = 0;
    hooked_make(store, commit_and_die);
    store->ops = &hooked_ops;
    CHECK_OK(erase(store, tree, &error), error);
    store->ops = own;
    CHECK_INT(count_json(store, "pages", "{'_intent': {'$exists': true}}"), ==, 0);
    is_erased(store, tree);
    truce_tree_free(tree);
    truce_store_close(dying);
    truce__environment_use(NULL);
    return calls >= enter_at;
}

TEST(erases_an_item_that_a_commit_takes_or_changes_in_the_meantime)
{
    static const struct scene changing = {
        .collection = "pages", .wanted = "{'itemId': 'b', 'version': 1}", .changes = true};
    bool entered = true;

    scene = &changing;
    for (enter_at = 1; entered && !test_failures() && enter_at < 300; enter_at++) {
        for (die_at = 1; die_at < 15 && !test_failures(); die_at++)
            entered = erase_beside_commit();
        if (test_failures())
            fprintf(stderr, "    before call %d of the eraser\n", enter_at);
    }
    CHECK_INT(enter_at, >, 3);
}

static truce_tree *editors;
static truce_tree_edit *edit;

static void begin_edit(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    (void)tree;
    editors = rig_tree(store, NULL, SHORT_MS);
    CHECK_OK(rig_edit(editors, "d=5", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
}

static truce_status put_again(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_status status = rig_put(edit, "{'itemId': 'd', 'text': '6'}", error);

    (void)store, (void)tree;
    return status ? status : truce_tree_flush(edit, error);
}

static void last_put_is_published(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(put_again(store, tree, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_TREE("a=4 b=1 d=6", tree, 5);
    truce_tree_edit_free(edit);
    truce_tree_free(editors);
}

TEST(puts_an_item_again_after_the_commit_that_holds_it)
{
    play(&(struct scene){.collection = "pages",
                         .wanted = "{'itemId': 'd'}",
                         .prepare = begin_edit,
                         .work = put_again,
                         .judge = last_put_is_published});
}

static void tag(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_tag(tree, "x", 2, &error), error);
}

static truce_status tag_third(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    (void)store;
    return truce_tree_tag(tree, "x", 3, error);
}

static truce_status tag_first(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    (void)store;
    return truce_tree_tag(tree, "x", 1, error);
}

static truce_status untag(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_status status = truce_tree_untag(tree, "x", error);

    /* A repeated call finds no tag. */
    return status == TRUCE_NOT_FOUND && !count_json(store, "truce_tree_holds", "{'tag': 'x'}")
               ? TRUCE_OK
               : status;
}

static void tag_has_moved(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(scene->work(store, tree, &error), error);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, scene->work == untag ? 0 : 1);
    CHECK_INT(count_json(store, "truce_tree_holds", "{'tag': 'x', 'version': 2}"), ==, 0);
}

TEST(moves_a_tag_after_the_commit_that_holds_it)
{
    static truce_status (*const works[])(truce_store *, truce_tree *,
                                         bson_error_t *) = {tag_third, tag_first, untag};

    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        play(&(struct scene){.collection = "truce_tree_holds",
                             .wanted = "{'tag': 'x'}",
                             .prepare = tag,
                             .work = works[i],
                             .judge = tag_has_moved});
}

/* ---- readers --------------------------------------------------------------------------------- */

static truce_tree_snapshot *held;

static void hold_second(truce_store *store, truce_tree *tree)
{
    truce_tree_at second = {.version = 2, .hold = true, .lease_ms = 3000};
    bson_error_t error = {0};

    (void)tree;
    editors = rig_tree(store, NULL, SHORT_MS);
    CHECK_OK(truce_tree_open(editors, &second, &held, &error), error);
}

static truce_status renew(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    bson_value_t c = text_id("c");
    bson_t item;
    truce_status status;

    (void)store, (void)tree;
    truce__clock_sleep_ms(1100);
    status = truce_tree_get(held, &c, &item, error);
    bson_destroy(&item);
    return status;
}

static void is_renewed(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(renew(store, tree, &error), error);
    truce_tree_close(held);
    truce_tree_free(editors);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
}

static truce_status leave(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    (void)store, (void)tree, (void)error;
    truce_tree_close(held);
    held = NULL;
    return TRUCE_OK;
}

static void hold_has_expired(truce_store *store, truce_tree *tree)
{
    truce_tree_close(held);
    truce_tree_free(editors);
    held = NULL;
    for (int i = 0; i < 2; i++) {
        rig_collect(tree, NULL);
        truce__clock_sleep_ms(4000);
    }
    rig_collect(tree, NULL);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_trees", "{'collected': 4}"), ==, 1);
}

TEST(renews_a_readers_hold_after_the_commit_that_holds_it)
{
    play(&(struct scene){.collection = "truce_tree_holds",
                         .wanted = "{'version': 2}",
                         .prepare = hold_second,
                         .work = renew,
                         .judge = is_renewed});
}

TEST(leaves_a_hold_that_a_commit_holds_to_the_collector)
{
    play(&(struct scene){.collection = "truce_tree_holds",
                         .wanted = "{'version': 2}",
                         .prepare = hold_second,
                         .work = leave,
                         .passes = true,
                         .judge = hold_has_expired});
}

static bool has_own_fields_only(const bson_t *item, void *arg)
{
    (void)arg;
    CHECK_INT(bson_count_keys(item), ==, 3); /* itemId, version, text */
    return true;
}

static truce_status read_all(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_tree_snapshot *snapshot;
    truce_status status = truce_tree_open(tree, NULL, &snapshot, error);

    (void)store;
    if (!status)
        status = truce_tree_find(snapshot, NULL, NULL, has_own_fields_only, NULL, error);
    truce_tree_close(snapshot);
    return status;
}

static void is_read(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    CHECK_OK(read_all(store, tree, &error), error);
}

/* Copies all items. */
static truce_status branch(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    (void)store;
    return truce_tree_branch(tree, NULL, "draft", error);
}

static void is_branch(truce_store *store, truce_tree *tree)
{
    truce_tree *draft = truce_tree_new(store, &(truce_tree_options){.name = "draft"});
    bson_error_t error = {0};

    (void)tree;
    if (count_json(store, "truce_trees", "{'_id': 'draft'}"))
        CHECK_OK(read_all(store, draft, &error), error);
    truce_tree_free(draft);
}

TEST(shows_and_copies_no_intent_of_a_commit)
{
    play(&(struct scene){.collection = "pages",
                         .wanted = "{'tree': 'site', 'itemId': 'b', 'version': 1}",
                         .work = branch,
                         .passes = true,
                         .judge = is_branch});
    play(&(struct scene){.collection = "pages",
                         .wanted = items[3],
                         .work = read_all,
                         .passes = true,
                         .judge = is_read});
}

/* ---- drop ------------------------------------------------------------------------------------ */

static truce_status drop(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    (void)store;
    return truce_tree_drop(tree, error);
}

static void is_dropped(truce_store *store, truce_tree *tree)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    if (count_json(store, "truce_trees", "{'dropped': {'$exists': false}}"))
        CHECK_OK(drop(store, tree, &error), error);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
    CHECK_INT(count_json(store, "truce_trees", "{}"), ==, 0);
}

TEST(drops_a_tree_after_the_commit_that_holds_its_item_or_tag)
{
    play(&(struct scene){
        .collection = "pages", .wanted = items[2], .work = drop, .judge = is_dropped});
    play(&(struct scene){.collection = "truce_tree_holds",
                         .wanted = "{'tag': 'x'}",
                         .prepare = tag,
                         .work = drop,
                         .judge = is_dropped});
}

/* ---- an edit that is published with other documents ------------------------------------------ */

static void begin_fifth(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    (void)tree;
    editors = rig_tree(store, NULL, 0);
    CHECK_OK(rig_edit(editors, "a=5 -b", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
}

static truce_status add_edit(truce_commit *commit, bson_error_t *error)
{
    return truce_tree_publish(edit, commit, NULL, error);
}

static truce_status collect_any(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_status status = TRUCE_OK;

    (void)store;
    for (int i = 0; !status && i < 3; i++)
        status = truce_tree_collect(tree, NULL, error);
    return status;
}

/* The version exists if and only if the other document does. */
static void is_joint(truce_store *store, truce_tree *tree)
{
    const char *wanted = count_json(store, "news", "{}") ? "a=5" : "a=4 b=1";
    bson_error_t error = {0};

    for (int i = 0; i < 2; i++) {
        CHECK_TREE(wanted, tree, 0);
        CHECK_OK(collect_any(store, tree, &error), error);
    }
    CHECK_INT(count_json(store, "pages", "{'pub': true}"), ==, strcmp(wanted, "a=5") ? 2 : 1);
    truce_tree_edit_free(edit);
    truce_tree_free(editors);
}

static const struct scene joint = {.collection = "truce_trees",
                                   .wanted = "{'_id': 'site'}",
                                   .prepare = begin_fifth,
                                   .add = add_edit,
                                   .work = collect_any,
                                   .judge = is_joint};

TEST(collects_beside_a_commit_that_publishes_an_edit)
{
    play(&joint);
}

/* The commit depends on the current version. */
static truce_status hold_current(truce_commit *commit, bson_error_t *error)
{
    bson_t *guard = test_bson("{'current': 4, 'dropped': null}");
    bson_value_t site = text_id("site");
    truce_status status = truce_commit_hold(commit, "truce_trees", &site, guard, error);

    bson_destroy(guard);
    return status;
}

static truce_status publish_or_drop(truce_store *store, truce_tree *tree, bson_error_t *error)
{
    truce_status status = truce_tree_collect(tree, NULL, error);

    (void)store;
    if (!status)
        status =
            enter_at % 2 ? rig_publish(tree, "a=5", NULL, error) : truce_tree_drop(tree, error);
    return status;
}

static void is_published_or_dropped(truce_store *store, truce_tree *tree)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(rig_publish(tree, "a=6", NULL, &error), error);
}

TEST(publishes_nothing_while_a_commit_depends_on_the_current_version)
{
    play(&(struct scene){.collection = "truce_trees",
                         .wanted = "{'_id': 'site'}",
                         .add = hold_current,
                         .work = publish_or_drop,
                         .judge = is_published_or_dropped});
}

/* ---- a dead commit --------------------------------------------------------------------------- */

/* The commit dies at call `at`, the collector at call `then`. Returns bits: 1 if the commit died, 2
 * if the collector did. */
static int suffer(enum trouble trouble, uint64_t at, uint64_t then)
{
    truce_commit_options options = {
        .mechanism = TRUCE_MECHANISM_JOURNAL, .lease_ms = 1, .deadline_ms = 4};
    truce_fault_options none = {.kind = TRUCE_FAULT_NONE};
    truce_store *memory = server_or_memory(), *inner = truce_fault_wrap(memory, &none),
                *store = truce_fault_wrap(inner, &none);
    truce_tree *tree = rig_tree(store, NULL, SHORT_MS), *last = rig_tree(store, NULL, 0);
    truce_sweep_report report;
    bson_error_t error = {0};
    int died;

    no_sleep_begin();
    fill(store);
    trouble_arm(inner, store, trouble, at);
    (void)!commit(store, &options, &error);
    died = truce_fault_hits(store) + truce_fault_hits(inner) > 0;
    trouble_arm(inner, store, trouble, then);
    (void)!truce_tree_collect(tree, NULL, &error);
    died |= truce_fault_hits(store) + truce_fault_hits(inner) > 0 ? 2 : 0;
    trouble_arm(inner, store, NONE, 0);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
        truce__clock_sleep_ms(4); /* past twice the lease */
    }
    scene->judge(store, last);
    CHECK_INT(count_json(store, "pages", "{'_intent': {'$exists': true}}"), ==, 0);
    if (test_failures())
        fprintf(stderr, "    the commit died at %d, the collector at %d\n", (int)at, (int)then);
    truce_tree_free(last);
    truce_tree_free(tree);
    truce_store_close(store);
    truce__environment_use(NULL);
    return died;
}

static void suffer_everywhere(const struct scene *played)
{
    uint64_t stride = server_under_test() ? 7 : 1, at = 1;
    int died = 1;

    scene = played;
    for (; died & 1 && !test_failures() && at < 300; at++) {
        died = 2;
        for (uint64_t then = 1; died & 2 && !test_failures() && then < 300; then += stride)
            died = suffer(DIE_BEFORE, at, then) | suffer(DIE_AFTER, at, then);
    }
    CHECK_INT(at, >, 5);
}

TEST(collects_everything_after_a_commit_and_a_collector_that_died)
{
    suffer_everywhere(
        &(struct scene){.collection = "pages", .wanted = items[0], .judge = all_is_collected});
    suffer_everywhere(&joint);
}
