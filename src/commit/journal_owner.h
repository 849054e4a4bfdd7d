#ifndef TRUCE_COMMIT_JOURNAL_OWNER_H
#define TRUCE_COMMIT_JOURNAL_OWNER_H

/* One attempt of the journal, as its owner sees it. The essay and the invariants are in
 * journal.c. */
#include "commit/commit.h"

/* One attempt of the journal, from the commit document to the releases. */
struct owner {
    truce_commit *commit;
    struct worker *worker;
    /* This id is abandoned, and the commit starts again with a new one. */
    bool again;
    /* The commit document was sent, so it may be stored. */
    bool inserted;
    /* When the lease was last renewed, by the monotonic clock. */
    int64_t renewed_ns;
    /* The end of the lease in ms since 1970, by the local wall clock. Each renewal increases it. */
    int64_t until_ms;
    /* The array `post` of the decision: the changes of each document as values. */
    bson_t post;
    /* A document of the collection `held_in` that another commit holds and that has a key which
     * this commit wants (unique_keys.c, CU5). Empty if no such document was found. */
    bson_t held;
    const char *held_in;
};

/* Undoes the attempt (step 7). Anything that cannot be undone now is left to the next client that
 * encounters it. */
void truce__owner_give_up(struct owner *owner, const char *why);

/* Reads the commit document, and repeats the read until the store replies or the deadline
 * passes. */
truce_status truce__owner_find(struct owner *owner, bson_t *document, bson_error_t *error);

/* Reads the entry's document as stored, with its intent if it has one. Repeats the read until the
 * store replies or the deadline passes. */
truce_status truce__owner_peek(struct owner *owner, const struct entry *entry, bson_t *document,
                               bson_error_t *error);

/* Makes the document as step 2 left it. Not for stubs, nor for entries that reserved keys. `held`
 * is initialized. */
void truce__owner_held(const truce_commit *commit, const struct entry *entry, bson_t *held);

/* Checks invariant CJ7 (journal.c): the document that the release will leave is valid with its
 * revision, and every index accepts it. */
truce_status truce__owner_can_be(const struct owner *owner, const struct entry *entry,
                                 bson_error_t *error);

/* Checks that a document that was taken first (journal.c, CT4) did not change. Returns CONFLICT if
 * a plain writer changed it, or if the intent is gone because another process aborted the
 * commit. */
truce_status truce__owner_still(struct owner *owner, const struct entry *entry,
                                bson_error_t *error);

#endif
