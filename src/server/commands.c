/*
 * The table of commands: the names, handlers, and traits of MongoDB's commands, in the order of
 * the help, and the patterns' operations (operations/operation.h).
 *
 * The table is handed to a server when it starts (struct server). The folders below use it only
 * through that pointer, so they do not depend on the handlers.
 */
#include "server/commands.h"

#include "server/command/data_commands.h"

static const struct command mongo_commands[] = {
    DATA_COMMANDS,
    {"findandmodify", serve_find_and_modify, COUNTED_COMMAND,
     IN_COLLECTION(ACTION_FIND | ACTION_WRITE), COMMAND_TRANSACTS | COMMAND_RETRIES, NULL},
    {"deleteIndexes", serve_drop_indexes, COUNTED_COMMAND, IN_COLLECTION(ACTION_SHAPE),
     COMMAND_HAS_UUID, NULL},
    {"collstats", serve_collection_stats, COUNTED_COMMAND, IN_COLLECTION(ACTION_STATS), 0, NULL},
    {"dbstats", serve_database_stats, COUNTED_COMMAND, IN_DATABASE(ACTION_STATS), 0, NULL},
    {"currentOp", serve_current_op, COUNTED_COMMAND, FOR_USERS, 0,
     "lists the commands that are running"},
    {"killOp", serve_kill_op, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "interrupts a command that reads"},
    {"hello", serve_hello, COUNTED_COMMAND, FOR_ALL, COMMAND_STABLE | COMMAND_NAMES_CLIENT,
     "describes the server"},
    {"isMaster", serve_hello, COUNTED_COMMAND, FOR_ALL, COMMAND_NAMES_CLIENT, NULL},
    {"ismaster", serve_hello, COUNTED_COMMAND, FOR_ALL, COMMAND_NAMES_CLIENT, NULL},
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
    {"createToken", serve_create_token, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "creates a token of a user for HTTP"},
    {"tokensInfo", serve_tokens, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "lists the tokens of a user"},
    {"revokeToken", serve_revoke_token, COUNTED_COMMAND, IN_DATABASE(ACTION_USERS), 0,
     "revokes a token of a user"},
    {"saslStart", serve_sasl_start, COUNTED_COMMAND, FOR_ALL, 0, "begins a login"},
    {"saslContinue", serve_sasl_continue, COUNTED_COMMAND, FOR_ALL, 0, "continues a login"},
    {"logout", serve_logout, COUNTED_COMMAND, FOR_ALL, 0, "ends a login"},
    {"killSessions", serve_end_sessions, COUNTED_COMMAND, FOR_USERS, 0, "ends sessions"},
    {"killAllSessions", serve_end_all_sessions, COUNTED_COMMAND, OF_SERVER(ACTION_KILL), 0,
     "ends all sessions"},
    {"configureFailPoint", serve_fail_point, COUNTED_COMMAND, FOR_TESTS(ACTION_KILL), 0,
     "makes commands fail, with --test-commands"},
    {"listCommands", serve_list_commands, COUNTED_COMMAND, FOR_ALL, 0, "lists the commands"},
    {0}};

static const struct command *commands_find(const char *name)
{
    return command_named(mongo_commands, name);
}

const struct command_table server_commands = {mongo_commands, row_command, commands_find};
