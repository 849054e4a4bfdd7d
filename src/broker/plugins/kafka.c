/*
 * Kafka, by librdkafka.
 *
 *     kafka://USER:PASSWORD@HOST:PORT,HOST:PORT/TOPIC?PROPERTY=VALUE
 *
 * A property of librdkafka is an option of the URL, such as security.protocol or ssl.ca.location.
 *
 * The group is the name of the consumer. The group only distributes the partitions. A partition is
 * read from the position that the store has. Without one, it is read from its beginning, or with
 * auto.offset.reset=latest from its end. Offsets that are committed to Kafka are for its tools,
 * which show the lag of the group, and for the count of the messages of other members
 * (kafka_find_others). They never decide which messages are applied. After a rebalance, two
 * consumers may have messages of one partition for a time; the store's position decides which
 * commit counts.
 *
 * This module uses libbson and librdkafka, and nothing of libtruce.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <librdkafka/rdkafka.h>

#include "broker/plugins/plugin.h"
#include "broker/plugins/protocol_probe.h"

#define KAFKA_PORT       9092
#define KAFKA_TIMEOUT_MS 15000
/* How long the two attempts wait to find the topic when a connection is opened. */
#define KAFKA_FIRST_MS  2000
#define KAFKA_SECOND_MS 5000
#define KAFKA_CHECK_MS  500
#define KAFKA_REASON    512
/* The calls of `waiting` without an assignment after which a failed connection is an error. */
#define KAFKA_JOIN_TRIES 4

struct kafka {
    rd_kafka_t *client;
    struct broker_open_options open_options;
    char *topic;
    /* The partitions of this consumer, each with the next offset to read, or NULL before an
     * assignment. */
    rd_kafka_topic_partition_list_t *assigned;
    /* The offset to commit to Kafka for each partition: after the last acknowledged message, or after
     * the records at the end that are no messages (kafka_commit_ends). NULL if none was set since the
     * last assignment. */
    rd_kafka_topic_partition_list_t *acknowledged;
    bool latest, is_consumer;
    /* The client is subscribed. rd_kafka_poll must not be called from then on: its queue has messages,
     * for which librdkafka would end the process. */
    bool subscribed;
    /* The topic was deleted while it was read. */
    bool lost;
    /* The first error that a callback reported, or TRUCE_OK. */
    truce_status status;
    char reason[KAFKA_REASON];
    /* The last failure of a connection, or "". librdkafka connects again by itself. */
    char failure[KAFKA_REASON];
    /* The number of calls of `waiting` without assigned partitions, since the last assignment. */
    int unassigned;
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* Classifies an error: NOT_FOUND or INVALID if a retry fails again, otherwise IO. */
static truce_status kafka_class(rd_kafka_resp_err_t code)
{
    switch (code) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
        return TRUCE_NOT_FOUND;
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR__SSL:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_INVALID_GROUP_ID:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        return TRUCE_INVALID;
    default:
        return TRUCE_IO;
    }
}

/* Remembers the first error that a callback reports. */
static void kafka_note(struct kafka *kafka, truce_status status, const char *reason)
{
    if (kafka->status)
        return;
    kafka->status = status;
    snprintf(kafka->reason, sizeof kafka->reason, "%s", reason);
}

static void kafka_on_error(rd_kafka_t *client, int code, const char *reason, void *arg)
{
    struct kafka *kafka = arg;

    (void)client;
    if (kafka_class((rd_kafka_resp_err_t)code) == TRUCE_INVALID)
        kafka_note(kafka, TRUCE_INVALID, reason);
    else if (code == RD_KAFKA_RESP_ERR__FATAL)
        kafka_note(kafka, TRUCE_IO, reason);
    else if (code == RD_KAFKA_RESP_ERR__TRANSPORT || code == RD_KAFKA_RESP_ERR__RESOLVE)
        snprintf(kafka->failure, sizeof kafka->failure, "%s", reason);
}

