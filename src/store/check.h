#ifndef TRUCE_STORE_CHECK_H
#define TRUCE_STORE_CHECK_H

/* The checks of arguments that the wrappers of store.c and store_write.c share. */
#include "store/store.h"

/* `document` NULL is allowed and passes. */
truce_status truce__check_optional(const bson_t *document, const char *what, bson_error_t *error);
truce_status truce__check_required(const bson_t *document, const char *what, bson_error_t *error);

/* Is it a sort that can be meant? Here, because a backend that has no such collection, or an index in
 * that order, may never look. NULL passes. */
truce_status truce__check_sort(const bson_t *sort, bson_error_t *error);

/* Assertions of what every backend promises: on failure the error is filled. */
void truce__check_answer(truce_status status, const bson_error_t *error);

/* Copies the error a wrapper caught to the caller's, when there is one. */
truce_status truce__pass_error(truce_status status, const bson_error_t *caught,
                               bson_error_t *error);

/* {} for a filter that was not given */
const bson_t *truce__filter_or_empty(const bson_t *filter);

#endif
