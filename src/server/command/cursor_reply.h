#ifndef TRUCE_SERVER_COMMAND_CURSOR_REPLY_H
#define TRUCE_SERVER_COMMAND_CURSOR_REPLY_H

/* Replies with a batch of documents: {cursor: {id, ns, firstBatch: [...]}}. */
#include "server/call/call.h"

/* Appends a batch of at most `most` documents (negative means no maximum) under `name`. Then closes
 * the entry if the read failed, it is at its end, or `one_batch` is set, and otherwise registers it
 * for getMore. */
truce_status cursor_reply(struct call *call, struct cursor_entry *entry, const char *name,
                          int64_t most, bool one_batch, bson_t *reply, bson_error_t *error);
/* Appends the first batch of a new cursor. Takes ownership of the cursor. */
truce_status cursor_reply_first(struct call *call, truce_cursor *cursor, const char *ns,
                                int64_t most, bool one_batch, bson_t *reply, bson_error_t *error);
/* Appends the first batch of the documents in an array. Takes ownership of the array. `ns` is
 * without the database of the call. */
truce_status cursor_reply_array(struct call *call, bson_t *array, const char *ns, int64_t most,
                                bson_t *reply, bson_error_t *error);
/* Appends {atClusterTime: the time of the snapshot}. */
void cursor_reply_append_time(const struct registered_snapshot *snapshot, bson_t *to);
/* Fails with 146 if the arrays of open cursors use too much memory. */
truce_status cursor_reply_room(const struct call *call, bson_error_t *error);

#endif
