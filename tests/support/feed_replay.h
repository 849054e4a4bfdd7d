#ifndef TRUCE_TESTS_SUPPORT_FEED_REPLAY_H
#define TRUCE_TESTS_SUPPORT_FEED_REPLAY_H

/* Replays the feed of changes: a client that follows it from its beginning has the documents of
 * the store. */
#include "engine/documents/change_feed.h"
#include "truce/store.h"

/* The documents of a follower, and its place in the feed. */
struct replay {
    truce_store *copy;   /* memory: */
    int64_t position;    /* 0: nothing was read yet */
    int entries, images; /* images: documents before a change, which equalled those of the copy */
    int64_t kinds[128];  /* by kind */
};

void replay_open(struct replay *replay);
void replay_close(struct replay *replay);

/* Reads all later changes; true: they are as expected. */
bool replay_follow(struct replay *replay, truce_store *store);

/* True if both have the same documents, in whatever order of fields. A failed check reports a
 * difference. */
bool replay_same(struct replay *replay, truce_store *store);

#endif
