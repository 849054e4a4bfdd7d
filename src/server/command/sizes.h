#ifndef TRUCE_SERVER_COMMAND_SIZES_H
#define TRUCE_SERVER_COMMAND_SIZES_H

/*
 * What collections and databases take: documents as they are (`bytes`), and of a file the pages on which they and the entries of their
 * indexes stand (`storage`, `index_bytes`); of these, `unused` is where nothing is. A store that does not tell its pages takes what
 * its documents have.
 *
 * It is counted when it is asked for, by a walk through all that it is of: at 10^6 documents of 210 bytes half a second.
 */
#include "server/call/call.h"

struct sizes {
    int64_t documents, bytes, collections, indexes;
    int64_t storage, unused, index_bytes;
};

/* Databases with their sizes, in the order in which they are met. */
struct databases {
    struct database {
        char name[DATABASE_NAME_MAX + 1];
        struct sizes sizes;
    } * all;
    uint32_t count;
};

/* Not `measured`: their names, and how many collections each has. `all` is the caller's to free, in any case. */
truce_status databases_count(struct call *call, bool measured, struct databases *databases,
                             bson_error_t *error);

#endif
