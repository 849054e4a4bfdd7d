#ifndef TRUCE_CLI_CORE_SLOW_H
#define TRUCE_CLI_CORE_SLOW_H

/* Calls to the store that took long, for who looks for them: --slow MS, or TRUCE_SLOW_MS. */
#include "cli/core/cli.h"

/* Reads both; CLI_USAGE: no number, which was said. */
int cli_slow_read(struct cli *cli);
/* For every store that the command opens. */
truce_store_hooks cli_slow_hooks(const struct cli *cli);

#endif
