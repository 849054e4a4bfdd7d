#ifndef TRUCE_TESTS_SUPPORT_ARCHIVE_LOAD_H
#define TRUCE_TESTS_SUPPORT_ARCHIVE_LOAD_H

/*
 * A load of all patterns, as numbered steps, and the comparison of two stores after the same
 * steps. A step is the same in each run, and running it a second time has no effect. So a step
 * whose answer was lost is sent again.
 */
#include "truce/store.h"

/* Prepares a database for the steps. */
bool load_prepare(truce_store *store, const char *database);

/* Runs a step (from 1). `again`: it may have taken effect before. Fails with the status of the
 * store. */
truce_status load_step(truce_store *store, const char *database, int step, bool again,
                       bson_error_t *error);

/* Returns everything that the steps have made in the database, as text without times and random
 * values. The caller frees it with bson_free. NULL: a read has failed. */
char *load_read(truce_store *store, const char *database);

#endif
