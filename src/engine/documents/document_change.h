#ifndef TRUCE_ENGINE_DOCUMENTS_DOCUMENT_CHANGE_H
#define TRUCE_ENGINE_DOCUMENTS_DOCUMENT_CHANGE_H

/*
 * Updates and upserts of single documents inside the write transaction, for bulk writes and for
 * find-and-modify.
 */
#include "engine/documents/query.h"
#include "query/update/update.h"

/* A write that the caller's thread compiled before it was queued. */
struct compiled {
    struct selector selector;
    /* The compiled update, or NULL if the write has none. */
    struct update *update;
    /* The write is a replacement, but the feed reports its differences. */
    bool in_parts;
    /* The result of compiling, which is reported when the write runs. */
    truce_status status;
    /* The error of the compilation. */
    bson_error_t error;
};

void truce__compiled_release(struct compiled *compiled);

/* Updates a document. `item` comes from truce__select. `after` is always initialized; on success it
 * is the new document. */
truce_status truce__change_update(struct writer *writer, const char *collection,
                                  const struct gathered *item, const struct compiled *compiled,
                                  struct query_context *context, bson_t *after,
                                  truce_write_result *result, bson_error_t *error);

/* Inserts a document made from the filter and the update, because nothing matched. `made` is always
 * initialized. */
truce_status truce__change_upsert(struct writer *writer, const char *collection,
                                  const struct compiled *compiled, struct query_context *context,
                                  bson_t *made, truce_write_result *result, bson_error_t *error);

/* Removes a document. `item` comes from truce__select. Adds to the counts of `result`. */
truce_status truce__change_remove(struct writer *writer, const char *collection,
                                  const struct gathered *item, truce_write_result *result,
                                  bson_error_t *error);

/* Frees the contents of the result and empties it. */
void truce__result_reset(truce_write_result *result);

#endif
