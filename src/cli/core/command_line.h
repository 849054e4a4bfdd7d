#ifndef TRUCE_CLI_CORE_COMMAND_LINE_H
#define TRUCE_CLI_CORE_COMMAND_LINE_H

/*
 * The words of a call: the command, the options, and the arguments.
 *
 *     truce --store school.truce find students -qjn1
 *
 * Options are accepted anywhere, also before the command. Letters may be written together. The
 * first letter that takes a value takes the rest of the word, or the next word. A lone "-", a word
 * that begins like a number, and every word after "--" are arguments.
 */
#include "cli/core/cli.h"

/* Fills `cli` from the words, which are followed by NULL. Sets `*done` if nothing is left to run:
 * help was printed, or the call is wrong and the error was printed. The result is then the exit
 * code. */
int cli_call_read(struct cli *cli, char **words, bool *done);

/* Gives an option as if it came next in the call. `line` is as in cli->given. Returns CLI_DONE or
 * the exit code. */
int cli_call_give(struct cli *cli, const struct cli_option *option, const char *value, int line);

/* Returns the index of the next word, from `at` on, that is neither an option nor an option's
 * value. If "--" or the end comes first, returns the number of words. */
int cli_next_plain(char **words, int at);
/* Returns the option that the word ends with if its value is the next word, else NULL. */
const struct cli_option *cli_option_before_value(const struct cli_command *command,
                                                 const char *word);

#endif
