/*
 * A process is stopped before the n-th call of a collection or a read. In the meantime everything
 * is settled and collected, and an unanswered insert of a removed item lands.
 */
#include "tests/support/hooked.h"
#include "tests/support/tree_rig.h"

static int calls, enter_at;
static bool inside;
static bson_t late; /* an item of version 2, as another attempt would insert it */

/* Does the work of others while the process is stopped: they collect all, and the insert lands. */
static void collect_and_land(truce_store *store)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    for (int i = 0; i < 3; i++)
        rig_collect(tree, NULL);
    if (!count_json(store, "pages", "{'itemId': 'c'}")) /* no version holds it */
        CHECK_OK(truce_insert(store, "pages", &late, NULL, &error), error);
    truce_tree_free(tree);
}

static void (*concurrent_work)(truce_store *store) = collect_and_land;

static void before_call(truce_store *store)
{
    if (inside || ++calls != enter_at)
        return;
    inside = true;
    concurrent_work(store);
    inside = false;
}

/* c is put in version 2 and removed in version 3; no version is settled, and only the current
 * version is to be kept. */
static truce_store *begin(void)
{
    truce_store *store = server_or_memory();
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_t *filter = test_bson("{'itemId': 'c', 'version': 2}"), found;
    bson_error_t error = {0};
    bson_oid_t fresh;

    CHECK_OK(rig_publish(tree, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "c=2", NULL, &error), error);
    CHECK_OK(truce_find_one(store, "pages", filter, NULL, &found, &error), error);
    bson_init(&late);
    bson_oid_init(&fresh, NULL);
    BSON_APPEND_OID(&late, "_id", &fresh);
    bson_copy_to_excluding_noinit(&found, &late, "_id", NULL);
    bson_destroy(&found);
    bson_destroy(filter);
    CHECK_OK(rig_publish(tree, "-c", NULL, &error), error);
    rig_keep(tree, 1);
    truce_tree_free(tree);
    calls = 0;
    hooked_make(store, before_call);
    store->ops = &hooked_ops;
    return store;
}

static void end(truce_store *store)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    inside = true;
    CHECK_TREE("a=1 b=1", tree, 0);
    CHECK_OK(rig_publish(tree, "a=4", NULL, &error), error);
    rig_collect(tree, NULL);
    CHECK_TREE("a=4 b=1", tree, 0);
    CHECK_INT(count_json(store, "pages", "{'itemId': 'c', 'pub': true}"), ==, 0);
    truce_tree_free(tree);
    inside = false;
    bson_destroy(&late);
    truce_store_close(store);
}

static void collect(truce_tree *tree)
{
    rig_collect(tree, NULL);
}

static void read_whole(truce_tree *tree)
{
    CHECK_TREE("a=1 b=1", tree, 3);
}

