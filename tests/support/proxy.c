/*
 * Two threads serve each connection, one for each direction. A message is read whole before it is
 * passed on (its first four bytes are its length).
 *
 *     client --> [ pump TO_SERVER ] --> server
 *     client <-- [ pump TO_CLIENT ] <-- server
 *
 * A reply is counted if the request before it on the same connection was counted.
 */
#include "tests/support/proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/changed_bson.h"

#define MESSAGE_MAX (64 * 1024 * 1024)

struct proxy {
    /* The listening socket, its port, and the port of the server. */
    int listener, port, server_port;
    /* The thread that accepts clients. */
    pthread_t accepter;
    /* Protects the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when `holding` becomes false, and when `held` or `pumps` decreases. */
    pthread_cond_t changed;
    /* Message number `at` in `direction` gets the fault. */
    enum proxy_fault fault;
    enum proxy_direction direction;
    /* `count`: the number of messages in each direction since proxy_arm. */
    uint64_t at, count[2];
    /* The replies of proxy_script. Borrowed; may be NULL. */
    const bson_t *say, *then;
    /* Only requests with this field are counted. Borrowed; NULL counts all. */
    const char *only;
    /* The field and the change of PROXY_SAY_CHANGED. */
    uint32_t place, change;
    /* `hit`: a message has got the fault since proxy_arm. `stopping`: the accepter must end.
     * `holding`: a message waits for proxy_let_go. */
    bool hit, stopping, holding;
    /* The number of messages with PROXY_DELAY or PROXY_HOLD that are not passed on yet, and of
     * threads that run pumps. */
    int held, pumps;
};

struct link {
    struct proxy *proxy;
    /* The sockets of the client and of the server. */
    int ends[2];
    /* The last request was counted, so its reply is counted, too. */
    bool counts;
    /* The number of pumps that still run; protected by the proxy's mutex. */
    int users;
};

struct pump {
    struct link *link;
    /* The direction of the messages that the pump passes on. */
    enum proxy_direction direction;
};

static bool read_whole(int from, uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t got = recv(from, bytes, size, 0);

        if (got <= 0)
            return false;
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}

static bool write_whole(int to, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t put = send(to, bytes, size, MSG_NOSIGNAL);

        if (put <= 0)
            return false;
        bytes += put;
        size -= (size_t)put;
    }
    return true;
}

/* Reads one message, which the caller frees. Returns NULL if the connection ended, or the length is
 * not valid. */
static uint8_t *read_message(int from, uint32_t *size)
{
    uint8_t head[4], *message;
    uint32_t length;

    if (!read_whole(from, head, sizeof(head)))
        return NULL;
    /* The length is little-endian, as is the machine. */
    memcpy(&length, head, sizeof(length));
    if (length < 16 || length > MESSAGE_MAX)
        return NULL;
    message = malloc(length);
    memcpy(message, head, sizeof(head));
    if (!read_whole(from, message + sizeof(head), length - sizeof(head))) {
        free(message);
        return NULL;
    }
    *size = length;
    return message;
}

/* Sets `body` to the body of an OP_MSG. Returns false for another message. */
static bool body_of(const uint8_t *message, uint32_t size, bson_t *body)
{
    /* The header, the flags, and the kind of the section. */
    const size_t head = 16 + 4 + 1;
    uint32_t operation, length;

    memcpy(&operation, message + 12, sizeof operation);
    if (operation != 2013 || size < head + 5)
        return false;
    memcpy(&length, message + head, sizeof length);
    return length <= size - head && bson_init_static(body, message + head, length);
}

/* Returns whether a request concerns the connection itself: a handshake, a heartbeat, or
 * endSessions. */
static bool is_handshake(const bson_t *body)
{
    return bson_has_field(body, "hello") || bson_has_field(body, "isMaster") ||
           bson_has_field(body, "ismaster") || bson_has_field(body, "endSessions");
}

/* Returns whether the request is counted. Only an OP_MSG is counted: others are handshakes. */
static bool counts(const struct proxy *proxy, const uint8_t *message, uint32_t size)
{
    bson_t body;

    return body_of(message, size, &body) && !is_handshake(&body) &&
           (!proxy->only || bson_has_field(&body, proxy->only));
}

static bool is_commit(const uint8_t *message, uint32_t size)
{
    bson_t body;

    return body_of(message, size, &body) && bson_has_field(&body, "commitTransaction");
}

/* Counts the message, and returns the fault that is due for it, or PROXY_NOTHING. Sets *say to the
 * reply of PROXY_SAY. If a reply `then` is set, a commitTransaction after the fault gets this reply
 * and is not counted. */
