/* truce check. */
#include "base/field.h"
#include "base/plural.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

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
        cli_note(cli, "only the first %lld of %lld findings are printed", (long long)printed,
                 (long long)found);
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

static int check_run(struct cli *cli)
{
    int code = cli_refuse_database_of_file(cli);

    if (!code)
        code = cli_store_open(cli, cli_flag(cli, "repair") ? CLI_STORE_CHANGE : CLI_STORE_READ,
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
    /* The command opens the store itself, read-only without --repair. */
    .store = CLI_STORE_NONE,
    .run = check_run,
};

cli_command_list cli_check_commands = {&cli_check, NULL};
