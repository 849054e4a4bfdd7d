/* truce find: prints matching documents as NDJSON. */
#include "cli/commands.h"
#include "cli/core/plain_output.h"
#include "cli/data/query.h"

static int find_run(struct cli *cli)
{
    struct cli_query query;
    truce_cursor *cursor = NULL;
    bson_error_t error;
    truce_status status;
    bool any = false;
    int code = cli_query_read(cli, cli->arguments[1], &query);

    if (!code) {
        query.options.return_key = cli_flag(cli, "keys");
        query.options.show_record_id = cli_flag(cli, "records");
        status = cli_query_find(cli, cli->store, &query, &cursor, &error);
        code = status ? cli_error(cli, NULL, status, &error) : cli_print_cursor(cli, cursor, &any);
        if (!code && !any)
            cli_note_missing_collection(cli);
    }
    cli_query_release(&query);
    return code;
}

static const struct cli_command cli_find = {
    .noun = "find",
    .arguments = "COLLECTION [FILTER]",
    .summary = "print matching documents, one per line",
    .help =
        "FILTER is a query of MongoDB's language, in Extended JSON; without it, all documents\n"
        "are printed. Numbers and dates have their short form; --canonical prints every type.\n"
        "--min and --max are keys of the index of --hint. The find reads the part of the index\n"
        "from --min up to, but not including, --max, in the order of the index.",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce find students '{year: {$gte: 2}}' --sort '{name: 1}' -n 10",
    .options =
        (const struct cli_option[]){
            CLI_FIND_OPTIONS,
            {"keys", 0, NULL, "print the keys of the index, not the documents", false},
            {"records", 0, NULL, "add the record number of each document: $recordId", false},
            CLI_PLAIN_OPTION,
            CLI_CANONICAL_OPTION,
            {0}},
    .store = CLI_STORE_READ,
    .reads_views = true,
    .run = find_run,
};

cli_command_list cli_find_commands = {&cli_find, NULL};
