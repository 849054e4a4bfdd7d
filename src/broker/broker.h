#ifndef TRUCE_BROKER_BROKER_H
#define TRUCE_BROKER_BROKER_H

/*
 * The interface of a message broker. An implementation is a plug-in, a shared module that the
 * library loads when a URL needs it: truce-amqp.so for RabbitMQ, truce-kafka.so for Kafka. A module
 * exports one function, truce_broker_amqp or truce_broker_kafka. It uses libbson, and nothing of
 * truce.
 *
 * Statuses: TRUCE_INVALID and TRUCE_NOT_FOUND end the caller, because a repetition fails again
 * (wrong credentials, an unknown CA, a queue that does not exist). TRUCE_IO means that the
 * connection failed: the caller closes it and opens a new one.
 *
 * Threads: one thread at a time uses a connection.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

#include "truce/status.h"

/* Raised if a structure below changes. */
#define BROKER_VERSION 5

/* A URL: SCHEME://USER:PASSWORD@HOST:PORT/PATH?NAME=VALUE&... All strings are decoded. */
struct broker_address {
    const char *scheme;
    /* NULL if the URL does not contain it. */
    const char *user, *password;
    /* Kafka's may be a list: "a:9092,b:9092". Then `port` is 0. */
    const char *host;
    int port;
    /* The segments of the path. */
    const char *path[4];
    int path_count;
    /* The options: {NAME: "VALUE"}. */
    const bson_t *query;
};

/* A position in a log, such as the offset in a partition of Kafka. */
struct broker_position {
    /* The topic, or NULL if the broker has no positions. */
    const char *stream;
    int32_t partition;
    int64_t offset;
};

struct broker_message {
    /* Allocated by bson_malloc. */
    uint8_t *body;
    size_t size;
    /* The fields that mappings see besides `body`: id, time, headers, and those of the broker. */
    bson_t facts;
    /* The position in the broker's log. `stream` is allocated by bson_malloc. */
    struct broker_position position;
    /* The broker's own number of the message, for its acknowledgement. */
    uint64_t tag;
    bool redelivered;
};

/* A message to publish; all borrowed. */
struct broker_post {
    /* An exchange or a topic. NULL means that of the URL. */
    const char *to;
    /* The routing key, or the key of the record. NULL means that of the URL, or none. */
    const char *key;
    /* The key by which a log keeps the order, unless `key` is given. NULL if none exists. */
    const char *order_key;
    const uint8_t *body;
    size_t size;
    const char *id, *content_type;
    /* {NAME: value}; may be NULL. */
    const bson_t *headers;
};

/* The requirements of the caller of `open`. */
struct broker_open_options {
    /* The connection publishes; otherwise it receives. */
    bool publishes;
    /* The name of the consumer. */
    const char *consumer;
    /* The messages are only shown: none is applied or acknowledged. */
    bool dry_run;
    /* The store that a replay reads the rejects from. */
    struct truce_store *store;
    /* Messages that the broker sends before they are acknowledged. */
    uint32_t prefetch;
    /* Sets *next to the position from which a partition is read, or to -1 if none is stored. The
     * messages before the position count as acknowledged. */
    truce_status (*find_position)(void *arg, const char *stream, int32_t partition, int64_t *next,
                                  bson_error_t *error);
    /* Returns whether the caller wants to end, so that a call that waits for a reply of the broker
     * may fail early. NULL means never. */
    bool (*stop)(void *arg);
    void *arg;
};

struct broker_ops {
    truce_status (*open)(const struct broker_address *address,
                         const struct broker_open_options *open_options, void **broker,
                         bson_error_t *error);
    /* NULL is allowed. The broker delivers messages without an acknowledgement again. */
    void (*close)(void *broker);
    /* Waits for a message for at most this time. Sets *message to NULL if none came. The caller
     * frees the message with truce__broker_message_free. */
    truce_status (*receive)(void *broker, int timeout_ms, struct broker_message **message,
                            bson_error_t *error);
    /* Acknowledges these messages: all that were received since the last call. */
    truce_status (*acknowledge)(void *broker, struct broker_message *const *messages, size_t count,
                                bson_error_t *error);
    /* Finds out how many messages wait in the broker, besides those that it has sent: -1 if the
     * broker does not know. If the broker divides its messages among consumers, *count is that of
     * this consumer. If *count is 0 and `others` is not NULL, sets *others to the number of the
     * messages that wait for other consumers, and otherwise leaves it unchanged. */
    truce_status (*waiting)(void *broker, int64_t *count, int64_t *others, bson_error_t *error);
    /* Sends a message. */
    truce_status (*publish)(void *broker, const struct broker_post *post, bson_error_t *error);
    /* Waits until the broker has confirmed all messages that were sent. */
    truce_status (*confirm)(void *broker, int timeout_ms, bson_error_t *error);
};

/* Returns the functions of a module, or NULL if the module has another version. Each module exports
 * one such function. */
typedef const struct broker_ops *truce_broker_function(int version);

/* Reads a URL. `text` is split in place, and `query` is initialized in any case; both must outlive
 * the address. Fails with INVALID if the URL is wrong. */
truce_status truce__broker_address_read(char *text, bson_t *query, struct broker_address *address,
                                        bson_error_t *error);

/* Returns the URL without its credentials and options, except the routing key. The caller frees
 * it. */
char *truce__broker_address_show(const struct broker_address *address);

/* Finds the implementation for a scheme, and loads its module. Fails with INVALID if the scheme is
 * unknown, or if the module is missing; the error then names the package. */
truce_status truce__broker_find(const char *scheme, const struct broker_ops **ops,
                                bson_error_t *error);

/* Frees the message. NULL is allowed. */
void truce__broker_message_free(struct broker_message *message);

#endif
