#ifndef TRUCE_ENGINE_DOCUMENTS_SCAN_H
#define TRUCE_ENGINE_DOCUMENTS_SCAN_H

/*
 * Runs a plan: brings the documents that match, one by one, on a connection that is in a snapshot
 * or a write transaction. It can pause, and go on in a later snapshot behind the last entry that it
 * looked at.
 */
#include "engine/documents/plan.h"

#define SCAN_STEPS_OF_ENTRY 16 /* of the budget */

/* Row numbers that were seen, 64 neighbours in a slot: open addressing. A slot without rows is
 * free. */
struct row_slot {
    int64_t rows_from; /* a multiple of 64 */
    uint64_t seen;     /* bit n: row `rows_from` + n */
};

struct row_set {
    struct row_slot *slots;
    uint32_t count, room;
};

struct scan {
    const struct plan *plan;
    const struct match *match;
    struct query_context *context; /* its arena is reset for each document */
    int64_t table;                 /* of the documents */
    int64_t keys_examined, documents_examined;

    /* where it is */
    uint32_t at, range; /* number of the scan in the plan; of its range, counted as it goes */
    bool positioned;    /* behind (key, row) of that range, not at its beginning */
    struct buffer key;
    int64_t row;
    struct kv_cursor cursor;
    struct row_set seen;
};

struct found {
    int64_t row;
    struct value document; /* borrowed until the next call on the connection */
    struct match_result match;
};

/* plan, match and context are borrowed as long as the scan lives. */
void truce__scan_init(struct scan *scan, const struct plan *plan, int64_t table,
                      const struct match *match, struct query_context *context);
void truce__scan_release(struct scan *scan);

/* The next document that matches; NOT_FOUND at the end. After `examined_max` entries (0: no end)
 * without a match it answers OK with found->row 0. TIMEOUT: the context's budget is over. */
truce_status truce__scan_next(struct scan *scan, struct kv *kv, int64_t examined_max,
                              struct found *found, bson_error_t *error);

/* Takes what was found, borrowed for the call, without a call on the connection; false: enough. */
typedef bool scan_take_function(const struct found *found, void *arg);

/* All that match, to `take`, until it has enough or `examined_max` entries were looked at;
 * NOT_FOUND at the end. */
truce_status truce__scan_each(struct scan *scan, struct kv *kv, int64_t examined_max,
                              scan_take_function *take, void *arg, bson_error_t *error);

/* Does it go over all rows, in their order, and nothing else? */
bool truce__scan_is_of_rows(const struct plan *plan);

/* Those rows behind the scan's own, up to row `upto`, of whatever plan: what matches to `take`,
 * until it has enough. The first row behind `upto` is told if there is one, else `*beyond` is 0. */
truce_status truce__scan_rows(struct scan *scan, struct kv *kv, int64_t upto,
                              scan_take_function *take, void *arg, int64_t *beyond,
                              bson_error_t *error);

/* Before the snapshot or transaction ends. */
void truce__scan_pause(struct scan *scan);

#endif
