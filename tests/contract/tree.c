/* Versions: every call, on every store. */
#include <string.h>

#include "tests/support/tree_rig.h"

/* ---- publications ---------------------------------------------------------------------------- */

static void publishes(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    int64_t version;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1", &version, &error), error);
    CHECK_INT(version, ==, 1);
    CHECK_OK(rig_publish(tree, "b=2 -c d=2", &version, &error), error);
    CHECK_INT(version, ==, 2);
    CHECK_TREE("a=1 b=2 d=2", tree, 0);
    CHECK_TREE("a=1 b=1 c=1", tree, 1);
    CHECK_OK(rig_publish(tree, "c=3 -x", &version, &error), error);
    CHECK_TREE("a=1 b=2 c=3 d=2", tree, 3);
    CHECK_TREE("a=1 b=2 d=2", tree, 2);
    rig_collect(tree, NULL);
    CHECK_TREE("a=1 b=2 c=3 d=2", tree, 3);
    CHECK_TREE("a=1 b=1 c=1", tree, 1);
    truce_tree_free(tree);
}

TEST(each_version_equals_the_publication_of_its_edit)
{
    rig_everywhere(publishes);
}

static void keeps_edits_apart(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *first, *second, *third;
    truce_tree_published published;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "a=dead c=dead", &first, &error), error);
    CHECK_OK(truce_tree_flush(first, &error), error);
    CHECK_TREE("a=1 b=1", tree, 0);
    CHECK_OK(rig_edit(tree, "b=2", &second, &error), error);
    CHECK_OK(rig_edit(tree, "b=3", &third, &error), error);
    CHECK_OK(truce_tree_publish(second, NULL, &published, &error), error);
    CHECK_TREE("a=1 b=2", tree, 0);
    CHECK_STATUS(TRUCE_CONFLICT, truce_tree_publish(third, NULL, NULL, &error), error);
    CHECK(strstr(error.message, "version 2 of tree \"site\" is current"));
    CHECK_STATUS(TRUCE_CONFLICT, truce_tree_publish(first, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_publish(second, NULL, &published, &error), error);
    CHECK_INT(published.version, ==, 2);
    CHECK_STATUS(TRUCE_INVALID, rig_put(second, "{'itemId': 'z'}", &error), error);
    CHECK_TREE("a=1 b=2", tree, 0);
    truce_tree_edit_free(third);
    truce_tree_edit_free(second);
    truce_tree_edit_free(first);
    truce_tree_free(tree);
}

TEST(hides_unpublished_edits_and_a_base_has_one_successor)
{
    rig_everywhere(keeps_edits_apart);
}

static void puts_again(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    truce_tree_published published;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_edit(tree, "a=1 a=2 b=1", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'a', 'text': '3', 'more': [1]}", &error), error);
    CHECK_OK(rig_drop(edit, "b", &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'a', 'text': '4'}", &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, &published, &error), error);
    CHECK_TREE("a=4", tree, 0);
    CHECK_INT(count_json(store, "pages", "{'more': {'$exists': true}}"), ==, 0);
    truce_tree_edit_free(edit);
    CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, &published, &error), error);
    CHECK(published.nothing);
    CHECK_INT(published.version, ==, 1);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(publishes_the_last_put_of_each_item)
{
    rig_everywhere(puts_again);
}

