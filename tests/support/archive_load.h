#ifndef TRUCE_TESTS_SUPPORT_ARCHIVE_LOAD_H
#define TRUCE_TESTS_SUPPORT_ARCHIVE_LOAD_H

/*
 * A load of all patterns, as numbered steps, and the comparison of two stores after the same steps.
 * A step is the same in each run, and running it a second time has no effect. A step whose reply
 * was lost is therefore sent again.
 */
#include "truce/store.h"

/* Prepares a database for the steps. */
bool load_prepare(truce_store *store, const char *database);

/* Runs the step of this number, from 1. `again` means that the step may have taken effect before.
 * Fails with the status of the store. */
truce_status load_step(truce_store *store, const char *database, int step, bool again,
                       bson_error_t *error);

/* Returns everything that the steps have made in the database, as a string without times and random
 * values. Returns NULL if a read fails. The caller frees it with bson_free. */
char *load_read(truce_store *store, const char *database);

#endif
