#ifndef TRUCE_CLI_CORE_HELP_H
#define TRUCE_CLI_CORE_HELP_H

/* Help from the table of commands, and suggestions for mistyped words. */
#include "cli/core/cli.h"

/* Prints the help of one command and returns the exit code. */
int cli_help(const struct cli_command *command);
/* Lists the commands of a noun, or all commands if `noun` is NULL. Returns the exit code. */
int cli_help_noun(const char *noun);
/* Returns the command, or NULL. `verb` is NULL for a command without a verb (`truce find`). */
const struct cli_command *cli_command_find(const char *noun, const char *verb);
bool cli_noun_exists(const char *noun);

/* The candidate that is nearest to a mistyped word. `best` is NULL if no candidate is near. */
struct cli_guess {
    const char *word, *best;
    int distance;
};
/* Replaces guess->best if the candidate is nearer to guess->word. */
void cli_guess(struct cli_guess *guess, const char *candidate);

#endif