static enum proxy_fault meet(struct pump *pump, const uint8_t *message, uint32_t size,
                             const bson_t **say)
{
    struct proxy *proxy = pump->link->proxy;
    enum proxy_fault fault = PROXY_NOTHING;

    pthread_mutex_lock(&proxy->mutex);
    *say = proxy->say;
    if (proxy->hit && proxy->then && pump->direction == TO_SERVER && is_commit(message, size)) {
        *say = proxy->then;
        pthread_mutex_unlock(&proxy->mutex);
        return PROXY_SAY;
    }
    if (pump->direction == TO_SERVER)
        pump->link->counts = counts(proxy, message, size);
    if (pump->link->counts && ++proxy->count[pump->direction] == proxy->at &&
        pump->direction == proxy->direction) {
        fault = proxy->fault;
        proxy->hit = fault != PROXY_NOTHING;
        proxy->held += fault == PROXY_DELAY || fault == PROXY_HOLD;
        proxy->holding |= fault == PROXY_HOLD;
    }
    pthread_mutex_unlock(&proxy->mutex);
    return fault;
}

static void let_go(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->held--;
    pthread_cond_broadcast(&proxy->changed);
    pthread_mutex_unlock(&proxy->mutex);
}

static void hold(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    while (proxy->holding)
        pthread_cond_wait(&proxy->changed, &proxy->mutex);
    pthread_mutex_unlock(&proxy->mutex);
}

/* Sends a reply to the client: as the server's reply to `message`, or instead of `message` if that
 * is a reply. */
static bool say_to_client(struct pump *pump, const uint8_t *message, const bson_t *said)
{
    uint32_t head[5] = {(uint32_t)(sizeof head + 1 + said->len), 1, 0, 2013, 0};
    uint8_t *bytes = malloc(head[0]);
    bool sent;

    memcpy(&head[2], message + (pump->direction == TO_SERVER ? 4 : 8), sizeof head[2]);
    memcpy(bytes, head, sizeof head);
    bytes[sizeof head] = 0;
    memcpy(bytes + sizeof head + 1, bson_get_data(said), said->len);
    sent = write_whole(pump->link->ends[0], bytes, head[0]);
    free(bytes);
    return sent;
}

/* libmongoc 1.23 ends its program at an error whose code is 0 (`precondition failed: *code`). */
static bool ends_libmongoc(const bson_t *answer)
{
    bson_iter_t code;

    return bson_iter_init_find(&code, answer, "code") && !(uint32_t)bson_iter_as_int64(&code);
}

static bool say_changed(struct pump *pump, const uint8_t *message, uint32_t size)
{
    struct proxy *proxy = pump->link->proxy;
    bson_t body, *changed;
    uint32_t places;
    bool sent;

    if (!body_of(message, size, &body) || !(places = bson_places(&body)))
        return write_whole(pump->link->ends[0], message, size);
    changed = bson_changed(&body, proxy->place % places, proxy->change);
    sent = ends_libmongoc(changed) ? write_whole(pump->link->ends[0], message, size)
                                   : say_to_client(pump, message, changed);
    bson_destroy(changed);
    return sent;
}

/* Passes on a message, with the fault if it is due. Returns false if the connection has ended. */
static bool pass_on(struct pump *pump, const uint8_t *message, uint32_t size)
{
    const bson_t *say;
    enum proxy_fault fault = meet(pump, message, size, &say);
    int to = pump->link->ends[pump->direction == TO_SERVER];
    bool passed = true;

    if (fault == PROXY_CUT)
        return false;
    if (fault == PROXY_SAY)
        return say_to_client(pump, message, say);
    if (fault == PROXY_SAY_CHANGED)
        return say_changed(pump, message, size);
    if (fault == PROXY_DELAY)
        truce__clock_sleep_ms(PROXY_DELAY_MS);
    if (fault == PROXY_HOLD)
        hold(pump->link->proxy);
    passed = write_whole(to, message, fault == PROXY_HALF ? size / 2 : size);
    /* The server has probably executed the command after this time. */
    if (fault == PROXY_DELAY)
        truce__clock_sleep_ms(100);
    if (fault == PROXY_DELAY || fault == PROXY_HOLD)
        let_go(pump->link->proxy);
    return passed && fault != PROXY_HALF && fault != PROXY_AFTER;
}

/* Ends a pump. Shuts the connection down, so that the other pump of the link ends, too; the last of
 * the two frees the link. */
static void leave(struct link *link)
{
    struct proxy *proxy = link->proxy;
    bool last;

    shutdown(link->ends[0], SHUT_RDWR);
    shutdown(link->ends[1], SHUT_RDWR);
    pthread_mutex_lock(&proxy->mutex);
    last = --link->users == 0;
    pthread_mutex_unlock(&proxy->mutex);
    if (last) {
        close(link->ends[0]);
        close(link->ends[1]);
        free(link);
    }
    pthread_mutex_lock(&proxy->mutex);
    proxy->pumps--;
    pthread_cond_broadcast(&proxy->changed);
    pthread_mutex_unlock(&proxy->mutex);
}

