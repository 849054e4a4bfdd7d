#ifndef TRUCE_ENGINE_DOCUMENTS_WRITE_RECEIPT_H
#define TRUCE_ENGINE_DOCUMENTS_WRITE_RECEIPT_H

/*
 * A receipt (truce/sys/store.h) inside the write transaction: checked before the writes, and
 * written after them. Without a receipt these functions do nothing.
 */
#include "engine/documents/query.h"

struct receipt {
    /* The receipt of the caller, or NULL if the write has none. */
    truce_receipt *given;
    struct selector selector;
    struct gather found;
};

truce_status truce__receipt_init(struct receipt *receipt, truce_receipt *given,
                                 bson_error_t *error);
void truce__receipt_release(struct receipt *receipt);

/* Reads the receipt. Fails with CONFLICT if the stored receipt is not what the caller expects.
 * Called before anything is written. */
truce_status truce__receipt_check(struct receipt *receipt, struct writer *writer,
                                  struct query_context *context, bson_error_t *error);

/* Writes the receipt. After any failure the transaction must be rolled back, because its writes
 * would have no receipt. */
truce_status truce__receipt_put(struct receipt *receipt, struct writer *writer,
                                const truce_write_outcome *outcomes, size_t count,
                                const bson_t *document, bson_error_t *error);

#endif
