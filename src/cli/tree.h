#ifndef TRUCE_CLI_TREE_H
#define TRUCE_CLI_TREE_H

/* What the commands of `truce tree` share. */
#include "cli/cli.h"

#define TREE_SAMPLE                                                                                \
    "printf '%s\\n' '{\"itemId\": \"home\"}' '{\"itemId\": \"about\", \"up\": \"home\"}' |\n"      \
    "    truce tree publish site --collection pages --parent up\n"

/* Of the first argument; --collection and --parent where the command has them. */
truce_tree *cli_tree_open(const struct cli *cli);

#endif
