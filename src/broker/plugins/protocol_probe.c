/*
 * The protocol of a server. Clients of brokers report a server of another protocol only as a
 * connection that was closed, which looks like a broker that restarts. A retry would never help, so
 * the modules ask the server.
 *
 * Each probe is the beginning of a protocol, and the first bytes of the reply show the protocol of
 * the server. RabbitMQ replies to every wrong beginning with its own. Kafka replies only to its own
 * protocol. Most servers with TLS reply with an alert of TLS; some reply only to a hello.
 */
#include "broker/plugins/protocol_probe.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PROBE_WAIT_S       2
#define PROBE_ANSWER_BYTES 8
#define PROBE_HTTP_BYTES   "GET / HTTP/1.0\r\n\r\n"
/* The request ApiVersions, version 0, with the number "trce" and without the name of a client. */
#define PROBE_KAFKA_BYTES "\0\0\0\12\0\22\0\0trce\377\377"
/* A ClientHello of TLS 1.2 with six cipher suites and without extensions. */
#define PROBE_TLS_BYTES                                                                            \
    "\26\3\1\0\67\1\0\0\63\3\3"                                                                    \
    "truce asks for the protocol here"                                                             \
    "\0\0\14\300\57\300\60\0\234\0\235\0\57\0\65\1\0"

static const struct probe_message {
    const char *bytes;
    size_t size;
} probe_messages[] = {
    {PROBE_HTTP_BYTES, sizeof PROBE_HTTP_BYTES - 1},
    {PROBE_KAFKA_BYTES, sizeof PROBE_KAFKA_BYTES - 1},
    {PROBE_TLS_BYTES, sizeof PROBE_TLS_BYTES - 1},
};

/* Returns the socket, or -1. The timeout of sending also limits the connect. */
static int probe_connect(const char *host, int port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    struct timeval wait = {.tv_sec = PROBE_WAIT_S};
    int file = -1;
    char digits[12];

    snprintf(digits, sizeof digits, "%d", port);
    if (getaddrinfo(host, digits, &hints, &found))
        return -1;
    for (const struct addrinfo *at = found; at && file < 0; at = at->ai_next) {
        file = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (file < 0)
            continue;
        (void)setsockopt(file, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        (void)setsockopt(file, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        if (connect(file, at->ai_addr, at->ai_addrlen)) {
            close(file);
            file = -1;
        }
    }
    freeaddrinfo(found);
    return file;
}

static enum protocol probe_result(const char *answer, size_t size)
{
    if (size == PROBE_ANSWER_BYTES && !memcmp(answer, "AMQP", 4))
        return PROTOCOL_AMQP;
    if (size == PROBE_ANSWER_BYTES && !memcmp(answer, "HTTP/", 5))
        return PROTOCOL_HTTP;
    if (size == PROBE_ANSWER_BYTES && !memcmp(answer + 4, "trce", 4))
        return PROTOCOL_KAFKA;
    /* A record of TLS begins with its type (21: alert, 22: handshake) and the major version 3. The
     * shortest reply, an alert, has 7 bytes. */
    return size >= 7 && (answer[0] == 21 || answer[0] == 22) && answer[1] == 3 ? PROTOCOL_TLS
                                                                               : PROTOCOL_UNKNOWN;
}

static enum protocol probe_identify(int file, const struct probe_message *message)
{
    char answer[PROBE_ANSWER_BYTES];
    size_t size = 0;
    ssize_t got = 1;

    if (send(file, message->bytes, message->size, MSG_NOSIGNAL) != (ssize_t)message->size)
        return PROTOCOL_UNKNOWN;
    while (size < sizeof answer && got > 0) {
        got = recv(file, answer + size, sizeof answer - size, 0);
        size += got > 0 ? (size_t)got : 0;
    }
    return probe_result(answer, size);
}

enum protocol protocol_probe(const char *host, int port)
{
    enum protocol protocol = PROTOCOL_UNKNOWN;
    bool answers = true;

    for (size_t i = 0; i < sizeof probe_messages / sizeof *probe_messages && answers && !protocol;
         i++) {
        int file = probe_connect(host, port);

        answers = file >= 0;
        if (answers) {
            protocol = probe_identify(file, &probe_messages[i]);
            close(file);
        }
    }
    return protocol;
}

const char *protocol_name(enum protocol protocol)
{
    static const char *const names[] = {"an unknown protocol", "AMQP", "Kafka", "TLS", "HTTP"};

    return names[protocol];
}
