/* Every public call validates its BSON arguments before it uses them. */
#include "tests/support/entry_points.h"

#include "base/random.h"
#include "tests/support/test.h"

static truce_store *open_one(void)
{
    bson_t *document = test_bson("{'_id': 1, 'a': 1, 'items': [{'a': 1}], 'version': 1}");
    truce_store *store = NULL;
    bson_error_t error;

    CHECK_OK(truce_store_open("memory:", NULL, &store, &error), error);
    CHECK_OK(truce_insert(store, "things", document, NULL, &error), error);
    bson_destroy(document);
    return store;
}

/* A string whose length exceeds all memory. */
static const uint8_t malformed[] = {16,   0,    0,    0,   2, 'a', 0, 0xff,
                                    0xff, 0xff, 0x7f, 'x', 0, 0,   0, 0};

TEST(refuses_a_malformed_document_in_every_argument_of_every_call)
{
    bson_t document;

    REQUIRE(bson_init_static(&document, malformed, sizeof malformed));
    for (uint32_t i = 0; i < entry_points_count; i++) {
        for (uint32_t place = 0; place < entry_point_places(i); place++) {
            truce_store *store = open_one();
            truce_status status = entry_point_call_with(i, store, &document, place);

            if (status != TRUCE_INVALID)
                test_fail(__FILE__, __LINE__, "%s answers %s to a malformed document in place %u",
                          entry_point_name(i), truce_status_name(status), place);
            truce_store_close(store);
        }
    }
}

TEST(documents_of_any_bytes_crash_no_call)
{
    long calls = test_scale("TRUCE_ENTRY_CALLS", 20000);
    truce_store *store = open_one();
    struct random random;
    uint8_t bytes[200];

    truce__random_seed(&random, test_seed());
    for (long i = 0; i < calls; i++) {
        struct fuzz_input input = {bytes, sizeof bytes};

        for (size_t byte = 0; byte < sizeof bytes; byte++)
            bytes[byte] = (uint8_t)truce__random_next(&random);
        (void)entry_point_call((uint32_t)truce__random_below(&random, entry_points_count), store,
                               &input);
        if (i % 500 == 499) {
            truce_store_close(store);
            store = open_one();
        }
    }
    truce_store_close(store);
}
