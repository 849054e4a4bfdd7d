#ifndef TRUCE_CLI_CORE_SNAPSHOT_OPTION_H
#define TRUCE_CLI_CORE_SNAPSHOT_OPTION_H

/* Commands whose answer is the store of one moment: export, copy, backup. */
#include "cli/core/cli.h"
#include "cli/core/progress.h"

#define CLI_MOMENT_OPTIONS                                                                         \
    {"max-age", 0, "SECONDS", "give up when it takes longer", false},                              \
    {                                                                                              \
        "max-log", 0, "MB", "give up when more is written meanwhile", false                        \
    }

/* The store as it is now, without maxima unless the options say so. Where it cannot be had (an old server), the
 * store itself is read: `*view` is NULL then. The exit code. */
int cli_moment_take(const struct cli *cli, truce_store *store, truce_store **view);

/* What the view pins; 0 without one. */
int64_t cli_moment_pinned(truce_store *view);

/* Says so, if it is worth saying. */
void cli_moment_tell(const struct cli *cli, int64_t pinned);

#endif
