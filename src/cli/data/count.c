/* truce count: counts matching documents. */
#include "cli/commands.h"
#include "cli/data/query.h"

#include <inttypes.h>

static int count_run(struct cli *cli)
{
    struct cli_query query;
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int64_t count;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    if (!code) {
        status = truce_count(cli->store, cli->arguments[0], &query.filter, &query.counting, &count,
                             &error);
        if (status) {
            code = cli_error(cli, NULL, status, &error);
        } else {
            BSON_APPEND_INT64(&answer, "count", count);
            cli_answer(cli, &answer, "%" PRId64, count);
            if (!count)
                cli_note_missing_collection(cli);
        }
    }
    cli_query_release(&query);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_count = {
    .noun = "count",
    .arguments = "COLLECTION [FILTER]",
    .summary = "count matching documents",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce count students '{\"classes.name\": \"CS 101\"}'",
    .options = (const struct cli_option[]){CLI_SKIP_OPTION, CLI_LIMIT_OPTION, CLI_HINT_OPTION, {0}},
    .store = CLI_STORE_READ,
    .run = count_run,
};

cli_command_list cli_count_commands = {&cli_count, NULL};
