/* truce delete: deletes matching documents. */
#include "cli/commands.h"
#include "cli/data/query.h"

#include <inttypes.h>

static int delete_run(struct cli *cli)
{
    truce_write_options options = {.multi = cli_flag(cli, "many"),
                                   .relaxed = cli_flag(cli, "relaxed")};
    bson_t filter, hint, answer = BSON_INITIALIZER;
    truce_write_result result = {0};
    bson_error_t error;
    truce_status status;
    bool good = cli_document(cli, cli->arguments[1], "FILTER", &filter);
    int code = CLI_USAGE;

    good &= cli_hint_read(cli, &hint);
    if (!good)
        goto out;
    options.hint = bson_empty(&hint) ? NULL : &hint;
    status = truce_remove(cli->store, cli->arguments[0], &filter, &options, &result, &error);
    if (status) {
        code = cli_error(cli, NULL, status, &error);
    } else {
        BSON_APPEND_INT64(&answer, "removed", result.removed);
        cli_answer(cli, &answer, "removed %" PRId64, result.removed);
        code = result.removed ? CLI_DONE : CLI_NO;
        if (code)
            cli_note_missing_collection(cli);
    }
    truce_write_result_release(&result);
out:
    bson_destroy(&filter);
    bson_destroy(&hint);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_delete = {
    .noun = "delete",
    .arguments = "COLLECTION FILTER",
    .summary = "delete the first matching document, or all with --many",
    .help = "FILTER is required; '{}' with --many deletes every document. The exit code is 1 if\n"
            "nothing matched.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce delete students '{_id: 1}'",
    .options =
        (const struct cli_option[]){{"many", 'm', NULL, "delete every matching document", false},
                                    CLI_HINT_OPTION,
                                    {"relaxed", 0, NULL, "do not wait for the disk", false},
                                    {0}},
    .store = CLI_STORE_CHANGE,
    .run = delete_run,
};

cli_command_list cli_delete_commands = {&cli_delete, NULL};
