/* One thread serves each connection: it reads a message, finds its command, and writes the answer.
 *
 *     OP_QUERY (2004)  the first handshake of a connection    -> OP_REPLY (1)
 *     OP_MSG (2013)    all else; the documents of other sections ("inserts" and so on) are put
 *                      into the command                       -> OP_MSG */
#include "tests/support/fake.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/net/wire_protocol.h"

#define MESSAGE_MAX     (1024 * 1024)
#define REMEMBERED      200
#define MAX_CONNECTIONS 100
#define HEAD            16

struct fake {
    /* The kind of deployment, and the maximum wire version, that the reply to hello reports. */
    enum fake_deployment deployment;
    int32_t wire;
    /* Fills the reply to every other command. Called with `arg`, under the mutex. */
    fake_answer *answer;
    void *arg;
    /* The listening socket, its port, and the port of the upstream server (fake_upstream). */
    int listener, port, upstream;
    /* The thread that accepts connections. */
    pthread_t accepter;
    /* Protects the fields below. */
    pthread_mutex_t mutex;
    /* Signaled when a connection has ended. */
    pthread_cond_t gone;
    /* The last commands without handshakes, the oldest first. Owned. */
    bson_t *commands[REMEMBERED];
    /* The sockets of the connections; 0 means free. */
    int ends[MAX_CONNECTIONS];
    /* The number of elements of `commands`, and of open connections. */
    int count, connections;
    /* `stopping`: the accepter must end. `frozen`, `dead`: the state that fake_freeze or fake_die
     * has set. */
    bool stopping, frozen, dead;
};

struct connection {
    struct fake *fake;
    /* The socket of the client, and its index in `fake->ends`. */
    int end, number;
    /* The connection to the upstream server; 0 means not connected yet. */
    int upstream;
};

static bool move_bytes(int end, uint8_t *bytes, size_t size, bool out)
{
    while (size > 0) {
        ssize_t moved = out ? send(end, bytes, size, MSG_NOSIGNAL) : recv(end, bytes, size, 0);

        if (moved <= 0)
            return false;
        bytes += moved;
        size -= (size_t)moved;
    }
    return true;
}

static const char *name_of(const bson_t *command)
{
    bson_iter_t iter;

    return bson_iter_init(&iter, command) && bson_iter_next(&iter) ? bson_iter_key(&iter) : "";
}

static bool is_hello(const char *name)
{
    return !strcmp(name, "hello") || !strcmp(name, "isMaster") || !strcmp(name, "ismaster");
}

static void say_hello(const struct fake *fake, bson_t *reply)
{
    char me[40];

    snprintf(me, sizeof me, "127.0.0.1:%d", fake->port);
    BCON_APPEND(reply, "ismaster", BCON_BOOL(true), "isWritablePrimary", BCON_BOOL(true), "helloOk",
                BCON_BOOL(true), "maxBsonObjectSize", BCON_INT32(16777216), "maxMessageSizeBytes",
                BCON_INT32(48000000), "maxWriteBatchSize", BCON_INT32(100000), "minWireVersion",
                BCON_INT32(0), "maxWireVersion", BCON_INT32(fake->wire),
                "logicalSessionTimeoutMinutes", BCON_INT32(30), "readOnly", BCON_BOOL(false));
    if (fake->deployment == FAKE_REPLICA_SET)
        BCON_APPEND(reply, "setName", BCON_UTF8("fake"), "hosts", "[", BCON_UTF8(me), "]",
                    "primary", BCON_UTF8(me), "me", BCON_UTF8(me));
    if (fake->deployment == FAKE_SHARDED)
        BCON_APPEND(reply, "msg", BCON_UTF8("isdbgrid"));
}

static void remember(struct fake *fake, const bson_t *command)
{
    if (fake->count == REMEMBERED) {
        bson_destroy(fake->commands[0]);
        memmove(fake->commands, fake->commands + 1, sizeof fake->commands[0] * --fake->count);
    }
    fake->commands[fake->count++] = bson_copy(command);
}

static enum fake_act answer(struct fake *fake, const bson_t *command, bson_t *reply)
{
    enum fake_act act = FAKE_ANSWER;

    pthread_mutex_lock(&fake->mutex);
    if (fake->dead || fake->frozen) {
        act = fake->dead ? FAKE_CUT : FAKE_SILENT;
    } else if (is_hello(name_of(command))) {
        say_hello(fake, reply);
    } else {
        remember(fake, command);
        act = fake->answer(command, reply, fake->arg);
    }
    pthread_mutex_unlock(&fake->mutex);
    if (!bson_has_field(reply, "ok"))
        BSON_APPEND_DOUBLE(reply, "ok", 1);
    return act;
}

