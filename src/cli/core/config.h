#ifndef TRUCE_CLI_CORE_CONFIG_H
#define TRUCE_CLI_CORE_CONFIG_H

/*
 * --config FILE: a file with the options of a call, one for each line.
 *
 *     # a comment has a line of its own
 *     port = 27017
 *     auth = yes
 *
 * The names are those of the command's options and of the common options, without "--". Options of
 * the call override the file. The file has at most CONFIG_BYTES_MAX bytes; a "\r" at the end of a
 * line is ignored.
 */
#include "cli/core/cli.h"

#define CONFIG_BYTES_MAX (64 * 1024)

/* Inserts the options of the file before those of the call. Returns CLI_DONE, or the exit code
 * after printing the file, the line, and what is allowed. */
int cli_config_read(struct cli *cli, const char *path);
/* Finds the line that gives the value that a message quotes: "truce.conf line 3". Returns NULL if
 * the file does not give it. */
const char *cli_config_position(const struct cli *cli, const char *sentence, char *position,
                                size_t size);

#endif
