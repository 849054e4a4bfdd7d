/* The contract, kept by the memory store. */
#include "tests/support/contract.h"

static truce_store *open_memory(void)
{
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open("memory:", NULL, &store, &error))
        fprintf(stderr, "%s\n", error.message);
    return store;
}

CONTRACT_SUITE(open_memory)

TEST(a_memory_store_has_no_name_and_starts_empty)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_store_open("memory:name", NULL, &store, &error), error);
    CHECK(store == NULL);
    CHECK_STATUS(
        TRUCE_INVALID,
        truce_store_open("memory:", &(truce_store_options){.read_only = true}, &store, &error),
        error);
    CHECK_STATUS(
        TRUCE_INVALID,
        truce_store_open("memory:", &(truce_store_options){.must_exist = true}, &store, &error),
        error);
}

TEST(two_memory_stores_have_nothing_in_common)
{
    truce_store *one = open_memory(), *two = open_memory();
    bson_t *document = test_bson("{'_id': 1}");
    bson_error_t error;
    int64_t count = -1;

    CHECK_OK(truce_insert(one, "things", document, NULL, &error), error);
    CHECK_OK(truce_count(two, "things", NULL, NULL, &count, &error), error);
    CHECK_INT(count, ==, 0);
    bson_destroy(document);
    truce_store_close(one);
    truce_store_close(two);
}

TEST(refuses_missing_stores_by_name)
{
    static const char *const uris[] = {"", "nosuch:thing", "mongodb2://x"};
    truce_store *store = NULL;
    bson_error_t error;

    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
        CHECK_STATUS(TRUCE_INVALID, truce_store_open(uris[i], NULL, &store, &error), error);
        CHECK(store == NULL);
    }
    CHECK_STATUS(TRUCE_INVALID, truce_store_open(NULL, NULL, &store, &error), error);
    truce_store_close(NULL);
}

TEST(reports_the_first_document_with_a_duplicate_key)
{
    static const char *const documents[] = {"{'_id': 1, 'k': [5, 5]}", "{'_id': 2, 'k': 9}",
                                            "{'_id': 3, 'k': [7, 5]}", "{'_id': 4, 'k': 9}"};
    bson_t *index = test_bson("{'key': {'k': 1}, 'unique': true}");
    truce_store *store = open_memory();
    bson_error_t error;

    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        bson_t *document = test_bson(documents[i]);

        CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
        bson_destroy(document);
    }
    CHECK_STATUS(TRUCE_DUPLICATE, truce_index_create(store, "things", index, &error), error);
    CHECK(strstr(error.message, "5") != NULL);
    CHECK(strstr(error.message, "9") == NULL);
    bson_destroy(index);
    truce_store_close(store);
}
