/* truce archive: archives a store continuously; truce archive verify. */
#include <inttypes.h>
#include <string.h>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/maintenance/archive.h"

#define MEGABYTE    1000000
#define LIMIT_MB    1000
#define INTERVAL_MS 250
#define MINUTE_MS   INT64_C(60000)
#define DAY_MS      INT64_C(86400000)

/* ---- shared with restore.c and serve_archive.c ---------------------------------------------- */

int cli_target_open(const struct cli *cli, const char *name, bool create, struct target **target)
{
    bson_error_t error;
    truce_status status;

    *target = NULL;
    if (!strncmp(name, "s3://", 5))
        status = truce__target_s3(name, NULL, target, &error);
    else if (strstr(name, "://") || !strncmp(name, "memory:", 7))
        return cli_usage(cli, "invalid target \"%s\": expected a directory or s3://BUCKET/PREFIX",
                         name);
    else
        status = truce__target_directory(name, create, target, &error);
    /* A target that does not exist is an error of the call. */
    if (status == TRUCE_NOT_FOUND)
        return cli_usage(cli, "%s", error.message);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

const char *cli_archive_time(int64_t time_ms, char text[DATE_TEXT_MAX])
{
    return time_ms ? truce__date_show(time_ms, text) : "-";
}

/* ---- archive -------------------------------------------------------------------------------- */

void cli_archive_line(enum archive_event event, const struct segment_head *head, const char *text,
                      char line[CLI_ARCHIVE_LINE])
{
    switch (event) {
    case ARCHIVE_CONTINUES:
        snprintf(line, CLI_ARCHIVE_LINE, "continuing generation %u after commit %" PRIu64,
                 head->generation, head->commit);
        break;
    case ARCHIVE_GENERATION:
        snprintf(line, CLI_ARCHIVE_LINE, "beginning generation %u with a new base%s%s",
                 head->generation, text ? ": " : "", text ? text : "");
        break;
    case ARCHIVE_BASE:
        snprintf(line, CLI_ARCHIVE_LINE,
                 "the base is complete: every commit from %" PRIu64 " on can be restored",
                 head->commit);
        break;
    case ARCHIVE_FAILS:
        snprintf(line, CLI_ARCHIVE_LINE,
                 "%s; the archiver retries, and the log grows in the meantime", text);
        break;
    case ARCHIVE_WORKS:
        snprintf(line, CLI_ARCHIVE_LINE, "the target works again");
        break;
    case ARCHIVE_LIMIT:
        snprintf(line, CLI_ARCHIVE_LINE,
                 "the log that is not archived has %s, more than its limit: commits after %" PRIu64
                 " are missing from the archive until a new base is complete",
                 text, head->commit);
        break;
    case ARCHIVE_REMOVED:
        snprintf(line, CLI_ARCHIVE_LINE, "removed %s segments that are past their retention", text);
        break;
    }
}

bool cli_archive_options(const struct cli *cli, const char *prefix, struct archive_options *options)
{
    char name[40];
    int64_t interval, limit;

    snprintf(name, sizeof name, "%sinterval", prefix);
    if (!cli_duration(cli, name, 1, 60000, INTERVAL_MS, &interval))
        return false;
    snprintf(name, sizeof name, "%slog-limit", prefix);
    if (!cli_number(cli, name, 1, 100000000, LIMIT_MB, &limit))
        return false;
    options->interval_ms = (int)interval;
    options->log_limit = limit * MEGABYTE;
    snprintf(name, sizeof name, "%skeep", prefix);
    return cli_duration(cli, name, MINUTE_MS, 36500 * DAY_MS, 0, &options->keep_ms);
}

static void archive_close_store(struct cli *cli)
{
    if (!cli->store)
        return;
    cli_interrupt_forget();
    truce_store_close(cli->store);
    cli->store = NULL;
}

/* Prints an event of the archiver (archive_event_function). */
static void archive_show(enum archive_event event, const struct segment_head *head,
                         const char *text, void *arg)
{
    static const char *const names[] = {
        [ARCHIVE_CONTINUES] = "continues", [ARCHIVE_GENERATION] = "generation",
        [ARCHIVE_BASE] = "base",           [ARCHIVE_FAILS] = "fails",
        [ARCHIVE_WORKS] = "works",         [ARCHIVE_LIMIT] = "limit",
        [ARCHIVE_REMOVED] = "removed"};
    struct cli *cli = arg;
    bson_t answer = BSON_INITIALIZER;
    char line[CLI_ARCHIVE_LINE];

    /* The archiver has the file open now, so closing the store does not remove the log. */
    archive_close_store(cli);
    BSON_APPEND_UTF8(&answer, "event", names[event]);
    BSON_APPEND_INT64(&answer, "generation", head->generation);
    BSON_APPEND_INT64(&answer, "commit", (int64_t)head->commit);
    if (text)
        BSON_APPEND_UTF8(&answer, "text", text);
    cli_archive_line(event, head, text, line);
    cli_answer(cli, &answer, "%s", line);
    fflush(stdout);
    bson_destroy(&answer);
}

/* Opens the store, and reads its id. */
static int archive_find_id(struct cli *cli, uint8_t id[SEGMENT_STORE_BYTES])
{
    bson_error_t error;
    truce_status status;
    int code = cli_store_open(cli, CLI_STORE_CHANGE, &cli->store);

    if (code)
        return code;
    status = truce__archive_store_id(cli->store, id, &error);
    return status ? cli_error(cli, NULL, status, &error) : CLI_DONE;
}

static int archive_run(struct cli *cli)
{
    struct archive_options options = {
        .once = cli_flag(cli, "once"), .event = archive_show, .arg = cli};
    const char *path = cli_store_path(cli->arguments[0]);
    uint8_t id[SEGMENT_STORE_BYTES];
    struct target *target;
    bson_error_t error;
    truce_status status;
    int code = cli_refuse_database(cli);

    if (code)
        return code;
    if (cli->uri_given)
        return cli_usage(cli, "truce archive takes the store as its argument, not --store");
    if (!path)
        return cli_usage(cli,
                         "\"%s\" is not a file: only a store in a file can be archived (for "
                         "MongoDB, use its own backups)",
                         cli->arguments[0]);
    if (!cli_text(cli, "to"))
        return cli_usage(cli, "no target is given: --to DIR, or --to s3://BUCKET/PREFIX");
    if (!cli_archive_options(cli, "", &options))
        return CLI_USAGE;
    cli->uri = cli->arguments[0];
    code = archive_find_id(cli, id);
    if (!code)
        code = cli_target_open(cli, cli_text(cli, "to"), true, &target);
    if (code)
        return code;
    options.stop = cli_interrupt_stop();
    status = truce__archive_run(path, id, target, &options, &error);
    archive_close_store(cli);
    truce__target_close(target);
    return cli_output_end(status ? cli_error(cli, NULL, status, &error) : CLI_DONE);
}

static const struct cli_command cli_archive = {
    .noun = "archive",
    .arguments = "FILE",
    .summary = "archive a store continuously while it is in use",
    .help =
        "Copies the file FILE and then, continuously, its log to a second place. From there,\n"
        "truce restore restores the store as it was after any commit. Other processes use the\n"
        "store in the meantime. The command runs until Ctrl-C or SIGTERM; it then archives the\n"
        "rest and ends. If it is killed and started again, it continues.\n"
        "\n"
        "The log of the store keeps commits until they are archived. If the target fails until\n"
        "this part of the log exceeds --log-limit, the log is reused, and those commits are\n"
        "missing from the archive. When the target works again, the archiver writes a new base.\n"
        "While no archiver runs, the log keeps nothing for it: if the log was reused, the next\n"
        "archiver also writes a new base.\n"
        "\n"
        "The archive grows without a limit unless you give --keep. truce doctor shows how far\n"
        "the archive is behind.\n"
        "\n"
        "A target in S3 needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment, and\n"
        "uses AWS_REGION, AWS_SESSION_TOKEN, and AWS_ENDPOINT_URL.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}' --store school.truce\n"
               "truce archive school.truce --to archive --once",
    .options =
        (const struct cli_option[]){
            {"to", 0, "TARGET", "a directory, or s3://BUCKET/PREFIX", false},
            {"keep", 0, "DURATION", "restore up to this age: 30d, 12h, 90m (default: forever)",
             false},
            {"log-limit", 0, "MB", "maximum size of a log that is not archived (default: 1000)",
             false},
            {"interval", 0, "DURATION", "pause between two reads of the log (default: 250ms)",
             false},
            {"once", 0, NULL, "archive the current state, and end", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = archive_run,
};

/* ---- archive verify ------------------------------------------------------------------------- */

static void archive_show_fault(const char *text, void *arg)
{
    const struct cli *cli = arg;
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_UTF8(&answer, "fault", text);
    cli_answer(cli, &answer, "%s", text);
    bson_destroy(&answer);
}

/* Returns CLI_NO if the archive has faults, or no base is complete. */
static int archive_verify_run(struct cli *cli)
{
    struct verify_report report;
    bson_t answer = BSON_INITIALIZER;
    char first[DATE_TEXT_MAX], last[DATE_TEXT_MAX];
    struct target *target;
    bson_error_t error;
    truce_status status;
    int code = cli_target_open(cli, cli->arguments[0], false, &target);

    if (code)
        return code;
    status = truce__archive_verify(target, archive_show_fault, cli, &report, &error);
    truce__target_close(target);
    if (status)
        return cli_output_end(cli_error(cli, NULL, status, &error));
    BSON_APPEND_INT64(&answer, "segments", (int64_t)report.segments);
    BSON_APPEND_INT64(&answer, "bytes", (int64_t)report.bytes);
    BSON_APPEND_INT64(&answer, "generations", report.generations);
    BSON_APPEND_INT64(&answer, "bases", (int64_t)report.bases);
    BSON_APPEND_INT64(&answer, "faults", (int64_t)report.faults);
    if (report.first_ms) {
        BSON_APPEND_INT64(&answer, "first_commit", (int64_t)report.first_commit);
        BSON_APPEND_DATE_TIME(&answer, "first", report.first_ms);
        BSON_APPEND_INT64(&answer, "last_commit", (int64_t)report.last_commit);
        BSON_APPEND_DATE_TIME(&answer, "last", report.last_ms);
    }
    if (report.first_ms)
        cli_answer(cli, &answer,
                   "%s, %.1f MB, %s, %s; from commit %" PRIu64 " of %s to commit %" PRIu64 " of %s",
                   PLURAL(report.segments, "segment", "segments"), (double)report.bytes / MEGABYTE,
                   PLURAL(report.bases, "base", "bases"), PLURAL(report.faults, "fault", "faults"),
                   report.first_commit, cli_archive_time(report.first_ms, first),
                   report.last_commit, cli_archive_time(report.last_ms, last));
    else
        cli_answer(cli, &answer, "%s, %.1f MB, %s; no base is complete, so nothing can be restored",
                   PLURAL(report.segments, "segment", "segments"), (double)report.bytes / MEGABYTE,
                   PLURAL(report.faults, "fault", "faults"));
    bson_destroy(&answer);
    return cli_output_end(report.faults || !report.first_ms ? CLI_NO : CLI_DONE);
}

static const struct cli_command cli_archive_verify = {
    .noun = "archive",
    .verb = "verify",
    .arguments = "TARGET",
    .summary = "verify an archive without restoring it",
    .help = "Reads every segment and compares it with its hash, its checksums, and the segment\n"
            "before it. Prints which commits and times can be restored. An archiver may run.\n"
            "\n"
            "Exit code 1: a segment is damaged, missing, or of another archive, or nothing can be\n"
            "restored.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}' --store school.truce\n"
               "truce archive school.truce --to archive --once\n"
               "truce archive verify archive",
    .store = CLI_STORE_NONE,
    .run = archive_verify_run,
};

cli_command_list cli_archive_commands = {&cli_archive, &cli_archive_verify, NULL};
