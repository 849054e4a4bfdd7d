/* truce distinct: prints the distinct values of a path. */
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/data/view.h"

static bool print_values(const bson_t *values, enum json_form form)
{
    struct buffer line = {0};
    bson_iter_t iter;
    bool good = bson_iter_init(&iter, values);

    while (good && bson_iter_next(&iter)) {
        line.size = 0;
        truce__json_write_value(&line, &iter, form);
        truce__buffer_append_byte(&line, '\n');
        good = cli_write(line.bytes, line.size);
    }
    truce__buffer_release(&line);
    return good;
}

/* Reads the distinct values of a view. `values` is always initialized. */
static truce_status distinct_of_view(const struct cli *cli, const bson_t *filter, bson_t *values,
                                     bson_error_t *error)
{
    bson_t request = BSON_INITIALIZER, reply, found;
    bson_iter_t at;
    truce_status status;

    BSON_APPEND_UTF8(&request, "distinct", cli->arguments[0]);
    BSON_APPEND_UTF8(&request, "key", cli->arguments[1]);
    BSON_APPEND_DOCUMENT(&request, "query", filter);
    status = cli_view_call(cli, cli->store, &request, &reply, error);
    bson_init(values);
    if (!status && bson_iter_init_find(&at, &reply, "values")) {
        truce__value_bson(truce__value_of_iter(&at), &found);
        bson_concat(values, &found);
    }
    bson_destroy(&request);
    bson_destroy(&reply);
    return status;
}

static int distinct_run(struct cli *cli)
{
    enum json_form form = cli_flag(cli, "canonical") ? JSON_CANONICAL : JSON_RELAXED;
    bson_t filter, values = BSON_INITIALIZER, answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;
    int code = CLI_DONE;
    int64_t before;

    if (!cli_document(cli, cli->arguments[2], "FILTER", &filter)) {
        code = CLI_USAGE;
        goto out;
    }
    bson_destroy(&values);
    before = truce_deadline_begin(cli->deadline_ms);
    status = cli->is_view ? distinct_of_view(cli, &filter, &values, &error)
                          : truce_distinct(cli->store, cli->arguments[0], cli->arguments[1],
                                           &filter, &values, &error);
    truce_deadline_end(before);
    if (status) {
        code = cli_error(cli, NULL, status, &error);
    } else if (cli->json) {
        BSON_APPEND_ARRAY(&answer, "values", &values);
        cli_print(&answer, form);
    } else {
        print_values(&values, form);
        if (bson_empty(&values))
            cli_note_missing_collection(cli);
    }
out:
    bson_destroy(&filter);
    bson_destroy(&values);
    bson_destroy(&answer);
    return code;
}

static const struct cli_command cli_distinct = {
    .noun = "distinct",
    .arguments = "COLLECTION PATH [FILTER]",
    .summary = "print the distinct values of a path, one per line",
    .help = "Each element of an array counts as a value.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce distinct students classes.name '{year: 2}'",
    .options = (const struct cli_option[]){CLI_CANONICAL_OPTION, {0}},
    .store = CLI_STORE_READ,
    .reads_views = true,
    .run = distinct_run,
};

cli_command_list cli_distinct_commands = {&cli_distinct, NULL};
