#ifndef TRUCE_SERVER_COMMAND_SERVE_PATTERN_OPERATIONS_H
#define TRUCE_SERVER_COMMAND_SERVE_PATTERN_OPERATIONS_H

/* The operations of the patterns (operations/operation.h) as commands of the server. */
#include "operations/operation.h"
#include "server/call/call.h"

/* Finds a command among `commands`, which a name of NULL ends, and the operations. Returns NULL if
 * the command does not exist. */
const struct command *command_named(const struct command *commands, const char *name);
/* Returns the command of the operation. */
const struct command *row_command(const struct operation_row *row);

#endif
