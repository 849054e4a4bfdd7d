#ifndef TRUCE_STORE_MEMORY_MEMORY_WRITING_H
#define TRUCE_STORE_MEMORY_MEMORY_WRITING_H

/* One call that writes to a memory store: what memory_write.c and memory_modify.c share. */
#include "store/memory/memory.h"

enum change_kind { CHANGE_INSERTED, CHANGE_REPLACED, CHANGE_REMOVED, CHANGE_CREATED };

struct change {
    enum change_kind kind;
    struct memory_collection *collection;
    size_t position;
    struct memory_document *old; /* owned */
};

struct journal {
    struct change *changes;
    size_t count, room;
};

/* One call: what all its writes share. */
struct writing {
    struct memory_store *store;
    struct budget budget;
    struct query_context context;
    struct arena arena;
    struct journal journal;
    bool unvalidated; /* the write that runs now */
};

/* Takes the store's mutex; `_end` keeps what was done and lets go. */
void truce__memory_writing_begin(struct writing *writing, truce_store *base, uint32_t deadline_ms);
void truce__memory_writing_end(struct writing *writing);
/* Undoes everything behind the first `mark` changes. */
void truce__memory_undo(struct writing *writing, size_t mark);

/* The update of one document that was found; `after` is always initialised. */
truce_status truce__memory_change(struct writing *writing, struct memory_collection *collection,
                                  const struct memory_match *match, const struct update *update,
                                  bson_t *after, truce_write_result *result, bson_error_t *error);
/* Nothing matched: inserts what filter and update give; `made` is always initialised. */
truce_status truce__memory_upsert(struct writing *writing, const char *name,
                                  const struct match *match, const struct update *update,
                                  bson_t *made, truce_write_result *result, bson_error_t *error);
void truce__memory_remove_document(struct writing *writing, struct memory_collection *collection,
                                   size_t position);

/* A receipt (truce/sys/store.h); NULL: there is none. CONFLICT: what stands there is not what it is taken for. */
truce_status truce__memory_receipt_look(struct writing *writing, truce_receipt *receipt,
                                        bson_error_t *error);
/* Whatever it fails with, all is to be undone. */
truce_status truce__memory_receipt_put(struct writing *writing, truce_receipt *receipt,
                                       const truce_write_outcome *outcomes, size_t count,
                                       const bson_t *document, bson_error_t *error);

#endif
