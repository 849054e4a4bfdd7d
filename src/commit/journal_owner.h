#ifndef TRUCE_COMMIT_JOURNAL_OWNER_H
#define TRUCE_COMMIT_JOURNAL_OWNER_H

/* One attempt of the journal, as its owner's steps see it. The essay and the invariants are in journal.c. */
#include "commit/commit.h"

struct owner {
    truce_commit *commit;
    struct worker *worker;
    bool again;         /* abandon this id and start again under a fresh one */
    bool inserted;      /* the commit document was sent */
    int64_t renewed_ns; /* when its lease began */
    bson_t post;        /* array */
    bson_t held; /* not empty: a document of held_in has a key that we want, and an intent (U5) */
    const char *held_in;
};

/* Step 7. What cannot be done now is left to whoever comes. */
void truce__owner_give_up(struct owner *owner, const char *why);

/* Its commit document, asked for until the store answers. */
truce_status truce__owner_find(struct owner *owner, bson_t *document, bson_error_t *error);

/* The entry's document as it is, with its intent if it has one (journal.c). */
truce_status truce__owner_peek(struct owner *owner, const struct entry *entry, bson_t *document,
                               bson_error_t *error);

/* The document as step 2 left it; not of a stub, nor where keys were reserved. `held` is initialised. */
void truce__owner_held(const truce_commit *commit, const struct entry *entry, bson_t *held);

/* J7: what the release will leave there is a document, with its revision, and every index takes it. */
truce_status truce__owner_can_be(const struct owner *owner, const struct entry *entry,
                                 bson_error_t *error);

/* A document that was taken first (journal.c) is still as it was: CONFLICT if a plain writer changed
 * it since. */
truce_status truce__owner_still(struct owner *owner, const struct entry *entry,
                                bson_error_t *error);

#endif
