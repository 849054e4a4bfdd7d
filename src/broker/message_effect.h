#ifndef TRUCE_BROKER_MESSAGE_EFFECT_H
#define TRUCE_BROKER_MESSAGE_EFFECT_H

/*
 * Targets. The target of a subscription determines how its messages change the store.
 *
 *     set:COLLECTION.LIST     an operation of an ordered set
 *                             {operation, key, element, seq, source?}
 *     queue:QUEUE             a job   {with, delay_ms?, priority?, unique?, lane?}
 *     upsert:COLLECTION       a whole document   {with, version?}
 *     merge:COLLECTION        a revision         {with, version}
 *     post:BOOK               a transaction      {id, with, meta?}
 *     commit                  a list of changes
 *
 * All are lists of changes: `queue:mail` with the mapping {with: "$body"} is `commit` with the
 * mapping [{enqueue: "mail", with: "$body"}]. A list may contain the changes of truceCommit
 * (patterns/change_list) and {set: "COLLECTION.LIST", ...}, {upsert: COLLECTION, ...}, and {merge:
 * COLLECTION, ...}.
 *
 * An upsert replaces the document with the `_id` of `with`, or inserts it. With `version`, a path
 * of the document, it does nothing if the stored document has the same number there or a higher
 * one. A merge saves the revision that was made from the number `version`: changes of other writers
 * since then are merged, and a conflict refuses the message.
 */
#include "base/arena.h"
#include "base/status.h"
#include "truce/commit.h"
#include "truce/set.h"

struct effect_target;

/* The effect of one message. */
struct effect {
    /* The mapped list of changes. */
    bson_t changes;
    /* If the target is a set: the operation, borrowed from `changes` and the following. */
    truce_set_operation operation;
    bson_t key, element;
};

/* Reads a target. If `map` is NULL, uses the default mapping of the target. Fields that the mapping
 * lacks get their defaults. `names` are those of truce__template_new. Fails with INVALID if the
 * target or the mapping is wrong, and with NOT_FOUND if the set is not defined. */
truce_status truce__effect_target_new(truce_store *store, const char *into, const bson_t *map,
                                      bool map_is_array, const char *const *names,
                                      struct effect_target **target, bson_error_t *error);
/* Frees the target. NULL is allowed. */
void truce__effect_target_free(struct effect_target *target);

/* Returns whether repeating and reordering the effects changes nothing: the target is a set, and
 * its messages have numbers (the mapping has no {seq: {$sequence: NAME}}). */
bool truce__effect_target_is_set(const struct effect_target *target);
/* Returns the set of a target set:COLLECTION.LIST. */
truce_set *truce__effect_target_set(const struct effect_target *target);

/* Maps a message. Fails with INVALID if the message does not fit the mapping, and with LIMIT if it
 * makes too many changes. The caller releases the effect after OK. */
truce_status truce__effect_make(struct effect_target *target, const bson_t *message,
                                struct arena *arena, struct effect *effect, bson_error_t *error);
void truce__effect_release(struct effect *effect);
/* Adds the effect to a commit. */
truce_status truce__effect_add(struct effect_target *target, const struct effect *effect,
                               truce_commit *commit, bson_error_t *error);

#endif
