#ifndef TRUCE_TESTS_SUPPORT_FAKE_BROKER_H
#define TRUCE_TESTS_SUPPORT_FAKE_BROKER_H

/*
 * A broker in this process, for one thread. It is a queue, whose unacknowledged messages come again
 * when their connection is closed, or a log of partitions, which is read from a stored position.
 */
#include "broker/broker.h"

#define FAKE_MESSAGES_MAX   1000
#define FAKE_PARTITIONS_MAX 4

struct fake_message {
    char *body, *id;
    /* NULL if the message has no headers. */
    bson_t *headers;
    /* 0 if the message has no time. */
    int64_t time_ms;
    int32_t partition;
    int64_t offset;
    /* `out`: the message was delivered on the open connection. `again`: it was delivered on an
     * earlier one. `done`: it was acknowledged; only for a queue. */
    bool out, again, done;
};

struct fake_broker {
    bool log;
    struct fake_message messages[FAKE_MESSAGES_MAX];
    size_t count;
    /* The offset of the next message that is added to each partition. */
    int64_t offsets[FAKE_PARTITIONS_MAX];
    /* The offset that the open connection reads next in each partition. */
    int64_t next[FAKE_PARTITIONS_MAX];
    /* The number of calls, and the number of the call (from 1) that fails with `status`; 0 means
     * none. */
    uint64_t calls, fails_at;
    truce_status status;
    /* The published messages. */
    char *published[FAKE_MESSAGES_MAX];
    char *published_to[FAKE_MESSAGES_MAX], *published_id[FAKE_MESSAGES_MAX];
    /* The key by which the broker orders messages, or NULL. */
    char *published_key[FAKE_MESSAGES_MAX];
    /* The number of messages that were confirmed when the message was published. */
    size_t published_after[FAKE_MESSAGES_MAX];
    size_t published_count, confirmed;
    /* Only for a log: the acknowledged positions. */
    int64_t acknowledged[FAKE_PARTITIONS_MAX];
    /* The messages that wait for other members of the group: one less after each question. */
    int64_t others;
    /* The number of questions about them. */
    int questions;
    /* The number of waiting messages is unknown. */
    bool uncounted;
};

/* The broker that the connections of fake_broker_ops reach. */
extern struct fake_broker fake_broker;
extern const struct broker_ops fake_broker_ops;

/* Removes all messages. */
void fake_broker_begin(bool log);
void fake_broker_end(void);
/* Puts a message; ' may replace " in the body. `id` may be NULL. */
struct fake_message *fake_broker_put(const char *body, const char *id, int32_t partition);
/* The number of messages that were never acknowledged. */
size_t fake_broker_left(void);

#endif
