#ifndef TRUCE_QUERY_INCOMING_H
#define TRUCE_QUERY_INCOMING_H

/*
 * What comes in from outside: names, documents, filters and sorts are checked here, and a document is
 * made ready to be stored. No backend bends these rules.
 */
#include "bson/value.h"
#include "query/context.h"

/* ---- what a caller gives ---- */

/* `document` NULL is allowed and passes. */
truce_status truce__check_optional(const bson_t *document, const char *what, bson_error_t *error);
truce_status truce__check_required(const bson_t *document, const char *what, bson_error_t *error);

/* A value by itself, such as an _id; NULL is refused. */
truce_status truce__check_value(const bson_value_t *value, const char *what, bson_error_t *error);

/* Is it a sort that can be meant? Here, because a backend that has no such collection, or an index in
 * that order, may never look. NULL passes. */
truce_status truce__check_sort(const bson_t *sort, bson_error_t *error);
/* The same of the sort of an update, which must not be of several documents (9). */
truce_status truce__check_update_sort(const bson_t *sort, bool multi, bson_error_t *error);

/* ---- what is stored ---- */

/* CODE_INVALID_NAMESPACE: empty, longer than TRUCE_COLLECTION_NAME_MAX (of a served database, which begins
 * with @: TRUCE_PLACE_NAME_MAX), not UTF-8, with `$`, or
 * with a dot at an end, or of MongoDB's own "system." */
truce_status truce__collection_name_check(const char *name, bson_error_t *error);

/* A document as it is inserted: `_id` first (an ObjectId if it has none), empty timestamps at the
 * top filled with the context's time, as MongoDB does. `prepared` is always initialised; the caller
 * destroys it. CODE_INVALID_ID_FIELD: _id is an array, a regex or undefined;
 * CODE_DOLLAR_PREFIXED_FIELD_NAME: a name within _id starts with `$`;
 * CODE_BSON_OBJECT_TOO_LARGE. */
truce_status truce__document_prepare(const bson_t *document, const struct query_context *context,
                                     bson_t *prepared, bson_error_t *error);

/* Is the document already as truce__document_prepare would make it? */
bool truce__document_is_prepared(const bson_t *document);

#endif
