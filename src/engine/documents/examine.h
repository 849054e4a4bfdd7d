#ifndef TRUCE_ENGINE_DOCUMENTS_EXAMINE_H
#define TRUCE_ENGINE_DOCUMENTS_EXAMINE_H

/* The file examined, and its indexes mended. */
#include "engine/documents/document_store.h"
#include "engine/documents/documents.h"

struct examine_fault {
    const char *rule, *collection; /* "": of the file */
    const char *text, *change;
    bool repaired;
};

typedef void examine_take(const struct examine_fault *fault, void *arg);

/* Tells everything that is wrong. With `repair` indexes are built anew where they are wrong. A status other
 * than OK: the file cannot be read at all. */
truce_status truce__engine_examine(struct engine *engine, bool repair, examine_take *take,
                                   void *arg, bson_error_t *error);

#endif
