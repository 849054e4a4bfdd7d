#ifndef TRUCE_CLI_LEDGER_LEDGER_H
#define TRUCE_CLI_LEDGER_LEDGER_H

/* Helpers of the commands of `truce ledger` (ledger.c). */
#include "cli/core/cli.h"

#define LEDGER_AMOUNT_WIDTH 14

/* Reads the digits of the account's currency. Returns CLI_DONE, or the exit code after printing the
 * error. */
int cli_ledger_digits(struct cli *cli, const char *account, int *digits);
/* Does the same, and returns the code of the account's currency. */
int cli_ledger_account_digits(struct cli *cli, const char *account, char currency[25], int *digits);
/* Reads the digits of a currency. */
int cli_ledger_currency_digits(struct cli *cli, const char *currency, int *digits);
/* Appends an amount: unchanged with --json, else padded so that columns line up. */
void cli_ledger_amount(const struct cli *cli, const char *field, int64_t value, int digits,
                       bson_t *document);
/* Prints lists as tables, unless documents are asked for. */
void cli_ledger_table(const struct cli *cli);

#endif
