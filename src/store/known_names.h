#ifndef TRUCE_STORE_KNOWN_NAMES_H
#define TRUCE_STORE_KNOWN_NAMES_H

/* Messages about a name that is not recorded in the store. They list the recorded names. */
#include "truce/store.h"

/* A list of names in a message: `"book", "cash", ...`. It has the first names that fit. */
struct known_names {
    bson_string_t *text;
    uint32_t count;
    /* Further names are left out. */
    bool full;
};

/* Bytes of a name in a message; longer ones are cut. */
#define KNOWN_NAME_SHOWN 80

void truce__known_names_begin(struct known_names *names);
/* Returns false if the list is full: the caller need not add more. */
bool truce__known_names_add(struct known_names *names, const char *name);
void truce__known_names_end(struct known_names *names);

/* Fails with NOT_FOUND and a message such as `the ledger "bok" does not exist: expected "book",
 * "cash"`. `noun` is "ledger". The names are the _ids of the collection; the message has the first
 * ones. */
truce_status truce__fail_unknown(truce_store *store, const char *collection, const char *noun,
                                 const char *name, bson_error_t *error);

#endif
