#ifndef TRUCE_ENGINE_DOCUMENTS_INDEXED_DOCUMENTS_H
#define TRUCE_ENGINE_DOCUMENTS_INDEXED_DOCUMENTS_H

/*
 * Documents and their index entries, changed together inside a write transaction.
 *
 * Everything that can refuse a change (a duplicate key, parallel arrays) is checked before the
 * first write. After a status of the class "refused" nothing has changed. After a status for which
 * truce__documents_failed returns true, the transaction must be rolled back.
 */
#include "engine/writer.h"

/* Returns whether the transaction failed, and not only the operation. */
bool truce__documents_failed(truce_status status);

/* Inserts a document, and creates the collection if it does not exist. `document` was made by
 * truce__document_prepare. */
truce_status truce__documents_insert(struct writer *writer, const char *collection,
                                     const bson_t *document, bson_error_t *error);

/* Replaces the document in the row. `before` is the current document; `after` has the same _id.
 * With `whole`, the feed reports a replacement, and not the differences. */
truce_status truce__documents_replace(struct writer *writer, const char *collection, int64_t row,
                                      const bson_t *before, const bson_t *after, bool whole,
                                      bson_error_t *error);

truce_status truce__documents_remove(struct writer *writer, const char *collection, int64_t row,
                                     const bson_t *before, bson_error_t *error);

/* Adds the entries of a document to an index that is being built. Does not check uniqueness. */
truce_status truce__documents_index(struct writer *writer, const char *collection, int64_t index,
                                    int64_t row, const bson_t *document, bson_error_t *error);

#endif