static void kafka_on_log(const rd_kafka_t *client, int level, const char *facility,
                         const char *text)
{
    (void)client, (void)level, (void)facility, (void)text;
}

static truce_status kafka_noted(const struct kafka *kafka, bson_error_t *error)
{
    return kafka->status ? plugin_fail(kafka->status, error, "Kafka: %s", kafka->reason) : TRUCE_OK;
}

/* Runs the queued callbacks, which may report the reason of a failure. In a subscribed client,
 * rd_kafka_consumer_poll runs them. */
static void kafka_call_back(struct kafka *kafka)
{
    if (!kafka->subscribed)
        (void)rd_kafka_poll(kafka->client, 0);
}

static truce_status kafka_check(struct kafka *kafka, rd_kafka_resp_err_t code, const char *what,
                                bson_error_t *error)
{
    if (!code)
        return kafka_noted(kafka, error);
    kafka_call_back(kafka);
    if (kafka->status)
        return kafka_noted(kafka, error);
    return plugin_fail(kafka_class(code), error, "%s \"%s\": %s%s%s", what, kafka->topic,
                       rd_kafka_err2str(code), *kafka->failure ? "; " : "", kafka->failure);
}

/* ---- partitions ------------------------------------------------------------------------------ */

static void kafka_drop_assigned(struct kafka *kafka)
{
    if (kafka->assigned)
        rd_kafka_topic_partition_list_destroy(kafka->assigned);
    if (kafka->acknowledged)
        rd_kafka_topic_partition_list_destroy(kafka->acknowledged);
    kafka->assigned = kafka->acknowledged = NULL;
}

/* Returns where a partition without a stored position is read. */
static int64_t kafka_begin(const struct kafka *kafka)
{
    return kafka->latest ? RD_KAFKA_OFFSET_END : RD_KAFKA_OFFSET_BEGINNING;
}

/* Assigns the partitions, each from its stored position or from the configured begin, and commits
 * the stored positions to Kafka. If a lookup fails, notes the error and assigns nothing. */
static void kafka_assign(struct kafka *kafka, rd_kafka_topic_partition_list_t *partitions)
{
    rd_kafka_topic_partition_list_t *known = rd_kafka_topic_partition_list_new(partitions->cnt);

    for (int i = 0; i < partitions->cnt; i++) {
        rd_kafka_topic_partition_t *at = &partitions->elems[i];
        bson_error_t error = {0};
        int64_t next = -1;
        truce_status status = kafka->open_options.find_position(kafka->open_options.arg, at->topic,
                                                                at->partition, &next, &error);

        if (status)
            kafka_note(kafka, status, error.message);
        at->offset = next >= 0 ? next : kafka_begin(kafka);
        if (next >= 0)
            rd_kafka_topic_partition_list_add(known, at->topic, at->partition)->offset = next;
    }
    kafka_drop_assigned(kafka);
    kafka->assigned = rd_kafka_topic_partition_list_copy(partitions);
    kafka->failure[0] = 0;
    kafka->unassigned = 0;
    /* After a failed lookup, nothing is read. */
    (void)rd_kafka_assign(kafka->client, kafka->status ? NULL : partitions);
    if (known->cnt && !kafka->status)
        (void)rd_kafka_commit(kafka->client, known, 1);
    rd_kafka_topic_partition_list_destroy(known);
}

static void kafka_on_rebalance(rd_kafka_t *client, rd_kafka_resp_err_t code,
                               rd_kafka_topic_partition_list_t *partitions, void *arg)
{
    struct kafka *kafka = arg;

    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        kafka_assign(kafka, partitions);
        return;
    }
    kafka_drop_assigned(kafka);
    (void)rd_kafka_assign(client, NULL);
}

static void kafka_set_next(struct kafka *kafka, int32_t partition, int64_t next)
{
    rd_kafka_topic_partition_t *at =
        kafka->assigned
            ? rd_kafka_topic_partition_list_find(kafka->assigned, kafka->topic, partition)
            : NULL;

    if (at)
        at->offset = next;
}

