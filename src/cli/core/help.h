#ifndef TRUCE_CLI_CORE_HELP_H
#define TRUCE_CLI_CORE_HELP_H

/* Help from the table of commands, and guesses at what a mistyped word was meant to be. */
#include "cli/core/cli.h"

int cli_help(const struct cli_command *command); /* of one command */
int cli_help_noun(const char *noun);             /* its verbs; noun NULL: everything */
const struct cli_command *cli_command_find(const char *noun, const char *verb);
bool cli_noun_exists(const char *noun);
/* the nearest of the candidates to a mistyped word, or NULL if none is near */
struct cli_guess {
    const char *word, *best;
    int distance;
};
void cli_guess(struct cli_guess *guess, const char *candidate);

#endif
