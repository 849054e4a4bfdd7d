#ifndef TRUCE_SERVER_CALL_CALL_ERROR_H
#define TRUCE_SERVER_CALL_CALL_ERROR_H

#include <stdbool.h>

#include <bson/bson.h>

/* Appends errmsg, keyPattern, and keyValue for the store's message of a duplicate key
 * (truce__index_refuse_duplicate). Returns false and appends nothing for any other message.
 * `database` is the one whose collections have the store's own names. */
bool call_append_duplicate_key(const char *message, const char *database, bson_t *reply);

#endif