/* ---- open and close -------------------------------------------------------------------------- */

static bool kafka_set(rd_kafka_conf_t *conf, const char *name, const char *value,
                      bson_error_t *error)
{
    char reason[KAFKA_REASON];

    if (rd_kafka_conf_set(conf, name, value, reason, sizeof reason) == RD_KAFKA_CONF_OK)
        return true;
    (void)plugin_fail(TRUCE_INVALID, error, "invalid option \"%.80s\" of the URL: %s", name,
                      reason);
    return false;
}

/* Reads where a partition without a stored position begins. librdkafka does not get this option: it
 * would also skip the messages between a stored position and the oldest message. */
static bool kafka_read_begin(struct kafka *kafka, const char *value, bson_error_t *error)
{
    kafka->latest = !strcmp(value, "latest");
    if (kafka->latest || !strcmp(value, "earliest"))
        return true;
    (void)plugin_fail(TRUCE_INVALID, error,
                      "invalid option \"auto.offset.reset=%.80s\" of the URL: expected earliest or "
                      "latest",
                      value);
    return false;
}

/* Sets truce's own properties, and then those of the URL. Refuses properties on which the positions
 * depend. */
static bool kafka_configure(struct kafka *kafka, const struct broker_address *address,
                            rd_kafka_conf_t *conf, bson_error_t *error)
{
    char *hosts = address->port ? bson_strdup_printf("%s:%d", address->host, address->port)
                                : bson_strdup(address->host);
    bool good = kafka_set(conf, "bootstrap.servers", hosts, error);
    bson_iter_t at;

    bson_free(hosts);
    good = good && kafka_set(conf, "enable.auto.commit", "false", error) &&
           kafka_set(conf, "enable.auto.offset.store", "false", error) &&
           kafka_set(conf, "enable.partition.eof", "true", error) &&
           kafka_set(conf, "auto.offset.reset", "error", error) &&
           kafka_set(conf, "allow.auto.create.topics", "false", error) &&
           kafka_set(conf, "enable.idempotence", "true", error);
    if (good && kafka->is_consumer)
        good = kafka_set(conf, "group.id", kafka->open_options.consumer, error);
    if (good && address->user)
        good = kafka_set(conf, "security.protocol", "sasl_plaintext", error) &&
               kafka_set(conf, "sasl.mechanism", "PLAIN", error) &&
               kafka_set(conf, "sasl.username", address->user, error) &&
               kafka_set(conf, "sasl.password", address->password ? address->password : "", error);
    (void)bson_iter_init(&at, address->query);
    while (good && bson_iter_next(&at)) {
        const char *name = bson_iter_key(&at), *value = bson_iter_utf8(&at, NULL);

        if (!strcmp(name, "enable.auto.commit") || !strcmp(name, "enable.auto.offset.store") ||
            !strcmp(name, "partition.assignment.strategy")) {
            (void)plugin_fail(TRUCE_INVALID, error,
                              "the option \"%s\" of the URL is set by truce itself: remove it",
                              name);
            return false;
        }
        good = strcmp(name, "auto.offset.reset") != 0 ? kafka_set(conf, name, value, error)
                                                      : kafka_read_begin(kafka, value, error);
    }
    return good;
}

static bool kafka_is_stopped(const struct kafka *kafka)
{
    return kafka->open_options.stop && kafka->open_options.stop(kafka->open_options.arg);
}

/* Checks that the topic exists, and sets *partitions to the number of its partitions. Returns
 * NOT_FOUND if it does not exist, INVALID if no topic can have this name, and IO if no server
 * replied within `timeout_ms`. */
