/*
 * RabbitMQ, by AMQP 0-9-1 and librabbitmq.
 *
 *     amqp[s]://USER:PASSWORD@HOST:PORT/[VHOST/]NAME?cacert=FILE&cert=FILE&key=FILE
 *
 * NAME is the queue of a consumer, or the exchange of a publisher ("" or none: the default one,
 * whose routing keys are names of queues). Options of a publisher: routing_key. A consumer has:
 * stream.
 *
 * A consumer acknowledges all messages up to a tag at once. Every channel is channel 1. A publisher
 * uses confirms, and `mandatory`, so a message that no queue receives is an error.
 *
 * A stream keeps its messages, and acknowledgements only ask for further ones. So it is read from
 * the position that the store has, like a partition of Kafka.
 *
 * This module uses libbson and librabbitmq, and nothing of libtruce.
 */
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>

#include "broker/plugins/amqp_message.h"
#include "broker/plugins/plugin.h"
#include "broker/plugins/protocol_probe.h"

#define AMQP_PORT        5672
#define AMQP_TLS_PORT    5671
#define AMQP_CHANNEL     1
#define AMQP_FRAME_BYTES 131072
#define AMQP_HEARTBEAT_S 60
#define AMQP_TIMEOUT_S   15
/* The maximum number of messages that are sent and not yet confirmed. */
#define AMQP_WINDOW 1000
/* The number of waiting messages that is reported if RabbitMQ cannot count them, so that no caller
 * takes the queue for empty. */
#define AMQP_UNCERTAIN_COUNT 1
#define AMQP_CA_FILE         "/etc/ssl/certs/ca-certificates.crt"

struct amqp {
    amqp_connection_state_t connection;
    /* The connection failed, so it is closed without a channel.close and a connection.close. */
    bool broken;
    char *queue, *exchange, *routing_key;
    /* The begin of a stream without a stored position: "first", "last", or "next". NULL if the
     * queue is not a stream. If `any` is set, the module does not check whether the queue is a
     * stream. */
    char *stream;
    bool any;
    /* The stored position in a stream until the first message arrives, or -1. */
    int64_t next;
    /* Published messages are numbered from 1. The messages up to `base` are confirmed. `confirmed`
     * has a byte for each later message, up to `sent`. */
    uint64_t base, sent;
    uint8_t confirmed[AMQP_WINDOW];
};

/* ---- errors ---------------------------------------------------------------------------------- */

/* Classifies the code of a channel.close or connection.close. */
static truce_status amqp_refusal(struct amqp *amqp, int code, amqp_bytes_t text,
                                 bson_error_t *error)
{
    truce_status status = code == AMQP_NOT_FOUND || code == AMQP_NOT_ALLOWED ? TRUCE_NOT_FOUND
                          : code == AMQP_ACCESS_REFUSED || code == AMQP_PRECONDITION_FAILED ||
                                  code == AMQP_COMMAND_INVALID || code == AMQP_NOT_IMPLEMENTED
                              ? TRUCE_INVALID
                              : TRUCE_IO;

    amqp->broken = true;
    return plugin_fail(status, error, "RabbitMQ refused the operation with code %d: %.*s", code,
                       (int)text.len, (const char *)text.bytes);
}

/* Fails because of a method that ends the channel, the connection, or the subscription, or that is
 * unexpected. The connection is broken then. */
static truce_status amqp_method_refusal(struct amqp *amqp, const amqp_method_t *method,
                                        bson_error_t *error)
{
    amqp->broken = true;
    if (method->id == AMQP_CHANNEL_CLOSE_METHOD) {
        const amqp_channel_close_t *closed = method->decoded;

        return amqp_refusal(amqp, closed->reply_code, closed->reply_text, error);
    }
    if (method->id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *closed = method->decoded;

        return amqp_refusal(amqp, closed->reply_code, closed->reply_text, error);
    }
    if (method->id == AMQP_BASIC_CANCEL_METHOD)
        return plugin_fail(TRUCE_NOT_FOUND, error,
                           "RabbitMQ ended the subscription: the queue "
                           "\"%s\" was deleted, or moves to another node",
                           amqp->queue);
    return plugin_fail(TRUCE_IO, error, "RabbitMQ sent the unexpected method 0x%08x", method->id);
}

