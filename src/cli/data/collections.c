/* truce collections list, create, drop, rename. */
#include "base/field.h"
#include "cli/commands.h"
#include "cli/core/cli.h"
#include "cli/core/plain_output.h"
#include "store/reserved_names.h"

#include <inttypes.h>
#include <string.h>

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

/* Prints the answer of a command that changed a collection: {"created": name} */
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

/* Returns whether `id` is the name of a set of the collection: "students.classes". */
static bool is_set_of(const char *id, const char *collection)
{
    size_t size = strlen(collection);

    return !strncmp(id, collection, size) && id[size] == '.' && id[size + 1] &&
           !strchr(id + size + 1, '.');
}

/* The collections in which patterns store what names another collection. */
static const struct pattern_use {
    const char *records, *field, *what;
} pattern_uses[] = {
    {LEDGERS, "_id", "a ledger"},
    {LEDGERS, "slots", "the numbers of ledger"},
    {SET_DEFINITIONS, "_id", "the set"},
    {TREES, "collection", "the items of tree"},
    {SYNC_RULES, "source", "the sources of rule"},
    {SYNC_RULES, "dependent", "the copies of rule"},
    {TRANSFERS, "_id", "a book of transfers"},
    {TRANSFERS, "accounts", "the accounts of transfers"},
};

/* Finds the name under which a pattern uses the collection; "": none does. */
static truce_status collections_find_use(truce_store *store, const struct pattern_use *use,
                                         const char *collection, char name[CLI_SAID_MAX],
                                         bson_error_t *error)
{
    bson_t all = BSON_INITIALIZER;
    truce_cursor *cursor = NULL;
    const bson_t *record = NULL;
    truce_status status = truce_find(store, use->records, &all, NULL, &cursor, error);

    *name = 0;
    while (!status && !*name && !(status = truce_cursor_next(cursor, &record, error)) && record) {
        const char *found = truce__field_text(record, use->field);

        if (!strcmp(use->records, SET_DEFINITIONS) ? is_set_of(found, collection)
                                                   : !strcmp(found, collection))
            snprintf(name, CLI_SAID_MAX, "%s", truce__field_text(record, "_id"));
    }
    truce_cursor_close(cursor);
    bson_destroy(&all);
    return status;
}

/* Refuses a collection that a pattern uses. Its records would still have the former name: reads
 * would find nothing, and the next write would begin an empty collection. */
static int check_unused(const struct cli *cli, const char *collection)
{
    char name[CLI_SAID_MAX];
    bson_error_t error;

    if (truce__reserved(collection))
        return cli_usage(cli, "%s is reserved for truce: it cannot be renamed or replaced",
                         collection);
    for (size_t i = 0; i < sizeof pattern_uses / sizeof *pattern_uses; i++) {
        const struct pattern_use *use = &pattern_uses[i];
        truce_status status = collections_find_use(cli->store, use, collection, name, &error);

        if (status)
            return cli_error(cli, NULL, status, &error);
        if (*name)
            return cli_usage(cli,
                             "%s has %s \"%s\", which would not find it under another name: export "
                             "and import its contents, or remove the pattern's record first",
                             collection, use->what, name);
    }
    return CLI_DONE;
}

static int run_rename(struct cli *cli)
{
    bson_error_t error;
    int code = check_unused(cli, cli->arguments[0]);

    if (!code)
        code = check_unused(cli, cli->arguments[1]);
    if (code)
        return code;
    return collections_print_result(cli, "renamed", cli->arguments[1],
                                    truce_collection_rename(cli->store, cli->arguments[0],
                                                            cli->arguments[1],
                                                            cli_flag(cli, "replace"), &error),
                                    &error);
}

static const struct cli_command cli_collections_rename = {
    .noun = "collections",
    .verb = "rename",
    .arguments = "COLLECTION NAME",
    .summary = "rename a collection",
    .help = "A collection of a ledger, a set, a tree, a rule of copies, or a book of transfers\n"
            "cannot be renamed: the pattern would not find it.",
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
