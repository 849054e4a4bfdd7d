#ifndef TRUCE_CLI_CORE_HELP_H
#define TRUCE_CLI_CORE_HELP_H

/* Help from the table of commands. */
#include "cli/core/cli.h"

/* Prints the help of one command and returns the exit code. */
int cli_help(const struct cli_command *command);
/* Lists the commands of a noun, or all commands if `noun` is NULL. Returns the exit code. */
int cli_help_noun(const char *noun);
/* Returns the command, or NULL. `verb` is NULL for a command without a verb (`truce find`). */
const struct cli_command *cli_command_find(const char *noun, const char *verb);
bool cli_noun_exists(const char *noun);

#endif
