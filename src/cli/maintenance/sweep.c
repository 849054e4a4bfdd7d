/* truce sweep and truce check. */
#include "base/clock.h"
#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

#define PASSES_MAX 1000

/* ---- sweep ---------------------------------------------------------------------------------- */

#define SWEEP_COUNTS 8

static const char *const sweep_counts[SWEEP_COUNTS] = {"undone", "finished", "cleaned", "stripped",
                                                       "purged", "expired",  "pruned",  "failed"};

static void sweep_print_sums(const struct cli *cli, const int64_t sums[SWEEP_COUNTS])
{
    bson_t answer = BSON_INITIALIZER;
    struct buffer text = {0};

    for (size_t i = 0; i < SWEEP_COUNTS; i++) {
        char one[60];

        BSON_APPEND_INT64(&answer, sweep_counts[i], sums[i]);
        snprintf(one, sizeof one, "%s%lld %s", i ? ", " : "", (long long)sums[i], sweep_counts[i]);
        truce__buffer_append_text(&text, one);
    }
    truce__buffer_append_byte(&text, 0);
    cli_answer(cli, &answer, "%s", (const char *)text.bytes);
    truce__buffer_release(&text);
    bson_destroy(&answer);
}

/* Adds the counts of a pass, and prints what it could not repair. */
static void sweep_take_reply(const struct cli *cli, const bson_t *reply, int64_t sums[SWEEP_COUNTS])
{
    struct fields findings =
        truce__fields(truce__value_field(truce__value_document(reply), "findings", 8));

    for (size_t i = 0; i < SWEEP_COUNTS; i++)
        sums[i] += truce__field_number(reply, sweep_counts[i]);
    while (truce__fields_next(&findings)) {
        bson_t finding;
        char *text;

        truce__value_bson(findings.value, &finding);
        text = bson_as_relaxed_extended_json(&finding, NULL);
        cli_say(cli, CLI_FAILED, "could not be repaired: %s", text ? text : "");
        bson_free(text);
    }
}

/* Repeats the pass until nothing is left. */
static int sweep_once(struct cli *cli, const bson_t *request)
{
    int64_t sums[SWEEP_COUNTS] = {0};
    bool more = true;
    int code = CLI_DONE;

    for (int passes = 0; !code && more && passes < PASSES_MAX; passes++) {
        bson_t reply;

        code = cli_row_send(cli, request, &reply);
        if (!code)
            sweep_take_reply(cli, &reply, sums);
        more = truce__field_true(&reply, "more");
        bson_destroy(&reply);
    }
    if (code)
        return code;
    sweep_print_sums(cli, sums);
    return cli_output_end(sums[SWEEP_COUNTS - 1] ? CLI_NO : CLI_DONE);
}

static int sweep_run_sweep(struct cli *cli)
{
    bson_t request = BSON_INITIALIZER;
    int64_t every_ms;
    int code = CLI_USAGE;

    if (cli_duration(cli, "every", 1000, 86400000, 60000, &every_ms)) {
        bson_destroy(&request);
        code = cli_row_request(cli, &request);
    }
    while (!code && !(code = sweep_once(cli, &request)) && cli_flag(cli, "loop"))
        truce__clock_sleep_ms(every_ms);
    bson_destroy(&request);
    return code;
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
            {0}},
    .row = &(const struct cli_row){.name = "truceSweep",
                                   .named = "--keep retentionMS",
                                   .fields = "retentionMS"},
    .store = CLI_STORE_CHANGE,
    .run = sweep_run_sweep,
};

/* ---- check ---------------------------------------------------------------------------------- */

static void check_print_finding(const struct cli *cli, const bson_t *finding)
{
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
            truce__field_true(finding, "repaired") ? " (done)" : "");
    bson_free(text);
    bson_destroy(&id);
}

static bool check_print(struct cli *cli, const bson_t *reply)
{
    static const char *const counts[] = {"collections", "documents", "commits", "repaired"};
    struct fields findings =
        truce__fields(truce__value_field(truce__value_document(reply), "findings", 8));
    int64_t found = truce__field_number(reply, "found"), printed = 0, count[4];
    bson_t answer = BSON_INITIALIZER;
    bool good;

    for (; truce__fields_next(&findings); printed++) {
        bson_t finding;

        truce__value_bson(findings.value, &finding);
        check_print_finding(cli, &finding);
    }
    if (printed < found)
        cli_note(cli, "the first %lld findings are printed", (long long)printed);
    for (size_t i = 0; i < 4; i++) {
        count[i] = truce__field_number(reply, counts[i]);
        if (i == 3)
            BSON_APPEND_INT64(&answer, "findings", found);
        BSON_APPEND_INT64(&answer, counts[i], count[i]);
    }
    good =
        cli_answer(cli, &answer, "%s, %s, %s examined: %s, %lld repaired",
                   PLURAL(count[0], "collection", "collections"),
                   PLURAL(count[1], "document", "documents"), PLURAL(count[2], "commit", "commits"),
                   PLURAL(found, "finding", "findings"), (long long)count[3]);
    bson_destroy(&answer);
    return good;
}

static bool check_is_negative(const bson_t *reply)
{
    return truce__field_number(reply, "found") > truce__field_number(reply, "repaired");
}

static int sweep_run_check(struct cli *cli)
{
    int code = cli_store_open(cli, cli_flag(cli, "repair") ? CLI_STORE_CHANGE : CLI_STORE_READ,
                              &cli->store);

    return code ? code : cli_row_run(cli);
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
    .row = &(const struct cli_row){.name = "truceCheck",
                                   .negative = check_is_negative,
                                   .print = check_print,
                                   .prints_json = true},
    .store = CLI_STORE_NONE, /* --repair decides how the store is opened */
    .run = sweep_run_check,
};

cli_command_list cli_sweep_commands = {&cli_sweep, &cli_check, NULL};
