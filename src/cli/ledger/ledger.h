#ifndef TRUCE_CLI_LEDGER_LEDGER_H
#define TRUCE_CLI_LEDGER_LEDGER_H

/* What the commands of the noun `ledger` share (ledger.c). */
#include "cli/core/cli.h"

#define LEDGER_AMOUNT_WIDTH 14

truce_ledger *cli_ledger_new(const struct cli *cli);
/* The digits of the account's currency; CLI_DONE, or the exit code with the error printed. */
int cli_ledger_digits(const struct cli *cli, truce_ledger *ledger, const char *account,
                      int *digits);
/* An amount as it is shown: with --json as it is, else so wide that columns line up. */
void cli_ledger_amount(const struct cli *cli, const char *field, int64_t value, int digits,
                       bson_t *document);
/* Lists are tables, unless they are asked for as documents. */
void cli_ledger_table(const struct cli *cli);

#endif