static void read_some(truce_tree *tree)
{
    bson_t *filter = test_bson("{'text': {'$gt': ''}}"), *sort = test_bson("{'itemId': 1}");
    truce_tree_find_options options = {.sort = sort};
    truce_tree_snapshot *snapshot;
    struct rig_text seen = {{0}};
    bson_error_t error = {0};

    CHECK_OK(truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_OK(truce_tree_find(snapshot, filter, &options, rig_append, &seen, &error), error);
    CHECK_TEXT("a=1 b=1", seen.text);
    truce_tree_close(snapshot);
    bson_destroy(sort);
    bson_destroy(filter);
}

static void read_one(truce_tree *tree)
{
    bson_value_t c = text_id("c");
    truce_tree_snapshot *snapshot;
    bson_t item;
    bson_error_t error = {0};

    CHECK_OK(truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_get(snapshot, &c, &item, &error), error);
    bson_destroy(&item);
    truce_tree_close(snapshot);
}

static void read_held(truce_tree *tree)
{
    truce_tree_snapshot *snapshot;
    truce_tree_at held = {.version = 3, .hold = true};
    struct rig_text seen = {{0}};
    bson_error_t error = {0};
    truce_status status = truce_tree_open(tree, &held, &snapshot, &error);

    if (!status) {
        CHECK_OK(truce_tree_find(snapshot, NULL, NULL, rig_append, &seen, &error), error);
        CHECK_TEXT("a=1 b=1", seen.text);
    }
    truce_tree_close(snapshot);
}

static void stop_everywhere(void (*act)(truce_tree *tree))
{
    bool entered = true;

    for (enter_at = 1; entered && !test_failures() && enter_at < 300; enter_at++) {
        truce_store *store = begin();
        truce_tree *tree = rig_tree(store, NULL, 0);

        act(tree);
        entered = calls >= enter_at;
        truce_tree_free(tree);
        end(store);
        if (test_failures())
            fprintf(stderr, "    stopped before call %d\n", enter_at);
    }
    CHECK_INT(enter_at, >, 3);
}

TEST(a_stopped_collector_marks_no_write_that_arrived_late)
{
    stop_everywhere(collect);
}

TEST(a_stopped_reader_reads_no_write_that_arrived_late)
{
    stop_everywhere(read_whole);
    stop_everywhere(read_some);
    stop_everywhere(read_one);
    stop_everywhere(read_held);
}

/* ---- holds ----------------------------------------------------------------------------------- */

static truce_tree *readers;
static truce_tree_snapshot *held; /* NULL: it was too late */

static void hold_second(truce_store *store)
{
    truce_tree_at second = {.version = 2, .hold = true};
    bson_error_t error = {0};
    truce_status status;

    readers = rig_tree(store, NULL, 0);
    status = truce_tree_open(readers, &second, &held, &error);
    CHECK(!status || status == TRUCE_EXPIRED);
}

/* Runs before the collector's n-th call; true: there was one. */
static bool hold_before(int call)
{
    truce_store *store = begin();
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct rig_text seen = {{0}};
    bson_error_t error = {0};
    bool entered;

    enter_at = call;
    for (int i = 0; i < 3; i++)
        rig_collect(tree, NULL);
    entered = calls >= call;
    inside = true;
    if (held) {
        CHECK_OK(truce_tree_find(held, NULL, NULL, rig_append, &seen, &error), error);
        CHECK_TEXT("a=1 b=1 c=2", seen.text);
    }
    truce_tree_close(held);
    truce_tree_free(readers);
    readers = NULL;
    held = NULL;
    inside = false;
    truce_tree_free(tree);
    end(store);
    return entered;
}

TEST(a_held_version_is_not_collected_by_any_process)
{
    int call = 1;

    concurrent_work = hold_second;
    while (hold_before(call) && !test_failures() && call < 300)
        call++;
    if (test_failures())
        fprintf(stderr, "    held before call %d\n", call);
    concurrent_work = collect_and_land;
    CHECK_INT(call, >, 10);
}

/* ---- calls that land twice ------------------------------------------------------------------- */

static bson_t kept_filter, kept_update;
static bool kept;

/* Keeps the first update of an item. */
static truce_status keeping_bulk(truce_store *store, const truce_write *writes, size_t count,
                                 const truce_bulk_options *options, truce_write_outcome *outcomes,
                                 bson_error_t *error)
{
    if (!kept && writes[0].kind == TRUCE_WRITE_UPDATE && !strcmp(writes[0].collection, "pages")) {
        bson_copy_to(writes[0].filter, &kept_filter);
        bson_copy_to(writes[0].document, &kept_update);
        kept = true;
    }
    return plain_ops->bulk(store, writes, count, options, outcomes, error);
}

TEST(ignores_a_late_write_of_an_item_that_was_written_again)
{
    truce_store *store = server_or_memory();
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    bson_error_t error = {0};

    inside = true;
    hooked_make(store, before_call);
    hooked_ops.bulk = keeping_bulk;
    store->ops = &hooked_ops;
    CHECK_OK(rig_edit(tree, "a=1", &edit, &error), error);
    for (int i = 2; i < 4; i++) {
        char json[60];

        CHECK_OK(truce_tree_flush(edit, &error), error);
        snprintf(json, sizeof json, "{'itemId': 'a', 'text': '%d'}", i);
        CHECK_OK(rig_put(edit, json, &error), error);
    }
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK(kept);
    CHECK_OK(truce_update(store, "pages", &kept_filter, &kept_update, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_TREE("a=3", tree, 0);
    bson_destroy(&kept_update);
    bson_destroy(&kept_filter);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
    truce_store_close(store);
}

/* ---- drop ------------------------------------------------------------------------------------ */

static bool followed; /* another tree of the name was created while the drop was stopped */

static void drop_and_follow(truce_store *store)
{
    truce_tree *next = rig_tree(store, NULL, 0);
    bson_error_t error = {0};

    if (count_json(store, "truce_trees", "{'dropped': true}") ||
        !count_json(store, "truce_trees", "{}")) {
        CHECK_OK(rig_publish(next, "z=9", NULL, &error), error);
        followed = true;
    }
    truce_tree_free(next);
}

TEST(a_drop_that_was_stopped_removes_nothing_of_the_next_tree)
{
    bool entered = true, ever = false;

    concurrent_work = drop_and_follow;
    for (enter_at = 1; entered && !test_failures() && enter_at < 300; enter_at++) {
        truce_store *store = begin();
        truce_tree *tree = rig_tree(store, NULL, 0);
        bson_error_t error = {0};

        inside = followed = false;
        CHECK_OK(truce_tree_drop(tree, &error), error);
        entered = calls >= enter_at;
        inside = true;
        ever = ever || followed;
        if (followed) {
            CHECK_TREE("z=9", tree, 1);
            CHECK_INT(count_json(store, "truce_tree_edits", "{}"), ==, 1);
        }
        inside = false;
        truce_tree_free(tree);
        bson_destroy(&late);
        truce_store_close(store);
        if (test_failures())
            fprintf(stderr, "    stopped before call %d\n", enter_at);
    }
    concurrent_work = collect_and_land;
    CHECK(ever);
}
