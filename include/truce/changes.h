#ifndef TRUCE_CHANGES_H
#define TRUCE_CHANGES_H

/*
 * Diffs as changes: what code computed from documents that it read, kept as old and new values.
 *
 *     diff      {count: [3, 4], "address.city": ["Ulm", "Bonn"], nick: [undefined, "x"]}
 *     changes   {"<id>": diff, "<id>": diff, ...}
 *
 * A key is a field, or a path of fields through documents; never one through an array, which is a
 * value as a whole. BSON's undefined stands for a field that is missing: as the old value the key is
 * new, as the new value it goes.
 *
 * In a commit a diff is guarded by its old values, and by nothing else: if the document has another
 * value under one of its keys at the commit, that is a conflict; other writers may change other keys
 * of the document meanwhile. Old values are compared as values: numbers across their types, NaN is
 * NaN, null is not missing, documents with the order of their fields, arrays as a whole. All
 * mechanisms of the commit compare alike.
 *
 * The diff may be made from plain reads, as in the description that it comes from (the write-intent
 * journal of A. Hammarquist, EuroPython 2012): read, compute, truce_changes_diff, and add it to the
 * commit, all in the function of truce_transact. On a conflict the function runs again, reads what
 * is there now and makes another diff. What was read plainly and is under no key of a diff is not
 * guarded; what must be is read through truce_commit_read, whose guard is the whole document.
 */
#include "truce/commit.h"

TRUCE_BEGIN_DECLS

/* What changed between two versions of one document, as a diff; empty if nothing did. `_rev` and
 * `_intent` are left out, and the order of the fields at the top is no difference. INVALID: another
 * _id, a changed field whose name is no key, or a field at the top that is undefined. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_changes_diff(const bson_t *before,
                                                            const bson_t *after, bson_t *diff,
                                                            bson_error_t *error);

/* Adds a diff to the commit. A document that the commit has read or changed before is compared at
 * once, with the commit's own changes in it, else when the commit is applied. CONFLICT: an old value
 * is another, or the document is missing; the sentence names document and key. INVALID: not a diff. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_change(truce_commit *commit,
                                                             const char *collection,
                                                             const bson_value_t *id,
                                                             const bson_t *diff,
                                                             bson_error_t *error);

/* Adds diffs of several documents of one collection: {id: diff, ...}. An id of 24 hexadecimal digits
 * is an ObjectId, every other one a string; for _ids of other types there is truce_commit_change. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_commit_changes(truce_commit *commit,
                                                              const char *collection,
                                                              const bson_t *changes,
                                                              bson_error_t *error);

/* Says that nobody can make the diffs of this commit again: where an old value is another one,
 * truce_transact answers CONFLICT at once and does not run the function again. */
TRUCE_EXPORT void truce_commit_changes_fixed(truce_commit *commit);

/* The same as a commit of its own, from diffs that nobody can make again. CONFLICT: an old value is
 * another one, and nothing was changed; conflicts of any other kind are tried again. Other statuses
 * as truce_transact. */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_changes_apply(truce_store *store,
                                                             const char *collection,
                                                             const bson_t *changes,
                                                             const truce_commit_options *options,
                                                             bson_error_t *error);

TRUCE_END_DECLS

#endif
