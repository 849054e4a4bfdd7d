#ifndef TRUCE_ENGINE_DOCUMENTS_COLLECTIONS_H
#define TRUCE_ENGINE_DOCUMENTS_COLLECTIONS_H

/*
 * Names that no collection may have, because a document defines a view of that name. The
 * transaction that creates the collection checks this, so a name never has both (the other half is
 * `absent` of a bulk's checks, truce/sys/store.h).
 */
#include "base/limits.h"
#include "engine/writer.h"

struct name_document {
    char collection[TRUCE_STORED_NAME_MAX + 1], id[TRUCE_STORED_NAME_MAX + 2];
};

struct names {
    /* Sets `document` to the document that would define a view of that name. Returns false if no
     * view can have the name. Must be fast and must not call the store. */
    bool (*document_of)(const struct names *names, const char *name,
                        struct name_document *document);
};

/* Creates a collection that does not exist. Fails with error 166 if a view has the name; otherwise
 * the writer reloads its catalog. */
truce_status truce__names_add_collection(struct writer *writer, const char *name,
                                         bson_error_t *error);

#endif
