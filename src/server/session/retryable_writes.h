#ifndef TRUCE_SERVER_SESSION_RETRYABLE_WRITES_H
#define TRUCE_SERVER_SESSION_RETRYABLE_WRITES_H

/*
 * Writes that clients may send again: what each statement of a session's last txnNumber did is kept in the store, in the
 * same step as the write, and a statement that comes again is answered with that.
 *
 *     config.transactions   {_id: the session, txnNum, lastWriteDate,
 *                            inserted: [from, to, from, to ...], updated: [...], removed: [...],
 *                            others: [{s, upserted: _id} | {s, reply: of findAndModify} | {s}]}
 *
 * The numbers are those of statements (stmtId): 0, 1 ... in a command that does not say any. {s} alone: what it did was
 * too large to be kept; asked for again it is 217, and nothing is done.
 *
 * Invariants:
 *  1. A statement stands there if and only if what it did stands in the store: it is a receipt (truce/sys/store.h). What
 *     changed nothing is not kept; when it comes again it is done then.
 *  2. What a statement did is done once, however often and at however many servers of one file it is sent, as long as
 *     the record stands (TRUCE_SERVER_SESSION_MS after the last write).
 *  3. The record is of the session's largest number that wrote. A smaller one is refused (225).
 */
#include "server/session/sessions.h"
#include "truce/sys/store.h"

struct call;
struct retryable;

/* Of a session that was taken, and whose number this is (session_write). `ids`: an array of statement ids (NULL: none
 * was given), else they are `first`, first + 1 ... -1: not kept. `call`: what the statements are of (fail_point.h). */
truce_status retryable_begin(struct call *call, struct session *session, int32_t first,
                             const bson_t *ids, struct retryable **kept, bson_error_t *error);
/* `status`: of the command. *stale: another server has written for this session meanwhile; nothing was done: take it
 * again. */
void retryable_end(struct retryable *kept, truce_status status, bool *stale);

/* As truce_bulk, but for statements that come again, and those of several documents (72). 217: what one of them did
 * is not known any more. */
truce_status retryable_bulk(struct retryable *kept, truce_store *store, const truce_write *writes,
                            uint32_t count, const truce_bulk_options *options,
                            truce_write_outcome *outcomes, bson_error_t *error);

/* For findAndModify: fills the empty reply from what it did. */
typedef void retryable_reply(void *arg, const truce_write_result *result, const bson_t *document,
                             bson_t *reply);

/* *again: it comes again, and the reply is filled. Else: the receipt that goes along with it. */
truce_status retryable_modify(struct retryable *kept, retryable_reply *fill, void *arg,
                              bson_t *reply, bool *again, truce_receipt **receipt,
                              bson_error_t *error);

/* It was not again, and this was done. */
void retryable_modified(const struct retryable *kept, const truce_write_result *result);

/* {retriedStmtIds: [...]}, if there were any. */
void retryable_append_retried(const struct retryable *kept, bson_t *reply);

#endif
