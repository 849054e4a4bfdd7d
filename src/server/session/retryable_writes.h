#ifndef TRUCE_SERVER_SESSION_RETRYABLE_WRITES_H
#define TRUCE_SERVER_SESSION_RETRYABLE_WRITES_H

/*
 * Retryable writes: the store remembers the result of each statement of a session's last
 * txnNumber. The record is written in the same step as the write. A statement that a client sends
 * again gets the remembered result.
 *
 *     config.transactions   {_id: the session, txnNum, lastWriteDate,
 *                            inserted: [from, to, from, to ...], updated: [...], removed: [...],
 *                            others: [{s, upserted: _id} | {s, reply: of findAndModify} | {s}]}
 *
 * The numbers are statement ids (stmtId): 0, 1 ... in a command without explicit ids. {s} alone
 * means that the result was too large to be stored; sending the statement again fails with 217
 * and does nothing.
 *
 * Invariants:
 *  1. A statement is in the record if and only if its effect is stored: it is a receipt
 *     (truce/sys/store.h). A statement that changed nothing is not recorded and runs again when
 *     it is sent again.
 *  2. The effect of a statement is applied once, however often, and through however many servers
 *     of one file, it is sent, as long as the record exists (TRUCE_SERVER_SESSION_MS after the
 *     last write).
 *  3. The record belongs to the largest number of the session that wrote. A smaller number is
 *     refused (225).
 */
#include "server/session/sessions.h"
#include "truce/sys/store.h"

struct call;
struct retryable;

/* Begins the statements of a command. The session was taken and has this number (session_write).
 * `ids` is an array of statement ids; if it is NULL, they are `first`, first + 1, and so on. A
 * statement with the id -1 is not recorded. The caller calls retryable_end also after a failure. */
truce_status retryable_begin(struct call *call, struct session *session, int32_t first,
                             const bson_t *ids, struct retryable **retryable, bson_error_t *error);
/* Ends the command with its status. Sets `*stale` if another server has written for this session
 * in the meantime: then nothing was done, and the command must run again. */
void retryable_end(struct retryable *retryable, truce_status status, bool *stale);

/* Runs a bulk like truce_bulk, except for statements that were sent again. Statements that may
 * change several documents are refused (72). Fails with 217 if the result of a repeated statement
 * is no longer known. */
truce_status retryable_bulk(struct retryable *retryable, truce_store *store,
                            const truce_write *writes, uint32_t count,
                            const truce_bulk_options *options, truce_write_outcome *outcomes,
                            bson_error_t *error);

/* Fills the empty reply of a findAndModify from its result. */
typedef void retryable_reply(void *arg, const truce_write_result *result, const bson_t *document,
                             bson_t *reply);

/* Begins a findAndModify. If it was sent again, sets `*again` and fills the reply. Otherwise
 * returns the receipt that must accompany the write. */
truce_status retryable_modify(struct retryable *retryable, retryable_reply *fill, void *arg,
                              bson_t *reply, bool *again, truce_receipt **receipt,
                              bson_error_t *error);

/* Records the result of a findAndModify that was not sent again. */
void retryable_modified(const struct retryable *retryable, const truce_write_result *result);

/* Appends {retriedStmtIds: [...]} if statements were sent again. */
void retryable_append_retried(const struct retryable *retryable, bson_t *reply);

#endif
