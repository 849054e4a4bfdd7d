/* Documents that are too deep: truce's updates do not make them, and errors name them if a
 * server has one. */
#include "base/limits.h"
#include "tests/support/server.h"

/* {<operator>: {<path of `components`>: {a: {a: ... `levels` in all}}}} */
static void make_update(const char *operator, int components, int levels, bson_t *update)
{
    bson_t children[TRUCE_DOCUMENT_DEPTH_MAX], set;
    char path[2 * TRUCE_DOCUMENT_DEPTH_MAX + 2] = "b";

    for (int i = 1; i < components; i++)
        strcat(path, ".b");
    bson_init(update);
    BSON_APPEND_DOCUMENT_BEGIN(update, operator, & set);
    BSON_APPEND_DOCUMENT_BEGIN(&set, path, &children[0]);
    for (int i = 1; i < levels; i++)
        BSON_APPEND_DOCUMENT_BEGIN(&children[i - 1], "a", &children[i]);
    for (int i = levels - 1; i > 0; i--)
        bson_append_document_end(&children[i - 1], &children[i]);
    bson_append_document_end(&set, &children[0]);
    bson_append_document_end(update, &set);
}

static truce_status nest(truce_store *store, const char *operator, int components, int levels,
                         bson_error_t *error)
{
    bson_t *filter = test_bson("{'_id': 7}"), update;
    truce_status status;

    make_update(operator, components, levels, &update);
    status = truce_update(store, "things", filter, &update, NULL, NULL, error);
    bson_destroy(&update);
    bson_destroy(filter);
    return status;
}

static void fill(truce_store *store)
{
    bson_t *document = test_bson("{'_id': 7}"), *all = test_bson("{}");
    truce_write_options many = {.multi = true};
    bson_error_t error;

    CHECK_OK(truce_remove(store, "things", all, &many, NULL, &error), error);
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    bson_destroy(document);
    bson_destroy(all);
}

TEST(an_update_may_nest_as_deep_as_a_document_and_no_deeper)
{
    truce_store *store = server_store();
    bson_error_t error = {0};

    REQUIRE(store != NULL);
    fill(store);
    CHECK_OK(nest(store, "$set", 10, TRUCE_DOCUMENT_DEPTH_MAX - 10, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, nest(store, "$set", 11, TRUCE_DOCUMENT_DEPTH_MAX - 10, &error),
                 error);
    fill(store);
    CHECK_OK(nest(store, "$push", 10, TRUCE_DOCUMENT_DEPTH_MAX - 11, &error), error);
    CHECK_STATUS(TRUCE_LIMIT, nest(store, "$push", 10, TRUCE_DOCUMENT_DEPTH_MAX - 10, &error),
                 error);
    truce_store_close(store);
}

TEST(a_reader_names_a_document_that_is_too_deep)
{
    truce_store *store = server_store();
    truce_write_options options = {.pipeline = true};
    bson_t stages = BSON_INITIALIZER, update, *filter = test_bson("{'_id': 7}"), found;
    bson_error_t error = {0};
    truce_status status = TRUCE_INVALID;

    REQUIRE(store != NULL);
    fill(store);
    make_update("$set", 30, TRUCE_DOCUMENT_DEPTH_MAX - 20, &update);
    BSON_APPEND_DOCUMENT(&stages, "0", &update);
    if (store->capabilities & TRUCE_CAN_PIPELINE_UPDATE)
        status = truce_update(store, "things", filter, &stages, &options, NULL, &error);
    if (status) {
        test_skip("this server makes no document that is too deep");
    } else {
        CHECK_STATUS(TRUCE_CORRUPT, truce_find_one(store, "things", filter, NULL, &found, &error),
                     error);
        CHECK(strstr(error.message, "{ \"_id\" : 7 }") != NULL);
        CHECK(strstr(error.message, "levels") != NULL);
        bson_destroy(&found);
    }
    bson_destroy(&update);
    bson_destroy(&stages);
    bson_destroy(filter);
    truce_store_close(store);
}
