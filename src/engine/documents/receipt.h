#ifndef TRUCE_ENGINE_DOCUMENTS_RECEIPT_H
#define TRUCE_ENGINE_DOCUMENTS_RECEIPT_H

/*
 * A receipt (truce/sys/store.h) inside the write transaction: looked at before the writes, written
 * after them. All of these do nothing where there is none.
 */
#include "engine/documents/query.h"

struct receipt {
    truce_receipt *given; /* NULL: there is none */
    struct selector selector;
    struct gather found;
};

truce_status truce__receipt_init(struct receipt *receipt, truce_receipt *given,
                                 bson_error_t *error);
void truce__receipt_release(struct receipt *receipt);

/* CONFLICT: what stands there is not what the caller takes it for; nothing was written yet. */
truce_status truce__receipt_look(struct receipt *receipt, struct writer *writer,
                                 struct query_context *context, bson_error_t *error);

/* Whatever it fails with, the transaction must not stay: the writes would have no receipt. */
truce_status truce__receipt_put(struct receipt *receipt, struct writer *writer,
                                const truce_write_outcome *outcomes, size_t count,
                                const bson_t *document, bson_error_t *error);

#endif
