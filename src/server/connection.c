/* One connection: a request is read whole, answered, and the next is read. */
#include <errno.h>
#include <sys/socket.h>

#include "base/limits.h"
#include "server/call.h"
#include "server/state.h"
#include "server/wire.h"

#define KEPT_BYTES (64 * 1024) /* of a connection that waits for its next request */

static bool receive(int socket, uint8_t *bytes, size_t size)
{
    while (size) {
        ssize_t got = recv(socket, bytes, size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}

static bool transmit(int socket, const uint8_t *bytes, size_t size)
{
    while (size) {
        ssize_t sent = send(socket, bytes, size, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* The next message, whole. The memory for a long one is taken as its bytes come, so that a length alone
 * takes nothing. */
static bool receive_message(const struct connection *connection, struct buffer *in)
{
    bool stranger = connection->server->auth && !connection->login.user;
    int socket = connection->socket;
    uint32_t length;

    in->size = 0;
    truce__buffer_reserve(in, WIRE_HEAD);
    if (!receive(socket, in->bytes, WIRE_HEAD))
        return false;
    length = wire_length(in->bytes);
    if (stranger && length > TRUCE_LOGIN_MESSAGE_BYTES_MAX)
        return false;
    in->size = WIRE_HEAD;
    while (in->size < length) {
        size_t part = length - in->size < KEPT_BYTES ? length - in->size : KEPT_BYTES;

        truce__buffer_reserve(in, part);
        if (!receive(socket, in->bytes + in->size, part))
            return false;
        in->size += part;
    }
    return length > 0;
}

static void trim(struct buffer *buffer)
{
    if (buffer->room > KEPT_BYTES)
        truce__buffer_release(buffer);
}

/* False: the connection ends. */
static bool answer(struct connection *connection, struct buffer *in, struct buffer *out)
{
    struct wire_request request;
    bson_error_t error;
    bool done = true;
    bson_t reply;

    if (!wire_read(in->bytes, (uint32_t)in->size, &request, &error))
        return false;
    call_run(connection, &request, &reply);
    if (connection->wipes)
        scram_wipe(in->bytes, in->size);
    connection->wipes = false;
    if (connection->ends) {
        done = false;
    } else if (!request.silent) {
        out->size = 0;
        wire_write(out, &request, atomic_fetch_add(&connection->server->last_message, 1) + 1,
                   &reply);
        done = transmit(connection->socket, out->bytes, out->size);
    }
    bson_destroy(&reply);
    return done;
}

void *connection_run(void *arg)
{
    struct connection *connection = arg;
    struct buffer in = {0}, out = {0};

    while (receive_message(connection, &in) && answer(connection, &in, &out)) {
        trim(&in);
        trim(&out);
    }
    truce__buffer_release(&in);
    truce__buffer_release(&out);
    server_forget(connection);
    return NULL;
}
