#ifndef TRUCE_CLI_DEMO_DEMO_H
#define TRUCE_CLI_DEMO_DEMO_H

/* The stories of `truce demo`: each shows the usual way going wrong, then truce, and checks the
 * result by itself. A story returns its exit code: not CLI_DONE if truce's result is not all right. */
#include "cli/core/cli.h"

int demo_enrolments(struct cli *cli);
int demo_badges(struct cli *cli);
int demo_post(struct cli *cli);
int demo_keys(struct cli *cli);
int demo_friends(struct cli *cli);
int demo_bank(struct cli *cli);
int demo_transfer(struct cli *cli);
int demo_rename(struct cli *cli);
int demo_tree(struct cli *cli);

#endif
