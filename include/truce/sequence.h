#ifndef TRUCE_SEQUENCE_H
#define TRUCE_SEQUENCE_H

/*
 * Sequences: numbers that only increase.
 *
 * A sequence is one counter document for each name, in the collection `truce_sequences`:
 *
 *     {_id: "enrolments", value: 1002, recent: [{by: ObjectId, count: 1}, ...]}
 *
 * `recent` lists the last allocations. A call whose reply was lost can therefore check whether it
 * allocated its numbers, and is not counted twice. Numbers have no gaps: every number up to the
 * last was given to exactly one caller. If a caller dies, its number is never used; for an ordered
 * set, declare that number void (truce_set_void).
 *
 * Any number of threads and processes may allocate numbers concurrently.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* Allocates the next number. If the store does not reply, the outcome is unknown and the call fails
 * with TRUCE_UNKNOWN; the sequence may then have a gap. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_next(truce_store *store, const char *name,
                                                             int64_t *number, bson_error_t *error);

/* Allocates `count` consecutive numbers: *first to *first + count - 1. `count` is 1 to
 * 1,000,000. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_take(truce_store *store, const char *name,
                                                             int64_t count, int64_t *first,
                                                             bson_error_t *error);

/* Returns the last number that was allocated, or 0 if none was. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_last(truce_store *store, const char *name,
                                                             int64_t *number, bson_error_t *error);

/* Raises the counter so that no number up to `number` is allocated again. The call never lowers the
 * counter. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_raise(truce_store *store, const char *name,
                                                              int64_t number, bson_error_t *error);

TRUCE_END_DECLS

#endif
