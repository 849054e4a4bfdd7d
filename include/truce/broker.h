#ifndef TRUCE_BROKER_H
#define TRUCE_BROKER_H

/*
 * Message brokers: consume messages, publish jobs and changes.
 *
 * A consumer receives messages, maps each one to changes, and commits the changes together with a
 * record of the message. It acknowledges the messages after the commit. If it dies in between, the
 * broker sends them again, and the record shows that they have no further effect. Any number of
 * consumers in any number of processes may share a subscription. docs/brokers.md describes targets,
 * mappings, and what each broker promises.
 *
 * Each broker is a module that is loaded when a URL needs it. The library itself uses no client
 * library of a broker.
 *
 * Threads: a call belongs to one thread; several threads may call with one store.
 */
#include "truce/store.h"

TRUCE_BEGIN_DECLS

/* The counts of a consumer. */
typedef struct truce_consume_counts {
    /* Messages that were received; of these, messages that the broker sent again. */
    int64_t received, redelivered;
    /* Messages that took effect. For a set, operations that changed it. */
    int64_t applied;
    /* Messages without an effect: recorded before, or operations of a set that are too old. */
    int64_t duplicate, stale;
    /* Messages in `truce_rejects`, and operations in `truce_quarantine`. */
    int64_t rejected, quarantined;
    /* Commits, and connections that failed. */
    int64_t batches, reconnects;
    /* Messages that are waiting in the broker; with Kafka, in the partitions of this call. -1 means
     * unknown. */
    int64_t waiting;
    uint64_t reserved[4];
} truce_consume_counts;

typedef struct truce_consume_options {
    /* amqp[s]://USER:PASSWORD@HOST/[VHOST/]QUEUE, or kafka://HOST,HOST/TOPIC. Required. */
    const char *url;
    /* set:COLLECTION.LIST, queue:QUEUE, upsert:COLLECTION, merge:COLLECTION, post:BOOK, or commit.
     * Required. */
    const char *into;
    /* The mapping; NULL means that of the target. For the target commit, it is an array. */
    const bson_t *map;
    bool map_is_array;
    /* The message's id: a path such as "$body.id". NULL means the id that the broker transports, or
     * Kafka's position. */
    const char *id;
    /* The name of the subscription, under which messages are recorded. All processes that share the
     * work use one name. NULL means the name of the queue, or of the topic. */
    const char *consumer;
    /* The number of this thread or process among those of one consumer of a set. Each should use
     * the same number after a restart. */
    uint32_t slot;
    /* The maximum number of messages of a commit: up to 5,000. 0 means 250, or 4,000 for a set. */
    uint32_t batch;
    /* The time to wait for further messages after the first one of a commit, in ms. 0 means the
     * duration of the last commit, from 5 to 50. */
    uint32_t linger_ms;
    /* Return when no message waits, in Kafka also for no other member of the group. */
    bool until_empty;
    /* The maximum number of messages, after which the call returns. 0 means no limit. */
    int64_t limit;
    /* Records are removed when their messages are older than this, and older messages are rejected
     * from then on. 0 means that no record is removed. */
    int64_t inbox_ms;
    /* Rejected messages are also published to this exchange or topic. NULL means none. */
    const char *dead_letter;
    /* Apply the messages of `truce_rejects` again, instead of those of the broker, and return. A
     * message that takes effect is removed there, in the same commit. */
    bool replay;
    /* Change nothing; call `on_message` with what each message would do. */
    bool dry_run;
    /* In a dry run, receives the effect of each message: {message, changes: [...]} or {message,
     * reason: "..."}. */
    void (*on_message)(const bson_t *effect, void *arg);
    /* Called between batches. The consumer returns if the result is true. */
    bool (*stop)(const truce_consume_counts *counts, void *arg);
    /* Receives a line for a log, for example that a connection failed or a message was rejected. */
    void (*note)(const char *text, void *arg);
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_consume_options;

/*
 * Consumes messages until `stop`, `until_empty`, or `limit` ends it. Failures of the connection and
 * of the store are retried with growing delays; nothing is acknowledged before it is stored.
 * `counts` is filled in any case.
 *
 *     TRUCE_INVALID     an option is wrong, the module of the broker is not installed, the broker
 *                       refuses the credentials, or its certificate is not trusted
 *     TRUCE_NOT_FOUND   the queue or topic does not exist, or was deleted; the set is not defined
 *     TRUCE_LIMIT       a message is too large for the store, and there is no dead letter
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_consume(truce_store *store,
                                                       const truce_consume_options *options,
                                                       truce_consume_counts *counts,
                                                       bson_error_t *error);

/*
 * Returns the consumers of all processes that use the store: an array of
 *
 *     {consumer: "enrolments", source: "amqp://localhost/enrolments", into: "set:students.classes",
 *      received, redelivered, applied, duplicate, stale, rejected, quarantined, reconnects,
 *      lastMessage, updated, rate, waiting,
 *      workers: [{worker: "host:4711:0", started, updated, rate, waiting}]}
 *
 * The counts are totals since the first message, and `rate` is in messages per second. Workers
 * report them every 5 seconds, and every 10 seconds without messages. `workers` are the threads
 * that are running; a consumer without a worker is stopped. A consumer that was stopped for a month
 * is omitted. The caller destroys `consumers`, also after an error.
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_consumers(truce_store *store, bson_t *consumers,
                                                         bson_error_t *error);

typedef struct truce_publish_counts {
    /* Jobs or changes whose messages the broker has confirmed, and connections that failed. */
    int64_t published, reconnects;
    uint64_t reserved[4];
} truce_publish_counts;