static truce_status kafka_check_topic(struct kafka *kafka, int timeout_ms, int *partitions,
                                      bson_error_t *error)
{
    const struct rd_kafka_metadata *found = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(kafka->client, kafka->topic, NULL);
    rd_kafka_resp_err_t code;
    truce_status status;
    int waited_ms = 0;

    if (!topic) /* librdkafka refuses names of more than 512 bytes. */
        return plugin_fail(TRUCE_INVALID, error, "invalid topic \"%.80s\": %s", kafka->topic,
                           rd_kafka_err2str(rd_kafka_last_error()));
    do { /* A callback may report the reason before the timeout. */
        code = rd_kafka_metadata(kafka->client, 0, topic, &found, KAFKA_CHECK_MS);
        kafka_call_back(kafka);
        waited_ms += KAFKA_CHECK_MS;
    } while ((code == RD_KAFKA_RESP_ERR__TIMED_OUT || code == RD_KAFKA_RESP_ERR__TRANSPORT) &&
             !kafka->status && waited_ms < timeout_ms && !kafka_is_stopped(kafka));
    *partitions = 0;
    if (!code && found->topic_cnt) {
        code = found->topics[0].err;
        *partitions = found->topics[0].partition_cnt;
    }
    status = kafka_check(kafka, code, "cannot find the topic", error);
    if (found)
        rd_kafka_metadata_destroy(found);
    rd_kafka_topic_destroy(topic);
    return status;
}

/* Returns INVALID if the first server of the URL speaks another protocol, with which a new
 * connection would fail again. */
static truce_status kafka_check_peer(const struct broker_address *address, bson_error_t *error)
{
    size_t length = strcspn(address->host, ",");
    char *host = bson_strndup(address->host, length), *colon = strchr(host, ':');
    int port = address->port ? address->port : KAFKA_PORT;
    bson_iter_t at;
    bool tls = bson_iter_init_find(&at, address->query, "security.protocol") &&
               strcasestr(bson_iter_utf8(&at, NULL), "ssl");
    truce_status status = TRUCE_OK;
    enum protocol protocol;

    /* More than one colon: an IPv6 address without a port. */
    if (!address->port && colon && !strchr(colon + 1, ':')) {
        *colon = 0;
        port = atoi(colon + 1);
    }
    protocol = protocol_probe(host, port);
    if (protocol == PROTOCOL_TLS && !tls)
        status = plugin_fail(TRUCE_INVALID, error,
                             "the server at %s:%d uses TLS: write ?security.protocol=ssl, or "
                             "sasl_ssl with a user",
                             host, port);
    else if (protocol == PROTOCOL_AMQP || protocol == PROTOCOL_HTTP)
        status = plugin_fail(TRUCE_INVALID, error,
                             "the server at %s:%d is not Kafka: its protocol is %s", host, port,
                             protocol_name(protocol));
    bson_free(host);
    return status;
}

/* Checks that the topic exists. If no server replies, finds out which protocol the first one
 * speaks. */
static truce_status kafka_find_topic(struct kafka *kafka, const struct broker_address *address,
                                     bson_error_t *error)
{
    int partitions;
    truce_status status = kafka_check_topic(kafka, KAFKA_FIRST_MS, &partitions, error);

    if (status != TRUCE_IO || kafka_is_stopped(kafka))
        return status;
    status = kafka_check_peer(address, error);
    return status ? status : kafka_check_topic(kafka, KAFKA_SECOND_MS, &partitions, error);
}

static truce_status kafka_subscribe(struct kafka *kafka, bson_error_t *error)
{
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_resp_err_t code;

    (void)rd_kafka_poll_set_consumer(kafka->client);
    kafka->subscribed = true;
    rd_kafka_topic_partition_list_add(topics, kafka->topic, RD_KAFKA_PARTITION_UA);
    code = rd_kafka_subscribe(kafka->client, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return kafka_check(kafka, code, "cannot subscribe to", error);
}

/* Commits the acknowledged offsets and leaves the group. Frees the client, unless its topic was
 * deleted. */
static void kafka_plugin_close(void *arg)
{
    struct kafka *kafka = arg;

    if (!kafka)
        return;
    if (kafka->client && kafka->is_consumer) {
        if (kafka->acknowledged && kafka->acknowledged->cnt && !kafka->status)
            (void)rd_kafka_commit(kafka->client, kafka->acknowledged, 0);
        (void)rd_kafka_consumer_close(kafka->client);
    }
    /* librdkafka 2.0 never returns if the topic was deleted while it was read, because a partition
     * of it keeps a thread. The client stays until the process ends, once for each deletion. */
    if (kafka->client && !kafka->lost)
        rd_kafka_destroy(kafka->client);
    kafka_drop_assigned(kafka);
    bson_free(kafka->topic);
    bson_free(kafka);
}

static void kafka_on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *arg)
{
    (void)client;
    if (message->err)
        kafka_note(arg, kafka_class(message->err), rd_kafka_err2str(message->err));
}

