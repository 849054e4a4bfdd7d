#ifndef TRUCE_SIM_VERIFY_H
#define TRUCE_SIM_VERIFY_H

/*
 * Checks whether the transactions of a history were strictly serializable, on any store.
 *
 * A history is a list of transactions, one document each, in any order:
 *
 *     {process: 3, begin: 17, end: 25, status: "ok",
 *      ops: [["append", "x", 5], ["r", "x", [1, 5]], ["w", "y", 3], ["r", "y", null]]}
 *
 *     process  the number of the process, whose transactions do not overlap
 *     begin    a number from a clock that all processes share, like `end`: if a.end < b.begin, a
 *              comes before b
 *     status   "ok": committed; "fail": not committed; "unknown": may take effect at any later time
 *     ops      append: adds a value to a list; w: writes a value to a register; r: the list or
 *              value that was read, or null. A value is an integer, and occurs once for each key.
 *              A key is a list or a register, not both.
 *
 * A list shows the order of its versions. For lists, the checker builds a graph of dependencies and
 * searches it for cycles (Adya 1999; Kingsbury and Alvaro, Elle, 2020). Registers do not show the
 * order. With them, it searches for an order of all transactions that explains the reads (Wing and
 * Gong 1993, Lowe 2017).
 *
 * One thread at a time.
 */
#include "base/buffer.h"
#include "base/status.h"

struct verify;

/* An anomaly that was found. */
struct verify_anomaly {
    /* "G0", "G1a", "G1b", "G1c", "G-single", "G2-item" (each cycle also with "-realtime"),
     * "internal", "duplicate", "incompatible-order", "lost-append", or "not-linearizable". */
    const char *name;
    /* The description, with the numbers of the transactions and the cycle. */
    const char *text;
};

typedef void verify_function(const struct verify_anomaly *anomaly, void *arg);

struct verify *truce__verify_new(void);
void truce__verify_free(struct verify *verify);

/* Adds a copy of a transaction. Transactions are numbered from 0 in this order. Returns INVALID
 * if the document does not have the form above. */
truce_status truce__verify_add(struct verify *verify, const bson_t *transaction,
                               bson_error_t *error);

uint32_t truce__verify_count(const struct verify *verify);

/* Reports each anomaly to `function` and returns their number. A search that exceeds its limit is
 * reported as one anomaly ("undecided"). */
int truce__verify_run(struct verify *verify, verify_function *function, void *arg);

/* Draws a small part of the history that has an anomaly of this name, one line for each
 * transaction, and appends it to `out`. No single transaction can be left out of the part, unless
 * the search for it was too long. Values of other transactions are left out of what was read.
 * Returns the number of transactions. */
uint32_t truce__verify_draw(const struct verify *verify, const char *name, struct buffer *out);

#endif
