#ifndef TRUCE_ENGINE_PLAN_H
#define TRUCE_ENGINE_PLAN_H

/*
 * A plan: which entries of which tables to look at so as to see every document that can match. The
 * filter is tested on each document that a plan brings, so a plan may bring too many, never too
 * few.
 */
#include "engine/catalog.h"
#include "query/match.h"

/* Keys from `from` to, but without, `to`, as bytes; an empty `to`: to the end. */
struct key_range {
    struct buffer from, to;
};

/* Ranges of one index, or all rows of the collection. */
struct plan_scan {
    int64_t index; /* id; 0: the rows */
    bool backward;
    bool repeats; /* may bring a document more than once */
    uint32_t count;
    struct key_range *ranges; /* ascending, apart from each other; none where index is 0 */
};

struct plan {
    uint32_t count;
    struct plan_scan *scans; /* one after the other: the union of what they bring. None: nothing
                                can match */
    bool repeats;            /* a document may come more than once */
    bool sorted;             /* documents come in the order that was asked for */
};

struct plan_request {
    const struct collection *collection;
    const struct match *match;
    const bson_t *sort, *hint; /* NULL or empty: none */
};

/* CODE_BAD_VALUE: there is no index for the hint. Released by the caller, also on failure. */
truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error);
void truce__plan_release(struct plan *plan);

/* 1 or -1 for {$natural: 1 or -1}, else 0; NULL is allowed. */
int truce__plan_natural(const bson_t *specification);

#endif
