#ifndef TRUCE_ENGINE_DOCUMENTS_SCAN_H
#define TRUCE_ENGINE_DOCUMENTS_SCAN_H

/*
 * Runs a plan: returns the matching documents one by one, on a connection that is in a snapshot or
 * a write transaction. It can pause, and continue in a later snapshot after the last examined
 * entry.
 */
#include "engine/documents/query_plan.h"

/* The steps of the budget that an entry or a row takes. */
#define SCAN_STEPS_OF_ENTRY 16

/* A set of row numbers with open addressing. A slot has 64 neighboring rows. A slot without rows
 * is free. */
struct row_slot {
    /* The first row of the slot, a multiple of 64. */
    int64_t rows_from;
    /* If bit n is set, row `rows_from` + n is in the set. */
    uint64_t seen;
};

struct row_set {
    struct row_slot *slots;
    uint32_t count, room;
};

struct scan {
    const struct plan *plan;
    const struct match *match;
    /* The context of the filter. Its arena is reset for each document. */
    struct query_context *context;
    /* The row table of the documents. */
    int64_t table;
    int64_t keys_examined, documents_examined;

    /* The position of the scan: the number of the scan in the plan, and the number of its range in
     * the order of the scan. */
    uint32_t at, range;
    /* Whether the position is after (key, row) of the range. Otherwise it is at the beginning of
     * the range. */
    bool positioned;
    struct buffer key;
    int64_t row;
    struct kv_cursor cursor;
    /* The documents that were tested, if several entries may lead to one. */
    struct row_set seen;
};

struct found {
    int64_t row;
    /* The document, borrowed until the next call on the connection. */
    struct value document;
    struct match_result match;
};

/* Initializes a scan. `plan`, `match`, and `context` are borrowed and must outlive the scan. */
void truce__scan_init(struct scan *scan, const struct plan *plan, int64_t table,
                      const struct match *match, struct query_context *context);
void truce__scan_release(struct scan *scan);

/* Finds the next matching document. Returns NOT_FOUND at the end. After `examined_max` entries
 * without a match, returns OK with found->row 0; if `examined_max` is 0, there is no maximum. Fails
 * with TIMEOUT if the context's budget is exceeded. */
truce_status truce__scan_next(struct scan *scan, struct kv *kv, int64_t examined_max,
                              struct found *found, bson_error_t *error);

/* Receives a match, which is borrowed for the call. Must not call the connection. Returns false to
 * end the scan. */
typedef bool scan_take_function(const struct found *found, void *arg);

/* Passes all matches to `take`, until `take` returns false or `examined_max` entries were examined.
 * Returns NOT_FOUND at the end. */
truce_status truce__scan_each(struct scan *scan, struct kv *kv, int64_t examined_max,
                              scan_take_function *take, void *arg, bson_error_t *error);

/* Returns whether the plan is a walk over all rows in their order, and nothing else. */
static inline bool truce__scan_is_of_rows(const struct plan *plan)
{
    return plan->count == 1 && !plan->scans[0].index && !plan->scans[0].backward;
}

/* Passes the matches among the rows after the scan's position, up to row `upto`, to `take` until it
 * returns false. Ignores the plan. `*beyond` is the first row after `upto`, or 0. */
truce_status truce__scan_rows(struct scan *scan, struct kv *kv, int64_t upto,
                              scan_take_function *take, void *arg, int64_t *beyond,
                              bson_error_t *error);

/* Ends the scan's access to the snapshot; the next read resumes it. Called before the snapshot or
 * transaction ends. */
void truce__scan_pause(struct scan *scan);

#endif
