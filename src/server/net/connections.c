#include "server/net/connections.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"

static void connections_log(const struct connection *connection, truce_log_level level,
                            const char *message, const char *name, int64_t number)
{
    bson_t *fields = BCON_NEW("from", BCON_UTF8(connection->peer), name, BCON_INT64(number));

    log_write(connection->server->log, level, LOG_NETWORK, connection->number, message, fields);
    bson_destroy(fields);
}

/* If the list is full, evicts the oldest connection that has not logged in for
 * TRUCE_UNAUTHENTICATED_FRESH_MS, so that clients without a password do not lock users out. Returns
 * the number of connections that are not about to end. The mutex must be held. */
static int connections_make_room(struct server *server)
{
    int64_t now_ns = truce__clock_monotonic_ns();
    struct connection *oldest = NULL;
    int stay = 0;

    for (struct connection *at = server->connections; at; at = at->next) {
        bool old = now_ns - at->begun_ns > TRUCE_UNAUTHENTICATED_FRESH_MS * INT64_C(1000000);

        stay += !at->evicted;
        if (old && !at->evicted && atomic_load(&at->unauthenticated))
            /* The list begins with the newest connection, so the last match is the oldest. */
            oldest = at;
    }
    if (stay < server->connections_max || !oldest)
        return stay;
    oldest->evicted = true;
    (void)shutdown(oldest->socket, SHUT_RDWR);
    return stay - 1;
}

/* Adds the connection to the list. Returns false if there are too many, or the server is
 * stopping. */
static bool connections_enter(struct server *server, struct connection *connection)
{
    int64_t open;
    bool enters;

    pthread_mutex_lock(&server->mutex);
    enters = !server->stopping &&
             (server->connected < server->connections_max ||
              (server->auth && connections_make_room(server) < server->connections_max));
    if (enters) {
        connection->number = (int32_t)++server->created;
        connection->next = server->connections;
        server->connections = connection;
        server->connected++;
    } else {
        server->refused++;
    }
    open = server->connected;
    pthread_mutex_unlock(&server->mutex);
    connections_log(connection, enters ? TRUCE_LOG_INFO : TRUCE_LOG_WARNING,
                    enters ? "connection accepted" : "connection refused", "open", open);
    return enters;
}

void connection_leave(struct connection *connection)
{
    struct server *server = connection->server;
    struct connection **at = &server->connections;

    connections_log(connection, TRUCE_LOG_INFO, "connection closed", "ms",
                    (truce__clock_monotonic_ns() - connection->begun_ns) / 1000000);
    pthread_mutex_lock(&server->mutex);
    while (*at != connection)
        at = &(*at)->next;
    *at = connection->next;
    connection->next = server->ended;
    server->ended = connection;
    server->connected--;
    if (!connection->borrowed)
        close(connection->socket);
    login_release(&connection->login);
    pthread_cond_broadcast(&server->gone);
    pthread_mutex_unlock(&server->mutex);
}

/* Joins the threads of connections that have ended: OpenSSL cleans up after each thread, and
 * no thread may do that while the process ends. */
void connections_join_ended(struct server *server)
{
    struct connection *ended, *next;

    pthread_mutex_lock(&server->mutex);
    ended = server->ended;
    server->ended = NULL;
    pthread_mutex_unlock(&server->mutex);
    for (; ended; ended = next) {
        next = ended->next;
        if (ended->started)
            pthread_join(ended->thread, NULL);
        pthread_mutex_destroy(&ended->operation.mutex);
        bson_free(ended);
    }
}

/* Writes ADDRESS:PORT of the client, or "unix" if it has no Internet address. */
static void connections_name_peer(const struct sockaddr *from, char *peer, size_t size)
{
    char address[INET6_ADDRSTRLEN] = "";
    const struct sockaddr_in *four = (const struct sockaddr_in *)from;
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)from;

    if (from && from->sa_family == AF_INET) {
        inet_ntop(AF_INET, &four->sin_addr, address, sizeof address);
        snprintf(peer, size, "%s:%d", address, ntohs(four->sin_port));
    } else if (from && from->sa_family == AF_INET6) {
        inet_ntop(AF_INET6, &six->sin6_addr, address, sizeof address);
        snprintf(peer, size, "[%s]:%d", address, ntohs(six->sin6_port));
    } else {
        snprintf(peer, size, "unix");
    }
}

bool connection_join(struct server *server, struct connection *connection,
                     const struct sockaddr *from)
{
    int on = 1;

    connection->server = server;
    connection->begun_ns = truce__clock_monotonic_ns();
    atomic_init(&connection->unauthenticated, server->auth);
    connections_name_peer(from, connection->peer, sizeof connection->peer);
    (void)setsockopt(connection->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    pthread_mutex_init(&connection->operation.mutex, NULL);
    if (connections_enter(server, connection))
        return true;
    pthread_mutex_destroy(&connection->operation.mutex);
    return false;
}
