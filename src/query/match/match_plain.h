#ifndef TRUCE_QUERY_MATCH_MATCH_PLAIN_H
#define TRUCE_QUERY_MATCH_MATCH_PLAIN_H

/*
 * Filters that are tested as they stand: {_id: 7, version: 3, lock: {$exists: false}}, as most guards of single documents
 * are. Compiling such a filter costs more than the one test that it is made for.
 */
#include "query/match/match.h"

/* A few fields of the document itself, each with a value that equals only values, or only there or not. `*id`: that of the _id; missing, if the
 * filter has none. */
bool truce__match_is_plain(const bson_t *filter, struct value *id);

/* Of a plain filter, without a look at the _id that was given back. False: an array stands there, whose elements count,
 * too; such a document needs the compiled filter. */
bool truce__match_plain_test(const bson_t *filter, struct value document, bool *matched);

#endif
