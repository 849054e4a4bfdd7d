#ifndef TRUCE_ENGINE_ID_ROW_CACHE_H
#define TRUCE_ENGINE_ID_ROW_CACHE_H

/*
 * Row hints: the row in which a document was last seen, by its table and the key of its _id. A
 * lookup that follows a hint skips the index of _id.
 *
 *     hash of (table, key):  | number of the line, 13 bits | ... | mark, 24 bits |
 *     line, 64 bytes:        8 slots of | mark, 24 bits | row, 40 bits |        0: empty
 *
 * Documents are often inserted in the order of their _ids: numbers that count up, or ObjectIds of
 * one process. Their rows count up as well, so one hint serves 256 of them, a run:
 *
 *     position of an _id:    a whole number or an ObjectId, as | run | its last byte, the step |
 *     slot of the run:       | mark, 23 bits | sure, 1 bit | row of step 0, plus 2^39, 40 bits |
 *     slot of the numbers:   the same, where the number is the step
 *
 * A run is sure when two lookups by the index have found the same row of step 0, one after the
 * other. Only then is it followed. _ids that do not come in the order of their rows never make a
 * run sure, and use a slot for each document. If all numbers of a table come in the order of their
 * rows, without a gap, one slot serves a run of which no document was seen before.
 *
 * A hint is a guess. Its document may have moved, may be gone or not yet visible in this snapshot,
 * or may be another one with a similar hash. Therefore the lookup compares the _id of the document
 * in the row, and uses the index if it differs or the row is empty. A document with the right _id
 * in the snapshot is the right document, since no other one has that _id. Hints are therefore never
 * invalidated when documents change, and any thread reads and writes a slot without a lock.
 */
#include <stdatomic.h>

#include "engine/storage/kv.h"

struct hints;

struct hints *truce__hints_new(void);
/* Frees the hints. NULL is allowed. */
void truce__hints_free(struct hints *hints);

/* Looks up the document with that key of its _id, by a hint if there is one, otherwise by the index
 * of _id, with the result of truce__kv_key_lookup. `id` is scratch memory and must not contain the
 * key. */
truce_status truce__hints_look_up(struct hints *hints, struct kv *kv, int64_t index, int64_t table,
                                  struct bytes key, struct buffer *id, int64_t *row,
                                  struct bytes *body, bson_error_t *error);

#endif
