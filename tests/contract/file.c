/* The contract, kept by the embedded store. */
#include "tests/support/contract.h"

static truce_store *open_file(void)
{
    truce_store *store = NULL;
    bson_error_t error;
    char uri[600];

    snprintf(uri, sizeof(uri), "file:%s/contract.truce", test_directory());
    if (truce_store_open(uri, NULL, &store, &error))
        fprintf(stderr, "%s\n", error.message);
    return store;
}

CONTRACT_SUITE(open_file)

TEST(a_closed_file_opens_again_with_everything_in_it)
{
    truce_store_options options = {.must_exist = true};
    bson_t *document = test_bson("{'_id': 1, 'a': 'x'}");
    bson_t *index = test_bson("{'key': {'a': 1}, 'unique': true}");
    truce_store *store = NULL;
    bson_error_t error;
    char uri[600];
    bson_t found;

    snprintf(uri, sizeof(uri), "file:%s/again.truce", test_directory());
    CHECK_STATUS(TRUCE_NOT_FOUND, truce_store_open(uri, &options, &store, &error), error);
    CHECK(store == NULL);
    CHECK_OK(truce_store_open(uri + strlen("file:"), NULL, &store, &error), error);
    REQUIRE(store != NULL);
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    CHECK_OK(truce_index_create(store, "things", index, &error), error);
    truce_store_close(store);
    CHECK_OK(truce_store_open(uri, &options, &store, &error), error);
    REQUIRE(store != NULL);
    CHECK_OK(truce_find_one(store, "things", NULL, NULL, &found, &error), error);
    CHECK_BSON(document, &found);
    CHECK_STATUS(TRUCE_DUPLICATE, truce_insert(store, "things", document, NULL, &error), error);
    truce_store_close(store);
    bson_destroy(&found);
    bson_destroy(document);
    bson_destroy(index);
}

TEST(a_read_only_store_refuses_every_write)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_store_options read_only = {.read_only = true};
    bson_t *document = test_bson("{'_id': 1, 'a': 1}"), *update = test_bson("{'$set': {'a': 2}}");
    bson_t *index = test_bson("{'key': {'a': 1}}"), shown;
    truce_store *store = NULL;
    bson_error_t error;
    char uri[600];
    int64_t count = 0;

    snprintf(uri, sizeof(uri), "file:%s/read.truce", test_directory());
    CHECK(truce_store_open(uri, &read_only, &store, &error) != TRUCE_OK);
    CHECK_OK(truce_store_open(uri, NULL, &store, &error), error);
    REQUIRE(store != NULL);
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    truce_store_close(store);
    CHECK_OK(truce_store_open(uri, &read_only, &store, &error), error);
    REQUIRE(store != NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_insert(store, "other", document, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_update(store, "things", &everything, update, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_remove(store, "things", &everything, NULL, NULL, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, truce_index_create(store, "things", index, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_collection_drop(store, "things", &error), error);
    CHECK_STATUS(
        TRUCE_INVALID,
        truce_find_and_modify(store, "things", &everything, update, NULL, &shown, NULL, &error),
        error);
    bson_destroy(&shown);
    CHECK_OK(truce_count(store, "things", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 1);
    truce_store_close(store);
    bson_destroy(document);
    bson_destroy(update);
    bson_destroy(index);
}

TEST(a_file_that_cannot_be_made_is_told_with_the_reason)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_IO, truce_store_open("file:/sys/x.truce", NULL, &store, &error), error);
    CHECK(store == NULL && strstr(error.message, "No such file") == NULL);
}
