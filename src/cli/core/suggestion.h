#ifndef TRUCE_CLI_CORE_SUGGESTION_H
#define TRUCE_CLI_CORE_SUGGESTION_H

/* Suggestions for mistyped words. */
#include "cli/core/cli.h"

/* The candidate that is nearest to a mistyped word. `best` is NULL if no candidate is near. */
struct cli_guess {
    const char *word, *best;
    int distance;
};
/* Replaces guess->best if the candidate is nearer to guess->word. */
void cli_guess(struct cli_guess *guess, const char *candidate);

/* Prints the error of an unknown option (a word with dashes) or command, with the nearest word.
 * `verb` may be NULL. Returns the exit code. */
int cli_unknown(const struct cli *cli, const char *word, const char *verb);

#endif
