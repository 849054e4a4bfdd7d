#ifndef TRUCE_PATTERNS_SET_SET_WALK_H
#define TRUCE_PATTERNS_SET_SET_WALK_H

/* Walks over the documents of a set (set_walk.c). */
#include "patterns/set/set.h"

#define SET_WALK_WINDOW 100

/* One document's write. */
struct set_change {
    bson_t filter, update, array_filters;
    int64_t entries; /* of its lists that are different afterwards, or gone */
};

struct set_walk {
    truce_set *set;
    /* Adds the change of a document that nobody holds, if it needs one. */
    void (*add)(struct set_walk *walk, const bson_t *document);
    int64_t documents, entries; /* out: that were written, of all walks */
    int64_t left;               /* out: that could not be, of this walk; `first` and `why` of one */
    bool again;                 /* out: some lost a race */
    truce_status first;
    bson_error_t why;

    struct worker worker; /* its own */
    size_t count;
    struct set_change changes[SET_WALK_WINDOW];
};

/* To be filled; the walk releases it. */
struct set_change *truce__set_walk_change(struct set_walk *walk);
/* What the filter finds. A failure is that of the reading. */
truce_status truce__set_walk(struct set_walk *walk, const bson_t *filter, const bson_t *projection,
                             bson_error_t *error);

#endif