/* Creates the client, which then owns the configuration. */
static truce_status kafka_make_client(struct kafka *kafka, const struct broker_address *address,
                                      bson_error_t *error)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char reason[KAFKA_REASON];

    if (!kafka_configure(kafka, address, conf, error)) {
        rd_kafka_conf_destroy(conf);
        return TRUCE_INVALID;
    }
    rd_kafka_conf_set_opaque(conf, kafka);
    rd_kafka_conf_set_error_cb(conf, kafka_on_error);
    rd_kafka_conf_set_log_cb(conf, kafka_on_log);
    if (kafka->is_consumer)
        rd_kafka_conf_set_rebalance_cb(conf, kafka_on_rebalance);
    else
        rd_kafka_conf_set_dr_msg_cb(conf, kafka_on_delivery);
    kafka->client = rd_kafka_new(kafka->is_consumer ? RD_KAFKA_CONSUMER : RD_KAFKA_PRODUCER, conf,
                                 reason, sizeof reason);
    if (kafka->client)
        return TRUCE_OK;
    rd_kafka_conf_destroy(conf);
    return plugin_fail(TRUCE_INVALID, error, "cannot use Kafka: %s", reason);
}

static truce_status kafka_plugin_open(const struct broker_address *address,
                                      const struct broker_open_options *open_options, void **broker,
                                      bson_error_t *error)
{
    struct kafka *kafka = bson_malloc0(sizeof *kafka);
    truce_status status = TRUCE_OK;

    kafka->open_options = *open_options;
    kafka->is_consumer = !open_options->publishes;
    kafka->topic = bson_strdup(address->path_count == 1 ? address->path[0] : "");
    if (address->path_count != 1 || !*kafka->topic)
        status = plugin_fail(TRUCE_INVALID, error, "invalid URL: expected kafka://HOST:PORT/TOPIC");
    if (!status)
        status = kafka_make_client(kafka, address, error);
    if (!status)
        status = kafka_find_topic(kafka, address, error);
    if (!status && kafka->is_consumer)
        status = kafka_subscribe(kafka, error);
    if (status) {
        kafka_plugin_close(kafka);
        return status;
    }
    *broker = kafka;
    return TRUCE_OK;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Appends the headers of the message. If a name occurs several times, its last header counts. A
 * header without a value is null. */
static void kafka_append_headers(bson_t *facts, const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers = NULL;
    const void *value;
    const char *name;
    size_t size;
    bson_t child;

    BSON_APPEND_DOCUMENT_BEGIN(facts, "headers", &child);
    if (!rd_kafka_message_headers(message, &headers))
        for (size_t i = 0; !rd_kafka_header_get_all(headers, i, &name, &value, &size); i++) {
            const void *last = NULL;
            size_t last_size = 0;

            if (bson_has_field(&child, name) || strchr(name, '.') ||
                !bson_utf8_validate(name, strlen(name), false) ||
                rd_kafka_header_get_last(headers, name, &last, &last_size))
                continue;
            if (last)
                plugin_append_bytes(&child, name, last, last_size);
            else
                bson_append_null(&child, name, -1);
        }
    bson_append_document_end(facts, &child);
}

static struct broker_message *kafka_make_message(const rd_kafka_message_t *from, const char *topic)
{
    struct broker_message *message = plugin_message(from->payload, from->len);
    rd_kafka_timestamp_type_t type;
    int64_t time_ms = rd_kafka_message_timestamp(from, &type);

    message->position = (struct broker_position){bson_strdup(topic), from->partition, from->offset};
    if (from->key)
        plugin_append_bytes(&message->facts, "key", from->key, from->key_len);
    if (type != RD_KAFKA_TIMESTAMP_NOT_AVAILABLE)
        BSON_APPEND_DATE_TIME(&message->facts, "time", time_ms);
    BSON_APPEND_UTF8(&message->facts, "topic", topic);
    BSON_APPEND_INT32(&message->facts, "partition", from->partition);
    BSON_APPEND_INT64(&message->facts, "offset", from->offset);
    kafka_append_headers(&message->facts, from);
    return message;
}

/* Fails because librdkafka could not read at a position. The status is INVALID if Kafka no longer
 * has the stored position. In a topic that was created again, the offsets of new messages belong to
 * messages that the store has already applied. */
static truce_status kafka_refuse_position(struct kafka *kafka, const rd_kafka_message_t *from,
                                          bson_error_t *error)
{
    const rd_kafka_topic_partition_t *at =
        kafka->assigned
            ? rd_kafka_topic_partition_list_find(kafka->assigned, kafka->topic, from->partition)
            : NULL;
    int64_t low = 0, high = 0;

    if (!at || at->offset < 0 ||
        rd_kafka_query_watermark_offsets(kafka->client, kafka->topic, from->partition, &low, &high,
                                         KAFKA_TIMEOUT_MS) ||
        (at->offset >= low && at->offset <= high))
        return plugin_fail(TRUCE_IO, error, "Kafka: %s", rd_kafka_message_errstr(from));
    return plugin_fail(TRUCE_INVALID, error,
                       "the partition %d of the topic \"%s\" does not have the stored position "
                       "%lld, but those from %lld to %lld. Messages were removed before they were "
                       "consumed, or the topic was created again. Another --consumer begins at "
                       "the oldest message",
                       (int)from->partition, kafka->topic, (long long)at->offset, (long long)low,
                       (long long)high);
}

/* Polls once. The next offset of a partition advances with each message, and at the end of the
 * partition. */
static truce_status kafka_plugin_receive(void *arg, int timeout_ms, struct broker_message **message,
                                         bson_error_t *error)
{
    struct kafka *kafka = arg;
    rd_kafka_message_t *from = rd_kafka_consumer_poll(kafka->client, timeout_ms);
    truce_status status = kafka_noted(kafka, error);

    *message = NULL;
    if (!from)
        return status;
    if (!status && from->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        kafka_set_next(kafka, from->partition, from->offset);
    } else if (!status && from->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET) {
        status = kafka_refuse_position(kafka, from, error);
    } else if (!status && from->err) {
        status =
            plugin_fail(kafka_class(from->err), error, "Kafka: %s", rd_kafka_message_errstr(from));
        kafka->lost |= status == TRUCE_NOT_FOUND;
    } else if (!status) {
        *message = kafka_make_message(from, kafka->topic);
        kafka_set_next(kafka, from->partition, from->offset + 1);
    }
    rd_kafka_message_destroy(from);
    return status;
}

/* Sets the offset to commit to Kafka, unless another member of the group has got the partition. */
static void kafka_set_acknowledged(struct kafka *kafka, int32_t partition, int64_t next)
{
    rd_kafka_topic_partition_t *at;

    if (!kafka->assigned ||
        !rd_kafka_topic_partition_list_find(kafka->assigned, kafka->topic, partition))
        return;
    if (!kafka->acknowledged)
        kafka->acknowledged = rd_kafka_topic_partition_list_new(8);
    at = rd_kafka_topic_partition_list_find(kafka->acknowledged, kafka->topic, partition);
    if (!at)
        at = rd_kafka_topic_partition_list_add(kafka->acknowledged, kafka->topic, partition);
    at->offset = next;
}

/* Commits the offsets to Kafka, without waiting for its reply. A failure, such as a rebalance at
 * this time, changes nothing: the store has the positions. */
static void kafka_commit_acknowledged(struct kafka *kafka)
{
    if (kafka->acknowledged)
        (void)rd_kafka_commit(kafka->client, kafka->acknowledged, 1);
}

/* Commits the offsets after the messages. */
static truce_status kafka_plugin_acknowledge(void *arg, struct broker_message *const *messages,
                                             size_t count, bson_error_t *error)
{
    struct kafka *kafka = arg;

    for (size_t i = 0; i < count; i++)
        kafka_set_acknowledged(kafka, messages[i]->position.partition,
                               messages[i]->position.offset + 1);
    kafka_commit_acknowledged(kafka);
    return kafka_noted(kafka, error);
}

/* Adds to *count the messages of a partition after its next offset. A negative offset other than
 * OFFSET_BEGINNING means the end. */
static truce_status kafka_add_waiting(struct kafka *kafka, const rd_kafka_topic_partition_t *at,
                                      int64_t *count, bson_error_t *error)
{
    int64_t low = 0, high = 0;
    rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
        kafka->client, kafka->topic, at->partition, &low, &high, KAFKA_TIMEOUT_MS);

    /* The position is after the end if the topic was made again. */
    if (!code && (at->offset >= 0 || at->offset == RD_KAFKA_OFFSET_BEGINNING) && at->offset < high)
        *count += high - (at->offset >= low ? at->offset : low);
    return kafka_check(kafka, code, "cannot count the messages of", error);
}