static void goes_on(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit_options options = {.message = "the second"};
    truce_tree_edit *edit, *again, *stale;
    bson_oid_t token;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(truce_tree_begin(tree, &options, &edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'b', 'text': '2'}", &error), error);
    CHECK_OK(rig_drop(edit, "a", &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    bson_oid_copy(truce_tree_edit_token(edit), &token);
    options = (truce_tree_edit_options){.token = &token};
    CHECK_OK(truce_tree_begin(tree, &options, &again, &error), error);
    /* the first editor writes on, into an edit that is no longer used */
    CHECK_OK(rig_put(edit, "{'itemId': 'x', 'text': 'late'}", &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(truce_tree_publish(again, NULL, NULL, &error), error);
    CHECK_TREE("b=2", tree, 0);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_begin(tree, &options, &stale, &error), error);
    CHECK(!stale);
    truce_tree_edit_free(again);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(resumes_an_edit_by_its_token)
{
    rig_everywhere(goes_on);
}

/* ---- in a commit ----------------------------------------------------------------------------- */

struct both {
    truce_tree *tree;
    truce_tree_edit *edit;
    bool fails;
};

static truce_status publish_and_tell(truce_commit *commit, void *arg, bson_error_t *error)
{
    const struct both *both = arg;
    bson_t *document = test_bson("{'_id': 'reported', 'n': 1}");
    truce_status status = truce_tree_publish(both->edit, commit, NULL, error);

    if (!status)
        status = truce_commit_insert(commit, "news", document, error);
    bson_destroy(document);
    return !status && both->fails ? TRUCE_REFUSED : status;
}

static void publishes_in_a_commit(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct both both = {.tree = tree, .fails = true};
    bson_error_t error = {0};

    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "a=2", &both.edit, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, publish_and_tell, &both, &options, &error),
                 error);
    CHECK_TREE("a=1", tree, 0);
    both.fails = false;
    CHECK_OK(truce_transact(store, publish_and_tell, &both, &options, &error), error);
    CHECK_TREE("a=2", tree, 0);
    CHECK_INT(count_json(store, "news", "{}"), ==, 1);
    truce_tree_edit_free(both.edit);
    CHECK_OK(rig_edit(tree, "a=3", &both.edit, &error), error);
    CHECK_OK(rig_publish(tree, "b=3", NULL, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, publish_and_tell, &both, &options, &error),
                 error);
    CHECK(strstr(error.message, "rebase"));
    truce_tree_edit_free(both.edit);
    rig_collect(tree, NULL);
    CHECK_TREE("a=2 b=3", tree, 0);
    truce_tree_free(tree);
}

TEST(an_edit_is_published_with_a_commit_or_not_at_all)
{
    rig_everywhere(publishes_in_a_commit);
}

static void knows_another(truce_store *store, const struct setting *setting)
{
    truce_commit_options options = {.mechanism = setting->mechanism};
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct both both = {.tree = tree};
    truce_tree_snapshot *snapshot;
    bson_value_t a = text_id("a");
    bson_error_t error = {0};
    bson_t item;

    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "a=2", &both.edit, &error), error);
    CHECK_OK(truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_OK(truce_collection_drop(store, "truce_trees", &error), error);
    CHECK_OK(rig_publish(tree, "a=other", NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_transact(store, publish_and_tell, &both, &options, &error),
                 error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_publish(both.edit, NULL, NULL, &error), error);
    CHECK(strstr(error.message, "dropped and created again"));
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_rebase(both.edit, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_tree_get(snapshot, &a, &item, &error), error);
    CHECK_TREE("a=other", tree, 0);
    bson_destroy(&item);
    truce_tree_close(snapshot);
    truce_tree_edit_free(both.edit);
    truce_tree_free(tree);
}

TEST(a_tree_of_the_same_name_is_another_tree)
{
    rig_everywhere(knows_another);
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool count_items(const bson_t *item, void *arg)
{
    (void)item;
    ++*(int *)arg;
    return true;
}

static void finds(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_find_options options = {0};
    truce_tree_snapshot *old, *now;
    bson_t item, *filter = test_bson("{'text': {'$lte': '1'}}"), *sort = test_bson("{'text': -1}");
    bson_value_t a = text_id("a"), c = text_id("c");
    struct rig_text seen = {{0}};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1 d=0", NULL, &error), error);
    CHECK_OK(truce_tree_open(tree, NULL, &old, &error), error);
    CHECK_OK(rig_publish(tree, "a=2 -c", NULL, &error), error);
    CHECK_OK(truce_tree_open(tree, NULL, &now, &error), error);
    CHECK_OK(truce_tree_find(old, filter, NULL, rig_append, &seen, &error), error);
    CHECK_INT(strlen(seen.text), ==, strlen("a=1 b=1 c=1 d=0"));
    seen.text[0] = 0;
    options.sort = sort;
    CHECK_OK(truce_tree_find(now, filter, &options, rig_append, &seen, &error), error);
    CHECK_TEXT("b=1 d=0", seen.text);
    seen.text[0] = 0;
    options.limit = 1;
    CHECK_OK(truce_tree_find(now, NULL, &options, rig_append, &seen, &error), error);
    CHECK_TEXT("a=2", seen.text);
    CHECK_OK(truce_tree_get(old, &a, &item, &error), error);
    bson_t *wanted = test_bson("{'itemId': 'a', 'version': {'$numberLong': '1'}, 'text': '1'}");
    CHECK(bson_equal(&item, wanted));
    bson_destroy(wanted);
    bson_destroy(&item);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_get(now, &c, &item, &error), error);
    CHECK(strstr(error.message, "\"c\" is not in version 2"));
    bson_destroy(&item);
    truce_tree_close(now);
    truce_tree_close(old);
    bson_destroy(sort);
    bson_destroy(filter);
    truce_tree_free(tree);
}

TEST(a_snapshot_is_read_by_id_by_filter_and_whole)
{
    rig_everywhere(finds);
}

static void opens(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0), *none;
    truce_tree_snapshot *snapshot, *other;
    truce_tree_at at = {.version = 9};
    char token[300];
    bson_error_t error = {0};

    (void)setting;
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_open(tree, &at, &snapshot, &error), error);
    CHECK_OK(truce_tree_tag(tree, "first", 0, &error), error);
    CHECK_OK(rig_publish(tree, "a=2", NULL, &error), error);
    at = (truce_tree_at){.tag = "first"};
    CHECK_OK(truce_tree_open(tree, &at, &snapshot, &error), error);
    CHECK_INT(truce_tree_version(snapshot), ==, 1);
    snprintf(token, sizeof token, "%s", truce_tree_snapshot_token(snapshot));
    at = (truce_tree_at){.token = token};
    CHECK_OK(truce_tree_open(tree, &at, &other, &error), error);
    CHECK_INT(truce_tree_version(other), ==, 1);
    truce_tree_close(other);
    truce_tree_close(snapshot);
    at = (truce_tree_at){.tag = "second"};
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_open(tree, &at, &snapshot, &error), error);
    at = (truce_tree_at){.token = "1-nothing"};
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_open(tree, &at, &snapshot, &error), error);
    at = (truce_tree_at){.tag = "first", .version = 1};
    CHECK_STATUS(TRUCE_INVALID, truce_tree_open(tree, &at, &snapshot, &error), error);
    at = (truce_tree_at){.time_ms = 1767225600};
    CHECK_STATUS(TRUCE_INVALID, truce_tree_open(tree, &at, &snapshot, &error), error);
    CHECK(strstr(error.message, "time_ms is 1767225600, a time before 10000000000"));
    at = (truce_tree_at){.time_ms = INT64_C(253402300799999)};
    CHECK_OK(truce_tree_open(tree, &at, &snapshot, &error), error);
    CHECK_INT(truce_tree_version(snapshot), ==, 2);
    truce_tree_close(snapshot);
    at = (truce_tree_at){.time_ms = 1000000000000};
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_open(tree, &at, &snapshot, &error), error);
    none = truce_tree_new(store, &(truce_tree_options){.collection = "truce_commits"});
    CHECK_STATUS(TRUCE_INVALID, truce_tree_open(none, NULL, &snapshot, &error), error);
    truce_tree_free(none);
    none = truce_tree_new(store, &(truce_tree_options){.collection = "other", .name = "site"});
    CHECK_STATUS(TRUCE_INVALID, truce_tree_open(none, NULL, &snapshot, &error), error);
    truce_tree_free(none);
    truce_tree_free(tree);
}

