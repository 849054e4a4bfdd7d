#include "tests/support/talk.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "server/net/compress.h"
#include "server/net/wire_protocol.h"
#include "tests/support/test.h"

truce_store *store;
struct server *server;

int dial(void)
{
    return dial_port(server_port(server));
}

int dial_port(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, (struct sockaddr *)&at, sizeof at) == 0)
        return socket_;
    CHECK(errno == ECONNREFUSED);
    close(socket_);
    return -1;
}

void put_uint32(struct buffer *out, uint32_t number)
{
    number = BSON_UINT32_TO_LE(number);
    truce__buffer_append(out, &number, 4);
}

struct buffer message_of(const bson_t *command, uint32_t flags)
{
    uint32_t size = WIRE_HEAD + 5 + command->len + (flags & 1 ? 4 : 0);
    struct buffer out = {0};

    put_uint32(&out, size);
    put_uint32(&out, 7);
    put_uint32(&out, 0);
    put_uint32(&out, OP_MSG);
    put_uint32(&out, flags);
    truce__buffer_append_byte(&out, 0);
    truce__buffer_append(&out, bson_get_data(command), command->len);
    if (flags & 1)
        put_uint32(&out, wire_crc32c(out.bytes, out.size));
    return out;
}

bool send_all(int end_, const uint8_t *bytes, size_t size)
{
    while (size) {
        ssize_t sent = send(end_, bytes, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

/* Replaces a compressed reply by its contents. */
static void open_up(struct buffer *answer)
{
    struct buffer plain = {0};
    bson_error_t error;
    int compressor;

    if (!compress_is(answer->bytes, answer->size))
        return;
    CHECK(compress_open(answer->bytes, answer->size, TRUCE_MESSAGE_BYTES_MAX, &plain, &compressor,
                        &error));
    truce__buffer_release(answer);
    *answer = plain;
}

bool receive_message(int end_, struct buffer *message)
{
    uint32_t length;

    message->size = 0;
    truce__buffer_reserve(message, WIRE_HEAD);
    if (recv(end_, message->bytes, WIRE_HEAD, MSG_WAITALL) != WIRE_HEAD)
        return false;
    length = wire_length(message->bytes);
    if (!CHECK(length > WIRE_HEAD))
        return false;
    message->size = WIRE_HEAD;
    truce__buffer_reserve(message, length);
    if (recv(end_, message->bytes + WIRE_HEAD, length - WIRE_HEAD, MSG_WAITALL) !=
        (ssize_t)(length - WIRE_HEAD))
        return false;
    message->size = length;
    return true;
}

bson_t *receive_reply(int end_)
{
    struct buffer answer = {0};
    bson_t *reply = NULL;

    if (receive_message(end_, &answer)) {
        size_t skip;

        open_up(&answer);
        skip = WIRE_HEAD + (answer.bytes[12] == 1 ? 20 : 5);
        reply = bson_new_from_data(answer.bytes + skip, wire_length(answer.bytes + skip));
    }
    truce__buffer_release(&answer);
    return reply;
}

bson_t *ask_on(int end_, const char *json, uint32_t flags)
{
    bson_t *command = test_bson(json), *reply;
    struct buffer message = message_of(command, flags);

    reply = send_all(end_, message.bytes, message.size) ? receive_reply(end_) : NULL;
    truce__buffer_release(&message);
    bson_destroy(command);
    return reply;
}

bson_t *ask(const char *json)
{
    int end_ = dial();
    bson_t *reply = ask_on(end_, json, 0);

    close(end_);
    return reply;
}

int64_t reply_number(const bson_t *reply, const char *path)
{
    bson_iter_t iter, found;

    return reply && bson_iter_init(&iter, reply) && bson_iter_find_descendant(&iter, path, &found)
               ? bson_iter_as_int64(&found)
               : -1;
}

void expect_code(const char *json, int64_t code)
{
    bson_t *reply = ask(json);

    CHECK(reply != NULL);
    if (reply && !(code ? reply_number(reply, "code") == code : reply_number(reply, "ok") == 1))
        test_fail(__FILE__, __LINE__, "%s is answered with %d, not %d", json,
                  (int)reply_number(reply, "code"), (int)code);
    bson_destroy(reply);
}

/* ---- a server that is killed ---------------------------------------------------------------- */

static _Noreturn void serve_until_killed(const char *path, int reported)
{
    bson_error_t error;
    int port = -1;

    if (!truce_store_open(path, NULL, &store, &error) &&
        !server_start(store, NULL, &server, &error))
        port = server_port(server);
    if (write(reported, &port, sizeof port) != sizeof port)
        _exit(1);
    for (;;)
        pause();
}

pid_t serve_child(const char *path, int *port)
{
    /* The pipe by which the child reports its port. */
    int reported[2];
    pid_t child;

    if (pipe(reported))
        return -1;
    child = fork();
    if (!child)
        serve_until_killed(path, reported[1]);
    if (read(reported[0], port, sizeof *port) != sizeof *port)
        *port = -1;
    close(reported[0]);
    close(reported[1]);
    return child;
}

void *kill_served(void *arg)
{
    const struct killing *killing = arg;

    truce__clock_sleep_ms(killing->after_ms);
    kill(killing->child, SIGKILL);
    return NULL;
}
