#ifndef TRUCE_ENGINE_DOCUMENTS_BOUNDS_H
#define TRUCE_ENGINE_DOCUMENTS_BOUNDS_H

/*
 * Bounds: for one condition on one path, intervals of encoded values, at least one of which holds a
 * key of every document that can match the condition.
 */
#include "bson/keys.h"
#include "query/match/match.h"

/* What an end of an interval was made of, for who explains it; borrowed from the filter. */
struct interval_end {
    struct value value;
    enum {
        END_VALUE,
        END_TYPE,       /* the end, on that side, of the values of its type */
        END_TEXT,       /* the bytes of a text, with which texts begin */
        END_BEHIND_TEXT /* behind all texts that begin with them */
    } kind;
    bool included;
};

/* Encodings from `from` to, but without, `to`. A point is one value: [key, successor of key). */
struct interval {
    struct buffer from, to;
    struct interval_end low, high; /* the same */
    bool point;
};

struct bounds {
    uint32_t count, room;
    struct interval *intervals; /* ascending, apart from each other */
    bool missing;               /* a document without the field can match */
};

/* False: the condition bounds nothing (`bounds` is then empty, but `missing` is right). */
bool truce__bounds_of(const struct match_node *node, struct bounds *bounds);
void truce__bounds_release(struct bounds *bounds);

bool truce__bounds_all_points(const struct bounds *bounds);

/* Moves the intervals of `more`, which is empty then, to those of `bounds`. Arrange these afterwards. */
void truce__bounds_add(struct bounds *bounds, struct bounds *more);

/* Sorts the intervals, and joins those that overlap or touch; equal points are one. */
void truce__bounds_arrange(struct bounds *bounds);

/* a := what lies in both. */
void truce__bounds_intersect(struct bounds *a, const struct bounds *b);

/* Does every interval of `inner` lie in one of `outer`? */
bool truce__bounds_within(const struct bounds *inner, const struct bounds *outer);

/* The same values in the encoding of a descending field. */
void truce__bounds_turn(const struct bounds *bounds, struct bounds *turned);

#endif