/* Fails with an error of librabbitmq. A certificate that is not trusted and an incompatible
 * protocol are INVALID, because a retry fails again; all others are IO. */
static truce_status amqp_library_error(struct amqp *amqp, int code, const char *what,
                                       bson_error_t *error)
{
    amqp->broken = true;
    switch (code) {
    case AMQP_STATUS_SSL_PEER_VERIFY_FAILED:
        return plugin_fail(TRUCE_INVALID, error,
                           "%s: the certificate is not trusted: name its CA by ?cacert=FILE, or "
                           "renew it if it has expired",
                           what);
    case AMQP_STATUS_SSL_HOSTNAME_VERIFY_FAILED:
        return plugin_fail(TRUCE_INVALID, error,
                           "%s: the certificate is not trusted: it belongs to another host name",
                           what);
    case AMQP_STATUS_SSL_CONNECTION_FAILED:
        return plugin_fail(TRUCE_IO, error,
                           "%s: the TLS handshake failed (a broker that requires the certificate "
                           "of a client gets it by ?cert=FILE&key=FILE)",
                           what);
    default:
        return plugin_fail(code == AMQP_STATUS_INCOMPATIBLE_AMQP_VERSION ||
                                   code == AMQP_STATUS_BROKER_UNSUPPORTED_SASL_METHOD
                               ? TRUCE_INVALID
                               : TRUCE_IO,
                           error, "%s: %s", what, amqp_error_string2(code));
    }
}

static truce_status amqp_check(struct amqp *amqp, amqp_rpc_reply_t reply, const char *what,
                               bson_error_t *error)
{
    if (reply.reply_type == AMQP_RESPONSE_NORMAL)
        return TRUCE_OK;
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION)
        return amqp_method_refusal(amqp, &reply.reply, error);
    return amqp_library_error(amqp, reply.library_error, what, error);
}

/* ---- open and close -------------------------------------------------------------------------- */

static const char *amqp_option(const struct broker_address *address, const char *name)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, address->query, name) ? bson_iter_utf8(&at, NULL) : NULL;
}

/* Returns whether the list, which ends with NULL, contains the text. */
static bool amqp_has(const char *const *list, const char *text)
{
    while (*list && strcmp(*list, text) != 0)
        list++;
    return *list != NULL;
}

/* Refuses unknown options, options of TLS without amqps, and a path with more than a virtual host
 * and a name. */
static truce_status amqp_check_options(const struct broker_address *address, bson_error_t *error)
{
    static const char *const known[] = {"cacert", "cert", "key", "routing_key", "stream", NULL};
    static const char *const tls[] = {"cacert", "cert", "key", NULL};
    static const char *const begins[] = {"first", "last", "next", "no", NULL};
    const char *stream = amqp_option(address, "stream");
    bson_iter_t at;

    (void)bson_iter_init(&at, address->query);
    while (bson_iter_next(&at)) {
        if (!amqp_has(known, bson_iter_key(&at)))
            return plugin_fail(TRUCE_INVALID, error,
                               "unknown option \"%.80s\" of the URL: expected cacert, cert, key, "
                               "routing_key, or stream",
                               bson_iter_key(&at));
        if (amqp_has(tls, bson_iter_key(&at)) && strcmp(address->scheme, "amqps") != 0)
            return plugin_fail(TRUCE_INVALID, error,
                               "the option \"%s\" of the URL is for TLS: write amqps://",
                               bson_iter_key(&at));
    }
    if (stream && !amqp_has(begins, stream))
        return plugin_fail(TRUCE_INVALID, error,
                           "invalid option \"stream=%.80s\" of the URL: expected first, last, "
                           "next, or no",
                           stream);
    if (address->path_count > 2 || strchr(address->host, ','))
        return plugin_fail(TRUCE_INVALID, error,
                           "invalid URL: expected amqp://HOST/QUEUE or amqp://HOST/VHOST/QUEUE");
    return TRUCE_OK;
}

