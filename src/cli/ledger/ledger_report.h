#ifndef TRUCE_CLI_LEDGER_LEDGER_REPORT_H
#define TRUCE_CLI_LEDGER_LEDGER_REPORT_H

/* The data of truce ledger report. ledger_report.c prints, ledger_chart.c draws. */
#include "cli/ledger/ledger.h"

/* A row of the reply: the change of an account, or of all accounts below a name, in one group and
 * one currency. */
struct report_cell {
    const char *group, *account, *currency;
    int digits;
    int64_t change, balance; /* `balance` includes all earlier groups. */
};

struct report {
    struct cli *cli;
    bool periods;              /* false: the groups are values of the metadata. */
    struct report_cell *cells; /* In the order of groups, accounts, and currencies. */
    uint32_t count;
};

#define REPORT_LINES_MAX 12 /* The lines of a chart. */

/* Draws an SVG picture, the same bytes for the same book. Fails with INVALID if there are several
 * currencies, and with LIMIT if there are too many accounts. */
truce_status report_draw(const struct report *report, struct buffer *out, bson_error_t *error);

#endif
