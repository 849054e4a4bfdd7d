/* truce collections list, create, drop, rename. */
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/plain_output.h"
#include "store/collection_use.h"

#include <inttypes.h>

/* ---- list ---------------------------------------------------------------------------------- */

static bool print_collection(const struct cli *cli, const bson_t *collection)
{
    bson_iter_t name;

    if (!bson_iter_init_find(&name, collection, "name") ||
        (cli_flag(cli, "plain") && cli_plain_hides(bson_iter_utf8(&name, NULL))))
        return true;
    return cli_answer(
        cli, collection, "%-30s %12" PRId64 " documents %14" PRId64 " bytes %3" PRId64 " indexes",
        bson_iter_utf8(&name, NULL), truce__field_number(collection, "documents"),
        truce__field_number(collection, "bytes"), truce__field_number(collection, "indexes"));
}

static int collections_run_list(struct cli *cli)
{
    bson_t collections;
    bson_error_t error;
    truce_status status = truce_collection_list(cli->store, NULL, &collections, &error);

    return cli_print_array(cli, status, &collections, print_collection, &error);
}

static const struct cli_command cli_collections_list = {
    .noun = "collections",
    .verb = "list",
    .summary = "list collections with their documents, bytes, and indexes",
    .example =
        "truce insert students '{_id: 1, name: \"Ada\", year: 2, classes: [{name: \"CS 101\"}]}'\n"
        "truce collections list",
    .options = (const struct cli_option[]){CLI_PLAIN_OPTION, {0}},
    .store = CLI_STORE_READ,
    .run = collections_run_list,
};

/* ---- create, drop, rename ------------------------------------------------------------------ */

/* Prints the result of a command that changed a collection: {"created": NAME}. */
static int collections_print_result(const struct cli *cli, const char *what, const char *name,
                                    truce_status status, const bson_error_t *error)
{
    bson_t answer = BSON_INITIALIZER;

    bson_append_utf8(&answer, what, -1, name, -1);
    if (!status)
        cli_answer(cli, &answer, "%s %s", what, name);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, error) : CLI_DONE;
}

static int collections_run_create(struct cli *cli)
{
    bson_error_t error;

    return collections_print_result(cli, "created", cli->arguments[0],
                                    truce_collection_create(cli->store, cli->arguments[0], &error),
                                    &error);
}

static const struct cli_command cli_collections_create = {
    .noun = "collections",
    .verb = "create",
    .arguments = "COLLECTION",
    .summary = "create an empty collection",
    .help = "The first insert also creates a collection.",
    .example = "truce collections create students",
    .store = CLI_STORE_WRITE,
    .run = collections_run_create,
};

static int collections_run_drop(struct cli *cli)
{
    bson_error_t error;

    return collections_print_result(cli, "dropped", cli->arguments[0],
                                    truce_collection_drop(cli->store, cli->arguments[0], &error),
                                    &error);
}

static const struct cli_command cli_collections_drop = {
    .noun = "collections",
    .verb = "drop",
    .arguments = "COLLECTION",
    .summary = "delete a collection with its documents and indexes",
    .example = "truce collections create old_students\n"
               "truce collections drop old_students",
    .store = CLI_STORE_CHANGE,
    .run = collections_run_drop,
};

static int run_rename(struct cli *cli)
{
    const char *from = cli->arguments[0], *to = cli->arguments[1];
    bson_error_t error;
    truce_status status = truce__collection_check_unused(cli->store, from, &error);

    if (!status)
        status = truce__collection_check_unused(cli->store, to, &error);
    if (!status)
        status = truce_collection_rename(cli->store, from, to, cli_flag(cli, "replace"), &error);
    return collections_print_result(cli, "renamed", to, status, &error);
}

static const struct cli_command cli_collections_rename = {
    .noun = "collections",
    .verb = "rename",
    .arguments = "COLLECTION NAME",
    .summary = "rename a collection",
    .help = "A collection that belongs to a ledger, a set, a tree, a rule of copies, or a book of\n"
            "transfers cannot be renamed: the pattern finds it by its name.",
    .example = "truce collections create students\n"
               "truce collections rename students students_2024",
    .options =
        (const struct cli_option[]){
            {"replace", 0, NULL, "first drop a collection that has the new name", false}, {0}},
    .store = CLI_STORE_CHANGE,
    .run = run_rename,
};

cli_command_list cli_collections_commands = {&cli_collections_list, &cli_collections_create,
                                             &cli_collections_drop, &cli_collections_rename, NULL};
