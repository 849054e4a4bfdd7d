/*
 * The contract, kept by the embedded store where every group of writes is run, rolled back, and run
 * again, as if one of the group could not be committed. An operation that may run again keeps no
 * state from the first time.
 */
#include "store/file/file.h"
#include "tests/support/contract.h"

static truce_store *open_file(void)
{
    truce_store *store = NULL;
    bson_error_t error;
    char uri[600];

    snprintf(uri, sizeof(uri), "file:%s/again.truce", test_directory());
    if (truce_store_open(uri, NULL, &store, &error))
        fprintf(stderr, "%s\n", error.message);
    else
        truce__file_engine(store)->writer.rehearses = true;
    return store;
}

CONTRACT_SUITE(open_file)
