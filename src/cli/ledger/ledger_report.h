#ifndef TRUCE_CLI_LEDGER_LEDGER_REPORT_H
#define TRUCE_CLI_LEDGER_LEDGER_REPORT_H

/* The data of truce ledger report. ledger_report.c prints them, and ledger_chart.c draws them. */
#include "cli/ledger/ledger.h"

/* A row of the reply: the change of an account, or of all accounts below a name, in one group and
 * one currency. */
struct report_cell {
    const char *group, *account, *currency;
    int digits;
    /* The change in this group, and the balance at its end. */
    int64_t change, balance;
};

struct report {
    struct cli *cli;
    /* The groups are periods. Otherwise they are values of the metadata. */
    bool periods;
    /* The rows, in the order of groups, accounts, and currencies. */
    struct report_cell *cells;
    uint32_t count;
};

#define REPORT_LINES_MAX 12 /* The maximum number of lines in a chart. */

/* Draws an SVG picture, the same bytes for the same book. Fails with INVALID if there are several
 * currencies, and with LIMIT if there are too many accounts. */
truce_status report_draw(const struct report *report, struct buffer *out, bson_error_t *error);

#endif
