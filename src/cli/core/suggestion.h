#ifndef TRUCE_CLI_CORE_SUGGESTION_H
#define TRUCE_CLI_CORE_SUGGESTION_H

/* Suggestions for mistyped words. */
#include "cli/core/cli.h"

/* Prints the error of an unknown option (a word with dashes) or command, with the nearest word.
 * `verb` may be NULL. Returns the exit code. */
int cli_unknown(const struct cli *cli, const char *word, const char *verb);

#endif
