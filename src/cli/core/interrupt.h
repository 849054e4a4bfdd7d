#ifndef TRUCE_CLI_CORE_INTERRUPT_H
#define TRUCE_CLI_CORE_INTERRUPT_H

/*
 * Ctrl-C: the first ends what runs on the store as truce_interrupt does, so that the command says how far
 * it came, closes the store and exits with CLI_INTERRUPTED. The second kills the process.
 */
#include "cli/core/cli.h"

#define CLI_INTERRUPTED 130 /* as a shell says it of a process that SIGINT ended */

/* From now on it is so for this store, until it is closed. */
void cli_interrupt_watch(truce_store *store);
/* Before stores are closed, and before a command makes processes of its own. */
void cli_interrupt_forget(void);
/* `code`, or CLI_INTERRUPTED. */
int cli_interrupt_code(int code);

#endif
