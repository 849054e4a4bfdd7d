#ifndef TRUCE_MERGE_DIFF_H
#define TRUCE_MERGE_DIFF_H

/*
 * What changed between two versions of a document, as values to set and paths to unset.
 *
 *     before {a: 1, b: {c: 2, d: 3}}    after {a: 1, b: {c: 5}, e: [1]}
 *     set    {"b.c": 5, e: [1]}    unset {"b.d": 3}    old {"b.c": 2, "b.d": 3}
 *
 * Documents are walked; everything else, arrays too, is compared and replaced whole.
 */
#include "bson/value.h"

struct diff {
    bson_t set;   /* path: new value */
    bson_t unset; /* path: old value */
    bson_t old;   /* path: value before, of every path in set and unset that existed */
};

/* Initialises and fills `diff`. False (the diff is then empty) if it cannot be said with paths: a
 * changed field whose name is empty, has a dot or begins with a dollar at the top, or fields that
 * only changed places. */
bool truce__diff(struct value before, struct value after, struct diff *diff);
void truce__diff_release(struct diff *diff);

#endif
