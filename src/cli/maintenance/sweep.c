/* truce sweep. */
#include "base/clock.h"
#include "base/field.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

#define PASSES_MAX   1000

#define SWEEP_COUNTS 9

static const char *const sweep_counts[SWEEP_COUNTS] = {"undone",   "finished", "cleaned",
                                                       "stripped", "purged",   "expired",
                                                       "pruned",   "released", "failed"};

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
        cli_message(cli, CLI_FAILED, "could not be repaired: %s", text ? text : "");
        bson_free(text);
    }
}

/* Repeats the pass until nothing is left, at most PASSES_MAX times. */
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
    int code = cli_refuse_database_of_file(cli);

    if (!code && !cli_duration(cli, "every", 1000, 86400000, 60000, &every_ms))
        code = CLI_USAGE;
    if (!code) {
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
    .help =
        "Completes decided commits, undoes commits whose process has died, releases their\n"
        "documents, and deletes old records. Also deletes documents that have expired by an index\n"
        "with expireAfterSeconds. Releases the jobs of dead workers: the first sweep that sees a\n"
        "lease after its end remembers it, and a sweep at least one lease later releases the job.\n"
        "You may run it at any time, in several processes at once.",
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

cli_command_list cli_sweep_commands = {&cli_sweep, NULL};
