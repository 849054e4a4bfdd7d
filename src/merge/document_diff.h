#ifndef TRUCE_MERGE_DOCUMENT_DIFF_H
#define TRUCE_MERGE_DOCUMENT_DIFF_H

/*
 * Computes the difference of two versions of a document: values to set and paths to unset.
 *
 *     before {a: 1, b: {c: 2, d: 3}}    after {a: 1, b: {c: 5}, e: [1]}
 *     set    {"b.c": 5, e: [1]}    unset {"b.d": 3}    old {"b.c": 2, "b.d": 3}
 *
 * The diff descends into documents. All other values, including arrays, are replaced as a whole.
 */
#include "bson/value.h"

/* The difference of two documents, by paths. */
struct diff {
    /* The new values: {PATH: value}. */
    bson_t set;
    /* The removed fields, with their old values: {PATH: value}. */
    bson_t unset;
    /* The old values of all paths in `set` and `unset` that existed: {PATH: value}. */
    bson_t old;
};

/* Initializes and fills `diff`. Returns false, with an empty diff, if paths cannot express the
 * difference at the top level. This is so if common fields have another order, a new field precedes
 * a common one, or a name occurs twice. It is so if any name, even that of an unchanged field, is
 * empty, contains a dot, or begins with a dollar sign. It is also so if the path of a changed field
 * is too long. A changed document below for which this holds is replaced as a whole. */
bool truce__diff(struct value before, struct value after, struct diff *diff);
void truce__diff_release(struct diff *diff);

#endif