static truce_status amqp_prepare_tls(amqp_socket_t *socket, const struct broker_address *address,
                                     bson_error_t *error)
{
    const char *ca = amqp_option(address, "cacert");
    const char *certificate = amqp_option(address, "cert"), *key = amqp_option(address, "key");

    if (amqp_ssl_socket_set_cacert(socket, ca ? ca : AMQP_CA_FILE))
        return plugin_fail(TRUCE_INVALID, error, "cannot read the CA file %s",
                           ca ? ca : AMQP_CA_FILE);
    if (!certificate != !key)
        return plugin_fail(TRUCE_INVALID, error,
                           "the URL has only one of the options cert and key: give both");
    if (certificate && amqp_ssl_socket_set_key(socket, certificate, key))
        return plugin_fail(TRUCE_INVALID, error, "cannot read the certificate %s or its key %s",
                           certificate, key);
    return TRUCE_OK;
}

static bool amqp_uses_tls(const struct broker_address *address)
{
    return !strcmp(address->scheme, "amqps");
}

static int amqp_port(const struct broker_address *address)
{
    return address->port ? address->port : amqp_uses_tls(address) ? AMQP_TLS_PORT : AMQP_PORT;
}

/* Returns INVALID if the server speaks another protocol, with which a new connection would fail
 * again. Otherwise the error stays. */
static truce_status amqp_explain(const struct broker_address *address, bson_error_t *error)
{
    bool tls = amqp_uses_tls(address);
    int port = amqp_port(address);
    enum protocol protocol = protocol_probe(address->host, port);

    switch (protocol) {
    case PROTOCOL_AMQP:
        return tls ? plugin_fail(TRUCE_INVALID, error,
                                 "RabbitMQ at %s:%d does not use TLS: write amqp://, or the port "
                                 "for TLS, which is %d unless it was changed",
                                 address->host, port, AMQP_TLS_PORT)
                   : TRUCE_IO;
    case PROTOCOL_TLS:
        return tls ? TRUCE_IO
                   : plugin_fail(TRUCE_INVALID, error,
                                 "the server at %s:%d uses TLS: write amqps://", address->host,
                                 port);
    case PROTOCOL_HTTP:
    case PROTOCOL_KAFKA:
        return plugin_fail(TRUCE_INVALID, error,
                           "the server at %s:%d is not RabbitMQ: its protocol is %s", address->host,
                           port, protocol_name(protocol));
    default:
        return TRUCE_IO;
    }
}

/* Opens the socket, with TLS for amqps. Does not log in. */
static truce_status amqp_connect(struct amqp *amqp, const struct broker_address *address,
                                 bson_error_t *error)
{
    bool tls = amqp_uses_tls(address);
    struct timeval timeout = {.tv_sec = AMQP_TIMEOUT_S};
    int port = amqp_port(address);
    amqp_socket_t *socket =
        tls ? amqp_ssl_socket_new(amqp->connection) : amqp_tcp_socket_new(amqp->connection);
    truce_status status = TRUCE_OK;
    char what[300];
    int code;

    if (!socket)
        return plugin_fail(
            TRUCE_IO, error,
            "cannot create a socket to RabbitMQ: no memory is left, or OpenSSL failed");
    if (tls)
        status = amqp_prepare_tls(socket, address, error);
    if (status)
        return status;
    snprintf(what, sizeof what, "cannot connect to RabbitMQ at %s:%d", address->host, port);
    (void)amqp_set_handshake_timeout(amqp->connection, &timeout);
    (void)amqp_set_rpc_timeout(amqp->connection, &timeout);
    code = amqp_socket_open_noblock(socket, address->host, port, &timeout);
    return code ? amqp_library_error(amqp, code, what, error) : TRUCE_OK;
}

