#ifndef TRUCE_PATTERNS_SET_SET_WALK_H
#define TRUCE_PATTERNS_SET_SET_WALK_H

/* Walks over the documents of a set (set_walk.c). */
#include "patterns/set/set.h"

/* The maximum number of changes in a window. */
#define SET_WALK_WINDOW 100

/* The write of one document. */
struct set_change {
    bson_t filter, update, array_filters;
    /* The number of entries in the document's lists that the write changes or drops. */
    int64_t entries;
};

/* A walk over documents of a set that changes some of them (set_walk.c). */
struct set_walk {
    truce_set *set;
    /* Adds the change of a document that no commit holds, if the document needs one. */
    void (*add)(struct set_walk *walk, const bson_t *document);
    /* Result: the number of documents that were written and of entries that were changed, in all
     * walks. */
    int64_t documents, entries;
    /* Result: the number of documents that this walk could not write. `first` and `why` are the
     * first failure. */
    int64_t left;
    /* Result: a write lost a race, so another walk is necessary. */
    bool again;
    truce_status first;
    bson_error_t why;

    /* The following fields are private to set_walk.c. */
    struct worker worker;
    size_t count;
    struct set_change changes[SET_WALK_WINDOW];
};

/* Returns a change for the caller to fill; the walk releases it. */
struct set_change *truce__set_walk_change(struct set_walk *walk);
/* Walks over the documents that match the filter. Only a failed read fails the walk. */
truce_status truce__set_walk(struct set_walk *walk, const bson_t *filter, const bson_t *projection,
                             bson_error_t *error);

#endif
