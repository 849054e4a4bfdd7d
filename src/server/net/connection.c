/* One connection. It reads a whole request, sends the reply, and reads the next request. */
#include <signal.h>

#include <openssl/crypto.h>

#include "base/clock.h"
#include "base/limits.h"
#include "server/call/call.h"
#include "server/call/shared_state.h"
#include "server/net/compress.h"
#include "server/net/wire_protocol.h"

/* A connection that waits for its next request frees a buffer that is larger than this. It is also
 * the maximum size of a part of a message, for which a time limit holds. */
#define BUFFER_BYTES (64 * 1024)

static bool connection_is_unauthenticated(const struct connection *connection)
{
    return connection->server->auth && !connection->login.user;
}

static size_t connection_most_of(const struct connection *connection)
{
    return connection_is_unauthenticated(connection) ? TRUCE_LOGIN_MESSAGE_BYTES_MAX
                                                     : TRUCE_MESSAGE_BYTES_MAX;
}

/* Returns the time until which the next message must begin, or 0 if there is no limit. A connection
 * that must log in has to send its first message and the steps of a login quickly. Monitoring
 * connections of drivers never log in; they send hello every few seconds. */
static int64_t connection_idle_until(const struct connection *connection)
{
    const struct server *server = connection->server;
    bool hurries = !connection->heard || connection->login.scram;

    if (!connection_is_unauthenticated(connection))
        return 0;
    return truce__clock_monotonic_ns() +
           (hurries ? server->message_ms : server->unauthenticated_ms) * 1000000;
}

static void connection_log_stall(const struct connection *connection, size_t size)
{
    bson_t *fields =
        BCON_NEW("from", BCON_UTF8(connection->peer), "bytes", BCON_INT64((int64_t)size));

    log_write(connection->server->log, TRUCE_LOG_WARNING, LOG_NETWORK, connection->number,
              "incomplete message: the client closed the connection or was too slow", fields);
    bson_destroy(fields);
}

/* Receives `size` more bytes within the time for a part of a message. */
static bool receive_part(struct connection *connection, struct buffer *in, size_t size)
{
    int64_t until_ns =
        truce__clock_monotonic_ns() + connection->server->message_ms * INT64_C(1000000);

    truce__buffer_reserve(in, size);
    if (!stream_receive(&connection->stream, in->bytes + in->size, size, until_ns)) {
        connection_log_stall(connection, in->size);
        return false;
    }
    in->size += size;
    return true;
}

/* Receives the next message. It allocates memory as bytes arrive, so a length alone costs nothing.
 * Once the first byte has arrived, each part of the message (the rest of the header, then up to
 * BUFFER_BYTES at a time) must arrive within message_ms. A connection that is logged in may be idle
 * between messages. */
static bool receive_message(struct connection *connection, struct buffer *in)
{
    int64_t message_ms = connection->server->message_ms;
    uint32_t length;

    truce__buffer_reserve(in, WIRE_HEAD);
    in->size = stream_receive_first(&connection->stream, in->bytes, WIRE_HEAD,
                                    connection_idle_until(connection), message_ms);
    if (!in->size || (in->size < WIRE_HEAD && !receive_part(connection, in, WIRE_HEAD - in->size)))
        return false;
    length = wire_length(in->bytes);
    if (!length || !wire_is_request(in->bytes) || length > connection_most_of(connection))
        return false;
    while (in->size < length) {
        size_t part = length - in->size < BUFFER_BYTES ? length - in->size : BUFFER_BYTES;

        if (!receive_part(connection, in, part))
            return false;
    }
    connection->heard = true;
    metrics_received(connection->server->metrics, in->size);
    return true;
}

static void connection_trim(struct buffer *buffer)
{
    if (buffer->room > BUFFER_BYTES)
        truce__buffer_release(buffer);
}

/* Replaces a compressed message by its contents. Returns false if the connection must end. */
static bool open_up(struct connection *connection, struct buffer *in, int *compressor)
{
    struct buffer plain = {0}, packed = *in;
    bson_error_t error;

    *compressor = COMPRESS_NOTHING;
    if (!compress_is(in->bytes, in->size))
        return true;
    if (!compress_open(in->bytes, in->size, connection_most_of(connection), &plain, compressor,
                       &error)) {
        truce__buffer_release(&plain);
        return false;
    }
    *in = plain;
    OPENSSL_cleanse(packed.bytes, packed.size); /* The message may contain a password. */
    truce__buffer_release(&packed);
    return true;
}

/* Runs the request of a message and sends the reply. Returns false if the connection must end. */
static bool connection_answer(struct connection *connection, struct buffer *in, struct buffer *out)
{
    struct wire_request request;
    bson_error_t error;
    bool done = true;
    int compressor;
    bson_t reply;

    if (!open_up(connection, in, &compressor) ||
        !wire_read(in->bytes, (uint32_t)in->size, &request, &error))
        return false;
    connection->server->dispatch(connection, &request, &reply);
    if (connection->wipes) {
        OPENSSL_cleanse(in->bytes, in->size);
        stream_wipe(&connection->stream);
    }
    connection->wipes = false;
    if (connection->ends) {
        done = false;
    } else if (!request.silent) {
        out->size = 0;
        wire_write(out, &request, atomic_fetch_add(&connection->server->last_message, 1) + 1,
                   &reply);
        compress_close(out, compressor);
        metrics_sent(connection->server->metrics, out->size);
        done =
            stream_send(&connection->stream, out->bytes, out->size,
                        connection_is_unauthenticated(connection) ? connection->server->message_ms
                                                                  : connection->server->send_ms);
        atomic_store(&connection->unauthenticated, connection_is_unauthenticated(connection));
    }
    bson_destroy(&reply);
    return done;
}

/* Blocks SIGPIPE for the thread, because OpenSSL writes without MSG_NOSIGNAL. */
static void hold_sigpipe(void)
{
    sigset_t pipe;

    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
}

static void connection_log_handshake(const struct connection *connection)
{
    bson_t *fields = BCON_NEW("from", BCON_UTF8(connection->peer));

    log_write(connection->server->log, TRUCE_LOG_WARNING, LOG_NETWORK, connection->number,
              "TLS handshake failed", fields);
    bson_destroy(fields);
}

void connection_serve(struct connection *connection)
{
    const struct server *server = connection->server;
    struct buffer in = {0}, out = {0};

    hold_sigpipe();
    if (stream_begin(&connection->stream, connection->socket,
                     connection->local ? NULL : server->tls, server->handshake_ms))
        while (receive_message(connection, &in) && connection_answer(connection, &in, &out)) {
            connection_trim(&in);
            connection_trim(&out);
        }
    else
        connection_log_handshake(connection);
    stream_end(&connection->stream);
    truce__buffer_release(&in);
    truce__buffer_release(&out);
}