/* The position at which a publisher of changes begins. */
typedef enum truce_publish_from {
    /* The publisher begins at its stored position, or, without one, at the next change. */
    TRUCE_PUBLISH_FROM_DEFAULT,
    /* The publisher begins at its stored position, also if the position belongs to another URL. */
    TRUCE_PUBLISH_FROM_STORED,
    /* If no position is stored, or changes after it were removed, the publisher begins at the
     * oldest change of the feed, or at the next change. */
    TRUCE_PUBLISH_FROM_OLDEST,
    TRUCE_PUBLISH_FROM_LATEST,
} truce_publish_from;

typedef struct truce_publish_options {
    /* The queue whose jobs are messages, or the collection whose changes are messages. One of them
     * is required. */
    const char *queue, *changes;
    /* The name under which the position in the changes is stored. NULL means that of the
     * collection. */
    const char *publisher;
    truce_publish_from from;
    /* If the store has no feed of changes, switch it on, and keep changes for this time. 0 means
     * that the call fails instead. */
    int64_t feed_ms;
    /* amqp[s]://USER:PASSWORD@HOST/[VHOST/]EXCHANGE?routing_key=KEY, or kafka://HOST/TOPIC.
     * Required. */
    const char *url;
    /* The routing key, or the key of the record: a path of the job's document, such as
     * "$payload.customer", or of the event, such as "$type". NULL means that of the URL, and for
     * the record of a change, the document's _id. */
    const char *key;
    /* The maximum number of messages that are published before they are confirmed together: up to
     * 1,000. 0 means 100. */
    uint32_t batch;
    /* Return when no job is ready, or no change is left. */
    bool until_empty;
    /* Called between batches. The publisher returns if the result is true. */
    bool (*stop)(const truce_publish_counts *counts, void *arg);
    void (*note)(const char *text, void *arg);
    void *arg;
    /* Must be zero. */
    uint64_t reserved[4];
} truce_publish_options;

/*
 * Publishes the jobs of a queue as messages: a transactional outbox. A job that is added in a
 * commit is published after it, with the payload as a JSON body and the id "QUEUE/JOB". When the
 * broker has confirmed the message, the job ends as done. If the publisher dies in between, another
 * one publishes the message again, with the same id. One publisher keeps the order of the queue;
 * several keep that of each lane. `counts` is filled in any case.
 *
 * The changes of a collection are published as CloudEvents 1.0 in JSON, in the order of the commits
 * for each document, and at least once. The position in the feed is stored in the store after the
 * confirms. docs/brokers.md describes the events.
 *
 *     TRUCE_INVALID     an option is wrong, or the broker refuses the credentials or a message; the
 *                       store has no feed of changes
 *     TRUCE_EXPIRED     changes after the stored position were removed from the feed
 *     TRUCE_NOT_FOUND   the exchange or topic does not exist, or no queue receives a message; the
 *                       jobs stay in the queue
 */
TRUCE_EXPORT TRUCE_MUST_USE truce_status truce_publish(truce_store *store,
                                                       const truce_publish_options *options,
                                                       truce_publish_counts *counts,
                                                       bson_error_t *error);

TRUCE_END_DECLS

#endif
