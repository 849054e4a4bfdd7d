#ifndef TRUCE_ENGINE_DOCUMENTS_FIND_AND_MODIFY_H
#define TRUCE_ENGINE_DOCUMENTS_FIND_AND_MODIFY_H

/* A find-and-modify as an operation of the writer: find_and_modify.c runs it, and
 * delegated_writes.c passes it between processes. */
#include "engine/documents/document_change.h"
#include "engine/documents/write_receipt.h"
#include "query/project/project.h"

struct modify {
    /* Must be the first field: the writer gets a pointer to it. */
    struct write_op base;
    const char *collection;
    const bson_t *filter, *update;
    const truce_modify_options *options;
    struct compiled compiled;
    /* The projection, or NULL to return whole documents. */
    struct project *project;
    struct receipt receipt;
    struct budget budget;
    struct query_context context;
    bson_t *document;
    truce_write_result *result;
    /* The result of the operation. The status of `base` is that of the transaction. */
    truce_status status;
    bson_error_t error;
};

/* Compiles the operation. The caller has set the fields from `collection` to `options`, `document`,
 * and `result`, which belong to it; the document and the result are initialized. The caller
 * releases the operation, also on failure. */
truce_status truce__modify_init(struct modify *modify, struct engine *engine, bson_error_t *error);
void truce__modify_release(struct modify *modify);

#endif
