/* truce explain: shows how a find or a count would run. */
#include "cli/commands.h"
#include "cli/data/query.h"

static int explain_run(struct cli *cli)
{
    struct cli_query query;
    bson_t plan = BSON_INITIALIZER;
    bson_error_t error;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    if (!code) {
        truce_status status;

        bson_destroy(&plan);
        if (cli_flag(cli, "count"))
            status = truce_explain_count(cli->store, cli->arguments[0], &query.filter,
                                         &query.counting, &plan, &error);
        else
            status = truce_explain(cli->store, cli->arguments[0], &query.filter, &query.options,
                                   &plan, &error);
        if (status)
            code = cli_error(cli, NULL, status, &error);
        else
            cli_print(&plan, JSON_RELAXED);
    }
    bson_destroy(&plan);
    cli_query_release(&query);
    return code;
}

static const struct cli_command cli_explain = {
    .noun = "explain",
    .arguments = "COLLECTION [FILTER]",
    .summary = "show the plan of a find and what it examined",
    .help = "The output has the form of MongoDB's explain with \"executionStats\".",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce explain students '{_id: 1}' --pretty",
    .options = (const struct cli_option[]){CLI_FIND_OPTIONS,
                                           {"count", 0, NULL, "explain a count, not a find", false},
                                           {0}},
    .store = CLI_STORE_READ,
    .run = explain_run,
};

cli_command_list cli_explain_commands = {&cli_explain, NULL};
