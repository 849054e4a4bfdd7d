#ifndef TRUCE_QUERY_MATCH_VALIDATOR_H
#define TRUCE_QUERY_MATCH_VALIDATOR_H

/* The validator of a collection: a filter that each written document has to match. */
#include "query/match/match.h"

/* Compiles a validator. `*validator` becomes NULL if `filter` matches every document. */
truce_status truce__validator_new(const bson_t *filter, struct match **validator,
                                  bson_error_t *error);
/* Tests a document. Fails with INVALID, code 121, if the document does not match. A NULL
 * `validator` accepts every document. */
truce_status truce__validator_test(const struct match *validator, const char *collection,
                                   int64_t now_ms, const bson_t *document, bson_error_t *error);

#endif
