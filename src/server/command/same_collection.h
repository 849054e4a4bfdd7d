#ifndef TRUCE_SERVER_COMMAND_SAME_COLLECTION_H
#define TRUCE_SERVER_COMMAND_SAME_COLLECTION_H

/*
 * collectionUUID: a command is of the collection that was listed with that uuid, and of no other that has got its name since.
 *
 *     {find: "students", collectionUUID: UUID}
 *     {ok: 0, code: 361, db, collectionUUID, expectedCollection: "students", actualCollection: "alumni" or null}
 *
 * From the look at the uuid until the command has ended this server drops and renames nothing: such commands wait for those, and
 * those for such. What another process, or $out, does to the names meanwhile is not kept away.
 */
#include "server/call/call.h"

/* What collectionUUID says of the call's command, if it is one that has it. 361, and call->mismatch says more; TypeMismatch (14): it
 * is none; 115: the store keeps none. */
truce_status same_collection_check(struct call *call, bson_error_t *error);
/* The same of a collection that stands elsewhere in the command, by a whole name (DATABASE.NAME) that was looked at. */
truce_status same_collection_of(struct call *call, const char *ns, const bson_value_t *uuid,
                                bson_error_t *error);

/* Around the command: before it is looked at, for those that drop or rename, and at its end, for all. */
void same_collection_begin(struct call *call);
void same_collection_end(struct call *call);

#endif
