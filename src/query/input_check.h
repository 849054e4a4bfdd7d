#ifndef TRUCE_QUERY_INPUT_CHECK_H
#define TRUCE_QUERY_INPUT_CHECK_H

/* Checks of all input: names, documents, filters, and sorts; and preparing a document to be stored.
 * All backends use these rules. */
#include "bson/value.h"
#include "query/evaluation_context.h"

/* ---- input of callers ------- */

/* Checks a document of the caller, which may be NULL. */
truce_status truce__check_optional(const bson_t *document, const char *what, bson_error_t *error);
truce_status truce__check_required(const bson_t *document, const char *what, bson_error_t *error);

/* Checks a single value, such as an _id; NULL is refused. */
truce_status truce__check_value(const bson_value_t *value, const char *what, bson_error_t *error);

/* Checks a sort, which may be NULL. The check comes first, because a backend without the
 * collection, or with an index in this order, never parses the sort. */
truce_status truce__check_sort(const bson_t *sort, bson_error_t *error);
/* Checks the sort of an update; an update of several documents must not have one (9). */
truce_status truce__check_update_sort(const bson_t *sort, bool multi, bson_error_t *error);

/* ---- stored documents -- */

/* Checks the name of a collection. Fails with CODE_INVALID_NAMESPACE if the name is empty, is not
 * UTF-8, or has a `$`, a control character, or a dot at an end. Fails, too, if it begins with "@."
 * or with MongoDB's own "system.". The maximum length is TRUCE_COLLECTION_NAME_MAX, or
 * TRUCE_STORED_NAME_MAX if the name begins with @, as in a served database. The status is
 * TRUCE_LIMIT if the name is too long, and otherwise TRUCE_INVALID. */
truce_status truce__collection_name_check(const char *name, bson_error_t *error);

/* These functions fail with the error that every store reports if a collection does not exist, or
 * already exists. */
truce_status truce__collection_missing(const char *name, bson_error_t *error);
truce_status truce__collection_taken(const char *name, bson_error_t *error);

/* Prepares a document for an insert: `_id` first (an ObjectId if it has none), and empty timestamps
 * at the top level replaced by the context's time, as in MongoDB. `prepared` is always initialized;
 * the caller destroys it. Fails with CODE_INVALID_ID_FIELD if _id is an array, a regex, or
 * undefined, and with CODE_DOLLAR_PREFIXED_FIELD_NAME if a name within _id starts with `$`. Also
 * fails with CODE_BAD_VALUE if the document has _id twice, and with CODE_BSON_OBJECT_TOO_LARGE. */
truce_status truce__document_prepare(const bson_t *document, const struct query_context *context,
                                     bson_t *prepared, bson_error_t *error);

/* Returns whether the document is already as truce__document_prepare would make it. */
bool truce__document_is_prepared(const bson_t *document);

#endif
