/* The options that callers fill in: what has to be said, and what must be zero. */
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

TEST(a_pattern_asks_by_name_for_the_names_that_it_was_not_told)
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
    CHECK_OK(truce_collection_list(store, &collections, &error), error);
    CHECK(bson_empty(&collections)); /* nothing was made under any other name */
    bson_destroy(&collections);
    set.name = "sku";
    CHECK_OK(add(store, &set, &error), error);
    truce_store_close(store);
}
