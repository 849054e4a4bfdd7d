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
    bson_t *headers; /* NULL: none */
    int64_t time_ms; /* 0: none */
    int32_t partition;
    int64_t offset;
    /* of the queue: delivered on the open connection; delivered before; acknowledged */
    bool out, again, done;
};

struct fake_broker {
    bool log;
    struct fake_message messages[FAKE_MESSAGES_MAX];
    size_t count;
    int64_t offsets[FAKE_PARTITIONS_MAX]; /* of the next message that is put */
    int64_t next[FAKE_PARTITIONS_MAX];    /* of the open connection */
    /* The call of this number fails with the status, from 1; 0: none. */
    uint64_t calls, fails_at;
    truce_status status;
    /* The published messages. */
    char *published[FAKE_MESSAGES_MAX];
    char *published_to[FAKE_MESSAGES_MAX], *published_id[FAKE_MESSAGES_MAX];
    char *published_key[FAKE_MESSAGES_MAX]; /* the key of the order; NULL: none */
    /* how many were confirmed when the message was published */
    size_t published_after[FAKE_MESSAGES_MAX];
    size_t published_count, confirmed;
    /* The positions that were acknowledged; of the log. */
    int64_t acknowledged[FAKE_PARTITIONS_MAX];
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
