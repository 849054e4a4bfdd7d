#ifndef TRUCE_ENGINE_DOCUMENTS_DOCUMENTS_H
#define TRUCE_ENGINE_DOCUMENTS_DOCUMENTS_H

/*
 * Documents and their index entries, changed together inside a write transaction.
 *
 * Everything that can refuse a change (a taken unique key, parallel arrays) is looked at before the
 * first byte is written: after a status of the class "refused" nothing has changed. TRUCE_IO and
 * TRUCE_CORRUPT mean that the transaction cannot be used any more.
 */
#include "engine/writer.h"

/* Did the transaction fail, rather than the operation? */
bool truce__documents_failed(truce_status status);

/* Makes the collection if there is none. `document` is as truce__document_prepare made it. */
truce_status truce__documents_insert(struct writer *writer, const char *collection,
                                     const bson_t *document, bson_error_t *error);

/* `before` is the document that stands in the row, `after` has the same _id. `whole`: who writes means all of
 * it, and the feed says so. */
truce_status truce__documents_replace(struct writer *writer, const char *collection, int64_t row,
                                      const bson_t *before, const bson_t *after, bool whole,
                                      bson_error_t *error);

truce_status truce__documents_remove(struct writer *writer, const char *collection, int64_t row,
                                     const bson_t *before, bson_error_t *error);

/* Enters one document into one index that is being built; no check of uniqueness. */
truce_status truce__documents_index(struct writer *writer, const char *collection, int64_t index,
                                    int64_t row, const bson_t *document, bson_error_t *error);

#endif
