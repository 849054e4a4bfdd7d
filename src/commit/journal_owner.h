#ifndef TRUCE_COMMIT_JOURNAL_OWNER_H
#define TRUCE_COMMIT_JOURNAL_OWNER_H

/* One attempt of the journal, as its owner sees it. The essay and the invariants are in
 * journal.c. */
#include "commit/commit.h"

struct owner {
    truce_commit *commit;
    struct worker *worker;
    /* Abandon this id and start again with a new one. */
    bool again;
    /* The commit document was sent. */
    bool inserted;
    /* The start of its lease. */
    int64_t renewed_ns;
    /* The end of its lease by the local clock. Each renewal increases it. */
    int64_t until_ms;
    /* An array. */
    bson_t post;
    /* If not empty: a document of `held_in` that has an intent and a key that this commit wants
     * (unique_keys.c, CU5). */
    bson_t held;
    const char *held_in;
};

/* Undoes the attempt (step 7). Anything that cannot be undone now is left to the next client that
 * encounters it. */
void truce__owner_give_up(struct owner *owner, const char *why);

/* Reads the commit document, and repeats the read until the store answers. */
truce_status truce__owner_find(struct owner *owner, bson_t *document, bson_error_t *error);

/* Reads the entry's document as stored, with its intent if it has one. */
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
 * a plain writer changed it. */
truce_status truce__owner_still(struct owner *owner, const struct entry *entry,
                                bson_error_t *error);

#endif
