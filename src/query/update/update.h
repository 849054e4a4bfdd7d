#ifndef TRUCE_QUERY_UPDATE_UPDATE_H
#define TRUCE_QUERY_UPDATE_UPDATE_H

/* Updates: operators, replacement or pipeline; compiled once, applied to many documents. */
#include "query/match/match.h"

struct update;

struct update_options {
    bool pipeline;               /* `update` is an array of stages */
    bool multi;                  /* a replacement is refused */
    const bson_t *array_filters; /* array of conditions, or NULL */
    bool borrows;                /* update and array_filters outlive what is compiled: no copies */
};

/* Compiles a copy of `update`, unless it borrows, which has been checked (truce__document_check). NULL options
 * are all defaults. MongoDB's operators as of 5.0, and $update, which changes the items of an
 * array that a query finds: {$update: {badges: {$query: {type: "X"}, $set: {date: null}}}}.
 * Refuses with MongoDB's codes: 9 and 2 (malformed), 40 (two operators on one path), 56 (an empty
 * name). The update may be applied from several threads at once. */
truce_status truce__update_new(const bson_t *update, const struct update_options *options,
                               struct update **made, bson_error_t *error);
void truce__update_free(struct update *update);
bool truce__update_is_replacement(const struct update *update);
/* Of what is no pipeline: without operators it is a replacement. */
bool truce__update_has_operators(const bson_t *update);

struct update_result {
    bool modified; /* false: `after` is the same bytes as before; true even if it is, where MongoDB
                    * counts so ($inc of a NaN, $push with $sort, a replacement without `_id`) */
    int64_t items_matched; /* array items that $update's queries matched, and changed */
    int64_t items_modified;
};

/* Applies to `before`, which a query found with `found` (for the positional operator; may be
 * NULL). `after` is always initialised; the caller destroys it. `_id` never changes (66). Other
 * errors: 28 (a path that cannot be made), 14 and 2 (a value of the wrong type), 40 (paths that
 * meet in this document), 15 (nested too deep), 10334 (too large). context->arena holds what is
 * made on the way. */
truce_status truce__update_apply(const struct update *update, const bson_t *before,
                                 const struct match_result *found, struct query_context *context,
                                 bson_t *after, struct update_result *result, bson_error_t *error);

/* The document that an upsert inserts: the filter's equalities, then the update, $setOnInsert too;
 * `_id` first, a fresh ObjectId if neither gives one. */
truce_status truce__update_insert(const struct update *update, const struct match *match,
                                  struct query_context *context, bson_t *document,
                                  bson_error_t *error);

#endif
