#ifndef TRUCE_SEQUENCE_H
#define TRUCE_SEQUENCE_H

/*
 * Numbers that only rise: 1, 2, 3 ..., one counter document for each name, in the collection
 * `truce_sequences`:
 *
 *     {_id: "enrolments", value: 1002, recent: [{by: ObjectId, count: 1}, ...]}
 *
 * `recent` names the last takers, so that a call whose answer was lost can look whether it took its
 * numbers, and is not counted twice. Numbers are gapless: every number up to the last was given to
 * exactly one caller. (A caller that dies with its number leaves one that is never used: for an
 * ordered set declare it void, truce_set_void.)
 *
 * Any number of threads and processes may take numbers at once.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* The next number. UNKNOWN: the store did not answer, and whether a number was taken cannot be
 * told; the sequence may then have a gap. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_next(truce_store *store, const char *name,
                                                             int64_t *number, bson_error_t *error);

/* `count` numbers in a row: *first to *first + count - 1. `count` is 1 to 1,000,000. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_take(truce_store *store, const char *name,
                                                             int64_t count, int64_t *first,
                                                             bson_error_t *error);

/* The last number that was given; 0: none yet. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_last(truce_store *store, const char *name,
                                                             int64_t *number, bson_error_t *error);

/* Numbers up to `number` will not be given any more. Never lowers the counter. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_sequence_raise(truce_store *store, const char *name,
                                                              int64_t number, bson_error_t *error);

TRUCE_END_DECLS

#endif
