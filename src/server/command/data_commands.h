#ifndef TRUCE_SERVER_COMMAND_DATA_COMMANDS_H
#define TRUCE_SERVER_COMMAND_DATA_COMMANDS_H

/*
 * The rows of MongoDB's data commands, which need no connection. The tables of truce serve
 * (commands.c) and of truce_command (in_process_commands.c) both contain them.
 */
#include "server/command/handlers.h"
#include "server/command/serve_pattern_operations.h"

#define FOR_ALL                                                                                    \
    {                                                                                              \
        NEED_NOTHING, 0                                                                            \
    }
#define FOR_USERS                                                                                  \
    {                                                                                              \
        NEED_LOGIN, 0                                                                              \
    }
#define FOR_INNER                                                                                  \
    {                                                                                              \
        NEED_INNER, 0                                                                              \
    }
#define IN_COLLECTION(actions)                                                                     \
    {                                                                                              \
        NEED_COLLECTION, actions                                                                   \
    }
#define IN_DATABASE(actions)                                                                       \
    {                                                                                              \
        NEED_DATABASE, actions                                                                     \
    }
#define FOR_TESTS(actions)                                                                         \
    {                                                                                              \
        NEED_TESTS, actions                                                                        \
    }
#define OF_SERVER(actions)                                                                         \
    {                                                                                              \
        NEED_SERVER, actions                                                                       \
    }

/* The traits that insert, update, and delete share. */
#define DATA_WRITES                                                                                \
    (COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS)

/* The fourth column is the access that is checked before the handler runs. Handlers of FOR_USERS
 * check the names in their fields themselves. */
/* clang-format off */
#define DATA_COMMANDS                                                                              \
    {"find", serve_find, COUNTED_QUERY, IN_COLLECTION(ACTION_FIND),                                \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID | COMMAND_READS_VIEWS,                  \
     "finds documents that match a filter"},                                                       \
    {"getMore", serve_get_more, COUNTED_GETMORE, FOR_USERS, COMMAND_STABLE | COMMAND_TRANSACTS,    \
     "returns the next batch of a cursor"},                                                        \
    {"killCursors", serve_kill_cursors, COUNTED_COMMAND, FOR_USERS,                                \
     COMMAND_STABLE | COMMAND_TRANSACTS, "closes cursors"},                                        \
    {"aggregate", serve_aggregate, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),                    \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID | COMMAND_READS_VIEWS,                  \
     "runs a pipeline"},                                                                           \
    {"count", serve_count, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),                            \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_READS_VIEWS,                                     \
     "counts documents that match a filter"},                                                      \
    {"distinct", serve_distinct, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),                      \
     COMMAND_TRANSACTS | COMMAND_READS_VIEWS, "returns the distinct values of a path"},            \
    {"explain", serve_explain, COUNTED_COMMAND, FOR_INNER, COMMAND_STABLE,                         \
     "returns the plan of a command and its cost"},                                                \
    {"insert", serve_insert, COUNTED_INSERT, IN_COLLECTION(ACTION_WRITE),                          \
     DATA_WRITES,                                                                                  \
     "inserts documents"},                                                                         \
    {"update", serve_update, COUNTED_UPDATE, IN_COLLECTION(ACTION_WRITE),                          \
     DATA_WRITES,                                                                                  \
     "changes documents"},                                                                         \
    {"delete", serve_delete, COUNTED_DELETE, IN_COLLECTION(ACTION_WRITE),                          \
     DATA_WRITES,                                                                                  \
     "removes documents"},                                                                         \
    {"bulkWrite", serve_bulk_write, COUNTED_COMMAND, FOR_USERS,                                    \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES,                                         \
     "writes documents of several collections"},                                                   \
    {"findAndModify", serve_find_and_modify, COUNTED_COMMAND,                                      \
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE),                                                    \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES, "changes one document and returns it"}, \
    {"create", serve_create, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),                         \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_CHECKS_VIEWS, "creates a collection or a view"}, \
    {"collMod", serve_modify_collection, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),             \
     COMMAND_STABLE | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS,                                     \
     "sets the validator of a collection, or changes an index"},                                   \
    {"drop", serve_drop, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),                             \
     COMMAND_STABLE | COMMAND_HAS_UUID | COMMAND_DROPS | COMMAND_CHANGES_NAMES |                   \
         COMMAND_CHECKS_VIEWS,                                                                     \
     "drops a collection"},                                                                        \
    {"dropDatabase", serve_drop_database, COUNTED_COMMAND, IN_DATABASE(ACTION_ADMIN),              \
     COMMAND_STABLE | COMMAND_DROPS | COMMAND_CHANGES_NAMES,                                       \
     "drops all collections of a database"},                                                       \
    {"renameCollection", serve_rename, COUNTED_COMMAND, FOR_USERS, COMMAND_CHANGES_NAMES,          \
     "renames a collection"},                                                                      \
    {"listCollections", serve_list_collections, COUNTED_COMMAND, IN_DATABASE(ACTION_LIST),         \
     COMMAND_STABLE, "lists the collections of a database"},                                       \
    {"listDatabases", serve_list_databases, COUNTED_COMMAND, FOR_USERS, COMMAND_STABLE,            \
     "lists the databases"},                                                                       \
    {"createIndexes", serve_create_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),          \
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID, "creates indexes"},                    \
    {"dropIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),              \
     COMMAND_STABLE | COMMAND_HAS_UUID, "drops indexes"},                                          \
    {"listIndexes", serve_list_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_LIST),               \
     COMMAND_STABLE,                                                                               \
     "lists the indexes of a collection"},                                                         \
    {"collStats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS), 0,         \
     "returns the size of a collection"},                                                          \
    {"dbStats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS), 0,               \
     "returns the size of a database"},                                                            \
    {"validate", serve_validate, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),                     \
     COMMAND_KEEPS_DOCUMENTS, "checks the documents and indexes of a collection"},                 \
    {"ping", serve_nothing, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE, "replies with ok"},          \
    {"startSession", serve_start_session, COUNTED_COMMAND, FOR_USERS, 0,                           \
     "returns the id of a new session"},                                                           \
    {"endSessions", serve_end_sessions, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE,                  \
     "ends sessions"},                                                                             \
    {"refreshSessions", serve_refresh_sessions, COUNTED_COMMAND, FOR_USERS, COMMAND_STABLE,                 \
     "keeps sessions from expiring"},                                                              \
    {"commitTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS,                               \
     COMMAND_STABLE | COMMAND_TRANSACTS, "commits a transaction"},                                 \
    {"abortTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS,                                \
     COMMAND_STABLE | COMMAND_TRANSACTS, "aborts a transaction"}
/* clang-format on */

#endif
