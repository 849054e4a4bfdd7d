#ifndef TRUCE_ENGINE_DOCUMENTS_BULK_WRITE_H
#define TRUCE_ENGINE_DOCUMENTS_BULK_WRITE_H

/* A bulk as an operation of the writer: bulk_write.c runs it, and delegated_writes.c passes it
 * between processes. */
#include "engine/documents/document_change.h"
#include "engine/documents/write_receipt.h"

struct bulk {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    const truce_write *writes;
    size_t count;
    const truce_bulk_options *options;
    /* The view in which the transaction has made the reads that are checked, or NULL if nothing is
     * checked. */
    const struct engine *view;
    truce_write_outcome *outcomes;
    /* The compiled writes, one for each write of the bulk. */
    struct compiled *compiled;
    /* The compiled write of a bulk that has only one write. It needs no allocation. */
    struct compiled single;
    struct receipt receipt;
    struct budget budget;
    struct query_context context;
    /* The status of the first write that failed, and the number of that write. */
    truce_status first;
    size_t first_at;
};

/* Compiles the writes of the bulk. The caller has set the fields from `writes` to `outcomes`, which
 * belong to it. */
void truce__bulk_init(struct bulk *bulk, struct engine *engine);
void truce__bulk_release(struct bulk *bulk);

#endif
