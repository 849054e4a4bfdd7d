/* The contract, kept by servers of MongoDB's protocol; and the options of a URI. */
#include "tests/support/contract.h"
#include "tests/support/server.h"

CONTRACT_SUITE(server_store)

TEST(a_uri_needs_a_database_and_a_server)
{
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_STATUS(TRUCE_INVALID, truce_store_open("mongodb://127.0.0.1:9", NULL, &store, &error),
                 error);
    CHECK(strstr(error.message, "database") != NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_store_open("mongodb://", NULL, &store, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_store_open("mongodb:", NULL, &store, &error), error);
    CHECK_STATUS(TRUCE_IO,
                 truce_store_open("mongodb://127.0.0.1:9/x?serverSelectionTimeoutMS=300", NULL,
                                  &store, &error),
                 error);
    CHECK(store == NULL);
}

TEST(a_server_store_that_is_read_only_refuses_every_write)
{
    static const bson_t everything = BSON_INITIALIZER;
    truce_store_options read_only = {.read_only = true};
    bson_t *document = test_bson("{'_id': 1, 'a': 1}"), *update = test_bson("{'$set': {'a': 2}}");
    bson_t *index = test_bson("{'key': {'a': 1}}"), *out = test_bson("[{'$out': 'x'}]"), shown;
    truce_store *store = NULL, *writable = server_store();
    truce_cursor *cursor = NULL;
    bson_error_t error;
    char uri[600];
    int64_t count = 0;

    REQUIRE(writable != NULL);
    CHECK_OK(truce_insert(writable, "things", document, NULL, &error), error);
    CHECK_OK(truce_store_open(server_uri(uri, sizeof(uri), ""), &read_only, &store, &error), error);
    REQUIRE(store != NULL);
    CHECK_STATUS(TRUCE_INVALID, truce_insert(store, "other", document, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID,
                 truce_update(store, "things", &everything, update, NULL, NULL, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_remove(store, "things", &everything, NULL, NULL, &error),
                 error);
    CHECK_STATUS(TRUCE_INVALID, truce_index_create(store, "things", index, &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_collection_drop(store, "things", &error), error);
    CHECK_STATUS(TRUCE_INVALID, truce_aggregate(store, "things", out, NULL, &cursor, &error),
                 error);
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
    bson_destroy(out);
}

TEST(waits_for_and_reports_a_pool_without_free_connections)
{
    truce_store *store = NULL, *filled = server_store();
    truce_cursor *cursors[2] = {NULL};
    const bson_t *document = NULL;
    bson_error_t error;
    char uri[600];

    REQUIRE(filled != NULL);
    for (int from = 0; from < 1200; from += 400) {
        static truce_write writes[400];
        static truce_write_outcome outcomes[400];
        bson_t *empty = bson_new();

        for (int i = 0; i < 400; i++)
            writes[i] =
                (truce_write){.kind = TRUCE_WRITE_INSERT, .collection = "many", .document = empty};
        CHECK_OK(truce_bulk(filled, writes, 400, NULL, outcomes, &error), error);
        bson_destroy(empty);
    }
    CHECK_OK(truce_store_open(server_uri(uri, sizeof(uri), "maxPoolSize=2&waitQueueTimeoutMS=200"),
                              NULL, &store, &error),
             error);
    REQUIRE(store != NULL);
    for (int i = 0; i < 2; i++)
        CHECK_OK(truce_find(store, "many", NULL, NULL, &cursors[i], &error), error);
    CHECK_STATUS(TRUCE_TIMEOUT, truce_count(store, "many", NULL, NULL, &(int64_t){0}, &error),
                 error);
    CHECK(strstr(error.message, "maxPoolSize") != NULL);
    truce_cursor_close(cursors[0]);
    for (int i = 0; i < 1200; i++) {
        CHECK_OK(truce_cursor_next(cursors[1], &document, &error), error);
        REQUIRE(document != NULL);
    }
    truce_cursor_close(cursors[1]);
    truce_store_close(store);
}
