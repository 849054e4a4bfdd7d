#ifndef TRUCE_SERVER_COMMAND_COLLECTION_SIZES_H
#define TRUCE_SERVER_COMMAND_COLLECTION_SIZES_H

/*
 * Sizes of collections and databases: the documents (`bytes`), and for a file the pages of
 * documents and index entries (`storage`, `index_bytes`), of which `unused` is empty. If the store
 * does not report pages, `storage` is the size of the documents.
 *
 * Sizes are computed on request by reading everything: half a second for 10^6 documents of 210
 * bytes.
 */
#include "server/call/call.h"

/* All but the numbers of documents, collections, and indexes are bytes. */
struct sizes {
    int64_t documents, bytes, collections, indexes;
    int64_t storage, unused, index_bytes;
};

/* Databases with their sizes, in the order of the list of collections. */
struct databases {
    struct database {
        char name[DATABASE_NAME_MAX + 1];
        struct sizes sizes;
    } * all;
    uint32_t count;
};

/* Counts the collections of each database, and with `measured` sums their sizes. The caller frees
 * `all` in any case. */
truce_status databases_count(struct call *call, bool measured, struct databases *databases,
                             bson_error_t *error);

#endif
