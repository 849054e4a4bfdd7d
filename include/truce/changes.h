#ifndef TRUCE_CHANGES_H
#define TRUCE_CHANGES_H

/*
 * Diffs as changes of a commit: old and new values of fields.
 *
 *     diff      {count: [3, 4], "address.city": ["Ulm", "Bonn"], nick: [undefined, "x"]}
 *     changes   {"<id>": diff, "<id>": diff, ...}
 *
 * A key is a field, or a path of fields through documents. A path never crosses an array; an array
 * is one value. BSON's undefined denotes a missing field. As the old value, it means that the key
 * is new; as the new value, it removes the key.
 *
 * In a commit, the old values guard a diff, and nothing else does. If the document has another
 * value under one of the keys at the commit, that is a conflict. Other writers may concurrently
 * change other keys of the document. Old values are compared as values: numbers across their types,
 * NaN equals NaN, null differs from missing, documents with the order of their fields, and arrays
 * as a whole. All commit mechanisms compare alike.
 *
 * The diff may be computed from plain reads: read, compute, call truce_changes_diff, and add the
 * diff to the commit, all in the function of truce_transact. On a conflict, the function runs
 * again, reads the current values, and computes another diff. A plain read under no key of a diff
 * is not guarded. To guard a whole document, read it with truce_commit_read. The idea is the
 * write-intent journal of A. Hammarquist, EuroPython 2012.
 */
#include "truce/commit.h"

TRUCE_BEGIN_DECLS

/* Returns the changes between two versions of one document as a diff; it is empty if nothing
 * changed. `_rev` and `_intent` are omitted, and the order of top-level fields does not matter. If
 * the _ids differ, a changed field has a name that cannot be a key, or a top-level field is
 * undefined, the call fails with TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_changes_diff(const bson_t *before,
                                                            const bson_t *after, bson_t *diff,
                                                            bson_error_t *error);

/* Adds a diff to the commit. If the commit has read or changed the document before, the diff is
 * compared immediately, including the commit's own changes. Otherwise it is compared when the
 * commit is applied. If an old value differs or the document is missing, the call fails with
 * TRUCE_CONFLICT, and the message names the document and the key. If `diff` is not a valid diff, it
 * fails with TRUCE_INVALID. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_change(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_value_t *id,
                                                             const bson_t *diff,
                                                             bson_error_t *error);

/* Adds diffs of several documents of one collection: {id: diff, ...}. An id of 24 hexadecimal
 * digits is an ObjectId; any other id is a string. For _ids of other types, use
 * truce_commit_change. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_changes(truce_commit *commit,
                                                              const char *collection,
                                                              const bson_t *changes,
                                                              bson_error_t *error);

/* Declares that the diffs of this commit cannot be recomputed. If an old value differs,
 * truce_transact fails with TRUCE_CONFLICT immediately and does not run the function again. */
TRUCE_EXPORT void truce_commit_changes_fixed(truce_commit *commit);

/* Applies diffs that cannot be recomputed as a commit of its own. If an old value differs, the call
 * fails with TRUCE_CONFLICT and changes nothing. Conflicts of any other kind are retried. Other
 * statuses are those of truce_transact. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_changes_apply(truce_store *store,
                                                             const char *collection,
                                                             const bson_t *changes,
                                                             const truce_commit_options *options,
                                                             bson_error_t *error);

TRUCE_END_DECLS

#endif