/* Commits the next offsets of the assigned partitions. Unlike the stored position, such an offset is
 * after the records at the end that are not messages, such as the end of a transaction. All messages
 * before it are acknowledged. */
static void kafka_commit_ends(struct kafka *kafka)
{
    for (int i = 0; i < kafka->assigned->cnt; i++)
        if (kafka->assigned->elems[i].offset >= 0)
            kafka_set_acknowledged(kafka, kafka->assigned->elems[i].partition,
                                   kafka->assigned->elems[i].offset);
    kafka_commit_acknowledged(kafka);
}

/* Sets the next offset of each partition that other members of the group read. It is the higher one
 * of the stored position and the offset that Kafka has, or the configured begin. */
static truce_status kafka_find_others(struct kafka *kafka, rd_kafka_topic_partition_list_t *others,
                                      bson_error_t *error)
{
    truce_status status =
        kafka_check(kafka, rd_kafka_committed(kafka->client, others, KAFKA_TIMEOUT_MS),
                    "cannot read the offsets of", error);

    for (int i = 0; i < others->cnt && !status; i++) {
        rd_kafka_topic_partition_t *at = &others->elems[i];
        int64_t next = -1;

        status = kafka->open_options.find_position(kafka->open_options.arg, kafka->topic,
                                                   at->partition, &next, error);
        if (next > at->offset)
            at->offset = next;
        if (at->offset < 0)
            at->offset = kafka_begin(kafka);
    }
    return status;
}

