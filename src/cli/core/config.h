#ifndef TRUCE_CLI_CORE_CONFIG_H
#define TRUCE_CLI_CORE_CONFIG_H

/*
 * --config FILE of commands that have it: the same options as in the call, a line for each.
 *
 *     # a comment has a line of its own
 *     port = 27017
 *     auth = yes
 *
 * The names are those of the command's table and of the common one, without "--"; there is no list beside
 * these. What the call says counts more. Text up to CONFIG_BYTES_MAX; a "\r" at the end of a line is none of it.
 */
#include "cli/core/cli.h"

#define CONFIG_BYTES_MAX (64 * 1024)

/* Puts what the file says before what the call says. CLI_DONE, or the exit code: it was said what is
 * wrong, with file, line and what is allowed. */
int cli_config_read(struct cli *cli, const char *path);
/* Where the file says the value that the sentence has in quotes: "truce.conf line 3"; NULL: it does not. */
const char *cli_config_place(const struct cli *cli, const char *sentence, char *place, size_t size);

#endif
