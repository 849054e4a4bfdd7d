#ifndef TRUCE_CLI_DOCUMENT_COMMIT_H
#define TRUCE_CLI_DOCUMENT_COMMIT_H

/* Changes as `truce commit apply` takes them: an array of {"update": COLLECTION, "id": ...} and its kin. */
#include "cli/core/cli.h"

/* CLI_DONE, or CLI_USAGE with what is wrong printed. */
int cli_parts_check(const struct cli *cli, const bson_t *changes);

#endif
