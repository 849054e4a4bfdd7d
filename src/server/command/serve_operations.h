#ifndef TRUCE_SERVER_COMMAND_SERVE_OPERATIONS_H
#define TRUCE_SERVER_COMMAND_SERVE_OPERATIONS_H

/* The operations of the patterns (operations/operation.h) as commands of the server. */
#include "operations/operation.h"
#include "server/call/call.h"

/* Returns the command of an operation; NULL if no operation has the name. */
const struct command *operation_command_named(const char *name);
/* Returns the command of the operation. */
const struct command *row_command(const struct operation_row *row);

#endif