static void *run_pump(void *arg)
{
    struct pump pump = *(struct pump *)arg;
    uint8_t *message;
    uint32_t size;
    bool going = true;

    free(arg);
    while (going && (message = read_message(pump.link->ends[pump.direction != TO_SERVER], &size))) {
        going = pass_on(&pump, message, size);
        free(message);
    }
    leave(pump.link);
    return NULL;
}

static int connect_to(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int end = socket(AF_INET, SOCK_STREAM, 0), on = 1;

    if (connect(end, (struct sockaddr *)&address, sizeof(address))) {
        close(end);
        return -1;
    }
    setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return end;
}

/* Connects to the server for a new client, and starts a thread for each direction. Closes the
 * client if the server cannot be reached. */
static void start_pumps(struct proxy *proxy, int client)
{
    struct link *link = calloc(1, sizeof(*link));
    int on = 1;

    *link = (struct link){.proxy = proxy, .ends = {client, connect_to(proxy->server_port)}};
    if (link->ends[1] < 0) {
        close(client);
        free(link);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    link->users = 2;
    pthread_mutex_lock(&proxy->mutex);
    proxy->pumps += 2;
    pthread_mutex_unlock(&proxy->mutex);
    for (int direction = TO_SERVER; direction <= TO_CLIENT; direction++) {
        struct pump *pump = malloc(sizeof(*pump));
        pthread_t thread;

        *pump = (struct pump){link, (enum proxy_direction)direction};
        if (pthread_create(&thread, NULL, run_pump, pump))
            abort();
        pthread_detach(thread);
    }
}

static void *accept_all(void *arg)
{
    struct proxy *proxy = arg;
    bool stopping = false;

    while (!stopping) {
        struct pollfd ready = {proxy->listener, POLLIN, 0};
        int client = poll(&ready, 1, 100) > 0 ? accept(proxy->listener, NULL, NULL) : -1;

        if (client >= 0)
            start_pumps(proxy, client);
        pthread_mutex_lock(&proxy->mutex);
        stopping = proxy->stopping;
        pthread_mutex_unlock(&proxy->mutex);
    }
    return NULL;
}

struct proxy *proxy_start(int server_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    struct proxy *proxy = calloc(1, sizeof(*proxy));

    proxy->server_port = server_port;
    pthread_mutex_init(&proxy->mutex, NULL);
    pthread_cond_init(&proxy->changed, NULL);
    proxy->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(proxy->listener, (struct sockaddr *)&address, size) || listen(proxy->listener, 100) ||
        getsockname(proxy->listener, (struct sockaddr *)&address, &size) ||
        pthread_create(&proxy->accepter, NULL, accept_all, proxy)) {
        close(proxy->listener);
        free(proxy);
        return NULL;
    }
    proxy->port = ntohs(address.sin_port);
    return proxy;
}

int proxy_port(const struct proxy *proxy)
{
    return proxy->port;
}

void proxy_arm(struct proxy *proxy, enum proxy_fault fault, enum proxy_direction direction,
               uint64_t at)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->fault = fault;
    proxy->direction = direction;
    proxy->at = at;
    proxy->count[0] = proxy->count[1] = 0;
    proxy->hit = false;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_script(struct proxy *proxy, const bson_t *say, const bson_t *then, const char *only)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->say = say;
    proxy->then = then;
    proxy->only = only;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_change(struct proxy *proxy, uint32_t place, uint32_t change)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->place = place;
    proxy->change = change;
    pthread_mutex_unlock(&proxy->mutex);
}

bool proxy_hit(struct proxy *proxy)
{
    bool hit;

    pthread_mutex_lock(&proxy->mutex);
    hit = proxy->hit;
    pthread_mutex_unlock(&proxy->mutex);
    return hit;
}

uint64_t proxy_count(struct proxy *proxy, enum proxy_direction direction)
{
    uint64_t count;

    pthread_mutex_lock(&proxy->mutex);
    count = proxy->count[direction];
    pthread_mutex_unlock(&proxy->mutex);
    return count;
}

bool proxy_holds(struct proxy *proxy)
{
    bool holds;

    pthread_mutex_lock(&proxy->mutex);
    holds = proxy->holding;
    pthread_mutex_unlock(&proxy->mutex);
    return holds;
}

void proxy_let_go(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->holding = false;
    pthread_cond_broadcast(&proxy->changed);
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_settle(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    while (proxy->held > 0)
        pthread_cond_wait(&proxy->changed, &proxy->mutex);
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_stop(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->stopping = true;
    pthread_mutex_unlock(&proxy->mutex);
    pthread_join(proxy->accepter, NULL);
    close(proxy->listener);
    pthread_mutex_lock(&proxy->mutex);
    while (proxy->pumps > 0)
        pthread_cond_wait(&proxy->changed, &proxy->mutex);
    pthread_mutex_unlock(&proxy->mutex);
    pthread_cond_destroy(&proxy->changed);
    pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}
