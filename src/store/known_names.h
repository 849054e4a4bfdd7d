#ifndef TRUCE_STORE_KNOWN_NAMES_H
#define TRUCE_STORE_KNOWN_NAMES_H

/* Names that are recorded in a store, for messages about a name that is not. */
#include "truce/store.h"

/* Fails with NOT_FOUND and a message such as `the ledger "bok" does not exist: expected "book",
 * "cash"`. `noun` is "ledger". The names are the _ids of the collection; the message has the first
 * ones. */
truce_status truce__fail_unknown(truce_store *store, const char *collection, const char *noun,
                                 const char *name, bson_error_t *error);

#endif
