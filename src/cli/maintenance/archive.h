#ifndef TRUCE_CLI_MAINTENANCE_ARCHIVE_H
#define TRUCE_CLI_MAINTENANCE_ARCHIVE_H

/* The common part of archive.c, restore.c, and serve_archive.c. */
#include "archive/archive.h"
#include "bson/date.h"
#include "cli/core/cli.h"

/* Opens a target by its name: a directory, or s3://BUCKET/PREFIX. Prints the error and returns the
 * exit code. */
int cli_target_open(const struct cli *cli, const char *name, bool create, struct target **target);

#define CLI_ARCHIVE_LINE 1500
/* Writes what an event of the archiver means. */
void cli_archive_line(enum archive_event event, const struct segment_head *head, const char *text,
                      char line[CLI_ARCHIVE_LINE]);

/* Reads the options interval, log-limit, and keep, whose names begin with `prefix`. Prints the
 * error and returns false if one is wrong. */
bool cli_archive_options(const struct cli *cli, const char *prefix,
                         struct archive_options *options);

/* Formats a time as "2026-03-01T09:00:00.250Z", or "-" for 0. */
const char *cli_archive_time(int64_t time_ms, char text[DATE_TEXT_MAX]);

#endif
