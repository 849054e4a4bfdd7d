#ifndef TRUCE_BROKER_FEED_EVENTS_H
#define TRUCE_BROKER_FEED_EVENTS_H

/*
 * The feed of changes of a collection as CloudEvents, for a publisher.
 *
 *     feed    ... 40 41 42 | 43 44 | 45 46 47 ...       | ends an operation, such as a commit
 *                    ^stored        ^reached
 *     batch          [42    43 44   45]                 the entries of the collection in between
 *
 * The caller fills a batch, publishes its events in order, waits for the confirms, and then stores
 * the position. The position is a document of truce_outbox:
 *
 *     {_id: {publisher: "students"}, feed: <id>, position: 42, operation: 41, index: 2,
 *      to: "kafka://host/topic", collection: "students", time}
 *
 * `operation` is the first entry of the operation at the position, and `index` counts its events.
 *
 *  BF1  The position passes an event only after the broker has confirmed it.
 *  BF2  The id of an event depends only on its entry: it is the resume token. So a repetition has
 *       the same id, and a change stream of `truce serve` resumes after the event.
 *  BF3  An event is sent only after the event before it with the same key was confirmed. So the
 *       broker receives the events of a key in order, even if it refuses one of them. Later,
 *       repetitions may follow, but no event comes for the first time after a later one.
 *  BF4  No change is skipped without the caller's permission: if entries after the position were
 *       removed from the feed, the publisher ends with EXPIRED. With `from` oldest or latest, it
 *       begins there and notes the gap instead.
 *
 * The model is models/feed_events.cpp. Several publishers of one name only repeat each other's
 * messages. The feed omits the collections of truce, so the positions are not changes themselves.
 */
#include "broker/broker.h"
#include "engine/documents/change_feed.h"
#include "truce/broker.h"

struct feed_events;

/* One event. */
struct feed_event {
    char id[FEED_TOKEN_TEXT];
    /* The key that keeps the order of events: the _id of the document. NULL if the event has no
     * document, such as a drop. */
    char *key;
    /* The CloudEvent. */
    bson_t document;
};

/* Begins at the stored position. Without one, begins at the oldest change or after the last one, as
 * options->from says. If `engine` is NULL, uses the engine of the store. Fails with EXPIRED if
 * changes are missing (BF4). Fails with INVALID if:
 *
 *     the store is not a file, or has no feed
 *     the stored position belongs to another broker or collection
 *     `from` requires a stored position, and none exists
 */
truce_status truce__feed_events_new(truce_store *store, struct engine *engine,
                                    const truce_publish_options *options,
                                    const struct broker_address *address,
                                    struct feed_events **changes, bson_error_t *error);
/* Frees the reader of events. NULL is allowed. */
void truce__feed_events_free(struct feed_events *changes);

/* Fills the batch with at most `most` of the next events. The batch is empty if no event is
 * left. */
truce_status truce__feed_events_fill(struct feed_events *changes, size_t most, bson_error_t *error);
size_t truce__feed_events_count(const struct feed_events *changes);
const struct feed_event *truce__feed_events_event(const struct feed_events *changes, size_t i);
/* Drops the batch. The next batch begins with the same event. */
void truce__feed_events_drop(struct feed_events *changes);
/* Stores the position after the batch, whose events were confirmed, and empties the batch. Without
 * events, the position is stored from time to time, and at the end. */
truce_status truce__feed_events_done(struct feed_events *changes, bool ends, bson_error_t *error);
/* Waits until the feed grows. */
void truce__feed_events_wait(struct feed_events *changes, uint32_t timeout_ms);

#endif
