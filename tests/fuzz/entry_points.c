/* Every public call that takes BSON, with documents of any bytes: it returns a status. */
#include "tests/support/entry_points.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    truce_store *store = NULL;
    bson_error_t error;

    if (truce_store_open("memory:", NULL, &store, &error))
        return 0;
    for (int i = 0; i < 8 && input.left; i++)
        (void)entry_point_call(fuzz_below(&input, entry_points_count), store, &input);
    truce_store_close(store);
    return 0;
}
