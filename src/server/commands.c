/*
 * The table of commands: the names, handlers, and traits of MongoDB's commands, in the order of
 * the help, and the patterns' operations (operations/operation.h).
 *
 * The table is handed to a server when it starts (struct server). The folders below use it only
 * through that pointer, so they do not depend on the handlers.
 */
#include "server/commands.h"

#include <string.h>

#include "server/command/handlers.h"
#include "server/command/serve_operations.h"

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

/* The fourth column is the access that the frame checks before the handler runs. Handlers of
 * FOR_USERS check the names in their fields themselves. */
static const struct command mongo_commands[] = {
    {"find", serve_find, COUNTED_QUERY, IN_COLLECTION(ACTION_FIND),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID | COMMAND_READS_VIEWS,
     "finds documents that match a filter"},
    {"getMore", serve_get_more, COUNTED_GETMORE, FOR_USERS, COMMAND_STABLE | COMMAND_TRANSACTS,
     "returns the next batch of a cursor"},
    {"killCursors", serve_kill_cursors, COUNTED_COMMAND, FOR_USERS,
     COMMAND_STABLE | COMMAND_TRANSACTS, "closes cursors"},
    {"aggregate", serve_aggregate, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID | COMMAND_READS_VIEWS,
     "runs a pipeline"},
    {"count", serve_count, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_READS_VIEWS,
     "counts documents that match a filter"},
    {"distinct", serve_distinct, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),
     COMMAND_TRANSACTS | COMMAND_READS_VIEWS, "returns the distinct values of a path"},
    {"explain", serve_explain, COUNTED_COMMAND, FOR_INNER, COMMAND_STABLE,
     "returns the plan of a command and its cost"},
    {"insert", serve_insert, COUNTED_INSERT, IN_COLLECTION(ACTION_WRITE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS,
     "inserts documents"},
    {"update", serve_update, COUNTED_UPDATE, IN_COLLECTION(ACTION_WRITE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS,
     "changes documents"},
    {"delete", serve_delete, COUNTED_DELETE, IN_COLLECTION(ACTION_WRITE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS,
     "removes documents"},
    {"bulkWrite", serve_bulk_write, COUNTED_COMMAND, FOR_USERS,
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES,
     "writes documents of several collections"},
    {"findAndModify", serve_find_and_modify, COUNTED_COMMAND,
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_RETRIES, "changes one document and returns it"},
    {"findandmodify", serve_find_and_modify, COUNTED_COMMAND,
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE), COMMAND_TRANSACTS | COMMAND_RETRIES, NULL},
    {"create", serve_create, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_CHECKS_VIEWS, "creates a collection or a view"},
    {"collMod", serve_modify_collection, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     COMMAND_STABLE | COMMAND_HAS_UUID | COMMAND_CHECKS_VIEWS,
     "sets the validator of a collection, or changes an index"},
    {"drop", serve_drop, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_STABLE | COMMAND_HAS_UUID | COMMAND_DROPS | COMMAND_CHANGES_NAMES |
         COMMAND_CHECKS_VIEWS,
     "drops a collection"},
    {"dropDatabase", serve_drop_database, COUNTED_COMMAND, IN_DATABASE(ACTION_ADMIN),
     COMMAND_STABLE | COMMAND_DROPS | COMMAND_CHANGES_NAMES, "drops all collections of a database"},
    {"renameCollection", serve_rename, COUNTED_COMMAND, FOR_USERS, COMMAND_CHANGES_NAMES,
     "renames a collection"},
    {"listCollections", serve_list_collections, COUNTED_COMMAND, IN_DATABASE(ACTION_LIST),
     COMMAND_STABLE, "lists the collections of a database"},
    {"listDatabases", serve_list_databases, COUNTED_COMMAND, FOR_USERS, COMMAND_STABLE,
     "lists the databases"},
    {"createIndexes", serve_create_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_STABLE | COMMAND_TRANSACTS | COMMAND_HAS_UUID, "creates indexes"},
    {"dropIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_STABLE | COMMAND_HAS_UUID, "drops indexes"},
    {"deleteIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_HAS_UUID, NULL},
    {"listIndexes", serve_list_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_LIST), COMMAND_STABLE,
     "lists the indexes of a collection"},
    {"collStats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS), 0,
     "returns the size of a collection"},
    {"collstats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS), 0, NULL},
    {"dbStats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS), 0,
     "returns the size of a database"},
    {"dbstats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS), 0, NULL},
    {"validate", serve_validate, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     COMMAND_KEEPS_DOCUMENTS, "checks the documents and indexes of a collection"},
    {"currentOp", serve_current_op, COUNTED_COMMAND, FOR_USERS, 0,
     "lists the commands that are running"},
    {"killOp", serve_kill_op, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "interrupts a command that reads"},
    {"hello", serve_hello, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE, "describes the server"},
    {"isMaster", serve_hello, COUNTED_COMMAND, FOR_ALL, 0, NULL},
    {"ismaster", serve_hello, COUNTED_COMMAND, FOR_ALL, 0, NULL},
    {"ping", serve_nothing, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE, "replies with ok"},
    {"buildInfo", serve_build_info, COUNTED_COMMAND, FOR_ALL, 0, "returns the version"},
    {"buildinfo", serve_build_info, COUNTED_COMMAND, FOR_ALL, 0, NULL},
    {"getParameter", serve_get_parameter, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns parameters of the server"},
    {"serverStatus", serve_server_status, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns the counters of the server"},
    {"top", serve_top, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns the count and time of operations per collection"},
    {"connPoolStats", serve_pools, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns connections to other servers: none"},
    {"connectionStatus", serve_connection_status, COUNTED_COMMAND, FOR_ALL, 0,
     "returns the users of the connection"},
    {"hostInfo", serve_host_info, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "describes the machine"},
    {"getLog", serve_log, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns the last lines of the log"},
    {"logRotate", serve_rotate, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "starts a new log file"},
    {"setParameter", serve_set_parameter, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "sets a parameter of the server"},
    {"profile", serve_profile, COUNTED_COMMAND, IN_DATABASE(ACTION_ADMIN), 0,
     "sets the threshold of slow commands"},
    {"fsync", serve_fsync, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "waits until all writes are on the disk"},
    {"compact", serve_compact, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     COMMAND_KEEPS_DOCUMENTS, "returns unused space of the file to the disk"},
    {"dataSize", serve_data_size, COUNTED_COMMAND, FOR_USERS, 0,
     "returns the size of a collection's documents"},
    {"datasize", serve_data_size, COUNTED_COMMAND, FOR_USERS, 0, NULL},
    {"filemd5", serve_filemd5, COUNTED_COMMAND, FOR_USERS, 0, "returns the MD5 of a GridFS file"},
    {"shutdown", serve_shutdown, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0, "stops the server"},
    {"getCmdLineOpts", serve_options, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "returns the options of the server"},
    {"whatsmyuri", serve_whats_my_uri, COUNTED_COMMAND, FOR_ALL, 0, "returns the client's address"},
    {"replSetGetStatus", serve_replica_status, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), 0,
     "describes the replica set, if any"},
    {"getLastError", serve_last_error, COUNTED_COMMAND, FOR_ALL, 0, "exists for old drivers"},
    {"getlasterror", serve_last_error, COUNTED_COMMAND, FOR_ALL, 0, NULL},
    {"usersInfo", serve_users, COUNTED_COMMAND, FOR_USERS, 0, "lists users"},
    {"rolesInfo", serve_roles, COUNTED_COMMAND, FOR_USERS, 0, "lists roles"},
    {"createUser", serve_create_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "creates a user"},
    {"updateUser", serve_update_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "sets the password or the roles of a user"},
    {"dropUser", serve_drop_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0, "removes a user"},
    {"dropAllUsersFromDatabase", serve_drop_all_users, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS),
     0, "removes all users of a database"},
    {"grantRolesToUser", serve_grant_roles, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "grants roles to a user"},
    {"revokeRolesFromUser", serve_revoke_roles, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "revokes roles of a user"},
    {"saslStart", serve_sasl_start, COUNTED_COMMAND, FOR_ALL, 0, "begins a login"},
    {"saslContinue", serve_sasl_continue, COUNTED_COMMAND, FOR_ALL, 0, "continues a login"},
    {"logout", serve_logout, COUNTED_COMMAND, FOR_ALL, 0, "ends a login"},
    {"startSession", serve_start_session, COUNTED_COMMAND, FOR_USERS, 0,
     "returns the id of a new session"},
    {"endSessions", serve_end_sessions, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE, "ends sessions"},
    {"refreshSessions", serve_nothing, COUNTED_COMMAND, FOR_USERS, COMMAND_STABLE,
     "keeps sessions from expiring"},
    {"killSessions", serve_end_sessions, COUNTED_COMMAND, FOR_USERS, 0, "ends sessions"},
    {"killAllSessions", serve_end_all_sessions, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "ends all sessions"},
    {"commitTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS,
     COMMAND_STABLE | COMMAND_TRANSACTS, "commits a transaction"},
    {"abortTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS,
     COMMAND_STABLE | COMMAND_TRANSACTS, "aborts a transaction"},
    {"configureFailPoint", serve_fail_point, COUNTED_COMMAND, FOR_TESTS(ACTION_KILL), 0,
     "makes commands fail, with --test-commands"},
    {"listCommands", serve_list_commands, COUNTED_COMMAND, FOR_ALL, 0, "lists the commands"},
    {0}};

static const struct command *commands_find(const char *name)
{
    const struct command *command = mongo_commands;

    while (command->name && strcmp(command->name, name) != 0)
        command++;
    return command->name ? command : operation_command_named(name);
}

const struct command_table server_commands = {mongo_commands, row_command, commands_find};
