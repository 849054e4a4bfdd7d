#ifndef TRUCE_CLI_CORE_INTERRUPT_H
#define TRUCE_CLI_CORE_INTERRUPT_H

/* Ctrl-C. The first interrupts the calls to the store, as truce_interrupt does: the command reports
 * its progress, closes the store, and exits with CLI_INTERRUPTED. The second kills the process. */
#include <stdatomic.h>

#include "cli/core/cli.h"

#define CLI_INTERRUPTED 130 /* The exit code that a shell gives a process that SIGINT ended. */

/* Interrupts calls to this store on Ctrl-C until cli_interrupt_forget. At most two stores are
 * watched; others are ignored. */
void cli_interrupt_watch(truce_store *store);
/* Forgets all stores. Call it before stores are closed, and before a command starts processes. */
void cli_interrupt_forget(void);
/* Makes SIGTERM and Ctrl-C set the returned flag instead of interrupting calls: the command ends
 * after its current work. The second signal kills the process. Sleeping threads wake. */
const atomic_int *cli_interrupt_stop(void);
/* Returns `code`, or CLI_INTERRUPTED if Ctrl-C was pressed. */
int cli_interrupt_code(int code);

#endif
