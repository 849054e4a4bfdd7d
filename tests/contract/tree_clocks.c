/* Holds and edits of trees where clocks differ: a collector takes nothing of a live reader or
 * editor, and removes what dead ones leave. */
#include "base/clock.h"
#include "base/limits.h"
#include "tests/support/no_sleep.h"
#include "tests/support/tree_rig.h"

#define LEASE_MS 1000
#define HOUR_MS  INT64_C(3600000)

/* Ids are random, so the random numbers do not restart within a store. */
static void tree_clocks_right(void)
{
    no_sleep_use();
    no_sleep_skew_ms = 0;
    no_sleep_clock = NULL;
}

static void publish_some(truce_tree *tree)
{
    bson_error_t error;

    for (int i = 1; i <= 3; i++) {
        char text[20];

        snprintf(text, sizeof text, "a=%d", i);
        CHECK_OK(rig_publish(tree, text, NULL, &error), error);
    }
}

/* Collects with a wall clock that is ahead of the others. */
static void collect_ahead(truce_tree *tree, int64_t ahead_ms)
{
    int64_t before_ms = no_sleep_skew_ms;

    no_sleep_skew_ms = ahead_ms;
    rig_collect(tree, NULL);
    no_sleep_skew_ms = before_ms;
}

static truce_status tree_clocks_read(truce_tree_snapshot *snapshot, bson_error_t *error)
{
    bson_value_t a = text_id("a");
    bson_t item;
    truce_status status = truce_tree_get(snapshot, &a, &item, error);

    bson_destroy(&item);
    return status;
}

static int64_t count_holds(truce_store *store)
{
    return count_json(store, "truce_tree_holds", "{}");
}

/* ---- readers --------------------------------------------------------------------------------- */

static void reader_lives(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    const truce_tree_at at = {.version = 1, .hold = true, .lease_ms = LEASE_MS};
    truce_tree_snapshot *held;
    bson_error_t error = {0};

    (void)setting;
    tree_clocks_right();
    publish_some(tree);
    CHECK_OK(truce_tree_open(tree, &at, &held, &error), error);
    rig_keep(tree, 1);
    for (int i = 0; i < 20; i++) {
        collect_ahead(tree, i % 2 ? HOUR_MS : 1000 * HOUR_MS);
        CHECK_OK(tree_clocks_read(held, &error), error);
        truce__clock_sleep_ms(LEASE_MS / 2);
    }
    truce_tree_close(held);
    truce__environment_use(NULL);
    truce_tree_free(tree);
}

TEST(keeps_the_version_of_a_live_reader_from_a_collector_whose_clock_is_ahead)
{
    rig_everywhere(reader_lives);
}

/* The reader's wall clock does not move, so a renewal cannot write a later time of its own. */
static void reader_stands_still(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    const truce_tree_at at = {.version = 1, .hold = true, .lease_ms = LEASE_MS};
    truce_tree_snapshot *held;
    bson_error_t error = {0};

    (void)setting;
    tree_clocks_right();
    publish_some(tree);
    CHECK_OK(truce_tree_open(tree, &at, &held, &error), error);
    rig_keep(tree, 1);
    for (int i = 0; i < 20; i++) {
        collect_ahead(tree, HOUR_MS);
        truce__clock_sleep_ms(LEASE_MS / 2);
        no_sleep_skew_ms -= LEASE_MS / 2;
        CHECK_OK(tree_clocks_read(held, &error), error);
    }
    truce_tree_close(held);
    truce__environment_use(NULL);
    truce_tree_free(tree);
}

TEST(keeps_the_version_of_a_reader_whose_clock_has_stopped)
{
    rig_everywhere(reader_stands_still);
}

/* `skew_ms`: of the reader. */
static void reader_dies(truce_store *store, int64_t skew_ms)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    const truce_tree_at at = {.version = 1, .hold = true, .lease_ms = LEASE_MS};
    truce_tree_snapshot *held;
    bson_error_t error = {0};

    tree_clocks_right();
    publish_some(tree);
    rig_keep(tree, 2);
    no_sleep_skew_ms = skew_ms;
    CHECK_OK(truce_tree_open(tree, &at, &held, &error), error);
    no_sleep_skew_ms = 0;
    rig_collect(tree, NULL);
    CHECK_INT(count_holds(store), ==, 1);
    truce__clock_sleep_ms(LEASE_MS);
    rig_collect(tree, NULL);
    CHECK_INT(count_holds(store), ==, 0);
    truce_tree_close(held);
    truce__environment_use(NULL);
    truce_tree_free(tree);
}

