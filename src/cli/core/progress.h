#ifndef TRUCE_CLI_CORE_PROGRESS_H
#define TRUCE_CLI_CORE_PROGRESS_H

/* Shows the progress of long work to people. */
#include "cli/core/cli.h"

/* The progress line on a terminal, rewritten ten times a second. Nothing is printed into a pipe or
 * with --quiet. */
struct cli_progress {
    /* A progress line is on the terminal and must be erased. */
    bool shown;
    /* The line is printed at all. */
    bool on;
    /* When the work began, and when the line was last printed (monotonic). */
    int64_t started_ns, printed_ns, counted;
    const char *verb;
    /* A snapshot whose pinned log is shown, or NULL. */
    truce_store *view;
};
void cli_progress_begin(const struct cli *cli, struct cli_progress *progress, const char *verb);
/* Shows the progress. `total` is 0 if it is unknown. Cheap enough to call for each document. */
void cli_progress(struct cli_progress *progress, int64_t done, int64_t total);
void cli_progress_end(struct cli_progress *progress);

#endif