/* Logs in, by default as guest, and opens the channel. Announces consumer_cancel_notify, so that
 * RabbitMQ reports a deleted queue. */
static truce_status amqp_log_in(struct amqp *amqp, const struct broker_address *address,
                                bson_error_t *error)
{
    const char *vhost = address->path_count == 2 ? address->path[0] : "/";
    const char *user = address->user ? address->user : "guest";
    amqp_table_entry_t capability = {.key = amqp_cstring_bytes("consumer_cancel_notify"),
                                     .value = {.kind = AMQP_FIELD_KIND_BOOLEAN}};
    amqp_table_entry_t property = {.key = amqp_cstring_bytes("capabilities"),
                                   .value = {.kind = AMQP_FIELD_KIND_TABLE}};
    const amqp_table_t properties = {.num_entries = 1, .entries = &property};
    amqp_rpc_reply_t reply;
    truce_status status;

    capability.value.value.boolean = 1;
    property.value.value.table = (amqp_table_t){.num_entries = 1, .entries = &capability};
    reply = amqp_login_with_properties(amqp->connection, vhost, 0, AMQP_FRAME_BYTES,
                                       AMQP_HEARTBEAT_S, &properties, AMQP_SASL_METHOD_PLAIN, user,
                                       address->user ? (address->password ? address->password : "")
                                                     : "guest");
    status = amqp_check(amqp, reply, "cannot log in to RabbitMQ", error);
    if (status)
        return status;
    amqp_channel_open(amqp->connection, AMQP_CHANNEL);
    return amqp_check(amqp, amqp_get_rpc_reply(amqp->connection), "cannot open a channel", error);
}

/* Checks that the queue exists, sets the prefetch, and subscribes. Reads a stream from the stored
 * position, or from the begin in the URL. */
static truce_status amqp_begin_consumer(struct amqp *amqp,
                                        const struct broker_open_options *open_options,
                                        bson_error_t *error)
{
    uint16_t prefetch =
        open_options->prefetch > UINT16_MAX ? UINT16_MAX : (uint16_t)open_options->prefetch;
    amqp_table_entry_t begin = {.key = amqp_cstring_bytes("x-stream-offset")};
    truce_status status;

    if (!*amqp->queue)
        return plugin_fail(TRUCE_INVALID, error,
                           "the URL has no queue: expected amqp://HOST/QUEUE");
    amqp_queue_declare(amqp->connection, AMQP_CHANNEL, amqp_cstring_bytes(amqp->queue), 1, 0, 0, 0,
                       amqp_empty_table);
    status = amqp_check(amqp, amqp_get_rpc_reply(amqp->connection), "cannot find the queue", error);
    if (status)
        return status;
    amqp_basic_qos(amqp->connection, AMQP_CHANNEL, 0, prefetch, 0);
    status =
        amqp_check(amqp, amqp_get_rpc_reply(amqp->connection), "cannot set the prefetch", error);
    if (status)
        return status;
    if (amqp->stream) {
        status = open_options->find_position(open_options->arg, amqp->queue, 0, &amqp->next, error);
        if (status)
            return status;
        begin.value.kind = amqp->next < 0 ? AMQP_FIELD_KIND_UTF8 : AMQP_FIELD_KIND_I64;
        if (amqp->next < 0)
            begin.value.value.bytes = amqp_cstring_bytes(amqp->stream);
        else
            begin.value.value.i64 = amqp->next;
    }
    amqp_basic_consume(amqp->connection, AMQP_CHANNEL, amqp_cstring_bytes(amqp->queue),
                       amqp_empty_bytes, 0, 0, 0, (amqp_table_t){amqp->stream != NULL, &begin});
    return amqp_check(amqp, amqp_get_rpc_reply(amqp->connection), "cannot subscribe", error);
}

