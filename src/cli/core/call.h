#ifndef TRUCE_CLI_CORE_CALL_H
#define TRUCE_CLI_CORE_CALL_H

/*
 * The words of a call: which command, which options, which arguments.
 *
 *     truce --store school.truce find students -qjn1
 *
 * Options stand anywhere, before the command too. Letters may be written together; the first that takes a
 * value takes the rest of the word, or the next word. A lone "-" and what begins like a number are
 * arguments; behind "--" everything is.
 */
#include "cli/core/cli.h"

/* Fills `cli` from the words (NULL after the last). `*done`: nothing is left to run, and the result is
 * the exit code: help was shown, or the call is wrong and it was said. */
int cli_call_read(struct cli *cli, char **words, bool *done);

/* An option as if it were the next of the call; `line` as in cli->given. CLI_DONE or the exit code. */
int cli_call_give(struct cli *cli, const struct cli_option *option, const char *value, int line);

/* Where the next word stands, from `at` on, that is no option and no option's value; the number of words if
 * there is none. */
int cli_next_plain(char **words, int at);
/* The option that the word ends with, if its value is the next word, else NULL. */
const struct cli_option *cli_option_before_value(const struct cli_command *command,
                                                 const char *word);

#endif
