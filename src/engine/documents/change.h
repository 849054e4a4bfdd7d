#ifndef TRUCE_ENGINE_DOCUMENTS_CHANGE_H
#define TRUCE_ENGINE_DOCUMENTS_CHANGE_H

/*
 * Updates and upserts of single documents inside the write transaction: what bulk writes and
 * find-and-modify share.
 */
#include "engine/documents/query.h"
#include "query/update/update.h"

/* A write, compiled by the caller's thread before it is queued. */
struct compiled {
    struct selector selector;
    struct update *update; /* NULL: none */
    bool in_parts;         /* a replacement that is told by what is different */
    truce_status status;   /* what compiling answered ... */
    bson_error_t error;    /* ... told when it is the write's turn */
};

void truce__compiled_release(struct compiled *compiled);

/* `item` is of truce__select. `after` is always initialised, and is the document as it is now. */
truce_status truce__change_update(struct writer *writer, const char *collection,
                                  const struct gathered *item, const struct compiled *compiled,
                                  struct query_context *context, bson_t *after,
                                  truce_write_result *result, bson_error_t *error);

/* Nothing matched: inserts what filter and update give. `made` is always initialised. */
truce_status truce__change_upsert(struct writer *writer, const char *collection,
                                  const struct compiled *compiled, struct query_context *context,
                                  bson_t *made, truce_write_result *result, bson_error_t *error);

truce_status truce__change_remove(struct writer *writer, const char *collection,
                                  const struct gathered *item, truce_write_result *result,
                                  bson_error_t *error);

/* Frees what the result holds and makes it empty. */
void truce__result_reset(truce_write_result *result);

#endif