static truce_status amqp_begin_publisher(struct amqp *amqp, bson_error_t *error)
{
    amqp_confirm_select(amqp->connection, AMQP_CHANNEL);
    return amqp_check(amqp, amqp_get_rpc_reply(amqp->connection), "cannot use confirms", error);
}

static void amqp_plugin_close(void *arg)
{
    struct amqp *amqp = arg;

    if (!amqp)
        return;
    /* An orderly close also flushes the acknowledgements that were sent last. */
    if (!amqp->broken)
        (void)amqp_connection_close(amqp->connection, AMQP_REPLY_SUCCESS);
    (void)amqp_destroy_connection(amqp->connection);
    bson_free(amqp->queue);
    bson_free(amqp->exchange);
    bson_free(amqp->routing_key);
    bson_free(amqp->stream);
    bson_free(amqp);
}

/* Opens the connection of a consumer or a publisher. If this fails with IO, asks the server for its
 * protocol (amqp_explain). */
static truce_status amqp_plugin_open(const struct broker_address *address,
                                     const struct broker_open_options *open_options, void **broker,
                                     bson_error_t *error)
{
    struct amqp *amqp = bson_malloc0(sizeof *amqp);
    const char *name = address->path_count ? address->path[address->path_count - 1] : "";
    const char *stream = amqp_option(address, "stream");
    truce_status status = amqp_check_options(address, error);

    amqp->connection = amqp_new_connection();
    amqp->queue = bson_strdup(name);
    amqp->exchange = bson_strdup(name);
    amqp->routing_key = bson_strdup(amqp_option(address, "routing_key"));
    amqp->any = stream && !strcmp(stream, "no");
    amqp->stream = amqp->any ? NULL : bson_strdup(stream);
    amqp->next = -1;
    amqp->broken = true;
    if (!status)
        status = amqp_connect(amqp, address, error);
    amqp->broken = status != TRUCE_OK;
    if (!status)
        status = amqp_log_in(amqp, address, error);
    if (!status)
        status = open_options->publishes ? amqp_begin_publisher(amqp, error)
                                         : amqp_begin_consumer(amqp, open_options, error);
    if (status == TRUCE_IO)
        status = amqp_explain(address, error);
    if (status) {
        amqp_plugin_close(amqp);
        return status;
    }
    *broker = amqp;
    return TRUCE_OK;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Finds the position of a message of a stream. Fails with INVALID if the queue is a stream and the
 * URL does not say so, or if the first message is not at the stored position. */
static truce_status amqp_find_offset(struct amqp *amqp, struct broker_message *message,
                                     bson_error_t *error)
{
    int64_t offset, next = amqp->next;
    bool is_stream = amqp_message_offset(message, &offset);

    if (amqp->stream && is_stream)
        message->position = (struct broker_position){bson_strdup(amqp->queue), 0, offset};
    amqp->next = -1;
    if (is_stream && next >= 0 && offset != next)
        return plugin_fail(
            TRUCE_INVALID, error,
            "the stream \"%s\" does not have the stored position %lld, and continues at %lld. "
            "Messages were removed before they were consumed, or the stream was created again. "
            "Another --consumer begins at ?stream=%s",
            amqp->queue, (long long)next, (long long)offset, amqp->stream);
    if (amqp->stream || amqp->any || !is_stream)
        return TRUCE_OK;
    return plugin_fail(
        TRUCE_INVALID, error,
        "the queue \"%s\" is a stream: add ?stream=first, last, or next to the URL to choose the "
        "beginning, or ?stream=no if messages only have its header",
        amqp->queue);
}

static truce_status amqp_unexpected(struct amqp *amqp, const amqp_frame_t *frame,
                                    bson_error_t *error)
{
    if (frame->frame_type == AMQP_FRAME_METHOD)
        return amqp_method_refusal(amqp, &frame->payload.method, error);
    amqp->broken = true;
    return plugin_fail(TRUCE_IO, error, "RabbitMQ sent an unexpected frame of the type %d",
                       frame->frame_type);
}

/* Reads the frames of a message, whose properties stay in the memory of the connection. The caller
 * frees the body, also after a failure. amqp_read_message() is not used: it copies the properties,
 * and fails at a header with an empty name, so that the message would come again forever. */
static truce_status amqp_read_content(struct amqp *amqp, amqp_message_t *message,
                                      bson_error_t *error)
{
    size_t size = 0, room = 0;
    uint64_t left = 0;
    bool first = true;

    while (first || left) {
        struct timeval timeout = {.tv_sec = AMQP_TIMEOUT_S};
        amqp_frame_t frame;
        int code = amqp_simple_wait_frame_noblock(amqp->connection, &frame, &timeout);
        amqp_bytes_t part;

        if (code)
            return amqp_library_error(amqp, code, "the connection to RabbitMQ failed", error);
        if (frame.frame_type != (first ? AMQP_FRAME_HEADER : AMQP_FRAME_BODY))
            return amqp_unexpected(amqp, &frame, error);
        if (first) {
            const amqp_basic_properties_t *properties = frame.payload.properties.decoded;

            message->properties = *properties;
            left = frame.payload.properties.body_size;
            first = false;
            continue;
        }
        part = frame.payload.body_fragment;
        if (part.len > left)
            return amqp_unexpected(amqp, &frame, error);
        if (part.len > room - size) {
            room = 2 * room > size + part.len ? 2 * room : size + part.len;
            message->body.bytes = bson_realloc(message->body.bytes, room);
        }
        memcpy((char *)message->body.bytes + size, part.bytes, part.len);
        size += part.len;
        left -= part.len;
    }
    message->body.len = size;
    return TRUCE_OK;
}

/* Waits for a delivery and reads its frames. If no delivery comes in time, returns OK without a
 * message. */
static truce_status amqp_plugin_receive(void *arg, int timeout_ms, struct broker_message **message,
                                        bson_error_t *error)
{
    struct amqp *amqp = arg;
    struct timeval timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000};
    amqp_envelope_t envelope = {0};
    const amqp_basic_deliver_t *delivery;
    amqp_frame_t frame;
    truce_status status;
    int code;

    *message = NULL;
    amqp_maybe_release_buffers(amqp->connection);
    code = amqp_simple_wait_frame_noblock(amqp->connection, &frame, &timeout);
    if (code == AMQP_STATUS_TIMEOUT)
        return TRUCE_OK;
    if (code)
        return amqp_library_error(amqp, code, "the connection to RabbitMQ failed", error);
    if (frame.frame_type != AMQP_FRAME_METHOD ||
        frame.payload.method.id != AMQP_BASIC_DELIVER_METHOD)
        return amqp_unexpected(amqp, &frame, error);
    delivery = frame.payload.method.decoded;
    envelope.delivery_tag = delivery->delivery_tag;
    envelope.redelivered = delivery->redelivered;
    envelope.exchange = delivery->exchange;
    envelope.routing_key = delivery->routing_key;
    status = amqp_read_content(amqp, &envelope.message, error);
    if (!status) {
        *message = amqp_message_make(&envelope);
        status = amqp_find_offset(amqp, *message, error);
    }
    bson_free(envelope.message.body.bytes);
    return status;
}

