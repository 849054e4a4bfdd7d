/* Two threads for each connection, one for each direction. A request waits for its reply, and no
 * other request follows it, so a thread may hold back its bytes for half a trip. The threads live
 * as long as the process. */
#include "bench/scale_delay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/bench.h"

struct scale_delay {
    int listener, port, server_port;
    atomic_llong half_ns, bytes, messages;
};

struct pump {
    struct scale_delay *delay;
    int from, to;
    bool request;
};

static void delay_sleep_until(uint64_t ns)
{
    struct timespec at = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL))
        ;
}

/* Copies the bytes of one direction. Holds each piece back for half of the round trip. */
static void *run_pump(void *arg)
{
    struct pump pump = *(struct pump *)arg;
    static _Thread_local char bytes[256 * 1024];
    ssize_t got;

    free(arg);
    while ((got = recv(pump.from, bytes, sizeof bytes, 0)) > 0) {
        int64_t half = atomic_load(&pump.delay->half_ns);

        atomic_fetch_add(&pump.delay->bytes, got);
        atomic_fetch_add(&pump.delay->messages, pump.request);
        if (half)
            delay_sleep_until(bench_now_ns() + (uint64_t)half);
        for (ssize_t put = 0, sent; put < got; put += sent) {
            sent = send(pump.to, bytes + put, (size_t)(got - put), MSG_NOSIGNAL);
            if (sent <= 0)
                break;
        }
    }
    shutdown(pump.to, SHUT_RDWR);
    /* The descriptors stay open, so that their numbers are not reused. The process is
     * short-lived. */
    shutdown(pump.from, SHUT_RDWR);
    return NULL;
}

static void start_pump(struct scale_delay *delay, int from, int to, bool request)
{
    struct pump *pump = malloc(sizeof *pump);
    pthread_t thread;

    *pump = (struct pump){delay, from, to, request};
    BENCH_CHECK(pthread_create(&thread, NULL, run_pump, pump) == 0);
    pthread_detach(thread);
}

static void *delay_accept_all(void *arg)
{
    struct scale_delay *delay = arg;
    int client, on = 1;

    while ((client = accept(delay->listener, NULL, NULL)) >= 0) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)delay->server_port),
                                      .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int server = socket(AF_INET, SOCK_STREAM, 0);

        BENCH_CHECK(connect(server, (struct sockaddr *)&address, sizeof address) == 0);
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        start_pump(delay, client, server, true);
        start_pump(delay, server, client, false);
    }
    return NULL;
}

struct scale_delay *scale_delay_start(int server_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct scale_delay *delay = calloc(1, sizeof *delay);
    socklen_t size = sizeof address;
    pthread_t thread;

    delay->server_port = server_port;
    delay->listener = socket(AF_INET, SOCK_STREAM, 0);
    BENCH_CHECK(bind(delay->listener, (struct sockaddr *)&address, size) == 0);
    BENCH_CHECK(listen(delay->listener, 200) == 0);
    BENCH_CHECK(getsockname(delay->listener, (struct sockaddr *)&address, &size) == 0);
    delay->port = ntohs(address.sin_port);
    BENCH_CHECK(pthread_create(&thread, NULL, delay_accept_all, delay) == 0);
    pthread_detach(thread);
    return delay;
}

int scale_delay_port(const struct scale_delay *delay)
{
    return delay->port;
}

void scale_delay_set(struct scale_delay *delay, int64_t trip_ns)
{
    atomic_store(&delay->half_ns, trip_ns / 2);
}

int64_t scale_delay_bytes(struct scale_delay *delay)
{
    return atomic_load(&delay->bytes);
}

int64_t scale_delay_messages(struct scale_delay *delay)
{
    return atomic_load(&delay->messages);
}