static void append_section(bson_t *command, const struct wire_section *section)
{
    const uint8_t *at = section->bytes;
    uint32_t index = 0;
    bson_t list;

    bson_append_array_begin(command, section->name, -1, &list);
    while (at < section->bytes + section->size) {
        char text[16];
        const char *key;
        uint32_t length;
        bson_t document;

        memcpy(&length, at, 4);
        bson_uint32_to_string(index++, &key, text, sizeof text);
        if (!bson_init_static(&document, at, length))
            abort();
        bson_append_document(&list, key, -1, &document);
        at += length;
    }
    bson_append_array_end(command, &list);
}

/* Returns the command in the message, with the documents of the other sections; initialized. */
static bool take_command(const uint8_t *message, uint32_t size, bson_t *command)
{
    struct wire_request request = {0};
    bson_error_t error;

    bson_init(command);
    if (!wire_read(message, size, &request, &error))
        return false;
    bson_concat(command, &request.body);
    for (uint32_t i = 0; i < request.count; i++)
        append_section(command, &request.sections[i]);
    return true;
}

static int reach(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)},
                                  .sin_port = htons((uint16_t)port)};
    int end = socket(AF_INET, SOCK_STREAM, 0);

    if (connect(end, (struct sockaddr *)&address, sizeof address))
        abort();
    return end;
}

/* Sends the message to the upstream server, and passes on its reply. */
static bool ask_upstream(struct connection *connection, const uint8_t *message, uint32_t size)
{
    uint8_t head[4], *bytes;
    uint32_t length;
    bool going;

    if (!connection->upstream)
        connection->upstream = reach(connection->fake->upstream);
    if (!move_bytes(connection->upstream, (uint8_t *)message, size, true) ||
        !move_bytes(connection->upstream, head, sizeof head, false))
        return false;
    memcpy(&length, head, 4);
    bytes = malloc(length);
    memcpy(bytes, head, 4);
    going = move_bytes(connection->upstream, bytes + 4, length - 4, false) &&
            move_bytes(connection->end, bytes, length, true);
    free(bytes);
    return going;
}

/* Replies to one message in the form of its protocol version. Returns false if the connection must
 * end. */
static bool reply_to(struct connection *connection, const uint8_t *message, uint32_t size)
{
    uint32_t operation, head[4];
    static const uint8_t of_message[5], of_reply[20] = {8, [16] = 1};
    bson_t command, reply = BSON_INITIALIZER;
    enum fake_act act = FAKE_CUT;
    bool sent;

    memcpy(&operation, message + 12, 4);
    if (take_command(message, size, &command))
        act = answer(connection->fake, &command, &reply);
    sent = act == FAKE_SILENT || (act == FAKE_UPSTREAM && ask_upstream(connection, message, size));
    if (act == FAKE_ANSWER) {
        bool old = operation == 2004;
        size_t before = old ? sizeof of_reply : sizeof of_message;
        uint8_t *bytes = malloc(HEAD + before + reply.len);

        head[0] = (uint32_t)(HEAD + before + reply.len);
        head[1] = 0;
        memcpy(&head[2], message + 4, 4);
        head[3] = old ? 1 : 2013;
        memcpy(bytes, head, HEAD);
        memcpy(bytes + HEAD, old ? of_reply : of_message, before);
        memcpy(bytes + HEAD + before, bson_get_data(&reply), reply.len);
        sent = move_bytes(connection->end, bytes, head[0], true);
        free(bytes);
    }
    bson_destroy(&reply);
    bson_destroy(&command);
    return sent;
}

/* Serves one connection until it ends, and owns `arg`. The function of a thread. */
static void *serve(void *arg)
{
    struct connection connection = *(struct connection *)arg;
    struct fake *fake = connection.fake;
    bool going = true;

    free(arg);
    while (going) {
        uint8_t *message, head[4];
        uint32_t size;

        if (!move_bytes(connection.end, head, sizeof head, false))
            break;
        memcpy(&size, head, 4);
        if (size < HEAD || size > MESSAGE_MAX)
            break;
        message = calloc(1, size + 1);
        memcpy(message, head, 4);
        going = move_bytes(connection.end, message + 4, size - 4, false) &&
                reply_to(&connection, message, size);
        free(message);
    }
    pthread_mutex_lock(&fake->mutex);
    fake->ends[connection.number] = 0;
    close(connection.end);
    if (connection.upstream)
        close(connection.upstream);
    fake->connections--;
    pthread_cond_broadcast(&fake->gone);
    pthread_mutex_unlock(&fake->mutex);
    return NULL;
}

