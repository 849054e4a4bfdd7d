#ifndef TRUCE_CLI_CORE_SNAPSHOT_OPTION_H
#define TRUCE_CLI_CORE_SNAPSHOT_OPTION_H

/* Options of commands that read a snapshot of the store: export, copy, and backup. */
#include "cli/core/cli.h"
#include "cli/core/progress.h"

#define CLI_SNAPSHOT_OPTIONS                                                                       \
    {"max-age", 0, "DURATION", "fail if it takes longer", false},                                  \
    {                                                                                              \
        "max-log", 0, "MB", "fail if more is written in the meantime", false                       \
    }

/* Takes a snapshot of the store, without maxima unless the options give them. If the store does not
 * support snapshots (an old server), `*view` is NULL and the command reads the store itself.
 * Returns the exit code. */
int cli_snapshot_take(const struct cli *cli, truce_store *store, truce_store **view);

/* Returns the bytes of the log that the view pins, or 0 without a view. */
int64_t cli_snapshot_pinned(truce_store *view);

/* Prints a note if the view pinned a large part of the log. */
void cli_snapshot_report(const struct cli *cli, int64_t pinned);

#endif
