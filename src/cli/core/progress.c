#include "cli/core/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/core/snapshot_option.h"

#define PROGRESS_EVERY_NS 100000000

void cli_progress_begin(const struct cli *cli, struct cli_progress *progress, const char *verb)
{
    const char *terminal = getenv("TERM");

    *progress = (struct cli_progress){
        .on = !cli->quiet && isatty(STDERR_FILENO) && !(terminal && !strcmp(terminal, "dumb")),
        .started_ns = truce__clock_monotonic_ns(),
        .verb = verb,
    };
    progress->printed_ns = progress->started_ns;
}

void cli_progress(struct cli_progress *progress, int64_t done, int64_t total)
{
    int64_t now;
    double seconds;

    if (!progress->on)
        return;
    now = truce__clock_monotonic_ns();
    if (now - progress->printed_ns < PROGRESS_EVERY_NS)
        return;
    progress->printed_ns = now;
    progress->shown = true;
    seconds = (double)(now - progress->started_ns) / 1e9;
    fprintf(stderr, "\r%s %lld", progress->verb, (long long)done);
    if (total > 0)
        fprintf(stderr, " of %lld (%d %%)", (long long)total,
                (int)(100.0 * (double)done / (double)total));
    fprintf(stderr, ", %.0f/s", (double)done / seconds);
    if (cli_snapshot_pinned(progress->view))
        fprintf(stderr, ", pins %.1f MB of the log",
                (double)cli_snapshot_pinned(progress->view) / 1e6);
    fputs(" \033[K", stderr);
    fflush(stderr);
}

void cli_progress_end(struct cli_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}
