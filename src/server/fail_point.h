#ifndef TRUCE_SERVER_FAIL_POINT_H
#define TRUCE_SERVER_FAIL_POINT_H

/*
 * Failures by order, for the tests of drivers and programs: MongoDB's fail point "failCommand". Only a server that was
 * started with --test-commands has it; to others the command is not known.
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
 * Invariants:
 *  1. It counts the commands that its data choose, and no others.
 *  2. Nothing waits for longer than TRUCE_SERVER_BLOCK_MS_MAX, the call's own deadline, killOp or the end of the server.
 */
#include "base/status.h"

struct call;
struct fail_point;

struct fail_point *fail_point_new(void);
void fail_point_free(struct fail_point *point); /* or NULL */

/* Before a command runs: waits, and refuses it, if it was chosen. The connection may end (connection->ends). */
truce_status fail_point_enter(struct call *call, bson_error_t *error);
/* After it was run: the reply's writeConcernError. */
void fail_point_leave(struct call *call, bson_t *reply);

#endif
