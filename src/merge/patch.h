#ifndef TRUCE_MERGE_PATCH_H
#define TRUCE_MERGE_PATCH_H

/*
 * What is different between two documents, said as a patch, and patches applied:
 *
 *     JSON Patch (RFC 6902)        [{op: "replace", path: "/lines/0/price", value: 5}]
 *     JSON Merge Patch (RFC 7396)  {title: "b", gone: null}
 *     MongoDB's update operators   {$set: {"a.b": 5}, $unset: {c: ""}}
 *
 * over all values of BSON: numbers of different types are equal if their values are, everything that
 * JSON does not have is equal to itself only. As in JSON, the order of fields has no meaning.
 */
#include "bson/value.h"

#define PATCH_OPERATIONS_MAX 100000

/*
 * All operations of the array or none. *after lives in the arena. INVALID: an operation is malformed,
 * or what it is about is not there; CONFLICT: a test did not hold. The sentence names the operation by
 * its number, from 0. LIMIT: too large or too deep a value would come out.
 */
truce_status truce__patch_apply(struct value before, const bson_t *operations, struct arena *arena,
                                struct value *after, bson_error_t *error);

/* The operations (add, remove, replace) that bring `before` to `after`; `operations` is initialised
 * by the call: an array. Elements of arrays are told apart by _id, id or name where all have one, else
 * by what they are, so that a change in the middle of an array is a change of one element. */
void truce__patch_diff(struct value before, struct value after, bson_t *operations);

/* Both are documents. `after` is initialised by the call. */
void truce__merge_patch_apply(struct value before, struct value patch, bson_t *after);
/* False (the patch is empty): a merge patch cannot say it, because a null is new in `after`. */
bool truce__merge_patch_diff(struct value before, struct value after, bson_t *patch);

/* {$set, $unset}, or the whole document where operators cannot say it. */
void truce__operators_diff(struct value before, struct value after, bson_t *update);

/* Equal as RFC 6902, section 4.6, has it: fields in any order, numbers by value. */
bool truce__patch_equal(struct value a, struct value b);

#endif
