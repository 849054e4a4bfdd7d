#ifndef TRUCE_SERVER_CALL_FAIL_POINT_H
#define TRUCE_SERVER_CALL_FAIL_POINT_H

/*
 * Failures on request, for the tests of drivers and programs: MongoDB's fail points
 * "failCommand", "onPrimaryTransactionalWrite", and "failGetMoreAfterCursorCheckout". Only a
 * server that was started with --test-commands has this command.
 *
 *     {configureFailPoint: "failCommand",
 *      mode: "alwaysOn" | "off" | {times: N} | {skip: N},
 *      data: {failCommands: ["find", "truceClaim"], appName, namespace: "school.students",
 *             errorCode, errorLabels: [...], closeConnection, writeConcernError: {...},
 *             blockConnection: true, blockTimeMS}}
 *
 * failCommands, appName, and namespace choose commands. A chosen command waits for blockTimeMS.
 * Then its connection ends, or it fails with errorCode without running, or it runs and its reply
 * gets the writeConcernError. errorLabels replace the labels of the server. If failCommands names
 * configureFailPoint, it fails, too, and cannot switch the fail point off.
 *
 *                 {times: N}                      N commands were chosen
 *     off ------------------------> fails the next N -------------> off
 *     off ------------------------> N succeed --------------------> fails all, until "off"
 *                 {skip: N}
 *
 * onPrimaryTransactionalWrite chooses statements of retryable writes (retryable_writes.h), each
 * document of an insert by itself. Its data are {closeConnection, failBeforeCommitExceptionCode}:
 *
 *  - Without a code, the statement runs, and its connection ends (unless closeConnection is
 *    false), so the client gets no reply. Statements that changed something are counted.
 *  - With a code, the statement does not run and fails with the code before its connection ends.
 *    All statements are counted. (MongoDB counts only statements that would have changed
 *    something, and small documents of one insert together.)
 *
 * failGetMoreAfterCursorCheckout chooses getMores that found their cursor: {errorCode,
 * closeConnection}. The cursor is closed, too.
 *
 * Invariants:
 *  1. Only the commands that the data choose are counted, and no repeated statement.
 *  2. No call waits longer than TRUCE_SERVER_BLOCK_MS_MAX or its own deadline. killOp and the end
 *     of the server end the wait.
 */
#include "base/status.h"

struct call;
struct fail_point;

struct fail_point *fail_point_new(void);
void fail_point_free(struct fail_point *point); /* NULL is allowed. */

/* Runs before a command. If the command was chosen, waits, and refuses it if the data have a code
 * or end the connection (connection->ends). Otherwise the command runs. */
truce_status fail_point_enter(struct call *call, bson_error_t *error);
/* Runs before a statement of a retryable write. Fails if the statement was chosen. */
truce_status fail_point_write(struct call *call, bson_error_t *error);
/* Runs after a statement that changed something. */
void fail_point_written(struct call *call);
/* Runs after a getMore has found its cursor. Fails if it was chosen. */
truce_status fail_point_more(struct call *call, bson_error_t *error);
/* Runs after a command that succeeded. Appends the writeConcernError of the call, whatever its
 * source, and its labels. */
void fail_point_leave(struct call *call, bson_t *reply);

#endif
