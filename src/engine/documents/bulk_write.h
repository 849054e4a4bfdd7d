#ifndef TRUCE_ENGINE_DOCUMENTS_BULK_WRITE_H
#define TRUCE_ENGINE_DOCUMENTS_BULK_WRITE_H

/* A bulk as an operation of the writer: bulk_write.c runs it, and delegated_writes.c passes it
 * between processes. */
#include "engine/documents/document_change.h"
#include "engine/documents/write_receipt.h"

struct bulk {
    /* Must be the first field. */
    struct write_op base;
    const truce_write *writes;
    size_t count;
    const truce_bulk_options *options;
    /* The view of the checks. */
    const struct engine *view;
    truce_write_outcome *outcomes;
    /* One for each write of a bulk. */
    struct compiled *compiled;
    /* Used instead for a bulk of one. */
    struct compiled single;
    struct receipt receipt;
    struct budget budget;
    struct query_context context;
    /* The status of the first write that failed. */
    truce_status first;
    size_t first_at;
};

/* Compiles the writes of the first members, which belong to the caller. */
void truce__bulk_init(struct bulk *bulk, struct engine *engine);
void truce__bulk_release(struct bulk *bulk);

#endif
