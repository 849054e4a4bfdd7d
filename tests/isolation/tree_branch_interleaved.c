/*
 * One call that reads or merges trees, and another whole call that comes before its first call of
 * the store, before its second, and so on. The other call is an erase, a merge the other way, or
 * versions that are published and collected. The first call continues, and its result is right.
 */
#include "tests/support/hooked.h"
#include "tests/support/tree_rig.h"

static truce_store *opened;
static truce_tree *site, *draft;
static void (*intrude)(void);
static int calls, enter_at; /* enter_at 0: at no call */
static bool inside;

static void before_call(truce_store *store)
{
    (void)store;
    if (inside || ++calls != enter_at)
        return;
    inside = true;
    intrude();
    inside = false;
}

/* ---- the intruders --------------------------------------------------------------------------- */

static void erase(void)
{
    bson_value_t id = text_id("e");
    int64_t versions;
    bson_error_t error = {0};

    CHECK_OK(truce_tree_erase(site, &id, &versions, &error), error);
}

static void pull(void)
{
    bson_error_t error = {0};

    CHECK_OK(truce_tree_merge(draft, "site", NULL, NULL, NULL, &error), error);
}

/* A day goes by for the process at work, and both sides publish on. */
static void sleep_for_a_day(void)
{
    bson_t *ending = test_bson("{'until': {'$exists': true}}"),
           *over = test_bson("{'$set': {'until': {'$date': 0}, 'ms': 0}}");
    truce_write_options many = {.multi = true};
    bson_error_t error = {0};

    CHECK_OK(truce_update(opened, "truce_tree_holds", ending, over, &many, NULL, &error), error);
    for (int i = 0; i < 2; i++) {
        rig_collect(site, NULL);
        rig_collect(draft, NULL);
    }
    bson_destroy(over);
    bson_destroy(ending);
}

static void go_on_and_collect(void)
{
    bson_error_t error = {0};

    CHECK_OK(rig_publish(site, "a=9 b=9", NULL, &error), error);
    for (int i = 0; i < 3; i++)
        rig_collect(site, NULL);
}

/* ---- the call -------------------------------------------------------------------------------- */

static void begin(truce_store *store)
{
    bson_error_t error = {0};

    site = rig_tree(store, NULL, 0);
    draft = truce_tree_new(store, &(truce_tree_options){.name = "draft"});
    CHECK_OK(rig_publish(site, "a=0 b=0", NULL, &error), error);
    CHECK_OK(truce_tree_branch(site, NULL, "draft", &error), error);
    CHECK_OK(rig_publish(draft, "b=d", NULL, &error), error);
    CHECK_OK(rig_publish(site, "a=s e=secret", NULL, &error), error);
    rig_keep(site, 1);
    rig_keep(draft, 1);
}

static void end(void)
{
    truce_tree_free(draft);
    truce_tree_free(site);
}

/* Runs at every call; checks when it has ended. */
static void at_every_call(void (*call)(truce_store *store), void (*between)(void),
                          void (*judge)(truce_store *store))
{
    int at = 0;

    intrude = between;
    do {
        truce_store *store = NULL;
        bson_error_t error = {0};

        CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
        hooked_make(store, before_call);
        store->ops = &hooked_ops;
        opened = store;
        inside = true;
        begin(store);
        inside = false;
        calls = 0;
        enter_at = ++at;
        call(store);
        inside = true;
        if (calls >= enter_at)
            judge(store);
        end();
        truce_store_close(store);
        if (test_failures())
            fprintf(stderr, "    before call %d\n", at);
    } while (calls >= enter_at && !test_failures());
    CHECK_INT(at, >, 5);
}

/* ---- concurrent erasure ---------------------------------------------------------------------- */

static void merge_down(truce_store *store)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_merge(draft, "site", NULL, NULL, NULL, &error), error);
}

static void branch(truce_store *store)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_branch(site, NULL, "deep", &error), error);
}

static void nothing_came_back(truce_store *store)
{
    truce_sweep_report report;
    bson_error_t error = {0};

    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(count_json(store, "pages", "{'text': 'secret'}"), ==, 0);
}

