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

/* The keys from `from` up to `to`, exclusive, as bytes. If `to` is empty, the range has no end. */
struct key_range {
    struct buffer from, to;
};

/* The ranges of one index, or all rows of the collection. */
struct plan_scan {
    /* The id of the index, or 0 for all rows. */
    int64_t index;
    bool backward;
    uint32_t count;
    /* The ranges, which are ascending and disjoint. Without an index, there are no ranges. */
    struct key_range *ranges;
    /* The ranges as MongoDB's explain shows them, or NULL if they are not requested. */
    bson_t *bounds;
};

struct plan {
    uint32_t count;
    /* The scans, which run one after the other. The result is their union. A plan without scans
     * matches no document. */
    struct plan_scan *scans;
    /* Whether several entries may lead to the same document. */
    bool repeats;
    /* Whether documents come in the requested order. */
    bool sorted;
    /* Whether each entry belongs to one document that matches, so that no document need be read. */
    bool covered;
};

enum plan_goal {
    PLAN_DOCUMENTS,
    /* Only the number of matches is requested, and neither their order nor the documents. */
    PLAN_COUNT,
    /* The order of the sort is requested only if an index gives it. Otherwise the caller sorts the
     * documents. */
    PLAN_IF_SORTED,
};

struct plan_request {
    const struct collection *collection;
    const struct match *match;
    /* The sort and the hint. Each may be NULL or empty. */
    const bson_t *sort, *hint;
    /* The limits of a part of the hint's index (index_span.h), which is read in the order of the
     * index. Each may be NULL. */
    const bson_t *min, *max;
    enum plan_goal goal;
    /* Whether a query without a sort reads the index from its end. */
    bool backward;
    /* Whether to compute the bounds of the scans for explain. */
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

/* A condition of the filter. A document matches only if all conditions hold. */
struct condition {
    /* The path from the document, with dots. Owned. */
    char *path;
    const struct match_node *node;
    /* The innermost $elemMatch that contains the condition, if the condition is about a field of
     * its own, or NULL. */
    const struct match_node *element;
    /* Whether a part of the path is a number. */
    bool numbered;
    /* Whether the condition has bounds. */
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
    /* The score, or 0 if the index cannot serve the query. */
    int64_t score;
    /* The number of bounded fields, counted from the first field. */
    uint32_t fields;
    /* The number of fields that are one point each, counted from the first field. */
    uint32_t single;
    /* Whether every field is one point, so that the scan has one key. */
    bool complete;
    bool sorted, backward;
    struct bounds bounds[TRUCE_INDEX_FIELDS_MAX];
    /* The path that begins each key of a wildcard index. */
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
