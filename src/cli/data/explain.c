/* truce explain: shows how a find or a count would run. */
#include "cli/commands.h"
#include "cli/data/view.h"

/* Explains a read of a view: its pipeline. `plan` is always initialized. */
static truce_status explain_view(const struct cli *cli, const struct cli_query *query, bson_t *plan,
                                 bson_error_t *error)
{
    bool is_count = cli_flag(cli, "count");
    bson_t request = BSON_INITIALIZER, inner, reply;
    truce_status status;

    BSON_APPEND_DOCUMENT_BEGIN(&request, "explain", &inner);
    BSON_APPEND_UTF8(&inner, is_count ? "count" : "find", cli->arguments[0]);
    cli_view_append_query(cli, query, is_count ? "query" : "filter", &inner);
    bson_append_document_end(&request, &inner);
    BSON_APPEND_UTF8(&request, "verbosity", "executionStats");
    status = cli_view_call(cli, cli->store, &request, &reply, error);
    bson_init(plan);
    bson_copy_to_excluding_noinit(&reply, plan, "command", "serverInfo", "ok", NULL);
    bson_destroy(&request);
    bson_destroy(&reply);
    return status;
}

static int explain_run(struct cli *cli)
{
    struct cli_query query;
    bson_t plan = BSON_INITIALIZER;
    bson_error_t error;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    if (!code) {
        truce_status status;

        bson_destroy(&plan);
        if (cli->is_view)
            status = explain_view(cli, &query, &plan, &error);
        else if (cli_flag(cli, "count"))
            status = truce_explain_count(cli->store, cli->arguments[0], &query.filter,
                                         &query.counting, &plan, &error);
        else
            status = truce_explain(cli->store, cli->arguments[0], &query.filter, &query.options,
                                   &plan, &error);
        if (status)
            code = cli_error(cli, NULL, status, &error);
        else
            cli_print(&plan, JSON_RELAXED);
        if (!code)
            cli_note_missing_collection(cli);
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
    .reads_views = true,
    .run = explain_run,
};

cli_command_list cli_explain_commands = {&cli_explain, NULL};
