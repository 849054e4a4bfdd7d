#ifndef TRUCE_STORE_STORE_KINDS_H
#define TRUCE_STORE_STORE_KINDS_H

/* The functions that open the kinds of stores. store/open/store_open.c has the table of all
 * kinds. */
#include "truce/sys/store.h"

/* Opens a store of a kind. `path` is the URI without its scheme. The options are never NULL. */
typedef truce_status open_function(const char *path, const truce_store_options *options,
                                   truce_store **store, bson_error_t *error);

open_function truce__memory_open, truce__file_open, truce__mongo_open;

/* Opens mongodb+srv://, whose hosts come from DNS. */
open_function truce__mongo_srv_open;

#endif
