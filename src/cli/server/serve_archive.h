#ifndef TRUCE_CLI_SERVER_SERVE_ARCHIVE_H
#define TRUCE_CLI_SERVER_SERVE_ARCHIVE_H

/* Archives the served store on a thread of its own (--archive). */
#include "cli/core/cli.h"
#include "server/server.h"

struct serve_archive;

/* Returns the target that replies wait for with --archive-sync, or NULL. */
const struct server_sync_target *serve_archive_sync_target(const struct serve_archive *archive);

/* Checks the options of the archive before the store is created, and creates the target. Prints the
 * error and returns the exit code. */
int serve_archive_check(struct cli *cli, const char *uri);
/* Starts the archiver if --archive is given. Otherwise sets *archive to NULL. Prints the error and
 * returns the exit code. */
int serve_archive_begin(struct cli *cli, truce_store *store, const char *uri, struct log *log,
                        struct serve_archive **archive);

/* Archives the rest and ends the thread. Called after the store was closed, so that the log stays
 * and the next archiver continues. NULL is allowed. */
void serve_archive_end(struct serve_archive *archive);

#endif
