#ifndef TRUCE_TESTS_SUPPORT_JSON_COMMAND_H
#define TRUCE_TESTS_SUPPORT_JSON_COMMAND_H

#include "truce/command.h"

/* Runs a command that is written as JSON, which must be valid, in this process. Returns its status;
 * the caller destroys the reply. If `database` is NULL, uses that of the store. */
truce_status run_json_command(truce_store *store, const char *database, const char *json,
                              bson_t *reply, bson_error_t *error);

#endif
