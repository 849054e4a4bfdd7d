#ifndef TRUCE_CLI_LEDGER_LEDGER_H
#define TRUCE_CLI_LEDGER_LEDGER_H

/* Helpers of the commands of `truce ledger` (ledger.c). */
#include "cli/core/cli.h"

#define LEDGER_AMOUNT_WIDTH 14

truce_ledger *cli_ledger_new(const struct cli *cli);
/* Reads the digits of the account's currency. Returns CLI_DONE, or the exit code after printing the
 * error. */
int cli_ledger_digits(struct cli *cli, const char *account, int *digits);
/* Appends an amount: unchanged with --json, else padded so that columns line up. */
void cli_ledger_amount(const struct cli *cli, const char *field, int64_t value, int digits,
                       bson_t *document);
/* Prints lists as tables, unless documents are asked for. */
void cli_ledger_table(const struct cli *cli);

#endif
