#ifndef TRUCE_ENGINE_DOCUMENTS_MODIFY_H
#define TRUCE_ENGINE_DOCUMENTS_MODIFY_H

/* A find-and-modify as an operation of the writer: for modify.c, which runs it, and delegated.c,
 * which brings it from one process to another. */
#include "engine/documents/change.h"
#include "engine/documents/receipt.h"
#include "query/project/project.h"

struct modify {
    struct write_op base; /* first */
    const char *collection;
    const bson_t *filter, *update;
    const truce_modify_options *options;
    struct compiled compiled;
    struct project *project; /* NULL: whole documents */
    struct receipt receipt;
    struct budget budget;
    struct query_context context;
    bson_t *document;
    truce_write_result *result;
    truce_status status; /* its own answer */
    bson_error_t error;
};

/* Compiles what is said in its first members, which stay the caller's; released also on failure.
 * `document` is initialised. */
truce_status truce__modify_init(struct modify *modify, struct engine *engine, bson_error_t *error);
void truce__modify_release(struct modify *modify);

#endif
