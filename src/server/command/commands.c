/* The commands, in the order of the help. */
#include "server/command/groups.h"
#include "server/command/serve_operations.h"

#include <string.h>

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

/* The third word says what who calls must be allowed; FOR_USERS: the command looks itself, at what it names. */
const struct command server_commands[] = {
    {"find", serve_find, COUNTED_QUERY, IN_COLLECTION(ACTION_FIND), "documents that match"},
    {"getMore", serve_get_more, COUNTED_GETMORE, FOR_USERS, "more of a cursor"},
    {"killCursors", serve_kill_cursors, COUNTED_COMMAND, FOR_USERS, "ends cursors"},
    {"aggregate", serve_aggregate, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND), "runs a pipeline"},
    {"count", serve_count, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND), "how many documents match"},
    {"distinct", serve_distinct, COUNTED_COMMAND, IN_COLLECTION(ACTION_FIND),
     "the distinct values of a path"},
    {"explain", serve_explain, COUNTED_COMMAND, FOR_INNER,
     "how a command would run, and what it looks at"},
    {"insert", serve_insert, COUNTED_INSERT, IN_COLLECTION(ACTION_WRITE), "inserts documents"},
    {"update", serve_update, COUNTED_UPDATE, IN_COLLECTION(ACTION_WRITE), "changes documents"},
    {"delete", serve_delete, COUNTED_DELETE, IN_COLLECTION(ACTION_WRITE), "removes documents"},
    {"bulkWrite", serve_bulk_write, COUNTED_COMMAND, FOR_USERS,
     "writes documents of several collections"},
    {"findAndModify", serve_find_and_modify, COUNTED_COMMAND,
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE), "changes one document and returns it"},
    {"findandmodify", serve_find_and_modify, COUNTED_COMMAND,
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE), NULL},
    {"create", serve_create, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE), "makes a collection"},
    {"collMod", serve_modify_collection, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     "sets the validator of a collection, or changes an index"},
    {"drop", serve_drop, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE), "drops a collection"},
    {"dropDatabase", serve_drop_database, COUNTED_COMMAND, IN_DATABASE(ACTION_ADMIN),
     "drops all collections of a database"},
    {"renameCollection", serve_rename, COUNTED_COMMAND, FOR_USERS, "renames a collection"},
    {"listCollections", serve_list_collections, COUNTED_COMMAND, IN_DATABASE(ACTION_LIST),
     "the collections of a database"},
    {"listDatabases", serve_list_databases, COUNTED_COMMAND, FOR_USERS, "the databases"},
    {"createIndexes", serve_create_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     "makes indexes"},
    {"dropIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     "drops indexes"},
    {"deleteIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE), NULL},
    {"listIndexes", serve_list_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_LIST),
     "the indexes of a collection"},
    {"collStats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS),
     "the size of a collection"},
    {"collstats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS), NULL},
    {"dbStats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS),
     "the size of a database"},
    {"dbstats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS), NULL},
    {"validate", serve_validate, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     "looks at the documents and indexes of a collection"},
    {"currentOp", serve_current_op, COUNTED_COMMAND, FOR_USERS, "what runs just now"},
    {"killOp", serve_kill_op, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), "ends a call that reads"},
    {"hello", serve_hello, COUNTED_COMMAND, FOR_ALL, "what the server is"},
    {"isMaster", serve_hello, COUNTED_COMMAND, FOR_ALL, NULL},
    {"ismaster", serve_hello, COUNTED_COMMAND, FOR_ALL, NULL},
    {"ping", serve_nothing, COUNTED_COMMAND, FOR_ALL, "answers"},
    {"buildInfo", serve_build_info, COUNTED_COMMAND, FOR_ALL, "the version"},
    {"buildinfo", serve_build_info, COUNTED_COMMAND, FOR_ALL, NULL},
    {"getParameter", serve_get_parameter, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "parameters of the server"},
    {"serverStatus", serve_server_status, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "counters of the server"},
    {"top", serve_top, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "what was done with each collection, and how long it took"},
    {"connPoolStats", serve_pools, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "connections to other servers: none"},
    {"connectionStatus", serve_connection_status, COUNTED_COMMAND, FOR_ALL, "who is connected"},
    {"hostInfo", serve_host_info, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), "the machine"},
    {"getLog", serve_log, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER), "the last lines of the log"},
    {"logRotate", serve_rotate, COUNTED_COMMAND, OF_SERVER(ACTION_KILL),
     "begins the file of the log anew"},
    {"setParameter", serve_set_parameter, COUNTED_COMMAND, OF_SERVER(ACTION_KILL),
     "sets a parameter of the server"},
    {"profile", serve_profile, COUNTED_COMMAND, IN_DATABASE(ACTION_ADMIN),
     "sets which commands are slow"},
    {"fsync", serve_fsync, COUNTED_COMMAND, OF_SERVER(ACTION_KILL),
     "waits until all that was written is on the disk"},
    {"compact", serve_compact, COUNTED_COMMAND, IN_COLLECTION(ACTION_ADMIN),
     "gives space of the file back"},
    {"dataSize", serve_data_size, COUNTED_COMMAND, FOR_USERS,
     "the size of a collection's documents"},
    {"datasize", serve_data_size, COUNTED_COMMAND, FOR_USERS, NULL},
    {"filemd5", serve_filemd5, COUNTED_COMMAND, FOR_USERS, "the MD5 of a file of GridFS"},
    {"shutdown", serve_shutdown, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), "ends the server"},
    {"getCmdLineOpts", serve_options, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "how the server was started"},
    {"whatsmyuri", serve_whats_my_uri, COUNTED_COMMAND, FOR_ALL, "the client's address"},
    {"replSetGetStatus", serve_replica_status, COUNTED_COMMAND, OF_SERVER(ACTION_SERVER),
     "the replica set that it looks like, if any"},
    {"getLastError", serve_last_error, COUNTED_COMMAND, FOR_ALL, "for old drivers"},
    {"getlasterror", serve_last_error, COUNTED_COMMAND, FOR_ALL, NULL},
    {"usersInfo", serve_users, COUNTED_COMMAND, FOR_USERS, "the users"},
    {"rolesInfo", serve_roles, COUNTED_COMMAND, FOR_USERS, "the roles"},
    {"createUser", serve_create_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), "makes a user"},
    {"updateUser", serve_update_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS),
     "sets the password or the roles of a user"},
    {"dropUser", serve_drop_user, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), "removes a user"},
    {"dropAllUsersFromDatabase", serve_drop_all_users, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS),
     "removes the users of a database"},
    {"grantRolesToUser", serve_grant_roles, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS),
     "gives roles to a user"},
    {"revokeRolesFromUser", serve_revoke_roles, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS),
     "takes roles from a user"},
    {"saslStart", serve_sasl_start, COUNTED_COMMAND, FOR_ALL, "begins a login"},
    {"saslContinue", serve_sasl_continue, COUNTED_COMMAND, FOR_ALL, "goes on with a login"},
    {"logout", serve_logout, COUNTED_COMMAND, FOR_ALL, "ends a login"},
    {"startSession", serve_start_session, COUNTED_COMMAND, FOR_USERS, "the id of a new session"},
    {"endSessions", serve_end_sessions, COUNTED_COMMAND, FOR_ALL, "ends sessions"},
    {"refreshSessions", serve_nothing, COUNTED_COMMAND, FOR_USERS, "keeps sessions"},
    {"killSessions", serve_end_sessions, COUNTED_COMMAND, FOR_USERS, "ends sessions"},
    {"killAllSessions", serve_end_all_sessions, COUNTED_COMMAND, OF_SERVER(ACTION_KILL),
     "ends all sessions"},
    {"commitTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS, "commits a transaction"},
    {"abortTransaction", serve_outside, COUNTED_COMMAND, FOR_USERS, "undoes a transaction"},
    {"configureFailPoint", serve_fail_point, COUNTED_COMMAND, FOR_TESTS(ACTION_KILL),
     "makes commands fail, with --test-commands"},
    {"listCommands", serve_list_commands, COUNTED_COMMAND, FOR_ALL, "this list"},
    {0}};

const struct command *server_command(const char *name)
{
    const struct command *command = server_commands;

    while (command->name && strcmp(command->name, name) != 0)
        command++;
    return command->name ? command : operation_command_named(name);
}
