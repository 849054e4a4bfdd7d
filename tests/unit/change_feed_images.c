/*
 * Documents as they were before and after a change. The feed of changes keeps these images for
 * collections with the option. The tests cover the entries with images, the operations that keep
 * the option, and the format of the file.
 */
#include <unistd.h>

#include "base/clock.h"
#include "engine/documents/change_feed.h"
#include "engine/documents/open_documents.h"
#include "store/file/file.h"
#include "store/store.h"
#include "tests/support/test.h"
#include "truce/copy.h"
#include "truce/salvage.h"

#define HOUR_MS INT64_C(3600000)
#define MEGA    (1024 * 1024)

static truce_store *store;
static struct engine *engine;
static char path[400];

static bool open_again(void)
{
    const truce_store_options options = {.relaxed = true};
    bson_error_t error;

    if (!CHECK_OK(truce_store_open(path, &options, &store, &error), error))
        return false;
    engine = truce__file_engine(store);
    return true;
}

static bool begin(int64_t keep_ms, int64_t keep_bytes)
{
    bson_error_t error;

    snprintf(path, sizeof path, "%s/s.truce", test_directory());
    return open_again() &&
           CHECK_OK(truce__engine_feed_keep(engine, keep_ms, keep_bytes, &error), error);
}

static void insert(const char *collection, const char *json)
{
    bson_t *document = test_bson(json);
    bson_error_t error;

    CHECK_OK(truce_insert(store, collection, document, NULL, &error), error);
    bson_destroy(document);
}

static void change(const char *collection, const char *filter, const char *update)
{
    bson_t *which = test_bson(filter), *how = test_bson(update);
    bson_error_t error;

    CHECK_OK(truce_update(store, collection, which, how, NULL, NULL, &error), error);
    bson_destroy(which);
    bson_destroy(how);
}

static struct feed_state state_now(void)
{
    struct feed_state state;
    bson_error_t error;

    CHECK_OK(truce__engine_feed_state(engine, &state, &error), error);
    return state;
}

static void check_store(void)
{
    bson_error_t error;

    CHECK_OK(truce__engine_check(engine, NULL, NULL, &error), error);
}

static void insert_large(size_t bytes)
{
    char *text = bson_malloc(bytes + 1);
    bson_t *document;
    bson_error_t error;

    memset(text, 'x', bytes);
    text[bytes] = 0;
    document = BCON_NEW("text", BCON_UTF8(text));
    CHECK_OK(truce_insert(store, "c", document, NULL, &error), error);
    bson_destroy(document);
    bson_free(text);
}

static void keep_images(const char *collection, bool images)
{
    bson_error_t error;

    CHECK_OK(truce__store_keep_images(store, collection, images, &error), error);
}

struct images {
    const char *collection;
    int count;              /* entries of it that have an image */
    bson_t *before, *after; /* of the last entry; {}: no image */
};

static bool take_images(void *arg, const struct feed_entry *entry)
{
    struct images *images = arg;

    if (strcmp(entry->collection, images->collection) != 0)
        return true;
    images->count += !bson_empty(&entry->before) || !bson_empty(&entry->after);
    bson_destroy(images->before);
    bson_destroy(images->after);
    images->before = bson_copy(&entry->before);
    images->after = bson_copy(&entry->after);
    return true;
}

/* The images of the last entry of the collection ("{}": none), and how many entries of it have
 * any. */
static void expect_images(const char *collection, int count, const char *before, const char *after)
{
    struct images images = {collection, 0, bson_new(), bson_new()};
    bson_t *wanted = test_bson(before), *then = test_bson(after);
    struct feed_state state = state_now();
    bson_error_t error;
    int64_t reached;

    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, state.horizon, INT32_MAX, take_images,
                                     &images, &reached, &error),
             error);
    CHECK_INT(images.count, ==, count);
    CHECK_BSON(wanted, images.before);
    CHECK_BSON(then, images.after);
    bson_destroy(images.before);
    bson_destroy(images.after);
    bson_destroy(wanted);
    bson_destroy(then);
}

