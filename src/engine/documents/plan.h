#ifndef TRUCE_ENGINE_DOCUMENTS_PLAN_H
#define TRUCE_ENGINE_DOCUMENTS_PLAN_H

/*
 * A plan: which entries of which tables to look at so as to see every document that can match. The
 * filter is tested on each document that a plan brings, so a plan may bring too many, never too
 * few, and never decides what the answer is.
 */
#include "base/limits.h"
#include "engine/catalog.h"
#include "engine/documents/bounds.h"
#include "query/match/match.h"
#include "query/sort/sort.h"

/* Keys from `from` to, but without, `to`, as bytes; an empty `to`: to the end. */
struct key_range {
    struct buffer from, to;
};

/* Ranges of one index, or all rows of the collection. */
struct plan_scan {
    int64_t index; /* id; 0: the rows */
    bool backward;
    uint32_t count;
    struct key_range *ranges; /* ascending, apart from each other; none where index is 0 */
    bson_t *bounds;           /* the same, as MongoDB's explain says it; NULL: nobody asked */
};

struct plan {
    uint32_t count;
    struct plan_scan *scans; /* one after the other: the union of what they bring. None: nothing
                                can match */
    bool repeats;            /* entries may lead to one document more than once */
    bool sorted;             /* documents come in the order that was asked for */
    bool covered; /* each entry stands for one document, and it matches: none need be read */
};

enum plan_goal {
    PLAN_DOCUMENTS,
    PLAN_COUNT,     /* how many match is all that is asked: neither an order nor the documents */
    PLAN_IF_SORTED, /* the sort, if an index gives it; else the caller sorts the documents */
};

struct plan_request {
    const struct collection *collection;
    const struct match *match;
    const bson_t *sort, *hint; /* NULL or empty: none */
    const bson_t *min,
        *max; /* of the hint's index (index_span.h), and what they leave in its order */
    enum plan_goal goal;
    bool backward; /* without a sort: from the far end of the index */
    bool shows;    /* bounds of the scans */
};

/* CODE_BAD_VALUE: there is no index for the hint. Released by the caller, also on failure. */
truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error);
void truce__plan_release(struct plan *plan);

/* The index that a hint asks for, ready; NULL: it asks for none. CODE_BAD_VALUE. */
truce_status truce__plan_hinted(const struct collection *collection, const bson_t *hint,
                                const struct index **index, bson_error_t *error);

/* For plan.c and plan.c ---------------------------------------------------------------- */

/* A condition of the filter: all of them must hold. */
struct condition {
    char *path; /* dotted, from the document; owned */
    const struct match_node *node;
    const struct match_node
        *element;    /* the innermost $elemMatch whose element has it as a field of its
                                         own; NULL: none */
    uint32_t number; /* of the path's parts */
    bool numbered;   /* some part is a number */
    bool bounded;    /* bounds help */
    struct bounds bounds;
};

struct conditions {
    struct condition *items;
    uint32_t count, room;
};

/* How one index would serve a filter and a sort. */
struct candidate {
    const struct index *index;
    int64_t score;   /* 0: not at all */
    uint32_t fields; /* bounded ones, from the first on */
    uint32_t single; /* of these, those that are one point each, from the first on */
    bool complete;   /* every field is one point: one key */
    bool sorted, backward;
    struct bounds bounds[TRUCE_INDEX_FIELDS_MAX];
    struct buffer path; /* of a wildcard index: the path in front of each key */
};

#endif
