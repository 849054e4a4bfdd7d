/* The table of commands, in the order of the help. A new command is declared and listed here. */
#include "cli/cli.h"

extern const struct cli_command cli_help_command;

const struct cli_command *const cli_commands[] = {
    &cli_help_command,
    NULL,
};
