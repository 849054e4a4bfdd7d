/* truce transfer: transfers in two phases. */
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/operation_row.h"

#define SAMPLE                                                                                     \
    "truce insert accounts '{_id: \"A\", balance: 1000}' '{_id: \"B\", balance: 0}'\n"             \
    "truce insert transactions '{_id: 7, source: \"A\", destination: \"B\", value: 100,\n"         \
    "    state: \"pending\"}'\n"

static bool transfer_print_state(struct cli *cli, const bson_t *reply)
{
    (void)cli;
    return cli_put("%s%s\n", truce__field_text(reply, "state"),
                   truce__field_true(reply, "exists") ? " (it was started before)" : "");
}

#define NO_TRANSFER "the transfer {id} does not exist in {collection}"

static int transfer_run_start(struct cli *cli)
{
    if (cli->count != 2 && cli->count != 5)
        return cli_usage(cli, "expected BOOK ID SOURCE DESTINATION VALUE, or BOOK ID --entries "
                              "[...]");
    if (cli_text(cli, "entries") && cli->count != 2)
        return cli_usage(cli, "--entries replaces SOURCE DESTINATION VALUE");
    if (!cli_text(cli, "entries") && cli->count == 2)
        return cli_usage(
            cli, "the changes are missing: give SOURCE DESTINATION VALUE, or --entries [...]");
    return cli_row_run(cli);
}

static const struct cli_command cli_transfer_start = {
    .noun = "transfer",
    .verb = "start",
    .arguments = "BOOK ID [SOURCE] [DESTINATION] [VALUE]",
    .summary = "change several documents, all or none",
    .help =
        "BOOK is the collection of the transfers. You choose ID: repeating the call changes\n"
        "nothing. VALUE moves from one document of --accounts to another, if it has enough. Or\n"
        "give --entries: [{collection, id, guard, effect, undo},\n"
        "{collection, id, when: \"after\", effect}], where an entry after the decision cannot\n"
        "refuse (a credit). The first transfer of a book stores the layout, so give it once.\n"
        "A refused transfer ends with exit code 1 and stays refused under its ID.",
    .example =
        "truce insert accounts '{_id: \"A\", balance: 1000}'\n"
        "truce insert accounts '{_id: \"B\", balance: 0}'\n"
        "truce transfer start transactions 1 A B 100 --accounts accounts\n"
        "truce transfer start transactions 2 --entries '[{collection: \"accounts\", id: \"A\",\n"
        "    effect: {$inc: {balance: -5}}}, {collection: \"accounts\", id: \"B\", when: "
        "\"after\",\n"
        "    effect: {$inc: {balance: 5}}}]'",
    .store = CLI_STORE_WRITE,
    .row = &(const struct cli_row){.name = "truceTransfer",
                                   .named = "BOOK collection VALUE amount",
                                   .print = transfer_print_state},
    .run = transfer_run_start,
};

static const struct cli_command cli_transfer_resume = {
    .noun = "transfer",
    .verb = "resume",
    .arguments = "BOOK ID",
    .summary = "complete an interrupted transfer",
    .help = "`truce sweep` does so for transfers without progress for half an hour. Transfers\n"
            "of the recipe in MongoDB's manual are also completed.",
    .example = SAMPLE "truce transfer resume transactions 7 --accounts accounts",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTransferResume",
                                   .named = "BOOK collection",
                                   .format = "{state}"},
    .run = cli_row_run,
};

static const struct cli_command cli_transfer_cancel = {
    .noun = "transfer",
    .verb = "cancel",
    .arguments = "BOOK ID",
    .summary = "cancel a transfer that is not decided",
    .example = SAMPLE "truce transfer cancel transactions 7 --accounts accounts",
    .store = CLI_STORE_CHANGE,
    .row = &(const struct cli_row){.name = "truceTransferCancel",
                                   .named = "BOOK collection",
                                   .format = "{state}"},
    .run = cli_row_run,
};

static const struct cli_command cli_transfer_show = {
    .noun = "transfer",
    .verb = "show",
    .arguments = "BOOK ID",
    .summary = "show the state, the entries, and the refusal of a transfer",
    .example = SAMPLE "truce transfer show transactions 7",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTransferShow",
                                   .named = "BOOK collection",
                                   .none = NO_TRANSFER,
                                   .show = "transfer"},
    .run = cli_row_run,
};

static const struct cli_command cli_transfer_list = {
    .noun = "transfer",
    .verb = "list",
    .arguments = "BOOK",
    .summary = "list the transfers of a book, newest first",
    .example = SAMPLE "truce transfer list transactions --state pending",
    .store = CLI_STORE_READ,
    .row = &(const struct cli_row){.name = "truceTransfers",
                                   .named = "BOOK collection",
                                   .list = "transfers"},
    .run = cli_row_run,
};

cli_command_list cli_transfer_commands = {&cli_transfer_start,  &cli_transfer_resume,
                                          &cli_transfer_cancel, &cli_transfer_show,
                                          &cli_transfer_list,   NULL};
