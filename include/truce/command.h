#ifndef TRUCE_COMMAND_H
#define TRUCE_COMMAND_H

/*
 * Commands in process: operations as request and reply documents.
 *
 *     {truceEnqueue: "mail", payload: {...}}      ->  {id: ..., added: "new", status: "ok", ok: 1}
 *     {find: "students", filter: {...}}           ->  {cursor: {id, ns, firstBatch: [...]}, ok: 1}
 *
 * The commands are the operations of truce serve (docs/commands.md; {truceHelp: 1} lists them) and
 * MongoDB's data commands:
 *
 *     find, getMore, killCursors, aggregate, count, distinct, explain
 *     insert, update, delete, bulkWrite, findAndModify
 *     create, collMod, drop, dropDatabase, renameCollection, listCollections, listDatabases
 *     createIndexes, dropIndexes, listIndexes, collStats, dbStats, validate, ping
 *     startSession, endSessions, refreshSessions, commitTransaction, abortTransaction
 *
 * Requests and replies are those of the server, so a language binding needs no other function.
 *
 * Threads: any number of threads may call it with one store. A command that waits (truceClaim with
 * waitMS, getMore of a change stream) blocks its thread only.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/*
 * Runs a command in a database (NULL means that of the store, or the store's own). A store that is
 * a database of a MongoDB server runs commands in that database only. `reply` is always
 * initialized; the caller destroys it. The first field of the request is the command's name.
 *
 * TRUCE_OK: the reply has `ok: 1`. As on a server, writes that failed one by one are listed in
 * `writeErrors` of such a reply. Otherwise the reply has `ok: 0`, `errmsg`, `code`, and `codeName`,
 * and the status is the class of the error. An unknown command and a field with a wrong type or
 * value are TRUCE_INVALID. `error` repeats the code (domain TRUCE_ERROR_SERVER) and the message.
 *
 * Cursors that are not used for ten minutes, and transactions that last longer than a minute, end.
 * truce_store_close ends all of them.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_command(truce_store *store, const char *database,
                                                       const bson_t *request, bson_t *reply,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
