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

/* Step 1: the commit document, the key and its horizon. *already: the key says that it took effect. */
truce_status truce__owner_open(struct owner *owner, bool *already, bson_error_t *error);

/* Step 7. What cannot be done now is left to whoever comes. */
void truce__owner_give_up(struct owner *owner, const char *why);

/* Its commit document, asked for until the store answers. */
truce_status truce__owner_find(struct owner *owner, bson_t *document, bson_error_t *error);

/* The entry's document as it is, with its intent if it has one (journal_prepare.c). */
truce_status truce__owner_peek(struct owner *owner, const struct entry *entry, bson_t *document,
                               bson_error_t *error);

/* The document as step 2 left it; not of a stub, nor where keys were reserved. `held` is initialised. */
void truce__owner_held(const truce_commit *commit, const struct entry *entry, bson_t *held);

/* Begins the element {ns, id of a list; the caller ends it. */
void truce__owner_target(bson_t *array, uint32_t index, const struct entry *entry, bson_t *element);

/* Step 2: takes the entry's document, or puts a stub there. */
truce_status truce__owner_prepare(struct owner *owner, struct entry *entry, bson_error_t *error);

/* Steps 2, 5 and 7 of all documents as one bulk each (journal_joined.c). Whether step 2 can be. */
bool truce__owner_joins(const struct owner *owner);
/* CONFLICT with `again`: not all of them were taken, and the commit goes one by one from now on. */
truce_status truce__owner_prepare_joined(struct owner *owner, bson_error_t *error);
/* False: not all of them are known to be released. */
bool truce__owner_release_joined(struct owner *owner);
/* Of step 7. False: not all of them are known to be stripped, if they were held. */
bool truce__owner_strip_joined(struct owner *owner);

/* J7: what the release will leave there is a document, with its revision, and every index takes it. */
truce_status truce__owner_can_be(const struct owner *owner, const struct entry *entry,
                                 bson_error_t *error);

/* A document that was taken first (journal_take.c) is still as it was: CONFLICT if a plain writer changed
 * it since. */
truce_status truce__owner_still(struct owner *owner, const struct entry *entry,
                                bson_error_t *error);

/* Step 3, J6. Before: all missing requires but one become holds. */
void truce__owner_hold_missing(truce_commit *commit);
truce_status truce__owner_requires(struct owner *owner, bson_error_t *error);

/* Step 4: the changes resolved to values, then the decision. OK: decided. CONFLICT: somebody aborted
 * it. UNKNOWN: J8. */
truce_status truce__owner_post(struct owner *owner, bson_error_t *error);
truce_status truce__owner_decide(struct owner *owner, bson_error_t *error);

#endif