TEST(a_version_is_opened_by_number_tag_token_and_time)
{
    rig_everywhere(opens);
}

/* A clock that was ahead, and is corrected. */
static void keeps_time(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_t *all = bson_new(),
           *later = test_bson("{'$set': {'at': {'$date': '2100-01-01T00:00:00Z'}}}");
    truce_tree_snapshot *snapshot;
    truce_tree_at at = {.time_ms = INT64_C(4102358400000)}; /* a day before */
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(truce_update(store, "truce_trees", all, later, NULL, NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=2", NULL, &error), error);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(truce_tree_open(tree, &at, &snapshot, &error), error);
        CHECK_INT(truce_tree_version(snapshot), ==, 1);
        truce_tree_close(snapshot);
        rig_collect(tree, NULL); /* and when it is settled */
    }
    bson_destroy(later);
    bson_destroy(all);
    truce_tree_free(tree);
}

TEST(times_never_go_back)
{
    rig_everywhere(keeps_time);
}

static void refuses_items(truce_store *store, const struct setting *setting)
{
    static const char *const bad[] = {
        "{'text': 'x'}",           "{'itemId': null}",           "{'itemId': [1]}",
        "{'itemId': {'a': 1}}",    "{'itemId': 1, 'token': 1}",  "{'itemId': 1, 'pub': true}",
        "{'itemId': 1, '_id': 1}", "{'itemId': 1, '_intent': 1}"};
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(TRUCE_INVALID, rig_put(edit, bad[i], &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 1, 'version': 77, 'n': 1}", &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 1.0, 'n': 2}", &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_INT(count_json(store, "pages", "{'n': 2, 'version': 1}"), ==, 1);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 1);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(bad_items_are_refused_by_name)
{
    rig_everywhere(refuses_items);
}

/* ---- many items ------------------------------------------------------------------------------ */

TEST(a_large_edit_is_one_version)
{
    truce_store *store = server_or_memory();
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *edit;
    truce_tree_snapshot *snapshot;
    bson_t *all = test_bson("{'n': {'$gte': 0}}");
    int items = server_under_test() ? 300 : 2500, count = 0;
    bson_error_t error = {0};

    for (int round = 0; round < 2; round++) {
        CHECK_OK(truce_tree_begin(tree, NULL, &edit, &error), error);
        for (int i = 0; i < items; i++) {
            bson_t *item = BCON_NEW("itemId", BCON_INT32(i), "n", BCON_INT32(round));

            CHECK_OK(truce_tree_put(edit, item, &error), error);
            bson_destroy(item);
        }
        CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
        truce_tree_edit_free(edit);
    }
    CHECK_OK(truce_tree_open(tree, NULL, &snapshot, &error), error);
    CHECK_OK(truce_tree_find(snapshot, NULL, NULL, count_items, &count, &error), error);
    CHECK_INT(count, ==, items);
    count = 0;
    CHECK_OK(truce_tree_find(snapshot, all, NULL, count_items, &count, &error), error);
    CHECK_INT(count, ==, items);
    truce_tree_close(snapshot);
    bson_destroy(all);
    rig_keep(tree, 1);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(store, "pages", "{}"), ==, items);
    truce_tree_free(tree);
    truce_store_close(store);
}

/* ---- differences ----------------------------------------------------------------------------- */

static bool tell_change(const truce_tree_change *change, void *arg)
{
    struct rig_text *all = arg;
    size_t length = strlen(all->text);

    snprintf(all->text + length, sizeof all->text - length, "%s%s%s", length ? " " : "",
             !change->before  ? "+"
             : !change->after ? "-"
                              : "",
             change->item->value.v_utf8.str);
    return true;
}

static bool tell_entry(const bson_t *entry, void *arg)
{
    struct rig_text *all = arg;
    size_t length = strlen(all->text);
    bson_iter_t iter;

    if (bson_iter_init_find(&iter, entry, "version"))
        snprintf(all->text + length, sizeof all->text - length, "%s%d", length ? " " : "",
                 (int)bson_iter_as_int64(&iter));
    if (bson_iter_init_find(&iter, entry, "message"))
        snprintf(all->text + strlen(all->text), 40, ":%s", bson_iter_utf8(&iter, NULL));
    return true;
}

#define CHECK_DIFF(wanted, tree, from, to)                                                         \
    do {                                                                                           \
        struct rig_text seen = {{0}};                                                              \
        bson_error_t diff_error = {0};                                                             \
        CHECK_OK(truce_tree_diff(tree, from, to, tell_change, &seen, &diff_error), diff_error);    \
        CHECK_TEXT(wanted, seen.text);                                                             \
    } while (0)

static void differs(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit_options options = {.message = "hello", .author = "me"};
    truce_tree_edit *edit, *dead;
    struct rig_text log = {{0}};
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "b=dead", &dead, &error), error);
    CHECK_OK(truce_tree_flush(dead, &error), error);
    CHECK_OK(rig_publish(tree, "a=2 -c d=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=1 b=1", NULL, &error), error);
    CHECK_DIFF("a -c +d", tree, 1, 2);
    CHECK_DIFF("-c +d", tree, 1, 3);
    CHECK_DIFF("+c -d", tree, 3, 1);
    CHECK_DIFF("+a +b +c", tree, 0, 1);
    CHECK_OK(truce_tree_begin(tree, &options, &edit, &error), error);
    CHECK_OK(truce_tree_revert(edit, 1, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_TREE("a=1 b=1 c=1", tree, 0);
    CHECK_DIFF("", tree, 1, 4);
    CHECK_OK(truce_tree_log(tree, 0, tell_entry, &log, &error), error);
    CHECK_TEXT("4:hello 3 2 1", log.text);
    rig_collect(tree, NULL);
    log.text[0] = 0;
    CHECK_OK(truce_tree_log(tree, 2, tell_entry, &log, &error), error);
    CHECK_TEXT("4:hello 3", log.text);
    truce_tree_edit_free(dead);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(versions_are_compared_listed_and_reverted_to)
{
    rig_everywhere(differs);
}

/* ---- rebase ---------------------------------------------------------------------------------- */

static void tell_conflict(const truce_tree_conflict *conflict, void *arg)
{
    struct rig_text *all = arg;
    size_t length = strlen(all->text);

    snprintf(all->text + length, sizeof all->text - length, "%s%s:%s%s%s", length ? " " : "",
             conflict->item->value.v_utf8.str, conflict->base ? "b" : "", conflict->mine ? "m" : "",
             conflict->theirs ? "t" : "");
}

static void rebases(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    struct rig_text reported = {{0}};
    truce_tree_rebase_options options = {.conflict = tell_conflict, .arg = &reported};
    truce_tree_edit *edit;
    uint32_t conflicts;
    bson_oid_t before;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1 d=1 e=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "a=mine b=mine -c -d new=mine", &edit, &error), error);
    CHECK_OK(rig_put(edit, "{'itemId': 'e', 'text': '1', 'mine': true}", &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(rig_publish(tree, "b=theirs -c d=theirs e=theirs other=1", NULL, &error), error);
    CHECK_STATUS(TRUCE_CONFLICT, truce_tree_publish(edit, NULL, NULL, &error), error);
    bson_oid_copy(truce_tree_edit_token(edit), &before);
    CHECK_STATUS(TRUCE_CONFLICT, truce_tree_rebase(edit, &options, &conflicts, &error), error);
    CHECK_INT(conflicts, ==, 2);
    CHECK_INT(strlen(reported.text), ==, strlen("b:bmt d:bt"));
    CHECK(strstr(reported.text, "b:bmt") && strstr(reported.text, "d:bt"));
    CHECK(bson_oid_equal(&before, truce_tree_edit_token(edit)));
    options.prefer = TRUCE_TREE_MINE;
    CHECK_OK(truce_tree_rebase(edit, &options, &conflicts, &error), error);
    CHECK(!bson_oid_equal(&before, truce_tree_edit_token(edit)));
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_TREE("a=mine b=mine e=theirs new=mine other=1", tree, 0);
    CHECK_INT(count_json(store, "pages", "{'version': 3, 'mine': true, 'text': 'theirs'}"), ==, 1);
    CHECK_STATUS(TRUCE_INVALID, truce_tree_rebase(edit, NULL, NULL, &error), error);
    truce_tree_edit_free(edit);
    CHECK_OK(rig_edit(tree, "b=again", &edit, &error), error);
    CHECK_OK(truce_tree_flush(edit, &error), error);
    CHECK_OK(rig_publish(tree, "-b", NULL, &error), error);
    options.prefer = TRUCE_TREE_THEIRS;
    CHECK_OK(truce_tree_rebase(edit, &options, &conflicts, &error), error);
    CHECK_OK(truce_tree_publish(edit, NULL, NULL, &error), error);
    CHECK_TREE("a=mine e=theirs new=mine other=1", tree, 0);
    truce_tree_edit_free(edit);
    truce_tree_free(tree);
}

TEST(an_edit_that_lost_is_merged_item_by_item)
{
    rig_everywhere(rebases);
}

/* ---- retention ------------------------------------------------------------------------------- */

static void collects(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_at at = {.version = 2, .hold = true};
    truce_tree_collected collected;
    truce_tree_snapshot *held, *free;
    bson_value_t c = text_id("c");
    bson_t item;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1 c=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=2", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=3 -c", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=4", NULL, &error), error);
    rig_collect(tree, &collected);
    CHECK_INT(collected.settled, ==, 4);
    CHECK_INT(collected.items, ==, 0);
    CHECK_INT(count_json(store, "pages", "{'pub': true}"), ==, 7);
    CHECK_OK(truce_tree_open(tree, &at, &held, &error), error);
    at.hold = false;
    CHECK_OK(truce_tree_open(tree, &at, &free, &error), error);
    rig_keep(tree, 1);
    rig_collect(tree, &collected);
    CHECK_INT(collected.items, ==, 1);
    CHECK_STATUS(TRUCE_EXPIRED, rig_see(tree, 1, &(struct rig_text){{0}}, &error), error);
    CHECK(strstr(error.message, "the oldest stored version is 2"));
    CHECK_OK(truce_tree_get(held, &c, &item, &error), error);
    bson_destroy(&item);
    CHECK_OK(truce_tree_get(free, &c, &item, &error), error);
    bson_destroy(&item);
    truce_tree_close(held);
    rig_collect(tree, &collected);
    CHECK_INT(collected.items, ==, 4); /* a of 2 and 3, c and its removal */
    CHECK_STATUS(TRUCE_EXPIRED, truce_tree_get(free, &c, &item, &error), error);
    bson_destroy(&item);
    truce_tree_close(free);
    CHECK_TREE("a=4 b=1", tree, 0);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 2);
    CHECK_INT(count_json(store, "truce_tree_edits", "{}"), ==, 1);
    CHECK_INT(count_json(store, "truce_tree_holds", "{}"), ==, 0);
    truce_tree_free(tree);
}

TEST(collects_unreachable_versions_and_keeps_held_ones)
{
    rig_everywhere(collects);
}

static void keeps_tags(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_error_t error = {0};
    bson_t status;
    bson_iter_t iter;

    (void)setting;
    for (int i = 1; i < 6; i++) {
        char text[20];

        snprintf(text, sizeof text, "a=%d", i);
        CHECK_OK(rig_publish(tree, text, NULL, &error), error);
    }
    CHECK_OK(truce_tree_tag(tree, "x", 2, &error), error);
    rig_keep(tree, 1);
    rig_collect(tree, NULL);
    CHECK_TREE("a=2", tree, 2);
    CHECK_OK(truce_tree_tag(tree, "x", 4, &error), error);
    rig_collect(tree, NULL);
    CHECK_TREE("a=4", tree, 4);
    CHECK_STATUS(TRUCE_EXPIRED, rig_see(tree, 3, &(struct rig_text){{0}}, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_tree_tag(tree, "y", 3, &error), error);
    CHECK_STATUS(TRUCE_EXPIRED, truce_tree_tag(tree, "x", 3, &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_tag(tree, "y", 9, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_tree_tag(tree, "", 4, &error), error);
    CHECK_OK(truce_tree_status(tree, &status, &error), error);
    CHECK(bson_iter_init_find(&iter, &status, "kept") && bson_iter_as_int64(&iter) == 4);
    bson_destroy(&status);
    CHECK_OK(truce_tree_untag(tree, "x", &error), error);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_untag(tree, "x", &error), error);
    rig_collect(tree, NULL);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 1);
    truce_tree_free(tree);
}

TEST(keeps_a_tagged_version_until_the_tag_is_removed)
{
    rig_everywhere(keeps_tags);
}

static void drops_edits(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_tree_edit *given_up, *silent;
    truce_tree_collected collected;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1", NULL, &error), error);
    CHECK_OK(rig_edit(tree, "a=x b=x", &given_up, &error), error);
    CHECK_OK(truce_tree_flush(given_up, &error), error);
    CHECK_OK(rig_edit(tree, "a=y b=y", &silent, &error), error);
    CHECK_OK(truce_tree_flush(silent, &error), error);
    CHECK_OK(truce_tree_abandon(given_up, &error), error);
    rig_collect(tree, &collected);
    CHECK_INT(collected.items, ==, 0); /* the number may still be its own */
    CHECK_OK(rig_publish(tree, "a=2", NULL, &error), error);
    rig_collect(tree, &collected);
    CHECK_INT(collected.items, ==, 2);
    CHECK_INT(collected.edits, ==, 1);
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_tree_rebase(given_up, NULL, NULL, &error), error);
    CHECK_OK(truce_tree_rebase(silent, &(truce_tree_rebase_options){.prefer = TRUCE_TREE_MINE},
                               NULL, &error),
             error);
    CHECK_OK(truce_tree_publish(silent, NULL, NULL, &error), error);
    CHECK_TREE("a=y b=y", tree, 0);
    rig_collect(tree, &collected);
    CHECK_INT(collected.items, ==, 2); /* of the edit as it was before the rebase */
    truce_tree_edit_free(silent);
    truce_tree_edit_free(given_up);
    truce_tree_free(tree);
}

TEST(edits_that_are_given_up_are_collected_and_others_are_not)
{
    rig_everywhere(drops_edits);
}

static void erases(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    bson_value_t a = text_id("a");
    int64_t versions;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=secret b=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=secret2", NULL, &error), error);
    CHECK_OK(truce_tree_erase(tree, &a, &versions, &error), error);
    CHECK_INT(versions, ==, 2);
    CHECK_TREE("b=1", tree, 1);
    CHECK_TREE("b=1", tree, 2);
    CHECK_INT(count_json(store, "pages", "{'text': {'$regex': 'secret'}}"), ==, 0);
    CHECK_OK(truce_tree_erase(tree, &a, &versions, &error), error);
    CHECK_INT(versions, ==, 0);
    CHECK_OK(rig_publish(tree, "a=new", NULL, &error), error);
    rig_collect(tree, NULL);
    CHECK_TREE("a=new b=1", tree, 0);
    truce_tree_free(tree);
}

TEST(an_erased_item_is_in_no_version)
{
    rig_everywhere(erases);
}

/* ---- the shape ------------------------------------------------------------------------------- */

static truce_status shape(truce_tree *tree, const char *const *items, const char *removed,
                          bson_error_t *error)
{
    truce_tree_edit *edit;
    truce_status status = truce_tree_begin(tree, NULL, &edit, error);

    for (; !status && *items; items++)
        status = rig_put(edit, *items, error);
    if (!status && removed)
        status = rig_drop(edit, removed, error);
    if (!status)
        status = truce_tree_publish(edit, NULL, NULL, error);
    truce_tree_edit_free(edit);
    return status;
}

static void keeps_shape(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, "up", 0);
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(shape(tree,
                   (const char *const[]){"{'itemId': 'c', 'up': 'b'}", "{'itemId': 'b', 'up': 'a'}",
                                         "{'itemId': 'a', 'up': null}", NULL},
                   NULL, &error),
             error);
    CHECK_STATUS(
        TRUCE_INVALID,
        shape(tree, (const char *const[]){"{'itemId': 'd', 'up': 'x'}", NULL}, NULL, &error),
        error);
    CHECK(strstr(error.message, "item \"d\" has the parent \"x\", which does not exist"));
    CHECK_STATUS(TRUCE_INVALID, shape(tree, (const char *const[]){NULL}, "b", &error), error);
    CHECK(strstr(error.message, "item \"c\" has the parent \"b\", which would be removed"));
    CHECK_STATUS(
        TRUCE_INVALID,
        shape(tree, (const char *const[]){"{'itemId': 'a', 'up': 'c'}", NULL}, NULL, &error),
        error);
    CHECK(strstr(error.message, "cycle"));
    CHECK_STATUS(
        TRUCE_INVALID,
        shape(tree, (const char *const[]){"{'itemId': 'a', 'up': 'a'}", NULL}, NULL, &error),
        error);
    CHECK_STATUS(TRUCE_INVALID,
                 shape(tree,
                       (const char *const[]){
                           "{'itemId': 'p', 'up': 'r'}", "{'itemId': 'q', 'up': 'p'}",
                           "{'itemId': 'r', 'up': 'q'}", "{'itemId': 'n', 'up': 'p'}", NULL},
                       NULL, &error),
                 error);
    CHECK(strstr(error.message, "cycle"));
    CHECK_OK(shape(tree, (const char *const[]){"{'itemId': 'c', 'up': 'a'}", NULL}, "b", &error),
             error);
    CHECK_OK(shape(tree, (const char *const[]){NULL}, "c", &error), error);
    truce_tree_free(tree);
}

