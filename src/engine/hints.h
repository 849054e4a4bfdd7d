#ifndef TRUCE_ENGINE_HINTS_H
#define TRUCE_ENGINE_HINTS_H

/*
 * In which row a document was last seen, by its table and the key of its _id: a lookup that goes there straight
 * saves the way through the index of _id.
 *
 *     hash of (table, key):  | which line, 13 bits | ... | mark, 24 bits |
 *     line, 64 bytes:        8 slots of | mark, 24 bits | row, 40 bits |        0: nothing
 *
 * A hint is a guess. It may be of a document that moved, is gone or not there yet in this snapshot, or of another
 * whose hash is alike: so whoever follows one looks at the _id of what stands there, and where it is another's
 * (or nothing does) at the index. What has that _id in the snapshot is the document, since no other has. So nothing has
 * to be forgotten when documents change, and a slot is read and written by any thread without a lock.
 */
#include <stdatomic.h>

#include "engine/storage/kv.h"

struct hints;

struct hints *truce__hints_new(void);
void truce__hints_free(struct hints *hints); /* NULL is allowed */

/* The document with that key of its _id, by a hint if there is one, else by the index of _id; as
 * truce__kv_key_lookup. `id`: scratch, which must not have the key. */
truce_status truce__hints_look_up(struct hints *hints, struct kv *kv, int64_t index, int64_t table,
                                  struct bytes key, struct buffer *id, int64_t *row,
                                  struct bytes *body, bson_error_t *error);

#endif
