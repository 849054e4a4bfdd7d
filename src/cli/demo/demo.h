#ifndef TRUCE_CLI_DEMO_DEMO_H
#define TRUCE_CLI_DEMO_DEMO_H

/* The stories of `truce demo`. Each shows how the usual code fails and how truce behaves, and
 * checks the result. A story returns its exit code, which is not CLI_DONE if truce's result is
 * wrong. */
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
int demo_broker(struct cli *cli);

#endif
