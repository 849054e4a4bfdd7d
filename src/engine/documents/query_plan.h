#ifndef TRUCE_ENGINE_DOCUMENTS_QUERY_PLAN_H
#define TRUCE_ENGINE_DOCUMENTS_QUERY_PLAN_H

/*
 * A plan: which entries of which tables to examine in order to see every document that can match.
 * The filter is tested on each document that a plan finds. A plan may therefore find too many
 * documents, but never too few, and never decides the result.
 */
#include "base/limits.h"
#include "engine/catalog.h"
#include "engine/documents/index_bounds.h"
#include "query/match/match.h"
#include "query/sort/sort.h"

/* Keys from `from` up to `to`, exclusive, as bytes. An empty `to` means the end. */
struct key_range {
    struct buffer from, to;
};

/* Ranges of one index, or all rows of the collection. */
struct plan_scan {
    /* The id of the index; 0 means the rows. */
    int64_t index;
    bool backward;
    uint32_t count;
    /* Ascending and disjoint; none if `index` is 0. */
    struct key_range *ranges;
    /* The ranges in the form of MongoDB's explain, or NULL if it is not requested. */
    bson_t *bounds;
};

struct plan {
    uint32_t count;
    /* The scans, one after the other: the result is their union. None: nothing can match. */
    struct plan_scan *scans;
    /* Several entries may lead to the same document. */
    bool repeats;
    /* Documents come in the requested order. */
    bool sorted;
    /* Each entry belongs to one document, and it matches: no document need be read. */
    bool covered;
};

enum plan_goal {
    PLAN_DOCUMENTS,
    /* Only the number of matches is requested, neither their order nor the documents. */
    PLAN_COUNT,
    /* The order of the sort if an index gives it; otherwise the caller sorts the documents. */
    PLAN_IF_SORTED,
};

struct plan_request {
    const struct collection *collection;
    const struct match *match;
    /* NULL or empty: none. */
    const bson_t *sort, *hint;
    /* The part of the hint's index (index_span.h), in its order. */
    const bson_t *min, *max;
    enum plan_goal goal;
    /* Without a sort: from the far end of the index. */
    bool backward;
    /* Also makes the bounds of the scans for explain. */
    bool shows;
};

/* Makes a plan. Fails with CODE_BAD_VALUE if there is no index for the hint. The caller releases
 * the plan, also on failure. */
truce_status truce__plan_make(const struct plan_request *request, struct plan *plan,
                              bson_error_t *error);
void truce__plan_release(struct plan *plan);

/* Returns the ready index that a hint names, or NULL if it names none. Fails with
 * CODE_BAD_VALUE. */
truce_status truce__plan_hinted(const struct collection *collection, const bson_t *hint,
                                const struct index **index, bson_error_t *error);

/* ---- for query_plan.c ------------------------------------------------------------------------ */

/* A condition of the filter. All conditions must hold. */
struct condition {
    /* Dotted, from the document; owned. */
    char *path;
    const struct match_node *node;
    /* The innermost $elemMatch of which the condition is about an own field; NULL if none
     * exists. */
    const struct match_node *element;
    /* The number of the path's parts. */
    uint32_t number;
    /* A part is a number. */
    bool numbered;
    /* Bounds are useful. */
    bool bounded;
    struct bounds bounds;
};

struct conditions {
    struct condition *items;
    uint32_t count, room;
};

/* How one index would serve a filter and a sort. */
struct candidate {
    const struct index *index;
    /* 0 means not at all. */
    int64_t score;
    /* The number of bounded fields, from the first on. */
    uint32_t fields;
    /* The number of them that are one point each, from the first on. */
    uint32_t single;
    /* Every field is one point: one key. */
    bool complete;
    bool sorted, backward;
    struct bounds bounds[TRUCE_INDEX_FIELDS_MAX];
    /* The path before each key of a wildcard index. */
    struct buffer path;
};

/* ---- index_only_count.c ---------------------------------------------------------------------- */

/* Returns whether everything within the bounds of the condition matches it, provided that the index
 * has one key for each document. */
bool truce__plan_is_exact(const struct match_node *condition);

/* Returns whether the bounds of the candidate's fields express the whole filter, so that its
 * entries alone give the number of matching documents. */
bool truce__plan_covers(const struct candidate *candidate, const struct conditions *conditions,
                        const struct match_node *root);

#endif
