#ifndef TRUCE_STORE_ANSWER_H
#define TRUCE_STORE_ANSWER_H

/* What the wrappers of store.c and store_write.c do with the answer of a backend. */
#include "store/store.h"

/* Assertions of what every backend promises: on failure the error is filled. */
void truce__check_answer(truce_status status, const bson_error_t *error);

/* Copies the error a wrapper caught to the caller's, when there is one. */
truce_status truce__pass_error(truce_status status, const bson_error_t *caught,
                               bson_error_t *error);

/* {} for a filter that was not given */
const bson_t *truce__filter_or_empty(const bson_t *filter);

#endif