/* Counts the messages of the partitions that other members of the group read. */
static truce_status kafka_count_others(struct kafka *kafka, int partitions, int64_t *count,
                                       bson_error_t *error)
{
    rd_kafka_topic_partition_list_t *others = rd_kafka_topic_partition_list_new(8);
    truce_status status = TRUCE_OK;

    *count = 0;
    for (int i = 0; i < partitions; i++)
        if (!rd_kafka_topic_partition_list_find(kafka->assigned, kafka->topic, i))
            rd_kafka_topic_partition_list_add(others, kafka->topic, i);
    if (others->cnt)
        status = kafka_find_others(kafka, others, error);
    for (int i = 0; i < others->cnt && !status; i++)
        status = kafka_add_waiting(kafka, &others->elems[i], count, error);
    rd_kafka_topic_partition_list_destroy(others);
    return status;
}

/* Counts the messages after the positions of the assigned partitions, and of the others. Before an
 * assignment, the count is 1, so that no caller takes the topic for empty. Commits the next offsets
 * to Kafka first, except in a dry run. */
static truce_status kafka_plugin_waiting(void *arg, int64_t *count, int64_t *others,
                                         bson_error_t *error)
{
    struct kafka *kafka = arg;
    int partitions;
    /* librdkafka does not report the deletion of a topic. */
    truce_status status = kafka_check_topic(kafka, KAFKA_TIMEOUT_MS, &partitions, error);

    kafka->lost |= status == TRUCE_NOT_FOUND;
    if (status)
        return status;
    kafka->unassigned += !kafka->assigned;
    if (kafka->unassigned > KAFKA_JOIN_TRIES && *kafka->failure)
        return plugin_fail(TRUCE_IO, error, "Kafka assigns no partition of the topic \"%s\": %s",
                           kafka->topic, kafka->failure);
    *count = kafka->assigned ? 0 : 1; /* Unknown until the group has assigned partitions. */
    if (!kafka->assigned)
        return TRUCE_OK;
    if (!kafka->open_options.dry_run)
        kafka_commit_ends(kafka);
    for (int i = 0; i < kafka->assigned->cnt && !status; i++)
        status = kafka_add_waiting(kafka, &kafka->assigned->elems[i], count, error);
    return status || *count || !others ? status
                                       : kafka_count_others(kafka, partitions, others, error);
}

