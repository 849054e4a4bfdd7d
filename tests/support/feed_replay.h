#ifndef TRUCE_TESTS_SUPPORT_FEED_REPLAY_H
#define TRUCE_TESTS_SUPPORT_FEED_REPLAY_H

/* The feed of changes, done again: who follows it from its beginning has what the store has. */
#include "engine/documents/feed.h"
#include "truce/store.h"

/* The documents of a follower, and its place in the feed. */
struct replay {
    truce_store *copy;   /* memory: */
    int64_t position;    /* 0: nothing was read yet */
    int entries, images; /* images: documents as they were, which were what the copy had */
    int64_t kinds[128];  /* by kind */
};

void replay_open(struct replay *replay);
void replay_close(struct replay *replay);

/* All that has come since; true: as it should be. */
bool replay_follow(struct replay *replay, truce_store *store);

/* True if both have the same documents, in whatever order of fields. A failed check reports a
 * difference. */
bool replay_same(struct replay *replay, truce_store *store);

#endif
