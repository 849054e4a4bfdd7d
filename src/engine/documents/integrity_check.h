#ifndef TRUCE_ENGINE_DOCUMENTS_INTEGRITY_CHECK_H
#define TRUCE_ENGINE_DOCUMENTS_INTEGRITY_CHECK_H

/* Examines the file for truce check, and repairs its indexes. */
#include "engine/documents/indexed_documents.h"
#include "engine/documents/open_documents.h"

struct examine_fault {
    /* The rule that is violated, and the collection or "" for the whole file. */
    const char *rule, *collection;
    const char *text, *change;
    bool repaired;
};

typedef void examine_take(const struct examine_fault *fault, void *arg);

/* Reports every fault, and builds the wrong indexes of the collection `repair` again. If `repair`
 * is "", builds those of all collections; if it is NULL, none. Fails with TIMEOUT if the time of
 * the call has expired. Any other failure means that the file cannot be read at all. */
truce_status truce__engine_examine(struct engine *engine, const char *repair, examine_take *take,
                                   void *arg, bson_error_t *error);

#endif
