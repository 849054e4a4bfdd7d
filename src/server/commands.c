/* The commands, in the order of the help. */
#include "server/groups.h"

#include <string.h>

const struct command server_commands[] = {
    {"find", serve_find, COUNTED_QUERY, "documents that match"},
    {"getMore", serve_get_more, COUNTED_GETMORE, "more of a cursor"},
    {"killCursors", serve_kill_cursors, COUNTED_COMMAND, "ends cursors"},
    {"aggregate", serve_aggregate, COUNTED_COMMAND, "runs a pipeline"},
    {"count", serve_count, COUNTED_COMMAND, "how many documents match"},
    {"distinct", serve_distinct, COUNTED_COMMAND, "the distinct values of a path"},
    {"explain", serve_explain, COUNTED_COMMAND, "how a find or a count runs"},
    {"insert", serve_insert, COUNTED_INSERT, "inserts documents"},
    {"update", serve_update, COUNTED_UPDATE, "changes documents"},
    {"delete", serve_delete, COUNTED_DELETE, "removes documents"},
    {"findAndModify", serve_find_and_modify, COUNTED_COMMAND,
     "changes one document and returns it"},
    {"findandmodify", serve_find_and_modify, COUNTED_COMMAND, NULL},
    {"create", serve_create, COUNTED_COMMAND, "makes a collection"},
    {"collMod", serve_modify_collection, COUNTED_COMMAND, "sets the validator of a collection"},
    {"drop", serve_drop, COUNTED_COMMAND, "drops a collection"},
    {"dropDatabase", serve_drop_database, COUNTED_COMMAND, "drops all collections of a database"},
    {"renameCollection", serve_rename, COUNTED_COMMAND, "renames a collection"},
    {"listCollections", serve_list_collections, COUNTED_COMMAND, "the collections of a database"},
    {"listDatabases", serve_list_databases, COUNTED_COMMAND, "the databases"},
    {"createIndexes", serve_create_indexes, COUNTED_COMMAND, "makes indexes"},
    {"dropIndexes", serve_drop_indexes, COUNTED_COMMAND, "drops indexes"},
    {"deleteIndexes", serve_drop_indexes, COUNTED_COMMAND, NULL},
    {"listIndexes", serve_list_indexes, COUNTED_COMMAND, "the indexes of a collection"},
    {"collStats", serve_collection_stats, COUNTED_COMMAND, "the size of a collection"},
    {"collstats", serve_collection_stats, COUNTED_COMMAND, NULL},
    {"dbStats", serve_database_stats, COUNTED_COMMAND, "the size of a database"},
    {"dbstats", serve_database_stats, COUNTED_COMMAND, NULL},
    {"hello", serve_hello, COUNTED_COMMAND, "what the server is"},
    {"isMaster", serve_hello, COUNTED_COMMAND, NULL},
    {"ismaster", serve_hello, COUNTED_COMMAND, NULL},
    {"ping", serve_nothing, COUNTED_COMMAND, "answers"},
    {"buildInfo", serve_build_info, COUNTED_COMMAND, "the version"},
    {"buildinfo", serve_build_info, COUNTED_COMMAND, NULL},
    {"getParameter", serve_get_parameter, COUNTED_COMMAND, "parameters of the server"},
    {"serverStatus", serve_server_status, COUNTED_COMMAND, "counters of the server"},
    {"connectionStatus", serve_connection_status, COUNTED_COMMAND, "who is connected"},
    {"hostInfo", serve_host_info, COUNTED_COMMAND, "the machine"},
    {"getLog", serve_log, COUNTED_COMMAND, "the log, which is empty"},
    {"getCmdLineOpts", serve_options, COUNTED_COMMAND, "how the server was started"},
    {"whatsmyuri", serve_whats_my_uri, COUNTED_COMMAND, "the client's address"},
    {"replSetGetStatus", serve_replica_status, COUNTED_COMMAND,
     "the replica set that it looks like, if any"},
    {"getLastError", serve_last_error, COUNTED_COMMAND, "for old drivers"},
    {"getlasterror", serve_last_error, COUNTED_COMMAND, NULL},
    {"usersInfo", serve_users, COUNTED_COMMAND, "the users, of whom there are none"},
    {"startSession", serve_start_session, COUNTED_COMMAND, "the id of a new session"},
    {"endSessions", serve_end_sessions, COUNTED_COMMAND, "ends sessions"},
    {"refreshSessions", serve_nothing, COUNTED_COMMAND, "keeps sessions"},
    {"killSessions", serve_end_sessions, COUNTED_COMMAND, "ends sessions"},
    {"killAllSessions", serve_end_all_sessions, COUNTED_COMMAND, "ends all sessions"},
    {"commitTransaction", serve_outside, COUNTED_COMMAND, "commits a transaction"},
    {"abortTransaction", serve_outside, COUNTED_COMMAND, "undoes a transaction"},
    {"listCommands", serve_list_commands, COUNTED_COMMAND, "this list"},
    {0}};

const struct command *server_command(const char *name)
{
    const struct command *command = server_commands;

    while (command->name && strcmp(command->name, name) != 0)
        command++;
    return command->name ? command : NULL;
}
