/* truce restore: restores a store from an archive, and checks it. */
#include <inttypes.h>
#include <string.h>

#include "base/field.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/interrupt.h"
#include "cli/core/progress.h"
#include "cli/maintenance/archive.h"
#include "store/decorators/database_view.h"
#include "store/reserved_names.h"

#define SKIP_MAX 1000000000000

/* ---- checks of the restored store ----------------------------------------------------------- */

struct restore_checks {
    struct cli *cli;
    const char *uri;
    /* The number of findings of the check, of sequences that were raised by `skip`, and of ledgers
     * that were verified. */
    int64_t findings, sequences, skip, ledgers;
};

static void restore_show_finding(const bson_t *finding, void *arg)
{
    struct restore_checks *checks = arg;

    checks->findings++;
    cli_answer(checks->cli, finding, "%s: %s", truce__field_text(finding, "rule"),
               truce__field_text(finding, "text"));
}

typedef truce_status restore_document_function(struct restore_checks *checks, truce_store *store,
                                               const char *id, bson_error_t *error);

/* Calls the function for each document of a collection whose _id is a string. */
static truce_status each_id(struct restore_checks *checks, truce_store *store,
                            const char *collection, restore_document_function *function,
                            bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *document = NULL;
    truce_status status = truce_find(store, collection, &all, NULL, &cursor, error);

    while (!status && !(status = truce_cursor_next(cursor, &document, error)) && document)
        status = function(checks, store, truce__field_text(document, "_id"), error);
    truce_cursor_close(cursor);
    bson_destroy(&all);
    return status;
}

static truce_status verify_ledger(struct restore_checks *checks, truce_store *store, const char *id,
                                  bson_error_t *error)
{
    truce_ledger *ledger = truce_ledger_new(store, &(truce_ledger_options){.collection = id});
    truce_ledger_report report;
    truce_status status =
        truce_ledger_verify(ledger, NULL, NULL, restore_show_finding, checks, &report, error);

    truce_ledger_free(ledger);
    checks->ledgers += !status;
    return status;
}

static truce_status skip_sequence(struct restore_checks *checks, truce_store *store, const char *id,
                                  bson_error_t *error)
{
    int64_t last;
    truce_status status = truce_sequence_last(store, id, &last, error);

    if (!status)
        status = truce_sequence_raise(store, id, last + checks->skip, error);
    checks->sequences += !status;
    return status;
}

static truce_status restore_check_database(void *arg, truce_store *view, const char *name,
                                           bson_error_t *error)
{
    struct restore_checks *checks = arg;
    truce_status status = each_id(checks, view, LEDGERS, verify_ledger, error);

    (void)name;
    if (!status && checks->skip)
        status = each_id(checks, view, SEQUENCES, skip_sequence, error);
    return status;
}

/* Opens the restored store, runs truce check, and then the checks of each database. */
static truce_status restore_check(struct restore_checks *checks, bson_error_t *error)
{
    const truce_store_options options = {.must_exist = true};
    const truce_check_options check = {0};
    truce_check_report report;
    truce_store *store;
    truce_status status = truce_store_open(checks->uri, &options, &store, error);

    if (status)
        return status;
    status = truce_check(store, &check, restore_show_finding, checks, &report, error);
    if (!status)
        status = truce__each_database(store, restore_check_database, checks, error);
    truce_store_close(store);
    return status;
}

/* ---- the call ------------------------------------------------------------------------------- */

static void restore_progress(int64_t done, void *arg)
{
    cli_progress(arg, done, 0);
}

static void restore_answer(const struct cli *cli, const struct restore_options *options,
                           const struct restore_report *report, const struct restore_checks *checks)
{
    bool dry_run = options->dry_run;
    bson_t answer = BSON_INITIALIZER;
    char time[DATE_TEXT_MAX], next[DATE_TEXT_MAX];

    BSON_APPEND_INT64(&answer, "commit", (int64_t)report->commit);
    if (report->commit_ms)
        BSON_APPEND_DATE_TIME(&answer, "time", report->commit_ms);
    if (report->next_commit)
        BSON_APPEND_DATE_TIME(&answer, "next", report->next_ms);
    if (report->back_commit)
        BSON_APPEND_INT64(&answer, "clock_went_back", (int64_t)report->back_commit);
    BSON_APPEND_INT64(&answer, "generation", report->generation);
    BSON_APPEND_INT64(&answer, "bytes", report->bytes);
    BSON_APPEND_INT64(&answer, "segments", (int64_t)report->segments);
    if (!dry_run) {
        BSON_APPEND_INT64(&answer, "findings", checks->findings);
        BSON_APPEND_INT64(&answer, "ledgers", checks->ledgers);
        BSON_APPEND_INT64(&answer, "sequences", checks->sequences);
    }
    cli_answer(cli, &answer, "%s commit %" PRIu64 " of %s (next commit: %s): %.1f MB from %s",
               dry_run ? "can restore" : "restored", report->commit,
               cli_archive_time(report->commit_ms, time), cli_archive_time(report->next_ms, next),
               (double)report->bytes / 1e6, PLURAL(report->segments, "segment", "segments"));
    if (!dry_run && !cli->json)
        cli_answer(cli, &answer, "checked: %s, %s verified",
                   PLURAL(checks->findings, "finding", "findings"),
                   PLURAL(checks->ledgers, "ledger", "ledgers"));
    if (report->back_commit)
        cli_note(
            cli,
            "the clock of the store was set back: commits %" PRIu64 " to %" PRIu64
            " follow the restored one, although some have an earlier time than --at; restore them "
            "with --at-commit",
            report->next_commit, report->back_commit);
    if (options->at_ms != INT64_MAX && !report->next_commit)
        cli_note(
            cli,
            "this is the last commit of the archive: commits between it and %s, if there were any, "
            "are not archived",
            truce__date_show(options->at_ms, next));
    if (report->newer_generation)
        cli_note(cli,
                 "generation %u of the archive has no complete base: later commits cannot be "
                 "restored",
                 report->newer_generation);
    bson_destroy(&answer);
}

