#ifndef TRUCE_SERVER_COMMAND_COLLECTION_UUID_H
#define TRUCE_SERVER_COMMAND_COLLECTION_UUID_H

/*
 * collectionUUID: a command runs only if its collection still has the UUID that the client knows.
 *
 *     {find: "students", collectionUUID: UUID}
 *     {ok: 0, code: 361, db, collectionUUID, expectedCollection: "students",
 *      actualCollection: "alumni" or null}
 *
 * From this check until the command ends, this server neither drops nor renames a collection:
 * such commands and commands with a collectionUUID wait for each other. Other processes, and
 * $out, are not prevented from changing names.
 */
#include "server/call/call.h"

/* Checks the collectionUUID of the command, if it has one. If the collection does not have this
 * UUID, fails with 361 and sets call->mismatch. Fails with TypeMismatch (14) if it is not a UUID,
 * and with 115 if the store has no UUIDs. */
truce_status same_collection_check(struct call *call, bson_error_t *error);
/* Does the same for a collection that a field of the command names, by a valid namespace
 * (DATABASE.NAME). */
truce_status same_collection_of(struct call *call, const char *ns, const bson_value_t *uuid,
                                bson_error_t *error);

/* These calls enclose every command. A command that drops or renames collections waits in the first
 * call for commands with a collectionUUID. The second call releases the lock of either kind. */
void same_collection_begin(struct call *call);
void same_collection_end(struct call *call);

#endif
