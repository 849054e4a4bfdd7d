#ifndef TRUCE_ENGINE_DOCUMENTS_COLLECTIONS_H
#define TRUCE_ENGINE_DOCUMENTS_COLLECTIONS_H

/*
 * Names that no collection may have, because a document stands for them: the views of a server. Whether there is one is looked at in
 * the transaction that makes the collection, so that of both there is never more than one (the other half is `absent` of a bulk's
 * checks, truce/sys/store.h).
 */
#include "base/limits.h"
#include "engine/writer.h"

struct name_document {
    char collection[TRUCE_PLACE_NAME_MAX + 1], id[TRUCE_PLACE_NAME_MAX + 2];
};

struct names {
    /* The document that has the name if it is there; false: there can be none. Quick, and calls no store. */
    bool (*document_of)(const struct names *names, const char *name,
                        struct name_document *document);
};

/* Makes the collection, which is not there, as whoever makes one does it. 166 as above; the writer's catalog is loaded anew else. */
truce_status truce__names_add_collection(struct writer *writer, const char *name,
                                         bson_error_t *error);

#endif