/* Restores, checks the result unless it is a dry run, and prints the report. Returns CLI_NO if the
 * check has findings. */
static int restore_with(struct cli *cli, struct target *target, const struct restore_options *given,
                        int64_t skip)
{
    struct restore_options options = *given;
    struct restore_checks checks = {.cli = cli, .uri = cli_text(cli, "to"), .skip = skip};
    const char *path = checks.uri ? cli_store_path(checks.uri) : NULL;
    struct restore_report report;
    struct cli_progress shown;
    bson_error_t error;
    truce_status status;

    cli_progress_begin(cli, &shown, "bytes read");
    options.progress = restore_progress;
    options.arg = &shown;
    options.stop = cli_interrupt_stop();
    status = truce__archive_restore(target, path, &options, &report, &error);
    cli_progress_end(&shown);
    if (status)
        return cli_error(cli, NULL, status, &error);
    if (!options.dry_run)
        status = restore_check(&checks, &error);
    if (status)
        return cli_error(cli, "check of the restored store", status, &error);
    restore_answer(cli, &options, &report, &checks);
    return checks.findings ? CLI_NO : CLI_DONE;
}

static int restore_run(struct cli *cli)
{
    struct restore_options options = {.at_ms = INT64_MAX, .dry_run = cli_flag(cli, "dry-run")};
    int64_t commit, skip, at_ms;
    struct target *target;
    int code = cli_refuse_database(cli);

    if (code)
        return code;
    if (!cli_number(cli, "at-commit", 1, INT64_MAX, 0, &commit) ||
        !cli_number(cli, "skip-sequences", 1, SKIP_MAX, 0, &skip) || !cli_date(cli, "at", &at_ms))
        return CLI_USAGE;
    if (cli->uri_given)
        return cli_usage(cli, "truce restore takes the new store as --to, not --store");
    if (!cli_text(cli, "to") && !options.dry_run)
        return cli_usage(cli, "no file is given: --to FILE, or --dry-run");
    if (cli_text(cli, "to") && !cli_store_path(cli_text(cli, "to")))
        return cli_usage(cli, "--to %s is not a file: copy the restored file with truce copy",
                         cli_text(cli, "to"));
    if (commit && cli_text(cli, "at"))
        return cli_usage(cli, "--at and --at-commit exclude each other");
    options.at_commit = (uint64_t)commit;
    if (cli_text(cli, "at"))
        options.at_ms = at_ms;
    code = cli_target_open(cli, cli->arguments[0], false, &target);
    if (code)
        return code;
    code = restore_with(cli, target, &options, skip);
    truce__target_close(target);
    return cli_output_end(code);
}

static const struct cli_command cli_restore = {
    .noun = "restore",
    .arguments = "TARGET",
    .summary = "restore a store from an archive, and check it",
    .help =
        "Writes the store as it was after a commit into a new file: the last commit, the last at\n"
        "a time (--at), or the one with a number (--at-commit). Every byte is verified while it\n"
        "is read. Then truce check and the verification of every ledger run on the result.\n"
        "\n"
        "A client that has seen a later state may know numbers of sequences that will be\n"
        "allocated again. --skip-sequences N raises every sequence by N, so that they are not.\n"
        "\n"
        "Exit code 1: the archive cannot restore this commit or time, or the check found\n"
        "something.",
    .example = "truce insert students '{_id: 1, name: \"Ada\"}' --store school.truce\n"
               "truce archive school.truce --to archive --once\n"
               "truce restore archive --to restored.truce",
    .options =
        (const struct cli_option[]){
            {"to", 0, "FILE", "the new file", false},
            {"at", 0, "TIME", "the last commit at this time: 2026-03-01T09:00:00Z", false},
            {"at-commit", 0, "NUMBER", "the commit with this number", false},
            {"dry-run", 'n', NULL, "verify what would be read, and write nothing", false},
            {"skip-sequences", 0, "N", "raise each sequence by N", false},
            {0}},
    .store = CLI_STORE_NONE,
    .run = restore_run,
};

cli_command_list cli_restore_commands = {&cli_restore, NULL};
