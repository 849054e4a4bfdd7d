#ifndef TRUCE_TESTS_SUPPORT_FEED_REPLAY_H
#define TRUCE_TESTS_SUPPORT_FEED_REPLAY_H

/* Replays the feed of changes: a client that follows it from its beginning has the documents of
 * the store. */
#include "engine/documents/change_feed.h"
#include "truce/store.h"

/* The documents of a follower, and its position in the feed. */
struct replay {
    /* A store in memory with the documents of the follower. */
    truce_store *copy;
    /* The position in the feed; 0 means that nothing was read yet. */
    int64_t position;
    /* The number of entries that were read, and of documents before a change (images), each of
     * which was equal to that of the copy. */
    int entries, images;
    /* The number of entries of each kind. */
    int64_t kinds[128];
};

void replay_open(struct replay *replay);
void replay_close(struct replay *replay);

/* Reads all later changes. Returns whether they are as expected. */
bool replay_follow(struct replay *replay, truce_store *store);

/* Returns whether both have the same documents; the order of fields does not matter. A failed check
 * reports a difference. */
bool replay_same(struct replay *replay, truce_store *store);

#endif