TEST(no_version_has_an_orphan_or_a_cycle)
{
    rig_everywhere(keeps_shape);
}

/* ---- sweep and check ------------------------------------------------------------------------- */

static int64_t check_store(truce_store *store, bool repair)
{
    truce_check_report report;
    truce_check_options options = {.repair = repair};
    bson_error_t error = {0};

    CHECK_OK(truce_check(store, &options, NULL, NULL, &report, &error), error);
    return report.findings;
}

static void is_cared_for(truce_store *store, const struct setting *setting)
{
    truce_tree *tree = rig_tree(store, NULL, 0);
    truce_sweep_report report;
    bson_error_t error = {0};

    (void)setting;
    CHECK_OK(rig_publish(tree, "a=1 b=1", NULL, &error), error);
    CHECK_OK(rig_publish(tree, "a=2", NULL, &error), error);
    rig_keep(tree, 1);
    CHECK_OK(truce_sweep(store, NULL, &report, &error), error);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 2);
    CHECK_INT(check_store(store, false), ==, 0);
    insert_json(store, "pages",
                "{'_id': 'late', 'tree': 'site', 'itemId': 'z', 'version': 1, 'token': 5}");
    insert_json(store, "truce_trees", "{'_id': 'foreign', 'collection': 'pages'}");
    CHECK_TREE("a=2 b=1", tree, 0);
    CHECK_INT(check_store(store, false), ==, 2);
    CHECK_INT(check_store(store, true), ==, 2);
    CHECK_INT(check_store(store, false), ==, 1);
    CHECK_INT(count_json(store, "pages", "{}"), ==, 2);
    truce_tree_free(tree);
}

TEST(the_sweep_collects_and_the_check_finds_items_of_no_version)
{
    rig_everywhere(is_cared_for);
}
