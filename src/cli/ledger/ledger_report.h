#ifndef TRUCE_CLI_LEDGER_LEDGER_REPORT_H
#define TRUCE_CLI_LEDGER_LEDGER_REPORT_H

/* The parts of truce ledger report: ledger_report.c adds up and prints, ledger_chart.c draws. */
#include "cli/ledger/ledger.h"

/* What changed on an account, or on those whose names begin so, in one group, in one currency. */
struct report_cell {
    char *group, *account, *currency;
    int64_t change, balance; /* balance: with all groups before it */
};

struct report {
    struct cli *cli;
    truce_ledger *ledger;
    const char *by, *path; /* path: of the metadata; NULL: groups are periods */
    int64_t depth;
    struct report_cell *cells; /* in the order of groups, accounts and currencies */
    uint32_t *slots;           /* by name: number of the cell + 1; 0: none */
    uint32_t count, room;
    truce_status status;
    bson_error_t error;
};

#define REPORT_LINES_MAX 12 /* of a chart */

/* An SVG picture, the same bytes for the same book. INVALID: there are several currencies; LIMIT: too many accounts. */
truce_status report_draw(const struct report *report, struct buffer *out, bson_error_t *error);

#endif
