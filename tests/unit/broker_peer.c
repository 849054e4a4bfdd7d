/* The protocols that broker/plugins/peer.h recognises, with a server in a thread. */
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker/plugins/peer.h"
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

static enum peer find(struct peer_server server)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    enum peer peer;

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    server.listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(bind(server.listener, (struct sockaddr *)&address, size), ==, 0);
    CHECK_INT(listen(server.listener, 8), ==, 0);
    CHECK_INT(getsockname(server.listener, (struct sockaddr *)&address, &size), ==, 0);
    CHECK_INT(pthread_create(&server.thread, NULL, serve, &server), ==, 0);
    peer = peer_find("127.0.0.1", ntohs(address.sin_port));
    shutdown(server.listener, SHUT_RDWR);
    pthread_join(server.thread, NULL);
    close(server.listener);
    return peer;
}

TEST(recognises_the_protocol_of_a_server)
{
    const struct {
        struct peer_server server;
        enum peer peer;
        const char *name;
    } rows[] = {
        {PEER_SERVER(-1, "AMQP\0\0\11\1"), PEER_AMQP, "AMQP"},
        {PEER_SERVER('G', "HTTP/1.0 400 Bad Request\r\n\r\n"), PEER_HTTP, "HTTP"},
        {PEER_SERVER(0, "\0\0\0\12trce\0\0\0\0\0\0"), PEER_KAFKA, "Kafka"},
        {PEER_SERVER(-1, "\25\3\1\0\2\2\106"), PEER_TLS, "TLS"},
        {PEER_SERVER(22, "\26\3\3\0\67\2\0\0\63\3\3"), PEER_TLS, "TLS"},
        {PEER_SERVER(-1, "220 mail.example.org ESMTP\r\n"), PEER_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, "\25\2\1\0\2\2\106"), PEER_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, "\25\3"), PEER_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, "HTTP"), PEER_UNKNOWN, "an unknown protocol"},
        {PEER_SERVER(-1, ""), PEER_UNKNOWN, "an unknown protocol"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum peer peer = find(rows[i].server);

        if (peer != rows[i].peer)
            test_fail(__FILE__, __LINE__, "row %zu: %s", i, peer_name(peer));
        CHECK(!strcmp(peer_name(peer), rows[i].name));
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
    CHECK_INT(peer_find("127.0.0.1", ntohs(address.sin_port)), ==, PEER_UNKNOWN);
    CHECK_INT(peer_find("no-such-host.invalid", 5672), ==, PEER_UNKNOWN);
    close(file);
}
