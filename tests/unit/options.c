/* Arguments and results of callers: options, ids, strings, cursors, their own statuses. */
#include <pthread.h>
#include <unistd.h>

#include <truce/truce.h>

#include "tests/support/test.h"

static truce_status add(truce_store *store, const truce_set_options *options, bson_error_t *error)
{
    truce_set *set = truce_set_new(store, options);
    bson_t *key = test_bson("{'cart': 1}"), *element = test_bson("{'sku': 'A'}");
    truce_status status = truce_set_add(set, NULL, key, element, 1, NULL, error);

    truce_set_free(set);
    bson_destroy(key);
    bson_destroy(element);
    return status;
}

static truce_status add_item(truce_store *store, const truce_item_options *options,
                             bson_error_t *error)
{
    truce_item *items = truce_item_new(store, options);
    bson_t *filter = test_bson("{'_id': 1}"), *element = test_bson("{'kind': 'A'}");
    truce_item_result result = {0};
    truce_status status = truce_item_add(items, NULL, filter, element, &result, error);

    truce_item_free(items);
    bson_destroy(filter);
    bson_destroy(element);
    return status;
}

static truce_status save(truce_store *store, const truce_revision_options *options,
                         bson_error_t *error)
{
    truce_revision *revision = truce_revision_new(store, options);
    bson_t *mine = test_bson("{'_id': 1}");
    truce_revision_result result;
    truce_status status =
        truce_revision_save(revision, NULL, mine, TRUCE_REVISION_NEW, NULL, &result, error);

    truce_revision_result_release(&result);
    truce_revision_free(revision);
    bson_destroy(mine);
    return status;
}

#define CHECK_ASKS(option, call)                                                                   \
    do {                                                                                           \
        CHECK_STATUS(TRUCE_INVALID, call, error);                                                  \
        if (!strstr(error.message, "option \"" option "\""))                                       \
            test_fail(__FILE__, __LINE__, "%s", error.message);                                    \
    } while (0)

TEST(names_the_missing_names_of_a_pattern)
{
    truce_set_options set = {0};
    truce_item_options item = {0};
    truce_store *store;
    bson_error_t error = {0};
    bson_t collections;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_ASKS("collection", add(store, NULL, &error));
    set.collection = "carts";
    CHECK_ASKS("key", add(store, &set, &error));
    set.key = "cart";
    CHECK_ASKS("field", add(store, &set, &error));
    set.field = "lines";
    CHECK_ASKS("name", add(store, &set, &error));
    CHECK_ASKS("collection", add_item(store, NULL, &error));
    item.collection = "carts";
    CHECK_ASKS("field", add_item(store, &item, &error));
    item.field = "lines";
    CHECK_ASKS("identity", add_item(store, &item, &error));
    CHECK_ASKS("collection", save(store, NULL, &error));
    CHECK_OK(truce_collection_list(store, NULL, &collections, &error), error);
    CHECK(bson_empty(&collections)); /* nothing was made under any other name */
    bson_destroy(&collections);
    set.name = "sku";
    CHECK_OK(add(store, &set, &error), error);
    truce_store_close(store);
}

/* ---- the library's own sizes and words ---- */

TEST(returns_the_version_of_the_library)
{
    int numbers[3];

    CHECK_TEXT(TRUCE_VERSION, truce_version());
    CHECK(sscanf(TRUCE_VERSION, "%d.%d.%d", &numbers[0], &numbers[1], &numbers[2]) == 3);
    CHECK_INT(TRUCE_VERSION_NUMBER, ==, numbers[0] * 10000 + numbers[1] * 100 + numbers[2]);
}

TEST(ids_are_made_without_casts)
{
    bson_oid_t oid;
    bson_value_t ids[3];
    bson_t made = BSON_INITIALIZER, *expected;

    bson_oid_init_from_string(&oid, "0123456789abcdef01234567");
    ids[0] = truce_id_int64(-7);
    ids[1] = truce_id_utf8("a");
    ids[2] = truce_id_oid(&oid);
    for (int i = 0; i < 3; i++)
        bson_append_value(&made, "v", -1, &ids[i]);
    expected = test_bson("{'v': {'$numberLong': '-7'}, 'v': 'a', 'v': {'$oid':"
                         " '0123456789abcdef01234567'}}");
    CHECK_BSON(expected, &made);
    bson_destroy(expected);
    bson_destroy(&made);
}

static void check_text(const char *text, truce_json_input input, truce_json_form form,
                       const char *expected)
{
    bson_error_t error;
    bool is_array = false;
    bson_t document;
    char *written;

    CHECK_OK(truce_json_read(text, strlen(text), input, &document, &is_array, &error), error);
    written = truce_json_write(&document, is_array, form);
    CHECK_TEXT(expected, written);
    bson_free(written);
    bson_destroy(&document);
}

TEST(extended_json_is_read_and_written)
{
    static const char canonical[] = "{\"a\": {\"$numberInt\": \"1\"}, \"b\": [true, null]}";
    bson_error_t error;
    bson_t document;

    check_text("{\"a\": 1, \"b\": [true, null]} ", TRUCE_JSON_STRICT, TRUCE_JSON_CANONICAL,
               canonical);
    check_text(canonical, TRUCE_JSON_STRICT, TRUCE_JSON_RELAXED, "{\"a\": 1, \"b\": [true, null]}");
    check_text("[{a: 'x'}]", TRUCE_JSON_TYPED, TRUCE_JSON_RELAXED, "[{\"a\": \"x\"}]");
    CHECK_STATUS(TRUCE_INVALID,
                 truce_json_read("{a: 1}", 6, TRUCE_JSON_STRICT, &document, NULL, &error), error);
    CHECK(strstr(error.message, "column 2"));
    CHECK(bson_empty(&document));
    bson_destroy(&document);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_json_read("[1]", 3, TRUCE_JSON_STRICT, &document, NULL, &error), error);
    bson_destroy(&document);
}

