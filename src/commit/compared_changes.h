#ifndef TRUCE_COMMIT_COMPARED_CHANGES_H
#define TRUCE_COMMIT_COMPARED_CHANGES_H

/* Diffs {key: [old, new]}, for commit_entry.c. truce/changes.h defines their meaning. */
#include <stdbool.h>

#include "base/status.h"

/* Checks that this is a valid diff. Returns INVALID if it is not; the message names the key. */
truce_status truce__changes_check(const bson_t *diff, bson_error_t *error);

/* Returns whether the document has every old value. If not, `why` names the key and its value. */
bool truce__changes_hold(const bson_t *diff, const bson_t *document, char *why, size_t size);

/* Makes {$set: {key: new}, $unset: {key: ""}}. `operators` is always initialized. */
void truce__changes_operators(const bson_t *diff, bson_t *operators);

#endif
