#ifndef TRUCE_QUERY_MATCH_MATCH_PLAIN_H
#define TRUCE_QUERY_MATCH_MATCH_PLAIN_H

/*
 * Plain filters, which are tested without compiling them: {_id: 7, version: 3, lock: {$exists:
 * false}}. Most guards of single documents are plain. Compiling such a filter costs more than its
 * one test.
 */
#include "query/match/match.h"

/* Returns whether the filter is plain: it has a few fields of the document itself, each with
 * {$exists} or with a value to equal. Null, regular expressions, documents, arrays, and rare types
 * are not plain. Sets *id to the value of _id, or to a missing value. */
bool truce__match_is_plain(const bson_t *filter, struct value *id);

/* Tests a plain filter without its _id. Returns false if a field is an array: its elements count,
 * too, so the document needs the compiled filter. */
bool truce__match_plain_test(const bson_t *filter, struct value document, bool *matched);

#endif
