/* Patterns whose indexes are all hidden, and whose expiry times are all changed, work as before. */
#include <stdio.h>
#include <string.h>

#include "bson/value.h"
#include "store/store.h"
#include "tests/support/queue_rig.h"
#include "tests/support/sync_rig.h"
#include "tests/support/test.h"
#include "tests/support/tree_rig.h"
#include "truce/set.h"

static truce_store *store;
static bson_error_t error;
static char path[400];

static void open_again(void)
{
    const truce_store_options options = {.relaxed = true};

    truce_store_close(store);
    REQUIRE(CHECK_OK(truce_store_open(path, &options, &store, &error), error));
}

static void begin(void)
{
    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    store = NULL;
    open_again();
}

static int hide_one(const char *collection, const bson_t *index)
{
    bson_t *changes = test_bson("{'hidden': true}");
    bson_iter_t name, expires;

    CHECK(bson_iter_init_find(&name, index, "name"));
    if (bson_iter_init_find(&expires, index, "expireAfterSeconds"))
        BSON_APPEND_INT32(changes, "expireAfterSeconds", 7777);
    if (strcmp(bson_iter_utf8(&name, NULL), "_id_") != 0)
        CHECK_OK(
            truce_index_modify(store, collection, bson_iter_utf8(&name, NULL), changes, &error),
            error);
    bson_destroy(changes);
    return strcmp(bson_iter_utf8(&name, NULL), "_id_") != 0;
}

/* Those of all collections, and then the store is opened again. */
static void hide_all(void)
{
    const truce_list_options names = {.unmeasured = true};
    struct fields collections, indexes;
    bson_t list, of_one, index;
    int hidden = 0;

    REQUIRE(CHECK_OK(truce_collection_list(store, &names, &list, &error), error));
    for (collections = truce__fields(truce__value_document(&list));
         truce__fields_next(&collections);) {
        struct value name = truce__value_field(collections.value, "name", 4);
        uint32_t length;

        CHECK_OK(truce_index_list(store, truce__value_text(name, &length), &of_one, &error), error);
        for (indexes = truce__fields(truce__value_document(&of_one));
             truce__fields_next(&indexes);) {
            truce__value_bson(indexes.value, &index);
            hidden += hide_one(truce__value_text(name, &length), &index);
        }
        bson_destroy(&of_one);
    }
    bson_destroy(&list);
    CHECK(hidden > 0);
    open_again();
}

TEST(a_tree_is_published_and_read)
{
    truce_tree *tree;
    int64_t version;

    begin();
    tree = rig_tree(store, NULL, 0);
    CHECK_OK(rig_publish(tree, "a=1 b=2", &version, &error), error);
    truce_tree_free(tree);
    hide_all();
    tree = rig_tree(store, NULL, 0);
    CHECK_TREE("a=1 b=2", tree, 0);
    CHECK_OK(rig_publish(tree, "a=3 -b c=4", &version, &error), error);
    CHECK_TREE("a=3 c=4", tree, 0);
    CHECK_TREE("a=1 b=2", tree, version - 1);
    truce_tree_free(tree);
    truce_store_close(store);
}

TEST(jobs_are_added_and_claimed)
{
    truce_queue *queue;
    truce_job *job;

    begin();
    queue = rig_queue(store, NULL, "q");
    (void)rig_add(queue, "{'n': 1}", NULL);
    truce_queue_free(queue);
    hide_all();
    queue = rig_queue(store, NULL, "q");
    (void)rig_add(queue, "{'n': 2}", NULL);
    for (int i = 0; i < 2; i++) {
        job = rig_claim(queue);
        if (CHECK(job != NULL))
            CHECK_OK(truce_job_done(job, NULL, NULL, &error), error);
        truce_job_free(job);
    }
    rig_no_job(queue);
    truce_queue_free(queue);
    truce_store_close(store);
}

TEST(updates_copies_with_hidden_indexes_if_their_source_changes)
{
    truce_sync *sync;
    char text[40];

    begin();
    sync = rig_sync(store, 0, 0);
    rig_author(sync);
    CHECK_OK(rig_insert(sync, "users", "{'_id': 'u', 'name': 'Ada'}", NULL, &error), error);
    CHECK_OK(rig_insert(sync, "comments", "{'_id': 'c', 'user': 'u'}", NULL, &error), error);
    truce_sync_free(sync);
    hide_all();
    sync = rig_sync(store, 0, 0);
    rig_author(sync);
    CHECK_OK(rig_change(sync, "users", "u", "{'$set': {'name': 'Eve'}}", NULL, &error), error);
    CHECK_OK(rig_insert(sync, "comments", "{'_id': 'd', 'user': 'u'}", NULL, &error), error);
    CHECK_TEXT("Eve", rig_text(store, "comments", "c", "author", text));
    CHECK_TEXT("Eve", rig_text(store, "comments", "d", "author", text));
    truce_sync_free(sync);
    truce_store_close(store);
}

static void add_to_set(const char *element, int64_t number)
{
    const truce_set_options options = {
        .collection = "students", .key = "student", .field = "classes", .name = "name"};
    truce_set *set = truce_set_new(store, &options);
    bson_t *key = test_bson("{'student': 1}"), *added = BCON_NEW("name", BCON_UTF8(element));
    truce_set_outcome outcome;

    CHECK_OK(truce_set_add(set, NULL, key, added, number, &outcome, &error), error);
    CHECK_INT(outcome, ==, TRUCE_SET_APPLIED);
    truce_set_free(set);
    bson_destroy(key);
    bson_destroy(added);
}

TEST(elements_are_added_to_a_set)
{
    begin();
    add_to_set("CS 101", 1);
    hide_all();
    add_to_set("CS 102", 2);
    truce_store_close(store);
}

/* An index that differs in another option is a different index. */
TEST(refuses_an_index_that_conflicts_with_another_one)
{
    bson_t *made = test_bson("{'key': {'a': 1}, 'name': 'n', 'hidden': true}"),
           *same = test_bson("{'key': {'a': 1}, 'name': 'n'}"),
           *named = test_bson("{'key': {'a': 1}, 'name': 'other'}"),
           *unique = test_bson("{'key': {'a': 1}, 'name': 'n', 'unique': true}");

    begin();
    CHECK_OK(truce_index_create(store, "c", made, &error), error);
    CHECK_OK(truce__index_ensure(store, "c", same, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce__index_ensure(store, "c", named, &error), error);
    CHECK_INT(error.code, ==, CODE_INDEX_OPTIONS_CONFLICT);
    CHECK_STATUS(TRUCE_INVALID, truce__index_ensure(store, "c", unique, &error), error);
    CHECK_INT(error.code, ==, CODE_INDEX_KEY_SPECS_CONFLICT);
    truce_store_close(store);
    bson_destroy(made);
    bson_destroy(same);
    bson_destroy(named);
    bson_destroy(unique);
}
