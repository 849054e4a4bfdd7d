#ifndef TRUCE_PATTERNS_SEQUENCE_SEQUENCE_H
#define TRUCE_PATTERNS_SEQUENCE_SEQUENCE_H

/* Sequences as a part of a commit. */
#include "truce/commit.h"
#include "truce/sequence.h"

/* Allocates numbers as truce_sequence_take does, together with the commit: if it does not take
 * effect, they are not allocated. Fails with INVALID if the commit uses the journal, because other
 * callers do not wait for a counter that a journal holds. */
truce_status truce__sequence_take_in(truce_commit *commit, const char *name, int64_t count,
                                     int64_t *first, bson_error_t *error);

#endif
