#ifndef TRUCE_BSON_ID_FILTER_H
#define TRUCE_BSON_ID_FILTER_H

/*
 * Filters that find one document by its `_id`. Each function initializes `filter`, and the caller
 * destroys it. An id that is a document is compared as {_id: {$eq: ID}}, because its first name may
 * begin with a dollar sign, as in {$ref: ...}.
 */
#include <bson/bson.h>

void truce__filter_id(const bson_value_t *id, bson_t *filter);
void truce__filter_id_oid(const bson_oid_t *id, bson_t *filter);
void truce__filter_id_text(const char *id, bson_t *filter);

#endif
