#ifndef TRUCE_COMMIT_JOURNAL_CHANGE_H
#define TRUCE_COMMIT_JOURNAL_CHANGE_H

/* The changes of one document in a decided commit, and what plain writers made of the same fields since. */
#include "commit/entry.h"
#include "merge/diff.h"

/* Appends `changes: [...]` with all of the diff from the entry's base to its `after`. */
void truce__changes_append(bson_t *element, const struct entry *entry, const struct diff *diff);

/* What is to stand at the path of a change, where `there` stands now (either may be missing): *made, borrowed from
 * `change` or from `holder`, which the caller has initialised and destroys. False: only one of the two can stand;
 * *made is the commit's. */
bool truce__change_merge(const bson_t *change, struct value there, bson_t *holder,
                         struct value *made);

/* What operators make of a document, in its place; if they cannot be applied, it stays as it is. */
truce_status truce__change_apply(const bson_t *operators, bson_t *document, bson_error_t *error);

#endif
