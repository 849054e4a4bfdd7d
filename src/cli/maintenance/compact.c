/* truce compact: compacts a file in use. */
#include <inttypes.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/core/progress.h"

#define MEGABYTE 1e6

static void compact_show_progress(int64_t done, int64_t total, void *arg)
{
    cli_progress(arg, done, total);
}

static void compact_report(const struct cli *cli, const truce_compact_report *report)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_BOOL(&answer, "complete", report->complete);
    BSON_APPEND_INT64(&answer, "bytes_before", report->bytes_before);
    BSON_APPEND_INT64(&answer, "bytes_after", report->bytes_after);
    BSON_APPEND_INT64(&answer, "bytes_free", report->bytes_free);
    BSON_APPEND_INT64(&answer, "reads", report->reads);
    BSON_APPEND_INT64(&answer, "process", report->process);
    cli_answer(cli, &answer, "%s: %.1f MB before, %.1f MB after, %.1f MB of them unused",
               report->complete ? "complete" : "not complete",
               (double)report->bytes_before / MEGABYTE, (double)report->bytes_after / MEGABYTE,
               (double)report->bytes_free / MEGABYTE);
    bson_destroy(&answer);
    if (report->reads)
        cli_note(
            cli,
            "%s truncation, the oldest in process %" PRId64
            ": run this again when they are closed (truce doctor)",
            PLURAL(report->reads, "cursor or snapshot prevents", "cursors or snapshots prevent"),
            report->process);
    else if (!report->complete)
        cli_note(cli, "not all space was released: run truce compact again to continue");
}

static int compact_run(struct cli *cli)
{
    struct cli_progress shown;
    const truce_compact_options options = {
        .deadline_ms = cli->deadline_ms, .progress = compact_show_progress, .arg = &shown};
    truce_compact_report report;
    bson_error_t error;
    truce_status status;

    if (cli->database)
        return cli_refuse_database(cli);
    cli_progress_begin(cli, &shown, "pages");
    status = truce_compact(cli->store, &options, &report, &error);
    cli_progress_end(&shown);
    if (!status || status == TRUCE_TIMEOUT)
        compact_report(cli, &report);
    if (status)
        return cli_output_end(cli_error(cli, NULL, status, &error));
    return cli_output_end(report.complete ? CLI_DONE : CLI_NO);
}

static const struct cli_command cli_compact = {
    .noun = "compact",
    .summary = "shrink a file while the store is in use",
    .help =
        "A file does not shrink by itself. The command combines half-empty pages,\n"
        "moves pages from the end of the file to free places, and truncates the file.\n"
        "It works in small steps; other processes read and write in the meantime. You may end it\n"
        "at any time (Ctrl-C, --deadline, kill) and run it again; no data is lost.\n"
        "\n"
        "An open cursor or snapshot keeps the pages that it may read. The file is then\n"
        "truncated after it is closed, by the next run or the next checkpoint. The log next to\n"
        "the file (-wal) stays until the last program closes the store.\n"
        "\n"
        "A file of an older truce is refused: use truce copy to create a new file.\n"
        "\n"
        "Exit code 1: some space could not be released now.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}'\n"
               "truce compact",
    .store = CLI_STORE_CHANGE,
    .run = compact_run,
};

cli_command_list cli_compact_commands = {&cli_compact, NULL};
