/* truce command: runs an operation, or a command of MongoDB, and prints its reply. */
#include "truce/command.h"
#include "cli/commands.h"
#include "cli/data/query.h"

static int request_command_run(struct cli *cli)
{
    enum json_form form = cli_flag(cli, "canonical") ? JSON_CANONICAL : JSON_RELAXED;
    bson_t request, reply;
    bson_error_t error = {0};
    truce_status status;
    int64_t before;
    int code;

    if (!cli_document(cli, cli->arguments[0], "REQUEST", &request)) {
        bson_destroy(&request);
        return CLI_USAGE;
    }
    before = truce_deadline_begin(cli->deadline_ms);
    status = truce_command(cli->store, NULL, &request, &reply, &error);
    truce_deadline_end(before);
    if (status)
        code = cli_error(cli, NULL, status, &error);
    else
        code = cli_print(&reply, form) ? CLI_DONE : CLI_FAILED;
    bson_destroy(&reply);
    bson_destroy(&request);
    return code;
}

static const struct cli_command cli_command_command = {
    .noun = "command",
    .arguments = "REQUEST",
    .summary = "run an operation, or a command of MongoDB",
    .help =
        "REQUEST is a document whose first field is the name of the operation. The reply is the\n"
        "reply of truce serve: docs/commands.md describes the operations, and\n"
        "truce command '{truceHelp: 1}' lists them. MongoDB's data commands run, too: find, insert,\n"
        "update, delete, aggregate, and others.",
    .example = "truce command '{truceEnqueue: \"mail\", payload: {to: \"ada@example.org\"}}'\n"
               "truce command '{truceQueues: 1}'\n"
               "truce command '{count: \"truce_queue\"}'",
    .options = (const struct cli_option[]){CLI_CANONICAL_OPTION, {0}},
    .store = CLI_STORE_WRITE,
    .run = request_command_run,
};

cli_command_list cli_command_commands = {&cli_command_command, NULL};