static void reader_dies_ahead(truce_store *store, const struct setting *setting)
{
    (void)setting;
    reader_dies(store, 1000 * HOUR_MS);
}

static void reader_dies_late(truce_store *store, const struct setting *setting)
{
    (void)setting;
    reader_dies(store, -1000 * HOUR_MS);
}

TEST(removes_the_hold_of_a_dead_reader_with_any_clock)
{
    rig_everywhere(reader_dies_ahead);
    rig_everywhere(reader_dies_late);
}

/* Each collector is a process of its own, which stores what it saw. */
TEST(removes_the_hold_of_a_dead_reader_if_each_collector_ends_at_once)
{
    char path[300];
    truce_store *store;
    truce_tree *tree;
    const truce_tree_at at = {.version = 1, .hold = true, .lease_ms = LEASE_MS};
    truce_tree_snapshot *held;
    bson_error_t error = {0};
    int64_t holds = 1;
    int rounds = 0;

    no_sleep_begin();
    no_sleep_clock = "boot";
    snprintf(path, sizeof path, "%s/t.truce", test_directory());
    CHECK_OK(truce_store_open(path, NULL, &store, &error), error);
    tree = rig_tree(store, NULL, 0);
    publish_some(tree);
    rig_keep(tree, 1);
    CHECK_OK(truce_tree_open(tree, &at, &held, &error), error);
    for (; holds && rounds < 20; rounds++) {
        truce_store *other;
        truce_tree *collects;

        CHECK_OK(truce_store_open(path, NULL, &other, &error), error);
        collects = rig_tree(other, NULL, 0);
        rig_collect(collects, NULL);
        holds = count_holds(other);
        truce_tree_free(collects);
        truce_store_close(other);
        truce__clock_sleep_ms(LEASE_MS / 4);
    }
    CHECK_INT(holds, ==, 0);
    CHECK_INT(rounds, >, 4);
    truce_tree_close(held);
    truce_tree_free(tree);
    truce_store_close(store);
    truce__environment_use(NULL);
}

/* ---- editors --------------------------------------------------------------------------------- */

/* Another edit takes the number of the silent one, so a collector looks at the silent one. */
static truce_tree_edit *begin_silent(truce_tree *tree)
{
    truce_tree_edit *edit;
    bson_error_t error = {0};

    publish_some(tree);
    CHECK_OK(rig_edit(tree, "b=x", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(rig_publish(tree, "a=9", NULL, &error), error);
    return edit;
}

static truce_status rebase_mine(truce_tree_edit *edit, bson_error_t *error)
{
    return truce_tree_rebase(edit, &(truce_tree_rebase_options){.prefer = TRUCE_TREE_MINE}, NULL,
                             error);
}

static void editor_lives(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    bson_error_t error = {0};

    (void)setting;
    tree_clocks_right();
    edit = begin_silent(tree);
    for (int i = 0; i < 3; i++) {
        collect_ahead(tree, 1000 * HOUR_MS);
        truce__clock_sleep_ms(TREE_EDIT_MS / 4);
    }
    CHECK_OK(rebase_mine(edit, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    truce_tree_edit_free(edit);
    truce__environment_use(NULL);
    truce_tree_free(tree);
}

TEST(abandons_no_edit_because_the_clock_of_a_collector_is_ahead)
{
    rig_everywhere(editor_lives);
}

static void editor_dies(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    bson_error_t error = {0};

    (void)setting;
    tree_clocks_right();
    no_sleep_skew_ms = 1000 * HOUR_MS;
    edit = begin_silent(tree);
    no_sleep_skew_ms = 0;
    rig_collect(tree, NULL);
    truce__clock_sleep_ms(TREE_EDIT_MS);
    rig_collect(tree, NULL);
    CHECK_STATUS(TRUCE_NOT_FOUND, rebase_mine(edit, &error), error);
    truce_tree_edit_free(edit);
    truce__environment_use(NULL);
    truce_tree_free(tree);
}

TEST(abandons_an_idle_edit_after_a_day_with_any_clock_of_its_editor)
{
    rig_everywhere(editor_dies);
}