/* ---- publishing ------------------------------------------------------------------------------ */

static rd_kafka_headers_t *kafka_make_headers(const struct broker_post *post)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    bson_iter_t at;

    if (post->id)
        rd_kafka_header_add(headers, "id", -1, post->id, -1);
    if (post->content_type)
        rd_kafka_header_add(headers, "content-type", -1, post->content_type, -1);
    if (post->headers && bson_iter_init(&at, post->headers))
        while (bson_iter_next(&at))
            if (BSON_ITER_HOLDS_UTF8(&at))
                rd_kafka_header_add(headers, bson_iter_key(&at), -1, bson_iter_utf8(&at, NULL), -1);
    return headers;
}

static truce_status kafka_plugin_publish(void *arg, const struct broker_post *post,
                                         bson_error_t *error)
{
    struct kafka *kafka = arg;
    rd_kafka_headers_t *headers = kafka_make_headers(post);
    const char *key = post->key ? post->key : post->order_key;
    rd_kafka_resp_err_t code = rd_kafka_producev(
        kafka->client, RD_KAFKA_V_TOPIC(post->to ? post->to : kafka->topic),
        RD_KAFKA_V_KEY(key, key ? strlen(key) : 0),
        RD_KAFKA_V_VALUE((void *)post->body, post->size), RD_KAFKA_V_HEADERS(headers),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK), RD_KAFKA_V_END);

    if (code)
        rd_kafka_headers_destroy(headers);
    return kafka_check(kafka, code, "cannot publish to", error);
}

static truce_status kafka_plugin_confirm(void *arg, int timeout_ms, bson_error_t *error)
{
    struct kafka *kafka = arg;

    return kafka_check(kafka, rd_kafka_flush(kafka->client, timeout_ms),
                       "Kafka does not confirm messages of", error);
}

/* ---- the module ------------------------------------------------------------------------------ */

static const struct broker_ops kafka_ops = {
    .open = kafka_plugin_open,
    .close = kafka_plugin_close,
    .receive = kafka_plugin_receive,
    .acknowledge = kafka_plugin_acknowledge,
    .waiting = kafka_plugin_waiting,
    .publish = kafka_plugin_publish,
    .confirm = kafka_plugin_confirm,
};

TRUCE_EXPORT truce_broker_function truce_broker_kafka;

const struct broker_ops *truce_broker_kafka(int version)
{
    return version == BROKER_VERSION ? &kafka_ops : NULL;
}
