#ifndef TRUCE_CLI_CORE_PROGRESS_H
#define TRUCE_CLI_CORE_PROGRESS_H

/* Progress of long work, for people. */
#include "cli/core/cli.h"

/* One line on a terminal that is written over ten times a second; nothing in a pipe or with
 * --quiet. */
struct cli_progress {
    bool shown; /* there is a line to be wiped */
    bool on;
    int64_t started_ns, printed_ns, counted;
    const char *verb;
    truce_store *view; /* of one moment: what it pins is shown; NULL: none */
};
void cli_progress_begin(const struct cli *cli, struct cli_progress *progress, const char *verb);
/* `total` 0: not known. Cheap enough to call for each document. */
void cli_progress(struct cli_progress *progress, int64_t done, int64_t total);
void cli_progress_end(struct cli_progress *progress);

#endif
