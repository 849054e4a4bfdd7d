#ifndef TRUCE_ENGINE_DOCUMENTS_BULK_H
#define TRUCE_ENGINE_DOCUMENTS_BULK_H

/* A bulk as an operation of the writer: for write.c, which runs it, and delegated.c, which brings it from one process to another. */
#include "engine/documents/change.h"
#include "engine/documents/receipt.h"

struct bulk {
    struct write_op base; /* first */
    const truce_write *writes;
    size_t count;
    const truce_bulk_options *options;
    const struct engine *view; /* of the checks */
    truce_write_outcome *outcomes;
    struct compiled *compiled; /* one for each write */
    struct compiled single;    /* ... or this, for a bulk of one */
    struct receipt receipt;
    struct budget budget;
    struct query_context context;
    truce_status first; /* of the first write that failed */
    size_t first_at;
};

/* Compiles what is said in its first members, which stay the caller's. */
void truce__bulk_init(struct bulk *bulk, struct engine *engine);
void truce__bulk_release(struct bulk *bulk);

#endif
