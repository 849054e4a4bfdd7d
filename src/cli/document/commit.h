#ifndef TRUCE_CLI_DOCUMENT_COMMIT_H
#define TRUCE_CLI_DOCUMENT_COMMIT_H

/* Changes in the form of `truce commit apply`: an array of {"update": COLLECTION, "id": ...} and
 * the like. */
#include "cli/core/cli.h"

/* Checks the changes. Returns CLI_DONE, or CLI_USAGE after printing the fault. */
int cli_parts_check(const struct cli *cli, const bson_t *changes);

#endif