/* Accepts connections until the server stops, and starts a thread for each. A dead server closes
 * them at once. */
static void *accept_all(void *arg)
{
    struct fake *fake = arg;
    bool stopping = false;

    while (!stopping) {
        struct pollfd ready = {fake->listener, POLLIN, 0};
        int end = poll(&ready, 1, 50) > 0 ? accept(fake->listener, NULL, NULL) : -1;

        pthread_mutex_lock(&fake->mutex);
        if (end >= 0 && fake->dead) {
            close(end);
        } else if (end >= 0) {
            struct connection *connection = malloc(sizeof *connection);
            pthread_t thread;

            *connection = (struct connection){.fake = fake, .end = end};
            while (fake->ends[connection->number])
                if (++connection->number == MAX_CONNECTIONS)
                    abort();
            fake->ends[connection->number] = end;
            fake->connections++;
            if (pthread_create(&thread, NULL, serve, connection))
                abort();
            pthread_detach(thread);
        }
        stopping = fake->stopping;
        pthread_mutex_unlock(&fake->mutex);
    }
    return NULL;
}

struct fake *fake_start(enum fake_deployment deployment, int32_t wire, fake_answer *answers,
                        void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    struct fake *fake = calloc(1, sizeof *fake);

    fake->deployment = deployment;
    fake->wire = wire;
    fake->answer = answers;
    fake->arg = arg;
    pthread_mutex_init(&fake->mutex, NULL);
    pthread_cond_init(&fake->gone, NULL);
    fake->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fake->listener, (struct sockaddr *)&address, size) || listen(fake->listener, 50) ||
        getsockname(fake->listener, (struct sockaddr *)&address, &size))
        abort();
    fake->port = ntohs(address.sin_port);
    if (pthread_create(&fake->accepter, NULL, accept_all, fake))
        abort();
    return fake;
}

void fake_upstream(struct fake *fake, int port)
{
    fake->upstream = port;
}

void fake_freeze(struct fake *fake, bool frozen)
{
    pthread_mutex_lock(&fake->mutex);
    fake->frozen = frozen;
    pthread_mutex_unlock(&fake->mutex);
}

void fake_die(struct fake *fake, bool dead)
{
    pthread_mutex_lock(&fake->mutex);
    fake->dead = dead;
    for (int i = 0; dead && i < MAX_CONNECTIONS; i++)
        if (fake->ends[i])
            shutdown(fake->ends[i], SHUT_RDWR);
    pthread_mutex_unlock(&fake->mutex);
}

const char *fake_uri(const struct fake *fake, const char *options)
{
    static _Thread_local char text[400];

    snprintf(text, sizeof text, "mongodb://127.0.0.1:%d/db?%s", fake->port, options);
    return text;
}

bson_t *fake_last(struct fake *fake, const char *name)
{
    bson_t *found = NULL;

    pthread_mutex_lock(&fake->mutex);
    for (int i = fake->count; i-- > 0;) {
        if (!found && !strcmp(name_of(fake->commands[i]), name))
            found = bson_copy(fake->commands[i]);
        if (!strcmp(name_of(fake->commands[i]), name)) {
            bson_destroy(fake->commands[i]);
            memmove(fake->commands + i, fake->commands + i + 1,
                    sizeof fake->commands[0] * (size_t)(--fake->count - i));
        }
    }
    pthread_mutex_unlock(&fake->mutex);
    return found;
}

void fake_stop(struct fake *fake)
{
    pthread_mutex_lock(&fake->mutex);
    fake->stopping = true;
    pthread_mutex_unlock(&fake->mutex);
    pthread_join(fake->accepter, NULL);
    close(fake->listener);
    pthread_mutex_lock(&fake->mutex);
    while (fake->connections > 0)
        pthread_cond_wait(&fake->gone, &fake->mutex);
    pthread_mutex_unlock(&fake->mutex);
    for (int i = 0; i < fake->count; i++)
        bson_destroy(fake->commands[i]);
    pthread_cond_destroy(&fake->gone);
    pthread_mutex_destroy(&fake->mutex);
    free(fake);
}
