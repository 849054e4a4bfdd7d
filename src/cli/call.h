#ifndef TRUCE_CLI_CALL_H
#define TRUCE_CLI_CALL_H

/*
 * The words of a call: which command, which options, which arguments.
 *
 *     truce --store school.truce find students -qjn1
 *
 * Options stand anywhere, before the command too. Letters may be written together; the first that takes a
 * value takes the rest of the word, or the next word. A lone "-" and what begins like a number are
 * arguments; behind "--" everything is.
 */
#include "cli/cli.h"

/* Fills `cli` from the words (NULL after the last). `*done`: nothing is left to run, and the result is
 * the exit code: help was shown, or the call is wrong and it was said. */
int cli_call_read(struct cli *cli, char **words, bool *done);

#endif