TEST(a_merge_or_copy_does_not_restore_an_item_erased_during_it)
{
    at_every_call(merge_down, erase, nothing_came_back);
    at_every_call(branch, erase, nothing_came_back);
}

/* ---- concurrent merges the other way --------------------------------------------------------- */

static void merge_up(truce_store *store)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_merge(site, "draft", NULL, NULL, NULL, &error), error);
}

/* A change that is reverted later stays reverted: the common version is that of the last merge. */
static void goes_back(truce_store *store)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_TREE("a=s b=d e=secret", site, 0);
    CHECK_TREE("a=s b=d e=secret", draft, 0);
    CHECK_OK(rig_publish(site, "a=0", NULL, &error), error);
    CHECK_OK(rig_publish(draft, "b=0", NULL, &error), error);
    CHECK_OK(truce_tree_merge(site, "draft", NULL, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_merge(draft, "site", NULL, NULL, NULL, &error), error);
    CHECK_TREE("a=0 b=0 e=secret", site, 0);
    CHECK_TREE("a=0 b=0 e=secret", draft, 0);
}

TEST(two_concurrent_merges_agree_about_the_common_version)
{
    at_every_call(merge_up, pull, goes_back);
}

/* The common version is still held, or the merge has begun again. */
static void can_be_merged_again(truce_store *store)
{
    bson_error_t error = {0};

    (void)store;
    CHECK_TREE("a=s b=d e=secret", site, 0);
    CHECK_OK(rig_publish(draft, "b=2", NULL, &error), error);
    sleep_for_a_day();
    CHECK_OK(truce_tree_merge(site, "draft", NULL, NULL, NULL, &error), error);
    CHECK_TREE("a=s b=2 e=secret", site, 0);
}

TEST(a_merge_that_was_stopped_for_a_day_begins_again)
{
    at_every_call(merge_up, sleep_for_a_day, can_be_merged_again);
}

/* ---- concurrent collection ------------------------------------------------------------------- */

static void open_now(truce_store *store)
{
    truce_tree_at now = {.hold = true};
    truce_tree_snapshot *snapshot = NULL;
    struct rig_text seen = {""};
    bson_error_t error = {0};

    (void)store;
    CHECK_OK(truce_tree_open(site, &now, &snapshot, &error), error);
    if (snapshot)
        CHECK_OK(truce_tree_find(snapshot, NULL, NULL, rig_append, &seen, &error), error);
    CHECK(!strcmp(seen.text, "a=s b=0 e=secret") || !strcmp(seen.text, "a=9 b=9 e=secret"));
    truce_tree_close(snapshot);
}

static bool take_line(const bson_t *line, void *arg)
{
    truce_tree_import *import = arg;
    bson_error_t error = {0};

    return CHECK_OK(truce_tree_import_line(import, line, &error), error);
}

static void copy_history(truce_store *store)
{
    truce_tree *copy = truce_tree_new(store, &(truce_tree_options){.name = "copy"});
    truce_tree_import *import = truce_tree_import_new(copy);
    truce_tree_imported imported;
    struct rig_text seen = {""};
    bson_error_t error = {0};

    CHECK_OK(truce_tree_export(site, 0, take_line, import, &error), error);
    CHECK_OK(truce_tree_import_end(import, &imported, &error), error);
    CHECK_OK(rig_see(copy, 0, &seen, &error), error);
    CHECK(!strcmp(seen.text, "a=s b=0 e=secret") || !strcmp(seen.text, "a=9 b=9 e=secret"));
    truce_tree_import_free(import);
    truce_tree_free(copy);
}

static void goes_on(truce_store *store)
{
    (void)store;
    CHECK_TREE("a=9 b=9 e=secret", site, 0);
}

TEST(reads_a_concurrently_collected_version_whole_or_the_next_one)
{
    at_every_call(open_now, go_on_and_collect, goes_on);
    at_every_call(copy_history, go_on_and_collect, goes_on);
}