static truce_status amqp_plugin_acknowledge(void *arg, struct broker_message *const *messages,
                                            size_t count, bson_error_t *error)
{
    struct amqp *amqp = arg;
    int code = amqp_basic_ack(amqp->connection, AMQP_CHANNEL, messages[count - 1]->tag, 1);

    return code ? amqp_library_error(amqp, code, "cannot acknowledge", error) : TRUCE_OK;
}

/* Counts the messages of the queue by a passive declaration; -1 for a stream. */
static truce_status amqp_plugin_waiting(void *arg, int64_t *count, int64_t *others,
                                        bson_error_t *error)
{
    struct amqp *amqp = arg;
    amqp_queue_declare_ok_t *declared =
        amqp_queue_declare(amqp->connection, AMQP_CHANNEL, amqp_cstring_bytes(amqp->queue), 1, 0, 0,
                           0, amqp_empty_table);

    (void)others; /* All consumers of a queue get the same messages. */
    if (!declared)
        return amqp_check(amqp, amqp_get_rpc_reply(amqp->connection),
                          "cannot count the messages of the queue", error);
    /* For a quorum queue that has no leader or does not reply within 250 ms, RabbitMQ reports no
     * message and no consumer. A correct report counts at least this consumer. */
    if (declared->consumer_count == 0)
        *count = AMQP_UNCERTAIN_COUNT;
    else
        *count = declared->message_count;
    /* A stream keeps its messages, so the number that waits is unknown. */
    if (amqp->stream)
        *count = -1;
    return TRUCE_OK;
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* Makes a table of strings, whole numbers, and flags. The entries borrow from the document; the
 * caller frees the array `entries` with bson_free. */
static amqp_table_t amqp_make_table(const bson_t *headers)
{
    amqp_table_t table = {0};
    bson_iter_t at;

    table.entries = bson_malloc0((bson_count_keys(headers) + 1) * sizeof *table.entries);
    (void)bson_iter_init(&at, headers);
    while (bson_iter_next(&at)) {
        amqp_table_entry_t *entry = &table.entries[table.num_entries++];

        entry->key = amqp_cstring_bytes(bson_iter_key(&at));
        if (BSON_ITER_HOLDS_UTF8(&at)) {
            entry->value.kind = AMQP_FIELD_KIND_UTF8;
            entry->value.value.bytes = amqp_cstring_bytes(bson_iter_utf8(&at, NULL));
        } else if (BSON_ITER_HOLDS_BOOL(&at)) {
            entry->value.kind = AMQP_FIELD_KIND_BOOLEAN;
            entry->value.value.boolean = bson_iter_bool(&at);
        } else {
            entry->value.kind = AMQP_FIELD_KIND_I64;
            entry->value.value.i64 = bson_iter_as_int64(&at);
        }
    }
    return table;
}

/* Reads the message that RabbitMQ returned because no queue receives it. Returns NOT_FOUND. */
static truce_status amqp_read_return(struct amqp *amqp, const amqp_basic_return_t *returned,
                                     bson_error_t *error)
{
    amqp_message_t message;
    truce_status status =
        plugin_fail(TRUCE_NOT_FOUND, error,
                    "no queue receives messages of the exchange \"%.*s\" with the routing key "
                    "\"%.*s\"",
                    (int)returned->exchange.len, (const char *)returned->exchange.bytes,
                    (int)returned->routing_key.len, (const char *)returned->routing_key.bytes);

    if (amqp_read_message(amqp->connection, AMQP_CHANNEL, &message, 0).reply_type ==
        AMQP_RESPONSE_NORMAL)
        amqp_destroy_message(&message);
    amqp->broken = true;
    return status;
}

/* Records that the message was confirmed, or with `multiple`, all messages up to it. */
static void amqp_note_confirm(struct amqp *amqp, uint64_t tag, bool multiple)
{
    if (tag <= amqp->base || tag > amqp->sent)
        return;
    for (uint64_t at = multiple ? amqp->base + 1 : tag; at <= tag; at++)
        amqp->confirmed[at % AMQP_WINDOW] = 1;
    while (amqp->base < amqp->sent && amqp->confirmed[(amqp->base + 1) % AMQP_WINDOW]) {
        amqp->base++;
        amqp->confirmed[amqp->base % AMQP_WINDOW] = 0;
    }
}

/* Handles a method that arrives instead of or as a confirm: an ack, a returned message, or a nack.
 * Any other method is a failure. */
static truce_status amqp_read_confirm(struct amqp *amqp, const amqp_method_t *method,
                                      bson_error_t *error)
{
    if (method->id == AMQP_BASIC_ACK_METHOD) {
        const amqp_basic_ack_t *ack = method->decoded;

        amqp_note_confirm(amqp, ack->delivery_tag, ack->multiple != 0);
        return TRUCE_OK;
    }
    if (method->id == AMQP_BASIC_RETURN_METHOD)
        return amqp_read_return(amqp, method->decoded, error);
    if (method->id == AMQP_BASIC_NACK_METHOD) {
        amqp->broken = true;
        return plugin_fail(TRUCE_IO, error,
                           "RabbitMQ refused a message (basic.nack), so it is not stored: its log "
                           "has the reason, for example a full queue or disk");
    }
    return amqp_method_refusal(amqp, method, error);
}

/* Reads frames until all sent messages are confirmed. `timeout_ms` limits the wait for each
 * frame. */
static truce_status amqp_plugin_confirm(void *arg, int timeout_ms, bson_error_t *error)
{
    struct amqp *amqp = arg;
    struct timeval timeout = {timeout_ms / 1000, (long)(timeout_ms % 1000) * 1000};
    truce_status status = TRUCE_OK;

    while (!status && amqp->base < amqp->sent) {
        amqp_frame_t frame;
        int code;

        amqp_maybe_release_buffers(amqp->connection);
        code = amqp_simple_wait_frame_noblock(amqp->connection, &frame, &timeout);
        if (code)
            status = amqp_library_error(amqp, code, "RabbitMQ did not confirm the messages", error);
        else if (frame.frame_type == AMQP_FRAME_METHOD)
            status = amqp_read_confirm(amqp, &frame.payload.method, error);
    }
    return status;
}

/* Sends a persistent message with `mandatory`. If AMQP_WINDOW messages are not confirmed, waits for
 * their confirms first. */
static truce_status amqp_plugin_publish(void *arg, const struct broker_post *post,
                                        bson_error_t *error)
{
    struct amqp *amqp = arg;
    const char *key = post->key ? post->key : amqp->routing_key;
    amqp_bytes_t body = {.len = post->size, .bytes = (void *)post->body};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                          .delivery_mode = 2};
    int code;

    if (amqp->sent - amqp->base == AMQP_WINDOW) {
        truce_status status = amqp_plugin_confirm(amqp, AMQP_TIMEOUT_S * 1000, error);

        if (status)
            return status;
    }
    if (post->id) {
        properties._flags |= AMQP_BASIC_MESSAGE_ID_FLAG;
        properties.message_id = amqp_cstring_bytes(post->id);
    }
    if (post->content_type) {
        properties._flags |= AMQP_BASIC_CONTENT_TYPE_FLAG;
        properties.content_type = amqp_cstring_bytes(post->content_type);
    }
    if (post->headers) {
        properties._flags |= AMQP_BASIC_HEADERS_FLAG;
        properties.headers = amqp_make_table(post->headers);
    }
    code = amqp_basic_publish(amqp->connection, AMQP_CHANNEL,
                              amqp_cstring_bytes(post->to ? post->to : amqp->exchange),
                              amqp_cstring_bytes(key ? key : ""), 1, 0, &properties, body);
    bson_free(properties.headers.entries);
    amqp->sent += !code;
    return code ? amqp_library_error(amqp, code, "cannot publish", error) : TRUCE_OK;
}

/* ---- the module ------------------------------------------------------------------------------ */

static const struct broker_ops amqp_ops = {
    .open = amqp_plugin_open,
    .close = amqp_plugin_close,
    .receive = amqp_plugin_receive,
    .acknowledge = amqp_plugin_acknowledge,
    .waiting = amqp_plugin_waiting,
    .publish = amqp_plugin_publish,
    .confirm = amqp_plugin_confirm,
};

TRUCE_EXPORT truce_broker_function truce_broker_amqp;

const struct broker_ops *truce_broker_amqp(int version)
{
    return version == BROKER_VERSION ? &amqp_ops : NULL;
}
