/* truce command: runs an operation, or a command of MongoDB, and prints its reply. */
#include <errno.h>
#include <libgen.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/core/operation_row.h"
#include "cli/data/query.h"

/* Returns whether this process must not write the store, or cannot create files next to it. */
static bool command_cannot_write(const char *uri)
{
    const char *path = uri ? cli_store_path(uri) : NULL;
    char *folder = path ? bson_strdup(path) : NULL;
    bool refused = path && (access(path, W_OK) != 0 || access(dirname(folder), W_OK) != 0) &&
                   (errno == EACCES || errno == EROFS);

    bson_free(folder);
    return refused;
}

/* Operations that read run on a store that cannot be written. */
static int request_command_run(struct cli *cli)
{
    enum json_form form = cli_flag(cli, "canonical") ? JSON_CANONICAL : JSON_RELAXED;
    bson_t request, reply;
    enum cli_store_use use = command_cannot_write(cli->uri) ? CLI_STORE_READ : CLI_STORE_WRITE;
    int code = CLI_USAGE;

    if (cli_document(cli, cli->arguments[0], "REQUEST", &request))
        code = cli_store_open(cli, use, &cli->store);
    if (!code) {
        code = cli_row_send(cli, &request, &reply);
        if (!code && !cli_print(&reply, form))
            code = CLI_FAILED;
        bson_destroy(&reply);
    }
    bson_destroy(&request);
    return code;
}

static const struct cli_command cli_command_command = {
    .noun = "command",
    .arguments = "REQUEST",
    .summary = "run an operation of truce or a MongoDB command",
    .help = "REQUEST is a document whose first field is the name of the operation. The reply is\n"
            "that of truce serve. docs/commands.md describes the operations, and\n"
            "truce command '{truceHelp: 1}' lists them. MongoDB's data commands (find, insert,\n"
            "update, delete, aggregate, and others) also run.",
    .example = "truce command '{truceEnqueue: \"mail\", payload: {to: \"ada@example.org\"}}'\n"
               "truce command '{truceQueues: 1}'\n"
               "truce command '{count: \"truce_queue\"}'",
    .options = (const struct cli_option[]){CLI_CANONICAL_OPTION, {0}},
    .store = CLI_STORE_NONE, /* The store is opened after the request was read. */
    .run = request_command_run,
};

cli_command_list cli_command_commands = {&cli_command_command, NULL};
