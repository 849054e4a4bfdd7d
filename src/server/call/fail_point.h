#ifndef TRUCE_SERVER_CALL_FAIL_POINT_H
#define TRUCE_SERVER_CALL_FAIL_POINT_H

/*
 * Failures by order, for the tests of drivers and programs: MongoDB's fail points "failCommand",
 * "onPrimaryTransactionalWrite" and "failGetMoreAfterCursorCheckout". Only a server that was started with --test-commands
 * has them; to others the command is not known.
 *
 *     {configureFailPoint: "failCommand", mode: "alwaysOn" | "off" | {times: N} | {skip: N},
 *      data: {failCommands: ["find", "truceClaim"], appName, namespace: "school.students",     which commands
 *             errorCode, errorLabels: [...], closeConnection, writeConcernError: {...},        what becomes of them
 *             blockConnection: true, blockTimeMS}}
 *
 * A command that is chosen waits for blockTimeMS; then its connection ends, or it is answered with errorCode, and is not
 * run; or it is run, and its reply has the writeConcernError. errorLabels stand there instead of those that the server
 * would have put there. The command itself never fails by it.
 *
 *                 {times: N}                      N commands were chosen
 *     off ------------------------> fails the next N -------------> off
 *     off ------------------------> lets N pass ------------------> fails all, until "off"
 *                 {skip: N}
 *
 * The second is of the statements that are kept (retryable_writes.h), each by itself, be they documents of one insert:
 *
 *     {configureFailPoint: "onPrimaryTransactionalWrite", mode, data: {closeConnection, failBeforeCommitExceptionCode}}
 *
 * The connection of one that was done ends (unless closeConnection is false), so its client never hears of it; with a
 * code it is not done but answered with that, before its connection ends. Without a code those count that changed
 * something; with one, all that were to be done (MongoDB counts those only that would have changed something, and
 * small documents of one insert together).
 *
 * The third is of getMores that found their cursor: {errorCode, closeConnection}. The cursor is closed with it.
 *
 * Invariants:
 *  1. It counts the commands that its data choose, and no others; and no statement that comes again.
 *  2. Nothing waits for longer than TRUCE_SERVER_BLOCK_MS_MAX, the call's own deadline, killOp or the end of the server.
 */
#include "base/status.h"

struct call;
struct fail_point;

struct fail_point *fail_point_new(void);
void fail_point_free(struct fail_point *point); /* or NULL */

/* Before a command runs: waits, and refuses it, if it was chosen. The connection may end (connection->ends). */
truce_status fail_point_enter(struct call *call, bson_error_t *error);
/* Before a statement that is kept is done: not OK if it is not to be. */
truce_status fail_point_write(struct call *call, bson_error_t *error);
/* It was done, and changed something. */
void fail_point_written(struct call *call);
/* Of a getMore whose cursor was found: not OK if it is to fail. */
truce_status fail_point_more(struct call *call, bson_error_t *error);
/* After it was run: the reply's writeConcernError. */
void fail_point_leave(struct call *call, bson_t *reply);

#endif
