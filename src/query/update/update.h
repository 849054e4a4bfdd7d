#ifndef TRUCE_QUERY_UPDATE_UPDATE_H
#define TRUCE_QUERY_UPDATE_UPDATE_H

/* Updates: operators, a replacement, or a pipeline; compiled once, applied to many documents. */
#include "query/match/match.h"

struct update;

struct update_options {
    /* `update` is an array of stages. */
    bool pipeline;
    /* The update applies to several documents, so a replacement is refused. */
    bool multi;
    /* The option arrayFilters, an array of conditions, or NULL. */
    const bson_t *array_filters;
    /* `update` and `array_filters` outlive the compiled update, so they are not copied. */
    bool borrows;
};

/* Compiles `update`, which has been checked (truce__document_check). It is copied unless
 * options->borrows is set; NULL options are all defaults. Supports MongoDB's operators as of 5.0,
 * and $update, which changes the items of an array that a query finds: {$update: {badges: {$query:
 * {type: "X"}, $set: {date: null}}}}. Refuses with MongoDB's codes: 9 and 2 (malformed), 40 (two
 * operators on one path), 56 (an empty name). Several threads may apply the update at once. */
truce_status truce__update_new(const bson_t *update, const struct update_options *options,
                               struct update **made, bson_error_t *error);
void truce__update_free(struct update *update);
bool truce__update_is_replacement(const struct update *update);
/* Returns whether an update that is not a pipeline has operators. Otherwise it is a replacement. */
bool truce__update_has_operators(const bson_t *update);

struct update_result {
    /* If false, `after` equals `before` byte by byte. The flag may be true for equal bytes, as in
     * MongoDB ($inc of a NaN, $push with $sort, a replacement without `_id`). */
    bool modified;
    /* The array items that $update's queries matched, and the items that changed. */
    int64_t items_matched;
    int64_t items_modified;
};

/* Applies the update to `before`, which a query found with `found` (for the positional operator;
 * may be NULL). `after` is always initialized; the caller destroys it. `_id` never changes (66).
 * Other errors: 28 (a path that cannot be made), 14 and 2 (a value of the wrong type), 40 (paths
 * that collide in this document), 15 (nested too deep), 10334 (too large). context->arena holds
 * temporary data. */
truce_status truce__update_apply(const struct update *update, const bson_t *before,
                                 const struct match_result *found, struct query_context *context,
                                 bson_t *after, struct update_result *result, bson_error_t *error);

/* Makes the document that an upsert inserts: the filter's equalities, then the update with
 * $setOnInsert; `_id` first, a new ObjectId if neither has one. */
truce_status truce__update_insert(const struct update *update, const struct match *match,
                                  struct query_context *context, bson_t *document,
                                  bson_error_t *error);

#endif
