#ifndef TRUCE_CLI_TREE_TREE_H
#define TRUCE_CLI_TREE_TREE_H

/* What the commands of `truce tree` share. */
#include "cli/core/cli.h"

#define TREE_SAMPLE                                                                                \
    "printf '%s\\n' '{\"itemId\": \"home\"}' '{\"itemId\": \"about\", \"up\": \"home\"}' |\n"      \
    "    truce tree publish site --collection pages --parent up\n"

#define TREE_AT_OPTIONS                                                                            \
    {"version", 0, "N", "that version", false}, {"tag", 0, "NAME", "the version of a tag", false}, \
        {"at", 0, "TIME", "the version that was current then: 2026-11-23T09:00:00Z", false},       \
    {                                                                                              \
        "token", 0, "TOKEN", "the version of a token, which --print-token printed", false          \
    }

/* False: the options are wrong, and it was said. */
bool cli_tree_at(const struct cli *cli, truce_tree_at *at);
bool cli_tree_prefer(const struct cli *cli, truce_tree_prefer *prefer);
/* Prints it. */
void cli_tree_conflict(const truce_tree_conflict *conflict, void *arg);
/* Of a status; "": it is no branch. Borrowed. */
const char *cli_tree_origin(const bson_t *told);
/* Of the first argument; --collection and --parent where the command has them. */
truce_tree *cli_tree_open(const struct cli *cli);

#endif
