#ifndef TRUCE_ENGINE_DOCUMENTS_INDEX_BOUNDS_H
#define TRUCE_ENGINE_DOCUMENTS_INDEX_BOUNDS_H

/*
 * Bounds: for one condition on one path, intervals of encoded values. Every document that can match
 * the condition has a key in at least one of them.
 */
#include "bson/key_encoding.h"
#include "query/match/match.h"

/* The value from which an end of an interval was made, for explain. Borrowed from the filter. */
struct interval_end {
    struct value value;
    enum {
        END_VALUE,
        /* The first or the last value of the type. */
        END_TYPE,
        /* A string prefix. */
        END_TEXT,
        /* The first value after all strings with that prefix. */
        END_AFTER_TEXT
    } kind;
    bool included;
};

/* The encodings from `from` up to `to`, exclusive. A point has one value: [key, successor of
 * key). */
struct interval {
    struct buffer from, to;
    /* The same ends as values. */
    struct interval_end low, high;
    bool point;
};

struct bounds {
    uint32_t count, room;
    /* The intervals, which are ascending and disjoint. */
    struct interval *intervals;
    /* Whether a document without the field can match. */
    bool missing;
};

/* Computes the bounds of a condition. Returns false if it has none. `bounds` is then empty, but
 * `missing` is right. */
bool truce__bounds_of(const struct match_node *node, struct bounds *bounds);
void truce__bounds_release(struct bounds *bounds);

bool truce__bounds_all_points(const struct bounds *bounds);

/* Moves the intervals of `more` to `bounds`. The caller arranges these afterwards. */
void truce__bounds_add(struct bounds *bounds, struct bounds *more);

/* Sorts the intervals, and joins those that overlap or touch. Equal points are united. */
void truce__bounds_arrange(struct bounds *bounds);

/* Sets `a` to the intersection of both. */
void truce__bounds_intersect(struct bounds *a, const struct bounds *b);

/* Returns whether every interval of `inner` is within one of `outer`. */
bool truce__bounds_within(const struct bounds *inner, const struct bounds *outer);

/* Converts the values to the encoding of a descending field. */
void truce__bounds_invert(const struct bounds *bounds, struct bounds *inverted);

#endif
