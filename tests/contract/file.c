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

TEST(reopens_a_closed_file_with_all_its_documents)
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

TEST(reports_a_file_that_cannot_be_created_with_the_reason)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_IO, truce_store_open("file:/sys/x.truce", NULL, &store, &error), error);
    CHECK(store == NULL && strstr(error.message, "No such file") == NULL);
}

/* A zero byte of a text takes two in a key. */
TEST(refuses_a_too_large_key_before_it_writes)
{
    enum { BYTES = 9 << 20 };
    bson_t *index = test_bson("{'key': {'v': 1}}"), *other = test_bson("{'_id': 2, 'v': 1}");
    char *zeros = bson_malloc0(BYTES);
    bson_t document = BSON_INITIALIZER;
    bson_error_t error;
    int64_t count = 0;

    BSON_APPEND_INT32(&document, "_id", 1);
    bson_append_utf8(&document, "v", 1, zeros, BYTES - 1);
    for (int i = 0; i < 2; i++) {
        truce_store *store = NULL;

        if (i)
            store = open_file();
        else
            CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
        REQUIRE(store != NULL);
        CHECK_OK(truce_index_create(store, "large", index, &error), error);
        CHECK_STATUS(TRUCE_LIMIT, truce_insert(store, "large", &document, NULL, &error), error);
        CHECK_OK(truce_count(store, "large", NULL, NULL, &count, &error), error);
        CHECK_INT(count, ==, 0);
        CHECK_OK(truce_insert(store, "large", other, NULL, &error), error);
        CHECK_OK(truce_insert(store, "plain", &document, NULL, &error), error);
        CHECK_STATUS(TRUCE_LIMIT, truce_index_create(store, "plain", index, &error), error);
        truce_store_close(store);
    }
    bson_free(zeros);
    bson_destroy(&document);
    bson_destroy(index);
    bson_destroy(other);
}

TEST(refuses_control_characters_in_the_name_of_a_collection)
{
    static const char *const wrong[] = {"a\nb",          "a\x1b[31m",     "a\x7f",    "a\xc2\x9b",
                                        "a\xe2\x80\xae", "a\xe2\x81\xa6", "a\xd8\x9c"};
    bson_t *document = test_bson("{'a': 1}");
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    REQUIRE(store != NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(TRUCE_INVALID, truce_insert(store, wrong[i], document, NULL, &error), error);
        CHECK(!strstr(error.message, wrong[i]));
    }
    CHECK_OK(truce_insert(store, "sch\xc3\xbcler\xe2\x82\xac", document, NULL, &error), error);
    truce_store_close(store);
    bson_destroy(document);
}
