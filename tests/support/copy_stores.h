#ifndef TRUCE_TESTS_SUPPORT_COPY_STORES_H
#define TRUCE_TESTS_SUPPORT_COPY_STORES_H

/* Stores to copy, and a comparison of two stores that does not use the code under test. */
#include "tests/support/test.h"
#include "truce/truce.h"

truce_store *copy_store(const char *uri);

truce_store *copy_file(const char *directory, const char *name);

void copy_put(truce_store *store, const char *collection, const char *json);
void copy_index(truce_store *store, const char *collection, const char *json);
void copy_change(truce_store *store, const char *collection, const char *filter,
                 const char *update);
int64_t copy_count(truce_store *store, const char *collection, const char *filter);

/* _ids and fields of every type that is in use, timestamps of zero, indexes, an empty
 * collection; people with the _ids from 0 to count - 1. */
void copy_fill(truce_store *store, int count);
/* Fields of the types that are deprecated. */
void copy_fill_old(truce_store *store);
/* Random documents with random _ids, of all types. */
void copy_fill_random(truce_store *store, uint64_t seed, int count);

/* Checks that both have the same documents, byte for byte, in all collections but truce_copies. */
bool copy_same(truce_store *from, truce_store *to, int line);
#define CHECK_SAME(from, to) copy_same(from, to, __LINE__)

#endif
