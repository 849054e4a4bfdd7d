#ifndef TRUCE_TESTS_SUPPORT_JSON_COMMAND_H
#define TRUCE_TESTS_SUPPORT_JSON_COMMAND_H

#include "truce/command.h"

/* Runs a command that is written as JSON, in process. Returns its status; the caller destroys the
 * reply. The JSON must be valid. `database` NULL: the store's own. */
truce_status run_json_command(truce_store *store, const char *database, const char *json,
                              bson_t *reply, bson_error_t *error);

#endif
