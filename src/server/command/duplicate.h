#ifndef TRUCE_SERVER_COMMAND_DUPLICATE_H
#define TRUCE_SERVER_COMMAND_DUPLICATE_H

/*
 * What clients of MongoDB look for where a key is taken: "E11000 duplicate key error ..." in the sentence, and the fields
 * keyPattern and keyValue.
 */
#include <stdbool.h>

#include <bson/bson.h>

/* Appends errmsg, keyPattern and keyValue (where the sentence has it whole). False: `sentence` is not that of
 * truce__index_refuse_duplicate, and nothing was appended. `database` is the one whose collections have the store's own
 * names. */
bool duplicate_append(const char *sentence, const char *database, bson_t *reply);

#endif
