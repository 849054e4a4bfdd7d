/* truce count: counts matching documents. */
#include "cli/commands.h"
#include "cli/data/view.h"

#include <inttypes.h>

#include "base/field.h"

static truce_status count_of_view(const struct cli *cli, const struct cli_query *query,
                                  int64_t *count, bson_error_t *error)
{
    bson_t request = BSON_INITIALIZER, reply;
    truce_status status;

    BSON_APPEND_UTF8(&request, "count", cli->arguments[0]);
    cli_view_append_query(cli, query, "query", &request);
    status = cli_view_call(cli, cli->store, &request, &reply, error);
    *count = truce__field_number(&reply, "n");
    bson_destroy(&request);
    bson_destroy(&reply);
    return status;
}

static int count_run(struct cli *cli)
{
    struct cli_query query;
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int64_t count;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    if (!code) {
        status = cli->is_view ? count_of_view(cli, &query, &count, &error)
                              : truce_count(cli->store, cli->arguments[0], &query.filter,
                                            &query.counting, &count, &error);
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
    .reads_views = true,
    .run = count_run,
};

cli_command_list cli_count_commands = {&cli_count, NULL};