static void remove_all(const char *collection)
{
    static const bson_t everything = BSON_INITIALIZER;
    const truce_write_options options = {.multi = true};
    bson_error_t error;

    CHECK_OK(truce_remove(store, collection, &everything, &options, NULL, &error), error);
}

TEST(reports_images_of_a_collection_that_keeps_them)
{
    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{'_id': 1, 'n': 1}");
    insert("d", "{'_id': 1, 'n': 1}");
    change("c", "{}", "{'$set': {'n': 2}}");
    expect_images("c", 0, "{}", "{}");
    keep_images("c", true);
    change("c", "{}", "{'$set': {'n': 3}}");
    expect_images("c", 1, "{'_id': 1, 'n': 2}", "{'_id': 1, 'n': 3}");
    change("c", "{}", "{'n': 4}"); /* the entry contains the current document */
    expect_images("c", 2, "{'_id': 1, 'n': 3}", "{}");
    remove_all("c");
    expect_images("c", 3, "{'_id': 1, 'n': 4}", "{}");
    insert("c", "{'_id': 2, 'n': 1}");
    expect_images("c", 3, "{}", "{}");
    change("d", "{}", "{'$set': {'n': 2}}"); /* others pay nothing */
    expect_images("d", 0, "{}", "{}");
    keep_images("c", false);
    change("c", "{}", "{'$set': {'n': 2}}");
    expect_images("c", 3, "{}", "{}");
    check_store();
    truce_store_close(store);
}

TEST(images_are_kept_after_a_new_name_an_index_a_validator_and_out)
{
    bson_t *index = test_bson("{'v': 2, 'key': {'n': 1}, 'name': 'n_1'}");
    bson_t *validator = test_bson("{'n': {'$gt': 0}}");
    bson_t *stages = test_bson("[{'$out': 'd'}]");
    const bson_t *document;
    truce_cursor *cursor;
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{'_id': 1, 'n': 1}");
    keep_images("c", true);
    CHECK_OK(truce_index_create(store, "c", index, &error), error);
    CHECK_OK(truce_collection_validate(store, "c", validator, &error), error);
    CHECK_OK(truce_collection_rename(store, "c", "d", false, &error), error);
    truce_store_close(store);
    REQUIRE(open_again());
    change("d", "{}", "{'$set': {'n': 2}}");
    expect_images("d", 1, "{'_id': 1, 'n': 1}", "{'_id': 1, 'n': 2}");
    insert("e", "{'_id': 7, 'n': 7}");
    CHECK_OK(truce_aggregate(store, "e", stages, NULL, &cursor, &error), error);
    CHECK_OK(truce_cursor_next(cursor, &document, &error), error);
    truce_cursor_close(cursor);
    change("d", "{}", "{'$set': {'n': 8}}");
    expect_images("d", 2, "{'_id': 7, 'n': 7}", "{'_id': 7, 'n': 8}");
    CHECK_OK(truce_collection_drop(store, "d", &error), error);
    insert("d", "{'_id': 1}"); /* which is another collection */
    change("d", "{}", "{'$set': {'n': 2}}");
    expect_images("d", 2, "{}", "{}");
    check_store();
    bson_destroy(index);
    bson_destroy(validator);
    bson_destroy(stages);
    truce_store_close(store);
}

