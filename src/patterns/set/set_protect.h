#ifndef TRUCE_PATTERNS_SET_SET_PROTECT_H
#define TRUCE_PATTERNS_SET_SET_PROTECT_H

/* What a set is protected by (set_protect.c). */
#include "patterns/set/set_walk.h"

/* The validator without the rule of the set. */
truce_status truce__set_unprotect(truce_set *set, bson_error_t *error);
truce_status truce__set_is_protected(truce_set *set, bool *is, bson_error_t *error);
/* What has to be looked at of a document, as a projection. */
void truce__set_sight_append(const truce_set *set, bool members, bson_t *projection);
/* To the change of a document: marks for its members up to the watermark that have none, and another revision
 * if it has one. Returns how many. */
int64_t truce__set_marks_append(const truce_set *set, const bson_t *document, int64_t watermark,
                                struct set_change *change);

#endif
