/* truce sweep and truce check. */
#include "base/clock.h"
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/cli.h"

#define DAY_MS INT64_C(86400000)

/* ---- sweep ---------------------------------------------------------------------------------- */

static void sweep_add_report(truce_sweep_report *sum, const truce_sweep_report *report)
{
    sum->undone += report->undone;
    sum->finished += report->finished;
    sum->cleaned += report->cleaned;
    sum->stripped += report->stripped;
    sum->purged += report->purged;
    sum->expired += report->expired;
    sum->pruned += report->pruned;
    sum->failed += report->failed;
}

static void sweep_print_report(const struct cli *cli, const truce_sweep_report *report)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "undone", report->undone);
    BSON_APPEND_INT64(&answer, "finished", report->finished);
    BSON_APPEND_INT64(&answer, "cleaned", report->cleaned);
    BSON_APPEND_INT64(&answer, "stripped", report->stripped);
    BSON_APPEND_INT64(&answer, "purged", report->purged);
    BSON_APPEND_INT64(&answer, "expired", report->expired);
    BSON_APPEND_INT64(&answer, "pruned", report->pruned);
    BSON_APPEND_INT64(&answer, "failed", report->failed);
    cli_answer(
        cli, &answer,
        "%lld undone, %lld finished, %lld cleaned, %lld stripped, %lld purged, %lld expired, "
        "%lld pruned, %lld failed",
        (long long)report->undone, (long long)report->finished, (long long)report->cleaned,
        (long long)report->stripped, (long long)report->purged, (long long)report->expired,
        (long long)report->pruned, (long long)report->failed);
    bson_destroy(&answer);
}

/* Repeats the pass until nothing is left. */
static int sweep_once(struct cli *cli, const truce_sweep_options *options,
                      truce_sweep_report *report)
{
    truce_sweep_report sum = {0};
    bson_error_t error;

    for (int rounds = 0; rounds < 1000; rounds++) {
        truce_status status = truce_sweep(cli->store, options, report, &error);

        sweep_add_report(&sum, report);
        if (status)
            return cli_error(cli, "sweep", status, &error);
        if (!report->more)
            break;
    }
    *report = sum;
    return CLI_DONE;
}

static void show_failed(const bson_t *finding, void *arg)
{
    char *text = bson_as_relaxed_extended_json(finding, NULL);

    cli_say(arg, CLI_FAILED, "could not be repaired: %s", text ? text : "");
    bson_free(text);
}

static int sweep_run_sweep(struct cli *cli)
{
    truce_sweep_options options = {.function = show_failed, .arg = cli};
    truce_sweep_report report;
    int64_t every_ms;
    int code;

    if (!cli_duration(cli, "keep", -1, 36500 * DAY_MS, 7 * DAY_MS, &options.retention_ms) ||
        !cli_duration(cli, "every", 1000, 86400000, 60000, &every_ms))
        return CLI_USAGE;
    options.retention_ms = options.retention_ms ? options.retention_ms : 1;
    do {
        code = sweep_once(cli, &options, &report);
        if (code)
            return code;
        sweep_print_report(cli, &report);
        code = cli_output_end(report.failed ? CLI_NO : CLI_DONE);
        if (code || !cli_flag(cli, "loop"))
            return code;
        truce__clock_sleep_ms(every_ms);
    } while (true);
}

static const struct cli_command cli_sweep = {
    .noun = "sweep",
    .summary = "complete or undo work of dead processes",
    .help = "Completes decided commits, undoes those whose owner has died,\n"
            "releases their documents, and deletes old commits. Also deletes\n"
            "documents that expired by an index with expireAfterSeconds. Safe at any time\n"
            "and in several processes at the same time.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce sweep",
    .options =
        (const struct cli_option[]){
            {"loop", 0, NULL, "continue until killed", false},
            {"every", 0, "DURATION", "time between passes with --loop (default: 60s)", false},
            {"keep", 0, "DURATION", "how long to keep ended commits (default: 7d; -1: forever)",
             false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = sweep_run_sweep,
};

/* ---- check ---------------------------------------------------------------------------------- */

static void show_finding(const bson_t *finding, void *arg)
{
    const struct cli *cli = arg;
    bson_t id = BSON_INITIALIZER;
    bson_iter_t iter;
    const char *name;
    char *text;

    if (cli->json) {
        cli_print(finding, JSON_RELAXED);
        bson_destroy(&id);
        return;
    }
    if (bson_iter_init_find(&iter, finding, "id"))
        bson_append_iter(&id, "_id", 3, &iter);
    text = bson_empty(&id) ? NULL : bson_as_relaxed_extended_json(&id, NULL);
    name = truce__field_text(finding, "ns");
    cli_put("%s: %s%s%s: %s\n    repair: %s%s\n", truce__field_text(finding, "rule"),
            text ? text : "", text ? " of " : "", *name ? name : "the file",
            truce__field_text(finding, "text"), truce__field_text(finding, "repair"),
            bson_iter_init_find(&iter, finding, "repaired") && bson_iter_bool(&iter) ? " (done)"
                                                                                     : "");
    bson_free(text);
    bson_destroy(&id);
}

static int sweep_run_check(struct cli *cli)
{
    truce_check_options options = {.repair = cli_flag(cli, "repair")};
    bson_t answer = BSON_INITIALIZER;
    truce_check_report report;
    bson_error_t error;
    int64_t before;
    truce_status status;
    int code = cli_store_open(cli, options.repair ? CLI_STORE_CHANGE : CLI_STORE_READ, &cli->store);

    if (code) {
        bson_destroy(&answer);
        return code;
    }
    before = truce_deadline_begin(cli->deadline_ms);
    status = truce_check(cli->store, &options, show_finding, cli, &report, &error);
    truce_deadline_end(before);
    if (status) {
        bson_destroy(&answer);
        return cli_error(cli, "check", status, &error);
    }
    BSON_APPEND_INT64(&answer, "collections", report.collections);
    BSON_APPEND_INT64(&answer, "documents", report.documents);
    BSON_APPEND_INT64(&answer, "commits", report.commits);
    BSON_APPEND_INT64(&answer, "findings", report.findings);
    BSON_APPEND_INT64(&answer, "repaired", report.repaired);
    cli_answer(cli, &answer,
               "%lld collections, %lld documents, %lld commits examined: %lld findings, %lld "
               "repaired",
               (long long)report.collections, (long long)report.documents,
               (long long)report.commits, (long long)report.findings, (long long)report.repaired);
    bson_destroy(&answer);
    return cli_output_end(report.findings > report.repaired ? CLI_NO : CLI_DONE);
}

static const struct cli_command cli_check = {
    .noun = "check",
    .summary = "check a live store for damage and inconsistency",
    .help =
        "Rules of a file: damaged-page, damaged-document, unreadable, wrong-index, repeated-key.\n"
        "--repair rebuilds a wrong index; writers wait for it. Rules of every store:\n"
        "orphan-intent, foreign-intent, expired-lease, half-applied, unreleased,\n"
        "overwritten, forked, missing-document, blocked, displaced, corrupted-entry, stale-keys.\n"
        "Each finding names the document, the rule, and the effect of --repair. Without --repair,\n"
        "nothing is written.\n"
        "Exit code 1: there are findings that were not repaired.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce check",
    .options =
        (const struct cli_option[]){{"repair", 0, NULL, "repair the findings if possible", false},
                                    {0}},
    .store = CLI_STORE_NONE, /* --repair decides how the store is opened */
    .run = sweep_run_check,
};

cli_command_list cli_sweep_commands = {&cli_sweep, &cli_check, NULL};
