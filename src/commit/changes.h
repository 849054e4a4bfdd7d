#ifndef TRUCE_COMMIT_CHANGES_H
#define TRUCE_COMMIT_CHANGES_H

/* Diffs {key: [old, new]}, for entry.c. What they mean stands in truce/changes.h. */
#include <stdbool.h>

#include "base/status.h"

/* INVALID, with the key, if it is no diff. */
truce_status truce__changes_check(const bson_t *diff, bson_error_t *error);

/* Every old value stands in the document. Else false, and `why` says which key has what. */
bool truce__changes_hold(const bson_t *diff, const bson_t *document, char *why, size_t size);

/* {$set: {key: new}, $unset: {key: ""}}; `operators` is always initialised. */
void truce__changes_operators(const bson_t *diff, bson_t *operators);

#endif
