#ifndef TRUCE_CLI_MAINTENANCE_ARCHIVE_H
#define TRUCE_CLI_MAINTENANCE_ARCHIVE_H

/* What archive.c and restore.c share. */
#include "archive/archive.h"
#include "cli/core/cli.h"

/* Opens a target by its name: a directory. Prints the error and returns the exit code. */
int cli_target_open(const struct cli *cli, const char *name, bool create, struct target **target);

/* Sets a flag at the first SIGINT or SIGTERM; the second kills the process. */
const int *cli_archive_stop(void);

/* Formats a time as "2026-03-01T09:00:00.250Z", or "-" for 0. */
const char *cli_archive_time(int64_t time_ms, char text[40]);

#endif