static truce_status says_no(truce_commit *commit, void *arg, bson_error_t *error)
{
    bson_t *document = test_bson("{'_id': 1}");
    truce_status status = truce_commit_insert(commit, "things", document, error);

    bson_destroy(document);
    if (!status && *(bool *)arg)
        snprintf(error->message, sizeof error->message, "too little is there");
    return status ? status : TRUCE_REFUSED;
}

TEST(ends_a_commit_whose_function_refuses)
{
    truce_store *store;
    bson_error_t error = {0};
    int64_t count;
    bool tells = true;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, says_no, &tells, NULL, &error), error);
    CHECK_TEXT("too little is there", error.message);
    tells = false;
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, says_no, &tells, NULL, &error), error);
    CHECK_TEXT("the function of the commit returned TRUCE_REFUSED without a message",
               error.message);
    CHECK_INT(error.code, ==, TRUCE_REFUSED);
    CHECK_STATUS(TRUCE_REFUSED, truce_transact(store, says_no, &tells, NULL, NULL), error);
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    CHECK_TEXT("refused", truce_status_name(TRUCE_REFUSED));
    truce_store_close(store);
}

TEST(a_store_may_be_closed_before_its_cursors)
{
    static const char *const schemes[] = {"memory:", "file"};
    bson_t *stages = test_bson("[{'$match': {}}]");

    for (int i = 0; i < 2; i++) {
        truce_cursor *cursors[2];
        const bson_t *document;
        bson_error_t error = {0};
        truce_store *store;
        char uri[600];

        snprintf(uri, sizeof uri, "%s%s%s", schemes[i], i ? ":" : "", i ? test_directory() : "");
        if (i)
            strcat(uri, "/closed.truce");
        CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
        for (int id = 0; id < 3; id++) {
            bson_t made = BSON_INITIALIZER;

            BSON_APPEND_INT32(&made, "_id", id);
            CHECK_OK(truce_insert(store, "things", &made, NULL, &error), error);
            bson_destroy(&made);
        }
        CHECK_OK(truce_find(store, "things", NULL, NULL, &cursors[0], &error), error);
        CHECK_OK(truce_aggregate(store, "things", stages, NULL, &cursors[1], &error), error);
        CHECK_OK(truce_cursor_next(cursors[0], &document, &error), error);
        truce_store_close(store);
        for (int k = 0; k < 2; k++) {
            CHECK_STATUS(TRUCE_INVALID, truce_cursor_next(cursors[k], &document, &error), error);
            CHECK(strstr(error.message, "closed"));
            truce_cursor_close(cursors[k]);
        }
    }
    bson_destroy(stages);
}

#define HOLDERS 40 /* more than there are places where cursors are counted */

static truce_store *held_store;
static pthread_barrier_t opened, closed;

static void *hold_cursors(void *arg)
{
    truce_cursor *cursors[3] = {NULL};
    bson_error_t error;
    int count = 1 + (int)((intptr_t)arg % 3);

    for (int i = 0; i < count; i++)
        CHECK_OK(truce_find(held_store, "things", NULL, NULL, &cursors[i], &error), error);
    truce_cursor_close(cursors[0]);
    pthread_barrier_wait(&opened);
    if (arg)
        pthread_barrier_wait(&closed);
    for (int i = 1; i < count; i++)
        truce_cursor_close(cursors[i]);
    return NULL;
}

/* The last close of a cursor or handle closes the store, and removes its log. */
TEST(a_store_is_closed_by_the_last_of_its_cursors_of_any_thread)
{
    bson_t one = BSON_INITIALIZER;
    char uri[600], log[600];
    bson_error_t error;

    snprintf(uri, sizeof uri, "file:%s/held.truce", test_directory());
    snprintf(log, sizeof log, "%s-wal", uri + 5);
    for (int turn = 0; turn < 6; turn++) {
        pthread_t threads[HOLDERS];
        int wait = turn % 2;

        CHECK_OK(truce_store_open(uri, NULL, &held_store, &error), error);
        CHECK_OK(truce_insert(held_store, "things", &one, NULL, &error), error);
        pthread_barrier_init(&opened, NULL, HOLDERS + 1);
        pthread_barrier_init(&closed, NULL, HOLDERS + 1);
        for (intptr_t i = 0; i < HOLDERS; i++)
            pthread_create(&threads[i], NULL, hold_cursors, (void *)(wait ? i + 3 : 0));
        pthread_barrier_wait(&opened);
        truce_store_close(held_store);
        if (wait) {
            CHECK(!access(log, F_OK));
            pthread_barrier_wait(&closed);
        }
        for (int i = 0; i < HOLDERS; i++)
            pthread_join(threads[i], NULL);
        CHECK(access(log, F_OK));
        pthread_barrier_destroy(&opened);
        pthread_barrier_destroy(&closed);
    }
    bson_destroy(&one);
}
