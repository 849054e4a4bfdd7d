/* truce tree branch, merge, drop. */
#include <inttypes.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/document/doc.h"
#include "cli/tree/tree.h"

#define BRANCH_SAMPLE                                                                              \
    TREE_SAMPLE "truce tree branch site draft\n"                                                   \
                "echo '{\"itemId\": \"jobs\", \"up\": \"home\"}' | truce tree publish draft\n"

/* ---- branch ------------------------------------------------------------------------------------ */

static int branches_run_branch(struct cli *cli)
{
    truce_tree *tree;
    truce_tree_at at;
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status;

    if (!cli_tree_at(cli, &at))
        return CLI_USAGE;
    tree = cli_tree_open(cli);
    status = truce_tree_branch(tree, &at, cli->arguments[1], &error);
    truce_tree_free(tree);
    BSON_APPEND_UTF8(&answer, "branch", cli->arguments[1]);
    if (!status)
        cli_answer(cli, &answer, "%s is a branch of %s", cli->arguments[1], cli->arguments[0]);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_branch = {
    .noun = "tree",
    .verb = "branch",
    .arguments = "TREE NAME",
    .summary = "begin a tree of its own as a version of another one",
    .help =
        "It is published to, read, kept and branched as any tree, and merged with the one it came\n"
        "from, either way, by `truce tree merge`. Its items are copied.",
    .example = TREE_SAMPLE "truce tree branch site draft",
    .options = (const struct cli_option[]){TREE_AT_OPTIONS, {0}},
    .store = CLI_STORE_CHANGE,
    .run = branches_run_branch,
};

/* ---- merge ------------------------------------------------------------------------------------- */

static int answer_merged(struct cli *cli, const truce_tree_published *published)
{
    bson_t answer = BSON_INITIALIZER;

    BSON_APPEND_INT64(&answer, "version", published->version);
    BSON_APPEND_BOOL(&answer, "published", !published->nothing);
    if (published->nothing)
        cli_answer(cli, &answer, "nothing to merge; version %" PRId64 " of %s stands",
                   published->version, cli->arguments[0]);
    else
        cli_answer(cli, &answer, "version %" PRId64 " of %s has what %s has changed",
                   published->version, cli->arguments[0], cli->arguments[1]);
    bson_destroy(&answer);
    return cli_output_end(CLI_DONE);
}

static int branches_merge(struct cli *cli, const bson_t *rules)
{
    truce_tree_merge_options options = {.how = {.rules = rules, .conflict = cli_tree_conflict},
                                        .message = cli_text(cli, "message"),
                                        .author = cli_text(cli, "author")};
    truce_tree_published published;
    truce_tree *tree;
    bson_error_t error;
    truce_status status;

    if (!cli_tree_prefer(cli, &options.how.prefer))
        return CLI_USAGE;
    tree = cli_tree_open(cli);
    status = truce_tree_merge(tree, cli->arguments[1], &options, &published, NULL, &error);
    truce_tree_free(tree);
    return status ? cli_error(cli, NULL, status, &error) : answer_merged(cli, &published);
}

static int branches_run_merge(struct cli *cli)
{
    bson_t rules;
    bool given;
    int code = CLI_USAGE;

    if (cli_option_document(cli, "rules", &rules, &given))
        code = branches_merge(cli, given ? &rules : NULL);
    bson_destroy(&rules);
    return code;
}

const struct cli_command cli_tree_merge = {
    .noun = "tree",
    .verb = "merge",
    .arguments = "TREE OTHER",
    .summary = "publish in a tree what OTHER, its branch or its origin, has changed",
    .help =
        "Since the two were merged last. Items that both changed are merged; those that cannot be\n"
        "are printed, nothing is published, and the exit code is 1.",
    .example = BRANCH_SAMPLE "truce tree merge site draft",
    .options =
        (const struct cli_option[]){
            {"prefer", 0, "SIDE", "mine (TREE's) or theirs, where both changed the same", false},
            {"rules", 'r', "DOCUMENT", "policies of merges: {\"views\": \"sum\"}", false},
            {"message", 'm', "TEXT", "for the log", false},
            {"author", 0, "TEXT", "for the log", false},
            {0}},
    .store = CLI_STORE_CHANGE,
    .run = branches_run_merge,
};

/* ---- drop -------------------------------------------------------------------------------------- */

static int branches_run_drop(struct cli *cli)
{
    truce_tree *tree = cli_tree_open(cli);
    bson_t answer = BSON_INITIALIZER;
    bson_error_t error;
    truce_status status = truce_tree_drop(tree, &error);

    truce_tree_free(tree);
    BSON_APPEND_UTF8(&answer, "dropped", cli->arguments[0]);
    if (!status)
        cli_answer(cli, &answer, "dropped %s", cli->arguments[0]);
    bson_destroy(&answer);
    return status ? cli_error(cli, NULL, status, &error) : cli_output_end(CLI_DONE);
}

const struct cli_command cli_tree_drop = {
    .noun = "tree",
    .verb = "drop",
    .arguments = "TREE",
    .summary = "remove a tree, or a branch, with all its versions",
    .help = "Its items, its log and its tags go, for ever. A tree that has branches is refused.",
    .example = TREE_SAMPLE "truce tree branch site draft\n"
                           "truce tree drop draft",
    .store = CLI_STORE_CHANGE,
    .run = branches_run_drop,
};
