#ifndef TRUCE_MERGE_JSON_PATCH_H
#define TRUCE_MERGE_JSON_PATCH_H

/*
 * Computes the difference of two documents as a patch, and applies patches:
 *
 *     JSON Patch (RFC 6902)        [{op: "replace", path: "/lines/0/price", value: 5}]
 *     JSON Merge Patch (RFC 7396)  {title: "b", gone: null}
 *     MongoDB's update operators   {$set: {"a.b": 5}, $unset: {c: ""}}
 *
 * Patches work on all BSON values. Numbers of different types are equal if their values are. A
 * value of a type that JSON does not have equals only itself. As in JSON, the order of fields does
 * not matter.
 */
#include "bson/value.h"

/* The maximum number of operations of a patch. */
#define PATCH_OPERATIONS_MAX 100000

/*
 * Applies all operations of the array, or none. *after is in the arena, or it borrows from `before`
 * or `operations`. Returns INVALID if an operation is malformed or its target does not exist,
 * CONFLICT if a test fails, and LIMIT if the result would be too large or too deep. The message has
 * the number of the operation, from 0.
 */
truce_status truce__patch_apply(struct value before, const bson_t *operations, struct arena *arena,
                                struct value *after, bson_error_t *error);

/* Initializes `operations` with an array of operations (add, remove, replace) that turn `before`
 * into `after`. If all elements of an array have an _id, id, or name, it identifies them;
 * otherwise, equal elements are the same. A change in the middle of an array is therefore a
 * change of one element. */
void truce__patch_diff(struct value before, struct value after, bson_t *operations);

/* Applies a merge patch. Both values are documents. Initializes `after`. */
void truce__merge_patch_apply(struct value before, struct value patch, bson_t *after);
/* Computes a merge patch. Returns false, with an empty patch, if `after` has a new null, which a
 * merge patch cannot express. */
bool truce__merge_patch_diff(struct value before, struct value after, bson_t *patch);

/* Initializes `update` with {$set, $unset}, with {} if the documents are equal, or with the whole
 * document `after` if operators cannot express the difference. */
void truce__operators_diff(struct value before, struct value after, bson_t *update);

/* Compares as in RFC 6902, section 4.6: fields in any order, and numbers by value. */
bool truce__patch_equal(struct value a, struct value b);

#endif
