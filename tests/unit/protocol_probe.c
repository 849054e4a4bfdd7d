/* The protocols that broker/plugins/protocol_probe.h recognises, with a server in a thread. */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/plugins/protocol_probe.h"
#include "tests/support/test.h"

/* A server that answers requests with this first byte; -1: all. Others are closed. */
struct peer_server {
    int first;
    const char *answer;
    size_t size;
    int listener, port;
    pthread_t thread;
};

#define PEER_SERVER(first, answer)                                                                 \
    {                                                                                              \
        first, answer, sizeof(answer) - 1, -1, 0, 0                                                \
    }

static void *serve(void *arg)
{
    const struct peer_server *server = arg;
    unsigned char request[256];
    int file;

    while ((file = accept(server->listener, NULL, NULL)) >= 0) {
        if (recv(file, request, sizeof request, 0) > 0 &&
            (server->first < 0 || request[0] == server->first))
            CHECK_INT(send(file, server->answer, server->size, MSG_NOSIGNAL), ==,
                      (ssize_t)server->size);
        close(file);
    }
    return NULL;
}

static enum protocol find(struct peer_server server)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    enum protocol peer;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(bind(server.listener, (struct sockaddr *)&address, size), ==, 0);
    CHECK_INT(listen(server.listener, 8), ==, 0);
    CHECK_INT(getsockname(server.listener, (struct sockaddr *)&address, &size), ==, 0);
    CHECK_INT(pthread_create(&server.thread, NULL, serve, &server), ==, 0);
    peer = protocol_probe("127.0.0.1", ntohs(address.sin_port));
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    return peer;
}

TEST(recognises_the_protocol_of_a_server)
{
    const struct {
        struct peer_server server;
        enum protocol peer;
        const char *name;
    } rows[] = {
        {PEER_SERVER(-1, "AMQP\0\0\11\1"), PROTOCOL_AMQP, "AMQP"},
        {PEER_SERVER('G', "HTTP/1.0 400 Bad Request\r\n\r\n"), PROTOCOL_HTTP, "HTTP"},
        {PEER_SERVER(0, "\0\0\0\12trce\0\0\0\0\0\0"), PROTOCOL_KAFKA, "Kafka"},
        {PEER_SERVER(-1, "\25\3\1\0\2\2\106"), PROTOCOL_TLS, "TLS"},
        {PEER_SERVER(22, "\26\3\3\0\67\2\0\0\63\3\3"), PROTOCOL_TLS, "TLS"},
        {PEER_SERVER(-1, "220 mail.example.org ESMTP\r\n"), PROTOCOL_UNKNOWN,
         "an unknown protocol"},
        {PEER_SERVER(-1, "\25\2\1\0\2\2\106"), PROTOCOL_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, "\25\3"), PROTOCOL_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, "HTTP"), PROTOCOL_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, ""), PROTOCOL_UNKNOWN, "an unknown protocol"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum protocol peer = find(rows[i].server);

        if (peer != rows[i].peer)
            test_fail(__FILE__, __LINE__, "row %zu: %s", i, protocol_name(peer));
        CHECK(!strcmp(protocol_name(peer), rows[i].name));
    }
}

TEST(a_port_without_a_server_is_unknown)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int file = socket(AF_INET, SOCK_STREAM, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(bind(file, (struct sockaddr *)&address, size), ==, 0); /* it does not listen */
    CHECK_INT(getsockname(file, (struct sockaddr *)&address, &size), ==, 0);
    CHECK_INT(protocol_probe("127.0.0.1", ntohs(address.sin_port)), ==, PROTOCOL_UNKNOWN);
    CHECK_INT(protocol_probe("no-such-host.invalid", 5672), ==, PROTOCOL_UNKNOWN);
    close(file);
}
