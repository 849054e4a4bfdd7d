#ifndef TRUCE_CLI_CORE_SLOW_OPTION_H
#define TRUCE_CLI_CORE_SLOW_OPTION_H

/* Prints slow calls to the store: --slow, or TRUCE_SLOW. */
#include "cli/core/cli.h"

/* Reads both. If a value is not a number, prints the error and returns CLI_USAGE. */
int cli_slow_read(struct cli *cli);
/* Returns the hooks for a store that the command opens. */
truce_store_hooks cli_slow_hooks(const struct cli *cli);

#endif
