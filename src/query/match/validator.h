#ifndef TRUCE_QUERY_MATCH_VALIDATOR_H
#define TRUCE_QUERY_MATCH_VALIDATOR_H

/* The validator of a collection: a filter that every document which is written has to match. */
#include "query/match/match.h"

/* `*validator` NULL: `filter` matches everything. */
truce_status truce__validator_new(const bson_t *filter, struct match **validator,
                                  bson_error_t *error);
/* INVALID, code 121: the document does not match. NULL as `validator` lets everything pass. */
truce_status truce__validator_test(const struct match *validator, const char *collection,
                                   int64_t now_ms, const bson_t *document, bson_error_t *error);

#endif