TEST(images_are_of_the_largest_documents_too)
{
    char *text = bson_malloc(15 * MEGA + 1);
    bson_t everything = BSON_INITIALIZER, update = BSON_INITIALIZER, set;
    struct images images = {"c", 0, bson_new(), bson_new()};
    struct feed_state state;
    bson_error_t error;
    int64_t reached;
    bool more;

    memset(text, 'x', 15 * MEGA);
    text[15 * MEGA] = 0;
    REQUIRE(begin(HOUR_MS, 0));
    insert_large(16 * MEGA - 100);
    keep_images("c", true);
    BSON_APPEND_DOCUMENT_BEGIN(&update, "$set", &set);
    BSON_APPEND_UTF8(&set, "text", text);
    bson_append_document_end(&update, &set);
    CHECK_OK(truce_update(store, "c", &everything, &update, NULL, NULL, &error), error);
    state = state_now();
    CHECK_OK(truce__engine_feed_read(engine, &state.spec.id, state.horizon, INT32_MAX, take_images,
                                     &images, &reached, &error),
             error);
    CHECK_INT(images.before->len, >, 16 * MEGA - 100);
    CHECK_INT(images.after->len, >, 15 * MEGA);
    insert_large(16 * MEGA - 100);
    CHECK_INT(state_now().bytes, >, 4 * 15 * MEGA); /* the entry is complete */
    check_store();
    CHECK_OK(truce__engine_feed_keep(engine, 1, 0, &error), error);
    truce__clock_sleep_ms(5);
    CHECK_OK(truce__engine_feed_prune(engine, NULL, &more, &error), error);
    bson_destroy(images.before);
    bson_destroy(images.after);
    bson_destroy(&update);
    bson_free(text);
    truce_store_close(store);
}

TEST(refuses_a_collection_with_invalid_options)
{
    bson_t *validator = test_bson("{'$nonsense': 1}"), list;
    const bool images = true;
    const struct collection_options options = {validator, &images};
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    CHECK_STATUS(TRUCE_INVALID, truce__engine_collection_create(engine, "c", &options, &error),
                 error);
    CHECK_OK(truce_collection_list(store, NULL, &list, &error), error);
    CHECK(bson_empty(&list));
    check_store();
    bson_destroy(&list);
    bson_destroy(validator);
    truce_store_close(store);
}

/* Reads the row of c in the catalog, as a program without support for images would. */
TEST(hides_images_from_programs_that_do_not_support_them)
{
    struct kv_cursor cursor = {0};
    struct kv *kv;
    bson_error_t error;
    uint32_t version;
    int found = 0;

    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{}");
    keep_images("c", true);
    kv = engine->kv;
    CHECK_OK(truce__kv_write_begin(kv, &version, &error), error);
    CHECK_OK(truce__kv_rows_seek(kv, 0, 1, false, &cursor, &error), error);
    while (!truce__kv_cursor_next(&cursor, &error)) {
        bson_t row;

        CHECK(bson_init_static(&row, cursor.body.data, cursor.body.size));
        found += bson_has_field(&row, "indexes") && !bson_has_field(&row, "name");
    }
    truce__kv_cursor_close(&cursor);
    truce__kv_write_rollback(kv);
    CHECK_INT(found, ==, 1);
    truce_store_close(store);
}

static void expect_keeping(truce_store *in, const char *collection, bool images)
{
    const truce_list_options wanted = {.collection = collection, .unmeasured = true};
    bson_error_t error;
    bson_iter_t at, found;
    bson_t list;

    CHECK_OK(truce_collection_list(in, &wanted, &list, &error), error);
    CHECK(bson_iter_init(&at, &list) &&
          bson_iter_find_descendant(&at, "0.images", &found) == images);
    bson_destroy(&list);
}

TEST(keeps_images_in_copies_and_salvaged_files)
{
    truce_copy_options options = {0};
    truce_copy_report copied;
    truce_salvage_report report;
    char other[500];
    bson_error_t error;

    REQUIRE(begin(HOUR_MS, 0));
    insert("c", "{'_id': 1}");
    insert("d", "{'_id': 1}");
    keep_images("c", true);
    for (int i = 0; i < 2; i++) {
        truce_store *made;

        snprintf(other, sizeof other, "%s.%d", path, i);
        if (!CHECK_OK(truce_store_open(other, NULL, &made, &error), error))
            continue;
        if (!i) {
            CHECK_OK(truce_copy(store, made, &options, &copied, &error), error);
            truce_store_close(store);
        } else {
            CHECK_OK(truce_salvage(path, made, NULL, &report, &error), error);
            CHECK(report.complete);
        }
        expect_keeping(made, "c", true);
        expect_keeping(made, "d", false);
        truce_store_close(made);
    }
}
